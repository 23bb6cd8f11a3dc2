//! `tuning`

use serde_json::{Value, json};

use super::{GONE, INNER_WIRE, addresses};
use crate::configurations::case::{Case, case};

/// Behind a bridge, whose interface it changes.
fn tuning(name: &'static str, keys: Value) -> Case {
    case("tuning", name, keys).after("bridge", json!({"bridge": "br0", "ipam": addresses(false)}))
}

/// Behind a link that stays after DEL: what DEL restores can be seen.
fn staying(name: &'static str, keys: Value) -> Case {
    let mut config = keys;
    config["prevResult"] =
        json!({"cniVersion": "1.1.0", "interfaces": [{"name": "wire0", "mac": "c2:b0:57:49:47:f0", "sandbox": "/run/netns/c1"}]});
    case("tuning", name, config).ifname("wire0").prepare(INNER_WIRE).prepare(&["c1: ip link set wire0 address c2:b0:57:49:47:f0"])
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        tuning("no key", json!({})),
        tuning(
            "sysctl",
            json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500", "net/ipv6/conf/IFNAME/accept_ra": "0"}}),
        ),
        tuning("mac", json!({"mac": "c2:b0:57:49:47:f1"})),
        tuning("mac in runtimeConfig", json!({"mac": "c2:b0:57:49:47:f1", "runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}})),
        tuning("mac in args.cni", json!({"runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}, "args": {"cni": {"mac": "c2:b0:57:49:47:f3"}}})),
        tuning("MAC in CNI_ARGS", json!({"mac": "c2:b0:57:49:47:f1"})).args("IgnoreUnknown=1;MAC=c2:b0:57:49:47:f4"),
        tuning("promisc", json!({"promisc": true})),
        tuning("mtu", json!({"mtu": 1300})),
        tuning("allmulti", json!({"allmulti": true})),
        tuning("txQLen", json!({"txQLen": 77})),
        tuning("dataDir", json!({"dataDir": "/run/elsewhere", "mtu": 1300})),
        tuning(
            "all in args.cni",
            json!({"sysctl": {"net.core.somaxconn": "400"}, "args": {"cni": {"promisc": true, "mtu": 1300, "allmulti": true,
            "txQLen": 77, "sysctl": {"net.core.somaxconn": "500"}}}}),
        ),
        staying("what DEL restores", json!({"mac": "c2:b0:57:49:47:f1", "promisc": true, "mtu": 1300, "allmulti": true, "txQLen": 77})),
        staying("sysctls are not restored", json!({"sysctl": {"net.core.somaxconn": "500"}})),
        tuning("version 0.4.0", json!({"cniVersion": "0.4.0", "mtu": 1300})),
        tuning("version 0.2.0", json!({"cniVersion": "0.2.0", "mtu": 1300})),
        tuning("sysctl in args.cni alone", json!({"args": {"cni": {"sysctl": {"net.core.somaxconn": "500"}}}})),
        tuning("a dot in the interface's name", json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})).ifname("eth0.5"),
        tuning("a sysctl outside of net", json!({"sysctl": {"kernel.panic": "1"}})),
        tuning("a sysctl that leads out of net", json!({"sysctl": {"net/../kernel/panic": "1"}})),
        tuning("a sysctl that is missing", json!({"sysctl": {"net.ipv4.no_such_thing": "1"}})),
        tuning("a sysctl that no line allows", json!({"sysctl": {"net.core.somaxconn": "500"}}))
            .prepare(&["mkdir -p /etc/cni/tuning", "echo '^net.ipv4' >/etc/cni/tuning/allowlist.conf"]),
        tuning("a MAC that is none", json!({"mac": "what"})),
        tuning("an mtu that is too large", json!({"mtu": 100_000})),
        case("tuning", "no result before it", json!({"mtu": 1300})),
        tuning("CHECK: the mtu was changed", json!({"mtu": 1300})).spoil(&["c1: ip link set eth0 mtu 1299"]),
        tuning("CHECK: promisc was set off", json!({"promisc": true})).spoil(&["c1: ip link set eth0 promisc off"]),
        tuning("CHECK: promisc was set on, and nobody cares", json!({"mtu": 1300})).spoil(&["c1: ip link set eth0 promisc on"]),
        tuning("CHECK: a sysctl was changed", json!({"sysctl": {"net.core.somaxconn": "500"}}))
            .spoil(&["c1: echo 7 >/proc/sys/net/core/somaxconn"]),
        tuning("DEL after the namespace", json!({"mtu": 1300})).before_del(GONE),
        tuning("DEL that is told nothing", json!({"mtu": 1300})).blind_del(),
    ]
}
