//! Who is in a lab, from its records and the kernel.

use std::net::IpAddr;

use agent::attached_pod;
use attach::Step;
use ipnet::IpNet;
use linux::{Inside, Link, Netlink, ReadError, RouteFilter, RouteKind};
use verify::case::Need;
use verify::{LimitedPod, Outside, Place, Protocol, Reach, Site, SiteNode, SitePod, promise};

use super::{Namespaces, VerifyError};
use crate::state::{Lab, Node, Pod};
use crate::underlay;
use crate::wire::FIRST_PARENT;

/// What no lab has, and why.
const LACKS: [(Need, &str); 4] = [
    (Need::ServiceProxy, "it needs a service proxy, and a lab has none"),
    (Need::LoadBalancer, "it needs a load balancer, and a lab has none"),
    (Need::PublicClient, "it needs a client outside of the cluster, and a lab has none"),
    (Need::Metadata, "it needs a metadata service, and a lab has none"),
];

/// The nodes whose pods of a family are reached through a tunnel.
type Tunnels = Vec<(String, bool)>;

/// The lab's nodes and pods.
pub(super) fn of(lab: &Lab, namespaces: &Namespaces) -> Result<Site, VerifyError> {
    let nodes = lab.nodes.iter().map(|node| self::node(lab, node, namespaces)).collect::<Result<_, _>>()?;
    let attached = lab.pods.iter().filter(|pod| pod.failure.is_none());
    let attached = attached.map(|pod| self::pod(lab, pod, namespaces)).collect::<Result<Vec<(SitePod, Vec<LimitedPod>)>, _>>()?;
    let (pods, limited): (Vec<SitePod>, Vec<Vec<LimitedPod>>) = attached.into_iter().unzip();
    if pods.is_empty() {
        return Err(VerifyError::NoPods(lab.name.to_string()));
    }
    let outside = lab.zones.iter().flat_map(|zone| underlay::router(lab, zone)).map(|net| net.addr()).collect::<Vec<IpAddr>>();
    let mut lacks: Vec<(Need, String)> = LACKS.iter().map(|(need, why)| (*need, (*why).to_owned())).collect();
    if outside.is_empty() {
        let why = "this lab has no router, which stands for the hosts outside: give its nodes two zones";
        lacks.push((Need::Internet, why.to_owned()));
    }
    // The router between the zones stands for a host outside.
    let router = Outside { role: Need::Internet, place: Place::Underlay, addresses: outside, seen_as: Vec::new() };
    let outside = Some(router).filter(|router| !router.addresses.is_empty()).into_iter().collect();
    let unsupported = unsupported(&pods, namespaces)?;
    let limited = limited.into_iter().flatten().collect();
    Ok(Site { nodes, pods, limited, outside, lacks, unsupported, ..Site::default() })
}

/// The protocols of published ports that this kernel does not speak. It is asked only if a pod publishes one: the question may load a module.
fn unsupported(pods: &[SitePod], namespaces: &Namespaces) -> Result<Vec<Protocol>, VerifyError> {
    let over_sctp = |pod: &&SitePod| pod.ports.iter().any(|port| port.protocol == Protocol::Sctp);
    let Some(pod) = pods.iter().find(over_sctp) else { return Ok(Vec::new()) };
    let is_supported = entered(namespaces, &pod.place(), |inside| Ok(probe::has_sctp(inside)))?;
    Ok(if is_supported { Vec::new() } else { vec![Protocol::Sctp] })
}

fn node(lab: &Lab, node: &Node, namespaces: &Namespaces) -> Result<SiteNode, VerifyError> {
    let place = Place::Node(node.name.clone());
    let look = |inside: &Inside| -> Result<(Vec<IpAddr>, Tunnels), String> {
        let mut netlink = Netlink::open(inside).map_err(|e| e.to_string())?;
        let addresses = netlink.addresses(None).map_err(|e| e.to_string())?;
        let links = netlink.links().map_err(|e| e.to_string())?;
        let carried = carried(&mut netlink, links.iter().filter(|link| fabric::is_ours(link))).map_err(|e| e.to_string())?;
        let by_tunnel = |range: &IpNet| carried.iter().any(|net| range.contains(net));
        let others = lab.nodes.iter().filter(|other| other.name != node.name);
        let ranges = others.flat_map(|other| other.pod_cidrs.iter().map(move |range| (other.name.clone(), range)));
        let tunnels = ranges.filter(|(_, range)| by_tunnel(range)).map(|(name, range)| (name, range.addr().is_ipv4())).collect();
        Ok((addresses.iter().map(|address| address.net.addr()).collect(), tunnels))
    };
    let (sources, tunnels) = entered(namespaces, &place, look)?;
    Ok(SiteNode { name: node.name.clone(), addresses: node.addresses.iter().map(|net| net.addr()).collect(), sources, tunnels })
}

/// Where tunnels lead: their routes and neighbours. Which route is taken does not matter, because a wrong one may lead past the tunnel.
fn carried<'a>(netlink: &mut Netlink, tunnels: impl Iterator<Item = &'a Link>) -> Result<Vec<IpNet>, ReadError> {
    let mut carried = Vec::new();
    for tunnel in tunnels {
        let routes = netlink.routes(RouteFilter { oif: Some(tunnel.index), ..RouteFilter::default() })?;
        carried.extend(routes.into_iter().filter(|route| route.kind == RouteKind::Unicast).map(|route| route.dst));
        let neighbours = netlink.neighbours(tunnel.index)?.into_iter().filter(|neighbour| neighbour.permanent);
        carried.extend(neighbours.map(|neighbour| IpNet::from(neighbour.address)));
    }
    Ok(carried)
}

/// A pod, and its interfaces on networks that limit its bandwidth.
fn pod(lab: &Lab, pod: &Pod, namespaces: &Namespaces) -> Result<(SitePod, Vec<LimitedPod>), VerifyError> {
    let place = Place::Pod(pod.full_name());
    let failed = |why: String| VerifyError::Namespace { place: place.to_string(), why };
    let id = lab.sandbox(pod).map_err(|e| failed(e.to_string()))?;
    let record = lab.records(&pod.node).read(&id).map_err(|e| failed(e.to_string()))?;
    let record = record.ok_or_else(|| failed("its record is gone".to_owned()))?;
    let mtu = |place: &Place, name: &str| {
        let look = |inside: &Inside| Netlink::open(inside).map_err(|e| e.to_string())?.link(name).map_err(|e| e.to_string());
        entered(namespaces, place, look).ok().flatten().map(|link| link.mtu)
    };
    let (mut attached, limited) = attached_pod(&record, &pod.node, &mtu, &reach);
    for (attachment, step) in attached.attachments.iter_mut().zip(&record.steps) {
        attachment.zone = zone(lab, pod, step);
    }
    Ok((attached, limited))
}

fn entered<T: Send>(
    namespaces: &Namespaces,
    place: &Place,
    look: impl FnOnce(&Inside) -> Result<T, String> + Send,
) -> Result<T, VerifyError> {
    let failed = |why: String| VerifyError::Namespace { place: place.to_string(), why };
    let netns = namespaces.netns(place).ok_or_else(|| failed("it is gone".to_owned()))?;
    netns.enter(look).map_err(|e| failed(e.to_string()))?.map_err(failed)
}

/// Whom a network's pods reach, as its configuration promises.
fn reach(step: &Step) -> Reach {
    let bridge = step.list.plugins.first().and_then(|first| first.raw().str("bridge"));
    promise::reach(&step.list, step.default && bridge == Some(agent::PROVIDED_BRIDGE))
}

/// The zone that a network's link does not leave: that of the pod's node, where the network stands on the node's first parent, as it does if it names
/// none. Other parents of one name are on one wire in all zones.
fn zone(lab: &Lab, pod: &Pod, step: &Step) -> Option<String> {
    let first = step.list.plugins.first()?;
    let stands_on_parent = matches!(first.kind.as_str(), "macvlan" | "ipvlan" | "vlan");
    let parent = first.raw().str("master").unwrap_or_default();
    let is_another = parent != FIRST_PARENT && lab.wires.iter().any(|wire| wire == parent);
    let node = lab.nodes.iter().find(|node| node.name == pod.node)?;
    (lab.zones.len() > 1 && stands_on_parent && !is_another).then(|| node.zone.clone())
}
