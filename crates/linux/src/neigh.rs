//! What a link's neighbours are known by (`ip neigh`).

use std::net::IpAddr;

use cni::Mac;
use nix::errno::Errno;

use crate::batch::Request;
use crate::netlink::{Netlink, ReadError};
use crate::uapi::family;
use crate::uapi::neighbour::{NDA_DST, NDA_IFINDEX, NDA_LLADDR, NUD_PERMANENT};
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_REPLACE};
use crate::uapi::rtnetlink::{RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use crate::wire::{Attributes, Message, Received, ip, u16_at, u32_at, with_octets};

/// Length of `struct ndmsg`.
pub(crate) const NDMSG: usize = 12;

/// A neighbour of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbour {
    /// Index of the link.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, where it is known.
    pub mac: Option<Mac>,
    /// Whether a program has written it, so that it is never asked for (`nud permanent`).
    pub permanent: bool,
}

// === impl Neighbour ===

impl Neighbour {
    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(NDMSG)?;
        let (mut address, mut mac) = (None, None);
        for (kind, value) in Attributes(attributes) {
            match kind {
                NDA_DST => address = ip(value),
                NDA_LLADDR => mac = Mac::from_bytes(value),
                _ => {}
            }
        }
        let address = address?;
        let state = fixed.get(8..).and_then(u16_at)?;
        let is_of_family = *fixed.first()? == family_of(address);
        let index = fixed.get(4..).and_then(u32_at)?;
        is_of_family.then_some(Neighbour { index, address, mac, permanent: state & NUD_PERMANENT != 0 })
    }
}

/// Says for good which hardware address a neighbour has, whatever was known of it (`ip neigh replace ADDRESS lladdr MAC dev LINK nud
/// permanent`). Error: `ENODEV`, the link is gone.
pub fn replace(index: u32, address: IpAddr, mac: &Mac) -> Request<'static> {
    let mut message = Message::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &header(family_of(address), index, NUD_PERMANENT, 0));
    with_octets(address, |octets| message.put(NDA_DST, octets));
    message.put(NDA_LLADDR, mac.as_bytes());
    Request::new(format!("ip neigh replace {address} lladdr {mac} dev if{index} nud permanent"), message)
}

/// Forgets which hardware address a neighbour has (`ip neigh del ADDRESS dev LINK`): it is asked for again. Errors: `ENOENT`,
/// nothing was known; `ENODEV`, the link is gone.
pub fn delete(index: u32, address: IpAddr) -> Request<'static> {
    // The kernel does not look at the state; `ip` sends this one.
    let mut message = Message::new(RTM_DELNEIGH, 0, &header(family_of(address), index, NUD_PERMANENT, 0));
    with_octets(address, |octets| message.put(NDA_DST, octets));
    Request::new(format!("ip neigh del {address} dev if{index}"), message)
}

fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { family::INET } else { family::INET6 }
}

/// `struct ndmsg`: family, padding, the link's index, state, flags, type.
pub(crate) fn header(family: u8, index: u32, state: u16, flags: u8) -> [u8; NDMSG] {
    let ([a, b, c, d], [low, high]) = (index.to_ne_bytes(), state.to_ne_bytes());
    [family, 0, 0, 0, a, b, c, d, low, high, flags, 0]
}

impl Netlink {
    /// The neighbours of a link, of both families (`ip neigh show dev LINK nud all`).
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where they change too fast to be read.
    pub fn neighbours(&mut self, index: u32) -> Result<Vec<Neighbour>, ReadError> {
        let mut question = Message::new(RTM_GETNEIGH, 0, &header(family::UNSPEC, 0, 0, 0));
        question.put_u32(NDA_IFINDEX, index);
        self.dump(&format!("ip neigh show dev if{index}"), question, &[Errno::ENODEV], |m| {
            let neighbour = (m.kind == RTM_NEWNEIGH).then(|| Neighbour::parse(m)).flatten()?;
            (neighbour.index == index).then_some(neighbour)
        })
    }
}
