//! The path between the own node and one peer, for the ranges of one family.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::members::{Member, TunnelKey};
use crate::{Family, Mac, Mode, OwnNode, Problem, Settings, Tunnel, header};

/// The own node, as paths begin at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) own: &'a OwnNode,
    pub(crate) member: &'a Member<'a>,
}

/// How packets get to a peer.
#[derive(Debug)]
pub(crate) enum Path {
    /// Via the peer's endpoint, by the link with this index.
    Direct { link: u32, via: IpAddr },
    /// To the peer's endpoint, wrapped for its VTEP.
    Vxlan { own: Mac, local: IpAddr, mac: Mac, remote: IpAddr },
    /// Through one of these tunnels, the last one. `is_tried`: each is to show whether it works, although packets use one.
    WireGuard { tunnels: Vec<WireGuardTunnel>, is_tried: bool },
}

/// A key of the own node and one of the peer.
#[derive(Debug)]
pub(crate) struct WireGuardTunnel {
    pub(crate) own_key: [u8; 32],
    /// The port that the own device listens on: there is one device for each.
    pub(crate) own_port: u16,
    pub(crate) key: [u8; 32],
    pub(crate) remote: SocketAddr,
}

/// No path; and why, unless that is known already from the node alone.
type Blocked = Option<Problem>;

// === impl Origin ===

impl Origin<'_> {
    /// The path to a peer's ranges of a family.
    ///
    /// Both sides must find the same kind of path, so it depends on the two Nodes, and on subnets only as far as both endpoints lie in one.
    pub(crate) fn path(&self, peer: &Member<'_>, family: Family) -> Result<Path, Blocked> {
        let mode = self.settings.mode;
        if let Some(announced) = peer.seen.mode.filter(|announced| *announced != mode) {
            return Err(Some(Problem::OtherMode { node: peer.name(), announced, own: self.own.name.clone(), mode }));
        }
        if !self.member.is_reachable() || !peer.is_reachable() {
            return Err(None);
        }
        match mode {
            Mode::Direct => self.direct(peer, family),
            Mode::Vxlan => self.tunnel(peer, Tunnel::Vxlan),
            Mode::WireGuard => self.tunnel(peer, Tunnel::WireGuard),
            Mode::Auto(tunnel) => self.near(peer, family).unwrap_or_else(|| self.tunnel(peer, tunnel)),
        }
    }

    /// Whether the peer's ranges of a family are reached over WireGuard or not at all. It depends on the mode and the two nodes' addresses
    /// alone: a peer without a key, or with another mode, is no reason to send plain packets.
    pub(crate) fn is_encrypted(&self, peer: &Member<'_>, family: Family) -> bool {
        match self.settings.mode {
            Mode::WireGuard => true,
            Mode::Auto(Tunnel::WireGuard) => self.near(peer, family).is_none(),
            Mode::Direct | Mode::Vxlan | Mode::Auto(Tunnel::Vxlan) => false,
        }
    }

    /// A route via the endpoint, which has to be of the range's family: the next hop of an IPv4 route could be an IPv6 address
    /// (RFC 5549, `RTA_VIA`), but not the other way round, and NICs and firewalls are used to neither.
    fn direct(&self, peer: &Member<'_>, family: Family) -> Result<Path, Blocked> {
        let lacks = |of: &Member<'_>| Some(Problem::NoEndpointOfFamily { node: of.name(), family });
        let endpoint = peer.endpoint(family).ok_or_else(|| lacks(peer))?;
        // Without one the peer finds no way back.
        self.member.endpoint(family).ok_or_else(|| lacks(self.member))?;
        self.is_foreign(peer, endpoint)?;
        let not_on_link = || Some(Problem::NotOnLink { node: peer.name(), own: self.own.name.clone(), endpoint });
        let (link, _) = self.on_link(endpoint).ok_or_else(not_on_link)?;
        Ok(Path::Direct { link, via: endpoint })
    }

    /// A direct path of the mode `auto`; `None` where the tunnel is needed.
    ///
    /// The own endpoint has to lie in the same subnet. A node with a second link may reach the peer's endpoint by that one while the peer
    /// does not reach the own endpoint: then both take the tunnel.
    fn near(&self, peer: &Member<'_>, family: Family) -> Option<Result<Path, Blocked>> {
        let (own, endpoint) = (self.member.endpoint(family)?, peer.endpoint(family)?);
        let (_, subnet) = self.on_link(endpoint)?;
        subnet.contains(&own).then(|| self.direct(peer, family))
    }

    /// The link in whose subnet an address lies, and the subnet: of several, the longest prefix, as the kernel's routes decide; then the
    /// lowest index. IPv6 link-local addresses are on every link, so they count for none.
    fn on_link(&self, address: IpAddr) -> Option<(u32, IpNet)> {
        let subnets = self.own.links.iter().flat_map(|link| link.addresses.iter().map(move |net| (link.index, net.trunc())));
        let within = subnets.filter(|(_, subnet)| subnet.contains(&address) && !is_link_local(subnet));
        within.min_by_key(|(index, subnet)| (u8::MAX - subnet.prefix_len(), *index))
    }

    /// A tunnel between the endpoints of one family, IPv4 if both nodes have it: its header is 20 bytes shorter. The family of what is
    /// inside does not matter.
    fn tunnel(&self, peer: &Member<'_>, tunnel: Tunnel) -> Result<Path, Blocked> {
        let both = |family| Some((self.member.endpoint(family)?, peer.endpoint(family)?));
        let none = || Some(Problem::NoCommonFamily { node: peer.name(), own: self.own.name.clone() });
        let (local, remote) = both(Family::V4).or_else(|| both(Family::V6)).ok_or_else(none)?;
        self.is_foreign(peer, remote)?;
        match tunnel {
            Tunnel::Vxlan => {
                let (own, mac) = self.member.mac.zip(peer.mac).ok_or(None)?;
                Ok(Path::Vxlan { own, local, mac, remote })
            }
            Tunnel::WireGuard => self.wireguard(peer, remote),
        }
    }

    /// A tunnel for each rotation that both have a key of, so that packets arrive over the old one while the new one is taken into use.
    /// Which ones there are depends on both lists alike; each side sends over the new one as soon as a handshake shows that the peer has it.
    /// Without a common rotation, the newest key of one and the newest of the other.
    fn wireguard(&self, peer: &Member<'_>, remote: IpAddr) -> Result<Path, Blocked> {
        for node in [self.member, peer] {
            if node.keys.is_empty() {
                // A key that an older node has as well is a problem already.
                return Err(node.seen.keys.is_empty().then(|| Problem::NoKey { node: node.name() }));
            }
        }
        let tunnel = |own: &TunnelKey, of_peer: &TunnelKey| WireGuardTunnel {
            own_key: own.key,
            own_port: own.port,
            key: of_peer.key,
            remote: SocketAddr::new(remote, of_peer.port),
        };
        let of_rotation = |own: &TunnelKey| peer.keys.iter().find(|of_peer| of_peer.rotation == own.rotation);
        let mut common: Vec<_> = self.member.keys.iter().filter_map(|own| Some((own, of_rotation(own)?))).collect();
        common.sort_by_key(|(own, _)| own.rotation);
        let mut tunnels: Vec<_> = common.into_iter().map(|(own, of_peer)| tunnel(own, of_peer)).collect();
        if tunnels.is_empty() {
            tunnels.extend(self.member.keys.last().zip(peer.keys.last()).map(|(mine, theirs)| tunnel(mine, theirs)));
        }
        // The last one is used. While none is known to work, the oldest is the one that the peer surely knows.
        let is_proven = |tunnel: &WireGuardTunnel| !self.own.unproven.contains(&(tunnel.own_port, tunnel.key));
        let used = tunnels.iter().rposition(is_proven).unwrap_or_default();
        if let Some(unproven) = tunnels.len().checked_sub(used + 1) {
            tunnels.rotate_right(unproven);
        }
        // Who rotates has to know which of its keys its peers have.
        Ok(Path::WireGuard { tunnels, is_tried: self.member.keys.len() > 1 })
    }

    /// Refuses an endpoint of the peer that is an address of the own node: the kernel takes no such next hop, and a tunnel would end here.
    fn is_foreign(&self, peer: &Member<'_>, endpoint: IpAddr) -> Result<(), Blocked> {
        let mut own = self.own.links.iter().flat_map(|link| &link.addresses).map(IpNet::addr);
        if own.any(|address| address == endpoint) {
            return Err(Some(Problem::EndpointIsOwn { node: peer.name(), own: self.own.name.clone(), endpoint }));
        }
        Ok(())
    }
}

// === impl Path ===

impl Path {
    /// How many bytes of the uplink's MTU it takes.
    pub(crate) fn header(&self) -> u32 {
        match self {
            Path::Direct { .. } => 0,
            Path::Vxlan { remote, .. } => header(Tunnel::Vxlan, Family::of(*remote)),
            Path::WireGuard { tunnels, .. } => {
                tunnels.first().map_or(0, |tunnel| header(Tunnel::WireGuard, Family::of(tunnel.remote.ip())))
            }
        }
    }
}

/// Whether that is a subnet of IPv6 link-local addresses.
pub(crate) fn is_link_local(subnet: &IpNet) -> bool {
    matches!(subnet, IpNet::V6(net) if net.addr().is_unicast_link_local())
}
