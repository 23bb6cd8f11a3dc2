//! The agent killed at any moment while pods with ports of Neutron come and go, and ovsdb-server restarted in the midst of it.
//!
//! ```text
//!   each of 6 callers: ADD --failed--> DEL until it succeeds, next sandbox
//!                       `--made--> each port is there once, CHECK; DEL until it succeeds, and none is there
//! ```
//!
//! `NETLOOM_SOAK=500` kills so often.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netloom_tests::{Node, Outcome, Pod, Switch, until_seen};
use serde_json::json;

use super::scene::{self, Port};
use crate::process::chance::{Chance, soak};

const CALLERS: u8 = 6;
/// How long an agent lives.
const LIFE: Duration = Duration::from_millis(1500);
/// One of so many kills comes with a restart of the database.
const RESTARTS: u64 = 8;

/// What all callers share.
struct Crowd<'n> {
    node: &'n Node,
    /// Who asks it keeps it from being restarted meanwhile.
    switch: RwLock<Switch>,
    over: AtomicBool,
    added: AtomicUsize,
    failed: AtomicUsize,
}

/// A failure is one that passes.
fn passes(what: &str, outcome: &Outcome) {
    assert!(outcome.code == 0 || outcome.error()["code"] == json!(11), "{what}: {outcome:?}");
}

fn ports(n: u8) -> [(&'static str, Port); 2] {
    [("eth1", Port('a', 120 + n)), ("eth2", Port('b', 120 + n))]
}

// === impl Crowd ===

impl Crowd<'_> {
    /// How often the switch has each of these ports.
    fn count(&self, ports: &[(&str, Port)]) -> Vec<usize> {
        let plugged = scene::plugged(&self.switch.read().unwrap());
        ports.iter().map(|(_, port)| plugged.iter().filter(|id| **id == port.id()).count()).collect()
    }

    /// One life of a sandbox.
    fn life(&self, pod: &Pod<'_>, ports: &[(&str, Port)], chance: &mut Chance) {
        let added = pod.add();
        passes("ADD", &added);
        if added.code == 0 {
            self.added.fetch_add(1, Ordering::Relaxed);
            assert_eq!(self.count(ports), [1, 1], "each port of {} once", pod.sandbox());
            passes("CHECK", &pod.check());
            // Sleeps: a pod lives for a random time.
            std::thread::sleep(chance.time(Duration::from_millis(50)));
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        let del = || {
            let outcome = pod.del();
            passes("DEL", &outcome);
            outcome
        };
        // As containerd: until it succeeds.
        until_seen(&format!("DEL of {} succeeds", pod.sandbox()), del, |outcome| outcome.code == 0);
        pod.renew();
    }
}

#[test]
fn killed_at_random_moments() {
    let (kills, mut chance) = (soak().max(12), Chance::new("openstack kills"));
    let (node, switch) = scene::node("plug-kills", "reconcileEvery: 5s\nopenstackWait: 20s");
    let before = node.before();
    let crowd = Crowd { node: &node, switch: RwLock::new(switch), over: false.into(), added: 0.into(), failed: 0.into() };
    let pods: Vec<Pod<'_>> = (0..CALLERS).map(|n| node.pod(&format!("p{n}"), "net-a,net-b")).collect();
    for (n, pod) in (0..).zip(&pods) {
        scene::bind(&node, pod, &ports(n));
        scene::say(&node, pod, &ports(n), true);
    }
    let restarts = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..)
            .zip(&pods)
            .map(|(n, pod)| {
                let (crowd, mut chance) = (&crowd, chance.split());
                scope.spawn(move || {
                    while !crowd.over.load(Ordering::Relaxed) {
                        crowd.life(pod, &ports(n), &mut chance);
                    }
                })
            })
            .collect();
        let mut restarts = 0;
        for kill in 0.. {
            let (added, failed) = (crowd.added.load(Ordering::Relaxed), crowd.failed.load(Ordering::Relaxed));
            // A busy machine needs longer for enough of both.
            let is_enough = kill >= kills && added > CALLERS.into() && failed > 0 && restarts > 0;
            if is_enough || kill >= 5 * kills {
                break;
            }
            // Sleeps: killed at a random moment. Later ones live longer, where a machine is so busy that none has done anything.
            std::thread::sleep(chance.time(LIFE * (1 + u32::try_from(kill / kills).unwrap())));
            if chance.below(RESTARTS) == 0 {
                let mut switch = crowd.switch.write().unwrap();
                switch.stop_database();
                // Sleeps: away for a random time.
                std::thread::sleep(chance.time(Duration::from_millis(500)));
                switch.start_database();
                restarts += 1;
            }
            node.kill9();
            if callers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            node.serve();
        }
        crowd.over.store(true, Ordering::Relaxed);
        restarts
    });
    let (added, failed) = (crowd.added.load(Ordering::Relaxed), crowd.failed.load(Ordering::Relaxed));
    println!("{kills} kills, {restarts} restarts of the database: {added} ADDs succeeded, {failed} failed");
    assert!(added > CALLERS.into() && failed > 0 && restarts > 0, "{added} ADDs succeeded, {failed} failed, {restarts} restarts");
    node.restart();
    node.settled();
    assert_eq!(scene::plugged(&crowd.switch.read().unwrap()), [""; 0], "no port is left");
    for (n, pod) in (0..).zip(&pods) {
        pod.must("ADD");
        assert_eq!(crowd.count(&ports(n)), [1, 1]);
        pod.must("CHECK");
        pod.must("DEL");
    }
    drop(pods);
    crowd.node.expect(&before, &format!("an agent that was killed {kills} times"));
}
