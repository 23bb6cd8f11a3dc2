//! The crate against the real kernel, in namespaces of the tests' own, judged by `ip`, `bridge`, `tc` and `/proc`.
//! Needs root and iproute2.

// A test that cannot go on says so by panicking; clippy.toml allows it in `#[test]` functions only, not in what they share.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod addr;
mod echo;
mod link;
mod link_change;
mod link_remove;
mod monitor;
mod netlink;
mod netns;
mod offload;
mod process;
mod route;
mod rule;
mod space;
mod sysctl;
mod tc;
mod view;
mod vxlan;
mod xtables;
