//! Many pods: each has its ports once, none is left, and what is known costs little memory and, where nothing changes, one list.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::between::{Act, Between};
use crate::scene::{KURYR_PORT, NODE, Scene, run, until};

/// So many, or as many as `NETLOOM_SOAK` says.
fn count(usual: usize) -> usize {
    std::env::var("NETLOOM_SOAK").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn many_pods_of_three_networks_come_and_go_once() {
    let scene = Scene::new(&[("red", "10.81.0.0/22"), ("blue", "10.85.0.0/22"), ("green", "10.89.0.0/22")]);
    let names: Vec<String> = (0..count(20)).map(|n| format!("p{n}")).collect();
    let has_all = |name: &String| scene.vifs(name).iter().filter(|(_, active)| *active).count() == 3;
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    run(async {
        let _operator = scene.operator_of(scene.options_with(&between.url(), &json!({"neutron": {"timeout": 600}})));
        names.iter().for_each(|name| scene.pod(name, "node-1", "red,blue,green"));
        // In order, so that each look is a short one.
        for name in &names {
            until(&format!("{name} has its ports"), || has_all(name)).await;
        }
        scene.assert_ports(3, &[]);
        let made = between.passed("POST /v2.0/ports");
        names.iter().for_each(|name| scene.delete_pod(name));
        for name in &names {
            until(&format!("{name} is released"), || scene.kuryr_port(name).is_none()).await;
        }
        assert!(scene.ports().is_empty(), "{:?}", scene.ports());
        let deleted = between.passed("DELETE /v2.0/ports");
        println!("{} pods: {made} POST, {deleted} DELETE, {} lists", names.len(), between.passed("GET /v2.0/ports"));
        assert_eq!(deleted, 3 * names.len());
    });
}

/// What an operator has in memory, in KiB: all that is resident, and what of it is its own data.
fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().trim_end_matches(" kB").parse().ok()).unwrap();
    (of("VmRSS:"), of("RssAnon:"))
}

/// Copies a pod's port and KuryrPort for many others, as if all of them had got theirs before.
fn copied(scene: &Scene, pods: usize) {
    let object = scene.kuryr_port("p0").unwrap();
    let (port, uid) = (scene.ports().remove(0), object["spec"]["podUid"].as_str().unwrap().to_owned());
    let mac = object["status"]["vifs"]["eth1"]["vif"]["versioned_object.data"]["address"].as_str().unwrap().to_owned();
    let rows = scene.neutron.sql(&format!("SELECT standard_attr_id, mac_address FROM ports WHERE id = '{}'", port.id)).unwrap();
    let attribute: i64 = rows[0][0].parse().unwrap();
    assert_eq!(rows[0][1], mac);
    let ip = scene.neutron.sql(&format!("SELECT ip_address FROM ipallocations WHERE port_id = '{}'", port.id)).unwrap()[0][0].clone();
    let all = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})", pods - 1);
    let (id, pod) = ("printf('%08x-0000-4000-8000-000000000000', i)", "printf('%08x-1111-4000-8000-000000000000', i)");
    let (own, of) = (1_000_000 + attribute, &port.id);
    for statement in [
        format!("INSERT INTO standardattributes (id, resource_type, description, revision_number, created_at, updated_at)
            {all} SELECT {own} + i, resource_type, description, revision_number, created_at, updated_at FROM n, standardattributes WHERE id = {attribute}"),
        format!("INSERT INTO ports (id, project_id, name, network_id, mac_address, admin_state_up, status, device_id, device_owner, ip_allocation, standard_attr_id)
            {all} SELECT {id}, project_id, name, network_id, printf('fa:17:00:00:%02x:%02x', i / 256, i % 256), admin_state_up, status, {pod}, device_owner,
            ip_allocation, {own} + i FROM n, ports WHERE id = '{of}'"),
        format!("INSERT INTO ipallocations (port_id, ip_address, subnet_id, network_id)
            {all} SELECT {id}, printf('10.64.%d.%d', 64 + i / 250, 1 + i % 250), subnet_id, network_id FROM n, ipallocations WHERE port_id = '{of}'"),
        format!("INSERT INTO ml2_port_bindings (port_id, host, vif_type, vnic_type, profile, vif_details, status)
            {all} SELECT {id}, host, vif_type, vnic_type, profile, vif_details, status FROM n, ml2_port_bindings WHERE port_id = '{of}'"),
        format!("INSERT INTO portsecuritybindings (port_id, port_security_enabled)
            {all} SELECT {id}, port_security_enabled FROM n, portsecuritybindings WHERE port_id = '{of}'"),
        format!("INSERT INTO tags (standard_attr_id, tag)
            {all} SELECT {own} + i, replace(tag, '{uid}', {pod}) FROM n, tags WHERE standard_attr_id = {attribute}"),
    ] {
        scene.neutron.sql(&statement).unwrap();
    }
    let metadata = |name: &str, uid: &str| json!({"namespace": "default", "name": name, "uid": uid, "annotations": {"k8s.v1.cni.cncf.io/networks": "red"}});
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]});
    for i in 1..pods {
        let (id, pod, name) =
            (format!("{i:08x}-0000-4000-8000-000000000000"), format!("{i:08x}-1111-4000-8000-000000000000"), format!("p{i}"));
        scene.store.put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(&name, &pod), "spec": spec})).unwrap();
        let text = object.to_string().replace(&port.id, &id).replace(&port.id[..11], &id[..11]).replace(&uid, &pod);
        let text = text.replace(&mac, &format!("fa:17:00:00:{:02x}:{:02x}", i / 256, i % 256));
        let text = text
            .replace(&format!("\"{ip}\""), &format!("\"10.64.{}.{}\"", 64 + i / 250, 1 + i % 250))
            .replace("\"p0\"", &format!("\"{name}\""));
        let mut copy: Value = serde_json::from_str(&text).unwrap();
        let metadata = copy["metadata"].as_object_mut().unwrap();
        ["uid", "resourceVersion"].iter().for_each(|key| drop(metadata.remove(*key)));
        assert_eq!((&copy["apiVersion"], &copy["kind"]), (&json!(KURYR_PORT), &json!("KuryrPort")));
        scene.store.put(&copy).unwrap();
    }
}

/// An operator that starts reads all of it once, writes nothing, and then lists ports as often as it is told to, and asks nothing else.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn five_thousand_pods_are_known_for_one_list() {
    const PODS: usize = 5_000;
    let scene = Scene::with_long_pages(&[("red", "10.64.0.0/16")]);
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let kinds = || {
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for request in between.requests("") {
            let mut words = request.split([' ', '?']);
            let kind = format!("{} {}", words.next().unwrap(), words.next().unwrap());
            // Pages after the first one have a marker.
            if !request.lines().next().unwrap().contains("marker=") {
                *all.entry(kind).or_default() += 1;
            }
        }
        all
    };
    run(async {
        let operator = scene.operator();
        scene.pod("p0", NODE, "red");
        until("it has its port", || scene.vifs("p0").len() == 1).await;
        scene.plug_all();
        until("it is ACTIVE", || scene.vifs("p0") == [("eth1".to_owned(), true)]).await;
        drop(operator);
        copied(&scene, PODS);
        assert_eq!(scene.ports().len(), PODS);
        let revision = scene.store.revision();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = scene.kubeconfig(listener.local_addr().unwrap().port());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "watchReconcilePeriod": 5});
        let settings =
            scene.settings_with(&between.url(), &json!({"openstack": {"kubernetes": kubernetes}, "file": {"portsPerNamespace": 0}}));
        let child = crate::killed::begin(&settings, &kubeconfig, "");
        let lists = || kinds().get("GET /v2.0/ports").copied().unwrap_or_default();
        until("it has read all", || lists() >= 2).await;
        let (before, asked) = (kinds(), scene.store.requests());
        until("it has listed them again, twice", || lists() >= 4).await;
        let (after, again) = (kinds(), scene.store.requests());
        let (resident, own) = memory(child.0.id());
        println!("{PODS} pods known: {} MiB resident, {} MiB of them its own data; {after:?}", resident >> 10, own >> 10);
        let others = |of: &BTreeMap<String, usize>| of.iter().filter(|(kind, _)| *kind != "GET /v2.0/ports").map(|(_, n)| n).sum::<usize>();
        assert_eq!(others(&before), others(&after), "{before:?} {after:?}");
        assert_eq!(asked, again, "it asks the API server for nothing");
        assert_eq!(scene.store.revision(), revision, "nothing was written");
        assert!(own < 64 << 10, "{own} KiB");
        served.abort();
    });
}
