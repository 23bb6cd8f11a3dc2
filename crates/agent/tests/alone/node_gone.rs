//! A Node that is deleted while its agent and its pods live.

use std::time::Duration;

use objects::Store;
use serde_json::{Value, json};

use super::{VERSION, World, add, grant, granted, keeps, known, own_node, status, store, until, world};
use crate::api::Api;
use crate::world::Of;

const BLOCKS: [&str; 2] = ["10.20.0.0/30", "fd00:20::/126"];

/// What the operator says of a node whose Node is gone.
fn asked() -> Value {
    let mut object = granted(&BLOCKS, 1, keeps());
    object["spec"]["reclaimAfterSeconds"] = json!(4);
    object
}

fn alive_at(store: &Store) -> String {
    status(store)["aliveAt"].as_str().unwrap_or_default().to_owned()
}

/// What an ADD is refused with; one that is not is undone.
fn refused(world: &World, pod: &str) -> (u64, String) {
    let said = world.call("ADD", Of { pod, uid: "" });
    if said.is_ok() {
        world.ok("DEL", pod);
    }
    said.err().unwrap_or_default()
}

fn is_for_want_of_its_node((code, said): &(u64, String)) -> bool {
    *code == 11 && said.contains("no address can be assigned on this node: Node n1 was deleted while its agent runs: restart the kubelet")
}

fn has_event(store: &Store, of: &str) -> bool {
    Api::events(store, of)
        .iter()
        .any(|(kind, reason, said)| kind == "Warning" && reason == "NodeGone" && said.contains("Node n1 was deleted"))
}

#[test]
fn an_agent_without_its_node_assigns_nothing_and_says_that_it_lives() {
    let store = store();
    grant(&store, &granted(&BLOCKS, 1, keeps()));
    let world = world(&store);
    add(&store, &world, "web");
    known(&store, &world, "late");
    grant(&store, &asked());
    // It was closed before it said so.
    until("that it says that it lives", || alive_at(&store), |at| !at.is_empty());
    let said = refused(&world, "late");
    assert!(is_for_want_of_its_node(&said), "{said:?}");
    until("the Events", || ["n1", "late"].map(|of| has_event(&store, of)), |both| *both == [true; 2]);
    let first = alive_at(&store);
    until("that it says so again", || alive_at(&store), |at| *at != first);
    world.ok("CHECK", "web");
    // Nobody has anything any more: it need not say that it lives.
    world.ok("DEL", "web");
    let says_nothing = || {
        let before = alive_at(&store);
        // Sleeps: that it says nothing shows in time alone; it would each second.
        std::thread::sleep(Duration::from_millis(2500));
        alive_at(&store) == before
    };
    until("that it says nothing", says_nothing, |nothing| *nothing);
    assert!(is_for_want_of_its_node(&refused(&world, "late")));
    // The Node is there again.
    grant(&store, &granted(&BLOCKS, 1, keeps()));
    until("that it need not say so", || alive_at(&store), String::is_empty);
    world.ok("ADD", "late");
    world.ok("DEL", "late");
}

/// The operator has deleted its object: what it had may be another node's. The Node is asked for.
#[test]
fn an_agent_without_its_object_looks_for_its_node() {
    let store = store();
    Api::put(&store, &own_node("u1"));
    grant(&store, &granted(&BLOCKS, 1, keeps()));
    let world = world(&store);
    add(&store, &world, "web");
    ["late", "other"].iter().for_each(|name| known(&store, &world, name));
    assert!(store.remove("v1", "Node", "", "n1").unwrap() && store.remove(VERSION, "NodeIPPool", "", "n1").unwrap());
    until("that it is refused", || refused(&world, "late"), is_for_want_of_its_node);
    until("the Event", || has_event(&store, "late"), |there| *there);
    Api::put(&store, &own_node("u2"));
    // A change makes it look again.
    world.ok("DEL", "web");
    until("that it is served", || world.call("ADD", Of { pod: "late", uid: "" }).is_ok(), |served| *served);
    // Nobody can say whether it is there: it goes on.
    store.stop();
    world.ok("DEL", "late");
    for _ in 0..3 {
        world.ok("ADD", "other");
        world.ok("DEL", "other");
    }
    store.start();
}
