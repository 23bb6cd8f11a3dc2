//! Beside the reference plugins and their library: what differs, and why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod beside;
mod call_order;
mod configurations;
mod conventions;
mod conversion;
mod delegation;
mod results;
