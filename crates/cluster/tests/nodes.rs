//! What 5,000 Nodes of 10 KB cost an agent, and whom their heartbeats wake: before a server that makes them up while it sends them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use netloom_cluster::{Cluster, Node, Nodes};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const NODES: u32 = 5000;

/// What the Nodes may take of memory that is no file's, in KiB. It was 3,200.
const LIMIT: usize = 8 * 1024;

/// What its watch of Nodes sends, a line for each.
type Lines = mpsc::UnboundedReceiver<String>;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The nth Node as a kubelet writes it: most of it is the images that it has.
fn node(n: u32, heartbeat: u32) -> Value {
    let image = |i| json!({"names": [format!("registry.example/{i}/{}", "x".repeat(130))], "sizeBytes": 7});
    let images: Vec<Value> = (0..50).map(image).collect();
    let condition = |name: &str, status: &str| {
        json!({"type": name, "status": status, "lastHeartbeatTime": format!("2026-01-01T00:00:{heartbeat:02}Z"),
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": format!("{name}Known"), "message": "as the kubelet has it"})
    };
    let [_, _, high, low] = Ipv4Addr::from_bits(n).octets();
    json!({
        "metadata": {
            "name": format!("node-{n}"), "uid": format!("0e3a4a0e-7b7e-4d3c-a54c-{n:012}"), "resourceVersion": format!("{}", 1000 + heartbeat),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"kubernetes.io/hostname": format!("node-{n}")},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "netloom.io/between": "{\"mode\":\"vxlan\"}"},
        },
        "spec": {"podCIDR": format!("10.{high}.{low}.0/24"), "podCIDRs": [format!("10.{high}.{low}.0/24"), format!("fd00:{n:x}::/64")]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": format!("172.16.{high}.{low}")},
                {"type": "InternalIP", "address": format!("2001:db8::{n:x}")}, {"type": "Hostname", "address": format!("node-{n}")},
            ],
            "conditions": [condition("Ready", "True"), condition("NetworkUnavailable", "False")], "images": images,
        },
    })
}

fn body(pieces: impl Stream<Item = String> + Send + 'static) -> Body {
    StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))))).boxed_unsync()
}

/// A page of Nodes, made up one by one.
fn page(from: u32, limit: u32) -> Body {
    let to = (from + limit).min(NODES);
    let more = if to < NODES { to.to_string() } else { String::new() };
    let head = format!(r#"{{"kind":"NodeList","metadata":{{"resourceVersion":"1000","continue":"{more}"}},"items":["#);
    let items = (from..to).map(move |n| format!("{}{}", if n == from { "" } else { "," }, node(n, 0)));
    body(stream::iter([head]).chain(stream::iter(items)).chain(stream::iter(["]}".to_owned()])))
}

/// The answer to a request. Of all but Nodes there are none, and nothing happens to them.
fn answer(path_and_query: &str, lines: &Mutex<Option<Lines>>) -> Body {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let asked = |key: &str| query.split('&').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    match (path, asked("watch").is_some()) {
        ("/api/v1/nodes", false) => {
            page(asked("continue").map_or(0, |from| from.parse().unwrap()), asked("limit").unwrap().parse().unwrap())
        }
        ("/api/v1/nodes", true) => match lines.lock().unwrap().take() {
            Some(lines) => body(stream::unfold(lines, async |mut lines| lines.recv().await.map(|line| (line, lines)))),
            None => body(stream::pending()),
        },
        (_, false) => body(stream::iter([r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()])),
        (_, true) => body(stream::pending()),
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn until(what: &str, so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(300), "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_woken(nodes: &mut Nodes) -> bool {
    nodes.changed().now_or_never().is_some()
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

#[test]
fn five_thousand_nodes_are_small_and_their_heartbeats_wake_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (sender, lines) = mpsc::unbounded_channel();
        let (lines, asked) = (Arc::new(Mutex::new(Some(lines))), Arc::new(Mutex::new(Vec::new())));
        let requests = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let path = request.uri().path_and_query().unwrap().to_string();
            let answer = answer(&path, &lines);
            requests.lock().unwrap().push(path);
            async move { Ok::<_, Infallible>(Response::new(answer)) }
        });
        let cluster = Cluster::start(kube::Client::new(service, "default"), "node-7");
        until("the other lists", || cluster.synced().complete()).await;
        let before = resident();
        let begin = Instant::now();
        let mut nodes = cluster.follow_nodes();
        let mut second = nodes.clone();
        until("the Nodes", || nodes.listed().complete).await;
        let listed = begin.elapsed();
        // Sleeps: what was freed is given back to the kernel a little later.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let kept = resident().saturating_sub(before);
        println!("{NODES} Nodes of {} bytes listed in {listed:?}; they take {kept} KiB", node(7, 0).to_string().len());
        assert!(kept < LIMIT, "{kept} KiB");
        let pages = asked.lock().unwrap().iter().filter(|path| path.contains("/nodes?") && path.contains("limit=500")).count();
        assert_eq!((nodes.all().len(), pages), (5000, 10));

        let own = nodes.own().unwrap();
        let addresses: Vec<String> = own.internal_ips.iter().map(ToString::to_string).collect();
        assert_eq!((own.name.as_str(), addresses.as_slice()), ("node-7", ["172.16.0.7".to_owned(), "2001:db8::7".to_owned()].as_slice()));
        assert!(is_woken(&mut nodes) && !is_woken(&mut nodes), "once for the whole list");

        // What came last is another object, though it is equal: so it is seen that the heartbeats were read.
        let latest = |name: &str| nodes_latest(&nodes, name);
        let earlier = latest("node-99");
        (0..100).for_each(|n| sender.send(event("MODIFIED", &node(n, 10))).unwrap());
        until("the heartbeats", || !Arc::ptr_eq(&earlier, &latest("node-99"))).await;
        assert_eq!(earlier, latest("node-99"));
        assert!(!is_woken(&mut nodes), "a heartbeat is nothing to wake for");

        // Many changes are one.
        for n in 0..300 {
            let mut changed = node(n, 20);
            changed["metadata"]["annotations"]["netloom.io/between"] = json!("{\"mode\":\"direct\"}");
            sender.send(event("MODIFIED", &changed)).unwrap();
        }
        let gone = node(300, 20);
        sender.send(event("DELETED", &gone)).unwrap();
        until("the changes", || nodes.get("node-300").is_none()).await;
        nodes.changed().await;
        assert!(!is_woken(&mut nodes), "they were one");
        assert!(is_woken(&mut second), "a clone waits by itself");
        assert_eq!(nodes.all().len(), 4999);

        // Whatever a Node says, the others are followed.
        let mut broken = node(7, 30);
        broken["metadata"]["annotations"]["netloom.io/between"] = json!("x".repeat(100_000));
        broken["spec"]["podCIDRs"] = json!(["10.0.7.0/33"]);
        sender.send(event("MODIFIED", &broken)).unwrap();
        nodes.changed().await;
        let own = nodes.own().unwrap();
        assert!(matches!(own.announced, Some(Err(_))) && own.unreadable.len() == 1 && own.pod_cidrs.is_empty(), "{own:?}");
        sender.send(event("ADDED", &node(NODES, 40))).unwrap();
        nodes.changed().await;
        assert!(nodes.get("node-5000").is_some() && nodes.listed().failing.is_none());
    });
}

fn nodes_latest(nodes: &Nodes, name: &str) -> Arc<Node> {
    nodes.get(name).unwrap()
}
