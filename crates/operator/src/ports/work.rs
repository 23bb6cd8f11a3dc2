//! The loop: what is known, what follows from it, what is on its way, and what came of it.
//!
//! ```text
//!   known --wants--> what pods ask for --binding::step--> calls --> on their way --answers--> what is known
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use binding::{Cluster, Defaults, Element, Key, Owner, Snapshot, Step, Tried, counts_as_active, step};
use openstack::resource::Port;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

mod answers;
mod blocked;
mod calls;
mod carriers;
mod existing;
mod former;
mod namespaces;
mod ready;
mod waiting;
mod wants;

use self::former::Former;
use self::ready::Ready;
use self::waiting::Waiting;
use super::Ports;
use super::call::{Came, Slot, Task};
use super::cluster_uid::cluster_uid;
use super::namespace_network::MadeNetworks;
use super::pace::Pace;
use super::tell::{EventDedup, problem};
use super::unsure::Unsure;
use crate::log::Line;

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);
/// A pod that has ports, is there, and is not one that is followed, is asked for again after this time.
const ALIVE: Duration = Duration::from_secs(600);
/// A pod whose node's address is missing for so long has a kubelet that does not write it.
const UNWRITTEN: Duration = Duration::from_secs(30);
/// It is looked at the clock so often at the least.
const LOOK: Duration = Duration::from_secs(2);
/// Ready ports of a kind that pods have not used for so long are deleted.
const IDLE: Duration = Duration::from_secs(600);
/// What was read of a subnet or network is good for so long where a port is made in it.
const FRESH: Duration = Duration::from_secs(300);
/// A subnet or network that had no address left has its ports made one by one for so long. A port that waits for one is tried more often.
const SCARCE: Duration = Duration::from_secs(3600);
/// Neutron takes tags with the port.
pub(super) const EXTENSION: &str = "tag-ports-during-bulk-creation";
/// Without that, it takes them afterwards, and a description with the port, by which it is found after a crash in between.
pub(super) const EXTENSIONS_OF_TAGS: [&str; 2] = ["standard-attr-tag", "standard-attr-description"];

/// What is known and on its way.
struct Work {
    world: Snapshot,
    tasks: JoinSet<(Slot, Came)>,
    busy: BTreeSet<Slot>,
    /// Calls that have failed.
    calls: Pace<Slot>,
    /// Ports whose making has failed.
    keys: Pace<Key>,
    /// Ports of requests that are on their way.
    making: BTreeSet<Key>,
    /// Ports of requests without an answer.
    unsure: Unsure,
    /// Nodes' ports whose address pairs a call may still change: one on its way, or one without an answer, until when.
    pairing: BTreeMap<String, Instant>,
    /// What the operator that worked before may have sent.
    former: Former,
    /// Since when pods wait for their node's address.
    without_address: BTreeMap<String, Instant>,
    /// When subnets and networks had no address left the last time.
    scarce: BTreeMap<String, Instant>,
    /// When subnets and networks were read.
    read_at: BTreeMap<Slot, Instant>,
    ready: Ready,
    /// The networks of namespaces that operators of this cluster have made; none where they are to be listed.
    networks: Option<MadeNetworks>,
    /// When they were listed.
    networks_read: Option<Instant>,
    /// Namespaces whose network Neutron may still be making, and until when.
    making_networks: BTreeMap<String, Instant>,
    /// Since when pools are not used, by their names.
    idle: BTreeMap<String, Instant>,
    /// How many ports of another cluster of the same name there are.
    anothers: usize,
    /// Ports that were made, and IDs of those that were deleted, since the list on its way began.
    made: Vec<Port>,
    deleted: BTreeSet<String>,
    next_list: Instant,
    /// When the list on its way began, if what it tells is good for anything.
    list_began: Option<Instant>,
    /// How often all ports are listed without another reason.
    reconcile_every: Duration,
    /// Ports that are not ACTIVE.
    waiting: Waiting,
    /// When Neutron was asked to bind a port that it had not bound, by its ID.
    bound_again: BTreeMap<String, Instant>,
    /// What pods ask for: digest of annotation and definitions, and what came of it.
    asked: BTreeMap<String, (u64, Result<Vec<Element>, String>)>,
    /// Pods of which the API server has said that they are gone, and those that are there and not followed.
    gone: BTreeSet<String>,
    alive: BTreeMap<String, Instant>,
    is_supported: bool,
    told: EventDedup,
    /// How long the last decision took.
    took: Duration,
}

// === impl Ports ===

impl Ports {
    /// What tells this cluster from another one of its name: nothing is done before it is known.
    async fn uid(&self) -> String {
        let mut said = String::new();
        loop {
            match cluster_uid(&self.client).await {
                Ok(uid) => return uid,
                Err(why) if why != said => {
                    let now = "waiting: let the operator read it (kubectl apply -f deploy/openstack/access.yaml)";
                    Line::warn("openstack").with("error", &why).with("now", now).end();
                    said = why;
                }
                Err(_) => {}
            }
            sleep(LOOK).await;
        }
    }

    /// For ever.
    pub(super) async fn keep(self) {
        let mut work = Work::new(&self, self.uid().await);
        loop {
            let wake = work.next(Instant::now());
            tokio::select! {
                () = self.known.changed() => sleep(GATHER.max(work.took * 2)).await,
                Some(ended) = work.tasks.join_next() => work.take(&self, ended),
                () = sleep_until(wake) => {}
            }
            while let Some(ended) = work.tasks.try_join_next() {
                work.take(&self, ended);
            }
            if !self.lead.leads() {
                work.stand_by();
                // The one that works asks the API server for each pod that it has not seen go.
                self.known.lock().gone.clear();
            } else if self.known.unlisted().is_empty() {
                work.go_on(&self);
            }
        }
    }
}

// === impl Work ===

impl Work {
    fn new(ports: &Ports, uid: String) -> Self {
        let settings = &ports.options.settings;
        let defaults = Defaults {
            project: settings.project.clone(),
            security_groups: settings.security_groups.clone(),
            tags: settings.tags.clone(),
            ovs_bridge: settings.ovs_bridge.clone(),
            port_names: settings.port_names,
            max_mtu: settings.max_mtu,
            ports_per_namespace: ports.options.ports_per_namespace,
            pool: ports.options.pool,
            nested_pool: ports.options.nested_pool,
            tags_later: false,
            node_subnets: settings.nested.node_subnets.clone(),
            annotates: ports.options.vif_annotation,
        };
        let now = Instant::now();
        Work {
            world: Snapshot::new(Cluster { name: ports.options.cluster.clone(), uid }, defaults),
            tasks: JoinSet::new(),
            busy: BTreeSet::new(),
            calls: Pace::new(),
            keys: Pace::new(),
            making: BTreeSet::new(),
            unsure: Unsure::default(),
            pairing: BTreeMap::new(),
            former: Former::default(),
            without_address: BTreeMap::new(),
            scarce: BTreeMap::new(),
            read_at: BTreeMap::new(),
            ready: Ready::default(),
            networks: None,
            networks_read: None,
            making_networks: BTreeMap::new(),
            idle: BTreeMap::new(),
            anothers: 0,
            made: Vec::new(),
            deleted: BTreeSet::new(),
            next_list: now,
            list_began: None,
            reconcile_every: settings.reconcile_every,
            waiting: Waiting::default(),
            bound_again: BTreeMap::new(),
            asked: BTreeMap::new(),
            gone: BTreeSet::new(),
            alive: BTreeMap::new(),
            is_supported: false,
            told: EventDedup::default(),
            took: Duration::ZERO,
        }
    }

    fn next(&self, now: Instant) -> Instant {
        let poll = self.waiting.next().filter(|_| !self.busy.contains(&Slot::Poll));
        let all = [self.calls.next(now), self.keys.next(now), self.unsure.next(), poll, Some(now + LOOK)];
        all.into_iter().flatten().min().unwrap_or(now).max(now + GATHER)
    }

    /// Another operator works: what it does is not seen here.
    fn stand_by(&mut self) {
        self.world.ports = None;
        self.list_began = None;
        self.networks = None;
        self.world.claims.clear();
        self.ready = Ready::default();
        self.told = EventDedup::default();
        self.former = Former::default();
    }

    fn go_on(&mut self, ports: &Ports) {
        let begun = Instant::now();
        self.former.begin(begun + ports.neutron.timeout());
        let (step, tasks, mut problems) = self.decide(ports);
        self.took = begun.elapsed();
        if self.is_supported {
            for task in tasks {
                self.begin(ports, task);
            }
            self.look_again(ports, &step);
        } else {
            self.begin(ports, Task::Extensions);
        }
        // One without VIFs says why there are none.
        let has_vifs = |stored: &&binding::Stored| !stored.object.status.vifs.is_empty();
        let of_pods = |stored: &binding::Stored| stored.object.spec.pod_uid.clone();
        let bound: BTreeSet<String> = ports.known.lock().kuryr_ports.values().filter(has_vifs).map(of_pods).collect();
        let waits = |uid: &String| self.world.pods.contains_key(uid) && !bound.contains(uid);
        // Nothing can be done for anybody.
        if let (None, Some(why)) = (&self.world.ports, self.calls.why(&Slot::Extensions).or(self.calls.why(&Slot::List))) {
            let all = self.world.pods.iter().filter(|(uid, pod)| !pod.elements.is_empty() && !pod.is_over && waits(uid));
            for (uid, _) in all {
                problems.entry(uid.clone()).or_insert_with(|| why.to_owned());
            }
        }
        let refused = problems.len();
        for (uid, text) in self.told.news(problems, waits) {
            if let Some(pod) = self.world.pods.get(&uid) {
                ports.tell(uid, pod, text);
            }
        }
        self.count(ports, step.ready, refused);
    }

    /// What follows from what is known, and what is wrong with which pods.
    fn decide(&mut self, ports: &Ports) -> (Step, Vec<Task>, BTreeMap<String, String>) {
        let now = Instant::now();
        let mut inner = ports.known.lock();
        let mut problems = self.ask(ports, &inner);
        let networks = self.namespaces(ports, &inner, now);
        let owners: BTreeSet<String> = self.owned().map(|(owner, _)| owner.pod).collect();
        let uids: BTreeSet<&String> = inner.kuryr_ports.values().map(|stored| &stored.object.spec.pod_uid).collect();
        let needed = |uid: &String| owners.contains(uid) || uids.contains(uid);
        self.gone.extend(inner.gone.iter().filter(|uid| needed(uid)).cloned());
        self.gone.retain(needed);
        self.world.gone.clone_from(&self.gone);
        // What is on its way at this moment may need the others.
        if self.making.is_empty() && self.unsure.is_empty() {
            inner.gone.clear();
        }
        let paused: BTreeSet<Key> = self.keys.paused(now).cloned().collect();
        let is_wanted = |key: &Key| inner.pods.contains_key(&key.0) || is_of_pool(key);
        self.world.tried.retain(|key, tried| is_wanted(key) && (*tried == Tried::Together || paused.contains(key)));
        self.scarce.retain(|_, since| *since + SCARCE > now);
        self.world.scarce = self.scarce.keys().cloned().collect();
        self.world.pending = self.making.iter().chain(self.unsure.keys()).cloned().chain(paused).collect();
        self.calls.trim(now);
        self.keys.trim(now);
        // What Neutron does not have may be there by now.
        let is_paused = |slot: Slot| self.calls.is_paused(&slot, now);
        self.world.subnets.retain(|id, subnet| subnet.is_some() || is_paused(Slot::Subnet(id.clone())));
        self.world.networks.retain(|id, network| network.is_some() || is_paused(Slot::Network(id.clone())));
        self.forget_existing(now);
        self.world.kuryr_ports = std::mem::take(&mut inner.kuryr_ports);
        self.settle_pairs(now);
        if self.former.is_over() {
            self.world.inherited.clear();
        }
        self.ready.look(&mut self.world, &self.busy, now);
        self.world.told = self.told.now();
        let mut step = step(&self.world);
        self.world.claims.append(&mut step.claims);
        self.idle.retain(|name, _| step.pools.get(name).is_some_and(|(_, is_used)| !is_used));
        for (name, _) in step.pools.iter().filter(|(_, (_, is_used))| !is_used) {
            self.idle.entry(name.clone()).or_insert(now);
        }
        self.world.idle = self.idle.iter().filter(|(_, since)| **since + IDLE <= now).map(|(name, _)| name.clone()).collect();
        inner.kuryr_ports = std::mem::take(&mut self.world.kuryr_ports);
        let list = || self.list(ports);
        let stored = |name: &binding::ObjectName| inner.kuryr_ports.get(name).map(|stored| stored.object.clone());
        let calls = std::mem::take(&mut step.calls);
        let tasks: Vec<Task> = calls.into_iter().filter_map(|call| Task::of(call, list, stored)).chain(networks).collect();
        drop(inner);
        let tasks = self.fresh(tasks, &mut step, now);
        for (uid, refused) in &step.refused {
            let words = |number| self.keys.why(&(uid.clone(), number));
            problems.insert(uid.clone(), problem(refused, words));
        }
        // What holds up several pods is a problem of each.
        for key in self.keys.paused(now).filter(|key| !self.world.tried.contains_key(key)) {
            if let (true, Some(why)) = (self.world.pods.contains_key(&key.0), self.keys.why(key)) {
                problems.entry(key.0.clone()).or_insert_with(|| why.to_owned());
            }
        }
        self.blocked(ports, &step, &mut problems);
        self.unwritten(&step, now, &mut problems);
        (step, tasks, problems)
    }

    fn list(&self, ports: &Ports) -> Task {
        Task::List { tag: ports.options.cluster.tag(), with_untagged: self.world.defaults.tags_later }
    }

    /// Ports that pods own.
    fn owned(&self) -> impl Iterator<Item = (Owner, &Port)> {
        let ports = self.world.ports.iter().flat_map(BTreeMap::values);
        ports.filter_map(|port| Some((Owner::of(port, &self.world.cluster)?, port)))
    }

    fn count(&self, ports: &Ports, ready: usize, refused: usize) {
        let mut states = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        for (owner, port) in self.owned() {
            *states.entry(port.status.clone()).or_default() += 1;
            if !counts_as_active(port) {
                waiting.insert(owner.pod);
            }
        }
        let pooled = self.world.ports.iter().flat_map(BTreeMap::values).filter(|port| self.world.cluster.is_pooled(port));
        pooled.for_each(|port| *states.entry(port.status.clone()).or_default() += 1);
        ports.numbers.now(states, ready, waiting.len(), refused);
    }
}

/// Whether it is that of a ready port.
fn is_of_pool(key: &Key) -> bool {
    key.0.starts_with("pool ")
}

/// Whether ports can be found again by their tags.
pub(super) fn can_be_used(extensions: &BTreeSet<String>) -> bool {
    extensions.contains(EXTENSION) || EXTENSIONS_OF_TAGS.iter().all(|alias| extensions.contains(*alias))
}
