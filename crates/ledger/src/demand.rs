//! Who needs blocks, and which ones they get.

use std::collections::{BTreeMap, HashMap};

use api::{Cell, CellState, Demand};
use pool::{Family, Run};

use crate::grid::CellPosition;
use crate::index::{Index, cells};
use crate::runs::count;
use crate::size_budget::SizeBudget;
use crate::{Pool, Snapshot};

/// A pool and a family of it.
pub(crate) type PoolFamily<'a> = (&'a str, Family);

/// So many blocks of a pool and family a node gets in one step: what one of them says it needs costs the others little.
const AT_ONCE: u64 = 64;

/// How many blocks of a pool and family a node has, by the node's UID.
pub(crate) type BlockCounts<'a> = HashMap<(&'a str, &'a str, Family), u64>;

/// How it stands with a pool and a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// So many blocks are needed by nodes that have too few, before this step; 64 of each node count at the most.
    pub needed: u64,
    /// So many of them are entered in the ledger by this step.
    pub served: u64,
    /// Nodes have so many blocks, this step's too.
    pub granted: u64,
    /// So many nodes have too few after this step.
    pub in_deficit: u64,
    /// So many nodes have all that a node may have of it.
    pub at_capacity: u64,
    /// So many nodes get none of it as no more goes into their objects ([`MOST_BYTES`](crate::MOST_BYTES)).
    pub full: u64,
    /// So many nodes are asked for blocks that nobody uses there, as pods of other nodes wait.
    pub asked: u64,
    /// So many CiliumNodes lack so many single addresses after this step, as there are no more.
    pub short_addresses: (u64, u64),
}

/// The nodes that need more of a pool and family than they have.
struct Needs<'a> {
    of: PoolFamily<'a>,
    /// From which cells they get it; `None`: nothing of it is granted, or nobody needs it.
    from: Option<(Pool, Cursor)>,
    all: Vec<Need<'a>>,
    tally: Tally,
}

/// A node that has too few.
struct Need<'a> {
    node: &'a str,
    uid: &'a str,
    has: u64,
    lacks: u64,
    /// So many it would have without what it wants in store.
    bare: u64,
    /// So many of those that it lacks are its stock, which it gets where there is plenty.
    stock: u64,
    /// No more goes into its object.
    full: bool,
    /// Pods wait for it there.
    waiting: bool,
}

/// The cells of a pool from which somebody may get an address, in order; each is looked at once in a step.
pub(crate) struct Cursor {
    runs: std::vec::IntoIter<Run>,
    now: Option<(CellPosition, Run)>,
    prefix: u8,
}

// === impl Index ===

impl<'a> Index<'a> {
    /// Grants what is needed. Pods that wait come first, of whichever pool; then, where there is not enough for all, a node that has
    /// nothing, then the one that lacks most. Each gets one block at a time.
    pub(crate) fn grant(&mut self) -> BTreeMap<(String, Family), Tally> {
        let (mut tallies, mut room, mut short) = (BTreeMap::new(), SizeBudget::of(self), Vec::new());
        let mut all = self.all_needs();
        // What lies in several pools is for pods that wait for any of them before it is in store for another one.
        for half in &mut all {
            self.serve(half, &mut room, |need| need.waited_for());
        }
        for half in &mut all {
            self.keep_the_rest_for_pods(half);
            self.serve(half, &mut room, |need| need.lacks);
        }
        for Needs { of: (name, family), from, all: needs, mut tally } in all {
            tally.granted += tally.served;
            tally.in_deficit = needs.iter().filter(|need| need.lacks > 0).count() as u64;
            tally.full = needs.iter().filter(|need| need.full).count() as u64;
            tallies.insert((name.to_owned(), family), tally);
            let waited_for: u64 = needs.iter().map(Need::waited_for).sum();
            if from.is_some() && waited_for > 0 {
                short.push(((name, family), waited_for));
            }
        }
        let asked = self.ask(&short);
        for (_, name, family) in asked.keys() {
            if let Some(tally) = tallies.get_mut(&((*name).to_owned(), *family)) {
                tally.asked += 1;
            }
        }
        self.asked = asked;
        tallies
    }

    /// Of each pool that can be read, and each family of it: who needs more than it has.
    fn all_needs(&self) -> Vec<Needs<'a>> {
        let (world, has) = (self.world, self.held());
        let pools = self.pools.iter().filter_map(|(name, pool)| Some((*name, pool.as_ref().ok()?)));
        let halves = pools.flat_map(|(name, pool)| crate::adopt::families(pool).map(move |family| (name, family, pool)));
        let of = |(name, family, pool): (&'a str, Family, &Pool)| {
            let (all, tally) = needs(world, (name, family), pool, &has);
            let is_open = world.pools.get(name).is_some_and(|seen| seen.finalizer && !seen.deleting);
            let from = (is_open && tally.needed > 0).then(|| (pool.clone(), Cursor::of(pool, family)));
            Needs { of: (name, family), from, all, tally }
        };
        halves.map(of).collect()
    }

    /// How many blocks of which pool each node has.
    pub(crate) fn held(&self) -> BlockCounts<'_> {
        let mut has = BlockCounts::new();
        for ((_, family), net) in &self.nets {
            let cells = net.shards.values().filter_map(|draft| draft.spec()).flat_map(|spec| spec.cells.values());
            for cell in cells.filter(|cell| cell.state == CellState::Granted) {
                *has.entry((&cell.node_uid, &cell.pool, *family)).or_default() += 1;
            }
        }
        has
    }

    /// Whether less than a quarter of a pool's blocks are free: what is left is for pods that are there.
    fn is_nearly_full(&self, pool: &Pool, family: Family) -> bool {
        let of_pool: Vec<Run> = pool.all_usable().into_iter().filter(|run| run.family() == family).collect();
        let blocks =
            count(&of_pool, family) / Run::network(of_pool.first().map_or(family.address(0), Run::first), pool.block(family)).count();
        let Some(net) = self.nets.get(&(pool.spec.network.clone(), family)) else { return true };
        let is_taken = |(place, cell): &(CellPosition, &Cell)| {
            cell.state != CellState::Free && of_pool.iter().any(|run| run.common(&place.run()).is_some())
        };
        let taken = net.shards.values().filter_map(|draft| draft.spec()).flat_map(cells).filter(is_taken).count() as u128;
        blocks.saturating_sub(taken) < blocks / 4
    }

    /// Takes off what nodes want in store, where little is left.
    fn keep_the_rest_for_pods(&self, needs: &mut Needs<'_>) {
        let Needs { of: (_, family), from: Some((pool, _)), all, tally } = needs else { return };
        if all.iter().any(|need| need.stock > 0) && self.is_nearly_full(pool, *family) {
            for need in all {
                need.lacks -= need.stock;
                tally.needed -= need.stock;
            }
        }
    }

    /// Grants as many blocks as `left` says that each node lacks, as long as there are any.
    fn serve(&mut self, needs: &mut Needs<'_>, room: &mut SizeBudget<'_>, left: impl Fn(&Need<'_>) -> u64) {
        let Needs { of: (name, family), from: Some((pool, cursor)), all, tally } = needs else { return };
        loop {
            all.sort_by_key(|need| (!need.waiting, need.has > 0, std::cmp::Reverse(need.lacks), need.node));
            let mut served = false;
            for need in all.iter_mut().filter(|need| left(need) > 0 && !need.full) {
                need.full = !room.take_block(need.uid, &pool.spec.network, name, *family);
                if need.full {
                    continue;
                }
                if !self.grant_one(pool, cursor, need) {
                    return;
                }
                (need.has, need.lacks, tally.served, served) = (need.has + 1, need.lacks - 1, tally.served + 1, true);
            }
            if !served {
                return;
            }
        }
    }

    fn grant_one(&mut self, pool: &Pool, cursor: &mut Cursor, need: &Need<'_>) -> bool {
        let network = pool.spec.network.as_str();
        let first_epoch = self.world.first_epoch;
        while let Some(place) = cursor.next() {
            if self.is_barred(network, &place) {
                cursor.skip_shard(&place);
                continue;
            }
            let reserved = self.is_reserved(network, &place) || self.is_in_cilium(network, &place.run());
            let Some(net) = self.nets.get_mut(&(network.to_owned(), place.run().family())) else { return false };
            if !net.is_open() {
                return false;
            }
            let shard = net.shards.get(&place.base().numbers().0);
            if shard.is_some_and(|draft| draft.is_full()) {
                cursor.skip_shard(&place);
                continue;
            }
            let free = net.cell(&place).is_none_or(|cell| cell.state == CellState::Free);
            if !free || reserved || self.touched.contains(&(network, place.run())) {
                continue;
            }
            let epoch = net.next_epoch(&place, first_epoch);
            let Some(slot) = net.cell_mut(network, &place, first_epoch) else { return false };
            *slot = Cell {
                state: CellState::Granted,
                epoch,
                node: need.node.to_owned(),
                node_uid: need.uid.to_owned(),
                pool: pool.spec.name.clone(),
                ips: BTreeMap::new(),
            };
            return true;
        }
        false
    }
}

// === impl Need ===

impl Need<'_> {
    /// So many blocks at least it needs for the pods that wait.
    fn waited_for(&self) -> u64 {
        if self.waiting && !self.full { self.bare.saturating_sub(self.has).min(self.lacks) } else { 0 }
    }
}

/// The nodes that need more of a pool than they have.
fn needs<'a>(world: &'a Snapshot, (name, family): PoolFamily<'a>, pool: &Pool, has: &BlockCounts<'_>) -> (Vec<Need<'a>>, Tally) {
    let mut tally =
        Tally { granted: has.iter().filter(|((_, p, f), _)| *p == name && *f == family).map(|(_, n)| *n).sum(), ..Tally::default() };
    let selector = world.pools.get(name).and_then(|seen| seen.spec.as_ref().ok()).and_then(|spec| spec.node_selector.as_ref());
    let mut needs = Vec::new();
    for (node, seen) in &world.node_pools {
        let Some(known) = world.nodes.get(node).filter(|known| known.uid == seen.spec.node_uid) else { continue };
        let Some(demand) = seen.status.demand.iter().find(|d| d.pool == name) else { continue };
        if !selector.is_none_or(|s| s.takes(&known.labels)) {
            continue;
        }
        let has = has.get(&(known.uid.as_str(), name, family)).copied().unwrap_or_default();
        let (wanted, most) = wanted(demand, family, pool);
        tally.at_capacity += u64::from(most.is_some_and(|most| has >= most));
        if let Some(lacks) = wanted.checked_sub(has).filter(|lacks| *lacks > 0) {
            let lacks = lacks.min(AT_ONCE);
            let bare = bare(demand, family, pool).min(wanted);
            // Of as many as it gets at once: where a stock is larger than that, what is lacking for pods is not taken for a part of it.
            let stock = lacks - unstocked(demand, family, pool).min(wanted).saturating_sub(has).min(lacks);
            needs.push(Need { node, uid: &known.uid, has, lacks, bare, stock, full: false, waiting: demand.waiting });
            tally.needed = tally.needed.saturating_add(lacks);
        }
    }
    (needs, tally)
}

/// How many blocks a node wants, and the most it may have. Less than one block is one block: there is nothing smaller. More than
/// [`api::MOST_BLOCKS`] is nobody's need: a node that says so is not well.
pub(crate) fn wanted(demand: &Demand, family: Family, pool: &Pool) -> (u64, Option<u64>) {
    let size = block_size(pool, family);
    let addresses = demand.needed(family == Family::V4);
    let most = pool.spec.scaling.max_allocate;
    let most = (most > 0).then(|| (most / size).max(1));
    let wanted = addresses.div_ceil(size).min(most.unwrap_or(u64::MAX)).min(api::MOST_BLOCKS);
    (wanted, most)
}

/// How many blocks it would want without a store, or one more.
fn bare(demand: &Demand, family: Family, pool: &Pool) -> u64 {
    unstocked(demand, family, pool).saturating_sub(pool.spec.scaling.pre_allocate / block_size(pool, family))
}

/// How many blocks it would want without its stock.
fn unstocked(demand: &Demand, family: Family, pool: &Pool) -> u64 {
    let is_ipv4 = family == Family::V4;
    demand.needed(is_ipv4).saturating_sub(demand.stock(is_ipv4)).div_ceil(block_size(pool, family))
}

/// The addresses of a block, as far as they can be counted.
pub(crate) fn block_size(pool: &Pool, family: Family) -> u64 {
    let host = u32::from(family.bits().saturating_sub(pool.block(family)));
    1_u64.checked_shl(host).unwrap_or(u64::MAX)
}

// === impl Cursor ===

impl Cursor {
    fn of(pool: &Pool, family: Family) -> Self {
        Cursor::over(pool.all_usable(), pool, family)
    }

    /// The cells of these addresses of a pool.
    pub(crate) fn over(runs: Vec<Run>, pool: &Pool, family: Family) -> Self {
        let runs: Vec<Run> = runs.into_iter().filter(|run| run.family() == family).collect();
        Cursor { runs: runs.into_iter(), now: None, prefix: pool.block(family) }
    }

    /// The next cell, none twice.
    pub(crate) fn next(&mut self) -> Option<CellPosition> {
        let behind = self.now.map(|(place, run)| (place.next().filter(|next| next.run().common(&run).is_some()), place, run));
        if let Some((Some(next), _, run)) = behind {
            self.now = Some((next, run));
            return Some(next);
        }
        loop {
            let run = self.runs.next()?;
            let mut place = CellPosition::of(run.first(), self.prefix);
            // A cell in which the run before has ended is not looked at again.
            if behind.as_ref().is_some_and(|(_, last, _)| *last == place) {
                match place.next().filter(|next| next.run().common(&run).is_some()) {
                    Some(next) => place = next,
                    None => continue,
                }
            }
            self.now = Some((place, run));
            return Some(place);
        }
    }

    /// Goes on behind the shard of a cell.
    pub(crate) fn skip_shard(&mut self, place: &CellPosition) {
        let Some((_, run)) = self.now else { return };
        let base = place.base();
        let last = run.common(&base).map_or(place.run(), |common| common);
        self.now = Some((CellPosition::of(last.last(), self.prefix), run));
    }
}
