//! What a machine and its container are like, as `ip`, `bridge` and files say: objects with fields.

use std::collections::BTreeMap;

use netloom_tests::Host;
use serde_json::Value;

/// By name, as `host link br0` or `c1 route 10.1.0.0/16 dev eth0`; the fields of each.
pub(crate) type Objects = BTreeMap<String, BTreeMap<String, String>>;

/// What the programs printed, by place and section.
pub(crate) type Raw = BTreeMap<(&'static str, String), String>;

/// The places that are looked at.
const PLACES: [&str; 2] = ["host", "c1"];

/// Addresses for which somebody waits are waited for; the rest is told as it is.
const SECTIONS: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
  [ -z \"$(ip -6 -o addr show tentative scope global)\" ] && break; sleep 0.1; done
echo @link; ip -j -d link; echo; echo @address; ip -j -d address; echo; echo @route4; ip -j -d -4 route show table all; echo
echo @route6; ip -j -d -6 route show table all; echo; echo @rule4; ip -j -4 rule; echo; echo @rule6; ip -j -6 rule; echo
echo @port; bridge -j -d link; echo; echo @vlan; bridge -j vlan; echo
echo @setting; cd /proc/sys/net; grep -rs . ipv4/conf ipv6/conf ipv4/neigh ipv6/neigh ipv4/ip_forward core/somaxconn || true";

/// Where plugins keep files on a [`Host`].
const FILES: &str = "echo @file; for f in $(find /var/lib /run/cni -type f 2>/dev/null | sort); do echo \"FILE $f\"; cat $f; echo; done";

/// Fields that count time, or packets, or come from a number that the kernel picks.
const RESTLESS: &[&str] = &[
    "ifindex",
    "link_index",
    "link_netnsid",
    "hello_timer",
    "tcn_timer",
    "topology_change_timer",
    "gc_timer",
    "hold_timer",
    "message_age_timer",
    "forward_delay_timer",
    "valid_life_time",
    "preferred_life_time",
    "stable_secret",
    "base_reachable_time",
    "reachable_time",
    "stats",
    "stats64",
    "expires",
    "parentdev",
    "tentative",
    "root_id",
    "bridge_id",
    "designated_root",
    "designated_bridge",
];

/// The kernel notices a carrier up to a second later (`net/core/link_watch.c`), and says so in many places.
const CARRIER: &[&str] = &["operstate", "state"];
const CARRIER_FLAGS: &[&str] = &["LOWER_UP", "NO-CARRIER", "linkdown"];

/// Everything there is now, as text.
pub(crate) fn raw(host: &Host) -> Raw {
    let mut raw = Raw::new();
    for place in PLACES {
        let container = if place == "host" { "" } else { place };
        if !container.is_empty() && !host.run_ok(container, &["true"]) {
            continue;
        }
        let mut section = String::new();
        let script = if container.is_empty() { format!("{SECTIONS}\n{FILES}") } else { SECTIONS.to_owned() };
        for line in host.run(container, &["sh", "-c", &script]).lines() {
            match line.strip_prefix('@') {
                Some(name) => name.clone_into(&mut section),
                None => {
                    let text = raw.entry((place, section.clone())).or_default();
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    raw
}

/// The list that a section holds.
pub(crate) fn list(raw: &Raw, place: &'static str, section: &str) -> Vec<Value> {
    let text = raw.get(&(place, section.to_owned())).map(|t| t.trim()).unwrap_or_default();
    if text.is_empty() {
        return Vec::new();
    }
    let parsed: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {place} {section}: {text}"));
    parsed.as_array().cloned().unwrap_or_default().into_iter().filter(|v| v.as_object().is_some_and(|o| !o.is_empty())).collect()
}

/// What there is, object by object.
pub(crate) fn objects(raw: &Raw) -> Objects {
    let mut all = Objects::new();
    for place in PLACES {
        for (section, name) in [("link", "link"), ("port", "port")] {
            for item in list(raw, place, section) {
                put(&mut all, format!("{place} {name} {}", text(&item["ifname"])), &item);
            }
        }
        for item in list(raw, place, "address") {
            for info in item["addr_info"].as_array().into_iter().flatten().filter(|i| !kernels(&i["local"])) {
                let name = format!("{place} address {}/{} of {}", text(&info["local"]), info["prefixlen"], text(&item["ifname"]));
                put(&mut all, name, info);
            }
        }
        for family in ["4", "6"] {
            for item in list(raw, place, &format!("route{family}")).iter().filter(|r| !follows(r)) {
                put(&mut all, route(place, family, item), item);
            }
            for item in list(raw, place, &format!("rule{family}")) {
                let part = |key: &str| item.get(key).map(|v| format!(" {key} {}", text(v))).unwrap_or_default();
                let name = format!("{place} IPv{family} rule{}{}{}{}", part("src"), part("dst"), part("iif"), part("table"));
                put(&mut all, name, &item);
            }
        }
        for item in list(raw, place, "vlan") {
            for vlan in item["vlans"].as_array().into_iter().flatten() {
                let end = vlan.get("vlanEnd").map(|e| format!("-{e}")).unwrap_or_default();
                put(&mut all, format!("{place} VLAN {}{end} of {}", vlan["vlan"], text(&item["ifname"])), vlan);
            }
        }
        settings(raw, place, &mut all);
        files(raw, place, &mut all);
    }
    all
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A link-local address comes and goes with its link's carrier; nobody configures it.
fn kernels(address: &Value) -> bool {
    address.as_str().is_some_and(|a| a.starts_with("fe80:") || a.starts_with("ff00:"))
}

/// Whether a route follows from an address, some time after it.
fn follows(route: &Value) -> bool {
    kernels(&route["dst"]) || (route["table"] == "local" && route["protocol"] == "kernel") || route["type"] == "multicast"
}

fn route(place: &str, family: &str, item: &Value) -> String {
    let part = |key: &str, word: &str| item.get(key).map(|v| format!(" {word} {}", text(v))).unwrap_or_default();
    let hops = item.get("nexthops").map(|h| format!(" over {h}")).unwrap_or_default();
    let (via, dev, table) = (part("gateway", "via"), part("dev", "dev"), part("table", "table"));
    format!("{place} IPv{family} route {}{via}{dev}{table}{hops}", text(&item["dst"]))
}

fn put(all: &mut Objects, name: String, item: &Value) {
    let mut fields = BTreeMap::new();
    flatten("", item, &mut fields);
    let restless = |key: &str| key.split('.').any(|part| RESTLESS.contains(&part) || CARRIER.contains(&part));
    let fields = fields.into_iter().filter(|(k, _)| !restless(k)).collect();
    // Two of one name are told as two: `ip rule` may have them.
    let mut key = name.clone();
    for number in 2.. {
        if !all.contains_key(&key) {
            break;
        }
        key = format!("{name} ({number})");
    }
    all.insert(key, fields);
}

/// Values by their path, as `info_data.mode`; a list of words is one value, in order of the alphabet.
pub(crate) fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(&below(key), value, fields)),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let mut words: Vec<String> = list.iter().map(text).filter(|w| !CARRIER_FLAGS.contains(&w.as_str())).collect();
            words.sort();
            fields.insert(path.to_owned(), words.join(" "));
        }
        Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| flatten(&below(&n.to_string()), value, fields)),
        other => drop(fields.insert(path.to_owned(), text(other))),
    }
}

/// `ipv4/conf/eth0/arp_notify:1`, one object for each directory.
fn settings(raw: &Raw, place: &'static str, all: &mut Objects) {
    for line in raw.get(&(place, "setting".to_owned())).into_iter().flat_map(|t| t.lines()) {
        let Some((path, value)) = line.split_once(':') else { continue };
        let Some((directory, name)) = path.rsplit_once('/') else { continue };
        if RESTLESS.iter().any(|r| name.starts_with(r)) {
            continue;
        }
        all.entry(format!("{place} settings {directory}")).or_default().insert(name.to_owned(), value.to_owned());
    }
}

/// One object for each file; what it holds in one line.
fn files(raw: &Raw, place: &'static str, all: &mut Objects) {
    let text = raw.get(&(place, "file".to_owned())).map(String::as_str).unwrap_or_default();
    for file in text.split("FILE ").skip(1) {
        let (path, content) = file.split_once('\n').unwrap_or((file, ""));
        let content = content.split_whitespace().collect::<Vec<_>>().join(" ");
        all.insert(format!("{place} file {path}"), BTreeMap::from([("content".to_owned(), content)]));
    }
}
