//! Sets of ranges that belong to the node and to no attachment, and the rules over them: what is there is compared with what is wanted, and
//! the differences are one transaction.

use std::collections::BTreeSet;

use ipnet::IpNet;
use linux::nft::{Mode, Range, ReadError, SetRange, Socket, Step};

use crate::TABLE;
use crate::install::{AddError, ROUNDS, is_ours, whole, wrong_fixed};
use crate::part::Part;

/// What a set is to have: those of these networks that are of its family.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    set: &'static str,
    nets: &'a [IpNet],
    v4: bool,
}

/// What had to be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The ranges that were missing.
    pub added: Vec<SetRange>,
    /// Those that were there and should not be.
    pub removed: Vec<SetRange>,
    /// Whether rules, sets or the table were missing.
    pub rules: bool,
}

/// Makes a subject's sets have exactly these ranges. Where nothing is wanted and nothing is there, nothing is installed.
pub(crate) fn keep(socket: &mut Socket, part: &'static Part, sets: &[Wanted<'_>]) -> Result<Kept, AddError> {
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
    Ok(Kept::default())
}

/// What [`keep`] would change.
pub(crate) fn differences(socket: &mut Socket, part: &Part, sets: &[Wanted<'_>]) -> Result<Kept, ReadError> {
    let is_used = sets.iter().any(|wanted| !wanted.nets.is_empty());
    let mut kept = Kept { rules: is_used && wrong_fixed(socket, part)?.is_some(), ..Kept::default() };
    for Wanted { set, nets, v4 } in sets {
        let wanted: BTreeSet<Range> = aggregated(nets, *v4).collect();
        let there: BTreeSet<Range> = socket.ranges(part.family, TABLE, set)?.into_iter().collect();
        let of_set = |range: &Range| SetRange { family: part.family, table: TABLE.to_owned(), set: (*set).to_owned(), range: *range };
        kept.added.extend(wanted.difference(&there).map(of_set));
        kept.removed.extend(there.difference(&wanted).map(of_set));
    }
    Ok(kept)
}

/// The ranges of one family, as few as there can be: no two of a set may overlap.
fn aggregated(nets: &[IpNet], v4: bool) -> impl Iterator<Item = Range> {
    let of_family = nets.iter().filter(|net| net.addr().is_ipv4() == v4).copied().collect();
    IpNet::aggregate(&of_family).into_iter().map(Range::from)
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// A set of IPv4 ranges.
    pub(crate) fn v4(set: &'static str, nets: &'a [IpNet]) -> Self {
        Wanted { set, nets, v4: true }
    }

    /// A set of IPv6 ranges.
    pub(crate) fn v6(set: &'static str, nets: &'a [IpNet]) -> Self {
        Wanted { set, nets, v4: false }
    }
}

// === impl Kept ===

impl Kept {
    /// Whether all was as it should be.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && !self.rules
    }

    /// Ranges go first: one that comes may overlap them.
    fn steps(&self, part: &Part) -> Vec<Step> {
        let mut steps = if self.rules { whole(Mode::Add, &[part], &BTreeSet::new()) } else { Vec::new() };
        steps.extend(self.removed.iter().cloned().map(Step::DeleteRange));
        steps.extend(self.added.iter().cloned().map(|range| Step::Range(Mode::Create, range)));
        steps
    }
}
