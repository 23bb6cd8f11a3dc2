//! Beside other programs on a host, the real ones: podman, dockerd, firewalld, kube-proxy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod firewalls;
mod podman;
