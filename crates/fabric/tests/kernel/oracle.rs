//! What a plan says and what the kernel has, each as lines of text: by `ip` and `bridge`, without a line of the code that is tested.

use std::collections::{BTreeMap, BTreeSet};

use between::{Device, Family, Plan, Wanted};
use serde_json::Value;

use crate::space::Space;

/// Whether the kernel has what a plan says, and nothing else of ours.
#[track_caller]
pub(crate) fn agrees(space: &Space, plan: &Plan) {
    agree(kernel(space), wanted(space, plan));
}

/// As [`agrees`], of routes alone.
#[track_caller]
pub(crate) fn routes_agree(space: &Space, plan: &Plan) {
    let routes = |lines: BTreeSet<String>| lines.into_iter().filter(|line| line.starts_with("route ")).collect();
    agree(routes(kernel(space)), routes(wanted(space, plan)));
}

#[track_caller]
fn agree(found: BTreeSet<String>, wanted: BTreeSet<String>) {
    let list = |lines: Vec<&String>| lines.into_iter().map(|line| format!("\n  {line}")).collect::<String>();
    let (missing, extra) = (wanted.difference(&found).collect::<Vec<_>>(), found.difference(&wanted).collect::<Vec<_>>());
    assert!(found == wanted, "missing:{}\nnot wanted:{}", list(missing), list(extra));
}

/// A plan as lines.
pub(crate) fn wanted(space: &Space, plan: &Plan) -> BTreeSet<String> {
    let links: BTreeMap<u64, String> =
        space.json("ip -j link show").iter().map(|link| (link["ifindex"].as_u64().unwrap(), text(&link["ifname"]))).collect();
    let on = |device: &Device| match device {
        Device::Link(index) => links.get(&u64::from(*index)).cloned().unwrap_or_else(|| format!("if{index}")),
        Device::Vxlan { over, vni, port } => format!("vxlan{}/{vni}/{port}", if *over == Family::V4 { 4 } else { 6 }),
        Device::WireGuard { port } => format!("wireguard/{port}"),
    };
    let mut lines = BTreeSet::new();
    for (device, wanted) in &plan.devices {
        let Wanted::Vxlan { mac, local, mtu, addresses } = wanted else { panic!("{wanted:?}") };
        let addresses: BTreeSet<String> =
            addresses.iter().map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })).collect();
        lines.insert(format!("device {} mac {mac} local {local} mtu {mtu} addresses {addresses:?}", on(device)));
    }
    for ((device, mac), endpoint) in &plan.forwarding {
        lines.insert(format!("forwarding {} {mac} dst {endpoint} permanent", on(device)));
    }
    for ((device, address), mac) in &plan.neighbours {
        lines.insert(format!("neighbour {} {address} {mac}", on(device)));
    }
    for (range, route) in &plan.routes {
        let onlink = if route.onlink { " onlink" } else { "" };
        let metric = if range.addr().is_ipv4() { 0 } else { 1024 };
        lines.insert(format!("route {range} via {} dev {} metric {metric}{onlink}", route.via.unwrap(), on(&route.device)));
    }
    for range in &plan.closed {
        lines.insert(format!("unreachable {range} metric {}", if range.addr().is_ipv4() { 1 } else { 1025 }));
    }
    lines
}

/// What the kernel has of ours as lines.
pub(crate) fn kernel(space: &Space) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut names = BTreeMap::new();
    for link in space.json("ip -j -d link show") {
        let (name, info) = (text(&link["ifname"]), &link["linkinfo"]);
        if info["info_kind"] != "vxlan" || !name.starts_with("nl") {
            continue;
        }
        let data = &info["info_data"];
        let on = format!("vxlan{}/{}/{}", if data["local6"].is_string() { 6 } else { 4 }, data["id"], data["port"]);
        lines.insert(device(space, &link, &on));
        for entry in space.json(&format!("bridge -j fdb show dev {name}")) {
            let odd: String = ["port", "vni", "via"].iter().filter(|key| !entry[**key].is_null()).map(|key| format!(" {key}")).collect();
            let state = text(&entry["state"]);
            lines.insert(format!("forwarding {on} {} dst {} {state}{odd}", text(&entry["mac"]), text(&entry["dst"])));
        }
        for entry in space.json(&format!("ip -j neigh show dev {name} nud permanent")) {
            lines.insert(format!("neighbour {on} {} {}", text(&entry["dst"]), text(&entry["lladdr"])));
        }
        names.insert(name, on);
    }
    for family in ["-4", "-6"] {
        for entry in space.json(&format!("ip -j {family} route show table main proto 110")) {
            lines.insert(route(&entry, &names));
        }
    }
    lines
}

fn device(space: &Space, link: &Value, on: &str) -> String {
    let data = &link["linkinfo"]["info_data"];
    let local = if data["local6"].is_string() { &data["local6"] } else { &data["local"] };
    let shown = space.json(&format!("ip -j addr show dev {}", text(&link["ifname"])));
    let addresses = shown[0]["addr_info"].as_array().unwrap().iter().filter(|info| info["scope"] != "link");
    let addresses: BTreeSet<String> = addresses.map(|info| format!("{}/{}", text(&info["local"]), info["prefixlen"])).collect();
    let mut line = format!("device {on} mac {} local {} mtu {} addresses {addresses:?}", text(&link["address"]), text(local), link["mtu"]);
    let flags = link["flags"].as_array().unwrap();
    for (odd, is_so) in [
        ("down", !flags.iter().any(|flag| flag == "UP")),
        ("noarp", flags.iter().any(|flag| flag == "NOARP")),
        ("learning", data["learning"] != false),
        ("remote", !data["remote"].is_null() || !data["remote6"].is_null()),
        ("on a link", !data["link"].is_null()),
        ("with a master", !link["master"].is_null()),
        ("with link-local addresses", link["inet6_addr_gen_mode"] != "none"),
    ] {
        if is_so {
            line += &format!(", {odd}");
        }
    }
    line
}

fn route(entry: &Value, names: &BTreeMap<String, String>) -> String {
    let dev = text(&entry["dev"]);
    if entry["type"] == "unreachable" {
        return format!("unreachable {} metric {}", text(&entry["dst"]), entry["metric"]);
    }
    let on = names.get(&dev).unwrap_or(&dev);
    let onlink = if entry["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "onlink")) { " onlink" } else { "" };
    let metric = entry["metric"].as_u64().unwrap_or(0);
    let odd: String =
        ["metrics", "prefsrc", "nexthops", "type"].iter().filter(|key| !entry[**key].is_null()).map(|key| format!(" {key}")).collect();
    format!("route {} via {} dev {on} metric {metric}{onlink}{odd}", text(&entry["dst"]), text(&entry["gateway"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
