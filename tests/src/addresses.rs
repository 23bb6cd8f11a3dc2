//! Who has which address of a cluster, by four witnesses that know nothing of each other.
//!
//! ```text
//!   ip -j addr, in each namespace  --> Sighting -.
//!   NodeIPPool, as JSON  ------------------------+--> wrong(): what does not agree, in words
//!   IPLedgerShard, as JSON  --------------------'
//!   the journal's files  --> crate::leases::held(): what a node has written of each attachment
//! ```
//!
//! Addresses are numbers here, by arithmetic of this file's own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Addresses from one number to another, of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    four: bool,
    first: u128,
    last: u128,
}

/// An address that a namespace has.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// Where addresses are unique.
    pub network: String,
    /// The address.
    pub address: IpAddr,
    /// The namespace's name.
    pub namespace: String,
    /// The name of the node.
    pub node: String,
    /// The UID that the node's object had when this was attached.
    pub uid: String,
}

/// A cell of the ledger, or one address of it, that somebody has.
struct Cell {
    network: String,
    span: Span,
    epoch: u64,
    state: String,
    uid: String,
    /// Another node that may have it as well.
    with: String,
}

// === impl Span ===

impl Span {
    fn of(text: &str) -> Span {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p.parse::<u32>().unwrap())));
        let one = Span::one(address.parse().unwrap());
        let host = if one.four { 32 } else { 128 } - prefix.unwrap_or(if one.four { 32 } else { 128 });
        let size = 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        assert_eq!(one.first & size, 0, "{text} has bits behind its prefix");
        Span { last: one.first + size, ..one }
    }

    fn one(address: IpAddr) -> Span {
        let (four, number) = match address {
            IpAddr::V4(a) => (true, u128::from(u32::from(a))),
            IpAddr::V6(a) => (false, u128::from(a)),
        };
        Span { four, first: number, last: number }
    }

    fn has(&self, other: &Span) -> bool {
        self.four == other.four && self.first <= other.first && other.last <= self.last
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.four == other.four && self.first <= other.last && other.first <= self.last
    }
}

/// The addresses that a namespace has on its interfaces, the loopback one aside, without those that the kernel makes for each link.
///
/// # Panics
/// If `ip` cannot tell.
pub fn seen(namespace: &str) -> Vec<(String, IpAddr)> {
    let out = Command::new("ip").args(["-n", namespace, "-j", "addr"]).output().unwrap();
    assert!(out.status.success(), "ip -n {namespace}: {}", String::from_utf8_lossy(&out.stderr));
    of_links(&serde_json::from_slice(&out.stdout).unwrap())
}

/// The same, of what `ip -j addr` has printed.
///
/// # Panics
/// If that is something else.
pub fn of_links(links: &Value) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    for link in links.as_array().unwrap().iter().filter(|link| link["ifname"] != "lo") {
        for info in link["addr_info"].as_array().unwrap().iter().filter(|info| info["scope"] != "link") {
            found.push((text(link, "ifname").to_owned(), text(info, "local").parse().unwrap()));
        }
    }
    found
}

/// The least that a pool and family of a node has free; 0 without any.
///
/// # Panics
/// If `netloom ipam` cannot tell.
pub fn free(netloom: &Path, journal: &Path) -> u64 {
    let out = Command::new(netloom).args(["ipam", "status", "-o", "json", "--dir"]).arg(journal).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    all.iter().map(|line| line["free"].as_u64().unwrap_or(u64::MAX)).min().unwrap_or_default()
}

/// What does not agree, at one moment at which nothing changes: an address in two namespaces of a network; one that the ledger does
/// not have, has as somebody else's, or as free; one that its node was not granted; a block of two nodes.
pub fn wrong(live: &[Sighting], nodes: &[Value], shards: &[Value]) -> Vec<String> {
    let cells = cells(shards);
    let mut found = Vec::new();
    for (n, one) in live.iter().enumerate() {
        // The one exception: a claim's pod migrates, and the ledger has its address as both nodes'.
        let at = Span::one(one.address);
        let both = |other: &Sighting| migrates(&cells, &one.network, at, &one.uid, &other.uid);
        let same = |other: &&Sighting| other.network == one.network && other.address == one.address && !both(other);
        found.extend(live[n + 1..].iter().filter(same).map(|other| format!("two have it: {one:?} and {other:?}")));
        let mut known = cells.iter().filter(|cell| cell.network == one.network && cell.span.has(&at));
        match known.clone().find(|cell| cell.state == "Granted" && cell.uid == one.uid).or_else(|| known.next()) {
            None => found.push(format!("the ledger does not have {one:?}")),
            Some(cell) if cell.state != "Granted" => found.push(format!("the ledger has it as {}: {one:?}", cell.state)),
            Some(cell) if cell.uid != one.uid => found.push(format!("the ledger has it of {}: {one:?}", cell.uid)),
            Some(_) => {}
        }
        let own = nodes.iter().filter(|node| node["spec"]["nodeUID"] == one.uid.as_str()).flat_map(granted);
        if !own.into_iter().any(|(network, span, _)| network == one.network && span.has(&at)) {
            found.push(format!("its node was not granted it: {one:?}"));
        }
    }
    found.extend(of_two(nodes, &cells));
    found
}

/// Blocks that two nodes have, each as the ledger has it.
fn of_two(nodes: &[Value], cells: &[Cell]) -> Vec<String> {
    let mut all: Vec<(String, Span, String)> = Vec::new();
    for node in nodes {
        let uid = text(&node["spec"], "nodeUID");
        let valid = |(network, span, epoch): &(String, Span, u64)| {
            cells.iter().any(|c| c.network == *network && c.span == *span && c.epoch == *epoch && c.uid == uid && c.state != "Free")
        };
        all.extend(
            granted(node).into_iter().filter(valid).map(|(network, span, _)| (network, span, text(&node["metadata"], "name").to_owned())),
        );
    }
    let mut found = Vec::new();
    for (n, one) in all.iter().enumerate() {
        let uid =
            |name: &str| nodes.iter().find(|n| n["metadata"]["name"] == name).map(|n| text(&n["spec"], "nodeUID")).unwrap_or_default();
        let moves = |other: &(String, Span, String)| one.1 == other.1 && migrates(cells, &one.0, one.1, uid(&one.2), uid(&other.2));
        let both = |other: &&(String, Span, String)| other.0 == one.0 && other.1.overlaps(&one.1) && !moves(other);
        found.extend(all[n + 1..].iter().filter(both).map(|other| format!("two nodes have it: {one:?} and {other:?}")));
    }
    found
}

/// What does not agree in very many objects, none of which is being written: each block is held against the next one and against its cell
/// alone. There are no claims.
pub fn wrong_blocks(nodes: &[Value], shards: &[Value]) -> Vec<String> {
    let cells = cells(shards);
    let known: HashMap<(&str, bool, u128), &Cell> =
        cells.iter().map(|cell| ((cell.network.as_str(), cell.span.four, cell.span.first), cell)).collect();
    let of_node = |node: &Value| {
        let (name, uid) = (text(&node["metadata"], "name").to_owned(), text(&node["spec"], "nodeUID").to_owned());
        granted(node).into_iter().map(move |(network, span, epoch)| (network, span, epoch, uid.clone(), name.clone()))
    };
    let mut all: Vec<(String, Span, u64, String, String)> = nodes.iter().flat_map(of_node).collect();
    all.sort_by(|a, b| (&a.0, a.1.four, a.1.first).cmp(&(&b.0, b.1.four, b.1.first)));
    let two = all.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].1.overlaps(&pair[1].1));
    let mut found: Vec<String> = two.map(|pair| format!("two nodes have it: {pair:?}")).collect();
    for one in &all {
        let cell = known.get(&(one.0.as_str(), one.1.four, one.1.first));
        let own = cell.is_some_and(|cell| cell.span == one.1 && cell.epoch == one.2 && cell.uid == one.3 && cell.state != "Free");
        found.extend((!own).then(|| format!("the ledger does not have it as this node's: {one:?}")));
    }
    found
}

/// How many blocks the ledger has as somebody's.
pub fn blocks_out(shards: &[Value]) -> usize {
    cells(shards).iter().filter(|cell| !cell.uid.is_empty()).count()
}

/// Whether the ledger has an address as two nodes', in one entry: a claim's pod migrates.
fn migrates(cells: &[Cell], network: &str, at: Span, one: &str, other: &str) -> bool {
    let of = |uid: &str, with: &str| cells.iter().any(|c| c.network == network && c.span == at && c.uid == uid && c.with == with);
    !one.is_empty() && !other.is_empty() && (of(one, other) || of(other, one))
}

/// Network, addresses and epoch of all that a node's object grants.
fn granted(node: &Value) -> Vec<(String, Span, u64)> {
    let list = |name: &str, key: &'static str| {
        let all = node["spec"][name].as_array().cloned().unwrap_or_default();
        all.into_iter().map(move |one| (text(&one, "network").to_owned(), Span::of(text(&one, key)), one["epoch"].as_u64().unwrap()))
    };
    list("blocks", "cidr").chain(list("ips", "ip")).collect()
}

fn cells(shards: &[Value]) -> Vec<Cell> {
    let mut found = Vec::new();
    for spec in shards.iter().map(|shard| &shard["spec"]) {
        let base = Span::of(text(spec, "base"));
        let size = 1_u128 << (if base.four { 32 } else { 128 } - spec["cellPrefix"].as_u64().unwrap());
        for (number, cell) in spec["cells"].as_object().into_iter().flatten() {
            let first = base.first + number.parse::<u128>().unwrap() * size;
            let mut add = |span: Span, of: &Value, state: &str| {
                let (epoch, uid) = (of["epoch"].as_u64().unwrap_or_default(), text(of, "nodeUID").to_owned());
                found.push(Cell {
                    network: text(spec, "network").to_owned(),
                    span,
                    epoch,
                    state: state.to_owned(),
                    uid,
                    with: text(&of["second"], "nodeUID").to_owned(),
                });
            };
            for (offset, ip) in cell["ips"].as_object().into_iter().flatten() {
                let at = first + offset.parse::<u128>().unwrap();
                let span = Span { four: base.four, first: at, last: at };
                add(span, ip, if text(ip, "nodeUID").is_empty() { "Free" } else { "Granted" });
                if !text(&ip["second"], "nodeUID").is_empty() {
                    add(span, &ip["second"], "Granted");
                }
            }
            add(Span { four: base.four, first, last: first + (size - 1) }, cell, text(cell, "state"));
        }
    }
    found
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> (Vec<Sighting>, Vec<Value>, Vec<Value>) {
        let one = |address: &str, namespace: &str, node: &str| Sighting {
            network: "net".into(),
            address: address.parse().unwrap(),
            namespace: namespace.into(),
            node: node.into(),
            uid: format!("u-{node}"),
        };
        let node = |name: &str, cidr: &str| json!({"metadata": {"name": name}, "spec": {"nodeUID": format!("u-{name}"), "blocks": [{"cidr": cidr, "network": "net", "epoch": 3}]}});
        let cell = |node: &str| json!({"state": "Granted", "epoch": 3, "nodeUID": format!("u-{node}")});
        let shard = json!({"spec": {"network": "net", "base": "10.0.0.0/24", "cellPrefix": 30, "cells": {"0": cell("a"), "2": cell("b")}}});
        (vec![one("10.0.0.1", "p", "a"), one("10.0.0.9", "q", "b")], vec![node("a", "10.0.0.0/30"), node("b", "10.0.0.8/30")], vec![shard])
    }

    #[test]
    fn two_have_an_address_where_the_ledger_says_that_a_pod_migrates() {
        let (mut live, mut nodes, mut shards) = cluster();
        live.iter_mut().for_each(|one| one.address = "10.0.0.5".parse().unwrap());
        for (node, epoch) in nodes.iter_mut().zip([4, 5]) {
            node["spec"]["ips"] = json!([{"ip": "10.0.0.5", "network": "net", "epoch": epoch}]);
        }
        let ip = json!({"epoch": 4, "nodeUID": "u-a", "second": {"epoch": 5, "nodeUID": "u-b"}});
        shards[0]["spec"]["cells"]["1"] = json!({"state": "Shared", "epoch": 3, "ips": {"1": ip}});
        assert_eq!(wrong(&live, &nodes, &shards), Vec::<String>::new());
        shards[0]["spec"]["cells"]["1"]["ips"]["1"].as_object_mut().unwrap().remove("second");
        let said = wrong(&live, &nodes, &shards);
        assert!(said.iter().any(|line| line.contains("two have it")), "{said:?}");
    }

    #[test]
    fn every_kind_of_lie_is_seen() {
        let (live, nodes, shards) = cluster();
        assert_eq!(wrong(&live, &nodes, &shards), Vec::<String>::new());
        type Lie<'a> = &'a dyn Fn(&mut Vec<Sighting>, &mut Vec<Value>, &mut Vec<Value>);
        let says = |change: Lie<'_>, word: &str| {
            let (mut live, mut nodes, mut shards) = cluster();
            change(&mut live, &mut nodes, &mut shards);
            let said = wrong(&live, &nodes, &shards);
            assert!(said.iter().any(|line| line.contains(word)), "{word}: {said:?}");
        };
        says(&|live, _, _| live[1].address = live[0].address, "two have it");
        says(&|live, _, _| live[0].address = "10.0.0.4".parse().unwrap(), "the ledger does not have");
        says(&|live, _, _| live[0].uid = "u-old".into(), "of u-a");
        says(&|_, _, shards| shards[0]["spec"]["cells"]["0"]["state"] = json!("Free"), "as Free");
        says(&|_, nodes, _| nodes[0]["spec"]["blocks"] = json!([]), "was not granted it");
        let of_many = |change: Lie<'_>| {
            let (mut live, mut nodes, mut shards) = cluster();
            change(&mut live, &mut nodes, &mut shards);
            wrong_blocks(&nodes, &shards).join("; ")
        };
        assert_eq!((of_many(&|_, _, _| {}), blocks_out(&shards)), (String::new(), 2));
        assert!(of_many(&|_, nodes, _| nodes[1]["spec"]["blocks"][0]["cidr"] = json!("10.0.0.0/30")).contains("two nodes have it"));
        assert!(of_many(&|_, nodes, _| nodes[1]["spec"]["blocks"][0]["epoch"] = json!(4)).contains("as this node's"));
        says(
            &|_, nodes, shards| {
                nodes[1]["spec"]["blocks"][0]["cidr"] = json!("10.0.0.0/30");
                let mut cell = shards[0]["spec"]["cells"]["0"].clone();
                cell["nodeUID"] = json!("u-b");
                shards.push(json!({"spec": {"network": "net", "base": "10.0.0.0/24", "cellPrefix": 30, "cells": {"0": cell}}}));
            },
            "two nodes have it",
        );
    }
}
