//! After somebody has flushed the firewall: `netloom repair`, and the agent by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod agent;
mod cached;
mod records;
mod restart;
mod streams;
