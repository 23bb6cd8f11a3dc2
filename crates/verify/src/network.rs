//! How the namespaces of a snapshot are joined: by pairs, bridges, and the links that stand on others.
//!
//! ```text
//!   pod a: eth0 == vethA --(bridge netloom0)-- vethB == eth0 :pod b         one segment: who can send each other frames
//!   node a: eth0 - - - (what is between the nodes, not observed) - - - eth0 :node b
//! ```
//!
//! A lab's wires are observed. In a cluster nobody observes what is between the nodes: links that leave the snapshot and have addresses of one
//! network are then taken for on one wire, which passes every frame.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use cni::Mac;
use ipnet::IpNet;

use crate::site::SiteService;
use crate::snapshot::{End, Link, Namespace, Place, Snapshot};

/// A snapshot, joined.
pub(crate) struct Network<'a> {
    namespaces: HashMap<&'a Place, &'a Namespace>,
    snapshot: &'a Snapshot,
    /// What stands on a link: macvlans, ipvlans and vlans.
    uppers: HashMap<(&'a Place, u32), Vec<Device<'a>>>,
    /// Links that leave the snapshot, each with those of other nodes that are on the same wire.
    uplinks: HashMap<(&'a Place, u32), Vec<Device<'a>>>,
}

/// A link, and the namespace that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) link: &'a Link,
}

/// Every device that frames of one may reach, however its ports, entries and rules are set.
pub(crate) struct Segment<'a> {
    /// The start is the first.
    reached: Vec<Reached<'a>>,
    /// Frames of it leave the snapshot.
    pub(crate) leaves: bool,
}

struct Reached<'a> {
    device: Device<'a>,
    /// The VLAN that frames have there.
    tag: Option<u16>,
    /// By which of those reached before.
    by: Option<usize>,
}

// === impl Network ===

impl<'a> Network<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let namespaces = snapshot.namespaces.iter().map(|namespace| (&namespace.place, namespace)).collect();
        let mut uppers: HashMap<(&Place, u32), Vec<Device<'_>>> = HashMap::new();
        for namespace in &snapshot.namespaces {
            for link in namespace.links.iter().filter(|link| stands_on_another(link)) {
                if let Some(End { place, index }) = &link.other {
                    uppers.entry((place, *index)).or_default().push(Device { namespace, link });
                }
            }
        }
        let mut network = Network { namespaces, snapshot, uppers, uplinks: HashMap::new() };
        network.uplinks = network.joined();
        network
    }

    /// Which links that leave the snapshot are on one wire.
    fn joined(&self) -> HashMap<(&'a Place, u32), Vec<Device<'a>>> {
        let uplinks: Vec<(Device<'a>, Vec<IpNet>)> =
            self.devices().filter(|device| self.leaves(*device)).map(|device| (device, self.networks_on(device))).collect();
        let share = |one: &[IpNet], other: &[IpNet]| one.iter().any(|net| other.iter().any(|far| net.contains(far) || far.contains(net)));
        let beside = |(device, nets): &(Device<'a>, Vec<IpNet>)| {
            let others = uplinks.iter().filter(|(other, far)| other.namespace.place != device.namespace.place && share(nets, far));
            (device.key(), others.map(|(other, _)| *other).collect())
        };
        uplinks.iter().map(beside).collect()
    }

    /// Whether what is at the other end of a node's link is not in the snapshot.
    fn leaves(&self, device: Device<'a>) -> bool {
        let Device { namespace, link } = device;
        let is_host = matches!(namespace.place, Place::Node(_) | Place::Outside(_));
        let is_alone = self.other(device).is_none();
        // A node may be a container. The end of a pod's pair is a port of a bridge without an address of its own.
        let is_end = match link.kind.as_str() {
            "" => link.name != "lo",
            "bond" | "team" => true,
            "veth" | "macvlan" | "ipvlan" | "vlan" => is_alone && link.addresses.iter().any(|own| !is_link_local(own.net.addr())),
            _ => false,
        };
        let is_member = link.master.and_then(|master| namespace.link(master)).is_some_and(|master| master.is("bond") || master.is("team"));
        is_host && is_end && !is_member
    }

    /// The networks of which a link has addresses: its own, its bridge's, and those of what stands on it.
    fn networks_on(&self, device: Device<'a>) -> Vec<IpNet> {
        let bridge = device.link.master.and_then(|master| device.namespace.link(master));
        let uppers = self.uppers.get(&device.key()).into_iter().flatten().map(|upper| upper.link);
        let addresses = std::iter::once(device.link).chain(bridge).chain(uppers).flat_map(|link| &link.addresses);
        let nets = addresses.map(|own| own.net.trunc()).filter(|net| !is_link_local(net.addr()));
        nets.filter(|net| net.prefix_len() < net.max_prefix_len()).collect()
    }

    /// Why a namespace is not in the snapshot, though it is there.
    pub(crate) fn unobserved(&self, place: &Place) -> Option<&'a str> {
        let noted = self.snapshot.unobserved.iter().find(|unobserved| unobserved.place == *place);
        let outside = || matches!(place, Place::Outside(_)).then_some("it is outside of the cluster");
        noted.map(|unobserved| unobserved.why.as_str()).or_else(outside).filter(|_| self.namespace(place).is_none())
    }

    /// The link by which a host is reached from what is not observed: that with the address, or one with any of the family.
    pub(crate) fn uplink(&self, namespace: &'a Namespace, address: IpAddr) -> Option<Device<'a>> {
        let own =
            || namespace.links.iter().map(|link| Device { namespace, link }).filter(|device| self.uplinks.contains_key(&device.key()));
        let of_family = |device: &Device<'a>| self.networks_on(*device).iter().any(|net| net.addr().is_ipv4() == address.is_ipv4());
        own().find(|device| device.link.has(address)).or_else(|| own().find(of_family))
    }

    /// The address that a host outside has, as the site says.
    pub(crate) fn outside(&self, place: &Place, is_ipv4: bool) -> Option<IpAddr> {
        let hosts = self.snapshot.site.iter().flat_map(|site| &site.outside);
        hosts.filter(|host| host.place == *place).find_map(|host| host.source(is_ipv4))
    }

    /// Whether an address is that of a place, as the site says, or as a link has it; `None`: neither is known.
    pub(crate) fn has(&self, place: &Place, address: IpAddr) -> Option<bool> {
        let site = self.snapshot.site.as_ref();
        let mut of_site: Vec<IpAddr> = Vec::new();
        match place {
            Place::Pod(name) => {
                let pods = site.into_iter().flat_map(|site| &site.pods).filter(|pod| pod.name == *name);
                of_site.extend(pods.flat_map(|pod| &pod.attachments).flat_map(|attachment| &attachment.addresses));
            }
            Place::Node(name) => {
                let nodes = site.into_iter().flat_map(|site| &site.nodes).filter(|node| node.name == *name);
                of_site.extend(nodes.flat_map(|node| node.addresses.iter().chain(&node.sources)));
            }
            Place::Outside(_) | Place::Underlay => {}
        }
        let observed = self.namespace(place);
        if of_site.is_empty() && observed.is_none() {
            return None;
        }
        Some(of_site.contains(&address) || observed.is_some_and(|namespace| namespace.holder(address).is_some()))
    }

    /// Who answers for the Service at an address and a port, as the site says.
    pub(crate) fn backends(&self, address: IpAddr, port: u16) -> impl Iterator<Item = &'a Place> {
        let services = self.snapshot.site.iter().flat_map(|site| &site.services);
        let at = move |service: &&SiteService| {
            let is_own = service.cluster_ips.contains(&address) || service.balancer_ips.contains(&address);
            service.ports.iter().any(|own| if is_own { own.port == port } else { own.node_port == Some(port) })
        };
        services.filter(at).flat_map(|service| &service.backends)
    }

    /// The nodes that were observed.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'a Namespace> {
        self.snapshot.namespaces.iter().filter(|namespace| matches!(namespace.place, Place::Node(_)))
    }

    pub(crate) fn namespace(&self, place: &Place) -> Option<&'a Namespace> {
        self.namespaces.get(place).copied()
    }

    /// The node that packets for a place go by: its own, or the one that a pod is on.
    pub(crate) fn home(&self, place: &Place) -> Option<&'a Namespace> {
        let namespace = self.namespace(place)?;
        match &namespace.node {
            Some(node) => self.namespace(&Place::Node(node.clone())),
            None => Some(namespace),
        }
    }

    /// The devices that have an address, anywhere.
    pub(crate) fn holders(&self, address: IpAddr) -> impl Iterator<Item = Device<'a>> {
        self.devices().filter(move |device| device.link.has(address))
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = Device<'a>> {
        self.snapshot.namespaces.iter().flat_map(|namespace| namespace.links.iter().map(move |link| Device { namespace, link }))
    }

    /// The other end of a pair, or what a link stands on.
    pub(crate) fn other(&self, device: Device<'a>) -> Option<Device<'a>> {
        let End { place, index } = device.link.other.as_ref()?;
        let namespace = self.namespace(place)?;
        Some(Device { namespace, link: namespace.link(*index)? })
    }

    /// Who can be sent frames from a device.
    pub(crate) fn segment(&self, start: Device<'a>) -> Segment<'a> {
        let mut seen = HashSet::from([(start.key(), None)]);
        let mut reached = vec![Reached { device: start, tag: None, by: None }];
        let mut at = 0;
        while let Some(Reached { device, tag, .. }) = reached.get(at) {
            for (device, tag) in self.beside(*device, *tag, at == 0) {
                if seen.insert((device.key(), tag)) {
                    reached.push(Reached { device, tag, by: Some(at) });
                }
            }
            at += 1;
        }
        let leaves = reached.iter().any(|reached| self.uplinks.contains_key(&reached.device.key()));
        Segment { reached, leaves }
    }

    /// Where frames that are at a device get in one step.
    fn beside(&self, device: Device<'a>, tag: Option<u16>, is_start: bool) -> Vec<(Device<'a>, Option<u16>)> {
        let Device { namespace, link } = device;
        let mut next = Vec::new();
        if let Some(other) = self.other(device) {
            match (link.vlan, tag) {
                (Some(number), None) if link.is("vlan") => next.push((other, Some(number))),
                (Some(_), _) => {}
                (None, tag) => next.push((other, tag)),
            }
        }
        next.extend(self.uplinks.get(&device.key()).into_iter().flatten().map(|other| (*other, tag)));
        let ports = namespace.links.iter().filter(|port| link.is("bridge") && port.master == Some(link.index) && port.tunnel.is_none());
        // A bridge that filters VLANs gives frames a tag, or takes it from them.
        let given = link.native().filter(|_| tag.is_none() && link.filters_vlans);
        let tags: Vec<Option<u16>> = std::iter::once(tag).chain(given.map(Some)).collect();
        for port in ports {
            let taken = tags.iter().flatten().find(|tag| link.filters_vlans && port.native() == Some(**tag)).map(|_| None);
            next.extend(tags.iter().copied().chain(taken).map(|tag| (Device { namespace, link: port }, tag)));
        }
        if let Some(bridge) = link.master.and_then(|master| namespace.link(master)).filter(|master| master.is("bridge")) {
            let given = link.native().filter(|_| tag.is_none() && bridge.filters_vlans);
            next.extend(std::iter::once(tag).chain(given.map(Some)).map(|tag| (Device { namespace, link: bridge }, tag)));
        }
        let uppers = self.uppers.get(&device.key()).into_iter().flatten();
        // A link and the macvlans on it do not reach each other.
        next.extend(uppers.filter_map(|upper| match (upper.link.vlan, tag) {
            (Some(number), Some(tag)) if number == tag => Some((*upper, None)),
            (None, tag) if !is_start => Some((*upper, tag)),
            _ if is_start && upper.link.vlan.is_none() => None,
            _ => None,
        }));
        next
    }
}

/// Whether `other` is a link below, and not the other end of a pair.
fn stands_on_another(link: &Link) -> bool {
    matches!(link.kind.as_str(), "macvlan" | "macvtap" | "ipvlan" | "vlan")
}

// === impl Segment ===

impl<'a> Segment<'a> {
    /// The devices of others that have an address, each with the way there: from the start to it.
    pub(crate) fn holders(&self, address: IpAddr) -> Vec<Vec<Device<'a>>> {
        let holds = |reached: &&Reached<'a>| reached.by.is_some() && reached.tag.is_none() && reached.device.link.has(address);
        let ways = self.reached.iter().filter(holds).map(|reached| self.way(reached));
        ways.filter(|way| !ends_below(way)).collect()
    }

    /// The devices of others that have answered for an address of another link of theirs, with the way there: a host does so by its setting
    /// `arp_ignore`, and what the sender knows of its neighbour tells it.
    pub(crate) fn answered(&self, address: IpAddr, mac: &Mac) -> Vec<Vec<Device<'a>>> {
        let has = |reached: &&Reached<'a>| {
            let is_end = reached.by.is_some() && reached.tag.is_none() && !reached.device.is_port();
            is_end && reached.device.link.mac.as_ref() == Some(mac) && reached.device.namespace.holder(address).is_some()
        };
        let ways = self.reached.iter().filter(has).map(|reached| self.way(reached));
        ways.filter(|way| !ends_below(way)).collect()
    }

    /// The devices that it has, but for the start.
    pub(crate) fn others(&self) -> impl Iterator<Item = Device<'a>> {
        self.reached.iter().skip(1).map(|reached| reached.device)
    }

    fn way(&self, to: &Reached<'a>) -> Vec<Device<'a>> {
        let before = |reached: &&Reached<'a>| reached.by.and_then(|at| self.reached.get(at));
        let mut way: Vec<Device<'a>> = std::iter::successors(Some(to), before).map(|reached| reached.device).collect();
        way.reverse();
        way
    }
}

/// Whether a way leads from a macvlan to the link that it stands on, which does not take its frames.
fn ends_below(way: &[Device<'_>]) -> bool {
    match way {
        [.., upper, lower] => {
            let End { place, index } = match &upper.link.other {
                Some(end) if stands_on_another(upper.link) && upper.link.vlan.is_none() => end,
                _ => return false,
            };
            (place, *index) == lower.key()
        }
        _ => false,
    }
}

// === impl Device ===

impl<'a> Device<'a> {
    pub(crate) fn key(&self) -> (&'a Place, u32) {
        (&self.namespace.place, self.link.index)
    }

    pub(crate) fn is(&self, other: &Device<'_>) -> bool {
        self.key() == other.key()
    }

    /// Whether it is a port of a bridge.
    pub(crate) fn is_port(&self) -> bool {
        self.link.port.is_some() && self.link.master.is_some()
    }

    /// Whether nothing can come of what it receives: a pair's end without an address that is no port.
    pub(crate) fn leads_nowhere(&self) -> bool {
        let global = self.link.addresses.iter().any(|address| !is_link_local(address.net.addr()));
        self.link.is("veth") && self.link.master.is_none() && !global
    }
}

impl std::fmt::Display for Device<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.namespace.place, self.link.name)
    }
}

/// Whether an address is valid on its link only, so that each link may have it.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
