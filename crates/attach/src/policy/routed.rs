//! What the host gets of pods' addresses: `ptp` gives it a route to each, and each gateway as an address; `bridge` with a gateway
//! gives it the gateway's whole network. The node's own traffic follows these routes. Masquerading, firewall and host ports are rules by
//! address: a pod that had the address of one of the default network, or of another machine, would change what holds for that one.
//! Without any route a pod takes an address of the default network from whoever has it, by whatever interface it got that: the kernel
//! answers on each of a pod's interfaces for all of its addresses (`arp_process` in net/ipv4/arp.c), and one of them is on that network.
//! An ipvlan takes packets to its address from what its parent receives (`ipvlan_handle_frame` in drivers/net/ipvlan/ipvlan_core.c).
//!
//! ```text
//!   configuration --ranges--> runs of addresses --NodeOwn::traffic--> refused before anything is made
//!   result of a plugin ----------------------------------------------> refused, and undone, before the next plugin runs
//! ```
//!
//! The configuration tells only what is decided before an address is chosen: the result is what counts.

use std::net::IpAddr;

use cni::{AddResult, NetworkList};
use ipnet::IpNet;
use json::Value;
use npwg::{DefinitionRef, Selection};
use plugin::Builtins;

use super::NodeOwn;
use super::ranges::{self, AddressRun};
use super::uses::{Keys, Pairs, Use, Uses, all, is_inside, kinds_of, together};

/// What a plugin makes of pods' addresses on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostSide {
    /// A route to each address, and each gateway as an address.
    Addresses,
    /// The gateway as an address of a bridge, with a route to its network.
    Network {
        /// Which bridge.
        bridge: String,
    },
    /// Rules that know a pod by its address: masquerading, firewall, host ports. Who has another pod's address changes that pod's.
    Rules,
    /// Nothing, but the pod answers for its addresses on the default network, and takes packets to them from this device.
    Pod {
        /// Whose packets an ipvlan looks through.
        parent: Option<Parent>,
        /// From where all of its addresses are.
        source: Option<AddressSource>,
    },
}

/// What an ipvlan stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parent {
    /// A device of the host.
    Named(String),
    /// That of the default route.
    DefaultRoute,
    /// A device that a plugin before it has told.
    Told,
}

/// From where pods get all of their addresses, if nobody else gets the same ones from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressSource {
    /// The pool of that name, which belongs to the cluster's owner.
    Pool(String),
    /// Ranges of whereabouts with its reservations: the values of each key that says which, as JSON.
    Whereabouts(Vec<Vec<String>>),
}

/// Addresses that a configuration hands out, or has the host reach.
#[derive(Debug, Clone)]
pub(crate) struct Routed {
    /// As the configuration says it.
    one: Use,
    run: AddressRun,
    /// `None`: pods get them, and the host no route.
    side: Option<HostSide>,
    /// The address that is held against the node's own by itself, and need not be told twice.
    told: Option<IpAddr>,
}

// === impl Uses ===

impl Uses {
    /// Notes what a plugin of these types makes on the host. `of_flannel`: its bridges have a gateway unless they say otherwise.
    pub(super) fn host_sides(&mut self, kinds: &[&str], raw: &Keys, place: &str, of_flannel: bool) {
        let sides = sides(kinds, raw, place, of_flannel);
        for range in ranges::of(raw, place) {
            if !sides.iter().any(HostSide::is_routed) {
                self.routed.push(Routed { one: range.one.clone(), run: range.run, side: None, told: range.address });
            }
            for side in &sides {
                let runs: Vec<AddressRun> = match side {
                    HostSide::Addresses => [range.run].into_iter().chain(range.gateways().map(AddressRun::one)).collect(),
                    HostSide::Network { .. } => range.networks().map(AddressRun::of).collect(),
                    HostSide::Pod { .. } => vec![range.run],
                    HostSide::Rules => Vec::new(),
                };
                let routed = |run| Routed { one: range.one.clone(), run, side: Some(side.clone()), told: range.address };
                self.routed.extend(runs.into_iter().map(routed));
            }
        }
        self.sides.extend(sides);
    }
}

fn sides(kinds: &[&str], raw: &Keys, place: &str, of_flannel: bool) -> Vec<HostSide> {
    let is = |key: &str| all(raw, key).any(|(_, value)| *value == Value::Bool(true));
    let has_gateway = is("isGateway") || is("isDefaultGateway") || (of_flannel && all(raw, "isGateway").next().is_none());
    let mut sides = Vec::new();
    for kind in kinds {
        match *kind {
            "ptp" => sides.push(HostSide::Addresses),
            "bridge" if has_gateway => sides.extend(bridges(raw).into_iter().map(|bridge| HostSide::Network { bridge })),
            _ => {}
        }
        let parents = match *kind {
            // One on an ipvlan of the pod stands on that one's own parent (`ipvlan_link_new`).
            "ipvlan" if is_inside(raw) => vec![Some(Parent::Told)],
            "ipvlan" => parents(raw, place).into_iter().map(Some).collect(),
            _ => vec![None],
        };
        // What gives addresses to another plugin's pods is told by that plugin.
        if !place.ends_with(".ipam") {
            sides.extend(parents.into_iter().map(|parent| HostSide::Pod { parent, source: source(raw) }));
        }
        if matches!(*kind, "firewall" | "portmap") || matches!(*kind, "bridge" | "ptp") && is("ipMasq") {
            sides.push(HostSide::Rules);
        }
    }
    sides
}

/// Each bridge that a configuration may mean.
fn bridges(raw: &Keys) -> Vec<String> {
    let name = |value: &Value| value.as_str().filter(|name| !name.is_empty()).unwrap_or("cni0").to_owned();
    let mut names: Vec<String> = all(raw, "bridge").map(|(_, value)| name(value)).collect();
    if names.is_empty() {
        names.push("cni0".to_owned());
    }
    names.dedup();
    names
}

/// Each device that an ipvlan may stand on. Behind another plugin one without a name stands on that one's only interface.
fn parents(raw: &Keys, place: &str) -> Vec<Parent> {
    let unnamed = || if place == "plugins[0]" { Parent::DefaultRoute } else { Parent::Told };
    let of = |name: &str| if name.is_empty() { unnamed() } else { Parent::Named(name.to_owned()) };
    let named: Vec<Parent> = all(raw, "master").map(|(_, value)| of(value.as_str().unwrap_or_default())).collect();
    if named.is_empty() { vec![unnamed()] } else { named }
}

/// From where a plugin has all of its addresses, if nobody else gets the same ones from there: a pool, which belongs to the cluster's owner;
/// or a range of whereabouts, with its reservations. `None` where it has them from elsewhere, or where that is decided later: `addresses` of
/// whereabouts come beside those of its ranges, and nobody reserves them.
fn source<'a>(raw: impl Pairs<'a>) -> Option<AddressSource> {
    let ipam = together(raw, "ipam");
    let texts = |key: &str| -> Vec<String> { all(&ipam, key).map(|(_, value)| json::compact(value)).collect() };
    match kinds_of(&ipam)[..] {
        ["pool"] if texts("network").is_empty() => match &all(&ipam, "pool").map(|(_, value)| value.as_str()).collect::<Vec<_>>()[..] {
            [] => Some(AddressSource::Pool("default".to_owned())),
            [Some(name)] if !name.is_empty() => Some(AddressSource::Pool((*name).to_owned())),
            _ => None,
        },
        ["whereabouts"] if all(&ipam, "addresses").any(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty())) => None,
        ["whereabouts"] => {
            let keys = ["range", "range_start", "range_end", "ipRanges", "exclude", "network_name", "enable_overlapping_ranges"];
            Some(AddressSource::Whereabouts(keys.iter().map(|key| texts(key)).collect()))
        }
        _ => None,
    }
}

/// From where the pods of a network have all of their addresses, where no other network's pods get the same.
pub fn source_of(list: &NetworkList) -> Option<AddressSource> {
    list.plugins.iter().find_map(|plugin| source(plugin.raw()))
}

/// What a network hands out to pods, with the networks in which it gives the host an address, as far as its configuration says.
pub fn handed_out(list: &NetworkList, builtins: Builtins) -> Vec<AddressRun> {
    Uses::of(list, builtins).routed.iter().map(|routed| routed.run).collect()
}

// === impl HostSide ===

impl HostSide {
    /// What the host gets with an address of a pod and its gateway.
    fn runs(&self, address: IpNet, gateway: Option<IpAddr>) -> Vec<AddressRun> {
        match self {
            HostSide::Addresses => [Some(address.addr()), gateway].into_iter().flatten().map(AddressRun::one).collect(),
            HostSide::Network { .. } => {
                let own = gateway.and_then(|gateway| IpNet::new(gateway, address.prefix_len()).ok());
                vec![AddressRun::of(own.unwrap_or(address))]
            }
            HostSide::Pod { .. } => vec![AddressRun::one(address.addr())],
            HostSide::Rules => Vec::new(),
        }
    }

    /// Whose addresses these would be taken from, in words.
    fn taken(&self, run: AddressRun, own: &dyn NodeOwn) -> Option<String> {
        match self {
            HostSide::Pod { parent, source } => {
                // Of a larger range each address is looked at when a pod gets it.
                let of_pods = |address| own.default_network(AddressRun::one(address), source.as_ref());
                let whose = of_pods(run.first).filter(|_| of_pods(run.last).is_some());
                let single = || parent.as_ref().filter(|_| run.first == run.last);
                whose.or_else(|| own.received(run.first, single()?, source.as_ref()))
            }
            side => own.traffic(run, side.bridge()),
        }
    }

    /// What happens to them, as `the host got a route to 10.0.0.1`.
    fn done(&self, run: AddressRun) -> String {
        match self {
            HostSide::Pod { .. } => format!("the pod got the address {run}"),
            _ => format!("the host got a route to {run}"),
        }
    }

    /// Whether the host's routes lead there.
    fn is_routed(&self) -> bool {
        matches!(self, HostSide::Addresses | HostSide::Network { .. })
    }

    fn bridge(&self) -> Option<&str> {
        match self {
            HostSide::Addresses | HostSide::Rules | HostSide::Pod { .. } => None,
            HostSide::Network { bridge } => Some(bridge),
        }
    }
}

/// What the configuration alone tells.
pub(super) fn by_configuration(definition: &DefinitionRef, uses: &Uses, own: &dyn NodeOwn) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut last = None;
    let has_rules = uses.sides.contains(&HostSide::Rules);
    for Routed { one, run, side, told } in &uses.routed {
        // Of one place the first is enough.
        if last == Some(one) || told.is_some_and(|address| own.address(address).is_some()) {
            continue;
        }
        let what = match side {
            Some(side) => side.taken(*run, own).map(|whose| match side {
                HostSide::Pod { .. } => format!("definition {definition} assigns the addresses {one}, {whose}"),
                _ => format!("definition {definition} gives the host a route to {run} for {one}, {whose}"),
            }),
            None => within(*run, own).map(|whose| format!("definition {definition} assigns the addresses {one}, {whose}")),
        };
        let ruled = || {
            let whose = ruled_by(has_rules, *run, own)?;
            Some(format!("definition {definition} has rules of the host by the addresses {one}, {whose}"))
        };
        if let Some(what) = what.or_else(ruled) {
            all.push(what);
            last = Some(one);
        }
    }
    all
}

/// Whose addresses all of a run are. Where only some are, each is looked at when a pod gets it.
fn within(run: AddressRun, own: &dyn NodeOwn) -> Option<String> {
    let whose = own.of_cluster(run.first)?;
    (own.of_cluster(run.last)? == whose).then_some(whose)
}

/// Addresses that a pod asks for, of a network that gives the host routes to them.
pub(super) fn by_selection(selection: &Selection, uses: &Uses, own: &dyn NodeOwn) -> Vec<String> {
    let mut all = Vec::new();
    for ip in selection.ips.iter().filter(|ip| own.address(ip.address).is_none()) {
        let most = if ip.address.is_ipv4() { 32 } else { 128 };
        let Ok(net) = IpNet::new(ip.address, ip.prefix.unwrap_or(most)) else { continue };
        let of_side = |side: &HostSide| side.runs(net, None).into_iter().find_map(|run| side.taken(run, own));
        let has_rules = uses.sides.contains(&HostSide::Rules);
        let ruled = || ruled_by(has_rules, AddressRun::one(ip.address), own);
        let whose = uses.sides.iter().find_map(of_side).or_else(ruled);
        all.extend(whose.map(|whose| format!("the pod asks for the address {}, {whose}", ip.text)));
    }
    all
}

/// What a plugin's result has of the node's own: addresses, gateways, and routes of the host. `plugin` is its number in the list;
/// `is_on_disk`: the configuration is a file of the node's, which may say where the host's routes lead.
pub fn taken_by_result(
    list: &NetworkList,
    plugin: usize,
    result: &AddResult,
    is_on_disk: bool,
    builtins: Builtins,
    own: &dyn NodeOwn,
) -> Vec<String> {
    let uses = list.plugins.get(plugin).map(|entry| Uses::of_plugin(entry, plugin, builtins)).unwrap_or_default();
    let sides = if is_on_disk { &[] } else { uses.sides.as_slice() };
    // What a plugin does with a gateway that is not known here, nobody can tell.
    let has_gateway = !is_on_disk && (sides.iter().any(HostSide::is_routed) || !uses.opaque.is_empty());
    // A plugin behind this one makes its rules by this one's result.
    let has_rules = !is_on_disk && (sides.contains(&HostSide::Rules) || has_rules(list, plugin + 1, builtins));
    let mut all = Vec::new();
    for ip in &result.ips {
        if let Some(whose) = own.address(ip.address.addr()) {
            all.push(format!("the pod got the address {}, {whose}", ip.address));
            continue;
        }
        let gateway = ip.gateway.filter(|_| has_gateway);
        if let Some((gateway, whose)) = gateway.and_then(|gateway| Some((gateway, own.of_cluster(gateway)?))) {
            all.push(format!("the pod got the gateway {gateway}, {whose}"));
            continue;
        }
        let runs = sides.iter().flat_map(|side| side.runs(ip.address, ip.gateway).into_iter().map(move |run| (side, run)));
        let pulled = runs.filter_map(|(side, run)| Some((side.done(run), side.taken(run, own)?))).next();
        if let Some((done, whose)) = pulled {
            all.push(format!("{done}, {whose}"));
            continue;
        }
        let ruled = ruled_by(has_rules, AddressRun::one(ip.address.addr()), own);
        all.extend(ruled.map(|whose| format!("the host would get rules by the address {}, {whose}", ip.address.addr())));
    }
    all
}

/// Whom rules by these addresses would concern: pods of the default network, or whose traffic the node sees. The kernel is asked for it
/// only where there are such rules.
fn ruled_by(has_rules: bool, run: AddressRun, own: &dyn NodeOwn) -> Option<String> {
    if has_rules { own.default_network(run, None).or_else(|| own.traffic(run, None)) } else { None }
}

/// Whether one of the plugins of a list makes rules by address, from the one with this number on.
fn has_rules(list: &NetworkList, first: usize, builtins: Builtins) -> bool {
    let mut rest = list.plugins.iter().enumerate().skip(first);
    rest.any(|(index, entry)| Uses::of_plugin(entry, index, builtins).sides.contains(&HostSide::Rules))
}

#[cfg(test)]
mod tests {
    use cni::{NetworkList, Version};
    use npwg::{DefinitionRef, Protocol};

    use super::*;
    use crate::{Case, Policy};

    fn is_of_pods(source: Option<&AddressSource>) -> bool {
        source.is_some_and(|source| *source == AddressSource::Pool("pods".to_owned()))
    }

    /// A node at 192.168.1.20/24 with Services of 10.96.0.0/12, whose default network is 10.244.0.0/24 on `cni0`.
    #[derive(Debug)]
    struct Node;

    impl NodeOwn for Node {
        fn moved(&self, _: &str) -> Option<String> {
            None
        }

        fn no_parent(&self, _: &str) -> Option<String> {
            None
        }

        fn uplink(&self, _: &str) -> Option<String> {
            None
        }

        fn default_route(&self) -> Option<String> {
            None
        }

        fn default_bridge(&self, _: &str) -> Option<String> {
            None
        }

        fn leases(&self, _: &std::path::Path) -> Option<String> {
            None
        }

        fn is_default_network(&self, _: &DefinitionRef) -> bool {
            false
        }

        fn address(&self, address: IpAddr) -> Option<String> {
            self.of_cluster(address)
        }

        fn of_cluster(&self, address: IpAddr) -> Option<String> {
            let services: IpNet = "10.96.0.0/12".parse().unwrap();
            services.contains(&address).then(|| "of Services".to_owned())
        }

        fn traffic(&self, run: AddressRun, bridge: Option<&str>) -> Option<String> {
            let own = [("10.96.0.0/12", "of Services"), ("192.168.1.0/24", "of eth0"), ("10.244.0.0/24", "of cni0")];
            let mut own = own.iter().filter(|(_, whose)| bridge != Some("cni0") || *whose != "of cni0");
            let (_, whose) = own.find(|(net, _)| run.overlaps(AddressRun::of(net.parse().unwrap())))?;
            Some((*whose).to_owned())
        }

        fn default_network(&self, run: AddressRun, source: Option<&AddressSource>) -> Option<String> {
            let is = !is_of_pods(source) && run.overlaps(AddressRun::of("10.244.0.0/24".parse().unwrap()));
            is.then(|| "of the default network".to_owned())
        }

        fn received(&self, address: IpAddr, parent: &Parent, source: Option<&AddressSource>) -> Option<String> {
            match parent {
                Parent::Named(name) if name == "cni0" && !is_of_pods(source) => self.traffic(AddressRun::one(address), None),
                Parent::Told => self.traffic(AddressRun::one(address), None),
                Parent::Named(_) | Parent::DefaultRoute => None,
            }
        }

        fn mac(&self, mac: &cni::Mac, _: &[&str]) -> Option<String> {
            (mac.to_string() == "02:00:00:00:00:01").then(|| "which eth0 of the node has".to_owned())
        }

        fn port(&self, _: u16, _: Protocol, _: Option<IpAddr>) -> Option<String> {
            None
        }
    }

    fn list(plugins: &str) -> NetworkList {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#);
        NetworkList::parse(text.as_bytes(), None).unwrap()
    }

    fn taken(plugins: &str, networks: &str) -> Vec<String> {
        let (definition, list) = (DefinitionRef::new("a", "n").unwrap(), list(plugins));
        let case = Case {
            pod_namespace: "a",
            definition: &definition,
            is_selected: true,
            uses: &Uses::of(&list, plugins::BUILTINS),
            device: None,
            granted: None,
            is_on_disk: false,
        };
        let selections = npwg::parse(networks, "a").unwrap();
        let mut taken = Policy::OPEN.taken(&case, &Node);
        taken.extend(selections.first().into_iter().flat_map(|selection| Policy::OPEN.taken_by_selection(&case, selection, &Node)));
        taken.into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn routes_of_the_host_that_a_configuration_would_make() {
        for (plugins, says) in [
            // The API server's real address, or a neighbour's.
            (r#"{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"192.168.1.10/32"}]}}"#, "a route to 192.168.1.10 for"),
            // A more specific route than the uplink's own.
            (
                r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"type":"static","addresses":[{"address":"192.168.1.77/25","gateway":"192.168.1.126"}]}}"#,
                "gives the host a route to 192.168.1.0/25 for \"192.168.1.77/25\" (plugins[0].ipam.addresses[0].address), of eth0",
            ),
            // Its gateway's network, whatever the address is.
            (
                r#"{"type":"bridge","bridge":"x","isDefaultGateway":true,"ipam":{"subnet":"10.1.0.0/24","gateway":"192.168.1.9"}}"#,
                "a route to 192.168.1.0/24",
            ),
            // A gateway that is computed.
            (
                r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.96.0.0/11","rangeStart":"10.112.0.5"}}"#,
                "to 10.96.0.0/11",
            ),
            (r#"{"type":"ptp","ipam":{"subnet":"10.96.0.0/11","rangeStart":"10.112.0.5"}}"#, "a route to 10.96.0.1 for"),
            (
                r#"{"type":"flannel","delegate":{"bridge":"x","runtimeConfig":{"ipRanges":[[{"subnet":"192.168.1.0/30"}]]}}}"#,
                "to 192.168.1.0/30",
            ),
            (
                r#"{"type":"ptp","ipam":{"subnet":"10.95.255.0/24"}},{"type":"ptp","ipam":{"range":"10.95.255.9-10.96.0.2/11"}}"#,
                "plugins[1]",
            ),
            (r#"{"type":"meta","delegates":[{"type":"ptp","ipam":{"subnet":"192.168.1.0/30"}}]}"#, "plugins[0].delegates[0].ipam.subnet"),
            // Other pods of the node.
            (r#"{"type":"ptp","ipam":{"addresses":[{"address":"10.244.0.7/32"}]}}"#, "of cni0"),
            (r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.244.0.0/25"}}"#, "of cni0"),
            // Without a route: the whole range is of Services.
            (
                r#"{"type":"macvlan","ipam":{"subnet":"10.97.0.0/24"}}"#,
                "assigns the addresses \"10.97.0.0/24\" (plugins[0].ipam.subnet), of Services",
            ),
            // Rules by the address of another pod.
            (
                r#"{"type":"bridge","ipMasq":true,"ipam":{"addresses":[{"address":"10.244.0.7/24"}]}}"#,
                "has rules of the host by the addresses \"10.244.0.7/24\" (plugins[0].ipam.addresses[0].address), of the default network",
            ),
            (r#"{"type":"bridge","isGateway":true,"ipMasq":true,"ipam":{"subnet":"10.244.0.0/24"}}"#, "rules of the host by"),
            (r#"{"type":"macvlan","ipam":{"subnet":"192.168.1.0/24"}},{"type":"firewall"}"#, "(plugins[0].ipam.subnet), of eth0"),
            // Other pods' addresses on their own segment.
            (
                r#"{"type":"bridge","bridge":"cni0","ipam":{"type":"static","addresses":[{"address":"10.244.0.2/24"}]}}"#,
                "assigns the addresses \"10.244.0.2/24\" (plugins[0].ipam.addresses[0].address), of the default network",
            ),
            (r#"{"type":"macvlan","master":"cni0","ipam":{"subnet":"10.244.0.0/25"}}"#, "of the default network"),
            (r#"{"type":"bridge","isGateway":true,"ipam":{"subnet":"10.244.0.0/24"}}"#, "of the default network"),
            (r#"{"type":"ipvlan","master":"cni0","args":{"cni":{"ips":["10.244.0.2/24"]}},"ipam":{"type":"pool"}}"#, "of the default"),
            // By any interface: the pod's own on the default network answers for it.
            (r#"{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/32"}]}}"#, "of the default network"),
            (r#"{"type":"tap","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/24"}]}}"#, "of the default network"),
            (r#"{"type":"theirs","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/24"}]}}"#, "of the default network"),
            (r#"{"type":"macvlan","ipam":{"subnet":"10.244.0.0/24"}}"#, "of the default network"),
            // Packets that an ipvlan's parent receives.
            (
                r#"{"type":"ipvlan","master":"cni0","ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#,
                "assigns the addresses \"192.168.1.9/32\"",
            ),
            (r#"{"type":"tuning"},{"type":"ipvlan","ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#, "plugins[1]"),
            (r#"{"type":"ipvlan","master":"net1","linkInContainer":true,"ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#, "of eth0"),
            (r#"{"type":"macvlan","ipam":{"subnet":"10.244.0.128/25"}},{"type":"firewall"}"#, "(plugins[0].ipam.subnet), of the default"),
        ] {
            let got = taken(plugins, "n");
            assert!(got.len() == 1 && got[0].contains(says), "{plugins}: {got:?}");
        }
        for fine in [
            r#"{"type":"macvlan","ipam":{"addresses":[{"address":"192.168.1.10/24"}]}}"#,
            r#"{"type":"macvlan","ipam":{"subnet":"10.0.0.0/8"}}"#,
            r#"{"type":"ipvlan","ipam":{"addresses":[{"address":"192.168.1.9/24"}]}}"#,
            r#"{"type":"ipvlan","master":"eth1","ipam":{"addresses":[{"address":"192.168.1.9/24"}]}}"#,
            r#"{"type":"macvlan","ipam":{"subnet":"172.30.1.0/24"}},{"type":"firewall"}"#,
            r#"{"type":"ipvlan","master":"cni0","args":{"cni":{"ips":["10.244.0.2/24"]}},"ipam":{"type":"pool","pool":"pods"}}"#,
            r#"{"type":"bridge","ipam":{"subnet":"10.9.0.0/24"}}"#,
            r#"{"type":"bridge","bridge":"x","isGateway":true,"ipMasq":true,"ipam":{"subnet":"10.9.0.0/16"}},{"type":"portmap"}"#,
            r#"{"type":"bridge","bridge":"x","ipam":{"subnet":"192.168.1.0/24"}}"#,
            r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.9.0.0/16"}}"#,
            r#"{"type":"ptp","ipam":{"subnet":"10.9.0.0/16"}}"#,
            r#"{"type":"flannel","delegate":{"bridge":"x","isGateway":false,"runtimeConfig":{"ipRanges":[[{"subnet":"192.168.1.0/30"}]]}}}"#,
        ] {
            assert_eq!(taken(fine, "n"), [""; 0], "{fine}");
        }
    }

    #[test]
    fn an_address_that_the_pod_asks_for() {
        let asks = r#"[{"name":"n","ips":["192.168.1.10/32"]}]"#;
        let got = taken(r#"{"type":"ptp","capabilities":{"ips":true},"ipam":{"type":"static"}}"#, asks);
        assert!(got.len() == 1 && got[0].starts_with("the pod asks for the address 192.168.1.10/32, of eth0"), "{got:?}");
        assert_eq!(taken(r#"{"type":"macvlan","capabilities":{"ips":true},"ipam":{"type":"static"}}"#, asks), [""; 0]);
        let asks = r#"[{"name":"n","ips":["10.244.0.7/24"]}]"#;
        let masquerading = r#"{"type":"bridge","bridge":"x","ipMasq":true,"capabilities":{"ips":true},"ipam":{"type":"static"}}"#;
        assert_eq!(taken(masquerading, asks).len(), 1);
        let on =
            |bridge: &str| format!(r#"{{"type":"bridge","bridge":"{bridge}","capabilities":{{"ips":true}},"ipam":{{"type":"static"}}}}"#);
        let named = taken(r#"{"type":"macvlan"}"#, r#"[{"name":"n","interface":"all"}]"#);
        assert!(named.len() == 1 && named[0].contains("calls an interface \"all\""), "{named:?}");
        let got = taken(&on("x"), asks);
        assert!(got.len() == 1 && got[0].starts_with("the pod asks for the address 10.244.0.7/24, of the default network"), "{got:?}");
    }

    #[test]
    fn what_a_result_has() {
        let got = |plugin: &str, is_on_disk: bool, ip: &str| {
            let text = format!(r#"{{"cniVersion":"1.0.0","ips":[{ip}]}}"#);
            let result = AddResult::parse(text.as_bytes(), "1.0.0".parse::<Version>().unwrap()).unwrap().0;
            taken_by_result(&list(plugin), 0, &result, is_on_disk, plugins::BUILTINS, &Node)
        };
        let gateway = r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"type":"dhcp"}}"#;
        let (macvlan, ptp) = (r#"{"type":"macvlan","ipam":{"type":"dhcp"}}"#, r#"{"type":"ptp","ipam":{"type":"pool"}}"#);
        let service = r#"{"address":"10.97.0.2/24"}"#;
        for plugin in [gateway, macvlan, ptp] {
            assert_eq!(got(plugin, false, service), ["the pod got the address 10.97.0.2/24, of Services"]);
            assert_eq!(got(plugin, true, service).len(), 1, "also of a file of the node's");
        }
        let way = r#"{"address":"10.112.0.5/11","gateway":"10.96.0.1"}"#;
        assert_eq!(got(gateway, false, way), ["the pod got the gateway 10.96.0.1, of Services"]);
        assert_eq!(got(r#"{"type":"theirs"}"#, false, way).len(), 1, "nobody knows what it does with it");
        let near = r#"{"address":"192.168.1.77/25","gateway":"192.168.1.126"}"#;
        assert_eq!(got(gateway, false, near), ["the host got a route to 192.168.1.0/25, of eth0"]);
        assert_eq!(got(ptp, false, near), ["the host got a route to 192.168.1.77, of eth0"]);
        assert_eq!(got(ptp, true, near), [""; 0]);
        assert_eq!((got(macvlan, false, near), got(macvlan, false, way)), (vec![], vec![]));
        let other_pods = r#"{"address":"10.244.0.7/24"}"#;
        let walled = r#"{"type":"macvlan","ipam":{"type":"dhcp"}},{"type":"firewall"}"#;
        assert_eq!(got(walled, false, other_pods), ["the pod got the address 10.244.0.7, of the default network"]);
        assert_eq!(got(walled, true, other_pods), [""; 0]);
        let on_cni0 = |ipam: &str| format!(r#"{{"type":"bridge","bridge":"cni0","ipam":{ipam}}}"#);
        let taken = ["the pod got the address 10.244.0.7, of the default network"];
        assert_eq!(got(macvlan, false, other_pods), taken);
        assert_eq!(got(r#"{"type":"theirs"}"#, false, other_pods), taken, "whatever made it");
        assert_eq!(got(&on_cni0(r#"{"type":"dhcp"}"#), false, other_pods), taken);
        assert_eq!(got(&on_cni0(r#"{"type":"pool"}"#), false, other_pods), taken);
        assert_eq!(got(&on_cni0(r#"{"type":"pool","pool":"pods"}"#), false, other_pods), [""; 0], "the default network's own lease");
        assert_eq!(got(&on_cni0(r#"{"type":"dhcp"}"#), true, other_pods), [""; 0]);
    }

    #[test]
    fn what_a_network_hands_out() {
        let runs = |plugins: &str| handed_out(&list(plugins), plugins::BUILTINS).iter().map(AddressRun::to_string).collect::<Vec<_>>();
        assert_eq!(runs(r#"{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]]}}"#)[0], "10.244.0.0/24");
        assert_eq!(
            source_of(&list(r#"{"type":"bridge","ipam":{"type":"pool","pool":"pods"}}"#)),
            Some(AddressSource::Pool("pods".to_owned()))
        );
        let of = |range: &str| source_of(&list(&format!(r#"{{"type":"bridge","ipam":{{"type":"whereabouts","range":"{range}"}}}}"#)));
        assert!(of("10.1.0.0/16").is_some() && of("10.1.0.0/16") == of("10.1.0.0/16") && of("10.1.0.0/16") != of("10.1.0.0/24"));
        // Addresses that come beside the ranges, or that are unique in another network.
        let with =
            |keys: &str| source_of(&list(&format!(r#"{{"type":"bridge","ipam":{{"type":"whereabouts","range":"10.1.0.0/16",{keys}}}}}"#)));
        assert_eq!(with(r#""addresses":[{"address":"10.1.0.7/16"}]"#), None);
        assert_eq!(with(r#""Addresses":{"address":"10.1.0.7/16"},"addresses":[]"#), None);
        assert_eq!(with(r#""addresses":[]"#), of("10.1.0.0/16"));
        assert!(with(r#""enable_overlapping_ranges":false"#).is_some_and(|source| Some(source) != of("10.1.0.0/16")));
        assert_eq!(source_of(&list(r#"{"type":"bridge","ipam":{"type":"pool","pool":"pods","network":"n"}}"#)), None);
        assert_eq!(source_of(&list(r#"{"type":"bridge","ipam":{"type":"host-local","pool":"pods"}}"#)), None);
    }
}
