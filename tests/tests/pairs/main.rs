//! What joins a container to its host alone, or to nothing: `ptp`, `host-device`, `tap`, `loopback`, as `ip`, packets and
//! programs see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host_device;
mod loopback;
mod masquerade;
mod ptp;
mod tap;

use netloom_tests::{Host, Traces, at};
use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// DEL is told less and less, and twice: nothing of it stays all the same.
fn del_with_little_and_del_again(host: &Host, before: &Traces, config: &Value) {
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
