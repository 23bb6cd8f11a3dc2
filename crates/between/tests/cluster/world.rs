//! A cluster in which everything happens: nodes come, go, are renumbered, replaced under their names, copied, and change their minds.

use std::net::IpAddr;

use ipnet::IpNet;
use netloom_between::{Mode, NodeSeen, OwnNode, Plan, PublicKey, Settings, Tunnel, Underlay, Vxlan, plan};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// What a node may get as ranges: most of them its own, and some that are in the way of others, of Services and of subnets.
const RANGES: [&str; 18] = [
    "10.1.0.0/24",
    "10.1.1.0/24",
    "10.1.2.0/24",
    "10.1.3.0/24",
    "10.1.4.0/24",
    "10.1.0.0/23",
    "10.1.2.128/25",
    "10.96.3.0/24",
    "172.16.0.0/24",
    "172.16.1.128/25",
    "0.0.0.0/0",
    "fd01:0:0:1::/64",
    "fd01:0:0:2::/64",
    "fd01:0:0:3::/64",
    "fd01:0:0:4::/64",
    "fd01::/62",
    "fd99:0:0:1::/80",
    "fd96::/112",
];

const MODES: [Mode; 5] = [Mode::Direct, Mode::Vxlan, Mode::WireGuard, Mode::Auto(Tunnel::Vxlan), Mode::Auto(Tunnel::WireGuard)];

/// Where a node's machine stands.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    segment: u8,
    host: u8,
    /// Whether it has a link to the other segment, which its Node does not mention.
    second: bool,
    mtu: u32,
}

/// What its Node says of its addresses, families by bit.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    families: u8,
    /// Whether an address that is of no use stands first.
    useless: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Join { name: u8, created: u8, copied: bool, machine: Machine, ends: Ends, ranges: Vec<usize>, keys: Vec<(u8, u8)> },
    Leave { name: u8 },
    Renumber { name: u8, ranges: Vec<usize> },
    Replace { name: u8, machine: Machine, ends: Ends },
    Move { name: u8, ends: Ends },
    Rotate { name: u8, keys: Vec<(u8, u8)> },
    Announce { name: u8, mode: Option<usize> },
}

/// A Node, its machine, and the mode that its agent runs in.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) seen: NodeSeen,
    pub(crate) own: OwnNode,
    pub(crate) mode: Mode,
    machine: Machine,
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    mode: Mode,
    count: u32,
}

/// A mode, and what happens in a cluster that has it.
pub(crate) fn history() -> impl Strategy<Value = (Mode, Vec<Step>)> {
    let mode = (0..MODES.len()).prop_map(|at| MODES[at]);
    (mode, vec(step(), 3..16))
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    let mtu = prop_oneof![8 => Just(1500), 1 => Just(1340), 1 => Just(1300)];
    let machine = (0..2_u8, 1..9_u8, prop::bool::weighted(0.2), mtu);
    let machine = machine.prop_map(|(segment, host, second, mtu)| Machine { segment, host, second, mtu }).boxed();
    let families = prop_oneof![5 => Just(3_u8), 2 => Just(1), 2 => Just(2), 1 => Just(0)];
    let ends = (families, prop::bool::weighted(0.1)).prop_map(|(families, useless)| Ends { families, useless }).boxed();
    // The ranges that are in nobody's way come first in each family.
    let v4 = prop_oneof![8 => 0..5_usize, 2 => 5..11_usize];
    let v6 = prop_oneof![8 => 11..15_usize, 1 => 15..18_usize];
    let ranges = prop_oneof![
        6 => (v4.clone(), v6.clone()).prop_map(|(v4, v6)| vec![v4, v6]),
        2 => (v6.clone(), v4.clone()).prop_map(|(v6, v4)| vec![v6, v4]),
        2 => v4.clone().prop_map(|at| vec![at]),
        1 => v6.prop_map(|at| vec![at]),
        1 => vec(v4, 0..4),
    ];
    let ranges = ranges.boxed();
    let keys = prop_oneof![
        5 => (0..40_u8).prop_map(|key| vec![(key, 0)]),
        2 => (0..40_u8, 0..40_u8).prop_map(|(old, new)| vec![(old, 0), (new, 1)]),
        1 => (0..40_u8, 0..40_u8).prop_map(|(old, new)| vec![(old, 1), (new, 0)]),
        1 => vec((0..40_u8, 0..3_u8), 0..4),
    ];
    let keys = keys.boxed();
    let join = (name.clone(), 0..4_u8, prop::bool::weighted(0.05), machine.clone(), ends.clone(), ranges.clone(), keys.clone());
    let join = join.prop_map(|(name, created, copied, machine, ends, ranges, keys)| Step::Join {
        name,
        created,
        copied,
        machine,
        ends,
        ranges,
        keys,
    });
    prop_oneof![
        12 => join,
        1 => name.clone().prop_map(|name| Step::Leave { name }),
        2 => (name.clone(), ranges).prop_map(|(name, ranges)| Step::Renumber { name, ranges }),
        2 => (name.clone(), machine, ends.clone()).prop_map(|(name, machine, ends)| Step::Replace { name, machine, ends }),
        2 => (name.clone(), ends).prop_map(|(name, ends)| Step::Move { name, ends }),
        2 => (name.clone(), keys).prop_map(|(name, keys)| Step::Rotate { name, keys }),
        1 => (name, option::of(0..MODES.len())).prop_map(|(name, mode)| Step::Announce { name, mode }),
    ]
}

impl World {
    pub(crate) fn new(mode: Mode) -> Self {
        World { members: Vec::new(), mode, count: 0 }
    }

    pub(crate) fn after(mode: Mode, steps: &[Step]) -> Self {
        let mut world = World::new(mode);
        steps.iter().for_each(|step| world.step(step));
        world
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.members.iter().map(|member| &member.seen.name)
    }

    pub(crate) fn get(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.seen.name == name).unwrap()
    }

    /// Lists the nodes from the other end.
    pub(crate) fn turn(&mut self) {
        self.members.reverse();
    }

    pub(crate) fn settings(&self, mode: Mode) -> Settings {
        let reserved = vec!["10.96.0.0/12".parse().unwrap(), "fd96::/112".parse().unwrap()];
        Settings { mode, vxlan: Vxlan { vni: 1, port: 8472 }, wireguard_port: 51820, reserved, within: Vec::new() }
    }

    /// What this node's agent plans.
    pub(crate) fn plan(&self, name: &str) -> Plan {
        let (settings, own) = self.asked(name);
        plan(&settings, own, &self.seen()).unwrap()
    }

    /// The Nodes, as everybody sees them.
    pub(crate) fn seen(&self) -> Vec<NodeSeen> {
        self.members.iter().map(|member| member.seen.clone()).collect()
    }

    /// What a planner is asked with for a node.
    pub(crate) fn asked(&self, name: &str) -> (Settings, &OwnNode) {
        let member = self.get(name);
        (self.settings(member.mode), &member.own)
    }

    /// The second and the last address of each range that anybody claims.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let ranges = self.members.iter().flat_map(|member| &member.seen.ranges);
        ranges.flat_map(|range| [range.hosts().next().unwrap(), range.broadcast()]).collect()
    }

    pub(crate) fn step(&mut self, step: &Step) {
        self.count += 1;
        let count = self.count;
        match step.clone() {
            Step::Join { name, created, copied, machine, ends, ranges, keys } => {
                self.leave(name);
                let uid = if copied { "a copy".to_owned() } else { format!("uid {count}") };
                let seen = NodeSeen {
                    name: named(name),
                    uid,
                    created: format!("2026-01-0{created}T00:00:00Z"),
                    ranges: ranges_of(&ranges),
                    keys: keys_of(&keys),
                    ..NodeSeen::default()
                };
                let mut member = Member { seen, own: OwnNode::default(), mode: self.mode, machine };
                member.stand(&ends);
                self.members.push(member);
            }
            Step::Leave { name } => self.leave(name),
            Step::Renumber { name, ranges } => self.with(name, |member| member.seen.ranges = ranges_of(&ranges)),
            Step::Replace { name, machine, ends } => self.with(name, |member| {
                (member.seen.uid, member.seen.created) = (format!("uid {count}"), format!("2026-02-01T00:00:{count:02}Z"));
                member.machine = machine;
                member.stand(&ends);
            }),
            Step::Move { name, ends } => self.with(name, |member| member.stand(&ends)),
            Step::Rotate { name, keys } => self.with(name, |member| member.seen.keys = keys_of(&keys)),
            Step::Announce { name, mode } => {
                let all = self.mode;
                self.with(name, |member| {
                    member.seen.mode = mode.map(|at| MODES[at]);
                    member.mode = member.seen.mode.unwrap_or(all);
                });
            }
        }
    }

    fn leave(&mut self, name: u8) {
        self.members.retain(|member| member.seen.name != named(name));
    }

    fn with(&mut self, name: u8, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.iter_mut().find(|member| member.seen.name == named(name)) {
            change(member);
        }
    }
}

impl Member {
    /// Gives the machine its links, and the Node its addresses.
    fn stand(&mut self, ends: &Ends) {
        let Machine { segment, host, second, mtu } = self.machine;
        let on = |index: u32, segment: u8, host: u8, mtu: u32| {
            let texts = [format!("172.16.{segment}.{host}/24"), format!("fd99:0:0:{segment}::{host}/64"), format!("fe80::{host}/64")];
            Underlay { index, name: format!("eth{index}"), mtu, addresses: texts.iter().map(|text| text.parse().unwrap()).collect() }
        };
        let mut links = vec![on(2, segment, host, mtu)];
        if second {
            links.push(on(3, 1 - segment, host + 100, 9000));
        }
        let useless: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "fe80::7".parse().unwrap()];
        let own = links[0].addresses[..2].iter().enumerate().filter(|(at, _)| ends.families & (1 << at) != 0).map(|(_, net)| net.addr());
        self.seen.endpoints = useless.into_iter().filter(|_| ends.useless).chain(own).collect();
        self.own = OwnNode { name: self.seen.name.clone(), links, ..OwnNode::default() };
    }
}

/// Names are not in the order in which nodes come.
fn named(name: u8) -> String {
    format!("node-{name}")
}

fn ranges_of(at: &[usize]) -> Vec<IpNet> {
    at.iter().map(|at| RANGES[*at].parse().unwrap()).collect()
}

fn keys_of(keys: &[(u8, u8)]) -> Vec<PublicKey> {
    let port = |port: u8| (port > 0).then(|| 51820 + u16::from(port));
    keys.iter().map(|(key, at)| PublicKey { key: [*key; 32], port: port(*at), rotation: u64::from(*at) }).collect()
}
