//! What a plan is made from: the settings, the Nodes, and the links of the own node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What wraps packets on their way between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tunnel {
    /// Ethernet frames in UDP (RFC 7348).
    Vxlan,
    /// Encrypted packets in UDP.
    WireGuard,
}

/// How packets get to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// By a route via the peer's endpoint, which has to be on-link. flannel calls it `host-gw`.
    Direct,
    /// Always over vxlan.
    Vxlan,
    /// Always over WireGuard.
    WireGuard,
    /// Direct where both endpoints lie in one subnet, and over this tunnel elsewhere. flannel calls it `DirectRouting`.
    Auto(Tunnel),
}

/// The vxlan network of a cluster, the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// The network's number (VNI), of 24 bits.
    pub vni: u32,
    /// The UDP port. IANA's is 4789; the kernel's default is 8472.
    pub port: u16,
}

/// What a person chooses, the same on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How packets get to other nodes.
    pub mode: Mode,
    /// The vxlan network, where the mode uses it.
    pub vxlan: Vxlan,
    /// The UDP port of each [`PublicKey`] that names none.
    pub wireguard_port: u16,
    /// Ranges that no pod may have an address of: those of Services.
    pub reserved: Vec<IpNet>,
    /// Where all pods' addresses are. Empty: anywhere, so that a Node is believed whatever its range is.
    pub within: Vec<IpNet>,
}

// === impl Settings ===

impl Settings {
    /// Whether a range is not where pods' addresses are.
    pub(crate) fn is_outside(&self, range: &IpNet) -> bool {
        !self.within.is_empty() && !self.within.iter().any(|all| all.contains(range))
    }
}

/// A WireGuard key that a node announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey {
    /// The key itself.
    pub key: [u8; 32],
    /// The UDP port that its device listens on; `None` for [`Settings::wireguard_port`].
    pub port: Option<u16>,
    /// The rotation that it is of ([`rotation`](crate::rotation)).
    pub rotation: u64,
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// `metadata.name`, unique in the cluster.
    pub name: String,
    /// `metadata.uid`: a Node that was deleted and created again under the same name has another one.
    pub uid: String,
    /// `metadata.creationTimestamp`, in UTC as the API server writes it, so that texts sort as times: the older of two Nodes keeps what
    /// both claim.
    pub created: String,
    /// `spec.podCIDRs`, in any order. Empty until the node is given some.
    pub ranges: Vec<IpNet>,
    /// `status.addresses` of type `InternalIP`. The first usable one of each family is the node's endpoint.
    pub endpoints: Vec<IpAddr>,
    /// Its WireGuard keys, the newest last. During a rotation there are two, each with a port of its own; of more, the last two count.
    ///
    /// Two nodes have a tunnel for each rotation that both announce a key of, and send over the newest of them that is not
    /// [`OwnNode::unproven`].
    pub keys: Vec<PublicKey>,
    /// The rotation of keys that it follows.
    pub rotation: u64,
    /// It sends by its key of this rotation to every node that has one.
    pub moved: u64,
    /// The mode that its agent has announced; `None` if it has not yet, and is assumed to have ours.
    pub mode: Option<Mode>,
}

/// The node that the plan is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnNode {
    /// Its name among the Nodes.
    pub name: String,
    /// Its links to other nodes. The pods' own links are not among them.
    pub links: Vec<Underlay>,
    /// Where what the node itself sends through a tunnel comes from: addresses of its ranges, so that peers know the way back, which no pod
    /// has. `None`: the first address of each range.
    pub addresses: Option<BTreeSet<IpAddr>>,
    /// Peers of its WireGuard devices, by port and public key, with whom no handshake has been complete yet: perhaps they do not know the
    /// own key. Where there is another tunnel to the same node, routes lead through that one.
    pub unproven: BTreeSet<(u16, [u8; 32])>,
    /// A key of the own node that others are to be told of when its device is there.
    pub spare: Option<PublicKey>,
    /// Which ranges the own WireGuard devices allow to a public key already. A Node that has one of them keeps the key against any other
    /// Node that announces it.
    pub known: BTreeMap<[u8; 32], BTreeSet<IpNet>>,
}

/// A link by which a node reaches other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Underlay {
    /// The kernel's number of the link.
    pub index: u32,
    /// Its name, for messages.
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    /// Its addresses, each with the prefix length of its subnet.
    pub addresses: Vec<IpNet>,
}

/// A word that is no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown mode {0:?}: use auto, auto-wireguard, direct, vxlan or wireguard")]
pub struct UnknownMode(pub String);

// === impl Family ===

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Family::V4 { "IPv4" } else { "IPv6" })
    }
}

// === impl Tunnel ===

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Tunnel::Vxlan { "vxlan" } else { "wireguard" })
    }
}

// === impl Mode ===

impl Mode {
    /// The tunnel that it uses, at least for some peers.
    #[must_use]
    pub fn tunnel(self) -> Option<Tunnel> {
        match self {
            Mode::Direct => None,
            Mode::Vxlan => Some(Tunnel::Vxlan),
            Mode::WireGuard => Some(Tunnel::WireGuard),
            Mode::Auto(tunnel) => Some(tunnel),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Direct => "direct",
            Mode::Vxlan => "vxlan",
            Mode::WireGuard => "wireguard",
            Mode::Auto(Tunnel::Vxlan) => "auto",
            Mode::Auto(Tunnel::WireGuard) => "auto-wireguard",
        })
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    /// From the word that [`Display`](fmt::Display) gives.
    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        let all = [Mode::Direct, Mode::Vxlan, Mode::WireGuard, Mode::Auto(Tunnel::Vxlan), Mode::Auto(Tunnel::WireGuard)];
        all.into_iter().find(|mode| mode.to_string() == word).ok_or_else(|| UnknownMode(word.to_owned()))
    }
}
