//! Bridges that definitions have made, and when they go.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use netloom_tests::{Api, Node, Pod, SETTINGS};
use serde_json::{Value, json};

use super::own_traffic::{network, node};

/// Ends what others do, also if a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn at(address: &str) -> Value {
    json!({"type": "static", "addresses": [{"address": address}]})
}

/// A definition left the node any address for good, on a bridge without pods: nobody else could have that one, nor use the bridge.
#[test]
fn a_bridges_address_goes_with_its_last_pod() {
    let node = node("parked", "");
    let on = |bridge: &str, subnet: &str| json!({"type": "bridge", "bridge": bridge, "isGateway": true, "ipam": {"type": "host-local", "subnet": subnet}});
    let named = |name: &str, plugins: &[Value]| json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins}).to_string();
    node.define("first", &named("first", &[on("x6", "10.66.0.0/24")]));
    node.define("other", &named("other", &[on("x6", "10.67.0.0/24")]));
    node.define(
        "fails",
        &named("fails", &[on("x6", "10.68.0.0/24"), json!({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.nonsense": "1"}})]),
    );
    node.define(
        "its-address",
        &named(
            "its-address",
            &[json!({"type": "macvlan", "master": "up0",
        "ipam": {"type": "static", "addresses": [{"address": "10.66.0.1/24"}]}})],
        ),
    );
    let there = || -> Vec<String> {
        let all: Value = serde_json::from_str(&node.host.sh("", "ip -j addr show")).unwrap();
        let Some(link) = all.as_array().unwrap().iter().find(|link| link["ifname"] == "x6") else { return vec!["no link".to_owned()] };
        let own = link["addr_info"].as_array().unwrap().iter().filter(|one| one["scope"] != "link");
        own.map(|one| format!("{}/{}", one["local"].as_str().unwrap(), one["prefixlen"])).collect()
    };
    let is_gone = || there() == ["no link"];
    let (one, two) = (node.pod("one", "first"), node.pod("two", "first"));
    one.must("ADD");
    two.must("ADD");
    one.must("DEL");
    assert_eq!(there(), ["10.66.0.1/24"], "another pod is there");
    let refused = node.pod("refused", "other").add();
    assert!(refused.message().contains("already has an IP address different from"), "{refused:?}");
    two.must("DEL");
    node.until("the bridge is gone", is_gone);
    let failed = node.pod("failed", "fails").add();
    assert!(!failed.error().is_null() && is_gone(), "{failed:?}: {:?}", there());
    let (other, its_address) = (node.pod("other", "other"), node.pod("its-address", "its-address"));
    other.must("ADD");
    its_address.must("ADD");
    assert_eq!(there(), ["10.67.0.1/24"]);
    its_address.must("DEL");
    // A pod's macvlan stands on it, which the links of the node do not show.
    node.define(
        "stands",
        &named(
            "stands",
            &[json!({"type": "macvlan", "master": "x6",
        "ipam": {"type": "static", "addresses": [{"address": "10.67.0.99/24"}]}})],
        ),
    );
    let stands = node.pod("stands", "stands");
    stands.must("ADD");
    other.must("DEL");
    node.settled();
    assert_eq!(there(), ["10.67.0.1/24"], "a macvlan is there");
    stands.must("DEL");
    node.until("the bridge is gone", is_gone);
    // As the pod's default network.
    let annotations = json!({"v1.multus-cni.io/default-network": "parked/first"});
    let metadata = json!({"name": "default", "namespace": "parked", "annotations": annotations});
    let pod = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    pod.must("ADD");
    assert_eq!(there(), ["10.66.0.1/24"]);
    pod.must("DEL");
    node.until("the bridge is gone", is_gone);
    // A bridge that the node has had before loses the address alone.
    node.host.sh("", "ip link add x6 up type bridge");
    node.host.sh("", "sysctl -qw net.ipv6.conf.x6.accept_ra=0");
    let last = node.pod("last", "first");
    last.must("ADD");
    assert_eq!(there(), ["10.66.0.1/24"]);
    last.must("DEL");
    node.until("the address is gone", || there().is_empty());
}

/// What a DEL has left, because it was killed or met an ADD, goes at the agent's next look.
#[test]
fn a_bridge_that_was_left_goes_later() {
    let node = node("left", "reconcileEvery: 1s");
    node.host.sh("", &format!("ip link add x8 up group {} type bridge", linux::link::TRANSIENT));
    node.host.sh("", "ip link add x9 up type bridge");
    node.until("the bridge is gone", || node.host.link("", "x8").is_none());
    assert!(node.host.link("", "x9").is_some(), "nobody marked it");
}

/// Each ADD keeps idle bridges while it looks for its own: those of many pods that come and go kept one for as long as they did.
#[test]
fn a_bridge_that_was_left_goes_while_others_come() {
    const PODS: usize = 6;
    let node = node("stream", "reconcileEvery: 1s");
    let pods: Vec<_> = (0..PODS).map(|n| node.pod(&format!("pod{n}"), "")).collect();
    let (is_over, added) = (AtomicBool::new(false), AtomicUsize::new(0));
    let comes_and_goes = |pod: &Pod<'_>| {
        while !is_over.load(Ordering::Relaxed) {
            pod.must("ADD");
            added.fetch_add(1, Ordering::Relaxed);
            pod.must("DEL");
        }
    };
    std::thread::scope(|scope| {
        let comes_and_goes = &comes_and_goes;
        for pod in &pods {
            scope.spawn(move || comes_and_goes(pod));
        }
        let _stop = Stop(&is_over);
        node.until("all have come", || added.load(Ordering::Relaxed) >= 2 * PODS);
        for round in 0..3 {
            let (before, begun) = (added.load(Ordering::Relaxed), Instant::now());
            node.host.sh("", &format!("ip link add x8 up group {} type bridge", linux::link::TRANSIENT));
            node.until("the bridge is gone", || node.host.link("", "x8").is_none());
            println!("round {round}: gone after {:?}, and {} ADDs", begun.elapsed(), added.load(Ordering::Relaxed) - before);
        }
    });
}

/// Links of the network that every pod has went with the last pod that had chosen it, and so did one that a definition had made first: the
/// node loses the address at which its programs are reached.
#[test]
fn the_default_networks_bridge_stays_whoever_makes_it() {
    let node = Node::new(&Api::shared(), "lasting", "clusterNetwork: pods\nmultusNamespace: lasting");
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let own = settings.lines().filter(|line| *line != "delegates:" && !line.starts_with("- "));
    node.host.write(SETTINGS, &own.map(|line| format!("{line}\n")).collect::<String>());
    let gateway = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.244.0.0/24"}});
    node.define("pods", &json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [gateway]}).to_string());
    node.define("plain", &network(&[json!({"type": "bridge", "bridge": "br0", "ipam": at("10.9.9.2/24")})]));
    node.define("other", &network(&[json!({"type": "bridge", "bridge": "made3", "ipam": at("10.9.8.2/24")})]));
    node.restart();
    let as_default = |name: &str, definition: &str| {
        let annotations = json!({"v1.multus-cni.io/default-network": format!("lasting/{definition}")});
        node.pod_of(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lasting", "annotations": annotations}}),
        )
    };
    let group = |bridge: &str| node.host.link("", bridge).map(|link| link.0["group"].clone());
    for definition in ["pods", "plain"] {
        assert_eq!(group("br0"), None);
        let pod = as_default(definition, definition);
        pod.must("ADD");
        assert_eq!(group("br0"), Some(json!("default")), "{definition}");
        pod.must("DEL");
        node.settled();
        assert_eq!(group("br0"), Some(json!("default")), "{definition}");
        node.host.sh("", "ip link del br0");
    }
    let pod = as_default("other", "other");
    pod.must("ADD");
    assert_ne!(group("made3"), Some(json!("default")));
    pod.must("DEL");
    node.until("the other bridge is gone", || group("made3").is_none());
    // Made before anybody had said that it is the default network's.
    let transient = linux::link::TRANSIENT;
    node.host.sh("", &format!("ip link add br0 up group {transient} type bridge"));
    // As the plugin gives it to a network that a pod chose; `ip` of Debian 12 knows no protocol of an address.
    node.host.within("", || {
        let mut netlink = linux::Netlink::open(&linux::Inside::here()).unwrap();
        let index = netlink.link("br0").unwrap().unwrap().index;
        let (net, flags) = ("10.244.0.1/24".parse().unwrap(), linux::AddrFlags::NONE);
        netlink.send_one(linux::addr::add_of(linux::addr::TRANSIENT, index, net, flags)).unwrap();
    });
    let pod = node.pod("ordinary", "");
    pod.must("ADD");
    pod.must("DEL");
    node.settled();
    assert_eq!(group("br0"), Some(json!("default")));
    let addresses = node.host.addresses("", "br0");
    assert!(addresses.iter().any(|address| address.starts_with("10.244.0.1")), "{addresses:?}");
    let chosen = as_default("chosen", "pods");
    chosen.must("ADD");
    chosen.must("DEL");
    node.settled();
    assert_eq!((group("br0"), node.host.addresses("", "br0")), (Some(json!("default")), addresses));
}
