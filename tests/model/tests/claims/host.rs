//! A node: what its agent knows, by `pool::Allocator` and what `ipam` makes of its object; and its containers, which have the address or not.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use api::Returning;
use netloom_model::canonical;
use pool::{Allocator, Ask, Block, Event, Family, Key, Moment, Refused, State, Want};

use crate::known::{Known, once};
use crate::operator::{CLAIM, NodePool, POOL, spec};

/// What an agent knows, as events.
type Store = Known<Vec<Vec<u8>>>;

/// What an agent knows, and whether a container has the address, whatever it knows: that of the node's pod, and that of a third one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) store: Store,
    pub(crate) has: [bool; 2],
}

/// What becomes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    /// Of one of the containers, whose pod migrates or not.
    Add(usize, bool),
    /// It takes what is there, whomever it is for.
    AddBlindly(usize),
    Del(usize),
    /// A node takes in its object, and stops what is recalled and nobody's.
    Follow(usize, NodePool),
    /// The same without a look whether somebody has it.
    FollowBlindly(usize, NodePool),
    /// What was given back is forgotten.
    Forget,
}

type Table<K, V> = LazyLock<Mutex<HashMap<K, V>>>;

static DONE: Table<(Host, Deed), Host> = LazyLock::new(Mutex::default);
static TOLD: Table<(Host, usize, NodePool), Known<Vec<Returning>>> = LazyLock::new(Mutex::default);
static ACTIVE: Table<Host, Known<Vec<u64>>> = LazyLock::new(Mutex::default);

fn key(container: usize) -> Key {
    Key { network: "n".into(), container: format!("c{container}"), ifname: "net1".into() }
}

/// Whose an address is for pods that migrate, or for the others.
fn owner(migrates: bool) -> String {
    if migrates { pool::migrating(CLAIM) } else { CLAIM.to_owned() }
}

/// What a node's object says, in the store; and what the node has given back before in that life.
fn take_in(allocator: &mut Allocator, node: usize, own: &NodePool) -> Vec<Returning> {
    let grants = ipam::node_grants(&spec(node, &own.ips), &own.returning);
    assert!(grants.unread.is_empty(), "{:?}", grants.unread);
    let of = |granted: &ipam::Granted, refused: Refused| {
        let Refused::Returned { run, .. } = refused else { return None };
        granted.blocks.iter().find(|(block, _)| block.run == run).map(|(block, _)| ipam::returning(block))
    };
    let pools = grants.pools.iter();
    pools.flat_map(|granted| granted.apply(allocator).unwrap().into_iter().filter_map(|refused| of(granted, refused))).collect()
}

fn follow(allocator: &mut Allocator, node: usize, own: &NodePool, stop: impl Fn(&mut Allocator, Block)) {
    take_in(allocator, node, own);
    for block in ipam::recalled(&spec(node, &own.ips)) {
        let is = |(b, s): (&Block, State)| b.is_life_of(&block) && s != State::Frozen;
        if allocator.blocks(POOL, Family::V4).any(is) {
            stop(allocator, block);
        }
    }
}

// === impl Host ===

impl Host {
    fn allocator(&self) -> Allocator {
        let mut allocator = Allocator::new(0);
        self.store.iter().for_each(|event| allocator.apply(&Event::decode(event).unwrap()));
        allocator
    }

    /// Does something, by the allocator itself.
    pub(crate) fn does(&mut self, deed: Deed) {
        let done = once(&DONE, (*self, deed), |(_, deed)| self.after(*deed));
        self.store = done.store;
        match deed {
            Deed::Add(..) | Deed::AddBlindly(_) | Deed::Del(_) => self.has = done.has,
            _ => {}
        }
    }

    fn after(&self, deed: Deed) -> Host {
        let (mut allocator, now) = (self.allocator(), Moment::default());
        let mut has = self.has;
        let add = |allocator: &mut Allocator, n: usize, claim: String| {
            let wants = vec![Want { pool: POOL.into(), family: Family::V4, address: None }];
            allocator.reserve(&Ask { key: key(n), pod: None, claim: Some(claim), wants }, &now).is_ok()
        };
        match deed {
            Deed::Add(n, migrates) => has[n] = add(&mut allocator, n, owner(migrates)),
            Deed::AddBlindly(n) => has[n] = [true, false].into_iter().any(|migrates| add(&mut allocator, n, owner(migrates))),
            Deed::Del(n) => {
                has[n] = false;
                drop(allocator.release(&key(n), None, &now));
            }
            Deed::Follow(node, own) => follow(&mut allocator, node, &own, |all, block| drop(all.freeze(POOL, block.run, &now))),
            Deed::FollowBlindly(node, own) => follow(&mut allocator, node, &own, |all, block| {
                all.apply(&Event::Frozen { pool: block.pool, run: block.run, epoch: block.epoch });
            }),
            Deed::Forget => {
                let events = allocator.events();
                allocator = Allocator::new(0);
                events.iter().filter(|event| !matches!(event, Event::BlockGone { .. })).for_each(|event| allocator.apply(event));
            }
        }
        Host { store: Known::new(canonical(&allocator).iter().map(Event::encode).collect()), has }
    }

    /// What its agent tells that it gives back.
    pub(crate) fn returning(self, node: usize, own: NodePool) -> Known<Vec<Returning>> {
        once(&TOLD, (self, node, own), |_| {
            let stale = take_in(&mut self.allocator(), node, &own);
            let allocator = self.allocator();
            let frozen = allocator.blocks(POOL, Family::V4).filter(|(_, state)| *state == State::Frozen);
            let mut returning: Vec<Returning> = frozen.map(|(block, _)| ipam::returning(block)).chain(stale).collect();
            returning.sort();
            returning.dedup();
            Known::new(returning)
        })
    }

    /// The lives in which it may hand the address out.
    pub(crate) fn active(self) -> Known<Vec<u64>> {
        once(&ACTIVE, self, |_| {
            let allocator = self.allocator();
            let active = allocator.blocks(POOL, Family::V4).filter(|(_, state)| *state == State::Active);
            Known::new(active.map(|(block, _)| block.epoch).collect())
        })
    }
}
