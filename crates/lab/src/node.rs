//! A node: a namespace with parents on the wires, that forwards for its pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{CniError, Code, IfName};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::link::{self, Change};
use linux::{AddrFlags, Batch, Inside, Netlink, Netns, Route, Sysctl, addr, route};

use crate::manifest::{NodeManifest, PodManifest};
use crate::state::{Lab, Node};
use crate::wire::{self, FIRST_PARENT};

/// What a node is called when no manifest names one.
const ONLY_NODE: &str = "node-1";

/// The nodes of a lab: those of the manifests, else those that pods are said to be on, else one.
pub(crate) fn all(manifests: &[NodeManifest], pods: &[PodManifest]) -> Vec<Node> {
    if manifests.is_empty() {
        let mut names: Vec<&str> = pods.iter().filter_map(|p| p.node.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            names.push(ONLY_NODE);
        }
        let one = |(number, name): (usize, &&str)| Node {
            name: (*name).to_owned(),
            addresses: addresses(number, &[]),
            pod_cidrs: pod_cidrs(number, &[]),
        };
        return names.iter().enumerate().map(one).collect();
    }
    let one = |(number, m): (usize, &NodeManifest)| Node {
        name: m.name.clone(),
        addresses: addresses(number, &m.addresses),
        pod_cidrs: pod_cidrs(number, &m.pod_cidrs),
    };
    manifests.iter().enumerate().map(one).collect()
}

/// 172.30.0.0/16 and fd00:172:30::/64, counted from 1, where the manifest gives no address of a family.
fn addresses(number: usize, given: &[IpAddr]) -> Vec<IpNet> {
    let n = u16::try_from(number + 1).unwrap_or(u16::MAX);
    let [high, low] = n.to_be_bytes();
    let v4 = given.iter().find(|a| a.is_ipv4()).copied().unwrap_or(Ipv4Addr::new(172, 30, high, low).into());
    let v6 = given.iter().find(|a| a.is_ipv6()).copied().unwrap_or(Ipv6Addr::new(0xfd00, 0x172, 0x30, 0, 0, 0, 0, n).into());
    [IpNet::new(v4, 16), IpNet::new(v6, 64)].into_iter().flatten().collect()
}

/// 10.244.N.0/24 and fd00:10:244:N::/64, counted from 0, where the manifest gives no network of a family.
fn pod_cidrs(number: usize, given: &[IpNet]) -> Vec<IpNet> {
    let n = u16::try_from(number).unwrap_or(u16::MAX);
    let [high, low] = n.to_be_bytes();
    let v4 = Ipv4Net::new(Ipv4Addr::new(10, 244u8.saturating_add(high), low, 0), 24).map(IpNet::V4).ok();
    let v6 = Ipv6Net::new(Ipv6Addr::new(0xfd00, 0x10, 0x244, n, 0, 0, 0, 0), 64).map(IpNet::V6).ok();
    let of = |is_v4: bool, own: Option<IpNet>| given.iter().find(|n| n.addr().is_ipv4() == is_v4).copied().or(own);
    [of(true, v4), of(false, v6)].into_iter().flatten().collect()
}

/// Builds a node's namespace: parents, addresses, forwarding, and routes to the pods of the other nodes. A parent that
/// the kernel refuses goes to `refused`, unless the nodes need it for themselves.
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
    for (wire, parent) in lab.wires.iter().enumerate() {
        let name = IfName::parse(parent)?;
        match wire::join(wires, wire + 1, &netns, number + 1, &name) {
            Err(e) if parent == FIRST_PARENT => return Err(e),
            Err(e) => drop(refused.entry(parent.clone()).or_insert_with(|| {
                CniError::invalid("master", format!("the lab's nodes cannot have the parent {parent:?}; name another: {e}"))
            })),
            Ok(()) => {}
        }
    }
    let others: Vec<Node> = lab.nodes.iter().filter(|n| n.name != node.name).cloned().collect();
    netns.enter(|inside| configure(inside, node, &lab.wires, &others)).map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    Ok(netns)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A node forwards, and its interfaces are usable at once: no address of a lab is given twice, and a link-local address
/// that still waits for duplicate address detection would answer nobody for a second.
fn settings(inside: &Inside) -> Result<(), Failure> {
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

fn configure(inside: &Inside, node: &Node, parents: &[String], others: &[Node]) -> Result<(), Failure> {
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
    for other in others {
        for pods in &other.pod_cidrs {
            let via = other.addresses.iter().find(|a| a.addr().is_ipv4() == pods.addr().is_ipv4());
            batch.push(route::add(&Route { gateway: via.map(IpNet::addr), ..Route::to(*pods) }));
        }
    }
    netlink.send(batch)?;
    Ok(())
}

/// A pod's namespace, as a runtime makes it: only `lo` is up.
pub(crate) fn pod_namespace(lab: &Lab, pod: &crate::state::Pod) -> Result<(), CniError> {
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
