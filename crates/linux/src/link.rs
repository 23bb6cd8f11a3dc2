//! Links: read (`ip -d link show`), created, changed, deleted.
//!
//! Every change is a [`Request`] to put in a batch; what is read comes back as [`Link`].

use std::fmt;

use cni::Mac;
use nix::errno::Errno;

use crate::batch::{Reply, Request};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::rtnetlink::*;
use crate::wire::{Attributes, Message, Received, i32_at, text, u32_at};

mod altname;
mod change;
mod create;
mod ipv6_conf;
mod kind;
mod port;
mod remove;
mod virtual_function;
mod vlan;
mod vxlan;

pub use altname::{add_altname, remove_altname};
pub use change::{AddrGenMode, Change, Ipv4Conf, set, set_bridge, set_macvlan_mode};
pub use create::{Kind, LinkSpec, Peer, create, probe};
pub use ipv6_conf::Ipv6Conf;
pub use kind::{Bridge, IpvlanMode, IpvlanModeError, Macvlan, MacvlanMode, MacvlanModeError, Tun};
pub use port::{PortFlags, PortState, set_port};
pub use remove::{delete, delete_by_name, delete_group};
pub use virtual_function::{VirtualFunction, set_vf_mac, set_vf_vlan};
pub use vlan::{PortVlan, add_vlans, delete_vlans, probe_vlan_filtering};
pub use vxlan::{Vxlan, set_vxlan};

/// Length of a name with its end (linux/if.h).
const IFNAMSIZ: usize = 16;

/// The index of `lo`, in every namespace (include/net/net_namespace.h, `LOOPBACK_IFINDEX`).
pub const LOOPBACK: u32 = 1;

/// Length of an altname with its end (linux/netdevice.h).
const ALTIFNAMSIZ: usize = 128;

/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;

/// The group of links that go with their last user: it is below those of `Netlink::delete_together`, and a link is born with it.
pub const TRANSIENT: u32 = 0x2e6c_6f6d;

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Index in its namespace, from 1.
    pub index: u32,
    /// Name. Bytes that are no UTF-8 are replaced.
    pub name: String,
    /// What made it: `veth`, `bridge`, `macvlan`, ...; `None` for hardware and `lo`.
    pub kind: Option<String>,
    /// Hardware address; `None` where it has none of a usual length.
    pub mac: Option<Mac>,
    /// Bytes in a packet, without the link's own header.
    pub mtu: u32,
    /// The smallest MTU that its driver takes (`ip -d link`: minmtu).
    pub min_mtu: u32,
    /// The largest one (maxmtu); 0: the driver has no limit.
    pub max_mtu: u32,
    /// Up, promiscuous, ...
    pub flags: LinkFlags,
    /// State of operation (RFC 2863).
    pub operstate: OperState,
    /// Index of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// Index of the link it stands on (macvlan, vlan, ipvlan), or of the other end (veth), in the namespace that `link_netnsid` names.
    pub parent: Option<u32>,
    /// Number, in this namespace, of the namespace where `parent` is; `None`: this one.
    pub link_netnsid: Option<i32>,
    /// Group, 0 unless set.
    pub group: u32,
    /// How many want it to receive what is not for it (`ip -d link`: promiscuity): also macvlans and ipvlans that stand on a bridge and are
    /// up, in whatever namespace.
    pub promiscuity: u32,
    /// Length of the transmit queue in packets.
    pub txqlen: u32,
    /// How large a packet its segments are made of.
    pub segments: SegmentLimits,
    /// Free text (`ip link set alias`).
    pub alias: Option<String>,
    /// Further names (`ip link property add dev NAME altname`); [`Netlink::link`] finds it by any of them.
    pub altnames: Vec<String>,
    /// The hardware address that it has from its maker, where its driver tells one (Linux 5.6).
    pub permanent_mac: Option<Mac>,
    /// The device that it is an interface of, and the bus that this is on: `0000:03:00.1` on `pci` (Linux 5.14).
    pub device: Option<BusDevice>,
    /// What a macvlan is made with.
    pub macvlan: Option<Macvlan>,
    /// The number of a vlan.
    pub vlan: Option<u16>,
    /// The mode of an ipvlan.
    pub ipvlan: Option<IpvlanMode>,
    /// The routing table of a VRF.
    pub vrf_table: Option<u32>,
    /// What a vxlan is made with.
    pub vxlan: Option<Vxlan>,
    /// A tunnel whose program says for each packet where it goes (`external`), as Cilium and Open vSwitch do.
    pub external: bool,
    /// Who may use a tap.
    pub tun: Option<Tun>,
    /// What a bridge is made with.
    pub bridge: Option<Bridge>,
    /// Its flags as a bridge's port.
    pub port: Option<PortFlags>,
    /// Whether it passes frames on as a bridge's port.
    pub port_state: Option<PortState>,
    /// What a card has for its virtual functions; only [`Netlink::virtual_functions`] asks for it.
    virtual_functions: Vec<VirtualFunction>,
    ipv6_conf: Vec<i32>,
}

/// A device, as `/sys/bus/BUS/devices/NAME` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BusDevice {
    /// `pci`, `virtio`, `usb`, ...
    pub bus: String,
    /// Its name there.
    pub name: String,
}

/// How large packets may be that are cut into segments by the link, or are made of those that it received, in bytes; `None`: the kernel does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentLimits {
    /// Of a packet that it is to cut (`gso_max_size`).
    pub gso: Option<u32>,
    /// The same of an IPv4 packet (Linux 6.3).
    pub gso_v4: Option<u32>,
    /// How many segments it is to cut one into (`gso_max_segs`).
    pub segments: Option<u32>,
    /// Of a packet that is made of those that it received (`gro_max_size`, Linux 5.19).
    pub gro: Option<u32>,
    /// The same of IPv4 packets (Linux 6.3).
    pub gro_v4: Option<u32>,
}

/// Flags of a link (`IFF_*`, linux/if.h).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkFlags(u32);

/// State of operation of a link (RFC 2863; linux/if.h, `IF_OPER_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperState {
    /// The driver does not say; usable (`lo`).
    Unknown,
    /// A part is missing.
    NotPresent,
    /// Down.
    Down,
    /// What it stands on is down, or a veth's other end.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waiting for something, such as 802.1X.
    Dormant,
    /// Packets pass.
    Up,
    /// A value that this program does not know.
    Other(u8),
}

// === impl LinkFlags ===

impl LinkFlags {
    pub(crate) const UP: u32 = 0x1;
    pub(crate) const NOARP: u32 = 0x80;
    pub(crate) const PROMISC: u32 = 0x100;
    pub(crate) const ALLMULTI: u32 = 0x200;
    pub(crate) const MULTICAST: u32 = 0x1000;

    /// The raw `IFF_*` bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Administratively up (`ip link set up`).
    pub fn up(self) -> bool {
        self.0 & Self::UP != 0
    }

    /// `lo` (`IFF_LOOPBACK`).
    pub fn loopback(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// Receives what is not for it, because someone set it so (`ip link set promisc on`); what a bridge does to its ports
    /// does not count.
    pub fn promisc(self) -> bool {
        self.0 & Self::PROMISC != 0
    }

    /// Receives all multicast (`ip link set allmulticast on`).
    pub fn allmulti(self) -> bool {
        self.0 & Self::ALLMULTI != 0
    }

    /// Multicast is enabled (`ip link set multicast on`).
    pub fn multicast(self) -> bool {
        self.0 & Self::MULTICAST != 0
    }

    /// Does without ARP.
    pub fn noarp(self) -> bool {
        self.0 & Self::NOARP != 0
    }

    /// There is a carrier: the other end, or the cable, is up (`IFF_LOWER_UP`).
    pub fn lower_up(self) -> bool {
        self.0 & 0x1_0000 != 0
    }
}

impl fmt::Debug for LinkFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkFlags({:#x})", self.0)
    }
}

// === impl OperState ===

impl From<u8> for OperState {
    fn from(value: u8) -> Self {
        match value {
            0 => OperState::Unknown,
            1 => OperState::NotPresent,
            2 => OperState::Down,
            3 => OperState::LowerLayerDown,
            4 => OperState::Testing,
            5 => OperState::Dormant,
            6 => OperState::Up,
            other => OperState::Other(other),
        }
    }
}

// === impl Link ===

impl Link {
    /// `None` for what has no index or name.
    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(IFINFOMSG)?;
        let mut link = Link {
            index: fixed.get(4..).and_then(u32_at)?,
            name: String::new(),
            kind: None,
            mac: None,
            mtu: 0,
            min_mtu: 0,
            max_mtu: 0,
            flags: LinkFlags(fixed.get(8..).and_then(u32_at)?),
            operstate: OperState::Unknown,
            master: None,
            parent: None,
            link_netnsid: None,
            group: 0,
            promiscuity: 0,
            txqlen: 0,
            alias: None,
            segments: SegmentLimits::default(),
            altnames: Vec::new(),
            permanent_mac: None,
            device: None,
            macvlan: None,
            vlan: None,
            ipvlan: None,
            vrf_table: None,
            vxlan: None,
            external: false,
            tun: None,
            bridge: None,
            port: None,
            port_state: None,
            virtual_functions: Vec::new(),
            ipv6_conf: Vec::new(),
        };
        for (kind, value) in Attributes(attributes) {
            match kind {
                IFLA_IFNAME => link.name = text(value),
                IFLA_ADDRESS => link.mac = Mac::from_bytes(value),
                IFLA_MTU => link.mtu = u32_at(value)?,
                IFLA_MIN_MTU => link.min_mtu = u32_at(value)?,
                IFLA_MAX_MTU => link.max_mtu = u32_at(value)?,
                IFLA_OPERSTATE => link.operstate = value.first().copied().unwrap_or(0).into(),
                IFLA_MASTER => link.master = u32_at(value).filter(|index| *index != 0),
                IFLA_LINK => link.parent = u32_at(value).filter(|index| *index != 0),
                IFLA_LINK_NETNSID => link.link_netnsid = i32_at(value),
                IFLA_GROUP => link.group = u32_at(value)?,
                IFLA_PROMISCUITY => link.promiscuity = u32_at(value)?,
                IFLA_TXQLEN => link.txqlen = u32_at(value)?,
                IFLA_GSO_MAX_SIZE => link.segments.gso = u32_at(value),
                IFLA_GSO_IPV4_MAX_SIZE => link.segments.gso_v4 = u32_at(value),
                IFLA_GSO_MAX_SEGS => link.segments.segments = u32_at(value),
                IFLA_GRO_MAX_SIZE => link.segments.gro = u32_at(value),
                IFLA_GRO_IPV4_MAX_SIZE => link.segments.gro_v4 = u32_at(value),
                IFLA_IFALIAS => link.alias = Some(text(value)),
                IFLA_PROP_LIST => {
                    link.altnames.extend(Attributes(value).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME).map(|(_, name)| text(name)));
                }
                IFLA_PERM_ADDRESS => link.permanent_mac = Mac::from_bytes(value),
                IFLA_PARENT_DEV_NAME => link.device.get_or_insert_default().name = text(value),
                IFLA_PARENT_DEV_BUS_NAME => link.device.get_or_insert_default().bus = text(value),
                IFLA_LINKINFO => link.parse_info(value),
                IFLA_VFINFO_LIST => link.virtual_functions = Attributes(value).filter_map(|(_, one)| VirtualFunction::parse(one)).collect(),
                IFLA_AF_SPEC => link.ipv6_conf = ipv6_conf::parse(value),
                _ => {}
            }
        }
        (link.index != 0 && !link.name.is_empty()).then_some(link)
    }

    /// `IFLA_LINKINFO`: the kind comes before its data, in the kernel's answers as in what `ip` sends.
    fn parse_info(&mut self, info: &[u8]) {
        let mut port_of_bridge = false;
        for (kind, value) in Attributes(info) {
            match kind {
                IFLA_INFO_KIND => self.kind = Some(text(value)),
                IFLA_INFO_DATA => match self.kind.as_deref() {
                    Some("geneve") => self.external = is_set(value, IFLA_GENEVE_COLLECT_METADATA),
                    Some("gretap" | "ip6gretap" | "erspan" | "ip6erspan") => self.external = is_set(value, IFLA_GRE_COLLECT_METADATA),
                    Some("macvlan") => self.macvlan = Macvlan::parse(value),
                    Some("vlan") => self.vlan = kind::vlan_id(value),
                    Some("ipvlan") => self.ipvlan = IpvlanMode::parse(value),
                    Some("vrf") => self.vrf_table = kind::vrf_table(value),
                    Some("vxlan") => {
                        self.vxlan = Vxlan::parse(value);
                        self.external = is_set(value, IFLA_VXLAN_COLLECT_METADATA);
                    }
                    Some("tun") => self.tun = Some(Tun::parse(value)),
                    Some("bridge") => self.bridge = Some(Bridge::parse(value)),
                    _ => {}
                },
                IFLA_INFO_SLAVE_KIND => port_of_bridge = value.starts_with(b"bridge\0"),
                IFLA_INFO_SLAVE_DATA if port_of_bridge => {
                    self.port = Some(PortFlags::parse(value));
                    self.port_state = PortState::parse(value);
                }
                _ => {}
            }
        }
    }

    /// A setting below `net.ipv6.conf.LINK`, as it was when the link was read; `None` where the kernel has no IPv6, or not
    /// that setting.
    pub fn ipv6(&self, setting: Ipv6Conf) -> Option<i32> {
        self.ipv6_conf.get(setting as usize).copied()
    }

    /// The same without what changes while the kernel reports nothing.
    pub(crate) fn reported(self) -> Link {
        Link { segments: SegmentLimits::default(), promiscuity: 0, port: None, port_state: None, ipv6_conf: Vec::new(), ..self }
    }

    /// The index of a veth's other end, in that one's namespace. Older kernels leave it out where both ends have the same.
    pub fn other_end(&self) -> u32 {
        self.parent.unwrap_or(self.index)
    }

    /// Whether it is of this kind, as in `ip link show type KIND`.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

/// Whether a flag is among a kind's data: some kinds say it by its presence alone, others in a byte.
fn is_set(data: &[u8], flag: u16) -> bool {
    Attributes(data).any(|(kind, value)| kind == flag && value.first() != Some(&0))
}

/// `struct ifinfomsg`.
pub(crate) fn header(family: u8, index: u32, flags: u32, mask: u32) -> [u8; IFINFOMSG] {
    let mut fixed = [0; IFINFOMSG];
    fixed[0] = family;
    let numbers = index.to_ne_bytes().into_iter().chain(flags.to_ne_bytes()).chain(mask.to_ne_bytes());
    fixed.iter_mut().skip(4).zip(numbers).for_each(|(to, from)| *to = from);
    fixed
}

/// Asks for one link by name (`ip -d link show dev NAME`), for use in a batch: [`Reply::Link`], or
/// [`Reply::Tolerated`]`(ENODEV)` when there is none.
pub fn get(name: &cni::IfName) -> Request<'static> {
    get_named(name.as_str())
}

fn get_named(name: &str) -> Request<'static> {
    let mut message = question(0);
    // In the attribute for names the kernel looks for altnames as well, as far as they fit.
    message.put_str(if name.len() < IFNAMSIZ { IFLA_IFNAME } else { IFLA_ALT_IFNAME }, name);
    // ERANGE: no link can have such a name.
    Request::new(format!("ip link show dev {name}"), message).tolerate(Errno::ENODEV).tolerate(Errno::ERANGE)
}

/// As [`get`], by index. Whoever is asked for a link looks at its carrier first (Linux 6.8).
pub fn get_by_index(index: u32) -> Request<'static> {
    Request::new(format!("ip link show dev if{index}"), question(index)).tolerate(Errno::ENODEV)
}

fn question(index: u32) -> Message {
    let mut message = Message::new(RTM_GETLINK, 0, &header(family::UNSPEC, index, 0, 0));
    message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    message
}

impl Netlink {
    /// The link of this name or altname (`ip -d link show dev NAME`); `None` when there is none.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, ReadError> {
        // Longer than any name: the kernel would look for what it can be cut to.
        if name.is_empty() || name.len() >= ALTIFNAMSIZ || name.contains('\0') {
            return Ok(None);
        }
        Ok(self.ask(get_named(name))?.and_then(into_link))
    }

    /// The link of this index; `None` when there is none.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, ReadError> {
        // The kernel's indexes are positive and signed; to it, 0 is no question.
        if index == 0 || i32::try_from(index).is_err() {
            return Ok(None);
        }
        Ok(self.ask(get_by_index(index))?.and_then(into_link))
    }

    /// All links of the namespace (`ip -d link show`), in the order of their indexes.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where links come and go too fast to read them.
    pub fn links(&mut self) -> Result<Vec<Link>, ReadError> {
        let mut links = self.dump("ip link show", question(0), &[], |m| (m.kind == RTM_NEWLINK).then(|| Link::parse(m)).flatten())?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// What a macvlan is made with; `None` when the link is gone or none.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn macvlan(&mut self, index: u32) -> Result<Option<Macvlan>, ReadError> {
        Ok(self.link_by_index(index)?.and_then(|link| link.macvlan))
    }

    /// A link's flags as a bridge's port (`bridge -d link show dev NAME`); `None` when it is gone or no port.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn port_flags(&mut self, index: u32) -> Result<Option<PortFlags>, ReadError> {
        Ok(self.link_by_index(index)?.and_then(|link| link.port))
    }
}

fn into_link(reply: Reply) -> Option<Link> {
    match reply {
        Reply::Link(link) => Some(*link),
        _ => None,
    }
}
