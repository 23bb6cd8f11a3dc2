//! What is said to the agent by those who do not mean it well, while others' calls go on.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netloom_tests::{Node, Outcome, SOCKET};
use serde_json::json;
use wire::{Answer, Call, ToAgent, ToShim};

use crate::process::chance::Chance;
use crate::process::own_traffic::is_refused;

/// What the agent may have at a time, in KiB, in a build that is not optimized: most of it are pages of the executable.
const MEMORY: u64 = 80 << 10;

fn connect(node: &Node) -> UnixStream {
    UnixStream::connect(node.host.path(SOCKET)).unwrap()
}

/// No call takes longer, on the slowest machine, but one that waits for somebody else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Another pod comes and goes meanwhile.
fn others_go_on(node: &Node, meanwhile: &str) {
    let pod = node.pod("bystander", "mac1,mac2,mac3");
    let begun = Instant::now();
    pod.must("ADD");
    let took = begun.elapsed();
    println!("{meanwhile}: ADD of another pod took {took:?}; VmHWM {} KiB", node.peak());
    pod.must("CHECK");
    pod.must("DEL");
    assert!(took < PATIENCE, "{meanwhile}: ADD of another pod took {took:?}");
    assert!(node.peak() < MEMORY, "{meanwhile}: {} KiB", node.peak());
}

fn refused(node: &Node, networks: &str, name: &str) -> Outcome {
    let pod = node.pod(name, networks);
    let begun = Instant::now();
    let outcome = pod.add();
    println!("{name}: refused after {:?}: {}", begun.elapsed(), outcome.message().chars().take(300).collect::<String>());
    assert!(begun.elapsed() < PATIENCE);
    assert_ne!(outcome.error()["code"], json!(999), "{outcome:?}");
    pod.must("DEL");
    outcome
}

/// What stands in annotations and definitions.
#[test]
fn objects_that_are_too_much() {
    let node = Node::start("objects", "");
    let before = node.before();
    let thousand = vec!["mac1"; 1000].join(",");
    assert!(refused(&node, &thousand, "thousand").message().contains("1000"));
    let long = json!({"cniVersion": "1.0.0", "name": "long", "type": "macvlan", "comment": "x".repeat(1 << 20)});
    node.define("long", &long.to_string());
    assert!(refused(&node, "long", "long").message().contains("objects/long"));
    for (name, config) in [
        ("deep", "[".repeat(100_000)),
        (
            "deeper",
            format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"x\",\"type\":\"macvlan\",\"a\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000)),
        ),
        ("wide", format!("{{\"name\":\"x\",\"plugins\":[{}]}}", vec!["{\"type\":\"tuning\"}"; 10_000].join(","))),
        ("path", json!({"cniVersion": "1.0.0", "name": "../../../etc/x", "type": "macvlan"}).to_string()),
        ("program", json!({"cniVersion": "1.0.0", "name": "x", "type": "../../../bin/sh"}).to_string()),
        // The agent's stack was at its end: the plugin asked itself for addresses.
        (
            "itself",
            json!({"cniVersion": "1.0.0", "name": "x", "type": "macvlan", "master": "up0", "ipam": {"type": "macvlan"}}).to_string(),
        ),
    ] {
        node.define(name, &config);
        refused(&node, name, name);
    }
    let deep = format!("[{}", "{\"name\":".repeat(10_000));
    refused(&node, &deep, "annotation");
    others_go_on(&node, "objects that are too much");
    node.expect(&before, "objects that are too much");
}

/// Definitions whose author wants a file of the node's: a static pod in the kubelet's directory, a lock that everybody needs, a file that
/// is never at its end. Each was possible once.
#[test]
fn definitions_that_reach_for_the_host() {
    let node = Node::start("reach", "");
    node.host.write("/run/subnet.env", "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1450\n");
    node.host.write("/run/etc/kubernetes/manifests/.keep", "");
    let before = node.before();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"hostPID": true}});
    let manifests = "/run/etc/kubernetes/manifests";
    let flannel = json!({"type": "flannel", "subnetFile": "/run/subnet.env", "dataDir": manifests, "delegate": pod});
    let config = |plugin: &serde_json::Value| {
        let mut config = json!({"cniVersion": "1.0.0", "name": "x"});
        config.as_object_mut().unwrap().extend(plugin.as_object().unwrap().clone());
        config.to_string()
    };
    let leases = |name: &str, keys: serde_json::Value| {
        let mut ipam = json!({"type": "host-local", "subnet": "10.9.9.0/24"});
        ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        json!({"name": name, "type": "macvlan", "master": "up0", "ipam": ipam})
    };
    let of_others = "/var/lib/cni/networks/mac1";
    for (name, plugin, says) in [
        ("flannel", flannel.clone(), manifests),
        ("nested", json!({"type": "netloom", "cniDir": "/run/x1", "delegates": [flannel]}), "is Netloom itself"),
        ("multus", json!({"type": "multus", "delegates": [{"type": "bridge"}]}), "is Netloom itself"),
        ("lock", json!({"type": "bridge", "ipam": {"type": "pool", "pool": "lab", "dataDir": "/var/lib/netloom"}}), "/var/lib/netloom"),
        (
            "kmsg",
            json!({"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24", "resolvConf": "/proc/kmsg"}}),
            "/proc/kmsg",
        ),
        ("socket", json!({"type": "bridge", "ipam": {"type": "dhcp", "daemonSocketPath": "/run/mine.sock"}}), "/run/mine.sock"),
        // A directory in the place of another network's lock, of its last address, or of an address.
        ("leases-lock", leases("lock", json!({"dataDir": of_others})), of_others),
        ("leases-last", leases("last_reserved_ip.0", json!({"dataDir": of_others})), of_others),
        ("leases-address", leases("10.1.0.9", json!({"dataDir": of_others})), of_others),
        ("leases-name", leases("10.1.0.9", json!({})), "\"/var/lib/cni/networks/10.1.0.9\" (name)"),
        ("leases-below", leases("10.244.0.9", json!({"dataDir": "/var/lib/cni/networks/pods"})), "/var/lib/cni/networks/pods"),
    ] {
        node.define(name, &config(&plugin));
        let outcome = refused(&node, name, name);
        assert_eq!(outcome.error()["code"], json!(7), "{name}: {outcome:?}");
        assert!(outcome.message().contains(says), "{name}: {}", outcome.message());
        assert_eq!(node.host.list(manifests), [".keep"], "{name}");
    }
    assert!(node.host.list(of_others).iter().all(|name| ["lock", "last_reserved_ip.0"].contains(&name.as_str())));
    others_go_on(&node, "definitions that reach for the host");
    node.expect(&before, "definitions that reach for the host");
}

/// With `prefer: path`, another author's program may run under the name of a built-in plugin, and write to the file that the definition names.
#[test]
fn a_path_for_an_executable_under_a_built_in_plugins_name() {
    let node = Node::start("executables", "prefer: path");
    node.host.write("/run/etc/kubernetes/manifests/.keep", "");
    let wants = |name: &str, log: &str| {
        let ipam = json!({"type": "whereabouts", "range": "10.9.9.0/24", "log_file": log});
        node.define(name, &json!({"cniVersion": "1.0.0", "name": "x", "type": "macvlan", "master": "up0", "ipam": ipam}).to_string());
    };
    wants("log", "/run/etc/kubernetes/manifests/x.yaml");
    let outcome = refused(&node, "log", "log");
    assert_eq!(outcome.error()["code"], json!(7), "{outcome:?}");
    let says = "\"/run/etc/kubernetes/manifests/x.yaml\" (plugins[0].ipam.log_file)";
    assert!(outcome.message().contains(says), "{}", outcome.message());
    assert_eq!(node.host.list("/run/etc/kubernetes/manifests"), [".keep"]);
}

/// `hostPort` in a pod's spec is Kubernetes' own: its admission decides who may have which.
#[test]
fn a_port_in_a_pods_spec_may_be_one_of_the_nodes() {
    let node = crate::repair::agent::node("specport", "");
    node.restart();
    for (name, port) in [("ssh", 22), ("kubelet", 10250)] {
        crate::repair::agent::published(&node, name, port).must("DEL");
    }
}

/// A hardware address as Cisco writes it.
fn dotted(mac: &str) -> String {
    let digits = mac.replace(':', "");
    [&digits[..4], &digits[4..8], &digits[8..]].join(".")
}

/// Networks that take what is the node's own, in each way that there is; and those beside them that take nothing.
#[test]
fn what_is_the_nodes_own() {
    let rules = json!([{"name": "trusted", "definitionNamespaces": ["trusted"], "protect": "off"},
        {"name": "watched", "definitionNamespaces": ["watched"], "protect": "warn"}]);
    let node = Node::start("own", &format!("serviceCIDRs: [10.96.0.0/12]\npolicy: {rules}"));
    node.host.sh("", "ip addr add 192.0.2.10/24 dev up0");
    node.host.sh("", "ip route add default via 192.0.2.1 dev up0");
    node.host.container("elsewhere");
    // A second uplink, of a worse metric, and a link that has nothing but an address.
    for words in [
        "link add up2 type veth peer name up3",
        "link set up2 up",
        "link set up3 up",
        "route add default via 192.0.3.1 dev up2 metric 500 onlink",
        "link add up4 type veth peer name up5",
        "addr add 198.51.100.4/24 dev up4",
        "link add switch0 type bridge",
        "link add up6 type veth peer name up7",
        "link set up6 master switch0",
        "link add tunnel0 type vxlan id 7 local 192.0.2.10 dstport 4790",
        "link set tunnel0 up",
        "route add 10.78.0.0/16 dev tunnel0",
        // One that an administrator made for pods alone, and an interface that gave itself an address.
        "link add storage0 type vxlan id 8 local 192.0.2.10 remote 192.0.2.11 dstport 4790",
        "link set storage0 up",
        "link add auto0 type veth peer name auto1",
        "addr add 169.254.7.9/16 dev auto0",
        // The host's end of a pod's pair, as another program makes it.
        "link add lxc0 type veth peer name eth0 netns elsewhere",
        "link set lxc0 up",
        "route add 10.77.77.7 dev lxc0",
        // A link without an address over which the node reaches a network, and one on which another link of the node stands.
        "link add far0 type veth peer name far1",
        "link set far0 up",
        "link set far1 up",
        "route add 10.79.0.0/16 dev far0",
        "link add below0 type veth peer name below1",
        "link add upon0 link below0 type macvlan",
        "link add spare0 link below1 type macvlan",
        // A bridge of another team.
        "link add team0 type bridge",
        "addr add 10.80.0.1/24 dev team0",
        // Where the node's DNS server is reached.
        "link add local-dns type veth peer name local-dns1",
        "addr add 169.254.25.10/32 dev local-dns",
    ] {
        node.host.sh("", &format!("ip {words}"));
    }
    let mac = node.host.link("", "up0").unwrap().0["address"].as_str().unwrap().to_owned();
    let network = |plugin: serde_json::Value| json!({"cniVersion": "1.0.0", "name": "x", "plugins": [plugin]}).to_string();
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let uplink = json!({"type": "host-device", "device": "up0"});
    let published = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let ports = json!({"cniVersion": "1.0.0", "name": "ports", "plugins": [
        {"type": "bridge", "bridge": "br0", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24"}}, published]});
    node.define("ports", &ports.to_string());
    let select = |port: u16| json!([{"name": "ports", "portMappings": [{"hostPort": port, "containerPort": 80}]}]).to_string();
    // Beside what is refused below: what takes nothing. What the first one makes on a node stays.
    node.define("beside", &network(json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "host-local", "subnet": "10.9.8.0/24"}})));
    node.define("on-storage", &network(json!({"type": "macvlan", "master": "storage0", "ipam": at("10.9.6.7/24")})));
    node.define("zeroconf", &network(json!({"type": "host-device", "device": "auto0"})));
    // Its own hardware address is nobody else's.
    let own = node.host.link("", "spare0").unwrap().0["address"].as_str().unwrap().to_owned();
    let plugins = json!([{"type": "host-device", "device": "spare0"}, {"type": "tuning", "mac": own}]);
    node.define("own-mac", &json!({"cniVersion": "1.0.0", "name": "x", "plugins": plugins}).to_string());
    for (name, networks) in
        [("beside", "beside,mac1".to_owned()), ("published", select(18080)), ("unneeded", "on-storage,zeroconf,own-mac".to_owned())]
    {
        let pod = node.pod(name, &networks);
        pod.must("ADD");
        pod.must("DEL");
    }
    let before = node.before();
    // The first ordinary pod has made the default network's bridge by now.
    node.host.sh("", "ip link property add dev br0 altname podnet");
    let host_local = |keys: serde_json::Value| {
        let mut ipam = json!({"type": "host-local", "subnet": "10.9.9.0/24"});
        ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        json!({"type": "macvlan", "master": "up0", "ipam": ipam})
    };
    let pods_dir = "/var/lib/cni/networks/pods";
    let called = |name: &str, plugin: serde_json::Value| json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]}).to_string();
    let on_bridge = |bridge: &str, key: &str| {
        network(json!({"type": "bridge", "bridge": bridge, key: true, "ipam": {"type": "host-local", "subnet": "10.200.0.0/24"}}))
    };
    for (name, config, says) in [
        ("second", network(json!({"type": "host-device", "device": "up2"})), "takes up2, the node's uplink, away from the node"),
        ("address", network(json!({"type": "host-device", "device": "up4"})), "takes up4, which has the node's address 198.51.100.4"),
        ("port", network(json!({"type": "host-device", "device": "up6"})), "takes up6, a port of switch0, away from the node"),
        (
            "route",
            network(json!({"type": "host-device", "device": "far0"})),
            "takes far0, over which the node reaches 10.79.0.0/16, away from the node",
        ),
        (
            "below",
            network(json!({"type": "host-device", "device": "below0"})),
            "takes below0, on which upon0 of the node stands, away from the node",
        ),
        (
            "team",
            network(json!({"type": "macvlan", "mode": "passthru", "master": "team0"})),
            "takes team0, which has the node's address 10.80.0.1, away from the node",
        ),
        (
            "on-port",
            network(json!({"type": "vlan", "master": "up6", "vlanId": 5})),
            "puts its pods' interfaces on up6, a port of switch0 (plugins[0].master)",
        ),
        (
            "tunnel",
            network(json!({"type": "host-device", "device": "tunnel0"})),
            "takes tunnel0, over which the node reaches 10.78.0.0/16, away from the node",
        ),
        ("pair", network(json!({"type": "host-device", "device": "lxc0"})), "takes lxc0, which leads to a pod, away from the node"),
        (
            "link-local",
            network(json!({"type": "host-device", "device": "local-dns"})),
            "takes local-dns, which has the node's address 169.254.25.10",
        ),
        ("on-pair", network(json!({"type": "macvlan", "master": "lxc0"})), "puts its pods' interfaces on lxc0, which leads to a pod"),
        (
            "on-tunnel",
            network(json!({"type": "vlan", "master": "tunnel0", "vlanId": 5})),
            "puts its pods' interfaces on tunnel0, a tunnel over which the node reaches 10.78.0.0/16",
        ),
        ("virtual", network(json!({"type": "host-device", "kernelpath": "/sys/devices/virtual/net/up7"})), "which is not hardware"),
        (
            "mtu",
            network(json!({"type": "bridge", "bridge": "br0", "mtu": 1279})),
            "changes the MTU of br0, the bridge of the node's default",
        ),
        ("promisc", on_bridge("br0", "promiscMode"), "changes the promiscuous mode of br0, the bridge of the node's default network"),
        ("learning", on_bridge("podnet", "macspoofchk"), "changes the learning of addresses of br0, the bridge of the node's"),
        (
            "admin",
            network(json!({"type": "firewall", "iptablesAdminChainName": "ufw-skip"})),
            "names \"ufw-skip\" (plugins[0].iptablesAdminChainName) in the node's firewall",
        ),
        ("bit", network(json!({"type": "portmap", "backend": "iptables", "markMasqBit": 14})), "names \"14\" (plugins[0].markMasqBit)"),
        (
            "mark",
            network(json!({"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"})),
            "names \"KUBE-MARK-MASQ\" (plugins[0].externalSetMarkChain) in the node's firewall",
        ),
        ("mac-dashes", network(json!({"type": "host-device", "hwaddr": mac.replace(':', "-")})), "takes up0, the node's uplink"),
        ("mac-dots", network(json!({"type": "host-device", "hwaddr": dotted(&mac)})), "takes up0, the node's uplink"),
        ("gateway-first", on_bridge("br0", "isGateway"), "gives br0, the bridge of the node's default network, a gateway's address"),
        ("gateway-altname", on_bridge("podnet", "isDefaultGateway"), "gives br0, the bridge of the node's default network"),
        ("leases-name", called("pods", host_local(json!({}))), pods_dir),
        ("uplink", network(uplink.clone()), "takes up0, the node's uplink, away from the node"),
        ("by-mac", network(json!({"type": "host-device", "hwaddr": mac})), "takes up0, the node's uplink"),
        ("passthru", network(json!({"type": "macvlan", "mode": "passthru", "master": "up0"})), "takes up0, the node's uplink"),
        ("default-route", network(json!({"type": "macvlan", "mode": "passthru"})), "takes up0, the node's uplink"),
        (
            "force",
            network(
                json!({"type": "bridge", "bridge": "br0", "forceAddress": true, "ipam": {"type": "host-local", "subnet": "10.9.9.0/24"}}),
            ),
            "replaces the address of br0, the bridge of the node's default network",
        ),
        ("service", network(json!({"type": "ptp", "ipam": at("10.96.0.1/32")})), "\"10.96.0.1/32\""),
        ("node", network(json!({"type": "ptp", "ipam": at("192.0.2.10/32")})), "which is the node's own"),
        (
            "range",
            network(json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.97.0.0/24"}})),
            "gives the host a route to 10.97.0.0/24 for \"10.97.0.0/24\" (plugins[0].ipam.subnet)",
        ),
        (
            "gateway",
            network(json!({"type": "bridge", "bridge": "br7", "isGateway": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.9.0/24", "gateway": "10.96.0.10"}]]}})),
            "names the gateway \"10.96.0.10\"",
        ),
    ] {
        node.define(name, &config);
        let outcome = refused(&node, name, name);
        assert_eq!(outcome.error()["code"], json!(7), "{name}: {outcome:?}");
        let rule = "\"policy\": {\"name\":\"own\",\"definitionNamespaces\":[\"own\"],\"protect\":\"off\"}";
        assert!(outcome.message().contains(says) && outcome.message().contains(rule), "{name}: {}", outcome.message());
    }
    for (name, port, says) in [("kubelet", 10250, "the port of the kubelet"), ("ssh", 22, "the port of SSH")] {
        let outcome = refused(&node, &select(port), name);
        assert!(outcome.message().contains(says) && outcome.message().contains(&format!("{port}/tcp")), "{}", outcome.message());
    }
    // Who trusts those who write a namespace's definitions does not trust whoever selects them.
    node.api.namespace("trusted");
    node.api.definition("trusted", "ports", &ports.to_string());
    let outcome = refused(&node, &select(22).replace("\"ports\"", "\"ports\",\"namespace\":\"trusted\""), "by-trusted-ports");
    let rule = "\"policy\": {\"name\":\"own\",\"podNamespaces\":[\"own\"],\"protect\":\"off\"}";
    assert!(outcome.message().contains("the port of SSH") && outcome.message().contains(rule), "{}", outcome.message());
    // A program of the node that listens at one address: the way to the API server.
    let sockets = node.host.sh("", "ss -Hltn src 127.0.0.1");
    let port: u16 = sockets.split_whitespace().nth(3).and_then(|at| at.rsplit(':').next()?.parse().ok()).unwrap();
    for (name, ip) in [("every-address", "0.0.0.0"), ("mapped", "::ffff:127.0.0.1")] {
        let mapping = json!({"hostPort": port, "containerPort": 80, "hostIP": ip});
        let outcome = refused(&node, &json!([{"name": "ports", "portMappings": [mapping]}]).to_string(), name);
        assert!(outcome.message().contains("on which a program of the node listens"), "{}", outcome.message());
    }
    node.host.sh("", "ip link property del dev br0 altname podnet");
    // What a rule allows, and what it warns of.
    let service = network(json!({"type": "macvlan", "master": "up0", "ipam": at("10.96.0.99/24")}));
    node.api.namespace("watched");
    for (namespace, events) in [("trusted", 0), ("watched", 1)] {
        node.api.definition(namespace, "service", &service);
        let pod = node.pod(&format!("by-{namespace}"), &format!("{namespace}/service"));
        pod.must("ADD");
        let told = || pod.events().iter().filter(|event| event.contains("TakesTheNodesOwn")).count();
        node.until("the owner is told, or not", || told() >= events);
        pod.must("DEL");
        assert_eq!(told() > 0, events > 0, "{:?}", pod.events());
    }
    node.expect(&before, "what is the node's own");
}

/// A host port that a pod of another namespace has, asked for at one address, with conditions, and by rules of iptables.
#[test]
fn a_port_of_another_namespace() {
    let node = Node::start("evil", "");
    node.host.sh("", "ip addr add 192.0.2.10/24 dev up0");
    node.api.namespace("victim");
    let ports = |name: &str, subnet: &str, keys: serde_json::Value| {
        let mut portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        portmap.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let bridge = json!({"type": "bridge", "bridge": format!("br-{name}"), "isGateway": true,
            "ipam": {"type": "host-local", "subnet": subnet}});
        json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap]}).to_string()
    };
    node.api.definition("victim", "web", &ports("web", "10.9.1.0/24", json!({})));
    let selected = |name: &str, ip: Option<&str>| {
        let mut mapping = json!({"hostPort": 18080, "containerPort": 8443, "protocol": "tcp"});
        if let Some(ip) = ip {
            mapping["hostIP"] = json!(ip);
        }
        json!([{"name": name, "portMappings": [mapping]}]).to_string()
    };
    let metadata = json!({"name": "web", "namespace": "victim", "annotations": {"k8s.v1.cni.cncf.io/networks": selected("web", None)}});
    let victim = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    victim.must("ADD");
    for (name, subnet, keys, ip) in [
        ("one", "10.9.2.0/24", json!({}), Some("192.0.2.10")),
        ("some", "10.9.3.0/24", json!({"conditionsV4": ["ip", "daddr", "192.0.2.10"]}), None),
        ("rules", "10.9.4.0/24", json!({"backend": "iptables"}), None),
        ("words", "10.9.5.0/24", json!({"conditionsV4": ["!", "-s", "198.51.100.1"]}), Some("192.0.2.10")),
    ] {
        node.define(name, &ports(name, subnet, keys));
        let outcome = refused(&node, &selected(name, ip), name);
        assert_eq!(outcome.error()["code"], json!(11), "{name}: {outcome:?}");
        let says = format!("is used by attachment web/{}/net1", victim.sandbox());
        assert!(outcome.message().contains("host port 18080/tcp") && outcome.message().contains(&says), "{name}: {}", outcome.message());
        victim.must("CHECK");
        assert!(!node.host.sh("", "iptables -t nat -S").contains("18080"), "{name}");
    }
    victim.must("DEL");
    let pod = node.pod("heir", &selected("one", Some("192.0.2.10")));
    pod.must("ADD");
    pod.must("DEL");
}

/// Nothing, or only half of a call, from a hundred at a time.
#[test]
fn a_hundred_that_say_nothing() {
    let node = Node::start("silence", "");
    let before = node.before();
    let call = wire::print(&ToAgent::Call(Call { verb: "ADD".to_owned(), ..Call::default() }));
    let framed = [&u32::try_from(call.len()).unwrap().to_be_bytes(), call.as_slice()].concat();
    let half = |n: usize| {
        let mut stream = connect(&node);
        stream.write_all(&framed[..[0, 2, 4, framed.len() / 2][n % 4]]).unwrap();
        stream
    };
    let admin = node.host.path("/run/netloom/admin.sock");
    let is_open = |stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        matches!((&mut &*stream).read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
    };
    let mut kept = (Vec::new(), Vec::new());
    // Who says nothing is let go after five seconds, and a question takes a few milliseconds: one of some is answered before that, also on
    // a machine that stands still now and then.
    let attempt = |_| {
        let silent: Vec<UnixStream> = (0..100).map(half).collect();
        let idle: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&admin).unwrap()).collect();
        let answer = ask(&node, Call { protocol: wire::PROTOCOL, verb: "STATUS".to_owned(), ..Call::default() });
        assert_eq!(node.status()["ready"], json!(true), "{answer:?}");
        let all_wait = silent.iter().chain(&idle).all(is_open);
        kept = (silent, idle);
        all_wait
    };
    assert!((0..10).any(attempt), "others are answered when the silent ones have been let go");
    others_go_on(&node, "100 that say nothing");
    node.until("they are let go", || node.status()["calls"] == json!(0));
    drop(kept);
    node.expect(&before, "silence");
}

#[test]
fn bytes_that_are_no_call() {
    let (node, mut chance) = (Node::start("garbage", ""), Chance::new("garbage"));
    let before = node.before();
    let mut said = Vec::new();
    for length in [0_u32, 1, 16, 0x7fff_ffff, 0xffff_ffff] {
        let mut stream = connect(&node);
        stream.write_all(&length.to_be_bytes()).unwrap();
        drop(stream.write_all(b"{\"call\":{}}"));
        said.push(stream);
    }
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..chance.below(4000)).map(|_| u8::try_from(chance.below(256)).unwrap()).collect();
        let mut stream = connect(&node);
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
    }
    others_go_on(&node, "bytes that are no call");
    drop(said);
    node.expect(&before, "garbage");
}

fn ask(node: &Node, call: Call) -> Answer {
    let mut stream = connect(node);
    wire::send(&mut stream, &ToAgent::Call(call)).unwrap();
    match wire::receive(&mut stream).unwrap() {
        Some(ToShim::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

/// What an honest `netloom-cni` would never pass on.
#[test]
fn calls_that_name_other_files() {
    let node = Node::start("names", "");
    let before = node.before();
    let pod = node.pod("web", "mac1");
    let config = br#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom"}"#;
    let honest = Call {
        protocol: wire::PROTOCOL,
        program: "netloom".to_owned(),
        verb: "ADD".to_owned(),
        container_id: pod.sandbox(),
        netns: format!("/run/netns/{}", pod.sandbox()),
        ifname: "eth0".to_owned(),
        args: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=names;K8S_POD_NAME=web;K8S_POD_UID={}", pod.uid),
        path: node.bin.display().to_string(),
        netns_override: false,
        config: config.to_vec(),
        ..Call::default()
    };
    let long = "x".repeat(5000);
    for verb in ["ADD", "DEL", "CHECK"] {
        for bad in ["../../../etc/passwd", "a/b", "..", "", ".", "a\0b", "a\nb", long.as_str()] {
            let answer = ask(&node, Call { verb: verb.to_owned(), container_id: bad.to_owned(), ..honest.clone() });
            assert_eq!(answer.exit, 1, "{verb} of container {bad:?}: {answer:?}");
            let answer = ask(&node, Call { verb: verb.to_owned(), ifname: bad.to_owned(), ..honest.clone() });
            assert_eq!(answer.exit, 1, "{verb} of interface {bad:?}: {answer:?}");
        }
    }
    for bad in ["/etc/passwd", "/dev/zero", "relative", "/proc/1/ns/mnt", "", "/run"] {
        let answer = ask(&node, Call { netns: bad.to_owned(), ..honest.clone() });
        assert_eq!(answer.exit, 1, "namespace {bad:?}: {answer:?}");
        let answer = ask(&node, Call { verb: "DEL".to_owned(), ..honest.clone() });
        assert_eq!(answer.exit, 0, "DEL after namespace {bad:?}: {answer:?}");
    }
    for bad in ["K8S_POD_NAMESPACE=../..;K8S_POD_NAME=web", "K8S_POD_NAMESPACE=names;K8S_POD_NAME=../secrets/x?", "a", ";;;"] {
        let answer = ask(&node, Call { args: bad.to_owned(), ..honest.clone() });
        assert_eq!(answer.exit, 1, "arguments {bad:?}: {answer:?}");
    }
    let answer = ask(&node, honest.clone());
    assert_eq!(answer.exit, 0, "{answer:?}");
    assert_eq!(ask(&node, Call { verb: "DEL".to_owned(), ..honest }).exit, 0);
    others_go_on(&node, "calls that name other files");
    drop(pod);
    node.expect(&before, "calls that name other files");
}

/// The socket is root's. Where somebody has opened it to all, the agent still looks who calls.
#[test]
fn a_peer_that_is_not_root() {
    let node = Node::start("nobody", "");
    let mode = |inside: &str| std::fs::metadata(node.host.path(inside)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("/run/netloom"), mode(SOCKET), mode("/run/netloom/admin.sock")), (0o700, 0o600, 0o600));
    let nobody = |call: &str| {
        let line = format!("curl -sS --max-time 5 --unix-socket {call} http://x/ 2>&1; true");
        node.host.run("", &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", &line])
    };
    let refusals = || node.log().matches("only root may call the agent").count();
    nobody(SOCKET);
    assert_eq!(refusals(), 0, "nobody else finds the socket");
    node.host.run("", &["chmod", "777", "/run/netloom", SOCKET, "/run/netloom/admin.sock"]);
    nobody(SOCKET);
    nobody("/run/netloom/admin.sock");
    node.until("both are refused", || refusals() == 2);
    others_go_on(&node, "a peer that is not root");
}

/// A namespace whose plugin comes to no end, in more pods than there are workers: another one's come and go meanwhile, and so do its own
/// DELs.
#[test]
fn a_namespace_that_takes_all_it_can() {
    let node = Node::start("greedy", "workers: 8");
    node.host.write("/run/bin/endless", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nexec sleep 100000\n");
    node.host.sh("", "chmod 755 /run/bin/endless");
    node.define("endless", &json!({"cniVersion": "1.0.0", "name": "endless", "type": "endless"}).to_string());
    let before = node.before();
    let pods: Vec<_> = (0..12).map(|n| node.pod(&format!("greedy{n}"), "endless")).collect();
    let path = format!("/run/bin:{}", node.bin.display());
    let began = |pod: &netloom_tests::Pod| pod.begin_with("ADD", &[("CNI_PATH", &path)]);
    let mut calls: Vec<_> = pods.iter().map(began).collect();
    node.until("as many as may are served, and the others wait", || node.status()["callsWaiting"] == json!(9));
    assert_eq!(node.status()["calls"], json!(3), "half of the workers, less the one for its DELs");
    node.api.namespace("modest");
    for n in 0..3 {
        let metadata = json!({"name": format!("modest{n}"), "namespace": "modest"});
        let pod = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
        pod.must("ADD");
        pod.must("CHECK");
        pod.must("DEL");
    }
    assert_eq!(node.status()["callsWaiting"], json!(9), "no other one came to its end meanwhile");
    // Their runtime gives them up: each DEL comes while others' ADDs still stand in line.
    for (pod, call) in pods.iter().zip(&mut calls) {
        call.kill().unwrap();
        call.wait().unwrap();
        let deleted = pod.begin_with("DEL", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        assert!(deleted.status.success(), "{deleted:?}");
    }
    drop(pods);
    node.expect(&before, "a namespace that takes all it can");
}

/// Where calls wait and none comes to its end, a new agent is what helps, and the kubelet is told so; one that waits for nobody is alive.
#[test]
fn an_agent_whose_workers_are_all_stuck() {
    let node = Node::new(&netloom_tests::Api::shared(), "stuck", "workers: 4\nhealthAddress: 127.0.0.1:9180");
    node.set("NETLOOM_STUCK_AFTER", "2");
    node.restart();
    node.host.write("/run/bin/endless", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nexec sleep 300\n");
    node.host.sh("", "chmod 755 /run/bin/endless");
    node.define("endless", &json!({"cniVersion": "1.0.0", "name": "endless", "type": "endless"}).to_string());
    let health = || node.host.sh("", "curl -s -o /dev/null -w %{http_code} http://127.0.0.1:9180/healthz");
    node.until("it is alive", || health().trim() == "200");
    let path = format!("/run/bin:{}", node.bin.display());
    let pods: Vec<_> = (0..2).map(|n| node.pod(&format!("stuck{n}"), "endless")).collect();
    let mut calls: Vec<_> = pods.iter().map(|pod| pod.begin_with("ADD", &[("CNI_PATH", &path)])).collect();
    node.until("one is served, the other waits, and nothing moves", || health().trim() == "503");
    let why = node.host.sh("", "curl -s http://127.0.0.1:9180/healthz");
    assert!(why.starts_with("1 call is queued, and none has finished for "), "{why}");
    for call in &mut calls {
        call.kill().unwrap();
        call.wait().unwrap();
    }
    node.until("it is alive again", || health().trim() == "200");
    for pod in &pods {
        let deleted = pod.begin_with("DEL", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        assert!(deleted.status.success(), "{deleted:?}");
    }
}

/// Who has the lock that a call waits for is told every ten seconds, and it goes on when it is free.
#[test]
fn a_lock_that_another_process_has() {
    let node = Node::start("locked", "");
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    pod.must("DEL");
    pod.renew();
    let lock = "/var/lib/cni/networks/mac1/lock";
    // The shell, and what it becomes, has the lock until it is killed.
    let line = format!("exec 9<>{lock}; flock 9; exec sleep 300");
    let mut holder = node.host.command("", "sh").args(["-c", &line]).spawn().unwrap();
    node.until("it is held", || node.host.try_run("", &["flock", "-n", lock, "true"]).status.code() == Some(1));
    let waiting = pod.begin("ADD");
    node.until("who has it is told", || {
        node.log().lines().any(|line| line.contains(lock) && line.contains("since=") && line.contains("holder="))
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    let added = waiting.wait_with_output().unwrap();
    assert!(added.status.success(), "{added:?}");
    pod.must("DEL");
}

/// What a plugin has started does not outlive its failure, be it in a session of its own; what one has started that succeeds is its own.
#[test]
fn what_a_plugin_leaves_when_it_fails() {
    let node = Node::start("leaves", "");
    let script = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nsetsid sleep 300 >/dev/null 2>&1 &\necho $! >>/run/pids\n\
        sleep 300 >/dev/null 2>&1 &\necho $! >>/run/pids\necho no >&2\nexit 1\n";
    node.host.write("/run/bin/leaver", script);
    node.host.sh("", "chmod 755 /run/bin/leaver");
    node.define("leaver", &json!({"cniVersion": "1.0.0", "name": "leaver", "type": "leaver"}).to_string());
    let pod = node.pod("web", "leaver");
    let path = format!("/run/bin:{}", node.bin.display());
    let added = pod.begin_with("ADD", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
    assert!(!added.status.success(), "{added:?}");
    let pids = std::fs::read_to_string(node.host.path("/run/pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    let runs = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    node.until("both have ended", || !pids.lines().any(runs));
    pod.must("DEL");
}

/// Callers that are killed in the middle of an ADD, whose runtime then deletes what they began.
#[test]
fn callers_that_vanish() {
    let (node, mut chance) = (Node::start("vanish", ""), Chance::new("vanish"));
    let before = node.before();
    let pod = node.pod("web", "mac1,mac2,mac3");
    for _ in 0..30 {
        let mut child = pod.begin("ADD");
        // Sleeps: killed at a random moment.
        std::thread::sleep(chance.time(Duration::from_millis(40)));
        child.kill().unwrap();
        child.wait().unwrap();
        pod.must("DEL");
        pod.renew();
    }
    others_go_on(&node, "callers that vanish");
    drop(pod);
    node.expect(&before, "callers that vanish");
    assert_eq!(node.told(&["pods"]).as_array().map(Vec::len), Some(0), "{}", node.told(&["pods"]));
    assert_eq!(node.status()["calls"], json!(0));
}

/// What the policy allows a namespace is allowed there, and nowhere else.
#[test]
fn a_path_that_the_policy_allows() {
    let rules = json!([{"name": "leases", "definitionNamespaces": ["paths"], "allow": {"paths": ["/run/leases"]}}]);
    let node = Node::start("paths", &format!("policy: {rules}"));
    let before = node.before();
    let config = |dir: &str| {
        let ipam = json!({"type": "host-local", "subnet": "10.9.9.0/24", "dataDir": dir});
        json!({"cniVersion": "1.0.0", "name": "x", "type": "macvlan", "master": "up0", "ipam": ipam}).to_string()
    };
    node.define("allowed", &config("/run/leases/x"));
    node.define("refused", &config("/run/others"));
    let pod = node.pod("web", "allowed");
    pod.must("ADD");
    assert!(!node.host.list("/run/leases/x/x").is_empty(), "the lease is where the definition says");
    pod.must("DEL");
    drop(pod);
    let outcome = refused(&node, "refused", "refused");
    let says = "policy rule \"leases\": definition paths/refused names the host's path \"/run/others\" (plugins[0].ipam.dataDir)";
    assert!(outcome.message().contains(says), "{}", outcome.message());
    // The directory itself, and the number of the last address, stay as with the reference plugin.
    node.host.sh("", "rm -r /run/leases");
    node.expect(&before, "a path that the policy allows");
}

/// A network of the node's disk may name any path, and the pod that selects it none: a plugin that is not Netloom's writes its log, as root, to
/// the file that it finds in `cni-args`.
#[test]
fn a_path_that_a_pod_adds_to_a_network_of_the_node() {
    let rules = json!([{"name": "logs", "podNamespaces": ["trusted"], "allow": {"paths": ["/run/logs"]}}]);
    let node = Node::start("disk-paths", &format!("policy: {rules}"));
    let script = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nfile=$(sed -n 's/.*\"log\":\"\\([^\"]*\\)\".*/\\1/p')\n\
        [ -z \"$file\" ] || echo written >>$file\necho '{\"cniVersion\":\"1.0.0\"}'\n";
    node.host.write("/run/bin/theirs", script);
    node.host.sh("", "chmod 755 /run/bin/theirs");
    node.host.sh("", "mkdir -p /run/logs");
    node.host
        .write("/etc/cni/multus/net.d/10-theirs.conf", &json!({"cniVersion": "1.0.0", "name": "theirs", "type": "theirs"}).to_string());
    node.api.namespace("trusted");
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/disk-paths/network-attachment-definitions";
    let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "theirs"}});
    node.api.must("POST", path, &object);
    let select = |log: &str| json!([{"name": "theirs", "namespace": "disk-paths", "cni-args": {"log": log}}]).to_string();
    let pod = node.pod("web", &select("/run/bin/../root.log"));
    is_refused(&node, &pod, "the pod's selection names the host's path");
    assert!(!node.host.path("/run/root.log").exists());
    pod.must("DEL");
    let annotations = json!({"k8s.v1.cni.cncf.io/networks": select("/run/logs/x")});
    let metadata = json!({"name": "trusted", "namespace": "trusted", "annotations": annotations});
    let pod = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    let path = format!("/run/bin:{}", node.bin.display());
    let called = |verb: &str| pod.begin_with(verb, &[("CNI_PATH", &path)]).wait().unwrap().success();
    assert!(called("ADD") && node.host.path("/run/logs/x").exists(), "{}", node.tail());
    assert!(called("DEL"));
}
