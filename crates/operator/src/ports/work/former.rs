//! What the operator that worked before this one may have sent: Neutron may carry it out for as long as a request may take.
//!
//! ```text
//!   killed: PUT of address pairs, If-Match 7, on its way --pod gone--> the next operator reads revision 7 without the pair
//!     it changes the node's port itself: revision 8, and the other request is refused
//!     it has nothing to change there: it waits, reads again, and only then deletes the port that has the address
//!   killed: DELETE of a ready port that was too many, on its way --> the next operator gives no ready port of before to a pod meanwhile
//!   killed: POST of ports, on its way --> the next operator's first list lacks them, so it makes them, too: another list finds those that are there twice
//! ```

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::ports::call::Slot;

/// Requests of the operator before.
#[derive(Debug, Default)]
pub(super) enum Former {
    /// This operator does not work.
    #[default]
    Unknown,
    /// They may be carried out.
    MayAct {
        /// Until then.
        until: Instant,
        /// Nodes' ports that this operator has changed: requests of before name another revision of them.
        changed: BTreeSet<String>,
    },
    /// All of them have ended at this time.
    Over(Instant),
}

/// Nodes' ports whose address pairs the operator before may change, and those that it cannot change any more since now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OfFormer {
    pub(super) unsettled: BTreeSet<String>,
    pub(super) settled: BTreeSet<String>,
}

// === impl Former ===

impl Former {
    /// This operator works; its first call begins now, or began before. Requests of the one before it end at this time at the latest.
    pub(super) fn begin(&mut self, until: Instant) {
        if matches!(self, Former::Unknown) {
            *self = Former::MayAct { until, changed: BTreeSet::new() };
        }
    }

    /// Whether none of them is carried out any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Former::Over(_))
    }

    /// When they end, if they could still make ports after a list that began at this time.
    pub(super) fn may_make_after(&self, list: Instant) -> Option<Instant> {
        match self {
            Former::Unknown => None,
            Former::MayAct { until, .. } | Former::Over(until) => Some(*until).filter(|until| list < *until),
        }
    }

    /// This operator has changed a node's port.
    pub(super) fn has_changed(&mut self, id: &str) {
        if let Former::MayAct { changed, .. } = self {
            changed.insert(id.to_owned());
        }
    }

    /// Of these nodes' ports, those that may be changed, and those to be read again: what was read of them may be of before the last change.
    pub(super) fn settle(&mut self, ports: impl Iterator<Item = String>, busy: &BTreeSet<Slot>, now: Instant) -> OfFormer {
        let Former::MayAct { until, changed } = self else { return OfFormer::default() };
        let of_former: BTreeSet<String> = ports.filter(|id| !changed.contains(id)).collect();
        let is_read = busy.iter().any(|slot| matches!(slot, Slot::NodePorts(_) | Slot::Carrier(_)));
        if *until > now || is_read {
            return OfFormer { unsettled: of_former, ..OfFormer::default() };
        }
        *self = Former::Over(*until);
        OfFormer { settled: of_former, ..OfFormer::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_sent_before_may_be_carried_out_for_as_long_as_a_request_takes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let ids = |all: &[&str]| all.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let mut former = Former::default();
        let ask = |former: &mut Former, busy: &[Slot], seconds| {
            let of = former.settle(ids(&["a", "b"]).into_iter(), &busy.iter().cloned().collect(), at(seconds));
            (of.unsettled, of.settled)
        };
        assert_eq!(ask(&mut former, &[], 0), (ids(&[]), ids(&[])), "it does not work");
        assert_eq!(former.may_make_after(at(0)), None);
        former.begin(at(60));
        former.begin(at(90));
        assert_eq!([at(59), at(60)].map(|list| former.may_make_after(list)), [Some(at(60)), None]);
        assert_eq!(ask(&mut former, &[], 0), (ids(&["a", "b"]), ids(&[])));
        former.has_changed("a");
        assert_eq!(ask(&mut former, &[], 59), (ids(&["b"]), ids(&[])));
        assert_eq!(ask(&mut former, &[Slot::Carrier("b".to_owned())], 60), (ids(&["b"]), ids(&[])), "the answer may be of before");
        assert!(!former.is_over());
        assert_eq!(ask(&mut former, &[], 60), (ids(&[]), ids(&["b"])));
        assert!(former.is_over());
        assert_eq!([at(59), at(60)].map(|list| former.may_make_after(list)), [Some(at(60)), None], "a list that was on its way");
        assert_eq!(ask(&mut former, &[], 61), (ids(&[]), ids(&[])), "it is read again once");
    }
}
