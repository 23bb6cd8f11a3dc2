//! What is this node's own, as the kernel, the settings and the API server tell it. Each is looked up when a network could take it.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use attach::{AddressRun, AddressSource, Given, NodeOwn, Parent};
use cni::{Mac, NetworkList};
use ipnet::IpNet;
use json::Value;
use linux::Family;
use linux::link::Link;
use linux::route::{RouteFilter, RouteKind};
use npwg::{DefinitionRef, Protocol};
use plugin::{Foreseen, Host};
use plugins::BUILTINS;

use crate::Agent;
use crate::node_traffic::{is_metadata, nameservers};

mod links;
mod listeners;
mod received;
mod virtual_servers;

use links::Need;
use virtual_servers::VirtualServer;

/// Addresses that nobody has at home (root servers of the DNS): the way to them is that to the rest of the world.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30))];

/// The node, for one plan.
pub(crate) struct ThisNode<'a> {
    pub(crate) host: RefCell<&'a mut Host>,
    links: OnceCell<Result<Vec<Link>, String>>,
    needed: OnceCell<Result<BTreeMap<u32, Need>, String>>,
    routes: OnceCell<Result<Vec<linux::Route>, String>>,
    addresses: OnceCell<Result<Vec<linux::Address>, String>>,
    own_links: OnceCell<Result<Vec<(u32, String)>, String>>,
    pub(crate) nameservers: OnceCell<Result<Vec<IpAddr>, String>>,
    /// With the links over which they are.
    pub(crate) next_hops: OnceCell<Result<Vec<(IpAddr, u32)>, String>>,
    pub(crate) routed: OnceCell<Vec<(IpNet, String)>>,
    virtual_servers: OnceCell<Result<Vec<VirtualServer>, String>>,
    /// The links that were asked for as those on which pods' interfaces stand, by index.
    parents: RefCell<BTreeSet<u32>>,
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

    /// Whether it hands out one of these addresses, as far as its configuration says.
    fn hands_out(&self, run: AddressRun) -> bool {
        self.ranges().iter().any(|own| run.overlaps(*own))
    }

    /// Whether its pods get their addresses from there, too, where no address is given twice.
    fn has_source(&self, source: &AddressSource) -> bool {
        self.list.and_then(attach::source_of).is_some_and(|own| own == *source)
    }

    /// Whether its configuration says which addresses of a family it hands out.
    fn knows_ranges(&self, run: AddressRun) -> bool {
        self.ranges().iter().any(|own| own.first.is_ipv4() == run.first.is_ipv4())
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
            next_hops: OnceCell::new(),
            routed: OnceCell::new(),
            virtual_servers: OnceCell::new(),
            parents: RefCell::default(),
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
        for link in self.links()?.iter().filter(|link| links::is_meant(link, device)) {
            if let Some(why) = self.whose(link)? {
                return Ok(Some(format!("{}, {why}", link.name)));
            }
        }
        Ok(None)
    }

    /// To what a link belongs, in words. A bridge with an address is not needed for that, but pods send to it: a macvlan in mode `passthru`
    /// would receive that in its place.
    fn whose(&self, link: &Link) -> Result<Option<String>, &str> {
        let address = self.addresses()?.iter().find(|one| one.index == link.index && links::is_global(one.net.addr()));
        let has_address = || address.map(|one| Need::Address(one.net.addr()).to_string());
        Ok(links::belongs_to(link, self.links()?, self.routes()?).or_else(has_address))
    }

    /// The same for a link on which a pod's interface is to stand: the end of another pod's pair, or a tunnel.
    fn parent_link(&self, device: &str) -> Result<Option<String>, &str> {
        let meant: Vec<&Link> = self.links()?.iter().filter(|link| links::is_meant(link, device)).collect();
        if meant.is_empty() {
            return Ok(None);
        }
        self.parents.borrow_mut().extend(meant.iter().map(|link| link.index));
        for link in meant {
            if let Some(why) = self.is_no_parent(link)? {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    fn is_no_parent(&self, link: &Link) -> Result<Option<String>, &str> {
        let (needed, routes) = (self.needed()?, self.routes()?);
        let in_container = links::is_container(self.links()?, needed);
        let why = links::is_no_parent(link, self.links()?, routes, needed.get(&link.index).copied(), in_container);
        Ok(why.map(|why| format!("{}, {why}", link.name)))
    }

    /// The links that were asked for as those on which pods' interfaces stand, by index: what a name means later may be another link.
    pub(crate) fn into_parents(self) -> BTreeSet<u32> {
        self.parents.into_inner()
    }

    /// Whether a link is the interface of a device, by the device's place on its bus.
    pub(crate) fn is_of_device(link: &Link, device: &str) -> bool {
        links::is_of_device(link, device)
    }

    /// What the use of a link, or of a hardware address, takes of the node's own, in words.
    pub(crate) fn taken_by_use(&self, foreseen: Foreseen<'_>) -> Option<String> {
        match foreseen {
            Foreseen::Result(_) => None,
            Foreseen::Mac(mac) => {
                Some(format!("the pod would get the hardware address {mac}, {} (macFromIP)", NodeOwn::mac(self, mac, &[])?))
            }
            Foreseen::Parent(link) => {
                let unknown = |e: &str| Some(format!("{}, which may belong to another pod ({e})", link.name));
                let whose = self.is_no_parent(link).unwrap_or_else(unknown)?;
                Some(format!("the pod's interface would stand on {whose}"))
            }
            Foreseen::Moved(link) => {
                let whose = self.default_bridge(&link.name).or_else(|| {
                    self.is_not_moved(link).unwrap_or_else(|e| Some(format!("{}, which may belong to another program ({e})", link.name)))
                })?;
                Some(format!("the pod would take {whose}, away from the node"))
            }
        }
    }

    fn is_not_moved(&self, link: &Link) -> Result<Option<String>, &str> {
        let why = match self.needed()?.get(&link.index) {
            Some(need) => Some(need.to_string()),
            None => self.whose(link)?,
        };
        Ok(why.map(|why| format!("{}, {why}", link.name)))
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
                Some(need) if need.is_uplink() => Some((link.index, format!("{}, {need}", link.name))),
                _ if of_pods.contains(&link.index) => None,
                Some(need @ Need::Address(_)) => Some((link.index, format!("{}, {need}", link.name))),
                _ => Some((link.index, link.name.clone())),
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

    /// Where a port that is published at this address, or at all, would be taken from a Service: kube-proxy in mode IPVS gives the node
    /// the addresses of Services, and takes their connections at the node's own addresses.
    fn published(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        let ip = ip.map(|ip| ip.to_canonical());
        if let Some(ip) = ip.filter(|ip| !ip.is_unspecified())
            && let Some(whose) = self.of_cluster(ip)
        {
            return Some(format!("at {ip}, {whose}"));
        }
        let of_services = match self.addresses_of_services() {
            Ok(addresses) => addresses,
            Err(e) => return Some(format!("which may be a Service's ({e})")),
        };
        let also = of_services.iter().find(|(address, _)| match ip {
            Some(ip) if !ip.is_unspecified() => ip == *address,
            Some(ip) => ip.is_ipv4() == address.is_ipv4(),
            None => true,
        });
        if let Some((service, link)) = also {
            let at = if ip == Some(*service) { "at" } else { "also at" };
            return Some(format!("{at} {service}, a Service's address that the node has on {link} (IPVS): name another one in \"hostIP\""));
        }
        match self.virtual_servers.get_or_init(virtual_servers::all) {
            Ok(servers) => {
                let server = servers.iter().find(|server| server.is_at(port, protocol, ip))?;
                Some(format!("at {}, where IPVS takes it for a Service: choose another port", server.address))
            }
            Err(e) => Some(format!("which may be a Service's ({e})")),
        }
    }

    /// The addresses of the links that have those of Services, with the link's name; of the uplink only Services'. Among them are those that
    /// are in no range of Services: of load balancers, and external ones.
    fn addresses_of_services(&self) -> Result<Vec<(IpAddr, &str)>, &str> {
        let is_service = |address: IpAddr| self.services.iter().any(|range| range.contains(&address));
        let addresses = self.addresses()?;
        let has = |link: &Link| {
            virtual_servers::LINKS.contains(&link.name.as_str())
                || addresses.iter().any(|one| one.index == link.index && is_service(one.net.addr()))
        };
        let links: Vec<&Link> = self.links()?.iter().filter(|link| has(link)).collect();
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let needed = self.needed()?;
        let is_shared = |index: u32| needed.get(&index).is_some_and(|need| need.is_uplink());
        let of = |one: &linux::Address| {
            let (link, address) = (links.iter().find(|link| link.index == one.index)?, one.net.addr());
            (is_service(address) || links::is_global(address) && !is_shared(link.index)).then_some((address, link.name.as_str()))
        };
        Ok(addresses.iter().filter_map(of).collect())
    }

    /// The link over which a macvlan without a `master` stands.
    fn default_link(&self) -> Result<Option<String>, String> {
        Ok(self.parent(None)?.map(|link| format!("{}, {}", link.name, Need::Uplink)))
    }

    /// Whether nobody else gets these addresses: a pool is the owner's, who says what is in it, and of whereabouts it is the same range.
    fn is_leased(&self, source: Option<&AddressSource>) -> bool {
        source.is_some_and(|source| matches!(source, AddressSource::Pool(_)) || self.given.iter().any(|given| given.has_source(source)))
    }

    /// Whether a network may have these addresses that pods have without asking. Where its configuration does not say which it hands out, all
    /// of its bridge's networks are its own, unless that is the uplink's bridge: those are other machines', too.
    fn may_be_given(&self, given: &GivenNetwork<'_>, run: AddressRun) -> bool {
        let is_of_pods = |bridge: &str| !matches!(self.needed_link(bridge), Ok(Some(_)));
        if given.knows_ranges(run) { given.hands_out(run) } else { given.bridge.as_deref().is_some_and(is_of_pods) }
    }

    /// The link by that name, or that of the default route.
    fn parent(&self, device: Option<&str>) -> Result<Option<&Link>, String> {
        let links = self.links()?;
        if let Some(device) = device {
            return Ok(links.iter().find(|link| links::is_meant(link, device)));
        }
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        for family in [Family::V4, Family::V6] {
            if let Some(index) = netlink.default_route_link(family).map_err(|e| e.to_string())? {
                return Ok(links.iter().find(|link| link.index == index));
            }
        }
        Ok(None)
    }

    /// What the node asks at an address, in words.
    fn asked(&self, address: IpAddr) -> Result<Option<String>, String> {
        let servers = self.nameservers.get_or_init(nameservers).as_ref().map_err(String::clone)?;
        if servers.contains(&address) {
            return Ok(Some("which is the node's DNS server".to_owned()));
        }
        Ok(self.next_hops()?.iter().any(|(hop, _)| *hop == address).then(|| "which is the node's router".to_owned()))
    }

    /// The next hops to the rest of the world, to the API servers and to DNS servers: the kernel is asked for each, as it may have many
    /// routes.
    fn next_hops(&self) -> Result<&[(IpAddr, u32)], String> {
        self.next_hops.get_or_init(|| self.look_for_next_hops()).as_deref().map_err(String::clone)
    }

    fn look_for_next_hops(&self) -> Result<Vec<(IpAddr, u32)>, String> {
        let servers = self.nameservers.get_or_init(nameservers).as_ref().map_err(String::clone)?;
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        let mut hops = Vec::new();
        for to in ELSEWHERE.iter().chain(servers).chain(&self.servers) {
            let way = links::way_to(netlink, *to).map_err(|e| e.to_string())?;
            hops.extend(way.iter().flat_map(|route| route.ways()).filter_map(|(gateway, oif)| gateway.zip(oif)));
        }
        hops.sort_unstable();
        hops.dedup();
        Ok(hops)
    }

    /// Who is known by a hardware address, in words: frames to it go to who sent with it last.
    fn has_mac(&self, mac: &Mac, taken: &[&str]) -> Result<Option<String>, String> {
        let stays = |link: &&Link| !taken.iter().any(|device| links::is_meant(link, device));
        if let Some(link) = self.links()?.iter().filter(|link| link.mac.as_ref() == Some(mac)).find(stays) {
            return Ok(Some(format!("which {} of the node has", link.name)));
        }
        let (links, bridges, hops) = (self.links()?, self.default_bridges(None)?, self.next_hops()?);
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        for (hop, link) in hops {
            let known = netlink.neighbours(*link).map_err(|e| e.to_string())?;
            if known.iter().any(|one| one.address == *hop && one.mac.as_ref() == Some(mac)) {
                return Ok(Some(format!("which the node's router {hop} has")));
            }
        }
        for (bridge, what) in bridges {
            let stations = netlink.stations(bridge).map_err(|e| e.to_string())?;
            // Behind a port that leads out there may be this very pod on the node that it leaves.
            let of_pod =
                |port: u32| port == bridge || links.iter().any(|link| link.index == port && (link.is("veth") || link.is("netkit")));
            if stations.iter().any(|(own, port)| own == mac && of_pod(*port)) {
                return Ok(Some(format!("which another pod has on {what}")));
            }
        }
        Ok(None)
    }

    /// The network of the node of which an address means every router (RFC 4291, 2.6.1), in words. One of two addresses has none (RFC 6164).
    fn of_routers(&self, address: IpAddr) -> Result<Option<String>, String> {
        let has_routers = |net: &IpNet| matches!(net, IpNet::V6(v6) if v6.prefix_len() < 127);
        let networks = self.addresses()?.iter().map(|one| one.net.trunc()).filter(has_routers);
        let network = networks.filter(|net| links::is_global(net.addr())).find(|net| net.addr() == address);
        Ok(network.map(|net| format!("which means the routers of {net}, a network of the node")))
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

    fn no_parent(&self, device: &str) -> Option<String> {
        self.parent_link(device).unwrap_or_else(|e| Some(format!("{device}, which may belong to another pod ({e})")))
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
        // Of link-local addresses only those of IPv4 are the node's on every link. Routers are known by those of IPv6.
        let is_of_a_link = address.is_unspecified() || matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let whose = || {
            if is_of_a_link {
                return self.asked(address);
            }
            if self.has_itself(address)? {
                return Ok(Some("which is the node's own".to_owned()));
            }
            Ok(self.asked(address)?.or(self.of_routers(address)?))
        };
        whose().unwrap_or_else(|e: String| Some(format!("which may be the node's own ({e})")))
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

    fn default_network(&self, run: AddressRun, source: Option<&AddressSource>) -> Option<String> {
        // The kernel is asked only if the addresses may be those of such a network.
        if self.is_leased(source) || !self.given.iter().any(|given| self.may_be_given(given, run)) {
            return None;
        }
        self.is_of_default_network(run)
    }

    fn received(&self, address: IpAddr, parent: &Parent, source: Option<&AddressSource>) -> Option<String> {
        if self.is_leased(source) { None } else { self.taken_by_ipvlan(address, parent) }
    }

    fn mac(&self, mac: &Mac, taken: &[&str]) -> Option<String> {
        self.has_mac(mac, taken).unwrap_or_else(|e| Some(format!("which may be another's ({e})")))
    }

    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        listeners::who(port, protocol, ip).or_else(|| self.published(port, protocol, ip))
    }
}

#[cfg(test)]
mod tests;
