//! What leads packets: the plan, or before there is one what is kept of the last one.

use std::sync::Arc;

use between::{Plan, Tunnel};
use ipnet::IpNet;

use super::{Lacks, Network};
use crate::provided::{gateway, kept, list};

// === impl Network ===

impl Network<'_> {
    /// Leads packets as the plan says. Whether pods may send any: rules and the plan are written, but for what single peers lack.
    pub(super) fn lead(&mut self, plan: Arc<Plan>, own: &[IpNet], routed: &[IpNet], lacks: &mut Lacks) -> bool {
        let plan = self.without_former(plan, lacks);
        if self.remember(&plan) {
            // An agent that starts without the API server is to close no less than this one.
            self.write_kept(lacks);
        }
        let plan = self.with_own_ranges(plan, routed);
        let is_guarded = self.guard_tunnels(own, plan.closed.iter().copied().collect(), lacks);
        let is_guarded = self.guard_vxlan_before(&plan, lacks) && is_guarded;
        // A connection keeps the address that it began with, so no pod begins one before.
        let is_masqueraded = self.masquerade(own, lacks);
        let remaining = self.apply(&plan, lacks);
        let is_applied = remaining.is_some();
        if is_applied {
            self.provided.home.set(routed);
        }
        let is_guarded = remaining.is_none_or(|remaining| self.guard_vxlan(&plan, &remaining, lacks)) && is_guarded;
        self.write_kept(lacks);
        is_guarded && is_masqueraded && is_applied
    }

    /// Leads packets as far as it is known from before: nothing is taken away. Whether pods may send any.
    pub(super) fn lead_as_before(&mut self, own: &[IpNet], routed: &[IpNet], lacks: &mut Lacks) -> bool {
        let is_closed = self.close_as_before(own, lacks);
        let is_guarded = self.guard_vxlan_as_before(lacks);
        let is_masqueraded = self.masquerade(own, lacks);
        let led = self.host.netlink().and_then(|netlink| gateway::lead_home(netlink, routed));
        match &led {
            Ok(()) => self.provided.home.set(routed),
            Err(e) => lacks.own.push(format!("routes to bridge {}: {e}", list::BRIDGE)),
        }
        is_closed && is_guarded && is_masqueraded && led.is_ok()
    }

    /// Notes what the next agent needs before the API server has told of the Nodes. Whether other ranges are closed than before.
    fn remember(&mut self, plan: &Plan) -> bool {
        if self.remembered.as_ref().zip(self.plan.as_ref()).is_some_and(|(one, two)| Arc::ptr_eq(one, two)) {
            return false;
        }
        self.remembered.clone_from(&self.plan);
        let closed = self.is_encrypting().then(|| kept::joined_up(&plan.closed));
        let inside = Some(kept::joined_up(&plan.inside));
        let enclosed = self.enclosed_by(plan);
        let endpoints = if enclosed.ports.is_empty() { Vec::new() } else { enclosed.nodes.into_iter().collect() };
        let endpoints = self.has_vxlan().then_some(endpoints);
        let is_closed_otherwise = self.kept.closed != closed;
        self.is_unwritten |= is_closed_otherwise || self.kept.inside != inside || self.kept.endpoints != endpoints;
        (self.kept.closed, self.kept.inside, self.kept.endpoints) = (closed, inside, endpoints);
        is_closed_otherwise
    }

    /// Whether packets to some nodes leave encrypted or not at all.
    pub(super) fn is_encrypting(&self) -> bool {
        self.provided.settings.mode.tunnel() == Some(Tunnel::WireGuard)
    }

    /// Whether packets to some nodes leave by vxlan.
    pub(super) fn has_vxlan(&self) -> bool {
        self.provided.settings.mode.tunnel() == Some(Tunnel::Vxlan)
    }

    pub(super) fn write_kept(&mut self, lacks: &mut Lacks) {
        if self.is_unwritten {
            match self.kept.write(&self.agent.settings.state_dir) {
                Ok(()) => self.is_unwritten = false,
                Err(e) => lacks.own.push(format!("cannot keep the node's ranges: {e}")),
            }
        }
    }
}
