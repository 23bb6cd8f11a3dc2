//! The built-in plugins, each in a file or directory of its name, as a runtime executes them: judged by `ip`, `bridge`, `nft`, `tc` and packets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bad_input;
mod bandwidth;
mod bridge;
mod card;
mod dhcp;
mod firewall;
mod flannel;
mod gc;
mod hardware_address;
mod host_device;
mod loopback;
mod macvlan;
mod masquerade;
mod ovs;
mod portmap;
mod ptp;
mod router_advertisements;
mod sbr;
mod scene;
mod spoof;
mod status;
mod strict;
mod tap;
mod tuning;
mod whose_link;
