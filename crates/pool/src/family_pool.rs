//! One pool's addresses of one family on this node, and which of them comes next.
//!
//! ```text
//!   never handed out (a cursor a block) ---> held ---> cooling (in line) ---> ready (in line) ---> held ...
//!                                             \-- undone before anybody saw it --> ready, in front
//! ```
//!
//! An address costs memory from the moment it was first handed out: a block may have 2^64 addresses. There is no bitmap: what
//! is never handed out is what lies behind a cursor, and everything else has an entry anyway, with its holder's name.

use std::collections::{BTreeMap, BTreeSet};

use crate::address_table::AddressTable;
use crate::queue::Queue;
use crate::spec::{Block, Order, Spec};
use crate::{Event, Family, Moment, Run, Unavailable};

/// So many addresses that somebody had are remembered before they come again ahead of those that nobody had.
const REMEMBERED: usize = 4096;
/// How often chance is tried before the next one in line is taken.
const THROWS: u32 = 32;

/// One pool's blocks of one family.
#[derive(Debug, Clone)]
pub(crate) struct FamilyPool {
    family: Family,
    pub(crate) blocks: BTreeMap<u128, Area>,
    /// Blocks with addresses that nobody had yet.
    pub(crate) fresh: BTreeSet<u128>,
    /// The one of them that is being used up.
    open: Option<u128>,
    pub(crate) cooling: Queue,
    ready: Queue,
    pub(crate) quarantined: BTreeSet<u128>,
    pub(crate) held: u64,
}

/// A block, and how far it is used up.
#[derive(Debug, Clone)]
pub(crate) struct Area {
    pub(crate) block: Block,
    pub(crate) state: State,
    /// What may be handed out to whoever asks for any address, in order.
    pub(crate) usable: Vec<Run>,
    /// The first number that nobody had yet; `None` behind the last one.
    cursor: Option<u128>,
}

/// What becomes of a block's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// They are handed out.
    Active,
    /// Never again: the block is being given back. For ever in this epoch.
    Frozen,
    /// Not any more: the pool has not these addresses now. Who holds one keeps it.
    Withdrawn,
}

// === impl Area ===

impl Area {
    fn new(block: Block, spec: &Spec, state: State) -> Self {
        let usable = if block.claim.is_some() { Vec::new() } else { spec.usable(block.run) };
        Area { cursor: Some(block.run.numbers().0), block, state, usable }
    }

    /// How many of its addresses nobody gets. One that is kept for a claim, and one that is given back, count for nothing.
    pub(crate) fn unusable(&self) -> u64 {
        let usable = match self.state {
            State::Frozen => return 0,
            _ if self.block.claim.is_some() => return 0,
            State::Withdrawn => 0,
            State::Active => self.usable.iter().fold(0, |sum, run| run.count().saturating_add(sum)),
        };
        u64::try_from(self.block.run.count().saturating_sub(usable)).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_usable(&self, number: u128) -> bool {
        let at = self.usable.partition_point(|run| run.numbers().1 < number);
        self.state == State::Active && self.usable.get(at).is_some_and(|run| run.numbers().0 <= number)
    }

    /// The addresses that may be handed out, from this one on.
    fn from(&self, number: u128) -> impl Iterator<Item = u128> {
        let at = self.usable.partition_point(|run| run.numbers().1 < number);
        self.usable.get(at..).unwrap_or_default().iter().map(Run::numbers).flat_map(move |(first, last)| first.max(number)..=last)
    }

    /// Whether some of it is nobody's.
    fn has_free(&self, space: &AddressTable) -> bool {
        let all = self.usable.iter().fold(0_u128, |sum, run| sum.saturating_add(run.count()));
        let taken: usize = self.usable.iter().map(|run| space.of(*run).count()).sum();
        self.state == State::Active && (taken as u128) < all
    }

    /// The next one that nobody had, but none of these. The cursor comes to the first that is left, whoever gets it.
    fn next(&mut self, skip: impl Fn(u128) -> bool, chosen: &[u128]) -> Option<u128> {
        let mut number = self.cursor.take()?;
        let at = self.usable.partition_point(|run| run.numbers().1 < number);
        for run in self.usable.get(at..).unwrap_or_default() {
            let (first, last) = run.numbers();
            number = number.max(first);
            while number <= last {
                if !skip(number) {
                    self.cursor = self.cursor.or(Some(number));
                    if !chosen.contains(&number) {
                        return Some(number);
                    }
                }
                number = number.checked_add(1)?;
            }
        }
        None
    }
}

// === impl FamilyPool ===

impl FamilyPool {
    pub(crate) fn new(family: Family) -> Self {
        FamilyPool {
            family,
            blocks: BTreeMap::new(),
            fresh: BTreeSet::new(),
            open: None,
            cooling: Queue::default(),
            ready: Queue::default(),
            quarantined: BTreeSet::new(),
            held: 0,
        }
    }

    pub(crate) fn area(&self, number: u128) -> Option<&Area> {
        covering(&self.blocks, number)
    }

    pub(crate) fn insert(&mut self, block: Block, spec: &Spec, state: State) {
        let first = block.run.numbers().0;
        let area = Area::new(block, spec, state);
        if state == State::Active && !area.usable.is_empty() {
            self.fresh.insert(first);
        }
        self.blocks.insert(first, area);
    }

    /// The pool's terms have changed: what is usable is worked out anew, and looked for from the beginning.
    pub(crate) fn follow(&mut self, spec: &Spec) {
        let blocks = std::mem::take(&mut self.blocks);
        self.fresh.clear();
        for area in blocks.into_values() {
            self.insert(area.block, spec, area.state);
        }
        let blocks = &self.blocks;
        self.ready.retain(|number| covering(blocks, number).is_some_and(|area| area.is_usable(number)));
    }

    pub(crate) fn set(&mut self, first: u128, state: State) {
        let Some(area) = self.blocks.get_mut(&first) else { return };
        area.state = state;
        if state != State::Active {
            self.fresh.remove(&first);
            let run = area.block.run.numbers();
            self.ready.retain(|number| !(run.0..=run.1).contains(&number));
        }
    }

    pub(crate) fn remove(&mut self, first: u128) -> Option<Area> {
        let area = self.blocks.remove(&first)?;
        let run = area.block.run.numbers();
        let outside = |number: u128| !(run.0..=run.1).contains(&number);
        self.fresh.remove(&first);
        self.ready.retain(outside);
        self.cooling.retain(outside);
        self.quarantined.retain(|number| outside(*number));
        Some(area)
    }

    /// Moves what has cooled down into the line of those that are free.
    pub(crate) fn settle(&mut self, space: &mut AddressTable, spec: &Spec, now: &Moment) {
        while let Some(number) = self.cooling.front() {
            match space.get(self.family, number) {
                // Somebody has it of another pool that has the same addresses.
                Some(Unavailable::Held(_)) => {
                    self.cooling.pop();
                    continue;
                }
                Some(taken) if taken.frees_in(spec.reuse.cooldown, now) != Some(0) => break,
                Some(_) | None => {}
            }
            self.cooling.pop();
            space.remove(self.family, number);
            self.line_up(number, spec);
        }
        let over = |number: &u128| space.get(self.family, *number).is_none_or(|t| t.frees_in(0, now) == Some(0));
        let healed: Vec<u128> = self.quarantined.iter().copied().filter(over).collect();
        for number in healed {
            self.quarantined.remove(&number);
            space.remove(self.family, number);
            self.line_up(number, spec);
        }
    }

    /// In how many milliseconds the next one has rested long enough.
    pub(crate) fn next_free(&self, space: &AddressTable, spec: &Spec, now: &Moment) -> Option<u64> {
        let frees = |number: u128, cooldown: u64| space.get(self.family, number).and_then(|taken| taken.frees_in(cooldown, now));
        let cooled = self.cooling.front().and_then(|number| frees(number, spec.reuse.cooldown));
        let healed = self.quarantined.iter().filter_map(|number| frees(*number, 0)).min();
        cooled.into_iter().chain(healed).min()
    }

    fn line_up(&mut self, number: u128, spec: &Spec) {
        if !self.area(number).is_some_and(|area| area.is_usable(number)) {
            return;
        }
        match spec.reuse.order {
            Order::Lowest => self.ready.sort_in(number),
            Order::Fifo | Order::Random => self.ready.push(number),
        }
    }

    /// It was handed out, out of the line or from behind the cursor, and nobody has seen it.
    pub(crate) fn put_back(&mut self, number: u128, spec: &Spec) {
        self.unhold();
        // Who asked for it by name may have taken it from before the cursor, where it is as it was.
        let passed = |area: &Area| area.is_usable(number) && area.cursor.is_none_or(|cursor| number < cursor);
        match spec.reuse.order {
            _ if !self.area(number).is_some_and(passed) => {}
            Order::Lowest => self.ready.sort_in(number),
            Order::Fifo | Order::Random => self.ready.push_front(number),
        }
    }

    /// The address that comes next, and is nobody's, nor one of these. It comes next until somebody holds it.
    pub(crate) fn next(&mut self, space: &AddressTable, order: Order, chosen: &[u128], chance: &mut u64) -> Option<u128> {
        match order {
            Order::Fifo => self.first_in_line(space, chosen),
            Order::Lowest => self.of_line(space, chosen).into_iter().chain(self.of_new(space, chosen)).min(),
            Order::Random => self.any(space, chosen, chance).or_else(|| self.first_in_line(space, chosen)),
        }
    }

    fn first_in_line(&mut self, space: &AddressTable, chosen: &[u128]) -> Option<u128> {
        if self.ready.len() > REMEMBERED
            && let Some(number) = self.of_line(space, chosen)
        {
            return Some(number);
        }
        // A block that nobody uses is opened last: it can be given back.
        let open = self.open.and_then(|first| self.of_block(first, space, chosen));
        open.or_else(|| self.of_line(space, chosen)).or_else(|| self.of_new(space, chosen))
    }

    /// The first one that is free and in no line, wherever the cursors are; none of these.
    pub(crate) fn behind(&self, space: &AddressTable, chosen: &[u128]) -> Option<u128> {
        let is_free = |n: &u128| !chosen.contains(n) && !self.ready.contains(*n) && space.get(self.family, *n).is_none();
        self.blocks.values().filter(|area| area.has_free(space)).find_map(|area| area.from(0).find(is_free))
    }

    /// How many are free besides these, counted up to so many. `behind`: those are counted as well that a cursor has passed.
    pub(crate) fn free_up_to(&self, most: usize, space: &AddressTable, chosen: &[u128], behind: bool) -> usize {
        let is_free = |n: &u128| !chosen.contains(n) && space.get(self.family, *n).is_none();
        let active = self.blocks.values().filter(|area| area.state == State::Active);
        let in_blocks = active.filter_map(|area| Some(area.from(if behind { 0 } else { area.cursor? }))).flatten();
        let in_blocks = in_blocks.filter(|n| is_free(n) && !self.ready.contains(*n));
        self.ready.iter().filter(is_free).chain(in_blocks).take(most).count()
    }

    /// Looks for free addresses from the beginning of each block again.
    pub(crate) fn rewind(&mut self, space: &AddressTable) {
        for (first, area) in self.blocks.iter_mut().filter(|(_, area)| area.has_free(space)) {
            area.cursor = Some(*first);
            self.fresh.insert(*first);
        }
    }

    fn of_line(&mut self, space: &AddressTable, chosen: &[u128]) -> Option<u128> {
        let is_taken = |number: u128| space.get(self.family, number).is_some();
        // Somebody has it of another pool that has the same addresses.
        while self.ready.front().is_some_and(is_taken) {
            self.ready.pop();
        }
        self.ready.iter().find(|number| !chosen.contains(number) && !is_taken(*number))
    }

    fn of_block(&mut self, first: u128, space: &AddressTable, chosen: &[u128]) -> Option<u128> {
        if !self.fresh.contains(&first) {
            return None;
        }
        let (family, ready) = (self.family, &self.ready);
        let area = self.blocks.get_mut(&first)?;
        let found = area.next(|n| space.get(family, n).is_some() || ready.contains(n), chosen);
        if area.cursor.is_none() {
            self.fresh.remove(&first);
        }
        found
    }

    fn of_new(&mut self, space: &AddressTable, chosen: &[u128]) -> Option<u128> {
        let mut from = 0;
        while let Some(first) = self.fresh.range(from..).next().copied() {
            if let Some(number) = self.of_block(first, space, chosen) {
                return Some(number);
            }
            from = first.checked_add(1)?;
        }
        None
    }

    fn any(&self, space: &AddressTable, chosen: &[u128], chance: &mut u64) -> Option<u128> {
        let runs = || self.blocks.values().filter(|a| a.state == State::Active).flat_map(|a| &a.usable);
        let total = runs().fold(0_u128, |sum, run| sum.saturating_add(run.count()));
        for _ in 0..THROWS {
            let mut left = u128::from(random(chance)) << 64 | u128::from(random(chance));
            left = left.checked_rem(total)?;
            let thrown = runs().find_map(|run| {
                let here = left < run.count();
                let number = run.numbers().0.saturating_add(left);
                left = left.saturating_sub(run.count());
                here.then_some(number)
            });
            if let Some(number) = thrown.filter(|n| !chosen.contains(n) && space.get(self.family, *n).is_none()) {
                return Some(number);
            }
        }
        None
    }

    /// It rests here no more.
    pub(crate) fn leave(&mut self, number: u128) {
        self.cooling.remove(number);
        self.quarantined.remove(&number);
    }

    /// It has been handed out.
    pub(crate) fn hold(&mut self, number: u128) {
        self.held += 1;
        self.ready.remove(number);
        self.leave(number);
        if let Some(first) = self.area(number).map(|area| area.block.run.numbers().0).filter(|first| self.fresh.contains(first)) {
            self.open = Some(first);
        }
    }

    /// It was handed out, and nobody has seen it.
    pub(crate) fn unhold(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// It was given back: `true` where it has to cool down, `false` where nothing is known of it any more, and where it is a
    /// claim's: whoever sends to it means the claim, whichever pod has it.
    pub(crate) fn cool(&mut self, number: u128) -> bool {
        self.held = self.held.saturating_sub(1);
        let cools = self.area(number).is_some_and(|area| !area.block.is_claimed());
        if cools {
            self.cooling.push(number);
        }
        cools
    }

    /// It is nobody's and not free: `false` where that is none of ours.
    pub(crate) fn rest(&mut self, number: u128, taken: &Unavailable) -> bool {
        if self.area(number).is_none() {
            return false;
        }
        self.ready.remove(number);
        self.leave(number);
        match taken {
            Unavailable::Held(_) => return false,
            Unavailable::Cooling { .. } => self.cooling.push(number),
            Unavailable::Quarantined { .. } => {
                self.quarantined.insert(number);
            }
        }
        true
    }

    /// What rests, in the order in which it will be free, as events.
    pub(crate) fn resting(&self, space: &AddressTable, pool: &str) -> Vec<Event> {
        let taken = |number: u128| Some((self.family.address(number), space.get(self.family, number)?.clone()));
        let cooling = self.cooling.iter().filter_map(taken);
        let cooling = cooling.map(|(address, taken)| Event::Cooling { pool: pool.to_owned(), address, taken });
        let others = self.quarantined.iter().copied().filter_map(taken);
        cooling.chain(others.map(|(address, taken)| Event::Quarantined { pool: pool.to_owned(), address, taken })).collect()
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    pub(crate) fn cooling(&self) -> u64 {
        u64::try_from(self.cooling.len()).unwrap_or(u64::MAX)
    }
}

fn covering(blocks: &BTreeMap<u128, Area>, number: u128) -> Option<&Area> {
    let (_, area) = blocks.range(..=number).next_back()?;
    (number <= area.block.run.numbers().1).then_some(area)
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
