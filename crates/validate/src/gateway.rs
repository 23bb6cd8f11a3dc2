//! Gateways outside of the network that their address is in: the kernel refuses a route over one (ENETUNREACH), unless another route leads
//! to it.

use std::net::IpAddr;

use ipnet::IpNet;
use json::{Object, Value};
use plugin::Plugin;

use crate::finding::{Finding, Severity, under};
use crate::network::Entry;

/// An address's network and its gateway.
struct Pair<'a> {
    /// Where the gateway's object stands, below `ipam`.
    place: String,
    net: &'a str,
    gateway: &'a str,
}

/// Gateways of a plugin's addresses that it cannot use.
pub(crate) fn unreachable(entry: &Entry<'_>) -> Vec<Finding> {
    let (Some(ipam), Some(object)) = (entry.ipam.map(Plugin::about), entry.entry.raw().object("ipam")) else { return Vec::new() };
    // It makes a route of its own to its gateway.
    if entry.entry.kind.as_str() == "ptp" {
        return Vec::new();
    }
    let routes: Vec<&Object> = list(object, "routes").filter_map(Value::as_object).collect();
    let leads_to = |gateway: IpAddr| {
        let nets = routes.iter().filter(|route| route.str("gw").unwrap_or_default().is_empty()).filter_map(|route| net(route.str("dst")?));
        nets.filter(|net| net.prefix_len() > 0).any(|net| net.contains(&gateway))
    };
    let is = |key: &str| entry.entry.raw().get(key).and_then(Value::as_bool) == Some(true);
    let is_used = !routes.is_empty() || is("isGateway") || is("isDefaultGateway");
    let outside = pairs(ipam.name, object).into_iter().filter_map(|pair| {
        let (net, gateway) = (net(pair.net)?, pair.gateway.parse::<IpAddr>().ok()?);
        let is_apart = net.addr().is_ipv4() == gateway.is_ipv4() && !net.contains(&gateway) && !leads_to(gateway);
        is_apart.then(|| (pair.place, net.trunc(), gateway))
    });
    let found = outside.map(|(place, net, gateway)| {
        let severity = if is_used { Severity::Error } else { Severity::Warning };
        let path = under(&entry.prefix, &under("ipam", &under(&place, "gateway")));
        let message = format!("gateway {gateway} is outside of its network {net}: no packet reaches it");
        Finding::new(severity, path, message).help(format!("use an address of {net}, or add a route whose dst contains {gateway}"))
    });
    found.collect()
}

/// Routes of a bridge's pods over a gateway that the bridge does not have: without `isGateway` it has no address.
pub(crate) fn missing(entry: &Entry<'_>) -> Option<Finding> {
    let is = |key: &str| entry.entry.raw().get(key).and_then(Value::as_bool) == Some(true);
    let is_bridge = entry.entry.kind.as_str() == "bridge" && entry.ipam.map(Plugin::about).is_some_and(|ipam| ipam.name == "host-local");
    if !is_bridge || is("isGateway") || is("isDefaultGateway") {
        return None;
    }
    let ipam = entry.entry.raw().object("ipam")?;
    let has_no_gateway = |route: &&Object| route.str("gw").unwrap_or_default().is_empty() && route.str("dst").and_then(net).is_some();
    let route = list(ipam, "routes").filter_map(Value::as_object).find(has_no_gateway)?;
    let dst = route.str("dst").unwrap_or_default();
    let path = under(&entry.prefix, "ipam.routes");
    let named = pairs("host-local", ipam).into_iter().map(|pair| pair.gateway).next();
    Some(match named {
        Some(gateway) => {
            let message = format!("the route to {dst} leads over {gateway}, which the bridge does not have without \"isGateway\"");
            Finding::new(Severity::Note, path, message).help("another machine on the bridge must have it; else set \"isGateway\": true")
        }
        None => {
            let message = format!("the route to {dst} leads over the subnet's first address, which nobody has without \"isGateway\"");
            Finding::warning(path, message).help("set \"isGateway\": true, or the \"gateway\" that another machine on the bridge has")
        }
    })
}

fn pairs<'a>(ipam: &str, object: &'a Object) -> Vec<Pair<'a>> {
    let pair = |place: String, object: &'a Object, net: &str| {
        Some(Pair { place, net: object.str(net)?, gateway: object.str("gateway").filter(|gateway| !gateway.is_empty())? })
    };
    match ipam {
        "host-local" => {
            let sets = list(object, "ranges").enumerate().filter_map(|(set, value)| Some((set, value.as_array()?)));
            let ranges =
                sets.flat_map(|(set, ranges)| ranges.iter().enumerate().map(move |(at, range)| (format!("ranges[{set}][{at}]"), range)));
            let ranges = ranges.filter_map(|(place, range)| pair(place, range.as_object()?, "subnet"));
            pair(String::new(), object, "subnet").into_iter().chain(ranges).collect()
        }
        "static" => {
            let addresses = list(object, "addresses").enumerate();
            addresses.filter_map(|(at, address)| pair(format!("addresses[{at}]"), address.as_object()?, "address")).collect()
        }
        "whereabouts" => pair(String::new(), object, "range").into_iter().collect(),
        _ => Vec::new(),
    }
}

fn list<'a>(object: &'a Object, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(key).and_then(Value::as_array).unwrap_or_default().iter()
}

/// A network, or the last address of a range with its prefix length (`10.0.0.1-10.0.0.9/24`).
fn net(text: &str) -> Option<IpNet> {
    text.rsplit('-').next()?.trim().parse().ok()
}
