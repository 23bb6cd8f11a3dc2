//! What source routing is to be, from what is there: no call to the kernel.

use std::net::IpAddr;

use cni::CniError;
use ipnet::IpNet;
use linux::{Family, Route, RouteKind, Rule, route};

/// The first table that is taken where none is configured: the reference plugin's.
const FIRST_TABLE: u32 = 100;
/// `default`, `main` and `local` are everybody's.
const NOBODYS: std::ops::RangeInclusive<u32> = 253..=255;

/// The checked configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) table: Option<u32>,
    pub(super) gateways: Vec<IpAddr>,
    pub(super) source_hints: bool,
}

/// An address of the interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) address: IpNet,
    pub(super) gateway: Option<IpAddr>,
}

/// What is in the container's namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct ParsedPlan {
    /// Index of the interface.
    pub(super) index: u32,
    /// The interface's addresses to whose networks the kernel has made routes.
    pub(super) networks: Vec<IpNet>,
    /// The tables of VRFs.
    pub(super) vrfs: Vec<u32>,
    /// All rules.
    pub(super) rules: Vec<Rule>,
    /// All routes, of all tables.
    pub(super) routes: Vec<Route>,
}

/// What is to be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// Routes of tables of our own, in an order in which the kernel takes them.
    pub(super) routes: Vec<Route>,
    /// What leads there.
    pub(super) rules: Vec<Rule>,
    /// Routes that the main table loses, in an order in which it takes them back.
    pub(super) moved: Vec<Route>,
    /// What it keeps of those that lead over other interfaces as well.
    pub(super) left: Vec<Route>,
}

impl Wanted {
    fn gateway(&self, family: Family) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|g| Family::of(*g) == family)
    }
}

impl Source {
    fn family(&self) -> Family {
        Family::of(self.address.addr())
    }

    /// The next hop of its default route.
    fn gateway(&self, wanted: &Wanted) -> Option<IpAddr> {
        wanted.gateway(self.family()).or(self.gateway)
    }

    /// Whether a route of the interface is one that this address uses.
    fn uses(&self, route: &Route) -> bool {
        let within = |ip: Option<IpAddr>| ip.is_some_and(|ip| self.address.contains(&ip));
        route.family() == self.family() && (within(route.src) || within(route.gateway) || (route.src.is_none() && route.gateway.is_none()))
    }
}

impl ParsedPlan {
    /// The interface's routes in the main table, each with its own way alone.
    fn own(&self) -> Vec<Route> {
        self.main().filter_map(|route| route.over(self.index)).collect()
    }

    fn main(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|r| r.table == route::MAIN && r.kind == RouteKind::Unicast && self.is_over(r))
    }

    fn is_over(&self, route: &Route) -> bool {
        route.ways().any(|(_, oif)| oif == Some(self.index))
    }

    fn table_is_free(&self, table: u32) -> bool {
        let named = self.vrfs.contains(&table) || self.rules.iter().any(|r| r.table == table);
        !named && !NOBODYS.contains(&table) && !self.routes.iter().any(|r| r.table == table)
    }
}

/// The route without one of its interfaces.
fn without(route: &Route, index: u32) -> Option<Route> {
    let hops: Vec<_> = route.hops.iter().filter(|hop| hop.oif != index).copied().collect();
    match hops.as_slice() {
        [] => None,
        [one] => Some(Route { gateway: one.gateway, oif: Some(one.oif), onlink: one.onlink, hops: Vec::new(), ..route.clone() }),
        _ => Some(Route { hops, ..route.clone() }),
    }
}

/// A route of the main table that stays there with an address as its source: the way to that address's network, which has no next
/// hop. So whoever has no address yet reaches the network, and has this address then.
fn hinted_network(route: &Route, sources: &[Source], index: u32) -> Option<Route> {
    let own = Route { hops: Vec::new(), ..route.over(index)? };
    let source = sources.iter().find(|source| own.gateway.is_none() && own.dst == source.address.trunc())?;
    let src = own.src.or(Some(source.address.addr()));
    Some(Route { src, ..own })
}

/// A link-local destination belongs to its link whoever asks: a socket that is bound to the link, or the kernel that looks for
/// a neighbour, has no address that a rule could know.
fn is_link_local(route: &Route) -> bool {
    matches!(route.dst.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Where there is a table, it gets nothing but a default route that the configuration names.
pub(super) fn make(found: &ParsedPlan, sources: &[Source], wanted: &Wanted) -> Result<Plan, CniError> {
    let mut plan = Plan::default();
    if let Some(table) = wanted.table {
        for source in sources {
            let rule = Rule::from_address(source.address.addr(), table);
            if !found.rules.iter().chain(&plan.rules).any(|r| is_same(r, &rule)) {
                plan.rules.push(rule);
            }
            let default = wanted.gateway(source.family()).map(|gateway| default_route(source, gateway, found.index, table, wanted));
            let is_there = |new: &Route| found.routes.iter().chain(&plan.routes).any(|r| same_place(r, new));
            plan.routes.extend(default.filter(|new| !is_there(new)));
        }
        return Ok(plan);
    }
    let own = found.own();
    let mut free = (FIRST_TABLE..u32::MAX).filter(|table| found.table_is_free(*table));
    for source in sources {
        let table = free.next().ok_or_else(|| crate::internal("every routing table is in use: delete unused rules (see `ip rule`)"))?;
        plan.routes.extend(table_of(source, sources, &own, found.index, table, wanted));
        plan.rules.push(Rule::from_address(source.address.addr(), table));
    }
    plan.moved = found.main().filter(|r| !is_link_local(r)).cloned().collect();
    in_order(&mut plan.moved);
    plan.left = plan.moved.iter().filter_map(|r| without(r, found.index)).collect();
    let stays = |r: &Route| wanted.source_hints.then(|| hinted_network(r, sources, found.index)).flatten();
    plan.left.extend(plan.moved.iter().filter_map(stays));
    // What stays as it is need not go before.
    let Plan { moved, left, .. } = &mut plan;
    moved.retain(|r| !left.contains(r));
    left.retain(|r| !found.routes.contains(r));
    Ok(plan)
}

/// The routes of one address.
fn table_of(source: &Source, sources: &[Source], own: &[Route], index: u32, table: u32, wanted: &Wanted) -> Vec<Route> {
    // One that fits no address of its family must not be lost: all get it.
    let used = |r: &&Route| source.uses(r) || (r.family() == source.family() && !sources.iter().any(|s| s.uses(r)));
    let mut routes: Vec<Route> = own.iter().filter(used).map(|r| hinted(Route { table, ..r.clone() }, source, wanted)).collect();
    if let Some(gateway) = source.gateway(wanted) {
        let default = default_route(source, gateway, index, table, wanted);
        if wanted.gateway(source.family()).is_some() {
            routes.retain(|r| !same_place(r, &default));
        }
        if !routes.iter().any(|r| same_place(r, &default)) {
            routes.push(default);
        }
    }
    in_order(&mut routes);
    routes
}

/// A gateway is accepted where there is a way to it.
fn in_order(routes: &mut [Route]) {
    routes.sort_by_key(|r| r.ways().any(|(gateway, _)| gateway.is_some()));
}

fn default_route(source: &Source, gateway: IpAddr, index: u32, table: u32, wanted: &Wanted) -> Route {
    let default = Route { gateway: Some(gateway), oif: Some(index), table, ..Route::to(source.family().everything()) };
    hinted(default, source, wanted)
}

fn hinted(route: Route, source: &Source, wanted: &Wanted) -> Route {
    let hint = wanted.source_hints.then(|| source.address.addr());
    Route { src: route.src.or(hint), ..route }
}

/// Whether the kernel keeps but one of the two.
fn same_place(a: &Route, b: &Route) -> bool {
    let metric = |r: &Route| if r.priority == 0 && r.family() == Family::V6 { 1024 } else { r.priority };
    a.dst == b.dst && a.table == b.table && metric(a) == metric(b)
}

fn is_same(a: &Rule, b: &Rule) -> bool {
    a.table == b.table && a.only_from().is_some() && a.only_from() == b.only_from()
}

/// Whether this plugin, of whichever implementation, made a rule for one of these addresses.
pub(super) fn is_ours(rule: &Rule, addresses: &[IpAddr], table: Option<u32>) -> bool {
    let fits = match table {
        Some(table) => rule.table == table,
        None => rule.table >= FIRST_TABLE && !NOBODYS.contains(&rule.table),
    };
    fits && rule.only_from().is_some_and(|ip| addresses.contains(&ip))
}

/// CHECK: the first thing that is not as ADD made it.
pub(super) fn unchanged(found: &ParsedPlan, sources: &[Source], wanted: &Wanted) -> Result<(), String> {
    for source in sources {
        let address = source.address.addr();
        let ours = found.rules.iter().find(|r| is_ours(r, &[address], wanted.table));
        let lookup = wanted.table.map(|table| format!(" lookup {table}")).unwrap_or_default();
        let Some(rule) = ours else { return Err(format!("the rule \"from {address}{lookup}\" is gone")) };
        // ADD puts its rules before all others but the first.
        if let Some(other) = found.rules.iter().take_while(|r| *r != rule).find(|r| r.table != rule.table && diverts(r, address)) {
            return Err(format!("a rule of priority {} routes traffic of {address} elsewhere: see `ip rule show`", other.priority));
        }
        filled(found, source, wanted, rule.table)?;
    }
    if wanted.table.is_some() {
        return Ok(());
    }
    let stays = |r: &Route| wanted.source_hints && hinted_network(r, sources, found.index).is_some();
    if wanted.source_hints {
        let lost = |s: &&Source| {
            has_network(found, s)
                && !found.main().any(|r| r.dst == s.address.trunc() && r.over(found.index).is_some_and(|r| r.src.is_some()))
        };
        if let Some(lost) = sources.iter().find(lost) {
            return Err(format!("the main table has lost its route to {}, or that route's source", lost.address.trunc()));
        }
    }
    match found.main().find(|r| !is_link_local(r) && !stays(r)) {
        Some(back) => Err(format!("its route to {} is in the main table again", back.dst)),
        None => Ok(()),
    }
}

/// Whether the kernel has made a route to an address's network.
fn has_network(found: &ParsedPlan, source: &Source) -> bool {
    found.networks.contains(&source.address) && source.address.prefix_len() < source.address.max_prefix_len()
}

/// Whether a rule is for all that an address sends.
fn diverts(rule: &Rule, address: IpAddr) -> bool {
    let conditional = rule.has_more
        || rule.negated
        || rule.mark.is_some()
        || rule.suppress.is_some()
        || rule.to.is_some()
        || rule.iif.is_some()
        || rule.oif.is_some();
    !conditional && rule.from.is_some_and(|from| from.contains(&address))
}

/// The table of an address has its routes.
fn filled(found: &ParsedPlan, source: &Source, wanted: &Wanted, table: u32) -> Result<(), String> {
    let address = source.address.addr();
    let mut routes = found.routes.iter().filter(|r| r.table == table && r.family() == source.family() && found.is_over(r));
    let gateway = if wanted.table.is_some() { wanted.gateway(source.family()) } else { source.gateway(wanted) };
    if let Some(gateway) = gateway {
        let default = routes.clone().find(|r| r.is_default() && r.ways().any(|(via, _)| via == Some(gateway)));
        match default {
            None => return Err(format!("table {table} has lost its default route via {gateway}")),
            Some(r) if wanted.source_hints && r.src.is_none() => {
                return Err(format!("the default route of table {table} has lost its source {address}"));
            }
            Some(_) => {}
        }
    }
    if wanted.table.is_some() {
        return Ok(());
    }
    let network = source.address.trunc();
    if has_network(found, source) && !routes.clone().any(|r| r.dst == network) {
        return Err(format!("table {table} has lost its route to {network}"));
    }
    match routes.next() {
        None => Err(format!("table {table}, where {address} is routed, has lost its routes")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
