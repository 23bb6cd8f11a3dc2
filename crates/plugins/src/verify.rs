//! CHECK: is the interface still as the result of its ADD says? STATUS: has the kernel what ADD needs?

use cni::{AddResult, CniError, Code, Interface, Mac};
use linux::{Link, Netlink, link};
use plugin::{Call, Cx};

use crate::{address, internal};

/// The IPAM plugin's part of CHECK.
pub(crate) fn ipam(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    match call.config.ipam()? {
        Some(kind) => cx.delegate.check(&kind, call, cx),
        None => Ok(()),
    }
}

/// What CHECK compares with: the result of the chain. The reference's `tuning` does not tell there which MTU it has set, so
/// where a chain of this caller may have it, no MTU is told.
pub(crate) fn told(call: &Call<'_>, cx: &Cx<'_>) -> Result<AddResult, CniError> {
    let mut prev = call.prev()?.clone();
    let foreign = "tuning".parse().is_ok_and(|tuning| cx.delegate.needs_link(&tuning) == Ok(true));
    if foreign {
        prev.interfaces.iter_mut().for_each(|i| i.mtu = 0);
    }
    Ok(prev)
}

/// The container's interface in `prev`: the one of that name inside a namespace.
pub(crate) fn interface<'a>(prev: &'a AddResult, ifname: &str) -> Result<(usize, &'a Interface), CniError> {
    let found = prev.interfaces.iter().enumerate().find(|(_, i)| i.name == ifname && !i.sandbox.is_empty());
    found.ok_or_else(|| CniError::invalid("prevResult", format!("it has no interface {ifname} inside a container")))
}

/// The link, its kind, MAC, state, addresses and routes.
pub(crate) fn inside(netlink: &mut Netlink, prev: &AddResult, ifname: &str, kind: &str, up: bool) -> Result<Link, CniError> {
    unchanged(netlink, prev, ifname, Some(kind), up)
}

/// As [`inside`], whatever kind it is of.
pub(crate) fn device(netlink: &mut Netlink, prev: &AddResult, ifname: &str, up: bool) -> Result<Link, CniError> {
    unchanged(netlink, prev, ifname, None, up)
}

fn unchanged(netlink: &mut Netlink, prev: &AddResult, ifname: &str, kind: Option<&str>, up: bool) -> Result<Link, CniError> {
    let (at, wanted) = interface(prev, ifname)?;
    let link = netlink.link(ifname).map_err(internal)?.ok_or_else(|| changed(ifname, "it is gone from the container"))?;
    if let Some(kind) = kind.filter(|kind| !link.is(kind)) {
        return Err(changed(ifname, format!("it is a {}, not a {kind}", link.kind.as_deref().unwrap_or("device without a kind"))));
    }
    same_mac(ifname, &wanted.mac, link.mac.as_ref())?;
    if wanted.mtu != 0 && wanted.mtu != link.mtu {
        return Err(changed(ifname, format!("its MTU is {}, not {}", link.mtu, wanted.mtu)));
    }
    if up && !link.flags.up() {
        return Err(changed(ifname, "it is down"));
    }
    addresses(netlink, prev, at, &link)?;
    routes(netlink, prev, &link)?;
    Ok(link)
}

fn addresses(netlink: &mut Netlink, prev: &AddResult, at: usize, link: &Link) -> Result<(), CniError> {
    let there = netlink.addresses(Some(link.index)).map_err(internal)?;
    let ours = prev.ips.iter().filter(|ip| ip.interface.is_none_or(|i| i == at as i64));
    for ip in ours {
        if !there.iter().any(|a| a.net == ip.address) {
            return Err(changed(&link.name, format!("it has lost address {}", ip.address)));
        }
    }
    Ok(())
}

fn routes(netlink: &mut Netlink, prev: &AddResult, link: &Link) -> Result<(), CniError> {
    if prev.routes.is_empty() {
        return Ok(());
    }
    let there = netlink.routes(linux::RouteFilter { oif: Some(link.index), ..linux::RouteFilter::default() }).map_err(internal)?;
    for wanted in &prev.routes {
        let gateway = address::gateway_of(wanted, &prev.ips);
        let found = there.iter().any(|r| {
            r.dst == wanted.network()
                // Where the route itself names no gateway, sbr may have given its table another one.
                && (r.ways().any(|(via, _)| via == gateway) || wanted.gw.is_none() && r.table != linux::route::MAIN)
                && wanted.priority.is_none_or(|p| r.priority == p)
                // 0 is no table: the kernel takes the main one.
                && wanted.table.filter(|t| *t != 0).is_none_or(|t| r.table == t)
        });
        if !found {
            let via = gateway.map(|g| format!(" (it went via {g})")).unwrap_or_default();
            return Err(changed(&link.name, format!("route to {} is gone{via}", wanted.dst)));
        }
    }
    Ok(())
}

/// Compares a result's hardware address with the kernel's.
pub(crate) fn same_mac(name: &str, wanted: &str, found: Option<&Mac>) -> Result<(), CniError> {
    let wanted: Option<Mac> = wanted.parse().ok();
    match (wanted, found) {
        (Some(w), Some(f)) if w != *f => Err(changed(name, format!("its hardware address is {f}, not {w}"))),
        _ => Ok(()),
    }
}

/// What CHECK found.
pub(crate) fn changed(name: &str, what: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, format!("interface {name} was changed: {what}"))
}

/// STATUS: whether the kernel makes links of this kind.
pub(crate) fn kernel_makes(netlink: &mut Netlink, kind: &str) -> Result<(), CniError> {
    if link::probe(netlink, kind).map_err(internal)? { Ok(()) } else { Err(lacks(kind)) }
}

/// What is missing where the kernel makes no links of this kind, and how to get it.
pub(crate) fn lacks(kind: &str) -> CniError {
    let module = if kind == "vlan" { "8021q" } else { kind };
    without(&format!("does not support links of type {kind}"), module)
}

/// What the kernel cannot do without a module.
pub(crate) fn without(what: &str, module: &str) -> CniError {
    CniError::new(Code::NOT_AVAILABLE, format!("the kernel {what}; load the module: modprobe {module}"))
}
