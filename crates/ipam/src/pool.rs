//! Addresses of pools, for `pool`: in memory and in a journal, so that an address that was granted is on the disk before
//! anybody hears of it.
//!
//! ```text
//! <pools>/NAME.json --read_pool--> Pool --PoolStore::follow--+
//! Ask ------------------------------------PoolStore::reserve-+-> pool::Allocator -> Event -> journal -> Lease
//! Key ------------------------------------PoolStore::release-+
//!
//! Seen::read <-- journal, whoever has it open: what a person is told
//! ```

mod grant;
mod seen;
mod store;

pub use grant::{Pool, PoolError, pool_names, read_pool};
pub use seen::{Figures, Seen, Tenure};
pub use store::{Clock, PoolStore, PoolStoreError};
