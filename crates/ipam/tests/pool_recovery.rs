//! A store that was lost: who asks while it is made anew, and how long that lasts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use netloom_ipam::{Granted, Pool, PoolStore, PoolStoreError};
use pool::{Ask, Block, Family, Key, Origin, Spec, State, Want};

fn block(pool: &str, run: &str) -> Block {
    Block { pool: pool.to_owned(), run: run.parse().unwrap(), epoch: 1, claim: None }
}

fn granted(pool: &str, run: &str) -> Granted {
    Granted { spec: Spec::new(pool, pool), blocks: vec![(block(pool, run), State::Active)] }
}

fn ask(pool: &str) -> Ask {
    let key = Key { network: "net".to_owned(), container: pool.to_owned(), ifname: "eth0".to_owned() };
    Ask { key, pod: None, claim: None, wants: vec![Want { pool: pool.to_owned(), family: Family::V4, address: None }] }
}

type Calls = Mutex<Vec<(usize, bool)>>;

/// With what it calls: how many pools there were each time, and whether that were all.
fn recovering(dir: &std::path::Path) -> (Arc<PoolStore>, Arc<Calls>) {
    let store = Arc::new(PoolStore::open(dir, Instant::now() + Duration::from_secs(60)).unwrap());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    store.recover_with(&[Origin::Cluster, Origin::CiliumNode], move |intake| {
        noted.lock().unwrap().push((intake.store().look(|all| all.pools().count()), intake.is_complete()));
        let refused = intake.store().reserve(&ask("x")).unwrap_err();
        assert!(matches!(refused, PoolStoreError::Closed { .. }), "{refused}");
        intake.is_complete()
    });
    (store, calls)
}

#[test]
fn it_lasts_until_all_is_there() {
    let dir = std::env::temp_dir().join(format!("nl-recovery-{}", std::process::id()));
    let (store, calls) = recovering(&dir);
    // A host's own pool, and a single one of the cluster: more may come.
    let own = Pool { spec: Spec::new("own", "own"), runs: vec!["10.2.0.0/30".parse().unwrap()], passive: false };
    store.follow(&own).unwrap();
    store.follow(&own).unwrap();
    store.grant(&granted("w", "10.3.0.0/30")).unwrap();
    let failed: Result<(), &str> = store.take_in(Origin::Cluster, |intake| {
        intake.grant(&granted("x", "10.0.0.0/30")).unwrap();
        Err("the disk is full")
    });
    failed.unwrap_err();
    assert_eq!(*calls.lock().unwrap(), [(0, false), (1, false), (2, false), (3, false)]);
    let all: Result<(), PoolStoreError> = store.take_in(Origin::Cluster, |intake| {
        intake.grant(&granted("x", "10.0.0.0/30"))?;
        intake.grant(&granted("y", "10.1.0.0/30"))?;
        // Not between two pools.
        assert!(matches!(store.reserve(&ask("x")), Err(PoolStoreError::Closed { .. })));
        Ok(())
    });
    all.unwrap();
    assert_eq!(calls.lock().unwrap()[4..], [(4, false)], "once for all pools");
    // What another object has is not there yet.
    let other: Result<_, PoolStoreError> = store.take_in(Origin::CiliumNode, |intake| intake.grant(&granted("n", "10.5.0.0/30")));
    assert_eq!((other.unwrap(), &calls.lock().unwrap()[5..]), (Vec::new(), &[(5, true)][..]));
    store.recover();
    store.grant(&granted("z", "10.4.0.0/30")).unwrap();
    assert_eq!(calls.lock().unwrap().len(), 6, "it is over");
    ["x", "y", "z", "own"].iter().for_each(|pool| drop(store.reserve(&ask(pool)).unwrap()));
    std::fs::remove_dir_all(&dir).unwrap();
}
