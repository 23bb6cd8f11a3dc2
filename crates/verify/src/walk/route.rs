//! Where a namespace routes a packet: rules in their order, then the longest prefix of a table, then the lowest metric.

use std::net::IpAddr;

use crate::snapshot::{Link, Namespace, Route, RouteKind, Rule};

/// Tables that are asked where there are no rules: local, main, default.
const TABLES: [u32; 3] = [255, 254, 253];

/// What a namespace does with a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Routed<'a> {
    /// It is for the namespace.
    Here,
    /// It is sent on.
    On(Way<'a>),
    /// A route refuses it; `None`: a rule.
    Refused(Option<&'a Route>),
    /// There is no route.
    Nowhere,
}

/// A route, and the way of it that is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) route: &'a Route,
    pub(super) link: &'a Link,
    pub(super) gateway: Option<IpAddr>,
}

/// What is looked up. A source is not known yet before the first look-up of what a namespace itself sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) to: IpAddr,
    pub(super) from: Option<IpAddr>,
    /// The link that it came by; `None`: the namespace's own.
    pub(super) came_by: Option<&'a Link>,
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
        let Some(table) = rule.table else { return Routed::Refused(None) };
        if let Some(routed) = look_up(namespace, table, key.to) {
            return routed;
        }
    }
    let tables = TABLES.iter().filter(|_| !any);
    tables.filter_map(|table| look_up(namespace, *table, key.to)).next().unwrap_or(Routed::Nowhere)
}

fn matches(rule: &Rule, key: Key<'_>) -> bool {
    let in_source = rule.from.is_none_or(|net| key.from.is_some_and(|from| net.contains(&from)));
    let by_link = match (rule.iif.as_deref(), key.came_by) {
        (None, _) => true,
        (Some(name), None) => name == "lo",
        (Some(name), Some(link)) => name == link.name,
    };
    !rule.has_more && rule.oif.is_none() && in_source && rule.to.is_none_or(|net| net.contains(&key.to)) && by_link
}

/// The answer of one table; `None`: the next rule is asked.
fn look_up(namespace: &Namespace, table: u32, to: IpAddr) -> Option<Routed<'_>> {
    let fitting = namespace.routes.iter().filter(|route| route.table == table && route.to.contains(&to) && !is_last_resort(route));
    let best = fitting.min_by_key(|route| (std::cmp::Reverse(route.to.prefix_len()), route.metric))?;
    Some(match best.kind {
        RouteKind::Local | RouteKind::Broadcast => Routed::Here,
        RouteKind::Unicast => {
            let way = best.ways.iter().find_map(|(gateway, link)| Some((*gateway, namespace.link((*link)?)?)));
            way.map_or(Routed::Nowhere, |(gateway, link)| Routed::On(Way { route: best, link, gateway }))
        }
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => Routed::Refused(Some(best)),
        RouteKind::Other => return None,
    })
}

/// What the kernel shows as the end of each IPv6 table: no route.
fn is_last_resort(route: &Route) -> bool {
    route.to.prefix_len() == 0 && route.kind == RouteKind::Unreachable && route.metric == u32::MAX
}

/// The source that a namespace chooses for what it sends by a way, as the kernel does: the route's, one of the next hop's network, one of the
/// link, one of any link.
pub(super) fn source(namespace: &Namespace, way: &Way<'_>, to: IpAddr) -> Option<IpAddr> {
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

impl std::fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.route.to)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {}", self.link.name)
    }
}
