//! `sbr`: what an interface's addresses send leaves by that interface, whatever the main table says (source routing).
//!
//! ```text
//!   main:  routes of net1  --moved-->  table 100: the same, and a default route
//!   rules: from 10.2.0.7 lookup 100                    (a table for each address)
//! ```
//!
//! All of it is in the container's namespace and goes with it: nothing is kept on the host. Attachments of one container
//! come and go at the same time, so who chooses a table holds the namespace's lock until the table has its rule.

mod plan;

use std::net::IpAddr;
use std::sync::Arc;

use cni::{AddResult, CniError, Code, Config, Version};
use linux::{AddrFlags, Batch, Errno, Netlink, Netns, Route, Rule, route, rule};
use plugin::{About, Call, Cx, Draft, Key, Plugin, Stage};
use serde::Deserialize;

use crate::{internal, open, verify};
use plan::{ParsedPlan, Plan, Source, Wanted};

/// The plugin `sbr`.
pub(crate) struct Sbr;

/// What the reference plugin says where no plugin stands before it.
const ALONE: &str = "This plugin must be called as chained plugin";

static ABOUT: About = About {
    name: "sbr",
    summary: "routes traffic of each address of an interface by its own table",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::new(
            "table",
            "number",
            "a free one for each address, from 100",
            "the table that the rules lead to; routes stay where they are",
        ),
        Key::new("gateways", "list", "the gateways of the addresses", "next hops of the default routes, at most one for each family"),
        Key::new(
            "addSourceHints",
            "bool",
            "false",
            "the routes of a table name its address as their source; the main table keeps the way to its network",
        ),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    table: Option<i64>,
    gateways: Vec<String>,
    add_source_hints: bool,
}

impl Wanted {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let table = match keys.table {
            None => None,
            Some(number) => match u32::try_from(number) {
                Ok(table) if table != 0 => Some(table),
                _ => return Err(CniError::invalid("table", format!("{number} is not between 1 and {}", u32::MAX))),
            },
        };
        let mut gateways: Vec<IpAddr> = Vec::with_capacity(keys.gateways.len());
        for (i, text) in keys.gateways.iter().enumerate() {
            let place = format!("gateways[{i}]");
            let gateway: IpAddr = text.parse().map_err(|_| CniError::invalid(&place, format!("{text:?} is not an IP address")))?;
            if gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                return Err(CniError::invalid(&place, "a second one of this family: at most one for IPv4 and one for IPv6"));
            }
            gateways.push(gateway);
        }
        Ok(Wanted { table, gateways, source_hints: keys.add_source_hints })
    }
}

impl Plugin for Sbr {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Wanted::read(draft.config)?;
        draft.chained(ABOUT.name, ALONE)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let wanted = Wanted::read(call.config)?;
        let prev = call.chained(ABOUT.name, ALONE)?;
        let name = call.id.ifname.as_str();
        let sources = sources(prev, name);
        if sources.is_empty() {
            return Err(CniError::new(Code::INVALID_CONFIG, format!("No IP addresses supplied on interface: {name}: prevResult has none")));
        }
        let netns = call.netns()?;
        let lock = netns.lock(cx.deadline).map_err(|e| CniError::new(Code::TRY_AGAIN_LATER, e.to_string()))?;
        let plan = netns.enter(|inside| plan::make(&find(&mut open(inside)?, name)?, &sources, &wanted)).map_err(internal)??;
        let (of_undo, undone) = (netns.clone(), plan.clone());
        cx.teardown.at(Stage::Devices, format!("undo the source routing of {name}"), move |_| {
            of_undo.enter(|inside| undo(&mut open(inside)?, &undone)).map_err(internal)?
        });
        netns.enter(|inside| apply(&mut open(inside)?, &plan)).map_err(internal)??;
        drop(lock);
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        let wanted = Wanted::read(call.config)?;
        let (prev, name) = (call.prev()?, call.id.ifname.as_str());
        let found = call.netns()?.enter(|inside| find(&mut open(inside)?, name)).map_err(internal)??;
        plan::unchanged(&found, &sources(prev, name), &wanted).map_err(|what| verify::changed(name, what))
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // A configuration that ADD refused has made nothing.
        let (Ok(wanted), Some(netns)) = (Wanted::read(call.config), call.netns.cloned()) else { return Ok(()) };
        let name = call.id.ifname.clone();
        let told = call.prev.map(|prev| sources(prev, name.as_str())).unwrap_or_default();
        let told: Vec<IpAddr> = told.iter().map(|source| source.address.addr()).collect();
        cx.teardown
            .at(Stage::Devices, format!("remove the source routing of {name}"), move |_| remove(&netns, name.as_str(), told, &wanted));
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Wanted::read(config)?;
        match cx.host.netlink()?.rules(None) {
            Err(e) if matches!(e.errno(), Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP) => {
                let msg = "this kernel has no policy routing: sbr needs CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES";
                Err(CniError::new(Code::NOT_AVAILABLE, msg))
            }
            other => other.map(drop).map_err(internal),
        }
    }
}

/// The addresses of the interface. One that says of no interface that it is its own is taken for ours, as by the reference
/// plugin.
fn sources(prev: &AddResult, name: &str) -> Vec<Source> {
    let named = |i: i64| usize::try_from(i).ok().and_then(|i| prev.interfaces.get(i));
    let ours = prev.ips.iter().filter(|ip| ip.interface.and_then(named).is_none_or(|i| i.name == name));
    ours.map(|ip| Source { address: ip.address, gateway: ip.gateway }).collect()
}

fn find(netlink: &mut Netlink, name: &str) -> Result<ParsedPlan, CniError> {
    let links = netlink.links().map_err(internal)?;
    let gone = || internal(format!("sbr: there is no interface {name} in the container: check whether it was renamed or deleted"));
    let index = links.iter().find(|l| l.name == name).map(|l| l.index).ok_or_else(gone)?;
    let vrfs = links.iter().filter_map(|l| l.vrf_table).collect();
    let rules = netlink.rules(None).map_err(internal)?;
    let routes = netlink.routes(linux::RouteFilter::default()).map_err(internal)?;
    let addresses = netlink.addresses(Some(index)).map_err(internal)?;
    let networks = addresses.iter().filter(|a| !a.flags.contains(AddrFlags::NOPREFIXROUTE)).map(|a| a.net).collect();
    Ok(ParsedPlan { index, networks, vrfs, rules, routes })
}

/// Tables first, then what leads there, then the main table: at no moment has a packet no way.
fn apply(netlink: &mut Netlink, plan: &Plan) -> Result<(), CniError> {
    linux::crash_point!("sbr-planned");
    netlink.send(plan.routes.iter().map(route::add).collect()).map_err(routes_failed)?;
    linux::crash_point!("sbr-tables-filled");
    netlink.send(plan.rules.iter().map(rule::add).collect()).map_err(internal)?;
    linux::crash_point!("sbr-ruled");
    let mut main: Batch<'_> = plan.moved.iter().rev().map(|r| route::delete(r).tolerate(Errno::ESRCH)).collect();
    main.extend(plan.left.iter().map(route::add));
    netlink.send(main).map_err(internal)?;
    linux::crash_point!("sbr-main-cleared");
    Ok(())
}

fn routes_failed(e: linux::BatchError) -> CniError {
    match e.errno() {
        Errno::ENETUNREACH => internal(format!("{e}; check that the gateway is in the network of an address")),
        Errno::ENETDOWN => internal(format!("{e}; sbr needs an interface that is up")),
        _ => internal(e),
    }
}

/// As it was before ADD. What went with its interface needs nothing.
fn undo(netlink: &mut Netlink, plan: &Plan) -> Result<(), CniError> {
    let gone = |r: &Route| route::delete(r).tolerate(Errno::ESRCH).tolerate(Errno::ENODEV);
    let mut batch: Batch<'_> = plan.rules.iter().map(unrule).collect();
    batch.extend(plan.left.iter().map(gone));
    batch.extend(plan.moved.iter().map(|r| route::add(r).tolerate(Errno::EEXIST).tolerate(Errno::ENODEV)));
    batch.extend(plan.routes.iter().map(gone));
    netlink.send(batch).map(drop).map_err(internal)
}

fn unrule(r: &Rule) -> linux::Request<'static> {
    rule::delete(r).tolerate(Errno::ENOENT)
}

/// DEL. The rules are known by the addresses that they are for: those of the result, and those that the interface has, in case
/// nobody told a result.
fn remove(netns: &Arc<Netns>, name: &str, told: Vec<IpAddr>, wanted: &Wanted) -> Result<(), CniError> {
    netns
        .enter(|inside| {
            let mut netlink = open(inside)?;
            let link = netlink.link(name).map_err(internal)?;
            let mut addresses = told;
            if let Some(link) = &link {
                addresses.extend(netlink.addresses(Some(link.index)).map_err(internal)?.iter().map(|a| a.net.addr()));
            }
            let mut rules = netlink.rules(None).map_err(internal)?;
            rules.retain(|r| plan::is_ours(r, &addresses, wanted.table));
            let mut batch: Batch<'_> = rules.iter().map(unrule).collect();
            // Tables that were made here lose what is left in them, in case the interface stays.
            if let (Some(link), None) = (&link, wanted.table) {
                let mut routes =
                    netlink.routes(linux::RouteFilter { oif: Some(link.index), ..linux::RouteFilter::default() }).map_err(internal)?;
                routes.retain(|route| rules.iter().any(|r| r.table == route.table && r.family == route.family()));
                batch.extend(routes.iter().map(|r| route::delete(r).tolerate(Errno::ESRCH)));
            }
            netlink.send(batch).map_err(internal)?;
            linux::crash_point!("sbr-removed");
            Ok(())
        })
        .map_err(internal)?
}
