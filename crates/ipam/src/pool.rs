//! Addresses of pools, for `pool`: in memory and in a journal, so that an address that was granted is on the disk before
//! anybody hears of it.
//!
//! ```text
//! <pools>/NAME.json --read_pool--> Pool --PoolStore::follow--+
//! Ask ------------------------------------PoolStore::reserve-+-> pool::Allocator -> Event -> journal -> Lease
//! Key ------------------------------------PoolStore::release-+
//! ```

pub(crate) mod grant;
mod store;

pub use grant::{Pool, PoolError, read_pool};
pub use store::{Clock, PoolStore, PoolStoreError};
