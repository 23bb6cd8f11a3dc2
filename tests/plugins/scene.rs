//! Machines and configurations that the tests of several plugins share.

use netloom_tests::{Host, Traces, at};
use serde_json::{Value, json};

pub(crate) fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// DEL is told less and less, and twice: nothing of it stays all the same.
pub(crate) fn del_with_little_and_del_again(host: &Host, before: &Traces, config: &Value) {
    for netns in ["", "/run/netns/gone", "/run/netns/c1"] {
        for told in [true, false] {
            let result = at(host, "c1").add(config);
            let prev = if told { result } else { Value::Null };
            for again in ["", "again "] {
                at(host, "c1").set("CNI_NETNS", netns).del(config, &prev);
                host.expect_traces(before, &format!("DEL {again}with namespace {netns:?}, result told: {told}"));
            }
        }
    }
}

/// Addresses of both families.
pub(crate) fn dual() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}], [{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}]],
        "routes": [{"dst": "10.99.0.0/16"}]})
}

/// A machine with a wire, `wire0`, whose other end is `wire1` in the container `world` and has 10.5.0.1 and fd00:5::1; and
/// two containers.
pub(crate) fn wired() -> Host {
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
