//! The agent killed at each of its crash points, and `netloom-cni` and the installation at theirs.
//!
//! ```text
//!   an agent is traced through a pod's life        NETLOOM_CRASH_TRACE
//!   for each point: an agent that dies there       NETLOOM_CRASH_AT=NAME:N
//!     the runtime goes on as containerd does; the next agent clears up; the pod comes again, and goes
//! ```

use std::collections::{BTreeMap, BTreeSet};

use netloom_tests::{Api, Node, Pod, SETTINGS, SOCKET, Traces, plugin_dir};
use serde_json::json;

use crate::process::chance::soak;

const TRACE: &str = "/run/trace";

/// What is ours alone: the others are come by in other tests too, which try each time that a call comes by them.
const OWN: [&str; 10] = ["agent-", "attach", "retire-", "finish-", "tombstone-", "teardown-", "detach-", "file-", "lock-", "idle-bridge-"];

/// What the pod selects: the last one's bridge is made for it, and goes with it.
const NETWORKS: &str = "mac1,mac2,made";

/// A node whose agents have crash points.
fn node(name: &str) -> Node {
    let node = Node::new(&Api::shared(), name, "");
    let made = json!({"cniVersion": "1.0.0", "name": "made", "type": "bridge", "bridge": "made0", "isGateway": true,
        "ipam": {"type": "static", "addresses": [{"address": "10.79.0.2/24", "gateway": "10.79.0.1"}]}});
    node.define("made", &made.to_string());
    node.restart();
    node
}

/// A pod's life with a variable of the agent that has this value; whether the agent died.
type Life = fn(&Node, &Pod<'_>, &str, &str) -> bool;

/// What was come by, each with how often.
fn traced(node: &Node) -> BTreeMap<String, usize> {
    let path = node.host.path(TRACE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    drop(std::fs::remove_file(path));
    let mut times = BTreeMap::new();
    text.lines().filter_map(|line| line.split(' ').next()).for_each(|name| *times.entry(name.to_owned()).or_default() += 1);
    times
}

/// A pod's life with an agent of this environment, from a DEL that is kept.
fn life_after_another(node: &Node, pod: &Pod<'_>, variable: &str, value: &str) -> bool {
    pod.renew();
    pod.must("ADD");
    node.kill9();
    pod.must("DEL");
    life(node, pod, variable, value)
}

/// A pod's life with an agent of this environment, to the end of what is retired. Where the agent dies the next one does not. Whether it died.
pub(crate) fn life(node: &Node, pod: &Pod<'_>, variable: &str, value: &str) -> bool {
    node.kill9();
    pod.renew();
    node.set(variable, value);
    node.launch();
    let keys = json!({"agentWait": "20s"});
    let mut died = false;
    for verb in ["ADD", "CHECK"] {
        // As long as the one that dies has its socket, nobody waits for another.
        let socket = || node.host.path(SOCKET).exists();
        node.until("it serves, or is dead", || socket() || !node.lives());
        died |= revive(node);
        let outcome = pod.call_with(verb, &keys);
        if outcome.code != 0 {
            assert_eq!(outcome.error()["code"], json!(11), "{variable}={value}: {verb}: {outcome:?}");
            break;
        }
    }
    node.until("DEL succeeds", || {
        let outcome = pod.del();
        died |= outcome.code != 0 && revive(node);
        assert!(outcome.code == 0 || outcome.error()["code"] == json!(11), "{variable}={value}: DEL: {outcome:?}");
        outcome.code == 0
    });
    // What is retired is finished a moment later, perhaps by the one that dies then.
    node.until("what is left is done, or the agent is dead", || !node.lives() || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    died |= revive(node);
    node.set(variable, "");
    pod.renew();
    died
}

/// Where the agent is dead, the next one dies no more. Whether it was.
fn revive(node: &Node) -> bool {
    let died = !node.lives();
    if died {
        node.set("NETLOOM_CRASH_AT", "");
        node.serve();
    }
    died
}

/// Every point that a pod's life comes by, each with how often.
pub(crate) fn traced_life(node: &Node, pod: &Pod<'_>, life: Life) -> BTreeMap<String, usize> {
    life(node, pod, "NETLOOM_CRASH_TRACE", TRACE);
    node.settled();
    node.kill9();
    let points = traced(node);
    node.restart();
    points
}

/// Whether it did.
fn dies(node: &Node, pod: &Pod<'_>, before: &Traces, point: &str) -> bool {
    let died = life_after_another(node, pod, "NETLOOM_CRASH_AT", point);
    node.restart();
    pod.must("ADD");
    pod.must("CHECK");
    pod.must("DEL");
    // The next namespace has another name.
    pod.remove_namespace();
    node.expect(before, &format!("an agent that died at {point}"));
    died
}

/// A pod's life is mostly waited for: several nodes at once.
const NODES: usize = 4;

/// The points, and the times, at which an agent is to die.
fn deaths() -> Vec<String> {
    let node = node("points");
    let pod = node.pod("web", NETWORKS);
    drop(node.before());
    let points = traced_life(&node, &pod, life_after_another);
    let chosen = |(name, times): (&String, &usize)| {
        let all = soak() > 0;
        let which = if all { BTreeSet::from([1, 2.min(*times), *times]) } else { BTreeSet::from([1]) };
        let wanted = all || OWN.iter().any(|own| name.starts_with(own));
        let name = name.clone();
        which.into_iter().filter(move |_| wanted).map(move |time| format!("{name}:{time}"))
    };
    points.iter().flat_map(chosen).collect()
}

#[test]
fn an_agent_dies_at_each_of_its_points() {
    let points = deaths();
    let one_node = |nth: usize| {
        let node = node(&format!("points-{nth}"));
        let pod = node.pod("web", NETWORKS);
        pod.remove_namespace();
        let before = node.before();
        points.iter().skip(nth).step_by(NODES).filter(|point| !dies(&node, &pod, &before, point)).collect::<Vec<_>>()
    };
    let one_node = &one_node;
    let alive: Vec<&String> = std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..NODES).map(|nth| scope.spawn(move || one_node(nth))).collect();
        nodes.into_iter().flat_map(|node| node.join().unwrap()).collect()
    });
    println!("{} deaths: {points:?}; it came not by {alive:?}", points.len());
    assert!(alive.len() * 5 <= points.len(), "it came not by {alive:?}");
    for own in [
        "idle-bridge-cleared",
        "idle-bridge-locked",
        "agent-spooled-done",
        "retire-links-quiet",
        "finish-collected",
        "attach-intended",
        "tombstone-there",
    ] {
        assert!(points.contains(&format!("{own}:1")), "nothing dies at {own}: {points:?}");
    }
}

#[test]
fn a_del_dies_when_it_is_kept() {
    let node = node("kept-dies");
    let before = node.before();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    node.kill9();
    let died =
        pod.cni().set("NETLOOM_CRASH_AT", "del-kept").call("DEL", "netloom", r#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom"}"#);
    assert_eq!((died.code, died.stdout.as_str()), (-1, ""), "{died:?}");
    assert!(node.host.list("/var/lib/netloom/spool").iter().any(|name| name.ends_with(".del")));
    pod.must("DEL");
    node.restart();
    node.settled();
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a DEL that died when it was kept");
}

/// Runs `netloom agent WORDS...` on the node, with a variable where one is given, and whether it succeeded.
fn netloom(node: &Node, words: &[&str], variable: Option<(&str, &str)>) -> bool {
    let mut command = node.host.command("", netloom_tests::netloom());
    command.arg("agent").args(words).args(["--config", SETTINGS]).envs(variable);
    command.output().unwrap().status.success()
}

/// What a killed installation has begun, the next one finishes.
#[test]
fn an_installation_dies_at_each_of_its_points() {
    let node = node("install");
    let program = plugin_dir().join("netloom-cni");
    let install = ["install", "--from", program.to_str().unwrap(), "--with-plugins", "--multus", "--timeout", "20"];
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let settings =
        settings.replace(&format!("binDir: {}", node.bin.display()), "binDir: /run/bin").replace("install: never", "install: ready");
    node.host.write(SETTINGS, &settings);
    let clean = || drop(node.host.run("", &["sh", "-c", "rm -rf /run/bin /run/trace /etc/cni/net.d/* /run/netloom/uninstalled"]));
    let files =
        || node.host.run("", &["sh", "-c", "ls -lA --time-style=+ /run/bin /etc/cni/net.d 2>&1; cat /etc/cni/net.d/* 2>&1 || true"]);
    let mut all = BTreeSet::new();
    for words in [install.as_slice(), &["uninstall"]] {
        let ready = |installed: bool| {
            clean();
            assert!(!installed || netloom(&node, &install, None));
        };
        let is_uninstall = words == ["uninstall"];
        ready(is_uninstall);
        assert!(netloom(&node, words, Some(("NETLOOM_CRASH_TRACE", TRACE))), "{words:?}");
        let points = traced(&node);
        ready(is_uninstall);
        assert!(netloom(&node, words, None));
        let expected = files();
        for (name, _) in points.iter().filter(|(name, _)| name.starts_with("install-") || name.starts_with("uninstall-")) {
            ready(is_uninstall);
            assert!(!netloom(&node, words, Some(("NETLOOM_CRASH_AT", name))), "{words:?} does not die at {name}");
            assert!(netloom(&node, words, None), "{words:?} after one that died at {name}");
            assert_eq!(files(), expected, "{words:?} after one that died at {name}");
        }
        all.extend(points.into_keys());
    }
    for name in ["install-copied", "install-replaced", "install-linked", "uninstall-marked", "uninstall-entry-removed"] {
        assert!(all.contains(name), "nothing comes by {name}: {all:?}");
    }
}
