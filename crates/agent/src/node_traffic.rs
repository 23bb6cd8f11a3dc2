//! Whose traffic a route of the host would take: that of the cluster, of the uplink's neighbours, of the node's other pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::rc::Rc;

use attach::{AddressRun, AddressSource};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::Route;
use linux::route::RouteKind;

use crate::network_table::NetworkTable;
use crate::node_own::ThisNode;

/// Where a cloud tells the machine who it is, gives it its credentials, and serves names and time.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Azure's, which also answers for its machines' agents, DNS and health probes.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // EC2's, where it is asked over IPv6; and the credentials of its containers and pods.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 123)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x123)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 253)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253)),
    // Those of Google, Oracle, Alibaba, Tencent and Scaleway.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix))
}

const fn v6(a: u16, b: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix))
}

/// The networks that anybody may use within a site (the special-purpose registries of IANA, RFC 6890): what the node reaches over its
/// default route is elsewhere.
const PRIVATE: &[IpNet] = &[
    // RFC 1918.
    v4(10, 0, 0, 8),
    v4(172, 16, 0, 12),
    v4(192, 168, 0, 16),
    // Shared (RFC 6598), of a link, for tests (RFC 2544), for documents (RFC 5737).
    v4(100, 64, 0, 10),
    v4(169, 254, 0, 16),
    v4(198, 18, 0, 15),
    v4(192, 0, 2, 24),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    // Unique local (RFC 4193), of a link, for documents (RFC 3849).
    v6(0xfc00, 0, 7),
    v6(0xfe80, 0, 10),
    v6(0x2001, 0xdb8, 32),
];

/// Files that name the node's DNS servers. systemd-resolved writes them into a file of its own, and names itself in the other one.
const NAMESERVERS: &[&str] = &["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// Whether all of these addresses are of one private network.
fn is_private(run: AddressRun) -> bool {
    PRIVATE.iter().any(|network| network.contains(&run.first) && network.contains(&run.last))
}

/// The servers that the node asks for names; else why they cannot be read. A file that is not there names none.
pub(crate) fn nameservers() -> Result<Vec<IpAddr>, String> {
    let mut all = Vec::new();
    for path in NAMESERVERS.iter().map(Path::new).filter(|path| path.exists()) {
        let dns = ipam::read_resolv_conf(path).map_err(|e| e.to_string())?;
        // Of a server of a link, the link's name follows.
        let texts = dns.nameservers.iter().filter_map(|text| text.split('%').next());
        all.extend(texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|address| address.to_canonical()));
    }
    Ok(all)
}

/// A network that links of the node are in.
pub(crate) struct Attached {
    pub(crate) network: IpNet,
    /// The link's index.
    pub(crate) index: u32,
    /// As `eth0, the node's uplink`.
    pub(crate) link: String,
}

/// Whether it is the cloud's metadata service.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    METADATA.contains(&address)
}

/// Every link has link-local addresses of IPv6.
pub(crate) fn is_of_a_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether a route is one that every machine without an address in its network has: to all of 169.254.0.0/16 by a link, from the kernel or a network's
/// start-up scripts. One that a DHCP server gave, or a part of that network, leads to services of the cloud: disks, say.
fn is_zeroconf(route: &Route) -> bool {
    /// `RTPROT_KERNEL` and `RTPROT_BOOT` (include/uapi/linux/rtnetlink.h).
    const LOCAL: [u8; 2] = [2, 3];
    let is_all = matches!(route.dst, IpNet::V4(net) if net.prefix_len() == 16 && net.addr().is_link_local());
    is_all && LOCAL.contains(&route.proto)
}

impl ThisNode<'_> {
    /// Whose traffic a route to these addresses would take, in words.
    pub(crate) fn taken_by_route(&self, run: AddressRun, bridge: Option<&str>, source: Option<&AddressSource>) -> Option<String> {
        if let Some(range) = self.cluster.ranges.iter().find(|range| run.overlaps(AddressRun::of(**range))) {
            return Some(format!("which redirects traffic for the cluster's Services ({range})"));
        }
        if let Some(address) = self.cluster.services.and_then(|services| services.address_in(run.first, run.last)) {
            return Some(format!("which redirects traffic for a Service ({address})"));
        }
        if let Some(server) = self.cluster.servers.iter().find(|server| run.contains(server.to_canonical())) {
            return Some(format!("which redirects traffic for the API server ({server})"));
        }
        if let Some((address, node)) = self.cluster.pods.and_then(|pods| pods.node_in(run)) {
            return Some(format!("which redirects traffic for the node {node} ({address})"));
        }
        if let Some(address) = METADATA.iter().find(|address| run.contains(**address)) {
            return Some(format!("which redirects traffic for the cloud's metadata service ({address})"));
        }
        if !is_private(run) {
            return Some("which redirects traffic for addresses outside of private ranges, such as 10.0.0.0/8 and fd00::/8".to_owned());
        }
        match self.asked.nameservers.get_or_init(nameservers) {
            Ok(servers) => {
                if let Some(server) = servers.iter().find(|server| run.contains(**server)) {
                    return Some(format!("which redirects traffic for the node's DNS server ({server})"));
                }
            }
            Err(e) => return Some(format!("which may redirect traffic for the node's DNS servers ({e})")),
        }
        self.taken_from_networks(run, bridge, source)
            .unwrap_or_else(|e| Some(format!("which may redirect traffic for the node's own networks ({e})")))
    }

    /// The same of the networks of the node's links, of its pods' networks, and of those to which the host has a route.
    fn taken_from_networks(&self, run: AddressRun, bridge: Option<&str>, source: Option<&AddressSource>) -> Result<Option<String>, String> {
        let is_of_pool = self.is_of_pool(source);
        if let Some((network, link)) = self.attached(bridge, is_of_pool)?.overlapping(run) {
            return Ok(Some(format!("which redirects traffic for {network}, the network of {link}")));
        }
        if let Some(whose) = self.taken_from_other_pods(run, bridge)? {
            return Ok(Some(whose));
        }
        if let Some(own) = self.given_range(run, bridge).filter(|_| !is_of_pool) {
            return Ok(Some(format!("which redirects traffic for {own}")));
        }
        Ok(self.routed()?.overlapping(run).map(|(_, way)| format!("which redirects traffic {way}")))
    }

    /// The next hops of the host's routes, and the networks to which it has a route: other nodes' pods, say, or what is behind a tunnel.
    /// Where the node's own network is a single address, nothing else tells who its router is. No network of pods gives the host such
    /// routes: theirs lead over bridges and pairs, and have no next hop. Two routes to half of all addresses are a default route.
    fn routed(&self) -> Result<&NetworkTable<String>, &str> {
        if let Some(known) = self.routed.get() {
            return Ok(known);
        }
        let (routes, own_links) = (self.routes()?, self.own_links()?);
        let own_links: BTreeMap<u32, &str> = own_links.iter().map(|(own, link)| (*own, link.as_str())).collect();
        let over = |route: &Route| {
            let mut links = route.ways().filter_map(|(_, oif)| oif);
            links.find_map(|oif| own_links.get(&oif)).map(|link| (*link).to_owned())
        };
        let mut routed = Vec::new();
        for route in routes.iter().filter(|route| route.kind == RouteKind::Unicast) {
            let hops: Vec<IpAddr> = route.ways().filter_map(|(gateway, _)| gateway).filter(|hop| !is_of_a_link(*hop)).collect();
            // A pod may be the router to a network behind it: such a next hop is on a link of pods.
            let is_own = |oif: Option<u32>| oif.is_none_or(|oif| own_links.contains_key(&oif));
            let own = route.ways().filter(|(_, oif)| is_own(*oif)).filter_map(|(gateway, _)| gateway).filter(|hop| !is_of_a_link(*hop));
            for hop in own {
                routed.push((IpNet::from(hop), format!("over {hop}, a next hop of the node's routes")));
            }
            let is_vlan_of_pods = || route.gateway.is_none() && route.oif.is_some_and(|oif| self.is_vlan_of_pods(oif, route.dst));
            if route.dst.prefix_len() <= 1 || is_of_a_link(route.dst.addr()) || is_vlan_of_pods() {
                continue;
            }
            let is_zeroconf = is_zeroconf(route);
            if let Some(way) = hops.first().map(IpAddr::to_string).or_else(|| over(route).filter(|_| !is_zeroconf)) {
                routed.push((route.dst, format!("to {}, which the node reaches over {way}", route.dst)));
            }
        }
        Ok(self.routed.get_or_init(|| routed.into_iter().collect()))
    }

    /// The default network that one of these addresses is in, in words.
    pub(crate) fn is_of_default_network(&self, run: AddressRun) -> Option<String> {
        match self.of_default_bridges() {
            Ok(networks) => {
                let of_bridge = networks.overlapping(run);
                let of_bridge = of_bridge.map(|(network, link)| format!("{network} is the network of {link}"));
                // Its bridge may not be there yet, or it has none.
                let of_range = || self.given_range(run, None).map(|own| own.replacen(", addresses", " are addresses", 1));
                let whose = of_bridge.or_else(of_range)?;
                Some(format!("which may be those of other pods: {whose}"))
            }
            Err(e) => Some(format!("which may be those of pods of the default network ({e})")),
        }
    }

    /// The networks of the node's own links, and those of the default network's bridge unless it is this one; else why they cannot be
    /// read.
    fn attached(&self, bridge: Option<&str>, is_of_pool: bool) -> Result<Rc<NetworkTable<String>>, String> {
        let key = (bridge.map(str::to_owned), is_of_pool);
        if let Some(known) = self.attached.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let own = self.networks_of(self.own_links()?)?;
        let mut all: Vec<Attached> = own.into_iter().filter(|own| !self.is_vlan_of_pods(own.index, own.network)).collect();
        if !is_of_pool {
            all.extend(self.behind_default_bridges(bridge)?);
        }
        let made: Rc<NetworkTable<String>> = Rc::new(all.into_iter().map(|own| (own.network, own.link)).collect());
        self.attached.borrow_mut().insert(key, Rc::clone(&made));
        Ok(made)
    }

    /// The networks behind all bridges of networks that pods have without asking.
    fn of_default_bridges(&self) -> Result<&NetworkTable<String>, &String> {
        let look = || Ok(self.behind_default_bridges(None)?.into_iter().map(|own| (own.network, own.link)).collect());
        self.of_default_bridges.get_or_init(look).as_ref()
    }

    /// The networks of links, by index and in words. Every link has link-local addresses of IPv6: they say nothing.
    pub(crate) fn networks_of(&self, links: &[(u32, String)]) -> Result<Vec<Attached>, String> {
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let addresses = self.addresses()?;
        let links: BTreeMap<u32, &str> = links.iter().map(|(own, link)| (*own, link.as_str())).collect();
        let of = |index: u32| links.get(&index).map(|link| (*link).to_owned());
        let global = addresses.iter().filter(|address| !is_of_a_link(address.net.addr()));
        Ok(global
            .filter_map(|address| Some(Attached { network: address.net.trunc(), index: address.index, link: of(address.index)? }))
            .collect())
    }
}
