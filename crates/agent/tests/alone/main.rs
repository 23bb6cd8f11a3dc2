//! The agent without a cluster: on the embedded store, with a real kernel; and the same calls with a real API server, to show
//! that both say the same.
//!
//! Needs root, and the peers (`make peers`) for the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod addresses;
mod api;
mod api_outage;
mod both;
mod changed;
mod changed_ranges;
mod cilium;
mod crd_and_pools;
mod few_addresses;
mod store;
mod world;
