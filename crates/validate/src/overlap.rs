//! Ranges of two networks on one wire: each counts its addresses by itself, and both assign the same ones.

use std::net::IpAddr;

use ipnet::IpNet;
use json::{Object, Value};
use plugin::{Builtins, Plugin};

use crate::between::{About, Between, Network};
use crate::finding::{Finding, under};
use crate::network::{Entry, entries, is_list};

/// Addresses that a network assigns, both ends included.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// What a network has on its wire.
struct OnWire {
    /// Which network.
    network: usize,
    /// Its wire: a parent or a bridge, and the VLAN on it.
    wire: String,
    /// Each range, with its path in the text.
    ranges: Vec<(String, Range)>,
}

/// Ranges of `host-local` networks that overlap on one wire. A network that is there twice under one name counts its addresses together.
pub(crate) fn ranges(networks: &[Network<'_>], builtins: Builtins) -> Vec<Between> {
    let all: Vec<OnWire> = networks.iter().enumerate().flat_map(|(at, network)| on_wires(at, network, builtins)).collect();
    let mut found = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let of = |at: usize| networks.get(at);
        let others = all.iter().take(at).filter(|other| other.wire == one.wire && other.network != one.network);
        let meet = others.filter_map(|other| {
            let (here, there) = (of(one.network)?, of(other.network)?);
            let is_one = here.list.name == there.list.name;
            let (path, range) = one.ranges.iter().find(|(_, range)| other.ranges.iter().any(|(_, theirs)| range.meets(theirs)))?;
            (!is_one).then_some((path, range, there))
        });
        for (path, range, there) in meet.take(1) {
            let message = format!(
                "{} to {} overlaps the range of {} on the same wire ({}): both assign the same addresses",
                range.first, range.last, there.reference, one.wire
            );
            let help = "give each a range of its own with rangeStart and rangeEnd, or both one IPPool with \"pool\"";
            found.push(Between { about: About::Network(one.network), finding: Finding::error(path.clone(), message).help(help) });
        }
    }
    found
}

fn on_wires(at: usize, network: &Network<'_>, builtins: Builtins) -> Vec<OnWire> {
    let is_list = json::parse(network.text.as_bytes()).ok().as_ref().and_then(Value::as_object).is_some_and(is_list);
    let of_entry = |entry: &Entry<'_>| {
        let is_counted_here = entry.ipam.map(Plugin::about).is_some_and(|ipam| ipam.name == "host-local");
        let ranges = entry.entry.raw().object("ipam").map(|ipam| ranges_of(ipam, &under(&entry.prefix, "ipam")))?;
        Some(OnWire { network: at, wire: wire(entry)?, ranges }).filter(|_| is_counted_here)
    };
    entries(network.list, is_list, builtins).iter().filter_map(of_entry).collect()
}

/// The wire that a plugin's interfaces are on; `None`: one that is not shared, or not known.
fn wire(entry: &Entry<'_>) -> Option<String> {
    let raw = entry.entry.raw();
    let inside = raw.get("linkInContainer").and_then(Value::as_bool) == Some(true);
    let number = |key: &str| match raw.get(key) {
        Some(Value::Number(number)) => format!(", VLAN {number}"),
        _ => String::new(),
    };
    match entry.entry.kind.as_str() {
        "macvlan" | "ipvlan" if !inside => raw.str("master").map(|master| format!("link {master}")),
        "vlan" if !inside => raw.str("master").map(|master| format!("link {master}{}", number("vlanId"))),
        "bridge" => {
            let name = raw.str("bridge").filter(|name| !name.is_empty()).unwrap_or("cni0");
            Some(format!("bridge {name}{}", number("vlan")))
        }
        _ => None,
    }
}

fn ranges_of(ipam: &Object, prefix: &str) -> Vec<(String, Range)> {
    let own = range(ipam).map(|range| (under(prefix, "subnet"), range));
    let sets = ipam.get("ranges").and_then(Value::as_array).unwrap_or_default().iter().enumerate();
    let of_sets = sets.flat_map(|(set, value)| {
        let all = value.as_array().unwrap_or_default().iter().enumerate();
        all.map(move |(at, value)| (format!("ranges[{set}][{at}].subnet"), value))
    });
    let of_sets = of_sets.filter_map(|(place, value)| Some((under(prefix, &place), range(value.as_object()?)?)));
    own.into_iter().chain(of_sets).collect()
}

fn range(object: &Object) -> Option<Range> {
    let subnet: IpNet = object.str("subnet")?.parse().ok()?;
    let end = |key: &str, otherwise: IpAddr| match object.str(key).filter(|text| !text.is_empty()) {
        Some(text) => text.parse().ok(),
        None => Some(otherwise),
    };
    Some(Range { first: end("rangeStart", subnet.network())?, last: end("rangeEnd", subnet.broadcast())? })
}

// === impl Range ===

impl Range {
    fn meets(&self, other: &Range) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4() && self.first <= other.last && other.first <= self.last
    }
}
