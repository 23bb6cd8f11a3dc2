//! `host-local`

use serde_json::{Value, json};

use crate::configurations::case::{Case, case};

fn pool(name: &'static str, ipam: Value) -> Case {
    let mut ipam = ipam;
    ipam["type"] = json!("host-local");
    case("host-local", name, json!({"ipam": ipam}))
}

fn with(name: &'static str, ipam: Value, keys: Value) -> Case {
    let mut case = pool(name, ipam);
    case.chain[0].as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case
}

pub(crate) fn cases() -> Vec<Case> {
    let range = || json!({"ranges": [[{"subnet": "10.1.0.0/24"}]]});
    let mut all = vec![
        pool("ranges", json!({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})),
        pool("two ranges in a set", json!({"ranges": [[{"subnet": "10.1.0.0/30"}, {"subnet": "10.2.0.0/24"}]]})),
        pool("rangeStart, rangeEnd, gateway", json!({"ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.50", "rangeEnd": "10.1.0.60",
            "gateway": "10.1.0.254"}]]})),
        pool("subnet", json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.20", "gateway": "10.1.0.10"})),
        pool("subnet and ranges", json!({"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.2.0.0/24"}]]})),
        pool("routes", json!({"subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.5.0.0/16", "gw": "10.1.0.9", "mtu": 1300,
            "advmss": 1200, "priority": 5, "table": 50, "scope": 253}]})),
        pool("dataDir", json!({"subnet": "10.1.0.0/24", "dataDir": "/var/lib/elsewhere"})),
        pool("resolvConf", json!({"subnet": "10.1.0.0/24", "resolvConf": "/run/resolv.conf"}))
            .prepare(&["printf 'nameserver 10.0.0.1\\nnameserver fd00::1\\ndomain a.example\\nsearch b.example c.example\\noptions ndots:5 rotate\\n# x\\n' >/run/resolv.conf"]),
        pool("a resolvConf that is missing", json!({"subnet": "10.1.0.0/24", "resolvConf": "/run/resolv.conf"})),
        with("ipRanges", range(), json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}})),
        with("ips", range(), json!({"runtimeConfig": {"ips": ["10.1.0.77"]}})),
        with("ips with a prefix", range(), json!({"runtimeConfig": {"ips": ["10.1.0.77/24"]}})),
        with("args.cni.ips", range(), json!({"args": {"cni": {"ips": ["10.1.0.78"]}}})),
        pool("IP in CNI_ARGS", range()).args("IgnoreUnknown=1;IP=10.1.0.79"),
        pool("an address is taken", range())
            .prepare(&["mkdir -p /var/lib/cni/networks/net", "printf 'other\\r\\neth0' >/var/lib/cni/networks/net/10.1.0.2"]),
        pool("the search goes on behind the last one", range())
            .prepare(&["mkdir -p /var/lib/cni/networks/net", "printf 10.1.0.99 >/var/lib/cni/networks/net/last_reserved_ip.0"]),
        pool("the search begins again", json!({"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.9"}))
            .prepare(&["mkdir -p /var/lib/cni/networks/net", "printf 10.1.0.9 >/var/lib/cni/networks/net/last_reserved_ip.0"]),
        pool("a file with the container alone", range())
            .prepare(&["mkdir -p /var/lib/cni/networks/net", "printf c1 >/var/lib/cni/networks/net/10.1.0.50"]),
        with("version 0.2.0", range(), json!({"cniVersion": "0.2.0"})),
        with("version 0.4.0", range(), json!({"cniVersion": "0.4.0"})),
        pool("CHECK: the file is gone", range()).spoil(&["rm /var/lib/cni/networks/net/10.1.0.2"]),
        pool("DEL that is told nothing", range()).blind_del(),
    ];
    all.extend(refused());
    all
}

fn refused() -> Vec<Case> {
    let full: &[&str] = &["mkdir -p /var/lib/cni/networks/net", "printf 'other\\r\\neth0' >/var/lib/cni/networks/net/10.1.0.2"];
    let small = || json!({"subnet": "10.1.0.0/30"});
    vec![
        pool("no range", json!({})),
        pool("a subnet that is none", json!({"subnet": "10.1.0.0/33"})),
        pool("a subnet with host bits", json!({"subnet": "10.1.0.1/24"})),
        pool("a subnet that is too small", json!({"subnet": "10.1.0.0/31"})),
        pool("a rangeStart outside of its subnet", json!({"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"})),
        pool("sets that overlap", json!({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/16"}]]})),
        pool("families in one set", json!({"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00:1::/64"}]]})),
        pool("none is free", small()).prepare(full),
        with("a requested address is taken", json!({"subnet": "10.1.0.0/24"}), json!({"runtimeConfig": {"ips": ["10.1.0.2"]}}))
            .prepare(full),
        with("a requested address outside", json!({"subnet": "10.1.0.0/24"}), json!({"runtimeConfig": {"ips": ["10.9.0.2"]}})),
        with("the gateway is requested", json!({"subnet": "10.1.0.0/24"}), json!({"runtimeConfig": {"ips": ["10.1.0.1"]}})),
        with("a requested address that is none", json!({"subnet": "10.1.0.0/24"}), json!({"runtimeConfig": {"ips": ["x"]}})),
        pool("it has an address already", json!({"subnet": "10.1.0.0/24"}))
            .prepare(&["mkdir -p /var/lib/cni/networks/net", "printf 'c1\\r\\neth0' >/var/lib/cni/networks/net/10.1.0.9"]),
        with(
            "version 0.2.0 and two addresses",
            json!({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]]}),
            json!({"cniVersion": "0.2.0"}),
        ),
    ]
}
