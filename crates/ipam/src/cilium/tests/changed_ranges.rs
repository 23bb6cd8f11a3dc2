//! The same addresses under other keys: a range that grows, one address of a network that becomes a pod's.

use super::*;

/// What new pods get, until nobody gets anything more.
fn all_of_it(node: &Node) -> Vec<String> {
    let new = (100..).filter(|n| node.store().lease(&key(*n)).is_none());
    new.map_while(|n| node.get(n, "any").ok()).collect()
}

#[test]
fn a_range_grows_while_pods_have_addresses_of_it() {
    let mut node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.10-10.0.0.12": {}})), &none);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.11");
    node.follow(&offer(json!({"10.0.0.10-10.0.0.14": {}})), &none);
    assert_eq!(all_of_it(&node), ["10.0.0.12", "10.0.0.13", "10.0.0.14"]);
    node.restart();
    assert!(node.put_back(0));
    assert_eq!(all_of_it(&node), ["10.0.0.11"]);
}

#[test]
fn a_range_moves_on_and_shrinks() {
    let node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.10-10.0.0.12": {}})), &none);
    assert_eq!([0, 1].map(|n| node.get(n, "a").unwrap()), ["10.0.0.11", "10.0.0.12"]);
    let moved = offer(json!({"10.0.0.12-10.0.0.13": {}}));
    node.follow(&moved, &none);
    assert_eq!(all_of_it(&node), ["10.0.0.13"]);
    let told = node.used(&moved);
    assert_eq!(told.as_object().unwrap().keys().collect::<Vec<_>>(), ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"]);
    assert!(node.put_back(0) && node.put_back(1));
    assert_eq!(all_of_it(&node), ["10.0.0.12"], "the other one is not the node's any more");
}

#[test]
fn one_address_of_a_network_is_a_pods() {
    let node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.0/29": {}})), &none);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
    let pinned = offer(json!({"10.0.0.0/29": {}, "10.0.0.4": {"owner": "ns/db"}}));
    node.follow(&pinned, &none);
    assert_eq!(node.get(1, "db").unwrap(), "10.0.0.4");
    assert_eq!(all_of_it(&node), ["10.0.0.3", "10.0.0.5", "10.0.0.6"]);
    assert!(node.put_back(0));
    assert_eq!(node.get(2, "b").unwrap(), "10.0.0.2");
}

#[test]
fn the_edges_of_a_network_stay_nobodys_beside_addresses_of_their_own() {
    let node = Node::new();
    let none = BTreeMap::new();
    // What is left of the network beside them are single addresses, too.
    node.follow(&offer(json!({"10.0.0.0/30": {}, "10.0.0.1": {"owner": "ns/a"}, "10.0.0.2": {}, "10.0.0.9": {}})), &none);
    assert_eq!(all_of_it(&node), ["10.0.0.9"]);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.1");
    // Who writes one by itself means it.
    node.follow(&offer(json!({"10.0.0.0/30": {}, "10.0.0.3": {}})), &none);
    assert_eq!(all_of_it(&node), ["10.0.0.3"]);
}

#[test]
fn a_network_that_is_one_pods_has_edges_too() {
    let node = Node::new();
    node.follow(&offer(json!({"10.0.0.0/30": {"owner": "ns/db"}, "10.0.1.1": {}, "10.0.1.2": {}})), &BTreeMap::new());
    let got = [0, 1].map(|n| node.get(n, "db").unwrap());
    assert_eq!(got, ["10.0.0.1", "10.0.0.2"]);
    assert!(node.get(2, "db").unwrap_err().starts_with("10.0.0.1 is not free"));
    let mut edge = ask(3, "db", Family::V4);
    edge.wants[0].address = Some("10.0.0.3".parse().unwrap());
    assert!(node.store().reserve(&edge).unwrap_err().to_string().contains("is excluded"));
}

#[test]
fn another_cut_forgets_no_quarantine() {
    let node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.10-10.0.0.12": {}})), &none);
    assert!(node.store().quarantine(POOL, "10.0.0.11".parse().unwrap(), 1000, "somebody").unwrap());
    node.follow(&offer(json!({"10.0.0.10-10.0.0.13": {}})), &none);
    assert_eq!(all_of_it(&node), ["10.0.0.12", "10.0.0.13"]);
}

/// What was promised under a key that is there no more.
#[test]
fn another_cut_breaks_no_promise() {
    let node = Node::new();
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {}})), &BTreeMap::new());
    let mut release = releases(json!({"10.0.0.2": "marked-for-release"}));
    assert_eq!(node.answer(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {}})), &mut release), json!({"10.0.0.2": "ready-for-release"}));
    let range = offer(json!({"10.0.0.1-10.0.0.3": {}}));
    node.follow(&range, &release);
    assert_eq!(all_of_it(&node), ["10.0.0.3"]);
    assert_eq!(node.answer(&range, &mut release), json!({"10.0.0.2": "ready-for-release"}));
    // It is a pod's meanwhile: whose, is nothing to a promise.
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {"owner": "ns/db"}})), &release);
    assert!(node.get(0, "db").is_err());
    // The operator has thought better of it.
    node.follow(&range, &BTreeMap::new());
    assert_eq!(node.get(0, "db").unwrap(), "10.0.0.2");
}
