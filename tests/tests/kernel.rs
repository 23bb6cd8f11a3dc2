//! What needs a kernel with modules: 802.1Q, bridges that filter VLANs, ipvlan, vrf, dummy, bonding, SCTP; and a little of what
//! every kernel has, because the guest's is an older one.
//!
//! These run in the guest, all in one boot: `cargo test -p netloom-tests --test guest`, some of them with
//! `GUEST_TESTS="bond"`. To look around there: `make guest`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "kernel/bond.rs"]
mod bond;
#[path = "kernel/bridge_vlan.rs"]
mod bridge_vlan;
#[path = "kernel/dummy.rs"]
mod dummy;
#[path = "kernel/everyday.rs"]
mod everyday;
#[path = "kernel/ipvlan.rs"]
mod ipvlan;
#[path = "kernel/lacking.rs"]
mod lacking;
#[path = "kernel/links.rs"]
mod links;
#[path = "kernel/sctp.rs"]
mod sctp;
#[path = "kernel/vlan.rs"]
mod vlan;
#[path = "kernel/vrf.rs"]
mod vrf;
