//! Calls whose outcome must not depend on who answers: the store, or a real API server.

use objects::Store;
use serde_json::json;
use testbed::ControlPlane;

use crate::api::{Api, pod};
use crate::world::{Of, World, status, until};

fn suite(api: &impl Api) {
    let world = World::new(api, json!({}));
    attaches_and_detaches(api, &world);
    another_pod_of_the_same_name(api, &world);
    what_the_owner_can_mend_is_an_event(api, &world);
    assert_eq!((world.links("node"), world.addresses()), (vec!["br-pods".to_owned()], Vec::new()));
}

fn attaches_and_detaches(api: &impl Api, world: &World) {
    api.put(&pod("web", "a,b@data,c"));
    world.sandbox("web");
    let result = world.ok("ADD", "web");
    assert!(result["ips"][0]["address"].as_str().unwrap().starts_with("10.90."), "that of the default network: {result}");
    assert_eq!(world.links("web"), ["data", "eth0", "net1", "net3"]);
    let expected = [("pods", "eth0"), ("default/a", "net1"), ("default/b", "data"), ("default/c", "net3")];
    until("the status", || status(api, "web"), |told| !told.is_empty());
    assert_eq!(status(api, "web"), expected.map(|(name, interface)| (name.to_owned(), interface.to_owned())));
    world.ok("CHECK", "web");
    for _ in 0..2 {
        world.ok("DEL", "web");
        assert_eq!((world.links("web"), world.addresses()), (Vec::new(), Vec::new()));
    }
    assert_eq!(world.call("CHECK", Of { pod: "web", uid: "" }).unwrap_err().0, 3, "it is not attached");
}

/// Its networks are others.
fn another_pod_of_the_same_name(api: &impl Api, world: &World) {
    api.put(&pod("db-0", "a"));
    world.sandbox("db-0");
    let (code, msg) = world.call("ADD", Of { pod: "db-0", uid: "9ac61fa5-b8ea-4bb5-9d7c-2ea3ba15a9b0" }).unwrap_err();
    assert!(code == 11 && msg.contains("expected pod UID"), "{code} {msg}");
    let (code, msg) = world.call("ADD", Of { pod: "none", uid: "" }).unwrap_err();
    assert!(code == 11 && msg.contains("not in the API"), "{code} {msg}");
    assert_eq!((world.links("db-0"), status(api, "db-0").len()), (Vec::new(), 0));
    let uid = api.pod("db-0").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    world.call("ADD", Of { pod: "db-0", uid: &uid }).unwrap();
    until("the status", || status(api, "db-0"), |told| told.len() == 2);
    world.ok("DEL", "db-0");
}

fn what_the_owner_can_mend_is_an_event(api: &impl Api, world: &World) {
    api.put(&pod("bad", "a,nowhere"));
    world.sandbox("bad");
    let (code, msg) = world.call("ADD", Of { pod: "bad", uid: "" }).unwrap_err();
    assert!(msg.contains("nowhere"), "{code} {msg}");
    assert_eq!(world.links("bad"), [""; 0]);
    world.agent().told(std::time::Duration::from_secs(5));
    until("an Event", || api.events("bad"), |events| !events.is_empty());
    let [(kind, reason, message)] = &api.events("bad")[..] else { panic!("{:?}", api.events("bad")) };
    assert!(kind == "Warning" && reason == "InvalidNetworks" && message.contains("nowhere"), "{kind} {reason} {message}");
}

#[test]
fn the_store() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    suite(&store);
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_real_api_server() {
    let plane = ControlPlane::start(std::env::temp_dir().join(format!("netloom-alone-{}", std::process::id()))).unwrap();
    plane.define_networks().unwrap();
    suite(&plane);
}
