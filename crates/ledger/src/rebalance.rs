//! Pods of one node wait and a pool has no free block, while other nodes have blocks that nobody uses: they are asked for them.
//!
//! ```text
//!   blocks that pods wait for
//!     less what is on its way back already
//!     from nodes that have more than they want             those with most above it first
//!     then from those whose blocks are kept in store       those with the fewest addresses in use first
//!     then from those with such blocks of another pool     where ranges of a network overlap
//! ```
//!
//! Which of its blocks a node of another pool gives back nobody can say: it is asked for all that it does not need, and others are asked
//! besides.
//!
//! Who tells that something is in use in each of its blocks can give none, and is not asked, nor stays asked: others get the question.
//! What nodes have told may be old: who was asked and has returned nothing yet stays asked until it has told, and others are asked besides, in one
//! decision after the other, 64 at the most.
//!
//! Who is asked is told how many blocks it may keep ([`api::GrantedFamily::keep`]), and returns at once what is wholly free above that:
//! `releaseDelay`, `maxAboveWatermark` and `preAllocate` are for times in which there is enough. What a node has in use, and its
//! `minAllocate`, stays. Nothing is remembered: when nobody waits any more nobody is asked.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use api::{Cell, CellState, Demand};
use pool::{Family, Run};

use crate::Pool;
use crate::demand::{BlockCounts, PoolFamily, block_size, wanted};
use crate::index::{Index, cells};

/// So many nodes are asked at a time for blocks of a pool and family.
const MOST: usize = 64;

/// A node that has blocks of which nothing is in use, by what it told last.
struct Giver<'a> {
    node: &'a str,
    uid: &'a str,
    pool: &'a str,
    has: u64,
    /// So many blocks more than it wants.
    above: u64,
    /// So many blocks more than it needs for what is in use, wherever that lies.
    spare: u64,
    in_use: u64,
    /// So many blocks it was asked to keep, if it was asked before.
    keeps: Option<u64>,
}

/// How many blocks of a pool those may keep who are asked, by the node's UID.
pub(crate) type KeepRequests<'a> = HashMap<(&'a str, &'a str, Family), u64>;

impl<'a> Index<'a> {
    /// Who is asked for as many blocks of pools and families as pods wait for.
    pub(crate) fn ask(&self, short: &[(PoolFamily<'a>, u64)]) -> KeepRequests<'a> {
        if short.is_empty() {
            return KeepRequests::new();
        }
        let held = self.held();
        short.iter().flat_map(|(half, waited_for)| self.ask_of(*half, *waited_for, &held)).collect()
    }

    fn ask_of(&self, (name, family): PoolFamily<'a>, waited_for: u64, held: &BlockCounts<'_>) -> KeepRequests<'a> {
        let mut asked = KeepRequests::new();
        let mut left = waited_for.saturating_sub(self.coming(name, family));
        if left == 0 {
            return asked;
        }
        let mut givers = self.givers(name, family, held);
        let overlapping = self.overlapping((name, family));
        for other in self.pools.keys().copied().filter(|other| overlapping.iter().any(|(_, pool)| pool == other)) {
            let of_other = self.givers(other, family, held).into_iter();
            givers.extend(of_other.filter(|giver| overlapping.contains(&(giver.uid, giver.pool))));
        }
        let is_others = |giver: &Giver<'_>| giver.pool != name;
        givers.sort_by_key(|giver| (giver.keeps.is_none(), is_others(giver), Reverse(giver.above), giver.in_use, giver.node));
        for giver in givers.into_iter().take(MOST) {
            let keep = match giver.keeps {
                Some(keep) => keep.min(giver.has.saturating_sub(1)),
                None if left == 0 => break,
                None if is_others(&giver) => giver.has - giver.spare,
                None => {
                    let share = giver.spare.min(left);
                    left -= share;
                    giver.has - share
                }
            };
            asked.insert((giver.uid, giver.pool, family), keep);
        }
        asked
    }

    /// How many blocks of a pool and family are on their way back.
    fn coming(&self, name: &str, family: Family) -> u64 {
        self.of_network(name, family).filter(|(cell, _)| cell.state == CellState::Returning).count() as u64
    }

    /// The nodes, by UID, that have blocks of other pools among the addresses of this one, and those pools.
    fn overlapping(&self, (name, family): PoolFamily<'_>) -> HashSet<(&str, &str)> {
        let of_others = self.of_network(name, family).filter(|(cell, is_own)| cell.state == CellState::Granted && !is_own);
        of_others.map(|(cell, _)| (cell.node_uid.as_str(), cell.pool.as_str())).collect()
    }

    /// The cells that a pool has, and those of other pools that have its addresses; whether each is its own.
    fn of_network(&self, name: &str, family: Family) -> impl Iterator<Item = (&Cell, bool)> {
        let pool = self.pools.get(name).and_then(|pool| pool.as_ref().ok());
        let usable: Vec<Run> = pool.map(Pool::all_usable).unwrap_or_default();
        let net = pool.and_then(|pool| self.nets.get(&(pool.spec.network.clone(), family)));
        let cells = net.into_iter().flat_map(|net| net.shards.values()).filter_map(|draft| draft.spec()).flat_map(cells);
        cells.filter_map(move |(place, cell)| {
            let is_own = cell.pool == name;
            let is_there = || usable.iter().any(|run| run.common(&place.run()).is_some());
            (is_own || is_there()).then_some((cell, is_own))
        })
    }

    fn givers(&self, name: &'a str, family: Family, held: &BlockCounts<'_>) -> Vec<Giver<'a>> {
        let world = self.world;
        let Some(Ok(pool)) = self.pools.get(name) else { return Vec::new() };
        let open = self.nets.get(&(pool.spec.network.clone(), family)).is_some_and(|net| net.is_open());
        if !open {
            return Vec::new();
        }
        let (size, is_ipv4) = (block_size(pool, family), family == Family::V4);
        // Who has told and names no demand has nothing in use, and keeps what it has for the pool's release delay alone.
        let none = Demand::default();
        let giver = |(node, seen): (&'a String, &'a crate::NodePoolSeen)| {
            let known = world.nodes.get(node).filter(|known| known.uid == seen.spec.node_uid)?;
            let told = seen.status.demand.iter().find(|demand| demand.pool == name);
            let demand = told.or_else(|| seen.status.is_told().then_some(&none)).filter(|demand| !demand.waiting)?;
            let has = held.get(&(known.uid.as_str(), name, family)).copied()?;
            // Claims' addresses are in no block of the node's.
            let claims =
                seen.spec.ips.iter().filter(|ip| ip.pool == name && ip.ip.parse().is_ok_and(|ip| Family::of(ip) == family)).count();
            let in_use = demand.in_use(is_ipv4).saturating_sub(claims as u64);
            let terms = seen.spec.pools.get(name).and_then(|terms| terms.family(is_ipv4));
            let needs = in_use.max(pool.spec.scaling.min_allocate).div_ceil(size).max(demand.blocks(is_ipv4));
            let spare = has.checked_sub(needs).filter(|spare| *spare > 0)?;
            let above = has.saturating_sub(wanted(demand, family, pool).0);
            Some(Giver { node, uid: &known.uid, pool: name, has, above, spare, in_use, keeps: terms.and_then(|terms| terms.keep) })
        };
        world.node_pools.iter().filter_map(giver).collect()
    }
}
