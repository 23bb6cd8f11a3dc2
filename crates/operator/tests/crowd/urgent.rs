//! A node whose pods wait, among very many new ones that want something in store: how soon it is granted a block at the operator's own
//! rate.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::Own;
use futures::StreamExt;
use http::Request;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use netloom_operator::Options;
use objects::Store;
use serde_json::{Value, json};

use crate::world::{NodePool, store, until, writes};

const PATIENCE: Duration = Duration::from_secs(600);

/// What was seen of the nodes' objects: when, and after how many writes.
#[derive(Debug, Default)]
struct Seen {
    made: BTreeSet<String>,
    granted: BTreeSet<String>,
    /// The one whose pods wait has said so.
    told: Option<(Instant, u64)>,
    /// And with how many others it has its block.
    served: Option<(Instant, u64, usize)>,
}

/// How long the node waits that comes last of all, once it has said so, and how many others have a block by then.
pub(crate) async fn served(nodes: usize, rate: Option<u32>) -> (Duration, usize) {
    let store = store(nodes, &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/8"}]}, "scaling": {"preAllocate": 8}}));
    let seen = Arc::<Mutex<Seen>>::default();
    let (agents, told) = (store.clone(), Arc::clone(&seen));
    let last = crate::world::node(nodes - 1);
    let following = tokio::spawn(follow(agents, last.clone(), told));
    let begun = Instant::now();
    let mut options = Options { lease: false, ..Options::new("urgent") };
    options.writes_per_second = rate.unwrap_or(options.writes_per_second);
    let rate = options.writes_per_second;
    let operator = netloom_operator::start(store.client(), options);
    until("the object of the last node", PATIENCE, || seen.lock().unwrap().told.is_some()).await;
    let made = begun.elapsed();
    until("its block", PATIENCE, || seen.lock().unwrap().served.is_some()).await;
    let (waited, others) = {
        let seen = seen.lock().unwrap();
        let ((told, before), (served, after, others)) = (seen.told.unwrap(), seen.served.unwrap());
        println!("{nodes} new nodes at {rate} writes a second: the last one has its object after {made:.2?}");
        let (waited, count) = (served - told, after - before);
        println!("it has a block {waited:.2?} after it said that its pods wait, {count} writes later; {others} others have one in store");
        (waited, others)
    };
    until("a block for each", PATIENCE, || seen.lock().unwrap().granted.len() == nodes).await;
    println!("all of them have a block after {:.2?}, {} writes", begun.elapsed(), writes(&store));
    assert!(operator.alive() && !following.is_finished());
    following.abort();
    (waited, others)
}

/// The agents of all nodes: each wants a block in store, and the pods of the last one wait.
async fn follow(store: Store, last: String, seen: Arc<Mutex<Seen>>) {
    let client = store.client();
    let mut events = watcher(Own::NodeIpPool.api::<NodePool>(client.clone()), Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(object) | Event::InitApply(object)) = event else { continue };
        let name = object.metadata.name.clone().unwrap();
        if !object.spec.blocks.is_empty() {
            let mut seen = seen.lock().unwrap();
            seen.granted.insert(name.clone());
            if name == last && seen.served.is_none() {
                seen.served = Some((Instant::now(), writes(&store), seen.granted.len() - 1));
            }
            continue;
        }
        if !seen.lock().unwrap().made.insert(name.clone()) {
            continue;
        }
        let demand = json!({"pool": crate::world::POOL, "v4": 64, "v6": 0, "inUseV4": 0, "inUseV6": 0, "waiting": name == last});
        let status = json!({"observedGeneration": 0, "agent": {"storeID": name, "bootID": "b", "instance": "i"}, "demand": [demand]});
        let patch = json!([{"op": "add", "path": "/status", "value": status}]);
        let path = format!("{}/{name}/status", Own::NodeIpPool.path());
        let request = Request::patch(path).header("content-type", "application/json-patch+json").body(patch.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await.unwrap();
        if name == last {
            seen.lock().unwrap().told = Some((Instant::now(), writes(&store)));
        }
    }
}
