//! What pods of this node get addresses of, and what they had addresses of before.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use between::Plan;
use cni::{CniError, NetworkList};
use ipnet::IpNet;

use super::{Lacks, Network};
use crate::log::Line;
use crate::provided::{gateway, joined, own_address};
use crate::{Agent, lock};

/// While a pod has an address of a block that is another node's now: between two looks whether it has ended. A look is into memory.
const BLOCK: Duration = Duration::from_millis(500);
/// The same for a range of the Node's own and for gateways: a look reads all records.
const RANGE: Duration = Duration::from_secs(10);

/// What attachments use.
#[derive(Default)]
struct Used {
    addresses: BTreeSet<IpAddr>,
    gateways: BTreeSet<IpAddr>,
}

impl Agent {
    /// What all attachments use that there is a record of; `None` if one cannot be read, or is being made.
    fn used_by_records(&self) -> Option<Used> {
        let mut used = Used::default();
        for sandbox in self.records.sandboxes().ok()? {
            let Some(record) = self.records.read(&sandbox).ok()? else { continue };
            if !record.is_made() {
                return None;
            }
            for ip in record.steps.iter().filter_map(|step| step.result()).flat_map(|result| &result.ips) {
                used.addresses.insert(ip.address.addr());
                used.gateways.extend(ip.gateway);
            }
        }
        Some(used)
    }

    /// Whether an attachment has an address of a pool in a range.
    fn has_lease_of(&self, range: &IpNet) -> bool {
        let mut used = |lease: &pool::Lease| lease.addresses.iter().any(|leased| range.contains(&leased.address));
        self.addresses.as_ref().is_some_and(|addresses| addresses.store.look(|all| all.leases().any(&mut used)))
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
        (self.is_unwritten, self.unused_since, self.remembered) = (true, None, None);
        // From now on no pod gets an address of what was before.
        let list = self.list().ok().flatten();
        let mut state = lock(&self.provided.state);
        state.list.take_if(|before| list.as_ref() != Some(before));
        (state.ranges, state.former, state.mtu) = (self.kept.ranges.clone(), self.kept.former.clone(), self.kept.mtu);
        state.of_pods = None;
    }

    /// Whether a pod of this node may have an address of a range that it loses. A node gives a block back when no pod has an address of it,
    /// and the next node that has it is to be reached at once. Of a Node's own range only the records say so, which are read later.
    fn may_be_used(&self, range: &IpNet) -> bool {
        self.kept.gateways.is_none() || self.agent.addresses.is_none() || self.agent.has_lease_of(range)
    }

    /// Where what this node itself sends through a tunnel comes from; `None`: its ranges have an address to spare for that.
    pub(super) fn own_addresses(&mut self) -> Option<BTreeSet<IpAddr>> {
        let of_pools = self.terms.gateways.is_some();
        let Some(addresses) = &self.agent.addresses else { return of_pools.then(BTreeSet::new) };
        let none = Some(BTreeSet::new());
        // What the node had of pools before its ranges were its own is given back, so that their blocks can be.
        let is_needed = of_pools && self.provided.settings.mode.tunnel().is_some();
        let families = if is_needed { &self.terms.families } else { &none };
        // What is granted is told here and to the store at the same time. Later a pool that has none left is no reason to keep all else waiting.
        let is_new = self.families != *families;
        let patience = if is_new { own_address::PATIENCE } else { Duration::ZERO };
        self.families.clone_from(families);
        let (has, failed) = own_address::keep(&addresses.store, families.as_ref(), Instant::now() + patience);
        self.lacks_address = failed.is_some();
        let lack = failed.map(|e| {
            let what = if is_needed {
                "has no address itself to reach pods of nodes behind a tunnel"
            } else {
                "cannot give back its own address of a pool"
            };
            format!("this node {what}: {e}")
        });
        self.terms.problems.extend(lack);
        of_pools.then_some(has)
    }

    /// The plan with routes to the bridge for what no subnet of it leads to.
    pub(super) fn with_own_ranges(&self, plan: Arc<Plan>, routed: &[IpNet]) -> Arc<Plan> {
        let Some(bridge) = self.bridge.filter(|_| !routed.is_empty()) else { return plan };
        let mut more = plan.as_ref().clone();
        more.lead_home(bridge, routed);
        Arc::new(more)
    }

    /// The plan without what keeps packets from running pods of this node that have addresses of another node's ranges.
    pub(super) fn without_former(&self, plan: Arc<Plan>, lacks: &mut Lacks) -> Arc<Plan> {
        let shared = plan.shared_with(&self.kept.former);
        if shared.is_empty() {
            return plan;
        }
        let mut less = plan.as_ref().clone();
        less.leave(&self.kept.former);
        for range in shared {
            lacks.failed.insert(range);
            lacks.problems.insert(format!(
                "{range} is another node's now, and running pods of this node still have addresses of it: delete these pods"
            ));
        }
        Arc::new(less)
    }

    /// The default network of pods; `None` unless it is [whole](Network::is_open), and while another network has a range of theirs.
    pub(super) fn list(&self) -> Result<Option<Arc<NetworkList>>, CniError> {
        if !self.is_open || !self.occupied.is_empty() {
            return Ok(None);
        }
        self.kept.list(self.provided.settings.ports)
    }

    /// The former ranges and gateways that no pod uses, and whether that is sure: an ADD that has begun before the change has no record yet,
    /// but a lease. `None` if it cannot be read.
    fn unused(&self) -> Option<(Vec<IpNet>, Vec<IpNet>, bool)> {
        let (blocks, others): (Vec<IpNet>, Vec<IpNet>) = self.kept.former.iter().partition(|range| self.is_leased(range));
        let over: Vec<IpNet> = blocks.into_iter().filter(|range| !self.agent.has_lease_of(range)).collect();
        if !over.is_empty() || (others.is_empty() && self.kept.former_gateways.is_empty()) {
            return Some((over, Vec::new(), true));
        }
        let used = self.agent.used_by_records()?;
        let is_unused = |range: &&IpNet| !used.addresses.iter().any(|address| range.contains(address));
        let ranges: Vec<IpNet> = others.iter().filter(is_unused).copied().collect();
        // A gateway with a subnet leads to the pods of its range, whatever they have as their gateway.
        let leads = |gateway: &IpNet| self.kept.former.iter().any(|range| gateway.trunc() == *range && !ranges.contains(range));
        let is_over = |gateway: &&IpNet| !used.gateways.contains(&gateway.addr()) && !leads(gateway);
        let gateways = self.kept.former_gateways.iter().filter(is_over).copied().collect();
        Some((ranges, gateways, false))
    }

    /// Whether the pods of a former range have leases in this agent's memory.
    fn is_leased(&self, range: &IpNet) -> bool {
        self.kept.gateways.is_some() && self.agent.addresses.is_some() && self.kept.is_block(range)
    }

    /// Takes away what no pod uses any more. How long until it can be, if it is only too early.
    pub(super) fn forget_former(&mut self) -> Option<Duration> {
        let (ranges, gateways, is_sure) = self.unused()?;
        if ranges.is_empty() && gateways.is_empty() {
            self.unused_since = None;
            return None;
        }
        if !is_sure {
            let since = *self.unused_since.get_or_insert_with(Instant::now);
            let left = self.agent.settings.add_wait.saturating_sub(since.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
        }
        let left = self.host.netlink().and_then(|netlink| gateway::leave(netlink, &gateways));
        let mut kept = self.kept.clone();
        kept.former.retain(|range| !ranges.contains(range));
        kept.former_gateways.retain(|gateway| !gateways.contains(gateway));
        if left.is_ok() && kept.write(&self.agent.settings.state_dir).is_ok() {
            let gone: Vec<IpNet> = ranges.into_iter().chain(gateways).collect();
            Line::info("cluster network").with("left", joined(&gone)).with("why", "no pod uses it any more").end();
            lock(&self.provided.state).former.clone_from(&kept.former);
            (self.kept, self.remembered) = (kept, None);
        }
        None
    }

    /// Between two looks whether pods still use what is former.
    pub(super) fn former_is_due(&self) -> Option<Duration> {
        let blocks = self.kept.former.iter().any(|range| self.is_leased(range)).then_some(BLOCK);
        let others = !self.kept.former.is_empty() || !self.kept.former_gateways.is_empty();
        blocks.or(others.then_some(RANGE)).filter(|_| self.unused_since.is_none())
    }

    /// Whether some of it is not used any more.
    pub(super) fn former_is_over(&self) -> bool {
        self.former_is_due().is_some() && self.unused().is_some_and(|(ranges, gateways, _)| !ranges.is_empty() || !gateways.is_empty())
    }
}
