//! Definitions that give the host a route or an address which takes the node's own traffic. Each was possible once.

use netloom_tests::wired::table;
use netloom_tests::{Api, Node, Pod, SETTINGS};
use serde_json::{Value, json};

pub(super) fn network(plugins: &[Value]) -> String {
    json!({"cniVersion": "1.0.0", "name": "x", "plugins": plugins}).to_string()
}

/// An ADD with the plugins of `/run/bin` besides fails with code 7, and the log says why.
pub(super) fn is_refused(node: &Node, pod: &Pod<'_>, says: &str) {
    let path = format!("/run/bin:{}", node.bin.display());
    let added = pod.begin_with("ADD", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
    let begins = format!("verb=ADD pod={}/{} ", node.name, pod.name);
    let line = || node.log().lines().find(|line| line.contains(&begins)).map(str::to_owned);
    node.until("the log tells of the call", || line().is_some());
    let text = line().unwrap();
    assert!(!added.status.success() && text.contains("code=7") && text.contains(says), "{}: {text}", pod.name);
}

/// A node at 192.168.1.20/24, whose API server says that it is at 198.51.100.10.
pub(super) fn node(name: &str, extra: &str) -> Node {
    let api = Api::own();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kubernetes", "namespace": "default"}, "endpoints": [{"addresses": ["198.51.100.10"]}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    api.namespace("default");
    // A real API server has one already.
    if api.ask("POST", slices, &slice).0 == 409 {
        api.must("PUT", &format!("{slices}/kubernetes"), &slice);
    }
    let node = Node::new(&api, name, extra);
    node.host.sh("", "ip addr add 192.168.1.20/24 dev up0");
    node.host.sh("", "ip addr add 169.254.20.10/32 dev up0");
    node.host.sh("", "ip route add default via 192.168.1.1 dev up0");
    node.restart();
    node
}

#[test]
fn a_route_of_the_host_that_takes_the_nodes_traffic() {
    let node = node("routes", "serviceCIDRs: [10.96.0.0/12]");
    // Another node's pods, and a router that no network of the node has: there the node's own network is a single address.
    node.host.sh("", "ip route add 10.244.7.0/24 via 192.168.1.12");
    node.host.sh("", "ip route add 203.0.113.0/25 via 10.128.0.1 dev up0 onlink");
    // A network of storage, what is behind a tunnel, and who answers the node's questions for names.
    for words in ["link add up2 type veth peer name up3", "link set up2 up", "link set up3 up", "addr add 192.168.50.20/24 dev up2"] {
        node.host.sh("", &format!("ip {words}"));
    }
    node.host.sh("", "ip route add 10.200.0.0/16 dev up2");
    node.host.write("/run/systemd/resolve/resolv.conf", "nameserver 172.16.0.53\n");
    // Two pods of one network: what the first one has made is not the node's own to the second.
    node.define("direct", &network(&[json!({"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.72.0.0/24"}})]));
    let (first, second) = (node.pod("first", "direct"), node.pod("second", "direct"));
    for pod in [&first, &second] {
        pod.must("ADD");
    }
    for pod in [&first, &second] {
        pod.must("DEL");
    }
    drop((first, second));
    let before = node.before();
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let behind = |address: &str, gateway: &str| json!({"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": address, "gateway": gateway}]}});
    let gateway = |ipam: Value| json!({"type": "bridge", "bridge": "x0", "isGateway": true, "ipam": ipam});
    let mapped = json!({"type": "static", "addresses": [{"address": "10.112.0.5/11", "gateway": "::ffff:10.96.0.1"}]});
    let specific = json!({"type": "static", "addresses": [{"address": "192.168.1.77/25", "gateway": "192.168.1.126"}]});
    let computed = json!({"type": "host-local", "subnet": "10.96.0.0/11", "rangeStart": "10.112.0.5"});
    for (name, plugin, says) in [
        ("server", json!({"type": "ptp", "ipam": at("198.51.100.10/32")}), "which is the API server's"),
        ("neighbour", json!({"type": "ptp", "ipam": at("192.168.1.10/32")}), "192.168.1.0/24, the network of up0, the node's uplink"),
        ("specific", gateway(specific), "a route to 192.168.1.0/25"),
        ("metadata", json!({"type": "ptp", "ipam": at("169.254.169.254/32")}), "the cloud's metadata service"),
        ("alibaba", json!({"type": "ptp", "ipam": at("100.100.100.200/32")}), "which is the cloud's metadata service"),
        ("dns", json!({"type": "macvlan", "master": "up0", "ipam": at("169.254.20.10/32")}), "which is the node's own"),
        ("mapped", gateway(mapped), "names the gateway \"::ffff:10.96.0.1\""),
        ("computed", gateway(computed.clone()), "Services (10.96.0.0/12)"),
        ("pods", json!({"type": "ptp", "ipam": at("10.244.0.77/32")}), "br0, the bridge of the node's default network"),
        ("azure", json!({"type": "ptp", "ipam": at("168.63.129.16/32")}), "the cloud's metadata service"),
        ("clock", json!({"type": "ptp", "ipam": at("169.254.169.123/32")}), "the cloud's metadata service"),
        ("others-pods", json!({"type": "ptp", "ipam": at("10.244.7.9/32")}), "to 10.244.7.0/24, which the node reaches over 192.168.1.12"),
        ("public", behind("8.8.8.8/32", "172.30.0.1"), "a route to 8.8.8.8 for"),
        ("public-gateway", behind("172.30.0.9/32", "8.8.8.8"), "addresses outside of private ranges"),
        ("public-network", gateway(at("8.8.8.9/24")), "a route to 8.8.8.0/24 for"),
        ("public-six", behind("2606:4700::1111/128", "fd00::1"), "addresses outside of private ranges"),
        ("multicast", gateway(at("224.0.0.10/4")), "a route to 224.0.0.0/4 for"),
        ("names", behind("172.16.0.53/32", "172.30.0.1"), "which is the node's DNS server"),
        (
            "storage",
            behind("192.168.50.10/32", "172.30.0.1"),
            "192.168.50.0/24, the network of up2, which has the node's address 192.168.50.20",
        ),
        ("tunnel", behind("10.200.0.7/32", "172.30.0.1"), "to 10.200.0.0/16, which the node reaches over up2"),
        ("router", json!({"type": "ptp", "ipam": at("10.128.0.1/32")}), "over 10.128.0.1, a next hop of the node's routes"),
    ] {
        node.define(name, &network(&[plugin]));
        let pod = node.pod(name, name);
        let outcome = pod.add();
        assert_eq!(outcome.error()["code"], json!(7), "{name}: {outcome:?}");
        assert!(outcome.message().contains(says), "{name}: {}", outcome.message());
        pod.must("DEL");
    }
    node.expect(&before, "routes of the host");
}

/// A definition is judged by what is executed: not by what another reader may take several objects under one key for, or `null`; and a bridge by the
/// MTU that it would get, whether a key or a file sets it.
#[test]
fn a_delegate_is_what_is_executed() {
    let node = node("delegates", "serviceCIDRs: [10.96.0.0/12]");
    let env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    node.host.write("/run/flannel/subnet.env", env);
    for words in [
        "link add upbr type bridge",
        "link set upbr mtu 9000 up",
        "addr add 192.0.2.20/24 dev upbr",
        "route add 198.51.100.0/24 via 192.0.2.1",
    ] {
        node.host.sh("", &format!("ip {words}"));
    }
    node.host.sh("", "sysctl -qw net.ipv6.conf.upbr.accept_ra=0");
    // The bridge of the default network.
    node.pod("first", "").must("ADD");
    let shown = |node: &Node| {
        let all = node.host.sh("", "ip -4 -o addr show dev br0") + &node.host.sh("", "ip -4 route show table all");
        all.replace(" linkdown", "")
    };
    let before = shown(&node);
    let flannel = |ipam: &str, delegates: &str| {
        format!(r#"{{"cniVersion":"1.0.0","name":"x","plugins":[{{"type":"flannel","ipam":{ipam},{delegates}}}]}}"#)
    };
    let at = |address: &str, gateway: &str| format!(r#"{{"type":"static","addresses":[{{"address":"{address}","gateway":"{gateway}"}}]}}"#);
    // The last of several keys takes nothing away that was said before, so that nothing is the node's own.
    for (name, ipam, delegates) in [
        ("gateway", at("192.168.1.77/25", "192.168.1.126"), r#""delegate":{"bridge":"x0","isGateway":false,"ISGATEWAY":null}"#),
        (
            "type",
            at("10.66.0.5/24", "10.66.0.1"),
            r#""delegate":{"type":"macvlan","master":"up0"},"Delegate":{"bridge":"br0","forceAddress":true,"mtu":1280}"#,
        ),
        ("told", at("10.67.0.5/24", "10.67.0.1"), r#""delegate":{"bridge":"x1","isGateway":false},"delegate":{"hairpinMode":true}"#),
    ] {
        node.define(name, &flannel(&ipam, delegates));
        let pod = node.pod(name, name);
        pod.must("ADD");
        assert_eq!(shown(&node), before, "{name}");
        pod.must("DEL");
        assert_eq!(shown(&node), before, "{name}");
    }
    for (name, ipam, delegates, says) in [
        (
            "said",
            at("192.168.1.77/25", "192.168.1.126"),
            r#""delegate":{"bridge":"x0"},"DELEGATE":{"isGateway":null}"#,
            "a route to 192.168.1.0/25",
        ),
        (
            "last",
            at("10.66.0.5/24", "10.66.0.1"),
            r#""delegate":{"type":"dummy"},"Delegate":{"type":"bridge","bridge":"br0","forceAddress":true}"#,
            "br0",
        ),
        ("mtu", at("10.68.0.5/24", "10.68.0.1"), r#""delegate":{"bridge":"upbr","isGateway":false}"#, "the MTU would become 1450 of upbr"),
    ] {
        node.define(name, &flannel(&ipam, delegates));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        assert_eq!(shown(&node), before, "{name}");
        pod.must("DEL");
    }
    assert_eq!(node.host.json("", "ip -j link show upbr")[0]["mtu"], json!(9000));
}

/// Of a key that is said twice the last one counts, to who judges as to who executes: a bridge was taken for a VLAN of it, where other traffic arrives.
#[test]
fn a_vlan_that_is_said_twice() {
    let node = node("twice", "");
    let at = |address: &str, gateway: &str| json!({"type": "static", "addresses": [{"address": address, "gateway": gateway}]});
    let victim = json!({"type": "bridge", "bridge": "t2.5", "isGateway": true, "ipam": at("10.9.0.5/24", "10.9.0.1")});
    node.define("victim", &network(&[victim]));
    let other = node.pod("other", "victim");
    other.must("ADD");
    let ipam = at("10.9.0.77/25", "10.9.0.126");
    node.define(
        "twice",
        &format!(r#"{{"cniVersion":"1.0.0","name":"x","type":"bridge","bridge":"t2","vlan":5,"vlan":0,"isGateway":true,"ipam":{ipam}}}"#),
    );
    let pod = node.pod("pod", "twice");
    is_refused(&node, &pod, "10.9.0.0/24");
    pod.must("DEL");
    other.must("DEL");
}

/// What a DHCP server gives a route to is the cloud's, in the range of link-local addresses as well.
#[test]
fn a_service_of_the_cloud_with_a_link_local_address() {
    let node = node("local", "");
    node.host.sh("", "ip route add 169.254.0.0/16 dev up0 proto dhcp src 192.168.1.20");
    node.restart();
    let disks = json!({"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "169.254.0.2/32", "gateway": "169.254.0.1"}]}});
    node.define("disks", &network(std::slice::from_ref(&disks)));
    let pod = node.pod("disks", "disks");
    is_refused(&node, &pod, "to 169.254.0.0/16, which the node reaches over up0");
    pod.must("DEL");
    // Every machine without an address of its own may have such a route.
    node.host.sh("", "ip route del 169.254.0.0/16 dev up0");
    node.host.sh("", "ip route add 169.254.0.0/16 dev up0 scope link metric 1002");
    let pod = node.pod("again", "disks");
    pod.must("ADD");
    pod.must("DEL");
}

/// A pod that had another pod's address on the bridge of both answered for it: no rule and no route was needed.
#[test]
fn an_address_of_another_pod_on_its_own_bridge() {
    let node = node("segment", "serviceCIDRs: [10.96.0.0/12]");
    let ip = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.244.0.2/24"}]});
    node.host.write("/run/bin/theirs", &format!("#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{ip}'\nexit 0\n"));
    node.host.sh("", "chmod 755 /run/bin/theirs");
    let victim = node.pod("victim", "");
    victim.must("ADD");
    node.host.sh("", "ip link property add dev br0 altname podnet");
    let fixed = json!({"type": "static", "addresses": [{"address": "10.244.0.2/24"}]});
    let on = |bridge: &str, ipam: Value| json!({"type": "bridge", "bridge": bridge, "ipam": ipam});
    let asked = json!({"type": "bridge", "bridge": "br0", "capabilities": {"ips": true}, "ipam": {"type": "static"}});
    let own_range = json!({"type": "host-local", "subnet": "10.244.0.0/25"});
    let selected = json!([{"name": "asked", "ips": ["10.244.0.2/24"]}]).to_string();
    let whose = "10.244.0.0/24 is the network of br0, the bridge of the node's default network";
    for (name, plugin, networks, says) in [
        ("fixed", on("br0", fixed.clone()), "fixed", "assigns the addresses"),
        ("altname", on("podnet", fixed.clone()), "altname", whose),
        ("range", on("br0", own_range), "range", whose),
        ("above", json!({"type": "macvlan", "master": "br0", "ipam": fixed.clone()}), "above", whose),
        ("asked", asked, &selected, "the pod asks for the address 10.244.0.2/24"),
        ("late", on("br0", json!({"type": "theirs"})), "late", "the pod got the address 10.244.0.2, which may be those of other pods"),
        // On any other interface: its own on the default network answers for the address as well.
        ("elsewhere", on("x3", fixed.clone()), "elsewhere", whose),
        ("uplink", json!({"type": "macvlan", "master": "up0", "ipam": fixed}), "uplink", whose),
        ("late-elsewhere", json!({"type": "macvlan", "master": "up0", "ipam": {"type": "theirs"}}), "late-elsewhere", whose),
    ] {
        node.define(name, &network(&[plugin]));
        let pod = node.pod(name, networks);
        is_refused(&node, &pod, says);
        pod.must("DEL");
    }
    // Addresses of its own on the same bridge are nobody else's.
    node.define("beside", &network(&[on("br0", json!({"type": "host-local", "subnet": "10.9.8.0/24"}))]));
    let pod = node.pod("beside", "beside");
    pod.must("ADD");
    pod.must("DEL");
}

/// A bridge sends frames to who has sent with their address last, and the node's router was anybody's address.
#[test]
fn who_is_known_on_the_node_is_nobody_else() {
    let node = node("known", "");
    node.host.write("/run/systemd/resolve/resolv.conf", "nameserver 192.168.1.53\n");
    let victim = node.pod("victim", "");
    victim.must("ADD");
    node.host.sh("", "ping -c 1 -W 60 10.244.0.2");
    let mac_of = |command: &str| {
        let words = node.host.sh("", command);
        words.split_whitespace().skip_while(|word| !["lladdr", "link/ether"].contains(word)).nth(1).unwrap().to_owned()
    };
    let (of_pod, of_uplink) = (mac_of("ip neigh show 10.244.0.2 dev br0"), mac_of("ip link show up0"));
    node.host.sh("", "ip neigh replace 192.168.1.1 lladdr 02:00:5e:00:00:01 dev up0 nud permanent");
    // As a router advertisement makes it.
    node.host.sh("", "ip -6 route add default via fe80::1 dev up0");
    let plain = |keys: Value| {
        let mut plugin = json!({"type": "bridge", "bridge": "x4", "ipam": {"type": "host-local", "subnet": "10.9.7.0/24"}});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        network(&[plugin])
    };
    let at = |address: &str| {
        network(&[json!({"type": "macvlan", "master": "up0",
        "ipam": {"type": "static", "addresses": [{"address": address}]}})])
    };
    node.define("asks", &plain(json!({"capabilities": {"mac": true}})));
    let asks = |mac: &str| json!([{"name": "asks", "mac": mac}]).to_string();
    for (name, config, networks, says) in [
        ("pods", None, asks(&of_pod), "which another pod has on br0, the bridge of the node's default network"),
        ("uplinks", None, asks(&of_uplink), "which up0 of the node has"),
        ("routers", None, asks("02:00:5e:00:00:01"), "which the node's router 192.168.1.1 has"),
        ("written", Some(plain(json!({"mac": of_pod}))), "written".to_owned(), "(plugins[0].mac), which another pod has"),
        ("router", Some(at("192.168.1.1/24")), "router".to_owned(), "which is the node's router"),
        ("router6", Some(at("fe80::1/64")), "router6".to_owned(), "which is the node's router"),
        ("names", Some(at("192.168.1.53/24")), "names".to_owned(), "which is the node's DNS server"),
    ] {
        if let Some(config) = config {
            node.define(name, &config);
        }
        let pod = node.pod(name, &networks);
        let outcome = pod.add();
        assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{name}: {outcome:?}");
        pod.must("DEL");
    }
    let other = node.pod("other", &asks("02:00:00:00:07:07"));
    other.must("ADD");
    other.must("DEL");
    // One that nobody asked for, but for the address that it is made of.
    node.host.sh("", "ip neigh replace 192.168.1.1 lladdr 0a:58:0a:09:07:63 dev up0 nud permanent");
    let fixed = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    node.define("made", &plain(json!({"macFromIP": true, "ipam": fixed("10.9.7.99/24")})));
    node.define("made-too", &network(&[json!({"type": "macvlan", "master": "up0", "macFromIP": true, "ipam": fixed("10.9.7.99/24")})]));
    node.define("free", &plain(json!({"macFromIP": true, "ipam": fixed("10.9.7.98/24")})));
    for name in ["made", "made-too"] {
        let pod = node.pod(name, name);
        is_refused(
            &node,
            &pod,
            "the pod would get the hardware address 0a:58:0a:09:07:63, which the node's router 192.168.1.1 has (macFromIP)",
        );
        pod.must("DEL");
    }
    let pod = node.pod("free", "free");
    pod.must("ADD");
    pod.must("DEL");
}

/// A name that meant no link when the pod's networks were checked means another pod's pair when they are made.
#[test]
fn a_link_that_comes_after_the_check() {
    let node = node("late", "serviceCIDRs: [10.96.0.0/12]");
    node.host.container("elsewhere");
    let script = "#!/bin/sh\nip link del lxc9 2>/dev/null\n[ $CNI_COMMAND = ADD ] || exit 0\n\
        ip link add lxc9 group 777 type veth peer name eth0 netns elsewhere && echo '{\"cniVersion\":\"1.0.0\"}'\n";
    node.host.write("/run/bin/maker", script);
    node.host.sh("", "chmod 755 /run/bin/maker");
    // Where what is told of devices is kept, which stays.
    node.host.sh("", "mkdir -p /run/k8s.cni.cncf.io/devinfo/cni");
    let before = node.before();
    let on = |keys: Value| {
        let mut plugin = json!({"ipam": {"type": "static", "addresses": [{"address": "10.9.7.7/24"}]}});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        network(&[json!({"type": "maker"}), plugin])
    };
    for (name, keys, says) in [
        (
            "stands",
            json!({"type": "macvlan", "master": "lxc9"}),
            "the pod's interface would stand on lxc9, which leads to a pod: the node's own resources are protected",
        ),
        ("alone", json!({"type": "macvlan", "mode": "passthru", "master": "lxc9"}), "the pod would take lxc9, which leads to a pod"),
        ("moves", json!({"type": "host-device", "device": "lxc9"}), "the pod would take lxc9, which leads to a pod, away from the node"),
    ] {
        node.define(name, &on(keys));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        pod.must("DEL");
    }
    // That the pod names a device, which nobody gave it, makes no other link its own.
    node.define("named", &on(json!({"type": "macvlan", "mode": "passthru", "master": "lxc9", "capabilities": {"deviceID": true}})));
    {
        let pod = node.pod("named", r#"[{"name":"named","deviceID":"0000:00:1f.7"}]"#);
        is_refused(&node, &pod, "the pod would take lxc9, which leads to a pod");
        pod.must("DEL");
    }
    node.define("beside", &on(json!({"type": "macvlan", "master": "up0"})));
    let pod = node.pod("beside", "beside");
    let path = format!("/run/bin:{}", node.bin.display());
    for verb in ["ADD", "DEL"] {
        let done = pod.begin_with(verb, &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        assert!(done.status.success(), "{verb}: {done:?}");
    }
    drop(pod);
    node.expect(&before, "a link that comes after the check");
}

/// The addresses of pods were known only by the bridge of the default network, and this one has none.
#[test]
fn addresses_of_a_default_network_without_a_bridge() {
    let node = node("bridgeless", "");
    let default = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]});
    let bin = node.bin.display();
    let settings = format!(
        "nodeName: bridgeless\nkubeconfig: /run/kubeconfig\nbinDir: {bin}\ninstall: never\ndelegates:\n- {default}\nserviceCIDRs: [10.96.0.0/12]\n"
    );
    node.host.write(SETTINGS, &settings);
    node.restart();
    let victim = node.pod("victim", "");
    victim.must("ADD");
    let rules = table(&node.host);
    assert!(rules.iter().any(|rule| rule.starts_with("10.244.0.2 ")), "{rules:?}");
    let fixed = json!({"type": "static", "addresses": [{"address": "10.244.0.2/32"}]});
    for (name, plugin, says) in [
        (
            "masquerades",
            json!({"type": "bridge", "bridge": "x1", "ipMasq": true, "ipam": fixed}),
            "10.244.0.0/24 are addresses of the node's default network",
        ),
        ("routes", json!({"type": "ptp", "ipam": fixed}), "redirects traffic for 10.244.0.0/24, addresses of the node's default network"),
    ] {
        node.define(name, &network(&[plugin]));
        let pod = node.pod(name, name);
        let outcome = pod.add();
        assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{name}: {outcome:?}");
        pod.must("DEL");
        assert_eq!(table(&node.host), rules, "{name}");
    }
    let another = node.pod("another", "");
    another.must("ADD");
}

/// kube-proxy in mode IPVS gives the node the addresses of Services: a port that was published at every address of the node was published
/// at those.
#[test]
fn ports_at_the_addresses_of_services() {
    let node = node("ipvs", "serviceCIDRs: [10.96.0.0/12]");
    let bridge = json!({"type": "bridge", "bridge": "x2", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24"}});
    node.define("ports", &network(&[bridge, json!({"type": "portmap", "capabilities": {"portMappings": true}})]));
    let select = |ip: &str| {
        let mut mapping = json!({"hostPort": 18443, "containerPort": 80});
        if !ip.is_empty() {
            mapping["hostIP"] = json!(ip);
        }
        json!([{"name": "ports", "portMappings": [mapping]}]).to_string()
    };
    let refused = |name: &str, ip: &str, says: &str| {
        let pod = node.pod(name, &select(ip));
        let outcome = pod.add();
        assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{name}: {outcome:?}");
        pod.must("DEL");
    };
    refused("named", "10.96.0.1", "at 10.96.0.1, which is in the cluster's Service range 10.96.0.0/12");
    let allowed = |name: &str, ip: &str| {
        let pod = node.pod(name, &select(ip));
        pod.must("ADD");
        pod.must("DEL");
    };
    allowed("anywhere", "");
    node.host.sh("", "ip addr add 10.96.0.10/32 dev up0");
    for (name, ip) in [("all", ""), ("unspecified", "0.0.0.0")] {
        refused(name, ip, "also at 10.96.0.10, a Service's address that the node has");
    }
    allowed("there", "192.168.1.20");
    // What load balancers have is in no range of Services.
    node.host.sh("", "ip link add kube-ipvs0 type veth peer name ipvs1");
    node.host.sh("", "ip addr add 10.96.0.11/32 dev kube-ipvs0");
    node.host.sh("", "ip addr add 203.0.113.7/32 dev kube-ipvs0");
    refused("external", "203.0.113.7", "at 203.0.113.7, a Service's address that the node has on kube-ipvs0 (IPVS)");
    allowed("still-there", "192.168.1.20");
}

/// Ends with its handle.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bridge that somebody else has made accepts router advertisements, and any pod with raw packets sends them (CVE-2020-10749).
#[test]
fn a_bridge_by_which_a_pod_would_configure_the_host() {
    let node = node("advertised", "");
    node.host.sh("", "ip link add x9 up type bridge");
    node.host.sh("", "sysctl -qw net.ipv6.conf.x9.accept_ra=2");
    let fixed = json!({"type": "static", "addresses": [{"address": "fd00:5::5/64"}]});
    node.define("router", &network(&[json!({"type": "bridge", "bridge": "x9", "ipam": fixed})]));
    let pod = node.pod("router", "router");
    let outcome = pod.add();
    let says = "lets its pods configure the host by x9, where the host accepts router advertisements: set net.ipv6.conf.x9.accept_ra to 0";
    assert!(outcome.error()["code"] == json!(7) && outcome.message().contains(says), "{outcome:?}");
    node.host.sh("", "sysctl -qw net.ipv6.conf.x9.accept_ra=0");
    pod.must("ADD");
    // Without the refusal it would be so.
    node.host.sh("", "sysctl -qw net.ipv6.conf.x9.accept_ra=2");
    let mut router = node.host.command(&pod.sandbox(), "dnsmasq");
    router.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=net1",
        "--pid-file=",
        "--user=root",
        "--enable-ra",
    ]);
    router.args(["--ra-param=net1,high,4,600", "--dhcp-range=fd00:5::,ra-only,64,600", "--dhcp-leasefile=/run/leases"]);
    let router = Running(router.spawn().unwrap());
    node.until("the host has the pod's route", || node.host.sh("", "ip -6 route show default").contains("dev x9 proto ra"));
    drop(router);
    pod.must("DEL");
}

/// Which address it is, only the result tells: neither the next plugin nor the next network runs after it.
#[test]
fn a_result_that_takes_the_nodes_traffic_is_undone_before_anything_else_runs() {
    let node = node("results", "serviceCIDRs: [10.96.0.0/12]");
    let ip = json!({"cniVersion": "1.0.0", "ips": [{"address": "192.168.1.10/24", "gateway": "192.168.1.1"}]});
    node.host.write("/run/bin/theirs", &format!("#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{ip}'\nexit 0\n"));
    node.host.write("/run/bin/next", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && ip route > /run/next-ran\ncat\nexit 0\n");
    node.host.sh("", "chmod 755 /run/bin/theirs /run/bin/next");
    node.define("chained", &network(&[json!({"type": "ptp", "ipam": {"type": "theirs"}}), json!({"type": "next"})]));
    node.define("alone", &network(&[json!({"type": "ptp", "ipam": {"type": "theirs"}})]));
    node.define("second", &network(&[json!({"type": "next"})]));
    node.define("gateway", &network(&[json!({"type": "bridge", "bridge": "x9", "isGateway": true, "ipam": {"type": "theirs"}})]));
    node.host.sh("", "ip link add x9 type bridge");
    node.host.sh("", "sysctl -qw net.ipv6.conf.x9.accept_ra=0");
    node.host.sh("", "ip link set x9 address 02:00:00:00:00:09 up");
    let before = node.before();
    let path = format!("/run/bin:{}", node.bin.display());
    for (name, networks) in [("one", "chained"), ("two", "alone,second"), ("three", "gateway,second")] {
        let pod = node.pod(name, networks);
        let output = pod.begin_with("ADD", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        let line = || node.log().lines().find(|line| line.contains(&format!("verb=ADD pod=results/{name} "))).map(str::to_owned);
        node.until("the log tells of the call", || line().is_some());
        let text = line().unwrap();
        let says = match name {
            "three" => "the host got a route to 192.168.1.0/24, which redirects traffic",
            _ => "the host got a route to 192.168.1.10, which redirects traffic for 192.168.1.0/24, the network of up0, the node's uplink",
        };
        assert!(!output.status.success() && text.contains(says), "{networks}: {text}");
        assert!(!node.host.list("/run").iter().any(|file| file == "next-ran"), "{networks}: something ran after it");
        let routes = node.host.run("", &["ip", "route"]);
        assert!(!format!("{routes:?}").contains("192.168.1.10 dev"), "{networks}: {routes:?}");
        // A bridge's address stays where pods come and go.
        assert_eq!(node.host.addresses("", "x9"), [""; 0], "{networks}");
        pod.must("DEL");
    }
    node.expect(&before, "results");
}

/// What every pod gets besides is the node's owner's, as the default network is.
#[test]
fn a_network_that_every_pod_has_is_the_nodes_own() {
    let every = json!({"cniVersion": "1.0.0", "name": "every", "plugins": [{"type": "bridge", "bridge": "br9", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.19.0.0/24"}}]});
    let node = node("every", &format!("serviceCIDRs: [10.96.0.0/12]\ndefaultNetworks: [{every}]"));
    let force = json!({"type": "bridge", "bridge": "br9", "forceAddress": true, "ipam": {"type": "host-local", "subnet": "10.20.0.0/24"}});
    node.define("force", &network(&[force]));
    let drain = json!({"cniVersion": "1.0.0", "name": "every", "plugins": [
        {"type": "bridge", "bridge": "x1", "ipam": {"type": "host-local", "subnet": "10.19.0.0/24"}}]});
    node.define("drain", &drain.to_string());
    for (name, says) in
        [("force", "replaces the address of br9, the bridge of a network that every pod"), ("drain", "/var/lib/cni/networks/every")]
    {
        let outcome = node.pod(name, name).add();
        assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{name}: {outcome:?}");
    }
}

/// The store serves no ServiceCIDRs, as Kubernetes before 1.33.
#[test]
fn a_cluster_without_ranges_of_services_is_told_which_setting_is_missing() {
    let node = node("unprotected", "");
    if !node.api.is_kubernetes() {
        let told = node.status()["unprotected"].to_string();
        assert!(told.contains("the setting serviceCIDRs"), "{told}");
        node.until("the log says it", || node.log().contains("WARN  protection"));
    }
    node.configure("unprotected", "serviceCIDRs: [10.96.0.0/12]");
    node.restart();
    assert_eq!(node.status()["unprotected"], Value::Null);
}

/// Masquerading, firewall and host ports know a pod by its address: with the address of another pod, a definition would change what
/// holds for that one, and its DEL would take it away.
#[test]
fn rules_by_the_address_of_another_pod() {
    let node = crate::repair::agent::node("ruled", "serviceCIDRs: [10.96.0.0/12]");
    node.restart();
    let victim = node.pod("victim", "");
    victim.must("ADD");
    node.host.write(
        "/run/bin/theirs",
        "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.244.0.2/24\"}]}'\nexit 0\n",
    );
    node.host.sh("", "chmod 755 /run/bin/theirs");
    let rules = table(&node.host);
    assert!(rules.iter().any(|rule| rule.starts_with("10.244.0.2 ")), "{rules:?}");
    node.host.sh("", "ip route add 10.244.7.0/24 via 192.0.2.2");
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let fixed = at("10.244.0.2/24");
    let inner = |ipam: &Value| json!({"type": "bridge", "bridge": "x1", "ipam": ipam});
    let theirs = json!({"type": "theirs"});
    let firewall = json!({"type": "firewall", "ingressPolicy": "same-bridge"});
    let own_range = json!({"type": "host-local", "subnet": "10.244.0.0/25"});
    for (name, plugins, says) in [
        (
            "masquerades",
            vec![json!({"type": "bridge", "bridge": "x1", "ipMasq": true, "ipam": fixed})],
            "has rules of the host by the addresses",
        ),
        ("walls", vec![inner(&fixed), firewall.clone()], "10.244.0.0/24 is the network of br0, the bridge of the node's default network"),
        ("publishes", vec![inner(&own_range), json!({"type": "portmap"})], "has rules of the host by the addresses"),
        ("late", vec![inner(&theirs), firewall.clone()], "the pod got the address 10.244.0.2, which may be those of other pods"),
        (
            "masquerades-late",
            vec![json!({"type": "bridge", "bridge": "x1", "ipMasq": true, "ipam": theirs})],
            "the pod got the address 10.244.0.2, which may be those of other pods",
        ),
        ("others-pods", vec![json!({"type": "bridge", "bridge": "x1", "ipMasq": true, "ipam": at("10.244.7.9/32")})], "to 10.244.7.0/24"),
        ("others", vec![inner(&at("8.8.8.8/32")), firewall.clone()], "addresses outside of private ranges"),
        (
            "zone",
            vec![inner(&at("10.9.7.7/24")), json!({"type": "firewall", "firewalldZone": "drop"})],
            "adds its pods to the node's firewalld zone",
        ),
    ] {
        node.define(name, &network(&plugins));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        pod.must("DEL");
        let left = table(&node.host);
        let of_the_victim = |rules: &[String]| rules.iter().filter(|rule| rule.contains("10.244.0.2 ")).cloned().collect::<Vec<_>>();
        assert_eq!(of_the_victim(&left), of_the_victim(&rules), "{name}");
    }
}

/// A plugin of others, such as Calico, makes a route of the host for whatever address it is told.
#[test]
fn a_route_of_the_host_that_an_external_plugin_makes() {
    let node = node("external", "");
    let script = "#!/bin/sh\nip link del ext0 2>/dev/null\n[ $CNI_COMMAND = ADD ] || exit 0\n\
        address=$(sed 's/.*\"addr\":\"\\([0-9.]*\\)\".*/\\1/')\n\
        ip link add ext0 type veth peer name $CNI_IFNAME netns $(basename $CNI_NETNS) && ip link set ext0 up && ip route add $address dev ext0 || exit 1\n\
        echo \"{\\\"cniVersion\\\":\\\"1.0.0\\\",\\\"ips\\\":[{\\\"address\\\":\\\"$address/32\\\"}]}\"\n";
    node.host.write("/run/bin/theirs", script);
    node.host.sh("", "chmod 755 /run/bin/theirs");
    node.host.sh("", "mkdir -p /run/k8s.cni.cncf.io/devinfo/cni");
    let before = node.before();
    for (name, address, says) in [
        (
            "neighbour",
            "192.168.1.77",
            "the host got a route to 192.168.1.77, which redirects traffic for 192.168.1.0/24, the network of up0, the node's uplink",
        ),
        ("public", "8.8.8.8", "the host got a route to 8.8.8.8, which redirects traffic for addresses outside of private ranges"),
    ] {
        node.define(name, &network(&[json!({"type": "theirs", "addr": address})]));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        pod.must("DEL");
        drop(pod);
        node.expect(&before, name);
    }
    node.define("honest", &network(&[json!({"type": "theirs", "addr": "10.9.5.5"})]));
    let pod = node.pod("honest", "honest");
    let path = format!("/run/bin:{}", node.bin.display());
    for verb in ["ADD", "DEL"] {
        let done = pod.begin_with(verb, &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        assert!(done.status.success(), "{verb}: {done:?}");
    }
}

/// A pod on a network of the node had the address of a router of the node's; one on a bridge of pods may be a router itself.
#[test]
fn a_next_hop_is_the_nodes_own_unless_it_is_a_pod() {
    let node = node("hops", "");
    node.host.sh("", "ip route add 10.244.7.0/24 via 192.168.1.12");
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    node.define("takes", &network(&[json!({"type": "macvlan", "master": "up0", "ipam": at("192.168.1.12/24")})]));
    let pod = node.pod("takes", "takes");
    let outcome = pod.add();
    assert!(outcome.error()["code"] == 7 && outcome.message().contains("over which the node reaches 10.244.7.0/24"), "{outcome:?}");
    pod.must("DEL");
    node.define("router", &network(&[json!({"type": "bridge", "bridge": "x5", "isGateway": true, "ipam": at("10.50.0.9/24")})]));
    for turn in 0..2 {
        let pod = node.pod(&format!("router{turn}"), "router");
        pod.must("ADD");
        if turn == 0 {
            node.host.sh("", "ip route add 10.60.0.0/16 via 10.50.0.9");
        }
        pod.must("DEL");
    }
}

/// The host got another pod's address as its own, and nothing that it sent there left it any more.
#[test]
fn a_gateway_that_another_pod_has() {
    let node = node("gateways", "");
    let at = |address: &str, gateway: &str| json!({"type": "static", "addresses": [{"address": address, "gateway": gateway}]});
    node.define(
        "bridged",
        &network(&[json!({"type": "bridge", "bridge": "x5", "isGateway": true, "ipam": at("10.50.0.9/24", "10.50.0.1")})]),
    );
    node.define("paired", &network(&[json!({"type": "ptp", "ipam": at("10.72.0.9/32", "10.72.0.1")})]));
    let (bridged, paired) = (node.pod("bridged", "bridged"), node.pod("paired", "paired"));
    bridged.must("ADD");
    paired.must("ADD");
    let late = json!({"cniVersion": "1.0.0", "ips": [{"address": "172.30.9.9/32", "gateway": "10.50.0.9"}]});
    node.host.write("/run/bin/theirs", &format!("#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{late}'\nexit 0\n"));
    node.host.sh("", "chmod 755 /run/bin/theirs");
    let before = node.host.sh("", "ip -br addr");
    for (name, plugin, says) in [
        ("pair", json!({"type": "ptp", "ipam": at("172.30.9.9/32", "10.50.0.9")}), "the network of pod gateways/bridged"),
        ("pair-of-pair", json!({"type": "ptp", "ipam": at("172.30.9.9/32", "10.72.0.9")}), "the network of pod gateways/paired"),
        (
            "bridge",
            json!({"type": "bridge", "bridge": "x6", "isGateway": true, "ipam": at("10.72.0.8/24", "10.72.0.9")}),
            "the network of pod gateways/paired",
        ),
        ("late", json!({"type": "ptp", "ipam": {"type": "theirs"}}), "the host got the gateway 10.50.0.9, which pod gateways/bridged"),
    ] {
        node.define(name, &network(&[plugin]));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        pod.must("DEL");
        drop(pod);
        node.until("nothing is left of it", || node.host.sh("", "ip -br addr") == before);
    }
    // The gateway that they have is the next pod's as well.
    let second = network(&[json!({"type": "bridge", "bridge": "x5", "isGateway": true, "ipam": at("10.50.0.10/24", "10.50.0.1")})]);
    node.define("second", &second);
    let second = node.pod("second", "second");
    second.must("ADD");
    second.must("DEL");
}

/// Who comes first on a node keeps the network that the host routes there. A network of more addresses than anybody needs keeps nobody from a
/// part of it.
#[test]
fn a_network_that_another_pod_has() {
    let node = node("squat", "");
    let at = |address: &str, gateway: &str| json!({"type": "static", "addresses": [{"address": address, "gateway": gateway}]});
    let bridge = |name: &str, ipam: serde_json::Value| json!({"type": "bridge", "bridge": name, "isGateway": true, "ipam": ipam});
    let ptp = |ipam: serde_json::Value| json!({"type": "ptp", "ipam": ipam});
    let wide = bridge("x1", at("172.16.0.9/12", "172.16.0.1"));
    let (first, part) = (bridge("x5", at("198.18.7.2/24", "198.18.7.1")), bridge("x2", at("172.20.5.2/24", "172.20.5.1")));
    let beside = bridge("x5", at("198.18.7.4/24", "198.18.7.1"));
    let mut others = Vec::new();
    for (name, plugin) in [("wide", &wide), ("first", &first), ("part", &part), ("beside", &beside)] {
        node.define(name, &network(std::slice::from_ref(plugin)));
        others.push(node.pod(name, name));
        others.last().unwrap().must("ADD");
    }
    let mut forced = bridge("x5", json!({"type": "host-local", "subnet": "198.18.64.0/24"}));
    forced["forceAddress"] = json!(true);
    // What arrives in a VLAN of the bridge is not what arrives on it.
    let mut in_vlan = bridge("x5", at("198.18.7.3/25", "198.18.7.1"));
    in_vlan["vlan"] = json!(7);
    let taken = [
        ("its-address", ptp(at("198.18.7.2/32", "169.254.9.1")), "traffic for 198.18.7.0/24, the network of pod squat/"),
        ("a-free-one", ptp(at("198.18.7.99/32", "169.254.9.1")), "traffic for 198.18.7.0/24, the network of pod squat/"),
        ("a-half", bridge("x6", at("198.18.7.3/25", "198.18.7.1")), "traffic for 198.18.7.0/24, the network of pod squat/"),
        ("its-vlan", in_vlan, "traffic for 198.18.7.0/24, the network of pod squat/"),
        ("its-bridge", forced, "replaces the address of x5, which has the gateway of pod squat/"),
    ];
    for (name, plugin, says) in &taken {
        node.define(name, &network(std::slice::from_ref(plugin)));
        let pod = node.pod(name, name);
        is_refused(&node, &pod, says);
        is_refused(&node, &pod, "of pod squat/");
        pod.must("DEL");
    }
    // What nobody has any more is free.
    others.iter().for_each(|pod| drop(pod.must("DEL")));
    for (name, ..) in &taken[..1] {
        let pod = node.pod(&format!("{name}-again"), name);
        pod.must("ADD");
        pod.must("DEL");
    }
}

/// What an ADD at work is about to have is nobody else's either: of two at once, one took the address of the other.
#[test]
fn a_network_that_another_pod_is_getting() {
    let node = node("race", "");
    // Sleeps: the plugin waits for the test.
    let wait = "for _ in $(seq 600); do [ -e /run/go ] && break; sleep 0.1; done";
    node.host.write("/run/bin/slow", &format!("#!/bin/sh\n[ $CNI_COMMAND = ADD ] && touch /run/slow-is-here && {wait}\ncat\nexit 0\n"));
    node.host.sh("", "chmod 755 /run/bin/slow");
    let at = |address: &str, gateway: &str| json!({"type": "static", "addresses": [{"address": address, "gateway": gateway}]});
    let bridge = json!({"type": "bridge", "bridge": "x5", "isGateway": true, "ipam": at("198.18.7.2/24", "198.18.7.1")});
    node.define("first", &network(&[bridge, json!({"type": "slow"})]));
    node.define("taken", &network(&[json!({"type": "ptp", "ipam": at("198.18.7.2/32", "169.254.9.1")})]));
    let (first, second) = (node.pod("first", "first"), node.pod("second", "taken"));
    let path = format!("/run/bin:{}", node.bin.display());
    let adding = first.begin_with("ADD", &[("CNI_PATH", &path)]);
    node.until("the first ADD is at its last plugin", || node.host.list("/run").iter().any(|file| file == "slow-is-here"));
    is_refused(&node, &second, "traffic for 198.18.7.0/24, the network of pod race/first, by race/first");
    node.host.write("/run/go", "");
    assert!(adding.wait_with_output().unwrap().status.success());
    second.must("DEL");
    assert!(first.begin_with("DEL", &[("CNI_PATH", &path)]).wait_with_output().unwrap().status.success());
    let again = node.pod("again", "taken");
    again.must("ADD");
    again.must("DEL");
}

/// Pods whose router is the host by its own address, as in networks that route each pod.
#[test]
fn the_nodes_own_address_is_a_gateway_of_pairs() {
    let node = node("gateway", "");
    let pair =
        |gateway: &str| json!({"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.9.4.4/32", "gateway": gateway}]}});
    node.define("own", &network(&[pair("192.168.1.20")]));
    node.define("neighbour", &network(&[pair("192.168.1.21")]));
    let routes = || node.host.sh("", "ip -4 route show table all dev up0");
    let before = routes();
    let pod = node.pod("own", "own");
    pod.must("ADD");
    pod.must("CHECK");
    pod.must("DEL");
    drop(pod);
    let is_gone = || !node.host.sh("", "ip addr show to 192.168.1.20/32").contains("veth");
    node.until("the pair is gone", is_gone);
    assert_eq!(routes(), before);
    let outcome = node.pod("neighbour", "neighbour").add();
    assert!(outcome.error()["code"] == 7 && outcome.message().contains("192.168.1.0/24, the network of up0"), "{outcome:?}");
}
