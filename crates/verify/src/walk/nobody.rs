//! Why nobody on a link has the address that is looked for there.
//!
//! ```text
//!   the way's other end is no port          the port of the bridge is missing
//!   IPv6 is off where the address was       IPv6 is disabled
//!   somebody has it, elsewhere --+-- with an address of the same network      one of the two is on the wrong wire
//!                                +-- and the route is an address's network    the prefix is too short
//!                                `-- and somebody has written the route       it has the wrong device, or lacks its next hop
//! ```

use std::net::IpAddr;

use ipnet::IpNet;

use super::frame::has_address;
use super::{NextHop, Walk};
use crate::fault::{Fault, Finding};
use crate::network::Device;
use crate::snapshot::{Link, Namespace, Place, Route};

impl<'a> Walk<'a> {
    /// Why nobody on the link has the next host's address.
    pub(super) fn nobody(&self, device: Device<'a>, way: &NextHop<'a>, next: IpAddr) -> Finding {
        let elsewhere: Vec<Device<'a>> = self.network.holders(next).collect();
        let ends = elsewhere.iter().copied().chain([device]).filter(|device| device.link.is("veth"));
        // A pair with both ends in one namespace was not made for a bridge.
        let ends = ends.filter_map(|device| self.network.other(device).filter(|end| end.namespace.place != device.namespace.place));
        let mut loose = ends.filter(|end| end.leads_nowhere() && !end.is_port() && end.namespace.place != *self.to);
        if let Some(loose) = loose.next() {
            return self.at(Fault::BridgePortMissing, loose, format!("it is a port of no bridge; {next} was to be reached by it"));
        }
        if device.link.is("veth") && self.network.other(device).is_none() {
            return self.at(Fault::NoCarrier, device, "the other end of the pair was not found".to_owned());
        }
        if let Some(disabled) = self.without_ipv6(device, way, next) {
            return disabled;
        }
        let apart = elsewhere.iter().copied().find_map(|holder| self.apart(device, holder, next));
        match (apart, way.gateway, elsewhere.first()) {
            (Some(apart), _, _) => apart,
            (None, None, Some(holder)) => self.looked_for(device, way, *holder, next),
            (None, Some(gateway), _) => {
                let evidence = format!("the route is {way}, and nobody on the network has {gateway}");
                self.at(Fault::GatewayMissing, device, evidence)
            }
            (None, None, None) => self.missing(next),
        }
    }

    /// The host that has the address has no IPv6 on its link, which takes the addresses away.
    fn without_ipv6(&self, device: Device<'a>, way: &NextHop<'a>, next: IpAddr) -> Option<Finding> {
        let home = self.network.home(&device.namespace.place).map(|home| &home.place);
        let suits = |place: &Place| if way.gateway.is_some() { Some(place) == home } else { place == self.to };
        let segment = self.network.segment(device);
        let mut others = segment.others().filter(|other| lacks_ipv6(other.link) && suits(&other.namespace.place));
        others.next().filter(|_| next.is_ipv6()).map(|other| self.disabled(other))
    }

    /// The link of a namespace by which an IPv6 destination, or the pod or node that it is for, was to be reached, if IPv6 is off there.
    pub(super) fn routes_without_ipv6(&self, namespace: &'a Namespace, to: IpAddr) -> Option<Finding> {
        let is_there = |device: &Device<'a>| {
            let holds = |other: Device<'a>| other.link.has(to) || other.namespace.place == *self.to;
            leads_out(*device) || self.network.segment(*device).others().any(holds)
        };
        let of = |namespace: &'a Namespace| {
            let mut links = namespace.links.iter().filter(|link| lacks_ipv6(link)).map(|link| Device { namespace, link });
            links.find(is_there)
        };
        // A pod without its own route to one of its networks sends to its node, which has none either.
        let mut passed = self.passed.iter().copied().chain([namespace]);
        passed.find_map(of).filter(|_| to.is_ipv6()).map(|device| self.disabled(device))
    }

    fn disabled(&self, device: Device<'a>) -> Finding {
        let name = &device.link.name;
        self.at(Fault::Ipv6Disabled, device, format!("net.ipv6.conf.{name}.disable_ipv6 is 1, so it has no address or route of IPv6"))
    }

    /// Two links with addresses of one network that are not on one wire.
    fn apart(&self, device: Device<'a>, holder: Device<'a>, next: IpAddr) -> Option<Finding> {
        let net = network_of(holder.link, next).filter(|net| net.prefix_len() < net.max_prefix_len())?;
        if device.is(&holder) || !device.link.addresses.iter().any(|own| own.net.trunc() == net) {
            return None;
        }
        let (here, there) = (self.attached(device), self.attached(holder));
        let evidence = format!("{device} {here} and {holder} {there} have addresses of {net}, and are not on one wire");
        // A pair's end on the wrong bridge of its node: the right one has an address of the network.
        let moved = |end: Device<'a>, other: Device<'a>| {
            let bridge = if other.link.is("bridge") { Some(other) } else { self.bridge_of(other) };
            let bridge = bridge.filter(|bridge| bridge.link.addresses.iter().any(|own| own.net.trunc() == net))?;
            let port = self.network.other(end).filter(|port| end.link.is("veth") && port.namespace.place == bridge.namespace.place)?;
            let is_moved = port.link.master.is_some_and(|master| master != bridge.link.index);
            is_moved.then_some((port, format!("ip link set {} master {}", port.link.name, bridge.link.name)))
        };
        match moved(device, holder).or_else(|| moved(holder, device)) {
            Some((port, next_step)) => Some(Finding { next_step, ..self.at(Fault::WrongNetwork, port, evidence) }),
            None => Some(self.at(Fault::WrongNetwork, device, evidence)),
        }
    }

    /// The bridge that the other end of a pair is a port of.
    fn bridge_of(&self, device: Device<'a>) -> Option<Device<'a>> {
        let port = self.network.other(device).filter(|_| device.link.is("veth"))?;
        Some(Device { link: port.namespace.link(port.link.master?)?, ..port })
    }

    /// What a link is attached to, in words.
    fn attached(&self, device: Device<'a>) -> String {
        let below = self.network.other(device).filter(|_| matches!(device.link.kind.as_str(), "macvlan" | "macvtap" | "ipvlan" | "vlan"));
        match below.or_else(|| self.bridge_of(device)) {
            Some(below) => format!("(on {below})"),
            None if device.link.kind.is_empty() => "(hardware)".to_owned(),
            None => format!("({})", device.link.kind),
        }
    }

    /// A route looks on the link for what is elsewhere.
    fn looked_for(&self, device: Device<'a>, way: &NextHop<'a>, holder: Device<'a>, next: IpAddr) -> Finding {
        let evidence = format!("the route {way} looks for {next} on the link, and {holder} has it, on another network");
        if device.link.addresses.iter().any(|own| own.net.trunc() == way.route.to) {
            return self.at(Fault::WrongPrefixLength, device, evidence);
        }
        self.without_next_hop(device, way, evidence)
    }

    /// Somebody has written a route with the wrong device, or without its next hop.
    pub(super) fn without_next_hop(&self, device: Device<'a>, way: &NextHop<'a>, evidence: String) -> Finding {
        let (to, table) = (way.route.to, way.route.table);
        let next_step = format!(
            "give the route its next hop or the right device, or delete it: ip route del {to} dev {} table {table}",
            device.link.name
        );
        Finding { next_step, ..self.at(Fault::WrongNextHop, device, evidence) }
    }

    /// The destination does not have its address.
    fn missing(&self, address: IpAddr) -> Finding {
        let namespace = self.network.namespace(self.to);
        let has = |link: &&Link| has_address(link) && link.name != "lo";
        let device =
            namespace.and_then(|namespace| namespace.links.iter().find(has).or(namespace.links.iter().find(|link| link.name != "lo")));
        let own: Vec<String> = device.iter().flat_map(|link| &link.addresses).map(|address| address.net.to_string()).collect();
        Finding {
            fault: Fault::AddressMissing,
            place: self.to.clone(),
            device: device.map(|link| link.name.clone()),
            direction: self.direction,
            evidence: format!("nobody has {address}; it has {}", if own.is_empty() { "no address".to_owned() } else { own.join(", ") }),
            next_step: Fault::AddressMissing.next_step(device.map(|link| link.name.as_str())),
        }
    }
}

/// Whether IPv6 is off on a link that is used otherwise.
fn lacks_ipv6(link: &Link) -> bool {
    link.ipv6_disabled && link.name != "lo" && has_address(link)
}

/// Whether a pod's default route of IPv4 leads by it, as that of IPv6 would.
fn leads_out(device: Device<'_>) -> bool {
    let is_default = |route: &Route| route.to.prefix_len() == 0 && route.to.addr().is_ipv4();
    let is_by_it = |route: &Route| route.ways.iter().any(|(_, link)| *link == Some(device.link.index));
    matches!(device.namespace.place, Place::Pod(_)) && device.namespace.routes.iter().any(|route| is_default(route) && is_by_it(route))
}

/// The network of an address that a link has.
fn network_of(link: &Link, address: IpAddr) -> Option<IpNet> {
    link.addresses.iter().find(|own| own.net.addr() == address).map(|own| own.net.trunc())
}
