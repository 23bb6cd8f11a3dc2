//! What is this node's own, as the kernel, the settings and the API server tell it. Each is looked up when a network could take it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use attach::{AddressRun, Given, NodeOwn};
use cni::NetworkList;
use ipnet::IpNet;
use json::Value;
use linux::Family;
use linux::link::Link;
use linux::route::{RouteFilter, RouteKind};
use npwg::{DefinitionRef, Protocol};
use plugin::Host;
use plugins::BUILTINS;

use crate::Agent;
use crate::node_traffic::is_metadata;

mod links;
mod listeners;

use links::Need;

/// The node, for one plan.
pub(crate) struct ThisNode<'a> {
    pub(crate) host: RefCell<&'a mut Host>,
    links: OnceCell<Result<Vec<Link>, String>>,
    needed: OnceCell<Result<BTreeMap<u32, Need>, String>>,
    routes: OnceCell<Result<Vec<linux::Route>, String>>,
    addresses: OnceCell<Result<Vec<linux::Address>, String>>,
    own_links: OnceCell<Result<Vec<(u32, String)>, String>>,
    pub(crate) nameservers: OnceCell<Result<Vec<IpAddr>, String>>,
    given: Vec<GivenNetwork<'a>>,
    pub(crate) services: Vec<IpNet>,
    /// Where the API server is.
    pub(crate) servers: Vec<IpAddr>,
}

/// What a network has on the node that pods get without asking for it: the default network first.
#[derive(Debug, Default)]
struct GivenNetwork<'g> {
    /// In words.
    what: &'static str,
    bridge: Option<String>,
    list: Option<&'g NetworkList>,
    /// The directories in which it keeps its pods' addresses, as they are named and as they really are; read when they are asked for.
    leases: OnceCell<Vec<(PathBuf, Option<PathBuf>)>>,
    /// The addresses that it hands out, as far as its configuration says; read when they are asked for.
    ranges: OnceCell<Vec<AddressRun>>,
    /// What it was read from.
    definition: Option<&'g DefinitionRef>,
}

impl fmt::Debug for ThisNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThisNode").field("given", &self.given).field("services", &self.services).finish_non_exhaustive()
    }
}

impl Agent {
    /// This node, whose pods have these networks, the default network first.
    pub(crate) fn this_node<'a>(&self, host: &'a mut Host, given: impl IntoIterator<Item = &'a Given>) -> ThisNode<'a> {
        ThisNode::new(host, given, self.cluster_addresses.ranges(), self.cluster_addresses.servers())
    }
}

/// The bridge of a network, `cni0` where it names none.
fn bridge(list: &NetworkList) -> Option<String> {
    let named = |object: Option<&json::Object>| match object.and_then(|object| object.get("bridge")) {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        _ => "cni0".to_owned(),
    };
    list.plugins.iter().find_map(|plugin| match plugin.kind.as_str() {
        "bridge" => Some(named(Some(plugin.raw()))),
        "flannel" => Some(named(plugin.raw().object("delegate"))),
        _ => None,
    })
}

impl<'g> GivenNetwork<'g> {
    fn of(number: usize, given: &'g Given) -> Self {
        GivenNetwork {
            what: if number == 0 { "the node's default network" } else { "a network that every pod of the node has" },
            bridge: bridge(&given.list),
            list: Some(&given.list),
            leases: OnceCell::new(),
            ranges: OnceCell::new(),
            definition: given.definition.as_ref(),
        }
    }

    fn leases(&self) -> &[(PathBuf, Option<PathBuf>)] {
        let read = || {
            let dirs = self.list.into_iter().flat_map(|list| attach::lease_dirs(list, BUILTINS));
            dirs.map(|dir| (dir.clone(), dir.canonicalize().ok())).collect()
        };
        self.leases.get_or_init(read)
    }

    fn ranges(&self) -> &[AddressRun] {
        self.ranges.get_or_init(|| self.list.map(|list| attach::handed_out(list, BUILTINS)).unwrap_or_default())
    }

    /// Whether addresses may be those that it hands out on its bridge. Where its configuration does not say them, they may.
    fn may_have(&self, run: AddressRun) -> bool {
        let mut known = self.ranges().iter().filter(|own| own.first.is_ipv4() == run.first.is_ipv4()).peekable();
        self.bridge.is_some() && (known.peek().is_none() || known.any(|own| run.overlaps(*own)))
    }

    /// Whether its pods get their addresses from this pool, which gives no address twice.
    fn has_pool(&self, pool: &str) -> bool {
        self.list.and_then(attach::pool_of).is_some_and(|own| own == pool)
    }
}

impl<'a> ThisNode<'a> {
    /// A node whose pods have these networks, the default network first, in a cluster with these ranges of Services, whose API servers
    /// have these addresses.
    pub(crate) fn new(host: &'a mut Host, given: impl IntoIterator<Item = &'a Given>, services: Vec<IpNet>, servers: Vec<IpAddr>) -> Self {
        let given = given.into_iter().enumerate().map(|(number, given)| GivenNetwork::of(number, given)).collect();
        ThisNode {
            host: RefCell::new(host),
            links: OnceCell::new(),
            needed: OnceCell::new(),
            routes: OnceCell::new(),
            addresses: OnceCell::new(),
            own_links: OnceCell::new(),
            nameservers: OnceCell::new(),
            given,
            services,
            servers,
        }
    }

    /// The node's links; else why they cannot be read.
    fn links(&self) -> Result<&[Link], &str> {
        let read = || {
            let mut host = self.host.borrow_mut();
            host.netlink().map_err(|e| e.to_string())?.links().map_err(|e| e.to_string())
        };
        self.links.get_or_init(read).as_deref().map_err(String::as_str)
    }

    /// The links that the node needs; else why they cannot be read.
    fn needed(&self) -> Result<&BTreeMap<u32, Need>, &str> {
        let read = || {
            let (links, addresses, routes) = (self.links()?, self.addresses()?, self.routes()?);
            let mut host = self.host.borrow_mut();
            let netlink = host.netlink().map_err(|e| e.to_string())?;
            links::needed(netlink, links, addresses, routes, &self.servers).map_err(|e| e.to_string())
        };
        self.needed.get_or_init(read).as_ref().map_err(String::as_str)
    }

    /// The link that one of the names, addresses or places of a link means, if the node needs it.
    fn needed_link(&self, device: &str) -> Result<Option<String>, &str> {
        let meant: Vec<&Link> = self.links()?.iter().filter(|link| links::is_meant(link, device)).collect();
        if meant.is_empty() {
            return Ok(None);
        }
        let needed = self.needed()?;
        Ok(meant.into_iter().find_map(|link| Some(format!("{}, {}", link.name, needed.get(&link.index)?))))
    }

    /// The same for a link that is to be moved into a pod: what belongs to a switch, a tunnel or another pod is nobody else's either.
    fn moved_link(&self, device: &str) -> Result<Option<String>, &str> {
        if device.starts_with("/sys/devices/virtual") {
            return Ok(Some(format!("{device}, which is not hardware: name the interface")));
        }
        let links = self.links()?;
        let meant: Vec<&Link> = links.iter().filter(|link| links::is_meant(link, device)).collect();
        let routes = if meant.is_empty() { &[] } else { self.routes()? };
        Ok(meant.into_iter().find_map(|link| Some(format!("{}, {}", link.name, links::belongs_to(link, links, routes)?))))
    }

    /// The routes of the host, of all tables; else why they cannot be read.
    pub(crate) fn routes(&self) -> Result<&[linux::Route], &str> {
        let read = || {
            let mut host = self.host.borrow_mut();
            host.netlink().map_err(|e| e.to_string())?.routes(RouteFilter::default()).map_err(|e| e.to_string())
        };
        self.routes.get_or_init(read).as_deref().map_err(String::as_str)
    }

    /// The addresses of the node's links; else why they cannot be read.
    pub(crate) fn addresses(&self) -> Result<&[linux::Address], &str> {
        let read = || {
            let mut host = self.host.borrow_mut();
            host.netlink().map_err(|e| e.to_string())?.addresses(None).map_err(|e| e.to_string())
        };
        self.addresses.get_or_init(read).as_deref().map_err(String::as_str)
    }

    /// The links whose networks are the node's own, by index and in words: the uplinks, and what is none of pods; else why they cannot
    /// be read.
    pub(crate) fn own_links(&self) -> Result<&[(u32, String)], &str> {
        let look = || {
            let (links, needed, of_pods) = (self.links()?, self.needed()?, links::of_pods(self.links()?, self.routes()?));
            let of = |link: &Link| match needed.get(&link.index) {
                Some(Need::Uplink) => Some((link.index, format!("{}, {}", link.name, Need::Uplink))),
                _ if of_pods.contains(&link.index) => None,
                Some(need) => Some((link.index, format!("{}, {need}", link.name))),
                None => Some((link.index, link.name.clone())),
            };
            Ok(links.iter().filter_map(of).collect())
        };
        self.own_links.get_or_init(look).as_deref().map_err(String::as_str)
    }

    /// What networks hand out that pods have without asking, unless its bridge is this one, with the network in words.
    pub(crate) fn given_ranges(&self, but: Option<&str>) -> impl Iterator<Item = (AddressRun, &'static str)> {
        let given = self.given.iter().filter(move |given| but.is_none() || given.bridge.as_deref() != but);
        given.flat_map(|given| given.ranges().iter().map(move |run| (*run, given.what)))
    }

    /// The bridges of networks that pods have without asking, unless it is this one, by index and in words; else why they cannot be read.
    pub(crate) fn default_bridges(&self, but: Option<&str>) -> Result<Vec<(u32, String)>, &str> {
        let is = |link: &Link, name: Option<&str>| name.is_some_and(|name| links::has_name(link, name));
        let of = |link: &Link| {
            let own = self.given.iter().find(|given| is(link, given.bridge.as_deref()) && !is(link, but))?;
            Some((link.index, format!("{}, the bridge of {}", link.name, own.what)))
        };
        Ok(self.links()?.iter().filter_map(of).collect())
    }

    /// Whether a device is a bridge of such a network, or stands on one. It is asked for alone: most devices are neither.
    fn is_on_default_bridge(&self, device: &str) -> Result<bool, String> {
        let bridges = || self.given.iter().filter_map(|given| given.bridge.as_deref());
        if bridges().any(|bridge| bridge == device) {
            return Ok(true);
        }
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        let mut link = netlink.link(device).map_err(|e| e.to_string())?;
        while let Some(one) = link {
            if bridges().any(|bridge| links::has_name(&one, bridge)) {
                return Ok(true);
            }
            // Both ends of a pair stand on each other.
            link = match one.parent.filter(|_| one.link_netnsid.is_none() && !one.is("veth")) {
                Some(parent) => netlink.link_by_index(parent).map_err(|e| e.to_string())?,
                None => None,
            };
        }
        Ok(false)
    }

    /// Where a port that is published at this address, or at all, would be taken from a Service: kube-proxy in mode IPVS gives the node
    /// the addresses of Services.
    fn published(&self, ip: Option<IpAddr>) -> Option<String> {
        if let Some(ip) = ip.filter(|ip| !ip.to_canonical().is_unspecified()) {
            return self.of_cluster(ip).map(|whose| format!("at {ip}, {whose}"));
        }
        if self.services.is_empty() {
            return None;
        }
        let is_of_family = |address: &IpAddr| ip.is_none_or(|ip| ip.to_canonical().is_ipv4() == address.is_ipv4());
        match self.addresses() {
            Ok(addresses) => {
                let mut own = addresses.iter().map(|address| address.net.addr()).filter(is_of_family);
                let service = own.find(|address| self.services.iter().any(|range| range.contains(address)))?;
                Some(format!("also at {service}, a Service's address that the node has (IPVS): name another one in \"hostIP\""))
            }
            Err(e) => Some(format!("which may be a Service's ({e})")),
        }
    }

    /// The link over which a macvlan without a `master` stands.
    fn default_link(&self) -> Result<Option<String>, String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        for family in [Family::V4, Family::V6] {
            if let Some(index) = netlink.default_route_link(family).map_err(|e| e.to_string())? {
                let link = netlink.link_by_index(index).map_err(|e| e.to_string())?;
                return Ok(link.map(|link| format!("{}, {}", link.name, Need::Uplink)));
            }
        }
        Ok(None)
    }

    fn has_itself(&self, address: IpAddr) -> Result<bool, String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        let way = links::way_to(netlink, address).map_err(|e| e.to_string())?;
        Ok(way.is_some_and(|route| route.kind == RouteKind::Local))
    }
}

impl NodeOwn for ThisNode<'_> {
    fn uplink(&self, device: &str) -> Option<String> {
        self.needed_link(device).unwrap_or_else(|e| Some(format!("{device}, which may be the node's uplink ({e})")))
    }

    fn moved(&self, device: &str) -> Option<String> {
        self.moved_link(device).unwrap_or_else(|e| Some(format!("{device}, which may belong to another program ({e})")))
    }

    fn default_route(&self) -> Option<String> {
        self.default_link().unwrap_or_else(|e| Some(format!("the interface of the default route, the node's uplink ({e})")))
    }

    fn default_bridge(&self, bridge: &str) -> Option<String> {
        self.given.iter().find_map(|given| {
            let own = given.bridge.as_deref()?;
            let is_own = match self.links() {
                _ if own == bridge => true,
                Ok(links) => links.iter().any(|link| links::has_name(link, own) && links::has_name(link, bridge)),
                Err(e) => return Some(format!("{bridge}, which may be the bridge of {} ({e})", given.what)),
            };
            is_own.then(|| format!("{own}, the bridge of {}", given.what))
        })
    }

    fn leases(&self, dir: &Path) -> Option<String> {
        let real = OnceCell::new();
        let real = || real.get_or_init(|| dir.canonicalize().ok()).as_ref();
        let is_really_below = |own: &Path| real().is_some_and(|dir| dir.starts_with(own));
        let of = |given: &GivenNetwork| {
            let is_below = |own: &Path, really: Option<&Path>| dir.starts_with(own) || really.is_some_and(is_really_below);
            let (own, _) = given.leases().iter().find(|(own, really)| is_below(own, really.as_deref()))?;
            Some(format!("those of {} ({})", given.what, own.display()))
        };
        self.given.iter().find_map(of)
    }

    fn is_default_network(&self, definition: &DefinitionRef) -> bool {
        self.given.iter().any(|given| given.definition == Some(definition))
    }

    fn address(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        if let Some(whose) = self.of_cluster(address) {
            return Some(whose);
        }
        // Of link-local addresses only those of IPv4 are the node's on every link.
        let is_of_a_link = address.is_unspecified() || matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if is_of_a_link {
            return None;
        }
        match self.has_itself(address) {
            Ok(has) => has.then(|| "which is the node's own".to_owned()),
            Err(e) => Some(format!("which may be the node's own ({e})")),
        }
    }

    fn of_cluster(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        if self.servers.iter().any(|server| server.to_canonical() == address) {
            return Some("which is the API server's".to_owned());
        }
        if is_metadata(address) {
            return Some("which is the cloud's metadata service".to_owned());
        }
        let range = self.services.iter().find(|range| range.contains(&address))?;
        Some(format!("which is in the cluster's Service range {range}"))
    }

    fn traffic(&self, run: AddressRun, bridge: Option<&str>) -> Option<String> {
        self.taken_by_route(run, bridge)
    }

    fn default_network(&self, run: AddressRun) -> Option<String> {
        self.is_of_default_network(run)
    }

    fn default_segment(&self, run: AddressRun, device: &str, pool: Option<&str>) -> Option<String> {
        // The kernel is asked about the device only if the addresses may be those of such a network.
        let is_leased = || pool.is_some_and(|pool| self.given.iter().any(|given| given.has_pool(pool)));
        if !self.given.iter().any(|given| given.may_have(run)) || is_leased() {
            return None;
        }
        match self.is_on_default_bridge(device) {
            Ok(true) => self.is_of_default_network(run),
            Ok(false) => None,
            Err(e) => Some(format!("which may be those of pods of the default network ({e})")),
        }
    }

    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        listeners::who(port, protocol, ip).or_else(|| self.published(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be looked up is not taken for nobody's.
    #[test]
    fn what_cannot_be_read_counts_as_the_nodes_own() {
        let mut host = Host::here(plugin::Dirs::default());
        let mut node = ThisNode::new(&mut host, &[], Vec::new(), Vec::new());
        node.given.push(GivenNetwork { what: "the node's default network", bridge: Some("cni0".to_owned()), ..GivenNetwork::default() });
        node.links.set(Err("ip link show: EMFILE".to_owned())).unwrap();
        assert_eq!(node.uplink("eth1").as_deref(), Some("eth1, which may be the node's uplink (ip link show: EMFILE)"));
        let bridge = "br1, which may be the bridge of the node's default network (ip link show: EMFILE)";
        assert_eq!(node.default_bridge("br1").as_deref(), Some(bridge));
        assert_eq!(node.default_bridge("cni0").as_deref(), Some("cni0, the bridge of the node's default network"));
    }

    #[test]
    fn whose_an_address_is() {
        let mut host = Host::here(plugin::Dirs::default());
        let node = ThisNode::new(&mut host, &[], vec!["10.96.0.0/12".parse().unwrap()], vec!["192.0.2.99".parse().unwrap()]);
        let whose = |address: &str| node.address(address.parse().unwrap());
        for service in ["10.96.0.1", "::ffff:10.96.0.1"] {
            assert_eq!(whose(service).as_deref(), Some("which is in the cluster's Service range 10.96.0.0/12"), "{service}");
        }
        assert_eq!(node.of_cluster("192.0.2.99".parse().unwrap()).as_deref(), Some("which is the API server's"));
        for (address, whose) in [("169.254.169.254", "metadata"), ("fd00:ec2::254", "metadata")] {
            assert!(node.of_cluster(address.parse().unwrap()).is_some_and(|told| told.contains(whose)), "{address}");
        }
        assert!(whose("127.0.0.1").is_some() && whose("::ffff:127.0.0.1").is_some() && whose("192.0.2.7").is_none());
    }
}
