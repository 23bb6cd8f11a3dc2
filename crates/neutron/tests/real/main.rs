//! The client before a real Neutron, and a real Keystone: `cargo xtask test neutron`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod failures;
mod ports;
mod proxy;
mod scene;
mod tokens;
mod trunks;
