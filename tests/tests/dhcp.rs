//! `dhcp` and its daemon against real servers, as `ip`, packets and the servers' own logs tell.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "dhcp/crash.rs"]
mod crash;
#[path = "dhcp/daemon.rs"]
mod daemon;
#[path = "dhcp/kea.rs"]
mod kea;
#[path = "dhcp/leases.rs"]
mod leases;
#[path = "dhcp/life.rs"]
mod life;
#[path = "dhcp/mended.rs"]
mod mended;
#[path = "dhcp/server.rs"]
mod server;
#[path = "dhcp/six.rs"]
mod six;
