//! Addresses of a cluster: a real API server, the real operator, agents as nodes have them. Judged by results, by `ip`, by pings,
//! and by what the API server has.

mod agreement;
mod changes;
mod claims;
mod cluster;
mod etcd_restored;
mod examples;
mod killed;
mod large;
mod networks;
mod node_gone;
mod pool_plugin;
mod ranges;
mod recreated_node;
mod selects;
mod soak;
mod twice;
mod unknown;

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use netloom_tests::{Api, Node, Outcome, Pod, netloom, seen_within};
use serde_json::{Value, json};

/// Where our kinds are.
const KINDS: &str = "/apis/netloom.io/v1alpha1";

/// A cluster of its own: an API server with our kinds, and an operator.
struct Cluster {
    api: Arc<Api>,
    dir: std::path::PathBuf,
    /// What operators get besides.
    options: Vec<String>,
    operator: Option<Child>,
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        let mut cluster = Cluster::without_operator(name, &[]);
        cluster.operate();
        cluster
    }

    /// One whose operators will have these options.
    fn without_operator(name: &str, options: &[&str]) -> Cluster {
        let api = Api::kubernetes();
        let dir = std::env::temp_dir().join(format!("nl-granted-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("kubeconfig"), api.kubeconfig("admin")).unwrap();
        let cluster = Cluster { api, dir, options: options.iter().map(|&o| o.to_owned()).collect(), operator: None };
        cluster.define();
        cluster
    }

    /// Has our kinds served.
    fn define(&self) {
        let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/ippools.yaml");
        self.api.plane().kubectl(&["apply", "-f", kinds], "").expect("our kinds");
        let served = ["crd/ippools.netloom.io", "crd/nodeippools.netloom.io", "crd/ipledgershards.netloom.io"];
        let wait = [&["wait", "--for=condition=Established", "--timeout=120s"], &served[..]].concat();
        self.api.plane().kubectl(&wait, "").expect("they are established");
        ["ippools", "nodeippools", "ipledgershards"].iter().for_each(|kind| drop(self.list(kind)));
    }

    /// Gives operators the token that they have where they are deployed, and no more rights.
    fn deploy_operator(&self) {
        let plane = self.api.plane();
        plane.kubectl(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/operator.yaml")], "").unwrap();
        let token = plane.kubectl(&["create", "token", "netloom-operator", "-n", "kube-system"], "").unwrap();
        std::fs::write(self.dir.join("kubeconfig"), self.api.kubeconfig(token.trim())).unwrap();
    }

    /// Starts an operator.
    fn operate(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(netloom()).args(["operator", "--no-lease", "--identity", "one", "--kubeconfig"]);
        let log = File::options().create(true).append(true).open(self.dir.join("operator.log")).unwrap();
        command.arg(self.dir.join("kubeconfig")).args(&self.options).stderr(log).stdout(Stdio::null());
        self.operator = Some(command.spawn().unwrap());
    }

    /// Waits until something holds, for ten minutes at most: some of it is about a thousand nodes.
    fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        assert!(seen_within(Duration::from_secs(600), holds, |holds| *holds).is_ok(), "not within 600 s: {what}");
    }

    /// Ends it with SIGKILL.
    fn stop_operator(&mut self) {
        if let Some(mut operator) = self.operator.take() {
            operator.kill().unwrap();
            operator.wait().unwrap();
        }
    }

    fn pool(&self, name: &str, spec: &Value) {
        let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name}, "spec": spec});
        // A server that has just started asks for patience (429).
        self.until("the pool is taken", || match self.api.ask("POST", &format!("{KINDS}/ippools"), &pool) {
            (201, _) => true,
            (429 | 503, _) => false,
            (code, said) => panic!("{code} {said}"),
        });
    }

    /// A node whose pods have addresses of the pool `lab`; its agent runs.
    fn node(&self, name: &str) -> Node {
        self.join(name);
        let node = Node::new(&self.api, name, "");
        configure(&node, "lab", "");
        node.restart();
        node
    }

    /// Makes a Node; its UID.
    fn join(&self, name: &str) -> String {
        let made = self.api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// All objects of one of our kinds. A server that has just started asks for patience (429).
    fn list(&self, kind: &str) -> Vec<Value> {
        let mut list = Value::Null;
        self.until("the list", || {
            let (code, said) = self.api.ask("GET", &format!("{KINDS}/{kind}"), &Value::Null);
            list = said;
            code == 200
        });
        list["items"].as_array().unwrap().clone()
    }

    fn object(&self, node: &str) -> Value {
        self.api.ask("GET", &format!("{KINDS}/nodeippools/{node}"), &Value::Null).1
    }

    fn blocks(&self, node: &str) -> Vec<String> {
        let object = self.object(node);
        object["spec"]["blocks"].as_array().into_iter().flatten().map(|b| b["cidr"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_operator();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("operator.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the operator:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The default network of the node's pods: a bridge, with addresses of a pool. `more` are other settings, in YAML.
fn configure(node: &Node, pool: &str, more: &str) {
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "pool", "pool": pool, "addWait": 60}});
    let bin = node.bin.display();
    node.host.write(
        netloom_tests::SETTINGS,
        &format!("nodeName: {}\nkubeconfig: /run/kubeconfig\nbinDir: {bin}\ninstall: never\nhealthAddress: 127.0.0.1:9180\ndelegates:\n- {network}\n{more}\n", node.name),
    );
}

/// Small blocks of both families, no rest, and what is too much goes at once.
fn lab() -> Value {
    json!({
        "ipv4": {"entries": [{"cidr": "10.20.0.0/24"}], "blockPrefix": 29, "gateway": "10.20.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:20::/116"}], "blockPrefix": 124, "gateway": "fd00:20::1"},
        "scaling": {"preAllocate": 1, "releaseDelaySeconds": 2}, "reuse": {"cooldownSeconds": 0},
    })
}

/// What `netloom ipam` says on a node, which is well.
fn ipam(node: &Node, args: &[&str]) -> Value {
    let command = format!("{} ipam {} -o json", netloom().display(), args.join(" "));
    node.host.json("", &command)
}

/// So many pods on a node.
fn pods<'n>(node: &'n Node, name: &str, count: usize) -> Vec<Pod<'n>> {
    (0..count).map(|n| node.pod(&format!("{name}{n}"), "")).collect()
}

/// Attaches pods one after the other; all their addresses.
fn add(pods: &[Pod<'_>]) -> BTreeSet<String> {
    pods.iter().flat_map(|pod| ips(&pod.must("ADD"))).collect()
}

/// The addresses of a pod's second interface, as `ip` has them.
fn net1(node: &Node, pod: &Pod<'_>) -> Vec<String> {
    let links = node.host.json(&pod.sandbox(), "ip -j address show dev net1");
    let all = links[0]["addr_info"].as_array().unwrap().iter().filter(|a| a["scope"] == "global");
    all.map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"])).collect()
}

fn ips(outcome: &Outcome) -> Vec<String> {
    outcome.result()["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}
