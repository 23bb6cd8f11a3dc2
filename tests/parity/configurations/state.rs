//! What a machine and its container are like, as `ip`, `bridge` and files say: objects with fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use netloom_tests::{Host, guest};
use serde_json::Value;

/// By name, as `host link br0` or `c1 route 10.1.0.0/16 dev eth0`; the fields of each.
pub(crate) type Objects = BTreeMap<String, BTreeMap<String, String>>;

/// What the programs printed, by place and section.
pub(crate) type Raw = BTreeMap<(&'static str, String), String>;

/// The places that are looked at.
const PLACES: [&str; 2] = ["host", "c1"];

/// What `ip` is asked for, all of a family by one process: in the guest to start a process costs more than what it does.
const OF_IPV4: &[(&str, &str)] = &[("link", "link"), ("address4", "address"), ("route4", "route show table all"), ("rule4", "rule")];
const OF_IPV6: &[(&str, &str)] = &[("address6", "address"), ("route6", "route show table all"), ("rule6", "rule")];

/// Below `/proc/sys/net`.
const SETTINGS: &[&str] = &["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh", "ipv4/ip_forward", "core/somaxconn"];

/// In the guest, where each costs a millisecond, what no plugin there is told to set is left out.
const SETTINGS_IN_GUEST: &[&str] = &["ipv4/conf", "ipv6/conf", "ipv4/ip_forward"];

/// Where plugins keep files on a [`Host`].
const FILES: &[&str] = &["/var/lib", "/run/cni"];

/// Fields that count time, or packets, or come from a number that the kernel picks.
const RESTLESS: &[&str] = &[
    "ifindex",
    // By how many queues a queueing discipline is used.
    "refcnt",
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
    for (place, sections) in each_place(host, namespace) {
        raw.extend(sections.into_iter().map(|(section, text)| ((place, section), text)));
    }
    let mut files = String::new();
    FILES.iter().for_each(|directory| read_files(host, directory, &mut files));
    raw.insert(("host", "file".to_owned()), files);
    raw
}

/// The names of the links that are there now, by place.
pub(crate) fn link_names(host: &Host) -> BTreeMap<&'static str, BTreeSet<String>> {
    // `/proc/net` is that of the process, whichever namespace its thread is in.
    let names = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        table.lines().filter_map(|l| Some(l.split_once(':')?.0.trim().to_owned())).collect()
    };
    each_place(host, names)
}

/// What is seen in those that are still there: after DEL there may be no such namespace, or only a file in its place.
fn each_place<T: Send>(host: &Host, look: impl Fn() -> T + Sync) -> BTreeMap<&'static str, T> {
    let seen = |place| host.try_within(if place == "host" { "" } else { place }, &look).ok();
    PLACES.into_iter().filter_map(|place| Some((place, seen(place)?))).collect()
}

/// The sections of the namespace that this thread is in, and the processes that it starts.
fn namespace() -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    // An address is waited for until the kernel has seen that nobody else has it; the rest is told as it is.
    for _ in 0..300 {
        sections.extend(batch("ip", &["-6", "-d"], OF_IPV6));
        if !sections.get("address6").is_some_and(|text: &String| waits(text)) {
            break;
        }
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(100));
    }
    sections.extend(batch("ip", &["-4", "-d"], OF_IPV4));
    if sections.get("link").is_some_and(|links| links.contains("\"bridge\"")) {
        sections.extend(batch("bridge", &["-d"], &[("port", "link")]));
        sections.extend(batch("bridge", &[], &[("vlan", "vlan")]));
    }
    if sections.get("link").is_some_and(|links| links.contains("\"ifb\"") || links.contains("\"tbf\"") || links.contains("\"htb\"")) {
        shaping(&mut sections);
    }
    let mut settings = String::new();
    let wanted = if guest::in_guest() { SETTINGS_IN_GUEST } else { SETTINGS };
    wanted.iter().for_each(|name| read_settings(name, &mut settings));
    sections.insert("setting".to_owned(), settings);
    sections
}

/// Queueing disciplines, and the filters of those that have some.
fn shaping(sections: &mut BTreeMap<String, String>) {
    sections.extend(batch("tc", &[], &[("qdisc", "qdisc show")]));
    let qdiscs: Value = serde_json::from_str(&sections["qdisc"]).unwrap();
    let with_filters = qdiscs.as_array().unwrap().iter().filter(|q| q["kind"] == "ingress" || q["kind"] == "htb");
    let mut filters = Vec::new();
    for qdisc in with_filters {
        let (dev, handle) = (qdisc["dev"].as_str().unwrap(), qdisc["handle"].as_str().unwrap());
        let said = batch("tc", &[], &[("filter", &format!("filter show dev {dev} parent {handle}"))]);
        let list: Vec<Value> = serde_json::from_str(&said[0].1).unwrap();
        filters.extend(list.into_iter().filter(|f| f["options"]["match"].is_object()).map(|mut filter| {
            filter["dev"] = dev.into();
            filter
        }));
    }
    sections.insert("filter".to_owned(), Value::Array(filters).to_string());
}

/// Whether there is a global address that duplicate address detection has not let go.
fn waits(addresses: &str) -> bool {
    let all: Value = serde_json::from_str(addresses).unwrap_or_default();
    let infos = all.as_array().into_iter().flatten().flat_map(|l| l["addr_info"].as_array().into_iter().flatten());
    infos.into_iter().any(|i| i["tentative"] == true && i["scope"] == "global")
}

/// One process that answers each command with a line.
fn batch(program: &str, options: &[&str], commands: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut child = Command::new(program);
    let child = child.args(options).args(["-json", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines: String = commands.iter().map(|(_, command)| format!("{command}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
    assert!(output.status.success() && said.len() == commands.len(), "{program} {options:?} {lines}: {said:?} {wrong}");
    commands.iter().zip(said).map(|((section, _), text)| ((*section).to_owned(), text.to_owned())).collect()
}

/// A line for each setting that can be read, `ipv4/conf/eth0/arp_notify:1`; an interface may go meanwhile.
fn read_settings(name: &str, lines: &mut String) {
    let path = Path::new("/proc/sys/net").join(name);
    let Ok(entries) = std::fs::read_dir(&path) else { return read_setting(name, &path, lines) };
    for entry in entries.flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            read_settings(&name, lines);
        } else {
            read_setting(&name, &entry.path(), lines);
        }
    }
}

fn read_setting(name: &str, path: &Path, lines: &mut String) {
    let mut value = [0; 256];
    let read = File::open(path).and_then(|mut file| file.read(&mut value));
    if let Ok(length) = read {
        lines.push_str(&format!("{name}:{}\n", String::from_utf8_lossy(&value[..length]).trim_end()));
    }
}

/// Each file after a line that names it.
fn read_files(host: &Host, path: &str, lines: &mut String) {
    for name in host.list(path) {
        let inside = format!("{path}/{name}");
        if host.path(&inside).is_dir() {
            read_files(host, &inside, lines);
        } else if host.path(&inside).is_file() {
            let content = std::fs::read(host.path(&inside)).unwrap_or_default();
            lines.push_str(&format!("FILE {inside}\n{}\n", String::from_utf8_lossy(&content)));
        }
    }
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
            for mut item in list(raw, place, section) {
                name_queues(&mut item);
                put(&mut all, format!("{place} {name} {}", text(&item["ifname"])), &item);
            }
        }
        for family in ["4", "6"] {
            for item in list(raw, place, &format!("address{family}")) {
                for info in item["addr_info"].as_array().into_iter().flatten().filter(|i| !kernels(&i["local"])) {
                    let name = format!("{place} address {}/{} of {}", text(&info["local"]), info["prefixlen"], text(&item["ifname"]));
                    put(&mut all, name, info);
                }
            }
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
        for item in list(raw, place, "qdisc").iter().filter(|q| q["handle"] != "0:") {
            put(&mut all, format!("{place} qdisc {} of {}", text(&item["kind"]), text(&item["dev"])), item);
        }
        for item in list(raw, place, "filter") {
            put(&mut all, format!("{place} filter of {}", text(&item["dev"])), &item);
        }
        settings(raw, place, &mut all);
        files(raw, place, &mut all);
    }
    all
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How many queues the kernel makes of its own accord depends on the machine.
fn name_queues(link: &mut Value) {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last: u64 = possible.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
    for key in ["num_tx_queues", "num_rx_queues"] {
        if last > 0 && link[key] == last + 1 {
            link[key] = "one for each processor".into();
        }
    }
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
