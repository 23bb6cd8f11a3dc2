//! The links that the node needs for itself.
//!
//! ```text
//!   default routes of all tables, every next hop --+
//!   the way to the API server ---------------------+--> links, and what they stand on: ports of a bond or bridge, parents of a VLAN
//!   addresses, routes to networks -----------------+
//! ```
//!
//! A bridge has an address as its pods' gateway, so that it is not needed for it, but what stands below is. The uplink's bridge is known
//! by the routes that lead over it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::Mac;
use ipnet::IpNet;
use linux::link::Link;
use linux::route::{MAIN, RouteKind};
use linux::sysfs::Bus;
use linux::{Address, Errno, Netlink, ReadError, Route};

/// What the node needs a link for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// To reach others: the main table's default route or the way to the API server leads over it.
    Uplink,
    /// To reach others, with those packets that a default route of another table is for.
    OtherUplink,
    /// For an address of its own.
    Address(IpAddr),
    /// For what it reaches over the link, which has no address.
    Route(IpNet),
}

// === impl Need ===

impl Need {
    /// Whether a default route leads over the link, of whatever table.
    pub(super) fn is_uplink(self) -> bool {
        matches!(self, Need::Uplink | Need::OtherUplink)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Uplink => f.write_str("the node's uplink"),
            Need::OtherUplink => f.write_str("over which a default route of the node leads"),
            Need::Address(address) => write!(f, "which has the node's address {address}"),
            Need::Route(dst) => write!(f, "over which the node reaches {dst}"),
        }
    }
}

/// The links among `links` that the node needs, by index. `servers`: where the API server is.
pub(super) fn needed(
    netlink: &mut Netlink,
    links: &[Link],
    addresses: &[Address],
    routes: &[Route],
    servers: &[IpAddr],
) -> Result<BTreeMap<u32, Need>, ReadError> {
    let of = |index: u32| links.iter().find(|link| link.index == index);
    // A program of the node may be reached at an address of a link alone, as its DNS server is. Hosts' ends of pods' pairs have such ones.
    let is_of_program = |one: &Address| {
        let is_v4 = matches!(one.net.addr(), IpAddr::V4(v4) if v4.is_link_local());
        is_v4 && of(one.index).is_some_and(|link| !leads_to_pod(link, routes) && !is_zeroconf(link, one))
    };
    // One that is valid elsewhere, too, is the better one to name.
    let global = addresses.iter().filter(|one| is_global(one.net.addr()));
    let addressed = addresses.iter().filter(|one| is_of_program(one)).chain(global);
    let addressed = addressed.map(|one| (one.index, Need::Address(one.net.addr())));
    // A link with a route that leads to a pod is that pod's.
    let reached = reached(routes).into_iter().filter(|(index, _)| of(*index).is_some_and(|link| !leads_to_pod(link, routes)));
    let addressed = reached.map(|(index, dst)| (index, Need::Route(dst))).chain(addressed);
    let addresses: Vec<(u32, IpAddr)> = addresses.iter().map(|one| (one.index, one.net.addr())).collect();
    let (bridges, mut needed): (BTreeMap<u32, Need>, BTreeMap<u32, Need>) =
        addressed.partition(|(index, _)| of(*index).is_some_and(|link| link.is("bridge") || link.is("vrf")));
    let defaults = || routes.iter().filter(|route| route.is_default() && route.kind == RouteKind::Unicast);
    let over = |route: &Route| route.ways().filter_map(|(_, oif)| oif).collect::<Vec<_>>();
    let mut uplinks: Vec<u32> = defaults().filter(|route| route.table == MAIN).flat_map(over).collect();
    for server in servers.iter().map(IpAddr::to_canonical).filter(|server| !server.is_loopback()) {
        match way_to(netlink, server)? {
            Some(route) if route.kind == RouteKind::Local => {
                uplinks.extend(addresses.iter().filter(|(_, address)| *address == server).map(|(index, _)| *index));
            }
            way => uplinks.extend(way.iter().flat_map(|route| route.ways()).filter_map(|(_, oif)| oif)),
        }
    }
    needed.extend(defaults().flat_map(over).map(|index| (index, Need::OtherUplink)));
    needed.extend(uplinks.into_iter().map(|index| (index, Need::Uplink)));
    add_below(&mut needed, links);
    let mut below = bridges.clone();
    add_below(&mut below, links);
    // What a VRF has an address for leads over one of its tunnels by a route alone, if at all.
    let is_tunnel_of_vrf = |link: &Link| is_tunnel(link) && link.master.and_then(of).is_some_and(|master| master.is("vrf"));
    for (index, need) in below.into_iter().filter(|(index, _)| !bridges.contains_key(index) && !of(*index).is_some_and(is_tunnel_of_vrf)) {
        needed.entry(index).or_insert(need);
    }
    Ok(needed)
}

/// The links over which the host's routes lead to networks, by index, with one of these.
fn reached(routes: &[Route]) -> BTreeMap<u32, IpNet> {
    let leads = |route: &&Route| route.kind == RouteKind::Unicast && !route.is_default() && !is_of_every_link(route.dst);
    routes.iter().filter(leads).flat_map(|route| route.ways().filter_map(|(_, oif)| Some((oif?, route.dst)))).collect()
}

/// Whether an interface gave itself an address because nobody else gave it one (RFC 3927: always in 169.254.0.0/16 as a whole). What a
/// program is reached at stands alone, in a smaller network, or on a link without a wire.
fn is_zeroconf(link: &Link, address: &Address) -> bool {
    matches!(address.net, IpNet::V4(net) if net.addr().is_link_local() && net.prefix_len() == 16) && !link.is("dummy")
}

/// Kinds of links that packets of others travel in.
const TUNNELS: &[&str] = &[
    "vxlan",
    "geneve",
    "wireguard",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "ipip",
    "sit",
    "ip6tnl",
    "vti",
    "vti6",
    "xfrm",
    "bareudp",
    "gtp",
    "macsec",
    "tun",
];

const A_TUNNEL: &str = "a tunnel";

const TO_A_POD: &str = "which leads to a pod";

/// To what a link belongs that may not be moved into a pod, in words: a bridge or switch of which it is a port, a tunnel, a pod to which
/// its other end or a route leads, another link that stands on it, such as a VLAN.
pub(super) fn belongs_to(link: &Link, links: &[Link], routes: &[Route]) -> Option<String> {
    if let Some(port) = port_of(link, links, |_| true) {
        return Some(port);
    }
    if is_tunnel(link) {
        return Some(A_TUNNEL.to_owned());
    }
    if link.is("ifb") {
        return Some("which shapes the traffic of another link".to_owned());
    }
    if leads_to_pod(link, routes) {
        return Some(TO_A_POD.to_owned());
    }
    let stands = |other: &&Link| parent_of(other, links).is_some_and(|parent| parent.index == link.index);
    links.iter().find(stands).map(|other| format!("on which {} of the node stands", other.name))
}

/// The link of the node that another one stands on. The two ends of a pair do not stand on each other.
pub(super) fn parent_of<'l>(link: &Link, links: &'l [Link]) -> Option<&'l Link> {
    let parent = link.parent.filter(|_| link.link_netnsid.is_none() && !is_end(link))?;
    links.iter().find(|other| other.index == parent)
}

/// Whether a link is a VLAN of a bridge, as an administrator makes one (`ip link add link br0 name br0.7 type vlan id 7`).
pub(super) fn is_vlan_of_bridge(link: &Link, links: &[Link]) -> bool {
    link.is("vlan") && parent_of(link, links).is_some_and(|parent| parent.is("bridge"))
}

/// Of what a link is a port, in words, if that is one of these.
fn port_of(link: &Link, links: &[Link], is_meant: impl Fn(&Link) -> bool) -> Option<String> {
    let master = link.master?;
    match links.iter().find(|other| other.index == master) {
        Some(other) => is_meant(other).then(|| format!("a port of {}", other.name)),
        None => Some("a port of another link".to_owned()),
    }
}

/// Why no pod's interface may stand on a link, in words: a pod there would send and receive as another pod does, past what encloses the
/// node's own packets, or in place of the bridge or bond that the link is a port of: a VLAN gets its packets before that one
/// (`vlan_do_receive` in net/8021q/vlan_core.c). A VRF gets packets by its links, and takes none from them. `need`: what the node needs the
/// link for; `in_container`: whether the node is a container, whose links are ends of pairs.
pub(super) fn is_no_parent(link: &Link, links: &[Link], routes: &[Route], need: Option<Need>, in_container: bool) -> Option<String> {
    if let Some(port) = port_of(link, links, |master| !master.is("vrf")) {
        return Some(port);
    }
    let leads = match need {
        Some(Need::Uplink) => return None,
        Some(Need::Address(_)) if link.is("veth") => is_known_to_lead_to_pod(link, routes),
        _ if in_container && link.is("veth") => is_known_to_lead_to_pod(link, routes),
        _ => leads_to_pod(link, routes),
    };
    if is_tunnel(link) { carries_the_nodes_own(link, routes, need) } else { leads.then(|| TO_A_POD.to_owned()) }
}

/// Whether the node is a container itself, whose uplink is one end of a pair with another namespace. A pod's pair is none, whatever route its
/// pod has advertised.
pub(super) fn is_container(links: &[Link], needed: &BTreeMap<u32, Need>) -> bool {
    let is_pair = |link: &Link| link.is("veth") && link.link_netnsid.is_some() && link.group == 0;
    links.iter().any(|link| is_pair(link) && needed.get(&link.index) == Some(&Need::Uplink))
}

/// What a tunnel carries of the node's own, in words. One that an administrator made for pods' interfaces has neither an address nor a
/// route. One that a program of the node keeps for the cluster's packets may have neither of them yet, or not at
/// all: it is told for each packet, or in each entry of its table, where packets go.
fn carries_the_nodes_own(tunnel: &Link, routes: &[Route], need: Option<Need>) -> Option<String> {
    if let Some(need) = need {
        return Some(format!("{A_TUNNEL} {need}"));
    }
    let leads_there = |route: &&Route| {
        route.kind == RouteKind::Unicast && route.ways().any(|(_, oif)| oif == Some(tunnel.index)) && !is_of_every_link(route.dst)
    };
    if let Some(route) = routes.iter().find(leads_there) {
        return Some(format!("{A_TUNNEL} over which the node reaches {}", route.dst));
    }
    let has_table = tunnel.vxlan.is_some_and(|vxlan| !vxlan.learning && vxlan.remote.is_none());
    if tunnel.external || has_table {
        return Some(format!("{A_TUNNEL} whose endpoints a program of the node sets"));
    }
    // No macvlan, ipvlan or vlan stands on what has no hardware address.
    tunnel.mac.is_none().then(|| A_TUNNEL.to_owned())
}

/// Whether the kernel, or zeroconf, gives every link a route to these: they say nothing of what the link is for.
fn is_of_every_link(dst: IpNet) -> bool {
    match dst {
        IpNet::V4(net) => net.addr().is_multicast() || net.addr().is_link_local() && net.prefix_len() == 16,
        IpNet::V6(net) => net.addr().is_multicast() || net.addr().is_unicast_link_local(),
    }
}

fn is_tunnel(link: &Link) -> bool {
    TUNNELS.iter().any(|kind| link.is(kind))
}

/// Whether it is one end of a pair.
fn is_end(link: &Link) -> bool {
    ["veth", "netkit", "vxcan"].iter().any(|kind| link.is(kind))
}

/// Whether it is the host's end of a pod's pair.
pub(super) fn leads_to_pod(link: &Link, routes: &[Route]) -> bool {
    link.is("netkit") || link.is("veth") && (link.link_netnsid.is_some() || is_known_to_lead_to_pod(link, routes))
}

/// Whether more than its other end's namespace says so: the group that our own have, or a route to a single address.
fn is_known_to_lead_to_pod(link: &Link, routes: &[Route]) -> bool {
    link.group != 0 || lead_to_one(routes).any(|oif| oif == link.index)
}

/// The links over which routes lead to a single address that is behind them.
fn lead_to_one(routes: &[Route]) -> impl Iterator<Item = u32> {
    let is_host = |route: &&Route| route.dst.prefix_len() == route.dst.max_prefix_len() && route.kind == RouteKind::Unicast;
    routes.iter().filter(is_host).filter(|route| route.gateway.is_none()).filter_map(|route| route.oif)
}

/// The links whose networks are those of pods: bridges, the host's ends of pods' pairs, and the gateways in the VLANs of a bridge, which
/// are pairs with a port of it.
pub(super) fn of_pods(links: &[Link], routes: &[Route]) -> BTreeSet<u32> {
    let ports: BTreeSet<u32> = links.iter().filter(|link| link.master.is_some()).map(|link| link.index).collect();
    let is_port = |link: &Link| link.link_netnsid.is_none() && link.parent.is_some_and(|other| ports.contains(&other));
    let routed: BTreeSet<u32> = lead_to_one(routes).collect();
    let leads = |link: &Link| link.group != 0 || is_port(link) || routed.contains(&link.index);
    let of_pods = links.iter().filter(|link| link.is("bridge") || link.is("netkit") || link.is("veth") && leads(link));
    of_pods.map(|link| link.index).collect()
}

/// The way to an address. A route that says "unreachable", "blackhole" or the like is none.
pub(super) fn way_to(netlink: &mut Netlink, address: IpAddr) -> Result<Option<Route>, ReadError> {
    match netlink.route_to(address) {
        Err(e) if matches!(e.errno(), Errno::EINVAL | Errno::EACCES | Errno::EAGAIN | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT) => Ok(None),
        way => way,
    }
}

/// Not one of a link, as every link has with IPv6, and not of the machine alone.
pub(super) fn is_global(address: IpAddr) -> bool {
    let is_of_a_link = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_of_a_link && !address.is_loopback() && !address.is_unspecified()
}

/// Adds the links that these stand on. Ports that are veths lead to pods.
fn add_below(needed: &mut BTreeMap<u32, Need>, links: &[Link]) {
    loop {
        let parents = links.iter().filter_map(|link| {
            let parent = link.parent.filter(|_| link.link_netnsid.is_none())?;
            Some((parent, *needed.get(&link.index)?))
        });
        let ports = links.iter().filter(|link| !link.is("veth")).filter_map(|link| Some((link.index, *needed.get(&link.master?)?)));
        let more: Vec<(u32, Need)> = parents.chain(ports).filter(|(index, _)| !needed.contains_key(index)).collect();
        if more.is_empty() {
            return;
        }
        needed.extend(more);
    }
}

/// Whether that is the link's name, or one of its others.
pub(super) fn has_name(link: &Link, name: &str) -> bool {
    link.name == name || link.altnames.iter().any(|other| other == name)
}

/// What a definition may mean by a text, in any way that plugins read it: looked up once, and held against each link.
pub(super) struct Meaning<'a> {
    text: &'a str,
    mac: Option<Mac>,
    /// Where the device of that name, or by that path, is below `/sys`.
    place: Option<PathBuf>,
}

impl<'a> Meaning<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let place = if text.starts_with('/') { sysfs(Path::new(text)) } else { place_on_bus(text) };
        Meaning { text, mac: text.parse().ok(), place }
    }

    /// Whether this link is meant.
    pub(super) fn is(&self, link: &Link) -> bool {
        let is_mac = self.mac.as_ref().is_some_and(|mac| link.mac.iter().chain(&link.permanent_mac).any(|own| own == mac));
        if is_mac || has_name(link, self.text) {
            return true;
        }
        if self.text.starts_with('/') {
            let path = Path::new(self.text);
            // As `host-device` looks: for the directory `net` of a device.
            let has = path.join("net").join(&link.name).exists() || path.file_name().is_some_and(|name| name == link.name.as_str());
            return has || is_below(link, self.place.as_deref());
        }
        is_named(link, self.text) || is_below(link, self.place.as_deref())
    }
}

/// Whether a link is the interface of a device, by the device's place on its bus.
pub(super) fn is_of_device(link: &Link, device: &str) -> bool {
    is_named(link, device) || is_below(link, place_on_bus(device).as_deref())
}

fn is_named(link: &Link, device: &str) -> bool {
    link.device.as_ref().is_some_and(|own| own.name == device)
}

fn place_on_bus(device: &str) -> Option<PathBuf> {
    [Bus::Pci, Bus::Auxiliary].into_iter().find_map(|bus| sysfs(&bus.device(device)?))
}

/// Whether a link is the interface of a device at this place. A virtual function of a hypervisor stands between the interface and its place on the bus.
fn is_below(link: &Link, place: Option<&Path>) -> bool {
    place.is_some_and(|place| sysfs_device(link).is_some_and(|own| own.starts_with(place)))
}

/// A path below `/sys` without symbolic links.
fn sysfs(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// The directory of the device that a link is the interface of.
fn sysfs_device(link: &Link) -> Option<PathBuf> {
    sysfs(&Path::new("/sys/class/net").join(&link.name).join("device"))
}

#[cfg(test)]
mod tests {
    use linux::route::RouteFilter;
    use linux::{Inside, Netns};

    use super::*;

    const LINKS: &str = "
        for n in 0 1 2 3 4 5 6 7; do ip link add up$n type veth peer name end$n; ip link set up$n up; ip link set end$n up; done
        ip addr add 192.0.2.10/24 dev up0; ip route add default via 192.0.2.1 dev up0
        ip route add default via 192.0.3.1 dev up1 metric 500 onlink
        ip route add default metric 600 nexthop via 192.0.4.1 dev up2 onlink nexthop via 192.0.5.1 dev up3 onlink
        ip route add default dev up4 table 100
        ip addr add 198.51.100.5/24 dev up5
        ip route add 203.0.113.6 dev up6; ip addr add 169.254.1.1/32 dev up6
        ip addr add 169.254.25.10/32 dev up7
        ip link add auto0 type veth peer name endauto; ip addr add 169.254.7.9/16 dev auto0
        ip link add pods0 type bridge; ip link set pods0 up; ip addr add 10.244.0.1/24 dev pods0
        ip link add uplink0 type bridge; ip link set uplink0 up; ip -6 route add default dev uplink0 metric 2000
        ip tuntap add port0 mode tap; ip link set port0 master uplink0
        ip link add pod7 type veth peer name pod7end; ip link set pod7 master uplink0; ip addr add 127.0.0.2/8 dev pod7end
        ip link property add dev up1 altname enp1s0f1np1
        ip link set up1 address 52:54:00:12:34:56";

    fn sh(line: &str) {
        let done = std::process::Command::new("sh").args(["-ec", line]).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }

    /// In a namespace with these links.
    fn within<T: Send>(f: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let here = |inside: &Inside| {
            sh(LINKS);
            f(&mut Netlink::open(inside).unwrap())
        };
        Netns::unnamed().unwrap().enter(here).unwrap()
    }

    /// Of two uplinks the one with the better metric alone was protected, and of two next hops the first.
    #[test]
    fn all_links_that_lead_out_are_needed() {
        within(|netlink| {
            let (links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            let mut told = |api: Option<&str>| {
                let servers: Vec<IpAddr> = api.iter().map(|api| api.parse().unwrap()).collect();
                let needed = needed(netlink, &links, &addresses, &routes, &servers).unwrap();
                // Both ends of these are in one namespace: the other end counts as what a link stands on.
                let own = links.iter().filter(|link| !link.name.starts_with("end"));
                let told: Vec<String> = own.filter_map(|link| Some(format!("{}, {}", link.name, needed.get(&link.index)?))).collect();
                told.into_iter().map(|text| text.replace(", the node's uplink", "")).collect::<Vec<_>>()
            };
            let (up5, up7) = ("up5, which has the node's address 198.51.100.5", "up7, which has the node's address 169.254.25.10");
            let up4 = "up4, over which a default route of the node leads";
            assert_eq!(told(None), ["up0", "up1", "up2", "up3", up4, up5, up7, "uplink0", "port0"]);
            assert_eq!(told(Some("203.0.113.6")), ["up0", "up1", "up2", "up3", up4, up5, "up6", up7, "uplink0", "port0"]);
            assert_eq!(told(Some("198.51.100.5")), ["up0", "up1", "up2", "up3", up4, "up5", up7, "uplink0", "port0"]);
        });
    }

    /// An interface without a DHCP server was taken for that of the node's DNS server.
    #[test]
    fn an_address_that_an_interface_gave_itself_is_no_need() {
        within(|netlink| {
            let (mut links, mut addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let model = addresses.iter().find(|one| one.net.to_string() == "169.254.7.9/16").unwrap().clone();
            let auto = model.index;
            let mut is_needed =
                |links: &[Link], addresses: &[Address]| needed(netlink, links, addresses, &[], &[]).unwrap().contains_key(&auto);
            assert!(!is_needed(&links, &addresses));
            for net in ["169.254.7.9/32", "169.254.7.9/30"] {
                let mut other = model.clone();
                other.net = net.parse().unwrap();
                addresses.push(other);
                assert!(is_needed(&links, &addresses), "{net}");
                addresses.pop();
            }
            links.iter_mut().filter(|link| link.index == auto).for_each(|link| link.kind = Some("dummy".to_owned()));
            assert!(is_needed(&links, &addresses), "a link without a wire gives itself none");
        });
    }

    /// The NIC below a VLAN that is a port of a bridge with the node's address was moved into a pod.
    #[test]
    fn what_stands_below_a_bridge_with_an_address_is_needed() {
        within(|netlink| {
            let (mut links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            let bridge = links.iter().find(|link| link.name == "pods0").unwrap().clone();
            let model = links.iter().find(|link| link.name == "up6").unwrap().clone();
            for (name, kind, parent, master, index) in
                [("eth1", None, None, None, 1001), ("eth1.100", Some("vlan"), Some(1001), Some(bridge.index), 1002)]
            {
                let mut link = model.clone();
                (link.name, link.kind, link.index) = (name.to_owned(), kind.map(str::to_owned), index);
                (link.parent, link.master) = (parent, master);
                links.push(link);
            }
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            let address = Need::Address("10.244.0.1".parse().unwrap());
            assert_eq!([1001, 1002, bridge.index].map(|index| needed.get(&index).copied()), [Some(address), Some(address), None]);
        });
    }

    /// Of a node that is a container itself, the uplink is one end of a pair as well.
    #[test]
    fn no_interface_stands_on_the_end_of_a_pods_pair_or_on_a_tunnel() {
        within(|netlink| {
            let (mut links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            let model = links.iter().find(|link| link.name == "end1").unwrap().clone();
            links.iter_mut().filter(|link| ["up0", "up5"].contains(&link.name.as_str())).for_each(|link| link.link_netnsid = Some(3));
            for (name, kind, netnsid, group) in [
                ("cali2", "veth", Some(3), 0),
                ("veth2", "veth", None, 7),
                ("nk1", "netkit", None, 0),
                ("wg0", "wireguard", None, 0),
                ("bond0", "bond", None, 0),
                ("eth1.5", "vlan", None, 0),
            ] {
                let mut link = model.clone();
                (link.name, link.kind, link.index) = (name.to_owned(), Some(kind.to_owned()), 1000 + u32::try_from(links.len()).unwrap());
                (link.link_netnsid, link.group) = (netnsid, group);
                link.mac = link.mac.filter(|_| kind != "wireguard");
                links.push(link);
            }
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            let told = links.iter().filter(|link| is_no_parent(link, &links, &routes, needed.get(&link.index).copied(), false).is_some());
            let told: Vec<&str> = told.map(|link| link.name.as_str()).collect();
            assert_eq!(told, ["up6", "port0", "pod7", "cali2", "veth2", "nk1", "wg0"]);
        });
    }

    /// A tunnel that an administrator made for pods was refused because of its kind.
    #[test]
    fn of_tunnels_those_carry_pods_that_carry_nothing_of_the_nodes() {
        within(|netlink| {
            sh("for n in 1 2 3 4 5 6 7; do ip link add vx$n type vxlan id $n dstport 4790; ip link set vx$n up; done
                ip addr add 10.3.0.1/24 dev vx2; ip -6 addr add fe80::7/64 dev vx1; ip addr add 169.254.7.7/16 dev vx1
                ip route add 10.4.0.0/16 dev vx3; ip route add 10.5.0.0/16 table 7 nexthop dev vx4 nexthop dev up0; ip link add switch0 type bridge; ip link set vx5 master switch0
                ip link add vx8 type vxlan id 8 dstport 4790 nolearning; ip link add vx9 type vxlan external dstport 4791
                ip link add vxa type vxlan id 10 dstport 4790 nolearning remote 192.0.2.77; ip link add vxb type vxlan id 11 dstport 4790 group 239.1.1.1 dev up0
                ip link add mac6 link vx6 type macvlan; ip addr add 10.6.0.1/24 dev mac6
                ip tuntap add tap1 mode tap; ip tuntap add tun1 mode tun; ip tuntap add tap2 mode tap; ip addr add 10.7.0.1/24 dev tap2");
            let (mut links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            let model = links.iter().find(|link| link.name == "vx7").unwrap().clone();
            let external: Vec<&str> = links.iter().filter(|link| link.external).map(|link| link.name.as_str()).collect();
            assert_eq!(external, ["vx9"]);
            for (name, kind, external) in [
                ("gt1", "gretap", false),
                ("gt2", "gretap", true),
                ("gen1", "geneve", false),
                ("gen2", "geneve", true),
                ("sec1", "macsec", false),
            ] {
                let mut link = model.clone();
                (link.name, link.kind, link.vxlan, link.external) = (name.to_owned(), Some(kind.to_owned()), None, external);
                link.index = 2000 + u32::try_from(links.len()).unwrap();
                links.push(link);
            }
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            let why = |link: &Link| is_no_parent(link, &links, &routes, needed.get(&link.index).copied(), false);
            let tunnels = links.iter().filter(|link| is_tunnel(link) && link.name != "port0");
            let (refused, allowed): (Vec<_>, Vec<_>) =
                tunnels.map(|link| (link.name.as_str(), why(link))).partition(|(_, why)| why.is_some());
            let allowed: Vec<&str> = allowed.into_iter().map(|(name, _)| name).collect();
            assert_eq!(allowed, ["vx1", "vx7", "vxa", "vxb", "tap1", "gt1", "gen1", "sec1"]);
            let refused: Vec<String> = refused.into_iter().map(|(name, why)| format!("{name}: {}", why.unwrap())).collect();
            assert_eq!(
                refused,
                [
                    "vx2: a tunnel which has the node's address 10.3.0.1",
                    "vx3: a tunnel over which the node reaches 10.4.0.0/16",
                    "vx4: a tunnel over which the node reaches 10.5.0.0/16",
                    "vx5: a port of switch0",
                    "vx6: a tunnel which has the node's address 10.6.0.1",
                    "vx8: a tunnel whose endpoints a program of the node sets",
                    "vx9: a tunnel whose endpoints a program of the node sets",
                    "tun1: a tunnel",
                    "tap2: a tunnel which has the node's address 10.7.0.1",
                    "gt2: a tunnel whose endpoints a program of the node sets",
                    "gen2: a tunnel whose endpoints a program of the node sets",
                ]
            );
        });
    }

    /// A link that looks like `model`, with another name, kind and index, on another link or none, and a port of another one or none.
    fn like(model: &Link, name: &str, kind: Option<&str>, index: u32, parent: Option<u32>, master: Option<u32>) -> Link {
        let mut link = model.clone();
        (link.name, link.kind, link.index) = (name.to_owned(), kind.map(str::to_owned), index);
        (link.parent, link.master, link.link_netnsid, link.group) = (parent, master, None, 0);
        link
    }

    /// A VLAN on a port of a bridge or bond takes its packets before that one. A VRF's links are ports of it in name only.
    #[test]
    fn no_interface_stands_on_a_port() {
        within(|netlink| {
            let (mut links, routes) = (netlink.links().unwrap(), netlink.routes(RouteFilter::default()).unwrap());
            let model = links.iter().find(|link| link.name == "up1").unwrap().clone();
            for (name, kind, index, master) in [
                ("br1", Some("bridge"), 1001, None),
                ("eth1", None, 1002, Some(1001)),
                ("bond1", Some("bond"), 1003, None),
                ("eth2", None, 1004, Some(1003)),
                ("red", Some("vrf"), 1005, None),
                ("eth3", None, 1006, Some(1005)),
                ("vx3", Some("vxlan"), 1007, Some(1005)),
                ("vx4", Some("vxlan"), 1008, Some(1001)),
                ("eth4", None, 1009, Some(4711)),
            ] {
                links.push(like(&model, name, kind, index, None, master));
            }
            let why = |name: &str, need| is_no_parent(links.iter().find(|link| link.name == name).unwrap(), &links, &routes, need, false);
            for need in [None, Some(Need::Uplink), Some(Need::Address("192.0.2.10".parse().unwrap()))] {
                assert_eq!(why("eth1", need).as_deref(), Some("a port of br1"), "{need:?}");
                assert_eq!(why("eth2", need).as_deref(), Some("a port of bond1"), "{need:?}");
                assert_eq!(why("eth3", need), None, "{need:?}");
            }
            assert_eq!(
                (why("vx4", None).as_deref(), why("eth4", None).as_deref()),
                (Some("a port of br1"), Some("a port of another link"))
            );
            assert_eq!(why("vx3", None), None, "a tunnel of a VRF, without an address of the node");
            let mut addresses = netlink.addresses(None).unwrap();
            addresses.iter_mut().filter(|one| one.net.to_string() == "198.51.100.5/24").for_each(|one| one.index = 1005);
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            assert_eq!([1005, 1006, 1007].map(|index| needed.contains_key(&index)), [false, true, false], "an address of the VRF itself");
            assert_eq!((why("br1", None), why("bond1", Some(Need::Uplink))), (None, None));
        });
    }

    /// The NIC below a VLAN of the node that has no address was moved into a pod, and with it all pods' networks on that VLAN.
    #[test]
    fn what_another_link_stands_on_is_not_moved() {
        within(|netlink| {
            let (mut links, routes) = (netlink.links().unwrap(), netlink.routes(RouteFilter::default()).unwrap());
            let model = links.iter().find(|link| link.name == "up1").unwrap().clone();
            links.push(like(&model, "eth1", None, 1001, None, None));
            links.push(like(&model, "eth1.100", Some("vlan"), 1002, Some(1001), None));
            links.push(like(&model, "eth2", None, 1003, None, None));
            // What this one stands on is in another namespace, and has the same number there by chance.
            let mut away = like(&model, "mac0", Some("macvlan"), 1004, Some(1003), None);
            away.link_netnsid = Some(3);
            links.push(away);
            let why = |name: &str| belongs_to(links.iter().find(|link| link.name == name).unwrap(), &links, &routes);
            assert_eq!(why("eth1").as_deref(), Some("on which eth1.100 of the node stands"));
            assert_eq!((why("eth1.100"), why("eth2"), why("up1"), why("end1")), (None, None, None, None));
        });
    }

    /// A link without an address over which the node reaches a network was moved into a pod.
    #[test]
    fn links_of_routes_are_needed() {
        within(|netlink| {
            sh("for n in 1 2 3 4; do ip tuntap add far$n mode tap; ip link set far$n up; done
                ip route add 10.20.0.0/16 dev far1; ip route add 10.30.0.0/16 table 7 nexthop dev far2 nexthop via 10.20.0.1 dev far1 onlink
                ip route add 224.0.0.0/4 dev far3; ip route add 169.254.0.0/16 dev far3; ip route add blackhole 10.40.0.0/16
                ip link add switch0 type bridge; ip link set switch0 up; ip link set far4 master switch0; ip route add 10.50.0.0/16 dev switch0");
            let (links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            let own = links.iter().filter(|link| link.name.starts_with("far") || link.name == "switch0" || link.name == "up6");
            let told: Vec<String> = own.filter_map(|link| Some(format!("{}, {}", link.name, needed.get(&link.index)?))).collect();
            let expected = [
                "far1, over which the node reaches 10.20.0.0/16",
                "far2, over which the node reaches 10.30.0.0/16",
                "far4, over which the node reaches 10.50.0.0/16",
            ];
            assert_eq!(told, expected, "neither what every link has, nor the link of a pod's route, nor a bridge itself");
        });
    }

    /// A default route of another table over a pod's pair, or over a tunnel, let everybody's interfaces stand on all of them.
    #[test]
    fn a_default_route_of_another_table_makes_no_parent() {
        within(|netlink| {
            sh("ip link del uplink0; ip tuntap add nic0 mode tap; ip link set nic0 up
                for n in 0 1 2 3; do ip route del default dev up$n 2>/dev/null || ip route del default metric 600 2>/dev/null || true; done
                ip link add vx1 type vxlan id 1 dstport 4790; ip link set vx1 up; ip route add default dev vx1 table 51
                ip route add default via 192.0.9.1 dev nic0 onlink");
            let (mut links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
            let routes = netlink.routes(RouteFilter::default()).unwrap();
            // The one with the default route of table 100, and one without any, whose other ends are in pods.
            links.iter_mut().filter(|link| ["up4", "up7"].contains(&link.name.as_str())).for_each(|link| link.link_netnsid = Some(3));
            let needed = needed(netlink, &links, &addresses, &routes, &[]).unwrap();
            let in_container = is_container(&links, &needed);
            assert!(!in_container, "{needed:?}");
            let why = |name: &str| {
                let link = links.iter().find(|link| link.name == name).unwrap();
                is_no_parent(link, &links, &routes, needed.get(&link.index).copied(), in_container)
            };
            assert_eq!(why("up4").as_deref(), Some(TO_A_POD));
            assert_eq!(why("vx1").as_deref(), Some("a tunnel over which a default route of the node leads"));
            assert_eq!(why("nic0"), None);
            let uplink = links.iter().find(|link| link.name == "up4").unwrap().index;
            assert!(is_container(&links, &[(uplink, Need::Uplink)].into()) && !is_container(&links, &[(uplink, Need::OtherUplink)].into()));
            links.iter_mut().for_each(|link| link.group = 7);
            assert!(!is_container(&links, &[(uplink, Need::Uplink)].into()), "the pair of a pod");
        });
    }

    /// A device that the kubelet gave a pod is known by its place on its bus alone.
    #[test]
    fn whose_interface_a_link_is() {
        within(|netlink| {
            let links = netlink.links().unwrap();
            let mut link = links.iter().find(|link| link.name == "up1").unwrap().clone();
            assert!(!is_of_device(&link, "up1") && !is_of_device(&link, "52:54:00:12:34:56") && !is_of_device(&link, ""));
            link.device = Some(linux::link::BusDevice { bus: "pci".to_owned(), name: "0000:03:00.1".to_owned() });
            assert!(is_of_device(&link, "0000:03:00.1") && !is_of_device(&link, "0000:03:00.2"));
        });
    }

    /// `host-device` reads all three forms of a hardware address; the one with colons alone was compared.
    #[test]
    fn a_link_is_meant_in_every_spelling() {
        within(|netlink| {
            let links = netlink.links().unwrap();
            let meant = |device: &str| -> Vec<&str> {
                let meaning = Meaning::of(device);
                links.iter().filter(|link| meaning.is(link)).map(|link| link.name.as_str()).collect()
            };
            for device in ["up1", "enp1s0f1np1", "52:54:00:12:34:56", "52-54-00-12-34-56", "5254.0012.3456"] {
                assert_eq!(meant(device), ["up1"], "{device}");
            }
            for device in ["", "..", "up", "52:54:00:12:34:57", "0000:00:00.0", "/sys/devices/none"] {
                assert_eq!(meant(device), [""; 0], "{device}");
            }
        });
    }

    /// The host's end of a pair that another program made was moved into a pod, and what shapes a link's traffic was.
    #[test]
    fn what_leads_to_a_pod_or_shapes_its_traffic_is_not_moved() {
        within(|netlink| {
            let (mut links, routes) = (netlink.links().unwrap(), netlink.routes(RouteFilter::default()).unwrap());
            let model = links.iter().find(|link| link.name == "up1").unwrap().clone();
            for (name, kind, netnsid) in
                [("lxc2", "veth", Some(3)), ("nk1", "netkit", None), ("shape0", "ifb", None), ("xfrm0", "xfrm", None)]
            {
                let mut link = model.clone();
                (link.name, link.kind, link.link_netnsid, link.parent) = (name.to_owned(), Some(kind.to_owned()), netnsid, None);
                links.push(link);
            }
            let told = links.iter().filter(|link| belongs_to(link, &links, &routes).is_some());
            let told: Vec<&str> = told.map(|link| link.name.as_str()).collect();
            assert_eq!(told, ["up6", "port0", "pod7", "lxc2", "nk1", "shape0", "xfrm0"]);
        });
    }

    /// Their networks are not the node's own: of two pods of one network, the second would be refused.
    #[test]
    fn links_of_pods() {
        within(|netlink| {
            let (links, routes) = (netlink.links().unwrap(), netlink.routes(RouteFilter::default()).unwrap());
            let of_pods = of_pods(&links, &routes);
            let told: Vec<&str> = links.iter().filter(|link| of_pods.contains(&link.index)).map(|link| link.name.as_str()).collect();
            assert_eq!(told, ["up6", "pods0", "uplink0", "pod7end"]);
        });
    }

    /// A route that keeps packets from leaving is an answer, and no failure: where pods' addresses are routed so, they would all be refused.
    #[test]
    fn a_route_to_nowhere_is_no_way() {
        within(|netlink| {
            for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
                sh(&format!("ip route add {kind} 10.9.0.0/16; ip -6 route add {kind} 2001:db8:9::/48"));
                for address in ["10.9.0.1", "2001:db8:9::1"] {
                    let way = way_to(netlink, address.parse().unwrap()).unwrap();
                    assert!(way.is_none_or(|route| route.kind != RouteKind::Local), "{kind} {address}");
                }
                sh("ip route del 10.9.0.0/16; ip -6 route del 2001:db8:9::/48");
            }
            assert_eq!(way_to(netlink, "192.0.2.10".parse().unwrap()).unwrap().map(|route| route.kind), Some(RouteKind::Local));
        });
    }
}
