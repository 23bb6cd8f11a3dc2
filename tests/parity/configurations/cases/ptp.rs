//! `ptp`

use serde_json::{Value, json};

use super::{GONE, WORLD, addresses, ranges};
use crate::configurations::case::{Case, case};

fn ptp(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"ipam": ranges()});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("ptp", name, config)
}

pub(crate) fn cases() -> Vec<Case> {
    let world: &[&str] = &["c1: ping -c1 -w20 -n 192.0.2.9", "c1: ping -c1 -w60 -n 2001:db8::9"];
    let routed = || {
        let mut ipam = ranges();
        ipam["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
        ipam
    };
    vec![
        ptp("both families", json!({})).probe(&[
            "c1: ping -c1 -w20 -n 10.1.0.1",
            "c1: ping -c1 -w20 -n fd00:1::1",
            "ping -c1 -w20 -n 10.1.0.2",
        ]),
        ptp("one family", json!({"ipam": addresses(false)})),
        ptp("routes", json!({"ipam": routed()})),
        ptp("ipMasq", json!({"ipMasq": true, "ipam": routed()})).prepare(WORLD).probe(world),
        ptp("ipMasq by nftables", json!({"ipMasq": true, "ipMasqBackend": "nftables", "ipam": routed()})).prepare(WORLD).probe(world),
        ptp("without ipMasq", json!({"ipam": routed()})).prepare(WORLD).probe(&["c1: ping -c1 -w1 -n 192.0.2.9"]),
        ptp("mtu", json!({"mtu": 1400})),
        ptp("mac as a key", json!({"mac": "c2:b0:57:49:47:f1"})),
        ptp("mac in runtimeConfig", json!({"runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}})),
        ptp("macFromIP", json!({"macFromIP": true})),
        ptp("dns", json!({"dns": {"nameservers": ["10.1.0.1"]}})),
        ptp("version 0.2.0", json!({"cniVersion": "0.2.0"})),
        ptp("version 0.4.0", json!({"cniVersion": "0.4.0"})),
        case("ptp", "no IPAM", json!({})),
        ptp("an address without a gateway", json!({"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}})),
        ptp("an interface name that is taken", json!({})).prepare(&["c1: ip link add eth0 type veth peer name other"]),
        ptp("an mtu that is too small", json!({"mtu": 50})),
        ptp("CHECK: an address is gone", json!({})).spoil(&["c1: ip addr del 10.1.0.2/24 dev eth0"]),
        ptp("CHECK: the route to the network is gone", json!({})).spoil(&["c1: ip route del 10.1.0.0/24"]),
        ptp("CHECK: the host's route is gone", json!({})).spoil(&["ip route del 10.1.0.2"]),
        ptp("CHECK: the MAC was changed", json!({})).spoil(&["c1: ip link set eth0 address 02:00:00:00:00:01"]),
        ptp("DEL after the namespace", json!({})).before_del(GONE),
        ptp("DEL that is told nothing", json!({})).blind_del(),
    ]
}
