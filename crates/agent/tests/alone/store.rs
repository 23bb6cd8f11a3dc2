//! What only a store does when a test wants it: not to answer, to be slow, to forget.

use std::time::{Duration, Instant};

use objects::{Requests, Store};
use serde_json::json;

use crate::api::{Api, pod};
use crate::world::{World, status, until};

fn store() -> Store {
    let store = Store::new();
    store.install_network_attachment_definitions();
    store
}

/// A pod that the agent has seen, so that a call needs not ask for it, and its namespace.
fn known(store: &Store, world: &World, name: &str) {
    let before = store.requests();
    Api::put(store, &pod(name, "a,b,c"));
    world.sandbox(name);
    until("the watch", || world.agent().knows("default", name), |known| *known);
    assert_eq!(since(&before, store), [], "nobody asks for what the watch tells");
}

/// The requests since then. The watch that follows a list begins when it likes: it is nobody's question.
fn since(before: &Requests, store: &Store) -> Vec<(&'static str, String, u64)> {
    let now = store.requests();
    let more = now.into_iter().map(|(key, count)| (key.clone(), count - before.get(&key).copied().unwrap_or_default()));
    more.filter(|((verb, _), count)| *verb != "watch" && *count > 0).map(|((verb, resource), count)| (verb, resource, count)).collect()
}

#[test]
fn an_add_costs_one_patch_and_a_del_nothing() {
    let store = store();
    let world = World::new(&store, json!({}));
    known(&store, &world, "web");
    let before = store.requests();
    world.ok("ADD", "web");
    assert_eq!(since(&before, &store), [("patch", "pods/status".to_owned(), 1)]);
    let before = store.requests();
    world.ok("CHECK", "web");
    world.ok("DEL", "web");
    assert_eq!(since(&before, &store), []);
}

#[test]
fn without_the_api_known_pods_start_and_their_status_follows() {
    let store = store();
    let world = World::new(&store, json!({"statusWait": "100ms"}));
    known(&store, &world, "web");
    known(&store, &world, "gone");
    store.stop();
    for name in ["web", "gone"] {
        world.ok("ADD", name);
        assert_eq!((world.links(name).len(), status(&store, name).len()), (4, 0));
    }
    // Another pod takes the place of this one before its status can be written: it must not get it.
    store.remove_pod("gone");
    Api::put(&store, &pod("gone", "a"));
    world.ok("DEL", "gone");
    store.start();
    until("the status", || status(&store, "web"), |status| status.len() == 4);
    assert!(world.agent().told(Duration::from_secs(60)), "nothing waits for a pod that is gone");
    assert_eq!(status(&store, "gone"), []);
    store.stop();
    world.ok("DEL", "web");
    assert_eq!((world.links("web"), world.addresses()), (Vec::new(), Vec::new()));
}

#[test]
fn a_slow_api_holds_no_add_up_longer_than_it_may() {
    let store = store();
    let world = World::new(&store, json!({"statusWait": "200ms"}));
    known(&store, &world, "web");
    // No answer comes while the ADD runs, however slow this machine is.
    store.delay(Duration::from_secs(3600));
    let start = Instant::now();
    world.ok("ADD", "web");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(60), "{took:?}");
    assert_eq!(status(&store, "web"), []);
    store.delay(Duration::ZERO);
    until("the status", || status(&store, "web"), |status| status.len() == 4);
    world.ok("DEL", "web");
}

#[test]
fn after_410_the_agent_lists_again() {
    let store = store();
    let world = World::new(&store, json!({}));
    let lists = || store.requests().get(&("list", "pods".to_owned())).copied().unwrap_or_default();
    let before = lists();
    store.stop();
    Api::put(&store, &pod("web", "a,b,c"));
    // Nothing of that time is kept: the watch that begins where the last one ended is refused.
    store.forget_history();
    store.start();
    until("another list", lists, |now| *now > before);
    world.sandbox("web");
    world.ok("ADD", "web");
    until("the status", || status(&store, "web"), |status| status.len() == 4);
    world.ok("DEL", "web");
}
