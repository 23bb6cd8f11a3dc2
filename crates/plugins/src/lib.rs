//! Netloom's built-in plugins: one file each, and one table of them.
//!
//! ```text
//!   interface   bridge  ptp  ovs  ovs-hybrid        a veth pair to the host
//!               ovs-vhost-user                      a socket
//!               macvlan  ipvlan  vlan  dummy  tap   a link in the container, on a parent or on nothing
//!               host-device  sriov-vf  loopback     a link that is there
//!               dpdk-device                         a device for a program
//!               flannel                             one of those, by a daemon's file
//!   chained     tuning  sbr  vrf                    change a link that another plugin made
//!               bandwidth                           holds back what passes it
//!               portmap                             publish ports at the host's addresses
//!               firewall                            lets what passes it through the host's firewall
//!               passthru                            nothing: it gives a chain its first result
//!   addresses   host-local  static  dhcp            say which addresses
//!               pool  whereabouts                   the same, durably
//! ```
//!
//! What interface plugins share stands in files of its own: `address.rs` (an IPAM result onto an interface), `verify.rs` (is it
//! still there), `mac.rs` (who asked for which hardware address), `identity.rs` (what tells our links from all others),
//! `link_names.rs` (names that programs of the node give theirs),
//! `veth.rs` (pairs), `masquerade.rs`, `spoof.rs` (forged hardware addresses), `card.rs` (PCI network cards), `single.rs` (links that live in the container alone)
//! `parent.rs` (what some of those stand on), `trunk.rs` (VLANs with tags) and `pool_store.rs` (where addresses of pools are held) and `pool_agent.rs` (by whom).

mod address;
mod bandwidth;
mod bridge;
mod card;
mod conflict;
mod device_files;
mod device_id;
mod dhcp;
mod dpdk_device;
mod dummy;
mod firewall;
mod flannel;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzz;
mod host_device;
mod host_local;
mod identity;
mod ipvlan;
mod link_names;
mod loopback;
mod mac;
mod macvlan;
mod masquerade;
mod ovs;
mod ovs_hybrid;
mod ovs_vhost_user;
mod parent;
mod passthru;
mod pool;
mod pool_agent;
mod pool_store;
mod portmap;
mod ptp;
mod reverse;
mod sbr;
mod single;
mod spoof;
mod sriov_vf;
mod static_addresses;
mod strict;
mod tap;
mod trunk;
mod tuning;
mod verify;
mod veth;
mod vlan;
mod vrf;
mod whereabouts;

use cni::{AttachmentId, CniError, Code};
pub use identity::look_alike;
pub use link_names::{is_switch_name, maker_of_link, program_of_link};
use linux::{Inside, Netlink};
pub use ovs::port::{SHORT_ID, is_usual as is_usual_switch, short_id};
use plugin::Builtins;

/// Every built-in plugin. To add one: its file, a line above, a line here.
pub const BUILTINS: Builtins = &[
    &bandwidth::Bandwidth,
    &bridge::Bridge,
    &dhcp::Dhcp,
    &dpdk_device::DpdkDevice,
    &dummy::Dummy,
    &firewall::Firewall,
    &flannel::Flannel,
    &host_device::HostDevice,
    &host_local::HostLocal,
    &ipvlan::Ipvlan,
    &loopback::Loopback,
    &macvlan::Macvlan,
    &ovs::Ovs,
    &ovs_hybrid::OvsHybrid,
    &ovs_vhost_user::OvsVhostUser,
    &passthru::Passthru,
    &pool_agent::Shared(pool::Pool),
    &portmap::PortMap,
    &ptp::Ptp,
    &sbr::Sbr,
    &sriov_vf::SriovVf,
    &static_addresses::Static,
    &tap::Tap,
    &tuning::Tuning,
    &vlan::Vlan,
    &vrf::Vrf,
    &pool_agent::Shared(whereabouts::Whereabouts),
];

pub use bandwidth::{Limits, Rate, limits};
pub use pool_agent::{held_here, of_pool_store};
pub use pool_store::{hold as hold_pool_store, key as pool_key};

/// The name of the host's end of an attachment's veth pair, where it has one.
#[must_use]
pub fn host_end(id: &AttachmentId) -> Option<String> {
    veth::outer_name(id).ok().map(|name| name.as_str().to_owned())
}

/// A socket of the namespace that the thread is in.
pub(crate) fn open(inside: &Inside) -> Result<Netlink, CniError> {
    Netlink::open(inside).map_err(internal)
}

/// A failure of the kernel or of our own, as the reference library numbers such errors.
pub(crate) fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}
