//! The interface that a lease is for, found in its namespace.

use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::link::{self, Change, OperState};
use linux::packet::EtherAddr;
use linux::{Inside, Netlink, Sysctl};

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its number in its namespace, which stays whatever it is called.
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: EtherAddr,
    pub(crate) up: bool,
    /// The number of a veth's other end, in the namespace where that is.
    other_end: Option<u32>,
}

/// How long the kernel may take to notice a carrier: it looks once in a second at what it does not hold urgent.
const NOTICED: Duration = Duration::from_secs(1);
/// How often it is asked.
const GLANCE: Duration = Duration::from_millis(1);

pub(crate) fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}

// === impl Link ===

impl Link {
    /// By its name; an error says what is there instead.
    pub(crate) fn named(inside: &Inside, name: &str) -> Result<Self, CniError> {
        let found = open(inside)?.link(name).map_err(internal)?;
        let link = found.ok_or_else(|| internal(format!("error looking up {name:?}: there is no such interface in the container")))?;
        Self::of(&link)
    }

    /// By its number; `None`: it is gone.
    pub(crate) fn numbered(inside: &Inside, index: u32) -> Result<Option<Self>, CniError> {
        open(inside)?.link_by_index(index).map_err(internal)?.as_ref().map(Self::of).transpose()
    }

    fn of(link: &linux::Link) -> Result<Self, CniError> {
        let mac = link.mac.as_ref().and_then(|m| EtherAddr::try_from(m.as_bytes()).ok());
        let mac =
            mac.ok_or_else(|| internal(format!("{} has no hardware address of 6 bytes: DHCP works only over Ethernet", link.name)))?;
        Ok(Link {
            index: link.index,
            name: link.name.clone(),
            mac,
            up: link.flags.up(),
            other_end: link.is("veth").then(|| link.other_end()),
        })
    }

    /// Before it comes up: its link-local address is made from its hardware address and may be used at once.
    pub(crate) fn ready_for_ipv6(&self, inside: &Inside) -> Result<(), CniError> {
        for (setting, value) in [("disable_ipv6", "0"), ("accept_dad", "0")] {
            let sysctl = Sysctl::new(["net", "ipv6", "conf", &self.name, setting]).map_err(internal)?;
            sysctl.write_if_there(inside, value).map_err(internal)?;
        }
        Ok(())
    }

    /// Waits until what comes out of a veth's other end passes on: in the namespace `there`, which is the host's and the daemon's own.
    ///
    /// A bridge forwards nothing for a port, and nothing is sent through a veth or a bridge, until the kernel has noticed the carrier
    /// that came when this end went up. It does so later, after a few milliseconds or a second; a DISCOVER before that, or its
    /// answer, is lost. To be asked for a link makes it look at that link at once (since Linux 6.8).
    pub(crate) fn passes_on(&self, there: &Inside, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), CniError> {
        let Some(index) = self.other_end else { return Ok(()) };
        let (mut netlink, by) = (open(there)?, Instant::now() + NOTICED);
        loop {
            let end = netlink.link_by_index(index).map_err(internal)?;
            let Some(end) = end.filter(|end| end.is("veth") && end.other_end() == self.index) else { return Ok(()) };
            let bridge = end.master.map(|master| netlink.link_by_index(master)).transpose().map_err(internal)?.flatten();
            // A bridge that never was without a carrier is in no known state, and works.
            let bridge_waits = |link: &linux::Link| link.is("bridge") && !matches!(link.operstate, OperState::Up | OperState::Unknown);
            let waits = end.flags.up() && (end.operstate != OperState::Up || bridge.as_ref().is_some_and(bridge_waits));
            if !waits || Instant::now() >= by || stop() {
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Brings it up or takes it down (`ip link set up`).
    pub(crate) fn set_up(&mut self, inside: &Inside, up: bool) -> Result<(), CniError> {
        if self.up != up {
            let change = Change { up: Some(up), ..Change::default() };
            let what = format!("set {} {}", self.name, if up { "up" } else { "down" });
            open(inside)?.send_one(link::set(self.index, &change).called(what)).map_err(internal)?;
            self.up = up;
        }
        Ok(())
    }
}

pub(crate) fn open(inside: &Inside) -> Result<Netlink, CniError> {
    Netlink::open(inside).map_err(internal)
}
