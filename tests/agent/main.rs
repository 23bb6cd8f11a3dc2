//! The agent from outside, before an API server: the embedded store, or with `NETLOOM_TEST_API=kubernetes` a real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod between;
mod changing_over;
mod install;
mod manifests;
mod openstack;
mod process;
mod questions;
mod repair;
mod standard;
mod switched;
