//! What is the node's own, and nobody's who may only write a definition or an annotation: its uplinks, the bridge and the leases of its
//! default network, its addresses and those of Services, and the ports on which its programs listen.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::{Mac, NetworkList};
use json::Object;
use npwg::{DefinitionRef, Protocol, Selection};
use plugin::Builtins;

use super::ranges::AddressRun;
use super::routed::{self, AddressSource, Parent};
use super::uses::{DEFAULT_ROUTE, TAKERS, Use, Uses, address};
use super::{Case, Forbidden, Policy};

/// What becomes of a network that takes what is the node's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// It is attached.
    Off,
    /// It is attached, and the pod's owner is told.
    Warn,
    /// The pod fails.
    #[default]
    On,
}

/// What is known of the node. Each is asked for only where a network could take it, and answers in words, as `eth0, the node's uplink`.
/// What cannot be looked up counts as the node's own, and the words say so.
pub trait NodeOwn: fmt::Debug {
    /// The interface that the node needs for itself, if `device` is that one, or one that it stands on: its name, alternative name,
    /// hardware address, PCI address, or its directory below `/sys`.
    fn uplink(&self, device: &str) -> Option<String>;

    /// The interface that belongs to a switch, a tunnel or a pod of the node, if `device` is one: no pod is given it.
    fn moved(&self, device: &str) -> Option<String>;

    /// The interface, if `device` is the end of another pod's pair or a tunnel of the node: no pod's interface stands on it.
    fn no_parent(&self, device: &str) -> Option<String>;

    /// The interface of the node's default route.
    fn default_route(&self) -> Option<String>;

    /// The bridge of the node's default network, if `bridge` is a name of that one.
    fn default_bridge(&self, bridge: &str) -> Option<String>;

    /// Whose addresses are kept in a directory, if they are those of the node's default network.
    fn leases(&self, dir: &Path) -> Option<String>;

    /// Whether the node's default network is read from this definition, which is its owner's then.
    fn is_default_network(&self, definition: &DefinitionRef) -> bool;

    /// Whether a link of this name is one of a network that pods get without asking, also where it is not there yet: whoever makes it first,
    /// it stays.
    fn lasts(&self, link: &str) -> bool;

    /// Whose name it is, in words, if a link that would be made now has the name of one that a program of the node makes.
    fn reserved(&self, link: &str) -> Option<String>;

    /// The link by which pods on this bridge would configure the host, in words with the next step: the host accepts router advertisements there,
    /// which any pod with raw packets sends. A node has none unless it says so.
    fn configured_by_pods(&self, _bridge: &str) -> Option<String> {
        None
    }

    /// Whether the node has an address: it loses nothing if it gets the same on another link.
    fn has(&self, address: IpAddr) -> bool;

    /// Whether the host's own way to an address leads to a pod, whoever made the route.
    fn leads_to_pod(&self, address: IpAddr) -> bool;

    /// The bridge in words, if pods of other networks than this one have their gateway there.
    fn gateway_of_others(&self, _bridge: &str, _definition: &DefinitionRef) -> Option<String> {
        None
    }

    /// Which pod has an address, in words: what the host has itself leads there no more.
    fn of_pod(&self, address: IpAddr) -> Option<String>;

    /// The keys by which the ports of a bridge send with their own addresses only, where the node's default network has the bridge and them.
    fn guards(&self, bridge: &str) -> Vec<&'static str>;

    /// Whose an address is, if it is the node's or the cluster's, or that of the node's router or DNS server.
    fn address(&self, address: IpAddr) -> Option<String>;

    /// The same of the cluster's alone, those of Services and the API server's: a gateway of pods becomes an address of the node.
    fn of_cluster(&self, address: IpAddr) -> Option<String>;

    /// Whose traffic a route of the host to these addresses would take, in words: that of the cluster, of the uplink's networks, of other
    /// pods' and of the default network's, unless the route leads to that one's own `bridge`. `source`: as of [`NodeOwn::default_network`].
    fn traffic(&self, run: AddressRun, bridge: Option<&str>, source: Option<&AddressSource>) -> Option<String>;

    /// The default network, in words, if one of these addresses is in it: rules of the host by such an address hold for a pod of it, and a
    /// pod that has it answers there for it. `source`: from which the pod gets them, and no other address, as
    /// [`source_of`](crate::source_of) names it: the default network's own gives none twice.
    fn default_network(&self, run: AddressRun, source: Option<&AddressSource>) -> Option<String>;

    /// Whose packets to this address `parent` receives, in words: an ipvlan on it that has the address takes them.
    fn received(&self, address: IpAddr, parent: &Parent, source: Option<&AddressSource>) -> Option<String>;

    /// Whose a hardware address is on the node or on its default network, in words. `taken`: devices that the node gives up to the pod, whose
    /// own the address may be.
    fn mac(&self, mac: &Mac, taken: &[&str]) -> Option<String>;

    /// Who listens on a port of the host, in words. `ip`: on this address of the host only, or on all of its family.
    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String>;

    /// The same of the tunnels between nodes alone: they carry all pods' packets, so no pod publishes their ports, also where a policy allows it. A node has
    /// none unless it says so.
    fn tunnel(&self, _port: u16, _protocol: Protocol) -> Option<&'static str> {
        None
    }
}

// === impl Protection ===

impl Protection {
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Protection::Off),
            "warn" => Some(Protection::Warn),
            "on" => Some(Protection::On),
            _ => None,
        }
    }
}

// === impl Policy ===

impl Policy {
    /// How a definition's network is held against what is the node's own: by the strictest of the rules that concern it and say so.
    pub fn protection(&self, case: &Case) -> Protection {
        let rules = self.rules.iter().filter(|rule| rule.concerns(case));
        rules.filter_map(|rule| rule.protect).max().unwrap_or_default()
    }

    /// The same of what the pod's own selection asks for. A rule that trusts those who write definitions, and names no namespaces of
    /// pods, says nothing of who selects them.
    pub fn protection_of_selection(&self, case: &Case) -> Protection {
        let rules = self.rules.iter().filter(|rule| rule.concerns(case) && !rule.is_of_definitions_alone());
        rules.filter_map(|rule| rule.protect).max().unwrap_or_default()
    }

    /// How the pods of a namespace are kept to what is theirs on the default network, which no definition is of: by the rules for all
    /// definitions.
    pub fn protection_of_pods(&self, namespace: &str) -> Protection {
        let is_of_pods =
            |rule: &&super::Rule| rule.pod_namespaces.iter().any(|glob| glob.matches(namespace)) && rule.is_of_all_definitions();
        self.rules.iter().filter(is_of_pods).filter_map(|rule| rule.protect).max().unwrap_or_default()
    }

    /// What a network takes of the node's own, by its configuration.
    pub fn taken(&self, case: &Case, own: &dyn NodeOwn) -> Vec<Forbidden> {
        let named = case.named().filter(|_| case.uses.plugins.iter().any(|plugin| TAKERS.contains(&plugin.what.as_str())));
        let nothing = Uses::default();
        let uses = if is_owners(case, own) { &nothing } else { case.uses };
        let mut all = by_configuration(case.definition, uses, named.as_ref(), &case.taken(), own);
        all.extend(routed::by_configuration(case.definition, uses, own));
        if all.is_empty() {
            all.extend(cards(case, uses));
        }
        all.truncate(Self::MAX_FORBIDDEN);
        all.into_iter().map(|what| protected(case.definition, what)).collect()
    }

    /// What the pod's selection of a network takes of the node's own.
    pub fn taken_by_selection(&self, case: &Case, selection: &Selection, own: &dyn NodeOwn) -> Vec<Forbidden> {
        let mut all = routed::by_selection(selection, case.uses, own);
        all.extend(by_selection(selection, &case.taken(), own));
        // Elsewhere they are held against the node's own as a part of the configuration, and no less.
        if is_owners(case, own) || self.protection(case) < self.protection_of_selection(case) {
            let (definition, asked) = (case.definition, case.uses.asked_by(selection));
            let taken = by_configuration(definition, &asked, None, &case.taken(), own);
            let taken = taken.into_iter().chain(routed::by_configuration(definition, &asked, own));
            all.extend(taken.map(|what| format!("with the pod's cni-args, {what}")));
        }
        all.truncate(Self::MAX_FORBIDDEN);
        all.into_iter().map(|what| protected_from_pods(case.pod_namespace, what)).collect()
    }
}

/// Whether the network stands in the node's configuration, whose choices are its owner's. The device and the addresses that a pod names
/// are the pod's choice also then.
fn is_owners(case: &Case, own: &dyn NodeOwn) -> bool {
    case.is_on_disk || own.is_default_network(case.definition)
}

/// Network cards and functions of cards that a program may drive, and that the kubelet has not given the pod: without an interface, nothing
/// shows whose they are. A device that the configuration names is taken even if the kubelet gave another one, because the plugin is told of
/// that one only if it asks for it.
fn cards(case: &Case, uses: &Uses) -> Option<String> {
    let takes_card = |plugin: &&Use| ["sriov-vf", "dpdk-device"].contains(&plugin.what.as_str());
    let plugin = uses.plugins.iter().find(takes_card)?;
    if case.granted.is_some_and(|granted| case.taken().into_iter().all(|device| device == granted)) {
        return None;
    }
    let next = "let a device plugin give it to the pod (k8s.v1.cni.cncf.io/resourceName)";
    Some(format!("definition {} takes a card by {plugin}, which another program may drive: {next}", case.definition))
}

/// Where a network of this configuration keeps the addresses of its pods on the node.
pub fn lease_dirs(list: &NetworkList, builtins: Builtins) -> Vec<PathBuf> {
    Uses::of(list, builtins).leases.into_iter().map(|one| one.what.into()).collect()
}

/// What is the node's own, with the rule that would allow to take it.
pub fn protected(definition: &DefinitionRef, what: String) -> Forbidden {
    let mut rule = Object::new();
    rule.set("name", "own");
    rule.set("definitionNamespaces", vec![definition.namespace.clone()]);
    rule.set("protect", "off");
    Forbidden::Own { what, rule: json::compact(&rule) }
}

/// The same for what pods of a namespace ask for.
fn protected_from_pods(namespace: &str, what: String) -> Forbidden {
    let mut rule = Object::new();
    rule.set("name", "own");
    rule.set("podNamespaces", vec![namespace.to_owned()]);
    rule.set("protect", "off");
    Forbidden::Own { what, rule: json::compact(&rule) }
}

/// `named`: the device that the pod names, which a plugin takes; `taken`: all devices that plugins take.
fn by_configuration(definition: &DefinitionRef, uses: &Uses, named: Option<&Use>, taken: &[&str], own: &dyn NodeOwn) -> Vec<String> {
    let mut all = of_links(definition, uses, named, own);
    all.extend(of_addresses(definition, uses, taken, own));
    all.extend(for_the_whole_node(definition, uses));
    all.extend(of_ports(definition, uses, own));
    all
}

/// What it does with links of the node, and with names of links.
fn of_links(definition: &DefinitionRef, uses: &Uses, named: Option<&Use>, own: &dyn NodeOwn) -> Vec<String> {
    let link = |device: &str| match device {
        DEFAULT_ROUTE => own.default_route(),
        device => own.default_bridge(device).or_else(|| own.uplink(device)),
    };
    let mut all = Vec::new();
    for one in uses.taken.iter().chain(named) {
        let takes = |link| format!("definition {definition} takes {link}, away from the node ({})", one.place);
        all.extend(link(&one.what).or_else(|| own.moved(&one.what)).map(takes));
    }
    for one in uses.parents.iter().filter(|one| one.what != DEFAULT_ROUTE) {
        let stands = |link| format!("definition {definition} puts its pods' interfaces on {link} ({})", one.place);
        all.extend(own.no_parent(&one.what).map(stands));
    }
    for one in &uses.made {
        let made = |whose| format!("definition {definition} makes the link {one}, {whose}: choose another name");
        all.extend(own.reserved(&one.what).map(made));
    }
    for (_, one) in uses.ports() {
        let configured = |link| format!("definition {definition} lets its pods configure the host by {link} ({})", one.place);
        all.extend(own.configured_by_pods(&one.what).map(configured));
    }
    for (_, one) in uses.ports().filter(|(plugin, bridge)| plugin.is_none() && !own.guards(&bridge.what).is_empty()) {
        let link = own.default_bridge(&one.what).unwrap_or_else(|| one.what.clone());
        all.push(format!(
            "definition {definition} makes its pods' interfaces ports of {link} ({}) past the guard of its other ports: name the plugin \"bridge\" itself",
            one.place
        ));
    }
    for one in &uses.readdressed {
        let replaced = |link| format!("definition {definition} replaces the address of {link} ({}, forceAddress)", one.place);
        all.extend(link(&one.what).or_else(|| own.gateway_of_others(&one.what, definition)).map(replaced));
    }
    for one in &uses.gateways {
        let given = |link| format!("definition {definition} gives {link}, a gateway's address ({}, isGateway)", one.place);
        all.extend(link(&one.what).map(given));
    }
    for (one, (key, what)) in &uses.changed {
        let changed = |link| format!("definition {definition} changes {what} of {link} ({}, {key})", one.place);
        all.extend(link(&one.what).map(changed));
    }
    all
}

/// What it has of the node's and the cluster's addresses, and of what is kept by them.
fn of_addresses(definition: &DefinitionRef, uses: &Uses, taken: &[&str], own: &dyn NodeOwn) -> Vec<String> {
    let in_firewall = |one: &Use| format!("definition {definition} names {one} in the node's firewall");
    let mut all: Vec<String> = uses.firewall.iter().map(in_firewall).collect();
    for one in &uses.leases {
        let kept =
            |whose| format!(r#"definition {definition} stores its addresses in {one}, like {whose}; choose another "name" or "dataDir""#);
        all.extend(own.leases(Path::new(&one.what)).map(kept));
    }
    for one in &uses.addresses {
        let whose = address(&one.what).and_then(|address| own.address(address));
        all.extend(whose.map(|whose| format!("definition {definition} names the address {one}, {whose}")));
    }
    for one in &uses.ways {
        let whose = address(&one.what).and_then(|address| own.of_cluster(address));
        all.extend(whose.map(|whose| format!("definition {definition} names the gateway {one}, {whose}")));
    }
    for one in &uses.published {
        // Of an address that the node has, a Service may have single ports, which are looked at below.
        let whose = address(&one.what).filter(|address| !own.has(*address)).and_then(|address| own.of_cluster(address));
        all.extend(whose.map(|whose| format!("definition {definition} publishes ports at {one}, {whose}")));
    }
    for one in &uses.macs {
        let whose = one.what.parse().ok().and_then(|mac| own.mac(&mac, taken));
        all.extend(whose.map(|whose| format!("definition {definition} names the hardware address {one}, {whose}")));
    }
    all
}

/// What holds for more than its pods, whatever the node has.
fn for_the_whole_node(definition: &DefinitionRef, uses: &Uses) -> Vec<String> {
    let mut all = Vec::new();
    for one in uses.sysctls.iter().filter(|one| answers_elsewhere(&one.what)) {
        let why = if is_proxy(&one.what) {
            "by which the pod would answer for other addresses than its own"
        } else {
            "by which the pod would answer for other addresses on its other interfaces: set it for IFNAME"
        };
        all.push(format!("definition {definition} sets the sysctl {one}, {why}"));
    }
    for one in &uses.zones {
        all.push(format!("definition {definition} adds its pods to the node's firewalld zone {one}; remove the key"));
    }
    for (one, has_number) in &uses.looked_up {
        let next = if *has_number { "write the number" } else { "remove it, as numbers are looked up as well" };
        let why = "whose value iptables would look up while other programs wait for it";
        all.push(format!("definition {definition} has the condition {one}, {why}: {next}"));
    }
    for one in &uses.shared {
        all.push(format!(
            "definition {definition} has the condition {one}, which may count, remember or change something for the whole node"
        ));
    }
    for one in &uses.identities {
        all.push(format!("definition {definition} sends the DHCP option {one}, by which a server knows a machine: remove it"));
    }
    for one in &uses.port_ids {
        let next = "select a definition with the annotation openstack.org/kuryr-config instead";
        all.push(format!("definition {definition} plugs the port {one}, with whatever Neutron or OVN grants to that port: {next}"));
    }
    all
}

/// The ports of the node that it publishes.
fn of_ports(definition: &DefinitionRef, uses: &Uses, own: &dyn NodeOwn) -> Vec<String> {
    let mut all = Vec::new();
    for (one, ip) in uses.ports.iter().filter(|(_, ip)| ip.is_none_or(|ip| own.has(ip) || own.of_cluster(ip).is_none())) {
        let (port, protocol) = one.what.split_once('/').unwrap_or((&one.what, ""));
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|own| word(*own) == protocol).unwrap_or_default();
        let whose = port.parse().ok().and_then(|port| own.port(port, protocol, *ip));
        all.extend(whose.map(|whose| format!("definition {definition} publishes the node's port {one}, {whose}")));
    }
    all
}

fn by_selection(selection: &Selection, taken: &[&str], own: &dyn NodeOwn) -> Vec<String> {
    let ips = selection.ips.iter().filter_map(|ip| Some(format!("the pod asks for the address {}, {}", ip.text, own.address(ip.address)?)));
    let ports = selection.port_mappings.iter().filter_map(|mapping| {
        let whose = own.port(mapping.host_port, mapping.protocol, mapping.host_ip)?;
        Some(format!("the pod's annotation publishes the node's port {}/{}, {whose}", mapping.host_port, word(mapping.protocol)))
    });
    let mac = selection.mac.iter().filter_map(|mac| Some(format!("the pod asks for the hardware address {mac}, {}", own.mac(mac, taken)?)));
    // In sysctls these stand for every interface.
    let name = selection.interface.iter().filter(|name| ["all", "default"].contains(&name.as_str()));
    let name = name.map(|name| format!("the pod calls an interface {:?}, by which plugins would set sysctls of all", name.as_str()));
    ips.chain(ports).chain(mac).chain(name).collect()
}

/// Whether a sysctl lets a pod answer for addresses that it has not (`proxy_arp`, `proxy_arp_pvlan` and `proxy_ndp` in
/// Documentation/networking/ip-sysctl.rst): on the default network, where it has an interface, or on the attachment's own, which may stand on
/// a bridge or link of others. An interface may have the name of a setting, or of a directory, or a part of one: `IFNAME` is to stand where interfaces
/// do, alone (`net.ipv4.conf.IFNAME.arp_filter`).
fn answers_elsewhere(sysctl: &str) -> bool {
    let parts: Vec<&str> = sysctl.split(['.', '/']).filter(|part| !part.is_empty()).collect();
    let is_of_interface = |at: usize| at == 3 && parts.len() == 5 && parts.get(2).is_some_and(|before| ["conf", "neigh"].contains(before));
    let mut named = parts.iter().enumerate().filter(|(_, part)| part.contains("IFNAME"));
    if named.any(|(at, part)| *part != "IFNAME" || !is_of_interface(at)) {
        return true;
    }
    is_proxy(sysctl)
}

fn is_proxy(sysctl: &str) -> bool {
    let last = sysctl.rsplit(['.', '/']).find(|part| !part.is_empty());
    last.is_some_and(|last| ["proxy_arp", "proxy_arp_pvlan", "proxy_ndp"].contains(&last))
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}
