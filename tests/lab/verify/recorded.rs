//! What was recorded is explained when the lab is gone; what breaks is reported with its time; how fast it is.

use std::fs::File;
use std::process::Command;

use netloom_tests::{Host, Running, netloom, until_seen};
use serde_json::Value;

use super::{Lab, node, pod};

/// A network whose configuration has a secret.
const SECRET: &str = r#"apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: extra}
spec: {config: '{"cniVersion":"1.0.0","type":"bridge","bridge":"br7","args":{"labels":{"apiToken":"hunter2"}},"ipam":{"type":"host-local","subnet":"10.7.0.0/24"}}'}
---
"#;

fn two() -> String {
    let with = |name: &str, node: &str| {
        pod(name, node)
            .replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, annotations: {{k8s.v1.cni.cncf.io/networks: extra}}}}"))
    };
    [node("left"), node("right"), SECRET.to_owned(), with("a", "left"), with("b", "right"), pod("a2", "left")].concat()
}

impl Lab {
    /// `netloom ARGS`: exit code, what it printed and said.
    pub(super) fn netloom(&self, args: &[&str]) -> (i32, String) {
        let out = self.host.command("", netloom()).args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code().unwrap(), text(&out.stdout) + &text(&out.stderr))
    }
}

#[test]
fn a_fault_is_explained_from_an_archive_when_the_lab_is_gone() {
    let lab = Lab::up(&two(), &["--between", "direct"]);
    let (code, said) = lab.netloom(&["sysdump", "--lab", "lab", "-o", "/run/whole.tar.gz"]);
    assert!(code == 0 && said.contains("netloom verify --from /run/whole.tar.gz"), "{said}");
    lab.run("node.left", "ip route del 10.244.1.0/24");
    assert_eq!(lab.netloom(&["sysdump", "--lab", "lab", "-o", "/run/broken.tar.gz"]).0, 0);
    let (code, said) = lab.netloom(&["sysdump", "--lab", "lab", "-o", "/run/broken.tar.gz"]);
    assert!(code == 1 && said.contains("/run/broken.tar.gz"), "it is not overwritten: {said}");
    lab.down();
    let (code, json) = lab.verified(&["--from", "/run/whole.tar.gz"]);
    assert_eq!((code, &json["failed"]), (0, &Value::from(0)), "{json:#}");
    assert_eq!(json["file"], "/run/whole.tar.gz");
    let (code, json) = lab.verified(&["--from", "/run/broken.tar.gz", "--test", "^2$"]);
    let failure = &json["cases"][0]["failures"][0];
    assert_eq!((code, &failure["fault"], &failure["place"]), (3, &Value::from("NoRoute"), &Value::from("node/left")), "{json:#}");
    // What is in it, by another program.
    let archive = lab.host.path("/run/broken.tar.gz");
    let tar = |args: &[&str]| {
        let out = Command::new("tar").args(args).arg("-f").arg(&archive).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let names = tar(&["-tz"]);
    for name in ["/sysdump.json", "/version.json", "/snapshot.json", "/lab.json", "/nodes/left/sandboxes/", "/host/meminfo"] {
        assert!(names.contains(name), "{name}: {names}");
    }
    let all = tar(&["-xzO"]);
    assert!(all.contains("apiToken") && !all.contains("hunter2"), "a secret is in the archive");
    // Files that are none.
    lab.host.write("/run/text", "{\"version\": 77, \"namespaces\": []}");
    let (code, said) = lab.netloom(&["verify", "--from", "/run/text"]);
    assert!(code == 1 && said.contains("version 77"), "{said}");
    let (code, said) = lab.netloom(&["verify", "--from", "/run/nothing"]);
    assert!(code == 1 && said.contains("/run/nothing"), "{said}");
}

/// A node without an agent, without pods: what is there is collected, and what is not is reported.
#[test]
fn a_node_is_collected_as_well() {
    let host = Host::new();
    host.write("/run/settings.yaml", "nodeName: worker\n");
    host.write("/run/extra/app.log", "line\npassword: hunter2\n");
    host.sh("", "ln -s /etc/shadow /run/extra/link");
    host.sh("", "ip link add br9 type bridge");
    host.sh("", "ip addr add 10.9.0.1/24 dev br9");
    let lab = Lab { host, names: std::collections::BTreeMap::new() };
    let (code, said) = lab.netloom(&["sysdump", "--config", "/run/settings.yaml", "-o", "/run/node.tar.gz", "--add", "/run/extra"]);
    assert!(code == 0 && said.contains("not in the archive: what the agent says of status"), "{said}");
    let out = Command::new("tar").args(["-xzOvf"]).arg(lab.host.path("/run/node.tar.gz")).output().unwrap();
    let (all, names) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(all.contains("10.9.0.1/24") && all.contains("password: REDACTED") && !all.contains("hunter2"), "{names}");
    assert!(!names.contains("added/extra/link") && !names.contains("shadow"), "{names}");
    let (code, json) = lab.verified(&["--from", "/run/node.tar.gz"]);
    assert_eq!((code, &json["failed"]), (0, &Value::from(0)), "{json:#}");
}

#[test]
fn a_path_that_breaks_and_heals_is_reported() {
    let lab = Lab::up(&two(), &["--between", "direct"]);
    let (out, said) = (lab.host.path("/run/watched"), lab.host.path("/run/said"));
    let mut command = lab.host.command("", netloom());
    command.args(["verify", "--watch", "--test", "^2$", "--timeout", "1", "-o", "json"]).env_remove("CNI_PATH");
    let watch = Running::with_output(&mut command, File::create(&out).unwrap(), File::create(&said).unwrap());
    let read = |path| std::fs::read_to_string(path).unwrap();
    until_seen("it watches", || read(&said), |said| said.contains("watching "));
    let changes = || read(&out).lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Value>>();
    let of = |changes: &[Value], state: &str| changes.iter().filter(|change| change["state"] == state).count();
    lab.run("node.left", "ip route del 10.244.1.0/24");
    // Eight paths: from and to two pods, over TCP and UDP.
    until_seen("each path is broken", changes, |changes| of(changes, "broken") == 8);
    lab.run("node.left", "ip route add 10.244.1.0/24 via 172.30.0.2 proto 110");
    let all = until_seen("each path is healed", changes, |changes| of(changes, "healed") == 8);
    drop(watch);
    for change in all.iter().filter(|change| change["state"] == "broken") {
        assert_eq!((&change["fault"], &change["place"]), (&Value::from("NoRoute"), &Value::from("node/left")), "{change:#}");
        let time = change["time"].as_str().unwrap();
        assert!(time.len() == "2026-11-26T18:45:03.4Z".len() && time.as_bytes()[19] == b'.', "{time}");
    }
    for change in all.iter().filter(|change| change["state"] == "healed") {
        assert!(change["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{change:#}");
    }
    lab.down();
}

#[test]
fn each_pair_is_measured_on_each_network() {
    let lab = Lab::up(&two(), &["--between", "vxlan"]);
    let (code, printed) = lab.netloom(&["verify", "perf", "--network", "^netloom$", "-o", "json"]);
    let rows: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    let rows = rows.as_array().unwrap();
    assert!(code == 0 && rows.len() >= 4, "{printed}");
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(0.0 < number("p50") && number("p50") <= number("p90") && number("p90") <= number("p99"), "{row}");
        assert!(number("bitsPerSecond") > 1000.0 && row["lost"].as_u64().unwrap() < 500, "{row}");
    }
    let (code, printed) = lab.netloom(&["verify", "perf", "--network", "no-such"]);
    assert!(code == 1 && printed.contains("netloom lab status"), "{printed}");
    // A pair that cannot be measured is no reason to stop.
    lab.run("node.left", "ip route del 10.244.1.0/24");
    let (code, printed) = lab.netloom(&["verify", "perf", "--timeout", "1"]);
    assert!(code == 3 && printed.contains("NETWORK") && printed.contains("Mbit/s") | printed.contains("Gbit/s"), "{printed}");
    lab.down();
}
