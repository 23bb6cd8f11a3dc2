//! Pods on nodes that are virtual machines: subports of the node's trunk, and address pairs of the node's port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netloom_operator::{OpenStack, adopt, delete_orphans, look};
use serde_json::{Value, json};

use crate::between::{Act, Between};
use crate::scene::{KURYR_PORT, NODE, Scene, run, until};

const HOST_IP: &str = "10.80.0.9";

/// A node with a trunk, which has a subport and an address pair of somebody else's.
struct Node {
    scene: Scene,
    port: String,
    trunk: String,
    /// A port of somebody else's that is on no trunk yet.
    spare: String,
}

/// What the database says of the node: VLAN IDs of ours and of others, address pairs of ours and of others, and ports with tags of ours.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    vlans: usize,
    others_vlans: usize,
    pairs: usize,
    others_pairs: usize,
    ports: usize,
}

fn node() -> Node {
    let mut scene = Scene::new(&[("near", "10.80.0.0/24"), ("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    for (name, driver) in [("near", "nested-macvlan"), ("red", "nested-vlan"), ("blue", "nested-vlan")] {
        scene.define(name, &json!({"subnetId": scene.subnets[name], "driverType": driver}));
    }
    let id = |answer: &Value, key: &str| answer[key]["id"].as_str().unwrap().to_owned();
    let near = scene.subnets["near"].clone();
    let network = scene.neutron.ask("GET", &format!("subnets/{near}"), &Value::Null).unwrap()["subnet"]["network_id"].clone();
    let port = |more: Value| {
        let mut port = json!({"network_id": network, "project_id": scene.project});
        port.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        id(&scene.neutron.ask("POST", "ports", &json!({"port": port})).unwrap(), "port")
    };
    let of_node = port(json!({"fixed_ips": [{"subnet_id": near, "ip_address": HOST_IP}],
        "allowed_address_pairs": [{"ip_address": "10.80.0.200"}]}));
    let (others, spare) = (port(json!({})), port(json!({})));
    let trunk = json!({"trunk": {"port_id": of_node, "project_id": scene.project,
        "sub_ports": [{"port_id": others, "segmentation_type": "vlan", "segmentation_id": 1}]}});
    let trunk = id(&scene.neutron.ask("POST", "trunks", &trunk).unwrap(), "trunk");
    scene.neutron.ask("PUT", &format!("ports/{of_node}"), &json!({"port": {"binding:host_id": "hypervisor-1"}})).unwrap();
    scene.more = json!({"openstack": {"podVifNested": {"workerNodesSubnets": [near]}}});
    Node { port: of_node, trunk, spare, scene }
}

impl Node {
    fn counts(&self) -> Counts {
        let sql = |statement: &str| self.scene.neutron.sql(statement).unwrap();
        let project = &self.scene.project;
        let ours: Vec<String> = sql(&format!(
            "SELECT p.id FROM ports p JOIN tags t ON t.standard_attr_id = p.standard_attr_id WHERE p.project_id = '{project}' AND t.tag LIKE 'netloom:pod=%'"
        ))
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
        let subports = sql(&format!("SELECT port_id FROM subports WHERE trunk_id = '{}'", self.trunk));
        let vlans = subports.iter().filter(|row| ours.contains(&row[0])).count();
        let pairs = sql(&format!("SELECT mac_address, ip_address FROM allowedaddresspairs WHERE port_id = '{}'", self.port));
        let macs = sql(&format!("SELECT mac_address FROM ports WHERE id = '{}'", self.port));
        let others_pairs = pairs.iter().filter(|row| row[0] == macs[0][0]).count();
        Counts { vlans, others_vlans: subports.len() - vlans, pairs: pairs.len() - others_pairs, others_pairs, ports: ours.len() }
    }

    /// An operator is killed while its change of the node's address pairs is on its way, before this; then the pod that it was for is deleted.
    async fn orphan_a_pair(&self, neutron: &Between, is_held: &AtomicBool) {
        let scene = &self.scene;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let mut child = crate::killed::begin(&scene.settings(&neutron.url()), &kubeconfig, "");
        scene.pod_at("web", HOST_IP, "red,near");
        until("the change is on its way", || is_held.load(Ordering::Relaxed)).await;
        until("the other port is on the trunk", || self.counts().vlans == 1).await;
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        served.abort();
        scene.delete_pod("web");
        assert_eq!(self.counts(), Counts { vlans: 1, others_vlans: 1, pairs: 0, others_pairs: 1, ports: 2 });
    }

    /// Before Neutron: it gets a change of the node's port when nobody waits any more. Whether there is one.
    fn late(&self) -> (Between, Arc<AtomicBool>) {
        let (line, is_held) = (format!("PUT /v2.0/ports/{} ", self.port), Arc::new(AtomicBool::new(false)));
        let held = Arc::clone(&is_held);
        let between = Between::before(&self.scene.neutron.url(), move |first| {
            let is_change = first.starts_with(&line);
            held.fetch_or(is_change, Ordering::Relaxed);
            if is_change { Act::Late } else { Act::Pass }
        });
        (between, is_held)
    }

    /// The VLAN ID that a VIF has, and that which its port has on the trunk.
    fn vlan(&self, pod: &str, interface: &str) -> (u64, u64) {
        let object = self.scene.kuryr_port(pod).unwrap();
        let vif = &object["status"]["vifs"][interface]["vif"];
        assert_eq!((&vif["versioned_object.name"], &vif["versioned_object.data"]["plugin"]), (&json!("VIFVlanNested"), &json!("noop")));
        let data = &vif["versioned_object.data"];
        let id = data["id"].as_str().unwrap();
        let row = self.scene.neutron.sql(&format!("SELECT segmentation_id FROM subports WHERE port_id = '{id}'")).unwrap();
        (data["vlan_id"].as_u64().unwrap(), row[0][0].parse().unwrap())
    }
}

/// Somebody else takes the VLAN ID that ours was to have, and changes the node's port, in the very moment before.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn pods_of_a_virtual_machine_get_subports_and_address_pairs() {
    let node = node();
    let (neutron, trunk, port, spare) = (Arc::clone(&node.scene.neutron), node.trunk.clone(), node.port.clone(), node.spare.clone());
    let (is_first_add, is_first_pair) = (AtomicBool::new(true), AtomicBool::new(true));
    let between = Between::before(&node.scene.neutron.url(), move |line| {
        if line.contains("/add_subports") && is_first_add.swap(false, Ordering::Relaxed) {
            let sub = json!({"sub_ports": [{"port_id": spare, "segmentation_type": "vlan", "segmentation_id": 2}]});
            neutron.ask("PUT", &format!("trunks/{trunk}/add_subports"), &sub).unwrap();
        }
        if line.starts_with(&format!("PUT /v2.0/ports/{port} ")) && is_first_pair.swap(false, Ordering::Relaxed) {
            let pairs = json!([{"ip_address": "10.80.0.200"}, {"ip_address": "10.80.0.201"}]);
            neutron.ask("PUT", &format!("ports/{port}"), &json!({"port": {"allowed_address_pairs": pairs}})).unwrap();
        }
        Act::Pass
    });
    run(async {
        let scene = &node.scene;
        let _operator = scene.operator_of(scene.options(&between.url()));
        scene.pod_at("web", HOST_IP, "red,blue,near");
        let vif = |name: &str, active: bool| (name.to_owned(), active);
        until("all have their ports", || scene.vifs("web") == [vif("eth1", false), vif("eth2", false), vif("eth3", true)]).await;
        let (first, second) = (node.vlan("web", "eth1"), node.vlan("web", "eth2"));
        assert!(first.0 == first.1 && second.0 == second.1 && first.0 != second.0, "{first:?} {second:?}");
        assert!(first.0 > 2 && second.0 > 2, "1 and 2 are others': {first:?} {second:?}");
        let kind = &scene.kuryr_port("web").unwrap()["status"]["vifs"]["eth3"]["vif"]["versioned_object.name"];
        assert_eq!(kind, "VIFMacvlanNested");
        let with = |vlans, pairs| Counts { vlans, others_vlans: 2, pairs, others_pairs: 2, ports: vlans + pairs };
        assert_eq!(node.counts(), with(2, 1));
        scene.plug_all();
        until("the subports are ACTIVE", || scene.vifs("web").iter().all(|(_, active)| *active)).await;
        let adds = || between.passed(&format!("PUT /v2.0/trunks/{}/add_subports", node.trunk));
        let before = (adds(), between.passed("POST /v2.0/ports"));
        for name in ["a", "b", "c"] {
            scene.pod_at(name, HOST_IP, "red,blue");
        }
        until("others as well", || ["a", "b", "c"].iter().all(|name| scene.vifs(name).len() == 2)).await;
        assert_eq!(node.counts(), with(8, 1));
        assert!(adds() - before.0 <= 3, "ports of several pods are put on the trunk together: {}", adds() - before.0);
        for name in ["web", "a", "b", "c"] {
            scene.delete_pod(name);
        }
        until("nothing is left", || node.counts() == with(0, 0)).await;
        until("and all are released", || ["web", "a", "b", "c"].iter().all(|name| scene.kuryr_port(name).is_none())).await;
        assert!(scene.events("a").is_empty(), "{:?}", scene.events("a"));
    });
}

/// Killed after ports are on the trunk, or the node's port has their addresses, and nobody has noted it; and the same where they go.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_nested_port_is_found_in_its_place_after_a_kill() {
    let node = node();
    let scene = &node.scene;
    let with = |vlans, pairs| Counts { vlans, others_vlans: 1, pairs, others_pairs: 1, ports: vlans + pairs };
    run(async {
        for (name, networks, made, gone) in [
            ("first", "red,blue", "operator-port-made", "operator-subports-removed"),
            ("second", "red,blue", "operator-subports-added", "operator-subports-removed"),
            ("third", "near", "operator-pairs-set", "operator-pairs-set"),
        ] {
            scene.pod_at(name, HOST_IP, networks);
            scene.killed_at(made).await;
            let operator = scene.operator();
            let count = networks.split(',').count();
            until("it has its ports", || scene.vifs(name).len() == count).await;
            assert_eq!(node.counts(), if networks == "near" { with(0, 1) } else { with(2, 0) }, "{name}");
            drop(operator);
            scene.delete_pod(name);
            scene.killed_at(gone).await;
            let operator = scene.operator();
            until("nothing is left", || node.counts() == with(0, 0) && scene.kuryr_port(name).is_none()).await;
            drop(operator);
        }
    });
}

/// Neutron carries out what a killed operator has sent while the next one works: the port whose address it has made a pair is not deleted before that.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_killed_operators_late_change_leaves_no_address_pair() {
    let node = node();
    let (late, is_held) = node.late();
    run(async {
        node.orphan_a_pair(&late, &is_held).await;
        let scene = &node.scene;
        // For as long as that something may still be carried out.
        let operator = scene.operator_of(scene.options_with(&scene.neutron.url(), &json!({"neutron": {"timeout": 3600}})));
        until("its subport is gone", || node.counts().vlans == 0 && node.counts().ports == 1).await;
        late.release();
        let with = |pairs, ports| Counts { vlans: 0, others_vlans: 1, pairs, others_pairs: 1, ports };
        until("the change is carried out", || node.counts() == with(1, 1)).await;
        drop(operator);
        // One that sees the pair takes it away, and then nothing else can come.
        let _operator = scene.operator();
        until("nothing is left", || node.counts() == with(0, 0) && scene.kuryr_port("web").is_none()).await;
    });
}

/// The same where a person deletes what the killed operator has left.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn orphans_of_a_killed_operator_leave_no_address_pair() {
    let node = node();
    let (late, is_held) = node.late();
    run(async {
        node.orphan_a_pair(&late, &is_held).await;
        let scene = &node.scene;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let delete = |timeout: u64| {
            let settings = scene.settings_with(&scene.neutron.url(), &json!({"neutron": {"timeout": timeout}}));
            let (openstack, kubeconfig) = (OpenStack::read(Some(&settings), None, None).unwrap(), kubeconfig.clone());
            // The first one waits for longer than this test.
            std::thread::spawn(move || {
                let orphans = look(&openstack, Some(&kubeconfig)).unwrap().orphans;
                delete_orphans(&openstack, Some(&kubeconfig), &orphans, |_, was_there| assert!(was_there)).unwrap();
            })
        };
        let _waits = delete(3600);
        until("the subport is gone", || node.counts().vlans == 0 && node.counts().ports == 1).await;
        late.release();
        let with = |pairs, ports| Counts { vlans: 0, others_vlans: 1, pairs, others_pairs: 1, ports };
        until("the change is carried out", || node.counts() == with(1, 1)).await;
        let _deletes = delete(60);
        until("nothing is left", || node.counts() == with(0, 0)).await;
        served.abort();
    });
}

/// A pod of a virtual machine gets a subport that waits on the node's trunk, without a change of Neutron, and another pod gets it after it.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ready_subports_go_from_pod_to_pod() {
    let node = node();
    let scene = &node.scene;
    let group = json!({"security_group": {"name": "web", "project_id": scene.project}});
    let group = scene.neutron.ask("POST", "security-groups", &group).unwrap()["security_group"]["id"].clone();
    scene.define("red", &json!({"subnetId": scene.subnets["red"], "driverType": "nested-vlan", "securityGroups": [group]}));
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "vifPoolDriver": "nested"});
    let more = json!({"openstack": {"kubernetes": kubernetes, "vifPool": {"portsPoolMin": 1, "portsPoolBatch": 3}}});
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let on_trunk = || scene.neutron.sql(&format!("SELECT port_id FROM subports WHERE trunk_id = '{}'", node.trunk)).unwrap().len();
    let changes = || ["POST", "PUT", "DELETE"].map(|method| between.passed(method));
    run(async {
        let operator = scene.operator_of(scene.options_with(&between.url(), &more));
        scene.pod_at("first", HOST_IP, "red");
        // Somebody else's, the pod's, and three.
        until("some wait on the trunk", || scene.vifs("first").len() == 1 && on_trunk() == 5).await;
        let before = changes();
        scene.pod_at("second", HOST_IP, "red");
        until("it has one", || scene.vifs("second").len() == 1).await;
        let (vlan, on) = node.vlan("second", "eth1");
        assert_eq!(vlan, on);
        scene.delete_pod("second");
        until("it is released", || scene.kuryr_port("second").is_none()).await;
        scene.pod_at("third", HOST_IP, "red");
        until("it has one, too", || scene.vifs("third").len() == 1).await;
        assert_eq!(changes(), before, "POST, PUT, DELETE");
        drop(operator);
        // Another operator without pools takes off the trunk what waits, and nothing of pods.
        let _operator = scene.operator();
        until("what waited is gone", || on_trunk() == 3).await;
        assert_eq!((scene.vifs("first").len(), scene.vifs("third").len()), (1, 1));
        ["first", "third"].iter().for_each(|pod| scene.delete_pod(pod));
        // The node's port, and two of others.
        until("nothing is left", || on_trunk() == 1 && scene.ports().len() == 3 && scene.kuryr_port("third").is_none()).await;
    });
}

/// Who can read why: a node that Neutron does not know, one without a trunk, and another network than the node's.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_pod_whose_node_carries_nothing_is_told_why() {
    let node = node();
    let scene = &node.scene;
    scene.define("far", &json!({"subnetId": scene.subnets["red"], "driverType": "nested-macvlan"}));
    let network = scene.neutron.ask("GET", &format!("ports/{}", node.spare), &Value::Null).unwrap()["port"]["network_id"].clone();
    let bare = json!({"port": {"network_id": network, "project_id": scene.project, "fixed_ips": [{"ip_address": "10.80.0.10"}]}});
    scene.neutron.ask("POST", "ports", &bare).unwrap();
    run(async {
        let _operator = scene.operator();
        scene.pod_at("unknown", "10.80.0.99", "red");
        scene.pod_at("trunkless", "10.80.0.10", "red");
        scene.pod_at("far", HOST_IP, "far");
        scene.pod("early", NODE, "blue,red");
        scene.pod_at("good", HOST_IP, "red,near");
        let says = |pod: &str, words: &str| scene.events(pod).iter().any(|event| event.contains(words));
        until("the address", || says("unknown", "has the node's address 10.80.0.99")).await;
        until("the trunk", || says("trunkless", "has no trunk: create one")).await;
        until("the network", || says("far", "a nested-macvlan port is one of the node's own network")).await;
        until("the other one is served", || scene.vifs("good").len() == 2).await;
        until("the kubelet", || says("early", "status.hostIP is missing, and its nested ports wait for it")).await;
        assert_eq!(node.counts().ports, 2, "nothing was made for those that are refused");
        scene.say_address("early", HOST_IP);
        until("it is served", || scene.vifs("early").len() == 2).await;
    });
}

/// What Kuryr has left: a subport and a macvlan are taken over, and one that says another VLAN ID than the trunk is not.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn kuryrs_nested_ports_are_taken_over() {
    let node = node();
    let scene = &node.scene;
    let made = |subnet: &str| {
        let subnet = &scene.subnets[subnet];
        let network = scene.neutron.ask("GET", &format!("subnets/{subnet}"), &Value::Null).unwrap()["subnet"]["network_id"].clone();
        let port = json!({"port": {"network_id": network, "project_id": scene.project, "fixed_ips": [{"subnet_id": subnet}],
            "device_owner": "compute:kuryr", "admin_state_up": true}});
        scene.neutron.ask("POST", "ports", &port).unwrap()["port"].clone()
    };
    let captured = |kind: &str| -> Value {
        let file = format!("{}/../osvif/tests/captured/{kind}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    };
    let (vlan, forged, macvlan) = (made("red"), made("red"), made("near"));
    for (port, id) in [(&vlan, 77), (&forged, 78)] {
        let sub = json!({"sub_ports": [{"port_id": port["id"], "segmentation_type": "vlan", "segmentation_id": id}]});
        scene.neutron.ask("PUT", &format!("trunks/{}/add_subports", node.trunk), &sub).unwrap();
    }
    let own = json!({"ip_address": macvlan["fixed_ips"][0]["ip_address"], "mac_address": macvlan["mac_address"]});
    let pairs = json!([{"ip_address": "10.80.0.200"}, own]);
    scene.neutron.ask("PUT", &format!("ports/{}", node.port), &json!({"port": {"allowed_address_pairs": pairs}})).unwrap();
    for (name, network, kind, port, vlan_id) in [
        ("vlan", "red", "VIFVlanNested", &vlan, json!(77)),
        ("forged", "red", "VIFVlanNested", &forged, json!(77)),
        ("macvlan", "near", "VIFMacvlanNested", &macvlan, Value::Null),
    ] {
        scene.pod_at(name, HOST_IP, network);
        let (_, uid) = scene.pods().into_iter().find(|(pod, _)| pod == name).unwrap();
        let mut vif = captured(kind);
        let data = vif["versioned_object.data"].as_object_mut().unwrap();
        data.extend([("id".to_owned(), port["id"].clone()), ("address".to_owned(), port["mac_address"].clone())]);
        data.extend((!vlan_id.is_null()).then(|| ("vlan_id".to_owned(), vlan_id)));
        let metadata = json!({"namespace": "default", "name": name, "finalizers": ["kuryr.openstack.org/kuryrport-finalizer"]});
        let object = json!({"apiVersion": KURYR_PORT, "kind": "KuryrPort", "metadata": metadata,
            "spec": {"podUid": uid, "podNodeName": NODE}, "status": {"vifs": {"eth1": {"default": false, "vif": vif}}}});
        scene.store.put(&object).unwrap();
    }
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let settings = scene.settings(&scene.neutron.url());
        let adopted = tokio::task::spawn_blocking(move || {
            adopt(&OpenStack::read(Some(&settings), None, None).unwrap(), Some(&kubeconfig), false).unwrap()
        });
        let adopted = adopted.await.unwrap();
        served.abort();
        let names: Vec<&str> = adopted.ports.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["default/macvlan", "default/vlan"]);
        let [(name, why)] = adopted.refused.as_slice() else { panic!("{:?}", adopted.refused) };
        assert!(name == "default/forged" && why.ends_with("does not carry the port with VLAN ID 77"), "{why}");

        let _operator = scene.operator();
        scene.delete_pod("vlan");
        scene.delete_pod("macvlan");
        // Of the others' two subports one is the forged pod's.
        let left = Counts { vlans: 0, others_vlans: 2, pairs: 0, others_pairs: 1, ports: 0 };
        until("theirs are gone", || node.counts() == left && scene.kuryr_port("vlan").is_none() && scene.kuryr_port("macvlan").is_none())
            .await;
    });
}
