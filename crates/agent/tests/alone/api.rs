//! Where the objects are: the embedded store, or a real API server.

use std::path::PathBuf;

use cluster::Connection;
use objects::Store;
use serde_json::{Value, json};
use testbed::ControlPlane;

/// What a test makes and reads there.
pub(crate) trait Api {
    fn put(&self, object: &Value);
    fn pod(&self, name: &str) -> Option<Value>;
    fn remove_pod(&self, name: &str);
    /// Type, reason and message of a pod's Events.
    fn events(&self, pod: &str) -> Vec<(String, String, String)>;
    /// Told where to connect, by a file or at once.
    fn connect(&self) -> Box<dyn FnOnce() -> Connection + Send>;
}

fn events(list: &[Value], pod: &str) -> Vec<(String, String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let of_pod = list.iter().filter(|event| event["involvedObject"]["name"] == pod);
    of_pod.map(|event| (text(event, "type"), text(event, "reason"), text(event, "message"))).collect()
}

impl Api for Store {
    fn put(&self, object: &Value) {
        Store::put(self, object).unwrap();
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.objects("v1", "Pod").unwrap().into_iter().find(|pod| pod["metadata"]["name"] == name)
    }

    fn remove_pod(&self, name: &str) {
        assert!(self.remove("v1", "Pod", "default", name).unwrap());
    }

    fn events(&self, pod: &str) -> Vec<(String, String, String)> {
        events(&self.objects("v1", "Event").unwrap(), pod)
    }

    fn connect(&self) -> Box<dyn FnOnce() -> Connection + Send> {
        let store = self.clone();
        Box::new(move || store.client().into())
    }
}

impl Api for ControlPlane {
    fn put(&self, object: &Value) {
        self.kubectl(&["create", "-f", "-"], &object.to_string()).unwrap();
    }

    fn pod(&self, name: &str) -> Option<Value> {
        let list = self.kubectl(&["get", "pods", "-o", "json"], "").unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().unwrap().iter().find(|pod| pod["metadata"]["name"] == name).cloned()
    }

    fn remove_pod(&self, name: &str) {
        self.kubectl(&["delete", "pod", name, "--force", "--grace-period=0"], "").unwrap();
    }

    fn events(&self, pod: &str) -> Vec<(String, String, String)> {
        let list: Value = serde_json::from_str(&self.kubectl(&["get", "events", "-o", "json"], "").unwrap()).unwrap();
        events(list["items"].as_array().unwrap(), pod)
    }

    fn connect(&self) -> Box<dyn FnOnce() -> Connection + Send> {
        connect_by(self.kubeconfig())
    }
}

/// As whoever a kubeconfig names. The client is made of a file without asking anybody: it is ready when it is first polled.
pub(crate) fn connect_by(file: PathBuf) -> Box<dyn FnOnce() -> Connection + Send> {
    Box::new(move || block_on(cluster::client(Some(&file))).unwrap())
}

/// For a future that waits for nothing.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// A pod of the node `n1`.
pub(crate) fn pod(name: &str, networks: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {
            "nodeName": "n1", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}],
        },
    })
}

/// A bridge of its own, with addresses.
pub(crate) fn network(name: &str, subnet: &str) -> Value {
    let ipam = json!({"type": "host-local", "subnet": subnet});
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge", "bridge": format!("br-{name}"), "ipam": ipam}]})
}

pub(crate) fn definition(name: &str, subnet: &str) -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"config": network(name, subnet).to_string()},
    })
}
