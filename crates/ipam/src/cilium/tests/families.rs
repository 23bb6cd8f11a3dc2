//! Of which families pods get addresses, where there are few of one.

use super::*;

fn there(node: &Node) -> Vec<Family> {
    node.look(|all| Family::ALL.into_iter().filter(|family| all.spec(POOL).is_some_and(|spec| spec.has(*family))).collect())
}

/// A node that has seen these objects, one after the other.
fn after<const N: usize>(pools: [Value; N]) -> Vec<Family> {
    let node = Node::new();
    pools.into_iter().for_each(|pool| node.follow(&offer(pool), &BTreeMap::new()));
    there(&node)
}

#[test]
fn a_few_stray_addresses_are_no_family() {
    use Family::{V4, V6};
    let four = json!({"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.3": {}, "10.0.0.4": {}});
    let with = |more: Value| {
        let mut pool = four.clone();
        pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pool
    };
    assert_eq!(after([with(json!({"fd00::1": {}}))]), [V4]);
    assert_eq!(after([with(json!({"fd00::1": {}, "fd00::2": {}}))]), [V4], "those that the node itself needs");
    assert_eq!(after([with(json!({"fd00::8/126": {"owner": "ns/a"}}))]), [V4], "a pod's");
    assert_eq!(after([with(json!({"fd00::1-fd00::3": {}}))]), [V4, V6]);
    assert_eq!(after([four.clone(), with(json!({"fd00::1": {}}))]), [V4], "they come later");
    assert_eq!(after([four.clone(), with(json!({"fd00::1": {}})), with(json!({"fd00::1-fd00::3": {}}))]), [V4, V6]);
    // One that was there is, while there is anything of it.
    assert_eq!(after([with(json!({"fd00::1-fd00::3": {}})), with(json!({"fd00::1": {}}))]), [V4, V6]);
    assert_eq!(after([with(json!({"fd00::1-fd00::3": {}})), json!({})]), [V4, V6]);
    assert_eq!(after([with(json!({"fd00::1-fd00::3": {}})), four.clone()]), [V4]);
}

#[test]
fn where_there_is_little_of_anything_the_family_with_most_of_it_is_there() {
    use Family::{V4, V6};
    assert_eq!(after([json!({"10.0.0.1": {}})]), [V4]);
    assert_eq!(after([json!({"fd00::1": {}, "fd00::2": {}, "10.0.0.1": {}})]), [V6]);
    assert_eq!(after([json!({"fd00::1": {}, "10.0.0.1": {}})]), [V4], "of two that have as much");
    let node = Node::new();
    node.follow(&offer(json!({"10.0.0.1": {}})), &BTreeMap::new());
    assert_eq!(node.look(routers), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
}
