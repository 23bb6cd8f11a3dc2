//! The example plugin, run as a runtime runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn hello(verb: &str, config: &str, env: &[(&str, &str)]) -> Output {
    // Cargo builds examples before it runs tests; it has no variable for where.
    let target: PathBuf = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().into();
    let mut command = Command::new(target.join("examples/hello"));
    if !verb.is_empty() {
        command.env("CNI_COMMAND", verb);
    }
    command.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_describes_itself() {
    let out = hello("", "", &[]);
    assert!(out.status.success());
    assert!(text(&out.stderr).contains("greeting  what to say (string, default hello)"), "{}", text(&out.stderr));
    let out = hello("VERSION", "", &[]);
    assert!(text(&out.stdout).starts_with(r#"{"cniVersion":"1.1.0","supportedVersions":["0.1.0","#));
}

#[test]
fn it_adds_checks_and_refuses() {
    let netns = format!("/run/netns/nlpe-{}", std::process::id());
    linux::Netns::create(netns.as_ref()).unwrap();
    let env = [("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_PATH", "/nowhere"), ("CNI_NETNS", netns.as_str())];
    let config = |rest: &str| format!(r#"{{"cniVersion":"1.0.0","name":"demo","type":"hello"{rest}}}"#);
    let added = hello("ADD", &config(r#","GREETING":"ahoy""#), &env);
    let refused = hello("ADD", &config(r#","greeting":"two words""#), &env);
    let checked = hello("CHECK", &config(&format!(r#","prevResult":{}"#, text(&added.stdout))), &env);
    let deleted = hello("DEL", &config(""), &env);
    linux::Netns::remove(netns.as_ref()).unwrap();
    assert!(added.status.success() && text(&added.stdout).contains("\"domain\": \"ahoy\""), "{}", text(&added.stdout));
    assert!(
        !refused.status.success()
            && text(&refused.stdout).contains("\"code\": 7")
            && text(&refused.stdout).contains("greeting: one word only")
    );
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    assert!(deleted.status.success() && deleted.stdout.is_empty());
}
