//! Definitions that give the host a route or an address which takes the node's own traffic. Each was possible once.

use netloom_tests::wired::table;
use netloom_tests::{Api, Node};
use serde_json::{Value, json};

fn network(plugins: &[Value]) -> String {
    json!({"cniVersion": "1.0.0", "name": "x", "plugins": plugins}).to_string()
}

/// A node at 192.168.1.20/24, whose API server says that it is at 198.51.100.10.
fn node(name: &str, extra: &str) -> Node {
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
    let before = node.before();
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let gateway = |ipam: Value| json!({"type": "bridge", "bridge": "x0", "isGateway": true, "ipam": ipam});
    let mapped = json!({"type": "static", "addresses": [{"address": "10.112.0.5/11", "gateway": "::ffff:10.96.0.1"}]});
    let specific = json!({"type": "static", "addresses": [{"address": "192.168.1.77/25", "gateway": "192.168.1.126"}]});
    let computed = json!({"type": "host-local", "subnet": "10.96.0.0/11", "rangeStart": "10.112.0.5"});
    for (name, plugin, says) in [
        ("server", json!({"type": "ptp", "ipam": at("198.51.100.10/32")}), "which is the API server's"),
        ("neighbour", json!({"type": "ptp", "ipam": at("192.168.1.10/32")}), "192.168.1.0/24, the network of up0, the node's uplink"),
        ("specific", gateway(specific), "a route to 192.168.1.0/25"),
        ("metadata", json!({"type": "ptp", "ipam": at("169.254.169.254/32")}), "the cloud's metadata service"),
        ("dns", json!({"type": "macvlan", "master": "up0", "ipam": at("169.254.20.10/32")}), "which is the node's own"),
        ("mapped", gateway(mapped), "names the gateway \"::ffff:10.96.0.1\""),
        ("computed", gateway(computed.clone()), "Services (10.96.0.0/12)"),
        ("pods", json!({"type": "ptp", "ipam": at("10.244.0.77/32")}), "br0, the bridge of the node's default network"),
        ("azure", json!({"type": "ptp", "ipam": at("168.63.129.16/32")}), "the cloud's metadata service"),
        ("others-pods", json!({"type": "ptp", "ipam": at("10.244.7.9/32")}), "to 10.244.7.0/24, which the node reaches over 192.168.1.12"),
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
    let fixed = json!({"type": "static", "addresses": [{"address": "10.244.0.2/24"}]});
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
        ("late", vec![inner(&theirs), firewall], "the host would get rules by the address 10.244.0.2"),
    ] {
        node.define(name, &network(&plugins));
        let pod = node.pod(name, name);
        let path = format!("/run/bin:{}", node.bin.display());
        let added = pod.begin_with("ADD", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        let line = || node.log().lines().find(|line| line.contains(&format!("verb=ADD pod=ruled/{name} "))).map(str::to_owned);
        node.until("the log tells of the call", || line().is_some());
        let text = line().unwrap();
        assert!(!added.status.success() && text.contains("code=7") && text.contains(says), "{name}: {text}");
        pod.must("DEL");
        let left = table(&node.host);
        let of_the_victim = |rules: &[String]| rules.iter().filter(|rule| rule.contains("10.244.0.2 ")).cloned().collect::<Vec<_>>();
        assert_eq!(of_the_victim(&left), of_the_victim(&rules), "{name}");
    }
}
