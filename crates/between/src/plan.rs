//! The tables of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use thiserror::Error;

use crate::members::{Member, members, overlap};
use crate::paths::{Origin, Path, is_link_local};
use crate::tunnel::link_local;
use crate::{Family, Mac, Mode, NodeSeen, OwnNode, Problem, PublicKey, Settings, Underlay, header};

/// What IPv6 needs (RFC 8200 section 5; `IPV6_MIN_MTU` in include/uapi/linux/ipv6.h).
pub(crate) const IPV6_MIN_MTU: u32 = 1280;

/// What WireGuard's documentation recommends: most firewalls remember a connection longer (seconds).
const KEEPALIVE: u16 = 25;

/// At most this many parts of refused ranges are closed, of the older Nodes' first: each is a route of the node's, and one range may lie around
/// thousands of other nodes' ranges and addresses.
const MOST_PARTS: usize = 4096;

/// A device that packets leave by.
///
/// What the kernel cannot change of a device is part of its name here, so that a change of it is a second device beside the first one until
/// routes have moved over (`vxlan_nl2conf` in drivers/net/vxlan/vxlan_core.c refuses another VNI and another port).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// A link of the node, by its index.
    Link(u32),
    /// The vxlan device between endpoints of a family. One device cannot have endpoints of both.
    Vxlan {
        /// The endpoints' family; the packets inside may be of both.
        over: Family,
        /// The network's number.
        vni: u32,
        /// The UDP port.
        port: u16,
    },
    /// The WireGuard device that listens on this port, for endpoints of both families.
    WireGuard {
        /// The UDP port.
        port: u16,
    },
}

/// A device that is to be made, as it is to be. `ip link add ... type vxlan ... nolearning`, or `type wireguard`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Of [`Device::Vxlan`]. It belongs to no link: routes to the peers' endpoints choose one.
    Vxlan {
        /// The own VTEP's MAC.
        mac: Mac,
        /// The own endpoint, which packets come from.
        local: IpAddr,
        /// In bytes.
        mtu: u32,
        /// What the node itself sends comes from these ([`OwnNode::addresses`]), and peers know the way back.
        addresses: BTreeSet<IpAddr>,
    },
    /// Of [`Device::WireGuard`].
    WireGuard {
        /// The own public key: the device gets the private one that belongs to it.
        key: [u8; 32],
        /// In bytes.
        mtu: u32,
        /// As those of [`Wanted::Vxlan`]. A peer takes only packets from addresses of the ranges it allows, and these are.
        addresses: BTreeSet<IpAddr>,
    },
}

/// A peer of a WireGuard device. `wg set DEVICE peer KEY endpoint ... allowed-ips ...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where the key's owner listens.
    pub endpoint: SocketAddr,
    /// The ranges that packets to the peer go to, and packets from it come from.
    pub allowed: BTreeSet<IpNet>,
    /// The seconds between two packets that keep the tunnel up without others; 0: none. While the own node has two keys, so that it sees
    /// which of them a peer has (`persistent-keepalive`).
    pub keepalive: u16,
}

/// A route to a range. `ip route replace RANGE via VIA dev DEVICE [onlink]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The next hop; `None` on a WireGuard device, which chooses the peer by the destination, and where the pods themselves are on the link.
    pub via: Option<IpAddr>,
    /// The device that packets leave by.
    pub device: Device,
    /// Whether the next hop is to be taken as on-link though no subnet of the device contains it.
    pub onlink: bool,
}

/// Everything that one node's kernel needs to reach the pods of all others. Each table has a key that the kernel also has, so that two plans
/// differ where the kernel's tables do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Devices to be made: a vxlan device for each family that a peer is reached by, a WireGuard device for each own key if any has a peer.
    pub devices: BTreeMap<Device, Wanted>,
    /// WireGuard's peers, by device and public key.
    pub peers: BTreeMap<(Device, [u8; 32]), Peer>,
    /// FDB entries of vxlan devices: to which endpoint a frame for a VTEP goes. `bridge fdb replace MAC dev DEVICE dst ENDPOINT self permanent`
    pub forwarding: BTreeMap<(Device, Mac), IpAddr>,
    /// The VTEP of each next hop. `ip neigh replace ADDRESS lladdr MAC dev DEVICE nud permanent`
    pub neighbours: BTreeMap<(Device, IpAddr), Mac>,
    /// Routes, by the range they lead to.
    pub routes: BTreeMap<IpNet, Route>,
    /// Ranges whose packets leave encrypted or not at all: behind the route of each, if there is one, stands one without a way, so that
    /// they do not follow the node's default route while a tunnel is missing. `ip route add unreachable RANGE metric METRIC`
    pub closed: BTreeSet<IpNet>,
    /// The own ranges that nobody else has: what the node's pods have addresses of.
    pub ranges: BTreeSet<IpNet>,
    /// Where a pod's own address may be seen: every node's ranges, and the endpoints that packets go to without a tunnel. The network
    /// below a tunnel need not know pods' addresses, and clouds drop what comes from such.
    pub inside: BTreeSet<IpNet>,
    /// Where vxlan packets come from: the endpoints of each node that has announced no other mode, the own ones among them. Empty where the
    /// mode uses no vxlan.
    pub endpoints: BTreeSet<IpAddr>,
    /// For links of pods, in bytes: the smallest MTU of the node's links less the largest header in use. The modes `vxlan` and `wireguard`
    /// count a header before there is a peer, so that the first node's pods have the MTU of all others. `None` without a link.
    pub mtu: Option<u32>,
    /// The other nodes that have a range to which nothing here leads.
    pub unreached: BTreeSet<String>,
    /// What is not reached, and why.
    pub problems: BTreeSet<Problem>,
}

/// The own Node is not among those that were seen. Nothing follows from that: an empty plan would take every route away.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("node {0} is not among the cluster's Nodes: is its name the one that the kubelet uses?")]
pub struct OwnNodeMissing(pub String);

/// A path, and whom it leads to.
pub(crate) type Leg<'a, 'b> = (&'b Member<'a>, Family, Path);

/// The tables of a node. The time it takes grows with the number of nodes, not with its square.
///
/// # Errors
/// The own Node is not among `nodes`.
pub fn plan(settings: &Settings, own: &OwnNode, nodes: &[NodeSeen]) -> Result<Plan, OwnNodeMissing> {
    Ok(whole(settings, own, nodes)?.plan)
}

/// A plan, and what of it says how a change of one peer changes it.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) plan: Plan,
    /// The MTU of the own links.
    pub(crate) uplink: u32,
    /// [`Wanted::Vxlan`] and its like have these.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// How many paths have a header of so many bytes, and how many lead over a device.
    pub(crate) paths: Paths,
}

/// How many paths there are of each kind, so that it is known when the last one goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    headers: BTreeMap<u32, usize>,
    devices: BTreeMap<Device, usize>,
}

/// As [`plan`].
pub(crate) fn whole<'a>(
    settings: &Settings,
    own: &OwnNode,
    nodes: impl IntoIterator<Item = &'a NodeSeen>,
) -> Result<Whole, OwnNodeMissing> {
    let mut plan = Plan::default();
    let (mut members, taken) = members(settings, own, nodes, &mut plan.problems);
    members.iter_mut().for_each(|member| leave_underlay(own, member, &mut plan.problems));
    let missing = || OwnNodeMissing(own.name.clone());
    let member = members.iter().find(|member| member.seen.name == own.name).ok_or_else(missing)?;
    if let Some(announced) = member.seen.mode.filter(|announced| *announced != settings.mode) {
        let (node, own) = (own.name.clone(), own.name.clone());
        plan.problems.insert(Problem::OtherMode { node, announced, own, mode: settings.mode });
    }
    let origin = Origin { settings, own, member };
    let subnets: Vec<IpNet> = subnets(own).map(|(_, subnet)| subnet).collect();
    let (mut legs, mut room) = (Vec::new(), MOST_PARTS);
    for peer in members.iter().filter(|peer| peer.seen.name != own.name) {
        for family in [Family::V4, Family::V6] {
            if origin.is_encrypted(peer, family) {
                plan.closed.extend(peer.ranges_of(family));
                // A node that loses a range has pods in it all the same.
                for range in peer.refused.iter().filter(|range| Family::of(range.addr()) == family) {
                    let (parts, is_cut) = taken.rest_of(&peer.seen.name, *range, &subnets, room);
                    room -= parts.len();
                    if is_cut {
                        plan.problems.insert(Problem::RestInParts { node: peer.name(), range: *range, closed: parts.len() });
                    }
                    plan.closed.extend(parts);
                }
            }
        }
        plan.look(origin, peer, &mut legs);
    }
    plan.endpoints = members.iter().flat_map(|member| member.vxlan_endpoints(settings.mode, &own.name)).collect();
    let uplink = own.links.iter().map(|link| link.mtu).min();
    plan.mtu = uplink.map(|uplink| uplink.saturating_sub(largest_header(origin, &legs)));
    let has_v6 = member.ranges_of(Family::V6).chain(legs.iter().flat_map(|(peer, ..)| peer.ranges_of(Family::V6))).next().is_some();
    let too_small = plan.mtu.filter(|mtu| *mtu < IPV6_MIN_MTU && has_v6);
    if let Some(mtu) = too_small {
        plan.problems.insert(Problem::MtuTooSmall { own: own.name.clone(), mtu });
        let of_v6 = legs.extract_if(.., |(_, family, _)| *family == Family::V6);
        plan.unreached.extend(of_v6.filter(|(peer, ..)| peer.ranges_of(Family::V6).next().is_some()).map(|(peer, ..)| peer.name()));
    }
    plan.ranges = member.ranges.iter().filter(|range| too_small.is_none() || range.addr().is_ipv4()).copied().collect();
    plan.inside = members.iter().flat_map(|member| &member.ranges).copied().collect();
    // A range of one address has none to spare.
    let can_spare = |range: &&IpNet| range.prefix_len() < range.max_prefix_len();
    let firsts = || plan.ranges.iter().filter(can_spare).map(IpNet::network).collect();
    let addresses: BTreeSet<IpAddr> = own.addresses.clone().unwrap_or_else(firsts);
    let mut paths = Paths::default();
    let uplink = uplink.unwrap_or_default();
    for leg in legs {
        paths.count(settings, &leg.2);
        plan.enter(settings, uplink, &addresses, leg);
    }
    plan.enter_other_keys(settings, member, own.spare);
    Ok(Whole { plan, uplink, addresses, paths })
}

/// Takes ranges from a member that overlap with a subnet of the own node: its route would take the subnet's addresses away.
fn leave_underlay(own: &OwnNode, member: &mut Member<'_>, problems: &mut BTreeSet<Problem>) {
    let (node, refused) = (&member.seen.name, &mut member.refused);
    member.ranges.retain(|range| {
        let mut within = subnets(own).filter(|(_, subnet)| overlap(subnet, range));
        let Some((link, subnet)) = within.next() else { return true };
        let (node, range, own, link) = (node.clone(), *range, own.name.clone(), link.name.clone());
        problems.insert(Problem::RangeInUnderlay { node, range, own, link, subnet });
        refused.push(range);
        member.lacks_ranges = true;
        false
    });
}

/// The own node's subnets, with their links.
fn subnets(own: &OwnNode) -> impl Iterator<Item = (&Underlay, IpNet)> {
    let all = own.links.iter().flat_map(|link| link.addresses.iter().map(move |net| (link, net.trunc())));
    all.filter(|(_, subnet)| !is_link_local(subnet))
}

/// The largest header that a packet of the own node gets.
fn largest_header(origin: Origin<'_>, legs: &[Leg<'_, '_>]) -> u32 {
    legs.iter().map(|(_, _, path)| path.header()).fold(header_of_mode(origin), u32::max)
}

/// The header that counts before there is a peer.
pub(crate) fn header_of_mode(origin: Origin<'_>) -> u32 {
    let mode = origin.settings.mode;
    let own = origin.member.endpoint(Family::V4).or(origin.member.endpoint(Family::V6)).map_or(Family::V4, Family::of);
    mode.tunnel().filter(|_| !matches!(mode, Mode::Auto(_))).map_or(0, |tunnel| header(tunnel, own))
}

// === impl Plan ===

impl Plan {
    /// Finds the paths to a peer, and notes what has none.
    pub(crate) fn look<'a, 'b>(&mut self, origin: Origin<'_>, peer: &'b Member<'a>, legs: &mut Vec<Leg<'a, 'b>>) {
        if peer.lacks_ranges {
            self.unreached.insert(peer.name());
        }
        for family in [Family::V4, Family::V6] {
            let to_peer = peer.ranges_of(family).next().is_some();
            // A peer without ranges sends to ours, and its packets have to meet a device.
            if !to_peer && origin.member.ranges_of(family).next().is_none() {
                continue;
            }
            match origin.path(peer, family) {
                Ok(path) => legs.push((peer, family, path)),
                Err(problem) if to_peer => {
                    self.unreached.insert(peer.name());
                    self.problems.extend(problem);
                }
                Err(_) => {}
            }
        }
    }

    /// Enters devices of own keys that no peer has a tunnel to yet, beside those that peers have one to: a port that another program has is
    /// found out before the key is needed, and nobody takes it meanwhile.
    fn enter_other_keys(&mut self, settings: &Settings, member: &Member<'_>, spare: Option<PublicKey>) {
        let in_use = self.devices.values().find(|wanted| matches!(wanted, Wanted::WireGuard { .. })).cloned();
        let Some(Wanted::WireGuard { mtu, addresses, .. }) = in_use else { return };
        let spare = spare.map(|spare| (spare.key, spare.port.unwrap_or(settings.wireguard_port)));
        for (key, port) in member.keys.iter().map(|own| (own.key, own.port)).chain(spare) {
            let wanted = Wanted::WireGuard { key, mtu, addresses: addresses.clone() };
            self.devices.entry(Device::WireGuard { port }).or_insert(wanted);
        }
    }

    /// Leads ranges of the own node to the link of its pods, where that has no subnet that does.
    pub fn lead_home(&mut self, pods: u32, ranges: &[IpNet]) {
        let route = Route { via: None, device: Device::Link(pods), onlink: false };
        self.routes.extend(ranges.iter().map(|range| (*range, route)));
    }

    /// Enters what the path to a peer's ranges of a family needs.
    pub(crate) fn enter(&mut self, settings: &Settings, uplink: u32, addresses: &BTreeSet<IpAddr>, (peer, family, path): Leg<'_, '_>) {
        let mtu = uplink.saturating_sub(path.header());
        let addresses = addresses.clone();
        match path {
            Path::Direct { link, via } => {
                let route = Route { via: Some(via), device: Device::Link(link), onlink: false };
                self.routes.extend(peer.ranges_of(family).map(|range| (*range, route)));
                self.inside.insert(via.into());
            }
            // A next hop is an address that nobody is asked for. Of IPv4 it is the range's first one, as flannel has it. Of IPv6 that would be
            // refused while another route leads to it by another device, such as the one that is to be replaced
            // (`ip6_route_check_nh_onlink` in net/ipv6/route.c); a link-local one is not looked up.
            Path::Vxlan { own, local, mac, remote } => {
                let device = vxlan_device(settings, remote);
                self.devices.entry(device).or_insert(Wanted::Vxlan { mac: own, local, mtu, addresses });
                for range in peer.ranges_of(family) {
                    let (via, onlink) = match family {
                        Family::V4 => (range.network(), true),
                        Family::V6 => (link_local(mac).into(), false),
                    };
                    self.forwarding.insert((device, mac), remote);
                    self.neighbours.insert((device, via), mac);
                    self.routes.insert(*range, Route { via: Some(via), device, onlink });
                }
            }
            // A range is allowed on every tunnel and routed to the last one: packets from the peer may come over any.
            Path::WireGuard { tunnels, is_tried } => {
                let keepalive = if is_tried { KEEPALIVE } else { 0 };
                for tunnel in tunnels {
                    let device = Device::WireGuard { port: tunnel.own_port };
                    let wanted = Wanted::WireGuard { key: tunnel.own_key, mtu, addresses: addresses.clone() };
                    self.devices.entry(device).and_modify(|of_all| of_all.narrow(mtu)).or_insert(wanted);
                    let new = || Peer { endpoint: tunnel.remote, allowed: BTreeSet::new(), keepalive };
                    let known = self.peers.entry((device, tunnel.key)).or_insert_with(new);
                    known.allowed.extend(peer.ranges_of(family));
                    self.routes.extend(peer.ranges_of(family).map(|range| (*range, Route { via: None, device, onlink: false })));
                }
            }
        }
    }
}

/// The device that leads to a vxlan endpoint.
fn vxlan_device(settings: &Settings, remote: IpAddr) -> Device {
    Device::Vxlan { over: Family::of(remote), vni: settings.vxlan.vni, port: settings.vxlan.port }
}

// === impl Paths ===

impl Paths {
    /// One more.
    pub(crate) fn count(&mut self, settings: &Settings, path: &Path) {
        *self.headers.entry(path.header()).or_default() += 1;
        if let Path::Vxlan { remote, .. } = path {
            *self.devices.entry(vxlan_device(settings, *remote)).or_default() += 1;
        }
    }

    /// All of these more.
    pub(crate) fn add(&mut self, others: &Paths) {
        others.headers.iter().for_each(|(header, count)| *self.headers.entry(*header).or_default() += count);
        others.devices.iter().for_each(|(device, count)| *self.devices.entry(*device).or_default() += count);
    }

    /// All of these fewer, which were counted before.
    pub(crate) fn subtract(&mut self, others: &Paths) {
        subtract(&mut self.headers, &others.headers);
        subtract(&mut self.devices, &others.devices);
    }

    /// The largest header of a path.
    pub(crate) fn largest_header(&self) -> u32 {
        self.headers.last_key_value().map_or(0, |(header, _)| *header)
    }

    /// Whether a path leads over a vxlan device.
    pub(crate) fn has(&self, device: &Device) -> bool {
        self.devices.contains_key(device)
    }
}

fn subtract<K: Ord + Copy>(counts: &mut BTreeMap<K, usize>, fewer: &BTreeMap<K, usize>) {
    for (key, fewer) in fewer {
        let left = counts.get(key).copied().unwrap_or_default().saturating_sub(*fewer);
        if left == 0 {
            counts.remove(key);
        } else {
            counts.insert(*key, left);
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// Makes the MTU as small as a peer needs it.
    fn narrow(&mut self, most: u32) {
        match self {
            Wanted::Vxlan { mtu, .. } | Wanted::WireGuard { mtu, .. } => *mtu = most.min(*mtu),
        }
    }
}
