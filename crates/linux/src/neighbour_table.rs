//! How full the kernel's tables of neighbours are (`ip -s ntable show`). Each is one table of all namespaces: a neighbour that it has no room for
//! is asked nothing, and packets to it are dropped.

use std::time::Duration;

use crate::Family;
use crate::netlink::{Netlink, ReadError};
use crate::uapi::neighbour::{NDTA_CONFIG, NDTA_NAME, NDTA_STATS, NDTA_THRESH3};
use crate::uapi::rtnetlink::{RTM_GETNEIGHTBL, RTM_NEWNEIGHTBL};
use crate::wire::{Attributes, Message, Received, text, u32_at};

/// Length of `struct ndtmsg`.
const NDTMSG: usize = 4;
/// Where `struct ndt_config` has the entries, and the milliseconds since the last time that room was made.
const ENTRIES: usize = 4;
const LAST_FLUSH: usize = 8;
/// Where `struct ndt_stats` has how often there was no room.
const TABLE_FULLS: usize = 80;

/// The neighbours of one family, in every namespace of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NeighbourTable {
    /// How many there are.
    pub entries: u32,
    /// How many there may be (`gc_thresh3`).
    pub most: u32,
    /// For how many there was no room, since the kernel has started.
    pub refused: u64,
    /// Since when old ones were last removed to make room.
    pub cleared: Duration,
}

// === impl NeighbourTable ===

impl NeighbourTable {
    /// Messages about a link's settings have neither size nor statistics.
    fn parse(message: &Received<'_>, family: Family) -> Option<Self> {
        let (_, attributes) = message.payload.split_at_checked(NDTMSG)?;
        let of = |wanted: u16| Attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        let name = if family == Family::V4 { "arp_cache" } else { "ndisc_cache" };
        if text(of(NDTA_NAME)?) != name {
            return None;
        }
        let config = of(NDTA_CONFIG)?;
        let refused = of(NDTA_STATS)?.get(TABLE_FULLS..)?.first_chunk().copied().map(u64::from_ne_bytes)?;
        let cleared = Duration::from_millis(config.get(LAST_FLUSH..).and_then(u32_at)?.into());
        Some(NeighbourTable { entries: config.get(ENTRIES..).and_then(u32_at)?, most: u32_at(of(NDTA_THRESH3)?)?, refused, cleared })
    }
}

impl Netlink {
    /// The table of neighbours of a family; `None` without that family.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn neighbour_table(&mut self, family: Family) -> Result<Option<NeighbourTable>, ReadError> {
        let question = Message::new(RTM_GETNEIGHTBL, 0, &[family.number(), 0, 0, 0]);
        let tables = self.dump("ip -s ntable show", question, &[], |m| {
            (m.kind == RTM_NEWNEIGHTBL).then(|| NeighbourTable::parse(m, family)).flatten()
        })?;
        Ok(tables.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel (6.18) said of IPv6, when 134 neighbours had found no room.
    const SAID: &str = "0a000000100001006e646973635f6361636865000c0008003075000000000000080002008000000008000300000200000800040000040000240005001000\
        580100000000dcec0100dca10200c90394c4ff07000000000000000000005c0007005818000000000000581800000000000008000000000000000b00000000000000190e\
        000000000000bc060000000000004f04000000000000db01000000000000840000000000000095000000000000008600000000000000";

    #[test]
    fn what_the_kernel_says() {
        let payload: Vec<u8> = (0..SAID.len()).step_by(2).map(|at| u8::from_str_radix(&SAID[at..at + 2], 16).unwrap()).collect();
        let of = |family| NeighbourTable::parse(&Received { kind: RTM_NEWNEIGHTBL, flags: 0, sequence: 0, payload: &payload }, family);
        let table = NeighbourTable { entries: 0, most: 1024, refused: 134, cleared: Duration::from_millis(126_172) };
        assert_eq!((of(Family::V6), of(Family::V4)), (Some(table), None));
        let mut cut = payload.clone();
        cut.truncate(90);
        let said = Received { kind: RTM_NEWNEIGHTBL, flags: 0, sequence: 0, payload: &cut };
        assert_eq!(NeighbourTable::parse(&said, Family::V6), None);
    }
}
