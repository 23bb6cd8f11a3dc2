//! Results of every version, read and printed in every version, byte for byte against the reference library (v1.3.0).

use std::collections::HashSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use cni::{AddResult, Version};
use netloom_tests::peers_dir;
use serde_json::{Value, json};

/// A plugin's output, what its configuration said, and what is wanted.
#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    configured: Version,
    printed: String,
    wanted: Version,
}

/// What a conversion gives: the text, or an error.
type Converted = Result<String, String>;

/// Results without their version, in the words of 0.3.0 and later.
fn results() -> Vec<(&'static str, Value)> {
    let interfaces = json!([
        {"name": "cni0", "mac": "02:00:00:00:00:01"},
        {"name": "veth1", "mac": "02:00:00:00:00:02", "mtu": 1450},
        {"name": "eth0", "mac": "02:00:00:00:00:03", "mtu": 9000, "sandbox": "/run/netns/a", "socketPath": "/run/s.sock", "pciID": "0000:00:1f.0"},
        {"name": ""}
    ]);
    let v4 = json!({"version": "4", "interface": 2, "address": "10.1.0.2/16", "gateway": "10.1.0.1"});
    let v6 = json!({"version": "6", "interface": 2, "address": "fd00::2/64", "gateway": "fd00::1"});
    let routes = json!([
        {"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1400, "advmss": 1360, "priority": 100, "table": 7, "scope": 253},
        {"dst": "10.9.0.0/16"},
        {"dst": "10.9.8.7/16", "table": 0, "scope": 0},
        {"dst": "::/0", "gw": "fd00::1", "mtu": 0, "priority": 4_294_967_295_u32, "table": 4_294_967_295_u32},
        {"dst": "fd00:9::/48"}
    ]);
    let dns = json!({"nameservers": ["10.1.0.1", "fd00::1"], "domain": "example.org", "search": ["a.example.org"], "options": ["ndots:5"]});
    let bare = |version: &str, address: &str| json!({"version": version, "address": address});
    vec![
        ("one of everything", json!({"interfaces": interfaces, "ips": [v4, v6], "routes": routes, "dns": dns})),
        ("IPv4 alone", json!({"interfaces": interfaces, "ips": [v4], "routes": routes})),
        ("IPv6 alone", json!({"ips": [v6], "routes": routes, "dns": {"search": ["x"]}})),
        ("IPv6 first", json!({"ips": [v6, v4], "routes": [routes[4], routes[1]]})),
        ("several of a family", json!({"ips": [v4, bare("4", "10.2.0.2/24"), v6, bare("6", "fd00:2::2/128")], "routes": routes})),
        ("no address", json!({"interfaces": interfaces, "routes": routes, "dns": dns})),
        ("nothing", json!({})),
        ("empty lists", json!({"interfaces": [], "ips": [], "routes": [], "dns": {}})),
        ("null", json!({"interfaces": null, "ips": null, "routes": null, "dns": null})),
        (
            "null inside",
            json!({"ips": [{"version": "4", "interface": null, "address": "10.1.0.2/16", "gateway": null}], "routes": [{"dst": "10.9.0.0/16", "gw": null, "table": null}], "dns": {"search": null}}),
        ),
        (
            "no gateway",
            json!({"ips": [{"version": "4", "address": "10.1.0.2/16", "gateway": ""}], "routes": [{"dst": "10.9.0.0/16", "gw": ""}]}),
        ),
        ("an index of nothing", json!({"ips": [{"version": "4", "interface": -1, "address": "10.1.0.2/16"}]})),
        (
            "keys in capitals",
            json!({"INTERFACES": [{"NAME": "eth0"}], "Ips": [{"Version": "4", "ADDRESS": "10.1.0.2/16"}], "DNS": {"Domain": "x"}}),
        ),
        ("keys of somebody else", json!({"ips": [v4], "example.org/key": {"a": 1}, "dns": {"x": 1}})),
        (
            "text that HTML knows",
            json!({"interfaces": [{"name": "a<b>&c", "sandbox": "\u{2028}\u{7f}\u{1}\"\\/ä"}], "ips": [v4], "dns": {"domain": "<&>"}}),
        ),
        ("old words", json!({"ip4": {"ip": "10.1.0.2/16", "gateway": "10.1.0.1", "routes": [routes[0], routes[1]]}, "dns": dns})),
        ("old words, IPv6", json!({"ip6": {"ip": "fd00::2/64", "routes": [routes[3]]}})),
        ("old words, both", json!({"ip4": {"ip": "10.1.0.2/16", "routes": []}, "ip6": {"ip": "fd00::2/64", "gateway": "fd00::1"}})),
        ("old words, null", json!({"ip4": null, "ip6": null, "dns": null})),
        ("versions that are not the addresses'", json!({"ips": [{"version": "6", "address": "10.1.0.2/16"}, {"address": "fd00::2/64"}]})),
        ("bad address", json!({"ips": [{"version": "4", "address": "10.1.0.2"}], "ip4": {"ip": "ten"}})),
        (
            "bad gateway",
            json!({"ips": [{"version": "4", "address": "10.1.0.2/16", "gateway": "10.1"}], "ip4": {"ip": "10.1.0.2/16", "gateway": "x"}}),
        ),
        ("bad route", json!({"routes": [{"dst": "default"}], "ip4": {"ip": "10.1.0.2/16", "routes": [{"dst": "x"}]}})),
        ("wrong shape", json!({"ips": {"address": "10.1.0.2/16"}, "ip4": ["10.1.0.2/16"]})),
        ("wrong kind", json!({"interfaces": [{"name": 7}], "dns": {"domain": 7}})),
    ]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, result) in results() {
        for (stated, wanted) in Version::ALL.iter().flat_map(|a| Version::ALL.iter().map(move |b| (*a, *b))) {
            let mut with_version = result.clone();
            with_version["cniVersion"] = json!(stated.as_str());
            cases.push(Case { name, configured: wanted, printed: with_version.to_string(), wanted });
            // Without one it has its configuration's.
            cases.push(Case { name, configured: stated, printed: result.to_string(), wanted });
        }
    }
    let odd = [
        ("null for a result", "null"),
        ("an empty version", r#"{"cniVersion":"","ips":[{"version":"4","address":"10.1.0.2/16"}]}"#),
        ("a version of null", r#"{"cniVersion":null}"#),
        ("a version of the future", r#"{"cniVersion":"2.0.0"}"#),
        ("a version that is none", r#"{"cniVersion":"new"}"#),
        ("a list", "[]"),
        ("text", "\"x\""),
        ("no JSON", "{"),
        ("no output", ""),
    ];
    for (name, printed) in odd {
        for version in Version::ALL {
            cases.push(Case { name, configured: *version, printed: printed.to_owned(), wanted: *version });
        }
    }
    cases
}

fn ours(case: &Case) -> Converted {
    let (result, _) = AddResult::parse(case.printed.as_bytes(), case.configured).map_err(|e| e.to_string())?;
    result.print(case.wanted).map_err(|e| e.to_string())
}

/// Where we differ, and mean to.
fn exception(case: &Case, ours: &Converted, theirs: &Converted) -> Option<&'static str> {
    let old = |v: Version| v.family() == cni::Family::V0_2;
    let printed: Value = serde_json::from_str(&case.printed).unwrap_or_default();
    let stated = printed["cniVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(case.configured);
    let (ours_fails, theirs_fails) = (ours.is_err(), theirs.is_err());
    if !old(stated) && old(case.wanted) && theirs_fails && !ours_fails && printed["interfaces"].as_array().is_none_or(Vec::is_empty) {
        return Some("nothing is lost when a result without addresses, interfaces and routes is printed in 0.2.0");
    }
    if old(stated) && old(case.wanted) && printed["ip4"]["routes"].is_array() | printed["ip6"]["routes"].is_array() {
        return Some("0.1.0 and 0.2.0 know of a route its destination and gateway; other keys are passed on by the library only");
    }
    if case.name == "versions that are not the addresses'" && stated.family() == cni::Family::V0_4 {
        return Some("an address is of the family that it is of, whatever \"version\" says");
    }
    None
}

/// The reference library's answers, by the program that `make peers` builds of `tests/peers/convert`.
fn theirs(cases: &[Case]) -> Vec<Converted> {
    let request = |c: &Case| json!({"configured": c.configured.as_str(), "printed": c.printed, "wanted": c.wanted.as_str()});
    let requests = Value::from(cases.iter().map(request).collect::<Vec<_>>()).to_string();
    let mut child = Command::new(peers_dir().join("convert")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(requests.as_bytes()).unwrap();
    let answers: Vec<Value> = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let one = |a: &Value| match a["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(a["text"].as_str().unwrap().to_owned()),
    };
    answers.iter().map(one).collect()
}

#[test]
fn any_version_to_any_version() {
    let cases = cases();
    let theirs = theirs(&cases);
    assert_eq!(theirs.len(), cases.len());
    let (mut differ, mut excepted) = (Vec::new(), HashSet::new());
    for (case, theirs) in cases.iter().zip(theirs) {
        let ours = ours(case);
        let same = match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            (ours, theirs) => ours.is_err() == theirs.is_err(),
        };
        if !same && let Some(reason) = exception(case, &ours, &theirs) {
            excepted.insert(reason);
        } else if !same {
            differ.push(format!("{case:?}\nours: {ours:#?}\ntheirs: {theirs:#?}"));
        }
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), cases.len(), differ.join("\n\n"));
    assert_eq!(excepted.len(), 3, "an exception that is none any more: {excepted:?}");
}
