//! Pods come and go while calls are lost, answered late or not at all, and the process is killed between any two of them. Against a Neutron and
//! an API server that keep what they were told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cloud;

use std::collections::BTreeSet;

use netloom_binding::{Call, Defaults, PoolSize, Refused, Snapshot, Step, Tried, step};
use openstack::resource::{AddressPair, Port};
use proptest::prelude::*;

use crate::cloud::{Cloud, EXISTING, EXISTING_PORT, FULL, HOST_IP, MACVLAN, Made, NODE_PORT, NOWHERE, VLAN, mine};

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    /// A pod is made that wants these subnets, by their numbers.
    Add(Vec<u8>),
    /// The pod of that number is deleted.
    Delete(u8),
    /// It ends.
    End(u8),
    /// The controller makes so many calls, each of which ends so.
    Work(Vec<Fate>),
    /// It is killed, and another one starts, which has not seen any pod yet.
    Kill,
    /// Its watches have told it of all pods and KuryrPorts.
    Seen,
    /// What was refused may be tried again.
    Later,
    /// An agent has seen the port of that number.
    Plugged(u8),
    /// Somebody changes the annotation of the pod of that number.
    Forged(u8),
    /// Changes of address pairs that are late are carried out, and the controller knows that no more can come.
    Arrive,
}

const POOL: PoolSize = PoolSize { min: 2, max: 4, batch: 3 };

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It was not carried out.
    NotSent,
    /// It was carried out.
    Unanswered,
    /// It was carried out, and the controller was killed.
    Fatal,
    /// There was no answer, and a change of address pairs is carried out later; other calls were carried out.
    Late,
}

struct Life {
    cloud: Cloud,
    world: Snapshot,
    /// Whether its watches have told nothing yet.
    blind: bool,
    /// Changes of address pairs that Neutron has not carried out yet.
    late: Vec<(u64, Vec<AddressPair>)>,
}

// === impl Life ===

impl Life {
    fn new() -> Self {
        let mut life = Life { cloud: Cloud::new(), world: Snapshot::new(mine(), Defaults::default()), blind: false, late: Vec::new() };
        life.start();
        life.blind = false;
        life
    }

    /// Nothing is remembered: what is known was read.
    fn start(&mut self) {
        let node_subnets = vec!["subnet-6".to_owned()];
        let defaults = Defaults { project: "p".to_owned(), node_subnets, annotates: true, ..self.world.defaults.clone() };
        self.world = Snapshot::new(self.world.cluster.clone(), defaults);
        // What the one before it has sent may still be carried out.
        self.world.unsettled.insert(NODE_PORT.to_owned());
        self.blind = true;
    }

    fn arrive(&mut self) {
        for (revision, pairs) in std::mem::take(&mut self.late) {
            self.cloud.set_pairs(revision, pairs);
        }
        for id in std::mem::take(&mut self.world.unsettled) {
            self.world.carriers.remove(&id);
        }
    }

    /// Decides with what watches have told; whose pod was not seen is asked for by its UID.
    fn decide(&mut self) -> Step {
        if !self.blind {
            self.world.pods = self.cloud.pods.clone();
            self.world.kuryr_ports = self.cloud.kuryr_ports.clone();
        }
        self.world.claims.retain(|_, (uid, _)| self.cloud.pods.get(uid).is_some_and(|pod| !pod.is_over));
        let mut step = step(&self.world);
        self.world.claims.extend(step.claims.clone());
        let known = step.missing.len();
        self.world.gone.extend(std::mem::take(&mut step.missing).into_iter().filter(|uid| !self.cloud.pods.contains_key(uid)));
        if known == 0 {
            self.tell(&step);
            return step;
        }
        let step = netloom_binding::step(&self.world);
        self.world.claims.extend(step.claims.clone());
        self.tell(&step);
        step
    }

    /// Gives pods' owners the reasons why they wait.
    fn tell(&mut self, step: &Step) {
        let text = |refused: &[Refused]| refused.iter().map(ToString::to_string).collect();
        self.world.told = step.refused.iter().map(|(uid, refused)| (uid.clone(), text(refused))).collect();
    }

    /// Makes a call; whether the controller still lives.
    fn call(&mut self, call: Call, fate: Fate) -> bool {
        if fate == Fate::NotSent {
            return true;
        }
        let heard = fate == Fate::Answered;
        match call {
            Call::ListPorts if heard => self.world.ports = Some(self.cloud.listed(&self.world.cluster)),
            Call::ReadSubnet(id) if heard => drop(self.world.subnets.insert(id.clone(), self.cloud.subnet(&id))),
            Call::ReadNetwork(id) if heard => drop(self.world.networks.insert(id.clone(), Some(self.cloud.network(&id)))),
            Call::ReadNodePorts(address) if heard => {
                let found = self.cloud.node_port.iter().filter(|port| port.fixed_ips.iter().any(|ip| ip.ip_address == address));
                let found: Vec<Port> = found.cloned().collect();
                self.world.node_ports.insert(address, found.iter().map(|port| port.id.clone()).collect());
                self.world.carriers.extend(found.into_iter().map(|port| (port.id.clone(), Some(port))));
            }
            Call::ReadCarrier(id) if heard => {
                drop(self.world.carriers.insert(id.clone(), self.cloud.node_port.clone().filter(|port| port.id == id)))
            }
            Call::ReadTrunk(id) if heard => {
                let trunk = self.cloud.trunk.clone().filter(|trunk| trunk.id == id);
                self.world.joined = trunk.iter().flat_map(|trunk| &trunk.sub_ports).map(|sub| sub.port_id.clone()).collect();
                self.world.trunks.insert(id, trunk);
            }
            Call::ListPorts | Call::ReadSubnet(_) | Call::ReadNetwork(_) => {}
            Call::ReadNodePorts(_) | Call::ReadCarrier(_) | Call::ReadTrunk(_) => {}
            Call::AddSubPorts(id, ports) => {
                let is_done = self.cloud.add_sub_ports(&ports);
                match self.world.trunks.get_mut(&id).and_then(Option::as_mut).filter(|_| heard && is_done) {
                    Some(trunk) => {
                        self.world.joined.extend(ports.iter().map(|sub| sub.port_id.clone()));
                        trunk.sub_ports.extend(ports);
                    }
                    None => drop(self.world.trunks.remove(&id)),
                }
            }
            Call::RemoveSubPorts(id, ports) => {
                self.world.leaving.extend(ports.iter().cloned());
                let is_done = self.cloud.remove_sub_ports(&ports);
                match self.world.trunks.get_mut(&id).and_then(Option::as_mut).filter(|_| heard && is_done) {
                    Some(trunk) => trunk.sub_ports.retain(|sub| !ports.contains(&sub.port_id)),
                    None => drop(self.world.trunks.remove(&id)),
                }
            }
            Call::SetPairs { port, revision, pairs, .. } if fate == Fate::Late => {
                self.late.push((revision, pairs));
                self.world.carriers.remove(&port);
                self.world.unsettled.insert(port);
            }
            Call::SetPairs { port, revision, pairs, .. } => match self.cloud.set_pairs(revision, pairs).filter(|_| heard) {
                Some(changed) => drop(self.world.carriers.insert(port, Some(changed))),
                None => drop(self.world.carriers.remove(&port)),
            },
            Call::CreatePorts(wanted) => {
                let made = self.cloud.create(&wanted);
                let Some(ports) = self.world.ports.as_mut().filter(|_| heard) else {
                    self.world.ports = None;
                    return fate != Fate::Fatal;
                };
                match made {
                    Made::Ports(made) => ports.extend(made.into_iter().map(|port| (port.id.clone(), port))),
                    Made::Refused => {
                        let tried = if wanted.len() > 1 { Tried::Together } else { Tried::Alone };
                        self.world.tried.extend(wanted.into_iter().map(|(key, _)| (key, tried)));
                    }
                }
            }
            Call::TagPort(id, tags) => {
                self.cloud.tag(&id, tags.clone());
                if id == EXISTING_PORT {
                    self.note_tags(heard);
                } else if let Some(port) = self.world.ports.as_mut().filter(|_| heard).and_then(|ports| ports.get_mut(&id)) {
                    port.tags = tags;
                }
            }
            Call::AllowPairs(..) => panic!("no pod of these has address pairs"),
            Call::ReadPort(id) if heard => drop(self.world.existing.insert(id.clone(), self.cloud.existing(&id))),
            Call::ReadPort(_) => {}
            Call::TakePort { port, revision, uid, host } => self.hand(&port, revision, (&uid, &host), heard),
            Call::FreePort { port, revision } => self.hand(&port, revision, ("", ""), heard),
            Call::SetGroups(id, groups) => {
                self.cloud.set_groups(&id, groups.clone());
                if let Some(port) = self.world.ports.as_mut().filter(|_| heard).and_then(|ports| ports.get_mut(&id)) {
                    port.security_groups = groups;
                }
            }
            Call::DeletePort(id) => {
                let is_done = self.cloud.delete(&id);
                if !is_done && heard {
                    self.world.trunks.clear();
                }
                if let Some(ports) = self.world.ports.as_mut().filter(|_| heard && is_done) {
                    ports.remove(&id);
                }
            }
            Call::WriteKuryrPort { name, version, object } => self.cloud.write(name, version.as_deref(), *object),
            Call::ReleaseKuryrPort { name, version } => self.cloud.release(&name, &version),
            Call::AnnotatePod { name, uid } => self.cloud.annotate(&name, &uid),
        }
        if fate == Fate::Fatal {
            self.start();
        }
        fate != Fate::Fatal
    }

    fn hand(&mut self, port: &str, revision: u64, (uid, host): (&str, &str), heard: bool) {
        let handed = self.cloud.hand(port, revision, uid, host).filter(|_| heard);
        self.world.existing.remove(port);
        if let (Some(handed), Some(ports)) = (handed, &mut self.world.ports) {
            ports.insert(port.to_owned(), handed);
        }
    }

    /// The existing port is known with its tags, or it is nobody's again.
    fn note_tags(&mut self, heard: bool) {
        self.world.existing.remove(EXISTING_PORT);
        let Some(ports) = self.world.ports.as_mut().filter(|_| heard) else { return };
        ports.remove(EXISTING_PORT);
        ports.extend(self.cloud.listed(&self.world.cluster).into_iter().filter(|(id, _)| id == EXISTING_PORT));
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Add(subnets) => self.cloud.add_pod(subnets),
            Event::Delete(number) => self.cloud.delete_pod(*number),
            Event::End(number) => self.cloud.end_pod(*number),
            Event::Kill => self.start(),
            Event::Seen => self.blind = false,
            Event::Later => self.world.tried.clear(),
            Event::Plugged(number) => self.cloud.plug(*number),
            Event::Forged(number) => self.cloud.forge(*number),
            Event::Arrive => self.arrive(),
            Event::Work(fates) => {
                // What is called later was decided with what was known before.
                for (call, fate) in self.decide().calls.into_iter().zip(fates) {
                    if !self.call(call, *fate) {
                        break;
                    }
                }
            }
        }
        self.cloud.assert_sound();
    }

    /// Until nothing is to be called.
    fn settle(&mut self) -> Step {
        self.arrive();
        self.world.tried.clear();
        (self.world.ports, self.blind) = (None, false);
        for _ in 0..200 {
            let step = self.decide();
            if step.calls.is_empty() {
                return step;
            }
            for call in step.calls {
                self.call(call, Fate::Answered);
                self.cloud.assert_sound();
            }
        }
        panic!("it does not come to an end: {:?}", self.decide().calls.first());
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Answered), 1 => Just(Fate::NotSent), 1 => Just(Fate::Unanswered), 1 => Just(Fate::Fatal), 1 => Just(Fate::Late)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop::collection::vec(0..8_u8, 1..4).prop_map(Event::Add),
        1 => any::<u8>().prop_map(Event::Delete),
        1 => any::<u8>().prop_map(Event::End),
        6 => prop::collection::vec(fate(), 1..8).prop_map(Event::Work),
        1 => Just(Event::Kill),
        2 => Just(Event::Seen),
        1 => Just(Event::Later),
        2 => any::<u8>().prop_map(Event::Plugged),
        1 => any::<u8>().prop_map(Event::Forged),
        1 => Just(Event::Arrive),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_has_its_ports_once_and_no_other_ones_stay(
        tags_later in any::<bool>(),
        pools in any::<(bool, bool)>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut life = Life::new();
        life.world.defaults.tags_later = tags_later;
        life.world.defaults.pool = pools.0.then_some(POOL);
        life.world.defaults.nested_pool = pools.1.then_some(POOL);
        life.world.defaults.security_groups = vec!["g".to_owned()];
        for event in &events {
            life.happen(event);
        }
        let step = life.settle();
        life.cloud.assert_complete(&step.refused.keys().cloned().collect());
        for uid in step.refused.keys() {
            let wants = |subnet: &str| life.cloud.pods[uid].elements.iter().any(|element| element.subnets == [subnet]);
            let wants_existing = life.cloud.pods[uid].elements.iter().any(|element| element.port.is_some());
            prop_assert!(wants(FULL) || wants(NOWHERE) || wants_existing, "held up by another pod: {:?}", step.refused[uid]);
        }
    }
}

/// A port that existed before is one pod's after the other's, and what it was when nobody needs it.
#[test]
fn an_existing_port_is_given_to_one_pod_after_the_other() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, EXISTING]);
    life.settle();
    life.cloud.add_pod(&[EXISTING]);
    let step = life.settle();
    let uids: Vec<String> = life.cloud.pods.keys().cloned().collect();
    assert_eq!(step.refused[&uids[1]], [Refused::PortInUse { port: EXISTING_PORT.to_owned(), by: "another pod".to_owned() }]);
    life.cloud.assert_complete(&step.refused.keys().cloned().collect());
    life.cloud.delete_pod(0);
    let step = life.settle();
    assert!(step.refused.is_empty(), "{:?}", step.refused);
    life.cloud.assert_complete(&BTreeSet::new());
    assert_eq!(life.cloud.existing(EXISTING_PORT).unwrap().device_id, uids[1]);
    life.cloud.delete_pod(0);
    life.settle();
    life.cloud.assert_complete(&BTreeSet::new());
    assert_eq!(life.cloud.owned(), 0);
}

/// One that cannot be served stands first in a bulk: the others of the bulk are made one by one, those of other bulks do not notice.
#[test]
fn one_bad_port_of_a_bulk_waits_alone() {
    let mut life = Life::new();
    // All subnets are known from here on, and one is full.
    life.cloud.add_pod(&[4, 4, 0, 1]);
    life.settle();
    life.cloud.add_pod(&[4]);
    for _ in 0..30 {
        life.cloud.add_pod(&[0, 1]);
    }
    life.cloud.posts = 0;
    let step = life.settle();
    assert_eq!(step.refused.len(), 1);
    assert_eq!(life.cloud.posts_refused, 2, "together, then alone");
    assert_eq!(life.cloud.posts, 4 + 20, "61 ports in four bulks, of which one again, port by port");
    life.cloud.assert_complete(&step.refused.keys().cloned().collect());
}

/// Two controllers were at work: the port that the node knows stays, although it is not the first one.
#[test]
fn of_two_ports_that_stays_which_the_node_knows() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, 1]);
    life.settle();
    let known = life.cloud.kuryr_ports.clone();
    life.cloud.double();
    assert_eq!(life.cloud.owned(), 4);
    life.world.ports = None;
    for _ in 0..3 {
        for call in life.decide().calls {
            assert!(life.call(call, Fate::Answered));
        }
    }
    assert_eq!((life.cloud.owned(), &life.cloud.kuryr_ports), (2, &known));
    life.cloud.assert_complete(&BTreeSet::new());
}

#[test]
fn nothing_is_made_before_ports_are_listed_and_many_are_made_at_once() {
    let mut life = Life::new();
    for _ in 0..25 {
        life.cloud.add_pod(&[0, 1]);
    }
    assert_eq!(life.decide().calls, [Call::ListPorts]);
    life.settle();
    assert_eq!(life.cloud.posts, 3, "50 ports");
    // Another controller starts: it reads, and finds nothing to do.
    life.start();
    life.blind = false;
    let calls: BTreeSet<String> = (0..5)
        .flat_map(|_| {
            let step = life.decide();
            let names: Vec<String> = step.calls.iter().map(|call| format!("{call:?}").chars().take(11).collect()).collect();
            for call in step.calls {
                assert!(life.call(call, Fate::Answered));
            }
            names
        })
        .collect();
    assert_eq!(calls.into_iter().collect::<Vec<_>>(), ["ListPorts", "ReadNetwork", "ReadSubnet("]);
}

/// Neutron 21 loses the addresses that it has taken for a bulk when one of its ports finds none left.
#[test]
fn ports_of_a_subnet_that_may_be_full_are_made_one_by_one() {
    let mut life = Life::new();
    (0..3).for_each(|_| life.cloud.add_pod(&[0, 1]));
    life.world.scarce.insert("subnet-0".to_owned());
    life.settle();
    assert_eq!(life.cloud.posts, 3 + 1, "three alone, and three of the other subnet together");
}

/// What a pod was bound to stays followed, whatever it asks for by now: its definition may be gone, or another one.
#[test]
fn a_changed_definition_does_not_stop_what_is_there() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, 1]);
    life.settle();
    let uid = life.cloud.pods.keys().next().unwrap().clone();
    let active = |life: &Life| {
        let object = &life.cloud.kuryr_ports.values().next().unwrap().object;
        object.status.vifs.iter().map(|(interface, vif)| (interface.clone(), vif.vif.active.unwrap())).collect::<Vec<_>>()
    };
    let (eth0, eth1) = (|is| ("eth0".to_owned(), is), |is| ("eth1".to_owned(), is));
    let before = life.cloud.pods[&uid].elements.clone();
    life.cloud.pods.get_mut(&uid).unwrap().elements = Vec::new();
    life.cloud.plug(0);
    life.settle();
    assert_eq!(active(&life), [eth0(true), eth1(false)], "the definition is gone");
    let elements = &mut life.cloud.pods.get_mut(&uid).unwrap().elements;
    *elements = vec![before[0].clone()];
    elements[0].interface = "data0".to_owned();
    life.cloud.plug(1);
    life.settle();
    assert_eq!(active(&life), [("data0".to_owned(), true), eth1(true)], "an interface has another name, and one is not asked for any more");
    life.cloud.pods.get_mut(&uid).unwrap().elements = vec![before[0].clone()];
    life.cloud.lose(&uid);
    life.settle();
    assert_eq!(active(&life), [eth0(false)], "what is gone and not wanted goes");
}

/// The pod may run with it.
#[test]
fn a_port_that_was_active_and_is_gone_is_not_replaced() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0]);
    life.cloud.add_pod(&[0]);
    life.settle();
    life.cloud.plug(0);
    life.settle();
    let uids: Vec<String> = life.cloud.pods.keys().cloned().collect();
    uids.iter().for_each(|uid| life.cloud.lose(uid));
    let step = life.settle();
    let [Refused::Gone { interface, .. }] = step.refused[&uids[0]].as_slice() else { panic!("{:?}", step.refused) };
    assert_eq!((interface.as_str(), step.refused.len()), ("eth0", 1));
    assert_eq!((life.cloud.ports_of(&uids[0]).len(), life.cloud.ports_of(&uids[1]).len()), (0, 1), "the other one was never plugged");
}

/// A new port that cannot be bound is made again; one that the node knows is not, as the pod may run with it.
#[test]
fn a_lost_binding_is_not_a_new_ports() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0]);
    life.settle();
    let uid = life.cloud.pods.keys().next().unwrap().clone();
    let known = life.cloud.kuryr_ports.clone();
    life.cloud.unbind(&uid);
    assert!(matches!(life.settle().refused[&uid].as_slice(), [Refused::Unbound { .. }]));
    assert_eq!(life.cloud.kuryr_ports, known);
    life.cloud.kuryr_ports.clear();
    assert!(matches!(life.settle().refused[&uid].as_slice(), [Refused::Binding { .. }]));
}

/// The pods of one namespace cannot use up a subnet of another one.
#[test]
fn a_namespace_has_so_many_ports_and_no_more() {
    let mut life = Life::new();
    life.world.defaults.ports_per_namespace = Some(5);
    (0..3).for_each(|_| life.cloud.add_pod(&[0, 1]));
    let step = life.settle();
    assert_eq!(life.cloud.owned(), 4);
    let refused: Vec<String> = step.refused.values().flatten().map(ToString::to_string).collect();
    let why = "the Neutron ports of namespace a have 4 addresses, the pod needs 2, and portsPerNamespace is 5: delete pods, or raise it";
    assert_eq!(refused, [why]);
    life.cloud.add_pod(&[0]);
    assert_eq!((life.settle().refused.len(), life.cloud.owned()), (1, 5), "a smaller one fits");
    let gone = life.cloud.pods.keys().next().unwrap().clone();
    life.cloud.pods.remove(&gone);
    assert_eq!((life.settle().refused.len(), life.cloud.owned()), (0, 5), "the pod that waited has the places");
}

#[test]
fn security_groups_follow_while_the_pod_runs() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, 1]);
    life.settle();
    let uid = life.cloud.pods.keys().next().unwrap().clone();
    let groups = |life: &Life| life.cloud.ports_of(&uid).into_iter().map(|port| port.security_groups.join(",")).collect::<Vec<_>>();
    assert_eq!(groups(&life), ["", ""], "Neutron's to choose");
    life.world.defaults.security_groups = vec!["g-1".to_owned(), "g-2".to_owned()];
    life.settle();
    assert_eq!(groups(&life), ["g-1,g-2", "g-1,g-2"]);
    life.cloud.pods.get_mut(&uid).unwrap().elements[1].security_groups = Some(vec!["g-3".to_owned()]);
    life.settle();
    assert_eq!(groups(&life), ["g-1,g-2", "g-3"]);
}

/// A pod gets a ready port without a call of Neutron, and gives it back; one that asks for an address has its own.
#[test]
fn ready_ports_go_from_pod_to_pod() {
    let mut life = Life::new();
    life.world.defaults.pool = Some(POOL);
    life.world.defaults.security_groups = vec!["g".to_owned()];
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 3), "three wait");
    life.cloud.posts = 0;
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled(), life.cloud.posts), (1, 3, 0), "two wait: nothing is to be made");
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled(), life.cloud.posts), (1, 6, 1), "one waited: three more");
    life.cloud.add_pod(&[0]);
    let uid = life.cloud.pods.keys().next_back().unwrap().clone();
    life.cloud.pods.get_mut(&uid).unwrap().elements[0].ips = vec!["10.0.0.9".parse().unwrap()];
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (2, 6), "it asks for an address");
    let used: BTreeSet<String> =
        life.cloud.kuryr_ports.values().flat_map(|stored| stored.object.status.vifs.values()).map(|vif| vif.vif.id.clone()).collect();
    assert_eq!(used.len(), 4);
    // Another controller starts, and knows as much.
    life.start();
    life.blind = false;
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (2, 6));
    let uids: Vec<String> = life.cloud.pods.keys().cloned().collect();
    uids[..3].iter().for_each(|uid| drop(life.cloud.pods.remove(uid)));
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 4), "those beyond the largest number are deleted");
    life.world.idle = life.decide().pools.into_keys().collect();
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 0), "the last one does not use them, and that for long");
    life.world.idle.clear();
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (2, 3));
    life.world.defaults.pool = None;
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (2, 0), "they were switched off");
}

/// The first pod of a kind has its port made beside those that wait: where they are there first, it got one of them, and then its own as well.
#[test]
fn a_pod_whose_port_is_being_made_gets_no_ready_one_besides() {
    let mut life = Life::new();
    life.world.defaults.pool = Some(POOL);
    life.world.defaults.security_groups = vec!["g".to_owned()];
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 3));
    life.cloud.add_pod(&[0]);
    let uid = life.cloud.pods.keys().next_back().unwrap().clone();
    life.world.pending.insert((uid.clone(), 0));
    life.blind = false;
    let step = life.decide();
    assert!(step.claims.is_empty() && !step.calls.iter().any(|call| matches!(call, Call::CreatePorts(..))), "{step:?}");
    assert!(step.pools.values().all(|(free, is_used)| *free == 3 && *is_used), "{:?}", step.pools);
    life.world.tried.insert((uid.clone(), 0), Tried::Alone);
    assert!(life.decide().refused.contains_key(&uid), "it was refused before, and its pod is told so until it is there");
    life.world.tried.clear();
    life.world.pending.clear();
    assert_eq!(life.decide().claims.into_values().collect::<Vec<_>>(), [(uid, 0)], "nobody makes it any more");
}

/// A pod of a virtual machine gets a subport that waits on the node's trunk, and gives it back.
#[test]
fn ready_subports_go_from_pod_to_pod() {
    for tags_later in [false, true] {
        let mut life = Life::new();
        (life.world.defaults.nested_pool, life.world.defaults.tags_later) = (Some(POOL), tags_later);
        life.world.defaults.security_groups = vec!["g".to_owned()];
        let on_trunk = |life: &Life| life.cloud.trunk.as_ref().unwrap().sub_ports.len() - 1;
        life.cloud.add_pod(&[VLAN]);
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), on_trunk(&life)), (1, 3, 4), "three wait");
        life.cloud.posts = 0;
        life.cloud.add_pod(&[VLAN]);
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), life.cloud.posts), (1, 3, 0), "two wait: nothing is to be made");
        life.cloud.assert_complete(&BTreeSet::new());
        // Another controller starts, and knows as much.
        life.start();
        life.blind = false;
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), on_trunk(&life)), (1, 3, 4));
        // Those of before may be being deleted.
        life.world.inherited = life.world.ports.iter().flatten().map(|(id, _)| id.clone()).collect();
        life.cloud.add_pod(&[VLAN]);
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled()), (2, 3), "it has its own");
        life.world.inherited.clear();
        let uids: Vec<String> = life.cloud.pods.keys().cloned().collect();
        uids[..2].iter().for_each(|uid| drop(life.cloud.pods.remove(uid)));
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), on_trunk(&life)), (1, 3, 4), "it is given back");
        life.world.defaults.nested_pool = None;
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), on_trunk(&life)), (1, 0, 1), "they were switched off");
    }
}

/// One that is being taken off its trunk is given to nobody, also where it is not known whether it was.
#[test]
fn a_ready_subport_that_leaves_its_trunk_is_deleted() {
    let mut life = Life::new();
    life.world.defaults.nested_pool = Some(PoolSize { max: 1, min: 1, batch: 1 });
    life.world.defaults.security_groups = vec!["g".to_owned()];
    (0..3).for_each(|_| life.cloud.add_pod(&[VLAN]));
    life.settle();
    life.world.defaults.nested_pool = None;
    let call = until(&mut life, |call| matches!(call, Call::RemoveSubPorts(..)));
    life.world.defaults.nested_pool = Some(PoolSize { max: 1, min: 1, batch: 1 });
    life.call(call, Fate::Unanswered);
    life.cloud.add_pod(&[VLAN]);
    let step = life.settle();
    assert_eq!((step.refused.len(), life.cloud.owned(), life.cloud.pooled()), (0, 4, 1), "it has its own, and another one waits");
    life.cloud.assert_complete(&BTreeSet::new());
}

/// A port that is not unplugged yet is given to nobody.
#[test]
fn a_ready_port_waits_until_it_is_down() {
    let mut life = Life::new();
    life.world.defaults.pool = Some(PoolSize { min: 1, max: 1, batch: 1 });
    life.world.defaults.security_groups = vec!["g".to_owned()];
    life.cloud.add_pod(&[0]);
    life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 1));
    life.cloud.plug_pooled();
    life.cloud.add_pod(&[0]);
    let step = life.settle();
    assert_eq!((life.cloud.owned(), life.cloud.pooled(), step.refused.len()), (2, 1, 0), "the second one has made its own");
    assert!(!step.watched.is_empty(), "somebody looks whether it is DOWN");
}

fn with_pools() -> Life {
    let mut life = Life::new();
    life.world.defaults.pool = Some(POOL);
    life.world.defaults.security_groups = vec!["g".to_owned()];
    life
}

/// Neutron adds an address of each subnet whose addresses are made of MAC addresses: such a port is still of the kind that was asked for.
#[test]
fn a_ready_port_with_more_addresses_than_asked_for_is_used() {
    for tags_later in [false, true] {
        let mut life = with_pools();
        life.world.defaults.tags_later = tags_later;
        life.cloud.has_auto_address = true;
        life.cloud.add_pod(&[0]);
        life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled()), (1, 3), "three wait");
        life.start();
        life.blind = false;
        (0..2).for_each(|_| life.cloud.add_pod(&[0]));
        life.cloud.posts = 0;
        let step = life.settle();
        assert_eq!((life.cloud.owned(), life.cloud.pooled(), life.cloud.posts), (1, 6, 1), "one waited: three more");
        assert_eq!(step.pools.len(), 1);
    }
}

/// The pod's KuryrPort gives its node the reason why there are no ports. The object is deleted with the pod, and has no reason once there are ports.
#[test]
fn a_pod_that_waits_has_the_reason_in_its_kuryr_port() {
    let mut life = Life::new();
    let reason = |life: &Life| {
        let all = life.cloud.kuryr_ports.values().map(|stored| &stored.object);
        let reasons =
            all.map(|object| object.metadata.get("annotations").and_then(|all| all["netloom.io/reason"].as_str()).map(str::to_owned));
        reasons.collect::<Vec<_>>()
    };
    life.world.defaults.ports_per_namespace = Some(1);
    life.cloud.add_pod(&[0, 1]);
    // The next step tells what this one has found.
    life.settle();
    life.settle();
    let why = "the Neutron ports of namespace a have 0 addresses, the pod needs 2, and portsPerNamespace is 1: delete pods, or raise it";
    assert_eq!(reason(&life), [Some(why.to_owned())]);
    // It says so as well where Neutron does not answer.
    life.world.ports = None;
    life.world.told.values_mut().for_each(|text| *text = "Neutron is away".to_owned());
    let writes = |call: &Call| matches!(call, Call::WriteKuryrPort { object, .. } if object.metadata["annotations"]["netloom.io/reason"] == "Neutron is away");
    assert!(step(&life.world).calls.iter().any(writes));
    life.world.defaults.ports_per_namespace = None;
    life.settle();
    assert_eq!((reason(&life), life.cloud.owned()), (vec![None], 2));
    // Of a pod that never got one, none is left.
    life.world.defaults.ports_per_namespace = Some(2);
    life.cloud.add_pod(&[0]);
    life.settle();
    life.settle();
    assert_eq!(reason(&life).len(), 2);
    life.cloud.pods.clear();
    life.settle();
    assert_eq!((reason(&life), life.cloud.owned()), (Vec::new(), 0));
}

/// A pod that is refused has no ready port, and none are made for it.
#[test]
fn pools_are_filled_for_pods_that_are_served() {
    let mut life = with_pools();
    life.world.defaults.ports_per_namespace = Some(1);
    life.cloud.add_pod(&[0]);
    life.settle();
    life.cloud.add_pod(&[1]);
    life.cloud.add_pod(&[0]);
    let step = life.settle();
    assert_eq!((life.cloud.pooled(), step.refused.len(), step.pools.len(), step.claims.len()), (3, 2, 1, 0), "too many");
    life.world.defaults.ports_per_namespace = None;
    life.cloud.pods.retain(|uid, _| !step.refused.contains_key(uid));
    life.world.claims.clear();
    life.cloud.add_pod(&[0, 2, 3]);
    let step = life.settle();
    assert_eq!((life.cloud.pooled(), step.refused.len(), step.pools.len(), step.claims.len()), (3, 1, 1, 0), "no such subnet");
    assert!(life.world.claims.is_empty(), "what it had for a moment waits again");
}

#[test]
fn a_ready_port_that_is_being_deleted_is_given_to_nobody() {
    let mut life = with_pools();
    life.cloud.add_pod(&[0]);
    life.settle();
    life.cloud.add_pod(&[0]);
    let given = life.decide().claims.into_keys().next().unwrap();
    life.world.claims.remove(&given);
    life.world.deleting.insert(given.clone());
    let other = life.decide().claims.into_keys().next().unwrap();
    assert_ne!(given, other);
}

/// Made while Neutron's agent of the node was down.
#[test]
fn ready_ports_that_cannot_be_bound_are_replaced() {
    let mut life = with_pools();
    life.cloud.add_pod(&[0]);
    life.settle();
    life.cloud.vif_type = "binding_failed";
    (0..2).for_each(|_| life.cloud.add_pod(&[0]));
    let step = life.settle();
    let free = |step: &Step| step.pools.values().next().copied().unwrap();
    assert_eq!((life.cloud.pooled(), free(&step)), (6, (1, true)), "three more, and none of them is of use");
    life.cloud.vif_type = "ovs";
    life.world.dead = life.world.ports.iter().flatten().filter(|(_, port)| port.is_unbindable()).map(|(id, _)| id.clone()).collect();
    assert_eq!(life.world.dead.len(), 3);
    let step = life.settle();
    assert_eq!((life.cloud.pooled(), free(&step)), (6, (4, true)));
    life.cloud.vif_type = "unbound";
    (0..3).for_each(|_| life.cloud.add_pod(&[0]));
    let step = life.settle();
    assert!(step.watched.len() >= 3, "it is looked at until it is bound: {step:?}");
}

/// A pod that had the router's address would receive what others send to other networks.
#[test]
fn a_pod_asks_for_addresses_that_neutron_gives_away() {
    for (ip, network, words) in [
        ("10.0.0.1", "", "is the gateway of subnet subnet-0"),
        ("10.0.0.100", "", "lies in no allocation pool of subnet subnet-0"),
        ("10.0.1.5", "", "lies in none of the definition's subnets"),
        ("10.0.0.1", "network-0", "in a network without named subnets"),
    ] {
        let mut life = Life::new();
        life.cloud.add_pod(&[0]);
        let element = &mut life.cloud.pods.values_mut().next().unwrap().elements[0];
        (element.ips, element.network) = (vec!["10.0.0.99".parse().unwrap(), ip.parse().unwrap()], network.to_owned());
        if !network.is_empty() {
            element.subnets.clear();
        }
        let step = life.settle();
        let refused: Vec<String> = step.refused.values().flatten().map(ToString::to_string).collect();
        assert!(refused.len() == 1 && refused[0].contains(words), "{ip}: {refused:?}");
        assert_eq!(life.cloud.owned(), 0);
    }
}

/// A rule may let pods ask for the addresses that Neutron does not give away by itself; the router's stays the router's.
#[test]
fn a_rule_lets_a_pod_ask_for_addresses_outside_of_allocation_pools() {
    for (ip, words) in [
        ("10.0.0.100", None),
        ("10.0.0.1", Some("is the gateway of subnet subnet-0")),
        ("10.0.1.5", Some("lies in none of the definition's subnets")),
    ] {
        let mut life = Life::new();
        life.cloud.add_pod(&[0]);
        let element = &mut life.cloud.pods.values_mut().next().unwrap().elements[0];
        (element.ips, element.outside_allocation_pools) = (vec![ip.parse().unwrap()], true);
        let step = life.settle();
        let refused: Vec<String> = step.refused.values().flatten().map(ToString::to_string).collect();
        assert_eq!((refused.len(), life.cloud.owned()), if words.is_some() { (1, 0) } else { (0, 1) }, "{ip}: {refused:?}");
        assert!(words.is_none_or(|words| refused[0].contains(words)), "{ip}: {refused:?}");
    }
}

/// A port that takes an address in each of several subnets counts as many times.
#[test]
fn addresses_of_ports_are_counted() {
    let mut life = Life::new();
    life.world.defaults.ports_per_namespace = Some(3);
    life.cloud.has_auto_address = true;
    life.cloud.add_pod(&[0]);
    life.settle();
    life.cloud.add_pod(&[0, 1]);
    let step = life.settle();
    assert!(matches!(step.refused.values().flatten().collect::<Vec<_>>()[..], [Refused::TooMany { used: 2, more: 2, .. }]), "{step:?}");
}

/// Ports of a release whose tags had no UID of the cluster.
#[test]
fn a_port_without_the_clusters_uid_is_ours_where_our_kuryrport_names_it() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, 1]);
    life.cloud.add_pod(&[0]);
    life.settle();
    let uids: Vec<String> = life.cloud.pods.keys().cloned().collect();
    let known = life.cloud.kuryr_ports.clone();
    uids.iter().for_each(|uid| life.cloud.forget_uid(uid));
    // The second one's KuryrPort names no port.
    let name = life.cloud.pods[&uids[1]].name.clone();
    let object = &life.cloud.kuryr_ports[&name].object;
    assert!(!object.status.vifs.is_empty());
    life.cloud.kuryr_ports.remove(&name);
    life.cloud.pods.remove(&uids[1]);
    life.world.ports = None;
    for _ in 0..4 {
        for call in life.decide().calls {
            assert!(life.call(call, Fate::Answered));
        }
    }
    assert_eq!((life.cloud.ports_of(&uids[0]).len(), life.cloud.ports_of(&uids[1]).len()), (2, 0));
    let name = &life.cloud.pods[&uids[0]].name;
    assert_eq!(life.cloud.kuryr_ports[name], known[name]);
    assert_eq!(life.decide().calls, []);
}

/// Two KuryrPorts name one ready port: the pod that has it no more is not told that it is gone.
#[test]
fn a_ready_port_of_two_pods_is_reported() {
    let mut life = with_pools();
    for _ in 0..3 {
        life.cloud.add_pod(&[0]);
        life.settle();
    }
    life.cloud.plug_pooled();
    life.settle();
    let mut objects = life.cloud.kuryr_ports.values_mut().skip(1);
    let (first, second) = (objects.next().unwrap(), objects.next().unwrap());
    second.object.status.vifs = first.object.status.vifs.clone();
    second.object.status.vifs.values_mut().for_each(|vif| vif.vif.active = Some(true));
    life.world.claims.clear();
    life.blind = false;
    let step = life.decide();
    assert!(matches!(step.refused.values().flatten().collect::<Vec<_>>()[..], [Refused::Shared { .. }]), "{:?}", step.refused);
}

/// Carries out all calls until one is decided that is to be kept back; it is given back.
fn until(life: &mut Life, is_last: impl Fn(&Call) -> bool) -> Call {
    for _ in 0..20 {
        for call in life.decide().calls {
            if is_last(&call) {
                return call;
            }
            life.call(call, Fate::Answered);
        }
    }
    panic!("it is not decided: {:?}", life.decide().calls)
}

/// The answer to a change of address pairs is lost, the pod goes, and Neutron carries the change out afterwards.
#[test]
fn a_late_change_of_address_pairs_leaves_none_behind() {
    let mut life = Life::new();
    life.cloud.add_pod(&[MACVLAN]);
    let call = until(&mut life, |call| matches!(call, Call::SetPairs { .. }));
    life.call(call, Fate::Late);
    life.cloud.delete_pod(0);
    for _ in 0..5 {
        life.happen(&Event::Work(vec![Fate::Answered; 20]));
    }
    assert_eq!(life.cloud.owned(), 1, "its address may be a pair soon");
    life.settle();
    assert_eq!(life.cloud.owned(), 0);
    life.cloud.assert_complete(&BTreeSet::new());
}

/// An operator is killed while its change of address pairs is on its way, the pod goes, and Neutron carries the change out while the next operator
/// works.
#[test]
fn a_killed_operators_late_change_of_address_pairs_leaves_none_behind() {
    let mut life = Life::new();
    life.cloud.add_pod(&[MACVLAN]);
    let call = until(&mut life, |call| matches!(call, Call::SetPairs { .. }));
    life.call(call, Fate::Late);
    life.start();
    life.cloud.delete_pod(0);
    life.blind = false;
    for _ in 0..5 {
        life.happen(&Event::Work(vec![Fate::Answered; 20]));
    }
    assert_eq!(life.cloud.owned(), 1, "its address may be a pair soon");
    life.settle();
    assert_eq!(life.cloud.owned(), 0);
    life.cloud.assert_complete(&BTreeSet::new());
}

/// No port is made for a pod before the kubelet has written the node's address, which says what carries one of them.
#[test]
fn a_pod_without_its_nodes_address_waits() {
    let mut life = Life::new();
    life.cloud.add_pod(&[0, VLAN]);
    let uid = life.cloud.pods.keys().next().unwrap().clone();
    life.cloud.pods.get_mut(&uid).unwrap().host_ip = String::new();
    let step = life.settle();
    assert_eq!((step.without_address, life.cloud.owned()), ([uid.clone()].into(), 0));
    life.cloud.pods.get_mut(&uid).unwrap().host_ip = HOST_IP.to_owned();
    assert!(life.settle().without_address.is_empty());
    life.cloud.assert_complete(&BTreeSet::new());
}

/// What is known of a node's port is forgotten after each change that was refused.
#[test]
fn a_nodes_port_that_is_not_known_any_more_is_read_again() {
    let mut life = Life::new();
    life.cloud.add_pod(&[MACVLAN]);
    life.settle();
    life.world.carriers.clear();
    life.cloud.add_pod(&[MACVLAN]);
    let step = life.decide();
    assert_eq!(step.refused, std::collections::BTreeMap::new());
    assert!(step.calls.iter().any(|call| matches!(call, Call::ReadCarrier(_))), "{:?}", step.calls);
    life.settle();
    life.cloud.assert_complete(&BTreeSet::new());
}

/// Neutron takes a fifth of a second for each, and gives no answer after a minute.
#[test]
fn subports_are_removed_some_at_a_time() {
    let mut life = Life::new();
    (0..25).for_each(|_| life.cloud.add_pod(&[VLAN]));
    life.settle();
    life.cloud.pods.clear();
    let call = until(&mut life, |call| matches!(call, Call::RemoveSubPorts(..)));
    assert!(matches!(&call, Call::RemoveSubPorts(_, ports) if ports.len() == 20), "{call:?}");
    life.settle();
    life.cloud.assert_complete(&BTreeSet::new());
}

/// A pod runs with a ready port that its KuryrPort cannot be read to say.
#[test]
fn no_ready_port_is_deleted_while_a_kuryrport_cannot_be_read() {
    let mut life = with_pools();
    life.cloud.add_pod(&[0]);
    life.settle();
    life.world.defaults.pool = None;
    let deletes = |life: &mut Life| life.decide().calls.iter().filter(|call| matches!(call, Call::DeletePort(_))).count();
    assert!(deletes(&mut life) > 0, "pools were switched off");
    let stored = life.cloud.kuryr_ports.values_mut().next().unwrap();
    (stored.object, stored.damage) = (osvif::KuryrPort::default(), Some("it is too large".to_owned()));
    assert_eq!(deletes(&mut life), 0);
}
