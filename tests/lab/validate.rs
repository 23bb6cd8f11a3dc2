//! `netloom validate`: what it prints, and how it ends. What it finds is tried in `crates/lab/tests/mistakes.rs`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use netloom_tests::{Host, netloom};
use serde_json::{Value, json};

const NETWORK: &str = r#"apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: storage}
spec:
  config: |
    {
      "cniVersion": "1.0.0",
      "name": "storage",
      "type": "bridge",
      "brigde": "br1",
      "ipam": {"type": "host-local", "subnet": "10.1.0.0/33"}
    }
"#;

fn validate(args: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(netloom());
    command.arg("validate").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Nobody in particular: it needs no rights.
    let mut child = std::os::unix::process::CommandExt::uid(&mut command, 65534).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn mistakes_are_shown_as_the_page_shows_them() {
    let out = validate(&["-"], NETWORK);
    let shown = text(&out.stdout).replace("standard input:", "networks.yaml:");
    assert_eq!(out.status.code(), Some(1), "{shown}{}", text(&out.stderr));
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/use/validate.md")).unwrap();
    assert!(page.contains(&shown), "docs/use/validate.md does not show this:\n{shown}");
    // The second place is marked under its value.
    let lines: Vec<&str> = shown.lines().collect();
    let mark = lines.iter().position(|line| line.contains("^^^^^^^^^^^^^")).unwrap();
    assert_eq!(lines[mark].find('^'), lines[mark - 1].find("\"10.1.0.0/33\""), "{shown}");
}

#[test]
fn findings_are_data_and_a_table() {
    let found: Value = serde_json::from_slice(&validate(&["-o", "json", "-"], NETWORK).stdout).unwrap();
    let subnet = &found[1];
    assert_eq!((&subnet["severity"], &subnet["file"]), (&json!("error"), &json!("standard input")));
    assert_eq!((&subnet["line"], &subnet["column"], &subnet["field"]), (&json!(11), &json!(48), &json!("spec.config ipam.subnet")));
    assert_eq!((&found[0]["help"], found.as_array().unwrap().len()), (&json!("did you mean \"bridge\"?"), 2));
    let table = text(&validate(&["-o", "table", "-"], NETWORK).stdout);
    assert!(table.starts_with("PLACE") && table.lines().count() == 3 && table.contains("standard input:10:7"), "{table}");
}

#[test]
fn the_exit_code_says_whether_there_is_an_error() {
    let good = NETWORK.replace("brigde", "bridge").replace("/33", "/24");
    let out = validate(&["-"], &good);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "nothing is wrong: 1 network, 0 pods\n"));
    let odd = validate(&["-"], &good.replace("\"name\": \"storage\"", "\"colour\": \"blue\""));
    assert_eq!(odd.status.code(), Some(0), "a warning is no error");
    assert!(text(&odd.stdout).contains("warning: unknown key \"colour\""), "{}", text(&odd.stdout));
    for (args, stdin, part) in [
        (&["/nowhere.yaml"][..], "", "/nowhere.yaml: error: cannot be read"),
        (&["-"], "kind: [", "1:7: error: not valid YAML"),
        (&["-"], "kind: Pod\napiVersion: v1\nmetadata: {name: Bad_Name}\n", "3:18: error: metadata.name: "),
    ] {
        let out = validate(args, stdin);
        assert!(out.status.code() == Some(1) && text(&out.stdout).contains(part), "{part}: {}", text(&out.stdout));
    }
    let none = validate(&["-"], "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n");
    assert_eq!(none.status.code(), Some(0), "{}", text(&none.stdout));
}

#[test]
fn a_lab_of_wrong_manifests_is_not_begun() {
    let host = Host::new();
    let before = host.traces();
    host.write("/run/networks.yaml", NETWORK);
    let lab = |args: &[&str]| host.command("", netloom()).arg("lab").args(args).env_remove("CNI_PATH").output().unwrap();
    for (args, code) in [(&["up", "/run/networks.yaml"][..], 1), (&["up", "--dry-run", "/run/networks.yaml"], 3)] {
        let out = lab(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains("/run/networks.yaml:10:7: error: unknown key \"brigde\"") && said.contains(":11:48: error: "), "{said}");
    }
    host.run("", &["rm", "/run/networks.yaml"]);
    host.expect_traces(&before, "a lab that was not begun");
}
