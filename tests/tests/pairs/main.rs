//! What joins a container to its host alone, or to nothing: `ptp`, `host-device`, `tap`, `loopback`, as `ip`, packets and
//! programs see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host_device;
mod loopback;
mod ptp;
mod tap;

use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}
