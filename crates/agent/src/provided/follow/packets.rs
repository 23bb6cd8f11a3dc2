//! What the node does with packets besides sending them on their way: it forwards them, refuses some, and gives some its own address.

use between::Plan;
use ipnet::IpNet;
use linux::Inside;
use rules::{Egress, Tunnelled};

use super::{Lacks, Network};
use crate::log::Line;

impl Network<'_> {
    /// Lets the node forward packets of its pods' families.
    pub(super) fn forward(&mut self, ranges: &[IpNet], lacks: &mut Lacks) {
        for family in [linux::Family::V4, linux::Family::V6] {
            if !ranges.iter().any(|range| linux::Family::of(range.addr()) == family) {
                continue;
            }
            let inside = Inside::here();
            let forwards = match self.host.netlink() {
                Ok(netlink) => fabric::forward(&inside, netlink, family).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            match forwards {
                Ok(written) => written.iter().for_each(|written| {
                    Line::info("cluster network")
                        .with("sysctl", &written.sysctl)
                        .with("was", &written.before)
                        .with("now", written.now)
                        .end();
                }),
                Err(e) => lacks.own.push(e),
            }
        }
    }

    /// Lets nothing but tunnels bring packets from pods of nodes that are reached by one.
    pub(super) fn guard_tunnels(&mut self, plan: &Plan, own: &[IpNet], lacks: &mut Lacks) {
        let tunnelled = Tunnelled { own: own.to_vec(), peers: plan.closed.iter().copied().collect() };
        let kept = match self.host.nft() {
            Ok(socket) => rules::guard_tunnels(socket, &tunnelled).map(drop).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        if let Err(e) = kept {
            lacks.own.push(format!("cannot refuse unencrypted packets that claim to come from other nodes' pods: {e}"));
        }
    }

    /// Masquerades what leaves the cluster.
    pub(super) fn masquerade(&mut self, own: &[IpNet], lacks: &mut Lacks) {
        let Some(plan) = &self.plan else { return };
        let inside = match &self.provided.settings.non_masquerade {
            Some(ranges) => ranges.iter().copied().chain(own.iter().copied()).collect(),
            None => plan.inside.iter().copied().chain(own.iter().copied()).collect(),
        };
        let egress = Egress { own: own.to_vec(), inside };
        let known = self.masqueraded.take();
        let kept = match (self.host.nft(), &known) {
            // To read the sets of thousands of nodes takes longer than all else that one of them costs.
            (Ok(socket), Some(known)) => rules::change(socket, known, &egress).map_err(|e| e.to_string()),
            (Ok(socket), None) => rules::keep(socket, &egress).map_err(|e| e.to_string()),
            (Err(e), _) => Err(e.to_string()),
        };
        match kept {
            Ok(_) => self.masqueraded = Some(egress),
            Err(e) => lacks.own.push(format!("cannot masquerade what leaves the cluster: {e}")),
        }
    }
}
