//! A link is born as it is to be: final name, final namespace, master, group and index, in one message.

use std::fmt::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd};

use cni::{IfName, Mac};

use nix::errno::Errno;

use super::{Bridge, IpvlanMode, LinkFlags, Macvlan, Vxlan, header};
use crate::batch::{BatchError, Request};
use crate::netlink::Netlink;
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use crate::uapi::rtnetlink::RTM_NEWLINK;
use crate::wire::Message;

/// A link to be made. `'fd` is the life of the namespace descriptors in it.
#[derive(Debug, Clone)]
pub struct LinkSpec<'fd> {
    /// Its name.
    pub name: IfName,
    /// What it is.
    pub kind: Kind<'fd>,
    /// Its index in the namespace where it will be; `None`: the next free one. Chosen, the requests that follow it in the
    /// same batch can name it.
    pub index: Option<u32>,
    /// Bytes in a packet; `None`: the kind's default, or the parent's.
    pub mtu: Option<u32>,
    /// Hardware address; `None`: a random one.
    pub mac: Option<Mac>,
    /// Index of the bridge, bond or VRF that it is to belong to, in the namespace where it will be.
    pub master: Option<u32>,
    /// Group, below 2^31 (`ip` refuses to name more).
    pub group: Option<u32>,
    /// Length of the transmit queue in packets.
    pub txqlen: Option<u32>,
    /// How many queues it has in each direction. `None`: as its kind has it; a veth is made with one for each possible processor then, and
    /// waits twice until every processor knows that it uses the first of them only (drivers/net/veth.c, `veth_init_queues`).
    pub queues: Option<u32>,
    /// The namespace where it will be; `None`: the socket's.
    pub netns: Option<BorrowedFd<'fd>>,
    /// Up from the start.
    pub up: bool,
}

/// What a link is, with what belongs to that kind alone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Kind<'fd> {
    /// One end of a pair; the specification describes this end.
    Veth(Peer<'fd>),
    /// A bridge.
    Bridge(Bridge),
    /// A macvlan on a parent.
    Macvlan {
        /// Index of the parent, in the socket's namespace.
        parent: u32,
        /// Mode and queue.
        macvlan: Macvlan,
    },
    /// An 802.1Q VLAN of a parent (`ip link add link PARENT type vlan id ID`). It comes up only while the parent is up
    /// (`ENETDOWN`), and a parent has one link for each VLAN, in whatever namespace (`EEXIST`).
    Vlan {
        /// Index of the parent, in the socket's namespace.
        parent: u32,
        /// Number of the VLAN, 0 to 4094.
        id: u16,
    },
    /// An ipvlan on a parent: a link with the parent's hardware address.
    Ipvlan {
        /// Index of the parent, in the socket's namespace.
        parent: u32,
        /// Mode, for all ipvlans of the parent.
        mode: IpvlanMode,
    },
    /// A link from which nothing ever comes and where everything vanishes.
    Dummy,
    /// A link to which another's packets can be led, to be queued as if they left by it (drivers/net/ifb.c).
    Ifb,
    /// A routing domain, master of the links that belong to it (Documentation/networking/vrf.rst).
    Vrf {
        /// Its routing table, not 0.
        table: u32,
    },
    /// An end of a network of Ethernet frames in UDP (RFC 7348). A namespace has one for each VNI, port and family (`EEXIST`).
    Vxlan(Vxlan),
    /// Packets to peers, encrypted. Its key, port and peers are set once it is there ([`crate::wireguard`]).
    WireGuard,
}

/// The other end of a veth pair. It is down: the kernel refuses to make it up (`ENOTCONN`), as there is no first end yet.
/// Nor can it have a master; let the end that needs one be the first.
#[derive(Debug, Clone)]
pub struct Peer<'fd> {
    /// Its name.
    pub name: IfName,
    /// Its index in the namespace where it will be.
    pub index: Option<u32>,
    /// Bytes in a packet; the two ends' may differ.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Group, below 2^31.
    pub group: Option<u32>,
    /// Length of the transmit queue in packets.
    pub txqlen: Option<u32>,
    /// How many queues it has in each direction, as of [`LinkSpec::queues`].
    pub queues: Option<u32>,
    /// The namespace where it will be; `None`: the socket's, wherever the first end is.
    pub netns: Option<BorrowedFd<'fd>>,
}

// === impl LinkSpec ===

impl<'fd> LinkSpec<'fd> {
    /// A link with nothing but a name and a kind, down.
    pub fn new(name: IfName, kind: Kind<'fd>) -> Self {
        LinkSpec {
            name,
            kind,
            index: None,
            mtu: None,
            mac: None,
            master: None,
            group: None,
            txqlen: None,
            queues: None,
            netns: None,
            up: false,
        }
    }
}

// === impl Peer ===

impl<'fd> Peer<'fd> {
    /// An end with nothing but a name.
    pub fn new(name: IfName) -> Self {
        Peer { name, index: None, mtu: None, mac: None, group: None, txqlen: None, queues: None, netns: None }
    }
}

// === impl Kind ===

impl Kind<'_> {
    /// The kernel's word for it, as in `ip link add type KIND`.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Veth(_) => "veth",
            Kind::Bridge(_) => "bridge",
            Kind::Macvlan { .. } => "macvlan",
            Kind::Vlan { .. } => "vlan",
            Kind::Ipvlan { .. } => "ipvlan",
            Kind::Dummy => "dummy",
            Kind::Ifb => "ifb",
            Kind::Vrf { .. } => "vrf",
            Kind::Vxlan(_) => "vxlan",
            Kind::WireGuard => "wireguard",
        }
    }

    /// The link that it stands on, in the socket's namespace.
    fn parent(&self) -> Option<u32> {
        match *self {
            Kind::Macvlan { parent, .. } | Kind::Vlan { parent, .. } | Kind::Ipvlan { parent, .. } => Some(parent),
            Kind::Veth(_) | Kind::Bridge(_) | Kind::Dummy | Kind::Ifb | Kind::Vrf { .. } | Kind::Vxlan(_) | Kind::WireGuard => None,
        }
    }

    /// `IFLA_INFO_DATA`: what belongs to that kind alone.
    fn write(&self, data: &mut Message) {
        match self {
            Kind::Veth(peer) => data.nest(VETH_INFO_PEER, |message| write_peer(peer, message)),
            Kind::Bridge(bridge) => bridge.write(data),
            Kind::Macvlan { macvlan, .. } => macvlan.write(data),
            Kind::Vlan { id, .. } => data.put_u16(IFLA_VLAN_ID, *id),
            // Flags 0, as `ip` and others send them: neither private nor vepa.
            Kind::Ipvlan { mode, .. } => {
                data.put_u16(IFLA_IPVLAN_MODE, (*mode).into());
                data.put_u16(IFLA_IPVLAN_FLAGS, 0);
            }
            Kind::Vrf { table } => data.put_u32(IFLA_VRF_TABLE, *table),
            Kind::Vxlan(vxlan) => vxlan.write(data),
            Kind::Dummy | Kind::Ifb | Kind::WireGuard => {}
        }
    }
}

/// Makes a link (`ip link add`). Errors: `EEXIST`, the name or index is taken; `EOPNOTSUPP`, the kernel lacks the kind;
/// `ENODEV`, master or parent is gone.
pub fn create<'fd>(spec: &LinkSpec<'fd>) -> Request<'fd> {
    let up = if spec.up { LinkFlags::UP } else { 0 };
    let fixed = header(family::UNSPEC, spec.index.unwrap_or(0), up, up);
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &fixed);
    Basics { mac: spec.mac.as_ref(), mtu: spec.mtu, txqlen: spec.txqlen, queues: spec.queues, group: spec.group, netns: spec.netns }
        .write(&mut message);
    if let Some(master) = spec.master {
        message.put_u32(IFLA_MASTER, master);
    }
    if let Some(parent) = spec.kind.parent() {
        message.put_u32(IFLA_LINK, parent);
    }
    message.put_str(IFLA_IFNAME, spec.name.as_str());
    message.nest(IFLA_LINKINFO, |info| {
        info.put(IFLA_INFO_KIND, spec.kind.name().as_bytes());
        if !matches!(spec.kind, Kind::Dummy | Kind::Ifb | Kind::WireGuard) {
            info.nest(IFLA_INFO_DATA, |data| spec.kind.write(data));
        }
    });
    Request::new(words(spec), message)
}

/// Whether this kernel makes links of a kind (`vlan`, `ipvlan`, `dummy`, ...), asked without making one. Its module is loaded
/// if need be, as by `ip link add`.
///
/// The request names no parent, and a hardware address of one byte, which every kind refuses before it registers anything;
/// that of a kind that is not there says `EOPNOTSUPP`.
///
/// # Errors
/// What the kernel says besides, such as `EPERM`.
pub fn probe(netlink: &mut Netlink, kind: &str) -> Result<bool, BatchError> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &header(family::UNSPEC, 0, 0, 0));
    message.put(IFLA_ADDRESS, &[0]);
    message.nest(IFLA_LINKINFO, |info| info.put(IFLA_INFO_KIND, kind.as_bytes()));
    match netlink.send_one(Request::new(format!("ask for links of type {kind}"), message)) {
        Err(e) if e.errno() == Errno::EOPNOTSUPP => Ok(false),
        Err(e) if e.errno() != Errno::EINVAL => Err(e),
        // EINVAL; nothing accepts such a link.
        _ => Ok(true),
    }
}

fn write_peer(peer: &Peer<'_>, message: &mut Message) {
    message.append(&header(family::UNSPEC, peer.index.unwrap_or(0), 0, 0));
    Basics { mac: peer.mac.as_ref(), mtu: peer.mtu, txqlen: peer.txqlen, queues: peer.queues, group: peer.group, netns: peer.netns }
        .write(message);
    message.put_str(IFLA_IFNAME, peer.name.as_str());
}

/// What both ends of a pair may have.
struct Basics<'a> {
    mac: Option<&'a Mac>,
    mtu: Option<u32>,
    txqlen: Option<u32>,
    queues: Option<u32>,
    group: Option<u32>,
    netns: Option<BorrowedFd<'a>>,
}

impl Basics<'_> {
    fn write(&self, message: &mut Message) {
        if let Some(mac) = self.mac {
            message.put(IFLA_ADDRESS, mac.as_bytes());
        }
        if let Some(mtu) = self.mtu {
            message.put_u32(IFLA_MTU, mtu);
        }
        if let Some(txqlen) = self.txqlen {
            message.put_u32(IFLA_TXQLEN, txqlen);
        }
        if let Some(queues) = self.queues {
            message.put_u32(IFLA_NUM_TX_QUEUES, queues);
            message.put_u32(IFLA_NUM_RX_QUEUES, queues);
        }
        if let Some(group) = self.group {
            message.put_u32(IFLA_GROUP, group);
        }
        if let Some(netns) = self.netns {
            message.put(IFLA_NET_NS_FD, &netns.as_raw_fd().to_ne_bytes());
        }
    }
}

fn words(spec: &LinkSpec<'_>) -> String {
    let mut what = format!("ip link add {} type {}", spec.name, spec.kind.name());
    let _ = match &spec.kind {
        Kind::Veth(peer) => write!(what, " peer {}", peer.name),
        Kind::Macvlan { parent, macvlan } => write!(what, " link if{parent} mode {}", macvlan.mode),
        Kind::Vlan { parent, id } => write!(what, " link if{parent} id {id}"),
        Kind::Ipvlan { parent, mode } => write!(what, " link if{parent} mode {mode}"),
        Kind::Vrf { table } => write!(what, " table {table}"),
        Kind::Vxlan(Vxlan { vni, port, .. }) => write!(what, " id {vni} dstport {port}"),
        Kind::Bridge(_) | Kind::Dummy | Kind::Ifb | Kind::WireGuard => Ok(()),
    };
    if let Some(master) = spec.master {
        let _ = write!(what, " master if{master}");
    }
    what
}
