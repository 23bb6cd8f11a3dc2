//! `netloom verify` of what needs modules: ports that are published over SCTP, and VLANs of a bridge and of the wires.

use std::collections::BTreeSet;

use netloom_tests::{Host, netloom};
use serde_json::Value;

/// Fault, place and device, direction.
type Found = (String, String, String);

const NODES: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: left}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: right}\n---\n";

/// A pod with an annotation and ports, as YAML has them.
fn pod(name: &str, node: &str, networks: &str, ports: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{k8s.v1.cni.cncf.io/networks: '{networks}'}}}}\n\
        spec: {{nodeName: {node}, containers: [{{name: c, image: i, ports: [{ports}]}}]}}\n---\n"
    )
}

fn network(name: &str, keys: &str) -> String {
    format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\n\
        spec: {{config: '{{\"cniVersion\":\"1.0.0\",{keys}}}'}}\n---\n"
    )
}

fn up(manifests: &str) -> Host {
    let host = Host::new();
    host.write("/run/lab.yaml", manifests);
    let out = host.command("", netloom()).args(["lab", "up", "/run/lab.yaml", "--between", "direct"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    host
}

/// What `netloom verify` says of the cases that match, as data.
fn verified(host: &Host, test: &str) -> Value {
    let out = host.command("", netloom()).args(["verify", "-o", "json", "--timeout", "10", "--test", test]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", text(&out.stdout), text(&out.stderr)))
}

/// The cases that passed, each with its number of probes; none failed, and no protocol was left out. Some networks have one family alone.
fn passed(host: &Host, test: &str) -> Vec<(String, u64)> {
    let verified = verified(host, test);
    let cases = verified["cases"].as_array().unwrap().iter();
    let one = |case: &Value| {
        let whys = case["skipped"].as_array().into_iter().flatten().filter_map(|skipped| skipped["why"].as_str());
        let mut left_out = whys.filter(|why| !why.starts_with("no two pods have such a network"));
        assert!(case["state"] == "passed" && left_out.next().is_none(), "{case:#}");
        (case["id"].as_str().unwrap().to_owned(), case["passed"].as_u64().unwrap())
    };
    cases.map(one).collect()
}

/// What failed.
fn found(host: &Host, test: &str) -> BTreeSet<Found> {
    let verified = verified(host, test);
    let failures = verified["cases"].as_array().unwrap().iter().flat_map(|case| case["failures"].as_array().cloned().unwrap_or_default());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |failure: Value| {
        let at = format!("{} {}", text(&failure["place"]), text(&failure["device"]));
        (text(&failure["fault"]), at.trim().to_owned(), text(&failure["direction"]))
    };
    failures.map(one).collect()
}

fn one(fault: &str, at: &str, direction: &str) -> BTreeSet<Found> {
    BTreeSet::from([(fault.to_owned(), at.to_owned(), direction.to_owned())])
}

fn run(host: &Host, place: &str, line: &str) {
    host.sh(&format!("nl.lab.{place}"), line);
}

/// A pod's own pair: what its node calls the other end.
fn outer(host: &Host, pod: &str, interface: &str, node: &str) -> String {
    let inner = host.link(&format!("nl.lab.pod.default.{pod}"), interface).unwrap();
    let links = host.json(&format!("nl.lab.node.{node}"), "ip -j -d link");
    let outer = links.as_array().unwrap().iter().find(|link| Some(&link["ifindex"]) == inner.0.get("link_index")).unwrap();
    outer["ifname"].as_str().unwrap().to_owned()
}

fn down(host: &Host) {
    let out = host.command("", netloom()).args(["lab", "down"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// From the pod itself, another one of its node, one of the other node, and from both nodes.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_port_that_is_published_over_sctp() {
    let publishes = pod("a", "left", "", "{containerPort: 80, hostPort: 9000, protocol: SCTP}");
    let host = up(&[NODES.to_owned(), publishes, pod("a2", "left", "", ""), pod("b", "right", "", "")].concat());
    let published = "^(3|4|5|12|13)$";
    // A probe for each family.
    assert_eq!(passed(&host, published), ["3", "4", "5", "12", "13"].map(|id| (id.to_owned(), 2)));

    // The request, and then the answer, is dropped.
    for (rule, direction) in [("sctp dport 80", "request"), ("sctp sport 80", "reply")] {
        run(&host, "node.left", "nft add table inet other");
        run(&host, "node.left", "nft add chain inet other pass { type filter hook forward priority 0 ; }");
        run(&host, "node.left", &format!("nft add rule inet other pass {rule} counter drop"));
        let found = found(&host, "^5$");
        let is_right = |(fault, at, on): &Found| fault == "ForeignRuleDrops" && at.starts_with("node/left ") && on == direction;
        assert!(!found.is_empty() && found.iter().all(is_right), "{rule}: {found:?}");
        run(&host, "node.left", "nft delete table inet other");
    }
    assert_eq!(passed(&host, "^5$"), [("5".to_owned(), 2)]);
    for family in ["4", "6"] {
        run(&host, "node.left", &format!("nft flush map inet netloom hostports{family}"));
    }
    assert_eq!(found(&host, "^5$"), one("HostPortMissing", "node/left eth0", "request"));
    down(&host);
}

/// A port of a bridge is in another VLAN: what its pod sends, and then what it is answered.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_port_in_the_wrong_vlan() {
    let ipam = r#""ipam":{"type":"host-local","subnet":"10.7.0.0/24"}"#;
    let tagged = network("tagged", &format!(r#""type":"bridge","bridge":"br7","vlan":10,{ipam}"#));
    let host = up(&[NODES.to_owned(), tagged, pod("a", "left", "tagged", ""), pod("a2", "left", "tagged", "")].concat());
    assert_eq!(passed(&host, "^network-1$"), [("network-1".to_owned(), 1)]);
    let (a, a2) = (outer(&host, "a", "net1", "left"), outer(&host, "a2", "net1", "left"));
    for port in [&a, &a2] {
        run(&host, "node.left", &format!("bridge vlan add dev {port} vid 20 pvid untagged"));
        run(&host, "node.left", &format!("bridge vlan del dev {port} vid 10"));
        let expected = BTreeSet::from([one("VlanFiltered", &format!("node/left {a2}"), "request")]);
        assert!(expected.contains(&found(&host, "^network-1$")), "{port}: {:?}", found(&host, "^network-1$"));
        run(&host, "node.left", &format!("bridge vlan add dev {port} vid 10 pvid untagged"));
        run(&host, "node.left", &format!("bridge vlan del dev {port} vid 20"));
    }
    // It takes frames of the network's VLAN, and sends its own in another one.
    run(&host, "node.left", &format!("bridge vlan add dev {a2} vid 10 untagged"));
    run(&host, "node.left", &format!("bridge vlan add dev {a2} vid 20 pvid untagged"));
    assert_eq!(found(&host, "^network-1$"), one("VlanFiltered", &format!("node/left {a}"), "reply"));
    run(&host, "node.left", &format!("bridge vlan add dev {a2} vid 10 pvid untagged"));
    assert_eq!(passed(&host, "^network-1$"), [("network-1".to_owned(), 1)]);
    down(&host);
}

/// Pods of two nodes in one VLAN, and a switch between them whose port does not carry it.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_vlan_that_the_wires_do_not_carry() {
    let far = network("far", r#""type":"vlan","master":"eth0","vlanId":30,"capabilities":{"ips":true},"ipam":{"type":"static"}"#);
    let on = |name: &str, node: &str, ip: &str| pod(name, node, &format!(r#"[{{"name": "far", "ips": ["{ip}/24"]}}]"#), "");
    let host = up(&[NODES.to_owned(), far, on("a", "left", "10.30.0.1"), on("b", "right", "10.30.0.2")].concat());
    assert_eq!(passed(&host, "^network-2$"), [("network-2".to_owned(), 2)]);
    let links = host.json("nl.lab.wires", "ip -j -d link");
    let bridge = links.as_array().unwrap().iter().find(|link| link["linkinfo"]["info_kind"] == "bridge").unwrap();
    let bridge = bridge["ifname"].as_str().unwrap();
    run(&host, "wires", &format!("ip link set {bridge} type bridge vlan_filtering 1"));
    let found = found(&host, "^network-2$");
    assert!(!found.is_empty() && found.iter().all(|(fault, at, _)| fault == "VlanFiltered" && at.starts_with("underlay ")), "{found:?}");
    run(&host, "wires", &format!("ip link set {bridge} type bridge vlan_filtering 0"));
    assert_eq!(passed(&host, "^network-2$"), [("network-2".to_owned(), 2)]);
    down(&host);
}
