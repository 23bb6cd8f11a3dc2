//! Whose packets an ipvlan takes from its parent: it has those to its own addresses, whoever sent them to the parent's hardware address
//! (`ipvlan_handle_frame` in drivers/net/ipvlan/ipvlan_core.c).
//!
//! ```text
//!   pod --to its gateway, which is the bridge--> br0 --+--> ipvlan: all to its address, be it of a server elsewhere
//!                                                      '--> the host, which sends on the rest
//! ```

use std::net::IpAddr;

use attach::{AddressRun, NodeOwn as _, Parent};
use linux::link::Link;
use linux::route::RouteKind;

use super::{ThisNode, links};

impl ThisNode<'_> {
    /// Whose packets to an address an ipvlan on this parent takes, in words.
    pub(super) fn taken_by_ipvlan(&self, address: IpAddr, parent: &Parent) -> Option<String> {
        let device = match parent {
            Parent::DefaultRoute => None,
            Parent::Told => return self.traffic(AddressRun::one(address), None, None),
            Parent::Named(device) => Some(device.as_str()),
        };
        let taken = || {
            let parent = self.parent(device)?;
            let is_on_bridge = match device.or(parent.map(|link| link.name.as_str())) {
                Some(device) => self.is_on_default_bridge(device)?,
                None => false,
            };
            // What all pods of the node send arrives there, or those of another network.
            let taken = if is_on_bridge || self.is_on_gateway(address, parent)? {
                self.traffic(AddressRun::one(address), None, None)
            } else {
                None
            };
            if is_on_bridge || taken.is_some() { Ok(taken) } else { self.is_behind_another(address, parent) }
        };
        taken().unwrap_or_else(|e: String| Some(format!("which may be another pod's ({e})")))
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

    /// The link behind which the host itself looks for an address, in words, if that is none of this one, and the way there is no default
    /// route: packets to it that arrive on this one are on their way there.
    fn is_behind_another(&self, address: IpAddr, parent: Option<&Link>) -> Result<Option<String>, String> {
        let routes = self.routes()?.iter().filter(|route| route.table == linux::route::MAIN && route.kind == RouteKind::Unicast);
        let best = routes.filter(|route| route.dst.contains(&address)).max_by_key(|route| route.dst.prefix_len());
        let Some(route) = best.filter(|route| route.dst.prefix_len() > 1 && route.gateway.is_none() && route.hops.is_empty()) else {
            return Ok(None);
        };
        let Some(link) = self.links()?.iter().find(|link| Some(link.index) == route.oif) else { return Ok(None) };
        // An interface of the host's own that stands on the same parent is how a host reaches such pods.
        let is_beside = parent.is_some_and(|parent| link.index == parent.index || link.parent == Some(parent.index) && !link.is("veth"));
        Ok((!is_beside).then(|| format!("which may be another pod's: the host reaches it over {}", link.name)))
    }

    /// Whether a link receives what pods send to their gateway: it is a bridge that has an address, or the gateway in one of its VLANs, or
    /// stands on one of these, and is no uplink. What is in its own networks, pods send to each other.
    fn is_on_gateway(&self, address: IpAddr, parent: Option<&Link>) -> Result<bool, String> {
        let (links, addresses, needed, of_pods) = (self.links()?, self.addresses()?, self.needed()?, self.of_pods()?);
        let below = |link: &&Link| links::parent_of(link, links);
        let stack: Vec<&Link> = std::iter::successors(parent, below).collect();
        let is_of_pods = |link: &&Link| of_pods.contains(&link.index) && !needed.get(&link.index).is_some_and(|need| need.is_uplink());
        let own = || addresses.iter().filter(|one| stack.iter().any(|link| link.index == one.index) && links::is_global(one.net.addr()));
        Ok(stack.iter().any(is_of_pods) && own().next().is_some() && !own().any(|one| one.net.contains(&address)))
    }
}
