//! `firewall`, judged by packets: what a host's firewall lets through.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod firewalld;
mod iptables;
mod nftables;
mod policies;
mod scene;
