//! The addresses that a configuration hands out, as far as it says: every spelling of every key of `host-local`, `static` and
//! `whereabouts`, wherever a plugin could read it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use json::{Object, Value};

use super::keys::{Keys, Pairs, all, together};
use super::uses::{Use, address};

/// Addresses of one family, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressRun {
    /// The first.
    pub first: IpAddr,
    /// The last.
    pub last: IpAddr,
}

/// Addresses that stand in a configuration.
pub(super) struct Range {
    /// As it says them.
    pub(super) one: Use,
    /// What pods may get of them.
    pub(super) run: AddressRun,
    /// The address, where it is a single one.
    pub(super) address: Option<IpAddr>,
    network: IpNet,
    gateways: Vec<IpAddr>,
}

// === impl AddressRun ===

impl AddressRun {
    /// A single address.
    pub fn one(address: IpAddr) -> Self {
        AddressRun { first: address, last: address }
    }

    /// A whole network.
    pub fn of(network: IpNet) -> Self {
        AddressRun { first: network.network(), last: network.broadcast() }
    }

    /// How many addresses there are; of all of IPv6 one less.
    pub fn size(&self) -> u128 {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        bits(self.last).saturating_sub(bits(self.first)).saturating_add(1)
    }

    /// Whether there is an address in both.
    pub fn overlaps(&self, other: AddressRun) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4() && self.first <= other.last && other.first <= self.last
    }

    /// Whether it has an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.overlaps(AddressRun::one(address))
    }
}

impl fmt::Display for AddressRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        let most = if self.first.is_ipv4() { 32 } else { 128 };
        let network = (0..=most).filter_map(|prefix| IpNet::new(self.first, prefix).ok()).find(|net| AddressRun::of(*net) == *self);
        match network {
            Some(network) => write!(f, "{network}"),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

// === impl Range ===

impl Range {
    /// The gateways that its pods have: the one that is named, otherwise the first host of the network.
    pub(super) fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let computed = if self.gateways.is_empty() && self.address.is_none() { first_host(self.network) } else { None };
        self.gateways.iter().copied().chain(computed)
    }

    /// The networks that a bridge with a gateway is in.
    pub(super) fn networks(&self) -> impl Iterator<Item = IpNet> + '_ {
        let own = if self.gateways.is_empty() { Some(self.network) } else { None };
        let named = self.gateways.iter().filter_map(|gateway| IpNet::new(*gateway, self.network.prefix_len()).ok());
        named.chain(own).map(|network| network.trunc())
    }
}

/// Every range and address of a plugin's configuration.
pub(super) fn of(raw: &Keys, place: &str) -> Vec<Range> {
    let (ipam, runtime) = (together(raw, "ipam"), together(raw, "runtimeConfig"));
    let args = together(&together(raw, "args"), "cni");
    let mut found: Vec<Range> = range(&ipam, &format!("{place}.ipam")).collect();
    let listed = [(&ipam, "ranges", "ipam"), (&ipam, "ipRanges", "ipam"), (&runtime, "ipRanges", "runtimeConfig")];
    for (object, key, under) in listed {
        for (key, value) in all(object, key) {
            let mut objects = Vec::new();
            below(value, format!("{place}.{under}.{key}"), &mut objects);
            found.extend(objects.into_iter().flat_map(|(object, place)| range(object, &place)));
        }
    }
    for (key, value) in all(&ipam, "addresses") {
        let mut objects = Vec::new();
        below(value, format!("{place}.ipam.{key}"), &mut objects);
        for (object, place) in objects {
            let texts = all(object, "address").filter_map(|(key, value)| Some((key, value.as_str()?)));
            found.extend(texts.filter_map(|(key, text)| single(text, format!("{place}.{key}"), gateways(object))));
        }
    }
    for (object, place) in [(&runtime, format!("{place}.runtimeConfig.ips")), (&args, format!("{place}.args.cni.ips"))] {
        let ips = all(object, "ips").flat_map(|(_, value)| value.as_array().into_iter().flatten());
        found.extend(ips.filter_map(Value::as_str).filter_map(|text| single(text, place.clone(), Vec::new())));
    }
    found
}

fn single(text: &str, place: String, gateways: Vec<IpAddr>) -> Option<Range> {
    let network = network(text).or_else(|| address(text).map(IpNet::from))?;
    let address = network.addr();
    let one = Use { what: text.to_owned(), place };
    Some(Range { one, run: AddressRun::one(address), address: Some(address), network: network.trunc(), gateways })
}

/// What an object with `subnet`, or `range` of whereabouts, hands out: of several values whatever one of them could mean.
fn range<'o, P: Pairs<'o>>(object: P, place: &str) -> impl Iterator<Item = Range> + use<'o, P> {
    let place = place.to_owned();
    let texts = all(object, "subnet").chain(all(object, "range")).filter_map(|(key, value)| Some((key, value.as_str()?)));
    texts.filter_map(move |(key, text)| {
        let (start, rest) = text.split_once('-').map_or((None, text), |(start, rest)| (address(start), rest));
        let whole = network(rest)?;
        let network = start.and_then(|start| IpNet::new(start, whole.prefix_len()).ok()).unwrap_or(whole).trunc();
        let all = AddressRun::of(network);
        let bounds = |keys: &[&str]| -> Vec<IpAddr> { keys.iter().flat_map(|key| addresses(object, key)).collect() };
        let (starts, ends) = (bounds(&["rangeStart", "range_start"]), bounds(&["rangeEnd", "range_end"]));
        let last = if start.is_some() { Some(whole.addr()) } else { None };
        let only = |bounds: Vec<IpAddr>, or: IpAddr| match *bounds.as_slice() {
            [bound] if all.contains(bound) => bound,
            _ => or,
        };
        let run = AddressRun { first: only(starts, start.unwrap_or(all.first)), last: only(ends, last.unwrap_or(all.last)) };
        let one = Use { what: text.to_owned(), place: format!("{place}.{key}") };
        Some(Range { one, run, address: None, network, gateways: gateways(object) })
    })
}

fn gateways<'o>(object: impl Pairs<'o>) -> Vec<IpAddr> {
    addresses(object, "gateway").collect()
}

fn addresses<'o>(object: impl Pairs<'o>, key: &str) -> impl Iterator<Item = IpAddr> {
    all(object, key).filter_map(|(_, value)| address(value.as_str()?))
}

/// Every object in lists, at any depth.
fn below<'v>(value: &'v Value, place: String, objects: &mut Vec<(&'v Object, String)>) {
    match value {
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| below(value, format!("{place}[{index}]"), objects)),
        Value::Object(object) => objects.push((object, place)),
        _ => {}
    }
}

/// An address with a prefix length; one of IPv4 in IPv6's clothes as what it is.
fn network(text: &str) -> Option<IpNet> {
    let (written, prefix) = text.split_once('/')?;
    let prefix: u8 = prefix.parse().ok()?;
    let is_mapped = written.contains(':') && address(written)?.is_ipv4();
    IpNet::new(address(written)?, if is_mapped { prefix.checked_sub(96)? } else { prefix }).ok()
}

/// The gateway that plugins take where none is named.
fn first_host(network: IpNet) -> Option<IpAddr> {
    match network.network() {
        IpAddr::V4(first) => Some(Ipv4Addr::from(u32::from(first).checked_add(1)?).into()),
        IpAddr::V6(first) => Some(Ipv6Addr::from(u128::from(first).checked_add(1)?).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Vec<String> {
        let value = json::parse(text.as_bytes()).unwrap();
        let show = |range: Range| {
            let gateways: Vec<String> = range.gateways().map(|gateway| gateway.to_string()).collect();
            let networks: Vec<String> = range.networks().map(|network| network.to_string()).collect();
            format!("{} {} {}", range.run, gateways.join(","), networks.join(","))
        };
        of(&Keys::of(value.as_object().unwrap()), "p").into_iter().map(show).collect()
    }

    #[test]
    fn ranges_in_every_form() {
        for (text, expected) in [
            (r#"{"ipam":{"subnet":"10.1.0.0/24"}}"#, "10.1.0.0/24 10.1.0.1 10.1.0.0/24"),
            (r#"{"ipam":{"SUBNET":"10.1.0.0/24","rangeStart":"10.1.0.9"}}"#, "10.1.0.9-10.1.0.255 10.1.0.1 10.1.0.0/24"),
            (r#"{"ipam":{"ranges":[[{"subnet":"10.1.0.0/24","gateway":"::ffff:10.2.0.1"}]]}}"#, "10.1.0.0/24 10.2.0.1 10.2.0.0/24"),
            (
                r#"{"runtimeConfig":{"ipRanges":[[{"subnet":"10.1.0.0/24","rangeEnd":"10.1.0.9"}]]}}"#,
                "10.1.0.0-10.1.0.9 10.1.0.1 10.1.0.0/24",
            ),
            // Which of the two counts is the plugin's matter.
            (r#"{"ipam":{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangestart":"10.1.0.1"}}"#, "10.1.0.0/24 10.1.0.1 10.1.0.0/24"),
            (r#"{"ipam":{"range":"10.1.0.5-10.1.0.010/24"}}"#, "10.1.0.5-10.1.0.10 10.1.0.1 10.1.0.0/24"),
            (r#"{"ipam":{"ipRanges":[{"range":"010.1.0.0/24","range_start":"10.1.0.9"}]}}"#, "10.1.0.9-10.1.0.255 10.1.0.1 10.1.0.0/24"),
            (
                r#"{"ipam":{"addresses":[{"address":"192.168.1.77/25","gateway":"192.168.1.126"}]}}"#,
                "192.168.1.77 192.168.1.126 192.168.1.0/25",
            ),
            (r#"{"ipam":{"addresses":[{"address":"::ffff:10.1.0.5/120"}]}}"#, "10.1.0.5  10.1.0.0/24"),
            (r#"{"args":{"cni":{"ips":["10.1.0.5/24"]}}}"#, "10.1.0.5  10.1.0.0/24"),
            (r#"{"ipam":{"subnet":"fd00::/64"}}"#, "fd00::/64 fd00::1 fd00::/64"),
        ] {
            assert_eq!(runs(text), [expected], "{text}");
        }
        for none in [r#"{"ipam":{"subnet":"10.1.0.0"}}"#, r#"{"ipam":{"subnet":7,"range":"x-y/z"}}"#, r#"{"subnet":"10.1.0.0/24"}"#] {
            assert_eq!(runs(none), [""; 0], "{none}");
        }
    }
}
