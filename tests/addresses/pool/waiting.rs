//! Who finds a pool short waits in line, each in a process of its own: woken by what is given back, by the end of a cooldown, by
//! a pool that has become larger. Nobody keeps the journal from the others meanwhile.

use std::time::{Duration, Instant};

use netloom_tests::{Host, Outcome};
use serde_json::{Value, json};

use crate::pool::{add, alone, call, del, got, grant, range, scene};

/// Longer than anything that is waited for here.
fn patient() -> Value {
    let mut config = alone();
    config["ipam"]["addWait"] = json!(120);
    config
}

/// An ADD that waits, and what is done when it does: it must have been called for.
fn waits(host: &Host, container: &str, meanwhile: impl FnOnce()) -> Outcome {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call(host, "ADD", container, &patient()));
        // It has looked once, and others are served.
        for n in 0..20 {
            assert_eq!(add(host, &format!("other{n}")).error()["code"], 11);
        }
        assert!(!waiting.is_finished(), "it does not wait");
        meanwhile();
        waiting.join().unwrap()
    })
}

#[test]
fn woken_by_what_is_given_back() {
    let host = scene(&range("10.9.0.10-10.9.0.11"));
    let both = ["c1", "c2"].map(|c| got(&add(&host, c)));
    assert_eq!(got(&waits(&host, "c3", || del(&host, "c1"))), both[0]);
    del(&host, "c2");
    del(&host, "c3");
}

#[test]
fn woken_by_a_larger_pool() {
    let host = scene(&range("10.9.0.10-10.9.0.10"));
    got(&add(&host, "c1"));
    assert_eq!(got(&waits(&host, "c3", || grant(&host, &range("10.9.0.10-10.9.0.11")))), ["10.9.0.11/32"]);
}

#[test]
fn woken_by_the_end_of_a_cooldown() {
    let mut spec = range("10.9.0.10-10.9.0.10");
    spec["reuse"]["cooldownSeconds"] = json!(2);
    let host = scene(&spec);
    let had = got(&add(&host, "c1"));
    let since = Instant::now();
    del(&host, "c1");
    assert_eq!(got(&call(&host, "ADD", "c2", &patient())), had);
    assert!(since.elapsed() >= Duration::from_secs(2), "it had not rested: {:?}", since.elapsed());
}

#[test]
fn in_vain() {
    let host = scene(&range("10.9.0.10-10.9.0.10"));
    got(&add(&host, "c1"));
    let mut config = alone();
    config["ipam"]["addWait"] = json!(1);
    let refused = call(&host, "ADD", "c2", &config);
    assert_eq!(refused.error()["code"], 11);
    assert!(refused.message().contains("pool \"lab\" has no free IPv4 address on this node: 1 held"), "{refused:?}");
    let waited = refused.message().rsplit_once(" (waited ").and_then(|(_, rest)| rest.split_once(" s)")?.0.parse::<u32>().ok());
    assert!(waited.is_some_and(|seconds| seconds >= 1), "{refused:?}");
    // Nothing is kept of it.
    del(&host, "c1");
    got(&add(&host, "c3"));
}

/// Nobody waits for a certain address that rests for longer.
#[test]
fn what_rests_for_longer_is_refused_at_once() {
    let mut spec = range("10.9.0.10-10.9.0.19");
    spec["reuse"]["cooldownSeconds"] = json!(3600);
    let host = scene(&spec);
    assert_eq!(got(&add(&host, "c1")), ["10.9.0.10/32"]);
    del(&host, "c1");
    let mut certain = patient();
    certain["runtimeConfig"] = json!({"ips": ["10.9.0.10"]});
    let since = Instant::now();
    let refused = call(&host, "ADD", "c2", &certain);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!(refused.error()["code"], 11);
    assert!(refused.message().contains("10.9.0.10 is not free: it has just been released; free in 3"), "{refused:?}");
    // A rest that is over in time.
    spec["reuse"]["cooldownSeconds"] = json!(3);
    grant(&host, &spec);
    assert_eq!(got(&call(&host, "ADD", "c2", &certain)), ["10.9.0.10/32"]);
}

/// Without a name it is the pool "default".
#[test]
fn the_pool_without_a_name() {
    let host = scene(&range("10.9.0.10-10.9.0.10"));
    std::fs::rename(host.path("/var/lib/pools/lab.json"), host.path("/var/lib/pools/default.json")).unwrap();
    let text = std::fs::read_to_string(host.path("/var/lib/pools/default.json")).unwrap().replace("\"lab\"", "\"default\"");
    std::fs::write(host.path("/var/lib/pools/default.json"), text).unwrap();
    let mut config = alone();
    config["ipam"].as_object_mut().unwrap().remove("pool");
    assert_eq!(got(&call(&host, "ADD", "c1", &config)), ["10.9.0.10/32"]);
}
