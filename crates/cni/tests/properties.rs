//! What must hold of any result, configuration and argument: a version that can express something keeps it, and what was
//! printed is read as what it was.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use cni::{AddResult, CniArgs, CniError, Code, Config, Dns, Family, Interface, IpConfig, NetworkList, Route, Version};
use ipnet::IpNet;
use json::Value;
use netloom_cni_spec as cni;
use proptest::prelude::*;

/// A second; a debug build on a busy machine gets more. What is not linear takes minutes.
const QUICK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 120 } else { 10 });

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<Ipv4Addr>().prop_map(IpAddr::V4), any::<Ipv6Addr>().prop_map(IpAddr::V6)]
}

/// An address of any family with any prefix length.
fn net() -> impl Strategy<Value = IpNet> {
    (ip(), any::<u8>()).prop_map(|(ip, prefix)| {
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        IpNet::new(ip, prefix % (longest + 1)).unwrap()
    })
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any::<String>(), 0..3)
}

/// 0 means "not given" wherever upstream leaves zeros out.
fn given() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(1_u32..)
}

fn dns() -> impl Strategy<Value = Dns> {
    (words(), any::<String>(), words(), words()).prop_map(|(nameservers, domain, search, options)| Dns {
        nameservers,
        domain,
        search,
        options,
    })
}

fn route() -> impl Strategy<Value = Route> {
    let rest = (given(), given(), given(), any::<Option<u32>>(), any::<Option<u8>>());
    (net(), prop::option::of(ip()), rest).prop_map(|(dst, gw, (mtu, advmss, priority, table, scope))| Route {
        mtu,
        advmss,
        priority,
        table,
        scope,
        ..Route::new(dst, gw)
    })
}

fn interface() -> impl Strategy<Value = Interface> {
    (any::<String>(), any::<String>(), any::<u32>(), any::<String>(), any::<String>(), any::<String>())
        .prop_map(|(name, mac, mtu, sandbox, socket_path, pci_id)| Interface { name, mac, mtu, sandbox, socket_path, pci_id })
}

fn result() -> impl Strategy<Value = AddResult> {
    let address = (any::<Option<i64>>(), net(), prop::option::of(ip())).prop_map(|(interface, address, gateway)| IpConfig {
        interface,
        address,
        gateway,
    });
    let interfaces = prop::collection::vec(interface(), 0..4);
    (interfaces, prop::collection::vec(address, 0..5), prop::collection::vec(route(), 0..4), dns())
        .prop_map(|(interfaces, ips, routes, dns)| AddResult { interfaces, ips, routes, dns })
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL)
}

/// The result as a reader of this version sees it; `None` if the version cannot express it.
fn through(result: &AddResult, version: Version) -> Option<AddResult> {
    let text = result.print(version).ok()?;
    let (read, stated) = AddResult::parse(text.as_bytes(), Version::V0_1_0).unwrap();
    assert_eq!(stated, version);
    Some(read)
}

/// What is left of a result in this version, said without its code.
fn expressible(result: &AddResult, version: Version) -> AddResult {
    let mut left = result.clone();
    match version.family() {
        Family::V1 => {}
        Family::V0_4 => {
            for i in &mut left.interfaces {
                *i = Interface { name: i.name.clone(), mac: i.mac.clone(), sandbox: i.sandbox.clone(), ..Interface::default() };
            }
        }
        Family::V0_2 => {
            left.interfaces.clear();
            let first = |v4: bool| result.ips.iter().find(move |ip| ip.address.addr().is_ipv4() == v4);
            left.ips = [true, false].into_iter().filter_map(first).map(|ip| IpConfig { interface: None, ..ip.clone() }).collect();
            let of = |v4: bool| result.routes.iter().filter(move |r| first(v4).is_some() && r.dst.addr().is_ipv4() == v4);
            left.routes = of(true).chain(of(false)).map(|r| Route::new(r.dst, r.gw)).collect();
        }
    }
    left
}

proptest! {
    /// A version keeps all that it can express, and adds nothing; only 0.1.0 and 0.2.0 need an address for the rest.
    #[test]
    fn a_version_keeps_what_it_can_express(result in result(), version in version()) {
        let lost = !(result.interfaces.is_empty() && result.routes.is_empty());
        let refused = version.family() == Family::V0_2 && result.ips.is_empty() && lost;
        prop_assert_eq!(result.print(version).is_err(), refused);
        if let Some(read) = through(&result, version) {
            prop_assert_eq!(read, expressible(&result, version));
        }
    }

    /// From one version to any other and back: the older of both decides what is kept, whichever came first.
    #[test]
    fn the_older_version_decides(result in result(), one in version(), other in version()) {
        let between = |a, b| through(&result, a).and_then(|r| through(&r, b));
        prop_assert_eq!(between(one, other), between(other, one));
        prop_assert_eq!(between(one, other), through(&result, one.min(other)));
    }

    /// Printing twice changes nothing more.
    #[test]
    fn a_conversion_is_done_once(result in result(), version in version()) {
        if let Ok(text) = result.print(version) {
            prop_assert_eq!(through(&result, version).unwrap().print(version), Ok(text));
        }
    }

    /// A result is what it is, whatever the case of its keys, and whatever was written before the last of them.
    #[test]
    fn keys_in_any_case(result in result(), version in version()) {
        let Ok(Value::Object(object)) = result.to_value(version) else { return Ok(()) };
        let shouted = object.iter().map(|(k, v)| (k.to_uppercase(), v.clone()));
        let before = object.iter().filter(|(k, _)| *k != "cniVersion").map(|(k, _)| (k.to_owned(), Value::from(7_u64)));
        let after = object.iter().map(|(k, _)| (k.to_owned(), Value::Null));
        let text = json::compact(&before.chain(shouted).chain(after).collect::<json::Object>());
        let (read, stated) = AddResult::parse(text.as_bytes(), Version::V0_1_0).unwrap();
        prop_assert_eq!((Some(read), stated), (through(&result, version), version));
    }

    /// What a plugin is given, it gives on: keys, and the previous result in its own version.
    #[test]
    fn a_configuration_carries_its_result(result in result(), version in version(), unknown in any::<String>()) {
        let text = format!(r#"{{"cniVersion":"{version}","name":"net","type":"a","Unknown":{}}}"#, json::compact(&unknown));
        let (config, prev) = Config::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(prev, None);
        let Ok(printed) = config.print(Some(&result)) else { return Ok(()) };
        let (again, prev) = Config::parse(printed.as_bytes()).unwrap();
        prop_assert_eq!(prev, through(&result, version));
        prop_assert_eq!(again.print(None), Ok(text));
    }

    /// A plugin gets exactly those of the runtime's wishes that its capabilities ask for.
    #[test]
    fn capabilities_choose(
        declared in prop::collection::btree_map("[a-d]", any::<bool>(), 0..5),
        wished in prop::collection::btree_map("[a-d]", any::<u64>(), 0..5),
    ) {
        let text = format!(r#"{{"name":"n","plugins":[{{"type":"t","capabilities":{}}}]}}"#, json::compact(&declared));
        let list = NetworkList::parse(text.as_bytes(), None).unwrap();
        let runtime = wished.iter().map(|(k, n)| (k.clone(), Value::from(*n))).collect();
        let config = list.derive(&list.plugins[0], &runtime).unwrap();
        let got: Vec<String> =
            config.raw().object("runtimeConfig").into_iter().flat_map(json::Object::iter).map(|(k, _)| k.to_owned()).collect();
        let expected: Vec<String> = wished.keys().filter(|k| declared.get(*k) == Some(&true)).cloned().collect();
        prop_assert_eq!(got, expected);
        prop_assert!(config.raw().get("capabilities").is_none());
    }

    #[test]
    fn arguments_are_read_as_they_are_written(pairs in prop::collection::vec(("[^=;]{1,8}", "[^;]{0,8}"), 0..6)) {
        let mut args = CniArgs::default();
        pairs.iter().for_each(|(k, v)| args.push(k, v));
        prop_assert_eq!(CniArgs::parse(&args.to_string()), Ok(args.clone()));
        for (key, _) in &pairs {
            let last = pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
            prop_assert_eq!(args.get(key), last);
        }
    }

    #[test]
    fn errors_are_read_as_they_are_printed(code in 1_u32.., msg in any::<String>(), details in any::<String>(), version in version()) {
        let error = CniError::new(Code(code), msg).with_details(details);
        prop_assert_eq!(CniError::parse(error.print(version).as_bytes()), Some(error));
    }
}

/// A megabyte of whatever is worst takes less than a second.
#[test]
fn a_megabyte_is_quick() {
    let times = |unit: &str, n: usize| vec![unit; n].join(",");
    let keys = |n: usize| (0..n).map(|i| format!("\"k{i}\":true")).collect::<Vec<_>>().join(",");
    let list = |plugins: &str| format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#);
    let result = |ips: &str| format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"t","prevResult":{{"ips":[{ips}]}}}}"#);
    let capable = format!(r#"{{"type":"t","capabilities":{{{}}}}}"#, keys(40_000));
    for (what, text) in [
        ("plugins", list(&times(r#"{"type":"a"}"#, 70_000))),
        ("keys", list(&format!(r#"{{"type":"t",{}}}"#, keys(70_000)))),
        ("capabilities", list(&capable)),
        ("addresses", result(&times(r#"{"address":"10.0.0.1/8"}"#, 40_000))),
    ] {
        let started = Instant::now();
        let runtime = json::parse(format!("{{{}}}", keys(200)).as_bytes()).unwrap().as_object().cloned().unwrap();
        if let Ok(list) = NetworkList::parse(text.as_bytes(), None) {
            list.plugins.iter().take(3).for_each(|p| drop(list.derive(p, &runtime)));
        }
        if let Ok((config, prev)) = Config::parse(text.as_bytes()) {
            let _ = config.print(prev.as_ref());
        }
        assert!(started.elapsed() < QUICK, "{what}: {:?}", started.elapsed());
    }
    for text in ["a=1;".repeat(1 << 18), "=".repeat(1 << 20), ";".repeat(1 << 20)] {
        let started = Instant::now();
        if let Ok(args) = CniArgs::parse(&text) {
            let _ = (args.only(&["IP"]), args.get("b"), args.to_string());
        }
        assert!(started.elapsed() < QUICK, "CNI_ARGS: {:?}", started.elapsed());
    }
}
