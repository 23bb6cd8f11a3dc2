//! A pod, and the calls that its runtime makes.

use std::process::Child;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::{Cni, Node, Outcome};

/// A pod of a [`Node`]: an object of the API, and one sandbox after the other. Its namespaces go when it is dropped.
pub struct Pod<'n> {
    node: &'n Node,
    /// Its namespace: the node's, if nothing else was said.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    sandbox: Mutex<String>,
}

/// What the runtime has as its configuration.
const CONFIG: &str = r#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom","agentWait":"60s"}"#;

// === impl Pod ===

impl<'n> Pod<'n> {
    pub(crate) fn new(node: &'n Node, name: &str, networks: &str) -> Self {
        let object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": node.namespace, "annotations": {"k8s.v1.cni.cncf.io/networks": networks}}});
        Pod::of(node, object)
    }

    pub(crate) fn of(node: &'n Node, mut object: Value) -> Self {
        object["spec"] = json!({"nodeName": node.name, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "busybox"}]});
        let text = |key: &str| object["metadata"][key].as_str().unwrap().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let made = node.api.must("POST", &format!("/api/v1/namespaces/{namespace}/pods"), &object);
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let pod = Pod { node, namespace, name, uid, sandbox: Mutex::default() };
        pod.renew();
        pod
    }

    /// Its sandbox: the container ID, which is also the name of its namespace below `/run/netns`.
    pub fn sandbox(&self) -> String {
        self.sandbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As a runtime does where a sandbox has failed: the namespace goes, and the next one comes, with another ID.
    pub fn renew(&self) {
        self.remove_namespace();
        let next = format!("{}-{}", self.name, self.node.next_sandbox());
        self.node.host.container(&next);
        *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Deletes the sandbox's namespace.
    pub fn remove_namespace(&self) {
        let sandbox = self.sandbox();
        if !sandbox.is_empty() && self.node.host.path(format!("/run/netns/{sandbox}")).exists() {
            self.node.host.sh("", &format!("ip netns delete {sandbox}"));
        }
    }

    /// A call as its runtime makes it.
    pub fn cni(&self) -> Cni<'n> {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}", self.namespace, self.name, self.uid);
        self.node.host.cni(&self.node.bin).at(&self.sandbox(), "eth0").set("CNI_ARGS", &args)
    }

    /// ADD, DEL or CHECK, and what came of it.
    pub fn call(&self, verb: &str) -> Outcome {
        self.cni().call(verb, "netloom", CONFIG)
    }

    /// As [`Pod::call`], with keys that the runtime's configuration has besides.
    pub fn call_with(&self, verb: &str, keys: &Value) -> Outcome {
        let mut config: Value = serde_json::from_str(CONFIG).unwrap();
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        self.cni().call(verb, "netloom", config.to_string())
    }

    /// As [`Pod::call`], which succeeds.
    ///
    /// # Panics
    /// If it does not: with the end of the agent's log.
    pub fn must(&self, verb: &str) -> Outcome {
        let outcome = self.call(verb);
        let tail = || self.node.tail();
        assert_eq!(outcome.code, 0, "{verb} of {}: {outcome:?}; the agent's log ends:\n{}", self.name, tail());
        outcome
    }

    /// ADD
    pub fn add(&self) -> Outcome {
        self.call("ADD")
    }

    /// DEL
    pub fn del(&self) -> Outcome {
        self.call("DEL")
    }

    /// CHECK
    pub fn check(&self) -> Outcome {
        self.call("CHECK")
    }

    /// Starts a call whose end nobody waits for.
    pub fn begin(&self, verb: &str) -> Child {
        self.begin_with(verb, &[])
    }

    /// The same with more variables.
    pub fn begin_with(&self, verb: &str, variables: &[(&str, &str)]) -> Child {
        variables.iter().fold(self.cni(), |cni, (name, value)| cni.set(name, value)).start(verb, "netloom", CONFIG)
    }

    /// Where its object is in the API.
    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    /// Its annotation `network-status` now; null if it has none.
    pub fn status(&self) -> Value {
        let object = self.node.api.must("GET", &self.path(), &Value::Null);
        let text = object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str().unwrap_or("null");
        serde_json::from_str(text).unwrap()
    }

    /// The addresses of its sandbox by interface: what its runtime can see of it.
    pub fn addresses(&self) -> Value {
        let links = self.node.host.json(&self.sandbox(), "ip -j -4 address");
        let address = |link: &Value| json!([link["ifname"], link["addr_info"][0]["local"]]);
        links.as_array().unwrap().iter().filter(|link| link["ifname"] != "lo").map(address).collect()
    }

    /// Waits until its status has the addresses that its sandbox has.
    ///
    /// # Panics
    /// If that takes more than two minutes.
    pub fn wait_for_status(&self) -> Value {
        let told = |status: &Value| -> Value {
            status.as_array().into_iter().flatten().map(|network| json!([network["interface"], network["ips"][0]])).collect()
        };
        let addresses = self.addresses();
        self.node.until(&format!("the status of {} has {addresses}", self.name), || told(&self.status()) == addresses);
        self.status()
    }

    /// The reasons and messages of its events.
    pub fn events(&self) -> Vec<String> {
        let path = format!("/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={}", self.namespace, self.name);
        let list = self.node.api.must("GET", &path, &Value::Null);
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        list["items"].as_array().unwrap().iter().map(|event| format!("{}: {}", text(event, "reason"), text(event, "message"))).collect()
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let gone = std::panic::AssertUnwindSafe(|| {
            self.remove_namespace();
            self.node.api.ask("DELETE", &format!("{}?gracePeriodSeconds=0", self.path()), &Value::Null);
        });
        drop(std::panic::catch_unwind(gone));
    }
}
