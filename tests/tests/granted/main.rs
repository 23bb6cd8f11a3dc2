//! Addresses of a cluster: a real API server, the real operator, agents as nodes have them. Judged by results, by `ip`, by pings,
//! and by what the API server has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod beside;
mod changes;
mod claims;
mod cluster;
mod killed;
mod ranges;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use netloom_tests::{Api, Node, Outcome, netloom};
use serde_json::{Value, json};

/// Where our kinds are.
const KINDS: &str = "/apis/netloom.io/v1alpha1";

/// A cluster of its own: an API server with our kinds, and an operator.
struct Cluster {
    api: Arc<Api>,
    dir: std::path::PathBuf,
    operator: Option<Child>,
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        let api = Api::own();
        let dir = std::env::temp_dir().join(format!("nl-granted-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("kubeconfig"), api.kubeconfig("admin")).unwrap();
        let mut cluster = Cluster { api, dir, operator: None };
        cluster.define();
        cluster.operate();
        cluster
    }

    /// Has our kinds served.
    fn define(&self) {
        let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/ippools.yaml");
        self.api.plane().kubectl(&["apply", "-f", kinds], "").expect("our kinds");
        let served = ["crd/ippools.netloom.io", "crd/nodeippools.netloom.io", "crd/ipledgershards.netloom.io"];
        let wait = [&["wait", "--for=condition=Established", "--timeout=120s"], &served[..]].concat();
        self.api.plane().kubectl(&wait, "").expect("they are served");
    }

    /// Starts an operator.
    fn operate(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(netloom()).args(["operator", "--no-lease", "--identity", "one", "--kubeconfig"]);
        command.arg(self.dir.join("kubeconfig")).stderr(Stdio::null()).stdout(Stdio::null());
        self.operator = Some(command.spawn().unwrap());
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
        self.api.must("POST", &format!("{KINDS}/ippools"), &pool);
    }

    /// A node whose pods have addresses of the pool `lab`; its agent runs.
    fn node(&self, name: &str) -> Node {
        self.node_of(name, false)
    }

    /// The same, with crash points where wanted.
    fn node_of(&self, name: &str, crashing: bool) -> Node {
        self.api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let node = Node::new(&self.api, name, "", crashing);
        configure(&node, "lab");
        node.restart();
        node
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
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The default network of the node's pods: a bridge, with addresses of a pool.
fn configure(node: &Node, pool: &str) {
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "pool", "pool": pool, "addWait": 60}});
    let bin = node.bin.display();
    node.host.write(
        netloom_tests::SETTINGS,
        &format!("nodeName: {}\nkubeconfig: /run/kubeconfig\nbinDir: {bin}\ninstall: never\nhealthAddress: 127.0.0.1:9180\ndelegates:\n- {network}\n", node.name),
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

fn ips(outcome: &Outcome) -> Vec<String> {
    outcome.result()["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}
