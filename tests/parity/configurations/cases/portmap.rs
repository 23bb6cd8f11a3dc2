//! `portmap`

use serde_json::{Value, json};

use super::{GONE, WORLD, addresses};
use crate::configurations::case::{Case, case};

/// `ask FROM PROTOCOL ADDRESS PORT SEEN`: whether somebody answers who sees this address.
const ASK: &[&str] = &[
    "echo '#!/bin/bash' >/run/ask",
    "echo 'case $1 in host) ;; *) from=$1; shift; exec ip netns exec $from /run/ask host \"$@\" ;; esac' >>/run/ask",
    "echo 'exec 3<>/dev/$2/$3/$4 || exit 1' >>/run/ask",
    "echo 'for i in 1 2 3 4 5; do echo >&3; read -t 2 seen <&3 && break; done' >>/run/ask",
    "echo '[ \"$seen\" = \"$5\" ]' >>/run/ask",
    "chmod +x /run/ask",
];

/// From outside, from the host, from the container itself.
const EVERYWHERE: &[&str] = &[
    "timeout 15 /run/ask world tcp 192.0.2.1 8080 192.0.2.9 2>/dev/null",
    "timeout 15 /run/ask world udp 192.0.2.1 8080 192.0.2.9 2>/dev/null",
    "timeout 15 /run/ask world tcp 2001:db8::1 8080 2001:db8::9 2>/dev/null",
    "timeout 15 /run/ask world udp 2001:db8::1 8080 2001:db8::9 2>/dev/null",
    "timeout 15 /run/ask host tcp 192.0.2.1 8080 192.0.2.1 2>/dev/null",
    "timeout 15 /run/ask host tcp 127.0.0.1 8080 10.1.0.1 2>/dev/null",
    "timeout 15 /run/ask c1 tcp 192.0.2.1 8080 10.1.0.1 2>/dev/null",
    "timeout 15 /run/ask c1 tcp 2001:db8::1 8080 fd00:1::1 2>/dev/null",
];

/// What is seen where only the container's network and 127.0.0.1 are not told.
const FEW: &[&str] = &[
    "timeout 15 /run/ask world tcp 192.0.2.1 8080 192.0.2.9 2>/dev/null",
    "timeout 15 /run/ask world tcp 192.0.2.1 8080 10.1.0.1 2>/dev/null",
    "timeout 15 /run/ask world tcp 2001:db8::1 8080 2001:db8::9 2>/dev/null",
    "timeout 15 /run/ask world tcp 2001:db8::1 8080 fd00:1::1 2>/dev/null",
];

fn both() -> Value {
    json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8080, "containerPort": 80, "protocol": "udp"}])
}

/// Behind a bridge.
fn behind(name: &'static str, keys: Value) -> Case {
    let bridge = json!({"bridge": "br0", "isDefaultGateway": true, "hairpinMode": true, "ipam": addresses(true)});
    case("portmap", name, keys).after("bridge", bridge).prepare(WORLD).prepare(ASK).serves()
}

fn ports(name: &'static str, keys: Value) -> Case {
    let mut keys = keys;
    keys["runtimeConfig"] = json!({"portMappings": both()});
    behind(name, keys)
}

fn at(name: &'static str, backend: &str, address: &str) -> Case {
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": address});
    behind(name, json!({"backend": backend, "runtimeConfig": {"portMappings": [mapping]}})).probe(FEW)
}

pub(crate) fn cases() -> Vec<Case> {
    let (iptables, nftables) = ("iptables", "nftables");
    let mapped = |name, mapping: Value| behind(name, json!({"runtimeConfig": {"portMappings": [mapping]}}));
    vec![
        ports("no backend is asked for", json!({})).probe(EVERYWHERE),
        ports("iptables", json!({"backend": iptables})).probe(EVERYWHERE),
        ports("nftables", json!({"backend": nftables})).probe(EVERYWHERE),
        ports("iptables: snat false", json!({"backend": iptables, "snat": false})).probe(FEW),
        ports("nftables: snat false", json!({"backend": nftables, "snat": false})).probe(FEW),
        ports("iptables: masqAll", json!({"backend": iptables, "masqAll": true})).probe(FEW),
        ports("nftables: masqAll", json!({"backend": nftables, "masqAll": true})).probe(FEW),
        at("iptables: hostIP", iptables, "192.0.2.1"),
        at("nftables: hostIP", nftables, "192.0.2.1"),
        at("iptables: another hostIP", iptables, "10.1.0.1"),
        at("nftables: another hostIP", nftables, "10.1.0.1"),
        at("iptables: hostIP ::", iptables, "::"),
        at("nftables: hostIP ::", nftables, "::"),
        ports("markMasqBit", json!({"markMasqBit": 5}))
            .probe(&["iptables-save -t nat | grep -q -- '--set-xmark 0x20/0x20'", EVERYWHERE[5], EVERYWHERE[6]]),
        ports("nftables: markMasqBit", json!({"backend": nftables, "markMasqBit": 5})).probe(&EVERYWHERE[5..7]),
        ports("externalSetMarkChain", json!({"externalSetMarkChain": "KUBE-MARK-MASQ"}))
            .prepare(&["iptables -t nat -N KUBE-MARK-MASQ", "ip6tables -t nat -N KUBE-MARK-MASQ"])
            .prepare(&["iptables -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"])
            .prepare(&["iptables -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE"])
            .probe(EVERYWHERE),
        ports("conditions of iptables", json!({"conditionsV4": ["!", "-s", "192.0.2.9"], "conditionsV6": ["-s", "2001:db8::/64"]}))
            .probe(EVERYWHERE),
        ports("conditions of nftables", json!({"backend": nftables, "conditionsV4": ["ip", "saddr", "!=", "192.0.2.9"], "conditionsV6": ["ip6", "saddr", "2001:db8::/64"]}))
            .probe(EVERYWHERE),
        ports("conditions of nftables, and no backend", json!({"conditionsV4": ["ip", "saddr", "192.0.2.9"]})).probe(EVERYWHERE),
        ports("conditions of both", json!({"conditionsV4": ["-s", "192.0.2.9"], "conditionsV6": ["ip6", "saddr", "fd00::1"]})),
        ports("conditions of the other backend", json!({"backend": nftables, "conditionsV4": ["-s", "192.0.2.9"]})),
        ports("an unknown backend", json!({"backend": "pf"})),
        ports("markMasqBit and externalSetMarkChain", json!({"markMasqBit": 5, "externalSetMarkChain": "X"})),
        ports("markMasqBit 32", json!({"markMasqBit": 32})),
        ports("a chain that is not there", json!({"externalSetMarkChain": "NOT-THERE"})),
        behind("no ports", json!({"backend": iptables})),
        mapped("port 0", json!({"hostPort": 0, "containerPort": 80, "protocol": "tcp"})),
        mapped("port 70000", json!({"hostPort": 70000, "containerPort": 80, "protocol": "tcp"})),
        mapped("SCTP", json!({"hostPort": 9000, "containerPort": 80, "protocol": "sctp"})),
        mapped("a protocol without ports", json!({"hostPort": 9000, "containerPort": 80, "protocol": "icmp"})),
        ports("version 0.3.1", json!({"cniVersion": "0.3.1"})),
        case("portmap", "no result before it", json!({"runtimeConfig": {"portMappings": both()}})),
        ports("iptables: CHECK: entries are gone", json!({"backend": iptables})).spoil(&["iptables -t nat -F CNI-HOSTPORT-DNAT"]),
        ports("iptables: CHECK: all is gone", json!({"backend": iptables})).spoil(&["nft flush ruleset"]),
        ports("nftables: CHECK: all is gone", json!({"backend": nftables})).spoil(&["nft flush ruleset"]),
        ports("iptables: DEL after the namespace", json!({"backend": iptables})).before_del(GONE),
        ports("nftables: DEL that is told nothing", json!({"backend": nftables})).blind_del(),
    ]
}
