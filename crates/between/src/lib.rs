//! How packets get from the pods of one node to those of another: what the kernel's tables have to hold, given the Nodes. No kernel, no I/O,
//! no clock.
//!
//! ```text
//!   Settings   NodeSeen, one per Node   OwnNode
//!       |          |                       |
//!       |          v                       |
//!       +--> members: ranges, endpoints,   |     what every node decides alike: the older Node keeps what two of them claim
//!       |    MACs and keys without conflict|
//!       |          |                       |
//!       |          v                       v
//!       +--> paths: one per peer and family of its ranges      direct | vxlan | WireGuard
//!                  |
//!                  v
//!                Plan: devices, peers, forwarding, neighbours, routes, mtu; and problems      (Planner: the same, change by change)
//!                  | difference
//!                  v
//!                Change, in the order in which they are applied
//!
//!   a packet over vxlan:   10.1.2.7 --route--> via 10.1.2.0 --neighbour--> 02:5e:.. --forwarding--> 192.0.2.12
//!                          fd00:1:2::7 --route--> via fe80::5e:.. --neighbour, forwarding--> the same
//!   over WireGuard:        10.1.2.7 --route--> device       --peer that is allowed 10.1.2.0/24--> 192.0.2.12:51820
//!   direct:                10.1.2.7 --route--> via 192.0.2.12
//! ```
//!
//! Nodes exchange nothing for vxlan and direct routes: ranges, endpoints and the VTEP's MAC follow from the Node object. For WireGuard a node
//! announces its public key; how all get new ones is in [`rotation`]. The tables are those of flannel's `host-gw` and `vxlan` backends (`pkg/backend/vxlan/vxlan_network.go`), but for
//! the next hops of IPv6 over vxlan.
//!
//! Two nodes that see the same Nodes agree on every conflict and on the path between them, whoever looks. What only the own node can know
//! is left out of that: its links, their subnets and their MTU.

mod difference;
mod former;
mod members;
mod paths;
mod plan;
mod planner;
mod problems;
pub mod rotation;
mod seen;
mod tunnel;

pub use difference::{Change, Entry};
pub use plan::{Device, OwnNodeMissing, Peer, Plan, Route, Wanted, plan};
pub use planner::Planner;
pub use problems::Problem;
pub use seen::{Family, Mode, NodeSeen, OwnNode, PublicKey, Settings, Tunnel, Underlay, UnknownMode, Vxlan};
pub use tunnel::{Mac, header, vtep_mac};

#[cfg(test)]
mod tests;
