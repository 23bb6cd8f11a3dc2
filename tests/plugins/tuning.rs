//! `tuning`: every key from each of its sources, and what a node's owner allows.

use netloom_tests::{Host, at, plugin_dir};
use serde_json::{Value, json};

use crate::{
    sbr::two_routers::c1,
    whose_link::{cni, macvlan, with_parent},
};

/// `c1` with a veth of this name.
fn host(ifname: &str) -> Host {
    let host = Host::new();
    host.container("c1");
    host.sh("c1", &format!("ip link add {ifname} address 02:00:00:00:00:01 type veth peer name other"));
    host
}

fn tuning(ifname: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "tuning",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": ifname, "sandbox": "/run/netns/c1", "mtu": 1500}]}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// MAC, MTU, queue, flags.
fn view(host: &Host, ifname: &str) -> (String, u64, u64, bool, bool) {
    let l = host.link("c1", ifname).unwrap();
    (l.mac().to_owned(), l.mtu(), l.0["txqlen"].as_u64().unwrap_or(0), l.has("PROMISC"), l.has("ALLMULTI"))
}

fn sysctl(host: &Host, key: &str) -> String {
    host.run("c1", &["cat", &format!("/proc/sys/net/{key}")]).trim().to_owned()
}

/// Under `args.cni` stands what wins, also alone; an empty queue is a queue.
#[test]
fn args_cni_wins_for_every_key() {
    let host = host("eth0");
    let (before, traces) = (view(&host, "eth0"), host.traces());
    let own = json!({"mac": "02:00:00:00:00:02", "promisc": true, "mtu": 1400, "allmulti": true, "txQLen": 7,
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.ipv4.conf.IFNAME.arp_notify": "1"}});
    let asked = json!({"mac": "02:00:00:00:00:03", "promisc": false, "mtu": 1300, "allmulti": false, "txQLen": 0,
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "0"}});
    let args = json!({"args": {"cni": asked}});
    let both: Value = own
        .as_object()
        .unwrap()
        .iter()
        .chain(args.as_object().unwrap())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    for (keys, expected, filter, notify) in [
        (own, ("02:00:00:00:00:02".to_owned(), 1400, 7, true, true), "1", "1"),
        (both, ("02:00:00:00:00:03".to_owned(), 1300, 0, false, false), "0", "1"),
        (args, ("02:00:00:00:00:03".to_owned(), 1300, 0, false, false), "0", "0"),
    ] {
        let config = tuning("eth0", keys.clone());
        let result = c1(&host, "eth0").add(&config);
        assert_eq!(view(&host, "eth0"), expected, "{keys}");
        assert_eq!(
            (sysctl(&host, "ipv4/conf/eth0/arp_filter").as_str(), sysctl(&host, "ipv4/conf/eth0/arp_notify").as_str()),
            (filter, notify)
        );
        assert_eq!((&result["interfaces"][0]["mac"], &result["interfaces"][0]["mtu"]), (&json!(expected.0), &json!(expected.1)));
        let checked = c1(&host, "eth0").check(&config, &result);
        assert_eq!(checked.code, 0, "{keys}: {checked:?}");
        for change in ["address 02:00:00:00:00:09", "mtu 1234", "txqlen 99", "allmulticast on"] {
            let is_so = change == "allmulticast on" && expected.4;
            host.sh("c1", &format!("ip link set eth0 {change}"));
            assert_eq!(c1(&host, "eth0").check(&config, &result).code, i32::from(!is_so), "{keys}: {change}");
            host.sh("c1", &format!("ip link set eth0 address {} mtu {} txqlen {}", expected.0, expected.1, expected.2));
            host.sh("c1", &format!("ip link set eth0 allmulticast {}", if expected.4 { "on" } else { "off" }));
        }
        c1(&host, "eth0").del(&config, &result);
        assert_eq!(view(&host, "eth0"), before, "{keys}");
        host.sh("c1", "sysctl -qw net.ipv4.conf.eth0.arp_filter=0 net.ipv4.conf.eth0.arp_notify=0");
    }
    host.run("", &["rm", "-r", "/run/cni"]);
    host.expect_traces(&traces, "tuning by args.cni");
}

/// `args.cni.mac`, `runtimeConfig.mac`, `MAC` in `CNI_ARGS`, `mac`: in this order.
#[test]
fn who_may_ask_for_a_hardware_address() {
    let host = host("eth0");
    let mac = |n: u32| format!("02:00:00:00:01:0{n}");
    let all = [
        ("args", json!({"cni": {"mac": mac(1)}})),
        ("runtimeConfig", json!({"mac": mac(2)})),
        ("CNI_ARGS", json!(null)),
        ("mac", json!(mac(4))),
    ];
    for first in 0..4 {
        let asked = &all[first..];
        let keys: serde_json::Map<_, _> =
            asked.iter().filter(|(k, _)| *k != "CNI_ARGS").map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let mut cni = c1(&host, "eth0");
        if asked.iter().any(|(k, _)| *k == "CNI_ARGS") {
            cni = cni.set("CNI_ARGS", &format!("IgnoreUnknown=1;MAC={}", mac(3)));
        }
        let config = tuning("eth0", keys.into());
        let result = cni.add(&config);
        assert_eq!(view(&host, "eth0").0, mac(first as u32 + 1));
        cni.del(&config, &result);
    }
    assert_eq!(view(&host, "eth0").0, "02:00:00:00:00:01");
}

/// An interface name with dots, in a key with dots and in one with slashes.
#[test]
fn names_with_dots() {
    let host = host("eth0.100");
    let config = tuning(
        "eth0.100",
        json!({"dataDir": "/run/elsewhere/deep", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1",
            "net/ipv6/conf/IFNAME/accept_dad": "0", "net.ipv4.conf.eth0/100.arp_notify": "1"}}),
    );
    let result = c1(&host, "eth0.100").add(&config);
    let read = |key: &str| sysctl(&host, key);
    assert_eq!((read("ipv4/conf/eth0.100/arp_filter"), read("ipv6/conf/eth0.100/accept_dad")), ("1".into(), "0".into()));
    assert_eq!(read("ipv4/conf/eth0.100/arp_notify"), "1");
    assert_eq!(host.list("/run/elsewhere/deep"), ["c1_eth0.100.json"]);
    assert_eq!(c1(&host, "eth0.100").check(&config, &result).code, 0);
    host.sh("c1", "sysctl -qw net/ipv6/conf/eth0.100/accept_dad=1");
    assert!(c1(&host, "eth0.100").check(&config, &result).message().contains("net.ipv6.conf.eth0.100.accept_dad"));
    c1(&host, "eth0.100").del(&config, &result);
    assert_eq!((view(&host, "eth0.100").1, host.list("/run/elsewhere/deep")), (1500, vec![]));
}

/// The lists that clusters use name `IFNAME`; a line may also name the interface, and is not anchored.
#[test]
fn an_allowlist() {
    let host = host("eth0");
    let key = "net.ipv4.conf.IFNAME.arp_filter";
    for (list, sysctl, allowed) in [
        ("^net.ipv4.conf.IFNAME.[a-z_]*$\n", key, true),
        ("^net.ipv4.conf.IFNAME.[a-z_]*$\n", "net/ipv4/conf/IFNAME/arp_filter", true),
        ("\n  arp_filter  \n", key, true),
        ("^net.ipv4.conf.eth0.arp_filter$", key, true),
        ("^net.ipv4.conf.IFNAME.arp_notify$", key, false),
        ("", key, false),
        ("(", key, false),
    ] {
        host.write("/etc/cni/tuning/allowlist.conf", list);
        let config = tuning("eth0", json!({"sysctl": {sysctl: "1"}}));
        let add = c1(&host, "eth0").call("ADD", "tuning", config.to_string());
        let status = c1(&host, "eth0").call("STATUS", "tuning", config.to_string());
        // Whoever names the interface is asked for one that nobody has yet.
        let named = list.contains("eth0");
        assert_eq!((add.code == 0, status.code == 0), (allowed, allowed && !named), "{list:?}: {add:?} {status:?}");
        if !allowed {
            let says = if list == "(" { "allowlist.conf" } else { "is not allowed. Only the following sysctls are allowed: [" };
            assert!(add.message().contains(says) && status.error()["code"] == 50, "{add:?} {status:?}");
        }
        // DEL does not ask.
        c1(&host, "eth0").del(&config, &Value::Null);
    }
}

/// Another network's chain was refused before it came to its own `tuning`: its DEL restores nothing.
#[test]
fn del_of_another_networks_attachment_of_this_name() {
    let host = with_parent();
    host.container("c1");
    c1(&host, "eth0").add(&macvlan("net"));
    let before = view(&host, "eth0");
    let config = tuning("eth0", json!({"mtu": 1400}));
    let result = c1(&host, "eth0").add(&config);
    let mut other = tuning("eth0", json!({"mtu": 1300}));
    other["name"] = json!("other");
    c1(&host, "eth0").del(&other, &Value::Null);
    assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1400);
    c1(&host, "eth0").del(&config, &result);
    assert_eq!(view(&host, "eth0"), before);
}

/// A refusal has the key as it was written, the interface, and what would be possible.
#[test]
fn what_the_kernel_refuses_is_told_with_the_key() {
    let host = host("eth0");
    let traces = host.traces();
    for (keys, says) in [
        (json!({"mtu": 99999}), ["eth0", "68 to 65535"]),
        (json!({"sysctl": {"net.ipv4.conf.IFNAME.nothing": "1"}}), ["sysctl[\"net.ipv4.conf.IFNAME.nothing\"]", "no such setting"]),
        (json!({"sysctl": {"net.ipv4.conf.IFNAME.mtu": "x"}}), ["sysctl[\"net.ipv4.conf.IFNAME.mtu\"]", ""]),
    ] {
        let refused = c1(&host, "eth0").call("ADD", "tuning", tuning("eth0", keys.clone()).to_string());
        assert!(says.iter().all(|part| refused.message().contains(part)), "{keys}: {refused:?}");
        host.expect_traces(&traces, "a refused ADD");
    }
}

/// DEL puts a link that stays back to what it was.
#[test]
fn del_restores_every_setting() {
    let host = Host::new();
    host.container("c1");
    host.sh("c1", "ip link add eth0 address 02:00:00:00:00:01 type veth peer name other");
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "tuning", "promisc": true, "allmulti": true, "mtu": 1300, "txQLen": 77,
        "mac": "02:00:00:00:00:02", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"}});
    config["prevResult"] =
        json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/c1"}]});
    let view = || {
        let l = host.link("c1", "eth0").unwrap();
        (l.mac().to_owned(), l.mtu(), l.0["txqlen"].as_u64().unwrap(), l.has("PROMISC"), l.has("ALLMULTI"))
    };
    let before = view();
    let result = at(&host, "c1").add(&config);
    assert_eq!(view(), ("02:00:00:00:00:02".to_owned(), 1300, 77, true, true));
    assert_eq!(result["interfaces"][0]["mac"], "02:00:00:00:00:02");
    let read = |key: &str| host.run("c1", &["cat", &format!("/proc/sys/net/{key}")]).trim().to_owned();
    assert_eq!((read("ipv4/conf/eth0/arp_filter").as_str(), read("core/somaxconn").as_str()), ("1", "500"));
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    for (change, says) in [
        ("ip link set eth0 mtu 1299", "MTU is 1299, not 1300"),
        ("ip link set eth0 mtu 1300 promisc off", "promiscuous"),
        ("ip link set eth0 promisc on txqlen 5", "queue length is 5"),
        ("sysctl -qw net.core.somaxconn=7", "net.core.somaxconn"),
    ] {
        host.sh("c1", change);
        assert!(at(&host, "c1").check(&config, &result).message().contains(says), "{change}");
    }
    at(&host, "c1").del(&config, &result);
    assert_eq!(view(), before);
    assert_eq!(host.list("/run/cni/tuning"), Vec::<String>::new());
}

/// `tuning` could not restore an MTU that the parent no longer allows, and so no DEL ever succeeded. Two `tuning` in one
/// chain kept only what the second one found.
#[test]
fn del_succeeds_where_a_setting_cannot_be_restored() {
    let host = with_parent();
    host.container("c1");
    let tuning = |keys: Value| {
        let mut config = json!({"type": "tuning"});
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        config
    };
    let list = json!({"cniVersion": "1.0.0", "name": "m", "plugins": [macvlan("m"), tuning(json!({"mtu": 1300}))]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    assert_eq!(cni(&host, &["add", "m", "/run/netns/c1"], &[]).0, 0);
    host.sh("", "ip link set wire0 mtu 1400");
    let (code, said) = cni(&host, &["del", "m", "/run/netns/c1"], &[]);
    assert_eq!(code, 0, "{said}");
    assert!(host.link("c1", "eth0").is_none() && host.list("/run/cni/tuning").is_empty());
    // What was there first is what comes back.
    host.sh("c1", "ip link add eth0 mtu 1500 type veth peer name peer0");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1"}]});
    let config = |keys: Value| {
        let mut config = tuning(keys);
        config
            .as_object_mut()
            .unwrap()
            .extend(json!({"cniVersion": "1.0.0", "name": "t", "prevResult": prev}).as_object().unwrap().clone());
        config
    };
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    one.add(&config(json!({"mtu": 1300})));
    one.add(&config(json!({"mtu": 1200, "txQLen": 77})));
    one.del(&config(json!({})), &prev);
    assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1500);
}
