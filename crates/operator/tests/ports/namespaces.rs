//! Each namespace has its own network: made when its first pod needs it, removed with the namespace.

use kube::Api;
use kube::api::DeleteParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use netloom_operator::{OpenStack, adopt};
use objects::Store;
use serde_json::{Value, json};

use crate::scene::{KURYR_PORT, NODE, Scene, run, until};

/// A project with a router and a pool of ranges.
fn scene() -> Scene {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let project = scene.project.clone();
    let id = |answer: Value, of: &str| answer[of]["id"].as_str().unwrap().to_owned();
    let pool = json!({"name": "pods", "project_id": project, "prefixes": ["10.96.0.0/16"], "default_prefixlen": 26});
    let pool = id(scene.neutron.ask("POST", "subnetpools", &json!({"subnetpool": pool})).unwrap(), "subnetpool");
    let router = json!({"router": {"name": "pods", "project_id": project}});
    let router = id(scene.neutron.ask("POST", "routers", &router).unwrap(), "router");
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "podSubnetsDriver": "namespace"});
    scene.more = json!({
        "file": {"defaultNetwork": "port"},
        "openstack": {"kubernetes": kubernetes, "namespaceSubnet": {"podSubnetPool": pool, "podRouter": router}},
    });
    scene
}

fn pod(store: &Store, namespace: &str, name: &str) {
    let metadata = json!({"namespace": namespace, "name": name});
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]});
    store.put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap();
}

fn network_of(scene: &Scene, namespace: &str) -> Option<Value> {
    let all = scene.store.objects(KURYR_PORT, "KuryrNetwork").unwrap();
    all.into_iter().find(|object| object["metadata"]["namespace"] == namespace)
}

/// The subnet of the default VIF of a pod, and its address.
fn vif(scene: &Scene, namespace: &str, name: &str) -> Option<(String, String)> {
    let all = scene.store.objects(KURYR_PORT, "KuryrPort").unwrap();
    let of = all.into_iter().find(|object| object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == name)?;
    let id = of["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["id"].as_str()?.to_owned();
    // It may be deleted already.
    let port = scene.neutron.ask("GET", &format!("ports/{id}"), &Value::Null).ok()?;
    let ip = &port["port"]["fixed_ips"][0];
    Some((ip["subnet_id"].as_str().unwrap().to_owned(), ip["ip_address"].as_str().unwrap().to_owned()))
}

fn count(scene: &Scene, of: &str) -> usize {
    let all = scene.neutron.ask("GET", &format!("{of}?project_id={}", scene.project), &Value::Null).unwrap();
    all[of].as_array().unwrap().len()
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn each_namespace_gets_its_network_and_it_goes_with_the_namespace() {
    let scene = scene();
    run(async {
        for at in ["operator-network-made", "operator-subnet-made", "operator-subnet-connected"] {
            if at == "operator-network-made" {
                pod(&scene.store, "one", "a");
            }
            scene.killed_at(at).await;
        }
        let _operator = scene.operator();
        until("the first pod has its port", || vif(&scene, "one", "a").is_some()).await;
        pod(&scene.store, "one", "b");
        pod(&scene.store, "two", "a");
        until("the others have theirs", || vif(&scene, "one", "b").is_some() && vif(&scene, "two", "a").is_some()).await;
        let (a, b, other) = (vif(&scene, "one", "a").unwrap(), vif(&scene, "one", "b").unwrap(), vif(&scene, "two", "a").unwrap());
        assert_eq!(a.0, b.0, "one subnet for the namespace");
        assert_ne!(a.0, other.0);
        assert!([&a, &b, &other].iter().all(|(_, address)| address.starts_with("10.96.")), "{a:?} {b:?} {other:?}");
        let one = network_of(&scene, "one").unwrap();
        assert_eq!(
            (&one["metadata"]["name"], &one["spec"]["nsName"], &one["status"]["subnetId"]),
            (&json!("one"), &json!("one"), &json!(a.0))
        );
        assert_eq!(one["metadata"]["finalizers"], json!(["kuryrnetwork.finalizers.kuryr.openstack.org"]));
        // That of the scene, and two: the operators that were killed have left none.
        assert_eq!((count(&scene, "networks"), count(&scene, "subnets")), (3, 3));
        let connected = scene.neutron.ask("GET", "ports?device_owner=network:router_interface", &Value::Null).unwrap();
        assert_eq!(connected["ports"].as_array().unwrap().len(), 2, "{connected}");

        // The namespace is being deleted: its KuryrNetwork is, at once, and its pods, one after the other.
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openstack.org", "v1", "KuryrNetwork"), "kuryrnetworks");
        let networks: Api<DynamicObject> = Api::namespaced_with(scene.store.client(), "one", &kind);
        drop(networks.delete("one", &DeleteParams::default()).await.unwrap());
        assert!(scene.store.remove("v1", "Pod", "one", "a").unwrap());
        until("the first one is gone", || vif(&scene, "one", "a").is_none()).await;
        assert!(vif(&scene, "one", "b").is_some() && network_of(&scene, "one").is_some(), "the other one runs");
        assert!(scene.store.remove("v1", "Pod", "one", "b").unwrap());
        until("its network is gone", || network_of(&scene, "one").is_none()).await;
        assert_eq!((count(&scene, "networks"), count(&scene, "subnets")), (2, 2));
        assert!(vif(&scene, "two", "a").is_some());
    });
}

/// That of a namespace as Kuryr leaves it, without our label; the forged one is none of this cloud's.
async fn take_over(scene: &Scene) {
    let label = json!({"namespace": "good", "name": "good", "labels": {"netloom.io/ports-of": null}});
    assert!(scene.store.merge(&json!({"apiVersion": KURYR_PORT, "kind": "KuryrNetwork", "metadata": label})).unwrap());
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
    let served = tokio::spawn(scene.store.clone().serve(listener));
    let settings = scene.settings(&scene.neutron.url());
    let adopted = tokio::task::spawn_blocking(move || {
        adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), false).unwrap()
    });
    let adopted = adopted.await.unwrap();
    assert_eq!(adopted.namespaces, ["good"], "{:?}", adopted.refused);
    let forged = ("forged/forged".to_owned(), "KuryrNetwork: its router is not [namespace_subnet] pod_router".to_owned());
    assert_eq!(adopted.refused, [forged]);
    served.abort();
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_network_that_cannot_be_made_or_is_anothers_is_told_to_its_pods_alone() {
    let mut scene = scene();
    // Of a Kuryr, or of somebody who wants to be in another namespace's network.
    let spec = json!({"nsName": "forged", "projectId": scene.project, "nsLabels": {}});
    let status = json!({"netId": scene.subnets["red"], "subnetId": scene.subnets["red"], "routerId": scene.subnets["red"]});
    let metadata = json!({"namespace": "forged", "name": "forged"});
    let object = json!({"apiVersion": KURYR_PORT, "kind": "KuryrNetwork", "metadata": metadata, "spec": spec, "status": status});
    scene.store.put(&object).unwrap();
    run(async {
        let operator = scene.operator();
        pod(&scene.store, "forged", "there");
        pod(&scene.store, "good", "here");
        until("the other one has its port", || vif(&scene, "good", "here").is_some()).await;
        let says = |words: &'static str| move |event: &String| event.contains(words);
        until("the forged one is told", || scene.events("there").iter().any(says("was made by another controller"))).await;
        drop(operator);
        let pool = scene.more["openstack"]["namespaceSubnet"]["podSubnetPool"].clone();
        scene.more["openstack"]["namespaceSubnet"]["podSubnetPool"] = json!("00000000-0000-4000-8000-000000000000");
        let operator = scene.operator();
        pod(&scene.store, "late", "waits");
        pod(&scene.store, "good", "second");
        until("it is told", || scene.events("waits").iter().any(says("network of namespace late: GET subnetpools/00000000"))).await;
        until("and holds up nobody", || vif(&scene, "good", "second").is_some()).await;
        drop(operator);
        scene.more["openstack"]["namespaceSubnet"]["podSubnetPool"] = pool;
        let operator = scene.operator();
        until("it goes on", || vif(&scene, "late", "waits").is_some()).await;
        assert_eq!(vif(&scene, "forged", "there"), None);
        drop(operator);
        take_over(&scene).await;
        let _operator = scene.operator();
        pod(&scene.store, "good", "third");
        until("what was taken over is used", || vif(&scene, "good", "third").is_some()).await;
        assert_eq!(vif(&scene, "good", "third").unwrap().0, vif(&scene, "good", "here").unwrap().0);
    });
}
