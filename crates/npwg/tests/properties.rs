//! What must hold of any annotation: both forms of a selection mean the same, a network gets what was selected and
//! nothing else, and a status is read as it was written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use cni::{AddResult, Dns, IfName, Interface, IpConfig, NetworkList};
use ipnet::IpNet;
use json::Value;
use netloom_npwg as npwg;
use npwg::{NetworkStatus, Selection, StatusIps, parse_status, to_json};
use proptest::prelude::*;

/// A second; a debug build on a busy machine gets more. What is not linear takes minutes.
const QUICK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 120 } else { 10 });

const LABEL: &str = "[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?";

/// A definition, and an interface that the comma form can name.
fn short() -> impl Strategy<Value = (String, Option<String>)> {
    let definition = prop_oneof![LABEL.prop_map(|name| name), (LABEL, LABEL).prop_map(|(ns, name)| format!("{ns}/{name}"))];
    (definition, prop::option::of("[a-z]{1,3}[0-9a-z._-]{0,12}"))
}

/// An address that an interface can own.
fn ip() -> impl Strategy<Value = IpAddr> {
    let v4 = (1_u8..224, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| IpAddr::from(Ipv4Addr::new(a, b, c, d)));
    let v6 = any::<u128>().prop_map(|n| IpAddr::from(Ipv6Addr::from(n >> 4 | 0x2 << 124)));
    prop_oneof![v4, v6]
}

fn quoted(texts: &[String]) -> String {
    json::compact(&texts.to_vec())
}

proptest! {
    /// The comma form is the JSON form with fewer keys (S14 to S16).
    #[test]
    fn both_forms_mean_the_same(elements in prop::collection::vec(short(), 1..6), space in "[ \t\n]{0,2}") {
        let comma: Vec<String> = elements.iter().map(|(d, i)| i.as_ref().map_or(d.clone(), |i| format!("{d}@{i}"))).collect();
        let object = |(definition, interface): &(String, Option<String>)| {
            let (namespace, name) = definition.split_once('/').unwrap_or(("", definition));
            let mut o = json::Object::new();
            o.set("name", name);
            (!namespace.is_empty()).then(|| o.set("namespace", namespace));
            interface.iter().for_each(|i| o.set("interface", i.as_str()));
            o
        };
        let list: Vec<_> = elements.iter().map(object).collect();
        let separator = format!("{space},{space}");
        let (short, long) = (npwg::parse(&comma.join(&separator), "home"), npwg::parse(&json::compact(&list), "home"));
        match (&short, &long) {
            (Ok(short), Ok(long)) => {
                prop_assert_eq!(short, long);
                let shown = short.iter().map(Selection::to_string).collect::<Vec<_>>().join(",");
                prop_assert_eq!(&npwg::parse(&shown, "elsewhere"), &Ok(short.clone()));
            }
            // Two elements that ask for one interface.
            _ => prop_assert_eq!(short.map_err(|e| e.to_string()), long.map_err(|e| e.to_string())),
        }
    }

    /// What is selected is what the network's plugins are told to give (S20, S23, S29).
    #[test]
    fn what_is_selected_is_demanded(
        ips in prop::collection::btree_set(ip(), 0..4),
        args in prop::collection::btree_map("[a-z]{4,6}", any::<u32>(), 0..4),
        own in prop::collection::btree_map("[a-z]{4,6}", any::<u32>(), 0..4),
    ) {
        let texts: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
        let ips_key = if texts.is_empty() { String::new() } else { format!(r#","ips":{}"#, quoted(&texts)) };
        let annotation = format!(r#"[{{"name":"a","cni-args":{}{ips_key}}}]"#, json::compact(&args));
        let [selection] = <[Selection; 1]>::try_from(npwg::parse(&annotation, "home").unwrap()).unwrap();
        let runtime = selection.runtime_config();
        prop_assert_eq!(runtime.get("ips").cloned(), (!texts.is_empty()).then(|| Value::from(texts.clone())));
        prop_assert_eq!(runtime.iter().count(), usize::from(!texts.is_empty()));

        let own_args = json::parse(format!(r#"{{"cni":{},"else":1}}"#, json::compact(&own)).as_bytes()).unwrap();
        let got = selection.args(own_args.as_object()).unwrap();
        prop_assert_eq!(got.get("else"), Some(&Value::from(1_u64)));
        let cni = got.object("cni").unwrap();
        for key in args.keys().chain(own.keys()) {
            let wanted = args.get(key).or_else(|| own.get(key)).map(|n| Value::from(u64::from(*n)));
            prop_assert_eq!(cni.get(key), wanted.as_ref());
        }
        prop_assert_eq!(cni.get("ips").is_some(), !texts.is_empty());

        let address = |ip: &IpAddr| IpConfig { interface: None, address: IpNet::from(*ip), gateway: None };
        let mut result = AddResult { ips: ips.iter().map(address).collect(), ..AddResult::default() };
        let network = NetworkList::parse(br#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"x"}]}"#, None).unwrap();
        prop_assert_eq!(selection.not_honoured(&network, &result), []);
        if let Some(lost) = result.ips.pop() {
            let missing: Vec<String> = selection.not_honoured(&network, &result).into_iter().map(|n| n.wanted).collect();
            prop_assert_eq!(missing, [lost.address.addr().to_string()]);
        }
    }

    /// A status that we write is read as what it was (S34 to S43).
    #[test]
    fn a_status_is_read_as_it_was_written(
        addresses in prop::collection::vec(ip(), 1..4),
        mtu in any::<u32>(),
        default in any::<bool>(),
        cidr in any::<bool>(),
        domain in any::<String>(),
        extension in any::<String>(),
    ) {
        let inside = Interface { name: "net1".into(), mac: "02:00:00:00:00:01".into(), mtu, sandbox: "/n".into(), ..Interface::default() };
        let ip = |ip: &IpAddr| IpConfig { interface: Some(0), address: IpNet::from(*ip), gateway: Some(*ip) };
        let result = AddResult {
            interfaces: vec![inside],
            ips: addresses.iter().map(ip).collect(),
            routes: Vec::new(),
            dns: Dns { domain, ..Dns::default() },
        };
        let ifname = IfName::parse("asked").unwrap();
        let form = if cidr { StatusIps::Cidr } else { StatusIps::Bare };
        let mut status = NetworkStatus::from_result("ns/net", &result, &ifname, default, form);
        prop_assert_eq!(status.ips.len(), addresses.len());
        status.default_route = Some(addresses.clone());
        status.extensions.set("example.org/x", extension);
        let all = [status.clone(), NetworkStatus { default: !default, ..status }];
        let again = parse_status(&to_json(&all)).unwrap();
        prop_assert_eq!(&again[..], &all[..]);
    }

    /// Whatever stands there, the answer is a selection or says what is wrong; never is something dropped in silence.
    #[test]
    fn nothing_is_dropped(annotation in "[a-z/@, ]{0,20}|\\[(\\{\"name\":\"[a-z.]{0,3}\"\\},?){0,3}\\]") {
        match npwg::parse(&annotation, "home") {
            Ok(selections) if annotation.contains('[') => {
                prop_assert_eq!(selections.len(), annotation.matches("name").count());
            }
            Ok(selections) => {
                let wanted = if annotation.trim().is_empty() { 0 } else { annotation.split(',').count() };
                prop_assert_eq!(selections.len(), wanted);
            }
            Err(e) => prop_assert!(!e.errors.is_empty()),
        }
    }
}

/// An annotation as large as the API server takes is read in less than a second.
#[test]
fn the_largest_annotation_is_quick() {
    let list = |element: &dyn Fn(usize) -> String, n: usize| format!("[{}]", (0..n).map(element).collect::<Vec<_>>().join(","));
    for (what, text) in [
        ("unknown keys", format!(r#"[{{"name":"a",{}"b":1}}]"#, (0..15_000).map(|n| format!("\"intrface{n}\":1,")).collect::<String>())),
        ("one key", format!(r#"[{{"name":"a",{}"b":1}}]"#, "\"IPS\":1,".repeat(30_000))),
        ("periods", format!(r#"[{{{}"name":"a"}}]"#, (0..13_000).map(|n| format!("\"x.y/{n}\":1,")).collect::<String>())),
        ("elements", list(&|n| format!(r#"{{"name":"a{n}"}}"#), 12_000)),
        ("bad elements", list(&|n| format!(r#"{{"name":"A{n}"}}"#), 256)),
        ("addresses", list(&|n| format!(r#"{{"name":"a","ips":{}}}"#, list(&|m| format!("\"10.0.{n}.{m}\""), 60)), 200)),
        (
            "arguments",
            format!(r#"[{{"name":"a","cni-args":{{{}"x":1}}}}]"#, (0..15_000).map(|n| format!("\"k{n}\":1,")).collect::<String>()),
        ),
        ("commas", ",".repeat(npwg::MAX_ANNOTATION)),
        ("a name", "a".repeat(npwg::MAX_ANNOTATION)),
    ] {
        let started = Instant::now();
        match npwg::parse(&text, "home") {
            Ok(selections) => selections.iter().for_each(|s| drop((s.args(None), s.runtime_config()))),
            Err(e) => assert!(e.to_string().len() < 64 << 10, "{what}"),
        }
        assert!(started.elapsed() < QUICK, "{what}: {:?}", started.elapsed());
    }
}

/// A device of any type that is known, with a key that is not.
fn device() -> impl Strategy<Value = String> {
    let pci = "[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]".prop_map(|a| format!(r#""pci","pci":{{"pci-address":"{a}""#));
    let vdpa = ("[a-z]{1,8}", "vhost|virtio", "/[a-z/]{1,20}")
        .prop_map(|(p, d, path)| format!(r#""vdpa","vdpa":{{"parent-device":"{p}","driver":"{d}","path":"{path}""#));
    let vhost = ("client|server", "/[a-z/]{1,20}").prop_map(|(m, p)| format!(r#""vhost-user","vhost-user":{{"mode":"{m}","path":"{p}""#));
    let memif = ("master|slave", "/[a-z/]{1,20}", "ethernet|ip|inject-punt|punt")
        .prop_map(|(r, p, m)| format!(r#""memif","memif":{{"role":"{r}","path":"{p}","mode":"{m}""#));
    let newer = Just(r#""cxl","cxl":{"port":1"#.to_owned());
    (prop_oneof![pci, vdpa, vhost, memif, newer], 2_u8.., any::<u32>()).prop_map(|(device, major, n)| {
        format!(r#"{{"version":"{major}.0.0","x-{n}":[null],"type":{device},"x":1,"x-{n}":{{"A":{n}}},"x":2}}}}"#)
    })
}

proptest! {
    /// Device information is printed as it came, whatever of it is known, and so it is in a status (S44, S61).
    #[test]
    fn device_information_survives(text in device()) {
        let info = npwg::DeviceInfo::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(info.device().is_none(), info.kind() == "cxl");
        prop_assert_eq!(json::compact(&info), text);
        let status = NetworkStatus { name: "a".to_owned(), device_info: Some(info), ..NetworkStatus::default() };
        prop_assert_eq!(parse_status(&to_json(std::slice::from_ref(&status))).unwrap(), [status]);
    }

    /// Whatever a resource and a device are called, their file is one in the directory for such files, or there is none (S66).
    #[test]
    fn a_device_plugins_file_is_in_its_directory(resource in any::<String>(), device in "\\PC{0,20}|[./]{0,6}") {
        if let Ok(path) = npwg::device_plugin_file(&resource, &device) {
            prop_assert_eq!(path.parent(), Some(std::path::Path::new("dp")));
            prop_assert!(path.file_name().is_some_and(|name| name.len() <= 255));
        }
    }
}
