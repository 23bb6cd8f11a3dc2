//! Where a namespace routes a packet: rules in their order, then the longest prefix of a table, then the lowest metric.

use std::net::IpAddr;

use crate::snapshot::{LOCAL, Link, Namespace, Route, RouteKind, Rule};

/// Tables that are asked where there are no rules: local, main, default.
const TABLES: [u32; 3] = [LOCAL, MAIN, 253];
/// The table that routes are in if nothing else is said (`RT_TABLE_MAIN`).
pub(super) const MAIN: u32 = 254;

/// What a namespace does with a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Routed<'a> {
    /// It is for the namespace.
    Here,
    /// It is sent on.
    On(NextHop<'a>),
    /// A route refuses it.
    Refused(&'a Route),
    /// A rule refuses it.
    RefusedByRule(&'a Rule),
    /// There is no route.
    Nowhere,
}

/// A route, and the way of it that is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextHop<'a> {
    pub(super) route: &'a Route,
    pub(super) link: &'a Link,
    pub(super) gateway: Option<IpAddr>,
    /// The rule that led to the route's table; `None` if there are no rules.
    pub(super) rule: Option<&'a Rule>,
    /// How many ways the route has.
    pub(super) among: usize,
}

/// What is looked up. A source is not known yet before the first look-up of what a namespace itself sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) to: IpAddr,
    pub(super) from: Option<IpAddr>,
    /// The link that it came by; `None`: the namespace's own.
    pub(super) came_by: Option<&'a Link>,
    pub(super) mark: u32,
    /// Of several ways of a route, this one is taken: which one, a hash says that is not known here.
    pub(super) turn: usize,
}

/// The link that a namespace sends packets to an address by.
pub(crate) fn leaves_by(namespace: &Namespace, to: IpAddr) -> Option<&Link> {
    match route(namespace, Key { to, from: None, came_by: None, mark: 0, turn: 0 }) {
        Routed::On(way) => Some(way.link),
        _ => None,
    }
}

/// Looks a packet up.
pub(super) fn route<'a>(namespace: &'a Namespace, key: Key<'_>) -> Routed<'a> {
    let rules = namespace.rules.iter().filter(|rule| rule.is_ipv4 == key.to.is_ipv4());
    let mut any = false;
    for rule in rules {
        any = true;
        if !matches(rule, key) {
            continue;
        }
        let Some(table) = rule.table else { return Routed::RefusedByRule(rule) };
        match look_up(namespace, (table, rule.suppress), key) {
            Some(Routed::On(way)) => return Routed::On(NextHop { rule: Some(rule), ..way }),
            Some(routed) => return routed,
            None => {}
        }
    }
    let tables = TABLES.iter().filter(|_| !any);
    tables.filter_map(|table| look_up(namespace, (*table, None), key)).next().unwrap_or(Routed::Nowhere)
}

fn matches(rule: &Rule, key: Key<'_>) -> bool {
    let in_source = rule.from.is_none_or(|net| key.from.is_some_and(|from| net.contains(&from)));
    let by_link = match (rule.iif.as_deref(), key.came_by) {
        (None, _) => true,
        (Some(name), None) => name == "lo",
        (Some(name), Some(link)) => name == link.name,
    };
    let is_marked = rule.mark.is_none_or(|(mark, mask)| key.mark & mask == mark);
    let holds = rule.oif.is_none() && is_marked && in_source && rule.to.is_none_or(|net| net.contains(&key.to)) && by_link;
    !rule.is_odd() && holds != rule.negated
}

/// The tables of a family that some rule looks into, but for the table local.
pub(super) fn tables(namespace: &Namespace, is_ipv4: bool) -> Vec<u32> {
    let rules: Vec<&Rule> = namespace.rules.iter().filter(|rule| rule.is_ipv4 == is_ipv4).collect();
    let all = if rules.is_empty() { TABLES.to_vec() } else { rules.iter().filter_map(|rule| rule.table).collect() };
    all.into_iter().filter(|table| *table != LOCAL).collect()
}

/// The first rule that may be for the packet, and is passed over for what is not understood of it.
pub(super) fn passed_over<'a>(namespace: &'a Namespace, key: Key<'_>) -> Option<&'a Rule> {
    let mut rules = namespace.rules.iter().filter(|rule| rule.is_ipv4 == key.to.is_ipv4());
    rules.find(|rule| rule.is_odd() && matches(&Rule { has_more: false, ..(*rule).clone() }, key))
}

/// The answer of one table; `None`: the next rule is asked.
fn look_up<'a>(namespace: &'a Namespace, (table, suppress): (u32, Option<u32>), key: Key<'_>) -> Option<Routed<'a>> {
    let to = key.to;
    let is_from = |route: &&Route| route.from.is_none_or(|net| key.from.is_some_and(|from| net.contains(&from)));
    let fitting = namespace.routes.iter().filter(|route| route.table == table && route.to.contains(&to) && !is_last_resort(route));
    // Of two to one destination, the one for fewer sources.
    let length = |route: &Route| (route.to.prefix_len(), route.from.map_or(0, |net| net.prefix_len()));
    let best = fitting.filter(is_from).min_by_key(|route| (std::cmp::Reverse(length(route)), route.metric))?;
    if suppress.is_some_and(|longest| u32::from(best.to.prefix_len()) <= longest) {
        return None;
    }
    Some(match best.kind {
        RouteKind::Local | RouteKind::Broadcast => Routed::Here,
        RouteKind::Unicast => {
            // A way by a link that is gone or down is not taken.
            let all: Vec<(Option<IpAddr>, &Link)> =
                best.ways.iter().filter_map(|(gateway, link)| Some((*gateway, namespace.link((*link)?)?))).collect();
            let alive: Vec<_> = all.iter().filter(|(_, link)| link.up && link.carrier).collect();
            let ways = if alive.is_empty() { all.iter().collect() } else { alive };
            let way = ways.get(key.turn % ways.len().max(1));
            way.map_or(Routed::Nowhere, |(gateway, link)| {
                Routed::On(NextHop { route: best, link, gateway: *gateway, rule: None, among: ways.len() })
            })
        }
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => Routed::Refused(best),
        // An anycast address, or another kind of route of the table local: the packet is for the namespace itself.
        RouteKind::Other if table == LOCAL => Routed::Here,
        RouteKind::Other => return None,
    })
}

/// What the kernel shows as the end of each IPv6 table: no route.
fn is_last_resort(route: &Route) -> bool {
    route.to.prefix_len() == 0 && route.kind == RouteKind::Unreachable && route.metric == u32::MAX
}

/// The source that a namespace chooses for what it sends by a way, as the kernel does: the route's, one of the next hop's network, one of the
/// link, one of any link.
pub(super) fn source(namespace: &Namespace, way: &NextHop<'_>, to: IpAddr) -> Option<IpAddr> {
    let next = way.gateway.unwrap_or(to);
    let of_family = |link: &Link| -> Vec<ipnet::IpNet> {
        let usable = link.addresses.iter().map(|address| address.net).filter(|net| net.addr().is_ipv4() == to.is_ipv4());
        usable.filter(|net| !crate::network::is_link_local(net.addr()) && !net.addr().is_loopback()).collect()
    };
    let own = of_family(way.link);
    let in_network = own.iter().find(|net| net.contains(&next)).or(own.first()).map(ipnet::IpNet::addr);
    let elsewhere = || namespace.links.iter().flat_map(of_family).map(|net| net.addr()).next();
    way.route.source.or(in_network).or_else(elsewhere)
}

impl std::fmt::Display for NextHop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.route.to)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {}", self.link.name)?;
        match self.rule {
            _ if TABLES.contains(&self.route.table) => Ok(()),
            Some(rule) => write!(f, " table {} (rule {rule})", self.route.table),
            None => write!(f, " table {}", self.route.table),
        }
    }
}
