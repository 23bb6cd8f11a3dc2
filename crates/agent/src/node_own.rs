//! What is this node's own, as the kernel, the settings and the API server tell it. Each is looked up when a network could take it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use attach::{Given, NodeOwn};
use cni::{Mac, NetworkList};
use ipnet::IpNet;
use json::Value;
use linux::Family;
use linux::link::Link;
use linux::route::RouteKind;
use npwg::Protocol;
use plugin::Host;

use crate::Agent;

mod listeners;

/// The node, for one plan.
pub(crate) struct ThisNode<'a> {
    host: RefCell<&'a mut Host>,
    bridge: Option<String>,
    services: Vec<IpNet>,
    /// Where the API server is asked.
    api: Option<IpAddr>,
}

impl fmt::Debug for ThisNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThisNode").field("bridge", &self.bridge).field("services", &self.services).finish_non_exhaustive()
    }
}

impl Agent {
    /// This node, whose pods have that default network.
    pub(crate) fn this_node<'a>(&self, host: &'a mut Host, default: Option<&Given>) -> ThisNode<'a> {
        let followed = self.services.as_ref().map(cluster::ServiceRanges::all).unwrap_or_default();
        let followed = followed.iter().filter_map(|range| range.parse().ok());
        let services = self.settings.service_ranges.iter().copied().chain(followed).collect();
        ThisNode::new(host, default, services, self.cluster.server_ip())
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
    /// A node whose pods have that default network, in a cluster with these ranges of Services, whose API server has this address.
    pub(crate) fn new(host: &'a mut Host, default: Option<&Given>, services: Vec<IpNet>, api: Option<IpAddr>) -> Self {
        ThisNode { host: RefCell::new(host), bridge: default.and_then(|given| bridge(&given.list)), services, api }
    }

    /// The links of the default routes, and those on which they stand: ports of a bond or bridge, parents of a VLAN.
    fn uplinks(&self) -> Vec<Link> {
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
    let is_mac = device.parse().is_ok_and(|mac: Mac| link.mac.iter().chain(&link.permanent_mac).any(|own| *own == mac));
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
        if let Some(whose) = self.of_cluster(address) {
            return Some(whose);
        }
        let is_of_a_link = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified(),
        };
        if is_of_a_link {
            return None;
        }
        let mut host = self.host.borrow_mut();
        let route = host.netlink().ok()?.route_to(address).ok()??;
        (route.kind == RouteKind::Local).then(|| "which the node has itself".to_owned())
    }

    fn of_cluster(&self, address: IpAddr) -> Option<String> {
        if self.api == Some(address) {
            return Some("at which the API server is".to_owned());
        }
        let range = self.services.iter().find(|range| range.contains(&address))?;
        Some(format!("which is of the cluster's Services ({range})"))
    }

    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        listeners::who(port, protocol, ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_an_address_is() {
        let mut host = Host::here(plugin::Dirs::default());
        let node = ThisNode {
            host: RefCell::new(&mut host),
            bridge: None,
            services: vec!["10.96.0.0/12".parse().unwrap()],
            api: "192.0.2.99".parse().ok(),
        };
        assert_eq!(node.address("10.96.0.1".parse().unwrap()).as_deref(), Some("which is of the cluster's Services (10.96.0.0/12)"));
        assert_eq!(node.of_cluster("192.0.2.99".parse().unwrap()).as_deref(), Some("at which the API server is"));
        assert!(node.address("127.0.0.1".parse().unwrap()).is_some() && node.address("192.0.2.7".parse().unwrap()).is_none());
    }
}
