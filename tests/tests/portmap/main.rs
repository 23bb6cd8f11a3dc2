//! `portmap`, judged by packets: who answers at a port of the host, and as whom it sees who asks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod conditions;
mod life;
mod packets;
mod refusals;
mod scene;
mod told;
mod tracked;
mod words;
