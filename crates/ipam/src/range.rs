//! Which addresses a network may hand out: ranges, and sets of them. Each set yields one address of an attachment.
//!
//! Everything here is arithmetic on 128-bit numbers: a /64 costs no more than a /30.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{CniError, Code};
use ipnet::IpNet;
use serde::Deserialize;

use crate::{net, shown};

/// A range as it stands in a configuration. An empty text counts as absent, as in the reference plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RawRange {
    /// The network, as `10.1.0.0/16`.
    pub subnet: String,
    /// First address to hand out; the first host's if absent.
    pub range_start: Option<String>,
    /// Last address to hand out; if absent the last but one for IPv4 (the last is the broadcast address), the last for
    /// IPv6.
    pub range_end: Option<String>,
    /// The gateway, never handed out; the first host's address if absent.
    pub gateway: Option<String>,
}

/// Where ranges come from, in the order in which their sets count: those that the runtime sends, the one that stands in
/// `ipam` itself, those of `ipam.ranges`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeSources<'a> {
    /// `runtimeConfig.ipRanges`
    pub runtime: &'a [Vec<RawRange>],
    /// `ipam.subnet` and its companions, the form of old configurations; without a subnet it does not count.
    pub single: Option<&'a RawRange>,
    /// `ipam.ranges`
    pub ranges: &'a [Vec<RawRange>],
}

/// A checked range: start and end lie in the subnet, start is not behind end, gateway and subnet are of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    subnet: IpNet,
    start: IpAddr,
    end: IpAddr,
    gateway: IpAddr,
}

/// Ranges of one family that do not overlap; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// Ranges that cannot be used: each says where, what, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// No ranges at all.
    #[error("no IP ranges specified: give ipam.ranges, such as [[{{\"subnet\": \"10.1.0.0/16\"}}]], or send runtimeConfig.ipRanges")]
    NoRanges,
    /// A set without ranges.
    #[error("{place}: the range set is empty: it needs at least one range, such as {{\"subnet\": \"10.1.0.0/16\"}}")]
    EmptySet {
        /// The set.
        place: String,
    },
    /// A range without a subnet.
    #[error("{place}: missing: a range needs its network, such as 10.1.0.0/16 or fd00:1::/64")]
    NoSubnet {
        /// The key.
        place: String,
    },
    /// A subnet that is none.
    #[error("{place}: {text:?} is not a network: expected address/prefix length, such as 10.1.0.0/16 or fd00:1::/64")]
    Subnet {
        /// The key.
        place: String,
        /// Its value.
        text: String,
    },
    /// A subnet without room for a gateway and a host.
    #[error("{place}: {subnet} is too small to allocate from: at least a /{least} is needed")]
    TooSmall {
        /// The key.
        place: String,
        /// Its value.
        subnet: IpNet,
        /// The longest prefix that would do.
        least: u8,
    },
    /// A subnet that is an address in a network.
    #[error("{place}: {subnet} has host bits set: the network is {network}")]
    HostBits {
        /// The key.
        place: String,
        /// Its value.
        subnet: IpNet,
        /// What it should be.
        network: IpNet,
    },
    /// An address that is none.
    #[error("{place}: {text:?} is not an IP address")]
    Address {
        /// The key.
        place: String,
        /// Its value.
        text: String,
    },
    /// An address of the other family.
    #[error("{place}: {address} is not of the same address family as the subnet {subnet}")]
    Family {
        /// The key.
        place: String,
        /// Its value.
        address: IpAddr,
        /// The range's subnet.
        subnet: IpNet,
    },
    /// An address outside its subnet.
    #[error("{place}: {address} is not in the subnet {subnet} ({first} to {last})", first = .subnet.network(), last = .subnet.broadcast())]
    Outside {
        /// The key.
        place: String,
        /// Its value.
        address: IpAddr,
        /// The range's subnet.
        subnet: IpNet,
    },
    /// A range that ends before it starts.
    #[error("{place}: the range ends at {end}, before it starts at {start}: swap rangeStart and rangeEnd or correct one")]
    Reversed {
        /// The range.
        place: String,
        /// Its start.
        start: IpAddr,
        /// Its end.
        end: IpAddr,
    },
    /// IPv4 and IPv6 in one set.
    #[error("{place}: {subnet} is not of the same address family as {first} in the same range set: give each family a set of its own")]
    MixedFamilies {
        /// The key.
        place: String,
        /// The odd subnet.
        subnet: IpNet,
        /// The set's first subnet.
        first: IpNet,
    },
    /// Two ranges share addresses.
    #[error("{place}: {range} overlaps with {other} of {other_place}: an address may be in one range only")]
    Overlap {
        /// One range's place.
        place: String,
        /// One range.
        range: Box<Range>,
        /// The other range's place.
        other_place: String,
        /// The other range.
        other: Box<Range>,
    },
}

impl From<RangeError> for CniError {
    fn from(e: RangeError) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string()).at(e.place())
    }
}

// === impl RangeError ===

impl RangeError {
    /// The key that it is about.
    pub fn place(&self) -> &str {
        match self {
            RangeError::NoRanges => "ipam.ranges",
            RangeError::EmptySet { place }
            | RangeError::NoSubnet { place }
            | RangeError::Subnet { place, .. }
            | RangeError::TooSmall { place, .. }
            | RangeError::HostBits { place, .. }
            | RangeError::Address { place, .. }
            | RangeError::Family { place, .. }
            | RangeError::Outside { place, .. }
            | RangeError::Reversed { place, .. }
            | RangeError::MixedFamilies { place, .. }
            | RangeError::Overlap { place, .. } => place,
        }
    }
}

// === impl Range ===

impl Range {
    /// Checks one range; `place` is where it stands, as `ipam.ranges[0][1]`.
    ///
    /// # Errors
    /// [`RangeError`] naming the key below `place`.
    pub fn check(place: &str, raw: &RawRange) -> Result<Self, RangeError> {
        let subnet = subnet(&format!("{place}.subnet"), &raw.subnet)?;
        let v4 = is_v4(subnet);
        let first_host = address(v4, number(subnet.network()).saturating_add(1));
        let broadcast = number(subnet.broadcast());
        let last_host = address(v4, if v4 { broadcast.saturating_sub(1) } else { broadcast });

        let given = |key: &str, text: &Option<String>| -> Result<Option<(String, IpAddr)>, RangeError> {
            let Some(text) = text.as_deref().filter(|t| !t.is_empty()) else { return Ok(None) };
            let place = format!("{place}.{key}");
            let Ok(ip) = text.parse::<IpAddr>() else { return Err(RangeError::Address { place, text: shown(text) }) };
            let address = ip.to_canonical();
            if address.is_ipv4() != v4 {
                return Err(RangeError::Family { place, address, subnet });
            }
            Ok(Some((place, address)))
        };
        let inside = |bound: Option<(String, IpAddr)>, otherwise: IpAddr| match bound {
            None => Ok(otherwise),
            Some((_, address)) if subnet.contains(&address) => Ok(address),
            Some((place, address)) => Err(RangeError::Outside { place, address, subnet }),
        };
        let start = inside(given("rangeStart", &raw.range_start)?, first_host)?;
        let end = inside(given("rangeEnd", &raw.range_end)?, last_host)?;
        // A gateway beyond the subnet is legitimate: a route to it can be made before it is used.
        let gateway = given("gateway", &raw.gateway)?.map_or(first_host, |(_, address)| address);
        if number(start) > number(end) {
            return Err(RangeError::Reversed { place: place.to_owned(), start, end });
        }
        Ok(Range { subnet, start, end, gateway })
    }

    /// The network; its prefix length is that of every address handed out.
    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    /// First address, inclusive.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address, inclusive.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// The gateway; it may lie inside the range and is never handed out.
    pub fn gateway(&self) -> IpAddr {
        self.gateway
    }

    /// Whether an address lies between start and end.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.start.is_ipv4() && (number(self.start)..=number(self.end)).contains(&number(ip))
    }

    /// Start and end as numbers.
    pub(crate) fn numbers(&self) -> (u128, u128) {
        (number(self.start), number(self.end))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

// === impl RangeSet ===

impl RangeSet {
    /// Checks all ranges of a configuration: each by itself, then each set, then all together.
    ///
    /// # Errors
    /// [`RangeError`] naming the place.
    pub fn check_all(sources: RangeSources<'_>) -> Result<Vec<RangeSet>, RangeError> {
        let mut sets = Vec::new();
        let mut places = Vec::new();
        let mut add = |place: String, set: &[RawRange], old_form: bool| {
            let range_place = |i: usize| if old_form { place.clone() } else { format!("{place}[{i}]") };
            let checked = RangeSet::check(&place, set, range_place)?;
            places.extend((0..set.len()).map(range_place));
            sets.push(checked);
            Ok(())
        };
        for (i, set) in sources.runtime.iter().enumerate() {
            add(format!("runtimeConfig.ipRanges[{i}]"), set, false)?;
        }
        if let Some(single) = sources.single.filter(|s| !s.subnet.is_empty()) {
            add("ipam".to_owned(), std::slice::from_ref(single), true)?;
        }
        for (i, set) in sources.ranges.iter().enumerate() {
            add(format!("ipam.ranges[{i}]"), set, false)?;
        }
        if sets.is_empty() {
            return Err(RangeError::NoRanges);
        }
        no_overlap(&sets, &places)?;
        Ok(sets)
    }

    fn check(place: &str, raw: &[RawRange], range_place: impl Fn(usize) -> String) -> Result<Self, RangeError> {
        let mut ranges: Vec<Range> = Vec::with_capacity(raw.len());
        for (i, raw) in raw.iter().enumerate() {
            let range = Range::check(&range_place(i), raw)?;
            match ranges.first() {
                Some(first) if is_v4(first.subnet) != is_v4(range.subnet) => {
                    let place = format!("{}.subnet", range_place(i));
                    return Err(RangeError::MixedFamilies { place, subnet: range.subnet, first: first.subnet });
                }
                _ => ranges.push(range),
            }
        }
        if ranges.is_empty() {
            return Err(RangeError::EmptySet { place: place.to_owned() });
        }
        Ok(RangeSet(ranges))
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// Whether these are IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.0.first().is_some_and(|r| is_v4(r.subnet))
    }

    /// The range that an address lies in.
    pub fn range_for(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|r| r.contains(ip))
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 6;
        for (i, range) in self.0.iter().take(MOST).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{range}")?;
        }
        match self.0.len().checked_sub(MOST) {
            Some(more @ 1..) => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

/// Sorted by start, ranges overlap only if neighbours do: a configuration of 100,000 ranges is no way to keep us busy.
fn no_overlap(sets: &[RangeSet], places: &[String]) -> Result<(), RangeError> {
    let mut sorted: Vec<(bool, u128, &Range, &String)> =
        sets.iter().flat_map(|s| &s.0).zip(places).map(|(r, place)| (is_v4(r.subnet), r.numbers().0, r, place)).collect();
    sorted.sort_by_key(|(v4, start, ..)| (*v4, *start));
    for pair in sorted.windows(2) {
        let [(_, _, first, first_place), (_, _, second, second_place)] = pair else { continue };
        if first.contains(second.start) {
            return Err(RangeError::Overlap {
                place: (*second_place).clone(),
                range: Box::new((*second).clone()),
                other_place: (*first_place).clone(),
                other: Box::new((*first).clone()),
            });
        }
    }
    Ok(())
}

fn subnet(place: &str, text: &str) -> Result<IpNet, RangeError> {
    let place = || place.to_owned();
    if text.is_empty() {
        return Err(RangeError::NoSubnet { place: place() });
    }
    let Some(subnet) = net(text) else { return Err(RangeError::Subnet { place: place(), text: shown(text) }) };
    if subnet.prefix_len() + 2 > subnet.max_prefix_len() {
        return Err(RangeError::TooSmall { place: place(), subnet, least: subnet.max_prefix_len() - 2 });
    }
    if subnet != subnet.trunc() {
        return Err(RangeError::HostBits { place: place(), subnet, network: subnet.trunc() });
    }
    Ok(subnet)
}

fn is_v4(net: IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

/// An address as a number.
pub(crate) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// A number as an address; one beyond IPv4 is its last address.
pub(crate) fn address(v4: bool, number: u128) -> IpAddr {
    if v4 { IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))) } else { IpAddr::V6(Ipv6Addr::from_bits(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(subnet: &str, start: &str, end: &str, gateway: &str) -> RawRange {
        let given = |s: &str| Some(s.to_owned());
        RawRange { subnet: subnet.into(), range_start: given(start), range_end: given(end), gateway: given(gateway) }
    }

    fn all(ranges: &[Vec<RawRange>]) -> Result<Vec<RangeSet>, RangeError> {
        RangeSet::check_all(RangeSources { ranges, ..RangeSources::default() })
    }

    #[test]
    fn defaults_and_bounds() {
        for (given, start, end, gateway) in [
            (raw("10.0.0.0/24", "", "", ""), "10.0.0.1", "10.0.0.254", "10.0.0.1"),
            (raw("10.0.0.128/30", "", "", ""), "10.0.0.129", "10.0.0.130", "10.0.0.129"),
            (raw("0.0.0.0/0", "", "", ""), "0.0.0.1", "255.255.255.254", "0.0.0.1"),
            (raw("fd00::/64", "", "", ""), "fd00::1", "fd00::ffff:ffff:ffff:ffff", "fd00::1"),
            (raw("::/0", "::", "", "fe80::1"), "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::1"),
            (raw("fd00::/126", "", "", ""), "fd00::1", "fd00::3", "fd00::1"),
            (raw("10.0.0.0/24", "10.0.0.0", "10.0.0.255", "192.0.2.1"), "10.0.0.0", "10.0.0.255", "192.0.2.1"),
            (raw("10.0.0.0/24", "::ffff:10.0.0.7", "10.0.0.7", ""), "10.0.0.7", "10.0.0.7", "10.0.0.1"),
        ] {
            let range = Range::check("x", &given).unwrap();
            assert_eq!((range.start().to_string().as_str(), range.end().to_string().as_str()), (start, end), "{given:?}");
            assert_eq!(range.gateway().to_string(), gateway);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (given, expected) in [
            (raw("", "", "", ""), "ipam.ranges[0][0].subnet: missing"),
            (raw("10.0.0.0", "", "", ""), "ipam.ranges[0][0].subnet: \"10.0.0.0\" is not a network"),
            (raw("10.0.0.0/33", "", "", ""), "is not a network"),
            (raw("010.0.0.0/24", "", "", ""), "is not a network"),
            (raw("10.0.0.0/31", "", "", ""), "10.0.0.0/31 is too small to allocate from: at least a /30"),
            (raw("fd00::/127", "", "", ""), "at least a /126"),
            (raw("10.0.0.7/24", "", "", ""), "10.0.0.7/24 has host bits set: the network is 10.0.0.0/24"),
            (raw("fd00:0:0:ff::/63", "", "", ""), "the network is fd00:0:0:fe::/63"),
            (raw("10.0.0.0/24", "x", "", ""), "ipam.ranges[0][0].rangeStart: \"x\" is not an IP address"),
            (raw("10.0.0.0/24", "10.0.1.1", "", ""), "rangeStart: 10.0.1.1 is not in the subnet 10.0.0.0/24 (10.0.0.0 to 10.0.0.255)"),
            (raw("10.0.0.0/24", "", "9.255.255.255", ""), "rangeEnd: 9.255.255.255 is not in the subnet"),
            (raw("10.0.0.0/24", "10.0.0.9", "10.0.0.8", ""), "ends at 10.0.0.8, before it starts at 10.0.0.9"),
            (raw("10.0.0.0/24", "", "10.0.0.0", ""), "ends at 10.0.0.0, before it starts at 10.0.0.1"),
            (raw("10.0.0.0/24", "fd00::1", "", ""), "rangeStart: fd00::1 is not of the same address family"),
            (raw("10.0.0.0/24", "", "", "fd00::1"), "gateway: fd00::1 is not of the same address family"),
        ] {
            let text = all(&[vec![given.clone()]]).unwrap_err().to_string();
            assert!(text.contains(expected), "{given:?}: {text}");
        }
        assert_eq!(all(&[]).unwrap_err(), RangeError::NoRanges);
        assert_eq!(all(&[vec![]]).unwrap_err(), RangeError::EmptySet { place: "ipam.ranges[0]".into() });
    }

    #[test]
    fn families_and_overlaps() {
        let whole = |subnet: &str| raw(subnet, "", "", "");
        let error = |ranges: &[Vec<RawRange>]| all(ranges).unwrap_err().to_string();
        assert!(error(&[vec![whole("10.0.0.0/24"), whole("fd00::/64")]]).starts_with("ipam.ranges[0][1].subnet: fd00::/64 is not of"));
        let within = error(&[vec![whole("10.0.0.0/20"), whole("10.0.2.0/24")]]);
        assert!(
            within.contains("ipam.ranges[0][1]: 10.0.2.1-10.0.2.254 overlaps with 10.0.0.1-10.0.15.254 of ipam.ranges[0][0]"),
            "{within}"
        );
        let between = error(&[vec![whole("10.0.2.0/24")], vec![whole("fd00::/64")], vec![whole("10.0.0.0/20")]]);
        assert!(between.contains("ipam.ranges[0][0]") && between.contains("ipam.ranges[2][0]"), "{between}");
        assert!(error(&[vec![raw("10.0.0.0/24", "", "10.0.0.9", "")], vec![raw("10.0.0.0/24", "10.0.0.9", "", "")]]).contains("overlaps"));
        for fine in [
            vec![vec![raw("10.0.0.0/24", "", "10.0.0.127", "")], vec![raw("10.0.0.0/24", "10.0.0.128", "", "")]],
            vec![vec![whole("0.0.0.0/24")], vec![whole("::/24")]],
        ] {
            assert!(all(&fine).is_ok(), "{fine:?}");
        }
    }

    #[test]
    fn sources_have_an_order_and_a_place() {
        let (runtime, ranges) = (vec![vec![raw("10.1.0.0/24", "", "", "")]], vec![vec![raw("10.3.0.0/24", "", "", "")]]);
        let single = raw("10.2.0.0/24", "", "", "");
        let sets = RangeSet::check_all(RangeSources { runtime: &runtime, single: Some(&single), ranges: &ranges }).unwrap();
        let starts: Vec<String> = sets.iter().map(|s| s.ranges()[0].start().to_string()).collect();
        assert_eq!(starts, ["10.1.0.1", "10.2.0.1", "10.3.0.1"]);
        let bad = raw("10.2.0.0/24", "x", "", "");
        let error = RangeSet::check_all(RangeSources { single: Some(&bad), ..RangeSources::default() }).unwrap_err();
        assert!(error.to_string().starts_with("ipam.rangeStart: "), "{error}");
        let bad = vec![vec![bad]];
        let error = RangeSet::check_all(RangeSources { runtime: &bad, ..RangeSources::default() }).unwrap_err();
        assert!(error.to_string().starts_with("runtimeConfig.ipRanges[0][0].rangeStart: "), "{error}");
        assert!(RangeSet::check_all(RangeSources { single: Some(&RawRange::default()), ranges: &ranges, runtime: &[] }).is_ok());
    }

    #[test]
    fn a_hundred_thousand_ranges_are_checked_at_once() {
        let set: Vec<RawRange> = (0..100_000u32).map(|n| raw(&format!("{}/30", Ipv4Addr::from_bits(n * 4)), "", "", "")).collect();
        assert_eq!(all(std::slice::from_ref(&set)).unwrap()[0].ranges().len(), 100_000);
        assert!(all(&[set]).unwrap()[0].to_string().ends_with("and 99994 more"));
    }
}
