//! What a test does with the store that it could not do with an API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::watcher,
};
use netloom_objects::Store;
use serde_json::json;

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn pod(name: &str, node: &str) -> Pod {
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn code<T>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Api(status)) => status.code,
        Err(error) => panic!("not refused, but {error:?}"),
        Ok(_) => 200,
    }
}

#[tokio::test]
async fn a_stopped_store_is_an_unreachable_server() {
    let store = Store::new();
    let maps = maps(&store.client());
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
    store.stop();
    assert!(watch.next().await.is_none(), "the watch ends");
    assert!(matches!(maps.get("a").await, Err(Error::Service(_))), "no API server said anything");
    assert!(matches!(maps.create(&PostParams::default(), &map("b")).await, Err(Error::Service(_))));
    store.start();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1, "what there was, and nothing of what was refused");
}

#[tokio::test]
async fn forgotten_history_is_410() {
    let store = Store::new();
    let maps = maps(&store.client());
    let old = maps.create(&PostParams::default(), &map("a")).await.unwrap().resource_version().unwrap();
    for name in ["b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    store.forget_history();
    let mut watch = maps.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    let Some(Ok(WatchEvent::Error(status))) = watch.next().await else { panic!("no error") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(watch.next().await.is_none());
    assert_eq!(code(maps.list(&ListParams::default().limit(1).continue_token(&token)).await), 410);
    // From now on everything is known.
    let mut watch = maps.watch(&WatchParams::default(), &store.revision().to_string()).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("d")).await.unwrap();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
}

#[tokio::test]
async fn the_window_moves_on_by_itself() {
    let store = Store::new();
    store.keep(10);
    let maps = maps(&store.client());
    let first = maps.create(&PostParams::default(), &map("a")).await.unwrap().resource_version().unwrap();
    for number in 0..10 {
        maps.create(&PostParams::default(), &map(&format!("b{number}"))).await.unwrap();
    }
    let seen: Vec<_> = maps.watch(&WatchParams::default().timeout(1), &first).await.unwrap().try_collect().await.unwrap();
    assert_eq!(seen.len(), 10, "all that is kept");
    maps.create(&PostParams::default(), &map("c")).await.unwrap();
    let seen: Vec<_> = maps.watch(&WatchParams::default().timeout(1), &first).await.unwrap().try_collect().await.unwrap();
    assert!(matches!(seen.as_slice(), [WatchEvent::Error(status)] if status.code == 410), "{seen:?}");
}

#[tokio::test]
async fn requests_are_counted_and_delayed() {
    let store = Store::new();
    let client = store.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &pod("p", "n")).await.unwrap();
    let status = json!({"status": {"phase": "Running"}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
    assert_eq!(code(pods.get("none").await), 404);
    pods.get("p").await.unwrap();
    let requests = store.requests();
    let of = |verb: &'static str, resource: &str| requests.get(&(verb, resource.to_owned())).copied().unwrap_or_default();
    assert_eq!((of("create", "pods"), of("patch", "pods/status"), of("get", "pods"), of("list", "pods")), (1, 1, 2, 0));
    store.delay(Duration::from_millis(200));
    let began = Instant::now();
    pods.get("p").await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn bookmarks_tell_how_far_a_watch_is() {
    let store = Store::new();
    store.bookmark_every(Duration::from_millis(50));
    let client = store.client();
    let mut watch = maps(&client).watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    pods.create(&PostParams::default(), &pod("p", "n")).await.unwrap();
    let told = async {
        // One may have come before the pod did.
        loop {
            let Some(Ok(WatchEvent::Bookmark(bookmark))) = watch.next().await else { panic!("no bookmark") };
            if bookmark.metadata.resource_version == store.revision().to_string() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("also what happened to others");
}

#[tokio::test]
async fn a_watcher_of_kube_runtime_survives_everything() {
    for streaming in [false, true] {
        let store = Store::new();
        let maps = maps(&store.client());
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        let config = if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
        let mut seen = watcher(maps.clone(), config).boxed();
        assert!(matches!(seen.next().await, Some(Ok(watcher::Event::Init))));
        assert!(matches!(seen.next().await, Some(Ok(watcher::Event::InitApply(_)))));
        assert!(matches!(seen.next().await, Some(Ok(watcher::Event::InitDone))));
        maps.create(&PostParams::default(), &map("b")).await.unwrap();
        assert!(matches!(seen.next().await, Some(Ok(watcher::Event::Apply(_)))));
        // A watch that ends goes on from where it was; one that is too late begins again.
        store.stop();
        assert!(seen.next().await.is_some_and(|event| event.is_err()));
        store.start();
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        store.forget_history();
        let mut names = Vec::new();
        loop {
            match seen.next().await.unwrap() {
                Ok(watcher::Event::InitApply(map)) => names.push(map.name_any()),
                Ok(watcher::Event::InitDone) => break,
                _ => {}
            }
        }
        assert_eq!(names, ["b"], "streaming: {streaming}");
    }
}

#[tokio::test]
async fn the_network_definition_is_served_when_it_is_installed() {
    let store = Store::new();
    let client = store.client();
    let kind = kube::core::GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let networks: Api<kube::core::DynamicObject> = Api::namespaced_with(client, "default", &resource);
    assert_eq!(code(networks.list(&ListParams::default()).await), 404);
    store.install_network_attachment_definitions();
    store.install_network_attachment_definitions();
    let network = kube::core::DynamicObject::new("d", &resource).data(json!({"spec": {"config": "{}"}}));
    networks.create(&PostParams::default(), &network).await.unwrap();
    assert_eq!(networks.get("d").await.unwrap().data["spec"]["config"], "{}");
}

#[tokio::test]
async fn typed_clients_write_events() {
    let store = Store::new();
    let events: Api<Event> = Api::namespaced(store.client(), "default");
    let event = json!({"metadata": {"generateName": "p."}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "message": "m"});
    events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    let found = events.list(&ListParams::default().fields("involvedObject.name=p")).await.unwrap();
    assert_eq!(found.items[0].message.as_deref(), Some("m"));
}

/// A node's watch is not woken by other nodes' pods: 5,000 of them, and one write costs what it costs with one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_nodes_watch_their_pods() {
    const NODES: usize = 5_000;
    let store = Store::new();
    let client = store.client();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let mut watches = Vec::with_capacity(NODES);
    for node in 0..NODES {
        let selected = WatchParams::default().fields(&format!("spec.nodeName=n{node}"));
        watches.push(pods.watch(&selected, "0").await.unwrap().boxed());
    }
    assert_eq!(store.watches(), NODES);
    let began = Instant::now();
    for node in (0..NODES).step_by(50) {
        pods.create(&PostParams::default(), &pod(&format!("p{node}"), &format!("n{node}"))).await.unwrap();
    }
    println!("{} pods among {NODES} watches: {:?}", NODES / 50, began.elapsed());
    for (node, watch) in watches.iter_mut().enumerate().step_by(50) {
        let Some(Ok(WatchEvent::Added(pod))) = watch.next().await else { panic!("no event") };
        assert_eq!(pod.name_any(), format!("p{node}"));
    }
    drop(watches);
    assert_eq!(store.watches(), 0, "who hung up is not counted");
}
