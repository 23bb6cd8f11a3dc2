//! A node of a real API server whose pods may be of any kind, and whose agent and runtime have what configuration they
//! like: `netloom_tests::Node` is one as most tests need it.
//!
//! ```text
//!   API server --ApiProxy--> the node: a Host, whose /run, /var/lib and /etc/cni are its own
//!                          agent | up0 = up1, for macvlans | pods' namespaces
//! ```
//!
//! Each test has a node and a namespace of the API, both with the test's name; all share the API server.

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use netloom_tests::{Api, ApiProxy, Host, Outcome, netloom, plugin_dir, seen_within};
use serde_json::{Value, json};

pub(crate) const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
pub(crate) const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// How long what another process does may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A node with its agent.
pub(crate) struct Node {
    pub(crate) host: Host,
    agent: Option<Child>,
    /// Its name, and its namespace's.
    pub(crate) name: String,
    settings: Value,
    _proxy: ApiProxy,
    _api: Arc<Api>,
}

/// A pod of the API, and the sandbox that a runtime has made for it.
pub(crate) struct Pod<'n> {
    node: &'n Node,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) sandbox: String,
    /// What the runtime runs, with which configuration.
    pub(crate) program: String,
    pub(crate) config: Value,
}

// === the API server ===

/// One request, and the answer's code and body.
pub(crate) fn api(method: &str, path: &str, body: &Value) -> (u16, Value) {
    Api::shared().ask(method, path, body)
}

/// As [`api`], and it must succeed.
pub(crate) fn ask(method: &str, path: &str, body: &Value) -> Value {
    Api::shared().must(method, path, body)
}

/// Waits until `look` finds something.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let found = seen_within(PATIENCE, look, Option::is_some).ok().flatten();
    found.unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}"))
}

// === networks ===

/// A bridge with addresses `10.N.0.0/16`, of one plugin.
pub(crate) fn bridge(name: &str, n: u8) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": format!("br{n}"), "isGateway": true, "ipam": range(n)})
}

/// A macvlan with such addresses.
pub(crate) fn macvlan(name: &str, n: u8) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "up0", "ipam": range(n)})
}

pub(crate) fn range(n: u8) -> Value {
    json!({"type": "host-local", "subnet": format!("10.{n}.0.0/16")})
}

/// The default network of a node that nobody has told anything else: `10.0.0.0/16`, with the default route.
pub(crate) fn default_network() -> Value {
    let mut network = bridge("cluster", 0);
    network["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    network
}

// === impl Node ===

impl Node {
    /// A node whose default network is [`default_network`].
    pub(crate) fn new(name: &str) -> Self {
        Node::with(name, json!({"delegates": [default_network()]}))
    }

    /// A node whose agent has these settings besides where the API server and its directories are.
    pub(crate) fn with(name: &str, settings: Value) -> Self {
        let mut node = Node::asleep(name, settings);
        node.start();
        node
    }

    /// A node without its agent, for what must be there before.
    pub(crate) fn asleep(name: &str, settings: Value) -> Self {
        let (host, api) = (Host::new(), Api::shared());
        for line in ["add up0 type veth peer name up1", "set up0 up", "set up1 up"] {
            host.sh("", &format!("ip link {line}"));
        }
        let proxy = ApiProxy::new(format!("/proc/{}/ns/net", host.pid()).into(), api.address());
        host.run("", &[plugin_dir().join("netloom-cni").to_str().unwrap(), "install", "/run/bin", "--multus"]);
        host.write("/run/kubeconfig", &api.kubeconfig("admin"));
        api.namespace(name);
        let mut all = json!({"nodeName": name, "kubeconfig": "/run/kubeconfig", "binDir": "/run/bin", "install": "never"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        Node { host, agent: None, name: name.to_owned(), settings: all, _proxy: proxy, _api: api }
    }

    /// Starts the agent, and waits until it listens.
    pub(crate) fn start(&mut self) {
        self.start_as(&[]);
    }

    /// As [`Node::start`], by a program that starts it as its last argument, `unshare` say.
    pub(crate) fn start_as(&mut self, by: &[&str]) {
        self.host.write("/run/agent.json", &self.settings.to_string());
        let log = std::fs::File::options().create(true).append(true).open(self.host.path("/run/agent.log")).unwrap();
        let mut command = self.host.command("", "setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(by).arg(netloom()).args(["agent", "run", "--config", "/run/agent.json"]);
        self.agent = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        until("the agent listens", || {
            let ended = self.agent.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the agent has ended: {}", self.log());
            self.host.path("/run/netloom/agent.sock").exists().then_some(())
        });
    }

    /// Ends the agent with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// What the agent has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.host.path("/run/agent.log")).unwrap_or_default()
    }

    /// Writes an executable plugin, a shell script.
    pub(crate) fn plugin(&self, name: &str, script: &str) {
        self.host.write(&format!("/run/bin/{name}"), &format!("#!/bin/sh\n{script}"));
        self.host.sh("", &format!("chmod 755 /run/bin/{name}"));
    }

    /// A definition in the node's namespace.
    pub(crate) fn definition(&self, name: &str, config: &Value) -> Value {
        definition(&self.name, name, config, &json!({}))
    }

    /// A pod that selects these networks.
    pub(crate) fn pod(&self, name: &str, networks: impl ToString) -> Pod<'_> {
        self.pod_with(name, &json!({NETWORKS: networks.to_string()}))
    }

    /// A pod with these annotations.
    pub(crate) fn pod_with(&self, name: &str, annotations: &Value) -> Pod<'_> {
        self.pod_in(&self.name, name, annotations, &json!({}))
    }

    /// A pod of a namespace, with these annotations and keys of its specification.
    pub(crate) fn pod_in(&self, namespace: &str, name: &str, annotations: &Value, spec: &Value) -> Pod<'_> {
        let mut whole = json!({"nodeName": self.name, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": whole});
        let made = ask("POST", &format!("/api/v1/namespaces/{namespace}/pods"), &object);
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let config = json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom"});
        let sandbox = format!("{namespace}-{name}");
        if !self.host.path("/run/netns").join(&sandbox).exists() {
            self.host.container(&sandbox);
        }
        Pod { node: self, name: format!("{namespace}/{name}"), uid, sandbox, program: "netloom".to_owned(), config }
    }

    /// The addresses that `host-local` has given on a network.
    pub(crate) fn leases(&self, network: &str) -> Vec<String> {
        let files = self.host.list(&format!("/var/lib/cni/networks/{network}"));
        files.into_iter().filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
    }

    /// The sandboxes that have a record.
    pub(crate) fn records(&self) -> Vec<String> {
        self.host.list("/var/lib/netloom/sandboxes").into_iter().filter(|name| name.ends_with(".json")).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent of {}:\n{}", self.name, self.log());
        }
        self.kill();
    }
}

/// A namespace of the API in which pods can be made.
pub(crate) fn ensure_namespace(name: &str) {
    Api::shared().namespace(name);
}

/// A definition of a namespace; an empty configuration is none.
pub(crate) fn definition(namespace: &str, name: &str, config: &Value, annotations: &Value) -> Value {
    let spec = if config.is_null() { json!({}) } else { json!({"config": config.to_string()}) };
    let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec});
    ask("POST", &format!("/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions"), &object)
}

// === impl Pod ===

impl Pod<'_> {
    /// The same pod for another program and configuration of the runtime's.
    #[must_use]
    pub(crate) fn by(self, program: &str, config: Value) -> Self {
        Pod { program: program.to_owned(), config, ..self }
    }

    /// The same pod in another sandbox, as after one that has died.
    #[must_use]
    pub(crate) fn again(&self, sandbox: &str) -> Self {
        self.node.host.container(sandbox);
        let (name, uid, program) = (self.name.clone(), self.uid.clone(), self.program.clone());
        Pod { node: self.node, name, uid, sandbox: sandbox.to_owned(), program, config: self.config.clone() }
    }

    /// A call of the runtime's.
    pub(crate) fn call(&self, verb: &str) -> Outcome {
        let (namespace, name) = self.name.split_once('/').unwrap();
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            self.sandbox, self.uid
        );
        let dir = std::path::Path::new("/run/bin");
        let cni = self.node.host.cni(dir).at(&self.sandbox, "eth0").set("CNI_ARGS", &args);
        cni.call(verb, &self.program, self.config.to_string())
    }

    /// ADD, which must succeed: the result.
    pub(crate) fn add(&self) -> Value {
        self.call("ADD").result()
    }

    /// DEL, which must succeed. When it answers, the pod's links are down; they go, and with them the record, in a moment.
    pub(crate) fn del(&self) {
        let done = self.call("DEL");
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
        let record = format!("{}.json", self.sandbox);
        until("all of it is gone", || (self.links() == ["lo"] && !self.node.records().contains(&record)).then_some(()));
    }

    /// ADD, which must fail: its error object, and nothing is left of it in the pod.
    pub(crate) fn refused(&self) -> Value {
        let error = self.call("ADD").error();
        assert_eq!(self.links(), ["lo"], "{error}");
        error
    }

    fn path(&self) -> String {
        let (namespace, name) = self.name.split_once('/').unwrap();
        format!("/api/v1/namespaces/{namespace}/pods/{name}")
    }

    /// The pod as the API server has it.
    pub(crate) fn object(&self) -> Value {
        ask("GET", &self.path(), &Value::Null)
    }

    /// Its status as it stands in the annotation, when it is there.
    pub(crate) fn status_text(&self) -> String {
        until("network-status is written", || Some(self.object()["metadata"]["annotations"][STATUS].as_str()?.to_owned()))
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.status_text()).unwrap()
    }

    /// The entry of one interface.
    pub(crate) fn entry(&self, interface: &str) -> Value {
        let status = self.status();
        let found = status.as_array().unwrap().iter().find(|entry| entry["interface"] == interface);
        found.unwrap_or_else(|| panic!("no {interface} in {status}")).clone()
    }

    /// What an Event of this reason says, when it is there.
    pub(crate) fn event(&self, reason: &str) -> String {
        let (namespace, name) = self.name.split_once('/').unwrap();
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        until(&format!("an Event {reason}"), || {
            let events = ask("GET", &path, &Value::Null);
            let of_pod = |event: &&Value| event["regarding"]["name"] == name && event["regarding"]["uid"] == self.uid.as_str();
            let found = events["items"].as_array().unwrap().iter().filter(of_pod).find(|event| event["reason"] == reason)?;
            Some(format!("{}: {}", found["type"].as_str().unwrap(), found["note"].as_str().unwrap()))
        })
    }

    /// The names of the links in its namespace, in order.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.node.host.json(&self.sandbox, "ip -j link");
        let mut names: Vec<String> = links.as_array().unwrap().iter().map(|l| l["ifname"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// The addresses of one of its links.
    pub(crate) fn addresses(&self, link: &str) -> Vec<String> {
        self.node.host.addresses(&self.sandbox, link)
    }

    /// The gateways of its default routes, with their links.
    pub(crate) fn default_routes(&self, family: &str) -> Vec<String> {
        let routes = self.node.host.json(&self.sandbox, &format!("ip -j {family} route show default"));
        let text = |route: &Value| format!("{} {}", route["gateway"].as_str().unwrap_or("-"), route["dev"].as_str().unwrap());
        routes.as_array().unwrap().iter().map(text).collect()
    }

    /// Takes the object away at once, as when a pod was deleted.
    pub(crate) fn delete(&self) {
        ask("DELETE", &self.path(), &json!({"gracePeriodSeconds": 0}));
    }
}
