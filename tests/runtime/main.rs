//! What a runtime and a person call without a cluster: `netloom-cni` under its own names, `netloom cni`, the result cache.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cache;
mod cni_command;
mod cnitool;
mod several_networks;
mod shim;
