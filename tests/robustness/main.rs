//! Kills between any two steps, disks that are full, hostile input, very many at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod adversity;
mod churn;
mod concurrency;
mod crash;
mod hostile;
mod promises;
