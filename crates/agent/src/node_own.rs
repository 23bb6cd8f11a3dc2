//! What is this node's own, as the kernel, the settings and the API server tell it. Each is looked up when a network could take it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use attach::{AddressRun, Given, NodeOwn};
use cni::NetworkList;
use ipnet::IpNet;
use json::Value;
use linux::Family;
use linux::link::Link;
use linux::route::RouteKind;
use npwg::Protocol;
use plugin::Host;

use crate::Agent;
use crate::node_traffic::is_metadata;

/// Ports that are a node's own whether or not somebody listens at this moment.
const WELL_KNOWN: &[(u16, &str)] = &[
    (22, "the port of SSH"),
    (2379, "the port of etcd"),
    (2380, "the port of etcd"),
    (6443, "the port of the API server"),
    (10250, "the port of the kubelet"),
    (10256, "the port of kube-proxy"),
    (10257, "the port of the controller manager"),
    (10259, "the port of the scheduler"),
];

/// The node, for one plan.
pub(crate) struct ThisNode<'a> {
    pub(crate) host: RefCell<&'a mut Host>,
    pub(crate) bridge: Option<String>,
    pub(crate) services: Vec<IpNet>,
    /// Where the API server is.
    pub(crate) servers: Vec<IpAddr>,
}

impl fmt::Debug for ThisNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThisNode").field("bridge", &self.bridge).field("services", &self.services).finish_non_exhaustive()
    }
}

impl Agent {
    /// This node, whose pods have that default network.
    pub(crate) fn this_node<'a>(&self, host: &'a mut Host, default: Option<&Given>) -> ThisNode<'a> {
        ThisNode::new(host, default, self.cluster_addresses.ranges(), self.cluster_addresses.servers())
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

impl<'a> ThisNode<'a> {
    /// A node whose pods have that default network, in a cluster with these ranges of Services, whose API servers have these addresses.
    pub(crate) fn new(host: &'a mut Host, default: Option<&Given>, services: Vec<IpNet>, servers: Vec<IpAddr>) -> Self {
        ThisNode { host: RefCell::new(host), bridge: default.and_then(|given| bridge(&given.list)), services, servers }
    }

    /// The links of the default routes, and those on which they stand: ports of a bond or bridge, parents of a VLAN.
    pub(crate) fn uplinks(&self) -> Vec<Link> {
        let mut host = self.host.borrow_mut();
        let Ok(netlink) = host.netlink() else { return Vec::new() };
        let defaults = [Family::V4, Family::V6].into_iter().filter_map(|family| netlink.default_route_link(family).ok().flatten());
        let mut of: BTreeSet<u32> = defaults.collect();
        if of.is_empty() {
            return Vec::new();
        }
        let links = netlink.links().unwrap_or_default();
        loop {
            let parents =
                links.iter().filter(|link| of.contains(&link.index)).filter_map(|link| link.parent.filter(|_| link.link_netnsid.is_none()));
            let ports = links
                .iter()
                .filter(|link| link.master.is_some_and(|master| of.contains(&master)) && !link.is("veth"))
                .map(|link| link.index);
            let more: Vec<u32> = parents.chain(ports).filter(|index| !of.contains(index)).collect();
            if more.is_empty() {
                break;
            }
            of.extend(more);
        }
        links.into_iter().filter(|link| of.contains(&link.index)).collect()
    }
}

/// Whether a definition means this link by that name.
fn is_meant(link: &Link, device: &str) -> bool {
    let is_mac = link.mac.iter().chain(&link.permanent_mac).any(|mac| mac.to_string().eq_ignore_ascii_case(device));
    if link.name == device || link.altnames.iter().any(|name| name == device) || is_mac {
        return true;
    }
    let sysfs = |path: &Path| std::fs::canonicalize(path).ok();
    let own = sysfs(&Path::new("/sys/class/net").join(&link.name).join("device"));
    if device.starts_with('/') {
        let path = Path::new(device);
        // As `host-device` looks: for the directory `net` of a device.
        let has = path.join("net").join(&link.name).exists() || path.file_name().is_some_and(|name| name == link.name.as_str());
        return has || own.is_some_and(|own| sysfs(path).is_some_and(|path| own.starts_with(path)));
    }
    // A virtual function of a hypervisor stands between the interface and its place on the bus.
    let on_bus = sysfs(&Path::new("/sys/bus/pci/devices").join(device));
    link.device.as_ref().is_some_and(|own| own.name == device) || own.zip(on_bus).is_some_and(|(own, bus)| own.starts_with(bus))
}

impl NodeOwn for ThisNode<'_> {
    fn uplink(&self, device: &str) -> Option<String> {
        self.uplinks().into_iter().find(|link| is_meant(link, device)).map(|link| link.name)
    }

    fn default_route(&self) -> Option<String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().ok()?;
        let mut of = |family| netlink.default_route_link(family).ok().flatten();
        let index = of(Family::V4).or_else(|| of(Family::V6))?;
        Some(netlink.link_by_index(index).ok()??.name)
    }

    fn is_default_bridge(&self, bridge: &str) -> bool {
        self.bridge.as_deref() == Some(bridge)
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
        let mut host = self.host.borrow_mut();
        let route = host.netlink().ok()?.route_to(address).ok()??;
        (route.kind == RouteKind::Local).then(|| "which the node has itself".to_owned())
    }

    fn of_cluster(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        if self.servers.iter().any(|server| server.to_canonical() == address) {
            return Some("at which the API server is".to_owned());
        }
        if is_metadata(address) {
            return Some("at which the cloud's metadata service is".to_owned());
        }
        let range = self.services.iter().find(|range| range.contains(&address))?;
        Some(format!("which is of the cluster's Services ({range})"))
    }

    fn traffic(&self, run: AddressRun, bridge: Option<&str>) -> Option<String> {
        self.taken_by_route(run, bridge)
    }

    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        if protocol == Protocol::Tcp
            && let Some((_, whose)) = WELL_KNOWN.iter().find(|(own, _)| *own == port)
        {
            return Some((*whose).to_owned());
        }
        let tables: &[&str] = match protocol {
            Protocol::Tcp => &["tcp", "tcp6"],
            Protocol::Udp => &["udp", "udp6"],
            Protocol::Sctp => &[],
        };
        let meets = |own: IpAddr| ip.is_none_or(|ip| own.is_unspecified() || own == ip);
        let is_listened_at = tables.iter().any(|table| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
            text.lines().filter_map(listener).any(|(own, at)| at == port && meets(own))
        });
        is_listened_at.then(|| "at which a program of the node listens".to_owned())
    }
}

/// A socket that listens, or of UDP one that is connected to nobody, in a line of `/proc/net/tcp` and its like (proc_net(5)).
fn listener(line: &str) -> Option<(IpAddr, u16)> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    let state = words.nth(1)?;
    // TCP_LISTEN and, of UDP, TCP_CLOSE (include/net/tcp_states.h).
    if !matches!(state, "0A" | "07") {
        return None;
    }
    // Words of 32 bits in the order of this machine's bytes.
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?);
            v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn who_listens_here() {
        let mut host = Host::here(plugin::Dirs::default());
        let node = ThisNode {
            host: RefCell::new(&mut host),
            bridge: None,
            services: vec!["10.96.0.0/12".parse().unwrap()],
            servers: vec!["192.0.2.99".parse().unwrap()],
        };
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        let (tcp, udp) = (tcp.local_addr().map(|a| (a.port(), tcp)).unwrap(), udp.local_addr().map(|a| (a.port(), udp)).unwrap());
        assert!(node.port(tcp.0, Protocol::Tcp, None).is_some());
        assert!(node.port(tcp.0, Protocol::Tcp, Some("127.0.0.1".parse().unwrap())).is_some());
        assert!(node.port(tcp.0, Protocol::Tcp, Some("192.0.2.1".parse().unwrap())).is_none());
        assert!(node.port(udp.0, Protocol::Udp, None).is_some());
        assert_eq!(node.port(10250, Protocol::Tcp, None).as_deref(), Some("the port of the kubelet"));
        assert_eq!(node.address("10.96.0.1".parse().unwrap()).as_deref(), Some("which is of the cluster's Services (10.96.0.0/12)"));
        assert_eq!(node.of_cluster("192.0.2.99".parse().unwrap()).as_deref(), Some("at which the API server is"));
        for (address, whose) in [("::ffff:10.96.0.1", "Services"), ("169.254.169.254", "metadata"), ("fd00:ec2::254", "metadata")] {
            assert!(node.of_cluster(address.parse().unwrap()).is_some_and(|told| told.contains(whose)), "{address}");
        }
        assert!(node.address("127.0.0.1".parse().unwrap()).is_some() && node.address("192.0.2.7".parse().unwrap()).is_none());
    }

    #[test]
    fn sockets_as_the_kernel_lists_them() {
        let line = "   0: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert_eq!(listener(line), Some((IpAddr::V4(Ipv4Addr::LOCALHOST), 0x277)));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&established), None);
        let six = "  1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1";
        assert_eq!(listener(six), Some((IpAddr::V6(Ipv6Addr::LOCALHOST), 8080)));
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }
}
