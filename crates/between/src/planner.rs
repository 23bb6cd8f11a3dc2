//! The same plan again and again, while Nodes come, go and change: what a change costs does not grow with the number of Nodes.
//!
//! ```text
//!   set, remove --> changed Nodes --claims nobody else has--> their rows leave the plan and come into it
//!                        |
//!                        '--anything else--> a whole plan
//! ```
//!
//! The rows of a Node that claims nothing that another one claims follow from that Node and the own one alone. So they are made once from the
//! Node as it was, to be taken away, and once from the Node as it is. Whatever else may change a plan (the own node, a conflict that comes or
//! goes, the first or last path of a kind that decides about the MTU, WireGuard with its keys) leads to [`plan`](crate::plan()), which says
//! what is right: the tests compare both after every step of long histories.
//!
//! **A plan that is given away is never changed, and seldom copied.** There are two, turn by turn: while one is in use, the other one, which nobody
//! has any more, takes the rows of the last change and of the new one. A copy is made for the first change after a whole plan, and where somebody
//! still has the plan before the last one ([`Planner::copies`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::members::{Claim, Claims, Member};
use crate::paths::Origin;
use crate::plan::{IPV6_MIN_MTU, Paths, Whole, header_of_mode, whole};
use crate::{NodeSeen, OwnNode, OwnNodeMissing, Plan, Problem, Settings, Tunnel};

/// More changed Nodes than this are planned for as a whole.
const FEW: usize = 100;

/// Plans for one node.
#[derive(Debug, Default)]
pub struct Planner {
    nodes: BTreeMap<String, PlannedNode>,
    claims: Claims,
    /// The Nodes that were set or removed since the last plan, as they were then.
    changed: BTreeMap<String, Option<PlannedNode>>,
    last: Option<Last>,
    changes: u64,
    copies: u64,
}

/// A Node, and what it claims.
#[derive(Debug, Clone)]
struct PlannedNode {
    seen: NodeSeen,
    claim: Claim,
}

/// The last plan, and what it was made from besides the Nodes.
#[derive(Debug)]
struct Last {
    settings: Settings,
    own: OwnNode,
    plan: Arc<Plan>,
    /// The plan before it, where a change has led from the one to the other.
    before: Option<Before>,
    rest: Rest,
    /// The Nodes of which another one has something that they claim, or that have it themselves.
    contested: BTreeSet<String>,
}

/// The plan before the last one, and what is different in the last one.
#[derive(Debug)]
struct Before {
    plan: Arc<Plan>,
    changes: Vec<Swap>,
}

/// The rows that a Node had, and those that it has.
#[derive(Debug)]
struct Swap {
    gone: Rows,
    come: Rows,
}

/// [`Whole`] without its plan.
#[derive(Debug)]
struct Rest {
    uplink: u32,
    addresses: BTreeSet<IpAddr>,
    paths: Paths,
}

/// The rows of one peer.
#[derive(Debug, Default)]
struct Rows {
    plan: Plan,
    paths: Paths,
}

// === impl Planner ===

impl Planner {
    /// Without any Node.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A Node as it is now, whether it was there or not.
    pub fn set(&mut self, seen: NodeSeen) {
        if self.nodes.get(&seen.name).is_some_and(|known| known.seen == seen) {
            return;
        }
        let known = PlannedNode { claim: Claim::of(&seen), seen };
        let name = known.seen.name.clone();
        let before = self.nodes.insert(name.clone(), known);
        self.changed.entry(name).or_insert(before);
    }

    /// There is no such Node any more.
    pub fn remove(&mut self, name: &str) {
        if let Some(before) = self.nodes.remove(name) {
            self.changed.entry(name.to_owned()).or_insert(Some(before));
        }
    }

    /// What [`plan`](crate::plan()) says of the Nodes that are there now.
    ///
    /// # Errors
    /// The own Node is not among them.
    pub fn plan(&mut self, settings: &Settings, own: &OwnNode) -> Result<Arc<Plan>, OwnNodeMissing> {
        let changed = std::mem::take(&mut self.changed);
        let is_disjoint = self.claim(&changed);
        let last = self.last.take().filter(|last| last.settings == *settings && last.own == *own);
        if let Some(last) = last
            && is_disjoint
            && let Some((last, is_copy)) = self.change(last, &changed)
        {
            self.changes += 1;
            self.copies += u64::from(is_copy);
            return Ok(Arc::clone(&self.last.insert(last).plan));
        }
        let Whole { plan, uplink, addresses, paths } = whole(settings, own, self.nodes.values().map(|known| &known.seen))?;
        let contested = plan.problems.iter().flat_map(Problem::contested).map(str::to_owned).collect();
        let (settings, own, rest) = (settings.clone(), own.clone(), Rest { uplink, addresses, paths });
        Ok(Arc::clone(&self.last.insert(Last { settings, own, plan: Arc::new(plan), before: None, rest, contested }).plan))
    }

    /// How many of the plans so far were made from the one before.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// For how many of these all tables were copied, as the plans of before were in use.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Takes the claims of changed Nodes to be those that they have now. Whether nobody else claims any of it.
    fn claim(&mut self, changed: &BTreeMap<String, Option<PlannedNode>>) -> bool {
        changed.values().flatten().for_each(|before| self.claims.remove(&before.claim));
        let mut is_disjoint = true;
        for known in changed.keys().filter_map(|name| self.nodes.get(name)) {
            is_disjoint = is_disjoint && !self.claims.meet(&known.claim);
            self.claims.add(&known.claim);
        }
        is_disjoint
    }

    /// The last plan with other rows of these Nodes, and whether it is a copy; `None` where more may change than that.
    fn change(&self, mut last: Last, changed: &BTreeMap<String, Option<PlannedNode>>) -> Option<(Last, bool)> {
        // Below that, each change may be the one that brings IPv6 or takes it away.
        let is_small = last.plan.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU);
        let concerns_others = |name: &String| *name == last.own.name || last.contested.contains(name);
        if last.settings.mode.tunnel() == Some(Tunnel::WireGuard) || is_small || changed.len() > FEW || changed.keys().any(concerns_others)
        {
            return None;
        }
        let own = self.nodes.get(&last.own.name)?;
        let (member, _) = own.claim.member(&last.settings, &last.own, &own.seen).filter(|_| !last.contested.contains(&last.own.name))?;
        let origin = Origin { settings: &last.settings, own: &last.own, member: &member };
        let rows = |known: Option<&PlannedNode>| known.map_or_else(|| Some(Rows::default()), |known| Rows::of(origin, &last.rest, known));
        let mut swaps = Vec::with_capacity(changed.len());
        for (name, before) in changed {
            let (gone, come) = (rows(before.as_ref())?, rows(self.nodes.get(name))?);
            // One that peers have in common may be another one's as well.
            if gone.plan.problems.difference(&come.plan.problems).any(|problem| problem.node() != name) {
                return None;
            }
            swaps.push(Swap { gone, come });
        }
        for swap in &swaps {
            last.rest.paths.subtract(&swap.gone.paths);
            last.rest.paths.add(&swap.come.paths);
        }
        let header = last.rest.paths.largest_header().max(header_of_mode(origin));
        if last.plan.mtu.is_some_and(|mtu| mtu != last.rest.uplink.saturating_sub(header)) {
            return None;
        }
        let is_copy = last.take(swaps);
        Some((last, is_copy))
    }
}

// === impl Last ===

impl Last {
    /// Carries out a change; whether all tables were copied for that.
    fn take(&mut self, swaps: Vec<Swap>) -> bool {
        if let Some(plan) = Arc::get_mut(&mut self.plan) {
            Swap::all(&swaps, plan, &self.rest.paths);
            self.before = None;
            return false;
        }
        let spare = self.before.take().and_then(|Before { plan, changes }| Some((Arc::try_unwrap(plan).ok()?, changes)));
        let is_copy = spare.is_none();
        let mut plan = match spare {
            Some((mut plan, changes)) => {
                plan.devices.clone_from(&self.plan.devices);
                Swap::all(&changes, &mut plan, &self.rest.paths);
                plan
            }
            None => self.plan.as_ref().clone(),
        };
        Swap::all(&swaps, &mut plan, &self.rest.paths);
        let before = std::mem::replace(&mut self.plan, Arc::new(plan));
        self.before = Some(Before { plan: before, changes: swaps });
        is_copy
    }
}

// === impl Swap ===

impl Swap {
    /// Takes rows out of a plan and brings others into it. `paths`: those that there are then, so that devices without any go.
    fn all(swaps: &[Swap], plan: &mut Plan, paths: &Paths) {
        swaps.iter().for_each(|swap| swap.gone.leave(plan));
        swaps.iter().for_each(|swap| swap.come.enter(plan));
        plan.devices.retain(|device, _| paths.has(device));
    }
}

// === impl Rows ===

impl Rows {
    /// Those of a Node that has all it claims; `None` if nobody can have that.
    fn of(origin: Origin<'_>, rest: &Rest, known: &PlannedNode) -> Option<Self> {
        let (peer, problem): (Member<'_>, _) = known.claim.member(origin.settings, origin.own, &known.seen)?;
        let (mut rows, mut legs) = (Rows::default(), Vec::new());
        rows.plan.problems.extend(problem);
        rows.plan.look(origin, &peer, &mut legs);
        rows.plan.inside.extend(&peer.ranges);
        rows.plan.endpoints.extend(peer.vxlan_endpoints(origin.settings.mode, &origin.own.name));
        for leg in legs {
            rows.paths.count(origin.settings, &leg.2);
            rows.plan.enter(origin.settings, rest.uplink, &rest.addresses, leg);
        }
        Some(rows)
    }

    /// Takes them out of a plan. Devices stay.
    fn leave(&self, plan: &mut Plan) {
        for key in self.plan.forwarding.keys() {
            plan.forwarding.remove(key);
        }
        for key in self.plan.neighbours.keys() {
            plan.neighbours.remove(key);
        }
        for range in self.plan.routes.keys() {
            plan.routes.remove(range);
        }
        for range in &self.plan.inside {
            plan.inside.remove(range);
        }
        for endpoint in &self.plan.endpoints {
            plan.endpoints.remove(endpoint);
        }
        for name in &self.plan.unreached {
            plan.unreached.remove(name);
        }
        for problem in &self.plan.problems {
            plan.problems.remove(problem);
        }
    }

    /// Brings them into a plan.
    fn enter(&self, plan: &mut Plan) {
        for (device, wanted) in &self.plan.devices {
            plan.devices.entry(*device).or_insert_with(|| wanted.clone());
        }
        plan.forwarding.extend(&self.plan.forwarding);
        plan.neighbours.extend(&self.plan.neighbours);
        plan.routes.extend(&self.plan.routes);
        plan.inside.extend(&self.plan.inside);
        plan.endpoints.extend(&self.plan.endpoints);
        plan.unreached.extend(self.plan.unreached.iter().cloned());
        plan.problems.extend(self.plan.problems.iter().cloned());
    }
}
