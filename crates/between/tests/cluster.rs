//! Clusters with any history: what the plans of all nodes do to a packet is what a few nested loops say of it, and no step from one plan to the
//! next cuts off a peer that it does not concern.
//!
//! `NETLOOM_SOAK=N` adds N cases to each property.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "cluster/follow.rs"]
mod follow;
#[path = "cluster/kernel.rs"]
mod kernel;
#[path = "cluster/oracle.rs"]
mod oracle;
#[path = "cluster/world.rs"]
mod world;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use netloom_between::{Family, Plan, Planner};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use follow::Kind;
use oracle::Oracle;
use world::{World, history};

/// How packets travel, and WireGuard's ports.
type Path = (Kind, Option<(u16, u16)>);

fn runner() -> TestRunner {
    let soak: u32 = std::env::var("NETLOOM_SOAK").map_or(0, |n| n.parse().expect("NETLOOM_SOAK is a number of cases"));
    TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(2000 + soak) })
}

/// Counts what was looked at, so that a property that holds because nothing happens is noticed.
#[derive(Default)]
struct Tally(Cell<[u32; 4]>);

impl Tally {
    fn add(&self, which: usize) {
        let mut all = self.0.get();
        all[which] += 1;
        self.0.set(all);
    }
}

fn plans(world: &World) -> BTreeMap<String, Plan> {
    world.nodes().map(|name| (name.clone(), world.plan(name))).collect()
}

#[test]
fn a_packet_reaches_the_node_that_owns_its_address_and_no_other_one() {
    let (tally, refused) = (Tally::default(), Cell::new(0));
    let done = runner().run(&history(), |(mode, steps)| {
        let world = World::after(mode, &steps);
        let (oracle, plans) = (Oracle::of(&world), plans(&world));
        for (name, plan) in &plans {
            let mut routes = 0;
            for (owner, range) in oracle.owned() {
                let kind = oracle.path(name, owner, range);
                routes += usize::from(owner != name && kind.is_some());
            }
            assert_eq!(plan.routes.len(), routes, "{name}: {:#?}", plan.routes);
            assert_eq!(plan.mtu, oracle.mtu(name), "{name}");
            assert_eq!(plan.endpoints, oracle.endpoints(name), "{name}");
            let others = oracle.owned().iter().filter(|(owner, range)| owner != name && !oracle.is_local(name, range));
            for (_, range) in others.filter(|(owner, range)| oracle.is_encrypted(name, owner, range)) {
                assert!(plan.closed.contains(range), "{name}: {range}");
            }
            for address in world.addresses() {
                let is_closed = plan.closed.iter().any(|range| range.contains(&address));
                assert_eq!(is_closed, oracle.is_closed(name, address), "at {name} to {address}\n{world:#?}\n{plan:#?}");
                refused.set(refused.get() + u32::from(is_closed && oracle.owner(address).is_none()));
                let owner = oracle.owner(address);
                let expected = owner.filter(|(owner, _)| *owner != name).and_then(|(owner, range)| {
                    let kind = oracle.path(name, owner, range)?;
                    Some((owner.clone(), kind))
                });
                let found = follow::packet(&world, &oracle, &plans, name, address);
                tally.add(match found.as_ref().map(|fate| fate.kind) {
                    None => 0,
                    Some(Kind::Direct) => 1,
                    Some(Kind::Vxlan(_)) => 2,
                    Some(Kind::WireGuard(_)) => 3,
                });
                let found = found.map(|fate| (fate.node, fate.kind));
                assert_eq!(found, expected, "from {name} to {address}\n{world:#?}\n{plan:#?}");
            }
        }
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    assert!(tally.0.get().iter().all(|count| *count > 500) && refused.get() > 100, "{:?} {refused:?}", tally.0);
}

#[test]
fn both_ends_of_a_path_choose_the_same_kind() {
    let tally = Tally::default();
    let done = runner().run(&history(), |(mode, steps)| {
        let world = World::after(mode, &steps);
        let (oracle, plans) = (Oracle::of(&world), plans(&world));
        let mut paths: BTreeMap<(String, String, Family), Path> = BTreeMap::new();
        for name in plans.keys() {
            for address in world.addresses() {
                if let Some(fate) = follow::packet(&world, &oracle, &plans, name, address) {
                    let path = (fate.kind, fate.ports);
                    let before = paths.insert((name.clone(), fate.node, Family::of(address)), path);
                    assert!(before.is_none_or(|before| before == path), "from {name} to {address}");
                }
            }
        }
        for ((from, to, family), (kind, ports)) in &paths {
            let back = paths.get(&(to.clone(), from.clone(), *family));
            if let Some((back, ports_back)) = back.filter(|_| ports.is_none() || !oracle.is_contested(from, to)) {
                assert_eq!(kind, back, "{family} between {from} and {to}\n{world:#?}");
                assert_eq!(*ports, ports_back.map(|(theirs, mine)| (mine, theirs)), "{family} between {from} and {to}\n{world:#?}");
                tally.add(usize::from(*kind == Kind::Direct));
            }
        }
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    assert!(tally.0.get()[..2].iter().all(|count| *count > 500), "{:?}", tally.0);
}

#[test]
fn changes_lead_from_plan_to_plan_and_cut_off_nobody_else() {
    let tally = Tally::default();
    let done = runner().run(&history(), |(mode, steps)| {
        let mut world = World::new(mode);
        let mut before: BTreeMap<String, Plan> = BTreeMap::new();
        for step in &steps {
            world.step(step);
            // Two of them see enough.
            let now: BTreeMap<String, Plan> = world.nodes().take(2).map(|name| (name.clone(), world.plan(name))).collect();
            for (name, now) in &now {
                let none = Plan::default();
                let before = before.get(name).unwrap_or(&none);
                let (changes, untouched) = kernel::carry_out(before, now);
                if changes > 0 && untouched > 0 {
                    tally.add(0);
                }
            }
            before = now;
        }
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    // Routes that stay while others change.
    assert!(tally.0.get()[0] > 500, "{:?}", tally.0);
}

/// What a node learns of the others comes in any order.
#[test]
fn the_order_of_nodes_makes_no_difference() {
    let done = runner().run(&history(), |(mode, steps)| {
        let world = World::after(mode, &steps);
        let mut turned = world.clone();
        turned.turn();
        assert_eq!(plans(&world), plans(&turned));
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
}

/// A planner that has followed any history says what one says that sees the Nodes for the first time; and it knows most changes for small.
#[test]
fn what_is_planned_change_by_change_is_the_whole_plan() {
    let tally = Tally::default();
    let within: [IpNet; 2] = ["10.1.0.0/23", "fd01::/62"].map(|text| text.parse().unwrap());
    let done = runner().run(&history(), |(mode, steps)| {
        let mut world = World::new(mode);
        let mut planners: BTreeMap<String, Planner> = BTreeMap::new();
        // What is given away, for longer or shorter, and what it was.
        let mut in_use: BTreeMap<String, Vec<(Arc<Plan>, Plan)>> = BTreeMap::new();
        let mut before: BTreeSet<String> = BTreeSet::new();
        for (at, step) in steps.iter().enumerate() {
            world.step(step);
            let now: BTreeSet<String> = world.nodes().cloned().collect();
            // Some see every step, and others several at once.
            let owns: Vec<String> = now.iter().take(3).cloned().collect();
            for name in &owns {
                planners.entry(name.clone()).or_default();
            }
            for planner in planners.values_mut() {
                before.difference(&now).for_each(|gone| planner.remove(gone));
                world.members.iter().for_each(|member| planner.set(member.seen.clone()));
            }
            for name in owns.iter().enumerate().filter(|(which, _)| at % (which + 1) == 0).map(|(_, name)| name) {
                let (mut settings, own) = world.asked(name);
                // In every second history some ranges are outside of the cluster's.
                settings.within.extend(within.iter().filter(|_| steps.len() % 2 == 1));
                let planner = planners.get_mut(name).unwrap();
                let had = planner.changes();
                let planned = planner.plan(&settings, own).unwrap();
                let whole = netloom_between::plan(&settings, own, &world.seen()).unwrap();
                assert_eq!(*planned, whole, "{name} after {step:?}\n{world:#?}");
                tally.add(usize::from(planner.changes() > had));
                let in_use = in_use.entry(name.clone()).or_default();
                in_use.push((planned, whole));
                for (given, was) in in_use.iter() {
                    assert_eq!(**given, *was, "{name} after {step:?}: it was given away");
                }
                in_use.drain(..in_use.len() - 1 - at % 3 % in_use.len());
            }
            before = now;
        }
        Ok::<(), TestCaseError>(())
    });
    done.unwrap();
    println!("whole, by changes: {:?}", tally.0.get());
    assert!(tally.0.get()[..2].iter().all(|count| *count > 500), "{:?}", tally.0);
}
