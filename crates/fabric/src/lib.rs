//! Makes a node's kernel what the planner (`between`) says: devices, forwarding entries, neighbours and routes towards the other nodes.
//!
//! ```text
//!   between::Plan ----------------------------+
//!                                             v
//!   kernel --Observed: ours, as a Plan--> difference --> batches of netlink messages --> kernel
//!      |            ^ only if nothing is       (between decides the order)
//!      |            | remembered
//!      +--Notice--> Fabric::notice: does it contradict what is remembered?
//! ```
//!
//! **What is ours** is recognised from the kernel alone, so that a process that starts continues where one that was killed has stopped:
//! routes have the protocol [`PROTOCOL`]; a device is a vxlan whose name says its VNI, its port and its endpoints' family, or a WireGuard
//! whose name says its port ([`device_name`]); whatever is on such a device is ours too. Nothing else is touched. Another program's route to a range that is wanted
//! keeps the range, and is reported. Beside one of IPv6 with a smaller metric the kernel accepts ours as well: if it was there before the
//! range was wanted, the next look at the kernel finds it.
//!
//! A WireGuard device gets its private key from [`Fabric::set_keys`] before it is up. Of its keys and peers the kernel reports no change, so
//! they are read by each [`Fabric::apply`].
//!
//! Everything stays in the kernel when the process ends. [`Fabric::apply`] is repeatable, and each of its messages may be its last.
//!
//! Neither direct routes nor vxlan need more than the tables. For what they need of the node, [`linux::forward`] turns forwarding on without
//! loss of an advertised default route, and [`Options`] loosens the reverse-path filter.

mod apply;
mod close;
mod device;
mod entry;
mod error;
mod notice;
mod observe;
mod wireguard;

pub use apply::{Applied, Fabric, Options};
pub use close::close;
pub use device::{is_ours, name as device_name, wireguard_port};
pub use error::{ApplyError, EntryError};
pub use wireguard::{KeyError, own_keys, public_key, tunnels};

/// The protocol number of our routes (`ip route show proto 110`). It is in neither linux/rtnetlink.h nor iproute2's `rt_protos`.
pub const PROTOCOL: u8 = 110;
