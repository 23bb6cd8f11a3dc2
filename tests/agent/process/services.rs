//! Where Services are reached beside their ranges, and the ports of every node that they have. Each was a pod's for the asking once.

use serde_json::json;

use super::own_traffic::{network, node};

const SERVICES: &str = "/api/v1/namespaces/default/services";

#[test]
fn addresses_and_node_ports_of_services_are_nobodys() {
    let node = node("services", "serviceCIDRs: [10.96.0.0/12]");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "externalIPs": ["192.168.1.241"], "selector": {"app": "shop"},
            "ports": [{"name": "web", "port": 80, "protocol": "TCP", "nodePort": 31080}]}});
    node.api.must("POST", SERVICES, &service);
    let mut there = node.api.must("GET", &format!("{SERVICES}/shop"), &json!(null));
    there["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.168.1.240"}]}});
    node.api.must("PUT", &format!("{SERVICES}/shop/status"), &there);
    // An agent serves no pod before it has them all.
    node.restart();
    let at = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let on_uplink = |address: &str| network(&[json!({"type": "macvlan", "master": "up0", "ipam": at(address)})]);
    let bridge = json!({"type": "bridge", "bridge": "x2", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24"}});
    let ports =
        |backend: &str| network(&[bridge.clone(), json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}})]);
    node.define("balancer", &on_uplink("192.168.1.240/24"));
    node.define("external", &on_uplink("192.168.1.241/24"));
    node.define("routed", &network(&[json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "192.168.1.240/30"}})]));
    node.define("free", &on_uplink("192.168.1.242/24"));
    node.define("nftables", &ports("nftables"));
    node.define("iptables", &ports("iptables"));
    // As kube-proxy has them before the API has told of them.
    let rules = "table ip kube-proxy { chain external { accept; }; map service-nodeports { type inet_proto . inet_service : verdict; elements = { udp . 31090 : goto external }; }; }";
    node.host.write("/run/kube-proxy.nft", rules);
    node.host.sh("", "nft -f /run/kube-proxy.nft");
    let select = |name: &str, port: u16, protocol: &str| {
        json!([{"name": name, "portMappings": [{"hostPort": port, "containerPort": 80, "protocol": protocol}]}]).to_string()
    };
    for (name, networks, says) in [
        (
            "balancer",
            "balancer".to_owned(),
            "names the address \"192.168.1.240/24\" (plugins[0].ipam.addresses[0].address), which is an address of a Service",
        ),
        ("external", "external".to_owned(), "which is an address of a Service"),
        ("routed", "routed".to_owned(), "which redirects traffic for a Service (192.168.1.24"),
        ("port", select("nftables", 31080, "tcp"), "31080/tcp, which is a Service's NodePort: choose another port"),
        ("port-iptables", select("iptables", 31080, "tcp"), "31080/tcp, which is a Service's NodePort"),
        ("proxy", select("iptables", 31090, "udp"), "31090/udp, which kube-proxy takes for a Service's NodePort"),
    ] {
        let pod = node.pod(name, &networks);
        let outcome = pod.add();
        assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{name}: {outcome:?}");
        pod.must("DEL");
    }
    for (name, networks) in
        [("free", "free".to_owned()), ("free-port", select("nftables", 31081, "tcp")), ("free-protocol", select("nftables", 31080, "udp"))]
    {
        let pod = node.pod(name, &networks);
        pod.must("ADD");
        pod.must("DEL");
    }
    // When the Service goes, its address is anybody's.
    node.api.must("DELETE", &format!("{SERVICES}/shop"), &json!(null));
    node.until("the agent has seen that the Service is gone", || {
        let pod = node.pod("after", "balancer");
        let is_added = pod.add().code == 0;
        pod.must("DEL");
        is_added
    });
}
