//! Many at once, threads and processes, ours and the reference plugin's; and processes that are killed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netloom_ipam::{Holder, Store};

use crate::reference::{addresses, config, peer, run};
use crate::scratch::{Lcg, Scratch, owner, sets};

const RANGES: &str = r#"[[{"subnet":"10.1.0.0/20"}],[{"subnet":"fd00::/64"}]]"#;
const EACH: usize = 12;

fn allocate(store: &Store, prefix: &str) -> Vec<IpAddr> {
    let sets = sets(RANGES);
    let one = |n: usize| store.allocate(&owner(&format!("{prefix}-{n}"), "eth0"), &sets, &[]).unwrap();
    (0..EACH).flat_map(one).map(|a| a.address.addr()).collect()
}

/// What another process of these tests does; it finds its work in the environment.
#[test]
#[ignore = "started by the other tests of this file as a process of its own"]
fn child() {
    let dir = std::env::var("NETLOOM_TEST_DIR").unwrap();
    let prefix = std::env::var("NETLOOM_TEST_PREFIX").unwrap();
    let store = Store::open(Path::new(&dir), &"net".parse().unwrap()).lock_by(Instant::now() + Duration::from_secs(600));
    if prefix.starts_with("killed") {
        let (who, sets) = (owner(&prefix, "eth0"), sets(RANGES));
        loop {
            store.allocate(&who, &sets, &[]).unwrap();
            store.release(&who).unwrap();
        }
    }
    let got = allocate(&store, &prefix);
    assert_eq!(got.len(), 2 * EACH);
}

fn start(scratch: &Scratch, prefix: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "concurrency::child", "--ignored"])
        .envs([("NETLOOM_TEST_DIR", scratch.0.to_str().unwrap()), ("NETLOOM_TEST_PREFIX", prefix)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn no_address_is_given_twice() {
    let (scratch, plugin) = (Scratch::new(), peer("host-local"));
    let mut children: Vec<Child> = (0..8).map(|n| start(&scratch, &format!("process{n}"))).collect();
    let mut got: Vec<IpAddr> = std::thread::scope(|scope| {
        let (scratch, plugin) = (&scratch, &plugin);
        let reference: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn(move || {
                    let one = |i: usize| {
                        let result = run(plugin, "ADD", &owner(&format!("go{n}-{i}"), "eth0"), "", &config(&scratch.0, RANGES, &[]));
                        addresses(&result.unwrap())
                    };
                    let all = (0..10).flat_map(one).map(|(address, _)| address.split('/').next().unwrap().parse().unwrap());
                    all.collect::<Vec<IpAddr>>()
                })
            })
            .collect();
        let threads: Vec<_> = (0..64).map(|n| scope.spawn(move || allocate(&scratch.store(), &format!("thread{n}")))).collect();
        reference.into_iter().chain(threads).flat_map(|t| t.join().unwrap()).collect()
    });
    assert!(children.iter_mut().all(|c| c.wait().unwrap().success()));

    let all = scratch.store().all().unwrap();
    assert_eq!(all.len(), 2 * ((64 + 8) * EACH + 4 * 10));
    assert!(all.iter().all(|(_, holder)| matches!(holder, Holder::Attachment(_))));
    scratch.agrees(&sets(RANGES), "after all");
    got.sort();
    let returned = got.len();
    got.dedup();
    assert_eq!((returned, returned), (got.len(), 2 * (64 * EACH + 4 * 10)));
    assert_eq!(scratch.store().gc(&[]).unwrap().len(), all.len());
}

/// Killed at any instruction, a process leaves nothing that DEL of its container does not free, no address without an
/// owner, no lock, and no index that says something else than the files.
#[test]
fn killed_processes_leave_nothing() {
    kill(0, 60);
}

#[test]
fn killed_processes_leave_no_wrong_index() {
    let soak = std::env::var("NETLOOM_SOAK").map_or(0, |n| n.parse().unwrap());
    kill(100, soak.max(40));
}

fn kill(fillers: u32, rounds: usize) {
    let (scratch, mut random) = (Scratch::new(), Lcg(3));
    scratch.fill(fillers);
    let store = scratch.store().lock_by(Instant::now() + Duration::from_secs(600 + rounds as u64));
    let mut held_when_killed = 0;
    for round in 0..rounds {
        let prefix = format!("killed{round}");
        let noted = || std::fs::read(store.dir().join("last_reserved_ip.1")).unwrap_or_default();
        let before = noted();
        let mut child = start(&scratch, &prefix);
        while noted() == before {
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_micros(200));
        }
        // Sleeps: killed at a random moment.
        std::thread::sleep(Duration::from_micros(random.below(2000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let ours = |holder: &Holder| *holder == Holder::Attachment(owner(&prefix, "eth0"));
        let others = store.all().unwrap().into_iter().filter(|(_, holder)| !ours(holder)).count();
        assert_eq!(others, fillers as usize, "round {round}");
        if fillers > 0 {
            scratch.agrees(&sets(RANGES), &format!("round {round}"));
        }
        held_when_killed += usize::from(!store.release(&owner(&prefix, "eth0")).unwrap().is_empty());
        let left = std::fs::read_dir(store.dir()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let left: BTreeSet<String> = left.filter(|name| !name.starts_with("192.0.2.")).collect();
        let known = ["last_reserved_ip.0", "last_reserved_ip.1", "lock"];
        assert!(left.iter().all(|name| known.contains(&name.as_str())), "round {round}: {left:?}");
    }
    assert!((1..rounds).contains(&held_when_killed), "the kills missed: {held_when_killed} of {rounds}");
}
