//! `netloom status`

use super::super::status::render;
use super::{PIPED, object, plain, terminal, widest};

const READY: &str = r#"{"version": "0.1.0", "node": "worker-1", "since": "2026-11-21T13:02:11Z", "pid": 4711, "ready": true,
    "defaultNetwork": "/etc/cni/net.d/10-cbr0.conflist", "defaultNetworkName": "cbr0", "api": "in step", "sandboxes": 12,
    "calls": 3, "workers": 16, "retired": 0, "statusesWaiting": [], "differing": 0, "weather": {"of": ["a", "newer", "agent"]}}"#;

#[test]
fn a_ready_agent() {
    let text = render(&object(READY), false, PIPED);
    assert!(text.contains("\u{1b}[32mREADY"), "{text:?}");
    let expected = "\
node             worker-1
state            READY
API server       in step
default network  cbr0 (/etc/cni/net.d/10-cbr0.conflist)
sandboxes        12
differing        0
calls            3 of 16 workers busy
removals         none pending
statuses         none pending
";
    assert_eq!(plain(&text), expected);
    let wide = expected.to_owned() + "version          0.1.0\nsince            2026-11-21T13:02:11Z\npid              4711\n";
    assert_eq!(plain(&render(&object(READY), true, PIPED)), wide);
}

#[test]
fn the_network_that_the_agent_provides() {
    let o = object(
        r#"{"network": {"mode": "auto", "mtu": 1450, "ranges": ["10.1.1.0/24", "fd00:1::/64"], "peers": 3, "peersReached": 2,
            "lacks": [], "problems": ["node c has no usable InternalIP"]}}"#,
    );
    let text = plain(&render(&o, false, PIPED));
    let expected = "\
cluster network  auto, 2 of 3 other nodes reached, MTU 1450
pod ranges       10.1.1.0/24, fd00:1::/64
                 node c has no usable InternalIP
";
    assert!(text.contains(expected), "{text}");
    let alone =
        object(r#"{"network": {"mode": "direct", "ranges": [], "peers": 0, "peersReached": 0, "lacks": ["Node a has no podCIDR yet"]}}"#);
    let text = plain(&render(&alone, false, PIPED));
    assert!(
        text.contains("cluster network  direct, no other node\npod ranges       -\n                 Node a has no podCIDR yet\n"),
        "{text}"
    );
}

#[test]
fn who_waits_for_a_worker() {
    let calls = |waiting: u64| {
        let o = object(&format!(r#"{{"calls": 8, "workers": 16, "callsWaiting": {waiting}}}"#));
        plain(&render(&o, false, PIPED)).lines().find_map(|line| line.strip_prefix("calls            ").map(str::to_owned)).unwrap()
    };
    assert_eq!(
        [0, 1, 32].map(calls),
        ["8 of 16 workers busy", "8 of 16 workers busy, 1 call queued", "8 of 16 workers busy, 32 calls queued"]
    );
    let o = object(r#"{"calls": 8, "workers": 16, "callsWaiting": 32, "longestWaiting": 75}"#);
    let text = plain(&render(&o, false, PIPED));
    assert!(text.contains("8 of 16 workers busy, 32 calls queued for up to 75 s\n"), "{text}");
}

#[test]
fn why_it_is_not_ready_is_told_in_red_within_the_terminal() {
    let why =
        "no network configuration named \\\"cbr0\\\" in /etc/cni/net.d: there are 99-loopback, 10-other; write one there, or correct it";
    let o = object(&format!(r#"{{"node": "n", "ready": false, "why": "{why}"}}"#));
    let text = render(&o, false, terminal(80));
    assert!(widest(&text) <= 80, "{text}");
    let lines: Vec<String> = plain(&text).lines().map(str::to_owned).collect();
    assert_eq!(lines[1], "state            NOT READY: no network configuration named \"cbr0\" in");
    assert!(lines[2].starts_with("                 /etc/cni/net.d: there are"), "{lines:#?}");
    assert_eq!(text.matches("\u{1b}[31m").count(), 3, "each line of the reason is red: {text:?}");
    let same = plain(&render(&object(r#"{"ready": false, "why": "no answer", "api": "no answer"}"#), false, PIPED));
    assert!(same.contains("state            NOT READY: no answer\nAPI server       see above\n"), "{same}");
    let silent = plain(&render(&object(r#"{"ready": false}"#), false, PIPED));
    assert!(silent.contains("NOT READY: see the agent's log"), "{silent}");
}

#[test]
fn what_waits_is_named() {
    let o = object(r#"{"retired": 2, "statusesWaiting": ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"], "differing": 1}"#);
    let text = plain(&render(&o, false, PIPED));
    assert!(text.contains("removals         2 sandboxes pending\n"), "{text}");
    assert!(text.contains("statuses         7 pending for the API server: a/1, a/2, a/3, a/4, a/5, and 2 more\n"), "{text}");
    assert!(text.contains("differing        1 changed since the attachment: see `netloom pods`\n"), "{text}");
    let before = object(r#"{"preferredByRuntime": ["/etc/cni/net.d/00-multus.conf", "/etc/cni/net.d/00-netlab.conf"]}"#);
    let told = plain(&render(&before, false, PIPED));
    assert!(told.contains("\nruntime          uses /etc/cni/net.d/00-multus.conf, which sorts before Netloom's configuration\n"), "{told}");
    // An agent that only counts them.
    let counted = plain(&render(&object(r#"{"retired": 1, "statusesWaiting": 1}"#), false, PIPED));
    assert!(counted.contains("removals         1 sandbox pending\nstatuses         1 pending for the API server\n"), "{counted}");
}

#[test]
fn what_an_older_agent_does_not_tell_is_a_dash() {
    let text = plain(&render(&object("{}"), true, PIPED));
    assert_eq!(text.lines().count(), 12, "{text}");
    for line in text.lines() {
        let (key, value) = line.split_at(17);
        assert!(value.starts_with('-'), "{key}: {value}");
    }
    // Nor is something taken for what it is not.
    let odd = plain(&render(&object(r#"{"node": 7, "ready": "yes", "sandboxes": "many", "statusesWaiting": {}}"#), false, PIPED));
    assert!(odd.starts_with("node             -\nstate            -\n"), "{odd}");
}
