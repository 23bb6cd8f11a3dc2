//! Why a node, or a range of it, is not reached. Everything else of the cluster is.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Family, Mac, Mode};

/// Something that keeps packets from a node or a range.
///
/// `node` is the one that is affected. Where two nodes claim the same thing, `other` is the older one, which keeps it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Problem {
    /// Two nodes have ranges that overlap: nobody routes the later Node's range.
    RangeOverlap {
        /// The later Node.
        node: String,
        /// The range that it loses.
        range: IpNet,
        /// The older Node.
        other: String,
        /// The range that stays.
        other_range: IpNet,
    },
    /// A range overlaps with that of Services, or with addresses that no pod can have: nobody routes it.
    RangeReserved {
        /// Whose range.
        node: String,
        /// The range.
        range: IpNet,
        /// What it overlaps with.
        reserved: IpNet,
    },
    /// A range is not within [`Settings::within`](crate::Settings::within): nobody routes it.
    RangeOutside {
        /// Whose range.
        node: String,
        /// The range.
        range: IpNet,
    },
    /// A range contains the endpoint of the node itself or of an older one: over a tunnel, the route would lead the tunnel's own packets back
    /// into it. Nobody routes it.
    RangeHoldsEndpoint {
        /// Whose range.
        node: String,
        /// The range.
        range: IpNet,
        /// Whose endpoint.
        other: String,
        /// The endpoint.
        endpoint: IpAddr,
    },
    /// An endpoint lies in an older Node's range, where only pods have addresses: the node is not reached by it.
    EndpointInRange {
        /// The later Node.
        node: String,
        /// Its endpoint.
        endpoint: IpAddr,
        /// The older Node.
        other: String,
        /// The range that stays.
        range: IpNet,
    },
    /// A range overlaps with a subnet of the own node: not routed here. Others do not know the subnet.
    RangeInUnderlay {
        /// Whose range.
        node: String,
        /// The range.
        range: IpNet,
        /// The own node.
        own: String,
        /// The own node's link.
        link: String,
        /// The link's subnet.
        subnet: IpNet,
    },
    /// A range is refused, and what nobody else has of it is more parts than are closed: packets to the rest are not kept from leaving plain.
    RestInParts {
        /// Whose range.
        node: String,
        /// The range.
        range: IpNet,
        /// How many parts are closed, the largest ones.
        closed: usize,
    },
    /// A node with ranges has no InternalIP that packets can be sent to.
    NoEndpoint {
        /// The node.
        node: String,
    },
    /// Two nodes have one endpoint: the later Node is not reached by it.
    SameEndpoint {
        /// The later Node.
        node: String,
        /// The older Node.
        other: String,
        /// What both have.
        endpoint: IpAddr,
    },
    /// An endpoint of another node is an address of the own one: packets to it would not leave.
    EndpointIsOwn {
        /// The other node.
        node: String,
        /// The own node.
        own: String,
        /// The address.
        endpoint: IpAddr,
    },
    /// A tunnel is needed, and no family has an endpoint on both sides.
    NoCommonFamily {
        /// The other node.
        node: String,
        /// The own node.
        own: String,
    },
    /// A direct route is needed, and one of both has no endpoint of the range's family.
    NoEndpointOfFamily {
        /// The node without one.
        node: String,
        /// The range's family.
        family: Family,
    },
    /// A direct route is needed, and the endpoint lies in no subnet of the own node.
    NotOnLink {
        /// The other node.
        node: String,
        /// The own node.
        own: String,
        /// The other node's endpoint.
        endpoint: IpAddr,
    },
    /// A node announces another mode than the own one has: packets of one would meet no device on the other.
    OtherMode {
        /// The node.
        node: String,
        /// What it announces.
        announced: Mode,
        /// The own node.
        own: String,
        /// The own mode.
        mode: Mode,
    },
    /// A tunnel of WireGuard is needed, and the node announces no key.
    NoKey {
        /// The node.
        node: String,
    },
    /// Two nodes announce one WireGuard key, as copies of a machine do, or one that was stolen from the other's Node: one of them has no
    /// tunnel by it here. Other nodes may see that otherwise, until one of both has another key.
    SameKey {
        /// The one that loses it.
        node: String,
        /// The one that had it first as far as the own node knows, or is older.
        other: String,
    },
    /// The VTEPs of two nodes have one MAC: the later Node has no vxlan.
    SameMac {
        /// The later Node.
        node: String,
        /// The older Node.
        other: String,
        /// What both have.
        mac: Mac,
    },
    /// IPv6 needs an MTU of 1280 (RFC 8200 section 5), and the kernel takes IPv6 from a link with less: no IPv6 range is routed here.
    MtuTooSmall {
        /// The own node.
        own: String,
        /// What is left for pods.
        mtu: u32,
    },
}

// === impl Problem ===

impl Problem {
    /// The node that is affected.
    #[must_use]
    pub fn node(&self) -> &str {
        match self {
            Problem::RangeOverlap { node, .. }
            | Problem::RangeReserved { node, .. }
            | Problem::RangeOutside { node, .. }
            | Problem::RangeHoldsEndpoint { node, .. }
            | Problem::EndpointInRange { node, .. }
            | Problem::RangeInUnderlay { node, .. }
            | Problem::RestInParts { node, .. }
            | Problem::NoEndpoint { node }
            | Problem::SameEndpoint { node, .. }
            | Problem::EndpointIsOwn { node, .. }
            | Problem::NoCommonFamily { node, .. }
            | Problem::NoEndpointOfFamily { node, .. }
            | Problem::NotOnLink { node, .. }
            | Problem::OtherMode { node, .. }
            | Problem::NoKey { node }
            | Problem::SameKey { node, .. }
            | Problem::SameMac { node, .. } => node,
            Problem::MtuTooSmall { own, .. } => own,
        }
    }

    /// Those that claim what only one can have, or what nobody can have: what one of them has may change with another one.
    pub(crate) fn contested(&self) -> impl Iterator<Item = &str> {
        let names: [Option<&String>; 2] = match self {
            Problem::RangeOverlap { node, other, .. }
            | Problem::RangeHoldsEndpoint { node, other, .. }
            | Problem::EndpointInRange { node, other, .. }
            | Problem::SameEndpoint { node, other, .. }
            | Problem::SameKey { node, other }
            | Problem::SameMac { node, other, .. } => [Some(node), Some(other)],
            Problem::RangeReserved { node, .. }
            | Problem::RangeOutside { node, .. }
            | Problem::RangeInUnderlay { node, .. }
            | Problem::RestInParts { node, .. } => [Some(node), None],
            Problem::NoEndpoint { .. }
            | Problem::EndpointIsOwn { .. }
            | Problem::NoCommonFamily { .. }
            | Problem::NoEndpointOfFamily { .. }
            | Problem::NotOnLink { .. }
            | Problem::OtherMode { .. }
            | Problem::NoKey { .. }
            | Problem::MtuTooSmall { .. } => [None, None],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::RangeOverlap { node, range, other, other_range } => {
                write!(f, "{range} of node {node} overlaps with {other_range} of node {other}, which is older and keeps it")
            }
            Problem::RangeReserved { node, range, reserved } => {
                write!(f, "{range} of node {node} overlaps with {reserved}, which is reserved")
            }
            Problem::RangeOutside { node, range } => {
                write!(f, "{range} of node {node} is in none of the cluster's ranges: see the setting clusterCIDRs")
            }
            Problem::RangeHoldsEndpoint { node, range, other, endpoint } => {
                write!(f, "{range} of node {node} contains {endpoint}, the InternalIP of node {other}")
            }
            Problem::EndpointInRange { node, endpoint, other, range } => {
                write!(f, "the InternalIP {endpoint} of node {node} lies in {range} of node {other}, which is older and keeps it")
            }
            Problem::RangeInUnderlay { node, range, own, link, subnet } => {
                write!(f, "{range} of node {node} overlaps with {subnet}, the subnet of {link} on node {own}")
            }
            Problem::RestInParts { node, range, closed } => write!(
                f,
                "{range} of node {node}, which overlaps with what others have, leaves too many parts that nobody has: the {closed} largest are \
                 closed to unencrypted packets, and the others are not; correct the ranges of Node {node}"
            ),
            Problem::NoEndpoint { node } => write!(f, "node {node} has no usable InternalIP"),
            Problem::SameEndpoint { node, other, endpoint } => {
                write!(f, "nodes {node} and {other} have the same InternalIP {endpoint}: node {other} is older and keeps it")
            }
            Problem::EndpointIsOwn { node, own, endpoint } => {
                write!(f, "the InternalIP {endpoint} of node {node} is an address of node {own}")
            }
            Problem::NoCommonFamily { node, own } => {
                write!(f, "nodes {node} and {own} have no InternalIP of the same family")
            }
            Problem::NoEndpointOfFamily { node, family } => {
                write!(f, "node {node} has no usable InternalIP of {family}, which a direct route to an {family} range needs")
            }
            Problem::NotOnLink { node, own, endpoint } => {
                write!(f, "the InternalIP {endpoint} of node {node} is in no subnet of node {own}, and the mode is direct: use auto")
            }
            Problem::OtherMode { node, announced, own, mode } => {
                write!(f, "node {node} announces the mode {announced}, and node {own} has {mode}")
            }
            Problem::NoKey { node } => write!(f, "node {node} announces no WireGuard key"),
            Problem::SameKey { node, other } => {
                write!(
                    f,
                    "nodes {node} and {other} announce the same WireGuard key, which node {other} had first: if node {node} is a copy of its \
                     machine, delete wireguard-keys.json in the stateDir of {node} and restart its agent; else find out who has written \
                     the annotation of Node {node}"
                )
            }
            Problem::SameMac { node, other, mac } => {
                write!(f, "nodes {node} and {other} have the same VTEP address {mac}: node {other} is older and keeps it")
            }
            Problem::MtuTooSmall { own, mtu } => {
                write!(f, "pods of node {own} would have an MTU of {mtu}, and IPv6 needs 1280: raise the MTU of the node's links")
            }
        }
    }
}
