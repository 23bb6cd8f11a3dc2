//! What a definition's pod sends to the host comes from an address that is behind its link, or is dropped.

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use super::own_traffic::{network, node};

/// A pod of a second network that the host routes sent as a pod of the default network, past the guards of that one's ports.
#[test]
fn a_pod_sends_as_another_pod_over_its_second_network() {
    let node = node("reverse", "");
    let victim = node.pod("victim", "[]");
    victim.must("ADD");
    let other = node.pod("other", "[]");
    other.must("ADD");
    let (victims, others) = (address(&node, &victim, "eth0"), address(&node, &other, "eth0"));
    // What a cluster's node may have.
    for link in ["all", "default"] {
        node.host.sh("", &format!("sysctl -qw net.ipv4.conf.{link}.rp_filter=0"));
    }
    node.define("pair", &network(&[json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.76.0.0/24"}})]));
    node.define("gateway", &network(&[bridge(true, "10.77.0.0/24")]));
    let subnet = "FLANNEL_NETWORK=10.78.0.0/16\nFLANNEL_SUBNET=10.78.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    node.host.write("/run/flannel/subnet.env", subnet);
    node.define("flannel", &network(&[json!({"type": "flannel", "delegate": {"bridge": "x8"}})]));
    // Linux forwards link-local addresses of IPv4.
    node.define("local", &network(&[json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "169.254.172.0/24"}})]));
    let local = node.pod("local", "local");
    local.must("ADD");
    let locals = address(&node, &local, "net1");
    let elements = || node.host.sh("", "nft list table inet netloom").matches("elements = ").count();
    let before = elements();
    for (name, gateway, bridged) in
        [("pair", "10.76.0.1", 0), ("gateway", "10.77.0.1", 0), ("gateway", "10.77.0.1", 1), ("flannel", "10.78.1.1", 0)]
    {
        pass_rules(&node, bridged);
        let pod = node.pod(&format!("attacker-{name}-{bridged}"), name);
        pod.must("ADD");
        pod.must("CHECK");
        let sandbox = pod.sandbox();
        node.host.sh(&sandbox, &format!("ip route replace {victims}/32 via {gateway} dev net1"));
        let own = address(&node, &pod, "net1");
        node.host.sh(&sandbox, &format!("ip addr add {others}/32 dev lo"));
        let arrives = |from: &str| node.host.arrives((&sandbox, from), (&victim.sandbox(), &victims));
        assert!(arrives(&own), "{name}: its own address");
        assert!(!arrives(&others), "{name}: another pod's address");
        assert!(!arrives(&others), "{name}: another pod's address");
        node.host.sh(&sandbox, "ip addr add 169.254.172.77/32 dev lo");
        node.host.sh(&sandbox, &format!("ip route replace {locals}/32 via {gateway} dev net1"));
        let arrives = |from: &str| node.host.arrives((&sandbox, from), (&local.sandbox(), &locals));
        assert!(arrives(&own) && !arrives("169.254.172.77"), "{name}: a link-local address");
        pod.must("DEL");
        node.until("no element is left", || elements() == before);
    }
}

/// Whether what is bridged passes the host's rules for IP, as where `br_netfilter` is loaded.
fn pass_rules(node: &Node, bridged: u8) {
    node.host.sh("", &format!("sysctl -qw net.bridge.bridge-nf-call-iptables={bridged}"));
}

fn bridge(gateway: bool, subnet: &str) -> Value {
    json!({"type": "bridge", "bridge": "x7", "isGateway": gateway, "ipam": {"type": "host-local", "subnet": subnet}})
}

/// The first global address of a pod's interface.
fn address(node: &Node, pod: &Pod<'_>, ifname: &str) -> String {
    let all = node.host.addresses(&pod.sandbox(), ifname);
    all[0].split('/').next().unwrap().to_owned()
}

#[test]
fn a_pod_sends_to_the_host_over_ipv6_as_another() {
    let node = node("reverse6", "");
    let pair = json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "fd76::/64"}});
    for (name, plugin, gateway) in [("pair", pair, "fd76::1"), ("gateway", bridge(true, "fd77::/64"), "fd77::1")] {
        node.define(name, &network(&[plugin]));
        let pod = node.pod(&format!("attacker-{name}"), name);
        pod.must("ADD");
        let sandbox = pod.sandbox();
        node.host.sh(&sandbox, "ip -6 addr add fd99::9/128 dev lo");
        // The host has a way back, over another link.
        node.host.sh("", "ip -6 route replace fd99::9/128 dev up0");
        let own = address(&node, &pod, "net1");
        assert!(node.host.arrives((&sandbox, &own), ("", gateway)), "{name}: its own address");
        assert!(!node.host.arrives((&sandbox, "fd99::9"), ("", gateway)), "{name}: another's");
        pod.must("DEL");
    }
}

/// The host takes what is sent to a bridge's hardware address, whether or not the bridge has an IP address.
#[test]
fn a_pod_sends_to_a_bridge_without_a_gateway() {
    let node = node("gatewayless", "");
    let victim = node.pod("victim", "[]");
    victim.must("ADD");
    let victims = address(&node, &victim, "eth0");
    node.define("switch", &network(&[bridge(false, "10.77.0.0/24")]));
    let pod = node.pod("attacker", "switch");
    pod.must("ADD");
    let sandbox = pod.sandbox();
    for link in ["all", "default", "x7"] {
        node.host.sh("", &format!("sysctl -qw net.ipv4.conf.{link}.rp_filter=0"));
    }
    let mac = node.host.json("", "ip -j link show x7")[0]["address"].as_str().unwrap().to_owned();
    for line in ["ip neigh replace 10.77.0.254 dev net1 lladdr", "ip route replace DST/32 via 10.77.0.254 dev net1"] {
        let line = line.replace("DST", &victims);
        node.host.sh(&sandbox, &if line.ends_with("lladdr") { format!("{line} {mac}") } else { line });
    }
    let own = address(&node, &pod, "net1");
    let packets = || counted(&node);
    // A second pod of the bridge gets what it is sent, which the host does not route.
    let second = node.pod("second", "switch");
    second.must("ADD");
    for bridged in [0, 1] {
        pass_rules(&node, bridged);
        let seconds = address(&node, &second, "net1");
        assert!(node.host.arrives((&sandbox, &own), (&second.sandbox(), &seconds)), "{bridged}");
        let dropped = packets();
        assert!(!node.host.arrives((&sandbox, &own), (&victim.sandbox(), &victims)), "{bridged}: no address is behind the bridge");
        assert!(packets() > dropped, "{bridged}: dropped by this check");
    }
}

/// Packets that the check of reverse paths has dropped.
fn counted(node: &Node) -> u64 {
    let chain = node.host.json("", "nft -j list chain inet netloom reverse-path");
    let rules = chain["nftables"].as_array().unwrap().iter().filter_map(|o| o.get("rule"));
    let counters = rules.flat_map(|rule| rule["expr"].as_array().unwrap().iter().filter_map(|e| e.get("counter")));
    counters.map(|counter| counter["packets"].as_u64().unwrap()).sum()
}

/// The owner of the node has said that these pods may do what they like.
#[test]
fn pods_that_are_not_held_back_are_not_checked() {
    let rules = json!([{"name": "own", "definitionNamespaces": ["unchecked"], "protect": "off"}]);
    let node = node("unchecked", &format!("policy: {rules}"));
    node.define("pair", &network(&[json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.76.0.0/24"}})]));
    let pod = node.pod("free", "pair");
    pod.must("ADD");
    let set = node.host.run("", &["sh", "-c", "nft list set inet netloom reverse-links 2>/dev/null || true"]);
    assert!(!set.contains("veth"), "{set}");
}
