//! As it is deployed: a real API server, the manifests of `deploy/`, and the operator's own token.

use std::path::{Path, PathBuf};

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use netloom_operator::{OpenStack, Options, adopt, start};
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::scene::{NODE, Scene, run, until};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

#[test]
#[ignore = "needs Neutron and Kubernetes: cargo xtask test neutron"]
fn with_its_own_token_it_makes_ports_and_nobody_else_writes_kuryrports() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let plane = ControlPlane::start(std::env::temp_dir().join(format!("netloom-openstack-{}", std::process::id()))).unwrap();
    for file in ["definition.yaml", "ippools.yaml", "ipamclaims.yaml", "operator.yaml", "access.yaml", "openstack"] {
        plane.kubectl(&["apply", "-f", deploy(file).to_str().unwrap()], "").unwrap();
    }
    for kind in ["kuryrports.openstack.org", "network-attachment-definitions.k8s.cni.cncf.io", "ippools.netloom.io"] {
        plane.served(kind).unwrap();
    }
    let token = plane.kubectl(&["create", "token", "netloom-operator", "-n", "kube-system"], "").unwrap();
    let kubeconfig = plane.write_kubeconfig("operator", token.trim()).unwrap();
    plane.namespace("a").unwrap();
    for (name, subnet) in &scene.subnets {
        let annotations = json!({"openstack.org/kuryr-config": json!({"subnetId": subnet}).to_string()});
        let metadata = json!({"namespace": "a", "name": name, "annotations": annotations});
        plane
            .apply(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}).to_string())
            .unwrap();
    }
    let metadata = json!({"namespace": "a", "name": "web", "annotations": {"k8s.v1.cni.cncf.io/networks": "red,blue"}});
    let spec = json!({"nodeName": NODE, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    plane.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()).unwrap();
    let vifs = || {
        let found = plane.try_kubectl(&["get", "-n", "a", "kuryrport", "web", "-o", "json"], "").unwrap();
        let object: Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let vifs = object["status"]["vifs"].as_object().cloned().unwrap_or_default();
        vifs.values().map(|vif| vif["vif"]["versioned_object.data"]["active"] == true).collect::<Vec<_>>()
    };
    run(async {
        let connection = cluster::client(Some(&kubeconfig)).await.unwrap();
        let options: Options = scene.options(&scene.neutron.url());
        let operator = start(connection, options);
        until("both ports are bound", || vifs() == [false, false]).await;
        scene.plug_all();
        until("both are ACTIVE", || vifs() == [true, true]).await;
        // The names that users of Kuryr know.
        let table = plane.kubectl(&["get", "-n", "a", "kp"], "").unwrap();
        assert!(table.contains(NODE), "{table}");

        // Who may do everything may not do this.
        plane.kubectl(&["create", "clusterrolebinding", "eve", "--clusterrole=cluster-admin", "--user=eve"], "").unwrap();
        let forged = json!({"apiVersion": "openstack.org/v1", "kind": "KuryrPort", "metadata": {"namespace": "a", "name": "forged"},
            "spec": {"podUid": "u", "podNodeName": "n"}, "status": {"vifs": {}}});
        let refused = plane.try_kubectl(&["--as=eve", "create", "-f", "-"], &forged.to_string()).unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("only the operator of Netloom writes KuryrPorts"), "{said}");
        let agent = plane.try_kubectl(&["--as=system:serviceaccount:kube-system:netloom", "get", "-A", "kp"], "").unwrap();
        assert!(agent.status.success(), "{agent:?}");

        drop(operator);
        take_over(&scene, &plane).await;

        let connection = cluster::client(Some(&kubeconfig)).await.unwrap();
        let _operator = start(connection, scene.options(&scene.neutron.url()));
        plane.kubectl(&["delete", "-n", "a", "pod", "web", "--grace-period=0", "--force"], "").unwrap();
        until("its ports are gone", || scene.ports().is_empty()).await;
        until("its KuryrPort is gone", || plane.kubectl(&["get", "-A", "kp", "-o", "name"], "").unwrap().trim().is_empty()).await;
    });
}

/// The account of `deploy/openstack/adopt.yaml` takes over what has no label, and can change nothing else of KuryrPorts and pods.
async fn take_over(scene: &Scene, plane: &ControlPlane) {
    let label = "netloom.io/ports-of";
    plane.kubectl(&["label", "-n", "a", "kp", "web", &format!("{label}-")], "").unwrap();
    let finalizers = r#"{"metadata": {"finalizers": ["kuryr.openstack.org/pod-finalizer", "example.com/other"]}}"#;
    plane.kubectl(&["patch", "-n", "a", "pod", "web", "--type=merge", "-p", finalizers], "").unwrap();
    let token = plane.kubectl(&["create", "token", "netloom-adopt", "-n", "kube-system"], "").unwrap();
    let kubeconfig = plane.write_kubeconfig("adopt", token.trim()).unwrap();
    let settings = scene.settings(&scene.neutron.url());
    let client = cluster::client(Some(&kubeconfig)).await.unwrap().client();
    let adopted = tokio::task::spawn_blocking(move || {
        adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), false).map_err(|e| e.to_string())
    });
    let adopted = adopted.await.unwrap().unwrap();
    assert_eq!((adopted.ports.len(), adopted.pods.len(), adopted.refused.len()), (2, 1, 0), "{adopted:?}");
    let of = |kind: &str, path: &str| plane.kubectl(&["get", "-n", "a", kind, "web", "-o", &format!("jsonpath={path}")], "").unwrap();
    assert_eq!(of("kp", r"{.metadata.labels.netloom\.io/ports-of}"), scene.project);
    assert_eq!(of("pod", "{.metadata.finalizers}"), r#"["example.com/other"]"#);
    for (kind, change, words) in [
        ("KuryrPort", json!({"spec": {"podNodeName": "another"}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"status": {"vifs": {"eth1": null}}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"metadata": {"labels": {"x": "y"}}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"metadata": {"labels": {(osvif::NODE_LABEL): null}}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"metadata": {"annotations": {"x": "y"}}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"metadata": {"finalizers": []}}), "only the operator of Netloom writes KuryrPorts"),
        ("KuryrPort", json!({"status": {"vifs": {}}, "metadata": {"labels": {label: scene.project}}}), ""),
        ("Pod", json!({"metadata": {"labels": {"app": "stolen"}}}), "only removes Kuryr's finalizer"),
        ("Pod", json!({"metadata": {"finalizers": []}}), "only removes Kuryr's finalizer"),
    ] {
        let kind = match kind {
            "Pod" => ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
            kind => ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openstack.org", "v1", kind), "kuryrports"),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "a", &kind);
        let patched = api.patch("web", &PatchParams::default(), &Patch::Merge(&change)).await.map(drop).map_err(|e| e.to_string());
        // A merge with nothing changes nothing of the VIFs, and the one label may be set.
        assert!(
            if words.is_empty() { patched.is_ok() } else { patched.as_ref().is_err_and(|e| e.contains(words)) },
            "{change}: {patched:?}"
        );
    }
    plane.kubectl(&["patch", "-n", "a", "pod", "web", "--type=merge", "-p", r#"{"metadata": {"finalizers": []}}"#], "").unwrap();
}
