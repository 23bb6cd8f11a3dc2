//! Whose time an ADD takes, by the clocks of Open vSwitch's database and of Neutron's agent:
//!
//! ```text
//!   ADD --ours--> ports in the database --Neutron's agent--> wired, "Configuration for devices up" --operator, ours--> the ADD ends
//! ```

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use netloom_tests::Running;

use super::NETWORKS;
use super::cloud::{Cloud, Machine};

/// Pods of one network, and as many of three, one after the other.
const PODS: usize = 15;

const DAY: f64 = 86_400.0;

/// The second of the day, UTC.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64() % DAY
}

/// The same of a line that begins with `2026-11-27 09:19:25.516`.
fn second(line: &str) -> Option<f64> {
    let clock: Vec<f64> = line.get(11..23)?.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(clock.into_iter().fold(0.0, |sum, part| sum * 60.0 + part))
}

/// When a log has said something of a port first: a line without a time has that of the line before.
fn said(log: &str, what: &str, port: &str) -> Option<f64> {
    let mut last = None;
    log.lines().find_map(|line| {
        last = second(line).or(last);
        (line.contains(what) && line.contains(port)).then_some(last).flatten()
    })
}

/// Writes each change of the switch's interfaces into a file.
fn watch(machine: &Machine, log: &File) -> Running {
    let database = format!("unix:{}", machine.switch().socket());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", "exec ovsdb-client \"$@\" >&2", "sh", "--timestamp", "--format=csv", "monitor"]);
    command.args([&database, "Open_vSwitch", "Interface", "external_ids"]).env("TZ", "UTC").stdin(Stdio::null());
    Running::with_log(&mut command, log.try_clone().unwrap())
}

/// In milliseconds, from one second of the day to another.
fn took(from: f64, to: f64) -> f64 {
    (to - from + DAY / 2.0).rem_euclid(DAY).mul_add(1000.0, -DAY * 500.0)
}

fn median(of: &[[f64; 3]], part: usize) -> f64 {
    let mut sorted: Vec<f64> = of.iter().map(|times| times[part]).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Each ADD waits for Neutron's agent, and ends after it. `--nocapture` shows the medians.
#[test]
fn whose_time_an_add_takes() {
    let mut cloud = Cloud::new("share", &NETWORKS);
    cloud.operate();
    let machines = cloud.machines(["share-one", "share-two"]);
    let [machine, _] = &machines;
    cloud.agents(2);
    let path = cloud.file("interfaces.log");
    let rows = || std::fs::read_to_string(&path).unwrap();
    let _watch = watch(machine, &File::create(&path).unwrap());
    cloud.until("the database is watched", || rows().contains("initial"));

    for networks in ["red", "red,blue,green"] {
        let of_pods: Vec<[f64; 3]> =
            (0..PODS).map(|n| times_of(&cloud, machine, &format!("web-{}-{n}", networks.len()), networks, &rows)).collect();
        let [plugged, wired, ended] = [0, 1, 2].map(|part| median(&of_pods, part));
        println!(
            "{PODS} pods of {networks}, medians: plugged {plugged:.1} ms, wired by Neutron's agent {wired:.0} ms, seen by the operator {ended:.0} ms"
        );
    }
}

/// The three times of one pod, in milliseconds: of several ports the last one counts.
fn times_of(cloud: &Cloud, machine: &Machine, name: &str, networks: &str, rows: &impl Fn() -> String) -> [f64; 3] {
    let (pod, count) = (machine.node.pod(name, networks), networks.split(',').count());
    cloud.until("the pod's ports are bound", || cloud.bound(&pod.namespace, &pod.name) == count);
    let begun = now();
    let added = pod.add();
    let ended = now();
    assert_eq!(added.code, 0, "{added:?}");
    let ids = cloud.ports_of(&pod.namespace, &pod.name);
    assert_eq!(ids.len(), count);
    let wired = std::fs::read_to_string(cloud.file("share-one/agent.log")).unwrap();
    let last = |log: &str, what: &str| {
        let of_port = |id: &String| said(log, what, id).unwrap_or_else(|| panic!("nothing says {what:?} of port {id}"));
        ids.iter().map(|id| took(begun, of_port(id))).fold(f64::MIN, f64::max)
    };
    let times = [last(&rows(), "insert"), last(&wired, "Configuration for devices up"), took(begun, ended)];
    assert!(times.is_sorted(), "plugged, wired, and only then the end: {times:?} ms after the ADD began");
    pod.must("DEL");
    [times[0], times[1] - times[0], times[2] - times[1]]
}
