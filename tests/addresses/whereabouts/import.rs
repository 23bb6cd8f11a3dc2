//! What whereabouts has handed out in a cluster, brought over by command; judged by what the API server has then.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netloom_tests::netloom;
use serde_json::{Value, json};
use testbed::ControlPlane;

const RANGE: &str = "10.9.0.0/24";

fn plane() -> ControlPlane {
    let plane = ControlPlane::named(&format!("test-{}-import", std::process::id())).unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy");
    plane.kubectl(&["apply", "-f", deploy.to_str().unwrap()], "").unwrap();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = json!([{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]);
    for (plural, kind) in [("ippools", "IPPool"), ("overlappingrangeipreservations", "OverlappingRangeIPReservation")] {
        let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
        let theirs = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.whereabouts.cni.cncf.io")},
            "spec": {"group": "whereabouts.cni.cncf.io", "scope": "Namespaced", "names": names, "versions": versions}});
        plane.apply(&theirs.to_string()).unwrap();
    }
    for kind in [
        "ippools.whereabouts.cni.cncf.io",
        "overlappingrangeipreservations.whereabouts.cni.cncf.io",
        "ippools.netloom.io",
        "ipledgershards.netloom.io",
        "network-attachment-definitions.k8s.cni.cncf.io",
    ] {
        plane.kubectl(&["wait", "--for=condition=Established", "--timeout=120s", &format!("crd/{kind}")], "").unwrap();
        plane.served(kind).unwrap();
    }
    plane
}

/// A living pod with one address, and one that is gone.
fn fill(plane: &ControlPlane) {
    plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}).to_string()).unwrap();
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "whereabouts", "range": RANGE}}).to_string();
    plane
        .apply(
            &json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "net", "namespace": "default"}, "spec": {"config": config}})
            .to_string(),
        )
        .unwrap();
    let status = json!([{"name": "default/net", "interface": "net1", "ips": ["10.9.0.5"]}]).to_string();
    plane
        .apply(
            &json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "lives", "namespace": "kube-system", "annotations": {"k8s.v1.cni.cncf.io/network-status": status}},
            "spec": {"nodeName": "n1", "serviceAccountName": "netloom", "containers": [{"name": "c", "image": "i"}]}})
            .to_string(),
        )
        .unwrap();
    let allocation = |pod: &str| json!({"id": format!("sandbox-of-{pod}"), "podref": format!("kube-system/{pod}"), "ifname": "net1"});
    let allocations = json!({"5": allocation("lives"), "6": allocation("gone")});
    plane
        .apply(
            &json!({"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
            "metadata": {"name": "10.9.0.0-24", "namespace": "kube-system"}, "spec": {"range": RANGE, "allocations": allocations}})
            .to_string(),
        )
        .unwrap();
    for (name, pod) in [("10.9.0.5", "lives"), ("10.9.0.7", "gone")] {
        let reservation = json!({"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
            "metadata": {"name": name, "namespace": "kube-system"}, "spec": {"podref": format!("kube-system/{pod}"), "ifname": "net1"}});
        plane.apply(&reservation.to_string()).unwrap();
    }
}

fn import(config: &PathBuf, more: &[&str]) -> Output {
    Command::new(netloom()).args(["ipam", "import", "whereabouts", "--kubeconfig"]).arg(config).args(more).output().unwrap()
}

fn objects(plane: &ControlPlane, kind: &str) -> Vec<Value> {
    let text = plane.kubectl(&["get", kind, "-o", "json"], "").unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn living_pods_keep_their_addresses() {
    let plane = plane();
    fill(&plane);
    let config = plane.write_kubeconfig("admin", "admin").unwrap();
    let dry = import(&config, &["--dry-run"]);
    let said = String::from_utf8_lossy(&dry.stdout);
    assert!(dry.status.success(), "{dry:?}");
    for told in [
        "10.9.0.5",
        "kube-system/lives",
        "whereabouts-10.9.0.0-24",
        "n1",
        "10.9.0.6",
        "kube-system/gone",
        "its pod is gone",
        "10.9.0.7",
        "nothing was changed",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(objects(&plane, "ippools.netloom.io").is_empty() && objects(&plane, "ipledgershards.netloom.io").is_empty());
    for new in [1, 0] {
        let done = import(&config, &[]);
        let told = format!("1 kept by their pods, 2 stale and left out, 0 to be checked; {new} added to the ledger");
        assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains(&told), "{done:?}");
    }
    let pools = objects(&plane, "ippools.netloom.io");
    assert_eq!((pools.len(), &pools[0]["metadata"]["name"]), (1, &json!("whereabouts-10.9.0.0-24")));
    let shards = objects(&plane, "ipledgershards.netloom.io");
    let cells: Vec<&Value> =
        shards.iter().flat_map(|shard| shard["spec"]["cells"].as_object().into_iter().flat_map(|cells| cells.values())).collect();
    assert_eq!(cells.len(), 1, "{shards:?}");
    assert_eq!((&cells[0]["state"], &cells[0]["ips"]["0"]["node"]), (&json!("Shared"), &json!("n1")), "{cells:?}");
    let uid = plane.kubectl(&["get", "node", "n1", "-o", "jsonpath={.metadata.uid}"], "").unwrap();
    assert_eq!(cells[0]["ips"]["0"]["nodeUID"], uid);
    let owner = json!({"pod": "kube-system/lives", "attachment": {"containerID": "sandbox-of-lives", "ifname": "net1"}});
    assert_eq!(cells[0]["ips"]["0"]["owner"], owner);
    let data = import(&config, &["--dry-run", "-o", "json"]);
    let data: Value = serde_json::from_slice(&data.stdout).unwrap();
    assert_eq!((&data[0]["what"], &data[1]["what"]), (&json!("kept"), &json!("stale")), "{data}");
    // The operator makes such pools, and sees the definitions.
    for (verb, what) in
        [("create", "ippools.netloom.io"), ("delete", "ippools.netloom.io"), ("list", "network-attachment-definitions.k8s.cni.cncf.io")]
    {
        let args = ["auth", "can-i", verb, what, "--all-namespaces", "--as=system:serviceaccount:kube-system:netloom-operator"];
        let may = plane.try_kubectl(&args, "").unwrap();
        assert_eq!(String::from_utf8_lossy(&may.stdout).trim(), "yes", "{verb} {what}: {may:?}");
    }
}

#[test]
fn nothing_is_guessed_where_nothing_can_be_read() {
    let dir = std::env::temp_dir().join(format!("nl-import-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let config = dir.join("nobody.yaml");
    let nobody = json!({"apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [{"name": "t", "user": {"token": "x"}}],
        "clusters": [{"name": "t", "cluster": {"server": "https://127.0.0.1:1"}}], "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}]});
    std::fs::write(&config, nobody.to_string()).unwrap();
    let refused = import(&config, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("cannot list whereabouts' IPPools"), "{refused:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}
