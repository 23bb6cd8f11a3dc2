//! The cluster's own network with addresses of pools: blocks that a real operator grants, and the ways to them.

use std::process::Command;

use netloom_tests::{Running, netloom};
use serde_json::{Value, json};

use super::paths::{PORT, all_meet, pod};
use super::scene::{A, B, FAR, Place, Scene, reached};

const IP_POOLS: &str = "/apis/netloom.io/v1alpha1/ippools";

/// Machines whose agents are ready, with blocks of this pool, and the operator that grants them.
pub(super) fn start(settings: &str, pool: &Value, places: &[Place]) -> (Scene, Running) {
    let (scene, operator) = prepare(settings, places);
    make(&scene, "default", pool);
    scene.nodes.iter().for_each(|node| node.launch());
    scene.nodes.iter().for_each(|node| node.until("the agent is ready", || node.status()["ready"] == json!(true)));
    scene.nodes.iter().for_each(|node| node.until("all peers are reached", || reached(node) == Some(places.len() as u64 - 1)));
    (scene, operator)
}

/// Nodes without ranges, an operator, and no agent yet.
fn prepare(settings: &str, places: &[Place]) -> (Scene, Running) {
    let scene = Scene::new(&format!("ipam: pool\n{settings}"), places);
    scene.api.define("ippools.yaml");
    places.iter().for_each(|place| scene.register(place, json!([])));
    let operator = operator(&scene);
    (scene, operator)
}

/// An operator that reaches the API server as the first machine does.
pub(super) fn operator(scene: &Scene) -> Running {
    let config = scene.nodes[0].host.path("/run/kubeconfig");
    Running::start(Command::new(netloom()).args(["operator", "--no-lease", "--kubeconfig"]).arg(config))
}

fn make(scene: &Scene, name: &str, spec: &Value) {
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name}, "spec": spec});
    scene.api.must("POST", IP_POOLS, &pool);
}

pub(super) fn dual() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/16"}], "gateway": "10.1.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:1::/64"}], "gateway": "fd00:1::1"}})
}

/// Blocks of four addresses, of which a node keeps one at the least and gives back what it does not need.
fn small() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/24"}], "gateway": "10.1.0.1", "blockPrefix": 30},
        "scaling": {"preAllocate": 1, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}})
}

/// The blocks of a place's node, as the operator has written them.
fn blocks(scene: &Scene, place: &Place) -> Vec<String> {
    let path = format!("/apis/netloom.io/v1alpha1/nodeippools/{}", place.name);
    let (_, object) = scene.api.ask("GET", &path, &Value::Null);
    let all = object["spec"]["blocks"].as_array().cloned().unwrap_or_default();
    all.iter().map(|block| block["cidr"].as_str().unwrap().to_owned()).collect()
}

/// The first node itself and pods of it and of the last one reach each other.
fn nodes_meet_pods(scene: &Scene) {
    let [a, b] = [scene.nodes.first(), scene.nodes.last()].map(Option::unwrap);
    let ((near, of_near), (far, of_far)) = (pod(a, "near"), pod(b, "far"));
    for (name, address) in of_near.iter().map(|address| ("near ", address)).chain(of_far.iter().map(|address| ("far ", address))) {
        let told = a.host.told_over_tcp("", address, PORT);
        assert!(told.starts_with(name), "{address}: {told}\n{}", a.tail());
    }
    a.host.answer_at("", "node", "::", PORT + 1);
    for address in A.addresses {
        for (host, from) in [(&a.host, &near), (&b.host, &far)] {
            let told = host.told_over_tcp(&from.sandbox(), address, PORT + 1);
            assert!(told.starts_with("node "), "{} to {address}: {told}", from.name);
        }
    }
}

#[test]
fn blocks_are_routed_directly() {
    let (scene, _operator) = start("between: direct", &dual(), &[A, B]);
    all_meet(&scene);
    nodes_meet_pods(&scene);
    let a = &scene.nodes[0];
    let routes = a.host.sh("", "ip route show proto 110");
    let [own, other] = [A, B].map(|place| blocks(&scene, &place).into_iter().find(|block| block.starts_with("10.")).unwrap());
    assert!(routes.contains(&format!("{own} dev netloom0")) && routes.contains(&format!("{other} via 192.0.2.12 dev eth0")), "{routes}");
    assert_eq!(a.host.addresses("", "netloom0"), ["10.1.0.1/32", "fd00:1::1/128"]);
    a.until("the Node says so", || scene.condition(&A) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
    let said = a.host.command("", netloom()).args(["nodes"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(&other) && said.contains("direct by eth0"), "{said}");
}

#[test]
fn blocks_are_routed_over_vxlan() {
    let (scene, _operator) = start("between: vxlan", &dual(), &[A, B, FAR]);
    all_meet(&scene);
    nodes_meet_pods(&scene);
}

#[test]
fn pods_of_one_node_meet_and_check_tells_what_is_gone() {
    let (scene, _operator) = start("between: direct", &dual(), &[A]);
    let a = &scene.nodes[0];
    let ((one, own), (_two, other)) = (pod(a, "one"), pod(a, "two"));
    for (family, address) in [(0, &other[0]), (1, &other[1])] {
        assert_eq!(a.host.told_over_tcp(&one.sandbox(), address, PORT), format!("two {}", own[family]));
    }
    let routes = a.host.sh(&one.sandbox(), "ip route");
    assert!(routes.contains("10.1.0.1 dev eth0 scope link") && routes.contains("default via 10.1.0.1 dev eth0"), "{routes}");
    one.must("CHECK");
    a.host.sh(&one.sandbox(), "ip route del default");
    a.host.sh(&one.sandbox(), "ip route del 10.1.0.1");
    let told = one.call("CHECK");
    assert!(told.code != 0 && format!("{told:?}").contains("route to 10.1.0.1/32 is gone"), "{told:?}");
    one.must("DEL");
}

/// As kube-proxy translates it: the pod that asks itself, and one beside it.
#[test]
fn a_service_reaches_pods_of_the_same_node() {
    let (scene, _operator) = start("between: direct", &dual(), &[A]);
    let a = &scene.nodes[0];
    let ((from, own), (_to, addresses)) = (pod(a, "from"), pod(a, "to"));
    for line in [
        "add table ip svc".to_owned(),
        "add chain ip svc pre { type nat hook prerouting priority dstnat; }".to_owned(),
        "add chain ip svc post { type nat hook postrouting priority 90; }".to_owned(),
        format!("add rule ip svc pre ip daddr 10.96.0.10 dnat to {}", own[0]),
        format!("add rule ip svc pre ip daddr 10.96.0.11 dnat to {}", addresses[0]),
        format!("add rule ip svc post ct status dnat ip saddr {0} ip daddr {0} masquerade", own[0]),
    ] {
        a.host.run("", &["nft", &line]);
    }
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), "10.96.0.10", PORT), "from 10.1.0.1");
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), "10.96.0.11", PORT), format!("to {}", own[0]));
}

#[test]
fn a_block_that_comes_is_routed_and_one_that_is_given_back_is_not() {
    let (scene, _operator) = start("between: direct", &small(), &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let (from, own) = pod(b, "from");
    let found = |n: usize| {
        let (to, addresses) = pod(a, &format!("p{n}"));
        let route = a.host.sh("", &format!("ip route get {}", addresses[0]));
        assert!(route.contains("dev netloom0"), "a pod is found on its node as soon as its ADD has returned: {route}");
        (to, addresses)
    };
    let pods: Vec<_> = (0..9).map(found).collect();
    assert!(blocks(&scene, &A).len() >= 3, "{:?}", blocks(&scene, &A));
    for (to, addresses) in &pods {
        b.until("it is reached", || {
            let told = b.host.ask_tcp(&from.sandbox(), &addresses[0], PORT, std::time::Duration::from_secs(1));
            told.is_ok_and(|told| told == format!("{} {}", to.name, own[0]))
        });
    }
    pods.iter().for_each(|(pod, _)| drop(pod.must("DEL")));
    a.until("blocks are given back", || blocks(&scene, &A).len() == 1);
    let ways = |node: &netloom_tests::Node, to: &str| {
        let routes = node.host.sh("", "ip route show proto 110");
        routes.lines().filter(|route| route.contains(to)).map(|route| route.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    b.until("its peer leads nowhere else", || ways(b, "via 192.0.2.11") == blocks(&scene, &A));
    a.until("and nothing else leads to its pods", || ways(a, "dev netloom0") == blocks(&scene, &A));
    assert_eq!(a.status()["network"]["ranges"], json!(blocks(&scene, &A)));
}

#[test]
fn a_pool_that_comes_late_and_its_gateway_are_waited_for() {
    let (scene, _operator) = prepare("between: direct", &[A]);
    let a = &scene.nodes[0];
    a.launch();
    let says = |what: &str| a.status()["why"].as_str().is_some_and(|why| why.contains(what));
    a.until("it says what it waits for", || says("node a has no addresses of the network default yet"));
    a.until("the Node says so", || scene.condition(&A) == Some(("True".to_owned(), "NoAddresses".to_owned())));
    make(&scene, "default", &json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/16"}]}}));
    a.until("it says what is missing", || says("pool default has no ipv4.gateway: set it with"));
    scene.api.must("PATCH", &format!("{IP_POOLS}/default"), &json!({"spec": {"ipv4": {"gateway": "10.1.0.1"}}}));
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    a.until("the Node says so", || scene.condition(&A) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
    let late = a.pod("late", "");
    let address = late.must("ADD").result()["ips"][0]["address"].as_str().unwrap().to_owned();
    assert!(address.ends_with("/32"), "{address}");
    // Without the API server, a new agent has the network all the same.
    a.kill9();
    a.host.sh("", "ip link del netloom0");
    a.api_proxy.shut();
    a.launch();
    a.until("the bridge is there again", || a.host.link("", "netloom0").is_some());
    a.until("with its address", || a.host.addresses("", "netloom0") == ["10.1.0.1/32"]);
    let block = blocks(&scene, &A).remove(0);
    a.until("and its range", || a.host.sh("", "ip route show proto 110").contains(&format!("{block} dev netloom0")));
    a.api_proxy.open();
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
}

/// The node's own address keeps no block from a pool that is deleted.
#[test]
fn a_pool_that_is_deleted_goes_and_its_pods_keep_their_network_until_they_end() {
    let (scene, _operator) = start("between: vxlan\nreconcileEvery: 1s", &small(), &[A, FAR]);
    let a = &scene.nodes[0];
    let own = || a.host.sh("", "ip -br addr show nl4-1000-12b5");
    a.until("the node has an address itself", || own().contains("10.1.0."));
    let ((last, of_last), (far, of_far)) = (pod(a, "last"), pod(&scene.nodes[1], "far"));
    scene.api.must("DELETE", &format!("{IP_POOLS}/default"), &Value::Null);
    a.until("the node gives its address back", || !own().contains("10.1.0."));
    a.until("its pods are still reached", || {
        scene.nodes[1].host.told_over_tcp(&far.sandbox(), &of_last[0], PORT) == format!("last {}", of_far[0])
    });
    [last, far].iter().for_each(|pod| drop(pod.must("DEL")));
    a.until("the pool is gone", || scene.api.ask("GET", &format!("{IP_POOLS}/default"), &Value::Null).0 == 404);
    a.until("the Node says so", || scene.condition(&A) == Some(("True".to_owned(), "NoAddresses".to_owned())));
}

/// Nothing is granted before a pod needs it, so a node without a block is one that has the network.
#[test]
fn a_pool_that_keeps_nothing_ready_gives_the_first_pod_an_address() {
    let mut pool = dual();
    pool["scaling"] = json!({"preAllocate": 0});
    let (scene, _operator) = prepare("between: direct", &[A, B]);
    make(&scene, "default", &pool);
    scene.nodes.iter().for_each(|node| node.launch());
    for (node, place) in scene.nodes.iter().zip([A, B]) {
        node.until("the agent is ready", || node.status()["ready"] == json!(true));
        node.until("the Node says so", || scene.condition(&place) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
        assert_eq!(blocks(&scene, &place), [""; 0]);
    }
    all_meet(&scene);
}

/// Pods that are there have the former one as their gateway.
#[test]
fn a_pool_that_gets_another_gateway_keeps_the_former_one_until_its_last_pod_ends() {
    // Both are in blocks that no node is granted: a pod that had the former one would not be reached where a bridge still has it.
    let mut pool = small();
    pool["ipv4"]["gateway"] = json!("10.1.0.253");
    let (scene, _operator) = start("between: direct\naddWait: 1s\nreconcileEvery: 10m", &pool, &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let ((old, own), (far, of_far)) = (pod(a, "old"), pod(b, "far"));
    scene.api.must("PATCH", &format!("{IP_POOLS}/default"), &json!({"spec": {"ipv4": {"gateway": "10.1.0.254"}}}));
    let gateways = || a.host.addresses("", "netloom0");
    a.until("the bridge has the new one", || gateways().contains(&"10.1.0.254/32".to_owned()));
    // Also where somebody takes it away.
    a.host.sh("", "ip addr del 10.1.0.253/32 dev netloom0");
    a.until("and the former one", || gateways().contains(&"10.1.0.253/32".to_owned()));
    assert_eq!(a.host.told_over_tcp(&old.sandbox(), &of_far[0], PORT), format!("far {}", own[0]));
    let (new, of_new) = pod(a, "new");
    assert!(a.host.sh(&new.sandbox(), "ip route").contains("default via 10.1.0.254"));
    old.must("DEL");
    a.until("it goes with its last pod", || gateways() == ["10.1.0.254/32"]);
    b.until("the new pod is answered, whose block may be new to the other node", || {
        let told = a.host.ask_tcp(&new.sandbox(), &of_far[0], PORT, std::time::Duration::from_secs(1));
        told.is_ok_and(|told| told == format!("far {}", of_new[0]))
    });
    [new, far].iter().for_each(|pod| drop(pod.must("DEL")));
}

/// As while a claim's pod migrates: the block is another node's, and a pod here has not ended.
#[test]
fn a_block_that_is_gone_is_left_as_soon_as_its_last_pod_ends_and_the_node_keeps_its_own_address() {
    let (scene, operator) = start("between: vxlan\nreconcileEvery: 10m", &small(), &[A, FAR]);
    let a = &scene.nodes[0];
    let own = || a.host.sh("", "ip -br addr show nl4-1000-12b5");
    a.until("the node has an address itself", || own().contains("10.1.0."));
    let before = own();
    // Blocks have four addresses each, and the node's own address keeps one of them.
    let block_of = |address: &str| format!("10.1.0.{}/30", address.rsplit('.').next().unwrap().parse::<u8>().unwrap() & !3);
    let of_node = block_of(before.split("10.1.0.").nth(1).unwrap().split('/').next().unwrap());
    let pods: Vec<_> = (0..4).map(|n| pod(a, &format!("p{n}"))).collect();
    let (kept, ending): (Vec<_>, Vec<_>) = pods.iter().partition(|(_, addresses)| block_of(&addresses[0]) == of_node);
    drop(operator);
    let path = format!("/apis/netloom.io/v1alpha1/nodeippools/{}", A.name);
    let mut granted = scene.api.must("GET", &path, &Value::Null)["spec"]["blocks"].as_array().unwrap().clone();
    granted.retain(|block| block["cidr"] == of_node.as_str());
    scene.api.must("PATCH", &path, &json!({"spec": {"blocks": granted}}));
    a.until("it has no other block", || a.status()["network"]["ranges"] == json!([of_node]));
    let led = || a.host.sh("", "ip route show proto 110 dev netloom0");
    assert!(ending.iter().all(|(_, addresses)| led().contains(&block_of(&addresses[0]))) && !ending.is_empty(), "{}", led());
    ending.iter().for_each(|(pod, _)| drop(pod.must("DEL")));
    a.until("nothing leads there any more", || !ending.iter().any(|(_, addresses)| led().contains(&block_of(&addresses[0]))));
    scene.api.must("DELETE", &path, &Value::Null);
    a.until("it has no ranges", || a.status()["network"]["ranges"] == json!([]));
    assert!(own() == before && led().contains(&of_node), "an object that is missing takes no address away: {} {}", own(), led());
    kept.iter().for_each(|(pod, _)| drop(pod.must("DEL")));
}

#[test]
fn pods_of_a_pool_keep_their_network_when_the_node_has_ranges_of_its_own_from_then_on() {
    let (scene, _operator) = start("between: direct", &dual(), &[A]);
    let a = &scene.nodes[0];
    let (old, own) = pod(a, "old");
    a.kill9();
    scene.register(&A, json!(["10.2.1.0/24"]));
    let text = std::fs::read_to_string(a.host.path(netloom_tests::SETTINGS)).unwrap();
    a.host.write(netloom_tests::SETTINGS, &text.replace("ipam: pool", "ipam: podCIDR"));
    a.host.sh("", "ip addr flush dev netloom0");
    a.restart();
    a.until("the bridge has the gateways of both", || {
        let mut all = a.host.addresses("", "netloom0");
        all.sort();
        all == ["10.1.0.1/32", "10.2.1.1/24", "fd00:1::1/128"]
    });
    let (new, of_new) = pod(a, "new");
    assert_eq!(of_new, ["10.2.1.2"]);
    assert_eq!(a.host.told_over_tcp(&old.sandbox(), "10.2.1.2", PORT), format!("new {}", own[0]));
    assert_eq!(a.host.told_over_tcp(&new.sandbox(), &own[0], PORT), "old 10.2.1.2");
    [old, new].iter().for_each(|pod| drop(pod.must("DEL")));
}

/// Who has a node's token may write its addresses, and who may create a Node all of it.
#[test]
fn a_node_that_claims_a_pools_gateway_takes_it_from_nobody() {
    let (scene, _operator) = start("between: direct\nreconcileEvery: 10m", &dual(), &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let (old, own) = pod(a, "old");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "false"}});
    scene.api.must("POST", "/api/v1/nodes", &node);
    let claims = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "10.1.0.1"}, {"type": "InternalIP", "address": "fd00:1::1"}]}});
    scene.api.must("PATCH", "/api/v1/nodes/false/status", &claims);
    let says = |node: &netloom_tests::Node, gateway: &str| {
        let told = format!("node false has the InternalIP {gateway}, which is the gateway of a pool: pods keep it as their gateway");
        node.status()["network"]["problems"].to_string().contains(&told)
    };
    let is_whole = |node: &netloom_tests::Node| node.status()["ready"] == json!(true) && node.status()["network"]["lacks"] == json!([]);
    for node in [a, b] {
        node.until("it says who", || says(node, "10.1.0.1") && says(node, "fd00:1::1"));
        assert!(is_whole(node), "{}", node.status());
    }
    // An agent that starts meanwhile has what was kept.
    b.kill9();
    b.restart();
    b.until("it says who", || says(b, "10.1.0.1") && is_whole(b));
    let (new, of_new) = pod(b, "new");
    for (address, seen_as) in own.iter().zip(&of_new) {
        assert_eq!(b.host.told_over_tcp(&new.sandbox(), address, PORT), format!("old {seen_as}"));
    }
    scene.api.must("DELETE", "/api/v1/nodes/false", &Value::Null);
    a.until("it is over", || a.status()["network"]["problems"] == json!([]));
    [old, new].iter().for_each(|pod| drop(pod.must("DEL")));
}

/// Its pods have addresses of the pool that the pool knows nothing of, whatever block this node has.
#[test]
fn no_pod_gets_an_address_of_a_pool_where_another_networks_bridge_is_in_it() {
    let (scene, _operator) = prepare("between: direct\naddWait: 1s\nreconcileEvery: 1s", &[A]);
    let a = &scene.nodes[0];
    for line in ["ip link add cni0 type bridge", "ip link set cni0 up", "ip addr add 10.1.0.1/24 dev cni0"] {
        a.host.sh("", line);
    }
    make(&scene, "default", &dual());
    a.launch();
    let says = |what: &str| a.status()["why"].as_str().is_some_and(|why| why.contains(what));
    a.until("it says what it waits for", || says("link cni0 has the address 10.1.0.1/24"));
    a.until("the Node says so", || scene.condition(&A).is_some_and(|(status, _)| status == "True"));
    let early = a.pod("early", "").call("ADD");
    assert!(early.error()["code"] == 11 && early.message().contains("drain the node"), "{early:?}");
    // Nor does a round later, and there are not two ways to the gateway.
    assert!(a.host.link("", "netloom0").is_none() && says("link cni0"), "{}", a.status());
    a.host.sh("", "ip link del cni0");
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    pod(a, "late").0.must("DEL");
}

/// The pool gets more addresses while the node serves pods, and the pod that waits for one of them is there before anybody has looked.
#[test]
fn a_block_that_comes_later_and_is_another_networks_is_given_to_no_pod() {
    let mut pool = small();
    pool["ipv4"]["entries"] = json!([{"cidr": "10.1.0.0/30"}]);
    pool["ipv4"]["prefixLength"] = json!(16);
    pool["scaling"]["preAllocate"] = json!(0);
    let (scene, _operator) = start("between: direct\naddWait: 5s\nreconcileEvery: 1s", &pool, &[A]);
    let a = &scene.nodes[0];
    let before = [pod(a, "before")];
    for line in ["ip link add cni7 type bridge", "ip link set cni7 up", "ip addr add 10.1.9.1/24 dev cni7"] {
        a.host.sh("", line);
    }
    let entries = json!([{"cidr": "10.1.0.0/30"}, {"cidr": "10.1.9.0/29"}]);
    scene.api.must("PATCH", &format!("{IP_POOLS}/default"), &json!({"spec": {"ipv4": {"entries": entries}}}));
    let says = |what: &str| a.status()["why"].as_str().is_some_and(|why| why.contains(what));
    let mut refused = None;
    let more: Vec<_> = (0..4)
        .map_while(|n| {
            let pod = a.pod(&format!("m{n}"), "");
            let added = pod.call("ADD");
            if added.code == 0 {
                let address = added.result()["ips"][0]["address"].as_str().unwrap().to_owned();
                assert!(!address.starts_with("10.1.9."), "{address} is another network's");
                return Some(pod);
            }
            refused = Some(added);
            None
        })
        .collect();
    let refused = refused.expect("no pod waits for another block");
    let both = "link cni7 has the address 10.1.9.1/24";
    assert!(refused.error()["code"] == 11 && refused.message().contains(both), "{refused:?}");
    a.until("it says which, and of which pool", || says(both) && says("pod range 10.1.9.") && says("of pool default"));
    a.until("the Node says so", || scene.condition(&A).is_some_and(|(status, _)| status == "True"));
    a.until("an Event says so", || {
        let events = scene.api.must("GET", "/apis/events.k8s.io/v1/namespaces/default/events", &Value::Null);
        events["items"].to_string().contains(both)
    });
    // Pods that run on are not cut off.
    for (pod, addresses) in &before {
        assert!(a.host.told_over_tcp("", &addresses[0], PORT).starts_with(&format!("{} ", pod.name)), "{}", a.tail());
    }
    a.host.sh("", "ip link del cni7");
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    let (late, of_late) = pod(a, "late");
    assert!(of_late[0].starts_with("10.1.9."), "{of_late:?}");
    late.must("DEL");
    more.iter().chain(before.iter().map(|(pod, _)| pod)).for_each(|pod| drop(pod.must("DEL")));
}

/// Another node has the blocks: a pod there and a container here would have one address.
#[test]
fn a_bridge_in_the_network_of_a_pool_is_reported_where_the_node_has_no_block_of_it() {
    let (scene, _operator) = start("between: direct\nreconcileEvery: 10m", &dual(), &[A]);
    let a = &scene.nodes[0];
    for line in ["ip link add cni7 type bridge", "ip link set cni7 up", "ip addr add 10.7.200.1/24 dev cni7"] {
        a.host.sh("", line);
    }
    let pool = json!({"network": "default", "ipv4": {"entries": [{"cidr": "10.7.0.0/16"}], "gateway": "10.7.0.1"},
        "scaling": {"preAllocate": 0}});
    make(&scene, "more", &pool);
    let said = "bridge cni7 has the address 10.7.200.1/24 in the network 10.7.0.0/16 of pool more";
    a.until("it is said", || a.status()["network"]["problems"].to_string().contains(said));
    assert_eq!(a.status()["ready"], json!(true), "{}", a.status());
}

/// The pool knows nothing of the addresses that `host-local` has given.
#[test]
fn a_pool_with_the_addresses_of_the_nodes_former_range_waits_for_the_last_pod_of_that() {
    let (scene, _operator) = prepare("between: direct\naddWait: 1s\nreconcileEvery: 1s", &[A]);
    let a = &scene.nodes[0];
    let settings = |ipam: &str| {
        let text = std::fs::read_to_string(a.host.path(netloom_tests::SETTINGS)).unwrap();
        let lines = text.lines().map(|line| if line.starts_with("ipam: ") { format!("ipam: {ipam}") } else { line.to_owned() });
        a.host.write(netloom_tests::SETTINGS, &lines.collect::<Vec<_>>().join("\n"));
    };
    scene.register(&A, json!(["10.1.0.0/24"]));
    settings("podCIDR");
    a.restart();
    let (old, own) = pod(a, "old");
    a.kill9();
    settings("pool");
    make(&scene, "default", &small());
    // A restart between the two changes nothing, nor does it that the agent has forgotten.
    for is_forgotten in [false, true] {
        if is_forgotten {
            a.kill9();
            std::fs::remove_file(a.host.path("/var/lib/netloom/cluster-network.json")).unwrap();
        }
        a.launch();
        let says = |what: &str| a.status()["why"].as_str().is_some_and(|why| why.contains(what));
        a.until("it says what it waits for", || says("bridge netloom0 has the address 10.1.0.1/24, and 10.1.0."));
        let refused = a.pod(if is_forgotten { "later" } else { "early" }, "").call("ADD");
        assert!(refused.error()["code"] == 11 && refused.message().contains("delete these pods"), "{refused:?}");
        assert_eq!(a.host.addresses("", "netloom0"), ["10.1.0.1/24"]);
    }
    assert!(a.host.run_ok(&old.sandbox(), &["ping", "-c1", "-W5", "10.1.0.1"]), "{own:?}");
    old.must("DEL");
    // Nobody remembers who has set it, so that nobody but its owner removes it.
    a.host.sh("", "ip addr del 10.1.0.1/24 dev netloom0");
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    assert_eq!(a.host.addresses("", "netloom0"), ["10.1.0.1/32"]);
    pod(a, "new").0.must("DEL");
}

/// It would keep its block from the pool for good.
#[test]
fn a_node_that_has_ranges_of_its_own_from_then_on_gives_back_its_own_address_of_the_pool() {
    let (scene, _operator) = start("between: vxlan\nreconcileEvery: 1s", &small(), &[A, FAR]);
    let [a, far] = [&scene.nodes[0], &scene.nodes[1]];
    let own = || a.host.sh("", "ip -br addr show nl4-1000-12b5");
    a.until("the node has an address itself", || own().contains("10.1.0."));
    for (node, place, range) in [(a, &A, "10.2.1.0/24"), (far, &FAR, "10.2.3.0/24")] {
        node.kill9();
        scene.register(place, json!([range]));
        let text = std::fs::read_to_string(node.host.path(netloom_tests::SETTINGS)).unwrap();
        node.host.write(netloom_tests::SETTINGS, &text.replace("ipam: pool", "ipam: podCIDR"));
    }
    [a, far].iter().for_each(|node| node.restart());
    a.until("it has one of its range", || own().contains("10.2.1.0/32") && !own().contains("10.1.0."));
    scene.api.must("DELETE", &format!("{IP_POOLS}/default"), &Value::Null);
    a.until("the pool is gone", || scene.api.ask("GET", &format!("{IP_POOLS}/default"), &Value::Null).0 == 404);
}
