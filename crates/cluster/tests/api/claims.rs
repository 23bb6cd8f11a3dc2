//! Devices of resource claims, from the API server's own objects. Scheduler and driver are played by kubectl.

use std::path::Path;

use netloom_cluster::{Cluster, DeviceError, ExtendedRequest, Pod, PodClaim};
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::{create, plane, pod, run, start, until};

/// A directory without kubelet: only claims give devices.
const NOWHERE: &str = "/nonexistent";

fn slice(name: &str, node: Option<&str>, pool: (&str, i64, i64), devices: &Value) -> Value {
    let mut spec = json!({
        "driver": "nic.example.com", "devices": devices,
        "pool": {"name": pool.0, "generation": pool.1, "resourceSliceCount": pool.2},
    });
    match node {
        Some(node) => spec["nodeName"] = node.into(),
        None => spec["allNodes"] = true.into(),
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
}

fn device(name: &str, id: &str) -> Value {
    let attributes = json!({
        "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": "intel.com/sriov"}, "nic.example.com/n": {"int": 1},
    });
    json!({"name": name, "attributes": attributes})
}

fn claim(plane: &ControlPlane, name: &str, results: &[(&str, &str, &str)]) {
    let request = |n: &str| json!({"name": n, "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 8}});
    let spec = json!({"devices": {"requests": [request("first"), request("second")]}});
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    create(plane, &object.to_string());
    if results.is_empty() {
        return;
    }
    let results: Vec<Value> = results
        .iter()
        .map(|(request, pool, device)| json!({"request": request, "driver": "nic.example.com", "pool": pool, "device": device}))
        .collect();
    patch(plane, "resourceclaim", name, &json!({"status": {"allocation": {"devices": {"results": results}}}}));
}

fn patch(plane: &ControlPlane, kind: &str, name: &str, change: &Value) {
    plane.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &change.to_string()], "").unwrap();
}

/// A pod that names `claims`, the first one made from a template, the others by their own names.
async fn claiming(plane: &ControlPlane, cluster: &Cluster, name: &str, claims: &[&str]) -> Pod {
    let mut object: Value = serde_json::from_str(&pod(name, "n1", "a")).unwrap();
    let named = claims.iter().enumerate().map(|(i, c)| {
        let source = if i == 0 { "resourceClaimTemplateName" } else { "resourceClaimName" };
        json!({"name": format!("c{i}"), source: c})
    });
    object["spec"]["resourceClaims"] = named.collect();
    create(plane, &object.to_string());
    if let Some(first) = claims.first() {
        patch(plane, "pod", name, &json!({"status": {"resourceClaimStatuses": [{"name": "c0", "resourceClaimName": first}]}}));
    }
    until("the pod with its claims", || cluster.pod("default", name).is_some_and(|p| p.claims.len() == claims.len())).await;
    Pod::clone(&cluster.pod("default", name).unwrap())
}

fn ids(found: &[(String, String)]) -> Vec<&str> {
    assert!(found.iter().all(|(resource, _)| resource == "intel.com/sriov"), "{found:?}");
    found.iter().map(|(_, id)| id.as_str()).collect()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn devices_of_claims_come_in_the_order_of_their_allocation() {
    let plane = plane("claims");
    let gpu = json!({"name": "gpu"});
    let (here, there) = (json!([device("b", "0000:00:02.2"), device("a", "0000:00:02.1"), gpu]), json!([device("a", "of-another-node")]));
    let net = json!([device("x", "fabric-x")]);
    for object in [
        slice("n1", Some("n1"), ("n1", 2, 1), &here),
        slice("n1-before", Some("n1"), ("n1", 1, 1), &json!([device("a", "of-an-older-generation")])),
        slice("n2", Some("n2"), ("n2", 1, 1), &there),
        slice("fabric", None, ("fabric", 1, 1), &net),
    ] {
        create(&plane, &object.to_string());
    }
    run(async {
        let cluster = start(&plane).await;
        let devices = async |pod: &Pod| cluster.devices(pod, Path::new(NOWHERE)).await;
        claim(&plane, "made", &[("first", "n1", "b"), ("first", "n1", "gpu"), ("second", "n1", "a")]);
        claim(&plane, "own", &[("first", "fabric", "x")]);
        let both = claiming(&plane, &cluster, "both", &["made", "own"]).await;
        assert_eq!(ids(&devices(&both).await.unwrap()), ["0000:00:02.2", "0000:00:02.1", "fabric-x"]);

        claim(&plane, "waits", &[]);
        let waits = claiming(&plane, &cluster, "waits", &["waits"]).await;
        assert!(matches!(devices(&waits).await, Err(DeviceError::NotAllocated { claim }) if claim == "default/waits"));
        let lost = claiming(&plane, &cluster, "lost", &["lost"]).await;
        assert!(matches!(devices(&lost).await, Err(DeviceError::NoClaim { claim }) if claim == "default/lost"));
        claim(&plane, "stale", &[("first", "n1", "unplugged")]);
        let stale = claiming(&plane, &cluster, "stale", &["stale"]).await;
        assert!(matches!(devices(&stale).await, Err(DeviceError::NoDevice { device, .. }) if device == "unplugged"));

        // An extended resource. This server's feature gate is off and it drops the status, so the pod's claim is made here.
        let extended = |resource: &str, request: &str| {
            let request = ExtendedRequest { resource: resource.to_owned(), request: request.to_owned() };
            let claim = PodClaim { claim: "made".to_owned(), extended: Some(vec![request]) };
            Pod { claims: vec![claim], ..both.clone() }
        };
        assert_eq!(ids(&devices(&extended("intel.com/sriov", "second")).await.unwrap()), ["0000:00:02.1"]);
        let e = devices(&extended("other.com/nic", "second")).await.unwrap_err();
        assert!(matches!(&e, DeviceError::OtherResource { .. }) && e.to_string().contains("k8s.cni.cncf.io/resourceName"), "{e}");
        assert!(matches!(devices(&extended("intel.com/sriov", "third")).await, Err(DeviceError::NoRequest { .. })));
    });
}
