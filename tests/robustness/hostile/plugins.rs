//! Executables that misbehave, reached in the three ways: in a chain, as the IPAM of another plugin, in a lab.

use std::time::{Duration, Instant};

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

use crate::hostile::{bridge, cni, command, outcome, plugin, used};

/// What a plugin does on ADD; it succeeds at everything else.
struct Bad {
    name: &'static str,
    script: &'static str,
    code: u64,
    says: &'static [&'static str],
}

const BAD: [Bad; 12] = [
    Bad { name: "a gigabyte", script: "head -c 1073741824 /dev/zero", code: 999, says: &["bad printed more than 8388608 bytes", "killed"] },
    Bad { name: "a gigabyte of errors", script: "head -c 1073741824 /dev/zero >&2", code: 999, says: &["bad printed more than", "killed"] },
    Bad { name: "garbage", script: "head -c 100000 /dev/urandom", code: 6, says: &["the result is not valid JSON"] },
    Bad {
        name: "garbage and failure",
        script: "printf '\\033[2J\\000\\377'; exit 1",
        code: 0,
        says: &["bad: netplugin failed", "not a CNI error"],
    },
    Bad { name: "half a result", script: "printf '{\"cniVersion\":\"1.0.0\",'", code: 6, says: &["not valid JSON", "line 1"] },
    Bad { name: "nothing", script: "true", code: 6, says: &["the result is empty"] },
    Bad { name: "nested", script: "printf '[%.0s' $(seq 100000)", code: 6, says: &["not valid JSON"] },
    Bad { name: "another shape", script: "echo '{\"ips\": 7}'", code: 6, says: &["in the result", "ips"] },
    Bad { name: "of the future", script: "echo '{\"cniVersion\": \"9.0.0\"}'", code: 6, says: &["cniVersion", "9.0.0"] },
    Bad { name: "killed", script: "kill -9 $$", code: 0, says: &["bad: netplugin failed (signal: 9", "no error message"] },
    Bad { name: "closed input", script: "exec 0<&-; exit 3", code: 0, says: &["exit status: 3", "no error message"] },
    Bad { name: "much to say", script: "head -c 1000000 /dev/zero | tr '\\0' x; exit 1", code: 0, says: &["xxx", "not a CNI error"] },
];

/// A result, as far as one is needed.
const FINE: &str = r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.9/24"}]}'"#;

fn only_add(script: &str) -> String {
    format!("[ $CNI_COMMAND = ADD ] || exit 0\n{script}")
}

/// A list of a built-in plugin that makes something, and the one under test.
fn chain(last: &str) -> Value {
    let mut first = bridge(json!({}));
    first.as_object_mut().unwrap().remove("cniVersion");
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [first, {"type": last}]})
}

fn definition(name: &str, config: &Value) -> String {
    format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec: {{config: '{config}'}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{k8s.v1.cni.cncf.io/networks: '{name}'}}}}\n"
    )
}

/// What may reach a terminal: a message has no control characters but the ends of its lines.
fn is_printable(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

#[test]
fn what_a_plugin_of_a_chain_does_is_told_and_undone() {
    let host = used();
    host.write("/etc/cni/net.d/1.conflist", &chain("bad").to_string());
    for bad in &BAD {
        plugin(&host, "bad", &only_add(bad.script));
        let before = host.traces();
        let done = outcome(command(&host, &["cni", "add", "net", "/run/netns/c1"]));
        let error = done.error();
        assert!(error["code"] == bad.code && bad.says.iter().all(|word| done.message().contains(word)), "{}: {error}", bad.name);
        assert!(is_printable(&done.stdout) && is_printable(&done.stderr), "{}: {done:?}", bad.name);
        assert!(done.stdout.len() < 20_000 && done.stderr.len() < 20_000, "{}: {}", bad.name, done.stdout.len());
        host.expect_traces(&before, bad.name);
    }
}

#[test]
fn what_an_ipam_plugin_does_is_told_and_undone() {
    let host = used();
    for bad in &BAD {
        plugin(&host, "bad", &only_add(bad.script));
        let before = host.traces();
        let done = cni(&host).call("ADD", "bridge", bridge(json!({"ipam": {"type": "bad"}})).to_string());
        let error = done.error();
        assert!(error["code"] == bad.code && bad.says.iter().all(|word| done.message().contains(word)), "{}: {error}", bad.name);
        assert!(is_printable(&done.stdout) && done.stderr.is_empty(), "{}: {done:?}", bad.name);
        host.expect_traces(&before, bad.name);
    }
}

#[test]
fn what_a_plugin_of_a_lab_does_is_told_and_undone() {
    let host = Host::new();
    for bad in [&BAD[0], &BAD[2], &BAD[3], &BAD[10]] {
        plugin(&host, "bad", &only_add(bad.script));
        host.write("/run/all.yaml", &definition("net", &chain("bad")));
        let before = host.traces();
        let done = outcome(command(&host, &["lab", "up", "/run/all.yaml"]));
        assert!(done.code == 3 && bad.says.iter().all(|word| done.stderr.contains(word)), "{}: {done:?}", bad.name);
        assert!(is_printable(&done.stderr), "{}: {done:?}", bad.name);
        let down = outcome(command(&host, &["lab", "down"]));
        assert_eq!((down.code, down.stderr.as_str()), (0, ""), "{}", bad.name);
        host.expect_traces(&before, bad.name);
    }
}

/// Whether a process is there and has not ended; one whose parent does not care stays as a zombie.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The numbers that plugins wrote down, once.
fn noted(host: &Host) -> Vec<String> {
    let text = std::fs::read_to_string(host.path("/run/pids")).unwrap_or_default();
    let _ = std::fs::remove_file(host.path("/run/pids"));
    text.lines().map(str::to_owned).collect()
}

/// A child that keeps the plugin's output open is not waited for, whether it can be ended or has a group of its own.
#[test]
fn a_child_that_is_left_behind_holds_nobody_up() {
    let host = used();
    for (start, is_ended) in [("sleep 300", true), ("setsid sleep 300", false)] {
        plugin(&host, "leaver", &format!("[ $CNI_COMMAND = ADD ] || exit 0\n{start} &\necho $! >>/run/pids\n{FINE}"));
        let begun = Instant::now();
        let config = bridge(json!({"ipam": {"type": "leaver"}}));
        let result = cni(&host).add(&config);
        assert!(begun.elapsed() < Duration::from_secs(120) && result["ips"][0]["address"] == "10.1.0.9/24", "{start}: {result}");
        cni(&host).del(&config, &result);
        let pids = noted(&host);
        assert_eq!(pids.len(), 1);
        match is_ended {
            true => host.until("the child to end", || !runs(&pids[0])),
            false => assert!(std::process::Command::new("kill").args(["-9", &pids[0]]).status().unwrap().success()),
        }
    }
}

/// Nor does what one has left in its group outlive its failure, though it holds nothing open. In a session of its own it does without an
/// agent: `what_a_plugin_leaves_when_it_fails` has it with one.
#[test]
fn a_child_of_a_plugin_that_fails_is_ended() {
    let host = used();
    plugin(&host, "leaver", "[ $CNI_COMMAND = ADD ] || exit 0\nsleep 300 >/dev/null 2>&1 &\necho $! >>/run/pids\nexit 1");
    let done = cni(&host).call("ADD", "bridge", bridge(json!({"ipam": {"type": "leaver"}})).to_string());
    assert_ne!(done.code, 0, "{done:?}");
    let pids = noted(&host);
    assert_eq!(pids.len(), 1);
    host.until("the child to end", || !runs(&pids[0]));
}

/// The time of a command ends also for a plugin that never does, for what it has started, and for its DEL.
#[test]
fn a_plugin_that_never_ends_is_ended() {
    let host = used();
    host.write("/etc/cni/net.d/1.conflist", &chain("sleeper").to_string());
    let endless = [
        "sleep 300 & echo $! >>/run/pids; echo $$ >>/run/pids; trap '' TERM INT HUP; wait; sleep 300",
        // Sleeps: a plugin that never ends.
        "echo $$ >>/run/pids; while :; do printf x; sleep 0.1; done",
        "echo $$ >>/run/pids; kill -STOP $$",
    ];
    for script in endless {
        plugin(&host, "sleeper", &only_add(script));
        let before = host.traces();
        let begun = Instant::now();
        let within = |time| outcome(command(&host, &["cni", "--timeout", time, "add", "net", "/run/netns/c1"]));
        let is_told =
            |done: &netloom_tests::Outcome| done.error()["code"] == 11 && done.message().contains("sleeper timed out and was killed");
        // On a machine that does much else the time may be over before it is the sleeper's turn.
        let mut told = Vec::new();
        let is_ended = ["4", "30"].into_iter().any(|time| {
            told.push(within(time));
            told.last().is_some_and(is_told)
        });
        assert!(is_ended, "{told:?}");
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
        let pids = noted(&host);
        assert!(!pids.is_empty());
        host.until("what it started to end", || !pids.iter().any(|pid| runs(pid)));
        host.expect_traces(&before, script);
    }
}

/// Where nobody chooses the time it is three minutes under another plugin and one in a lab: for a soak alone.
#[test]
fn a_plugin_that_never_ends_is_ended_where_nobody_chose_when() {
    if std::env::var_os("NETLOOM_SOAK").is_none() {
        return;
    }
    let host = used();
    plugin(&host, "sleeper", &only_add("echo $$ >>/run/pids; exec sleep 3000"));
    host.write("/run/all.yaml", &definition("net", &chain("sleeper")));
    let before = host.traces();
    let path = format!("/run/bin:{}", plugin_dir().display());
    let one = host.cni(plugin_dir()).set("CNI_PATH", &path).at("c1", "eth0");
    let ended = "sleeper timed out and was killed";
    let done = one.call("ADD", "bridge", bridge(json!({"ipam": {"type": "sleeper"}})).to_string());
    assert!(done.error()["code"] == 11 && done.message().contains(ended), "{done:?}");
    let lab = |args: &[&str]| {
        let mut command = host.command("", netloom());
        command.arg("lab").args(args).env("CNI_PATH", "/run/bin");
        outcome(command)
    };
    let up = lab(&["up", "/run/all.yaml"]);
    assert!(up.code == 3 && up.stderr.contains(ended), "{up:?}");
    assert_eq!(lab(&["down"]).code, 0);
    let pids = noted(&host);
    assert!(pids.len() == 2 && !pids.iter().any(|pid| runs(pid)), "{pids:?}");
    host.expect_traces(&before, "plugins that never end");
}
