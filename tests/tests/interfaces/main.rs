//! What holds for every interface plugin, and `macvlan`: parents, hardware addresses, router advertisements, MTU, STATUS.
//! The kinds that this machine's kernel may lack are tested in the guest: `tests/kernel/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod advertisements;
mod check;
mod hardware_address;
mod macvlan;
mod status;

use netloom_tests::Host;
use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Addresses of both families.
fn dual() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}], [{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}]],
        "routes": [{"dst": "10.99.0.0/16"}]})
}

/// A machine with a wire, `wire0`, whose other end is `wire1` in the container `world` and has 10.5.0.1 and fd00:5::1; and
/// two containers.
fn wired() -> Host {
    let host = Host::new();
    for container in ["world", "c1", "c2"] {
        host.container(container);
    }
    host.sh("", "ip link add wire0 type veth peer name wire1 netns world");
    host.sh("", "ip link set wire0 up");
    for line in ["ip link set wire1 up", "ip addr add 10.5.0.1/24 dev wire1", "ip addr add fd00:5::1/64 dev wire1 nodad"] {
        host.sh("world", line);
    }
    host
}
