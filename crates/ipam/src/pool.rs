//! Addresses of pools, for `pool`: in memory and in a journal, so that an address that was granted is on the disk before
//! anybody hears of it.
//!
//! ```text
//! <pools>/NAME.json --read_pool--> Pool --PoolStore::follow------+
//! what a cluster grants -------> Granted --PoolStore::grant------+
//! Ask --------------------------- in line --PoolStore::reserve_by-+-> pool::Allocator -> Event -> journal -> Lease
//! Key --------------------------------------PoolStore::release---+
//! a block that nobody uses -----------------PoolStore::freeze----+
//!
//! Seen::read <-- journal, whoever has it open: what a person is told
//! ```
//!
//! Who finds a pool short waits in line: the first one gets what comes, and what all of them need together is told to whoever
//! grants blocks ([`PoolStore::when_changed`]).

mod clock;
mod conflict;
mod error;
mod grant;
mod granted;
mod host_pools;
mod line;
mod meter;
mod node;
mod observed;
mod part;
mod place;
mod recovery;
mod reserve;
mod reserve_hint;
mod stock;
mod store;

pub use clock::Clock;
pub use conflict::{AddressConflict, Was};
pub use error::PoolStoreError;
pub use grant::{InvalidKey, Pool, PoolError, check_pool, pool_names, pool_path, read_pool};
pub use granted::Granted;
pub use host_pools::{Figures, HostPools, Tenure};
pub use meter::{CLASSES, Collected, Meters, Times};
pub use node::{
    KeptFor, NodeGrants, Surplus, blocks_in_use, has_emptied, lacks, node_demand, node_grants, node_holding, node_in_use, owner_in_words,
    owner_name, recalled, returning, surplus,
};
pub use observed::{ObservedAddress, ObservedClaim};
pub use place::StoreLocation;
pub use recovery::Intake;
pub use reserve_hint::ReserveHint;
pub use stock::Stocks;
pub use store::{AGENT, FREED, PoolStore, RECOVERING};
