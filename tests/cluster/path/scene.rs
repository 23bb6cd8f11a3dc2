//! A cluster, and what is asked of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netloom_tests::{netloom, plugin_dir, seen_within};
use serde_json::{Value, json};
use testbed::{BUSYBOX, Cluster, DefaultNetwork, Node, Options};

/// One cluster at a time: two would have one processor each.
static TURN: Mutex<()> = Mutex::new(());

/// The networks of the pods, as `storage@store, backup` names them.
pub(crate) const NETWORKS: [&str; 3] = ["pods", "storage", "backup"];

/// How long a cluster may take for what it does in a second or two.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    begun: Instant,
    last: Instant,
    _turn: MutexGuard<'static, ()>,
}

/// A pod, as the API server has it.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) ip: String,
    object: Value,
}

/// MAC and addresses of each interface of a pod.
type Interfaces = BTreeMap<String, (String, Vec<String>)>;

/// A Deployment of pods that are spread over the nodes. `version` is what a new one is rolled out for.
pub(crate) fn workload(name: &str, replicas: usize, networks: &str, version: &str) -> Value {
    let spread = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}}});
    let container = json!({"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000000"],
        "env": [{"name": "VERSION", "value": version}]});
    let mut meta = json!({"labels": {"app": name}});
    if !networks.is_empty() {
        meta["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": networks});
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": meta, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": [spread], "containers": [container]}}}})
}

/// A definition; without a configuration, it names a network on the nodes' disks.
pub(crate) fn definition(name: &str, annotations: &Value, config: Option<&Value>) -> Value {
    let spec = config.map_or(json!({}), |config| json!({"config": config.to_string()}));
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

/// Waits until something holds; the message says what was there instead.
pub(crate) fn until<T: std::fmt::Debug>(what: &str, look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) {
    let seen = seen_within(PATIENCE, look, holds);
    seen.unwrap_or_else(|seen| panic!("not within {} s: {what}: {seen:#?}", PATIENCE.as_secs()));
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

// === impl Scene ===

impl Scene {
    pub(crate) fn new(what: &str, nodes: u8, network: DefaultNetwork) -> Self {
        Scene::of(what, |options| options.nodes(nodes).network(network))
    }

    /// With whatever the options say.
    pub(crate) fn of(what: &str, with: impl Fn(Options) -> Options) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("path-{}-{what}", std::process::id());
        let options = with(Options::new(name, plugin_dir().join("netloom-cni")).netloom(netloom()));
        let begun = Instant::now();
        let mut scene = Scene { cluster: options.up().unwrap(), begun, last: begun, _turn: turn };
        scene.said(&format!("{what}: cluster up"));
        scene
    }

    /// How long what was done since the last time has taken.
    pub(crate) fn said(&mut self, what: &str) {
        println!("{:6.1} s  {:5.1} s  {what}", self.begun.elapsed().as_secs_f64(), self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }

    /// Starts kube-proxy on every node, in this mode.
    pub(crate) fn start_proxies(&mut self, mode: &str) {
        self.cluster.start_proxies(mode).unwrap();
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.control().kubectl(&[args, &["--request-timeout=90s"]].concat(), "").unwrap()
    }

    fn list(&self, args: &[&str]) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.kubectl(&[&["get", "-o", "json"], args].concat())).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    pub(crate) fn apply(&self, object: &Value) {
        self.cluster.control().apply(&object.to_string()).unwrap();
    }

    /// The definitions of the networks that every node has on its disk.
    pub(crate) fn define(&self) {
        for name in &NETWORKS[1..] {
            self.apply(&definition(name, &json!({}), None));
        }
    }

    pub(crate) fn scale(&self, deployment: &str, replicas: usize) {
        self.kubectl(&["scale", "deployment", deployment, &format!("--replicas={replicas}")]);
    }

    /// Waits until a Deployment is what it is to be, and those that went before are gone.
    pub(crate) fn rolled(&self, deployment: &str) {
        let which = format!("deployment/{deployment}");
        let rolled = self.cluster.control().kubectl(&["rollout", "status", &which, "--timeout=300s"], "");
        rolled.unwrap_or_else(|error| panic!("{error:#}\n{}", self.why()));
        let wanted: usize = self.kubectl(&["get", &which, "-o", "jsonpath={.spec.replicas}"]).parse().unwrap();
        let states = || self.pods(deployment).iter().map(Pod::state).collect::<Vec<_>>();
        until("only the pods that are wanted", states, |pods| pods.len() == wanted && pods.iter().all(|pod| pod == "ready"));
    }

    pub(crate) fn delete(&self, deployment: &str) {
        self.kubectl(&["delete", "deployment", deployment, "--cascade=foreground", "--timeout=180s"]);
        until("the pods are gone", || self.pods(deployment).iter().map(|p| p.name.clone()).collect::<Vec<_>>(), Vec::is_empty);
    }

    /// What a person would look at.
    pub(crate) fn why(&self) -> String {
        let pods = self.cluster.control().kubectl(&["describe", "pods"], "").unwrap_or_default();
        let logs = self.cluster.nodes().iter().map(|node| {
            let kubelet = node.said("kubelet").unwrap_or_default();
            let last = kubelet.lines().last().unwrap_or_default();
            format!("{}:\nkubelet, last: {last}\n{}", node.name(), node.agent_log().unwrap_or_default())
        });
        format!("{}\n{pods}", logs.collect::<String>())
    }

    pub(crate) fn pods(&self, deployment: &str) -> Vec<Pod> {
        self.list(&["pods", "-l", &format!("app={deployment}")]).into_iter().map(Pod::new).collect()
    }

    /// Whether the one pod of that name is ready, or else how it is.
    pub(crate) fn state(&self, name: &str) -> String {
        self.pods(name).first().map_or("not there".to_owned(), Pod::state)
    }

    fn node(&self, pod: &Pod) -> &Node {
        self.cluster.node(&pod.node).unwrap()
    }

    /// Runs a program in a pod's network.
    pub(crate) fn within(&self, pod: &Pod, argv: &[&str]) -> Output {
        let nobody = || panic!("nobody on {} has {} of {}\n{}", pod.node, pod.ip, pod.name, self.why());
        let net = format!("--net=/run/netns/{}", self.namespace(pod).unwrap_or_else(nobody));
        self.node(pod).try_run(&[&["nsenter", &net, "--"], argv].concat()).unwrap()
    }

    /// Begins a program in a pod's network, whose end is waited for later.
    pub(crate) fn begin(&self, pod: &Pod, argv: &[&str]) -> Child {
        let net = format!("--net=/run/netns/{}", self.namespace(pod).unwrap());
        let mut command = self.node(pod).command("nsenter");
        command.args([&[net.as_str(), "--"], argv].concat()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// The namespace in which somebody has the pod's address.
    fn namespace(&self, pod: &Pod) -> Option<String> {
        let node = self.node(pod);
        let has = |name: &String| {
            let net = format!("--net=/run/netns/{name}");
            let shown = node.try_run(&["nsenter", &net, "--", "ip", "-o", "address"]).unwrap();
            String::from_utf8_lossy(&shown.stdout).contains(&format!(" {}/", pod.ip))
        };
        node.namespaces().into_iter().find(has)
    }

    /// The pods, when each has what its status says. One whose runtime or kubelet was killed may get another sandbox after it
    /// was ready.
    fn as_their_statuses_say(&self, deployment: &str) -> Vec<(Pod, Interfaces)> {
        let mut found = Vec::new();
        let differing = || {
            found = self.pods(deployment).into_iter().map(|pod| (self.namespace(&pod).map(|_| self.interfaces(&pod)), pod)).collect();
            let other = found.iter().filter(|(shown, pod)| shown.as_ref() != Some(&pod.interfaces()));
            other.map(|(shown, pod)| format!("{} {}: {shown:?}, told {:?}", pod.name, pod.ip, pod.interfaces())).collect::<Vec<_>>()
        };
        until("statuses are what `ip` shows", differing, Vec::is_empty);
        found.into_iter().map(|(shown, pod)| (pod, shown.unwrap())).collect()
    }

    /// A pod's interfaces as `ip` shows them.
    pub(crate) fn interfaces(&self, pod: &Pod) -> Interfaces {
        let shown: Value = serde_json::from_slice(&self.within(pod, &["ip", "-j", "address"]).stdout).unwrap();
        let mut found = BTreeMap::new();
        for link in shown.as_array().unwrap().iter().filter(|link| link["ifname"] != "lo") {
            let global = link["addr_info"].as_array().unwrap().iter().filter(|a| a["scope"] == "global");
            let addresses = global.map(|a| text(a, "/local")).collect();
            found.insert(text(link, "/ifname"), (text(link, "/address"), addresses));
        }
        found
    }

    /// Every pod has what its status says, is on every network, and reaches all others on it; and there is nothing else.
    pub(crate) fn networks_hold(&self, deployment: &str, wanted: usize) {
        let shown = self.as_their_statuses_say(deployment);
        assert_eq!(shown.len(), wanted);
        let mut on: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (pod, shown) in &shown {
            assert_eq!(shown.len(), NETWORKS.len(), "{}: {shown:?}", pod.name);
            for (_, addresses) in shown.values() {
                let [address] = addresses.as_slice() else { panic!("{}: {shown:?}", pod.name) };
                let network = address.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
                on.entry(network).or_default().push(address.clone());
            }
        }
        assert_eq!(on.keys().map(String::as_str).collect::<Vec<_>>(), ["10.244", "10.245", "10.246"]);
        for (network, addresses) in &on {
            let mut distinct = addresses.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), wanted, "{network}: nobody shares an address: {addresses:?}");
        }
        let every: Vec<String> = on.into_values().flatten().collect();
        let pods: Vec<Pod> = shown.into_iter().map(|(pod, _)| pod).collect();
        pods.iter().for_each(|pod| self.pings(pod, &every));
        self.held(&pods);
    }

    /// A pod reaches all of these; what it does not is told.
    pub(crate) fn pings(&self, pod: &Pod, addresses: &[String]) {
        let line = "for a in \"$@\"; do ping -c1 -W30 $a >/dev/null || echo $a & done; wait";
        let mut argv = vec!["sh", "-c", line, "sh"];
        argv.extend(addresses.iter().map(String::as_str));
        let output = self.within(pod, &argv);
        let unreached = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && unreached.is_empty(), "{} {} does not reach\n{unreached}", pod.name, pod.ip);
    }

    /// On every node, so many addresses are held as there are pods.
    fn held(&self, pods: &[Pod]) {
        for node in self.cluster.nodes() {
            let here = pods.iter().filter(|pod| pod.node == node.name()).count();
            for network in NETWORKS {
                until(&format!("{}: addresses of {network}", node.name()), || leases(node, network), |held| held.len() == here);
            }
            until(&format!("{}: namespaces", node.name()), || networked(node), |names| names.len() == here);
            until(&format!("{}: records", node.name()), || files(&node.path("/var/lib/netloom/sandboxes"), ".json"), |n| n.len() == here);
        }
    }

    /// On no node is anything of a pod.
    pub(crate) fn nothing_is_left(&self) {
        for node in self.cluster.nodes() {
            until(&format!("nothing is left on {}", node.name()), || left(node), Vec::is_empty);
        }
    }

    /// Warnings on objects that come from the agent, or from a runtime that quotes it.
    pub(crate) fn failures_of_ours(&self) -> Vec<String> {
        let events = self.list(&["events"]);
        let warnings = events.iter().filter(|event| event["type"] == "Warning");
        let about = |e: &Value| {
            format!(
                "{} {} {}: {}",
                text(e, "/reportingComponent"),
                text(e, "/reason"),
                text(e, "/involvedObject/name"),
                text(e, "/message")
            )
        };
        let cni = |line: &String| {
            ["netloom", "network for sandbox", "failed to setup network", "loopback"].iter().any(|word| line.contains(word))
        };
        // The testbed's own name stands in the paths of its control groups. Neutron answers 500 where two of its processes write to SQLite at once
        // ("database is locked"): the operator says so, and asks again.
        let is_of_testbed = |line: &String| ["FailedNodeAllocatableEnforcement", "(500"].iter().any(|words| line.contains(words));
        warnings.map(about).filter(|line| !is_of_testbed(line)).filter(cni).collect()
    }

    pub(crate) fn no_failure_of_ours(&self) {
        let failures = self.failures_of_ours();
        assert!(failures.is_empty(), "{failures:#?}\n{}", self.why());
        for node in self.cluster.nodes() {
            let log = node.agent_log().unwrap();
            // A busy API server takes a status later.
            let told = log.lines().filter(|line| !line.contains("  status later "));
            let bad: Vec<&str> = told.filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
            assert!(bad.is_empty(), "{}: {bad:#?}", node.name());
        }
    }

    /// A definition names a resource of which the pod holds no device: the kubelet is asked, and the network made without.
    pub(crate) fn asks_the_kubelet_for_devices(&self) {
        let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "mode": "bridge",
            "ipam": {"type": "static", "addresses": [{"address": "10.247.0.1/24"}]}});
        self.apply(&definition("device", &json!({"k8s.v1.cni.cncf.io/resourceName": "example.org/nic"}), Some(&config)));
        let socket = self.cluster.nodes()[0].path("/var/lib/kubelet/pod-resources/kubelet.sock");
        assert!(socket.exists(), "the kubelet serves {}", socket.display());
        self.apply(&workload("device", 1, "device", "1"));
        self.rolled("device");
        let pod = &self.pods("device")[0];
        assert_eq!(self.interfaces(pod)["net1"].1, ["10.247.0.1"]);
        assert!(pod.status().iter().all(|network| network.get("device-info").is_none()), "{:?}", pod.status());
        self.delete("device");
    }
}

// === impl Pod ===

impl Pod {
    fn new(object: Value) -> Self {
        Pod { name: text(&object, "/metadata/name"), node: text(&object, "/spec/nodeName"), ip: text(&object, "/status/podIP"), object }
    }

    /// Its addresses, of every family that it has.
    pub(crate) fn ips(&self) -> Vec<String> {
        let all = self.object["status"]["podIPs"].as_array().cloned().unwrap_or_default();
        all.iter().map(|ip| text(ip, "/ip")).collect()
    }

    fn state(&self) -> String {
        let conditions = self.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        match (self.object["metadata"].get("deletionTimestamp").is_some(), ready) {
            (false, true) => "ready".to_owned(),
            (going, _) => format!("{} {}{}", self.name, text(&self.object, "/status/phase"), if going { ", going" } else { "" }),
        }
    }

    /// Which container is running in it.
    pub(crate) fn container(&self) -> String {
        text(&self.object, "/status/containerStatuses/0/containerID")
    }

    /// The annotation `network-status`.
    pub(crate) fn status(&self) -> Vec<Value> {
        let annotations = &self.object["metadata"]["annotations"];
        let status = annotations["k8s.v1.cni.cncf.io/network-status"].as_str().unwrap_or("[]");
        serde_json::from_str(status).unwrap_or_else(|e| panic!("{e}: {status}"))
    }

    /// The same, in the form of [`Scene::interfaces`].
    fn interfaces(&self) -> Interfaces {
        let ips = |network: &Value| network["ips"].as_array().unwrap().iter().map(|ip| ip.as_str().unwrap().to_owned()).collect();
        self.status().iter().map(|network| (text(network, "/interface"), (text(network, "/mac"), ips(network)))).collect()
    }
}

/// The addresses of a network that are held on a node.
pub(crate) fn leases(node: &Node, network: &str) -> Vec<String> {
    let every = files(&node.path("/var/lib/cni/networks").join(network), "");
    every.into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// The files of a directory whose names end so.
fn files(dir: &Path, end: &str) -> Vec<String> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(end)).collect()
}

/// The namespaces in which there is more than a loopback. Killed at the wrong moment, containerd 1.6 leaves one behind that
/// it has just made.
fn networked(node: &Node) -> Vec<String> {
    let links = |name: &str| node.try_run(&["nsenter", &format!("--net=/run/netns/{name}"), "--", "ip", "-o", "link"]).unwrap();
    let has_more = |name: &String| String::from_utf8_lossy(&links(name).stdout).lines().count() > 1;
    node.namespaces().into_iter().filter(has_more).collect()
}

/// What is left of pods on a node.
pub(crate) fn left(node: &Node) -> Vec<String> {
    let mut left: Vec<String> = networked(node).into_iter().map(|name| format!("namespace {name}")).collect();
    for network in ["pods", "storage", "backup", "device"] {
        left.extend(leases(node, network).into_iter().map(|address| format!("address {address} of {network}")));
    }
    for dir in ["/var/lib/netloom/sandboxes", "/var/lib/netloom/spool", "/var/lib/cni/results", "/run/k8s.cni.cncf.io/devinfo/cni"] {
        let names = files(&node.path(dir), "").into_iter().filter(|name| !name.starts_with('.'));
        left.extend(names.map(|name| format!("file {dir}/{name}")));
    }
    let links: Value = serde_json::from_str(&node.run(&["ip", "-j", "address"]).unwrap()).unwrap();
    for link in links.as_array().unwrap() {
        let (name, addresses) = (text(link, "/ifname"), link["addr_info"].as_array().unwrap());
        let expected = ["lo", "eth0", "eth1", "cni0"].contains(&name.as_str());
        left.extend(Some(format!("link {name}")).filter(|_| !expected));
        let global = addresses.iter().filter(|a| a["scope"] == "global" && a["family"] == "inet").count();
        assert!(global <= 1, "{link}");
    }
    let rules: Value = serde_json::from_str(&node.run(&["nft", "-j", "list", "ruleset"]).unwrap()).unwrap();
    for map in rules["nftables"].as_array().unwrap().iter().filter_map(|item| item.get("map").or(item.get("set"))) {
        left.extend(map.get("elem").map(|elements| format!("nft {}: {elements}", map["name"])));
    }
    left
}
