//! Whom a problem concerns: this node, a range of another one, or another Node.

use between::{Change, Entry, Problem};
use cluster::Node;
use fabric::EntryError;
use ipnet::IpNet;

use crate::provided::ranges::Ranges;

/// Whether a problem leaves this node without a range or without its only address: then its pods have no network.
pub(super) fn takes_away(problem: &Problem, own: &str) -> bool {
    let costs = matches!(
        problem,
        Problem::RangeOverlap { .. }
            | Problem::RangeReserved { .. }
            | Problem::RangeOutside { .. }
            | Problem::RangeHoldsEndpoint { .. }
            | Problem::EndpointInRange { .. }
            | Problem::RangeInUnderlay { .. }
            | Problem::NoEndpoint { .. }
            | Problem::SameEndpoint { .. }
            | Problem::SameMac { .. }
            | Problem::MtuTooSmall { .. }
    );
    costs && problem.node() == own
}

/// The range to which nothing leads because of an error; `None` of one that concerns a device, and so all ranges.
pub(super) fn range_of(error: &EntryError) -> Option<IpNet> {
    let change = match error {
        EntryError::RouteTaken { range, .. } => return Some(*range),
        EntryError::Refused { change, .. } => change,
        _ => return None,
    };
    let (Change::Add(entry) | Change::Replace(entry) | Change::Remove(entry)) = change;
    match entry {
        Entry::Route(range, _) | Entry::Closed(range) => Some(*range),
        _ => None,
    }
}

/// What of a Node cannot be read, with its name.
pub(super) fn unreadable(node: &Node, ranges: &Ranges) -> Vec<String> {
    let announced = node.announced.as_ref().and_then(|announced| announced.as_ref().err()).map(ToString::to_string);
    ranges.unreadable(node).into_iter().chain(announced).map(|why| format!("node {}: {why}", node.name)).collect()
}
