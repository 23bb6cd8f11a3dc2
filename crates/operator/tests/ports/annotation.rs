//! Pods' VIFs in their annotation, beside their KuryrPorts: what agents of before read.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use osvif::{KuryrPort, PodState, VIF_ANNOTATION};
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::scene::{NODE, Scene, run, until};

fn annotation(scene: &Scene, pod: &str) -> Option<String> {
    let pods = scene.store.objects("v1", "Pod").unwrap();
    let of = pods.iter().find(|object| object["metadata"]["name"] == pod).unwrap();
    of["metadata"]["annotations"][VIF_ANNOTATION].as_str().map(str::to_owned)
}

fn write(scene: &Scene, pod: &str, text: Option<&str>) {
    let metadata = json!({"namespace": "default", "name": pod, "annotations": {(VIF_ANNOTATION): text}});
    assert!(scene.store.merge(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap());
}

/// Whether annotation and KuryrPort say the same, of so many VIFs that are ACTIVE or not.
fn is_same(scene: &Scene, pod: &str, active: &[bool]) -> bool {
    let Some(object) = scene.kuryr_port(pod) else { return false };
    let vifs = KuryrPort::read(object).unwrap().status.vifs;
    let said = annotation(scene, pod).and_then(|text| Some(PodState::parse(&text).ok()?.into_vifs()));
    vifs.values().map(|vif| vif.vif.active == Some(true)).collect::<Vec<_>>() == active && said == Some(vifs)
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn the_annotation_says_what_the_kuryr_port_says_whoever_changes_it() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    scene.more = json!({"file": {"vifAnnotation": true, "defaultNetwork": "port"}});
    run(async {
        scene.pod("web", NODE, "blue");
        // Of somebody who wants the port of another pod.
        scene.define("forbidden", &json!({"subnetId": "00000000-0000-4000-8000-000000000000"}));
        scene.pod_with("forged", NODE, &json!({"k8s.v1.cni.cncf.io/networks": "forbidden", (VIF_ANNOTATION): "{}"}));
        scene.killed_at("operator-pod-annotated").await;
        let operator = scene.operator();
        until("both ports are there", || is_same(&scene, "web", &[false, false])).await;
        let text = annotation(&scene, "web").unwrap();
        assert!(text.starts_with(r#"{"versioned_object.data": {"additional_vifs": {"eth1": {"#), "{text}");
        scene.plug_all();
        until("both are ACTIVE", || is_same(&scene, "web", &[true, true])).await;
        for forged in [Some("{}"), None] {
            write(&scene, "web", forged);
            until("it is mended", || is_same(&scene, "web", &[true, true])).await;
        }
        // What a pod without ports says of itself is taken away.
        until("it is told", || !scene.events("forged").is_empty()).await;
        until("the forged one is gone", || annotation(&scene, "forged").is_none()).await;
        scene.delete_pod("web");
        // Another pod of the name gets nothing of it.
        scene.pod("web", NODE, "red");
        until("it has its own", || is_same(&scene, "web", &[false, false])).await;
        drop(operator);
        // Without the setting, the annotation is nobody's.
        scene.more = json!({"file": {"defaultNetwork": "port"}});
        let _operator = scene.operator();
        write(&scene, "web", Some("somebody's"));
        scene.plug_all();
        until("they are ACTIVE", || scene.vifs("web").iter().all(|(_, active)| *active)).await;
        assert_eq!(annotation(&scene, "web").unwrap(), "somebody's");
    });
}

/// As it is deployed: nobody but the operator writes the annotation, by none of the ways that a pod's annotations take; and the operator's token
/// changes nothing else of a pod.
#[test]
#[ignore = "needs Neutron and Kubernetes: cargo xtask test neutron"]
fn only_the_operator_writes_the_annotation() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24")]);
    scene.more = json!({"file": {"vifAnnotation": true}});
    let plane = ControlPlane::start(std::env::temp_dir().join(format!("netloom-annotation-{}", std::process::id()))).unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let apply = |file: &str| drop(plane.kubectl(&["apply", "-f", deploy.join(file).to_str().unwrap()], "").unwrap());
    [
        "definition.yaml",
        "ippools.yaml",
        "ipamclaims.yaml",
        "operator.yaml",
        "access.yaml",
        "openstack/access.yaml",
        "openstack/kuryrports.yaml",
    ]
    .into_iter()
    .for_each(apply);
    for kind in ["kuryrports.openstack.org", "network-attachment-definitions.k8s.cni.cncf.io", "ippools.netloom.io"] {
        plane.served(kind).unwrap();
    }
    let token = plane.kubectl(&["create", "token", "netloom-operator", "-n", "kube-system"], "").unwrap();
    let kubeconfig = plane.write_kubeconfig("operator", token.trim()).unwrap();
    plane.namespace("a").unwrap();
    let config = json!({"subnetId": scene.subnets["red"]}).to_string();
    let metadata = json!({"namespace": "a", "name": "red", "annotations": {"openstack.org/kuryr-config": config}});
    plane
        .apply(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}).to_string())
        .unwrap();
    let pod = |name: &str, annotations: Value, node: Option<&str>| {
        let metadata = json!({"namespace": "a", "name": name, "annotations": annotations});
        let spec = json!({"nodeName": node, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
    };
    plane.apply(&pod("web", json!({"k8s.v1.cni.cncf.io/networks": "red", "own": "stays"}), Some(NODE))).unwrap();
    plane.apply(&pod("waiting", json!({}), None)).unwrap();
    let said = || {
        plane.kubectl(&["get", "-n", "a", "pod", "web", "-o", r"jsonpath={.metadata.annotations.openstack\.org/kuryr-vif}"], "").unwrap()
    };
    let events = || plane.kubectl(&["get", "events", "-n", "a", "-o", "jsonpath={..message}"], "").unwrap();
    run(async {
        let _operator = netloom_operator::start(cluster::client(Some(&kubeconfig)).await.unwrap(), scene.options(&scene.neutron.url()));
        let next = "check the API server, and the operator's rights (deploy/openstack/annotation.yaml)";
        until("what it lacks is told", || events().contains(next)).await;
        apply("openstack/annotation.yaml");
        until("it is written", || PodState::parse(&said()).is_ok_and(|state| state.additional_vifs.contains_key("eth1"))).await;
        scene.plug_all();
        until("with what it becomes", || {
            PodState::parse(&said()).is_ok_and(|state| state.additional_vifs.values().all(|vif| vif.active == Some(true)))
        })
        .await;
    });
    let kept = said();
    plane.kubectl(&["create", "clusterrolebinding", "eve", "--clusterrole=cluster-admin", "--user=eve"], "").unwrap();
    let forged = json!({(VIF_ANNOTATION): kept});
    let patch = json!({"metadata": {"annotations": {(VIF_ANNOTATION): "{}"}}}).to_string();
    let removal = json!({"metadata": {"annotations": {(VIF_ANNOTATION): null}}}).to_string();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"namespace": "a", "name": "waiting", "annotations": forged},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}})
    .to_string();
    let new = pod("new", forged.clone(), None);
    let denied = |args: &[&str], input: &str, words: &str| {
        let refused = plane.try_kubectl(args, input).unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{args:?}: {said}");
    };
    let words = "only the operator of Netloom writes the annotation openstack.org/kuryr-vif";
    let patched = ["--as=eve", "patch", "-n", "a", "pod", "web", "--type=merge", "-p"];
    denied(&["--as=eve", "create", "-f", "-"], &new, words);
    for change in [patch.as_str(), removal.as_str()] {
        denied(&[&patched[..], &[change]].concat(), "", words);
        denied(&[&patched[..], &[change, "--subresource=status"]].concat(), "", words);
    }
    for path in ["/api/v1/namespaces/a/pods/waiting/binding", "/api/v1/namespaces/a/bindings"] {
        denied(&["--as=eve", "create", "--raw", path, "-f", "-"], &binding, words);
    }
    // All else goes on.
    plane.kubectl(&[&patched[..], &[r#"{"metadata": {"annotations": {"own": "changed"}}}"#]].concat(), "").unwrap();
    let words = "the operator changes nothing of a pod but its annotation openstack.org/kuryr-vif";
    let changes = [
        json!({"metadata": {"labels": {"app": "stolen"}}}),
        json!({"metadata": {"annotations": {"own": null}}}),
        json!({"metadata": {"annotations": {"other": "x"}}}),
        json!({"metadata": {"finalizers": ["a.b/c"]}}),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
    ];
    run(async {
        let client = cluster::client(Some(&kubeconfig)).await.unwrap().client();
        let pods: Api<Pod> = Api::namespaced(client, "a");
        for change in changes {
            let refused = pods.patch("web", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap_err().to_string();
            assert!(refused.contains(words), "{change}: {refused}");
        }
    });
    assert_eq!(said(), kept);
}
