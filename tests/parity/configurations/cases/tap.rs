//! `tap`

use serde_json::{Value, json};

use super::{GONE, addresses};
use crate::configurations::case::{Case, case};

fn tap(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("tap", name, config)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        tap("both families", json!({})),
        case("tap", "layer 2", json!({})),
        tap("multiQueue", json!({"multiQueue": true})),
        tap("mtu", json!({"mtu": 1400})),
        tap("mac as a key", json!({"mac": "c2:b0:57:49:47:f1"})),
        tap("mac in runtimeConfig", json!({"mac": "c2:b0:57:49:47:f1", "runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}})),
        tap("macFromIP", json!({"macFromIP": true})),
        tap("owner", json!({"owner": 1000})),
        tap("group", json!({"group": 1000})),
        tap("owner and group, with a mac", json!({"owner": 1000, "group": 1001, "mac": "c2:b0:57:49:47:f1"})),
        tap("selinuxContext", json!({"selinuxContext": "system_u:system_r:container_t:s0"})),
        tap("bridge", json!({"bridge": "inner0"})).prepare(&["c1: ip link add inner0 type bridge", "c1: ip link set inner0 up"]),
        tap("a bridge that is missing", json!({"bridge": "nowhere"})),
        tap("a MAC that is none", json!({"mac": "what"})),
        tap("an interface name that is taken", json!({})).prepare(&["c1: ip link add eth0 type veth peer name other"]),
        tap("CHECK: the mtu was changed", json!({"mtu": 1400})).spoil(&["c1: ip link set eth0 mtu 1300"]),
        tap("CHECK: an address is gone", json!({})).spoil(&["c1: ip addr del 10.1.0.5/24 dev eth0"]),
        tap("DEL after the namespace", json!({})).before_del(GONE),
    ]
}
