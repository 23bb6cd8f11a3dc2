//! Whose an address is: the cluster's, the node's, or that of whom the node asks.
//!
//! ```text
//!   ClusterOwn ----------------------------> Services, API server     no pod's, not even as a gateway
//!   the kernel's way to it: local ---------> the node's
//!   resolv.conf, next hops of its routes --> its DNS servers and routers
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use attach::AddressRun;
use ipnet::IpNet;
use linux::Route;
use linux::link::Link;
use linux::route::RouteKind;

use super::links::Need;
use super::{ThisNode, links};
use crate::node_traffic::{is_metadata, nameservers};

/// Addresses that nobody has at home (root servers of the DNS): the way to them is that to the rest of the world.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30))];

impl ThisNode<'_> {
    /// Whose a canonical address is, in words.
    pub(super) fn whose_address(&self, address: IpAddr) -> Option<String> {
        if let Some(whose) = self.whose_in_cluster(address) {
            return Some(whose);
        }
        // Of link-local addresses only those of IPv4 are the node's on every link. Routers are known by those of IPv6.
        let is_of_a_link = address.is_unspecified() || matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let whose = || {
            if is_of_a_link {
                return Ok(self.asked(address)?.or(self.led_over(address)?));
            }
            let way = self.way_to(address)?;
            if way.as_ref().is_some_and(|way| way.kind == RouteKind::Local) {
                return Ok(Some("which is the node's own".to_owned()));
            }
            if let Some((_, node)) = self.cluster.pods.and_then(|pods| pods.node_in(AddressRun::one(address))) {
                return Ok(Some(format!("which is the address of the node {node}")));
            }
            // Who is no neighbour of the node is no next hop.
            let is_neighbour = way.is_some_and(|way| way.ways().any(|(gateway, _)| gateway.is_none()));
            let led_over = if is_neighbour { self.led_over(address)? } else { None };
            Ok(self.asked(address)?.or(led_over).or(self.of_routers(address)?))
        };
        whose().unwrap_or_else(|e: String| Some(format!("which may be the node's own ({e})")))
    }

    /// The same of the cluster's alone.
    pub(super) fn whose_in_cluster(&self, address: IpAddr) -> Option<String> {
        if self.cluster.servers.iter().any(|server| server.to_canonical() == address) {
            return Some("which is the API server's".to_owned());
        }
        if is_metadata(address) {
            return Some("which is the cloud's metadata service".to_owned());
        }
        if let Some(range) = self.cluster.ranges.iter().find(|range| range.contains(&address)) {
            return Some(format!("which is in the cluster's Service range {range}"));
        }
        self.cluster.services?.address_in(address, address)?;
        Some("which is an address of a Service".to_owned())
    }

    /// What the node asks at an address, in words.
    fn asked(&self, address: IpAddr) -> Result<Option<String>, String> {
        let servers = self.asked.nameservers.get_or_init(nameservers).as_ref().map_err(String::clone)?;
        if servers.contains(&address) {
            return Ok(Some("which is the node's DNS server".to_owned()));
        }
        Ok(self.next_hops()?.iter().any(|(hop, _)| *hop == address).then(|| "which is the node's router".to_owned()))
    }

    /// What the node reaches over an address, in words: as its routes say, on a link that is not one of pods. A pod may be the router to a
    /// network behind it.
    fn led_over(&self, address: IpAddr) -> Result<Option<String>, String> {
        let known = self.led_over.get_or_init(|| self.look_over()).as_ref().map_err(String::clone)?;
        Ok(known.get(&address).map(|network| format!("over which the node reaches {network}")))
    }

    fn look_over(&self) -> Result<BTreeMap<IpAddr, IpNet>, String> {
        let own_links: BTreeSet<u32> = self.own_links()?.iter().map(|(own, _)| *own).collect();
        let mut known = BTreeMap::new();
        for route in self.routes()?.iter().filter(|route| route.kind == RouteKind::Unicast) {
            let own = route.ways().filter(|(_, oif)| oif.is_none_or(|oif| own_links.contains(&oif)));
            for gateway in own.filter_map(|(gateway, _)| gateway) {
                known.entry(gateway).or_insert(route.dst);
            }
        }
        Ok(known)
    }

    /// The next hops to the rest of the world, to the API servers and to DNS servers: the kernel is asked for each, as it may have many
    /// routes.
    pub(super) fn next_hops(&self) -> Result<&[(IpAddr, u32)], String> {
        self.asked.next_hops.get_or_init(|| self.look_for_next_hops()).as_deref().map_err(String::clone)
    }

    fn look_for_next_hops(&self) -> Result<Vec<(IpAddr, u32)>, String> {
        let servers = self.asked.nameservers.get_or_init(nameservers).as_ref().map_err(String::clone)?;
        let mut hops = Vec::new();
        for to in ELSEWHERE.iter().chain(servers).chain(&self.cluster.servers) {
            let way = self.way_to(*to)?;
            hops.extend(way.iter().flat_map(|route| route.ways()).filter_map(|(gateway, oif)| gateway.zip(oif)));
        }
        hops.sort_unstable();
        hops.dedup();
        Ok(hops)
    }

    /// The network of the node of which an address means every router (RFC 4291, 2.6.1), in words. One of two addresses has none (RFC 6164).
    fn of_routers(&self, address: IpAddr) -> Result<Option<String>, String> {
        if address.is_ipv4() {
            return Ok(None);
        }
        let has_routers = |net: &IpNet| matches!(net, IpNet::V6(v6) if v6.prefix_len() < 127);
        let networks = self.addresses()?.iter().map(|one| one.net.trunc()).filter(has_routers);
        let network = networks.filter(|net| links::is_global(net.addr())).find(|net| net.addr() == address);
        Ok(network.map(|net| format!("which means the routers of {net}, a network of the node")))
    }

    /// Whether the node has an address; where that cannot be told, it has not.
    pub(super) fn has_itself(&self, address: IpAddr) -> bool {
        self.way_to(address).is_ok_and(|way| way.is_some_and(|route| route.kind == RouteKind::Local))
    }

    /// Whether the host's way to an address is the pair of a pod. The uplink of a node that is a container itself is an end of a pair, too.
    pub(super) fn leads_over_pair(&self, address: IpAddr) -> Result<bool, String> {
        let Some(way) = self.way_to(address)?.filter(|way| way.kind == RouteKind::Unicast) else { return Ok(false) };
        let (links, routes, needed) = (self.links()?, self.routes()?, self.needed()?);
        let is_nodes = |index: u32| needed.get(&index).is_some_and(|need| need.is_uplink() || matches!(need, Need::Address(_)));
        let is_pair = |index: u32| links.iter().any(|link| link.index == index && links::leads_to_pod(link, routes));
        Ok(way.ways().filter_map(|(_, oif)| oif).any(|oif| is_pair(oif) && !is_nodes(oif)))
    }

    /// The link of pods that a way of the host's leads to.
    pub(super) fn over_pods(&self, way: &Route) -> Result<Option<&Link>, String> {
        let (links, routes, needed, of_pods) = (self.links()?, self.routes()?, self.needed()?, self.of_pods()?);
        let is_nodes = |index: u32| needed.get(&index).is_some_and(|need| need.is_uplink());
        let is_of_pods = |link: &Link| (of_pods.contains(&link.index) || links::leads_to_pod(link, routes)) && !is_nodes(link.index);
        let mut direct = way.ways().filter(|(gateway, _)| gateway.is_none()).filter_map(|(_, oif)| oif);
        Ok(direct.find_map(|oif| links.iter().find(|link| link.index == oif && is_of_pods(link))))
    }

    /// Whether a link has an address at this moment.
    pub(super) fn has_now(&self, index: u32, address: IpAddr) -> Result<bool, String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        Ok(netlink.addresses(Some(index)).map_err(|e| e.to_string())?.iter().any(|own| own.net.addr() == address))
    }

    /// The host's way to an address.
    pub(super) fn way_to(&self, address: IpAddr) -> Result<Option<Route>, String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        links::way_to(netlink, address).map_err(|e| e.to_string())
    }
}
