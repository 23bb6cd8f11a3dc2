//! A lab whose nodes share a pool, and what is told of it.

use std::path::Path;

use netloom_tests::{Host, netloom};
use serde_json::{Value, json};

use crate::ipam_command::text;

const DIR: &str = "/run/netloom/lab/lab";

fn run(host: &Host, args: &[&str]) -> std::process::Output {
    host.command("", netloom()).args(args).env_remove("CNI_PATH").output().unwrap()
}

fn told(host: &Host, args: &[&str]) -> Value {
    let output = run(host, args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"))
}

fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("examples").join("pools").display().to_string()
}

/// The example: two nodes, a requested address, two attachments of one pod to one network, and no address twice.
#[test]
fn nodes_share_a_pool() {
    let host = Host::new();
    let up = run(&host, &["lab", "up", &examples()]);
    assert!(up.status.success(), "{up:?}");
    // As the kernel has them.
    let of = |pod: &str, interface: &str| -> Vec<String> {
        let all: Value =
            serde_json::from_slice(&run(&host, &["lab", "exec", pod, "--", "ip", "-j", "addr", "show", interface]).stdout).unwrap();
        let global = all[0]["addr_info"].as_array().unwrap().iter().filter(|a| a["scope"] == "global");
        global.map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"])).collect()
    };
    let all = [of("web-0", "net1"), of("web-1", "net1"), of("database", "net1"), of("backup", "net1"), of("backup", "net2")];
    assert!(all.iter().all(|one| one.len() == 2 && one[0].ends_with("/23") && one[1].ends_with("/64")), "{all:?}");
    assert_eq!(all[2][0], "10.20.1.50/23");
    let mut different: Vec<&String> = all.iter().flatten().collect();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 10, "{all:?}");
    // Over the wire of the card, from one node to the other.
    for address in ["10.20.1.50", all[1][1].split('/').next().unwrap()] {
        let answers = || run(&host, &["lab", "exec", "web-0", "--", "ping", "-c", "1", "-W", "1", address]).status.success();
        host.until("the other node's pod answers", answers);
    }
    let (dir, pools) = (format!("{DIR}/ipam"), format!("{DIR}/pools"));
    let ipam = |args: &[&str]| told(&host, &[&["ipam", "--dir", &dir, "--pools", &pools], args, &["-o", "json"]].concat());
    let status = ipam(&["status"]);
    assert_eq!((&status[0]["held"], &status[1]["held"], &status[0]["capacity"]), (&json!(5), &json!(5), &json!(329)));
    let trace = ipam(&["trace", "10.20.1.50"]);
    assert_eq!((&trace[0]["history"][0]["pod"], &trace[0]["history"][0]["ifname"]), (&json!("default/database"), &json!("net1")));
    // Two labs know nothing of each other.
    let other = run(&host, &["lab", "up", "-n", "other", &examples()]);
    assert!(other.status.success(), "{other:?}");
    assert_eq!(ipam(&["status"])[0]["held"], 5);
    for name in ["lab", "other"] {
        let down = run(&host, &["lab", "down", "-n", name]);
        assert!(down.status.success() && text(&down.stdout).contains("nothing left"), "{down:?}");
    }
    assert!(!host.path("/run/netloom").exists() && !host.path("/var/lib/netloom").exists());
}

/// What is wrong with a pool is told with its place, as with every other manifest, and nothing is built.
#[test]
fn a_pool_that_is_none() {
    let host = Host::new();
    let head = "apiVersion: netloom.io/v1alpha1\nkind: IPPool\nmetadata: {name: lab}\n";
    let cases = [
        (
            "spec:\n  ipv4:\n    entries:\n    - {cidr: 10.0.0.1/24}\n",
            "line 7, column 7: spec.ipv4.entries[0]: 10.0.0.1/24 has host bits set",
        ),
        ("spec: {ipv4: {entries: [{ip: 10.0.0.7}], gateway: fd00::1}}\n", "spec.ipv4.gateway: \"fd00::1\" is not an IPv4 address"),
        ("spec: {exlude: []}\n", "spec: unknown field `exlude`, expected one of"),
        ("spec: {}\n", "spec: has no addresses: set ipv4.entries or ipv6.entries"),
        ("", "spec: missing: expected ipv4 or ipv6, with entries"),
        (
            "spec: {ipv4: {entries: [{ip: 10.0.0.7}]}}\n---\napiVersion: netloom.io/v1\nkind: IPPool\nmetadata: {name: x}\n",
            "IPPool of apiVersion \"netloom.io/v1\": expected \"netloom.io/v1alpha1\"",
        ),
        (
            &format!("spec: {{ipv4: {{entries: [{{ip: 10.0.0.7}}]}}}}\n---\n{head}spec: {{ipv4: {{entries: [{{ip: 10.0.0.7}}]}}}}\n"),
            "IPPool lab is given twice",
        ),
        (
            "spec: {ipv4: {entries: [{ip: 10.0.0.7}]}, reuse: {cooldownSeconds: soon}}\n",
            "spec: invalid type: string \"soon\", expected u64",
        ),
    ];
    for (spec, told) in cases {
        host.write("/run/pool.yaml", &format!("{head}{spec}"));
        let output = run(&host, &["lab", "up", "/run/pool.yaml"]);
        assert!(!output.status.success() && text(&output.stderr).contains(told), "{spec}: {output:?}");
    }
    assert!(!host.path("/run/netloom").exists());
}

/// A pod that asks for what it cannot have fails alone, and says why.
#[test]
fn a_pool_that_is_too_small() {
    let host = Host::new();
    host.write(
        "/run/small.yaml",
        "apiVersion: netloom.io/v1alpha1\nkind: IPPool\nmetadata: {name: small}\nspec: {ipv4: {entries: [{ip: 10.0.0.7}]}}\n---\n\
         apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: small}\nspec:\n  \
         config: '{\"cniVersion\": \"1.1.0\", \"type\": \"dummy\", \"ipam\": {\"type\": \"pool\", \"pool\": \"small\", \"addWait\": 0}}'\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: one, annotations: {k8s.v1.cni.cncf.io/networks: small}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: two, annotations: {k8s.v1.cni.cncf.io/networks: small}}\n",
    );
    let output = run(&host, &["lab", "up", "/run/small.yaml"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        all.contains("default/two: error adding container to network \"default/small\":")
            && all.contains("pool \"small\" has no free IPv4 address"),
        "{all}"
    );
    assert!(run(&host, &["lab", "down"]).status.success());
}
