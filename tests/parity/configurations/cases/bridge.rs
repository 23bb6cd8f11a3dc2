//! `bridge`

use serde_json::{Value, json};

use super::{GONE, WORLD, addresses, ranges};
use crate::configurations::case::{Case, case};

fn with(keys: Value, ipam: Value) -> Value {
    let mut config = json!({"bridge": "br0"});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    if !ipam.is_null() {
        config["ipam"] = ipam;
    }
    config
}

fn bridge(name: &'static str, keys: Value) -> Case {
    case("bridge", name, with(keys, ranges()))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = vec![
        case("bridge", "no key but addresses", json!({"ipam": ranges()})),
        bridge("a bridge by name", json!({})),
        case("bridge", "one family", with(json!({"isGateway": true}), addresses(false))),
        bridge("isGateway", json!({"isGateway": true})).probe(&["c1: ping -c1 -w20 -n 10.1.0.1", "c1: ping -c1 -w60 -n fd00:1::1"]),
        bridge("isDefaultGateway", json!({"isDefaultGateway": true})).probe(&["c1: ping -c1 -w20 -n fd00:1::1"]),
        bridge("ipMasq", json!({"isDefaultGateway": true, "ipMasq": true}))
            .prepare(WORLD)
            .probe(&["c1: ping -c1 -w20 -n 192.0.2.9", "c1: ping -c1 -w60 -n 2001:db8::9"]),
        bridge("ipMasq by nftables", json!({"isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"}))
            .prepare(WORLD)
            .probe(&["c1: ping -c1 -w20 -n 192.0.2.9", "c1: ping -c1 -w60 -n 2001:db8::9"]),
        bridge("without ipMasq", json!({"isDefaultGateway": true})).prepare(WORLD).probe(&["c1: ping -c1 -w1 -n 192.0.2.9"]),
        bridge("mtu", json!({"mtu": 1400})),
        bridge("hairpinMode", json!({"hairpinMode": true})),
        bridge("promiscMode", json!({"promiscMode": true})),
        bridge("macspoofchk", json!({"isGateway": true, "macspoofchk": true})).probe(&[
            "c1: ping -c1 -w20 -n 10.1.0.1",
            "c1: ping -c1 -w60 -n fd00:1::1",
            "c1: ip link set eth0 address 02:00:00:00:00:99",
            "c1: ping -c1 -w2 -n 10.1.0.1",
            "c1: ping -c1 -w2 -n fd00:1::1",
        ]),
        bridge("macspoofchk with a mac", json!({"isGateway": true, "macspoofchk": true, "runtimeConfig": {"mac": "c2:b0:57:49:47:f5"}}))
            .probe(&["c1: ping -c1 -w20 -n 10.1.0.1"]),
        bridge("portIsolation", json!({"portIsolation": true})),
        bridge("enabledad", json!({"enabledad": true, "isGateway": true})),
        case("bridge", "disableContainerInterface", with(json!({"disableContainerInterface": true}), Value::Null)),
        case("bridge", "layer 2", with(json!({}), Value::Null)),
        bridge("mac in runtimeConfig", json!({"runtimeConfig": {"mac": "c2:b0:57:49:47:f1"}})),
        bridge("mac in args.cni", json!({"args": {"cni": {"mac": "c2:b0:57:49:47:f2"}}})),
        bridge("MAC in CNI_ARGS", json!({})).args("IgnoreUnknown=1;MAC=c2:b0:57:49:47:f3"),
        bridge("mac as a key", json!({"mac": "c2:b0:57:49:47:f4"})),
        bridge("macFromIP", json!({"macFromIP": true})),
        bridge("dns", json!({"dns": {"nameservers": ["10.1.0.1"], "search": ["a.example"], "options": ["ndots:5"]}})),
        bridge("a bridge that exists", json!({"isGateway": true})).prepare(&["ip link add br0 type bridge", "ip link set br0 up"]),
        bridge("a bridge that is down", json!({})).prepare(&["ip link add br0 type bridge"]),
        bridge("forceAddress", json!({"isGateway": true, "forceAddress": true})).prepare(&[
            "ip link add br0 type bridge",
            "ip link set br0 up",
            "ip addr add 10.9.0.1/24 dev br0",
        ]),
    ];
    all.extend(refused());
    all.extend(mishaps());
    all.extend(versions());
    all
}

fn refused() -> Vec<Case> {
    vec![
        bridge("another address on the bridge", json!({"isGateway": true})).prepare(&[
            "ip link add br0 type bridge",
            "ip link set br0 up",
            "ip addr add 10.9.0.1/24 dev br0",
        ]),
        bridge("a bridge that is none", json!({})).prepare(&["ip link add br0 type veth peer name other"]),
        bridge("hairpin and promisc", json!({"hairpinMode": true, "promiscMode": true})),
        bridge("a MAC that is none", json!({"mac": "what"})),
        bridge("disableContainerInterface with addresses", json!({"disableContainerInterface": true})),
        bridge("an interface name that is taken", json!({})).prepare(&["c1: ip link add eth0 type veth peer name other"]),
        bridge("an mtu that is too small", json!({"mtu": 50})),
        bridge("an mtu that is negative", json!({"mtu": -5})),
        bridge("a number for a text", json!({"bridge": 5})),
        bridge("a backend that nobody has", json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "magic"})),
        bridge("an unknown IPAM plugin", json!({"ipam": {"type": "no-such-plugin"}})).prepare(&["true"]),
        bridge("a version that nobody knows", json!({"cniVersion": "9.9.9"})),
        case("bridge", "IPAM without addresses", with(json!({}), json!({"type": "static"}))),
    ]
}

/// What happens to an attachment, and whether CHECK sees it and DEL copes.
fn mishaps() -> Vec<Case> {
    let gateway = || json!({"isDefaultGateway": true});
    vec![
        bridge("CHECK: the MAC was changed", gateway()).spoil(&["c1: ip link set eth0 address 02:00:00:00:00:01"]),
        bridge("CHECK: an address is gone", gateway()).spoil(&["c1: ip addr del 10.1.0.2/24 dev eth0"]),
        bridge("CHECK: the default route is gone", gateway()).spoil(&["c1: ip -4 route del default"]),
        bridge("CHECK: the container's end is gone", gateway()).spoil(&["c1: ip link del eth0"]),
        bridge("CHECK: off the bridge", gateway()).spoil(&["ip link set '<peer of eth0>' nomaster"]),
        bridge("CHECK: hairpin was set off", json!({"hairpinMode": true})).spoil(&["bridge link set dev '<peer of eth0>' hairpin off"]),
        bridge("CHECK: the mtu was changed", json!({"mtu": 1400})).spoil(&["c1: ip link set eth0 mtu 1300"]),
        bridge("CHECK: the interface was set down", gateway()).spoil(&["c1: ip link set eth0 down"]),
        bridge("DEL after the namespace", gateway()).before_del(GONE),
        bridge("DEL that is told nothing", gateway()).blind_del(),
        bridge("DEL after the bridge", gateway()).before_del(&["ip link del br0"]),
        bridge("DEL of an interface that was renamed", gateway())
            .before_del(&["c1: ip link set eth0 down", "c1: ip link set eth0 name other"]),
    ]
}

fn versions() -> Vec<Case> {
    ["0.2.0", "0.3.1", "0.4.0", "1.0.0"]
        .map(|version| {
            let name = match version {
                "0.2.0" => "version 0.2.0",
                "0.3.1" => "version 0.3.1",
                "0.4.0" => "version 0.4.0",
                _ => "version 1.0.0",
            };
            bridge(name, json!({"cniVersion": version, "isDefaultGateway": true}))
        })
        .to_vec()
}
