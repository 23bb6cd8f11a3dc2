//! Netloom's own nftables rules: installed once per network namespace. Only chains of networks and conditions that nobody has go, when they are many.
//! What an attachment adds and takes away are elements of their maps: a packet's cost does not
//! grow with pods, nor does a DEL's (13 microseconds). An ADD's does a little: the kernel
//! looks for loops in a map of jumps, 80 ns an element (50 microseconds in all with 250
//! pods).
//!
//! ```text
//! ADD    masquerade(id, addresses) -> elements -> install_and_add: one transaction
//!        host_ports(id, ports)     -> the same
//!        spoof_guard(id, port)     -> the same
//!        strict_source(id, port)   -> the same
//!        ordinary(id, port, mac)   -> the same
//!        reverse_path(id, link)    -> the same
//! CHECK  elements -> check
//! DEL    elements, or owned_by(id) where the addresses are not known any more
//!        -> a teardown -> linux::nft::Socket::delete_missing_ok
//! GC     stale: those whose owner is not valid -> the same
//! flushed by somebody: elements of all -> restore
//!
//! the node: Egress, ranges of no attachment -> keep
//!           Tunnelled, the same             -> guard_tunnels
//!           Enclosed, the nodes' addresses  -> guard_vxlan
//! ```
//!
//! All of it is in the table `inet netloom`, and what is about frames in `bridge netloom`; look with
//! `nft list table inet netloom`. A transaction may change both. Each element has its owner as its
//! comment ([`OwnerKey`]). The kernel needs NAT in the inet family (Linux 5.2).
//!
//! What somebody wants in the words of iptables goes to that: module [`iptables`].

mod conditions;
mod egress;
mod firewall;
mod gate;
mod guards;
mod hostports;
mod idle;
mod ingress;
mod install;
pub mod iptables;
mod look;
mod masquerade;
mod meaning;
mod owner;
mod part;
mod phrase;
mod ranges;
mod restore;
mod reverse;
mod source;
mod spoof;
mod tunnelled;
mod vxlan;

pub use conditions::{CONDITIONS, ConditionError, Conditions, host_ports_if};
pub use egress::{EGRESS, Egress, JoinedEgress, change, egress_is_whole, keep};
pub use firewall::{DELEGATED, FORWARD_MARK, FORWARDED, Firewall, delegated, delegated_of, forwarded, places};
pub use gate::{Gate, GateError, gate, is_legacy, legacy_drops_forwarded, open_gate};
pub use guards::{GUARDS, is_ordinary, ordinary, ordinary_with};
pub use hostports::{HOST_PORTS, HostPort, Protocol, Rewrite, are_free, host_ports, lacks_host_ports, sources};
pub use idle::forget_idle_chains;
pub use ingress::{INGRESS, Policy, forget_idle_bridges, policed, policy_of};
pub use install::{AddError, guard_loopback, install_and_add, repair};
pub use look::{CheckError, all, check, of_container, owned_by, stale};
pub use masquerade::{MASQUERADE, masquerade};
pub use meaning::{Meaning, meanings};
pub use owner::OwnerKey;
pub use part::Subject;
pub use ranges::RangeChanges;
pub use restore::{Restored, missing_of, restore};
pub use reverse::{REVERSE_PATHS, forget_reverse_paths, has_reverse_paths, reverse_path, reverse_path_of_all};
pub use source::{strict, strict_address, strict_port, strict_source};
pub use spoof::{guarded, guarded_mac, guarded_port, lacks_bridge_family, spoof_guard};
pub use tunnelled::{TUNNEL_PREFIX, TUNNELLED, Tunnelled, guard_tunnels};
pub use vxlan::{Enclosed, VXLAN, guard_vxlan, guard_vxlan_also};

/// The name of our table of each family.
pub const TABLE: &str = "netloom";

#[cfg(fuzzing)]
#[doc(hidden)]
pub use conditions::fuzz as fuzz_conditions;

#[cfg(test)]
mod tests;
