//! The crate against the real kernel, in namespaces of the tests' own, judged by `ip`, `bridge`, `ping` and `/proc`.
//! Needs root, iproute2, iputils and dnsmasq, and a kernel with vxlan.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod closed;
mod cluster;
mod foreign;
mod forwarding;
mod history;
mod killed;
mod oracle;
mod paths;
mod repair;
mod scale;
mod space;
