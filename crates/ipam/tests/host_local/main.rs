//! The store of `host-local` from outside: beside the reference plugin, against a model, with many at once, killed, with an
//! index that somebody spoils, and on a disk that fails.

// What fails here is the test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod concurrency;
mod faults;
mod index;
mod model;
mod reference;
mod scaling;
mod scratch;
