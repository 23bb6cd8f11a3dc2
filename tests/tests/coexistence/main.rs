//! Beside other programs that have rules, the real ones: nothing of theirs changes, and nothing of ours stops to work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod docker;
mod firewalld;
mod kube_proxy;
