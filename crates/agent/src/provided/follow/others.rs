//! What else has addresses of this node's pods, or may have given them to pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Lacks, Network};
use crate::lock;
use crate::provided::gateway;
use crate::provided::gateway::{Occupant, Occupied};

// === impl Network ===

impl Network<'_> {
    /// Looks whether anything else has ranges of this node, before any pod gets an address of them.
    pub(super) fn look_for_others(&mut self, lacks: &mut Lacks) {
        let planned = || self.plan.iter().flat_map(|plan| &plan.ranges).copied();
        // Before the first block there are the gateways: a pod that waits for a block gets an address of it at once.
        let gateways = || self.terms.gateways.iter().flatten().copied().map(IpNet::from);
        let ranges: BTreeSet<IpNet> =
            planned().chain(gateways()).chain(self.kept.ranges.iter().chain(&self.kept.former).copied()).collect();
        let ranges: Vec<IpNet> = ranges.into_iter().collect();
        let looked = self.host.netlink().and_then(|netlink| {
            let there = gateway::on_bridge(netlink)?;
            let mut occupied = gateway::occupied(netlink, &there, &ranges, &self.terms.networks, |range| self.kept.proof_of(range))?;
            let in_the_way = |range: IpNet| self.kept.in_the_way(&range, &there).map(|by| Occupied { range, by, pool: None });
            occupied.extend(planned().chain(gateways()).filter_map(in_the_way));
            occupied.iter_mut().for_each(|one| one.pool = self.terms.pool_of(&one.range).map(str::to_owned));
            Ok(occupied)
        });
        match looked {
            Ok(occupied) => {
                self.occupied = occupied;
                self.looked_at = ranges;
                // A pod may have an address of them already, and waits for the way to it: the rest of the round takes its time.
                let mut known = lock(&self.provided.state);
                (known.occupied, known.looked_at) = (self.occupied_texts(), self.looked_at.clone());
            }
            Err(e) => lacks.own.push(format!("cannot read the node's addresses: {e}")),
        }
        lacks.own.extend(self.occupied.iter().map(ToString::to_string));
    }

    /// Those ranges, and what has them.
    pub(super) fn occupied_texts(&self) -> Vec<(IpNet, String)> {
        self.occupied.iter().map(|occupied| (occupied.range, occupied.to_string())).collect()
    }

    /// Whether pods get addresses of a range of the plan, now or as soon as a link that is no bridge of theirs has none of it. What may be
    /// given twice is not kept: it would be in use then, and looked at no more.
    pub(super) fn is_to_be_given(&self, range: &IpNet) -> bool {
        let of_pools = self.terms.gateways.is_some();
        let is_held = |by: &Occupant| of_pools || !matches!(by, Occupant::Link { .. });
        self.kept.ranges.contains(range) || !self.occupied.iter().any(|occupied| occupied.range == *range && is_held(&occupied.by))
    }

    /// The gateways of pools that the bridge is to have: while something else has addresses of theirs, those that it has.
    pub(super) fn gateways(&self) -> Option<Vec<IpAddr>> {
        let had = self.kept.gateways.as_deref().unwrap_or_default();
        let is_taken = |gateway: &&IpAddr| self.occupied.is_empty() || had.contains(gateway);
        self.terms.gateways.as_ref().map(|all| all.iter().filter(is_taken).copied().collect())
    }
}
