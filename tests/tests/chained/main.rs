//! Plugins that change, or stand before, what another plugin makes: judged by `ip` and by packets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod flannel;
mod roads;
mod sbr;
mod tuning;
mod whole;
