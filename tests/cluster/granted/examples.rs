//! The examples of addresses for a cluster, as they stand in `examples/cluster`.

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use crate::granted::{Cluster, KINDS, lab, net1};

/// The files, and what has to be there before.
const EXAMPLES: [&str; 6] = ["network", "teams", "claim", "stateful-set", "whereabouts", "cilium-node"];
const NEEDED: [&str; 2] = ["ipamclaims.yaml", "cilium-crd/ciliumnodes.yaml"];
const CLAIMS: &str = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/default/ipamclaims";

fn file(of: &str) -> String {
    format!("{}/../{of}", env!("CARGO_MANIFEST_DIR"))
}

/// The objects of an example.
fn objects(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(&format!("examples/cluster/{name}.yaml"))).unwrap();
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// Attaches a pod as a kubelet does, again and again; the addresses of its second interface.
fn attach(node: &Node, pod: &Pod<'_>) -> Vec<String> {
    node.until("it is attached", || pod.call("ADD").code == 0);
    net1(node, pod)
}

#[test]
fn they_do_what_they_say() {
    let cluster = Cluster::new("examples");
    let kubectl = |args: &[&str]| cluster.api.plane().kubectl(args, "").unwrap();
    for of in NEEDED {
        kubectl(&["apply", "-f", &file(&format!("deploy/{of}"))]);
    }
    kubectl(&["wait", "--for=condition=Established", "--timeout=120s", "crd/ipamclaims.k8s.cni.cncf.io", "crd/ciliumnodes.cilium.io"]);
    for kind in ["ipamclaims.k8s.cni.cncf.io", "ciliumnodes.cilium.io"] {
        cluster.api.plane().served(kind).unwrap();
    }
    cluster.pool("lab", &lab());
    let node = cluster.node("examples-a");
    for name in EXAMPLES {
        kubectl(&["apply", "--dry-run=server", "-f", &file(&format!("examples/cluster/{name}.yaml"))]);
        // No scheduler is here: pods are put on the node below.
        for object in objects(name).iter().filter(|object| object["kind"] != "Pod") {
            cluster.api.plane().apply(&object.to_string()).unwrap();
        }
    }

    let of_red = node.pod_of(objects("teams").remove(3));
    let red = attach(&node, &of_red);
    assert!(red.len() == 1 && red[0].starts_with("10.40.16."), "{red:?}");

    let db = node.pod_of(objects("claim").remove(1));
    assert_eq!(attach(&node, &db), ["10.30.0.10/20", "fd00:30::10/112"]);

    let template = objects("stateful-set")[0]["spec"]["template"].clone();
    let set = cluster.api.ask("GET", "/apis/apps/v1/namespaces/default/statefulsets/web", &Value::Null).1;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!("web-0");
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": set["metadata"]["uid"], "controller": true}]);
    let web = node.pod_of(pod);
    let kept = attach(&node, &web);
    let claim = cluster.api.ask("GET", &format!("{CLAIMS}/web-0-data-net1"), &Value::Null).1;
    assert_eq!((kept.len(), &claim["status"]["ips"]), (2, &json!(kept)), "{claim}");

    let backup = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        "metadata": {"name": "backup", "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/networks": "backup"}}}));
    assert_eq!(attach(&node, &backup), ["192.168.2.20/24", "fd00:2::1/64"]);
    let pools = cluster.api.ask("GET", &format!("{KINDS}/ippools"), &Value::Null).1;
    let of_ranges =
        pools["items"].as_array().unwrap().iter().filter(|pool| pool["metadata"]["labels"]["netloom.io/definitions"] == "whereabouts");
    assert_eq!(of_ranges.count(), 2, "{pools}");
    [of_red, db, web, backup].iter().for_each(|pod| drop(pod.must("DEL")));
}
