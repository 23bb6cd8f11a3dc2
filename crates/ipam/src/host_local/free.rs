//! Which address comes next: round-robin, so that a container that restarts all the time does not meet its old address
//! again before the whole set has had its turn. Arithmetic only; the free space of a /64 is never walked.

use std::net::IpAddr;

use crate::range::{Range, RangeSet, address, number};

/// The first free address after `last`, through the rest of its range, the ranges behind it, those before it and its
/// own beginning, `last` being the very last. Without a usable `last`: from the first range's start. `free` says which
/// number of a range, from one to another, is the first whose address is free.
pub(super) fn next_free(
    set: &RangeSet,
    last: Option<IpAddr>,
    mut free: impl FnMut(bool, u128, u128) -> Option<u128>,
) -> Option<(&Range, IpAddr)> {
    let ranges = set.ranges();
    let at = last.and_then(|last| Some((ranges.iter().position(|r| r.contains(last))?, number(last))));
    let (index, last) = at.map_or((0, None), |(index, last)| (index, Some(last)));
    let (before, from) = ranges.split_at_checked(index)?;
    let (current, behind) = from.split_first()?;
    let (start, end) = current.numbers();

    // What comes behind the last address of all 2^128 is nothing.
    let rest = last.map_or(Some(start), |last| last.checked_add(1)).map(|next| (current, next, end));
    let others = behind.iter().chain(before).map(|r| (r, r.numbers().0, r.numbers().1));
    let beginning = last.map(|last| (current, start, last));
    rest.into_iter().chain(others).chain(beginning).filter(|(_, from, to)| from <= to).find_map(|(range, from, to)| {
        let v4 = range.start().is_ipv4();
        free(v4, from, to).map(|n| (range, address(v4, n)))
    })
}

/// How many addresses a set can hand out at most: all but the gateways, which are passed over.
pub(super) fn capacity(set: &RangeSet, gateways: &std::collections::HashSet<IpAddr>) -> u128 {
    let size = |r: &Range| (r.numbers().1 - r.numbers().0).saturating_add(1);
    let all = set.ranges().iter().map(size).fold(0, u128::saturating_add);
    all - gateways.iter().filter(|ip| set.range_for(**ip).is_some()).count() as u128
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{RangeSources, RawRange};

    fn next_free(set: &RangeSet, last: Option<IpAddr>, taken: impl Fn(IpAddr) -> bool) -> Option<(&Range, IpAddr)> {
        super::next_free(set, last, |v4, from, to| (from..=to).find(|n| !taken(address(v4, *n))))
    }

    fn set(subnets: &[&str]) -> RangeSet {
        let raw = |s: &&str| RawRange { subnet: (*s).into(), ..RawRange::default() };
        let ranges = [subnets.iter().map(raw).collect::<Vec<_>>()];
        RangeSet::check_all(RangeSources { ranges: &ranges, ..RangeSources::default() }).unwrap().remove(0)
    }

    #[test]
    fn round_robin_over_all_ranges() {
        let set = set(&["10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"]);
        let mut taken: HashSet<IpAddr> = HashSet::new();
        let mut last = Some("10.0.1.1".parse().unwrap());
        let mut order = Vec::new();
        while let Some((_, ip)) = next_free(&set, last, |ip| taken.contains(&ip)) {
            taken.insert(ip);
            order.push(ip.to_string());
            last = Some("10.0.1.1".parse().unwrap());
        }
        assert_eq!(order, ["10.0.1.2", "10.0.2.1", "10.0.2.2", "10.0.0.1", "10.0.0.2", "10.0.1.1"]);
        taken.clear();
        last = Some("192.0.2.1".parse().unwrap());
        assert_eq!(next_free(&set, last, |_| false).unwrap().1.to_string(), "10.0.0.1");
        assert_eq!(next_free(&set, None, |_| false).unwrap().1.to_string(), "10.0.0.1");
    }

    #[test]
    fn a_64_is_as_fast_as_a_126_and_the_end_of_all_numbers_is_no_trap() {
        let big = set(&["fd00::/64"]);
        let begun = std::time::Instant::now();
        let end: IpAddr = "fd00::ffff:ffff:ffff:ffff".parse().unwrap();
        assert_eq!(next_free(&big, Some(end), |ip| number(ip) & 0xff < 2).unwrap().1.to_string(), "fd00::2");
        assert!(begun.elapsed().as_secs() < 30);
        let last = set(&["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"]);
        let end: IpAddr = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        assert!(next_free(&last, Some(end), |_| true).is_none());
        assert_eq!(capacity(&last, &HashSet::new()), 3);
        assert_eq!(capacity(&set(&["::/0"]), &HashSet::new()), u128::MAX);
    }
}
