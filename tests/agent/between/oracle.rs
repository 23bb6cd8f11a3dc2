//! What a node's kernel has to hold, from Node objects as the API server has them, and what it holds, each as lines of text. It shares no
//! code with the planner: `ip`, `bridge` and `nft` say what is there, and what is to be there is worked out here once more, from the
//! documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use netloom_tests::Host;
use serde_json::Value;

use super::scene::Place;

/// The length of the subnet of each link between machines: IPv4, IPv6.
const SUBNETS: [u32; 2] = [24, 64];
/// The bytes of a packet over Ethernet.
const MTU: u32 = 1500;

/// A range of addresses, from the first one to the last one; both of one family.
type Span = (IpAddr, IpAddr);

/// A Node with what no older one has; of each family, IPv4 first.
struct Machine {
    name: String,
    mac: String,
    endpoints: [Option<IpAddr>; 2],
    /// As they are written in the Node.
    ranges: [Option<String>; 2],
}

/// What the machine at a place has to hold, in this mode, once it has seen these Nodes. `held`: ranges that its running pods have addresses of.
pub(super) fn wanted(mode: &str, place: &Place, nodes: &[Value], held: &[String]) -> BTreeSet<String> {
    let machines = machines(nodes);
    let own = machines.iter().find(|machine| machine.name == place.name).expect("the own Node is there");
    let mut lines = BTreeSet::from(["up netloom0".to_owned()]);
    let mut inside: Vec<Span> = machines.iter().flat_map(|machine| machine.ranges.iter().flatten()).map(|range| span(range)).collect();
    let with_held = || own.ranges.iter().flatten().chain(held);
    for range in with_held() {
        lines.insert(format!("address netloom0 {}/{}", after(span(range).0), length(range)));
    }
    inside.extend(held.iter().map(|range| span(range)));
    // Its bridge leads there.
    let is_led = |range: &&str| !held.iter().any(|held| held == range);
    for peer in machines.iter().filter(|peer| peer.name != own.name) {
        for family in 0..2 {
            let range = peer.ranges[family].as_deref();
            if range.is_none() && own.ranges[family].is_none() {
                continue;
            }
            match way(mode, own, peer, family) {
                Some(Way::Direct(via)) => {
                    inside.push((via, via));
                    lines.extend(range.filter(is_led).map(|range| format!("route {range} via {via} dev eth0")));
                }
                Some(Way::Vxlan(over)) => tunnel(own, peer, over, range, is_led, &mut lines),
                None => {}
            }
        }
    }
    let of_own = with_held().map(|range| span(range)).collect();
    if lines.iter().any(|line| line.starts_with("device ")) {
        lines.insert("vxlanports 4789".to_owned());
        lines.extend(machines.iter().flat_map(|machine| machine.endpoints).flatten().map(|node| format!("nodes {node}")));
    }
    lines.extend(sets("own", of_own));
    lines.extend(sets("inside", inside));
    lines
}

/// The same where nodes have blocks of pools with these gateways. `blocks`: by the name of the Node. The node's own address of a pool is left out: only its
/// agent says which one it is.
pub(super) fn wanted_of_pools(
    mode: &str,
    place: &Place,
    nodes: &[Value],
    blocks: &BTreeMap<String, Vec<String>>,
    gateways: &[&str],
) -> BTreeSet<String> {
    let machines = machines(nodes);
    let own = machines.iter().find(|machine| machine.name == place.name).expect("the own Node is there");
    let of = |machine: &Machine, family: usize| -> Vec<&str> {
        let all = blocks.get(&machine.name).into_iter().flatten().map(String::as_str);
        all.filter(|block| block.contains(':') == (family == 1)).collect()
    };
    let mut lines = BTreeSet::from(["up netloom0".to_owned()]);
    lines.extend(gateways.iter().map(|gateway| format!("address netloom0 {gateway}/{}", if gateway.contains(':') { 128 } else { 32 })));
    lines.extend((0..2).flat_map(|family| of(own, family)).map(|block| format!("route {block} via  dev netloom0")));
    let mut inside: Vec<Span> = blocks.values().flatten().map(|block| span(block)).collect();
    for peer in machines.iter().filter(|peer| peer.name != own.name) {
        for family in (0..2).filter(|family| !of(own, *family).is_empty() || !of(peer, *family).is_empty()) {
            let theirs = of(peer, family);
            match way(mode, own, peer, family) {
                Some(Way::Direct(via)) => {
                    inside.push((via, via));
                    lines.extend(theirs.into_iter().map(|block| format!("route {block} via {via} dev eth0")));
                }
                Some(Way::Vxlan(over)) => {
                    tunnel(own, peer, over, None, |_| true, &mut lines);
                    theirs.into_iter().for_each(|block| tunnel(own, peer, over, Some(block), |_| true, &mut lines));
                }
                None => {}
            }
        }
    }
    if lines.iter().any(|line| line.starts_with("device ")) {
        lines.insert("vxlanports 4789".to_owned());
        lines.extend(machines.iter().flat_map(|machine| machine.endpoints).flatten().map(|node| format!("nodes {node}")));
    }
    lines.extend(sets("own", (0..2).flat_map(|family| of(own, family)).map(span).collect()));
    lines.extend(sets("inside", inside));
    lines
}

/// Packets go there straight, or wrapped between endpoints of a family.
enum Way {
    Direct(IpAddr),
    Vxlan(usize),
}

fn way(mode: &str, own: &Machine, peer: &Machine, family: usize) -> Option<Way> {
    let both = |family: usize| own.endpoints[family].zip(peer.endpoints[family]);
    let direct = || both(family).filter(|(own, peer)| subnet(*own) == subnet(*peer)).map(|(_, peer)| Way::Direct(peer));
    let vxlan = || (0..2).find(|over| both(*over).is_some()).map(Way::Vxlan);
    match mode {
        "direct" => direct(),
        "vxlan" => vxlan(),
        "auto" => direct().or_else(vxlan),
        other => panic!("{other}"),
    }
}

/// What a tunnel to a peer needs: the device, and for a range of the peer its three entries.
fn tunnel(own: &Machine, peer: &Machine, over: usize, range: Option<&str>, is_led: impl Fn(&&str) -> bool, lines: &mut BTreeSet<String>) {
    let (device, header) = [("nl4-1000-12b5", 50), ("nl6-1000-12b5", 70)][over];
    let local = own.endpoints[over].unwrap();
    lines.insert(format!("device {device} mac {} local {local} mtu {}", own.mac, MTU - header));
    for range in own.ranges.iter().flatten() {
        let first = span(range).0;
        lines.insert(format!("address {device} {first}/{}", if first.is_ipv4() { 32 } else { 128 }));
    }
    let Some(range) = range else { return };
    let first = span(range).0;
    let (via, onlink) = if first.is_ipv4() { (first, " onlink") } else { (link_local(&peer.mac), "") };
    if is_led(&range) {
        lines.insert(format!("route {range} via {via} dev {device}{onlink}"));
    }
    lines.insert(format!("neighbour {device} {via} {}", peer.mac));
    lines.insert(format!("forwarding {device} {} dst {}", peer.mac, peer.endpoints[over].unwrap()));
}

/// Older Nodes keep what two of them have.
fn machines(nodes: &[Value]) -> Vec<Machine> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut nodes: Vec<&Value> = nodes.iter().collect();
    nodes.sort_by_key(|node| [&node["metadata"]["creationTimestamp"], &node["metadata"]["name"]].map(text));
    let (mut endpoints, mut ranges) = (BTreeSet::new(), Vec::<Span>::new());
    let mut all = Vec::new();
    for node in nodes {
        let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| text(&address["address"]).parse().unwrap()).collect();
        let cidrs = node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
        let mut cidr = |v4: bool| {
            let range = cidrs.iter().map(text).find(|range| span(range).0.is_ipv4() == v4)?;
            let (first, last) = span(&range);
            let is_free = !ranges.iter().any(|(from, to)| from.is_ipv4() == v4 && *from <= last && first <= *to);
            is_free.then(|| ranges.push((first, last)))?;
            Some(range)
        };
        all.push(Machine {
            name: text(&node["metadata"]["name"]),
            mac: mac(&text(&node["metadata"]["uid"])),
            ranges: [cidr(true), cidr(false)],
            endpoints: [true, false].map(|v4| addresses.iter().copied().find(|a| a.is_ipv4() == v4).filter(|a| endpoints.insert(*a))),
        });
    }
    all
}

/// What the kernel of a machine holds.
pub(super) fn found(host: &Host) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |line: &str| host.json("", line).as_array().cloned().unwrap_or_default();
    let mut lines = BTreeSet::new();
    let mut ours = BTreeSet::from(["netloom0".to_owned()]);
    for link in list("ip -j -d link show") {
        let (name, data) = (text(&link["ifname"]), &link["linkinfo"]["info_data"]);
        let is_up = link["flags"].as_array().unwrap().iter().any(|flag| flag == "UP");
        if name == "netloom0" && is_up {
            lines.insert("up netloom0".to_owned());
        }
        if !name.starts_with("nl4-") && !name.starts_with("nl6-") {
            continue;
        }
        let local = text(if name.starts_with("nl4") { &data["local"] } else { &data["local6"] });
        let odd = if is_up && data["learning"] == false { "" } else { ", down or learning" };
        lines.insert(format!("device {name} mac {} local {local} mtu {}{odd}", text(&link["address"]), link["mtu"]));
        // It may be gone by now.
        let shown = host.try_run("", &["bridge", "-j", "fdb", "show", "dev", &name]).stdout;
        for entry in serde_json::from_slice::<Vec<Value>>(&shown).unwrap_or_default() {
            lines.insert(format!("forwarding {name} {} dst {}", text(&entry["mac"]), text(&entry["dst"])));
        }
        ours.insert(name);
    }
    for entry in list("ip -j neigh show nud permanent") {
        let device = text(&entry["dev"]);
        if device.starts_with("nl") && ours.contains(&device) {
            lines.insert(format!("neighbour {device} {} {}", text(&entry["dst"]), text(&entry["lladdr"])));
        }
    }
    for link in list("ip -j addr show").iter().filter(|link| ours.contains(&text(&link["ifname"]))) {
        for address in link["addr_info"].as_array().unwrap().iter().filter(|address| address["scope"] != "link") {
            lines.insert(format!("address {} {}/{}", text(&link["ifname"]), text(&address["local"]), address["prefixlen"]));
        }
    }
    for route in ["-4", "-6"].iter().flat_map(|family| list(&format!("ip -j {family} route show table main proto 110"))) {
        let onlink = if route["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "onlink")) { " onlink" } else { "" };
        lines.insert(format!("route {} via {} dev {}{onlink}", text(&route["dst"]), text(&route["gateway"]), text(&route["dev"])));
    }
    lines.extend(sets_of(host));
    lines
}

/// The sets of masquerade and of the tunnel's guard, as the kernel has them.
fn sets_of(host: &Host) -> BTreeSet<String> {
    let shown = host.try_run("", &["nft", "-j", "list", "table", "inet", "netloom"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap_or_default();
    let sets = shown["nftables"].as_array().cloned().unwrap_or_default();
    let address = |value: &Value| value.as_str().unwrap().parse::<IpAddr>().unwrap();
    let element = |element: &Value| match (&element["prefix"], &element["range"]) {
        (Value::Object(prefix), _) => span(&format!("{}/{}", prefix["addr"].as_str().unwrap(), prefix["len"])),
        (_, Value::Array(ends)) => (address(&ends[0]), address(&ends[1])),
        _ => (address(element), address(element)),
    };
    let mut lines = BTreeSet::new();
    for set in sets.iter().map(|object| &object["set"]) {
        let elements = set["elem"].as_array().into_iter().flatten();
        match set["name"].as_str() {
            Some("vxlanports") => lines.extend(elements.map(|port| format!("vxlanports {port}"))),
            Some("nodes4" | "nodes6") => lines.extend(elements.map(|node| format!("nodes {}", address(node)))),
            _ => {}
        }
        for name in ["own", "inside"]
            .into_iter()
            .filter(|name| set["name"].as_str().is_some_and(|of| of == format!("{name}4") || of == format!("{name}6")))
        {
            lines.extend(self::sets(name, set["elem"].as_array().into_iter().flatten().map(element).collect()));
        }
    }
    lines
}

/// A set's lines: what overlaps or adjoins is one.
fn sets(name: &str, mut spans: Vec<Span>) -> BTreeSet<String> {
    spans.sort();
    let mut merged: Vec<Span> = Vec::new();
    for (first, last) in spans {
        match merged.last_mut() {
            Some((from, to)) if from.is_ipv4() == first.is_ipv4() && (first <= *to || first == after(*to)) => *to = last.max(*to),
            _ => merged.push((first, last)),
        }
    }
    merged.into_iter().map(|(first, last)| format!("{name} {first} to {last}")).collect()
}

/// The Ethernet address of a Node's end of the tunnels: docs/internals say how it follows from the UID.
fn mac(uid: &str) -> String {
    let mut command = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    command.stdin.take().unwrap().write_all(format!("netloom vtep {uid}").as_bytes()).unwrap();
    let hash = String::from_utf8(command.wait_with_output().unwrap().stdout).unwrap();
    let byte = |at: usize| u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).unwrap();
    // Locally administered, and of one machine.
    let first = (byte(0) | 0b10) & !0b01;
    (1..6).fold(format!("{first:02x}"), |mac, at| format!("{mac}:{:02x}", byte(at)))
}

/// The address that IPv6 makes of an Ethernet address (RFC 4291 appendix A).
fn link_local(mac: &str) -> IpAddr {
    let b: Vec<u16> = mac.split(':').map(|byte| u16::from_str_radix(byte, 16).unwrap()).collect();
    Ipv6Addr::new(0xfe80, 0, 0, 0, (b[0] ^ 2) << 8 | b[1], b[2] << 8 | 0xff, 0xfe00 | b[3], b[4] << 8 | b[5]).into()
}

fn length(range: &str) -> u32 {
    range.split_once('/').unwrap().1.parse().unwrap()
}

fn span(range: &str) -> Span {
    let free = |bits: u32| bits - length(range);
    match range.split_once('/').unwrap().0.parse().unwrap() {
        IpAddr::V4(first) => (first.into(), Ipv4Addr::from(u32::from(first) | !u32::MAX.checked_shl(free(32)).unwrap_or(0)).into()),
        IpAddr::V6(first) => (first.into(), Ipv6Addr::from(u128::from(first) | !u128::MAX.checked_shl(free(128)).unwrap_or(0)).into()),
    }
}

fn subnet(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, (u32::from(address) >> (32 - SUBNETS[0])).into()),
        IpAddr::V6(address) => (false, u128::from(address) >> (128 - SUBNETS[1])),
    }
}

fn after(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address).saturating_add(1)).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address).saturating_add(1)).into(),
    }
}

/// What is missing and what is too much, as text.
pub(super) fn difference(found: &BTreeSet<String>, wanted: &BTreeSet<String>) -> String {
    let list = |lines: Vec<&String>| lines.into_iter().map(|line| format!("\n  {line}")).collect::<String>();
    let by_name = BTreeMap::from([("missing", wanted.difference(found).collect()), ("not wanted", found.difference(wanted).collect())]);
    by_name.into_iter().map(|(name, lines)| format!("{name}:{}\n", list(lines))).collect()
}
