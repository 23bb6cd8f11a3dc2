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
use super::keys::{Keys, Pairs, all, kinds_of, together};
use super::ranges::{self, AddressRun};
use super::uses::{Use, Uses, is_inside};

/// What a plugin makes of pods' addresses on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostSide {
    /// A route to each address, and each gateway as an address.
    Addresses {
        /// From where all of its addresses are.
        source: Option<AddressSource>,
    },
    /// The gateway as an address of a bridge, with a route to its network.
    Network {
        /// The bridge, or the gateway's link in a VLAN of it, as `br0.7`.
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
    /// The pools of networks, as the key `network` says, as JSON: of another network than the default network's they give the same addresses.
    PoolsOf(Vec<String>),
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
    /// They are the gateway, which the host gets as an address.
    is_gateway: bool,
    /// The address that is held against the node's own by itself, and need not be told twice.
    told: Option<IpAddr>,
}

// === impl Uses ===

impl Uses {
    /// Notes what a plugin of these types makes on the host. `of_flannel`: its bridges have a gateway unless they say otherwise.
    pub(super) fn host_sides(&mut self, kinds: &[&str], raw: &Keys, place: &str, of_flannel: bool) {
        let sides = sides(kinds, raw, place, of_flannel);
        for range in ranges::of(raw, place) {
            self.ranges += usize::from(range.address.is_none());
            if !sides.iter().any(HostSide::is_routed) {
                self.routed.push(Routed { one: range.one.clone(), run: range.run, side: None, is_gateway: false, told: range.address });
            }
            for side in &sides {
                let (runs, gateways): (Vec<AddressRun>, Vec<IpAddr>) = match side {
                    HostSide::Addresses { .. } => (vec![range.run], range.gateways().collect()),
                    HostSide::Network { .. } => (range.networks().map(AddressRun::of).collect(), range.gateways().collect()),
                    HostSide::Pod { .. } => (vec![range.run], Vec::new()),
                    HostSide::Rules => (Vec::new(), Vec::new()),
                };
                let runs = runs.into_iter().map(|run| (run, false));
                let runs = runs.chain(gateways.into_iter().map(|gateway| (AddressRun::one(gateway), true)));
                let routed =
                    |(run, is_gateway)| Routed { one: range.one.clone(), run, side: Some(side.clone()), is_gateway, told: range.address };
                self.routed.extend(runs.map(routed));
            }
        }
        for side in sides {
            // Each address is held against each of them.
            if !self.sides.contains(&side) {
                self.sides.push(side);
            }
        }
    }
}

fn sides(kinds: &[&str], raw: &Keys, place: &str, of_flannel: bool) -> Vec<HostSide> {
    let is = |key: &str| all(raw, key).any(|(_, value)| *value == Value::Bool(true));
    let has_gateway = is("isGateway") || is("isDefaultGateway") || (of_flannel && all(raw, "isGateway").next().is_none());
    let mut sides = Vec::new();
    for kind in kinds {
        match *kind {
            "ptp" => sides.push(HostSide::Addresses { source: source(raw) }),
            "bridge" if has_gateway => sides.extend(gateways(raw).into_iter().map(|bridge| HostSide::Network { bridge })),
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

/// Each link that a configuration may mean for its gateway: a bridge, or a VLAN of it, where other traffic arrives than on the bridge itself.
fn gateways(raw: &Keys) -> Vec<String> {
    let is_vlan = |vlan: &&Value| matches!(vlan, Value::Number(id) if id.as_u64() != Some(0));
    let vlans: Vec<&Value> = all(raw, "vlan").map(|(_, vlan)| vlan).filter(is_vlan).collect();
    let bridges = bridges(raw);
    let of_vlans = vlans.iter().flat_map(|vlan| bridges.iter().map(|bridge| format!("{bridge}.{}", json::compact(vlan))));
    // Of several keys another one may be the last.
    let is_plain = vlans.len() < all(raw, "vlan").count().max(1);
    of_vlans.chain(bridges.iter().filter(|_| is_plain).cloned()).collect()
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
    let is_first = place.strip_suffix(".delegate").unwrap_or(place) == "plugins[0]";
    let unnamed = || if is_first { Parent::DefaultRoute } else { Parent::Told };
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
        ["pool"] if !texts("network").is_empty() => Some(AddressSource::PoolsOf(texts("network"))),
        ["pool"] => match &all(&ipam, "pool").map(|(_, value)| value.as_str()).collect::<Vec<_>>()[..] {
            [] => Some(AddressSource::Pool("default".to_owned())),
            [Some(name)] if !name.is_empty() => Some(AddressSource::Pool((*name).to_owned())),
            _ => None,
        },
        ["whereabouts"] if all(&ipam, "addresses").any(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty())) => None,
        ["whereabouts"] => {
            // The file of that path says what is not said here.
            let keys = [
                "range",
                "range_start",
                "range_end",
                "ipRanges",
                "exclude",
                "network_name",
                "enable_overlapping_ranges",
                "configuration_path",
            ];
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

// === impl Routed ===

impl Routed {
    /// As the configuration says it.
    pub(super) fn one(&self) -> &Use {
        &self.one
    }
}

// === impl HostSide ===

impl HostSide {
    /// What the host gets with an address of a pod and its gateway.
    pub(super) fn runs(&self, address: IpNet, gateway: Option<IpAddr>) -> Vec<AddressRun> {
        match self {
            HostSide::Addresses { .. } => [Some(address.addr()), gateway].into_iter().flatten().map(AddressRun::one).collect(),
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
            HostSide::Addresses { source } => own.traffic(run, None, source.as_ref()),
            side => own.traffic(run, side.bridge(), None),
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
        matches!(self, HostSide::Addresses { .. } | HostSide::Network { .. })
    }

    fn bridge(&self) -> Option<&str> {
        match self {
            HostSide::Addresses { .. } | HostSide::Rules | HostSide::Pod { .. } => None,
            HostSide::Network { bridge } => Some(bridge),
        }
    }
}

/// What the configuration alone tells.
pub(super) fn by_configuration(definition: &DefinitionRef, uses: &Uses, own: &dyn NodeOwn) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut last = None;
    let has_rules = uses.sides.contains(&HostSide::Rules);
    for Routed { one, run, side, is_gateway, told } in &uses.routed {
        // A gateway that the node has already takes nothing from it. Of one place the first is enough.
        if *is_gateway && own.has(run.first) || last == Some(one) || told.is_some_and(|address| own.address(address).is_some()) {
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
        let of_pod = || {
            let whose = own.of_pod(run.first).filter(|_| *is_gateway)?;
            Some(format!("definition {definition} gives the host the gateway {} for {one}, {whose}", run.first))
        };
        if let Some(what) = what.or_else(of_pod).or_else(ruled) {
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
    // It may have made a route of the host, which only the kernel tells of.
    let is_opaque = !is_on_disk && !uses.opaque.is_empty();
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
        let added = ip.gateway.filter(|gateway| sides.iter().any(HostSide::is_routed) && !own.has(*gateway));
        if let Some((gateway, whose)) = added.and_then(|gateway| Some((gateway, own.of_pod(gateway)?))) {
            all.push(format!("the host got the gateway {gateway}, {whose}"));
            continue;
        }
        let runs_of = |side: &HostSide| {
            let has_gateway = matches!(side, HostSide::Addresses { .. }) && ip.gateway.is_some_and(|gateway| own.has(gateway));
            side.runs(ip.address, ip.gateway.filter(|_| !has_gateway))
        };
        let runs = sides.iter().flat_map(|side| runs_of(side).into_iter().map(move |run| (side, run)));
        let pulled = runs.filter_map(|(side, run)| Some((side.done(run), side.taken(run, own)?))).next();
        if let Some((done, whose)) = pulled {
            all.push(format!("{done}, {whose}"));
            continue;
        }
        let run = AddressRun::one(ip.address.addr());
        let led = || Some(run).filter(|run| is_opaque && own.leads_to_pod(run.first)).and_then(|run| own.traffic(run, None, None));
        if let Some(whose) = led() {
            all.push(format!("the host got a route to {run}, {whose}"));
            continue;
        }
        let ruled = ruled_by(has_rules, run, own);
        all.extend(ruled.map(|whose| format!("the host would get rules by the address {}, {whose}", ip.address.addr())));
    }
    all
}

/// Whom rules by these addresses would concern: pods of the default network, or whose traffic the node sees. The kernel is asked for it
/// only where there are such rules.
fn ruled_by(has_rules: bool, run: AddressRun, own: &dyn NodeOwn) -> Option<String> {
    if has_rules { own.default_network(run, None).or_else(|| own.traffic(run, None, None)) } else { None }
}

/// Whether one of the plugins of a list makes rules by address, from the one with this number on.
fn has_rules(list: &NetworkList, first: usize, builtins: Builtins) -> bool {
    let mut rest = list.plugins.iter().enumerate().skip(first);
    rest.any(|(index, entry)| Uses::of_plugin(entry, index, builtins).sides.contains(&HostSide::Rules))
}

#[cfg(test)]
mod tests;
