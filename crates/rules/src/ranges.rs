//! Sets of ranges that belong to the node and to no attachment, and the rules over them: what is there is compared with what is wanted, and
//! the differences are one transaction.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipnet::IpNet;
use linux::nft::{Mode, Range, ReadError, SetRange, Socket, Step};

use crate::TABLE;
use crate::install::{AddError, ROUNDS, is_ours, whole, wrong_fixed};
use crate::part::Subject;

/// What a set is to have.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    set: &'static str,
    ranges: Cow<'a, BTreeSet<Range>>,
}

/// What had to be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeChanges {
    /// The ranges that were missing.
    pub added: Vec<SetRange>,
    /// Those that were there and should not be.
    pub removed: Vec<SetRange>,
    /// Whether rules, sets or the table were missing.
    pub rules: bool,
}

/// Makes a subject's sets have exactly these ranges. Where nothing is wanted and nothing is there, nothing is installed.
pub(crate) fn keep(socket: &mut Socket, part: &'static Subject, sets: &[Wanted<'_>]) -> Result<RangeChanges, AddError> {
    for round in 0.. {
        let kept = differences(socket, part, sets)?;
        if kept.is_nothing() {
            break;
        }
        is_ours(socket, part.family)?;
        match socket.commit(&kept.steps(part).into_iter().collect()) {
            Ok(()) => return Ok(kept),
            // Somebody else was faster: look anew.
            Err(e) if round < ROUNDS && (e.is_present() || e.is_missing()) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(RangeChanges::default())
}

/// As [`keep`], where the kernel has what the last call has left, as far as is known: reads nothing, and writes the differences between the
/// two. Where the kernel says that it has something else, it is read after all.
pub(crate) fn change(
    socket: &mut Socket,
    part: &'static Subject,
    before: &[Wanted<'_>],
    now: &[Wanted<'_>],
) -> Result<RangeChanges, AddError> {
    if !is_used(before) || !is_used(now) {
        return keep(socket, part, now);
    }
    let mut kept = RangeChanges::default();
    for (before, now) in before.iter().zip(now) {
        kept.compare(part, now.set, &now.ranges, &before.ranges);
    }
    if kept.is_nothing() {
        return Ok(kept);
    }
    match socket.commit(&kept.steps(part).into_iter().collect()) {
        Ok(()) => Ok(kept),
        Err(e) if e.is_present() || e.is_missing() => keep(socket, part, now),
        Err(e) => Err(e.into()),
    }
}

/// What [`keep`] would change.
pub(crate) fn differences(socket: &mut Socket, part: &Subject, sets: &[Wanted<'_>]) -> Result<RangeChanges, ReadError> {
    let mut kept = RangeChanges { rules: is_used(sets) && wrong_fixed(socket, part)?.is_some(), ..RangeChanges::default() };
    for wanted in sets {
        let there = socket.ranges(part.family, TABLE, wanted.set)?.into_iter().collect();
        kept.compare(part, wanted.set, &wanted.ranges, &there);
    }
    Ok(kept)
}

fn is_used(sets: &[Wanted<'_>]) -> bool {
    sets.iter().any(|wanted| !wanted.ranges.is_empty())
}

/// The ranges of one family, as few as there can be: no two of a set may overlap. Of many networks it takes longer than all else.
pub(crate) fn joined(nets: &[IpNet], v4: bool) -> BTreeSet<Range> {
    let of_family = nets.iter().filter(|net| net.addr().is_ipv4() == v4).copied().collect();
    IpNet::aggregate(&of_family).into_iter().map(Range::from).collect()
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// These ranges, as [`joined`] has them.
    pub(crate) fn of(set: &'static str, ranges: &'a BTreeSet<Range>) -> Self {
        Wanted { set, ranges: Cow::Borrowed(ranges) }
    }

    /// A set of IPv4 ranges: those of these networks.
    pub(crate) fn v4(set: &'static str, nets: &[IpNet]) -> Self {
        Wanted { set, ranges: Cow::Owned(joined(nets, true)) }
    }

    /// A set of IPv6 ranges: those of these networks.
    pub(crate) fn v6(set: &'static str, nets: &[IpNet]) -> Self {
        Wanted { set, ranges: Cow::Owned(joined(nets, false)) }
    }
}

// === impl RangeChanges ===

impl RangeChanges {
    /// Whether all was as it should be.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && !self.rules
    }

    /// Notes how a set differs from what it is to have.
    fn compare(&mut self, part: &Subject, set: &str, wanted: &BTreeSet<Range>, there: &BTreeSet<Range>) {
        let of_set = |range: &Range| SetRange { family: part.family, table: TABLE.to_owned(), set: set.to_owned(), range: *range };
        self.added.extend(wanted.difference(there).map(of_set));
        self.removed.extend(there.difference(wanted).map(of_set));
    }

    /// Ranges go first: one that comes may overlap them.
    fn steps(&self, part: &Subject) -> Vec<Step> {
        let mut steps = if self.rules { whole(Mode::Add, &[part], &BTreeSet::new()) } else { Vec::new() };
        steps.extend(self.removed.iter().cloned().map(Step::DeleteRange));
        steps.extend(self.added.iter().cloned().map(|range| Step::Range(Mode::Create, range)));
        steps
    }
}
