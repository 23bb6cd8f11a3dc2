//! `ipam: crd` with an operator that the test plays: what the node's object says, pods have, and what pods have, the object says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kube::api::{Api as Kinds, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use objects::Store;
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::api::{Api, connect_by, definition, pod};
use crate::world::{Of, World, until};

/// Whoever fills the object.
pub(crate) struct Operator {
    runtime: tokio::runtime::Runtime,
    nodes: Kinds<DynamicObject>,
}

/// The kind of the objects.
pub(crate) fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2", "CiliumNode"))
}

impl Operator {
    pub(crate) fn new(api: &impl Api) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = {
            let _inside = runtime.enter();
            (api.connect())().client()
        };
        Operator { runtime, nodes: Kinds::all_with(client, &kind()) }
    }

    /// As soon as the kind is served.
    pub(crate) fn create(&self, spec: Value) {
        let node = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "n1"}, "spec": spec});
        let node: DynamicObject = serde_json::from_value(node).unwrap();
        until("the kind", || self.runtime.block_on(self.nodes.create(&PostParams::default(), &node)).map(drop), Result::is_ok);
    }

    pub(crate) fn spec(&self, ipam: Value) {
        let patch = Patch::Merge(json!({"spec": {"ipam": ipam}}));
        self.runtime.block_on(self.nodes.patch("n1", &PatchParams::default(), &patch)).unwrap();
    }

    pub(crate) fn status(&self, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.runtime.block_on(self.nodes.patch_status("n1", &PatchParams::default(), &patch)).unwrap();
    }

    pub(crate) fn get(&self) -> Value {
        serde_json::to_value(self.runtime.block_on(self.nodes.get("n1")).unwrap()).unwrap()
    }

    pub(crate) fn used(&self) -> Value {
        self.get()["status"]["ipam"]["used"].clone()
    }

    /// Waits until the status says so.
    pub(crate) fn says(&self, what: &str, expected: &Value) {
        until(what, || self.get()["status"]["ipam"].clone(), |ipam| ipam["used"] == *expected);
    }

    pub(crate) fn released(&self, what: &str, expected: &Value) {
        until(what, || self.get()["status"]["ipam"]["release-ips"].clone(), |release| release == expected);
    }
}

/// A node whose pods have their addresses of its object.
pub(crate) fn world(api: &impl Api, more: Value) -> World {
    patient_world(api, more, 1)
}

/// The same; an ADD waits for so many seconds until there is an address.
pub(crate) fn patient_world(api: &impl Api, more: Value, add_wait: u32) -> World {
    let bridge = json!({"type": "bridge", "bridge": "br-pods", "isGateway": true, "ipam": {"type": "pool", "addWait": add_wait}});
    let mut settings = json!({
        "ipam": "crd", "ipamBridge": "none", "ipamPrefixIPv4": 24, "ciliumNodeUpdateRate": "200ms",
        "delegates": [{"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}],
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    World::with(api, settings, true)
}

pub(crate) fn pool(addresses: &[&str]) -> Value {
    addresses.iter().map(|address| ((*address).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>().into()
}

/// A pod of the node, its sandbox, and its address.
pub(crate) fn start(api: &impl Api, world: &World, name: &str) -> Result<String, String> {
    if api.pod(name).is_none() {
        api.put(&pod(name, ""));
        world.sandbox(name);
    }
    world.call("ADD", Of { pod: name, uid: "" }).map_err(|(code, msg)| format!("{code} {msg}")).map(|result| {
        let ip = &result["ips"][0];
        let address = ip["address"].as_str().unwrap();
        let (subnet, _) = address.rsplit_once('.').unwrap();
        assert_eq!(ip["gateway"], format!("{subnet}.1"), "{result}");
        address.to_owned()
    })
}

/// The example of Cilium's documentation, and then all that an operator may do.
fn suite(api: &impl Api, administrator: &impl Api, show: impl Fn(&str)) {
    let mut world = world(api, json!({}));
    let operator = Operator::new(administrator);
    let waits = || world.agent().waits_for().unwrap_or_default();
    assert_eq!(waits(), "waiting for the CiliumNode of n1");
    operator.create(json!({"ipam": {"pool": {"192.168.1.1": {}, "eth0": {}}}, "eni": {"kept": true}}));
    until("one is too few", waits, |why| why.ends_with("1 of 2 are in spec.ipam.pool"));
    let refused = start(api, &world, "early").unwrap_err();
    assert!(refused.starts_with("11 ") && refused.contains("\"default\""), "{refused}");
    until("that it has nothing, and no more is told before", || operator.used(), |used| *used == json!({}));

    let four = ["192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4"];
    operator.spec(json!({"pool": {"192.168.1.2": {"resource": "eni-2"}, "192.168.1.3": {}, "192.168.1.4": {}}}));
    operator.status(json!({"eni": {"enis": {"x": 1}}}));
    let own = json!({"192.168.1.1": {"owner": "router"}, "192.168.1.2": {"owner": "health", "resource": "eni-2"}});
    operator.says("router and health", &own);
    show("two of four");
    assert_eq!(start(api, &world, "a").unwrap(), "192.168.1.3/24");
    assert_eq!(start(api, &world, "b").unwrap(), "192.168.1.4/24");
    let full = start(api, &world, "c").unwrap_err();
    assert!(full.starts_with("11 ") && full.contains("no free IPv4 address"), "{full}");
    let mut all = own.clone();
    all["192.168.1.3"] = json!({"owner": "default/a"});
    all["192.168.1.4"] = json!({"owner": "default/b"});
    operator.says("all four", &all);
    show("four of four");
    let object = operator.get();
    assert_eq!((&object["status"]["eni"]["enis"]["x"], &object["spec"]["eni"]["kept"]), (&json!(1), &json!(true)), "the rest is kept");

    in_use_and_taken_away(api, &mut world, &operator, &four, &all);
    handshake(api, &world, &operator);
    pins(api, &world, &operator);
    assert_eq!(world.links("a"), [""; 0]);
}

/// An address in use leaves the pool: the pod keeps it, over a restart too, and it goes to nobody else.
fn in_use_and_taken_away(api: &impl Api, world: &mut World, operator: &Operator, four: &[&str], all: &Value) {
    operator.spec(json!({"pool": {"192.168.1.3": null}}));
    world.restart(api);
    world.ok("CHECK", "a");
    // Who answers has read that it is gone.
    operator.status(json!({"ipam": {"release-ips": {"192.168.1.3": "marked-for-release"}}}));
    operator.released("the answer", &json!({"192.168.1.3": "do-not-release"}));
    operator.status(json!({"ipam": {"release-ips": {"192.168.1.3": null}}}));
    operator.says("it is still used", all);
    world.ok("DEL", "a");
    let mut less = all.clone();
    less.as_object_mut().unwrap().remove("192.168.1.3");
    operator.says("it is not", &less);
    assert!(start(api, world, "c").unwrap_err().starts_with("11 "));
    operator.spec(json!({"pool": pool(four)}));
    until("what comes", || start(api, world, "c"), |got| got.as_deref() == Ok("192.168.1.3/24"));
}

/// Four words: an address that a pod has is not released, one that nobody has is never handed out from then on.
fn handshake(api: &impl Api, world: &World, operator: &Operator) {
    operator.spec(json!({"pool": pool(&["192.168.1.5"])}));
    let marked = json!({"192.168.1.1": "marked-for-release", "192.168.1.3": "marked-for-release",
        "192.168.1.5": "marked-for-release", "192.168.1.99": "marked-for-release"});
    operator.status(json!({"ipam": {"release-ips": marked}}));
    operator.released(
        "answers",
        &json!({"192.168.1.1": "do-not-release", "192.168.1.3": "do-not-release",
        "192.168.1.5": "ready-for-release", "192.168.1.99": "do-not-release"}),
    );
    assert!(start(api, world, "d").unwrap_err().starts_with("11 "), "it was promised");
    operator.status(json!({"ipam": {"release-ips":
        {"192.168.1.1": null, "192.168.1.3": null, "192.168.1.99": null, "192.168.1.5": "released"}}}));
    operator.spec(json!({"pool": {"192.168.1.5": null}}));
    until("the last word", || operator.get()["status"]["ipam"]["release-ips"].clone(), |left| *left == Value::Null || *left == json!({}));
}

/// An address that is one pod's.
fn pins(api: &impl Api, world: &World, operator: &Operator) {
    seen(operator, "eni-7", json!({"192.168.1.7": {"owner": "default/d"}}));
    assert!(start(api, world, "e").unwrap_err().starts_with("11 "));
    assert_eq!(start(api, world, "d").unwrap(), "192.168.1.7/24");
    claims(api, world, operator);
    for name in ["b", "c", "d", "f"] {
        world.ok("DEL", name);
    }
    let own = json!({"192.168.1.1": {"owner": "router", "resource": "eni-8"}, "192.168.1.2": {"owner": "health", "resource": "eni-2"}});
    operator.says("nobody has anything", &own);
}

/// The pool as the operator changes it, as soon as the agent has seen that: it tells the router's resource.
fn seen(operator: &Operator, resource: &str, mut pool: Value) {
    pool["192.168.1.1"] = json!({"resource": resource});
    operator.spec(json!({"pool": pool}));
    until("it is seen", || operator.used()["192.168.1.1"]["resource"].clone(), |said| said == resource);
}

/// A pod that names a claim: no claim has an address here, and what the object keeps for the pod it gets.
fn claims(api: &impl Api, world: &World, operator: &Operator) {
    let second =
        json!({"cniVersion": "1.0.0", "name": "second", "type": "bridge", "bridge": "br-second", "ipam": {"type": "pool", "addWait": 1}});
    let mut definition = definition("second", "10.0.0.0/24");
    definition["spec"]["config"] = json!(second.to_string());
    api.put(&definition);
    api.put(&pod("f", r#"[{"name": "second", "ipam-claim-reference": "db"}]"#));
    world.sandbox("f");
    seen(operator, "eni-8", json!({"192.168.1.8": {"owner": "default/f"}, "192.168.1.9": {"owner": "default/f"}}));
    assert_eq!(start(api, world, "f").unwrap(), "192.168.1.8/24");
    until("both", || operator.used()["192.168.1.9"]["owner"].clone(), |owner| owner == "default/f");
}

#[test]
fn an_operator_and_pods_on_the_store() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    suite(&store, &store, |_| {});
}

/// A real API server, on which the agent may do what the manifests allow, and nothing else.
pub(crate) struct Restricted {
    pub(crate) plane: ControlPlane,
    kubeconfig: PathBuf,
}

impl Restricted {
    pub(crate) fn new(name: &str) -> Self {
        let plane = ControlPlane::start(std::env::temp_dir().join(format!("netloom-cilium-{name}-{}", std::process::id()))).unwrap();
        plane.define_networks().unwrap();
        plane.allow_agents().unwrap();
        plane.apply(include_str!("../../../../deploy/cilium-crd/access.yaml")).unwrap();
        plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}).to_string()).unwrap();
        let token = plane.agent_token("n1").unwrap();
        let kubeconfig = plane.write_kubeconfig("agent", &token).unwrap();
        Restricted { plane, kubeconfig }
    }

    /// What the agent is told that does this.
    fn denied(&self, args: &[&str]) -> String {
        let out = self.plane.try_kubectl(&[&["--kubeconfig", self.kubeconfig.to_str().unwrap()], args].concat(), "").unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    }
}

impl Api for Restricted {
    fn put(&self, object: &Value) {
        self.plane.put(object);
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.plane.pod(name)
    }

    fn remove_pod(&self, name: &str) {
        self.plane.remove_pod(name);
    }

    fn events(&self, pod: &str) -> Vec<(String, String, String)> {
        self.plane.events(pod)
    }

    fn connect(&self) -> Box<dyn FnOnce() -> cluster::Connection + Send> {
        connect_by(self.kubeconfig.clone())
    }
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn an_operator_and_pods_on_a_real_api_server() {
    let api = Restricted::new("suite");
    suite(&api, &api.plane, |what| {
        let table = api.plane.kubectl(&["get", "cn"], "").unwrap();
        assert!(table.contains("n1"), "{what}: {table}");
    });
    // What an agent may not do, now that it has done all that it does.
    let other = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "n2"}, "spec": {}});
    api.plane.put(&other);
    let status = r#"{"status": {"ipam": {"used": {"10.0.0.1": {"owner": "x"}}}}}"#;
    let patch = |name, more: &[&str]| api.denied(&[&["patch", "cn", name, "--type=merge"], more].concat());
    assert_eq!(patch("n1", &["--subresource=status", "-p", status]), "");
    until("another node's", || patch("n2", &["--subresource=status", "-p", status]), |said| said.contains("of its own node only"));
    let spec = patch("n1", &["-p", r#"{"spec": {"ipam": {"pool": {"10.0.0.9": {}}}}}"#]);
    assert!(spec.contains("an agent changes nothing of a CiliumNode but its status"), "{spec}");
    let deleted = api.denied(&["delete", "cn", "n1"]);
    assert!(deleted.contains("an agent changes nothing of a CiliumNode but its status"), "{deleted}");
    // The manifest is what agents register.
    let text = include_str!("../../../../deploy/cilium-crd/ciliumnodes.yaml");
    let manifest: Value =
        serde_json::from_str(&api.plane.kubectl(&["create", "--dry-run=client", "-o", "json", "-f", "-"], text).unwrap()).unwrap();
    assert_eq!(manifest["spec"], cluster::cilium_node_definition()["spec"]);
}

#[test]
fn an_api_server_that_is_away_and_an_object_that_is_gone_change_nothing() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let mut world = world(&store, json!({}));
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": {"pool": pool(&["192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4"])}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    assert_eq!(start(&store, &world, "a").unwrap(), "192.168.1.3/24");
    Api::put(&store, &pod("b", ""));
    until("the pod", || world.agent().knows("default", "b"), |known| *known);
    assert!(store.remove("cilium.io/v2", "CiliumNode", "", "n1").unwrap());
    world.sandbox("b");
    world.ok("ADD", "b");
    world.ok("DEL", "b");
    world.restart(&store);
    // The object comes again, as another one: what is in use is told to it.
    operator.create(json!({"ipam": {"pool": pool(&["192.168.1.9"])}}));
    operator.says(
        "what it holds",
        &json!({"192.168.1.1": {"owner": "router"}, "192.168.1.2": {"owner": "health"}, "192.168.1.3": {"owner": "default/a"}}),
    );
    world.ok("DEL", "a");
}

/// Its own addresses: what other tests' namespaces have nobody here knows, and it is kept from pods.
#[test]
fn a_node_that_has_lost_its_journal_says_no_less_than_before() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let mut world = patient_world(&store, json!({}), 30);
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": {"pool": pool(&["192.168.77.1", "192.168.77.2", "192.168.77.3", "192.168.77.4"])}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    assert_eq!(start(&store, &world, "a").unwrap(), "192.168.77.3/24");
    let pods = json!({"owner": "default/a"});
    until("it is told", || operator.used()["192.168.77.3"].clone(), |by| *by == pods);
    let (looks, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let nodes = store.objects("cilium.io/v2", "CiliumNode").unwrap();
                assert_eq!(nodes[0]["status"]["ipam"]["used"]["192.168.77.3"], pods);
                looks.fetch_add(1, Ordering::Relaxed);
                // Sleeps: between two looks.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let ended = Ended(&stop);
        until("a look", || looks.load(Ordering::Relaxed), |count| *count > 0);
        let before = looks.load(Ordering::Relaxed);
        world.restart_after(&store, |journal| std::fs::remove_dir_all(journal).unwrap());
        until("ready", || world.agent().waits_for(), Option::is_none);
        world.ok("CHECK", "a");
        assert_eq!(start(&store, &world, "b").unwrap(), "192.168.77.4/24");
        until("the next one is told", || operator.used()["192.168.77.4"].clone(), |by| *by == json!({"owner": "default/b"}));
        until("a look meanwhile", || looks.load(Ordering::Relaxed), |count| *count > before);
        drop(ended);
    });
    assert_eq!(operator.used()["192.168.77.1"], json!({"owner": "router"}), "the one that it had");
    world.ok("DEL", "a");
    world.ok("DEL", "b");
    until("nobody has anything", || operator.used(), |used| used.as_object().is_some_and(|used| used.len() == 2));
}

/// Its object is gone as well, and comes again empty: that nothing is known of its pods is not that it has none.
#[test]
fn a_node_that_has_lost_everything_does_not_say_that_it_has_nothing() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let mut world = world(&store, json!({}));
    let operator = Operator::new(&store);
    let four = pool(&["192.168.78.1", "192.168.78.2", "192.168.78.3", "192.168.78.4"]);
    operator.create(json!({"ipam": {"pool": four}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    assert_eq!(start(&store, &world, "a").unwrap(), "192.168.78.3/24");
    world.restart_after(&store, |journal| {
        std::fs::remove_dir_all(journal).unwrap();
        assert!(store.remove("cilium.io/v2", "CiliumNode", "", "n1").unwrap());
    });
    operator.create(json!({"ipam": {"pool": {}}}));
    until(
        "its object is seen",
        || world.agent().waits_for(),
        |why| why.as_ref().is_some_and(|why| why.ends_with("0 of 2 are in spec.ipam.pool")),
    );
    // Sleeps: that nothing is written shows in time alone.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(operator.used(), Value::Null);
    operator.spec(json!({"pool": four}));
    until("the pod's", || operator.used()["192.168.78.3"].clone(), |by| *by == json!({"owner": "default/a"}));
    world.ok("DEL", "a");
}

/// Every ADD and DEL changes what is used.
#[test]
fn many_pods_cost_few_writes() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let world = world(&store, json!({"ciliumNodeUpdateRate": "1h"}));
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": {"pool": {"192.168.1.0/24": {}}}}));
    until("router and health", || operator.used(), |used| used.as_object().is_some_and(|used| used.len() == 2));
    let writes = || store.requests().get(&("update", "ciliumnodes.cilium.io/status".to_owned())).copied().unwrap_or_default();
    let before = writes();
    assert!(before >= 1, "{:?}", store.requests());
    for n in 0..5 {
        let name = format!("p{n}");
        assert!(start(&store, &world, &name).unwrap().starts_with("192.168.1."));
        world.ok("DEL", &name);
    }
    assert_eq!(writes(), before);
    // Sleeps: that nothing is written shows in time alone.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(writes(), before);
}

/// An operator that takes addresses back as fast as it can, while pods come and go: what it was promised no pod has.
#[test]
fn what_is_promised_no_pod_has() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let world = world(&store, json!({"ciliumNodeUpdateRate": "1ms"}));
    let operator = Operator::new(&store);
    let all: Vec<String> = (1..=6).map(|n| format!("192.168.1.{n}")).collect();
    operator.create(json!({"ipam": {"pool": pool(&all.iter().map(String::as_str).collect::<Vec<_>>())}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    let promised = |address: &str| {
        let nodes = store.objects("cilium.io/v2", "CiliumNode").unwrap();
        let said = nodes[0]["status"]["ipam"]["release-ips"][address].clone();
        ["ready-for-release", "released"].iter().any(|word| said == *word)
    };
    let done = AtomicBool::new(false);
    let (taken, added) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for n in 0..2 {
            let (world, store, done, added) = (&world, &store, &done, &added);
            scope.spawn(move || {
                let name = format!("p{n}");
                while !done.load(Ordering::Relaxed) {
                    let Ok(address) = start(store, world, &name) else { continue };
                    let address = address.trim_end_matches("/24");
                    for _ in 0..3 {
                        assert!(!promised(address), "{address}");
                    }
                    added.fetch_add(1, Ordering::Relaxed);
                    world.ok("DEL", &name);
                }
            });
        }
        let ended = Ended(&done);
        let begun = Instant::now();
        let enough = || taken.load(Ordering::Relaxed) >= 20 && added.load(Ordering::Relaxed) >= 20;
        for round in (0..).take_while(|round| *round < ROUNDS || !enough() && begun.elapsed() < Duration::from_secs(300)) {
            let address = &all[round % all.len()];
            operator.status(json!({"ipam": {"release-ips": {address: "marked-for-release"}}}));
            let answer = || operator.get()["status"]["ipam"]["release-ips"][address].clone();
            until("an answer", answer, |said| said != "marked-for-release");
            if answer() == "do-not-release" {
                operator.status(json!({"ipam": {"release-ips": {address: null}}}));
                continue;
            }
            taken.fetch_add(1, Ordering::Relaxed);
            if round % 3 == 0 {
                // It has thought better of it.
                operator.status(json!({"ipam": {"release-ips": {address: null}}}));
                continue;
            }
            operator.status(json!({"ipam": {"release-ips": {address: "released"}}}));
            operator.spec(json!({"pool": {address: null}}));
            until("the last word", answer, Value::is_null);
            operator.spec(json!({"pool": {address: {}}}));
        }
        drop(ended);
    });
    let (taken, added) = (taken.into_inner(), added.into_inner());
    assert!(taken >= 20 && added >= 20, "{taken} were taken back, {added} pods came");
}

const ROUNDS: usize = 150;

/// Lets the others end, whatever happens.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
