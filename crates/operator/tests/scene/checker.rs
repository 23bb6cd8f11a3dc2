//! Whether the ledger and what nodes were granted agree. It reads JSON and counts with u128, and shares no code with what it checks.

use std::net::IpAddr;

use serde_json::Value;

/// Addresses from one number to another, of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    four: bool,
    first: u128,
    last: u128,
}

impl Span {
    /// `10.0.0.0/26`, or one address.
    pub(crate) fn of(text: &str) -> Span {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p.parse::<u32>().unwrap())));
        let (four, number, bits) = match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(a) => (true, u128::from(u32::from(a)), 32),
            IpAddr::V6(a) => (false, u128::from(a), 128),
        };
        let host = bits - prefix.unwrap_or(bits);
        let size = if host == 128 { u128::MAX } else { (1_u128 << host) - 1 };
        assert_eq!(number & size, 0, "{text} has bits behind its prefix");
        Span { four, first: number, last: number + size }
    }

    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        self.four == other.four && self.first <= other.last && other.first <= self.last
    }
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

/// A cell of the ledger that is not free: network, addresses, epoch, state, the node's UID.
type Cell = (String, Span, u64, String, String);

fn cells(shards: &[Value]) -> Vec<Cell> {
    let mut found = Vec::new();
    for shard in shards {
        let spec = &shard["spec"];
        let base = Span::of(text(spec, "base"));
        let bits = if base.four { 32 } else { 128 };
        let size = 1_u128 << (bits - spec["cellPrefix"].as_u64().unwrap());
        for (number, cell) in spec["cells"].as_object().into_iter().flatten() {
            let first = base.first + number.parse::<u128>().unwrap() * size;
            let span = Span { four: base.four, first, last: first + size - 1 };
            assert!(span.last <= base.last, "cell {number} lies outside of {}", text(spec, "base"));
            let epoch = cell["epoch"].as_u64().unwrap_or_default();
            found.push((text(spec, "network").to_owned(), span, epoch, text(cell, "state").to_owned(), text(cell, "nodeUID").to_owned()));
            for (offset, ip) in cell["ips"].as_object().into_iter().flatten() {
                let at = first + offset.parse::<u128>().unwrap();
                let span = Span { four: base.four, first: at, last: at };
                let epoch = ip["epoch"].as_u64().unwrap_or_default();
                let state = if text(ip, "nodeUID").is_empty() { "Free" } else { "Granted" };
                found.push((text(spec, "network").to_owned(), span, epoch, state.to_owned(), text(ip, "nodeUID").to_owned()));
                // The claim's pod migrates: another node has it as well.
                if let Some(uid) = ip["second"]["nodeUID"].as_str() {
                    let epoch = ip["second"]["epoch"].as_u64().unwrap();
                    found.push((text(spec, "network").to_owned(), span, epoch, "Granted".to_owned(), uid.to_owned()));
                }
            }
        }
    }
    found
}

/// What is wrong with some objects, as they are at one moment.
pub(crate) fn wrong(node_pools: &[Value], shards: &[Value]) -> Vec<String> {
    let ledger = cells(shards);
    let mut found = Vec::new();
    let whole: Vec<&Cell> = ledger.iter().filter(|c| c.3 != "Shared" && c.1.first != c.1.last).collect();
    for (i, a) in whole.iter().enumerate() {
        found.extend(
            whole[i + 1..].iter().filter(|b| a.0 == b.0 && a.1.overlaps(&b.1)).map(|b| format!("two cells overlap: {a:?} and {b:?}")),
        );
    }
    let mut live: Vec<(String, Span, String)> = Vec::new();
    for object in node_pools {
        let (node, spec) = (text(&object["metadata"], "name"), &object["spec"]);
        let blocks = spec["blocks"].as_array().into_iter().flatten().map(|b| (b, text(b, "cidr")));
        let ips = spec["ips"].as_array().into_iter().flatten().map(|i| (i, text(i, "ip")));
        for (granted, addresses) in blocks.chain(ips) {
            let (span, network, epoch) = (Span::of(addresses), text(granted, "network"), granted["epoch"].as_u64().unwrap());
            let mut known = ledger.iter().filter(|c| c.0 == network && c.1 == span);
            let own = known.clone().find(|c| c.2 == epoch && c.4 == text(spec, "nodeUID"));
            let Some(cell) = own.or_else(|| known.next()) else {
                found.push(format!("{node} has {addresses}, which is in no shard"));
                continue;
            };
            match (cell.2.cmp(&epoch), cell.3.as_str(), cell.4 == text(spec, "nodeUID")) {
                (std::cmp::Ordering::Less, ..) => {
                    found.push(format!("{node} has {addresses} in life {epoch}, the ledger is at {}", cell.2))
                }
                (std::cmp::Ordering::Equal, "Granted" | "Returning", false) => {
                    found.push(format!("{node} has {addresses} of another node"))
                }
                (std::cmp::Ordering::Equal, "Granted" | "Returning", true) => live.push((network.to_owned(), span, node.to_owned())),
                _ => {}
            }
        }
    }
    // Two nodes may have an address of a claim, where the ledger has it as both of theirs.
    let two = |a: &(String, Span, String), b: &(String, Span, String)| {
        a.1 == b.1 && ledger.iter().filter(|c| c.0 == a.0 && c.1 == a.1 && c.3 == "Granted").count() == 2
    };
    for (i, a) in live.iter().enumerate() {
        let others = live[i + 1..].iter().filter(|b| a.0 == b.0 && a.1.overlaps(&b.1) && !two(a, b));
        found.extend(others.map(|b| format!("two nodes have it: {a:?} and {b:?}")));
    }
    found
}
