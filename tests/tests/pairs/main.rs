//! What joins a container to its host alone, or to nothing: `ptp`, `host-device`, `tap`, `loopback`, as `ip`, packets and
//! programs see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host_device;
mod loopback;
mod ptp;
mod tap;

use netloom_tests::{Cni, Host, plugin_dir};
use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

fn at<'h>(host: &'h Host, container: &str) -> Cni<'h> {
    host.cni(plugin_dir()).at(container, "eth0")
}

/// The addresses of a result without their prefix lengths.
fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}
