//! Addresses that are on the disk before anybody hears of them: `netloom-benches pool`.
//!
//! ```text
//!   held     one process has the store open, as the agent has; 1 and 64 callers, 100 and 60,000 addresses in use
//!   alone    each call is a process that opens the store, as netloom-cni without an agent does
//!   range    how long it takes until all addresses of a range are somebody's
//! ```
//!
//! Beside them, turn by turn, the reference `host-local`, which flushes nothing: its own code in one process that has its
//! store open (`tests/peers/addresses`), and as the executable. And what durability costs: one record appended to a file that
//! has its blocks, and flushed.

mod alone;
mod figures;
mod flush;
mod held;
mod peer;
mod range;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::pool::{Ask, Family, Key, Want};
use anyhow::{Context, Result};
use ipam::PoolStore;
use serde_json::json;

use crate::options::{Options, Scratch};
use crate::{machine, namespace, progress, side, write};

/// How many addresses are in use.
const HELD: [usize; 2] = [100, 60_000];

/// The pool.
const POOL: &str = "bench";

/// What it has, and what the reference's range has.
const SUBNET: &str = "10.64.0.0/14";

/// How long a store is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything, as tables and goals.
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    let scratch = Scratch::make(&options.data_dir, "data")?;
    let installed = side::installed("netloom", &options.netloom_cni, scratch.path())?;
    let rounds = options.rounds;
    let held = held::run(options, scratch.path(), &mut |round| progress("held open", round, rounds))?;
    print!("\n{}", figures::held(rounds, &held));
    let alone_rounds = rounds.min(alone::ROUNDS);
    let alone = alone::run(options, &installed, scratch.path(), alone_rounds, &mut |round| progress("alone", round, alone_rounds))?;
    print!("\n{}", figures::alone(alone_rounds, &alone));
    let ranges = range::run(&installed, scratch.path(), rounds.min(range::ROUNDS))?;
    print!("\n{}", figures::ranges(&ranges));
    println!("\ngoals, by the medians of this run");
    let goals = figures::goals(&held, &alone, &ranges);
    goals.iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        write(
            file,
            &json!({
                "machine": machine.json(), "rounds": rounds, "held": held.iter().map(held::Case::json).collect::<Vec<_>>(),
                "alone": alone.iter().map(alone::Row::json).collect::<Vec<_>>(),
                "ranges": ranges.iter().map(range::Range::json).collect::<Vec<_>>(),
            }),
        )?;
    }
    Ok(())
}

/// A pool's file, and the directory of a journal beside it.
struct Place {
    pools: PathBuf,
    journal: PathBuf,
}

// === impl Place ===

impl Place {
    /// Below a directory, with a pool that has one entry of this kind.
    fn make(below: &Path, kind: &str, entry: &str) -> Result<Self> {
        let place = Place { pools: below.join("pools"), journal: below.join("journal") };
        fs::create_dir_all(&place.pools).with_context(|| format!("make {}", place.pools.display()))?;
        let pool = json!({
            "kind": "IPPool", "metadata": {"name": POOL},
            "spec": {"ipv4": {"entries": [{kind: entry}]}, "allowFirstIP": true, "allowLastIP": true},
        });
        fs::write(place.pools.join(format!("{POOL}.json")), pool.to_string()).context("write the pool")?;
        Ok(place)
    }

    /// The store, in which the pool is as its file says.
    fn open(&self) -> Result<PoolStore> {
        let store = PoolStore::open(&self.journal, Instant::now() + PATIENCE)?;
        store.follow(&ipam::read_pool(&self.pools, POOL)?)?;
        Ok(store)
    }

    /// The configuration that names it.
    fn config(&self) -> serde_json::Value {
        let ipam = json!({"type": "pool", "pool": POOL, "pools": self.pools, "dataDir": self.journal});
        json!({"cniVersion": "1.0.0", "name": POOL, "type": "any", "ipam": ipam})
    }
}

fn key(number: usize) -> Key {
    // As long as they are: a container's ID has 64 digits.
    Key { network: POOL.to_owned(), container: format!("{number:064x}"), ifname: "eth0".to_owned() }
}

fn ask(number: usize) -> Ask {
    Ask { key: key(number), pod: None, claim: None, wants: vec![Want { pool: POOL.to_owned(), family: Family::V4, address: None }] }
}
