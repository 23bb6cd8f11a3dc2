//! What the node does with packets besides sending them on their way: it forwards them, refuses some, and gives some its own address.

use std::collections::BTreeSet;

use between::{Device, Plan};
use ipnet::IpNet;
use linux::Inside;
use rules::{Egress, Enclosed, Tunnelled};

use super::{Lacks, Network};
use crate::log::Line;

/// What a node lacks that does not guard its tunnel.
const UNGUARDED: &str = "cannot refuse vxlan packets that come from no node";

impl Network<'_> {
    /// Lets the node forward packets of its pods' families. Whether it does.
    pub(super) fn forward(&mut self, ranges: &[IpNet], lacks: &mut Lacks) -> bool {
        let mut forwards_all = true;
        for family in [linux::Family::V4, linux::Family::V6] {
            if !ranges.iter().any(|range| linux::Family::of(range.addr()) == family) {
                continue;
            }
            let inside = Inside::here();
            let forwards = match self.host.netlink() {
                Ok(netlink) => linux::forward(&inside, netlink, family).map_err(|e| e.to_string()),
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
                Err(e) => {
                    lacks.own.push(e);
                    forwards_all = false;
                }
            }
        }
        forwards_all
    }

    /// Lets nothing but tunnels bring packets from pods of nodes that are reached by one. Whether it is so.
    pub(super) fn guard_tunnels(&mut self, own: &[IpNet], peers: Vec<IpNet>, lacks: &mut Lacks) -> bool {
        let tunnelled = Tunnelled { own: own.to_vec(), peers };
        let kept = match self.host.nft() {
            Ok(socket) => rules::guard_tunnels(socket, &tunnelled).map(drop).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        kept.map_err(|e| lacks.own.push(format!("cannot refuse unencrypted packets that claim to come from other nodes' pods: {e}")))
            .is_ok()
    }

    /// Who may send to the vxlan tunnel, as a plan has it.
    pub(super) fn enclosed_by(&self, plan: &Plan) -> Enclosed {
        // Without a device nothing listens here, and what pods send to nodes that are reached directly keeps their addresses, which those nodes
        // know for no node's: unless somebody has chosen where it does.
        let has_device = plan.devices.keys().any(|device| matches!(device, Device::Vxlan { .. }));
        let is_used = !plan.endpoints.is_empty() && (has_device || self.provided.settings.non_masquerade.is_some());
        Enclosed { ports: is_used.then_some(self.provided.settings.vxlan.port).into_iter().collect(), nodes: plan.endpoints.clone() }
    }

    /// Lets nobody but nodes send to the vxlan tunnel, before a device is made or goes: those of the plan, and those that could before. Whether
    /// it is so.
    pub(super) fn guard_vxlan_before(&mut self, plan: &Plan, lacks: &mut Lacks) -> bool {
        let mut enclosed = self.enclosed_by(plan);
        match self.enclosed.as_ref().filter(|before| !before.ports.is_empty()) {
            Some(before) if !enclosed.ports.is_empty() => {
                enclosed.nodes.extend(&before.nodes);
                enclosed.ports.extend(&before.ports);
                self.enclose(enclosed, lacks)
            }
            // The tunnel goes first.
            Some(_) => true,
            None => self.guard_vxlan_also(&enclosed, lacks),
        }
    }

    /// Lets nobody but the plan's nodes send to the vxlan tunnel, nor to one of before that is still there (`remaining`). Whether it is so.
    pub(super) fn guard_vxlan(&mut self, plan: &Plan, remaining: &BTreeSet<Device>, lacks: &mut Lacks) -> bool {
        let mut enclosed = self.enclosed_by(plan);
        let port = |device: &Device| if let Device::Vxlan { port, .. } = device { Some(*port) } else { None };
        enclosed.ports.extend(remaining.iter().filter_map(port));
        self.enclose(enclosed, lacks)
    }

    /// Lets those send to the vxlan tunnel that could when the node knew the Nodes last, and nobody else: a device of before may still be there.
    /// Whether it is so.
    pub(super) fn guard_vxlan_as_before(&mut self, lacks: &mut Lacks) -> bool {
        if !self.has_vxlan() {
            return true;
        }
        let Some(endpoints) = self.kept.endpoints.clone() else {
            lacks.own.push("this node does not know yet which nodes may send to the vxlan tunnel".to_owned());
            return false;
        };
        let ports = (!endpoints.is_empty()).then_some(self.provided.settings.vxlan.port).into_iter().collect();
        self.guard_vxlan_also(&Enclosed { ports, nodes: endpoints.into_iter().collect() }, lacks)
    }

    /// Whether these may send to the tunnel, beside those that the kernel has, and nobody else.
    fn guard_vxlan_also(&mut self, enclosed: &Enclosed, lacks: &mut Lacks) -> bool {
        let written = match self.host.nft() {
            Ok(socket) => rules::guard_vxlan_also(socket, enclosed).map(drop).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        written.map_err(|e| lacks.own.push(format!("{UNGUARDED}: {e}"))).is_ok()
    }

    fn enclose(&mut self, enclosed: Enclosed, lacks: &mut Lacks) -> bool {
        let known = self.enclosed.take();
        if known.as_ref() == Some(&enclosed) {
            self.enclosed = known;
            return true;
        }
        let kept = match self.host.nft() {
            Ok(socket) => rules::guard_vxlan(socket, known.as_ref(), &enclosed).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match kept {
            Ok(_) => self.enclosed = Some(enclosed),
            Err(e) => lacks.own.push(format!("{UNGUARDED}: {e}")),
        }
        self.enclosed.is_some()
    }

    /// Closes what was closed when the node knew the Nodes last: until it knows them again, nothing leads there but what a former agent has
    /// left, and after a reboot that is nothing. Whether it is closed.
    pub(super) fn close_as_before(&mut self, own: &[IpNet], lacks: &mut Lacks) -> bool {
        if !self.is_encrypting() {
            return true;
        }
        let Some(closed) = self.kept.closed.clone() else {
            // Packets of pods that start now might leave plain.
            lacks.own.push("this node does not know yet to which ranges packets may not leave unencrypted".to_owned());
            return false;
        };
        let is_closed = match self.host.netlink() {
            Ok(netlink) => fabric::close(netlink, &closed).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        let guards = self.guard_tunnels(own, closed, lacks);
        is_closed.map_err(|e| lacks.own.push(format!("cannot keep unencrypted packets from leaving: {e}"))).is_ok() && guards
    }

    /// Masquerades what leaves the cluster. Whether it is so.
    pub(super) fn masquerade(&mut self, own: &[IpNet], lacks: &mut Lacks) -> bool {
        let configured = self.provided.settings.non_masquerade.as_ref();
        let inside: Vec<IpNet> = match (configured, &self.plan, &self.kept.inside) {
            (Some(ranges), ..) | (None, None, Some(ranges)) => ranges.clone(),
            (None, Some(plan), _) => plan.inside.iter().copied().collect(),
            // Why there is no plan is reported already.
            (None, None, None) => return false,
        };
        let egress = Egress { own: own.to_vec(), inside: inside.into_iter().chain(own.iter().copied()).collect() };
        if self.masqueraded.as_ref().is_some_and(|(known, _)| *known == egress) {
            return true;
        }
        let (known, joined) = (self.masqueraded.take(), egress.joined());
        let kept = match (self.host.nft(), &known) {
            // To read the sets of thousands of nodes takes longer than all else that one of them costs.
            (Ok(socket), Some((_, known))) => rules::change(socket, known, &joined).map_err(|e| e.to_string()),
            (Ok(socket), None) => rules::keep(socket, &egress).map_err(|e| e.to_string()),
            (Err(e), _) => Err(e.to_string()),
        };
        match kept {
            Ok(_) => self.masqueraded = Some((egress, joined)),
            Err(e) => lacks.own.push(format!("cannot masquerade what leaves the cluster: {e}")),
        }
        self.masqueraded.is_some()
    }
}
