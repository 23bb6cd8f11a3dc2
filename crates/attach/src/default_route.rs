//! The selection key `default-route` (S26): the pod's default route goes over the attachment that has it, and over no
//! other one. Of each family another attachment may have it.
//!
//! A family that the key names no gateway of keeps the route that it has: a pod that moves its IPv4 route keeps its IPv6
//! one. An empty list takes the default routes of both families away.

use std::net::IpAddr;

use cni::{AddResult, CniError, Code, IfName, Route};
use linux::{Batch, Errno, Family, Netlink, Netns, RouteFilter, route};

use crate::{AddError, Record, State};

/// Moves the pod's default routes to the attachments that have the key, in the kernel and in the results. This is for when all
/// attachments are made: each brings the default routes of its own network.
pub(crate) fn settle(record: &mut Record, netns: &Netns) -> Result<(), AddError> {
    let keyed = record.steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.default_route.clone()?)));
    for (at, gateways) in keyed.collect::<Vec<_>>() {
        let Some(step) = record.steps.get(at) else { continue };
        let moved = move_to(netns, &step.ifname, &gateways);
        moved.map_err(|error| AddError { network: step.name.clone(), error, left: Vec::new() })?;
        linux::crash_point!("default-route-moved");
        let results = record.steps.iter_mut().enumerate().filter_map(|(i, step)| match &mut step.state {
            State::Added(result) => Some((i == at, result)),
            State::Intended => None,
        });
        tell(results, &gateways);
    }
    Ok(())
}

/// Moves the default routes inside a namespace, in one batch for each family.
fn move_to(netns: &Netns, ifname: &IfName, gateways: &[IpAddr]) -> Result<(), CniError> {
    let failed = |e: String| CniError::new(Code::INTERNAL, format!("default-route: {e}"));
    let work = |netlink: &mut Netlink| families(gateways).try_for_each(|family| move_family(netlink, family, ifname, gateways));
    netns.route(work).map_err(|e| failed(e.to_string()))?.map_err(failed)
}

/// The families that the key speaks of.
pub(crate) fn families(gateways: &[IpAddr]) -> impl Iterator<Item = Family> + use<> {
    let named = npwg::default_routes(gateways);
    [Family::V4, Family::V6].into_iter().zip(named).filter_map(|(family, named)| named.then_some(family))
}

fn move_family(netlink: &mut Netlink, family: Family, ifname: &IfName, gateways: &[IpAddr]) -> Result<(), String> {
    let link = netlink.link(ifname.as_str()).map_err(|e| e.to_string())?;
    let link = link.ok_or_else(|| format!("the pod has no interface {ifname}"))?;
    let filter = RouteFilter { family: Some(family), table: Some(route::MAIN), ..RouteFilter::default() };
    let mut batch = Batch::new();
    for old in netlink.routes(filter).map_err(|e| e.to_string())?.iter().filter(|r| r.is_default()) {
        batch.push(route::delete(old).tolerate(Errno::ESRCH).called("remove the pod's default route"));
    }
    for (number, gateway) in (0_u32..).zip(gateways.iter().filter(|g| Family::of(**g) == family)) {
        // The order is the preference: the first has the kernel's own metric, which is 0 for IPv4 and 1024 for IPv6.
        let base = if family == Family::V4 { 0 } else { 1024 };
        let priority = if number == 0 { 0 } else { base + number };
        let new = linux::Route { gateway: Some(*gateway), oif: Some(link.index), priority, ..linux::Route::to(family.everything()) };
        batch.push(route::add(&new).called(format!(
            "route all traffic via {gateway} dev {ifname} (check that the gateway is in a network of \
                {ifname})"
        )));
    }
    if batch.is_empty() { Ok(()) } else { netlink.send(batch).map(drop).map_err(|e| e.to_string()) }
}

/// Says in the results what is true now: the attachment's own has the routes, those of the others have them no more.
fn tell<'a>(results: impl Iterator<Item = (bool, &'a mut AddResult)>, gateways: &[IpAddr]) {
    let moved: Vec<Family> = families(gateways).collect();
    for (own, result) in results {
        result.routes.retain(|r| !r.is_default() || !moved.contains(&Family::of(r.dst.addr())));
        if own {
            result.routes.extend(gateways.iter().map(|g| Route::new(Family::of(*g).everything(), Some(*g))));
        }
    }
}
