//! `netloom agent preflight`: what would be refused, told before an agent serves anybody.

use netloom_tests::{Node, SETTINGS};
use serde_json::{Value, json};

#[test]
fn what_would_be_refused_is_told_with_the_rule_that_allows_it() {
    let node = Node::start("preflight", "");
    node.host.sh("", "ip addr add 192.0.2.10/24 dev up0");
    node.host.sh("", "ip route add default via 192.0.2.1 dev up0");
    let leases = json!({"type": "host-local", "subnet": "10.9.9.0/24", "dataDir": "/srv/leases"});
    let network = |plugin: Value| json!({"cniVersion": "1.0.0", "name": "x", "plugins": [plugin]}).to_string();
    node.define("leases", &network(json!({"type": "macvlan", "master": "up0", "ipam": leases})));
    node.define("uplink", &network(json!({"type": "host-device", "device": "up0"})));
    // Of what no agent would keep, and of what only the cluster knows: where its API server is.
    let long = json!({"type": "macvlan", "comment": "x".repeat(200_000)});
    node.define("long", &network(long));
    let metadata = json!({"type": "static", "addresses": [{"address": "169.254.169.254/32"}]});
    node.define("metadata", &network(json!({"type": "ptp", "ipam": metadata})));
    let pods = ["a", "b"].map(|name| node.pod(name, "leases,mac1"));
    let told = || {
        let all = node.told(&["agent", "preflight", "--config", SETTINGS]);
        // Other tests' definitions are on the same server.
        let own = |finding: &&Value| finding["message"].as_str().unwrap().contains("preflight/");
        all.as_array().unwrap().iter().filter(own).cloned().collect::<Vec<Value>>()
    };
    let found = told();
    assert_eq!(found.len(), 4, "{found:?}");
    let of = |what: &str| found.iter().find(|finding| finding["message"].as_str().unwrap().contains(what)).unwrap().clone();
    let path = of("names the host's path \"/srv/leases\"");
    assert_eq!(path["pods"], json!(["preflight/a", "preflight/b"]));
    let rule = json!({"name": "paths", "definitionNamespaces": ["preflight"], "allow": {"paths": ["/srv/leases"]}});
    assert_eq!((&path["rule"], &path["fails"]), (&rule, &json!(true)));
    assert_eq!(of("NetworkAttachmentDefinition preflight/long: spec.config has 200").get("rule"), None);
    assert_eq!(of("the cloud's metadata service")["rule"]["protect"], json!("off"));
    node.define("long", &network(json!({"type": "loopback"})));
    let uplink = of("takes up0, the node's uplink, away from the node");
    assert_eq!(uplink["pods"], json!([]), "no pod selects it");
    assert_eq!(uplink["rule"]["protect"], json!("off"));
    // With the rules that it names nothing is refused any more.
    node.configure("preflight", &format!("policy: {}", json!([rule, uplink["rule"]])));
    assert_eq!(told(), Vec::<Value>::new());
    pods.iter().for_each(|pod| pod.remove_namespace());
    // For a person: what, which rule, which pods; and an exit code for a script.
    node.configure("preflight", "");
    let output = node.host.command("", netloom_tests::netloom()).args(["agent", "preflight", "--config", SETTINGS]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for line in ["refused   ", "          pods   preflight/a, preflight/b\n", "          allow  {\"name\":\"paths\"", " refused, "] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
}
