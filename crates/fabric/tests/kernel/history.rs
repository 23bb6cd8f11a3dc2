//! Any history of one node: others come, go and change, another program spoils the tables, the agent starts again. After each step the kernel
//! is what the planner says, and what was spoiled was noticed.
//!
//! `NETLOOM_SOAK=N` adds N histories.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use between::{Device, Mode, NodeSeen, Plan, Settings, Tunnel, Vxlan, plan};
use ipnet::IpNet;
use linux::Monitor;
use netloom_fabric::{EntryError, Fabric, device_name};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::cluster::{own, seen, settings};
use crate::oracle;
use crate::space::{Space, drain};

const MODES: [Mode; 3] = [Mode::Direct, Mode::Vxlan, Mode::Auto(Tunnel::Vxlan)];

#[derive(Debug, Clone)]
enum Step {
    /// A node, its host number, the families of its endpoints by bit, and whether it is behind a router.
    Join(u8, u8, u8, bool),
    Leave(u8),
    /// It has another one's ranges.
    Renumber(u8, u8),
    /// It is another machine now.
    Replace(u8),
    Mode(usize),
    Network(u32, u16),
    /// The families of the own endpoints.
    Own(u8),
    /// The own node has these ranges, of families by bit.
    OwnRanges(u8, u8),
    /// The own node is another machine now.
    OwnReplaced,
    /// Somebody spoils an entry.
    Spoil(usize, prop::sample::Index),
    /// Another program takes the range of a node, of one family.
    Take(u8, bool),
    /// It gives back what it has.
    GiveBack,
    /// The agent starts again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 2..7_u8;
    let host = 2..99_u8;
    prop_oneof![
        8 => (number(), host, 1..4_u8, prop::bool::weighted(0.3)).prop_map(|(number, host, families, far)| Step::Join(number, host, families, far)),
        2 => number().prop_map(Step::Leave),
        1 => (number(), number()).prop_map(|(number, other)| Step::Renumber(number, other)),
        2 => number().prop_map(Step::Replace),
        2 => (0..MODES.len()).prop_map(Step::Mode),
        1 => (1..3_u32, prop_oneof![Just(8472_u16), Just(4789)]).prop_map(|(vni, port)| Step::Network(vni, port)),
        1 => (1..4_u8).prop_map(Step::Own),
        1 => (1..3_u8, 1..4_u8).prop_map(|(number, families)| Step::OwnRanges(number * 100, families)),
        1 => Just(Step::OwnReplaced),
        8 => (0..SPOILS, any::<prop::sample::Index>()).prop_map(|(kind, pick)| Step::Spoil(kind, pick)),
        2 => (number(), any::<bool>()).prop_map(|(number, v4)| Step::Take(number, v4)),
        1 => Just(Step::GiveBack),
        1 => Just(Step::Restart),
    ]
}

struct World {
    space: Space,
    monitor: Monitor,
    fabric: Fabric,
    nodes: BTreeMap<u8, NodeSeen>,
    settings: Settings,
    taken: BTreeSet<IpNet>,
    count: u32,
}

fn endpoints(host: u8, families: u8, far: bool) -> Vec<IpAddr> {
    let texts = if far {
        [format!("198.51.100.{host}"), format!("2001:db8:9::{host:x}")]
    } else {
        [format!("192.0.2.{host}"), format!("2001:db8::{host:x}")]
    };
    texts.iter().enumerate().filter(|(at, _)| families & (1 << at) != 0).map(|(_, text)| text.parse().unwrap()).collect()
}

impl World {
    fn new() -> Self {
        let space = Space::new();
        space.sh("ip link add eth0 type veth peer name wire");
        for link in ["eth0", "wire"] {
            space.sh(&format!("ip link set {link} up"));
        }
        space.sh("ip addr add 192.0.2.1/24 dev eth0");
        space.sh("ip -6 addr add 2001:db8::1/64 dev eth0 nodad");
        let monitor = space.monitor();
        let nodes = BTreeMap::from([(1, seen(1, endpoints(1, 3, false)))]);
        World { space, monitor, fabric: Fabric::default(), nodes, settings: settings(Mode::Vxlan), taken: BTreeSet::new(), count: 0 }
    }

    fn own(&mut self) -> &mut NodeSeen {
        self.nodes.get_mut(&1).unwrap()
    }

    fn plan(&self) -> Plan {
        let nodes: Vec<NodeSeen> = self.nodes.values().cloned().collect();
        plan(&self.settings, &own(&self.space, "n1"), &nodes).unwrap()
    }

    /// What of a plan can be in the kernel.
    fn possible(&self, mut plan: Plan) -> Plan {
        plan.routes.retain(|range, _| !self.taken.contains(range));
        plan
    }

    fn step(&mut self, step: &Step) {
        self.count += 1;
        let count = self.count;
        match *step {
            Step::Join(number, host, families, far) => {
                let node = NodeSeen { uid: format!("uid {count}"), ..seen(number, endpoints(host, families, far)) };
                self.nodes.insert(number, node);
            }
            Step::Leave(number) => drop(self.nodes.remove(&number)),
            Step::Renumber(number, other) => {
                if let Some(node) = self.nodes.get_mut(&number) {
                    node.ranges = seen(other, Vec::new()).ranges;
                }
            }
            Step::Replace(number) => {
                if let Some(node) = self.nodes.get_mut(&number) {
                    node.uid = format!("uid {count}");
                }
            }
            Step::Mode(at) => self.settings.mode = MODES[at],
            Step::Network(vni, port) => self.settings.vxlan = Vxlan { vni, port },
            Step::Own(families) => self.own().endpoints = endpoints(1, families, false),
            Step::OwnRanges(number, families) => {
                let ranges = seen(number, Vec::new()).ranges.into_iter().enumerate();
                self.own().ranges = ranges.filter(|(at, _)| families & (1 << at) != 0).map(|(_, range)| range).collect();
            }
            Step::OwnReplaced => self.own().uid = format!("uid {count}"),
            Step::Spoil(kind, pick) => {
                if let Some(line) = spoil(&self.possible(self.plan()), kind, &pick) {
                    self.space.sh(&line);
                }
            }
            Step::Take(number, v4) => {
                let range = seen(number, Vec::new()).ranges[usize::from(!v4)];
                let via = if v4 { "192.0.2.250" } else { "2001:db8::250" };
                self.space.sh(&format!("ip route replace {range} via {via} dev eth0 proto 99"));
                self.taken.insert(range);
            }
            Step::GiveBack => {
                for range in std::mem::take(&mut self.taken) {
                    self.space.sh(&format!("ip route del {range} proto 99"));
                }
            }
            Step::Restart => self.fabric = Fabric::default(),
        }
    }

    fn foreign_routes(&self) -> String {
        self.space.sh("ip route show proto 99") + &self.space.sh("ip -6 route show proto 99")
    }

    /// Takes notices and applies what is wanted now; whether a notice contradicted what was there.
    fn follow(&mut self) -> bool {
        let noticed = drain(&mut self.monitor).iter().filter(|notice| self.fabric.notice(notice)).count() > 0;
        let (plan, before) = (self.plan(), self.foreign_routes());
        let World { space, fabric, .. } = self;
        let applied = space.run(|_, netlink| fabric.apply(netlink, &plan)).unwrap();
        let taken = |error: &EntryError| match error {
            EntryError::RouteTaken { range, .. } => *range,
            other => panic!("{other}"),
        };
        let reported: BTreeSet<IpNet> = applied.errors.iter().map(taken).collect();
        let in_the_way: BTreeSet<IpNet> = self.taken.iter().filter(|range| plan.routes.contains_key(range)).copied().collect();
        assert_eq!((reported, applied.skipped), (in_the_way, 0));
        oracle::agrees(&self.space, &self.possible(plan));
        assert_eq!(self.foreign_routes(), before);
        noticed
    }
}

const SPOILS: usize = 11;

/// A line that changes one of our entries, if there is one of that kind.
fn spoil(plan: &Plan, kind: usize, pick: &prop::sample::Index) -> Option<String> {
    fn any<'a, K, V>(table: &'a BTreeMap<K, V>, pick: &prop::sample::Index) -> Option<(&'a K, &'a V)> {
        if table.is_empty() { None } else { table.iter().nth(pick.index(table.len())) }
    }
    let name = |device: &Device| device_name(device).unwrap();
    Some(match kind {
        0 => format!("ip route del {} proto 110", any(&plan.routes, pick)?.0),
        1 => {
            let (range, _) = any(&plan.routes, pick)?;
            let via = if range.addr().is_ipv4() { "192.0.2.251" } else { "2001:db8::251" };
            format!("ip route replace {range} via {via} dev eth0 proto 110")
        }
        2 => {
            let ((device, mac), _) = any(&plan.forwarding, pick)?;
            format!("bridge fdb del {mac} dev {} self", name(device))
        }
        3 => {
            let ((device, mac), endpoint) = any(&plan.forwarding, pick)?;
            let dst = if endpoint.is_ipv4() { "192.0.2.252" } else { "2001:db8::252" };
            format!("bridge fdb replace {mac} dev {} dst {dst} self permanent", name(device))
        }
        4 => {
            let ((device, address), _) = any(&plan.neighbours, pick)?;
            format!("ip neigh del {address} dev {}", name(device))
        }
        5 => {
            let ((device, address), _) = any(&plan.neighbours, pick)?;
            format!("ip neigh replace {address} lladdr 02:00:00:00:00:99 dev {} nud permanent", name(device))
        }
        6 => format!("ip link del {}", name(any(&plan.devices, pick)?.0)),
        7 => format!("ip link set {} down", name(any(&plan.devices, pick)?.0)),
        8 => format!("ip link set {} mtu 1399", name(any(&plan.devices, pick)?.0)),
        9 => format!("ip addr flush dev {} scope global", name(any(&plan.devices, pick)?.0)),
        _ => {
            any(&plan.routes, pick)?;
            "ip route flush proto 110".to_owned()
        }
    })
}

#[test]
fn after_any_history_the_kernel_is_what_the_planner_says() {
    let soak: u32 = std::env::var("NETLOOM_SOAK").map_or(0, |n| n.parse().expect("NETLOOM_SOAK is a number of histories"));
    let mut runner = TestRunner::new(Config { failure_persistence: None, max_shrink_iters: 200, ..Config::with_cases(24 + soak) });
    let (steps, spoilt) = (Cell::new(0), Cell::new(0));
    let done = runner.run(&vec(step(), 4..14), |history| {
        let mut world = World::new();
        world.follow();
        for step in &history {
            world.step(step);
            let is_spoilt = match step {
                Step::Spoil(..) => {
                    let wanted = world.possible(world.plan());
                    oracle::kernel(&world.space) != oracle::wanted(&world.space, &wanted)
                }
                _ => false,
            };
            let noticed = world.follow();
            assert!(noticed || !is_spoilt, "{step:?} was not noticed");
            steps.set(steps.get() + 1);
            spoilt.set(spoilt.get() + u32::from(is_spoilt));
        }
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    println!("{} steps, {} of them spoilt something", steps.get(), spoilt.get());
    assert!(spoilt.get() > 10, "{}", spoilt.get());
}
