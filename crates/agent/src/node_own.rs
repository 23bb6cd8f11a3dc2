//! What is this node's own, as the kernel, the settings and the API server tell it. Each is looked up when a network could take it.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;

use attach::{AddressRun, AddressSource, ImplicitNetwork, NodeOwn, Parent};
use cluster::Pod;
use cni::{IfName, Mac, NetworkList};
use ipnet::IpNet;
use json::Value;
use linux::link::Link;
use linux::route::RouteKind;
use linux::{Family, Snapshot, View};
use npwg::{DefinitionRef, Protocol};
use plugin::{Host, PlannedChange};
use plugins::BUILTINS;

use crate::cluster_addresses::ClusterOwn;
use crate::network_table::NetworkTable;
use crate::node_traffic::{Attached, is_of_a_link};
use crate::provided::PodNetwork;
use crate::{Agent, lock};

mod addresses;
mod advertised;
mod links;
mod listeners;
mod node_ports;
pub(crate) mod other_pods;
mod ports;
mod published;
mod received;
mod reserved;
pub(crate) mod virtual_servers;

use links::Need;
use listeners::Listeners;
use other_pods::OtherPods;
use virtual_servers::VirtualServer;

/// The links that have the networks of a table.
type LinksOfNetworks = Rc<NetworkTable<String>>;

/// Whom the node asks and by whom it reaches the world: read once for a whole ADD, which changes neither.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) nameservers: OnceCell<Result<Vec<IpAddr>, String>>,
    /// The next hops, with the links over which they are.
    next_hops: OnceCell<Result<Vec<(IpAddr, u32)>, String>>,
}

/// The node, for one plan.
pub(crate) struct ThisNode<'a> {
    pub(crate) host: RefCell<&'a mut Host>,
    /// Where the kernel's lists are kept; `None`: they are read.
    view: Option<&'a Mutex<View>>,
    kernel: OnceCell<Result<Snapshot, String>>,
    needed: OnceCell<Result<BTreeMap<u32, Need>, String>>,
    vlans_of_pods: OnceCell<Vec<(u32, IpNet)>>,
    own_links: OnceCell<Result<Vec<(u32, String)>, String>>,
    pub(crate) asked: Rc<Asked>,
    pub(crate) routed: OnceCell<NetworkTable<String>>,
    /// By the bridge that is left out, and whether addresses come from a pool.
    pub(crate) attached: RefCell<BTreeMap<(Option<String>, bool), LinksOfNetworks>>,
    pub(crate) of_default_bridges: OnceCell<Result<NetworkTable<String>, String>>,
    /// Of each next hop, one network to which a route of the node's own leads over it.
    led_over: OnceCell<Result<BTreeMap<IpAddr, IpNet>, String>>,
    of_pods: OnceCell<Result<BTreeSet<u32>, String>>,
    virtual_servers: OnceCell<Result<Vec<VirtualServer>, String>>,
    /// With the links that have them.
    addresses_of_services: OnceCell<Result<Vec<(IpAddr, String)>, String>>,
    listeners: Listeners,
    /// The links that were asked for as those on which pods' interfaces stand, by index.
    parents: RefCell<BTreeSet<u32>>,
    given: Vec<GivenNetwork<'a>>,
    pub(crate) cluster: ClusterOwn<'a>,
    /// The bridges of Open vSwitch that ports of Neutron are plugged into.
    pub(crate) openstack_bridges: &'a [IfName],
    /// Pods whose networks are nobody else's; `None` where nobody is attached, as for what is only looked at.
    others: Option<OtherPods<'a>>,
}

/// What a network has on the node that pods get without asking for it: the default network first.
#[derive(Debug, Default)]
struct GivenNetwork<'g> {
    /// In words.
    what: &'static str,
    bridge: Option<String>,
    /// The link that is the gateway of its VLAN on that bridge.
    way_in: Option<String>,
    /// Keys of its bridge by which a port sends with its own addresses only.
    guards: Vec<&'static str>,
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
        f.debug_struct("ThisNode").field("given", &self.given).field("services", &self.cluster.ranges).finish_non_exhaustive()
    }
}

impl Agent {
    /// This node for a pod, where all pods have these networks, the default network first. `asked` is one for all looks of an ADD.
    pub(crate) fn this_node<'a>(
        &'a self,
        host: &'a mut Host,
        given: impl IntoIterator<Item = &'a ImplicitNetwork>,
        pod: &Pod,
        asked: &Rc<Asked>,
    ) -> ThisNode<'a> {
        let pods = self.provided.as_ref().map(|provided| provided as &dyn PodNetwork);
        let others = OtherPods::new(&self.routed_pods, &self.records, format!("{}/{}", pod.namespace, pod.name));
        let node = ThisNode::new(host, given, ClusterOwn { pods, ..self.cluster_addresses.own() });
        ThisNode { asked: Rc::clone(asked), view: Some(&self.view), ..node.with_openstack(&self.settings.vifs.bridges).beside(others) }
    }
}

/// The bridge of a network, `cni0` where it names none.
fn bridge(list: &NetworkList) -> Option<String> {
    of_bridge(list).next().map(|keys| match keys.and_then(|keys| keys.get("bridge")) {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        _ => "cni0".to_owned(),
    })
}

/// The keys of each plugin of a network that makes ports of a bridge; `flannel` has its delegate's.
fn of_bridge(list: &NetworkList) -> impl Iterator<Item = Option<&json::Object>> {
    list.plugins.iter().filter_map(|plugin| match plugin.kind.as_str() {
        "bridge" => Some(Some(plugin.raw())),
        "flannel" => Some(plugin.raw().object("delegate")),
        _ => None,
    })
}

/// Keys of `bridge` by which a container sends with its own hardware and IP addresses only.
const GUARDS: &[&str] = &["strictSource", "macspoofchk"];

/// The gateway's link in the VLAN of a network, on its bridge.
fn way_in(list: &NetworkList) -> Option<String> {
    match of_bridge(list).next()??.get("vlan") {
        Some(Value::Number(vlan)) => Some(format!("{}.{}", bridge(list)?, vlan.as_u64().filter(|vlan| *vlan != 0)?)),
        _ => None,
    }
}

/// The keys that guard the ports of a network's bridge.
fn guards(list: &NetworkList) -> Vec<&'static str> {
    let is_set = |key: &&&str| of_bridge(list).flatten().any(|keys| keys.get(key) == Some(&Value::Bool(true)));
    GUARDS.iter().filter(is_set).copied().collect()
}

impl<'g> GivenNetwork<'g> {
    fn of(number: usize, given: &'g ImplicitNetwork) -> Self {
        GivenNetwork {
            what: if number == 0 { "the node's default network" } else { "a network that every pod of the node has" },
            bridge: bridge(&given.list),
            way_in: way_in(&given.list),
            guards: guards(&given.list),
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

    /// The names of its bridge and of the gateway's link in its VLAN on that one.
    fn links(&self) -> impl Iterator<Item = &str> {
        [&self.bridge, &self.way_in].into_iter().flatten().map(String::as_str)
    }

    /// Whether its configuration says which addresses of a family it hands out.
    fn knows_ranges(&self, run: AddressRun) -> bool {
        self.ranges().iter().any(|own| own.first.is_ipv4() == run.first.is_ipv4())
    }
}

impl<'a> ThisNode<'a> {
    /// A node whose pods have these networks, the default network first, in a cluster of which this is known.
    pub(crate) fn new(host: &'a mut Host, given: impl IntoIterator<Item = &'a ImplicitNetwork>, cluster: ClusterOwn<'a>) -> Self {
        let given = given.into_iter().enumerate().map(|(number, given)| GivenNetwork::of(number, given)).collect();
        ThisNode {
            host: RefCell::new(host),
            view: None,
            kernel: OnceCell::new(),
            needed: OnceCell::new(),
            vlans_of_pods: OnceCell::new(),
            own_links: OnceCell::new(),
            asked: Rc::default(),
            routed: OnceCell::new(),
            attached: RefCell::default(),
            of_default_bridges: OnceCell::new(),
            led_over: OnceCell::new(),
            of_pods: OnceCell::new(),
            virtual_servers: OnceCell::new(),
            addresses_of_services: OnceCell::new(),
            listeners: Listeners::default(),
            parents: RefCell::default(),
            given,
            cluster,
            openstack_bridges: &[],
            others: None,
        }
    }

    /// The same with bridges of Open vSwitch that ports of Neutron are plugged into.
    pub(crate) fn with_openstack(self, openstack_bridges: &'a [IfName]) -> Self {
        ThisNode { openstack_bridges, ..self }
    }

    /// What the kernel has: one look, for all that is asked.
    fn kernel(&self) -> Result<&Snapshot, &str> {
        let look = || match self.view {
            Some(view) => lock(view).look().map_err(|e| e.to_string()),
            None => {
                let mut host = self.host.borrow_mut();
                Snapshot::read(host.netlink().map_err(|e| e.to_string())?).map_err(|e| e.to_string())
            }
        };
        self.kernel.get_or_init(look).as_ref().map_err(String::as_str)
    }

    /// The node's links; else why they cannot be read.
    fn links(&self) -> Result<&[Link], &str> {
        Ok(&self.kernel()?.links)
    }

    /// The index of the link by that name, if there is one; else why it cannot be told. Other names than a link's first are asked for: what is
    /// kept of those of a link that is down may be outdated.
    fn named(&self, name: &str) -> Result<Option<u32>, String> {
        if let Some(link) = self.links()?.iter().find(|link| link.name == name) {
            return Ok(Some(link.index));
        }
        let mut host = self.host.borrow_mut();
        let link = host.netlink().map_err(|e| e.to_string())?.link(name).map_err(|e| e.to_string())?;
        Ok(link.map(|link| link.index))
    }

    /// The links that one of the names, addresses or places of a link means; else why that cannot be told.
    fn meant(&self, device: &str) -> Result<Vec<&Link>, String> {
        let (links, named) = (self.links()?, self.named(device)?);
        let meaning = links::Meaning::of(device);
        Ok(links.iter().filter(|link| Some(link.index) == named || meaning.is(link)).collect())
    }

    /// Whether two names are those of one link; else why that cannot be told.
    fn are_one(&self, one: &str, other: &str) -> Result<bool, String> {
        if one == other {
            return Ok(true);
        }
        let one = self.named(one)?;
        Ok(one.is_some() && one == self.named(other)?)
    }

    /// The links that the node needs; else why they cannot be read.
    fn needed(&self) -> Result<&BTreeMap<u32, Need>, &str> {
        let read = || {
            let (links, mut addresses, mut routes) = (self.links()?, Cow::Borrowed(self.addresses()?), Cow::Borrowed(self.routes()?));
            if !self.vlans_of_pods().is_empty() {
                addresses.to_mut().retain(|one| !self.is_vlan_of_pods(one.index, one.net.trunc()));
                let is_of_pods = |route: &linux::Route| route.oif.is_some_and(|oif| self.is_vlan_of_pods(oif, route.dst));
                routes.to_mut().retain(|route| route.gateway.is_some() || !is_of_pods(route));
            }
            let mut host = self.host.borrow_mut();
            let netlink = host.netlink().map_err(|e| e.to_string())?;
            links::needed(netlink, links, &addresses, &routes, &self.cluster.servers).map_err(|e| e.to_string())
        };
        self.needed.get_or_init(read).as_ref().map_err(String::as_str)
    }

    /// The networks of pods that a plugin has given a VLAN of a bridge, by the link's index: the VLAN is another's, an administrator's say, and
    /// the address there only the gateway of these pods. What cannot be read is none.
    fn vlans_of_pods(&self) -> &[(u32, IpNet)] {
        let look = || {
            let (Ok(links), Ok(addresses)) = (self.links(), self.addresses()) else { return Vec::new() };
            let is_of_plugin = |one: &&linux::Address| [linux::addr::TRANSIENT, linux::addr::GATEWAY].contains(&one.protocol);
            let is_vlan = |index: u32| links.iter().any(|link| link.index == index && links::is_vlan_of_bridge(link, links));
            addresses.iter().filter(is_of_plugin).filter(|one| is_vlan(one.index)).map(|one| (one.index, one.net.trunc())).collect()
        };
        self.vlans_of_pods.get_or_init(look)
    }

    /// Whether a network on a link is one of these.
    pub(crate) fn is_vlan_of_pods(&self, index: u32, network: IpNet) -> bool {
        self.vlans_of_pods().contains(&(index, network))
    }

    /// The link that is meant so, if the node needs it.
    fn needed_link(&self, device: &str) -> Result<Option<String>, String> {
        let meant = self.meant(device)?;
        if meant.is_empty() {
            return Ok(None);
        }
        let needed = self.needed()?;
        Ok(meant.into_iter().find_map(|link| Some(format!("{}, {}", link.name, needed.get(&link.index)?))))
    }

    /// The same for a link that is to be moved into a pod: what belongs to a switch, a tunnel or another pod is nobody else's either.
    fn moved_link(&self, device: &str) -> Result<Option<String>, String> {
        if device.starts_with("/sys/devices/virtual") {
            return Ok(Some(format!("{device}, which is not hardware: name the interface")));
        }
        for link in self.meant(device)? {
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
        let belongs = links::belongs_to(link, self.links()?, self.routes()?);
        Ok(belongs.or_else(|| reserved::is_of_program(link)).or_else(has_address))
    }

    /// The same for a link on which a pod's interface is to stand: the end of another pod's pair, or a tunnel.
    fn parent_link(&self, device: &str) -> Result<Option<String>, String> {
        let meant = self.meant(device)?;
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
        let need = needed.get(&link.index).copied();
        let of_program = || reserved::is_of_program(link).filter(|_| need != Some(Need::Uplink));
        let why =
            links::is_no_parent(link, self.links()?, routes, need, in_container).or_else(of_program).or_else(|| self.is_guarded(link));
        Ok(why.map(|why| format!("{}, {why}", link.name)))
    }

    /// Of what bridge a link is, or on what bridge it stands, whose ports are guarded, in words: an interface on the bridge itself is no port.
    fn is_guarded(&self, link: &Link) -> Option<String> {
        let links = self.links().ok()?;
        let stack = || std::iter::successors(Some(link), |link| links::parent_of(link, links));
        let has = |given: &&GivenNetwork<'_>| {
            let is_own = |own: u32| stack().take(links.len()).any(|link| link.index == own);
            !given.guards.is_empty() && given.links().any(|name| self.named(name).ok().flatten().is_some_and(is_own))
        };
        let given = self.given.iter().find(has)?;
        let bridge = given.bridge.as_deref().unwrap_or_default();
        Some(format!(
            "on which a pod could send with addresses of others: {bridge} is the bridge of {}, whose ports are guarded",
            given.what
        ))
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
    pub(crate) fn taken_by_use(&self, foreseen: PlannedChange<'_>) -> Option<String> {
        match foreseen {
            PlannedChange::Result(_) => None,
            PlannedChange::Mac(mac) => {
                Some(format!("the pod would get the hardware address {mac}, {} (macFromIP)", NodeOwn::mac(self, mac, &[])?))
            }
            PlannedChange::Parent(link) => {
                let unknown = |e: &str| Some(format!("{}, which may belong to another pod ({e})", link.name));
                let whose = self.is_no_parent(link).unwrap_or_else(unknown)?;
                Some(format!("the pod's interface would stand on {whose}"))
            }
            PlannedChange::Moved(link) => {
                let whose = self.default_bridge(&link.name).or_else(|| {
                    self.is_not_moved(link).unwrap_or_else(|e| Some(format!("{}, which may belong to another program ({e})", link.name)))
                })?;
                Some(format!("the pod would take {whose}, away from the node"))
            }
            PlannedChange::Mtu(link, mtu) => {
                let needed = || match self.needed() {
                    Ok(needed) => needed.get(&link.index).map(|need| format!("{}, {need}", link.name)),
                    Err(e) => Some(format!("{}, which the node may need ({e})", link.name)),
                };
                let whose = self.default_bridge(&link.name).or_else(needed)?;
                Some(format!("the MTU would become {mtu} of {whose}"))
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
        Ok(&self.kernel()?.routes)
    }

    /// The addresses of the node's links; else why they cannot be read.
    pub(crate) fn addresses(&self) -> Result<&[linux::Address], &str> {
        Ok(&self.kernel()?.addresses)
    }

    /// The links of pods, by index; else why they cannot be read.
    fn of_pods(&self) -> Result<&BTreeSet<u32>, &str> {
        let look = || Ok(links::of_pods(self.links()?, self.routes()?).into_iter().collect());
        self.of_pods.get_or_init(look).as_ref().map_err(String::as_str)
    }

    /// The links whose networks are the node's own, by index and in words: the uplinks, and what is none of pods; else why they cannot
    /// be read.
    pub(crate) fn own_links(&self) -> Result<&[(u32, String)], &str> {
        let look = || {
            let (links, needed, of_pods) = (self.links()?, self.needed()?, self.of_pods()?);
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

    /// The addresses, in words, among which one of these is that pods have without asking, unless the bridge of their network is this one.
    pub(crate) fn given_range(&self, run: AddressRun, but: Option<&str>) -> Option<String> {
        let mut given = self.given.iter().filter(|given| but.is_none() || given.bridge.as_deref() != but);
        let of_list = given.find_map(|given| Some((given.ranges().iter().find(|own| run.overlaps(**own))?, given.what)));
        let of_list = of_list.map(|(own, what)| format!("{own}, addresses of {what}"));
        of_list.or_else(|| Some(format!("{}, addresses of the cluster's pods", self.cluster.pods?.range_of_pods(run)?)))
    }

    /// The networks, with what has each in words, that the host reaches over the bridges of networks that pods have without asking, unless
    /// it is this one: those of the bridge's addresses, and those to which a route leads there, as to the blocks of a pool.
    pub(crate) fn behind_default_bridges(&self, but: Option<&str>) -> Result<Vec<Attached>, String> {
        let bridges = self.default_bridges(but)?;
        let mut all = self.networks_of(&bridges)?;
        let bridges: BTreeMap<u32, String> = bridges.into_iter().collect();
        let of = |index: u32| bridges.get(&index).cloned();
        let is_way = |route: &&linux::Route| route.kind == RouteKind::Unicast && route.gateway.is_none() && !route.is_default();
        let routes =
            self.routes()?.iter().filter(is_way).filter(|route| !is_of_a_link(route.dst.addr()) && !route.dst.addr().is_multicast());
        all.extend(routes.filter_map(|route| Some(Attached { network: route.dst, index: route.oif?, link: of(route.oif?)? })));
        Ok(all)
    }

    /// The bridges of networks that pods have without asking, unless it is this one, by index and in words; else why they cannot be read.
    pub(crate) fn default_bridges(&self, but: Option<&str>) -> Result<Vec<(u32, String)>, String> {
        let but = but.map(|but| self.named(but)).transpose()?.flatten();
        let mut all: Vec<(u32, String)> = Vec::new();
        for given in &self.given {
            for name in given.links() {
                let index = self.named(name)?.filter(|index| Some(*index) != but && all.iter().all(|(known, _)| known != index));
                let link = index.and_then(|index| self.links().ok()?.iter().find(|link| link.index == index));
                all.extend(link.map(|link| (link.index, format!("{}, the bridge of {}", link.name, given.what))));
            }
        }
        Ok(all)
    }

    /// The link over which a macvlan without a `master` stands.
    fn default_link(&self) -> Result<Option<String>, String> {
        Ok(self.parent(None)?.map(|link| format!("{}, {}", link.name, Need::Uplink)))
    }

    /// Whether nobody else gets these addresses: a pool is the owner's, who says what is in it, and of whereabouts it is the same range.
    fn is_leased(&self, source: Option<&AddressSource>) -> bool {
        source.is_some_and(|source| matches!(source, AddressSource::Pool(_)) || self.given.iter().any(|given| given.has_source(source)))
    }

    /// Whether a pool gives these addresses, to one pod at a time: of another network than the default one's it may give the same ones.
    pub(crate) fn is_of_pool(&self, source: Option<&AddressSource>) -> bool {
        match source {
            Some(AddressSource::Pool(_)) => true,
            Some(source @ AddressSource::PoolsOf(_)) => self.given.iter().any(|given| given.has_source(source)),
            _ => false,
        }
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
            return Ok(self.meant(device)?.first().copied());
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

    /// Which of these bridges has a port that sends with this hardware address and no other, in words. A pod that is silent for some minutes
    /// is forgotten by the bridge.
    fn has_guarded_mac(&self, mac: &Mac, bridges: &[(u32, String)]) -> Result<Option<String>, String> {
        let mut host = self.host.borrow_mut();
        if bridges.is_empty() || !host.has_nft().map_err(|e| e.to_string())? {
            return Ok(None);
        }
        let elements = rules::all(host.nft().map_err(|e| e.to_string())?, &rules::GUARDS).map_err(|e| e.to_string())?;
        let of_mac = elements.iter().filter(|(_, element)| rules::guarded_mac(element).as_ref() == Some(mac));
        let ports: BTreeSet<String> = of_mac.filter_map(|(_, element)| rules::guarded_port(element)).collect();
        let links = self.links()?.iter().filter(|link| ports.contains(&link.name));
        let mut masters = links.filter_map(|link| link.master);
        Ok(masters.find_map(|master| bridges.iter().find(|(bridge, _)| *bridge == master)).map(|(_, bridge)| bridge.clone()))
    }

    /// The node that is known by a hardware address on the links that this one has for itself.
    fn has_nodes_mac(&self, mac: &Mac) -> Result<Option<String>, String> {
        let Some(pods) = self.cluster.pods else { return Ok(None) };
        let is_own = |need: &Need| need.is_uplink() || matches!(need, Need::Address(_));
        let links: Vec<u32> = self.needed()?.iter().filter(|(_, need)| is_own(need)).map(|(link, _)| *link).collect();
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        for link in links {
            let known = netlink.neighbours(link).map_err(|e| e.to_string())?;
            let mut same = known.iter().filter(|one| one.mac.as_ref() == Some(mac));
            if let Some((_, node)) = same.find_map(|one| pods.node_in(AddressRun::one(one.address.to_canonical()))) {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Who is known by a hardware address, in words: frames to it go to who sent with it last.
    fn has_mac(&self, mac: &Mac, taken: &[&str]) -> Result<Option<String>, String> {
        for link in self.links()?.iter().filter(|link| link.mac.as_ref() == Some(mac)) {
            // Few addresses are those of a link, so the kernel is seldom asked for names.
            let taken = taken.iter().map(|device| self.meant(device)).collect::<Result<Vec<_>, _>>()?.concat();
            if !taken.contains(&link) {
                return Ok(Some(format!("which {} of the node has", link.name)));
            }
        }
        let (links, bridges, hops) = (self.links()?, self.default_bridges(None)?, self.next_hops()?);
        if let Some(bridge) = self.has_guarded_mac(mac, &bridges)? {
            return Ok(Some(format!("which another pod has on {bridge}")));
        }
        if let Some(node) = self.has_nodes_mac(mac)? {
            return Ok(Some(format!("which the node {node} has")));
        }
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
            let is_own = match self.are_one(own, bridge) {
                Ok(is_own) => is_own,
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

    fn lasts(&self, link: &str) -> bool {
        self.given.iter().flat_map(|given| [&given.bridge, &given.way_in]).flatten().any(|own| own == link)
    }

    fn reserved(&self, link: &str) -> Option<String> {
        self.whose_name(link).unwrap_or_else(|e| Some(format!("which may be another program's ({e})")))
    }

    fn configured_by_pods(&self, bridge: &str) -> Option<String> {
        self.takes_advertisements(bridge).unwrap_or_else(|e| Some(format!("{bridge}, which may accept router advertisements ({e})")))
    }

    fn gateway_of_others(&self, bridge: &str, definition: &DefinitionRef) -> Option<String> {
        self.is_gateway_of_others(bridge, &definition.to_string())
            .unwrap_or_else(|e| Some(format!("{bridge}, which may have the gateway of other pods ({e})")))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.has_itself(address.to_canonical())
    }

    fn leads_to_pod(&self, address: IpAddr) -> bool {
        // What cannot be looked up may.
        self.leads_over_pair(address.to_canonical()).unwrap_or(true)
    }

    fn of_pod(&self, address: IpAddr) -> Option<String> {
        self.who_has(address.to_canonical()).unwrap_or_else(|e| Some(format!("which may be a pod's ({e})")))
    }

    fn guards(&self, bridge: &str) -> Vec<&'static str> {
        // What cannot be looked up may be a name of it.
        let is_own = |own: &str| self.are_one(own, bridge).unwrap_or(true);
        let given = self.given.iter().filter(|given| given.bridge.as_deref().is_some_and(is_own));
        given.flat_map(|given| given.guards.iter().copied()).collect()
    }

    fn address(&self, address: IpAddr) -> Option<String> {
        self.whose_address(address.to_canonical())
    }

    fn of_cluster(&self, address: IpAddr) -> Option<String> {
        self.whose_in_cluster(address.to_canonical())
    }

    fn traffic(&self, run: AddressRun, bridge: Option<&str>, source: Option<&AddressSource>) -> Option<String> {
        self.taken_by_route(run, bridge, source)
    }

    fn default_network(&self, run: AddressRun, source: Option<&AddressSource>) -> Option<String> {
        // The kernel is asked only if the addresses may be those of such a network.
        let is_of_cluster = || self.cluster.pods.is_some_and(|pods| pods.range_of_pods(run).is_some());
        if self.is_leased(source) || !(self.given.iter().any(|given| self.may_be_given(given, run)) || is_of_cluster()) {
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
        let whose = self.tunnel(port, protocol).map(str::to_owned).or_else(|| self.listeners.who(port, protocol, ip));
        whose.or_else(|| self.published(port, protocol, ip))
    }

    fn tunnel(&self, port: u16, protocol: Protocol) -> Option<&'static str> {
        // At whatever address: the kernel takes the tunnel's packets at each, and what is published at one of them is turned before.
        let is_tunnel = protocol == Protocol::Udp && self.cluster.pods.is_some_and(|pods| pods.has_tunnel_at(port));
        is_tunnel.then_some("the port of the cluster network's tunnel between nodes: choose another one")
    }
}

#[cfg(test)]
mod tests;
