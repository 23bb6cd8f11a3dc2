//! Who holds which address of a pool, on one node: pure, in memory, without a clock, a file or a thread.
//!
//! ```text
//!   Spec, Block --> Allocator <-- Ask, Key, Moment
//!                     |  |
//!                     |  +--> Granted | Refused
//!                     +-----> Event --> bytes: a journal's business, and back through Allocator::apply
//! ```
//!
//! An address is given back by the attachment that holds it, by key and generation, and in no other way: there is no
//! `release(address)`. What was given back cools down before somebody else gets it. Several addresses, of both families say,
//! are granted together or not at all.

mod address;
mod address_table;
mod allocator;
mod bytes;
mod event;
mod family_pool;
mod lease;
mod migrating;
mod queue;
mod refused;
mod spec;

pub use address::{Family, ParseRunError, Run, number};
pub use allocator::{Allocator, Ask, Granted, Usage, Want};
pub use bytes::DecodeError;
pub use event::Event;
pub use family_pool::State;
pub use lease::{Key, Lease, Leased, Moment, Pod, Unavailable};
pub use migrating::{migrating, migrating_of};
pub use refused::Refused;
pub use spec::{Block, Order, Origin, Reuse, Scaling, Spec, Terms, edges};

#[cfg(test)]
mod tests;
