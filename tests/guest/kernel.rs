//! What needs a kernel with modules: 802.1Q, bridges that filter VLANs, Open vSwitch's datapath, ipvlan, vrf, dummy, bonding, SCTP, WireGuard,
//! cards with virtual functions; and a little of what every kernel has, because the guest's is an older one.
//!
//! These run in the guest, all in one boot: `cargo xtask test guest`, some of them with
//! `cargo xtask test guest bond`. To look around there: `make guest`.

mod bond;
mod bridge_vlan;
mod cards;
mod dummy;
mod every_kernel;
mod ipvlan;
mod lacking;
mod links;
mod nested_vifs;
mod ovs;
mod sctp;
mod verify;
mod vlan;
mod vrf;
mod wireguard;
