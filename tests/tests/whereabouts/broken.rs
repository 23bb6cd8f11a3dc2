//! Many at once, and processes that are killed between any two steps.

use std::collections::BTreeSet;

use netloom_tests::{Host, at, crashing_plugin_dir};
use serde_json::{Value, json};

use crate::{add, config, del, gets, got, range, scene};

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
    let cni = host.cni(crashing_plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", "dying").set(variable.0, variable.1);
    cni.call(verb, "whereabouts", both().to_string()).code
}

#[test]
fn killed_at_every_point() {
    for verb in ["ADD", "DEL"] {
        let host = scene();
        let kept = got(&crate::add(&host, "keeper", &both()));
        let begin = || {
            if verb == "DEL" {
                crate::add(&host, "dying", &both()).result();
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
            assert_eq!(got(&crate::add(&host, "keeper", &both())), kept, "{verb} {point}");
            del(&host, "dying", &both());
            assert_eq!(got(&crate::add(&host, "next", &both())), ["10.9.0.2/26", "fd00::2/64"], "{verb} {point}");
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
    assert!(error["msg"].as_str().unwrap().contains("may be the cluster's"), "{error}");
    std::fs::remove_file(host.path("/var/lib/netloom/ipam/agent")).unwrap();
    gets(&host, "pod3", &range("10.8.0.0/29"));
}
