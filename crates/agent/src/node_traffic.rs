//! Whose traffic a route of the host would take: that of the cluster, of the uplink's neighbours, of the node's other pods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use attach::AddressRun;
use ipnet::IpNet;
use linux::route::RouteKind;

use crate::node_own::ThisNode;

/// Where a cloud tells the machine who it is, and gives it its credentials.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Azure's, which also answers for its machines' agents, DNS and health probes.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // EC2's, where it is asked over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// A network that links of the node are in.
pub(crate) struct Attached {
    pub(crate) network: IpNet,
    /// As `eth0, the node's uplink`.
    pub(crate) link: String,
}

/// Whether it is the cloud's metadata service.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    METADATA.contains(&address)
}

/// Every link has link-local addresses of IPv6.
fn is_of_a_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

impl ThisNode<'_> {
    /// Whose traffic a route to these addresses would take, in words.
    pub(crate) fn taken_by_route(&self, run: AddressRun, bridge: Option<&str>) -> Option<String> {
        if let Some(range) = self.services.iter().find(|range| run.overlaps(AddressRun::of(**range))) {
            return Some(format!("which redirects traffic for the cluster's Services ({range})"));
        }
        if let Some(server) = self.servers.iter().find(|server| run.contains(server.to_canonical())) {
            return Some(format!("which redirects traffic for the API server ({server})"));
        }
        if let Some(address) = METADATA.iter().find(|address| run.contains(**address)) {
            return Some(format!("which redirects traffic for the cloud's metadata service ({address})"));
        }
        match self.routed() {
            Ok(routed) => {
                if let Some((_, way)) = routed.iter().find(|(network, _)| run.overlaps(AddressRun::of(*network))) {
                    return Some(format!("which redirects traffic {way}"));
                }
            }
            Err(e) => return Some(format!("which may redirect traffic for the node's own networks ({e})")),
        }
        match self.attached(bridge) {
            Ok(attached) => {
                let own = attached.iter().find(|own| run.overlaps(AddressRun::of(own.network)))?;
                Some(format!("which redirects traffic for {}, the network of {}", own.network, own.link))
            }
            Err(e) => Some(format!("which may redirect traffic for the node's own networks ({e})")),
        }
    }

    /// The next hops of the host's routes, and the networks that are behind them but for everything: other nodes' pods, say. Where the
    /// node's own network is a single address, nothing else tells who its router is. No network of pods gives the host such routes.
    fn routed(&self) -> Result<Vec<(IpNet, String)>, &str> {
        let routes = self.routes()?;
        let mut routed = Vec::new();
        for route in routes.iter().filter(|route| route.kind == RouteKind::Unicast) {
            let hops: Vec<IpAddr> = route.ways().filter_map(|(gateway, _)| gateway).filter(|hop| !is_of_a_link(*hop)).collect();
            for hop in &hops {
                routed.push((IpNet::from(*hop), format!("over {hop}, a next hop of the node's routes")));
            }
            if let Some(hop) = hops.first().filter(|_| !route.is_default()) {
                routed.push((route.dst, format!("to {}, which the node reaches over {hop}", route.dst)));
            }
        }
        Ok(routed)
    }

    /// The default network that one of these addresses is in, in words.
    pub(crate) fn is_of_default_network(&self, run: AddressRun) -> Option<String> {
        match self.default_bridges(None).map_err(str::to_owned).and_then(|bridges| self.networks_of(&bridges)) {
            Ok(networks) => {
                let own = networks.iter().find(|own| run.overlaps(AddressRun::of(own.network)))?;
                Some(format!("which may be those of other pods: {} is the network of {}", own.network, own.link))
            }
            Err(e) => Some(format!("which may be those of pods of the default network ({e})")),
        }
    }

    /// The networks of the uplinks, and those of the default network's bridge unless it is this one; else why they cannot be read.
    fn attached(&self, bridge: Option<&str>) -> Result<Vec<Attached>, String> {
        let mut links = self.uplinks()?;
        let bridges = self.default_bridges(bridge)?;
        links.extend(bridges.into_iter().filter(|(bridge, _)| links.iter().all(|(uplink, _)| uplink != bridge)).collect::<Vec<_>>());
        self.networks_of(&links)
    }

    /// The networks of links, by index and in words. Every link has link-local addresses of IPv6: they say nothing.
    fn networks_of(&self, links: &[(u32, String)]) -> Result<Vec<Attached>, String> {
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let addresses = {
            let mut host = self.host.borrow_mut();
            host.netlink().map_err(|e| e.to_string())?.addresses(None).map_err(|e| e.to_string())?
        };
        let of = |index: u32| links.iter().find(|(own, _)| *own == index).map(|(_, link)| link.clone());
        let global = addresses.iter().filter(|address| !is_of_a_link(address.net.addr()));
        Ok(global.filter_map(|address| Some(Attached { network: address.net.trunc(), link: of(address.index)? })).collect())
    }
}
