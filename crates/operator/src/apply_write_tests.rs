//! The largest objects that the operator writes, on a real API server. How large they may become is computed in `ledger`, of what they
//! say; what counts is what etcd gets of them, with what the API server adds in `metadata.managedFields`.

use std::ops::Range;
use std::path::Path;

use api::{NodeIpPoolStatus, Returning};
use ledger::{CiliumNodeSeen, ClaimSeen, DefinitionSeen, FINALIZER, MOST_BYTES, MOST_SHARD_BYTES, PodSeen, Source, step};
use pool::Scaling;
use testbed::ControlPlane;

use super::*;
use crate::store::Store;

/// What etcd takes at once.
const ETCD: usize = 3 << 19;
/// Of so many blocks a node tells that it gives them back.
const MOST_BLOCKS: usize = 4096;
/// One shard has room for so many single addresses that no size would be in their way.
const ONE_SHARD: &str = "fd00::/114";

/// What a cluster is, as far as the ledger knows, and the server that has it.
struct Scene {
    client: Client,
    seen: Store,
}

/// How large an object is, in bytes of JSON, and how much of that are its `managedFields`.
struct Size {
    whole: usize,
    managed: usize,
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// As the API server makes them.
fn uid(n: usize) -> String {
    format!("6f7c1b1e-0000-4000-8000-{n:012}")
}

fn node(n: usize) -> String {
    format!("ip-10-0-12-{n}.eu-west-1.compute.internal")
}

impl Scene {
    /// With nodes of these numbers, which no other one has.
    fn new(client: &Client, nodes: Range<usize>) -> Self {
        let seen = Store::default();
        for n in nodes {
            seen.put(Kind::Node, object(json!({"metadata": {"name": node(n), "uid": uid(n), "resourceVersion": "1"}})));
        }
        // Seconds, as of those of a ledger that is made now.
        seen.lock().world.first_epoch = 1_790_000_000;
        Scene { client: client.clone(), seen }
    }

    fn pool(&self, name: &str, spec: &Value) {
        let metadata = json!({"name": name, "resourceVersion": "1", "finalizers": [FINALIZER]});
        self.seen.put(Kind::Own(Own::IpPool), object(json!({"metadata": metadata, "spec": spec})));
    }

    /// Decides and writes, as the operator does, until nothing of the ledger and of nodes is to be written.
    async fn settle(&self) {
        for _ in 0..100 {
            let mut writes = step(&self.seen.lock().world).writes;
            writes.retain(|write| matches!(kind(write), Kind::Own(Own::IpLedgerShard | Own::NodeIpPool)));
            if writes.is_empty() {
                return;
            }
            for write in writes {
                let request = request(&write, &self.seen.lock()).unwrap();
                match apply_write(&self.client, &write, request).await {
                    Outcome::Done(Some(object)) => self.seen.put(kind(&write), *object),
                    other => panic!("{:?}: {other:?}", write.object()),
                }
            }
        }
        panic!("there is no end to it");
    }

    async fn size(&self, own: Own, name: &str) -> Size {
        let text = self.client.request_text(Request::get(format!("{}/{name}", own.path())).body(Vec::new()).unwrap()).await.unwrap();
        let object: Value = serde_json::from_str(&text).unwrap();
        Size { whole: text.len(), managed: object["metadata"]["managedFields"].to_string().len() }
    }

    /// The shard that has single addresses, and how many: printed is what each of them takes.
    async fn shard(&self, what: &str) -> (usize, usize) {
        let shards: Vec<_> = self.seen.lock().world.shards.iter().map(|(name, seen)| (name.clone(), seen.spec.clone())).collect();
        let count = |spec: &api::IpLedgerShardSpec| spec.cells.values().map(|cell| cell.ips.len()).sum::<usize>();
        let (name, spec) = shards.iter().max_by_key(|(_, spec)| count(spec)).unwrap();
        let (size, n) = (self.size(Own::IpLedgerShard, name).await, count(spec));
        let (computed, managed) = (MOST_SHARD_BYTES / n, size.managed / n);
        println!(
            "{what}: {n} in a shard of {} KiB; each {} bytes ({managed} managed), computed {computed}",
            size.whole / 1024,
            size.whole / n
        );
        (n, size.whole)
    }

    async fn status(&self, name: &str, status: &NodeIpPoolStatus) {
        let body = json!([{"op": "add", "path": "/status", "value": status}]);
        let path = format!("{}/{name}/status", Own::NodeIpPool.path());
        let answer = send(&self.client, make(Method::PATCH, path, "application/json-patch+json", &body)).await;
        let Outcome::Done(Some(object)) = answer else { panic!("{answer:?}") };
        self.seen.put(Kind::Own(Own::NodeIpPool), *object);
    }
}

/// Addresses that stand in CiliumNodes.
async fn of_cilium_nodes(client: &Client) {
    let scene = Scene::new(client, 0..24);
    scene.pool("cilium", &json!({"ipv6": {"entries": [{"cidr": ONE_SHARD}]}}));
    {
        let cilium = &mut scene.seen.lock().world.cilium;
        (cilium.pool, cilium.complete) = ("cilium".into(), true);
        for n in 0..24 {
            let wants = Scaling { min_allocate: 256, ..Scaling::default() };
            let seen = CiliumNodeSeen { version: "123456789".into(), uid: uid(n), node_uid: uid(n), wants, ..CiliumNodeSeen::default() };
            cilium.nodes.insert(node(n), seen);
        }
    }
    scene.settle().await;
    let (n, size) = scene.shard("of CiliumNodes").await;
    assert!(n < 24 * 256, "{n}: the shard is not full");
    assert!(size <= MOST_SHARD_BYTES, "{size}");
}

/// A pod of every claim on one node, as far as the ledger is concerned; it migrates.
fn pod(node: String, claims: &[String], created: &str) -> PodSeen {
    PodSeen { created: created.to_owned(), node, migrates: true, claims: claims.to_vec(), ..PodSeen::default() }
}

/// Addresses of claims, which are a node's, and then two nodes'.
async fn of_claims(client: &Client) {
    let scene = Scene::new(client, 30..32);
    scene.pool("storage", &json!({"ipv6": {"entries": [{"cidr": ONE_SHARD}]}}));
    // Long names fill a shard with fewer claims, of which a step looks at all for each.
    let names: Vec<String> = (0..2300).map(|n| format!("tenant-a/database-{}-{n:04}", "x".repeat(230))).collect();
    {
        let claims = &mut scene.seen.lock().world.claims;
        claims.complete = true;
        let source = Source { pools: vec!["storage".into()], families: Vec::new() };
        claims.definitions.insert("tenant-a/net".into(), DefinitionSeen { network: "net".into(), source: Ok(source) });
        for (n, name) in names.iter().enumerate() {
            // Not looked for one by one: what is measured does not depend on it.
            let spec = json!({"network": "net", "interface": "net1", "ipRequests": [format!("fd00::{:x}", n + 0x100)]});
            let spec = serde_json::from_value(spec).unwrap();
            let claim = ClaimSeen { version: "1".into(), uid: uid(n), finalizer: true, spec, ..ClaimSeen::default() };
            claims.claims.insert(name.clone(), claim);
        }
    }
    let put = |name: &str, pod: PodSeen| drop(scene.seen.lock().world.claims.pods.insert(name.to_owned(), pod));
    put("tenant-a/from", pod(node(30), &names, "1"));
    scene.settle().await;
    let (n, size) = scene.shard("of claims that are a node's").await;
    assert!(n < names.len(), "{n}: the shard is not full");
    assert!(size <= MOST_SHARD_BYTES, "{size}");
    // All of them at once, which is nobody's habit: then the API server leaves `managedFields` out.
    put("tenant-a/to", pod(node(31), &names, "2"));
    scene.settle().await;
    let (_, size) = scene.shard("of claims that are two nodes'").await;
    assert!(size < ETCD, "{size}");
}

/// Blocks of a node that has as many as it gets, and what its agent says of them.
async fn of_a_node(client: &Client) {
    let scene = Scene::new(client, 40..41);
    let pools: Vec<String> = (0..8).map(|i| format!("pool-of-a-tenant-{i:03}")).collect();
    for name in &pools {
        let (v4, v6) = (json!({"entries": [{"cidr": "10.0.0.0/12"}]}), json!({"entries": [{"cidr": "fd00:1:2:3::/64"}]}));
        scene.pool(name, &json!({"ipv4": v4, "ipv6": v6}));
    }
    scene.settle().await;
    let demand = |pool: &String| api::Demand { pool: pool.clone(), v4: 512 * 64, v6: 512 * 256, ..api::Demand::default() };
    let mut status = NodeIpPoolStatus { demand: pools.iter().map(demand).collect(), ..NodeIpPoolStatus::default() };
    scene.status(&node(40), &status).await;
    scene.settle().await;
    let size = scene.size(Own::NodeIpPool, &node(40)).await;
    let blocks = scene.seen.lock().world.node_pools[&node(40)].spec.blocks.clone();
    let n = blocks.len();
    println!("a node: {n} blocks in {} KiB; each {} bytes, computed {}", size.whole / 1024, size.whole / n, MOST_BYTES / n);
    assert!(n < 8 * 2 * 512, "{n}: the object is not full");
    assert!(size.whole <= MOST_BYTES, "{}", size.whole);
    // It gives back as many as it can tell of at once.
    let back = |block: api::GrantedBlock| Returning { cidr: block.cidr, pool: block.pool, epoch: block.epoch };
    status.returning = blocks.into_iter().take(MOST_BLOCKS).map(back).collect();
    scene.status(&node(40), &status).await;
    let size = scene.size(Own::NodeIpPool, &node(40)).await;
    println!("  returned: {} KiB", size.whole / 1024);
    assert!(size.whole < ETCD, "{}", size.whole);
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn what_is_computed_is_no_less_than_what_etcd_gets() {
    let dir = std::env::temp_dir().join(format!("netloom-operator-largest-{}", std::process::id()));
    let plane = ControlPlane::start(dir).unwrap();
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/ippools.yaml");
    plane.kubectl(&["apply", "-f", definitions.to_str().unwrap()], "").unwrap();
    for own in [Own::IpPool, Own::NodeIpPool, Own::IpLedgerShard] {
        plane.served(&format!("{}.netloom.io", own.plural())).unwrap();
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = cluster::client(Some(&plane.kubeconfig())).await.unwrap().client();
        of_cilium_nodes(&client).await;
        of_claims(&client).await;
        of_a_node(&client).await;
    });
}
