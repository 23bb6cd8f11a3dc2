//! `dummy`: in the guest.

use serde_json::{Value, json};

use super::addresses;
use crate::configurations::case::{Case, case};

fn dummy(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("dummy", name, config).in_guest()
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        dummy("both families", json!({})),
        dummy("mac as a key", json!({"mac": "c2:b0:57:49:47:f1"})),
        dummy("mac in runtimeConfig", json!({"runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}})),
        dummy("macFromIP", json!({"macFromIP": true})),
        dummy("dns", json!({"dns": {"nameservers": ["10.1.0.1"]}})),
        case("dummy", "no IPAM", json!({})).in_guest(),
        dummy("CHECK: an address is gone", json!({})).spoil(&["c1: ip addr del 10.1.0.5/24 dev eth0"]),
    ]
}
