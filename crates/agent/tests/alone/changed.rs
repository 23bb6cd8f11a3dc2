//! Somebody else changes the node's object between the agent's reading and its writing: it reads again, and makes the status again.

use std::sync::{Arc, Mutex};

use cluster::Connection;
use http::{Method, Request};
use kube::Client;
use kube::api::{Api as Kinds, DynamicObject, Patch, PatchParams};
use kube::client::Body;
use objects::Store;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cilium::{Operator, Restricted, kind, pool, start, world};
use crate::world::until;

/// So often in a row: more than it tries before it waits for the watch.
const TIMES: usize = 4;

/// An API where somebody is always faster.
struct Faster<'a, A, B> {
    api: &'a A,
    /// Who that is.
    others: &'a B,
    /// The codes of the answers to the agent's writes of the status.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl<A: Api, B: Api> Api for Faster<'_, A, B> {
    fn put(&self, object: &Value) {
        self.api.put(object);
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.api.pod(name)
    }

    fn remove_pod(&self, name: &str) {
        self.api.remove_pod(name);
    }

    fn events(&self, pod: &str) -> Vec<(String, String, String)> {
        self.api.events(pod)
    }

    fn connect(&self) -> Box<dyn FnOnce() -> Connection + Send> {
        let (agents, others, answers) = (self.api.connect(), self.others.connect(), Arc::clone(&self.answers));
        Box::new(move || {
            let (client, other) = (agents().client(), others().client());
            let service = tower::service_fn(move |request: Request<Body>| {
                let (client, other, answers) = (client.clone(), other.clone(), Arc::clone(&answers));
                async move {
                    let writes = request.method() == Method::PUT && request.uri().path().ends_with("/ciliumnodes/n1/status");
                    let before = answers.lock().unwrap().len();
                    if writes && before < TIMES {
                        change(other, before).await;
                    }
                    let answer = client.send(request).await?;
                    if writes {
                        answers.lock().unwrap().push(answer.status().as_u16());
                    }
                    Ok::<_, kube::Error>(answer)
                }
            });
            Client::new(service, "default").into()
        })
    }
}

/// What an operator, another controller and a person may do to it.
async fn change(client: Client, round: usize) {
    let nodes: Kinds<DynamicObject> = Kinds::all_with(client, &kind());
    let mut object = json!({"metadata": {"annotations": {"round": round.to_string()}}, "spec": {"eni": {"round": round}}});
    if round == 1 {
        object["spec"]["ipam"] = json!({"pool": {"192.168.1.3": {"resource": "eni-7"}, "192.168.1.4": {}}});
    }
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(object)).await.unwrap();
    let ipam = json!({"operator-status": {"error": round.to_string()}, "release-ips": {"192.168.1.4": "marked-for-release"}});
    let status = json!({"status": {"eni": {"enis": {"round": round}}, "ipam": ipam}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

fn suite(api: &impl Api, administrator: &impl Api) {
    let answers: Arc<Mutex<Vec<u16>>> = Arc::default();
    let faster = Faster { api, others: administrator, answers: Arc::clone(&answers) };
    let world = world(&faster, json!({}));
    let operator = Operator::new(administrator);
    operator.create(json!({"ipam": {"pool": pool(&["192.168.1.1", "192.168.1.2"])}, "eni": {"kept": true}}));
    operator.says("router and health", &json!({"192.168.1.1": {"owner": "router"}, "192.168.1.2": {"owner": "health"}}));
    // It was refused as often as somebody was faster, and no more.
    let codes = answers.lock().unwrap().clone();
    assert!(codes[..TIMES] == [409; TIMES] && codes[TIMES..].iter().all(|code| *code == 200), "{codes:?}");
    // What came meanwhile is answered in that write, and nothing of it is written over.
    let (object, last) = (operator.get(), TIMES - 1);
    let ipam = &object["status"]["ipam"];
    assert_eq!(ipam["release-ips"], json!({"192.168.1.4": "ready-for-release"}), "{object:#}");
    assert_eq!((&ipam["operator-status"]["error"], &object["status"]["eni"]["enis"]["round"]), (&json!(last.to_string()), &json!(last)));
    assert_eq!(
        (&object["spec"]["eni"], &object["metadata"]["annotations"]["round"]),
        (&json!({"kept": true, "round": last}), &json!(last.to_string()))
    );
    assert_eq!(object["spec"]["ipam"]["pool"].as_object().unwrap().len(), 4);
    // And the address that came meanwhile is a pod's.
    assert_eq!(start(api, &world, "a").unwrap(), "192.168.1.3/24");
    let told = json!({"owner": "default/a", "resource": "eni-7"});
    until("it is told", || operator.used()["192.168.1.3"].clone(), |by| *by == told);
    world.ok("DEL", "a");
}

#[test]
fn who_is_slower_reads_again_on_the_store() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    suite(&store, &store);
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn who_is_slower_reads_again_on_a_real_api_server() {
    let api = Restricted::new("slower");
    suite(&api, &api.plane);
}
