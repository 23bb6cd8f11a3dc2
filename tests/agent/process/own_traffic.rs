//! Definitions that give the host a route or an address which takes the node's own traffic. Each was possible once.

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
    let before = node.before();
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let gateway = |ipam: Value| json!({"type": "bridge", "bridge": "x0", "isGateway": true, "ipam": ipam});
    let mapped = json!({"type": "static", "addresses": [{"address": "10.112.0.5/11", "gateway": "::ffff:10.96.0.1"}]});
    let specific = json!({"type": "static", "addresses": [{"address": "192.168.1.77/25", "gateway": "192.168.1.126"}]});
    let computed = json!({"type": "host-local", "subnet": "10.96.0.0/11", "rangeStart": "10.112.0.5"});
    for (name, plugin, says) in [
        ("server", json!({"type": "ptp", "ipam": at("198.51.100.10/32")}), "at which the API server is"),
        ("neighbour", json!({"type": "ptp", "ipam": at("192.168.1.10/32")}), "192.168.1.0/24, the network of up0, the node's uplink"),
        ("specific", gateway(specific), "a route to 192.168.1.0/25"),
        ("metadata", json!({"type": "ptp", "ipam": at("169.254.169.254/32")}), "the cloud's metadata service"),
        ("dns", json!({"type": "macvlan", "master": "up0", "ipam": at("169.254.20.10/32")}), "which the node has itself"),
        ("mapped", gateway(mapped), "names the gateway \"::ffff:10.96.0.1\""),
        ("computed", gateway(computed.clone()), "Services (10.96.0.0/12)"),
        ("pods", json!({"type": "ptp", "ipam": at("10.244.0.77/32")}), "br0, the bridge of the node's default network"),
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
    let before = node.before();
    let path = format!("/run/bin:{}", node.bin.display());
    for (name, networks) in [("one", "chained"), ("two", "alone,second")] {
        let pod = node.pod(name, networks);
        let output = pod.begin_with("ADD", &[("CNI_PATH", &path)]).wait_with_output().unwrap();
        let line = || node.log().lines().find(|line| line.contains(&format!("verb=ADD pod=results/{name} "))).map(str::to_owned);
        node.until("the log tells of the call", || line().is_some());
        let text = line().unwrap();
        let says = "the host got a route to 192.168.1.10, which takes the way to 192.168.1.0/24, the network of up0, the node's uplink";
        assert!(!output.status.success() && text.contains(says), "{networks}: {text}");
        assert!(!node.host.list("/run").iter().any(|file| file == "next-ran"), "{networks}: something ran after it");
        let routes = node.host.run("", &["ip", "route"]);
        assert!(!format!("{routes:?}").contains("192.168.1.10 dev"), "{networks}: {routes:?}");
        pod.must("DEL");
    }
    node.expect(&before, "results");
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
