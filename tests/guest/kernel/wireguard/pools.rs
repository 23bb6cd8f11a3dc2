//! Addresses of pools: the blocks of a node are what its peers allow.

use std::process::Command;

use netloom_tests::{Running, netloom};

use super::*;

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn blocks_of_pools_are_reached_over_wireguard_alone() {
    let scene = Scene::new("ipam: pool\nbetween: wireguard", &[A, FAR]);
    scene.api.define("ippools.yaml");
    [A, FAR].iter().for_each(|place| scene.register(place, json!([])));
    let config = scene.nodes[0].host.path("/run/kubeconfig");
    let _operator = Running::start(Command::new(netloom()).args(["operator", "--no-lease", "--kubeconfig"]).arg(config));
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/24"}], "gateway": "10.1.0.1", "blockPrefix": 30},
        "ipv6": {"entries": [{"cidr": "fd00:1::/64"}], "gateway": "fd00:1::1", "blockPrefix": 126},
        "scaling": {"preAllocate": 1, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}});
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "default"}, "spec": spec});
    scene.api.must("POST", "/apis/netloom.io/v1alpha1/ippools", &pool);
    scene.nodes.iter().for_each(Node::launch);
    scene.nodes.iter().for_each(|node| node.until("the agent is ready", || node.status()["ready"] == json!(true)));
    scene.nodes.iter().for_each(|node| node.until("all peers are reached", || reached(node) == Some(1)));
    let [a, far] = [&scene.nodes[0], &scene.nodes[1]];
    // The node's own address, by which it reaches pods behind the tunnel.
    a.until("the device has an address of each family", || a.host.addresses("", DEVICES[0]).len() == 2);
    count(&scene, &A);
    let meets = |from: &(Pod<'_>, [String; 2]), to: &(Pod<'_>, [String; 2])| {
        for (address, seen_as) in to.1.iter().zip(&from.1) {
            // A peer lets a new block through when it has read of it.
            a.until("it answers", || {
                let told = a.host.ask_tcp(&from.0.sandbox(), address, PORT, std::time::Duration::from_secs(2));
                told.is_ok_and(|told| told == format!("{} {seen_as}", to.0.name))
            });
        }
    };
    let of_far = pod(far, "far");
    // More than one block has room for.
    let of_a: Vec<_> = (0..5).map(|n| pod(a, &format!("near-{n}"))).collect();
    of_a.iter().for_each(|near| meets(near, &of_far));
    let told = a.host.told_over_tcp("", &of_far.1[0], PORT);
    assert!(told.starts_with("far 10.1.0."), "{told}");
    assert!(counted(&scene, "tunnel") > 10);
    assert_eq!(counted(&scene, "other"), 0, "{}", scene.router.sh("", "nft list ruleset"));
    let blocks = a.status()["network"]["ranges"].as_array().unwrap().clone();
    assert!(blocks.len() >= 4, "{blocks:?}");
    let closed = |node: &Node, family: &str| node.host.sh("", &format!("ip {family} route show type unreachable"));
    for block in blocks.iter().map(|block| block.as_str().unwrap()) {
        assert!(shown(far, DEVICES[0]).contains(block), "{block}: {}", shown(far, DEVICES[0]));
        assert!(closed(far, if block.contains(':') { "-6" } else { "-4" }).contains(block), "{block}");
    }
    of_a.iter().chain([&of_far]).for_each(|(pod, _)| drop(pod.must("DEL")));
    a.until("blocks are given back", || a.status()["network"]["ranges"].as_array().unwrap().len() == 2);
    let left: Vec<String> =
        a.status()["network"]["ranges"].as_array().unwrap().iter().map(|range| range.as_str().unwrap().to_owned()).collect();
    far.until("and nothing is closed for what is given back", || {
        let all = closed(far, "-4") + &closed(far, "-6");
        all.lines().count() == left.len() && left.iter().all(|block| all.contains(block.as_str()))
    });
}
