//! `dhcp`, asked by itself for the interface of a container: the wire's other end is the machine's, where dnsmasq listens.

use serde_json::{Value, json};

use super::GONE;
use crate::configurations::case::{Case, case};

fn dhcp(name: &'static str, keys: Value) -> Case {
    let mut ipam = json!({"type": "dhcp"});
    ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let wire = &[
        "ip link add srv0 type veth peer name eth0 netns c1 address 02:00:00:00:09:05",
        "ip addr add 10.9.0.1/24 dev srv0",
        "ip addr add fd00:9::1/64 dev srv0 nodad",
        "ip link set srv0 up",
        "c1: ip link set eth0 up",
    ];
    case("dhcp", name, json!({"ipam": ipam})).prepare(wire).daemon(Some("/run/cni/dhcp.sock"))
}

/// What the server remembers of its client.
const KNOWS: &str = "grep -q pod1 /var/lib/dnsmasq.leases";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        dhcp("no key", json!({})),
        dhcp("priority", json!({"priority": 50})),
        dhcp("daemonSocketPath", json!({"daemonSocketPath": "/run/cni/other.sock"})).daemon(Some("/run/cni/other.sock")),
        dhcp("provide: a name", json!({"provide": [{"option": "host-name", "value": "pod1"}]})).probe(&[KNOWS]),
        dhcp("provide: a name of CNI_ARGS", json!({"provide": [{"option": "12", "fromArg": "K8S_POD_NAME"}]}))
            .args("IgnoreUnknown=1;K8S_POD_NAME=pod1")
            .probe(&[KNOWS]),
        dhcp("provide: a client identifier", json!({"provide": [{"option": "dhcp-client-identifier", "value": "pod1"}]})),
        dhcp("request: one more", json!({"request": [{"option": "6"}]})),
        dhcp("request: without the default", json!({"request": [{"skipDefault": true}, {"option": "subnet-mask"}]})),
        dhcp("ipv6", json!({"ipv6": true})),
        dhcp("probe", json!({"probe": 0})),
        dhcp("an option that nobody knows", json!({"provide": [{"option": "what", "value": "x"}]})),
        dhcp("an interface that is missing", json!({})).prepare(&["c1: ip link del eth0"]),
        dhcp("no daemon", json!({})).daemon(None),
        dhcp("DEL that is told nothing", json!({})).blind_del(),
        dhcp("DEL after the namespace", json!({})).before_del(GONE),
    ]
}
