//! What a Kuryr-Kubernetes has left is taken over while its pods run.

use netloom_operator::{LookError, OpenStack, adopt, delete_orphans, delete_ready, look};
use serde_json::{Value, json};

use crate::scene::{KURYR_PORT, NODE, Scene, run, until};

const CAPTURED: &str = include_str!("../../../osvif/tests/captured/VIFOpenVSwitch.json");

/// A port as Kuryr makes it.
fn port(scene: &Scene, uid: &str) -> Value {
    let subnet = &scene.subnets["red"];
    let network = scene.neutron.ask("GET", &format!("subnets/{subnet}"), &Value::Null).unwrap()["subnet"]["network_id"].clone();
    let port = json!({"port": {"network_id": network, "project_id": scene.project, "fixed_ips": [{"subnet_id": subnet}], "device_owner": "compute:kuryr",
        "device_id": uid, "admin_state_up": true, "binding:host_id": NODE, "tags": ["kuryr-cluster"]}});
    scene.neutron.ask("POST", "ports", &port).unwrap()["port"].clone()
}

/// The VIF of a port.
fn vif(port: &Value) -> Value {
    let mut vif: Value = serde_json::from_str(CAPTURED).unwrap();
    let data = &mut vif["versioned_object.data"];
    (data["id"], data["address"]) = (port["id"].clone(), port["mac_address"].clone());
    vif
}

/// A KuryrPort as Kuryr writes it, whose first additional VIF is this port's.
fn kuryr_port(scene: &Scene, pod: &str, uid: &str, port: &Value) {
    let vif = vif(port);
    let metadata = json!({"namespace": "default", "name": pod, "labels": {"kuryr.openstack.org/nodeName": NODE},
        "finalizers": ["kuryr.openstack.org/kuryrport-finalizer"]});
    let status = json!({"vifs": {"eth1": {"default": false, "vif": vif}}});
    scene
        .store
        .put(&json!({"apiVersion": KURYR_PORT, "kind": "KuryrPort", "metadata": metadata, "spec": {"podUid": uid, "podNodeName": NODE}, "status": status}))
        .unwrap();
}

fn uid(scene: &Scene, name: &str) -> String {
    scene.pods().into_iter().find(|(pod, _)| pod == name).unwrap().1
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn kuryrs_ports_are_taken_over_and_forged_ones_are_not() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let metadata = json!({"namespace": "default", "name": "web", "annotations": {"k8s.v1.cni.cncf.io/networks": "red"},
        "finalizers": ["kuryr.openstack.org/pod-finalizer"]});
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]});
    scene.store.put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap();
    former_networks(&scene);
    scene.pod("forger", NODE, "red");
    let kuryrs = port(&scene, &uid(&scene, "web"));
    kuryr_port(&scene, "web", &uid(&scene, "web"), &kuryrs);
    // Somebody has named a port of a virtual machine, while everybody might.
    let mut machines = port(&scene, "a machine");
    let id = machines["id"].as_str().unwrap().to_owned();
    scene.neutron.ask("PUT", &format!("ports/{id}"), &json!({"port": {"device_owner": "compute:nova"}})).unwrap();
    machines["device_owner"] = json!("compute:nova");
    kuryr_port(&scene, "forger", &uid(&scene, "forger"), &machines);
    let tags = |id: &Value| {
        let port = scene.neutron.ask("GET", &format!("ports/{}", id.as_str().unwrap()), &Value::Null).unwrap();
        let mut tags: Vec<String> = serde_json::from_value(port["port"]["tags"].clone()).unwrap();
        tags.sort();
        tags
    };
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let take_over = |dry_run| {
            let (settings, kubeconfig) = (settings.clone(), kubeconfig.clone());
            tokio::task::spawn_blocking(move || {
                adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), dry_run).unwrap()
            })
        };
        let shown = take_over(true).await.unwrap();
        assert_eq!(tags(&kuryrs["id"]), ["kuryr-cluster"], "nothing was changed");
        let done = take_over(false).await.unwrap();
        assert_eq!(done, shown);
        let id = kuryrs["id"].as_str().unwrap().to_owned();
        assert_eq!(done.ports, [("default/web".to_owned(), "eth1".to_owned(), id.clone())]);
        assert_eq!((done.pods, done.definitions), (vec!["default/web".to_owned()], vec!["default/old".to_owned()]));
        let all = scene.store.objects(DEFINITION, "NetworkAttachmentDefinition").unwrap();
        let of = |name: &str| all.iter().find(|object| object["metadata"]["name"] == name).cloned().unwrap_or_default();
        assert_eq!(of("old")["metadata"]["annotations"][KURYR_CONFIG], former_config(&scene));
        assert!(of("old")["spec"]["config"].is_null() && of("other").is_null(), "{all:?}");
        assert_ne!(of("red")["metadata"]["annotations"][KURYR_CONFIG], "{}", "what is there stays");
        assert!(
            done.refused[0].0 == "default/forger" && done.refused[0].1.ends_with("its device_owner is not Kuryr's"),
            "{:?}",
            done.refused
        );
        assert!(tags(&kuryrs["id"]).contains(&format!("netloom:pod={}", uid(&scene, "web"))));
        assert_eq!(tags(&machines["id"]), ["kuryr-cluster"]);
        let pods = scene.store.objects("v1", "Pod").unwrap();
        let web = pods.iter().find(|pod| pod["metadata"]["name"] == "web").unwrap();
        assert!(web["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{web}");
        let again = take_over(false).await.unwrap();
        assert!(again.ports.is_empty() && again.definitions.is_empty(), "it is done once");
        served.abort();

        let _operator = scene.operator();
        scene.neutron.sql(&format!("UPDATE ports SET status = 'ACTIVE' WHERE id = '{id}'")).unwrap();
        until("it is followed", || scene.vifs("web") == [("eth1".to_owned(), true)]).await;
        let says = |event: &String| event.contains("was made by another controller");
        until("the forged one is reported", || scene.events("forger").iter().any(says)).await;
        assert_eq!(scene.ports().len(), 2, "none was made");
        scene.delete_pod("web");
        until("its port goes with it", || scene.ports().len() == 1 && scene.kuryr_port("web").is_none()).await;
        assert_eq!(scene.ports()[0].id, machines["id"].as_str().unwrap());
        // A pod gets a port by the definition that was made.
        scene.pod("late", NODE, "old");
        until("it has its port", || scene.vifs("late").len() == 1).await;
    });
}

const KURYR_CONFIG: &str = "openstack.org/kuryr-config";
const DEFINITION: &str = "k8s.cni.cncf.io/v1";

fn former_config(scene: &Scene) -> String {
    json!({"subnetId": scene.subnets["red"]}).to_string()
}

/// Objects of the kind that Kuryr's first releases read: one of Neutron, one of another network, and one whose name a definition has.
fn former_networks(scene: &Scene) {
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let names = json!({"plural": "networks", "singular": "network", "kind": "Network"});
    let spec = json!({"group": "kubernetes.cni.cncf.io", "scope": "Namespaced", "names": names, "versions": [version]});
    let metadata = json!({"name": "networks.kubernetes.cni.cncf.io"});
    let kind = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec});
    scene.store.put(&kind).unwrap();
    for (name, annotations) in
        [("old", json!({KURYR_CONFIG: former_config(scene)})), ("other", json!({})), ("red", json!({KURYR_CONFIG: "{}"}))]
    {
        let metadata = json!({"namespace": "default", "name": name, "annotations": annotations});
        let spec = json!({"config": r#"{"cniVersion": "0.3.0", "type": "host-device"}"#});
        let object = json!({"apiVersion": "kubernetes.cni.cncf.io/v1", "kind": "Network", "metadata": metadata, "spec": spec});
        scene.store.put(&object).unwrap();
    }
}

/// Kuryr's releases before KuryrPorts have written VIFs into the pods' annotation. Somebody else's port, named in a pod's own annotation, stays its.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn vifs_in_annotations_become_kuryr_ports() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    ["web", "victim", "thief"].iter().for_each(|name| scene.pod(name, NODE, "red"));
    let [web, victim] = ["web", "victim"].map(|name| port(&scene, &uid(&scene, name)));
    let annotate = |name: &str, text: &str| {
        let metadata = json!({"namespace": "default", "name": name, "annotations": {(osvif::VIF_ANNOTATION): text}});
        assert!(scene.store.merge(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap());
    };
    let state = |port: &Value| {
        let data = json!({"additional_vifs": {"eth1": vif(port)}});
        json!({"versioned_object.name": "PodState", "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
            "versioned_object.data": data})
        .to_string()
    };
    annotate("web", &state(&web));
    annotate("victim", &state(&victim));
    annotate("thief", &state(&victim));
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let adopted = tokio::task::spawn_blocking(move || {
            adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), false).unwrap()
        });
        let adopted = adopted.await.unwrap();
        let id = web["id"].as_str().unwrap().to_owned();
        assert_eq!(adopted.ports, [("default/web".to_owned(), "eth1".to_owned(), id.clone())], "{:?}", adopted.refused);
        assert!(adopted.refused.iter().all(|(_, why)| why.ends_with("several pods name it")), "{:?}", adopted.refused);
        assert_eq!(adopted.refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["default/thief", "default/victim"]);
        served.abort();
        let _operator = scene.operator();
        scene.neutron.sql(&format!("UPDATE ports SET status = 'ACTIVE' WHERE id = '{id}'")).unwrap();
        until("it is followed", || scene.vifs("web") == [("eth1".to_owned(), true)]).await;
        scene.delete_pod("web");
        until("its port goes with it", || !scene.ports().iter().any(|port| port.id == id) && scene.kuryr_port("web").is_none()).await;
    });
}

/// What `netloom openstack` shows: an orphan is a port of this very cluster whose pod is gone. What has only its name is another cluster's.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn orphans_are_this_clusters_alone() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    run(async {
        let operator = scene.operator();
        scene.pod("web", "node-1", "red");
        scene.pod("gone", "node-1", "red");
        until("both have their ports", || scene.vifs("web").len() == 1 && scene.vifs("gone").len() == 1).await;
        drop(operator);
        scene.delete_pod("gone");
        let namesake = port(&scene, "x");
        let tags =
            json!({"tags": [format!("netloom:cluster={}", scene.project), "netloom:uid=another", "netloom:pod=x", "netloom:element=1"]});
        scene.neutron.ask("PUT", &format!("ports/{}/tags", namesake["id"].as_str().unwrap()), &tags).unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let asked = tokio::task::spawn_blocking(move || {
            let openstack = OpenStack::read(Some(&settings), None, None).unwrap();
            let before = look(&openstack, Some(&kubeconfig)).unwrap();
            delete_orphans(&openstack, Some(&kubeconfig), &before.orphans, |_, was_there| assert!(was_there)).unwrap();
            (before, look(&openstack, Some(&kubeconfig)).unwrap())
        });
        let (before, after) = asked.await.unwrap();
        served.abort();
        let counts = |seen: &netloom_operator::PortsSeen| (seen.ports.len(), seen.orphans.len(), seen.anothers.len());
        assert_eq!((counts(&before), counts(&after)), ((1, 1, 1), (1, 0, 1)));
        assert_eq!(before.anothers[0].id, namesake["id"].as_str().unwrap());
    });
}

/// `netloom openstack pools`: what waits is deleted when no operator works, and nothing of pods.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ready_ports_are_deleted_when_no_operator_works() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let group = json!({"security_group": {"name": "web", "project_id": scene.project}});
    let group = scene.neutron.ask("POST", "security-groups", &group).unwrap()["security_group"]["id"].clone();
    scene.define("red", &json!({"subnetId": scene.subnets["red"], "securityGroups": [group]}));
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "vifPoolDriver": "neutron"});
    scene.more = json!({"openstack": {"kubernetes": kubernetes, "vifPool": {"portsPoolMin": 1, "portsPoolBatch": 3}}});
    run(async {
        let operator = scene.operator();
        scene.pod("first", NODE, "red");
        until("others wait", || scene.vifs("first").len() == 1 && scene.ports().len() == 4).await;
        scene.pod("second", NODE, "red");
        until("it has one of them", || scene.vifs("second").len() == 1).await;
        drop(operator);
        let lease = |renewal: u32| {
            let spec = json!({"holderIdentity": "another", "leaseTransitions": renewal});
            let metadata = json!({"namespace": "kube-system", "name": "netloom-operator"});
            let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
            if !scene.store.merge(&object).unwrap() {
                scene.store.put(&object).unwrap();
            }
        };
        lease(0);
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let begin = || {
            let (settings, kubeconfig) = (settings.clone(), kubeconfig.clone());
            tokio::task::spawn_blocking(move || {
                let openstack = OpenStack::read(Some(&settings), None, None).unwrap();
                let pools = look(&openstack, Some(&kubeconfig)).unwrap().pools;
                (pools, delete_ready(&openstack, Some(&kubeconfig), "kube-system"))
            })
        };
        let (asked, mut renewal) = (begin(), 0);
        while !asked.is_finished() {
            renewal += 1;
            lease(renewal);
            // Sleeps: the holder renews its Lease now and then.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        let (pools, refused) = asked.await.unwrap();
        assert_eq!(pools.iter().map(|pool| (pool.kind.host.as_str(), pool.ready, pool.used)).collect::<Vec<_>>(), [(NODE, 2, 1)]);
        assert_eq!(pools[0].subnets, [scene.subnets["red"].clone()]);
        let Err(LookError::AtWork { holder }) = refused else { panic!("{refused:?}") };
        assert_eq!((holder.as_str(), scene.ports().len()), ("another", 4));
        let (_, deleted) = begin().await.unwrap();
        served.abort();
        assert_eq!((deleted.unwrap().len(), scene.ports().len()), (2, 2), "those of the pods stay");
    });
}

/// Ports of Kuryr's pools become ready ports where `resource_tags` and a node of the cluster say whose they are.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ports_of_kuryrs_pools_become_ready_ports() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "vifPoolDriver": "neutron"});
    let defaults = json!({"project": scene.project, "podSubnet": scene.subnets["red"], "resourceTags": ["kuryr-cluster"]});
    scene.more = json!({"openstack": {"kubernetes": kubernetes, "neutronDefaults": defaults}});
    scene.store.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})).unwrap();
    let (good, active, untagged, elsewhere) = (port(&scene, ""), port(&scene, ""), port(&scene, ""), port(&scene, ""));
    let id = |port: &Value| port["id"].as_str().unwrap().to_owned();
    let change = |of: &Value, path: &str, body: &Value| scene.neutron.ask("PUT", &format!("ports/{}{path}", id(of)), body).unwrap();
    change(&untagged, "/tags", &json!({"tags": ["other"]}));
    change(&elsewhere, "", &json!({"port": {"binding:host_id": "another.ovs-down"}}));
    scene.neutron.sql(&format!("UPDATE ports SET status = 'ACTIVE' WHERE id = '{}'", id(&active))).unwrap();
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let taken = tokio::task::spawn_blocking(move || {
            let openstack = OpenStack::read(Some(&settings), None, None).unwrap();
            let adopted = adopt(&openstack, Some(&kubeconfig), false).unwrap();
            (adopted.ready, look(&openstack, Some(&kubeconfig)).unwrap())
        });
        let (ready, seen) = taken.await.unwrap();
        served.abort();
        assert_eq!(ready, [(NODE.to_owned(), id(&good))]);
        assert_eq!(seen.ready.iter().map(|port| port.id.clone()).collect::<Vec<_>>(), [id(&good)]);
        assert_eq!(seen.pools.len(), 1);
    });
}
