//! What pods of this node get addresses of, and what they had addresses of before.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use between::Plan;
use cni::{CniError, NetworkList};
use ipnet::IpNet;

use super::{Lacks, Network};
use crate::log::Line;
use crate::provided::kept::Kept;
use crate::provided::{gateway, joined, own_address};
use crate::{Agent, lock};

impl Agent {
    /// The addresses of all attachments that there is a record of; `None` if one cannot be read, or is being made.
    fn addresses_of_records(&self) -> Option<BTreeSet<IpAddr>> {
        let mut all = BTreeSet::new();
        for sandbox in self.records.sandboxes().ok()? {
            let Some(record) = self.records.read(&sandbox).ok()? else { continue };
            if !record.is_made() {
                return None;
            }
            let results = record.steps.iter().filter_map(|step| step.result());
            all.extend(results.flat_map(|result| result.ips.iter().map(|ip| ip.address.addr())));
        }
        Some(all)
    }
}

// === impl Network ===

impl Network<'_> {
    /// Notes what pods get from now on, before any pod gets it.
    pub(super) fn keep_in_mind(&mut self, ranges: Vec<IpNet>, mtu: Option<u32>, gateways: Option<Vec<IpAddr>>) {
        let kept = self.kept.with(ranges, mtu, gateways, |range| self.may_be_used(range));
        // Blocks come and go all the time, and no pod loses its address with one.
        if kept.gateways.is_none() && !self.kept.ranges.is_empty() && kept.ranges != self.kept.ranges {
            let (before, now) = (joined(&self.kept.ranges), joined(&kept.ranges));
            self.news.push(format!("this node's pod ranges were {before} and are {now}: running pods keep their addresses until they end"));
        }
        let line = Line::info("cluster network").with("ranges", joined(&kept.ranges));
        let line = if let Some(mtu) = kept.mtu { line.with("mtu", mtu) } else { line };
        if kept.former.is_empty() { line } else { line.with("pods_keep", joined(&kept.former)) }.end();
        self.kept = kept;
        (self.is_unwritten, self.unused_since) = (true, None);
        // From now on no pod gets an address of what was before.
        let list = self.list().ok().flatten();
        let mut state = lock(&self.provided.state);
        state.list.take_if(|before| list.as_ref() != Some(before));
        (state.ranges, state.former, state.mtu) = (self.kept.ranges.clone(), self.kept.former.clone(), self.kept.mtu);
    }

    /// Whether a pod of this node may have an address of a range that it loses. A node gives a block back when no pod has an address of it,
    /// and the next node that has it is to be reached at once. Of a Node's own range only the records say so, which are read later.
    fn may_be_used(&self, range: &IpNet) -> bool {
        let Some(addresses) = self.agent.addresses.as_ref().filter(|_| self.kept.gateways.is_some()) else { return true };
        let mut used = |lease: &pool::Lease| lease.addresses.iter().any(|leased| range.contains(&leased.address));
        addresses.store.look(|all| all.leases().any(&mut used))
    }

    /// Where what this node itself sends through a tunnel comes from; `None`: its ranges have an address to spare for that.
    pub(super) fn own_addresses(&mut self) -> Option<BTreeSet<IpAddr>> {
        self.terms.gateways.as_ref()?;
        let Some(addresses) = &self.agent.addresses else { return Some(BTreeSet::new()) };
        let families = if self.provided.settings.mode.tunnel().is_some() { &self.terms.families } else { &BTreeSet::new() };
        let (has, failed) = own_address::keep(&addresses.store, families);
        self.lacks_address = failed.is_some();
        let lack = failed.map(|e| format!("this node has no address itself to reach pods of nodes behind a tunnel: {e}"));
        self.terms.problems.extend(lack);
        Some(has)
    }

    /// The plan with routes to the bridge for what no subnet of it leads to.
    pub(super) fn with_own_ranges(&self, plan: Arc<Plan>, ranges: &[IpNet]) -> Arc<Plan> {
        let (routed, Some(bridge)) = (self.kept.routed(ranges), self.bridge) else { return plan };
        if routed.is_empty() {
            return plan;
        }
        let mut more = plan.as_ref().clone();
        more.lead_home(bridge, routed);
        Arc::new(more)
    }

    /// The plan without routes to ranges that running pods of this node have addresses of: another Node has such a range by now.
    pub(super) fn without_former(&self, plan: Arc<Plan>, lacks: &mut Lacks) -> Arc<Plan> {
        let own = |range: &IpNet| self.kept.former.iter().any(|former| former.contains(range) || range.contains(former));
        let held: BTreeSet<IpNet> = plan.routes.keys().chain(&plan.closed).filter(|range| own(range)).copied().collect();
        if held.is_empty() {
            return plan;
        }
        let mut less = plan.as_ref().clone();
        for range in held {
            less.routes.remove(&range);
            less.closed.remove(&range);
            lacks.failed.insert(range);
            lacks.problems.insert(format!(
                "{range} is another node's now, and running pods of this node still have addresses of it: delete these pods"
            ));
        }
        Arc::new(less)
    }

    /// The default network of pods; `None` while another network has a range of theirs.
    pub(super) fn list(&self) -> Result<Option<Arc<NetworkList>>, CniError> {
        if !self.occupied.is_empty() {
            return Ok(None);
        }
        self.kept.list(self.provided.settings.strict_source)
    }

    /// Takes away what no pod has an address of any more.
    pub(super) fn forget_former(&mut self) {
        if self.kept.former.is_empty() {
            return;
        }
        let Some(used) = self.agent.addresses_of_records() else { return };
        let (stays, goes): (Vec<IpNet>, Vec<IpNet>) =
            self.kept.former.iter().partition(|range| used.iter().any(|address| range.contains(address)));
        if goes.is_empty() {
            self.unused_since = None;
            return;
        }
        // An ADD that has begun before the change has no record yet.
        let since = *self.unused_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.agent.settings.add_wait {
            return;
        }
        let gateways = if self.kept.gateways.is_some() { Vec::new() } else { self.kept.on_bridge(&goes) };
        let left = self.host.netlink().and_then(|netlink| gateway::leave(netlink, &gateways));
        let kept = Kept { former: stays, ..self.kept.clone() };
        if left.is_ok() && kept.write(&self.agent.settings.state_dir).is_ok() {
            Line::info("cluster network").with("left", joined(&goes)).with("why", "no pod has an address of it any more").end();
            lock(&self.provided.state).former.clone_from(&kept.former);
            self.kept = kept;
        }
    }
}
