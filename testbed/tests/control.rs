//! The control plane comes up, is stopped and started, and leaves nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Instant;

use netloom_testbed::{ControlPlane, PLACE, owner};

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn api_is_stopped_and_started_on_its_port() {
    let begin = Instant::now();
    let name = format!("test-{}-api", std::process::id());
    let mut plane = ControlPlane::named(&name).unwrap();
    println!("ready after {:?}", begin.elapsed());
    plane.define_networks().unwrap();
    plane.namespace("other").unwrap();
    let token = plane.kubectl(&["create", "token", "-n", "other", "default"], "").unwrap();
    let config = plane.write_kubeconfig("somebody", token.trim()).unwrap();
    let who = plane.kubectl_command(&["auth", "whoami", "-o", "name"]).env("KUBECONFIG", config).output().unwrap();
    assert!(who.status.success(), "the service account signs in: {who:?}");
    let url = plane.url();
    plane.stop_api().unwrap();
    let output = plane.try_kubectl(&["get", "namespaces"], "").unwrap();
    assert!(!output.status.success(), "nobody listens at {url}: {output:?}");
    plane.start_api().unwrap();
    assert_eq!(plane.url(), url);
    plane.kubectl(&["get", "namespace", "other"], "").unwrap();

    plane.pause_api().unwrap();
    let output = plane.try_kubectl(&["get", "namespaces", "--request-timeout=1s"], "").unwrap();
    assert!(!output.status.success(), "nobody answers at {url}: {output:?}");
    plane.resume_api().unwrap();
    plane.kubectl(&["get", "namespace", "other"], "").unwrap();
    plane.kill_api().unwrap();
    plane.start_api().unwrap();
    plane.alive().unwrap();
    plane.kubectl(&["get", "serviceaccount", "-n", "other", "default"], "").unwrap();

    assert_eq!(owner(&name), Some(std::process::id()));
    assert!(ControlPlane::named(&name).is_err(), "there cannot be two of one name");
    drop(plane);
    let place = std::path::Path::new(PLACE).join(&name);
    assert!(!place.exists(), "{} is left", place.display());
}
