//! A node: a namespace with parents on the wires, that forwards for its pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{CniError, Code, IfName};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::link::{self, Change};
use linux::{AddrFlags, Batch, Inside, Netlink, Netns, Route, Sysctl, addr, route};

use crate::manifest::{NodeManifest, PodManifest};
use crate::state::{Lab, Node, Pod};
use crate::underlay;
use crate::wire::{self, FIRST_PARENT};

/// What a node is called when no manifest names one.
const ONLY_NODE: &str = "node-1";

/// What the nodes of a lab are called, those first that are there: as the manifests say, else as pods say where they are, else there is one.
pub(crate) fn names(there: &[Node], manifests: &[NodeManifest], pods: &[PodManifest]) -> Vec<String> {
    let mut names: Vec<String> = there.iter().map(|node| node.name.clone()).collect();
    let mut more: Vec<String> = manifests.iter().map(|manifest| manifest.name.clone()).collect();
    if more.is_empty() {
        more.extend(pods.iter().filter_map(|pod| pod.node.clone()));
        more.sort_unstable();
        more.dedup();
    }
    more.retain(|name| !names.contains(name));
    names.extend(more);
    if names.is_empty() { vec![ONLY_NODE.to_owned()] } else { names }
}

/// The node of a pod: the one that it names, else the next one in turn.
pub(crate) fn of<'n>(pod: &PodManifest, names: &[String], turn: &mut impl Iterator<Item = &'n String>) -> Option<String> {
    pod.node.as_ref().filter(|node| names.contains(node)).or_else(|| turn.next()).cloned()
}

/// The nodes of these names, in this order, with addresses, and with ranges that have room for their pods. One that is there stays as it is,
/// but for ranges that its manifest gives.
pub(crate) fn all(names: &[String], there: &[Node], zones: &[String], manifests: &[NodeManifest], pods: &[Pod]) -> Vec<Node> {
    let most = names.iter().map(|name| pods.iter().filter(|pod| pod.node == *name).count()).max().unwrap_or(0);
    let one = |(number, name): (usize, &String)| {
        let manifest = manifests.iter().find(|manifest| manifest.name == *name);
        if let Some(node) = there.iter().find(|node| node.name == *name) {
            let given = manifest.map(|manifest| manifest.pod_cidrs.clone()).filter(|given| !given.is_empty());
            return Node { pod_cidrs: given.unwrap_or_else(|| node.pod_cidrs.clone()), ..node.clone() };
        }
        let (addresses, pod_cidrs) = manifest.map_or((&[][..], &[][..]), |manifest| (&manifest.addresses, &manifest.pod_cidrs));
        let of_ranges = |is_v4: bool| pod_cidrs.is_empty() || pod_cidrs.iter().any(|range| range.addr().is_ipv4() == is_v4);
        let zone = manifest.map(|manifest| manifest.zone.clone()).unwrap_or_default();
        let place = zones.iter().position(|other| *other == zone).unwrap_or(0);
        // Who says both means both: packets of one family may go in a tunnel of the other.
        let is_said = !addresses.is_empty() && !pod_cidrs.is_empty();
        Node {
            name: name.clone(),
            zone,
            addresses: self::addresses((place, number), addresses, |is_v4| !is_said && of_ranges(is_v4)),
            pod_cidrs: if pod_cidrs.is_empty() { ranges(number, most) } else { pod_cidrs.to_vec() },
        }
    };
    names.iter().enumerate().map(one).collect()
}

/// The first of each family that is given; where none is given and one is `needed`, of 172.30.0.0/16 or fd00:172:30::/64, counted from 1. In
/// the second zone of 172.29.0.0/16 or fd00:172:29::/64, and so on.
fn addresses((zone, number): (usize, usize), given: &[IpAddr], needed: impl Fn(bool) -> bool) -> Vec<IpNet> {
    let n = u16::try_from(number + 1).unwrap_or(u16::MAX);
    let [high, low] = n.to_be_bytes();
    let subnet = 30u8.saturating_sub(u8::try_from(zone).unwrap_or(u8::MAX));
    let v4 = Ipv4Addr::new(172, subnet, high, low).into();
    // Read as in the address of the other family.
    let alike = u16::from(subnet / 10) << 4 | u16::from(subnet % 10);
    let v6 = Ipv6Addr::new(0xfd00, 0x172, alike, 0, 0, 0, 0, n).into();
    let of = |is_v4: bool, own: IpAddr| given.iter().find(|a| a.is_ipv4() == is_v4).copied().or_else(|| needed(is_v4).then_some(own));
    let with_length = |(address, length): (Option<IpAddr>, u8)| IpNet::new(address?, length).ok();
    [(of(true, v4), 16), (of(false, v6), 64)].into_iter().filter_map(with_length).collect()
}

/// 10.244.N.0/24 and fd00:10:244:N::/64, counted from 0. The IPv4 range is as much larger as the node with the `most` pods needs it.
fn ranges(number: usize, most: usize) -> Vec<IpNet> {
    let n = u16::try_from(number).unwrap_or(u16::MAX);
    // The network's own address, the gateway and the broadcast address are no pod's.
    let bits = u32::try_from(most + 3).unwrap_or(u32::MAX).checked_next_power_of_two().map_or(16, u32::trailing_zeros).clamp(8, 16);
    let first = u32::from(Ipv4Addr::new(10, 244, 0, 0)).saturating_add(u32::from(n) << bits);
    let v4 = Ipv4Net::new(Ipv4Addr::from(first), u8::try_from(32 - bits).unwrap_or(16)).map(IpNet::V4).ok();
    let v6 = Ipv6Net::new(Ipv6Addr::new(0xfd00, 0x10, 0x244, n, 0, 0, 0, 0), 64).map(IpNet::V6).ok();
    [v4, v6].into_iter().flatten().collect()
}

/// Builds a node's namespace: parents, addresses, forwarding. A parent that the kernel refuses goes to `refused`, unless the nodes need it
/// for themselves.
pub(crate) fn build(
    lab: &Lab,
    number: usize,
    node: &Node,
    wires: &Netns,
    refused: &mut BTreeMap<String, CniError>,
) -> Result<Netns, CniError> {
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("build node {}: {e}", node.name));
    let netns = lab.journal().create(&lab.node_netns(&node.name)).map_err(|e| failed(&e))?;
    netns.enter(settings).map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    plug_in(lab, number, node, wires, (&netns, 0), refused)?;
    let routers: Vec<IpNet> = underlay::router(lab, &node.zone);
    netns.enter(|inside| configure(inside, node, &lab.wires, &routers)).map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    Ok(netns)
}

/// Makes the parents of a node for the lab's wires from a place on, and plugs them in.
pub(crate) fn plug_in(
    lab: &Lab,
    number: usize,
    node: &Node,
    wires: &Netns,
    (netns, from): (&Netns, usize),
    refused: &mut BTreeMap<String, CniError>,
) -> Result<(), CniError> {
    for (at, parent) in lab.wires.iter().enumerate().skip(from) {
        if lab.refused.contains(parent) {
            continue;
        }
        let name = IfName::parse(parent)?;
        let wire = if parent == FIRST_PARENT { underlay::wire(lab, node) } else { wire::bridge(at) };
        match wire::join(wires, &wire, netns, number + 1, &name) {
            Err(e) if parent == FIRST_PARENT => return Err(e),
            Err(e) => drop(refused.entry(parent.clone()).or_insert_with(|| self::refused(parent, e))),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Why no pod can have a network on a parent.
pub(crate) fn refused(parent: &str, why: impl std::fmt::Display) -> CniError {
    CniError::invalid("master", format!("the lab's nodes cannot have the parent {parent:?}; name another: {why}"))
}

/// Sets links of a node up.
pub(crate) fn set_up(netns: &Netns, names: &[String]) -> Result<(), CniError> {
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("set the parents {} up: {e}", names.join(", ")));
    let work = |inside: &Inside| -> Result<(), Failure> {
        let mut netlink = Netlink::open(inside)?;
        for name in names {
            if let Some(link) = netlink.link(name)? {
                netlink.send_one(link::set(link.index, &Change { up: Some(true), ..Change::default() }))?;
            }
        }
        Ok(())
    };
    netns.enter(work).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A node forwards, and its interfaces are usable at once: no address of a lab is given twice, and a link-local address
/// that still waits for duplicate address detection would answer nobody for a second.
pub(crate) fn settings(inside: &Inside) -> Result<(), Failure> {
    let ipv6 = ["net", "ipv6", "conf", "default", "accept_dad"];
    for (key, value) in
        [(&["net", "ipv4", "ip_forward"][..], "1"), (&["net", "ipv6", "conf", "all", "forwarding"][..], "1"), (&ipv6[..], "0")]
    {
        let sysctl = Sysctl::new(key.iter().copied())?;
        if sysctl.exists(inside) {
            sysctl.write(inside, value)?;
        }
    }
    Ok(())
}

fn configure(inside: &Inside, node: &Node, parents: &[String], routers: &[IpNet]) -> Result<(), Failure> {
    let mut netlink = Netlink::open(inside)?;
    let up = |index| link::set(index, &Change { up: Some(true), ..Change::default() });
    let mut batch = Batch::new();
    for name in parents.iter().map(String::as_str).chain(["lo"]) {
        let Some(link) = netlink.link(name)? else { continue };
        if name == FIRST_PARENT {
            for net in &node.addresses {
                batch.push(addr::add(link.index, *net, if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE }));
            }
        }
        batch.push(up(link.index));
    }
    for router in routers.iter().filter(|router| node.addresses.iter().any(|own| own.trunc() == router.trunc())) {
        let all = if router.addr().is_ipv4() { Ipv4Net::default().into() } else { IpNet::from(Ipv6Net::default()) };
        batch.push(route::add(&Route { gateway: Some(router.addr()), ..Route::to(all) }));
    }
    netlink.send(batch)?;
    Ok(())
}

/// A pod's namespace, as a runtime makes it: only `lo` is up.
pub(crate) fn pod_namespace(lab: &Lab, pod: &Pod) -> Result<(), CniError> {
    let failed =
        |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("create the network namespace of pod {}: {e}", pod.full_name()));
    let netns = lab.journal().create(&lab.pod_netns(pod)).map_err(|e| failed(&e))?;
    let lo = |inside: &Inside| -> Result<(), Failure> {
        let mut netlink = Netlink::open(inside)?;
        netlink.send_one(link::set(1, &Change { up: Some(true), ..Change::default() }))?;
        Ok(())
    };
    netns.enter(lo).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only node, as its manifest says, with so many pods: its addresses, and its pods' ranges.
    fn node(addresses: &[&str], pod_cidrs: &[&str], pods: usize) -> (Vec<String>, Vec<String>) {
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDRs": pod_cidrs},
            "status": {"addresses": addresses.iter().map(|a| serde_json::json!({"type": "InternalIP", "address": a})).collect::<Vec<_>>()},
        });
        let manifests = crate::manifest::load(&["-".into()], &mut text.to_string().as_bytes()).unwrap();
        let pod = |n: usize| Pod {
            namespace: "default".to_owned(),
            name: n.to_string(),
            node: "n".to_owned(),
            networks: None,
            default_network: None,
            port_mappings: Vec::new(),
            failure: None,
        };
        let pods: Vec<Pod> = (0..pods).map(pod).collect();
        let node = all(&["n".to_owned()], &[], &[], &manifests.nodes, &pods).pop().unwrap();
        let text = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect();
        (text(&node.addresses), text(&node.pod_cidrs))
    }

    #[test]
    fn a_node_has_the_families_that_its_manifest_says() {
        let (v4, v6) = ("172.30.0.1/16", "fd00:172:30::1/64");
        let (range4, range6) = ("10.244.0.0/24", "fd00:10:244::/64");
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        for (addresses, ranges, has_addresses, has_ranges) in [
            (&[][..], &[][..], &[v4, v6][..], &[range4, range6][..]),
            (&["10.9.9.9"], &[], &["10.9.9.9/16", v6], &[range4, range6]),
            (&[], &["fd01::/64"], &[v6], &["fd01::/64"]),
            (&["10.9.9.9"], &["fd01::/64"], &["10.9.9.9/16"], &["fd01::/64"]),
            (&["fd09::9"], &["10.1.0.0/24", "fd01::/64"], &["fd09::9/64"], &["10.1.0.0/24", "fd01::/64"]),
        ] {
            assert_eq!(node(addresses, ranges, 1), (texts(has_addresses), texts(has_ranges)), "{addresses:?} {ranges:?}");
        }
    }

    #[test]
    fn a_range_has_room_for_the_nodes_pods() {
        for (pods, range) in [(253, "10.244.0.0/24"), (254, "10.244.0.0/23"), (509, "10.244.0.0/23"), (510, "10.244.0.0/22")] {
            assert_eq!(node(&[], &[], pods).1[0], range, "{pods} pods");
        }
        assert_eq!(ranges(3, 300)[0].to_string(), "10.244.6.0/23");
    }
}
