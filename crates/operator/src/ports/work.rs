//! The loop: what is known, what follows from it, what is on its way, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use binding::{Cluster, Defaults, Element, Key, Owner, Pod, Refused, RequestError, Snapshot, Step, Tried, default_element, elements, step};
use neutron::{Answered, Error, Refusal};
use openstack::resource::{NewPort, Port};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

mod blocked;
mod ready;

use self::blocked::places;
use self::ready::Ready;
use super::Ports;
use super::call::{Came, Slot, Task};
use super::cluster_uid::cluster_uid;
use super::known::{Inner, PodSeen};
use super::pace::Pace;
use super::tell::{EventDedup, problem};
use super::unsure::Unsure;
use crate::apply_write::Outcome;
use crate::log::Line;

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);
/// So many requests that make ports are on their way at once: what comes meanwhile goes into the next one, up to
/// [`binding::MAX_BULK`] ports.
const MAKING: usize = 3;
/// So many deletions are on their way at once: pods that wait for ports have places left.
const DELETING: usize = 4;
/// So many ports get tags or security groups at once: a changed setting is one of all ports, and pods that come wait for none of them.
const UPDATING: usize = 4;
/// So many other calls.
const OTHERS: usize = 16;
/// How often all ports are listed without a reason.
const RECONCILE: Duration = Duration::from_secs(300);
/// How often ports that are not ACTIVE are looked at: at first, and at the least.
const POLL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A pod that has ports, is there, and is not one that is followed, is asked for again after this time.
const ALIVE: Duration = Duration::from_secs(600);
/// It is looked at the clock so often at the least.
const LOOK: Duration = Duration::from_secs(2);
/// Ready ports of a kind that pods have not used for so long are deleted.
const IDLE: Duration = Duration::from_secs(600);
/// What was read of a subnet or network is good for so long where a port is made in it.
const FRESH: Duration = Duration::from_secs(300);
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
    /// When subnets and networks were read.
    read_at: BTreeMap<Slot, Instant>,
    ready: Ready,
    /// Since when pools are not used, by their names.
    idle: BTreeMap<String, Instant>,
    /// How many ports of another cluster of the same name there are.
    anothers: usize,
    /// Ports that were made, and IDs of those that were deleted, since the list on its way began.
    made: Vec<Port>,
    deleted: BTreeSet<String>,
    next_list: Instant,
    next_poll: Instant,
    /// Since when ports are not ACTIVE, by ID.
    waiting: BTreeMap<String, Instant>,
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
            tags_later: false,
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
            read_at: BTreeMap::new(),
            ready: Ready::default(),
            idle: BTreeMap::new(),
            anothers: 0,
            made: Vec::new(),
            deleted: BTreeSet::new(),
            next_list: now,
            next_poll: now,
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            gone: BTreeSet::new(),
            alive: BTreeMap::new(),
            is_supported: false,
            told: EventDedup::default(),
            took: Duration::ZERO,
        }
    }

    fn next(&self, now: Instant) -> Instant {
        let poll = (!self.waiting.is_empty()).then_some(self.next_poll);
        let all = [self.calls.next(now), self.keys.next(now), self.unsure.next(), poll, Some(now + LOOK)];
        all.into_iter().flatten().min().unwrap_or(now).max(now + GATHER)
    }

    /// Another operator works: what it does is not seen here.
    fn stand_by(&mut self) {
        self.world.ports = None;
        self.world.claims.clear();
        self.ready = Ready::default();
        self.told = EventDedup::default();
    }

    fn go_on(&mut self, ports: &Ports) {
        let begun = Instant::now();
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
        let bound: BTreeSet<String> = ports.known.lock().kuryr_ports.values().map(|stored| stored.object.spec.pod_uid.clone()).collect();
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
        self.count(ports, refused);
    }

    /// What follows from what is known, and what is wrong with which pods.
    fn decide(&mut self, ports: &Ports) -> (Step, Vec<Task>, BTreeMap<String, String>) {
        let now = Instant::now();
        let mut inner = ports.known.lock();
        let mut problems = self.ask(ports, &inner);
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
        self.world.tried.retain(|key, tried| *tried == Tried::Together || paused.contains(key));
        self.world.pending = self.making.iter().chain(self.unsure.keys()).cloned().chain(paused).collect();
        self.calls.trim(now);
        self.keys.trim(now);
        // What Neutron does not have may be there by now.
        let is_paused = |slot: Slot| self.calls.is_paused(&slot, now);
        self.world.subnets.retain(|id, subnet| subnet.is_some() || is_paused(Slot::Subnet(id.clone())));
        self.world.networks.retain(|id, network| network.is_some() || is_paused(Slot::Network(id.clone())));
        self.world.kuryr_ports = std::mem::take(&mut inner.kuryr_ports);
        self.ready.look(&mut self.world, &self.busy, now);
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
        let tasks: Vec<Task> = calls.into_iter().filter_map(|call| Task::of(call, list, stored)).collect();
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
        self.blocked(&step, &mut problems);
        (step, tasks, problems)
    }

    fn list(&self, ports: &Ports) -> Task {
        Task::List { tag: ports.options.cluster.tag(), with_untagged: self.world.defaults.tags_later }
    }

    /// What the pods ask for; what is wrong with that.
    fn ask(&mut self, ports: &Ports, inner: &Inner) -> BTreeMap<String, String> {
        let mut problems = BTreeMap::new();
        self.asked.retain(|uid, _| inner.pods.contains_key(uid));
        self.world.pods.clear();
        for (uid, pod) in &inner.pods {
            let mut hasher = DefaultHasher::new();
            (&pod.annotation, &pod.additional_subnets, pod.has_default, inner.definitions_revision).hash(&mut hasher);
            let digest = hasher.finish();
            let known = self.asked.get(uid).is_some_and(|(of, _)| *of == digest);
            if !known {
                self.asked.insert(uid.clone(), (digest, asks(ports, inner, pod)));
            }
            let elements = match self.asked.get(uid) {
                Some((_, Ok(elements))) => elements.clone(),
                // What it has stays, and only new pods are affected.
                Some((_, Err(_))) if is_bound(inner, uid, &pod.name) => Vec::new(),
                Some((_, Err(problem))) if !pod.is_over => {
                    problems.insert(uid.clone(), problem.clone());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let (name, node, is_over) = (pod.name.clone(), pod.node.clone(), pod.is_over);
            self.world.pods.insert(uid.clone(), Pod { name, node, is_over, elements });
        }
        // Those of pools are no pod's.
        self.keys.retain(|key| inner.pods.contains_key(&key.0) || key.0.starts_with("pool "));
        problems
    }

    /// Ports that pods own.
    fn owned(&self) -> impl Iterator<Item = (Owner, &Port)> {
        let ports = self.world.ports.iter().flat_map(BTreeMap::values);
        ports.filter_map(|port| Some((Owner::of(port, &self.world.cluster)?, port)))
    }

    /// Looks at ports that are not ACTIVE, at all ports now and then, and at pods that were not seen; takes back what cannot be bound.
    fn look_again(&mut self, ports: &Ports, step: &Step) {
        let now = Instant::now();
        let waiting = step.watched.iter().cloned();
        let before = std::mem::take(&mut self.waiting);
        self.waiting = waiting.map(|id| (id.clone(), before.get(&id).copied().unwrap_or(now))).collect();
        if self.waiting.len() > before.len() || self.waiting.keys().any(|id| !before.contains_key(id)) {
            self.next_poll = self.next_poll.min(now + POLL.0);
        }
        if !self.waiting.is_empty() && self.next_poll <= now {
            let youngest = self.waiting.values().map(|since| now.duration_since(*since)).min().unwrap_or_default();
            self.next_poll = now + (youngest / 4).clamp(POLL.0, POLL.1);
            self.begin(ports, Task::Poll(self.waiting.keys().cloned().collect()));
        }
        let is_due = self.next_list <= now || self.unsure.next().is_some_and(|next| next <= now);
        if self.world.ports.is_some() && is_due {
            self.begin(ports, self.list(ports));
        }
        self.alive.retain(|_, until| *until > now);
        let missing: BTreeSet<String> = step.missing.iter().filter(|uid| !self.alive.contains_key(*uid)).cloned().collect();
        if !missing.is_empty() {
            self.begin(ports, Task::Confirm(missing));
        }
        self.rebind(ports, step, now);
    }

    /// A port that no mechanism driver can bind stays so: it is made again, ever more seldom.
    fn rebind(&mut self, ports: &Ports, step: &Step, now: Instant) {
        for refused in step.refused.values().flatten() {
            let Refused::Binding { port, .. } = refused else { continue };
            let owner = self.world.ports.as_ref().and_then(|all| Owner::of(all.get(port)?, &self.world.cluster));
            let Some(key) = owner.map(|owner| (owner.pod, owner.element)) else { continue };
            match self.waiting.get(port) {
                Some(since) if *since == now => self.keys.failed(&key, refused.to_string(), now),
                _ if !self.keys.is_paused(&key, now) => self.begin(ports, Task::Delete(port.clone())),
                _ => {}
            }
        }
    }

    /// Makes a call, if nothing is in its way.
    fn begin(&mut self, ports: &Ports, task: Task) {
        let (slot, now) = (task.slot(), Instant::now());
        if is_full(&self.busy, &slot) || self.busy.contains(&slot) || self.calls.is_paused(&slot, now) {
            return;
        }
        match &task {
            Task::Create(wanted) => self.making.extend(wanted.iter().map(|(key, _)| key.clone())),
            Task::Poll(ids) => self.ready.poll_begins(ids),
            Task::Write(name, _, object) => self.ready.write_begins(name, &object.spec.pod_uid),
            Task::List { .. } => {
                self.unsure.list_begins(now);
                (self.made, self.deleted) = (Vec::new(), BTreeSet::new());
            }
            _ => {}
        }
        self.busy.insert(slot.clone());
        let (client, neutron) = (ports.client.clone(), ports.neutron.clone());
        self.tasks.spawn(async move { (slot, task.run(client, neutron).await) });
    }

    /// Takes in what came of a call.
    fn take(&mut self, ports: &Ports, ended: Result<(Slot, Came), tokio::task::JoinError>) {
        // A task that panics takes the process with it, or is a defect: whoever is busy then stays so until the next start.
        let Ok((slot, came)) = ended else { return };
        self.busy.remove(&slot);
        self.ready.ended(&slot);
        let now = Instant::now();
        let failure = match came {
            Came::Extensions(Ok(all)) if can_be_used(&all) => {
                self.is_supported = true;
                self.world.defaults.tags_later = !all.contains(EXTENSION);
                None
            }
            Came::Extensions(Ok(_)) => {
                let (with, later) = (EXTENSION, EXTENSIONS_OF_TAGS.join(" and "));
                Some(format!(
                    "Neutron has neither the extension {with} nor {later}: ports cannot be told apart; add tag_ports_during_bulk_creation to ML2's extension_drivers"
                ))
            }
            Came::Listed(Ok(all)) => self.listed(all, now),
            Came::Polled(ids, Ok(all)) => self.polled(&ids, all),
            Came::Subnet(id, Ok(subnet)) => {
                let is_missing = subnet.is_none();
                self.read_at.insert(slot.clone(), now);
                self.world.subnets.insert(id, subnet);
                is_missing.then(String::new)
            }
            Came::Network(id, Ok(network)) => {
                let is_missing = network.is_none();
                self.read_at.insert(slot.clone(), now);
                self.world.networks.insert(id, network);
                is_missing.then(String::new)
            }
            Came::Created(wanted, Ok(made)) => self.made(&wanted, made),
            Came::Created(wanted, Err(e)) => self.not_made(&wanted, &e, now, ports.neutron.timeout()),
            Came::Tagged(id, tags, Ok(())) => {
                if let Some(port) = self.world.ports.as_mut().and_then(|ports| ports.get_mut(&id)) {
                    port.tags = tags;
                }
                None
            }
            Came::Updated(Ok(port)) => {
                Line::info("port").with("updated", &port.id).with("security_groups", port.security_groups.join(",")).end();
                if let Some(known) = self.world.ports.as_mut().and_then(|ports| ports.get_mut(&port.id)) {
                    *known = *port;
                }
                None
            }
            Came::Deleted(id, Ok(answer)) => self.deleted(&id, &answer, now),
            Came::Wrote(name, Outcome::Done(object)) => {
                if let Some(object) = object {
                    ports.known.put_kuryr_port(*object);
                }
                Line::info("kuryrport").with("wrote", format!("{}/{}", name.namespace, name.name)).end();
                None
            }
            Came::Released(name, Outcome::Done(_)) => {
                ports.known.drop_kuryr_port(&name);
                Line::info("kuryrport").with("released", format!("{}/{}", name.namespace, name.name)).end();
                None
            }
            // The watch tells what it is now.
            Came::Wrote(_, Outcome::Conflict) | Came::Released(_, Outcome::Conflict) => Some(String::new()),
            Came::Wrote(_, Outcome::Refused(why) | Outcome::Failed(why))
            | Came::Released(_, Outcome::Refused(why) | Outcome::Failed(why)) => Some(why),
            Came::Confirmed(uids, Ok(live)) => {
                for uid in uids.difference(&live) {
                    Line::info("pod").with("gone", uid).with("now", "deleting its ports").end();
                    self.gone.insert(uid.clone());
                }
                self.alive.extend(live.into_iter().map(|uid| (uid, now + ALIVE)));
                None
            }
            Came::Confirmed(_, Err(why)) => Some(why),
            Came::Extensions(Err(e))
            | Came::Listed(Err(e))
            | Came::Polled(_, Err(e))
            | Came::Subnet(_, Err(e))
            | Came::Network(_, Err(e))
            | Came::Tagged(_, _, Err(e))
            | Came::Updated(Err(e))
            | Came::Deleted(_, Err(e)) => Some(e.to_string()),
        };
        match failure {
            None => self.calls.done(&slot),
            Some(why) => {
                if !why.is_empty() && self.calls.why(&slot) != Some(why.as_str()) {
                    Line::warn("neutron").with("error", &why).with("now", "retrying").end();
                }
                self.calls.failed(&slot, why, now);
            }
        }
    }

    fn listed(&mut self, all: Vec<Port>, now: Instant) -> Option<String> {
        let mut listed: BTreeMap<String, Port> = all.into_iter().map(|port| (port.id.clone(), port)).collect();
        for port in std::mem::take(&mut self.made) {
            listed.entry(port.id.clone()).or_insert(port);
        }
        listed.retain(|id, _| !self.deleted.contains(id));
        keep_newer(&mut listed, self.world.ports.take().unwrap_or_default());
        self.notice_anothers(&listed);
        let there: BTreeSet<Key> =
            listed.values().filter_map(|port| Owner::of(port, &self.world.cluster)).map(|owner| (owner.pod, owner.element)).collect();
        self.world.ports = Some(listed);
        self.unsure.listed(|key| there.contains(key), now);
        self.next_list = now + RECONCILE;
        // What nobody uses is read again when somebody does; what was missing may be there.
        let networks: BTreeSet<&String> = self.world.ports.iter().flat_map(BTreeMap::values).map(|port| &port.network_id).collect();
        self.world.networks.retain(|id, network| network.is_some() && networks.contains(id));
        let networks = &self.world.networks;
        self.world.subnets.retain(|_, subnet| subnet.as_ref().is_some_and(|subnet| networks.contains_key(&subnet.network_id)));
        let world = &self.world;
        self.read_at.retain(|slot, _| match slot {
            Slot::Subnet(id) => world.subnets.contains_key(id),
            Slot::Network(id) => world.networks.contains_key(id),
            _ => false,
        });
        None
    }

    /// Another cluster has the same name: its ports are left alone, and somebody should know.
    fn notice_anothers(&mut self, listed: &BTreeMap<String, Port>) {
        let anothers = listed.values().filter(|port| self.world.cluster.is_anothers(port)).count();
        if anothers > 0 && self.anothers == 0 {
            let now = "leaving them alone: give each cluster a name of its own";
            let what = format!("another cluster is called {} as well, and has {anothers} ports", self.world.cluster.name);
            Line::warn("openstack").with("error", what).with("now", now).end();
        }
        self.anothers = anothers;
    }

    fn polled(&mut self, ids: &[String], all: Vec<Port>) -> Option<String> {
        self.ready.polled(ids);
        let Some(known) = &mut self.world.ports else { return None };
        let mut found: BTreeMap<String, Port> = all.into_iter().map(|port| (port.id.clone(), port)).collect();
        for id in ids {
            match (found.remove(id), known.get_mut(id)) {
                (Some(port), Some(known)) if port.revision_number >= known.revision_number => *known = port,
                (None, Some(_)) => drop(known.remove(id)),
                _ => {}
            }
        }
        None
    }

    fn made(&mut self, wanted: &[(Key, NewPort)], made: Answered<Vec<Port>>) -> Option<String> {
        for (key, _) in wanted {
            self.making.remove(key);
            self.world.tried.remove(key);
        }
        let request = made.request_id.unwrap_or_default();
        for port in made.value {
            let owner = Owner::of(&port, &self.world.cluster);
            if let Some(owner) = owner.as_ref().filter(|_| !port.is_unbindable()) {
                self.keys.done(&(owner.pod.clone(), owner.element));
            }
            let pod = owner.and_then(|owner| self.world.pods.get(&owner.pod));
            let pod = pod.map(|pod| format!("{}/{}", pod.name.namespace, pod.name.name)).unwrap_or_default();
            let addresses: Vec<&str> = port.fixed_ips.iter().map(|ip| ip.ip_address.as_str()).collect();
            let line = Line::info("port").with("made", &port.id).with("pod", pod).with("host", &port.host).with("status", &port.status);
            line.with("addresses", addresses.join(",")).with("request", &request).end();
            self.made.push(port.clone());
            if let Some(known) = &mut self.world.ports {
                known.insert(port.id.clone(), port);
            }
        }
        None
    }

    /// Together: each is tried alone. Alone: it is the port's own fault, or nobody's.
    fn not_made(&mut self, wanted: &[(Key, NewPort)], e: &Error, now: Instant, timeout: Duration) -> Option<String> {
        let keys = || wanted.iter().map(|(key, _)| key);
        for key in keys() {
            self.making.remove(key);
        }
        if e.is_uncertain() {
            Line::warn("port").with("error", e).with("now", "looking whether they were made").end();
            // They are not made again before a list has told that they are not there, and cannot come any more.
            self.unsure.add(keys().cloned(), if e.may_go_on() { now + timeout } else { now }, now);
            return None;
        }
        // What is known of its network may be of before.
        if matches!(e.refusal(), Some(Refusal::NotFound | Refusal::Invalid | Refusal::InUse)) {
            for slot in wanted.iter().flat_map(|(_, port)| places(port)) {
                self.read_at.remove(&slot);
            }
        }
        if e.refusal() == Some(Refusal::NoAddressLeft) {
            let places = wanted.iter().flat_map(|(_, port)| {
                let subnets = port.fixed_ips.iter().filter_map(|ip| ip.subnet_id.clone());
                subnets.chain(port.fixed_ips.is_empty().then(|| port.network_id.clone()))
            });
            // Of several nobody knows which one is full.
            if wanted.len() == 1 {
                self.world.scarce.extend(places);
            }
        }
        let is_own = !matches!(e.refusal(), None | Some(Refusal::Busy | Refusal::Unauthorized | Refusal::Server));
        match (is_own, wanted) {
            (true, [(key, _)]) => {
                self.keys.failed(key, e.to_string(), now);
                self.world.tried.insert(key.clone(), Tried::Alone);
            }
            (true, _) => self.world.tried.extend(keys().map(|key| (key.clone(), Tried::Together))),
            (false, _) => {
                for key in keys() {
                    self.keys.failed(key, e.to_string(), now);
                    self.world.tried.remove(key);
                }
            }
        }
        None
    }

    fn deleted(&mut self, id: &str, answer: &Answered<bool>, now: Instant) -> Option<String> {
        let port = self.world.ports.as_mut().and_then(|ports| ports.remove(id));
        self.deleted.insert(id.to_owned());
        let pod = port.and_then(|port| Owner::of(&port, &self.world.cluster)).map(|owner| owner.pod).unwrap_or_default();
        let request = answer.request_id.as_deref().unwrap_or_default();
        Line::info("port").with("deleted", id).with("pod_uid", pod).with("request", request).end();
        // An address, or a part of the quota, is free: one of those that wait for it has a chance.
        self.keys.hurry(now, |why| why.contains("IpAddressGenerationFailure") || why.contains("OverQuota"));
        None
    }

    fn count(&self, ports: &Ports, refused: usize) {
        let mut states = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        for (owner, port) in self.owned() {
            *states.entry(port.status.clone()).or_default() += 1;
            if !port.is_active() {
                waiting.insert(owner.pod);
            }
        }
        let pooled = self.world.ports.iter().flat_map(BTreeMap::values).filter(|port| self.world.cluster.is_pooled(port));
        pooled.for_each(|port| *states.entry(port.status.clone()).or_default() += 1);
        ports.numbers.now(states, waiting.len(), refused);
    }
}

/// A call that has to wait until others of its kind have ended.
fn is_full(busy: &BTreeSet<Slot>, slot: &Slot) -> bool {
    let (is_of, max): (fn(&Slot) -> bool, usize) = match slot {
        Slot::Create(_) => (|slot| matches!(slot, Slot::Create(_)), MAKING),
        Slot::Delete(_) => (|slot| matches!(slot, Slot::Delete(_)), DELETING),
        Slot::Tag(_) | Slot::Groups(_) => (|slot| matches!(slot, Slot::Tag(_) | Slot::Groups(_)), UPDATING),
        _ => (|slot| !matches!(slot, Slot::Create(_) | Slot::Delete(_) | Slot::Tag(_) | Slot::Groups(_)), OTHERS),
    };
    busy.iter().filter(|slot| is_of(slot)).count() >= max
}

/// What was read, or answered, while a list was on its way may be newer than the list.
fn keep_newer(listed: &mut BTreeMap<String, Port>, known: BTreeMap<String, Port>) {
    for (id, known) in known {
        if let Some(port) = listed.get_mut(&id).filter(|port| port.revision_number < known.revision_number) {
            *port = known;
        }
    }
}

/// Whether ports can be found again by their tags.
pub(super) fn can_be_used(extensions: &BTreeSet<String>) -> bool {
    extensions.contains(EXTENSION) || EXTENSIONS_OF_TAGS.iter().all(|alias| extensions.contains(*alias))
}

/// Whether the node knows ports of this pod.
fn is_bound(inner: &Inner, uid: &str, name: &binding::ObjectName) -> bool {
    let is_of = |stored: &binding::Stored| stored.object.spec.pod_uid == uid && !stored.object.status.vifs.is_empty();
    inner.kuryr_ports.get(name).is_some_and(is_of)
}

/// What a pod asks for, or what is wrong with that.
fn asks(ports: &Ports, inner: &Inner, pod: &PodSeen) -> Result<Vec<Element>, String> {
    let (namespace, settings) = (&pod.name.namespace, &ports.options.settings);
    let permits = |of: &npwg::DefinitionRef| ports.options.permits(namespace, of);
    let selected = match settings.selections {
        true => elements(&pod.annotation, namespace, settings, |of| inner.definition(of), permits),
        false => Ok(Vec::new()),
    };
    let selected = match selected {
        // The agent refuses it, and says so: it may have nothing to do with Neutron.
        Err(RequestError::Annotation(_)) => return Ok(Vec::new()),
        other => other.map_err(|e| e.to_string())?,
    };
    if !pod.has_default {
        return Ok(selected);
    }
    // The pod itself names them: what a definition of its namespace may name.
    let own = npwg::DefinitionRef { namespace: namespace.clone(), name: pod.name.name.clone() };
    let default = default_element(pod.additional_subnets.as_deref(), settings, &permits(&own)).map_err(|e| e.to_string())?;
    Ok([default].into_iter().chain(selected).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_get_groups_leave_places_for_others() {
        let slots = |kind: fn(String) -> Slot, count: usize| (0..count).map(move |n| kind(n.to_string()));
        let busy: BTreeSet<Slot> = slots(Slot::Groups, 2).chain(slots(Slot::Tag, 2)).collect();
        assert!(is_full(&busy, &Slot::Groups("x".to_owned())) && is_full(&busy, &Slot::Tag("x".to_owned())));
        let others = busy.into_iter().chain(slots(Slot::Subnet, 15)).collect();
        assert!(!is_full(&others, &Slot::List) && !is_full(&others, &Slot::Delete("x".to_owned())));
        let others = others.into_iter().chain([Slot::Poll]).collect();
        assert!(is_full(&others, &Slot::List));
    }

    #[test]
    fn a_list_does_not_take_back_what_was_read_after_it() {
        let ports = |of: &[(&str, u64)]| {
            let port = |&(id, revision_number): &(&str, u64)| Port { id: id.to_owned(), revision_number, ..Port::default() };
            of.iter().map(|of| (of.0.to_owned(), port(of))).collect::<BTreeMap<_, _>>()
        };
        let mut listed = ports(&[("a", 3), ("b", 5), ("c", 1)]);
        keep_newer(&mut listed, ports(&[("a", 4), ("b", 4), ("gone", 9)]));
        assert_eq!(listed, ports(&[("a", 4), ("b", 5), ("c", 1)]));
    }
}
