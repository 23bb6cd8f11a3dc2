//! Netloom's built-in plugins: one file each, and one table of them.
//!
//! ```text
//!   interface   bridge  macvlan  loopback     make a link; delegate addresses to an IPAM plugin
//!   chained     tuning                        change a link that another plugin made
//!   addresses   host-local  static            say which addresses
//! ```
//!
//! What interface plugins share stands in four files: `address.rs` (an IPAM result onto an interface), `verify.rs` (is it
//! still there) `mac.rs` (who asked for which hardware address) and `identity.rs` (what tells our links from all others).

mod address;
mod bridge;
mod host_device;
mod host_local;
mod identity;
mod loopback;
mod mac;
mod macvlan;
mod masquerade;
mod ptp;
mod static_addresses;
mod tap;
mod tuning;
mod verify;
mod veth;

use cni::{CniError, Code};
use plugin::Builtins;

/// Every built-in plugin. To add one: its file, a line above, a line here.
pub const BUILTINS: Builtins = &[
    &bridge::Bridge,
    &host_device::HostDevice,
    &host_local::HostLocal,
    &loopback::Loopback,
    &macvlan::Macvlan,
    &ptp::Ptp,
    &static_addresses::Static,
    &tap::Tap,
    &tuning::Tuning,
];

/// A failure of the kernel or of our own, as the reference library numbers such errors.
pub(crate) fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}
