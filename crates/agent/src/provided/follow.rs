//! The thread that keeps this node's part of the network as the plan says.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use between::{Device, Plan, Planner, Underlay};
use cluster::Node;
use fabric::{Fabric, Options};
use ipnet::IpNet;
use linux::{Monitor, Notice};
use plugin::{Dirs, Host};

use super::condition::Written;
use super::gateway::Occupied;
use super::kept::SavedNetwork;
use super::problem_log::ProblemLog;
use super::ranges::Terms;
use super::wake::{Pending, Wake};
use super::{Provided, gateway, list, obstacles, underlay};
use crate::log::Line;
use crate::{Agent, lock};

mod blame;
mod lead;
mod others;
mod outcome;
mod own_ranges;
mod packets;
mod planning;
mod rotation;

use blame::range_of;
use rotation::WireGuard;

/// After something that could not be done.
const AGAIN: Duration = Duration::from_secs(5);
/// While the API server has not told yet what a plan is made from.
const SOON: Duration = Duration::from_millis(250);
/// Between two looks whether the API server has told it, where nothing else is to be done.
const GLANCE: Duration = Duration::from_micros(200);
/// Keeps the network for as long as the process lives. Nothing, where the agent does not provide it.
pub(crate) fn start(agent: &Arc<Agent>, dirs: Dirs) -> std::io::Result<()> {
    if agent.provided.is_none() {
        return Ok(());
    }
    let (agent, listens, follows) = (Arc::clone(agent), Arc::clone(agent), Arc::clone(agent));
    drop(agent.runtime.spawn(async move {
        let Some(provided) = &follows.provided else { return };
        let (mut nodes, mut ranges) = (provided.nodes.clone(), provided.ranges.clone());
        loop {
            tokio::select! {
                () = nodes.changed() => {}
                () = ranges.changed() => {}
            }
            provided.wake.plan();
        }
    }));
    let listen = move || listens.provided.iter().for_each(|provided| listen(&provided.wake));
    std::thread::Builder::new().name("links".to_owned()).spawn(listen)?;
    let work = move || {
        let Some(provided) = &agent.provided else { return };
        let mut network = Network::new(&agent, provided, dirs);
        loop {
            let keep = || network.keep();
            let Err(_) = catch_unwind(AssertUnwindSafe(keep));
            Line::error("cluster network").with("error", "this is a bug in the agent; please report it with the log").end();
            network = Network::new(&agent, provided, network.host.dirs.clone());
            std::thread::sleep(AGAIN);
        }
    };
    std::thread::Builder::new().name("between".to_owned()).spawn(work).map(drop)
}

/// Makes this node's part of the network once, on this thread, in the network namespace that it is in. What this node's pods lack of it, and
/// what is wrong with other nodes or with ranges.
pub(crate) fn once(agent: &Agent, provided: &Provided, dirs: Dirs, within: Duration) -> BTreeSet<String> {
    let until = Instant::now() + within;
    let is_told = || provided.missing().is_none() && agent.cluster_addresses.awaited().is_none();
    while !is_told() && Instant::now() < until {
        std::thread::sleep(GLANCE);
    }
    let mut network = Network::new(agent, provided, dirs);
    network.round(Todo { survey: false, ..Todo::ALL });
    let state = lock(&provided.state).clone();
    state.lacks.into_iter().chain(state.problems).collect()
}

/// Passes on what the kernel reports. A socket that is of no use any more is replaced, and anything may have been missed.
fn listen(wake: &Wake) {
    let host = Host::here(Dirs::default());
    loop {
        let observe = || -> Result<Infallible, String> {
            let mut monitor = Monitor::open(host.inside()).map_err(|e| e.to_string())?;
            wake.notice(Notice::Lost);
            loop {
                if let Some(notice) = monitor.next(None).map_err(|e| e.to_string())? {
                    wake.notice(notice);
                }
            }
        };
        let Err(e) = observe();
        Line::error("cluster network").with("what", "changes of links and routes are noticed late").with("error", e).end();
        std::thread::sleep(AGAIN);
    }
}

/// What is to be done in a round.
#[derive(Debug, Clone, Copy, Default)]
struct Todo {
    /// The own links may be others.
    look: bool,
    /// The Nodes may be others.
    plan: bool,
    /// Whatever depends on the plan may have changed in the kernel.
    keep: bool,
    /// What others have set on the node may be in pods' way: it is looked at now and then, and not whenever something changes.
    survey: bool,
}

/// This node's part of the network.
struct Network<'a> {
    agent: &'a Agent,
    provided: &'a Provided,
    host: Host,
    fabric: Fabric,
    kept: SavedNetwork,
    wireguard: WireGuard,
    links: Vec<Underlay>,
    /// The own Node's addresses.
    own: Vec<IpAddr>,
    plan: Option<Arc<Plan>>,
    planner: Planner,
    /// What the planner knows of each Node, besides the own one's keys.
    planned: HashMap<String, (Arc<Node>, Vec<IpNet>)>,
    /// How often there was one.
    plans: u64,
    /// The index of the bridge.
    bridge: Option<u32>,
    told: ProblemLog,
    /// Why there is no plan, or not the newest one.
    plan_lacks: Vec<String>,
    /// Ranges that no pod gets an address of, because another network has them.
    occupied: Vec<Occupied>,
    /// The ranges that were looked at for that.
    looked_at: Vec<IpNet>,
    /// What others have set on the node that may drop pods' packets, as of the last survey.
    obstacles: BTreeSet<String>,
    /// A survey is to be made when there is a plan.
    survey_is_due: bool,
    /// What masquerade was left with, unless somebody may have changed it since.
    masqueraded: Option<(rules::Egress, rules::JoinedEgress)>,
    /// What the guard of vxlan was left with, likewise.
    enclosed: Option<rules::Enclosed>,
    /// Where the plan takes no pod to have an address.
    reserved: Vec<IpNet>,
    /// Whether the own Node has a range, whatever becomes of it.
    has_range: bool,
    /// What its ranges come with.
    terms: Terms,
    /// The node has no address of its own yet that it needs for a tunnel.
    lacks_address: bool,
    /// What cannot be read of Nodes.
    unreadable: BTreeSet<String>,
    /// What is kept is not on the disk yet.
    is_unwritten: bool,
    /// Since when no pod uses a former range or gateway.
    unused_since: Option<Instant>,
    /// The families of which the node was to have an address itself.
    families: Option<BTreeSet<pool::Family>>,
    /// What the network needs is there, so that pods may have it: the bridge, forwarding, rules and routes, or what was kept of them.
    is_open: bool,
    /// The plan that what is kept for the next start was made from.
    remembered: Option<Arc<Plan>>,
    /// What has happened, and is to be told as an Event.
    news: Vec<String>,
    written: Written,
}

/// What a round could not do.
#[derive(Debug, Default)]
struct Lacks {
    /// Of this node, so that its pods have no network or none to others.
    own: Vec<String>,
    /// Of single peers.
    problems: BTreeSet<String>,
    /// Ranges to which nothing leads although it is planned.
    failed: BTreeSet<IpNet>,
}

// === impl Todo ===

impl Todo {
    const ALL: Todo = Todo { look: true, plan: true, keep: true, survey: true };

    fn is_empty(self) -> bool {
        !(self.look || self.plan || self.keep || self.survey)
    }
}

// === impl Network ===

impl<'a> Network<'a> {
    fn new(agent: &'a Agent, provided: &'a Provided, dirs: Dirs) -> Self {
        let (kept, _) = SavedNetwork::read(&agent.settings.state_dir, provided.settings.source);
        Network {
            agent,
            provided,
            host: Host::here(dirs),
            // Between two nodes of which only one has seen a change, packets come by a tunnel and go back by a direct route.
            fabric: Fabric::new(Options { loose_rp_filter: true }),
            kept,
            wireguard: WireGuard::default(),
            links: Vec::new(),
            own: Vec::new(),
            plan: None,
            planner: Planner::new(),
            planned: HashMap::new(),
            plans: 0,
            bridge: None,
            told: ProblemLog::default(),
            plan_lacks: Vec::new(),
            occupied: Vec::new(),
            looked_at: Vec::new(),
            obstacles: BTreeSet::new(),
            survey_is_due: false,
            masqueraded: None,
            enclosed: None,
            reserved: Vec::new(),
            has_range: false,
            terms: Terms::default(),
            lacks_address: false,
            unreadable: BTreeSet::new(),
            is_unwritten: false,
            unused_since: None,
            families: None,
            is_open: false,
            remembered: None,
            news: Vec::new(),
            written: Written::default(),
        }
    }

    /// One round after the other.
    fn keep(&mut self) -> Infallible {
        let mut todo = Todo::ALL;
        let mut all_at = Instant::now();
        loop {
            let begun = Instant::now();
            // In a cluster where there is always something new, nothing else would ever be looked at.
            if all_at <= begun {
                todo = Todo::ALL;
                all_at = begun + self.agent.settings.reconcile;
            }
            let rest = self.round(todo);
            todo = Todo::default();
            let until = rest.map_or(all_at, |rest| all_at.min(begun + rest));
            let mut look = self.next_look();
            while todo.is_empty() {
                let next = look.map_or(until, |look| look.min(until));
                let pending = self.provided.wake.wait(next);
                if !pending.is_empty() {
                    self.take(&pending, &mut todo);
                } else if next < until {
                    todo.plan = (self.look_is_due().is_some() && self.look()) || self.former_is_over();
                    look = self.next_look();
                } else {
                    todo = Todo::ALL;
                }
            }
            let more = self.provided.wake.wait(Instant::now());
            self.take(&more, &mut todo);
        }
    }

    /// When to look at what the kernel and pods do not report.
    fn next_look(&self) -> Option<Instant> {
        self.look_is_due().into_iter().chain(self.former_is_due()).min().map(|rest| Instant::now() + rest)
    }

    /// What follows from what has happened.
    fn take(&mut self, pending: &Pending, todo: &mut Todo) {
        todo.plan |= pending.plan;
        todo.keep |= pending.keep;
        for notice in &pending.notices {
            todo.look |= underlay::may_differ(notice, &self.links, &self.own);
            todo.keep |= self.fabric.notice(notice) || gateway::is_lost(notice, self.bridge);
        }
    }

    /// Does what is to be done. How long until it is to be tried again, if anything could not be done.
    fn round(&mut self, todo: Todo) -> Option<Duration> {
        let mut lacks = Lacks::default();
        if self.provided.takes_lost_rules() || todo.keep {
            (self.masqueraded, self.enclosed) = (None, None);
        }
        let missing = self.provided.missing();
        if let Some(missing) = &missing {
            lacks.own.push(missing.clone());
        } else if todo.look || todo.plan || self.reserved != self.reserved_now() {
            self.plan_lacks.clear();
            self.plan_anew();
        }
        lacks.own.extend(self.plan_lacks.iter().cloned());
        let pending = self.agent.cluster_addresses.awaited();
        let left = self.carry_out(&mut lacks);
        self.survey_is_due |= todo.survey;
        if self.survey_is_due
            && let Some(plan) = &self.plan
        {
            self.obstacles = obstacles::find(&mut self.host, plan, &self.terms, &self.links, &self.own);
            self.survey_is_due = false;
        }
        let is_lack = |what: &&String| lacks.own.contains(*what);
        lacks.problems.extend(self.obstacles.iter().filter(|what| !is_lack(what)).cloned());
        let retries = !lacks.own.is_empty() || pending.is_some() || self.wireguard.waits() || self.lacks_address;
        let is_short = missing.is_some() || pending.is_some();
        let again = self.tell(lacks);
        let retry = retries.then_some(if is_short { SOON } else { AGAIN });
        retry.into_iter().chain(again).chain(left).min()
    }

    fn provided_for(&self) -> &'a str {
        self.agent.cluster.node()
    }

    /// Makes the kernel what the plan says. Without a plan: what is known from before. How long until something former can be taken away.
    fn carry_out(&mut self, lacks: &mut Lacks) -> Option<Duration> {
        self.look_for_others(lacks);
        if let Some(plan) = &self.plan {
            let ranges: Vec<IpNet> = plan.ranges.iter().filter(|range| self.is_to_be_given(range)).copied().collect();
            let mtu = plan.mtu.or(self.kept.mtu);
            let gateways = self.gateways();
            // Where the Node has no range any more, another one may have it: it is given to no new pod.
            if ranges != self.kept.ranges || mtu != self.kept.mtu || gateways != self.kept.gateways {
                self.keep_in_mind(ranges, mtu, gateways);
            }
        }
        self.write_kept(lacks);
        let left = self.forget_former();
        let all: Vec<IpNet> = self.kept.ranges.iter().chain(&self.kept.former).copied().collect();
        // What is new and not kept says nothing of the gateways that pods have.
        let is_kept = |range: &IpNet| self.kept.gateways.is_none() || self.kept.proof_of(range).is_some();
        let occupied: Vec<IpNet> = self.occupied.iter().map(|occupied| occupied.range).filter(is_kept).collect();
        let (on_bridge, routed) = (self.kept.on_bridge(&occupied), self.kept.routed(&occupied));
        let forwards = self.forward(&all.iter().chain(&on_bridge).copied().collect::<Vec<_>>(), lacks);
        let kept = gateway::keep(&mut self.host, &on_bridge);
        let has_bridge = kept.is_ok();
        match kept {
            Ok(0) => {}
            Ok(missing) => Line::info("cluster network").with("bridge", list::BRIDGE).with("added", missing).end(),
            Err(e) => lacks.own.push(format!("bridge {}: {e}", list::BRIDGE)),
        }
        self.bridge = self.host.netlink().ok().and_then(gateway::index);
        let is_whole = match self.plan.clone() {
            Some(plan) => self.lead(plan, &all, &routed, lacks),
            // The Node may have another range by now.
            None => {
                let patience = self.agent.settings.add_wait / 2;
                // The API server may have answered since this round began, which made no plan for lack of its answer: the next one does.
                let is_to_come = self.plan_lacks.is_empty() && self.provided.expects_answer(patience);
                self.lead_as_before(&all, &routed, lacks) && !is_to_come
            }
        };
        if forwards && has_bridge && is_whole {
            self.offer();
        } else {
            self.is_open = false;
        }
        left
    }

    /// Gives pods that wait for the network the network.
    fn offer(&mut self) {
        let has_list = self.kept.list(self.provided.settings.ports).is_ok_and(|list| list.is_some());
        if !self.is_open && has_list {
            linux::crash_point!("network-offered");
            self.is_open = true;
        }
        if lock(&self.provided.state).list.is_none() {
            lock(&self.provided.state).list = self.list().ok().flatten();
            self.agent.default.wake();
        }
    }

    /// Writes a plan to the kernel. The devices of before that are still there; `None`: it could not even be tried.
    fn apply(&mut self, plan: &Plan, lacks: &mut Lacks) -> Option<BTreeSet<Device>> {
        let applied = match self.host.netlink() {
            Ok(netlink) => self.fabric.apply(netlink, plan).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match applied {
            Ok(applied) => {
                self.wireguard.applied(&applied);
                if applied.changes > 0 {
                    Line::info("cluster network").with("changes", applied.changes).with("routes", plan.routes.len()).end();
                }
                for error in &applied.errors {
                    // What one peer lacks is no reason to keep pods from this node.
                    match range_of(error) {
                        _ if self.wireguard.is_on_trial(error) => {
                            lacks.problems.insert(format!("the rotation of WireGuard keys waits: {error}"));
                        }
                        Some(range) => {
                            lacks.failed.insert(range);
                            lacks.problems.insert(error.to_string());
                        }
                        None => lacks.own.push(error.to_string()),
                    }
                }
                Some(applied.remaining)
            }
            Err(e) => {
                lacks.own.push(e);
                None
            }
        }
    }
}
