//! A pod's attachments in a real namespace. Plugins are scripts that keep what they were given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod device;
mod order;
mod retire;
mod world;
