//! The selection key `default-route` (S26, S43), as the kernel has it.

use netloom_tests::{Host, netloom};
use serde_json::{Value, json};

const WAN: &str = r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"wan0","isGateway":true,
    "ipam":{"type":"host-local","ranges":[[{"subnet":"10.90.0.0/24"}],[{"subnet":"fd00:90::/64"}]]}}"#;

/// Its containers' default route goes over its bridge.
const UP: &str = r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"up0","isDefaultGateway":true,
    "ipam":{"type":"host-local","subnet":"10.92.0.0/24"}}"#;

/// A default route of another metric, and one of another table.
const LAN: &str = r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"lan0","isGateway":true,
    "ipam":{"type":"host-local","subnet":"10.91.0.0/24","routes":[{"dst":"0.0.0.0/0","priority":50},{"dst":"0.0.0.0/0","table":77}]}}"#;

/// A lab with one pod on the default network and on `wan`, with this `default-route`.
fn lab(host: &Host, routes: &Value) -> (Option<i32>, String) {
    lab_of(host, &json!([{"name": "wan", "default-route": routes}]))
}

/// A lab with one pod, which selects these networks besides the default network.
fn lab_of(host: &Host, selections: &Value) -> (Option<i32>, String) {
    annotated(host, "k8s.v1.cni.cncf.io/networks", selections)
}

/// A lab with one pod, which has this annotation.
fn annotated(host: &Host, annotation: &str, selections: &Value) -> (Option<i32>, String) {
    let mut manifests: String = [("wan", WAN), ("up", UP), ("lan", LAN)]
        .map(|(name, config)| {
            format!(
                "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\n\
                spec: {{config: '{config}'}}\n---\n"
            )
        })
        .concat();
    manifests += &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{{annotation}: '{selections}'}}}}\n");
    host.write("/run/all.yaml", &manifests);
    let out = host.command("", netloom()).args(["lab", "up", "/run/all.yaml"]).output().unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// `GATEWAY dev INTERFACE metric METRIC` of each default route of a family, best first.
fn defaults(host: &Host, family: &str) -> Vec<String> {
    let routes = host.json("nl.lab.pod.default.a", &format!("ip -j {family} route show default"));
    let one = |r: &Value| {
        format!("{} dev {} metric {}", r["gateway"].as_str().unwrap(), r["dev"].as_str().unwrap(), r["metric"].as_u64().unwrap_or(0))
    };
    routes.as_array().unwrap().iter().map(one).collect()
}

fn status(host: &Host) -> Value {
    let out = host.command("", netloom()).args(["lab", "status", "a", "-o", "json"]).output().unwrap();
    assert!(out.status.success(), "CHECK agrees: {}", String::from_utf8_lossy(&out.stdout));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn down(host: &Host) {
    assert!(host.command("", netloom()).args(["lab", "down"]).output().unwrap().status.success());
}

#[test]
fn s26_s43_one_family_moves_and_the_other_stays() {
    let host = Host::new();
    let (code, said) = lab(&host, &json!(["10.90.0.1"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(defaults(&host, "-4"), ["10.90.0.1 dev net1 metric 0"]);
    assert_eq!(defaults(&host, "-6"), ["fd00:10:244::1 dev eth0 metric 1024"]);
    let status = status(&host);
    assert_eq!(status[0]["gateway"], json!(["fd00:10:244::1"]));
    assert_eq!((&status[1]["gateway"], &status[1]["default-route"]), (&json!(["10.90.0.1"]), &json!(["10.90.0.1"])));
    down(&host);
}

#[test]
fn s26_both_families_move_and_the_order_is_the_preference() {
    let host = Host::new();
    let (code, said) = lab(&host, &json!(["fd00:90::1", "10.90.0.1", "10.90.0.7", "fd00:90::7"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(defaults(&host, "-4"), ["10.90.0.1 dev net1 metric 0", "10.90.0.7 dev net1 metric 1"]);
    assert_eq!(defaults(&host, "-6"), ["fd00:90::1 dev net1 metric 1024", "fd00:90::7 dev net1 metric 1025"]);
    assert_eq!(status(&host)[0].get("gateway"), None);
    down(&host);
}

#[test]
fn s26_an_empty_list_takes_them_away() {
    let host = Host::new();
    assert_eq!(lab(&host, &json!([])).0, Some(0));
    assert_eq!((defaults(&host, "-4"), defaults(&host, "-6")), (vec![], vec![]));
    status(&host);
    down(&host);
}

#[test]
fn s26_the_default_network_may_have_the_key_too() {
    let host = Host::new();
    let own = json!([{"name": "wan", "namespace": "default", "default-route": []}]);
    let (code, said) = annotated(&host, "v1.multus-cni.io/default-network", &own);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((defaults(&host, "-4"), defaults(&host, "-6")), (vec![], vec![]));
    let told = status(&host);
    assert_eq!((&told[0]["default"], told[0].get("gateway")), (&json!(true), None), "its addresses imply no default route");
    down(&host);
}

#[test]
fn s26_an_attachment_that_comes_later_takes_nothing_back() {
    let host = Host::new();
    let (code, said) = lab_of(&host, &json!([{"name": "wan", "default-route": []}, {"name": "up"}]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((defaults(&host, "-4"), defaults(&host, "-6")), (vec![], vec![]));
    let told = status(&host);
    assert!((0..3).all(|at| told[at]["name"].is_string() && told[at].get("gateway").is_none()), "{told}");
    down(&host);
}

#[test]
fn s26_another_metric_goes_and_another_table_stays() {
    let host = Host::new();
    let (code, said) = lab_of(&host, &json!([{"name": "wan", "default-route": ["10.90.0.1"]}, {"name": "lan"}]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(defaults(&host, "-4"), ["10.90.0.1 dev net1 metric 0"]);
    let other = || host.json("nl.lab.pod.default.a", "ip -j -4 route show default table 77");
    assert_eq!(other()[0]["gateway"], "10.91.0.1");
    let told = status(&host);
    assert_eq!((&told[1]["gateway"], told[2].get("gateway")), (&json!(["10.90.0.1"]), None));
    // It is the attachment's still: CHECK misses it.
    host.sh("nl.lab.pod.default.a", "ip route del default table 77");
    let out = host.command("", netloom()).args(["lab", "status", "a", "-o", "json"]).output().unwrap();
    assert!(!out.status.success(), "CHECK did not miss a route of the result");
    down(&host);
}

#[test]
fn s26_a_gateway_that_cannot_be_reached_fails_the_pod_and_leaves_nothing() {
    let host = Host::new();
    host.write("/run/all.yaml", "");
    let before = host.traces();
    let (code, said) = lab_of(&host, &json!([{"name": "wan", "default-route": ["192.0.2.1"]}, {"name": "up"}]));
    assert!(
        code == Some(3)
            && said.contains("network \"default/wan\": default-route: ")
            && said.contains("check that the gateway is in a network of net1"),
        "{said}"
    );
    assert_eq!(host.json("nl.lab.pod.default.a", "ip -j link").as_array().unwrap().len(), 1, "only lo is left");
    down(&host);
    host.write("/run/all.yaml", "");
    host.expect_traces(&before, "a refused default route");
}
