//! Pods get their ports of a real Neutron, over an object store that answers as the API server does: `cargo xtask test neutron ports::`.
//!
//! What an agent of Neutron does, the test does: it writes a port's status into Neutron's database. Hosts whose names end in `-down` have
//! ports that are DOWN until then.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod adopt;
mod annotation;
mod answers;
mod between;
mod deployed;
mod existing;
mod follow;
mod killed;
mod kuryr;
mod life;
mod many;
mod namespaces;
mod nested;
mod refused;
mod rights;
mod scene;
