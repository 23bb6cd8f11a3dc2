//! The loop: what is known, what follows from it, what is on its way, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use binding::{Defaults, Element, Key, Owner, Pod, Refused, RequestError, Step, Tried, World, elements, step};
use neutron::{Answered, Error, Refusal};
use openstack::resource::{NewPort, Port};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Ports;
use super::call::{Came, Slot, Task};
use super::known::Inner;
use super::pace::Pace;
use super::tell::{Told, problem};
use crate::carry::Outcome;
use crate::log::Line;

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);
/// So many requests that make ports are on their way at once: what comes meanwhile goes into the next one, up to
/// [`binding::MAX_BULK`] ports.
const MAKING: usize = 3;
/// So many deletions are on their way at once: pods that wait for ports have places left.
const DELETING: usize = 4;
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
/// Neutron takes tags with the port: without it a crash would leave a port that nobody finds.
pub(super) const EXTENSION: &str = "tag-ports-during-bulk-creation";

/// What is known and on its way.
struct Work {
    world: World,
    tasks: JoinSet<(Slot, Came)>,
    busy: BTreeSet<Slot>,
    /// Calls that have failed.
    calls: Pace<Slot>,
    /// Ports whose making has failed.
    keys: Pace<Key>,
    /// Ports of requests that are on their way.
    making: BTreeSet<Key>,
    /// Ports of requests without an answer, until a list that began later has come.
    unsure: BTreeSet<Key>,
    /// Those of them that the list on its way tells of.
    listing: BTreeSet<Key>,
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
    told: Told,
    /// How long the last decision took.
    took: Duration,
}

// === impl Ports ===

impl Ports {
    /// For ever.
    pub(super) async fn keep(self) {
        let mut work = Work::new(&self);
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
    fn new(ports: &Ports) -> Self {
        let settings = &ports.options.settings;
        let defaults = Defaults {
            project: settings.project.clone(),
            security_groups: settings.security_groups.clone(),
            tags: settings.tags.clone(),
            ovs_bridge: settings.ovs_bridge.clone(),
            port_names: settings.port_names,
            max_mtu: settings.max_mtu,
        };
        let now = Instant::now();
        Work {
            world: World::new(ports.options.cluster.clone(), defaults),
            tasks: JoinSet::new(),
            busy: BTreeSet::new(),
            calls: Pace::new(),
            keys: Pace::new(),
            making: BTreeSet::new(),
            unsure: BTreeSet::new(),
            listing: BTreeSet::new(),
            made: Vec::new(),
            deleted: BTreeSet::new(),
            next_list: now,
            next_poll: now,
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            gone: BTreeSet::new(),
            alive: BTreeMap::new(),
            is_supported: false,
            told: Told::default(),
            took: Duration::ZERO,
        }
    }

    fn next(&self, now: Instant) -> Instant {
        let poll = (!self.waiting.is_empty()).then_some(self.next_poll);
        let all = [self.calls.next(now), self.keys.next(now), poll, Some(now + LOOK)];
        all.into_iter().flatten().min().unwrap_or(now).max(now + GATHER)
    }

    /// Another operator works: what it does is not seen here.
    fn stand_by(&mut self) {
        self.world.ports = None;
        self.told = Told::default();
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
        self.world.pending = self.making.iter().chain(&self.unsure).cloned().chain(paused).collect();
        // What Neutron does not have may be there by now.
        let is_paused = |slot: Slot| self.calls.is_paused(&slot, now);
        self.world.subnets.retain(|id, subnet| subnet.is_some() || is_paused(Slot::Subnet(id.clone())));
        self.world.networks.retain(|id, network| network.is_some() || is_paused(Slot::Network(id.clone())));
        self.world.kuryr_ports = std::mem::take(&mut inner.kuryr_ports);
        let mut step = step(&self.world);
        inner.kuryr_ports = std::mem::take(&mut self.world.kuryr_ports);
        let tag = ports.options.cluster.tag();
        let stored = |name: &binding::ObjectName| inner.kuryr_ports.get(name).map(|stored| stored.object.clone());
        let calls = std::mem::take(&mut step.calls);
        let tasks = calls.into_iter().filter_map(|call| Task::of(call, tag.clone(), stored)).collect();
        drop(inner);
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
        (step, tasks, problems)
    }

    /// What the pods ask for; what is wrong with that.
    fn ask(&mut self, ports: &Ports, inner: &Inner) -> BTreeMap<String, String> {
        let mut problems = BTreeMap::new();
        self.asked.retain(|uid, _| inner.pods.contains_key(uid));
        self.world.pods.clear();
        for (uid, pod) in &inner.pods {
            let mut hasher = DefaultHasher::new();
            (&pod.annotation, inner.definitions_revision).hash(&mut hasher);
            let digest = hasher.finish();
            let known = self.asked.get(uid).is_some_and(|(of, _)| *of == digest);
            if !known {
                let namespace = &pod.name.namespace;
                let permits = |of: &npwg::DefinitionRef| ports.options.permits(namespace, of);
                let asked = elements(&pod.annotation, namespace, &ports.options.settings, |of| inner.definition(of), permits);
                let asked = match asked {
                    // The agent refuses it, and says so: it may have nothing to do with Neutron.
                    Err(RequestError::Annotation(_)) => Ok(Vec::new()),
                    other => other.map_err(|e| e.to_string()),
                };
                self.asked.insert(uid.clone(), (digest, asked));
            }
            let elements = match self.asked.get(uid) {
                Some((_, Ok(elements))) => elements.clone(),
                Some((_, Err(problem))) if !pod.is_over => {
                    problems.insert(uid.clone(), problem.clone());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let (name, node, is_over) = (pod.name.clone(), pod.node.clone(), pod.is_over);
            self.world.pods.insert(uid.clone(), Pod { name, node, is_over, elements });
        }
        self.keys.retain(|key| inner.pods.contains_key(&key.0));
        problems
    }

    /// Ports that pods own.
    fn owned(&self) -> impl Iterator<Item = (Owner, &Port)> {
        let ports = self.world.ports.iter().flat_map(BTreeMap::values);
        ports.filter_map(|port| Some((Owner::of(&port.tags, &self.world.cluster)?, port)))
    }

    /// Looks at ports that are not ACTIVE, at all ports now and then, and at pods that were not seen; takes back what cannot be bound.
    fn look_again(&mut self, ports: &Ports, step: &Step) {
        let now = Instant::now();
        let lives = |uid: &str| self.world.pods.get(uid).is_some_and(|pod| !pod.is_over);
        let waiting: Vec<String> =
            self.owned().filter(|(owner, port)| lives(&owner.pod) && !port.is_active()).map(|(_, port)| port.id.clone()).collect();
        let before = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().map(|id| (id.clone(), before.get(&id).copied().unwrap_or(now))).collect();
        if self.waiting.len() > before.len() || self.waiting.keys().any(|id| !before.contains_key(id)) {
            self.next_poll = self.next_poll.min(now + POLL.0);
        }
        if !self.waiting.is_empty() && self.next_poll <= now {
            let youngest = self.waiting.values().map(|since| now.duration_since(*since)).min().unwrap_or_default();
            self.next_poll = now + (youngest / 4).clamp(POLL.0, POLL.1);
            self.begin(ports, Task::Poll(self.waiting.keys().cloned().collect()));
        }
        if self.world.ports.is_some() && (self.next_list <= now || !self.unsure.is_empty()) {
            self.begin(ports, Task::List(ports.options.cluster.tag()));
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
            let owner = self.world.ports.as_ref().and_then(|all| Owner::of(&all.get(port)?.tags, &self.world.cluster));
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
        let so_many = |kind: fn(&Slot) -> bool| self.busy.iter().filter(|slot| kind(slot)).count();
        let is_full = match &task {
            Task::Create(_) => so_many(|slot| matches!(slot, Slot::Create(_))) >= MAKING,
            Task::Delete(_) => so_many(|slot| matches!(slot, Slot::Delete(_))) >= DELETING,
            _ => so_many(|slot| !matches!(slot, Slot::Create(_) | Slot::Delete(_))) >= OTHERS,
        };
        if is_full || self.busy.contains(&slot) || self.calls.is_paused(&slot, now) {
            return;
        }
        match &task {
            Task::Create(wanted) => self.making.extend(wanted.iter().map(|(key, _)| key.clone())),
            Task::List(_) => {
                self.listing.clone_from(&self.unsure);
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
        let now = Instant::now();
        let failure = match came {
            Came::Extensions(Ok(all)) if all.contains(EXTENSION) => {
                self.is_supported = true;
                None
            }
            Came::Extensions(Ok(_)) => {
                let what =
                    format!("Neutron lacks the extension {EXTENSION}: add tag_ports_during_bulk_creation to ML2's extension_drivers");
                Some(what)
            }
            Came::Listed(Ok(all)) => self.listed(all, now),
            Came::Polled(ids, Ok(all)) => self.polled(&ids, all),
            Came::Subnet(id, Ok(subnet)) => {
                let is_missing = subnet.is_none();
                self.world.subnets.insert(id, subnet);
                is_missing.then(String::new)
            }
            Came::Network(id, Ok(network)) => {
                let is_missing = network.is_none();
                self.world.networks.insert(id, network);
                is_missing.then(String::new)
            }
            Came::Created(wanted, Ok(made)) => self.made(&wanted, made),
            Came::Created(wanted, Err(e)) => self.not_made(&wanted, &e, now),
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
        listed.extend(std::mem::take(&mut self.made).into_iter().map(|port| (port.id.clone(), port)));
        listed.retain(|id, _| !self.deleted.contains(id));
        self.world.ports = Some(listed);
        for key in std::mem::take(&mut self.listing) {
            self.unsure.remove(&key);
        }
        self.next_list = now + RECONCILE;
        // What nobody uses is read again when somebody does; what was missing may be there.
        let networks: BTreeSet<&String> = self.world.ports.iter().flat_map(BTreeMap::values).map(|port| &port.network_id).collect();
        self.world.networks.retain(|id, network| network.is_some() && networks.contains(id));
        let networks = &self.world.networks;
        self.world.subnets.retain(|_, subnet| subnet.as_ref().is_some_and(|subnet| networks.contains_key(&subnet.network_id)));
        None
    }

    fn polled(&mut self, ids: &[String], all: Vec<Port>) -> Option<String> {
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
            let owner = Owner::of(&port.tags, &self.world.cluster);
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
    fn not_made(&mut self, wanted: &[(Key, NewPort)], e: &Error, now: Instant) -> Option<String> {
        let keys = || wanted.iter().map(|(key, _)| key);
        for key in keys() {
            self.making.remove(key);
        }
        if e.is_uncertain() {
            Line::warn("port").with("error", e).with("now", "looking whether they were made").end();
            self.unsure.extend(keys().cloned());
            // They are not made again before a list has come.
            return None;
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
        let pod = port.and_then(|port| Owner::of(&port.tags, &self.world.cluster)).map(|owner| owner.pod).unwrap_or_default();
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
        ports.numbers.now(states, waiting.len(), refused);
    }
}
