//! Each namespace has its own network: made when its first pod needs it, removed with the namespace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Api;
use kube::api::DeleteParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use netloom_operator::{OpenStack, adopt};
use objects::Store;
use serde_json::{Value, json};

use crate::between::{Act, Between};
use crate::scene::{KURYR_PORT, NODE, Scene, run, until};

/// A project with a router and a pool of ranges. What an operator that was killed has sent counts as ended after 15 s.
fn scene() -> Scene {
    let mut scene = Scene::with_routers(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24"), ("green", "10.83.0.0/24")]);
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
        "neutron": {"timeout": 15},
    });
    scene
}

/// The kind, for what the store's own functions do not: a finalizer keeps what is deleted.
fn networks(scene: &Scene, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openstack.org", "v1", "KuryrNetwork"), "kuryrnetworks");
    Api::namespaced_with(scene.store.client(), namespace, &kind)
}

/// The network of one of the scene's subnets.
fn network(scene: &Scene, subnet: &str) -> Value {
    scene.neutron.ask("GET", &format!("subnets/{subnet}"), &Value::Null).unwrap()["subnet"]["network_id"].clone()
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
    let mut scene = scene();
    // Ready ports keep no network.
    let group = json!({"security_group": {"name": "web", "project_id": scene.project}});
    let group = scene.neutron.ask("POST", "security-groups", &group).unwrap()["security_group"]["id"].clone();
    let defaults = json!({"project": scene.project, "podSubnet": scene.subnets["blue"], "podSecurityGroups": [group]});
    scene.more["openstack"]["neutronDefaults"] = defaults;
    scene.more["openstack"]["kubernetes"]["vifPoolDriver"] = json!("neutron");
    scene.more["openstack"]["vifPool"] = json!({"portsPoolMin": 1, "portsPoolBatch": 2});
    run(async {
        pod(&scene.store, "one", "a");
        for at in ["operator-network-made", "operator-subnet-made", "operator-subnet-connected"] {
            scene.killed_at(at).await;
        }
        let operator = scene.operator();
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
        // Those of the scene, and two: the operators that were killed have left none.
        assert_eq!((count(&scene, "networks"), count(&scene, "subnets")), (5, 5));
        let connected = scene.neutron.ask("GET", "ports?device_owner=network:router_interface", &Value::Null).unwrap();
        assert_eq!(connected["ports"].as_array().unwrap().len(), 2, "{connected}");

        // The namespace is being deleted: its KuryrNetwork is, at once, and its pods, one after the other. Somebody has a machine there.
        let machine = json!({"port": {"network_id": one["status"]["netId"], "device_owner": "compute:nova", "project_id": scene.project}});
        let machine = scene.neutron.ask("POST", "ports", &machine).unwrap()["port"]["id"].as_str().unwrap().to_owned();
        drop(networks(&scene, "one").delete("one", &DeleteParams::default()).await.unwrap());
        assert!(scene.store.remove("v1", "Pod", "one", "a").unwrap());
        until("the first one is gone", || vif(&scene, "one", "a").is_none()).await;
        assert!(vif(&scene, "one", "b").is_some() && network_of(&scene, "one").is_some(), "the other one runs");
        assert!(scene.store.remove("v1", "Pod", "one", "b").unwrap());
        let left = || {
            let ports = scene.neutron.ask("GET", &format!("ports?network_id={}", one["status"]["netId"].as_str().unwrap()), &Value::Null);
            ports.unwrap()["ports"].as_array().unwrap().len()
        };
        until("machine and router are left", || left() == 2).await;
        drop(operator);
        scene.neutron.ask("DELETE", &format!("ports/{machine}"), &Value::Null).unwrap();
        scene.killed_at("operator-network-removed").await;
        let _operator = scene.operator();
        until("its object is gone", || network_of(&scene, "one").is_none()).await;
        assert_eq!((count(&scene, "networks"), count(&scene, "subnets")), (4, 4));
        assert!(vif(&scene, "two", "a").is_some());
    });
}

/// Neutron has made what its answer did not tell: nothing is made twice.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn an_answer_that_is_lost_makes_no_second_network() {
    let scene = scene();
    let lost = ["POST /v2.0/networks", "POST /v2.0/subnets"].map(|line| (line, AtomicBool::new(false)));
    let between = Between::before(&scene.neutron.url(), move |line| {
        let is_first = lost.iter().any(|(of, was)| line.starts_with(of) && !was.swap(true, Ordering::Relaxed));
        if is_first { Act::Cut } else { Act::Pass }
    });
    run(async {
        let _operator = scene.operator_of(scene.options(&between.url()));
        pod(&scene.store, "one", "a");
        until("it has its port", || vif(&scene, "one", "a").is_some()).await;
        assert!(scene.events("a").iter().any(|event| event.contains("it may have been carried out")), "{:?}", scene.events("a"));
        assert_eq!((count(&scene, "networks"), count(&scene, "subnets")), (4, 4));
        assert_eq!([between.passed("POST /v2.0/networks"), between.passed("POST /v2.0/subnets")], [1, 1]);
    });
}

/// Kuryr's, or somebody's who wants to be in another network: `label` is that of an object of ours.
fn forge(scene: &Scene, namespace: &str, subnet: &str, label: Option<&str>) {
    let router = &scene.more["openstack"]["namespaceSubnet"]["podRouter"];
    let spec = json!({"nsName": namespace, "projectId": scene.project, "nsLabels": {}});
    let status = json!({"netId": network(scene, subnet), "subnetId": subnet, "routerId": router});
    let labels: BTreeMap<&str, &str> = label.into_iter().map(|cluster| ("netloom.io/ports-of", cluster)).collect();
    let metadata = json!({"namespace": namespace, "name": namespace, "labels": labels});
    let object = json!({"apiVersion": KURYR_PORT, "kind": "KuryrNetwork", "metadata": metadata, "spec": spec, "status": status});
    scene.store.put(&object).unwrap();
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_network_that_cannot_be_made_or_is_anothers_is_told_to_its_pods_alone() {
    let mut scene = scene();
    forge(&scene, "forged", &scene.subnets["red"], None);
    forge(&scene, "greedy", &scene.subnets["blue"], None);
    forge(&scene, "planted", &scene.subnets["green"], Some(&scene.project));
    run(async {
        let operator = scene.operator();
        pod(&scene.store, "forged", "there");
        pod(&scene.store, "planted", "under");
        pod(&scene.store, "good", "here");
        until("the other one has its port", || vif(&scene, "good", "here").is_some()).await;
        let says = |words: &'static str| move |event: &String| event.contains(words);
        until("the forged one is told", || scene.events("there").iter().any(says("was made by another controller"))).await;
        until("the planted one is told", || scene.events("under").iter().any(says("which no operator of this cluster has made"))).await;
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
        drop(operator);
        take_over(&scene).await;
        let _operator = scene.operator();
        pod(&scene.store, "good", "third");
        until("what was taken over is used", || vif(&scene, "good", "third").is_some()).await;
        assert_eq!(vif(&scene, "good", "third").unwrap().0, vif(&scene, "good", "here").unwrap().0);
        assert_eq!((vif(&scene, "forged", "there"), vif(&scene, "planted", "under")), (None, None));
    });
}

/// That of a namespace as Kuryr leaves it, without our label; the forged one is none of this cloud's.
async fn take_over(scene: &Scene) {
    let label = json!({"namespace": "good", "name": "good", "labels": {"netloom.io/ports-of": null}});
    assert!(scene.store.merge(&json!({"apiVersion": KURYR_PORT, "kind": "KuryrNetwork", "metadata": label})).unwrap());
    let id = network_of(scene, "good").unwrap()["status"]["netId"].as_str().unwrap().to_owned();
    let plain = json!({"network": {"description": "of Kuryr"}});
    drop(scene.neutron.ask("PUT", &format!("networks/{id}"), &plain).unwrap());
    drop(scene.neutron.ask("PUT", &format!("networks/{id}/tags"), &json!({"tags": ["kuryr"]})).unwrap());
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
    let served = tokio::spawn(scene.store.clone().serve(listener));
    let settings = scene.settings(&scene.neutron.url());
    let adopted = tokio::task::spawn_blocking(move || {
        adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), false).unwrap()
    });
    let adopted = adopted.await.unwrap();
    assert_eq!(adopted.namespaces, ["good"], "{:?}", adopted.refused);
    let refused = [
        ("forged/forged", "KuryrNetwork: its subnet is not on [namespace_subnet] pod_router"),
        ("greedy/greedy", "KuryrNetwork: its subnet is one of the settings"),
    ];
    assert_eq!(adopted.refused, refused.map(|(name, why)| (name.to_owned(), why.to_owned())));
    let network = &scene.neutron.ask("GET", &format!("networks/{id}"), &Value::Null).unwrap()["network"];
    assert!(network["tags"].as_array().unwrap().contains(&json!("kuryr")), "{network}");
    served.abort();
}
