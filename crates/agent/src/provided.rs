//! The cluster's own network, where this agent provides it: what this node's pods get as their default network, and the way to those of
//! other nodes.
//!
//! ```text
//!   Nodes ------------------------.
//!   own links, addresses, routes --+--> between::plan --+--> own ranges, MTU --> list: the default network; kept for the next start
//!   ranges of Services -----------'     (pure)          +--> gateway         the bridge, and its addresses
//!                                                       +--> fabric::apply   devices, neighbours, routes to other nodes' pods
//!                                                       +--> rules::keep     masquerade for what leaves the cluster
//!                                                       '--> condition       NetworkUnavailable, on the own Node
//! ```
//!
//! One thread does all of it, one step after the other ([`follow`]); whatever changes wakes it. Everything that it makes stays when the
//! agent ends, and a new agent writes only what differs. Until the API server has told of all Nodes nothing is taken away: pods get
//! addresses of the ranges that the agent knew last.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use attach::AddressRun;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use between::{Mode, Plan, PublicKey, Tunnel, Vxlan};
use cluster::{Cluster, Listed, Nodes};
use cni::{AddResult, CniError, Code, NetworkList};
use ipnet::IpNet;
use json::{Object, Value};

use crate::lock;
use crate::log::Line;
use crate::network_table::NetworkTable;

mod condition;
mod follow;
mod gateway;
mod home;
mod kept;
mod keys;
mod list;
mod obstacles;
mod own_address;
mod peers;
mod problem_log;
mod ranges;
mod underlay;
mod wake;

pub(crate) use follow::{once, start};
use home::Home;
use kept::SavedNetwork;
pub(crate) use list::NAME;
pub use list::{Addresses, BRIDGE, PodPorts, list};
use ranges::Ranges;
pub use ranges::Source;
use wake::Wake;

/// The cluster's network, as a person chooses it: the same on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provide {
    /// How packets get to other nodes.
    pub mode: Mode,
    /// Where pods' addresses come from.
    pub source: Source,
    /// The vxlan network, where the mode uses it.
    pub vxlan: Vxlan,
    /// The UDP port of WireGuard; during a rotation the next one too.
    pub wireguard_port: u16,
    /// How long a former key is used beside the new one, at the least.
    pub wireguard_overlap: Duration,
    /// Where all nodes' ranges are. Empty: anywhere.
    pub cluster_ranges: Vec<IpNet>,
    /// Where pods are seen by their own addresses; all others see the node's. `None`: the ranges of all Nodes, and the addresses of those
    /// that are reached without a tunnel.
    pub non_masquerade: Option<Vec<IpNet>>,
    /// How pods' ports of the bridge are.
    pub ports: PodPorts,
}

impl Provide {
    /// The UDP ports at which tunnels between nodes end, now or while WireGuard's keys are rotated.
    pub(crate) fn tunnel_ports(&self) -> Vec<u16> {
        match self.mode.tunnel() {
            Some(Tunnel::Vxlan) => vec![self.vxlan.port],
            Some(Tunnel::WireGuard) => vec![self.wireguard_port, self.wireguard_port.saturating_add(1)],
            None => Vec::new(),
        }
    }
}

/// The number of our vxlan network: above those that flannel, Calico and Cilium use.
const VNI: u32 = 4096;
/// Its UDP port, as IANA has it.
const VXLAN_PORT: u16 = 4789;
/// WireGuard's UDP port, as its documentation has it.
const WIREGUARD_PORT: u16 = 51820;
/// Longer than an agent takes to be replaced by another one.
const OVERLAP: Duration = Duration::from_secs(600);

/// The network, as far as others of the agent ask for it.
pub(crate) struct Provided {
    settings: Provide,
    pub(crate) nodes: Nodes,
    /// Which of them has which ranges.
    pub(crate) ranges: Ranges,
    state: Mutex<State>,
    /// There is a plan.
    planned: Condvar,
    since: Instant,
    home: Home,
    wake: Wake,
    /// Whether somebody has asked for a rotation of the keys.
    rotate: AtomicBool,
    /// Whether rules or ranges of ours may be gone.
    rules_lost: AtomicBool,
}

/// What came of the last round.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The default network; `None` while there is none.
    list: Option<Arc<NetworkList>>,
    /// Why there is none, or why it is not whole.
    pub(crate) lacks: Vec<String>,
    /// What is wrong with other nodes, or with ranges.
    pub(crate) problems: BTreeSet<String>,
    /// The own pods' ranges.
    pub(crate) ranges: Vec<IpNet>,
    /// What they were before, as long as a pod may have an address of it.
    former: Vec<IpNet>,
    /// Of what any node may get a range.
    pools: Vec<IpNet>,
    /// Ranges that no pod gets an address of, because something else has them, and what that is.
    occupied: Vec<(IpNet, String)>,
    /// Ranges of which it is known whether anything else has them.
    looked_at: Vec<IpNet>,
    /// All that pods may have of these and of the plan; made when it is asked for, `None` after a change.
    of_pods: Option<Arc<NetworkTable<()>>>,
    /// What pods' links get.
    pub(crate) mtu: Option<u32>,
    /// How many Nodes there are besides the own one, and how many of them have a way to all of their ranges.
    pub(crate) peers: (usize, usize),
    /// What the kernel is to have.
    pub(crate) plan: Option<Arc<Plan>>,
    /// How often that was planned.
    pub(crate) plans: u64,
    /// Ranges to which nothing leads although it is planned.
    pub(crate) failed: BTreeSet<IpNet>,
    /// Whether the own Node has a range, which may be refused.
    pub(crate) has_range: bool,
    /// WireGuard's keys, where the mode has some.
    pub(crate) keys: Option<KeysState>,
}

/// What others are told of WireGuard's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeysState {
    /// The public ones, the newest last.
    pub(crate) announced: Vec<PublicKey>,
    /// Which rotation is followed.
    pub(crate) rotation: u64,
    /// Of which rotation the key is that packets leave by to whoever has one of it.
    pub(crate) moved: u64,
    /// How long that rotation goes on already.
    pub(crate) age: Option<Duration>,
    /// Nodes that may still send by the old key.
    pub(crate) awaited: Vec<String>,
}

// === impl Provide ===

impl Provide {
    /// The network with this mode, and all else as the settings have it by default.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Provide {
            mode,
            source: Source::default(),
            vxlan: Vxlan { vni: VNI, port: VXLAN_PORT },
            wireguard_port: WIREGUARD_PORT,
            wireguard_overlap: OVERLAP,
            cluster_ranges: Vec::new(),
            non_masquerade: None,
            ports: PodPorts::default(),
        }
    }
}

/// The network of a cluster's pods, which definitions are held against.
pub(crate) trait PodNetwork {
    /// Among which addresses of pods, of this node or of another, one of these is: a node's ranges, what it had before while a pod may have an
    /// address of it, those of all nodes, whether packets find them or not, and where any node may get a range: the networks of pools, `clusterCIDRs`.
    fn range_of_pods(&self, run: AddressRun) -> Option<IpNet>;

    /// A Node whose address is one of these, by name: packets for its pods go there.
    fn node_in(&self, run: AddressRun) -> Option<(IpAddr, String)>;

    /// Whether tunnels between nodes end at this UDP port.
    fn has_tunnel_at(&self, port: u16) -> bool;
}

impl PodNetwork for Provided {
    fn range_of_pods(&self, run: AddressRun) -> Option<IpNet> {
        lock(&self.state).of_pods(&self.settings.cluster_ranges).overlapping(run).map(|(range, ())| *range)
    }

    fn node_in(&self, run: AddressRun) -> Option<(IpAddr, String)> {
        self.nodes.address_in(run.first, run.last).map(|(address, node)| (address, node.name.clone()))
    }

    fn has_tunnel_at(&self, port: u16) -> bool {
        self.settings.tunnel_ports().contains(&port)
    }
}

/// Why a pod does not get the network yet.
fn not_ready(why: &str) -> CniError {
    CniError::new(Code::TRY_AGAIN_LATER, format!("the cluster's network is not ready on this node: {why}"))
}

// === impl State ===

impl State {
    /// # Errors
    /// Something else has the address, or nobody has looked whether anything has.
    fn is_free(&self, address: IpAddr) -> Result<(), CniError> {
        if let Some((_, why)) = self.occupied.iter().find(|(range, _)| range.contains(&address)) {
            return Err(not_ready(why));
        }
        let is_looked_at = self.looked_at.iter().any(|range| range.contains(&address));
        is_looked_at.then_some(()).ok_or_else(|| not_ready(&format!("the agent has not prepared the range of {address} yet")))
    }

    /// Whether pods may have the same addresses as in another state.
    fn has_pods_of(&self, other: &State) -> bool {
        let is_plan = match (&self.plan, &other.plan) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        };
        is_plan && self.ranges == other.ranges && self.former == other.former && self.pools == other.pools
    }

    fn of_pods(&mut self, cluster_ranges: &[IpNet]) -> Arc<NetworkTable<()>> {
        if let Some(made) = &self.of_pods {
            return Arc::clone(made);
        }
        let of_plan = self.plan.iter().flat_map(|plan| plan.ranges.iter().chain(&plan.inside).chain(&plan.closed));
        let all = self.ranges.iter().chain(&self.former).chain(of_plan).chain(&self.pools).chain(cluster_ranges);
        let made: Arc<NetworkTable<()>> = Arc::new(all.map(|range| (*range, ())).collect());
        self.of_pods = Some(Arc::clone(&made));
        made
    }
}

// === impl Provided ===

impl Provided {
    /// Begins to follow Nodes; until they are known, pods get what the node had last. Must be called within a tokio runtime.
    pub(crate) fn new(settings: &Provide, cluster: &Cluster, state_dir: &Path) -> Self {
        let (kept, why) = SavedNetwork::read(state_dir, settings.source);
        if let Some(why) = why {
            Line::warn("cluster network").with("error", why).with("now", "the node's ranges are those that the API server tells").end();
        }
        let state = State { ranges: kept.ranges, former: kept.former, mtu: kept.mtu, ..State::default() };
        Provided {
            settings: settings.clone(),
            nodes: cluster.follow_nodes(),
            ranges: Ranges::follow(settings.source, cluster),
            state: Mutex::new(state),
            planned: Condvar::new(),
            since: Instant::now(),
            home: Home::default(),
            wake: Wake::default(),
            rotate: AtomicBool::new(false),
            rules_lost: AtomicBool::new(false),
        }
    }

    /// The default network of this node's pods.
    pub(crate) fn list(&self) -> Result<NetworkList, CniError> {
        let state = lock(&self.state);
        if let Some(list) = &state.list {
            return Ok(list.as_ref().clone());
        }
        let why = if state.lacks.is_empty() { "the API server has not told of the Nodes yet".to_owned() } else { state.lacks.join("; ") };
        Err(not_ready(&why))
    }

    /// Waits until packets for a pod with these addresses find it on this node: a block may be granted, and one of its addresses assigned, before
    /// a route leads to it. Nobody waits for long; the pod's own packets are on their way in any case.
    ///
    /// # Errors
    /// Something else on this node may have the address: its block came after the pod had begun to wait for one. Or nobody has looked yet.
    pub(crate) fn wait_for_way(&self, result: &AddResult, until: Instant) -> Result<(), CniError> {
        let addresses = || result.ips.iter().map(|ip| ip.address.addr());
        if self.settings.source != Source::Pools || self.home.wait(addresses(), until) {
            return Ok(());
        }
        let state = lock(&self.state);
        addresses().try_for_each(|address| state.is_free(address))
    }

    /// Whether pods get addresses of exactly these ranges now.
    pub(crate) fn has_ranges(&self, ranges: &[IpNet]) -> bool {
        let state = lock(&self.state);
        state.list.is_some() && state.ranges == ranges
    }

    /// Whether every Node announces a WireGuard key.
    pub(crate) fn knows_keys(&self) -> bool {
        let has_key = |node: &Arc<cluster::Node>| matches!(&node.announced, Some(Ok(announced)) if !announced.keys.is_empty());
        self.nodes.listed().complete && self.nodes.all().iter().all(has_key)
    }

    /// Takes a plan: definitions are held against it from now on.
    fn plan(&self, plan: Arc<Plan>, pools: Vec<IpNet>) {
        let mut state = lock(&self.state);
        (state.plan, state.pools, state.of_pods) = (Some(plan), pools, None);
        self.planned.notify_all();
    }

    /// Waits for the first plan, until this moment at most: before it, it is not known where pods have addresses.
    ///
    /// # Errors
    /// Why there is none by then.
    pub(crate) fn wait_for_plan(&self, until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now());
        let is_missing = |state: &mut State| state.plan.is_none();
        let (state, _) = self.planned.wait_timeout_while(lock(&self.state), left, is_missing).unwrap_or_else(PoisonError::into_inner);
        if state.plan.is_some() {
            return Ok(());
        }
        let lacks = state.lacks.join("; ");
        drop(state);
        Err(self.missing().unwrap_or_else(|| format!("the cluster's network is not planned on this node yet: {lacks}")))
    }

    /// Whether the API server has answered with what the first plan is made from, or may do so at any moment: it has refused nothing yet, and this
    /// process has not waited for so long.
    fn expects_answer(&self, patience: Duration) -> bool {
        let listed: Vec<Listed> = [Some(self.nodes.listed()), self.ranges.listed()].into_iter().flatten().collect();
        listed.iter().all(|listed| listed.complete || listed.failing.is_none()) && self.since.elapsed() < patience
    }

    /// What the API server has not told yet of what a plan is made from, and why.
    pub(crate) fn missing(&self) -> Option<String> {
        let listed = [("the Nodes", Some(self.nodes.listed())), ("the nodes' blocks (NodeIPPools)", self.ranges.listed())];
        let (what, listed) = listed.into_iter().find_map(|(what, listed)| Some((what, listed.filter(|listed| !listed.complete)?)))?;
        let why = listed.failing.map_or_else(|| "it has not answered yet".to_owned(), |failing| failing.error.to_string());
        Some(format!("the API server has not told of {what}: {why}"))
    }

    /// The same for pods that may send with any address.
    pub(crate) fn lenient_list(&self) -> Result<NetworkList, CniError> {
        self.list()?;
        let (ranges, mtu) = {
            let state = lock(&self.state);
            (state.ranges.clone(), state.mtu)
        };
        list(Addresses::of(self.settings.source, &ranges), mtu, PodPorts { strict: false, ..self.settings.ports })
    }

    /// What a person is told of it.
    pub(crate) fn value(&self) -> Object {
        let state = lock(&self.state).clone();
        let (peers, reached) = state.peers;
        let mut o = Object::new();
        o.set("mode", self.settings.mode.to_string());
        o.set("ranges", texts(&state.ranges));
        if let Some(mtu) = state.mtu {
            o.set("mtu", u64::from(mtu));
        }
        o.set("peers", peers as u64);
        o.set("peersReached", reached as u64);
        o.set("routes", state.plan.map_or(0, |plan| plan.routes.len()) as u64);
        o.set("plans", state.plans);
        if let Some(keys) = state.keys {
            o.set("wireguard", keys.value());
        }
        o.set("lacks", state.lacks);
        o.set("problems", state.problems.into_iter().collect::<Vec<_>>());
        o
    }

    /// The same for a monitoring system: name, meaning, value.
    pub(crate) fn figures(&self) -> [(&'static str, &'static str, usize); 5] {
        let state = lock(&self.state);
        let (peers, reached) = state.peers;
        [
            ("netloom_network_peers", "Nodes besides this one.", peers),
            ("netloom_network_peers_reached", "Those of them that this node has routes to all pod ranges of.", reached),
            ("netloom_network_routes", "Routes to pod ranges of other nodes.", state.plan.as_ref().map_or(0, |plan| plan.routes.len())),
            ("netloom_network_problems", "What is wrong with other nodes, or with ranges.", state.problems.len()),
            ("netloom_network_lacks", "Reasons why this node's pods have no network, or only a part of it.", state.lacks.len()),
        ]
    }

    /// How packets get to other nodes.
    pub(crate) fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// Begins a rotation of the keys, on all nodes. What the node has now.
    pub(crate) fn rotate_keys(&self) -> Result<Value, CniError> {
        let refused = |why: &str| Err(CniError::new(Code::INVALID_CONFIG, format!("cannot rotate the WireGuard keys: {why}")));
        let state = lock(&self.state).clone();
        let Some(keys) = state.keys else {
            return refused("this node has none; see `netloom status`, and the setting between in docs/operate/settings.md");
        };
        if keys.age.is_some() {
            return refused("a rotation is under way; see `netloom status`");
        }
        self.rotate.store(true, Ordering::Release);
        self.wake.plan();
        Ok(keys.value().into())
    }

    /// Whether a rotation was asked for since the last call.
    pub(crate) fn takes_rotation(&self) -> bool {
        self.rotate.swap(false, Ordering::AcqRel)
    }

    /// Says that rules or ranges of ours were removed, by whomever.
    pub(crate) fn rules_are_lost(&self) {
        self.rules_lost.store(true, Ordering::Release);
        self.wake.keep();
    }

    /// Whether rules or ranges of ours were removed since the last call.
    pub(crate) fn takes_lost_rules(&self) -> bool {
        self.rules_lost.swap(false, Ordering::AcqRel)
    }
}

// === impl KeysState ===

impl KeysState {
    fn value(&self) -> Object {
        let key = |key: &PublicKey| {
            let mut o = Object::new();
            o.set("publicKey", STANDARD.encode(key.key));
            if let Some(port) = key.port {
                o.set("port", u64::from(port));
            }
            Value::from(o)
        };
        let mut o = Object::new();
        o.set("keys", Value::Array(self.announced.iter().map(key).collect()));
        o.set("rotation", self.rotation);
        if let Some(age) = self.age {
            o.set("rotatingSeconds", age.as_secs());
            o.set("awaits", self.awaited.clone());
        }
        o
    }
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn joined<T: ToString>(all: &[T]) -> String {
    texts(all).join(", ")
}
