//! Whether a host's kernel has room for what it has to know of its neighbours.

use std::net::IpAddr;

use super::Walk;
use crate::fault::{Fault, Finding};
use crate::network::Device;
use crate::snapshot::FullTable;

/// A table in which room was made so many milliseconds ago may be why a neighbour is not known: it is asked for again after less.
const LATELY: u64 = 60_000;
/// The kernel removes old neighbours until so great a part of the table is in use: with fewer, there is room.
const HALF: u32 = 2;

impl<'a> Walk<'a> {
    /// A neighbour that is not known is one that the kernel had no room for, if its table was full a moment ago. The table is that of all the
    /// kernel's namespaces: a pod's is its node's.
    pub(super) fn has_room(&mut self, device: Device<'a>, next: IpAddr) {
        let is_known = device.link.neighbour(next).is_some_and(|neighbour| neighbour.mac.is_some());
        if is_known || self.suspicions.iter().any(|suspicion| suspicion.fault == Fault::NeighbourTableFull) {
            return;
        }
        let Some(home) = self.network.home(&device.namespace.place) else { return };
        let is_full = |table: &&FullTable| table.is_ipv4 == next.is_ipv4() && table.cleared <= LATELY && table.entries >= table.most / HALF;
        let Some(table) = home.full_tables.iter().find(is_full) else { return };
        let (family, words) = if table.is_ipv4 { ("ipv4", "IPv4") } else { ("ipv6", "IPv6") };
        let evidence = format!(
            "{device} does not know who has {next}; its kernel has {} {words} neighbours of at most {} in all namespaces, has had no room for {} \
             since it started, and removed old ones {:.1} s ago",
            table.entries,
            table.most,
            table.refused,
            table.cleared as f64 / 1000.0
        );
        let finding = self.at(Fault::NeighbourTableFull, device, evidence);
        let (most, less) = (table.most.saturating_mul(4).to_string(), table.most.saturating_mul(2).to_string());
        let next_step = finding.next_step.replace("{family}", family).replace("{most}", &most).replace("{less}", &less);
        // A silent neighbour is a consequence.
        self.suspicions.insert(0, Finding { next_step, ..finding });
    }
}
