//! `netloom operator` as it is deployed, against a real API server: with its own token, killed, deposed, and with wrong objects.

#[path = "../../crates/operator/tests/scene/checker.rs"]
mod checker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netloom_tests::{netloom, seen_within};
use serde_json::{Value, json};
use testbed::ControlPlane;

/// A control plane with what is deployed, and the operator's own token.
struct Scene {
    plane: ControlPlane,
    config: PathBuf,
    log: PathBuf,
}

/// An operator. It ends with the test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Scene {
    fn new(name: &str) -> Scene {
        let dir = std::env::temp_dir().join(format!("netloom-operator-{name}-{}", std::process::id()));
        let plane = ControlPlane::start(&dir).unwrap();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy");
        for file in ["ippools.yaml", "operator.yaml"] {
            plane.kubectl(&["apply", "-f", deploy.join(file).to_str().unwrap()], "").unwrap();
        }
        for kind in ["ippools", "nodeippools", "ipledgershards"] {
            plane.served(&format!("{kind}.netloom.io")).unwrap();
        }
        let token = plane.kubectl(&["create", "token", "netloom-operator", "-n", "kube-system"], "").unwrap();
        let config = plane.write_kubeconfig("operator", token.trim()).unwrap();
        Scene { plane, config, log: dir.join("operator.log") }
    }

    fn operator(&self, name: &str, args: &[&str], vars: &[(&str, &str)]) -> Operator {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(netloom());
        command.args(["operator", "--identity", name, "--kubeconfig"]).arg(&self.config).args(args);
        Operator(command.envs(vars.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn apply(&self, object: &Value) {
        self.plane.apply(&object.to_string()).unwrap();
    }

    fn node(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
    }

    fn pool(&self, name: &str, spec: &Value) {
        self.apply(&json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name}, "spec": spec}));
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        let text = self.plane.kubectl(&["get", kind, "-o", "json"], "").unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
    }

    fn status(&self, node: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        self.plane.kubectl(&["patch", "nodeippool", node, "--subresource=status", "--type=merge", "-p", &patch], "").unwrap();
    }

    fn blocks(&self, node: &str) -> Vec<Value> {
        let all = self.list("nodeippools");
        let found = all.iter().find(|o| o["metadata"]["name"] == node);
        found.and_then(|o| o["spec"]["blocks"].as_array().cloned()).unwrap_or_default()
    }

    fn until(&self, what: &str, so: impl FnMut() -> bool) {
        let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(seen_within(Duration::from_secs(120), so, |so| *so).is_ok(), "not in time: {what}\n{}", log());
    }

    fn check(&self) {
        assert_eq!(checker::wrong(&self.list("nodeippools"), &self.list("ipledgershards")), Vec::<String>::new());
    }

    fn demand(&self, node: &str, v4: u64) {
        self.status(node, &json!({"demand": [{"pool": "p", "v4": v4, "inUseV4": 0}]}));
    }
}

fn plain() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}, "ipv6": {"entries": [{"cidr": "fd00::/64"}]}})
}

#[test]
fn it_grants_and_takes_back_with_its_own_token() {
    let scene = Scene::new("life");
    scene.node("a");
    scene.pool("p", &plain());
    let _operator = scene.operator("one", &[], &[]);
    scene.until("an object for the node", || !scene.list("nodeippools").is_empty());
    scene.status("a", &json!({"demand": [{"pool": "p", "v4": 32, "v6": 256}]}));
    scene.until("three blocks", || scene.blocks("a").len() == 3);
    scene.check();
    let first = scene.blocks("a")[0].clone();
    assert_eq!(first["cidr"], "10.0.0.0/28");
    // Whoever writes what it has read before is refused.
    let shard = scene.list("ipledgershards").iter().find(|s| s["spec"]["cells"]["0"]["node"] == "a").unwrap().clone();
    let steps =
        json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}, {"op": "add", "path": "/spec/cells", "value": {}}]);
    let args = ["patch", "ipledgershard", shard["metadata"]["name"].as_str().unwrap(), "--type=json", "-p", &steps.to_string()];
    let stale = scene.plane.try_kubectl(&args, "").unwrap();
    assert!(String::from_utf8_lossy(&stale.stderr).contains("the object has been modified"), "{stale:?}");

    let returning = json!([{"cidr": first["cidr"], "pool": "p", "epoch": first["epoch"]}]);
    scene.status("a", &json!({"demand": [{"pool": "p", "v4": 16, "v6": 256}], "returning": returning}));
    scene.until("one less", || scene.blocks("a").len() == 2);
    scene.status("a", &json!({"returning": []}));
    scene.until("that it is free", || {
        let shards = scene.list("ipledgershards");
        shards.iter().any(|s| s["spec"]["cells"]["0"]["state"] == "Free" && s["spec"]["cells"]["0"]["epoch"] == first["epoch"])
    });
    scene.status("a", &json!({"demand": [{"pool": "p", "v4": 32, "v6": 256}]}));
    scene.until("it again, in another life", || {
        let all = scene.blocks("a");
        all.len() == 3 && all[0]["cidr"] == first["cidr"] && all[0]["epoch"].as_u64() > first["epoch"].as_u64()
    });
    scene.check();
    // What people see.
    let table = scene.plane.kubectl(&["get", "ippools"], "").unwrap();
    assert!(table.contains("GRANTED4") && table.contains("254"), "{table}");
    // The pool stays until the node has given everything back.
    scene.plane.kubectl(&["delete", "ippool", "p", "--wait=false"], "").unwrap();
    scene.until("that it ends", || scene.list("nodeippools")[0]["spec"]["pools"]["p"]["ending"] == true);
    let returning: Vec<Value> = scene.blocks("a").iter().map(|b| json!({"cidr": b["cidr"], "pool": "p", "epoch": b["epoch"]})).collect();
    scene.status("a", &json!({"demand": [], "returning": returning}));
    scene.until("that it is gone", || scene.list("ippools").is_empty() && scene.blocks("a").is_empty());
}

#[test]
fn it_is_killed_behind_every_write_and_another_one_goes_on() {
    let scene = Scene::new("killed");
    ["a", "b"].iter().for_each(|node| scene.node(node));
    scene.pool("p", &plain());
    let mut wanted = [0, 0];
    for (i, point) in ["pool:1", "spec:1", "spec:2", "ledger:1", "ledger:2", "ledger:3", "spec:1", "pool:1", "spec:2"].iter().enumerate() {
        let at = format!("operator-{point}");
        let mut dying = scene.operator(&format!("dying-{i}"), &["--no-lease"], &[("NETLOOM_CRASH_AT", &at)]);
        scene.until("its end", || {
            stir(&scene, &mut wanted);
            dying.0.try_wait().unwrap().is_some()
        });
        scene.check();
    }
    // What tells that there is a ledger is written once.
    let marks = ["configmap", "netloom-ledgers", "-n", "kube-system"];
    scene.plane.kubectl(&[&["delete"], &marks[..]].concat(), "").unwrap();
    let mut dying = scene.operator("marks", &["--no-lease"], &[("NETLOOM_CRASH_AT", "operator-marks:1")]);
    scene.until("its end", || dying.0.try_wait().unwrap().is_some());
    assert!(scene.plane.kubectl(&[&["get", "-o", "yaml"], &marks[..]].concat(), "").unwrap().contains("p.v4:"));
    let _last = scene.operator("last", &["--no-lease"], &[]);
    scene.until("an object for each", || scene.list("nodeippools").len() == 2);
    ["a", "b"].iter().for_each(|node| scene.demand(node, 7 * 16));
    scene.until("all of it", || ["a", "b"].iter().all(|node| scene.blocks(node).len() == 7));
    scene.check();
}

/// A claim of one address of the pool `p`, its pod on node `a`, and `a`'s agent.
struct Claimed<'a> {
    scene: &'a Scene,
    name: String,
}

const CLAIMED: &str = "10.0.0.37";

impl Claimed<'_> {
    /// What a cluster with claims has besides.
    fn prepare(scene: &Scene) {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy");
        for file in ["definition.yaml", "ipamclaims.yaml"] {
            scene.plane.kubectl(&["apply", "-f", deploy.join(file).to_str().unwrap()], "").unwrap();
        }
        for kind in ["network-attachment-definitions", "ipamclaims"] {
            scene.plane.served(&format!("{kind}.k8s.cni.cncf.io")).unwrap();
        }
        scene.node("a");
        scene.pool("p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}, "reserved": ["10.0.0.32/28"]}));
        let network = json!({"cniVersion": "1.0.0", "name": "storage", "type": "bridge", "ipam": {"type": "pool", "pool": "p"}});
        scene.apply(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "storage", "namespace": "default"}, "spec": {"config": network.to_string()}}));
    }

    fn claim(&self) -> Option<Value> {
        self.scene.list("ipamclaims").into_iter().find(|claim| claim["metadata"]["name"] == self.name.as_str())
    }

    fn make(&self) {
        let spec = json!({"network": "storage", "interface": "net1", "ipRequests": [format!("{CLAIMED}/24")]});
        let metadata = json!({"name": self.name, "namespace": "default"});
        self.scene.apply(&json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": metadata, "spec": spec}));
    }

    /// What comes next in its life: its pod when it has its address, and its end when its node has it, if it is to end.
    fn goes_on(&self, to_its_end: bool) {
        let Some(claim) = self.claim() else { return self.node_tells() };
        let networks = json!([{"name": "storage", "ipam-claim-reference": self.name}]).to_string();
        let metadata = json!({"name": self.name, "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}});
        let spec = json!({"nodeName": "a", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x"}]});
        let ends = !claim["metadata"]["deletionTimestamp"].is_null();
        if !ends && claim["status"]["ips"] == json!([format!("{CLAIMED}/24")]) && !Self::is_told(&claim, "Delegated") {
            self.scene.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
        } else if !ends && to_its_end && Self::is_told(&claim, "Delegated") {
            let kubectl = |args: &[&str]| self.scene.plane.kubectl(args, "").unwrap();
            kubectl(&["delete", "ipamclaim", &self.name, "--wait=false"]);
            kubectl(&["delete", "pod", &self.name, "--force", "--grace-period=0"]);
        }
        self.node_tells();
    }

    /// No container has anything that is to be returned.
    fn node_tells(&self) {
        let ending: Vec<Value> = self.granted().into_iter().filter(|ip| ip["ending"] == true).collect();
        let returning = ending.iter().map(|ip| json!({"cidr": format!("{CLAIMED}/32"), "pool": "p", "epoch": ip["epoch"]}));
        let status = json!({"returning": returning.collect::<Vec<_>>()});
        if self.scene.list("nodeippools").iter().any(|object| object["metadata"]["name"] == "a") {
            self.scene.status("a", &status);
        }
    }

    fn is_told(claim: &Value, kind: &str) -> bool {
        claim["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
    }

    /// Single addresses that the node has.
    fn granted(&self) -> Vec<Value> {
        self.scene.list("nodeippools").iter().flat_map(|object| object["spec"]["ips"].as_array().cloned().unwrap_or_default()).collect()
    }

    /// Single addresses that the ledger keeps for somebody, or has as a node's.
    fn entered(&self) -> Vec<Value> {
        let shards = self.scene.list("ipledgershards");
        let cells = shards.iter().flat_map(|shard| shard["spec"]["cells"].as_object().into_iter().flatten());
        let ips = cells.flat_map(|(_, cell)| cell["ips"].as_object().into_iter().flatten());
        ips.filter(|(_, ip)| ip["owner"].as_object().is_some_and(|o| !o.is_empty()) || !ip["nodeUID"].is_null())
            .map(|(_, ip)| ip.clone())
            .collect()
    }

    /// The claim says that its pod's node has the address, and the ledger and the node's object say the same, once.
    fn is_its_nodes(&self) -> bool {
        let (Some(claim), entered, granted) = (self.claim(), self.entered(), self.granted()) else { return false };
        let ([entry], [grant]) = (entered.as_slice(), granted.as_slice()) else { return false };
        let owner = json!({"claim": format!("default/{}", self.name), "claimUID": claim["metadata"]["uid"]});
        let told = Self::is_told(&claim, "IPsAllocated") && Self::is_told(&claim, "Delegated");
        let ledger = entry["owner"] == owner && entry["node"] == "a" && entry["returning"].is_null() && entry["second"].is_null();
        let spec = grant["owner"] == owner && grant["ip"] == CLAIMED && grant["epoch"] == entry["epoch"] && grant["ending"].is_null();
        told && claim["status"]["ips"] == json!([format!("{CLAIMED}/24")]) && ledger && spec
    }
}

/// The writes of a claim's life: its finalizer, that it is seen to, its address, that its node is given it, that it has it, its finalizer
/// again.
#[test]
fn it_is_killed_behind_every_write_of_a_claim_and_another_one_goes_on() {
    const WRITES: usize = 6;
    let scene = Scene::new("claim");
    Claimed::prepare(&scene);
    for n in 1..=WRITES {
        let claimed = Claimed { scene: &scene, name: format!("db-{n}") };
        let at = format!("operator-claim:{n}");
        let mut dying = scene.operator(&format!("dying-{n}"), &["--no-lease"], &[("NETLOOM_CRASH_AT", &at)]);
        claimed.make();
        scene.until(&format!("its end behind write {n}"), || {
            claimed.goes_on(n == WRITES);
            dying.0.try_wait().unwrap().is_some()
        });
        scene.check();
        let _next = scene.operator(&format!("next-{n}"), &["--no-lease"], &[]);
        if n < WRITES {
            scene.until("that its node has it", || {
                claimed.goes_on(false);
                claimed.is_its_nodes()
            });
            scene.check();
        }
        scene.until("that all of it is free", || {
            claimed.goes_on(true);
            claimed.claim().is_none() && claimed.entered().is_empty() && claimed.granted().is_empty()
        });
        scene.check();
    }
}

/// Each node needs a block more, or gives back all: there is always something to write.
fn stir(scene: &Scene, wanted: &mut [u64; 2]) {
    let there = scene.list("nodeippools");
    for (node, wanted) in ["a", "b"].iter().zip(wanted) {
        if !there.iter().any(|object| object["metadata"]["name"] == *node) {
            continue;
        }
        *wanted = (*wanted + 16) % (8 * 16);
        let blocks = if *wanted == 0 { scene.blocks(node) } else { Vec::new() };
        let returning: Vec<Value> = blocks.iter().map(|b| json!({"cidr": b["cidr"], "pool": "p", "epoch": b["epoch"]})).collect();
        scene.status(node, &json!({"demand": [{"pool": "p", "v4": *wanted}], "returning": returning}));
    }
}

#[test]
fn two_that_work_at_once_do_no_harm_and_the_server_dies_meanwhile() {
    let mut scene = Scene::new("two");
    ["a", "b"].iter().for_each(|node| scene.node(node));
    scene.pool("p", &plain());
    let _operators = ["one", "two"].map(|name| scene.operator(name, &["--no-lease"], &[]));
    scene.until("an object for each", || scene.list("nodeippools").len() == 2);
    let mut wanted = [0, 0];
    for round in 0..24 {
        stir(&scene, &mut wanted);
        scene.check();
        if round == 12 {
            scene.plane.kill_api().unwrap();
            scene.plane.start_api().unwrap();
        }
    }
    ["a", "b"].iter().for_each(|node| scene.demand(node, 7 * 16));
    scene.until("all of it", || ["a", "b"].iter().all(|node| scene.blocks(node).len() == 7));
    scene.check();
}

#[test]
fn another_one_takes_over_when_the_first_is_killed() {
    let scene = Scene::new("lease");
    scene.node("a");
    scene.pool("p", &plain());
    let first = scene.operator("first", &[], &[]);
    let holder =
        || scene.plane.kubectl(&["get", "lease", "-n", "kube-system", "netloom-operator", "-o", "jsonpath={.spec.holderIdentity}"], "");
    scene.until("the first one", || holder().is_ok_and(|h| h == "first"));
    let _second = scene.operator("second", &[], &[]);
    scene.until("an object for the node", || !scene.list("nodeippools").is_empty());
    drop(first);
    scene.demand("a", 16);
    scene.until("a block by the second one", || scene.blocks("a").len() == 1);
    assert_eq!(holder().unwrap(), "second");
    scene.check();
}

#[test]
fn the_api_server_refuses_what_cannot_be() {
    let scene = Scene::new("cel");
    let refused = |spec: Value, why: &str| {
        let object = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "p"}, "spec": spec});
        let output = scene.plane.try_kubectl(&["apply", "-f", "-"], &object.to_string()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{spec}: {said}");
    };
    refused(json!({}), "spec has no addresses");
    refused(json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24", "ip": "10.0.0.1"}]}}), "an entry has one of cidr, range and ip");
    refused(json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/33"}]}}), "spec.ipv4.entries[0].cidr");
    refused(json!({"ipv4": {"entries": [{"range": "10.0.0.1"}]}}), "spec.ipv4.entries[0].range");
    refused(json!({"ipv4": {"entries": []}}), "should have at least 1 items");
    refused(json!({"ipv4": {"entries": [{"ip": "10.0.0.1"}]}, "reuse": {"order": "any"}}), "spec.reuse.order");
    scene.pool("p", &plain());
    refused(json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 27}}), "blockPrefix cannot be changed");
    refused(
        json!({"network": "other", "ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}}),
        "spec.network cannot be changed",
    );
    // A shard is of what it was made for.
    let shard = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPLedgerShard", "metadata": {"name": "p.v4"},
        "spec": {"network": "p", "base": "0.0.0.0/0", "cellPrefix": 28}});
    scene.apply(&shard);
    let args = ["patch", "ipledgershard", "p.v4", "--type=merge", "-p", r#"{"spec": {"cellPrefix": 26}}"#];
    let changed = scene.plane.try_kubectl(&args, "").unwrap();
    assert!(String::from_utf8_lossy(&changed.stderr).contains("what a shard is of cannot be changed"), "{changed:?}");
}

/// Definitions that an older release has left: nothing is granted as long as the API server keeps nothing of what they do not know. The
/// log says so, and with the new ones it goes on.
#[test]
fn nothing_is_granted_by_definitions_that_are_older() {
    let scene = Scene::new("older");
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/gathering";
    let patch = json!([{"op": "remove", "path": field}]).to_string();
    scene.plane.kubectl(&["patch", "crd", "ipledgershards.netloom.io", "--type=json", "-p", &patch], "").unwrap();
    // A network that had a ledger: a root that is made anew has to say that it gathers.
    let metadata = json!({"name": "netloom-ledgers", "namespace": "kube-system"});
    scene.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"p.v4": "", "p.v6": ""}}));
    scene.node("a");
    scene.pool("p", &plain());
    let _operator = scene.operator("one", &[], &[]);
    scene.until("it tells of the definition", || {
        std::fs::read_to_string(&scene.log)
            .unwrap_or_default()
            .lines()
            .any(|line| line.contains("gathering") && line.contains("deploy/ippools.yaml"))
    });
    assert_eq!(scene.list("ipledgershards"), Vec::<Value>::new());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy").join("ippools.yaml");
    scene.plane.kubectl(&["apply", "-f", deploy.to_str().unwrap()], "").unwrap();
    let gathers = |shard: &Value| shard["metadata"]["name"] == "p.v4" && shard["spec"]["gathering"] == json!(true);
    scene.until("the root", || scene.list("ipledgershards").iter().any(gathers));
}
