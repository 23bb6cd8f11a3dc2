//! The same addresses under other keys: a range that grows, one address of a network that becomes a pod's.

use super::*;

/// What new pods get, until nobody gets anything more.
fn all_of_it(node: &Node) -> Vec<String> {
    let new = (100..).filter(|n| node.store().lease(&key(*n)).is_none());
    new.map_while(|n| node.get(n, "any").ok()).collect()
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
