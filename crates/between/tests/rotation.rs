//! Keys are rotated in clusters where agents die at any moment, see each other late, and rotations follow one another: at every moment, after
//! each single change of any kernel's tables, every node has a way to every other one that both ends accept.
//!
//! ```text
//!   api: what each node announces --sync--> view of an agent --look--> KeyRing::step --> disk --> plan --changes, one by one--> kernel
//!        ^                                                                                                                       |
//!        '--- announce -------------------------------------------------------------------------- oracle: follows a packet -----'
//! ```
//!
//! `NETLOOM_SOAK=N` adds N cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use netloom_between::rotation::{Evidence, Handshakes, KeyRing, Step};
use netloom_between::{Change, Device, Entry, Mode, NodeSeen, OwnNode, Plan, PublicKey, Settings, Underlay, Vxlan, Wanted, plan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

const BASE: u16 = 51820;
const OVERLAP: u64 = 30;
const NODES: usize = 4;

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    /// So many seconds pass.
    Wait(u64),
    /// An agent gets what the API has.
    Sync(usize),
    /// An agent looks, and does what is due; it dies after so many changes, if it gets as far.
    Look(usize, Option<usize>),
    /// What an agent wants to announce arrives at the API.
    Announce(usize),
    /// A person asks for a rotation.
    Ask(usize),
    Kill(usize),
    Start(usize),
    /// All agents that live do all that they do for a while, so that rotations come to their end.
    Settle,
}

/// An agent's memory.
#[derive(Debug, Clone, Default)]
struct Agent {
    plan: Option<Plan>,
    spare: Option<PublicKey>,
    begun: u64,
    quiet_since: Option<u64>,
}

struct Node {
    name: String,
    /// `None`: it does not run.
    agent: Option<Agent>,
    view: Vec<NodeSeen>,
    /// On the disk.
    ring: KeyRing,
    kernel: Plan,
    /// By own port and peer's key: when.
    handshakes: BTreeMap<(u16, [u8; 32]), u64>,
}

struct Cluster {
    now: u64,
    api: Vec<NodeSeen>,
    nodes: Vec<Node>,
    keys: u8,
    /// How many rotations came to their end.
    ended: u64,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = 0..NODES;
    vec(
        prop_oneof![
            4 => prop_oneof![Just(1_u64), Just(5), Just(12), Just(40)].prop_map(Event::Wait),
            8 => node.clone().prop_map(Event::Sync),
            8 => (node.clone(), prop::option::weighted(0.2, 0..6_usize)).prop_map(|(node, dies)| Event::Look(node, dies)),
            6 => node.clone().prop_map(Event::Announce),
            3 => node.clone().prop_map(Event::Ask),
            1 => node.clone().prop_map(Event::Kill),
            2 => node.prop_map(Event::Start),
            3 => Just(Event::Settle),
        ],
        20..80,
    )
}

fn settings() -> Settings {
    Settings { mode: Mode::WireGuard, vxlan: Vxlan { vni: 1, port: 1 }, wireguard_port: BASE, reserved: Vec::new(), within: Vec::new() }
}

impl Cluster {
    /// All have their first keys, and all tunnels stand.
    fn new() -> Self {
        let mut cluster = Cluster { now: 1000, api: Vec::new(), nodes: Vec::new(), keys: 0, ended: 0 };
        for at in 0..NODES {
            let ring = KeyRing::first(cluster.made(), &[]);
            let seen = NodeSeen {
                name: format!("n{at}"),
                uid: format!("uid {at}"),
                created: "2026-01-01T00:00:00Z".to_owned(),
                ranges: vec![format!("10.1.{at}.0/24").parse().unwrap()],
                endpoints: vec![format!("192.0.2.{}", at + 1).parse().unwrap()],
                ..NodeSeen::default()
            };
            cluster.api.push(told(seen, &ring));
            let name = format!("n{at}");
            let node = Node { name, agent: None, view: Vec::new(), ring, kernel: Plan::default(), handshakes: BTreeMap::new() };
            cluster.nodes.push(node);
        }
        for at in 0..NODES {
            cluster.nodes[at].agent = Some(Agent::default());
            cluster.sync(at);
            cluster.nodes[at].kernel = cluster.planned(at);
        }
        cluster.shake();
        cluster.check("the beginning");
        cluster
    }

    fn made(&mut self) -> [u8; 32] {
        self.keys += 1;
        [self.keys; 32]
    }

    fn sync(&mut self, at: usize) {
        self.nodes[at].view.clone_from(&self.api);
    }

    /// Time passes, and tunnels that anything is sent by have handshakes.
    fn wait(&mut self, seconds: u64) {
        self.now += seconds;
        self.shake();
    }

    fn shake(&mut self) {
        let mut shaken = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            for ((device, key), peer) in &node.kernel.peers {
                let Some(port) = own_port(device) else { continue };
                let is_used = peer.keepalive > 0
                    || node.kernel.routes.iter().any(|(range, route)| route.device == *device && peer.allowed.contains(range));
                let Some((other, other_port)) = self.listening(peer.endpoint.port(), key) else { continue };
                let Wanted::WireGuard { key: own, .. } = node.kernel.devices[device] else { continue };
                if is_used && self.nodes[other].kernel.peers.contains_key(&(Device::WireGuard { port: other_port }, own)) {
                    shaken.extend([(at, (port, *key)), (other, (other_port, own))]);
                }
            }
        }
        for (at, tunnel) in shaken {
            self.nodes[at].handshakes.insert(tunnel, self.now);
        }
        for node in &mut self.nodes {
            let Node { handshakes, kernel, .. } = node;
            handshakes.retain(|(port, key), _| kernel.peers.contains_key(&(Device::WireGuard { port: *port }, *key)));
        }
    }

    /// Who has a device on this port with this key.
    fn listening(&self, port: u16, key: &[u8; 32]) -> Option<(usize, u16)> {
        let device = Device::WireGuard { port };
        let has = |node: &Node| matches!(node.kernel.devices.get(&device), Some(Wanted::WireGuard { key: own, .. }) if own == key);
        self.nodes.iter().position(has).map(|at| (at, port))
    }

    fn handshakes(&self, at: usize) -> Handshakes {
        let node = &self.nodes[at];
        let of = |(device, key): &(Device, [u8; 32])| {
            let tunnel = (own_port(device).unwrap(), *key);
            (tunnel, node.handshakes.get(&tunnel).map(|then| Duration::from_secs(self.now - then)))
        };
        node.kernel.peers.keys().map(of).collect()
    }

    fn others(&self, at: usize) -> Vec<NodeSeen> {
        self.nodes[at].view.iter().filter(|seen| seen.name != self.nodes[at].name).cloned().collect()
    }

    fn planned(&self, at: usize) -> Plan {
        let node = &self.nodes[at];
        let (others, handshakes) = (self.others(at), self.handshakes(at));
        let link =
            Underlay { index: 2, name: "eth0".into(), mtu: 1500, addresses: vec![format!("192.0.2.{}/24", at + 1).parse().unwrap()] };
        let own = OwnNode {
            name: node.name.clone(),
            links: vec![link],
            unproven: node.ring.unproven(BASE, &others, &handshakes),
            spare: node.ring.spare(BASE),
            ..OwnNode::default()
        };
        let mut view = node.view.clone();
        view.iter_mut().filter(|seen| seen.name == node.name).for_each(|own| own.keys = node.ring.announced(BASE));
        plan(&settings(), &own, &view).unwrap()
    }

    /// What an agent does in a round.
    fn look(&mut self, at: usize, is_asked: bool, dies: Option<usize>) {
        let Some(agent) = self.nodes[at].agent.clone() else { return };
        let (others, handshakes) = (self.others(at), self.handshakes(at));
        let seen = Evidence {
            base: BASE,
            peers: &others,
            plan: agent.plan.as_ref(),
            handshakes: Some(&handshakes),
            is_made: (agent.spare == self.nodes[at].ring.spare(BASE)).then_some(true),
            is_asked,
            begun: Duration::from_secs(self.now - agent.begun),
            quiet: agent.quiet_since.map(|since| Duration::from_secs(self.now - since)).unwrap_or_default(),
            overlap: Duration::from_secs(OVERLAP),
        };
        let step = self.nodes[at].ring.step(&seen);
        let is_quiet = self.nodes[at].ring.awaited(&seen).is_some_and(|names| names.is_empty());
        let mut agent = Agent { quiet_since: is_quiet.then(|| agent.quiet_since.unwrap_or(self.now)), ..agent };
        match step {
            Some(Step::Begin(rotation)) => {
                let key = self.nodes[at].ring.needs_key(rotation).then(|| self.made());
                self.nodes[at].ring.begin(rotation, key);
                agent.begun = self.now;
            }
            Some(Step::Try(newest)) => self.nodes[at].ring.newest = newest,
            Some(Step::Move) => self.nodes[at].ring.moved = self.nodes[at].ring.rotation,
            Some(Step::End) => {
                self.nodes[at].ring.end();
                self.ended += 1;
            }
            None => {}
        }
        if step.is_some() {
            agent.quiet_since = None;
        }
        if dies == Some(0) {
            self.nodes[at].agent = None;
            return;
        }
        let wanted = self.planned(at);
        (agent.plan, agent.spare) = (Some(wanted.clone()), self.nodes[at].ring.spare(BASE));
        let changes = self.nodes[at].kernel.difference(&wanted);
        for (number, change) in changes.iter().enumerate() {
            apply(&mut self.nodes[at].kernel, change);
            self.check(&format!("{}: {change:?}", self.nodes[at].name));
            if dies == Some(number + 1) {
                self.nodes[at].agent = None;
                return;
            }
        }
        self.nodes[at].agent = Some(agent);
    }

    fn announce(&mut self, at: usize) {
        // What is written is what the agent has carried out.
        if self.nodes[at].agent.as_ref().is_some_and(|agent| agent.plan.is_some()) {
            self.api[at] = told(self.api[at].clone(), &self.nodes[at].ring);
        }
    }

    fn settle(&mut self) {
        for _ in 0..12 {
            for at in 0..NODES {
                self.sync(at);
                self.look(at, false, None);
                self.announce(at);
            }
            self.wait(6);
        }
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Wait(seconds) => self.wait(seconds),
            Event::Sync(at) if self.nodes[at].agent.is_some() => self.sync(at),
            Event::Sync(_) => {}
            Event::Look(at, dies) => self.look(at, false, dies),
            Event::Announce(at) => self.announce(at),
            Event::Ask(at) => self.look(at, true, None),
            Event::Kill(at) => self.nodes[at].agent = None,
            Event::Start(at) if self.nodes[at].agent.is_none() => {
                self.nodes[at].agent = Some(Agent { begun: self.now, ..Agent::default() });
                self.sync(at);
            }
            Event::Start(_) => {}
            Event::Settle => self.settle(),
        }
    }

    /// The oracle: follows a packet from each node to each other one, through the tables of both.
    fn check(&self, after: &str) {
        for (from, node) in self.nodes.iter().enumerate() {
            for to in (0..NODES).filter(|to| *to != from) {
                let fate = self.fate(node, from, to);
                assert!(fate.is_ok(), "n{from} to n{to}: {} after {after}\n{}", fate.unwrap_err(), self.shown());
            }
        }
    }

    fn fate(&self, node: &Node, from: usize, to: usize) -> Result<(), &'static str> {
        let range = |at: usize| -> IpNet { format!("10.1.{at}.0/24").parse().unwrap() };
        let route = node.kernel.routes.get(&range(to)).ok_or("no route")?;
        let Some(Wanted::WireGuard { key: own, .. }) = node.kernel.devices.get(&route.device) else { return Err("no device") };
        let mut allowed =
            node.kernel.peers.iter().filter(|((device, _), peer)| *device == route.device && peer.allowed.contains(&range(to)));
        let ((_, key), peer) = allowed.next().ok_or("no peer")?;
        let (there, port) = self.listening(peer.endpoint.port(), key).ok_or("nobody has that key there")?;
        assert_eq!(there, to);
        let back = self.nodes[to].kernel.peers.get(&(Device::WireGuard { port }, *own)).ok_or("the sender's key is not known there")?;
        back.allowed.contains(&range(from)).then_some(()).ok_or("the sender's range is not allowed there")
    }

    fn shown(&self) -> String {
        let of = |node: &Node| {
            let peers: Vec<_> = node.kernel.peers.iter().map(|((device, key), peer)| (own_port(device), key[0], &peer.allowed)).collect();
            let routes: Vec<_> = node.kernel.routes.iter().map(|(range, route)| (range, own_port(&route.device))).collect();
            format!("{} {:?}\n   {peers:?}\n   {routes:?}\n", node.name, node.ring)
        };
        self.nodes.iter().map(of).collect()
    }
}

fn own_port(device: &Device) -> Option<u16> {
    if let Device::WireGuard { port } = device { Some(*port) } else { None }
}

fn told(seen: NodeSeen, ring: &KeyRing) -> NodeSeen {
    NodeSeen { keys: ring.announced(BASE), rotation: ring.announced_rotation(), moved: ring.moved, ..seen }
}

/// One change, as the kernel carries it out.
fn apply(tables: &mut Plan, change: &Change) {
    match change {
        Change::Add(entry) | Change::Replace(entry) => match entry.clone() {
            Entry::Device(device, wanted) => drop(tables.devices.insert(device, wanted)),
            Entry::Peer(device, key, peer) => {
                // A range that is allowed to one is taken from the other.
                let others = tables.peers.iter_mut().filter(|((on, _), _)| *on == device);
                others.for_each(|(_, other)| other.allowed.retain(|range| !peer.allowed.contains(range)));
                tables.peers.insert((device, key), peer);
            }
            Entry::Route(range, route) => drop(tables.routes.insert(range, route)),
            Entry::Closed(range) => drop(tables.closed.insert(range)),
            other => panic!("{other:?}"),
        },
        Change::Remove(entry) => match entry {
            Entry::Device(device, _) => {
                tables.devices.remove(device);
                tables.peers.retain(|(on, _), _| on != device);
                tables.routes.retain(|_, route| route.device != *device);
            }
            Entry::Peer(device, key, _) => drop(tables.peers.remove(&(*device, *key))),
            Entry::Route(range, _) => drop(tables.routes.remove(range)),
            Entry::Closed(range) => drop(tables.closed.remove(range)),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn no_packet_is_lost_whoever_dies_and_however_rotations_follow_one_another() {
    let soak: u32 = std::env::var("NETLOOM_SOAK").map_or(0, |n| n.parse().expect("NETLOOM_SOAK is a number of cases"));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(400 + soak) });
    let ended = std::cell::Cell::new(0);
    let done = runner.run(&events(), |events| {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.happen(event);
        }
        ended.set(ended.get() + cluster.ended);
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    assert!(ended.get() > 1000, "{} rotations came to their end", ended.get());
}

/// Whatever came before, nodes whose agents live have one key each in the end, of one rotation.
#[test]
fn rotations_come_to_their_end() {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(100) });
    let done = runner.run(&events(), |events| {
        let mut cluster = Cluster::new();
        events.iter().for_each(|event| cluster.happen(event));
        (0..NODES).for_each(|at| cluster.happen(&Event::Start(at)));
        (0..6).for_each(|_| cluster.settle());
        let rings: BTreeSet<(u64, usize)> = cluster.nodes.iter().map(|node| (node.ring.rotation, node.ring.keys.len())).collect();
        assert!(rings.len() == 1 && rings.iter().all(|(_, keys)| *keys == 1), "{}", cluster.shown());
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
}
