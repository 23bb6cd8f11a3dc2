//! Pods of one node wait and a pool has no free block, while other nodes have blocks that nobody uses: they are asked for them.
//!
//! ```text
//!   lacks a block for which pods wait                      100 %
//!   less what is on its way back already
//!     from nodes that have more than they want             those with most above it first
//!     then from those whose blocks are kept in store       those with the fewest addresses in use first
//! ```
//!
//! What nodes have told may be old, and what is in use may lie in all of their blocks: who was asked and has returned nothing yet stays asked, and
//! others are asked besides, in one decision after the other, 64 at the most.
//!
//! Who is asked is told how many blocks it may keep ([`api::GrantedFamily::keep`]), and returns at once what is wholly free above that:
//! `releaseDelay`, `maxAboveWatermark` and `preAllocate` are for times in which there is enough. What a node has in use, and its
//! `minAllocate`, stays. Nothing is remembered: when nobody waits any more nobody is asked.

use std::cmp::Reverse;
use std::collections::HashMap;

use api::CellState;
use pool::Family;

use crate::demand::{Half, block_size, wanted};
use crate::index::Index;

/// So many nodes are asked at a time for blocks of a pool and family.
const MOST: usize = 64;

/// A node that has blocks of which nothing is in use, by what it told last.
struct Giver<'a> {
    node: &'a str,
    uid: &'a str,
    has: u64,
    /// So many blocks more than it wants.
    above: u64,
    /// So many blocks more than it needs for what is in use.
    spare: u64,
    in_use: u64,
    /// So many blocks it was asked to keep, if it was asked before.
    keeps: Option<u64>,
}

impl<'a> Index<'a> {
    /// Asks for as many blocks of a pool and family as pods wait for; how many nodes are asked.
    pub(crate) fn ask(&mut self, (name, family): Half<'a>, waited_for: u64) -> u64 {
        let mut left = waited_for.saturating_sub(self.coming(name, family));
        let mut givers = self.givers(name, family);
        if left == 0 || givers.is_empty() {
            return 0;
        }
        givers.sort_by_key(|giver| (giver.keeps.is_none(), Reverse(giver.above), giver.in_use, giver.node));
        let mut asked = 0;
        for giver in givers.into_iter().take(MOST) {
            let keep = match giver.keeps {
                Some(keep) => keep.min(giver.has.saturating_sub(1)),
                None if left == 0 => break,
                None => {
                    let share = giver.spare.min(left);
                    left -= share;
                    giver.has - share
                }
            };
            asked += 1;
            self.asked.insert((giver.uid, name, family), keep);
        }
        asked
    }

    /// How many blocks of a pool and family are on their way back.
    fn coming(&self, name: &str, family: Family) -> u64 {
        let nets = self.nets.iter().filter(|((_, of), _)| *of == family).map(|(_, net)| net);
        let cells = nets.flat_map(|net| net.shards.values()).filter_map(|draft| draft.spec()).flat_map(|spec| spec.cells.values());
        cells.filter(|cell| cell.state == CellState::Returning && cell.pool == name).count() as u64
    }

    fn givers(&self, name: &'a str, family: Family) -> Vec<Giver<'a>> {
        let world = self.world;
        let Some(Ok(pool)) = self.pools.get(name) else { return Vec::new() };
        let open = self.nets.get(&(pool.spec.network.clone(), family)).is_some_and(|net| net.is_open());
        if !open {
            return Vec::new();
        }
        let (held, size) = (self.held(), block_size(pool, family));
        let held: HashMap<&str, u64> =
            held.into_iter().filter(|((_, p, f), _)| *p == name && *f == family).map(|((uid, ..), n)| (uid, n)).collect();
        let giver = |(node, seen): (&'a String, &'a crate::NodePoolSeen)| {
            let known = world.nodes.get(node).filter(|known| known.uid == seen.spec.node_uid)?;
            let demand = seen.status.demand.iter().find(|demand| demand.pool == name && !demand.waiting)?;
            let has = held.get(known.uid.as_str()).copied()?;
            let in_use = if family == Family::V4 { demand.in_use_v4 } else { demand.in_use_v6 };
            // Claims' addresses are in no block of the node's.
            let claims =
                seen.spec.ips.iter().filter(|ip| ip.pool == name && ip.ip.parse().is_ok_and(|ip| Family::of(ip) == family)).count();
            let in_use = in_use.saturating_sub(claims as u64);
            let terms = seen.spec.pools.get(name);
            let terms = terms.and_then(|terms| if family == Family::V4 { terms.ipv4.as_ref() } else { terms.ipv6.as_ref() });
            let spare = has.checked_sub(in_use.max(pool.spec.scaling.min_allocate).div_ceil(size)).filter(|spare| *spare > 0)?;
            let above = has.saturating_sub(wanted(demand, family, pool).0);
            Some(Giver { node, uid: &known.uid, has, above, spare, in_use, keeps: terms.and_then(|terms| terms.keep) })
        };
        world.node_pools.iter().filter_map(giver).collect()
    }
}
