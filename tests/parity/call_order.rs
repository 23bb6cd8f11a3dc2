//! How a call begins: what is looked at first, and what is said of it, against the reference plugins.

use std::path::Path;

use netloom_tests::{Host, peers_dir, plugin_dir};
use serde_json::Value;

/// Variables that differ from those of a good call; an empty value removes one.
type Vars = &'static [(&'static str, &'static str)];

const GOOD: &str = r#"{"cniVersion":"1.1.0","name":"net","type":"bridge"}"#;
const NONE: Vars = &[("CNI_CONTAINERID", ""), ("CNI_NETNS", ""), ("CNI_IFNAME", ""), ("CNI_PATH", "")];
const BAD_ID: Vars = &[("CNI_CONTAINERID", "../c"), ("CNI_IFNAME", "")];
const BAD_IFNAME: Vars = &[("CNI_CONTAINERID", ""), ("CNI_IFNAME", "a/b")];
const BOTH_BAD: Vars = &[("CNI_CONTAINERID", "c c"), ("CNI_IFNAME", "a:b")];

/// Verb, variables, input. Every one must fail before anything is done.
const CALLS: [(&str, Vars, &str); 56] = [
    ("ADD", NONE, GOOD),
    ("CHECK", NONE, ""),
    ("DEL", NONE, "{"),
    ("GC", NONE, GOOD),
    ("STATUS", NONE, GOOD),
    ("ADD", BAD_ID, ""),
    ("ADD", BAD_IFNAME, ""),
    ("ADD", BOTH_BAD, ""),
    ("CHECK", BAD_ID, GOOD),
    ("CHECK", BAD_IFNAME, GOOD),
    ("DEL", BAD_ID, GOOD),
    ("DEL", BAD_IFNAME, GOOD),
    ("DEL", &[("CNI_IFNAME", "abcdefghijklmnop")], GOOD),
    ("DEL", &[("CNI_IFNAME", ".")], GOOD),
    ("DEL", &[("CNI_IFNAME", "a b")], GOOD),
    ("DEL", &[("CNI_CONTAINERID", "-c")], GOOD),
    ("ADD", &[("CNI_NETNS", "")], GOOD),
    ("CHECK", &[("CNI_NETNS", ""), ("CNI_PATH", "")], GOOD),
    ("DEL", &[("CNI_CONTAINERID", "")], GOOD),
    ("GC", BOTH_BAD, ""),
    ("STATUS", BOTH_BAD, "[]"),
    ("FOO", NONE, GOOD),
    ("FOO", NONE, ""),
    ("FOO", BOTH_BAD, "{}"),
    ("FOO", &[], r#"{"cniVersion":"7.0.0","name":"net"}"#),
    ("FOO", &[], r#"{"cniVersion":1,"name":"net"}"#),
    ("add", &[], GOOD),
    ("version", NONE, ""),
    ("ADD", &[], ""),
    ("ADD", &[], "{"),
    ("ADD", &[], "[]"),
    ("ADD", &[], "\"x\""),
    ("ADD", &[], "{} {}"),
    ("ADD", &[], "null"),
    ("ADD", &[], "{}"),
    ("ADD", &[], r#"{"name":""}"#),
    ("ADD", &[], r#"{"name":null}"#),
    ("ADD", &[], r#"{"name":7}"#),
    ("ADD", &[], r#"{"name":"a/b"}"#),
    ("ADD", &[], r#"{"NAME":"-"}"#),
    ("ADD", &[], r#"{"name":"a/b","cniVersion":7}"#),
    ("ADD", &[], r#"{"name":"net","cniVersion":7}"#),
    ("DEL", &[], r#"{"name":"net","cniVersion":"7.0.0"}"#),
    ("ADD", &[], r#"{"name":"net","cniVersion":"new"}"#),
    ("CHECK", &[], r#"{"name":"net"}"#),
    ("CHECK", &[], r#"{"name":"net","cniVersion":null}"#),
    ("CHECK", &[], r#"{"name":"net","cniVersion":"0.3.1"}"#),
    ("CHECK", &[], r#"{"name":"net","cniVersion":"7.0.0"}"#),
    ("CHECK", &[], r#"{"name":"net","cniVersion":[]}"#),
    ("GC", &[], r#"{"name":"net","cniVersion":"1.0.0"}"#),
    ("GC", &[], r#"{"name":"net","cniVersion":"0.1.0"}"#),
    ("GC", &[], r#"{"name":"net","cniVersion":"7.0.0"}"#),
    ("STATUS", &[], r#"{"name":"net","cniVersion":"1.0.0"}"#),
    ("STATUS", &[], r#"{"name":"net","CNIVERSION":"0.4.0"}"#),
    ("STATUS", &[], r#"{"name":"a b","cniVersion":"0.4.0"}"#),
    ("STATUS", &[], "{"),
];

fn said(host: &Host, dir: &Path, (verb, vars, input): (&str, Vars, &str)) -> (u64, String) {
    let cni = host.cni(dir).at("c1", "eth0");
    let cni = vars.iter().fold(cni, |cni, (name, value)| if value.is_empty() { cni.unset(name) } else { cni.set(name, value) });
    let outcome = cni.call(verb, "bridge", input);
    let error: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {verb} {input}: {outcome:?}"));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    (error["code"].as_u64().unwrap(), error["msg"].as_str().unwrap().to_owned())
}

/// Ours are the reference library's words and more: what it was, and what to do. Of JSON and of versions we speak in our own.
fn same_words(theirs: &str, ours: &str) -> bool {
    let own = ["error unmarshall network config", "decoding version", "incompatible CNI versions", "plugin version does not allow"];
    let words = |text: &str| text.split('"').step_by(2).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    own.iter().any(|begin| theirs.starts_with(begin)) || words(ours).contains(&words(theirs))
}

#[test]
fn calls_begin_as_the_reference_plugins_begin() {
    let host = Host::new();
    let before = host.traces();
    let mut differ = Vec::new();
    for call in CALLS {
        let (ours, theirs) = (said(&host, plugin_dir(), call), said(&host, peers_dir(), call));
        if ours.0 != theirs.0 || !same_words(&theirs.1, &ours.1) {
            differ.push(format!("{call:?}\nours: {ours:?}\ntheirs: {theirs:?}"));
        }
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), CALLS.len(), differ.join("\n\n"));
    host.expect_traces(&before, "calls that were refused");
}

/// VERSION is answered byte for byte alike, whatever it is given, and nothing else is looked at.
#[test]
fn version_is_answered_as_the_reference_plugins_answer() {
    let host = Host::new();
    for plugin in ["bridge", "host-local", "loopback", "macvlan", "static", "tuning"] {
        for (vars, input) in [(NONE, ""), (BOTH_BAD, "{"), (&[][..], r#"{"cniVersion":"0.2.0"}"#)] {
            let answer = |dir: &Path| {
                let cni = vars.iter().fold(host.cni(dir), |cni, (name, value)| match value.is_empty() {
                    true => cni.unset(name),
                    false => cni.set(name, value),
                });
                let outcome = cni.call("VERSION", plugin, input);
                (outcome.code, outcome.stdout, outcome.stderr)
            };
            assert_eq!(answer(plugin_dir()), answer(peers_dir()), "{plugin} {vars:?} {input}");
        }
    }
    // Without a verb it is somebody who looks what this is.
    let by_hand = |dir: &Path| host.cni(dir).set("CNI_COMMAND", "").call("", "bridge", "");
    let (ours, theirs) = (by_hand(plugin_dir()), by_hand(peers_dir()));
    assert_eq!((ours.code, ours.stdout.as_str()), (theirs.code, theirs.stdout.as_str()));
    let versions = theirs.stderr.lines().find(|l| l.starts_with("CNI protocol versions supported: ")).unwrap();
    assert!(ours.stderr.lines().any(|l| l == versions), "{ours:?}\n{theirs:?}");
}
