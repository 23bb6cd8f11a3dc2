//! The agent killed at any moment, under runtimes that go on as if nothing had happened.
//!
//! ```text
//!   each of 8 callers: ADD --failed--> DEL until it succeeds, next sandbox
//!                       `--made--> addresses are nobody else's and answer; sometimes CHECK; DEL until it succeeds
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use netloom_tests::{Node, Outcome, Pod, until_seen};
use serde_json::json;

use crate::process::chance::{Chance, soak};

const CALLERS: usize = 8;

/// How long an agent lives.
const SOON: Duration = Duration::from_millis(150);
const LATER: Duration = Duration::from_millis(1200);

/// What all callers share.
struct Crowd<'n> {
    node: &'n Node,
    /// Who has which address now.
    held: Mutex<BTreeMap<String, String>>,
    over: AtomicBool,
    added: AtomicUsize,
    failed: AtomicUsize,
}

/// A failure is one that passes.
fn passes(what: &str, outcome: &Outcome) {
    assert_eq!(outcome.error()["code"], json!(11), "{what}: {outcome:?}");
}

// === impl Crowd ===

impl Crowd<'_> {
    /// As containerd: until it succeeds.
    fn deleted(&self, pod: &Pod<'_>) {
        let del = || {
            let outcome = pod.del();
            if outcome.code != 0 {
                passes("DEL", &outcome);
            }
            outcome
        };
        until_seen(&format!("DEL of {} succeeds", pod.sandbox()), del, |outcome| outcome.code == 0);
        pod.renew();
    }

    /// One life of a sandbox.
    fn life(&self, pod: &Pod<'_>, chance: &mut Chance) {
        let outcome = pod.add();
        if outcome.code != 0 {
            passes("ADD", &outcome);
            self.failed.fetch_add(1, Ordering::Relaxed);
            return self.deleted(pod);
        }
        self.added.fetch_add(1, Ordering::Relaxed);
        let addresses = self.hold(pod);
        if chance.below(3) == 0 {
            let outcome = pod.check();
            if outcome.code != 0 {
                passes("CHECK", &outcome);
            }
        }
        // Sleeps: a pod lives for a random time.
        std::thread::sleep(chance.time(Duration::from_millis(30)));
        let mut held = self.held.lock().unwrap();
        addresses.iter().for_each(|address| assert_eq!(held.remove(address).as_deref(), Some(pod.sandbox().as_str())));
        drop(held);
        self.deleted(pod);
    }

    /// Notes whose its addresses are, which are nobody's till then, and work.
    fn hold(&self, pod: &Pod<'_>) -> Vec<String> {
        let listed = pod.addresses();
        let addresses: Vec<String> = listed.as_array().unwrap().iter().map(|one| one[1].as_str().unwrap_or_default().to_owned()).collect();
        assert_eq!(addresses.len(), 4, "{}: {listed}", pod.sandbox());
        let mut held = self.held.lock().unwrap();
        for address in &addresses {
            let other = held.insert(address.clone(), pod.sandbox());
            assert_eq!(other, None, "{address} of {} is given twice", pod.sandbox());
        }
        drop(held);
        assert!(self.node.host.pings(&pod.sandbox(), "10.244.0.1"), "{} does not reach its gateway", pod.sandbox());
        addresses
    }
}

#[test]
fn killed_at_random_moments() {
    let (kills, mut chance) = (soak().max(40), Chance::new("kills"));
    let node = Node::start("kills", "reconcileEvery: 5s");
    let before = node.before();
    let crowd = Crowd { node: &node, held: Mutex::default(), over: false.into(), added: 0.into(), failed: 0.into() };
    let pods: Vec<Pod<'_>> = (0..CALLERS).map(|n| node.pod(&format!("p{n}"), "mac1,mac2,mac3")).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = pods
            .iter()
            .map(|pod| {
                let (crowd, mut chance) = (&crowd, chance.split());
                scope.spawn(move || {
                    while !crowd.over.load(Ordering::Relaxed) {
                        crowd.life(pod, &mut chance);
                    }
                })
            })
            .collect();
        for kill in 0.. {
            let (added, failed) = (crowd.added.load(Ordering::Relaxed), crowd.failed.load(Ordering::Relaxed));
            // A busy machine needs longer for enough of both.
            if kill >= kills * if added > CALLERS && failed > 0 { 1 } else { 5 } {
                break;
            }
            // Soon after it has begun, or in the midst of it all.
            let lives = if chance.below(4) == 0 { SOON } else { LATER * (1 + u32::try_from(kill / kills).unwrap()) };
            // Sleeps: killed at a random moment.
            std::thread::sleep(chance.time(lives));
            node.kill9();
            if callers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            // Sometimes nobody is there for a while.
            let away = if chance.below(4) == 0 { chance.time(Duration::from_millis(600)) } else { Duration::ZERO };
            // Sleeps: away for a random time.
            std::thread::sleep(away);
            node.serve();
        }
        crowd.over.store(true, Ordering::Relaxed);
    });
    let (added, failed) = (crowd.added.into_inner(), crowd.failed.into_inner());
    println!("{kills} kills in {:.1} s: {added} ADDs succeeded, {failed} failed", begun.elapsed().as_secs_f64());
    assert!(added > CALLERS && failed > 0, "{added} ADDs succeeded, {failed} failed: nothing was tried");
    node.restart();
    for pod in &pods {
        pod.must("ADD");
        pod.wait_for_status();
        pod.must("CHECK");
        pod.must("DEL");
    }
    drop(pods);
    node.expect(&before, &format!("an agent that was killed {kills} times"));
}
