//! The tables.

mod bandwidth;
mod bridge;
mod dhcp;
mod dummy;
mod host_device;
mod host_local;
mod ipvlan;
mod loopback;
mod macvlan;
mod portmap;
mod ptp;
mod sbr;
mod static_addresses;
mod tap;
mod tuning;
mod vlan;
mod vrf;

use serde_json::{Value, json};

use crate::configurations::case::Case;

/// Every configuration of every table.
pub(crate) fn all() -> Vec<Case> {
    let tables = [
        bandwidth::cases(),
        bridge::cases(),
        dhcp::cases(),
        dummy::cases(),
        host_device::cases(),
        host_local::cases(),
        ipvlan::cases(),
        loopback::cases(),
        macvlan::cases(),
        portmap::cases(),
        ptp::cases(),
        sbr::cases(),
        static_addresses::cases(),
        tap::cases(),
        tuning::cases(),
        vlan::cases(),
        vrf::cases(),
    ];
    tables.concat()
}

/// One address, of both families if `dual`, by `static`: the same for both sides.
fn addresses(dual: bool) -> Value {
    let mut list = vec![json!({"address": "10.1.0.5/24", "gateway": "10.1.0.1"})];
    if dual {
        list.push(json!({"address": "fd00:1::5/64", "gateway": "fd00:1::1"}));
    }
    json!({"type": "static", "addresses": list})
}

/// Both families by `host-local`.
fn ranges() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})
}

/// A parent: one end of a pair whose other end is up too.
const WIRE: &[&str] = &["ip link add wire0 type veth peer name wire1", "ip link set wire0 up", "ip link set wire1 up"];

/// The same in the container.
const INNER_WIRE: &[&str] = &["c1: ip link add wire0 type veth peer name wire1", "c1: ip link set wire0 up", "c1: ip link set wire1 up"];

/// A neighbour that knows no way back: it answers whom the host masquerades.
const WORLD: &[&str] = &[
    "ip netns add world",
    "ip link add up0 type veth peer name up1 netns world",
    "ip addr add 192.0.2.1/24 dev up0",
    "ip addr add 2001:db8::1/64 dev up0 nodad",
    "ip link set up0 up",
    "ip -n world addr add 192.0.2.9/24 dev up1",
    "ip -n world addr add 2001:db8::9/64 dev up1 nodad",
    "ip -n world link set up1 up",
];

/// The namespace is gone, and so are the links that were in it: the kernel takes them all away at once, in its own time, and
/// with them the one whose other end is looked at.
const GONE: &[&str] = &[
    "ip link add nlgone type veth peer name nlgone netns c1",
    "ip netns del c1",
    // Sleeps: between two looks.
    "for i in $(seq 600); do ip link show nlgone >/dev/null 2>&1 || break; sleep 0.1; done",
];
