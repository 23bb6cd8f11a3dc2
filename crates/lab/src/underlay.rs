//! The links on which nodes have their addresses: one for each zone of the nodes, with a router between them.
//!
//! ```text
//!   node of zone a: eth0 <-veth-> bridge w1 -.
//!                                             +-- the namespace of the wires forwards; it has the last address of each subnet
//!   node of zone b: eth0 <-veth-> bridge z2 -'
//! ```
//!
//! The router knows the nodes' addresses and no pod's, as a provider's does: without a tunnel, pods of two zones do not reach each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cni::{CniError, Code};
use ipnet::IpNet;
use linux::{AddrFlags, Batch, Errno, Inside, Netlink, Netns, addr};

use crate::manifest::NodeManifest;
use crate::node::Failure;
use crate::state::{Lab, Node};
use crate::wire::{self, FIRST_PARENT};

/// The label that says in which zone a node is.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// As many subnets as there are for zones whose nodes give no addresses: 172.30.0.0/16 down to 172.16.0.0/16.
const MOST: usize = 15;

/// The zones of the nodes, those that there are and then in the order of the manifests; one, without a name, where no node says any.
pub(crate) fn zones(there: &[String], manifests: &[NodeManifest]) -> Vec<String> {
    let mut zones: Vec<String> = there.to_vec();
    for manifest in manifests {
        if !zones.contains(&manifest.zone) {
            zones.push(manifest.zone.clone());
        }
    }
    if zones.is_empty() { vec![String::new()] } else { zones }
}

/// Refuses what a router cannot join.
pub(crate) fn check(lab: &Lab) -> Result<(), CniError> {
    if lab.zones.len() > MOST {
        return Err(CniError::invalid(
            ZONE,
            format!("the nodes are in {} zones, and a lab has at most {MOST}: give several nodes the same zone", lab.zones.len()),
        ));
    }
    for (at, zone) in lab.zones.iter().enumerate() {
        for other in lab.zones.iter().take(at) {
            let shared = subnets(lab, zone).intersection(&subnets(lab, other)).next().copied();
            if let Some(subnet) = shared {
                let why = format!("nodes of the zones {other:?} and {zone:?} have addresses of {subnet}: give those of one zone others");
                return Err(CniError::invalid(ZONE, why));
            }
        }
    }
    let mut taken: BTreeMap<IpAddr, String> = BTreeMap::new();
    let nodes = lab.nodes.iter().flat_map(|node| node.addresses.iter().map(move |net| (net.addr(), format!("node {}", node.name))));
    let routers = lab.zones.iter().flat_map(|zone| router(lab, zone)).map(|net| (net.addr(), "the router".to_owned()));
    for (address, holder) in routers.chain(nodes) {
        if let Some(other) = taken.insert(address, holder.clone()) {
            let why = format!("{other} and {holder} have the address {address}: give the node another InternalIP");
            return Err(CniError::invalid("status.addresses", why));
        }
    }
    Ok(())
}

/// The wire that a node's first parent is plugged into; in the first zone that is the wire of all first parents.
pub(crate) fn wire(lab: &Lab, node: &Node) -> String {
    match lab.zones.iter().position(|zone| *zone == node.zone) {
        Some(at) if at > 0 => format!("z{}", at + 1),
        _ => wire::bridge(lab.wires.iter().position(|name| name == FIRST_PARENT).unwrap_or(0)),
    }
}

/// The wires of the other zones.
pub(crate) fn wires(lab: &Lab) -> Vec<String> {
    (1..lab.zones.len()).map(|at| format!("z{}", at + 1)).collect()
}

/// What the first parents of a zone's nodes are plugged into, as it is drawn.
pub(crate) fn drawn(lab: &Lab, zone: &str) -> String {
    if lab.zones.len() < 2 { FIRST_PARENT.to_owned() } else { format!("{FIRST_PARENT} {zone}").trim_end().to_owned() }
}

/// The subnets of a zone's nodes.
fn subnets(lab: &Lab, zone: &str) -> BTreeSet<IpNet> {
    lab.nodes.iter().filter(|node| node.zone == zone).flat_map(|node| &node.addresses).map(IpNet::trunc).collect()
}

/// Whether there is a router: between zones, or between subnets of one.
pub(crate) fn has_router(lab: &Lab) -> bool {
    let is_split = |zone: &String| {
        let subnets = subnets(lab, zone);
        [true, false].into_iter().any(|is_v4| subnets.iter().filter(|subnet| subnet.addr().is_ipv4() == is_v4).count() > 1)
    };
    lab.zones.len() > 1 || lab.zones.iter().any(is_split)
}

/// The router's addresses in a zone; none where there is nothing to join.
pub(crate) fn router(lab: &Lab, zone: &str) -> Vec<IpNet> {
    if !has_router(lab) {
        return Vec::new();
    }
    subnets(lab, zone).iter().filter_map(|subnet| IpNet::new(last(subnet), subnet.prefix_len()).ok()).collect()
}

/// The last address but one of a subnet.
fn last(subnet: &IpNet) -> IpAddr {
    match subnet.broadcast() {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) - 1).to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from((u128::from(address) - 1).to_be_bytes()),
    }
}

/// Makes the namespace of the wires the router between the zones.
pub(crate) fn join(lab: &Lab, wires: &Netns) -> Result<(), CniError> {
    if !has_router(lab) {
        return Ok(());
    }
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("build the router between the zones: {e}"));
    let work = |inside: &Inside| -> Result<(), Failure> {
        let mut netlink = Netlink::open(inside)?;
        let mut batch = Batch::new();
        for zone in &lab.zones {
            let Some(node) = lab.nodes.iter().find(|node| node.zone == *zone) else { continue };
            let bridge = netlink.link(&wire(lab, node))?.ok_or("a wire is gone")?;
            for net in router(lab, zone) {
                let flags = if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
                // A lab that grows has most of them.
                batch.push(addr::add(bridge.index, net, flags).tolerate(Errno::EEXIST));
            }
        }
        netlink.send(batch)?;
        Ok(())
    };
    wires.enter(work).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}
