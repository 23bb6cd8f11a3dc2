//! Disks that are full, read-only or forgetful: what is told, and what goes on afterwards.

use netloom_tests::{Host, Outcome};

use crate::pool::{JOURNAL, add, all_free, alone, call, collect, del, got, range, scene};

fn log(host: &Host) -> std::path::PathBuf {
    let name = host.list(JOURNAL).into_iter().rfind(|n| n.ends_with(".log")).unwrap();
    host.path(format!("{JOURNAL}/{name}"))
}

/// How far it is written.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b != 0).unwrap() + 1
}

fn says(outcome: &Outcome, code: u64, parts: &[&str]) {
    assert_eq!(outcome.error()["code"], code, "{outcome:?}");
    parts.iter().for_each(|part| assert!(outcome.message().contains(part), "{part}: {outcome:?}"));
}

/// A power cut takes a part of what was written last, and of nothing that was answered before.
#[test]
fn a_torn_tail_is_dropped() {
    let host = scene(&range("10.9.0.1-10.9.0.3"));
    let kept = got(&add(&host, "c1"));
    let before = used(&std::fs::read(log(&host)).unwrap());
    add(&host, "c2").result();
    let whole = std::fs::read(log(&host)).unwrap();
    let after = used(&whole);
    for end in (before..after).step_by(7) {
        let mut torn = whole.clone();
        torn[end..].fill(0);
        std::fs::write(log(&host), &torn).unwrap();
        let free = all_free(&host);
        assert!(free.len() == 2 && !free.contains(&kept[0]), "at {end}: {free:?}");
    }
}

#[test]
fn a_byte_that_flips_is_told_and_nothing_is_served() {
    let host = scene(&range("10.9.0.1-10.9.0.9"));
    ["c1", "c2", "c3"].iter().for_each(|c| drop(add(&host, c).result()));
    let mut bytes = std::fs::read(log(&host)).unwrap();
    let at = used(&bytes) / 2;
    bytes[at] ^= 0x10;
    std::fs::write(log(&host), &bytes).unwrap();
    let parts =
        ["0000000000000000.log is damaged at byte ", "netloom ipam --dir /var/lib/netloom/ipam check --rebuild", "docs/use/pools.md"];
    says(&add(&host, "c4"), 5, &parts);
    says(&call(&host, "DEL", "c1", &alone()), 5, &parts);
    says(&call(&host, "STATUS", "c1", &alone()), 50, &parts);
    // Where nothing runs any more, there is nothing to make it anew from (tests/ipam does that): it may as well go.
    host.sh("", "mv /var/lib/netloom/ipam /var/lib/netloom/ipam.damaged");
    assert_eq!(all_free(&host).len(), 9);
}

#[test]
fn a_disk_that_is_full_or_read_only() {
    let host = scene(&range("10.9.0.1-10.9.0.3"));
    host.sh("", &format!("mkdir -p {JOURNAL}"));
    host.sh("", &format!("mount -t tmpfs -o size=64k tmpfs {JOURNAL}"));
    says(&add(&host, "c1"), 5, &["/var/lib/netloom/ipam/0000000000000000.log", "No space left on device"]);
    host.sh("", &format!("mount -o remount,size=1m {JOURNAL}"));
    let kept = got(&add(&host, "c1"));
    host.sh("", &format!("mount -o remount,ro {JOURNAL}"));
    let readonly = ["/var/lib/netloom/ipam", "Read-only file system"];
    says(&add(&host, "c2"), 5, &readonly);
    says(&call(&host, "DEL", "c1", &alone()), 5, &readonly);
    says(&call(&host, "STATUS", "c1", &alone()), 50, &readonly);
    host.sh("", &format!("mount -o remount,rw {JOURNAL}"));
    let free = all_free(&host);
    assert!(free.len() == 2 && !free.contains(&kept[0]), "{free:?}");
    del(&host, "c1");
    assert_eq!(all_free(&host).len(), 3);
}

/// What others hold is not read for a call about one attachment: neither is what has become of it. Who needs all of it is told.
#[test]
fn a_byte_that_flips_in_what_others_hold() {
    let host = scene(&range("10.9.0.1-10.9.0.40"));
    (0..30).for_each(|n| drop(add(&host, &format!("other{n}")).result()));
    let name = host.list(JOURNAL).into_iter().rfind(|n| n.ends_with(".snapshot")).unwrap();
    let path = host.path(format!("{JOURNAL}/{name}"));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|w| w == b"other9").unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    let new = got(&add(&host, "new"));
    assert_eq!(got(&add(&host, "new")), new);
    assert_eq!(call(&host, "CHECK", "new", &with_prev(&new)).code, 0);
    let lost = format!("{name} is damaged at byte ");
    says(&add(&host, "other9"), 5, &[&lost]);
    says(&collect(&host, &["new"]), 5, &[&lost]);
    del(&host, "new");
    del(&host, "other3");
    says(&call(&host, "STATUS", "c1", &alone()), 50, &[&lost]);
}

fn with_prev(addresses: &[String]) -> serde_json::Value {
    let mut config = alone();
    let ips: Vec<_> = addresses.iter().map(|address| serde_json::json!({"address": address})).collect();
    config["prevResult"] = serde_json::json!({"cniVersion": "1.1.0", "ips": ips});
    config
}
