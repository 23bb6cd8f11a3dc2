//! Many at once, and processes that are killed between any two steps.

use std::collections::BTreeSet;

use netloom_tests::{Host, at, plugin_dir};
use serde_json::{Value, json};

use crate::whereabouts::{add, call, config, del, gets, got, range, scene};

/// Two families, one range of which another configuration has a part.
fn both() -> Value {
    config(json!({"ipRanges": [{"range": "10.9.0.0/26"}, {"range": "fd00::/64"}]}))
}

fn part() -> Value {
    config(json!({"ipRanges": [{"range": "10.9.0.0/26", "range_start": "10.9.0.3"}, {"range": "fd00::/80"}]}))
}

#[test]
fn many_at_once() {
    let host = scene();
    let all: Vec<String> = std::thread::scope(|scope| {
        let one = |n: usize| {
            let config = if n.is_multiple_of(2) { both() } else { part() };
            got(&at(&host, "c1").set("CNI_CONTAINERID", &format!("pod{n}")).call("ADD", "whereabouts", config.to_string()))
        };
        let threads: Vec<_> = (0..24).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let unique: BTreeSet<&str> = all.iter().map(|a| a.split('/').next().unwrap()).collect();
    assert_eq!((all.len(), unique.len()), (48, 48), "{all:?}");
}

const TRACE: &str = "/run/points";

fn run(host: &Host, verb: &str, variable: (&str, &str)) -> i32 {
    let cni = host.cni(plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", "dying").set(variable.0, variable.1);
    cni.call(verb, "whereabouts", both().to_string()).code
}

/// So many have addresses that what they have is not read for a call about one attachment: nobody notices that it is damaged. The
/// lowest address is the lowest of all, whoever had it.
#[test]
fn among_many() {
    let host = scene();
    let name = |n: usize| format!("pod{n}");
    let all: Vec<Vec<String>> = (0..40).map(|n| gets(&host, &name(n), &both())).collect();
    assert_eq!(
        (all[0].clone(), all[39].clone()),
        (vec!["10.9.0.1/26".into(), "fd00::1/64".into()], vec!["10.9.0.40/26".into(), "fd00::28/64".into()])
    );
    let dir = host.path("/var/lib/netloom/ipam");
    let snapshot = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.extension().is_some_and(|e| e == "snapshot"));
    let snapshot = snapshot.expect("a snapshot, which is told in short");
    let whole = std::fs::read(&snapshot).unwrap();
    let mut bytes = whole.clone();
    bytes[60] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    // One that the snapshot has, one that came since, and one that comes again.
    [3, 30, 0].iter().for_each(|n| del(&host, &name(*n), &both()));
    for (container, n) in [("new0", 0), ("pod3", 3), ("new30", 30)] {
        assert_eq!(gets(&host, container, &both()), all[n]);
    }
    del(&host, "new0", &both());
    del(&host, "pod7", &both());
    assert_eq!([gets(&host, "x", &both()), gets(&host, "y", &both())], [all[0].clone(), all[7].clone()]);
    assert_eq!(gets(&host, "z", &both()), ["10.9.0.41/26", "fd00::29/64"]);
    let mut known = both();
    known["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": all[5][0]}, {"address": all[5][1]}]});
    call(&host, "CHECK", &name(5), &known).silent();
    let status = call(&host, "STATUS", "c1", &both());
    assert!(status.error()["code"] == 50 && status.message().contains("is damaged at byte"), "{status:?}");
    std::fs::write(&snapshot, whole).unwrap();
    call(&host, "STATUS", "c1", &both()).silent();
    assert_eq!(gets(&host, "more", &both()), ["10.9.0.42/26", "fd00::2a/64"]);
}

#[test]
fn killed_at_every_point() {
    killed_everywhere(1);
}

#[test]
fn killed_at_every_point_among_many() {
    killed_everywhere(30);
}

fn killed_everywhere(keepers: usize) {
    for verb in ["ADD", "DEL"] {
        let host = scene();
        let keepers: Vec<Vec<String>> = (0..keepers).map(|n| gets(&host, &format!("keeper{n}"), &both())).collect();
        let begin = || {
            if verb == "DEL" {
                crate::whereabouts::add(&host, "dying", &both()).result();
            }
        };
        begin();
        assert_eq!(run(&host, verb, ("NETLOOM_CRASH_TRACE", TRACE)), 0, "{verb}");
        let text = std::fs::read_to_string(host.path(TRACE)).unwrap();
        del(&host, "dying", &both());
        let mut points: Vec<String> = Vec::new();
        for name in text.lines().map(|l| l.split_whitespace().next().unwrap()) {
            let count = points.iter().filter(|p| p.split(':').next() == Some(name)).count() + 1;
            points.push(format!("{name}:{count}"));
        }
        let reached = if verb == "ADD" { "whereabouts-reserved:1" } else { "journal-" };
        assert!(points.iter().any(|p| p.starts_with(reached)), "{verb}: {points:?}");
        for point in &points {
            begin();
            assert_eq!(run(&host, verb, ("NETLOOM_CRASH_AT", point)), -1, "{verb} was to be killed at {point}");
            assert_eq!(got(&crate::whereabouts::add(&host, "keeper0", &both())), keepers[0], "{verb} {point}");
            del(&host, "dying", &both());
            let n = keepers.len() + 1;
            let lowest = [format!("10.9.0.{n}/26"), format!("fd00::{n:x}/64")];
            assert_eq!(got(&crate::whereabouts::add(&host, "next", &both())), lowest, "{verb} {point}");
            del(&host, "next", &both());
        }
    }
}

/// A node whose agent is away: a range that it has not seen may be the cluster's, and is not taken for the node's own.
#[test]
fn a_range_that_only_the_agent_knows() {
    let host = scene();
    gets(&host, "pod1", &range("10.9.0.0/29"));
    host.write("/var/lib/netloom/ipam/agent", "/run/netloom/agent.sock");
    gets(&host, "pod2", &range("10.9.0.0/29"));
    let refused = add(&host, "pod3", &range("10.8.0.0/29"));
    let error = refused.error();
    assert_eq!(error["code"], 11, "{error}");
    assert!(error["msg"].as_str().unwrap().contains("may belong to the cluster"), "{error}");
    std::fs::remove_file(host.path("/var/lib/netloom/ipam/agent")).unwrap();
    gets(&host, "pod3", &range("10.8.0.0/29"));
}

/// The journal is damaged: who has an address of a range is known from what a runtime keeps, and keeps it.
#[test]
fn a_damaged_journal_is_made_anew() {
    let host = crate::whereabouts::scene();
    host.container("c3");
    let cni = |verb: &str, container: &str| {
        let mut command = host.command("", netloom_tests::netloom());
        command.args(["cni", verb, "wb", &format!("/run/netns/{container}"), "--conf-dir", "/var/lib/net.d"]);
        command.env("CNI_PATH", netloom_tests::plugin_dir()).output().unwrap()
    };
    let ip = |output: &std::process::Output| {
        assert!(output.status.success(), "{output:?}");
        netloom_tests::ips(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let n = 1 + std::process::id() % 250;
    let ranges = json!({"type": "whereabouts", "range": format!("10.67.{n}.0/24"), "gateway": format!("10.67.{n}.1"),
        "ipRanges": [{"range": format!("fd67:{n}::/64")}]});
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": ranges});
    host.write("/var/lib/net.d/wb.conflist", &json!({"cniVersion": "1.1.0", "name": "wb", "plugins": [bridge]}).to_string());
    let held = ip(&cni("add", "c1"));
    let log = host.path("/var/lib/netloom/ipam/0000000000000000.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[40..60].fill(0xa5);
    std::fs::write(&log, bytes).unwrap();
    let rebuild = || host.command("", netloom_tests::netloom()).args(["ipam", "check", "--rebuild", "--yes"]).output().unwrap();
    // An agent might know that the range is the cluster's.
    host.write("/var/lib/netloom/ipam/agent", "/run/agent.sock");
    let output = rebuild();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("only the agent knows"), "{output:?}");
    std::fs::remove_file(host.path("/var/lib/netloom/ipam/agent")).unwrap();
    let output = rebuild();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("with 1 attachment, and 0 addresses"), "{output:?}");
    let other = ip(&cni("add", "c2"));
    assert!(other.iter().all(|address| !held.contains(address)), "{other:?} {held:?}");
    assert!(cni("del", "c1").status.success());
    assert_eq!(ip(&cni("add", "c3")), held, "what is given back is free");
    ["c2", "c3"].iter().for_each(|container| drop(cni("del", container)));
}
