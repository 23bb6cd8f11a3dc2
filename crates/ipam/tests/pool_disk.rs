//! A disk that is full: what could not be written has not happened, whoever asks. Needs root, for a file system of a megabyte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use netloom_ipam::{Granted, PoolStore, PoolStoreError};
use pool::{Ask, Block, Family, Key, Refused, Run, Spec, State, Want};

/// A name that needs more room than there is in the end.
const LONG: usize = 100 << 10;

/// A file system of a megabyte, and something on it that can be removed.
struct Small(PathBuf);

impl Small {
    fn mount() -> Self {
        let at = std::env::temp_dir().join(format!("nl-pool-disk-{}", std::process::id()));
        std::fs::create_dir_all(&at).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "nl-pool-disk"]).arg(&at).status().unwrap().success());
        std::fs::write(at.join("ballast"), vec![0; 500 << 10]).unwrap();
        Small(at)
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn open(dir: &Path) -> PoolStore {
    PoolStore::open(dir, Instant::now() + Duration::from_secs(60)).unwrap()
}

fn key(container: String) -> Key {
    Key { network: "net".to_owned(), container, ifname: "eth0".to_owned() }
}

fn ask(key: &Key, pool: &str) -> Ask {
    let want = Want { pool: pool.to_owned(), family: Family::V4, address: None };
    Ask { key: key.clone(), pod: None, claim: None, wants: vec![want] }
}

fn granted(pool: &str, network: &str, blocks: &[&str]) -> Granted {
    let mut spec = Spec::new(pool, network);
    spec.v4.prefix = 24;
    let block = |text: &&str| (Block { pool: pool.to_owned(), run: run(text), epoch: 1, claim: None }, State::Active);
    Granted { spec, blocks: blocks.iter().map(block).collect() }
}

fn run(text: &str) -> Run {
    text.parse().unwrap()
}

fn is_unwritten<T: std::fmt::Debug>(done: Result<T, PoolStoreError>) -> bool {
    matches!(done, Err(PoolStoreError::Write(_)))
}

#[test]
fn what_could_not_be_written_has_not_happened() {
    let small = Small::mount();
    let dir = small.0.join("ipam");
    let store = open(&dir);
    let (long, holder) = ("p".repeat(LONG), key("c".repeat(LONG)));
    store.grant(&granted("a", "net", &["10.0.0.0/24"])).unwrap();
    store.grant(&granted(&long, "other", &["10.1.0.0/32"])).unwrap();
    let held = store.reserve(&ask(&holder, "a")).unwrap();
    // ADDs until there is no room: the one that fails holds nothing, and nothing is lost of it.
    let names = (0..).map(|n| key(format!("{n:010}").repeat(1 << 10)));
    let mut kept = 0;
    let failed = names.into_iter().find(|key| match store.reserve(&ask(key, "a")) {
        Ok(_) => {
            kept += 1;
            false
        }
        failed => is_unwritten(failed),
    });
    let failed = failed.unwrap();
    assert_eq!((store.lease(&failed), store.look(|all| all.usage("a", Family::V4).held)), (None, kept + 1));
    // A DEL that fails has given nothing back.
    assert!(is_unwritten(store.release(&holder, None)));
    assert_eq!(store.lease(&holder).unwrap().addresses, held.addresses);
    // A block that the disk does not know is nobody's.
    assert!(is_unwritten(store.grant(&granted(&long, "other", &["10.1.0.0/32", "10.1.0.1/32"]))));
    assert_eq!(store.blocks(&long).len(), 1);
    // One that was stopped, and the disk does not know it, is not told of; and nobody gets it.
    assert!(is_unwritten(store.freeze(&long, &[run("10.1.0.0/32")])));
    assert_eq!(store.frozen(), []);
    let short = store.reserve(&ask(&key("late".to_owned()), &long)).unwrap_err();
    assert!(matches!(&short, PoolStoreError::Refused(refused) if matches!(**refused, Refused::Short { .. })), "{short}");
    small.make_room();
    store.freeze_again().unwrap();
    assert_eq!(store.frozen().len(), 1);
    assert_eq!(store.release(&holder, None).unwrap().unwrap().addresses, held.addresses);
    store.reserve(&ask(&failed, "a")).unwrap();
    drop(store);
    let store = open(&dir);
    assert_eq!((store.lease(&holder), store.lease(&failed).is_some(), store.frozen().len()), (None, true, 1));
    assert_eq!(store.look(|all| all.usage("a", Family::V4).held), kept + 1);
}
