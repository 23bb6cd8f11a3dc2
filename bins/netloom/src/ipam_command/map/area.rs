//! Addresses in cells of as many as there is room for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::HostPools;
use pool::{Block, Family, Lease, Run, Spec, State, Unavailable};

/// Addresses without a gap, in cells.
#[derive(Debug)]
pub(super) struct Area {
    run: Run,
    state: State,
    /// Addresses in a cell: a power of two.
    pub(super) each: u128,
    /// Cells in a row.
    row: usize,
    pub(super) cells: Vec<Cell>,
    /// Addresses behind the last cell, all of them as they were.
    pub(super) rest: u128,
}

/// What the addresses of a cell are.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    /// Whether nobody else gets one of them.
    pub(super) full: bool,
    /// In words.
    pub(super) told: String,
}

/// What a block's addresses are for.
struct Terms {
    state: State,
    /// Those that anybody may get, and those that claims may get, too.
    anybody: Vec<Run>,
    claims: Vec<Run>,
    gateway: Option<IpAddr>,
    /// Those that are for somebody, by number, and for whom.
    kept: BTreeMap<u128, String>,
}

/// What matters most of it comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Held,
    Cooling,
    Quarantined,
    Free,
    Kept,
    Reserved,
    Frozen,
    Gateway,
    Excluded,
}

/// More addresses than these are drawn as far as anybody had one.
const WHOLE: u128 = 1 << 20;

/// The areas of a pool's family, in cells of which `row` stand beside each other, in about `rows` rows.
pub(super) fn areas(seen: &HostPools, spec: &Spec, family: Family, row: usize, rows: usize) -> Vec<Area> {
    let taken: BTreeMap<u128, (IpAddr, &Unavailable)> = seen
        .allocator
        .all_taken(&spec.network)
        .filter(|(address, taken)| Family::of(*address) == family && taken.frees_in(spec.reuse.cooldown, &seen.now) != Some(0))
        .map(|(address, taken)| (pool::number(address), (address, taken)))
        .collect();
    let area = |(run, state): (Run, State)| {
        let (first, last) = run.numbers();
        let used = taken.range(first..=last).next_back().map_or(0, |(number, _)| number - first + 1);
        let most = (row * rows) as u128;
        let shown = if run.count() <= WHOLE { run.count() } else { used.next_power_of_two().max(2 * row as u128).min(run.count()) };
        let each = shown.div_ceil(most).next_power_of_two();
        let kept = kept(seen, spec, family, &run);
        let terms = Terms { kept, state, anybody: spec.usable(run), claims: spec.allowed(run), gateway: spec.terms(family).gateway };
        let mut cells = Vec::new();
        let mut from = first;
        while let Some(cell) = Run::of_numbers(family, from, from.saturating_add(each - 1).min(last)).filter(|_| from - first < shown) {
            cells.push(cell_of(seen, cell, &terms, &taken));
            match cell.numbers().1.checked_add(1) {
                Some(next) if next <= last => from = next,
                _ => break,
            }
        }
        let rest = run.count().saturating_sub(each.saturating_mul(cells.len() as u128));
        Area { run, state, each, row, cells, rest }
    };
    joined(seen, spec, family).into_iter().map(area).collect()
}

/// Single addresses that are for somebody, whom another program attached or who has a claim.
fn kept(seen: &HostPools, spec: &Spec, family: Family, within: &Run) -> BTreeMap<u128, String> {
    let blocks = seen.allocator.blocks(&spec.name, family).filter(|(block, _)| block.run.count() == 1);
    let (first, last) = within.numbers();
    let of = |block: &Block| Some((block.run.numbers().0, ipam::owner_in_words(block.claim.as_deref()?)));
    blocks.filter_map(|(block, _)| of(block)).filter(|(number, _)| (first..=last).contains(number)).collect()
}

/// Blocks beside each other as one, as long as the same becomes of them.
fn joined(seen: &HostPools, spec: &Spec, family: Family) -> Vec<(Run, State)> {
    let mut joined: Vec<(Run, State)> = Vec::new();
    for (block, state) in seen.allocator.blocks(&spec.name, family) {
        let run = block.run;
        match joined.last_mut() {
            Some((before, of)) if *of == state && before.numbers().1.checked_add(1) == Some(run.numbers().0) => {
                *before = Run::of_numbers(family, before.numbers().0, run.numbers().1).unwrap_or(run);
            }
            _ => joined.push((run, state)),
        }
    }
    joined
}

fn cell_of(seen: &HostPools, run: Run, terms: &Terms, taken: &BTreeMap<u128, (IpAddr, &Unavailable)>) -> Cell {
    let count = |runs: &[Run]| runs.iter().filter_map(|r| r.common(&run)).fold(0_u128, |sum, r| sum.saturating_add(r.count()));
    let (first, last) = run.numbers();
    let (mut held, mut cooling, mut quarantined) = (0_u128, 0_u128, 0_u128);
    let mut who = None;
    for (_, taken) in taken.range(first..=last).map(|(_, one)| one) {
        match taken {
            Unavailable::Held(_) => held += 1,
            Unavailable::Cooling { .. } => cooling += 1,
            Unavailable::Quarantined { .. } => quarantined += 1,
        }
        who = Some(taken);
    }
    let (usable, allowed) = (count(&terms.anybody), count(&terms.claims));
    let kept = terms.kept.range(first..=last).count() as u128;
    let has_gateway = terms.gateway.is_some_and(|gateway| run.contains(gateway));
    let kind = match terms.state {
        _ if quarantined > 0 => Kind::Quarantined,
        _ if held > 0 => Kind::Held,
        _ if cooling > 0 => Kind::Cooling,
        State::Frozen => Kind::Frozen,
        State::Active if kept > 0 && kept >= usable => Kind::Kept,
        State::Active if usable > 0 => Kind::Free,
        State::Active if allowed > 0 => Kind::Reserved,
        State::Active if has_gateway => Kind::Gateway,
        State::Active | State::Withdrawn => Kind::Excluded,
    };
    let told = match (who, run.count()) {
        (Some(taken), 1) => format!("{}: {}", run.first(), holder(seen, taken)),
        (None, 1) => match terms.kept.get(&first) {
            Some(owner) => format!("{}: kept for {owner}", run.first()),
            None => format!("{}: {}", run.first(), kind.word()),
        },
        (Some(_), _) => format!("{run}: {held} held, {cooling} cooling down, {quarantined} in quarantine"),
        (None, _) => run.to_string(),
    };
    Cell { kind, full: held + cooling + quarantined >= usable.max(1), told }
}

/// Who has it: the pod where that is known.
fn holder(seen: &HostPools, taken: &Unavailable) -> String {
    let lease: Option<&Lease> = if let Unavailable::Held(key) = taken { seen.allocator.lease(key) } else { None };
    match lease.and_then(|lease| Some((lease, lease.pod.as_ref()?))) {
        Some((lease, pod)) => format!("pod {pod} has it, {} of container {}", lease.key.ifname, lease.key.container),
        None => taken.to_string(),
    }
}

// === impl Area ===

impl Area {
    /// The addresses, and what becomes of them.
    pub(super) fn title(&self) -> String {
        match self.state {
            State::Active => self.run.to_string(),
            State::Frozen => format!("{} (being released)", self.run),
            State::Withdrawn => format!("{} (not in the pool any more: its attachments keep their addresses)", self.run),
        }
    }

    /// The first address of each row.
    pub(super) fn labels(&self) -> Vec<String> {
        let first = self.run.numbers().0;
        let of_row = |i: usize| {
            let offset = self.each.saturating_mul((i * self.row) as u128);
            self.run.family().address(first.saturating_add(offset)).to_string()
        };
        (0..self.cells.len().div_ceil(self.row)).map(of_row).collect()
    }

    /// Its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunks(self.row)
    }
}
