//! Netloom's built-in plugins: one file each, and one table of them.
//!
//! ```text
//!   interface   bridge  macvlan  loopback     make a link; delegate addresses to an IPAM plugin
//!   chained     tuning  sbr  vrf              change a link that another plugin made
//!   before      flannel                       another plugin, with what flanneld says
//!   addresses   host-local  static            say which addresses
//! ```
//!
//! What interface plugins share stands in four files: `address.rs` (an IPAM result onto an interface), `verify.rs` (is it
//! still there) `mac.rs` (who asked for which hardware address) and `identity.rs` (what tells our links from all others).

mod address;
mod bridge;
mod flannel;
mod host_local;
mod identity;
mod loopback;
mod mac;
mod macvlan;
mod masquerade;
mod ptp;
mod sbr;
mod static_addresses;
mod tuning;
mod verify;
mod veth;
mod vrf;

use cni::{CniError, Code};
use plugin::Builtins;

/// Every built-in plugin. To add one: its file, a line above, a line here.
pub const BUILTINS: Builtins = &[
    &bridge::Bridge,
    &flannel::Flannel,
    &host_local::HostLocal,
    &loopback::Loopback,
    &macvlan::Macvlan,
    &ptp::Ptp,
    &sbr::Sbr,
    &static_addresses::Static,
    &tuning::Tuning,
    &vrf::Vrf,
];

/// A failure of the kernel or of our own, as the reference library numbers such errors.
pub(crate) fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}
