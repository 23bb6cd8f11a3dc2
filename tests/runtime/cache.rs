//! The result cache when it is not as it should be, and as the reference library writes and reads it.

use std::path::Path;

use netloom_tests::{Host, netloom, peers_dir, plugin_dir};
use serde_json::{Value, json};

const NETNS: &str = "/run/netns/c1";

fn machine() -> Host {
    let host = Host::new();
    host.container("c1");
    let ipam = json!({"type": "host-local", "subnet": "10.4.0.0/24"});
    let bridge = json!({"type": "bridge", "bridge": "br0", "capabilities": {"mac": true}, "ipam": ipam});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge]});
    host.write("/etc/cni/net.d/net.conflist", &list.to_string());
    host
}

/// A verb of ours, or of the reference tool: exit code, and what was said.
fn run(host: &Host, theirs: bool, plugins: &Path, verb: &str) -> (i32, String) {
    let program = if theirs { peers_dir().join("cnitool") } else { netloom().to_owned() };
    let mut command = host.command("", program);
    if !theirs {
        command.arg("cni");
    }
    command.args([verb, "net", NETNS]);
    if verb == "gc" && !theirs {
        command.arg("--all");
    }
    command.env("CNI_PATH", plugins).env("NETCONFPATH", "/etc/cni/net.d").env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web");
    let out = command.env("CAP_ARGS", r#"{"mac":"02:00:00:00:00:09"}"#).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), said)
}

fn ours(host: &Host, verb: &str) -> (i32, String) {
    run(host, false, plugin_dir(), verb)
}

fn file(host: &Host) -> String {
    format!("/var/lib/cni/results/{}", host.list("/var/lib/cni/results")[0])
}

fn is_gone(host: &Host) -> bool {
    let leases = host.list("/var/lib/cni/networks/net");
    host.link("c1", "eth0").is_none() && !leases.iter().any(|f| f.starts_with("10."))
}

/// What becomes of a file's content.
type Spoil = fn(&Value) -> String;

/// Whatever stands in the file: CHECK works where the result is there, DEL in any case.
#[test]
fn what_is_torn_or_old() {
    let host = machine();
    let cases: [(&str, Spoil, bool); 11] = [
        ("as it was written", |c| c.to_string(), true),
        ("the bare result of old libraries", |c| c["result"].to_string(), true),
        ("the bare result, in an older version", |_| OLDER.to_owned(), false),
        ("with keys of the future", |c| format!("{{\"x\":[],{}", &c.to_string()[1..]), true),
        ("keys in another case", |c| c.to_string().replace("\"networkName\"", "\"NETWORKNAME\"").replace("\"kind\"", "\"Kind\""), true),
        ("no configuration", |c| with(c, "config", Value::Null), true),
        ("no result", |c| with(c, "result", Value::Null), false),
        ("a result of the future", |c| with(c, "result", json!({"cniVersion": "3.0.0"})), false),
        ("another kind", |c| with(c, "kind", json!("cniCacheV9")), false),
        ("torn", |c| c.to_string()[..100].to_owned(), false),
        ("empty", |_| String::new(), false),
    ];
    for (name, spoil, checks) in cases {
        assert_eq!(ours(&host, "add").0, 0, "{name}");
        let path = file(&host);
        let written: Value = serde_json::from_str(&std::fs::read_to_string(host.path(&path)).unwrap()).unwrap();
        host.write(&path, &spoil(&written));
        let (code, said) = ours(&host, "check");
        assert_eq!(code == 0, checks, "{name}: {said}");
        let (code, said) = ours(&host, "del");
        assert_eq!(code, 0, "{name}: {said}");
        assert!(is_gone(&host) && host.list("/var/lib/cni/results").is_empty(), "{name}");
    }
}

const OLDER: &str = r#"{"cniVersion":"0.2.0","ip4":{"ip":"192.0.2.1/24"}}"#;

fn with(cached: &Value, key: &str, value: Value) -> String {
    let mut cached = cached.clone();
    cached[key] = value;
    cached.to_string()
}

/// A file that is no result says of no attachment that it is there, and CHECK gets no result of it.
#[test]
fn what_is_no_result_counts_as_none() {
    let host = machine();
    assert_eq!(ours(&host, "add").0, 0);
    let path = file(&host);
    let none = [
        r#"{"kind":"cniCacheV2","containerId":"x","cniVersion":"1.1.0"}"#,
        r#"{"Kind":1,"ips":[]}"#,
        "{}",
        r#"{"a":1}"#,
        r#"{"cniVersion":null,"kind":null}"#,
        "null",
        "[]",
    ];
    for text in none {
        host.write(&path, text);
        let (code, said) = ours(&host, "check");
        assert!(code == 1 && said.contains("needs the result of the ADD"), "{text}: {said}");
        assert_eq!(ours(&host, "del").0, 0, "{text}");
        host.write(&path, text);
        let (code, said) = ours(&host, "add");
        assert_eq!(code, 0, "{text}: {said}");
    }
    for text in [r#"{"cniVersion":"0.4.0"}"#, r#"{"ip4":{"ip":"192.0.2.1/24"}}"#, r#"{"IPs":[]}"#] {
        host.write(&path, text);
        let (code, said) = ours(&host, "add");
        assert!(code == 1 && said.contains("DEL it first"), "{text}: {said}");
    }
    assert_eq!(ours(&host, "del").0, 0);
    assert!(is_gone(&host) && host.list("/var/lib/cni/results").is_empty());
}

/// A file that cannot be read is named; what it says nothing of goes all the same.
#[test]
fn what_cannot_be_read() {
    let host = machine();
    assert_eq!(ours(&host, "add").0, 0);
    let path = file(&host);
    host.run("", &["rm", &path]);
    host.run("", &["mkdir", &path]);
    for verb in ["check", "gc", "del"] {
        let (code, said) = ours(&host, verb);
        assert!(code == 1 && said.contains(&path), "{verb}: {said}");
    }
    assert!(is_gone(&host));
    let before = host.traces();
    let (code, said) = ours(&host, "add");
    assert!(code == 1 && said.contains(&path) && said.contains("\"code\": 5"), "{said}");
    host.expect_traces(&before, "an ADD whose result could not be kept");
}

/// Either reads what the other wrote: result, namespace, arguments and capabilities.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn the_reference_library_and_we_share_it() {
    for (writer_is_theirs, plugins) in [(true, peers_dir()), (false, peers_dir()), (true, plugin_dir()), (false, plugin_dir())] {
        let host = machine();
        let reader_is_theirs = !writer_is_theirs;
        let does = |theirs: bool, verb: &str| {
            let (code, said) = run(&host, theirs, plugins, verb);
            assert_eq!(code, 0, "theirs: {theirs}, {verb}: {said}");
        };
        does(writer_is_theirs, "add");
        assert_eq!(host.link("c1", "eth0").unwrap().mac(), "02:00:00:00:00:09");
        let cached: Value = serde_json::from_str(&std::fs::read_to_string(host.path(file(&host))).unwrap()).unwrap();
        assert_eq!(cached["cniArgs"], json!([["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"]]));
        assert_eq!((&cached["capabilityArgs"], &cached["netns"]), (&json!({"mac": "02:00:00:00:00:09"}), &json!(NETNS)));
        does(reader_is_theirs, "check");
        does(reader_is_theirs, "del");
        assert!(is_gone(&host) && host.list("/var/lib/cni/results").is_empty());
        does(writer_is_theirs, "add");
        // The reference tool has no list of what is valid, and our plugins free nothing without one.
        let gc = run(&host, reader_is_theirs, plugins, "gc");
        assert_eq!(gc.0 != 0, reader_is_theirs && plugins == plugin_dir(), "{gc:?}");
        assert!(is_gone(&host) && host.list("/var/lib/cni/results").is_empty(), "cached attachments go in any case");
    }
}
