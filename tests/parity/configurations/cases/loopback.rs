//! `loopback`

use serde_json::json;

use super::{GONE, addresses};
use crate::configurations::case::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let down = &["c1: ip link set lo down"];
    vec![
        case("loopback", "alone", json!({})).ifname("lo").prepare(down),
        case("loopback", "under another name", json!({})).prepare(down),
        case("loopback", "behind a bridge", json!({})).after("bridge", json!({"bridge": "br0", "ipam": addresses(false)})),
        case("loopback", "version 0.2.0", json!({"cniVersion": "0.2.0"})).ifname("lo"),
        case("loopback", "version 0.4.0", json!({"cniVersion": "0.4.0"})).ifname("lo"),
        case("loopback", "an address that is no loopback address", json!({})).ifname("lo").prepare(&["c1: ip addr add 10.3.0.1/32 dev lo"]),
        case("loopback", "CHECK: it was set down", json!({})).ifname("lo").spoil(down),
        case("loopback", "DEL after the namespace", json!({})).ifname("lo").before_del(GONE),
    ]
}
