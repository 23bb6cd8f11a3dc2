//! Noticing that somebody takes rules away: the kernel tells each change to who has joined its group (`nft monitor`).
//!
//! ```text
//! DELTABLE, DELCHAIN, DELRULE, DELSET, DELSETELEM ...  NEWGEN     of one transaction, in this order
//!    does it matter?                                    by whom?  -> Removal
//! ```

use std::time::{Duration, Instant};

use netlink_sys::{Socket as Netlink, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

use super::wire::{self, Frame, SUBSYSTEM};
use super::{OpenError, ReadError};
use crate::netns::Inside;
use crate::receive::{self, Buffer};

/// `NFNLGRP_NFTABLES`
const GROUP: u32 = 7;
/// What the kernel may keep for us, in bytes: a flush of many rules is many messages. What is too much is told as an overrun.
const ROOM: usize = 4 << 20;

/// `NFT_MSG_DEL*`, of table, chain, rule, set and element.
const DELETIONS: [u8; 5] = [2, DEL_CHAIN, DEL_RULE, 11, DEL_ELEMENT];
const DEL_CHAIN: u8 = 5;
const DEL_RULE: u8 = 8;
const DEL_ELEMENT: u8 = 14;
/// `NFT_MSG_NEWGEN`: the end of a transaction.
const NEW_GENERATION: u8 = 15;
/// The table's name, in all of those messages.
const TABLE: u16 = 1;
/// `NFTA_CHAIN_NAME`, `NFTA_RULE_CHAIN`
const CHAIN_NAME: u16 = 3;
const RULE_CHAIN: u16 = 2;
/// `NFTA_GEN_PROC_PID`, `NFTA_GEN_PROC_NAME`
const GENERATION_PID: u16 = 2;
const GENERATION_NAME: u16 = 3;

/// A socket that hears of every change of the namespace's rules.
#[derive(Debug)]
pub struct Watch {
    netlink: Netlink,
    matters: fn(&Deleted<'_>) -> Option<Removed>,
    /// What the transaction that is being told has removed so far.
    so_far: Option<Removed>,
    /// What was told and not asked for yet.
    told: std::collections::VecDeque<Removal>,
}

/// One thing that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted<'a> {
    /// The name of its table.
    pub table: &'a str,
    /// The name of its chain, of a rule and of a chain itself.
    pub chain: Option<&'a str>,
    /// Whether it is an element.
    pub element: bool,
}

/// What is removed, as far as it matters: of several in one transaction what matters most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removed {
    /// Elements of ours alone.
    Elements,
    /// Something that others own, and that ours may stand in.
    Others,
    /// Rules, chains, sets, or a table of ours.
    Rules,
    /// More was changed than the socket could hold: perhaps everything.
    Unknown,
}

/// One transaction, or what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// What it has removed of the table.
    pub removed: Removed,
    /// Which thread it was, by its number in the first process namespace; 0 if that is not known.
    pub thread: u32,
    /// That thread's name: a program's, mostly.
    pub name: String,
}

// === impl Watch ===

impl Watch {
    /// Begins to listen to what is removed in the namespace that this thread is in; `matters` says of each thing whether it does.
    ///
    /// # Errors
    /// [`OpenError`], without `CAP_NET_ADMIN` too.
    pub fn open(_inside: &Inside, matters: fn(&Deleted<'_>) -> Option<Removed>) -> Result<Self, OpenError> {
        let open = || {
            let mut netlink = Netlink::new(wire::PROTOCOL)?;
            netlink.bind(&SocketAddr::new(0, 0))?;
            netlink.add_membership(GROUP)?;
            let _ = setsockopt(&netlink, sockopt::RcvBufForce, &ROOM);
            Ok(Watch { netlink, matters, so_far: None, told: Default::default() })
        };
        open().map_err(|e: std::io::Error| OpenError { errno: errno(&e) })
    }

    /// Waits for the next transaction that removes something of the table; `None` when so long nothing has. `None` as patience is
    /// for ever, zero looks only at what is there already.
    ///
    /// # Errors
    /// [`ReadError`]: the socket is of no use any more.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Option<Removal>, ReadError> {
        let fail = |errno| ReadError::Receive { what: "changes of the ruleset".to_owned(), errno };
        let mut buffer = Buffer::take();
        let by = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(Some(told));
            }
            // Changes that do not matter may come all the time: they do not prolong it.
            let left = by.map(|by| by.saturating_duration_since(Instant::now()));
            match receive::datagram(&self.netlink, &mut buffer, left) {
                Ok(_) => wire::frames(&buffer).for_each(|frame| self.take(&frame)),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    self.so_far = None;
                    self.told.push_back(Removal { removed: Removed::Unknown, thread: 0, name: String::new() });
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    fn take(&mut self, frame: &Frame<'_>) {
        let [subsystem, message] = frame.kind.to_be_bytes();
        if u16::from(subsystem) != SUBSYSTEM {
            return;
        }
        if message == NEW_GENERATION {
            let Some(removed) = self.so_far.take() else { return };
            let pid = wire::find(frame.body(), GENERATION_PID).and_then(|pid| pid.first_chunk().copied());
            let name = wire::find(frame.body(), GENERATION_NAME).map(wire::text).unwrap_or_default();
            self.told.push_back(Removal { removed, thread: pid.map_or(0, u32::from_be_bytes), name });
            return;
        }
        if !DELETIONS.contains(&message) {
            return;
        }
        let chain = match message {
            DEL_CHAIN => CHAIN_NAME,
            DEL_RULE => RULE_CHAIN,
            _ => 0,
        };
        let text = |kind| wire::find(frame.body(), kind).map(wire::text);
        let (table, chain) = (text(TABLE).unwrap_or_default(), text(chain));
        let deleted = Deleted { table: &table, chain: chain.as_deref(), element: message == DEL_ELEMENT };
        self.so_far = self.so_far.max((self.matters)(&deleted));
    }
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
