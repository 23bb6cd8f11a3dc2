//! A project of a Neutron, a cluster in memory, and operators over both.
//!
//! Each test has a Neutron of its own. All its requests are served by one thread, which SQLite stops where it waits for the lock of a transaction
//! that another one has begun: with requests of many tests none came to its end any more.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use netloom_operator::{LogLevel, OpenStack, Options, Running, start};
use objects::Store;
use serde_json::{Value, json};

pub(crate) const NAD: &str = "k8s.cni.cncf.io/v1";
pub(crate) const KURYR_PORT: &str = "openstack.org/v1";
/// Where ports stay DOWN until an agent reports them.
pub(crate) const NODE: &str = "node-1.ovs-down";
/// The kinds as they are deployed.
const KINDS: [&str; 4] = [
    include_str!("../../../../deploy/ippools.yaml"),
    include_str!("../../../../deploy/definition.yaml"),
    include_str!("../../../../deploy/openstack/kuryrports.yaml"),
    include_str!("../../../../deploy/openstack/kuryrnetworks.yaml"),
];
/// A hundred times what it takes: a port takes Neutron a second on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Scene {
    pub(crate) neutron: Arc<testbed::openstack::Neutron>,
    pub(crate) store: Store,
    pub(crate) project: String,
    /// Subnets by the names of their networks.
    pub(crate) subnets: BTreeMap<&'static str, String>,
    /// More of the settings, as for [`Scene::options_with`].
    pub(crate) more: Value,
    dir: PathBuf,
}

/// A port as Neutron's database has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) device: String,
    pub(crate) status: String,
}

fn unique(what: &str) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{what}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// Runs a test as the operator runs: on one thread.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A kubeconfig of a store that serves at this port, in a directory.
pub(crate) fn kubeconfig_of(dir: &Path, port: u16) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}],
    });
    let file = dir.join("kubeconfig");
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

// === impl Scene ===

impl Scene {
    /// With networks of these names and subnets, and a definition for each: `red` in namespace `default`.
    pub(crate) fn new(networks: &[(&'static str, &str)]) -> Self {
        Scene::of(Arc::new(testbed::openstack::Neutron::named(&unique("operator"), None).unwrap()), networks)
    }

    /// The same whose lists have long pages.
    pub(crate) fn with_long_pages(networks: &[(&'static str, &str)]) -> Self {
        Scene::of(Arc::new(testbed::openstack::Neutron::with_long_pages(&unique("operator")).unwrap()), networks)
    }

    /// The same with a Neutron that takes no tags with a new port.
    pub(crate) fn without_tags(networks: &[(&'static str, &str)]) -> Self {
        Scene::of(Arc::new(testbed::openstack::Neutron::without_new_tags(&unique("operator")).unwrap()), networks)
    }

    /// The same with a Neutron that has routers.
    pub(crate) fn with_routers(networks: &[(&'static str, &str)]) -> Self {
        Scene::of(Arc::new(testbed::openstack::Neutron::with_routers(&unique("operator")).unwrap()), networks)
    }

    fn of(neutron: Arc<testbed::openstack::Neutron>, networks: &[(&'static str, &str)]) -> Self {
        let project = unique("project");
        let id = |answer: &Value| answer["id"].as_str().unwrap().to_owned();
        let mut subnets = BTreeMap::new();
        for &(name, cidr) in networks {
            let network = json!({"network": {"name": name, "project_id": project}});
            let network = id(&neutron.ask("POST", "networks", &network).unwrap()["network"]);
            let subnet = json!({"network_id": network, "project_id": project, "ip_version": 4, "cidr": cidr, "enable_dhcp": false});
            subnets.insert(name, id(&neutron.ask("POST", "subnets", &json!({"subnet": subnet})).unwrap()["subnet"]));
        }
        let dir = std::env::temp_dir().join(unique("operator"));
        std::fs::create_dir_all(&dir).unwrap();
        let store = Store::new();
        for document in KINDS.iter().flat_map(|file| file.split("\n---\n")) {
            store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
        }
        let scene = Scene { neutron, store, project, subnets, more: json!({}), dir };
        for (name, subnet) in &scene.subnets {
            scene.define(name, &json!({"subnetId": subnet}));
        }
        scene
    }

    /// The file of settings, for Neutron at this address.
    pub(crate) fn settings(&self, url: &str) -> PathBuf {
        self.settings_with(url, &json!({}))
    }

    /// With more keys of the file under `file`, of its `openstack` under that, and of its `openstack.neutron` under `neutron`.
    pub(crate) fn settings_with(&self, url: &str, more: &Value) -> PathBuf {
        let keys = |of: &str| [&self.more, more].into_iter().filter_map(|more| more[of].as_object().cloned()).flatten().collect::<Vec<_>>();
        let mut cloud = json!({"authType": "none", "endpointOverride": url});
        cloud.as_object_mut().unwrap().extend(keys("neutron"));
        let subnets: Vec<&String> = self.subnets.values().collect();
        let mut settings = json!({
            "cluster": self.project,
            // Tests count requests and ports. What is tried at the start has its own test.
            "checkRights": false,
            "openstack": {
                "kubernetes": {"multiVifDrivers": ["npwg_multiple_interfaces"]},
                "neutron": cloud,
                "neutronDefaults": {"project": self.project, "podSubnet": subnets[0]},
            },
            "policy": [{"name": "tests", "allow": {"neutron": {"subnets": subnets, "securityGroups": ["*"], "drivers": ["*"]}}}],
        });
        settings["openstack"].as_object_mut().unwrap().extend(keys("openstack"));
        settings.as_object_mut().unwrap().extend(keys("file"));
        let file = self.dir.join("openstack.yaml");
        std::fs::write(&file, settings.to_string()).unwrap();
        file
    }

    pub(crate) fn kubeconfig(&self, port: u16) -> PathBuf {
        kubeconfig_of(&self.dir, port)
    }

    pub(crate) fn options(&self, url: &str) -> Options {
        self.options_with(url, &json!({}))
    }

    pub(crate) fn options_with(&self, url: &str, more: &Value) -> Options {
        let openstack = OpenStack::read(Some(&self.settings_with(url, more)), None, None).unwrap();
        Options { lease: false, openstack: Some(openstack), log_level: LogLevel::Warn, ..Options::new("test") }
    }

    pub(crate) fn operator(&self) -> Running {
        self.operator_of(self.options(&self.neutron.url()))
    }

    pub(crate) fn operator_of(&self, options: Options) -> Running {
        start(self.store.client(), options)
    }

    /// An operator as a process of its own, until it has died at this crash point.
    pub(crate) async fn killed_at(&self, point: &str) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(self.store.clone().serve(listener));
        let mut child = crate::killed::begin(&self.settings(&self.neutron.url()), &self.kubeconfig(port), point);
        let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
        assert!(!ended.success(), "{point} was not reached");
        served.abort();
    }

    pub(crate) fn define(&self, name: &str, config: &Value) {
        drop(self.store.remove(NAD, "NetworkAttachmentDefinition", "default", name));
        let metadata = json!({"namespace": "default", "name": name, "annotations": {"openstack.org/kuryr-config": config.to_string()}});
        self.store.put(&json!({"apiVersion": NAD, "kind": "NetworkAttachmentDefinition", "metadata": metadata})).unwrap();
    }

    pub(crate) fn pod(&self, name: &str, node: &str, networks: &str) {
        self.pod_with(name, node, &json!({"k8s.v1.cni.cncf.io/networks": networks}));
    }

    /// On a node with this address, which the kubelet writes when it has seen the pod.
    pub(crate) fn pod_at(&self, name: &str, host_ip: &str, networks: &str) {
        self.pod(name, NODE, networks);
        self.say_address(name, host_ip);
    }

    /// The kubelet has seen the pod.
    pub(crate) fn say_address(&self, name: &str, host_ip: &str) {
        let metadata = json!({"namespace": "default", "name": name});
        let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"hostIP": host_ip}});
        assert!(self.store.merge(&status).unwrap());
    }

    pub(crate) fn pod_with(&self, name: &str, node: &str, annotations: &Value) {
        let metadata = json!({"namespace": "default", "name": name, "annotations": annotations});
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        self.store.put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap();
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        assert!(self.store.remove("v1", "Pod", "default", name).unwrap());
    }

    pub(crate) fn pods(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = self.store.objects("v1", "Pod").unwrap();
        all.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect()
    }

    pub(crate) fn kuryr_port(&self, name: &str) -> Option<Value> {
        self.store.objects(KURYR_PORT, "KuryrPort").unwrap().into_iter().find(|object| object["metadata"]["name"] == name)
    }

    /// `(interface, active)` of a pod's VIFs.
    pub(crate) fn vifs(&self, name: &str) -> Vec<(String, bool)> {
        let object = self.kuryr_port(name).unwrap_or_default();
        let vifs = object["status"]["vifs"].as_object().cloned().unwrap_or_default();
        let active = |vif: &Value| vif["vif"]["versioned_object.data"]["active"] == true;
        vifs.iter().map(|(interface, vif)| (interface.clone(), active(vif))).collect()
    }

    /// The oracle: the project's ports as the database has them.
    pub(crate) fn ports(&self) -> Vec<Row> {
        let rows = self.neutron.sql(&format!("SELECT id, device_id, status FROM ports WHERE project_id = '{}' ORDER BY id", self.project));
        let row = |row: Vec<String>| Row { id: row[0].clone(), device: row[1].clone(), status: row[2].clone() };
        rows.unwrap().into_iter().map(row).collect()
    }

    /// Ports of others in the network red: one without tags, one of another cluster, two of one that has the same name by mistake, whose pods nobody here
    /// knows.
    pub(crate) fn others(&self) -> Vec<String> {
        let named = format!("netloom:cluster={}", self.project);
        let of_namesake = vec![named.as_str(), "netloom:uid=another", "netloom:pod=x", "netloom:element=1"];
        let without_uid = vec![named.as_str(), "netloom:pod=x", "netloom:element=2"];
        let network =
            self.neutron.ask("GET", &format!("subnets/{}", self.subnets["red"]), &json!(null)).unwrap()["subnet"]["network_id"].clone();
        let of = [vec![], vec!["netloom:cluster=other", "netloom:pod=x", "netloom:element=1"], of_namesake, without_uid];
        let made = of.into_iter().map(|tags| {
            let port = json!({"port": {"network_id": network, "project_id": self.project, "tags": tags, "device_owner": "compute:kuryr"}});
            self.neutron.ask("POST", "ports", &port).unwrap()["port"]["id"].as_str().unwrap().to_owned()
        });
        made.collect()
    }

    /// These ports as the database has them, with how often each was changed.
    pub(crate) fn rows(&self, ids: &[String]) -> Vec<Vec<String>> {
        let ids = ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",");
        let statement = format!(
            "SELECT p.*, s.revision_number FROM ports p JOIN standardattributes s ON s.id = p.standard_attr_id WHERE p.id IN ({ids}) ORDER BY p.id"
        );
        self.neutron.sql(&statement).unwrap()
    }

    /// What an agent of Neutron reports of a plugged port.
    pub(crate) fn plug_all(&self) {
        self.neutron.sql(&format!("UPDATE ports SET status = 'ACTIVE' WHERE project_id = '{}'", self.project)).unwrap();
    }

    /// Messages of the Events of a pod; the store keeps them in their older form.
    pub(crate) fn events(&self, pod: &str) -> Vec<String> {
        let all = self.store.objects("events.k8s.io/v1", "Event").unwrap();
        let of = all.iter().filter(|event| event["involvedObject"]["name"] == pod);
        of.map(|event| format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())).collect()
    }

    /// These pods have so many ports each, and nobody else has any.
    pub(crate) fn assert_owned(&self, wanted: &[(&str, usize)]) {
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        self.ports().into_iter().for_each(|port| *of.entry(port.device).or_default() += 1);
        let pods: BTreeMap<String, String> = self.pods().into_iter().collect();
        let wanted: BTreeMap<String, usize> = wanted.iter().map(|&(pod, count)| (pods[pod].clone(), count)).collect();
        assert_eq!(of, wanted);
    }

    /// Each pod has so many ports, and nobody else has any, but for `others`.
    pub(crate) fn assert_ports(&self, each: usize, others: &[String]) {
        let mut of: BTreeMap<String, usize> = self.pods().into_iter().map(|(_, uid)| (uid, 0)).collect();
        for port in self.ports().iter().filter(|port| !others.contains(&port.id)) {
            *of.get_mut(&port.device).unwrap_or_else(|| panic!("nobody's port: {port:?}")) += 1;
        }
        assert!(of.values().all(|count| *count == each), "{of:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
