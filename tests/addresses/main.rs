//! Who has which address: pools, whereabouts' configurations, the command `netloom ipam`, and nodes of a cluster in one process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod ipam_command;
mod nodes;
mod pool;
mod whereabouts;
