//! A link as a bridge's port.

use std::fmt::Write as _;

use super::header;
use crate::batch::Request;
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::rtnetlink::RTM_SETLINK;
use crate::wire::{Attributes, Message, NLA_F_NESTED};

/// Flags of a bridge's port (linux/if_link.h, `IFLA_BRPORT_*`). `None`: as it is when written; unknown to the kernel when
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortFlags {
    /// Send back through the port that a packet came from (`hairpin`).
    pub hairpin: Option<bool>,
    /// Talk only to ports that are not isolated.
    pub isolated: Option<bool>,
    /// Take frames only of hardware addresses for which the port has an entry (`locked`).
    pub locked: Option<bool>,
    /// Learn hardware addresses from what comes in.
    pub learning: Option<bool>,
    /// Send out packets for unknown hardware addresses (`flood`).
    pub flood: Option<bool>,
    /// Send out multicast that nobody asked for (`mcast_flood`).
    pub mcast_flood: Option<bool>,
    /// Send out broadcast (`bcast_flood`).
    pub bcast_flood: Option<bool>,
    /// Shut the port when a BPDU comes in (`guard`).
    pub bpdu_guard: Option<bool>,
    /// Never take the port for the way to the root bridge (`root_block`).
    pub root_block: Option<bool>,
}

/// Whether a bridge's port passes frames on (linux/if_bridge.h, `BR_STATE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// It does not: the link or the bridge is down, or somebody has said so.
    Disabled,
    /// Not yet: the spanning tree is being made.
    Listening,
    /// Not yet: it learns addresses.
    Learning,
    /// It does.
    Forwarding,
    /// It does not: it would close a loop.
    Blocking,
    /// A value that this program does not know.
    Other(u8),
}

/// Of each flag: its attribute, `bridge link set`'s word, and where it is.
type Flag = (u16, &'static str, fn(&mut PortFlags) -> &mut Option<bool>);

const FLAGS: &[Flag] = &[
    (IFLA_BRPORT_MODE, "hairpin", |f| &mut f.hairpin),
    (IFLA_BRPORT_UNICAST_FLOOD, "flood", |f| &mut f.flood),
    (IFLA_BRPORT_LEARNING, "learning", |f| &mut f.learning),
    (IFLA_BRPORT_MCAST_FLOOD, "mcast_flood", |f| &mut f.mcast_flood),
    (IFLA_BRPORT_BCAST_FLOOD, "bcast_flood", |f| &mut f.bcast_flood),
    (IFLA_BRPORT_GUARD, "guard", |f| &mut f.bpdu_guard),
    (IFLA_BRPORT_PROTECT, "root_block", |f| &mut f.root_block),
    (IFLA_BRPORT_ISOLATED, "isolated", |f| &mut f.isolated),
    (IFLA_BRPORT_LOCKED, "locked", |f| &mut f.locked),
];

// === impl PortFlags ===

impl PortFlags {
    pub(super) fn parse(data: &[u8]) -> Self {
        let mut flags = PortFlags::default();
        for (kind, value) in Attributes(data) {
            if let Some((_, _, place)) = FLAGS.iter().find(|(attribute, ..)| *attribute == kind) {
                *place(&mut flags) = value.first().map(|b| *b != 0);
            }
        }
        flags
    }
}

// === impl PortState ===

impl PortState {
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let (_, value) = Attributes(data).find(|(kind, _)| *kind == IFLA_BRPORT_STATE)?;
        Some(match value.first()? {
            0 => PortState::Disabled,
            1 => PortState::Listening,
            2 => PortState::Learning,
            3 => PortState::Forwarding,
            4 => PortState::Blocking,
            other => PortState::Other(*other),
        })
    }
}

/// Sets flags of a bridge's port (`bridge link set dev`). Errors: `EOPNOTSUPP`, the link is no port.
pub fn set_port(index: u32, flags: &PortFlags) -> Request<'static> {
    let mut flags = *flags;
    let mut what = format!("bridge link set dev if{index}");
    let mut message = Message::new(RTM_SETLINK, 0, &header(family::BRIDGE, index, 0, 0));
    // Without the nested flag the bridge takes the attribute for the port's state.
    message.nest(IFLA_PROTINFO | NLA_F_NESTED, |info| {
        for (attribute, word, place) in FLAGS {
            if let Some(on) = *place(&mut flags) {
                info.put_u8(*attribute, on.into());
                let _ = write!(what, " {word} {}", if on { "on" } else { "off" });
            }
        }
    });
    Request::new(what, message)
}
