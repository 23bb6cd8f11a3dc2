//! Processes that are killed between any two steps, and machines that start anew.

use netloom_tests::{Host, plugin_dir};
use serde_json::json;

use crate::pool::{JOURNAL, POOLS, add, all_free, alone, collect, del, got, grant, range, scene};

const TRACE: &str = "/run/points";

/// A call by an executable with crash points.
fn run(host: &Host, verb: &str, container: &str, variable: (&str, &str)) -> i32 {
    let cni = host.cni(plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", container).set(variable.0, variable.1);
    let mut config = alone();
    if verb == "GC" {
        config["cni.dev/valid-attachments"] = json!([{"containerID": "keeper", "ifname": "eth0"}]);
    }
    cni.call(verb, "pool", config.to_string()).code
}

/// Every point that a call comes by: `NAME:N`.
fn points(host: &Host, verb: &str, container: &str) -> Vec<String> {
    assert_eq!(run(host, verb, container, ("NETLOOM_CRASH_TRACE", TRACE)), 0, "{verb}");
    let text = std::fs::read_to_string(host.path(TRACE)).unwrap();
    std::fs::remove_file(host.path(TRACE)).unwrap();
    let mut seen = Vec::new();
    for name in text.lines().map(|l| l.split_whitespace().next().unwrap()) {
        let count = seen.iter().filter(|s: &&String| s.split(':').next() == Some(name)).count() + 1;
        seen.push(format!("{name}:{count}"));
    }
    assert!(seen.iter().any(|p| p.starts_with("journal-")), "{verb}: {seen:?}");
    seen
}

fn empty(host: &Host) -> usize {
    all_free(host).len()
}

/// Whoever dies where: the keeper keeps its address, nobody else has it, and nothing is lost when the dead one is cleared.
#[test]
fn killed_at_every_point() {
    for verb in ["ADD", "DEL", "GC"] {
        killed_everywhere(&scene(&range("10.9.0.1-10.9.0.5")), verb, &["keeper"]);
    }
}

/// So many others that what they have is not read for a call about one attachment.
#[test]
fn killed_at_every_point_among_many() {
    let keepers: Vec<String> = (0..30).map(|n| format!("keeper{n}")).collect();
    let keepers: Vec<&str> = keepers.iter().map(String::as_str).collect();
    for verb in ["ADD", "DEL"] {
        killed_everywhere(&scene(&range("10.9.0.1-10.9.0.34")), verb, &keepers);
    }
}

fn killed_everywhere(host: &Host, verb: &str, keepers: &[&str]) {
    let kept: Vec<String> = keepers.iter().flat_map(|keeper| got(&add(host, keeper))).collect();
    if verb != "ADD" {
        add(host, "dying").result();
    }
    let points = points(host, verb, "dying");
    del(host, "dying");
    for point in &points {
        if verb != "ADD" {
            add(host, "dying").result();
        }
        assert_eq!(run(host, verb, "dying", ("NETLOOM_CRASH_AT", point)), -1, "{verb} was to be killed at {point}");
        let free = all_free(host);
        assert!(!free.iter().any(|free| kept.contains(free)) && free.len() >= 3, "{verb} {point}: {free:?}");
        if verb == "ADD" {
            collect(host, keepers).silent();
        } else {
            del(host, "dying");
        }
        assert_eq!(empty(host), 4, "{verb} {point}");
    }
}

/// The first ADD makes directory and journal.
#[test]
fn the_first_add_of_all_is_killed() {
    let host = scene(&range("10.9.0.1-10.9.0.5"));
    for point in points(&host, "ADD", "dying") {
        std::fs::remove_dir_all(host.path(JOURNAL)).unwrap();
        assert_eq!(run(&host, "ADD", "dying", ("NETLOOM_CRASH_AT", &point)), -1, "{point}");
        del(&host, "dying");
        assert_eq!(empty(&host), 5, "{point}");
    }
}

/// Another boot's ID where the kernel has its own, in the mount namespace of this machine.
#[test]
fn the_machine_starts_anew() {
    let mut spec = range("10.9.0.1-10.9.0.5");
    spec["reuse"] = json!({"cooldownSeconds": 1_000_000_000});
    let host = scene(&spec);
    ["c1", "c2"].iter().for_each(|c| drop(add(&host, c).result()));
    host.write("/run/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
    host.sh("", "mount --bind /run/boot_id /proc/sys/kernel/random/boot_id");
    // Nobody holds anything any more, but it rests.
    let first = got(&add(&host, "new"));
    let cooling: usize = (0..9)
        .map(|n| add(&host, &format!("more{n}")))
        .filter(|o| o.code != 0)
        .map(|o| {
            assert!(o.message().contains("3 held, 2 cooling down"), "{o:?}");
            1
        })
        .sum();
    assert!(cooling == 7 && !first.is_empty());
    spec["reuse"] = json!({"cooldownSeconds": 0});
    grant(&host, &spec);
    assert_eq!(empty(&host), 2);
    assert!(host.list(POOLS).contains(&"lab.json".to_owned()));
}

/// Makes the log so long that the next ADD replaces it by a snapshot: each change of a pool with many exclusions is a long record.
fn lengthen(host: &Host) {
    for n in 0..9 {
        let mut spec = range("10.9.0.1-10.9.0.5");
        spec["exclude"] = (0..5000).map(|i| json!(format!("10.2{n}.{}.{}", i / 125, i % 125 * 2))).collect();
        grant(host, &spec);
        // Who has its address already is answered without a look at the log's length.
        add(host, "keeper").result();
    }
    grant(host, &range("10.9.0.1-10.9.0.5"));
}

/// Whoever dies while a log is replaced by a snapshot loses nothing.
#[test]
fn killed_while_a_snapshot_is_made() {
    let host = scene(&range("10.9.0.1-10.9.0.5"));
    let kept = got(&add(&host, "keeper"));
    for point in ["journal-turned:1", "journal-snapshot-written:1", "journal-snapshot-named:1", "journal-old-removed:1"] {
        lengthen(&host);
        assert_eq!(run(&host, "ADD", "dying", ("NETLOOM_CRASH_AT", point)), -1, "{point}");
        assert_eq!(got(&add(&host, "keeper")), kept, "{point}");
        let free = all_free(&host);
        assert!(free.len() == 3 && !free.contains(&kept[0]), "{point}: {free:?}");
        del(&host, "dying");
        assert_eq!(empty(&host), 4, "{point}");
    }
}

/// The same with a snapshot that is told in short, which an ADD makes where there was none, or another pool since.
#[test]
fn killed_while_what_is_told_in_short_is_made() {
    let host = scene(&range("10.9.0.1-10.9.0.34"));
    let kept: Vec<String> = (0..30).flat_map(|n| got(&add(&host, &format!("keeper{n}")))).collect();
    for (n, point) in
        ["journal-turned:1", "journal-snapshot-written:1", "journal-snapshot-named:1", "journal-old-removed:1"].iter().enumerate()
    {
        let mut spec = range("10.9.0.1-10.9.0.34");
        spec["exclude"] = json!([format!("10.8.0.{n}")]);
        grant(&host, &spec);
        // What it has already is in the log, and the pool as it is now.
        assert_eq!(got(&add(&host, "keeper0")), kept[..1]);
        assert_eq!(run(&host, "ADD", "dying", ("NETLOOM_CRASH_AT", point)), -1, "{point}");
        let free = all_free(&host);
        assert!(free.len() == 3 && !free.iter().any(|free| kept.contains(free)), "{point}: {free:?}");
        del(&host, "dying");
        assert_eq!(empty(&host), 4, "{point}");
        assert_eq!(got(&add(&host, "keeper7")), kept[7..8], "{point}");
    }
}
