//! What changes, as a journal keeps it.

use std::net::IpAddr;

use crate::family_pool::State;
use crate::{Block, Key, Lease, Moment, Run, Spec, Unavailable};

/// A change that has been decided. Bytes: [`Event::encode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A pool is there, with these terms from now on.
    Pool(Spec),
    /// A pool was deleted: nothing of it is handed out any more.
    PoolGone {
        /// The pool.
        pool: String,
    },
    /// This node has a block.
    Block(Block, State),
    /// A block is never used again in this epoch.
    Frozen {
        /// The pool.
        pool: String,
        /// The block.
        run: Run,
        /// Its epoch.
        epoch: u64,
    },
    /// A block is not the pool's any more, while some of it may be held.
    Withdrawn {
        /// The pool.
        pool: String,
        /// The block.
        run: Run,
        /// Its epoch.
        epoch: u64,
    },
    /// This node has a block no more.
    BlockGone {
        /// The pool.
        pool: String,
        /// The block.
        run: Run,
        /// Its epoch.
        epoch: u64,
    },
    /// An attachment holds addresses.
    Leased(Lease),
    /// An attachment has given back what it held.
    Released {
        /// The attachment.
        key: Key,
        /// Which of its leases.
        generation: u64,
        /// When.
        at: Moment,
    },
    /// An address cools down: in snapshots, where its lease is not any more.
    Cooling {
        /// The pool.
        pool: String,
        /// The address.
        address: IpAddr,
        /// [`Unavailable::Cooling`]
        taken: Unavailable,
    },
    /// Another machine answers for an address.
    Quarantined {
        /// The pool.
        pool: String,
        /// The address.
        address: IpAddr,
        /// [`Unavailable::Quarantined`]
        taken: Unavailable,
    },
    /// Leases to come have this generation or a later one.
    Generation(u64),
    /// Of a pool's blocks nothing but this is handed out: where the state is told in short ([`Allocator::brief`](crate::Allocator::brief)),
    /// who has the rest is not known.
    Only {
        /// The pool.
        pool: String,
        /// Addresses of its blocks, in order.
        runs: Vec<Run>,
    },
}
