//! Changes of links, addresses, routes and neighbours, as the kernel reports them (`ip monitor`).
//!
//! ```text
//!   RTM_NEW*, RTM_DEL*, of anybody in the namespace, this process included --> Notice, one after the other
//! ```
//!
//! Not every change is reported: with a link that goes down, or loses its last address, its IPv4 routes go silently (`fib_sync_down_dev` in
//! net/ipv4/fib_semantics.c). Who watches a link's routes has to watch the link.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

use crate::addr::Address;
use crate::batch::Failure;
use crate::fdb::FdbEntry;
use crate::link::Link;
use crate::neigh::Neighbour;
use crate::netlink::{OpenError, ReadError};
use crate::netns::Inside;
use crate::receive::{self, Buffer};
use crate::route::Route;
use crate::uapi::family;
use crate::uapi::rtnetlink::*;
use crate::wire::{Messages, Received};

const GROUPS: [u32; 6] = [RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE];
/// What the kernel may keep for us, in bytes: enough for thousands of routes that are written at once.
const ROOM: usize = 4 << 20;

/// A socket that receives every change.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    /// What was received and not asked for yet.
    received: VecDeque<Notice>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// It is there: new, or changed.
    Present(Object),
    /// It is there no longer; this is what it was.
    Gone(Object),
    /// More has happened than the socket could hold: perhaps anything.
    Lost,
}

/// What it has happened to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// A link.
    Link(Box<Link>),
    /// An address of a link.
    Address(Box<Address>),
    /// A route, of any table.
    Route(Box<Route>),
    /// A neighbour of a link.
    Neighbour(Neighbour),
    /// An entry of a vxlan's forwarding database.
    Fdb(FdbEntry),
}

// === impl Monitor ===

impl Monitor {
    /// Begins to listen in the namespace that this thread is in.
    ///
    /// # Errors
    /// [`OpenError`] when there is no descriptor left.
    pub fn open(inside: &Inside) -> Result<Self, OpenError> {
        Ok(Monitor { socket: listen(inside, &GROUPS, ROOM)?, received: VecDeque::new() })
    }

    /// Waits for the next change, not longer than `patience`: then it is `None`. Without patience it waits for ever; zero looks only at what
    /// is there already.
    ///
    /// # Errors
    /// [`ReadError`]: the socket is of no use any more.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Option<Notice>, ReadError> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut buffer = Buffer::take();
        loop {
            if let Some(notice) = self.received.pop_front() {
                return Ok(Some(notice));
            }
            match receive(&self.socket, &mut buffer, until.map(|until| until.saturating_duration_since(Instant::now()))) {
                Ok(()) => self.received.extend(Messages(&buffer).filter_map(|message| read(&message))),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => self.received.push_back(Notice::Lost),
                Err(errno) => {
                    return Err(ReadError::Refused(Failure { index: 0, what: "ip monitor".to_owned(), errno, text: None }));
                }
            }
        }
    }
}

/// A socket that hears these groups (`RTNLGRP_*`), for which the kernel may keep so many bytes.
pub(crate) fn listen(_: &Inside, groups: &[u32], room: usize) -> Result<Socket, OpenError> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(|e| OpenError::Socket(errno(&e)))?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(|e| OpenError::Socket(errno(&e)))?;
    for group in groups {
        let fail = |e: std::io::Error| OpenError::Option { option: "NETLINK_ADD_MEMBERSHIP", errno: errno(&e) };
        socket.add_membership(*group).map_err(fail)?;
    }
    // Without CAP_NET_ADMIN there is less room, and changes are lost earlier.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &room);
    Ok(socket)
}

/// One datagram of the kernel's; the buffer is empty if another process sent it. `patience` is that of [`receive::datagram`].
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>, patience: Option<Duration>) -> Result<(), Errno> {
    if receive::datagram(socket, buffer, patience)?.port_number() != 0 {
        buffer.clear();
    }
    Ok(())
}

/// What a message says; `None` if it is of no kind that a [`Notice`] has.
pub(crate) fn read(message: &Received<'_>) -> Option<Notice> {
    let object = match message.kind {
        // A bridge reports its ports by the same message, of its own family.
        RTM_NEWLINK | RTM_DELLINK if message.payload.first() == Some(&family::UNSPEC) => Object::Link(Box::new(Link::parse(message)?)),
        RTM_NEWADDR | RTM_DELADDR => Object::Address(Box::new(Address::parse(message)?)),
        RTM_NEWROUTE | RTM_DELROUTE => Object::Route(Box::new(Route::parse(message)?)),
        RTM_NEWNEIGH | RTM_DELNEIGH if message.payload.first() == Some(&family::BRIDGE) => Object::Fdb(FdbEntry::parse(message)?),
        RTM_NEWNEIGH | RTM_DELNEIGH => Object::Neighbour(Neighbour::parse(message)?),
        _ => return None,
    };
    // RTM_NEW* and RTM_DEL* are neighbours: four numbers for each kind.
    Some(if message.kind & 3 == RTM_NEWLINK & 3 { Notice::Present(object) } else { Notice::Gone(object) })
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(0))
}
