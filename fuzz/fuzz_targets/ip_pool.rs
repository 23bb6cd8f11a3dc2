//! The files of pools: any bytes are a pool or refused, and no pool has an address twice.
#![no_main]

use std::cell::OnceCell;

use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dir = scratch.get_or_init(|| Scratch::new("ip-pool")).path();
    std::fs::write(dir.join("lab.json"), bytes).expect("room for a file");
    match ipam::read_pool(dir, "lab") {
        Ok(pool) => {
            assert!(!pool.runs.is_empty());
            for (n, run) in pool.runs.iter().enumerate() {
                assert!(pool.runs.iter().skip(n + 1).all(|other| other.common(run).is_none()), "{run}");
            }
        }
        Err(e) => assert!(e.to_string().contains("lab")),
    }
}));
