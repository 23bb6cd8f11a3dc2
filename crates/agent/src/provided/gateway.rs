//! The bridge of this node's pods, and the addresses that they send to what is elsewhere.
//!
//! The first pod's attachment would make both. They are made before, because the node's own packets to other nodes' pods come from there
//! as well, and kept, because a bridge without addresses would cut every pod off.

use std::net::IpAddr;

use cni::{CniError, Code, IfName, Mac};
use ipnet::IpNet;
use linux::link::{self, Change, Ipv6Conf, Kind};
use linux::{AddrFlags, Batch, Errno, Link, LinkSpec, Netlink, Notice, Object, Scope, Sysctl, addr};
use plugin::Host;

use super::list::BRIDGE;

/// The first two bytes of the hardware address that an address makes (as kubenet's).
const OF_ADDRESS: [u8; 2] = [0x0a, 0x58];

/// What a pod sends to a Service may come back to a pod of the same bridge, whose answer the bridge passes on by itself: unless it is seen
/// by the host's rules, nobody puts the Service's address back into it. The kubelet set `net.bridge.bridge-nf-call-iptables` for that, which
/// concerns all bridges of the node.
const FILTERED: link::Bridge =
    link::Bridge { vlan_filtering: None, vlan_default_pvid: None, stp: None, no_linklocal_learn: None, netfilter: Some(true) };

/// A pod range of the node that something else has addresses of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occupied {
    pub(crate) range: IpNet,
    pub(crate) by: Occupant,
    /// The pool that it is of; `None`: it is the Node's own.
    pub(crate) pool: Option<String>,
}

/// What has addresses of a pod range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A link other than the pods' bridge has this address; if it is a bridge, other networks' pods may be on it.
    Link { name: String, address: IpNet, is_bridge: bool },
    /// The pods' bridge itself has this address, whose subnet holds addresses of the block: no pool has given them to pods.
    Subnet(IpNet),
    /// Pods may have addresses of this block, which the node had of a pool before.
    Block(IpNet),
}

/// The ranges that another network's link has, as after a move from flannel (`cni0`) or kubenet (`cbr0`): its pods have addresses of them,
/// and the node's route to the range leads there. A range is in use by the bridge's own pods, and not looked at, if the bridge has the address
/// that proves it (`proof_of`). `there`: what it has. `networks`: what the pools of these ranges are cut from.
pub(crate) fn occupied(
    netlink: &mut Netlink,
    there: &[IpNet],
    ranges: &[IpNet],
    networks: &[IpNet],
    proof_of: impl Fn(&IpNet) -> Option<IpNet>,
) -> Result<Vec<Occupied>, CniError> {
    let looked_at = |range: &&IpNet| proof_of(range).is_none_or(|proof| !there.contains(&proof));
    let ranges: Vec<IpNet> = ranges.iter().filter(looked_at).copied().collect();
    if ranges.is_empty() { Ok(Vec::new()) } else { others(netlink, &ranges, networks) }
}

/// Links other than the bridge that have an address of one of these ranges; or one of these networks, with a subnet around a range.
pub(crate) fn others(netlink: &mut Netlink, ranges: &[IpNet], networks: &[IpNet]) -> Result<Vec<Occupied>, CniError> {
    let bridge = find(netlink)?.map(|bridge| bridge.index);
    let mut found = Vec::new();
    for address in netlink.addresses(None).map_err(internal)? {
        let net = address.net;
        if Some(address.index) == bridge || !is_subnet(&net) {
            continue;
        }
        let is_of_network = networks.iter().any(|network| network.contains(&net.addr()));
        for range in ranges.iter().filter(|range| range.contains(&net.addr()) || (is_of_network && net.trunc().contains(*range))) {
            let link = netlink.link_by_index(address.index).map_err(internal)?;
            let is_bridge = link.as_ref().is_some_and(|link| link.kind.as_deref() == Some("bridge"));
            let name = link.map_or_else(|| format!("if{}", address.index), |link| link.name);
            found.push(Occupied { range: *range, by: Occupant::Link { name, address: net, is_bridge }, pool: None });
        }
    }
    Ok(found)
}

/// Other bridges with a subnet in one of these networks: the name, the address, and the network.
pub(crate) fn bridges_in(netlink: &mut Netlink, networks: &[IpNet]) -> Result<Vec<(String, IpNet, IpNet)>, CniError> {
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for address in netlink.addresses(None).map_err(internal)?.into_iter().filter(|address| is_subnet(&address.net)) {
        let Some(network) = networks.iter().find(|network| network.contains(&address.net.addr())) else { continue };
        let link = netlink.link_by_index(address.index).map_err(internal)?;
        let is_bridge = |link: &Link| link.kind.as_deref() == Some("bridge") && link.name != BRIDGE;
        found.extend(link.filter(is_bridge).map(|link| (link.name, address.net, *network)));
    }
    Ok(found)
}

/// The addresses of the bridge.
pub(crate) fn on_bridge(netlink: &mut Netlink) -> Result<Vec<IpNet>, CniError> {
    let Some(bridge) = find(netlink)? else { return Ok(Vec::new()) };
    Ok(netlink.addresses(Some(bridge.index)).map_err(internal)?.into_iter().map(|address| address.net).collect())
}

/// Whether an address comes with a subnet. One alone, as flannel.1 and kube-ipvs0 have, leads no packet for another one to its link.
pub(crate) fn is_subnet(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// Makes the bridge what it is to be: it is there, it is up, and it has these addresses. What it has of others stays. How many things were
/// missing.
pub(crate) fn keep(host: &mut Host, wanted: &[IpNet]) -> Result<usize, CniError> {
    let Some(first) = wanted.first() else { return Ok(0) };
    let mut missing = 0;
    let bridge = match find(host.netlink()?)? {
        Some(bridge) => bridge,
        None => {
            missing += 1;
            let name = IfName::parse(BRIDGE).map_err(internal)?;
            // Without an address of its own a bridge takes the lowest one of its ports, and changes it with them.
            let spec = LinkSpec { mac: hardware_address(first.addr()), ..LinkSpec::new(name, Kind::Bridge(FILTERED)) };
            host.netlink()?.send_one(link::create(&spec).tolerate(Errno::EEXIST)).map_err(internal)?;
            find(host.netlink()?)?.ok_or_else(|| internal(format!("bridge {BRIDGE} was deleted as soon as it was made")))?
        }
    };
    if bridge.kind.as_deref() != Some("bridge") {
        let kind = bridge.kind.as_deref().unwrap_or("a device");
        let msg = format!("the node has a link {BRIDGE} of type {kind}, which is no bridge: delete it with `ip link del {BRIDGE}`");
        return Err(CniError::new(Code::INVALID_CONFIG, msg));
    }
    // A pod that sends router advertisements is believed by nobody (CVE-2020-10749), also where the cluster has no IPv6.
    let taken = Sysctl::new(["net", "ipv6", "conf", BRIDGE, Ipv6Conf::AcceptRa.name()]).map_err(internal)?;
    if taken.read(host.inside()).is_ok_and(|value| value.trim() != "0") {
        taken.write(host.inside(), "0").map_err(internal)?;
    }
    if wanted.iter().any(|net| net.addr().is_ipv6()) {
        // The host may have IPv6 off for new interfaces.
        let off = Sysctl::new(["net", "ipv6", "conf", BRIDGE, Ipv6Conf::DisableIpv6.name()]).map_err(internal)?;
        if off.read(host.inside()).is_ok_and(|value| value.trim() != "0") {
            off.write(host.inside(), "0").map_err(internal)?;
        }
    }
    let netlink = host.netlink()?;
    if bridge.bridge.is_some_and(|bridge| bridge.netfilter == Some(false)) {
        missing += 1;
        netlink.send_one(link::set_bridge(bridge.index, &FILTERED)).map_err(internal)?;
    }
    let there: Vec<IpNet> = netlink.addresses(Some(bridge.index)).map_err(internal)?.into_iter().map(|address| address.net).collect();
    let mut batch = Batch::new();
    if !bridge.flags.up() {
        batch.push(link::set(bridge.index, &Change { up: Some(true), ..Change::default() }));
    }
    for net in wanted.iter().filter(|net| !there.contains(net)) {
        let flags = if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        batch.push(addr::add(bridge.index, *net, flags).tolerate(Errno::EEXIST));
    }
    missing += batch.len();
    if !batch.is_empty() {
        netlink.send(batch).map_err(internal)?;
    }
    Ok(missing)
}

/// Leads these ranges to the bridge, where nothing else leads there yet. Without a plan nobody else does.
pub(crate) fn lead_home(netlink: &mut Netlink, ranges: &[IpNet]) -> Result<(), CniError> {
    let Some(bridge) = find(netlink)?.filter(|_| !ranges.is_empty()) else { return Ok(()) };
    let route = |range: &IpNet| linux::Route { oif: Some(bridge.index), proto: fabric::PROTOCOL, ..linux::Route::to(*range) };
    let routes = ranges.iter().map(|range| linux::route::add(&route(range)).tolerate(Errno::EEXIST));
    netlink.send(routes.collect()).map(drop).map_err(internal)
}

/// Takes these addresses from the bridge, which are no pod's gateway any more.
pub(crate) fn leave(netlink: &mut Netlink, gateways: &[IpNet]) -> Result<(), CniError> {
    let Some(bridge) = find(netlink)? else { return Ok(()) };
    let gone = gateways.iter().map(|net| addr::delete(bridge.index, *net).tolerate(Errno::EADDRNOTAVAIL));
    netlink.send(gone.collect()).map(drop).map_err(internal)
}

/// Whether what the kernel reports is that the bridge is gone or down, or has lost an address.
pub(crate) fn is_lost(notice: &Notice, index: Option<u32>) -> bool {
    match notice {
        Notice::Lost => true,
        Notice::Gone(Object::Link(link)) => link.name == BRIDGE,
        Notice::Present(Object::Link(link)) => Some(link.index) == index && (link.name != BRIDGE || !link.flags.up()),
        Notice::Gone(Object::Address(address)) => Some(address.index) == index && address.scope != Scope::Link,
        _ => false,
    }
}

/// The bridge's index, if it is there.
pub(crate) fn index(netlink: &mut Netlink) -> Option<u32> {
    find(netlink).ok().flatten().map(|bridge| bridge.index)
}

fn find(netlink: &mut Netlink) -> Result<Option<Link>, CniError> {
    netlink.link(BRIDGE).map_err(internal)
}

/// The first address of a range, which `host-local` gives to no pod; `None` of a range that has no room for it.
pub(crate) fn of(range: &IpNet) -> Option<IpNet> {
    let first = match range.network() {
        IpAddr::V4(network) => IpAddr::from(u32::from(network).checked_add(1)?.to_be_bytes()),
        IpAddr::V6(network) => IpAddr::from(u128::from(network).checked_add(1)?.to_be_bytes()),
    };
    IpNet::new(first, range.prefix_len()).ok().filter(|_| range.contains(&first))
}

// === impl Occupied ===

impl std::fmt::Display for Occupied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Occupied { range, by, pool } = self;
        let of_pool = pool.as_ref().map(|pool| format!(" of pool {pool}")).unwrap_or_default();
        match by {
            Occupant::Link { name, address, is_bridge } => {
                let of = if range.contains(&address.addr()) { "of" } else { "around" };
                write!(f, "link {name} has the address {address} {of} this node's pod range {range}{of_pool}, ")?;
                if *is_bridge {
                    write!(
                        f,
                        "so pods of another network may have addresses of it: drain the node, then delete the link with `ip link del {name}`"
                    )
                } else {
                    write!(f, "so packets for pods may be sent there: change the link's address, or the cluster's range for pods")
                }
            }
            Occupant::Subnet(address) => write!(
                f,
                "bridge {BRIDGE} has the address {address}, and {range}{of_pool}, which this node has, overlaps with its subnet: pods may have \
                 addresses of it that no pool has given them; delete these pods, and if the address stays, remove it with `ip addr del {address} \
                 dev {BRIDGE}`"
            ),
            Occupant::Block(block) => write!(
                f,
                "running pods of this node may have addresses of {block}, which it had of a pool, and this node's pod range {range}{of_pool} overlaps with \
                 it: delete these pods"
            ),
        }
    }
}

fn hardware_address(address: IpAddr) -> Option<Mac> {
    let octets: Vec<u8> = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let last = octets.len().checked_sub(4).and_then(|from| octets.get(from..))?;
    Mac::from_bytes(&[&OF_ADDRESS, last].concat())
}

fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranges_gateway_is_its_first_address() {
        for (range, expected) in [
            ("10.1.2.0/24", Some("10.1.2.1/24")),
            ("fd00:1:2::/64", Some("fd00:1:2::1/64")),
            ("10.1.2.4/31", Some("10.1.2.5/31")),
            ("10.1.2.4/32", None),
            ("255.255.255.255/32", None),
        ] {
            assert_eq!(of(&range.parse().unwrap()).map(|net| net.to_string()).as_deref(), expected, "{range}");
        }
        assert_eq!(hardware_address("10.1.2.1".parse().unwrap()).unwrap().to_string(), "0a:58:0a:01:02:01");
    }
}
