//! `netloom explain`

use super::super::explain::render;
use super::{PIPED, object, plain, terminal, widest};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A pod with three attachments, the last of which is not made.
fn attached() -> String {
    r#"{"namespace": "default", "name": "web-0", "uid": "5c3d6a52", "phase": "Running", "hostNetwork": false,
  "networks": "[{\"name\":\"backbone\",\"namespace\":\"infra\",\"ips\":[\"192.168.77.5/24\",\"fd00::5/64\"]},{\"name\":\"storage\"}]",
  "sandboxes": [{"container": "CONTAINER", "state": "Attaching", "at": "2026-11-21T16:04:05Z", "netns": "/var/run/netns/cni-5c3d", "attachments": [
    {"interface": "eth0", "definition": "cbr0", "network": "cbr0", "default": true, "plugins": ["bridge (built in)", "portmap (built in)"],
     "state": "Attached", "ips": ["10.244.0.5"], "mac": "0a:58:0a:f4:00:05", "tookMicros": 1250},
    {"interface": "net1", "definition": "infra/all", "network": "all", "default": false, "plugins": ["macvlan (built in)"],
     "state": "Attached", "tookMicros": 800},
    {"interface": "net2", "definition": "infra/backbone", "network": "backbone", "default": false, "plugins": ["macvlan (built in)", "sbr (built in)"],
     "state": "Attached", "ips": ["192.168.77.5", "fd00::5"], "mac": "02:00:00:00:00:01", "runtimeConfig": {"ips": ["192.168.77.5/24"]}, "tookMicros": 5000},
    {"interface": "net3", "definition": "default/storage", "network": "vlan-7", "default": false, "plugins": ["acme (not found)"], "state": "Intended"}]}],
  "lastCall": {"verb": "ADD", "container": "CONTAINER", "at": "2026-11-21T16:04:05Z", "tookMicros": 11200,
    "laps": {"pod": 12, "networks": 31, "plan": 101, "attach": 6544, "status": 3100}}}"#
        .replace("CONTAINER", CONTAINER)
}

#[test]
fn the_way_from_selection_to_interface() {
    let expected = r#"default/web-0: Attaching
  UID              5c3d6a52
  phase            Running
  asked for        1  {"name": "backbone", "namespace": "infra", "ips": ["192.168.77.5/24", "fd00::5/64"]}
                   2  {"name": "storage"}

sandbox 0123456789abc: Attaching since 2026-11-21T16:04:05Z
  container     0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  netns         /var/run/netns/cni-5c3d
|- eth0: default network -> network cbr0
|    plugins       bridge (built in), portmap (built in)
|    addresses     10.244.0.5
|    MAC           0a:58:0a:f4:00:05
|    took          1.2 ms  ======
|- net1: every pod's network -> infra/all -> network all
|    plugins       macvlan (built in)
|    addresses     -
|    MAC           -
|    took          0.8 ms  ===
|- net2: selection 1 -> infra/backbone -> network backbone
|    plugins       macvlan (built in), sbr (built in)
|    addresses     192.168.77.5, fd00::5
|    MAC           02:00:00:00:00:01
|    asked to do   {"ips":["192.168.77.5/24"]}
|    took          5.0 ms  ========================
`- net3: selection 2 -> default/storage -> network vlan-7
     state         missing: the attachment did not finish, and may exist in part
     plugins       acme (not found)
     addresses     -
     MAC           -
     took          -

last call: ADD took 11.2 ms
  at               2026-11-21T16:04:05Z
  container        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  where the time went:
  pod              0.0 ms
  networks         0.0 ms
  plan             0.1 ms
  attach           6.5 ms  ==============
  status           3.1 ms  ======
  other            1.4 ms  ===
"#;
    assert_eq!(plain(&render(&object(&attached()), PIPED)), expected);
}

#[test]
fn it_stays_within_a_terminal() {
    for columns in [60, 80, 120] {
        let text = render(&object(&attached()), terminal(columns));
        assert!(widest(&text) <= columns, "{columns}:\n{}", plain(&text));
        assert!(text.contains("├─ ") && text.contains('━'), "{text}");
    }
}

#[test]
fn selections_that_do_not_fit_are_not_guessed() {
    let changed = attached().replace(r#"{\"name\":\"storage\"}"#, r#"{\"name\":\"another\"}"#);
    let text = plain(&render(&object(&changed), PIPED));
    assert!(text.contains("net2: attached -> infra/backbone -> network backbone"), "{text}");
    assert!(!text.contains("selection"), "{text}");
}

fn failed(details: &str) -> String {
    format!(
        r#"{{"namespace": "default", "name": "bad", "uid": "u", "phase": "Pending", "networks": "backbone, infra/storage@eth5", "sandboxes": [],
  "defaultNetwork": "fast", "lastCall": {{"verb": "ADD", "container": "{CONTAINER}", "at": "2026-11-21T16:04:05Z", "tookMicros": 31000000,
    "laps": {{"pod": 30000000}}, "code": 7, "error": "cannot find a network-attachment-definition (backbone) in namespace (default)",
    "details": "{details}"}}, "plan": {{"refused": "cannot find it yet"}}}}"#
    )
}

#[test]
fn exactly_why_it_failed_and_what_would_happen_now() {
    // Numbers are aligned at their right.
    let text = render(&object(&failed("definitions of that name are in infra")), PIPED);
    let expected = "\
default/bad: Failed (ADD at 2026-11-21T16:04:05Z)
  UID              u
  phase            Pending
  default network  fast (v1.multus-cni.io/default-network)
  asked for        1  backbone
                   2  infra/storage@eth5

last call: ADD failed after 31.0 s
  at               2026-11-21T16:04:05Z
  container        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  code             7: an annotation, definition or configuration is invalid
  message          cannot find a network-attachment-definition (backbone) in namespace (default)
  details          definitions of that name are in infra
  where the time went:
  pod                 30.0 s  =======================
  other            1000.0 ms
";
    assert_eq!(plain(&text), expected.to_owned() + "\nan ADD now: would be refused\n  cannot find it yet\n");
    assert!(text.contains("\u{1b}[31m7: an annotation"), "{text:?}");
}

#[test]
fn a_del_that_failed_does_not_hide_why_the_add_did() {
    let o = object(
        r#"{"namespace": "a", "name": "new", "uid": "u", "phase": "Pending", "sandboxes": [], "plan": {"attachments": []},
        "lastCall": {"verb": "DEL", "container": "c", "at": "t", "tookMicros": 10, "laps": {}, "code": 11, "error": "it is busy",
            "failedAdd": {"verb": "ADD", "container": "c", "at": "s", "tookMicros": 10, "laps": {}, "code": 7, "error": "no address left"}}}"#,
    );
    let text = plain(&render(&o, PIPED));
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(at("call before: ADD failed") < at("no address left") && at("no address left") < at("last call: DEL failed"), "{text}");
    assert!(text.contains("\nan ADD now: would retry; the last one failed, as shown above\n"), "{text}");
}

#[test]
fn a_very_long_reason_is_wrapped_in_its_column() {
    let long = "x".repeat(300) + &" some words that follow".repeat(40);
    let text = render(&object(&failed(&long)), terminal(80));
    assert!(widest(&text) <= 80, "{}", plain(&text));
    assert!(plain(&text).contains(&format!("  details          {}\n                   xxx", "x".repeat(61))), "{}", plain(&text));
}

#[test]
fn without_a_record_what_an_add_would_do() {
    let o = object(
        r#"{"namespace": "a", "name": "new", "uid": "u", "phase": "Pending", "networks": "infra/backbone@eth5", "sandboxes": [], "plan": {"attachments": [
        {"interface": "eth0", "definition": "cbr0", "network": "cbr0"}, {"interface": "eth5", "definition": "infra/backbone", "network": "bb"}]}}"#,
    );
    let text = plain(&render(&o, PIPED));
    assert!(text.starts_with("a/new: Not attached\n"), "{text}");
    let plan = "\nan ADD now: would attach it (planned only: plugins were found but not run)\n|- eth0: default network -> network \
        cbr0\n`- eth5: selection 1 -> infra/backbone -> network bb\n";
    assert!(text.ends_with(plan), "{text}");
}

#[test]
fn under_an_error_that_may_repeat_nothing_is_promised() {
    let failed = failed("it is full").replace(r#""plan": {"refused": "cannot find it yet"}"#, r#""plan": {"attachments": []}"#);
    let text = plain(&render(&object(&failed), PIPED));
    assert!(text.contains("an ADD now: would retry; the last one failed, as shown above\n"), "{text}");
}

#[test]
fn a_pod_that_another_program_has_attached() {
    let o = object(
        r#"{"namespace": "a", "name": "old", "uid": "u", "phase": "Running", "networks": "mac1", "sandboxes": [], "plan": {"attachments": []}, "others": [
        {"by": "Multus", "network": "mac1", "interface": "net1", "container": "c", "ips": ["10.1.0.2/16"]},
        {"by": "the runtime", "network": "layer2", "interface": "eth0", "container": "c", "ips": []}]}"#,
    );
    let text = plain(&render(&o, PIPED));
    assert!(text.starts_with("a/old: Attached by another program\n"), "{text}");
    let kept = "attached by another program, which recorded:\n  net1: network mac1, 10.1.0.2/16, recorded by Multus\n  eth0: network \
        layer2, no addresses, recorded by the runtime\n";
    assert!(text.ends_with(kept), "{text}");
}

#[test]
fn other_pods() {
    let host =
        plain(&render(&object(r#"{"namespace": "a", "name": "h", "phase": "Running", "hostNetwork": true, "sandboxes": []}"#), PIPED));
    assert!(host.starts_with("a/h: on the network of its node\n") && host.ends_with("nothing is attached\n"), "{host}");
    assert!(!host.contains("asked for"), "{host}");
    let broken = plain(&render(&object(r#"{"namespace": "a", "name": "b", "networks": "[{\"nam\": \"x\u001b[2J\"}]"}"#), PIPED));
    assert!(broken.contains("invalid: ") && !broken.contains('\u{1b}'), "{broken}");
    let none = plain(&render(&object(r#"{"namespace": "a", "name": "c", "sandboxes": [{"state": "Attached"}]}"#), PIPED));
    assert!(none.contains("asked for        the default network alone\n") && none.contains("sandbox -: Attached\n"), "{none}");
    let empty = plain(&render(&object("{}"), PIPED));
    assert!(empty.starts_with("-/-: Not attached\n  UID              -\n"), "{empty}");
}

#[test]
fn a_thousand_selections_do_not_fill_the_screen() {
    let many = vec!["infra/backbone"; 1000].join(",");
    let text = plain(&render(&object(&format!(r#"{{"namespace": "a", "name": "b", "networks": "{many}"}}"#)), terminal(80)));
    assert!(text.lines().count() < 60, "{} lines", text.lines().count());
    assert!(text.contains("... and 960 more: see them with -o json"), "{text}");
}

#[test]
fn a_failed_del_does_not_hide_the_next_sandbox() {
    let o = attached().replace(r#""verb": "ADD", "container": "0123"#, r#""verb": "DEL", "code": 5, "error": "no", "container": "9999"#);
    let text = plain(&render(&object(&o), PIPED));
    assert!(text.starts_with("default/web-0: Attaching\n") && text.contains("last call: DEL failed after 11.2 ms"), "{text}");
    let same = attached().replace(r#""verb": "ADD""#, r#""verb": "DEL", "code": 5, "error": "no""#);
    assert!(plain(&render(&object(&same), PIPED)).starts_with("default/web-0: Failed (DEL at 2026"), "the same sandbox");
}
