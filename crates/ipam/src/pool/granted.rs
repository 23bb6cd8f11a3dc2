//! What becomes of a pool's blocks when whoever grants them says what this node has.
//!
//! ```text
//!   file       Pool { spec, runs }       the host's own: runs grow and shrink, epochs are counted here
//!   cluster    Granted { spec, blocks }  blocks come and go whole, with the epoch that the ledger gave them
//!     --> events that make it so of what there is
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ledger::pieces;
use pool::{Allocator, Block, Event, Family, Origin, Refused, Run, Spec, State, Unavailable};

use super::grant::Pool;

/// A pool of a cluster, and all blocks of it that this node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Its terms. The origin is the cluster's, whatever stands in it.
    pub spec: Spec,
    /// Its blocks. [`State::Frozen`]: this node has promised before not to use it.
    pub blocks: Vec<(Block, State)>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) events: Vec<Event>,
    /// Blocks that are not taken in.
    pub(super) refused: Vec<Refused>,
    /// When these events are through, look again.
    pub(super) again: bool,
}

/// A pool of this name is somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfBoth;

fn blocks(now: &Allocator, pool: &str) -> Vec<(Block, State)> {
    Family::ALL.into_iter().flat_map(|family| now.blocks(pool, family)).map(|(block, state)| (block.clone(), state)).collect()
}

/// What makes a pool as its file says, of what there is. A block grows by others beside it, and shrinks by exclusions: it is
/// taken away when none of it is the pool's.
pub(super) fn of_file(now: &Allocator, pool: &Pool) -> Result<Changes, OfBoth> {
    let name = &pool.spec.name;
    if now.origin(name).is_some_and(|origin| origin != Origin::File) {
        return Err(OfBoth);
    }
    if let Some(changes) = elsewhere(now, &pool.spec) {
        return Ok(changes);
    }
    let blocks = blocks(now, name);
    let known: Vec<Run> = blocks.iter().map(|(block, _)| block.run).collect();
    let wanted = |run: &Run| pool.runs.iter().any(|r| r.common(run).is_some());
    let mut spec = Spec { origin: Origin::File, ..pool.spec.clone() };
    spec.exclude.extend(pieces(known.iter().copied().filter(wanted).collect(), &pool.runs));
    let mut events = Vec::new();
    if now.spec(name) != Some(&spec) {
        events.push(Event::Pool(spec));
    }
    let mut epoch = now.last_epoch(name);
    for (block, state) in blocks {
        match (wanted(&block.run), state) {
            (true, State::Withdrawn) => events.push(Event::Block(block, State::Active)),
            (false, State::Active) => events.push(Event::Withdrawn { pool: name.clone(), run: block.run, epoch: block.epoch }),
            _ => {}
        }
    }
    for run in pieces(pool.runs.clone(), &known) {
        epoch += 1;
        events.push(Event::Block(Block { pool: name.clone(), run, epoch, claim: None }, State::Active));
    }
    Ok(Changes { events, ..Changes::default() })
}

/// What makes a pool as its cluster says. A block that this node has given back is forgotten when the cluster has taken it;
/// one that is missing without that stays with who has addresses of it, and nobody else gets any.
pub(super) fn of_cluster(now: &Allocator, granted: &Granted) -> Result<Changes, OfBoth> {
    let name = &granted.spec.name;
    // A host's own pool makes way for a cluster's of its name, if nobody has anything of it: its file is gone long since, or
    // whoever uses it next is told that there are two.
    if now.origin(name) == Some(Origin::File) {
        return make_way(now, name).ok_or(OfBoth);
    }
    if let Some(changes) = elsewhere(now, &granted.spec) {
        return Ok(changes);
    }
    let named: BTreeSet<(Run, u64)> = granted.blocks.iter().map(|(block, _)| (block.run, block.epoch)).collect();
    let (known, left): (Vec<_>, Vec<_>) = blocks(now, name).into_iter().partition(|(block, _)| named.contains(&(block.run, block.epoch)));
    let known: BTreeMap<(Run, u64), (Block, State)> = known.into_iter().map(|known| ((known.0.run, known.0.epoch), known)).collect();
    let mut changes = Changes::default();
    // What is granted is no file's.
    let origin = if granted.spec.origin == Origin::CiliumNode { Origin::CiliumNode } else { Origin::Cluster };
    let spec = Spec { origin, ..granted.spec.clone() };
    if now.spec(name) != Some(&spec) {
        changes.events.push(Event::Pool(spec));
        // Whether a block can come is known when its pool is there.
        changes.again = true;
    }
    let coming = if changes.again { Vec::new() } else { coming(now, granted, &known) };
    let (cut, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|(block, _)| is_cut(now, block, &coming, origin));
    let mut then = Cow::Borrowed(now);
    for (block, _) in &cut {
        changes.events.push(gone(block));
        then.to_mut().apply(&gone(block));
    }
    for (block, state) in &granted.blocks {
        match known.get(&(block.run, block.epoch)) {
            // For ever, whatever the cluster says.
            Some((_, State::Frozen)) => {}
            Some(was) if was.0.claim == block.claim && was.1 == *state => {}
            Some(_) if *state == State::Frozen => {
                changes.events.push(Event::Frozen { pool: name.clone(), run: block.run, epoch: block.epoch });
            }
            Some(_) | None if !changes.again => changes.take_in(&then, block, *state),
            Some(_) | None => {}
        }
    }
    changes.events.extend(cut.iter().flat_map(|(block, _)| quarantines(now, block)));
    for (block, state) in left {
        match state {
            State::Frozen => changes.events.push(gone(&block)),
            State::Active => changes.events.push(Event::Withdrawn { pool: block.pool, run: block.run, epoch: block.epoch }),
            State::Withdrawn => {}
        }
    }
    Ok(changes)
}

/// The blocks that are to come and of which nothing is here, but other blocks may be in their way.
fn coming(now: &Allocator, granted: &Granted, known: &BTreeMap<(Run, u64), (Block, State)>) -> Vec<Run> {
    let new = granted.blocks.iter().filter(|(block, _)| !known.contains_key(&(block.run, block.epoch)));
    new.filter(|(block, _)| matches!(now.admit(block), Ok(()) | Err(Refused::Overlaps { .. }))).map(|(block, _)| block.run).collect()
}

/// Whether addresses of a block that is granted no more come in another cut, or in another life: it makes way, and who has one of them
/// keeps it. Not where a cluster would hear no more of what is in use beside that; a CiliumNode's status has it of the leases.
fn is_cut(now: &Allocator, block: &Block, coming: &[Run], origin: Origin) -> bool {
    let common: Vec<Run> = coming.iter().filter_map(|run| run.common(&block.run)).collect();
    let is_used = |run: Run| now.is_used(&Block { run, ..block.clone() });
    !common.is_empty() && (origin == Origin::CiliumNode || !pieces(vec![block.run], &common).into_iter().any(is_used))
}

/// What another machine has of a block: whatever cut its addresses are in, nobody is to get that.
fn quarantines(now: &Allocator, block: &Block) -> Vec<Event> {
    let taken = now.network(&block.pool).into_iter().flat_map(|network| now.all_taken(network));
    let of_block = taken.filter(|(address, taken)| block.run.contains(*address) && matches!(taken, Unavailable::Quarantined { .. }));
    of_block.map(|(address, taken)| Event::Quarantined { pool: block.pool.clone(), address, taken: taken.clone() }).collect()
}

/// A pool comes again in another network, where its addresses are others: what was here of it makes way, if nobody has anything of
/// that. `None`: there is nothing to be done for it.
fn elsewhere(now: &Allocator, spec: &Spec) -> Option<Changes> {
    let is = now.network(&spec.name).filter(|is| *is != spec.network)?;
    let held = || Refused::OtherNetwork { pool: spec.name.clone(), is: is.to_owned(), wanted: spec.network.clone() };
    let changes = make_way(now, &spec.name).unwrap_or_else(|| Changes { refused: vec![held()], ..Changes::default() });
    (!changes.events.is_empty() || !changes.refused.is_empty()).then_some(changes)
}

/// What takes away all of a pool, a step at a time; `None`: attachments have addresses of it.
fn make_way(now: &Allocator, name: &str) -> Option<Changes> {
    if Family::ALL.into_iter().any(|family| now.usage(name, family).held > 0) {
        return None;
    }
    // Nobody gets anything of it from here on; the next look is at what has got something until now.
    let events = if now.spec(name).is_some() {
        vec![Event::PoolGone { pool: name.to_owned() }]
    } else {
        blocks(now, name).iter().map(|(block, _)| gone(block)).collect()
    };
    Some(Changes { events, again: true, ..Changes::default() })
}

/// Makes it so in memory what [`super::PoolStore::grant`] and [`super::PoolStore::follow`] make so in a store. Returned is what is
/// not taken in.
pub(super) fn apply(to: &mut Allocator, changes: impl Fn(&Allocator) -> Result<Changes, OfBoth>) -> Result<Vec<Refused>, OfBoth> {
    loop {
        let Changes { events, refused, again } = changes(to)?;
        events.iter().for_each(|event| to.apply(event));
        if !again || events.is_empty() {
            return Ok(refused);
        }
    }
}

fn gone(block: &Block) -> Event {
    Event::BlockGone { pool: block.pool.clone(), run: block.run, epoch: block.epoch }
}

// === impl Granted ===

impl Granted {
    /// Makes it so in memory, as [`super::PoolStore::grant`] does in a store. Returned are the blocks that are not taken in, and why;
    /// `None`: the pool is a file's, and nothing has changed.
    pub fn apply(&self, to: &mut Allocator) -> Option<Vec<Refused>> {
        apply(to, |all| of_cluster(all, self)).ok()
    }
}

// === impl Changes ===

impl Changes {
    /// A block comes. Where another cut of its addresses is in its way, of which nothing more is handed out, that one is over.
    fn take_in(&mut self, now: &Allocator, block: &Block, state: State) {
        match now.admit(block) {
            Ok(()) => self.events.push(Event::Block(block.clone(), state)),
            Err(Refused::Overlaps { pool, other, .. }) => {
                let old = now.blocks(&pool, other.family()).find(|(b, _)| b.run == other);
                match old.filter(|(_, s)| *s != State::Active) {
                    Some((old, _)) => {
                        self.events.push(gone(old));
                        self.again = true;
                    }
                    None => self.refused.push(Refused::Overlaps { run: block.run, pool, other }),
                }
            }
            Err(refused) => self.refused.push(refused),
        }
    }
}
