//! A link that exists is changed.

use std::fmt::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd};

use cni::{IfName, Mac};

use super::{Bridge, LinkFlags, MacvlanMode, SegmentLimits, header};
use crate::batch::Request;
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::rtnetlink::{RTM_NEWLINK, RTM_SETLINK};
use crate::wire::Message;

/// What is to change; `None`, and an empty list, leave it as it is.
#[derive(Debug, Clone, Default)]
pub struct Change<'fd> {
    /// Up or down.
    pub up: Option<bool>,
    /// Bytes in a packet.
    pub mtu: Option<u32>,
    /// Hardware address. Some drivers want the link to be down (`EBUSY`).
    pub mac: Option<Mac>,
    /// New name.
    pub name: Option<IfName>,
    /// Index of the bridge, bond or VRF that it is to belong to; 0: none (`nomaster`).
    pub master: Option<u32>,
    /// Group, below 2^31.
    pub group: Option<u32>,
    /// Receive what is not for it.
    pub promisc: Option<bool>,
    /// Receive all multicast.
    pub allmulti: Option<bool>,
    /// Enable multicast.
    pub multicast: Option<bool>,
    /// Use ARP.
    pub arp: Option<bool>,
    /// Length of the transmit queue in packets.
    pub txqlen: Option<u32>,
    /// Limits of segmentation: those that are `Some`.
    pub segments: SegmentLimits,
    /// Free text, up to 255 bytes; empty: none. The message that creates a link ignores it, so it is set afterwards.
    pub alias: Option<String>,
    /// Move it to this namespace, taking `name` and `new_index` there. It is down then, without addresses and routes.
    pub netns: Option<BorrowedFd<'fd>>,
    /// Its index in the namespace it is moved to (Linux 5.12); `None`: the same if free there.
    pub new_index: Option<u32>,
    /// Settings below `net.ipv4.conf.LINK`, without a file being opened for each.
    pub ipv4_conf: Vec<(Ipv4Conf, u32)>,
    /// How it gets its IPv6 link-local address, decided when it comes up.
    pub addr_gen_mode: Option<AddrGenMode>,
}

/// A setting of `net.ipv4.conf.LINK` (linux/ip.h, `IPV4_DEVCONF_*`) whose change has no other effect than its value.
///
/// `forwarding` is not among them: written this way, the kernel does not do what its sysctl does besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ipv4Conf {
    /// `proxy_arp`
    ProxyArp = 3,
    /// `accept_redirects`
    AcceptRedirects = 4,
    /// `send_redirects`
    SendRedirects = 6,
    /// `rp_filter`
    RpFilter = 8,
    /// `arp_announce`
    ArpAnnounce = 18,
    /// `arp_ignore`
    ArpIgnore = 19,
    /// `arp_accept`
    ArpAccept = 21,
    /// `arp_notify`: tell the neighbours when the link comes up or its hardware address changes.
    ArpNotify = 22,
    /// `accept_local`
    AcceptLocal = 23,
    /// `proxy_arp_pvlan`
    ProxyArpPvlan = 25,
    /// `route_localnet`
    RouteLocalnet = 26,
}

/// How a link gets its IPv6 link-local address (linux/if_link.h, `IN6_ADDR_GEN_MODE_*`; `ip link set addrgenmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddrGenMode {
    /// From its hardware address.
    Eui64 = 0,
    /// It gets none.
    None = 1,
    /// From a secret that was configured (RFC 7217).
    StablePrivacy = 2,
    /// From a random secret.
    Random = 3,
}

/// Changes a link (`ip link set`). The kernel applies what it can of one request: an error does not mean that nothing was
/// changed.
pub fn set<'fd>(index: u32, change: &Change<'fd>) -> Request<'fd> {
    let (flags, mask) = flags(change);
    let mut message = Message::new(RTM_SETLINK, 0, &header(family::UNSPEC, index, flags, mask));
    if let Some(netns) = change.netns {
        message.put(IFLA_NET_NS_FD, &netns.as_raw_fd().to_ne_bytes());
    }
    if let Some(new_index) = change.new_index {
        message.put_u32(IFLA_NEW_IFINDEX, new_index);
    }
    if let Some(name) = &change.name {
        message.put_str(IFLA_IFNAME, name.as_str());
    }
    if let Some(mtu) = change.mtu {
        message.put_u32(IFLA_MTU, mtu);
    }
    if let Some(mac) = &change.mac {
        message.put(IFLA_ADDRESS, mac.as_bytes());
    }
    if let Some(master) = change.master {
        message.put_u32(IFLA_MASTER, master);
    }
    if let Some(group) = change.group {
        message.put_u32(IFLA_GROUP, group);
    }
    if let Some(txqlen) = change.txqlen {
        message.put_u32(IFLA_TXQLEN, txqlen);
    }
    let segments = &change.segments;
    for (kind, limit) in [
        (IFLA_GSO_MAX_SIZE, segments.gso),
        (IFLA_GSO_MAX_SEGS, segments.segments),
        (IFLA_GRO_MAX_SIZE, segments.gro),
        (IFLA_GSO_IPV4_MAX_SIZE, segments.gso_v4),
        (IFLA_GRO_IPV4_MAX_SIZE, segments.gro_v4),
    ] {
        if let Some(limit) = limit {
            message.put_u32(kind, limit);
        }
    }
    if let Some(alias) = &change.alias {
        message.put(IFLA_IFALIAS, alias.as_bytes());
    }
    write_families(change, &mut message);
    Request::new(words(index, change), message)
}

/// Changes how a macvlan and the others of its parent see each other (`ip link set type macvlan mode`). Without sources of
/// its own, a macvlan in mode `source` receives nothing, at once: to set it down would take an RCU grace period.
/// Error: `EINVAL`, it is in mode `passthru`, which it keeps.
pub fn set_macvlan_mode(index: u32, mode: MacvlanMode) -> Request<'static> {
    let mut message = Message::new(RTM_NEWLINK, 0, &header(family::UNSPEC, index, 0, 0));
    message.nest(IFLA_LINKINFO, |info| {
        info.put(IFLA_INFO_KIND, b"macvlan");
        info.nest(IFLA_INFO_DATA, |data| data.put_u32(IFLA_MACVLAN_MODE, mode.into()));
    });
    Request::new(format!("ip link set dev if{index} type macvlan mode {mode}"), message)
}

/// Changes properties of a bridge (`ip link set type bridge ...`).
pub fn set_bridge(index: u32, bridge: &Bridge) -> Request<'static> {
    let mut message = Message::new(RTM_NEWLINK, 0, &header(family::UNSPEC, index, 0, 0));
    message.nest(IFLA_LINKINFO, |info| {
        info.put(IFLA_INFO_KIND, b"bridge");
        info.nest(IFLA_INFO_DATA, |data| bridge.write(data));
    });
    Request::new(format!("ip link set dev if{index} type bridge"), message)
}

/// `IFLA_AF_SPEC`: what belongs to one address family.
fn write_families(change: &Change<'_>, message: &mut Message) {
    if change.ipv4_conf.is_empty() && change.addr_gen_mode.is_none() {
        return;
    }
    message.nest(IFLA_AF_SPEC, |families| {
        if !change.ipv4_conf.is_empty() {
            families.nest(family::INET.into(), |inet| {
                inet.nest(IFLA_INET_CONF, |conf| {
                    for (setting, value) in &change.ipv4_conf {
                        conf.put_u32(*setting as u16, *value);
                    }
                });
            });
        }
        if let Some(mode) = change.addr_gen_mode {
            families.nest(family::INET6.into(), |inet6| inet6.put_u8(IFLA_INET6_ADDR_GEN_MODE, mode as u8));
        }
    });
}

/// Values and mask of the `IFF_*` flags.
fn flags(change: &Change<'_>) -> (u32, u32) {
    let switches = [
        (change.up, LinkFlags::UP),
        (change.promisc, LinkFlags::PROMISC),
        (change.allmulti, LinkFlags::ALLMULTI),
        (change.multicast, LinkFlags::MULTICAST),
        (change.arp.map(|on| !on), LinkFlags::NOARP),
    ];
    switches.into_iter().fold((0, 0), |(flags, mask), (switch, bit)| match switch {
        Some(true) => (flags | bit, mask | bit),
        Some(false) => (flags, mask | bit),
        None => (flags, mask),
    })
}

fn words(index: u32, change: &Change<'_>) -> String {
    let mut what = format!("ip link set dev if{index}");
    let on = |on: bool| if on { "on" } else { "off" };
    // Writing to a string cannot fail.
    let _ = (|| -> std::fmt::Result {
        change.up.map_or(Ok(()), |up| write!(what, " {}", if up { "up" } else { "down" }))?;
        change.name.as_ref().map_or(Ok(()), |name| write!(what, " name {name}"))?;
        change.mtu.map_or(Ok(()), |mtu| write!(what, " mtu {mtu}"))?;
        change.mac.as_ref().map_or(Ok(()), |mac| write!(what, " address {mac}"))?;
        match change.master {
            Some(0) => what.write_str(" nomaster")?,
            Some(master) => write!(what, " master if{master}")?,
            None => {}
        }
        change.group.map_or(Ok(()), |group| write!(what, " group {group}"))?;
        change.promisc.map_or(Ok(()), |promisc| write!(what, " promisc {}", on(promisc)))?;
        change.allmulti.map_or(Ok(()), |allmulti| write!(what, " allmulticast {}", on(allmulti)))?;
        change.multicast.map_or(Ok(()), |multicast| write!(what, " multicast {}", on(multicast)))?;
        change.arp.map_or(Ok(()), |arp| write!(what, " arp {}", on(arp)))?;
        change.txqlen.map_or(Ok(()), |txqlen| write!(what, " txqueuelen {txqlen}"))?;
        if change.segments != SegmentLimits::default() {
            write!(what, " {:?}", change.segments)?;
        }
        change.alias.as_ref().map_or(Ok(()), |alias| write!(what, " alias {alias:?}"))?;
        change.netns.map_or(Ok(()), |_| what.write_str(" netns ..."))?;
        change.addr_gen_mode.map_or(Ok(()), |mode| write!(what, " addrgenmode {mode:?}"))?;
        change.ipv4_conf.iter().try_for_each(|(setting, value)| write!(what, " (net.ipv4.conf {setting:?}={value})"))
    })();
    what
}
