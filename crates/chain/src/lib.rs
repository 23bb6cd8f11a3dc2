//! Run one CNI network: what a runtime needs, in one crate.
//!
//! ```text
//!   directory --load--> NetworkList --Chain::add--> plugin, plugin, ... --> AddResult --> result cache
//!                                   --Chain::del--> plugins in reverse, one teardown; the cache entry goes last
//! ```
//!
//! Built-in plugins are called as functions, others are executed. A failed ADD is rolled back before it returns.
//! The cache has the reference library's format, so that either can delete what the other added.

mod cache;
mod load;
mod made_by;
mod restore;
mod run;

pub use cache::{Cache, CacheError, Cached};
pub use load::{LoadError, beside, from_directory, from_file, load};
pub use made_by::{MadeBy, Maker};
pub use restore::{CachedOutcome, Firewall, Outcome, PutBack, Restoring, Skipped, put_back};
pub use run::{AddError, Chain, CheckResult, Runtime, UNDO, Verified, open_netns};
