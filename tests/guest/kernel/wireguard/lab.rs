//! A lab whose nodes reach each other over WireGuard.

use std::time::Duration;

use netloom_tests::{Host, netloom, seen_within};

const MANIFESTS: &str = "
apiVersion: v1
kind: Node
metadata: {name: one, labels: {topology.kubernetes.io/zone: east}}
---
apiVersion: v1
kind: Node
metadata: {name: two, labels: {topology.kubernetes.io/zone: east}}
---
apiVersion: v1
kind: Node
metadata: {name: three, labels: {topology.kubernetes.io/zone: west}}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {nodeName: one}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {nodeName: two}
---
apiVersion: v1
kind: Pod
metadata: {name: c}
spec: {nodeName: three}
";

fn lab(host: &Host, args: &[&str]) -> String {
    let output = host.command("", netloom()).arg("lab").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn three_nodes_and_a_router_between_them() {
    for (mode, tunnelled) in [("wireguard", [true, true]), ("auto-wireguard", [false, true])] {
        let host = Host::new();
        host.write("/tmp/lab.yaml", MANIFESTS);
        lab(&host, &["up", "--between", mode, "/tmp/lab.yaml"]);
        let addresses = |pod: &str| -> Vec<String> {
            let shown = lab(&host, &["exec", pod, "--", "ip", "-o", "addr", "show", "dev", "eth0", "scope", "global"]);
            shown.lines().map(|line| line.split_whitespace().nth(3).unwrap().split('/').next().unwrap().to_owned()).collect()
        };
        for (to, is_tunnelled) in [("b", tunnelled[0]), ("c", tunnelled[1])] {
            for address in addresses(to) {
                let reaches =
                    || host.command("", netloom()).args(["lab", "exec", "a", "--", "ping", "-c1", "-w5", "-n", &address]).output().unwrap();
                let output = seen_within(Duration::from_secs(60), reaches, |output| output.status.success()).unwrap();
                assert!(output.status.success(), "{mode}: a to {address}");
                let way = lab_route(&host, &address);
                assert_eq!(way.contains("dev nlw-"), is_tunnelled, "{mode}: {way}");
            }
        }
        let drawn = lab(&host, &["graph", "-o", "mermaid"]);
        assert!(drawn.contains("tunnel wireguard 51820"), "{drawn}");
        let status = lab(&host, &["status"]);
        assert!(status.contains("WireGuard between nodes: "), "{status}");
        assert!(lab(&host, &["down"]).contains("nothing left"));
    }
}

/// How the first node sends to an address.
fn lab_route(host: &Host, address: &str) -> String {
    let listed = host.sh("", "ip netns list");
    let node = listed.lines().filter_map(|line| line.split_whitespace().next()).find(|name| name.ends_with("one")).unwrap().to_owned();
    host.sh("", &format!("ip netns exec {node} ip route get {address}"))
}
