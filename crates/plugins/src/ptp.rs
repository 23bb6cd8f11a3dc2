//! `ptp`: a veth pair between the container and its host, which is the router to everything else.
//!
//! ```text
//!   host:  veth...                    container:  eth0
//!     gateway/32                        10.1.0.2/24, without the route to its network
//!     10.1.0.2/32 -> veth...            gateway/32 -> eth0; 10.1.0.0/24 via gateway
//! ```
//!
//! All that the container sends goes to the host, also what is for its own network.

use std::net::IpAddr;

use cni::{AddResult, AttachmentId, CniError, Config, Dns, IpConfig, Mac, PluginType, Version};
use ipnet::IpNet;
use linux::link::{self, Change, Ipv6Conf};
use linux::{AddrFlags, Batch, Errno, Family, Inside, Link, Netlink, RouteFilter, Scope, addr, route};
use plugin::{About, Call, Cx, Draft, Key, PlannedChange, Plugin, Restore};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::veth::{self, Pair};
use crate::{internal, mac, masquerade, open, reverse, verify};

/// The plugin `ptp`.
pub(crate) struct Ptp;

static ABOUT: About = About {
    name: "ptp",
    summary: "connects the container only to its host, with a veth pair; the host routes",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("ipMasq", "bool", "false", "traffic that leaves the network gets the host's address (masquerading)"),
        Key::new("ipMasqBackend", "string", "nftables", "\"nftables\" and \"iptables\" both use nftables"),
        Key::new("mtu", "bytes", "the kernel's", "MTU of the pair"),
        veth::Queues::KEY,
        Key::new("mac", "string", "set by the kernel", "hardware address of the container's end"),
        mac::FROM_IP,
        Key::new("ipam", "object", "required", "addresses, each with its gateway"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    ip_masq: bool,
    ip_masq_backend: String,
    mtu: i64,
    queues: i64,
    strict_reverse_path: bool,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    ip_masq: bool,
    mtu: Option<u32>,
    queues: veth::Queues,
    mac: Option<Mac>,
    ipam: PluginType,
    strict_reverse_path: bool,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config, args: &cni::CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let mtu = match keys.mtu {
            0 => None,
            68..=65535 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65535"))),
        };
        masquerade::backend(&keys.ip_masq_backend)?;
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let ipam = address::required(config, "ptp")?;
        let mac = mac::requested(config, args, mac::INTERFACE)?;
        let queues = veth::Queues::read(keys.queues)?;
        Ok(Conf { ip_masq: keys.ip_masq, mtu, queues, mac, ipam, strict_reverse_path: keys.strict_reverse_path, dns: keys.dns })
    }
}

impl Plugin for Ptp {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &cni::CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config, call.args)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(Some(conf.ipam), call, cx)?;
        addresses.known().map_or(Ok(()), |result| ways(result).map(drop))?;
        linux::crash_point!("ptp-addresses-known");
        let mac = mac::of_new_link(call.config, conf.mac, &addresses, cx)?;
        let outer = veth::make(cx.host.netlink()?, call, &Pair { mtu: conf.mtu, mac, queues: conf.queues, ..Pair::default() })?;
        cx.teardown.link(veth::link_to_delete(call, &outer));
        linux::crash_point!("ptp-pair-made");
        // The pair is a wire of its own.
        let mut result = addresses.with_link(call, cx, &Wire::None)?;
        let ways = ways(&result)?;
        cx.review(PlannedChange::Result(&result))?;
        if conf.strict_reverse_path {
            reverse::add(call, cx)?;
        }
        host_side(cx, &outer, &ways)?;
        let link = netns.enter(|inside| container_side(inside, call, &ways, &mut result)).map_err(internal)??;
        notice_carrier(cx.host.netlink()?, &outer, &ways)?;
        if conf.ip_masq {
            masquerade::add(call, cx, &result)?;
        }
        result.interfaces = vec![address::of_host(&outer), address::interface(&link, netns)];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
        address::name_resolution(call.config, conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        verify::ipam(call, cx)?;
        let (prev, name) = (&verify::told(call, cx)?, call.id.ifname.as_str());
        let ways = ways(prev)?;
        // A result that tells no MTU: what `tuning` has set later is told there.
        let of_old = verify::interface(call.prev()?, name)?.1.mtu == 0;
        call.netns()?
            .enter(|inside| {
                let mut netlink = open(inside)?;
                let link = verify::inside(&mut netlink, prev, name, "veth", true)?;
                if of_old {
                    same_mtu(&link, conf.mtu)?;
                }
                ways.iter().try_for_each(|way| way.is_there(&mut netlink, &link))
            })
            .map_err(internal)??;
        for v4 in [true, false] {
            if ways.iter().any(|w| w.gateway.is_ipv4() == v4) {
                veth::forwards(cx.host.inside(), v4)?;
            }
        }
        let netlink = cx.host.netlink()?;
        let outer = veth::find(netlink, call)?.ok_or_else(|| verify::changed(name, "its other end on the host is gone"))?;
        for told in prev.interfaces.iter().filter(|i| i.name == outer.name && i.sandbox.is_empty()) {
            verify::same_mac(&outer.name, &told.mac, outer.mac.as_ref())?;
        }
        same_mtu(&outer, conf.mtu)?;
        if !outer.flags.up() {
            return Err(verify::changed(&outer.name, "it is down"));
        }
        check_host(netlink, &outer, &ways)?;
        if conf.strict_reverse_path {
            reverse::check(call, cx)?;
        }
        if conf.ip_masq { masquerade::check(call, cx, prev) } else { Ok(()) }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        if let Some(outer) = find(cx.host.netlink()?, call)? {
            cx.teardown.link(veth::link_to_delete(call, &outer));
        }
        masquerade::del(call, cx)?;
        reverse::del(call, cx)?;
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, &cni::CniArgs::default())?;
        cx.delegate.status(&conf.ipam, config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        masquerade::gc(config, valid, cx)?;
        reverse::gc(config, valid, cx)?;
        for outer in veth::stale(cx.host.netlink()?, &config.network, valid)? {
            cx.teardown.link(outer);
        }
        address::gc(config, valid, cx)
    }

    fn restore(&self, call: &Call<'_>, _: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        if conf.strict_reverse_path {
            reverse::restore(call, into)?;
        }
        if conf.ip_masq { masquerade::restore(call, into) } else { Ok(()) }
    }
}

/// How one address of the container is reached, and what it reaches.
struct PodRoutes {
    address: IpNet,
    gateway: IpAddr,
}

// === impl PodRoutes ===

impl PodRoutes {
    /// What the container gets instead of the route to its network: the gateway on the link, the network behind it.
    fn of_container(&self, index: u32) -> Vec<linux::Route> {
        let src = Some(self.address.addr());
        let gateway = linux::Route { oif: Some(index), scope: Some(Scope::Link), src, ..linux::Route::to(IpNet::from(self.gateway)) };
        let network = linux::Route { oif: Some(index), gateway: Some(self.gateway), src, ..linux::Route::to(self.address.trunc()) };
        // An address without a network around it has nobody to be reached there.
        let alone = self.address.prefix_len() == self.address.max_prefix_len();
        if alone { vec![gateway] } else { vec![gateway, network] }
    }

    /// The host's route to the container.
    fn of_host(&self, index: u32) -> linux::Route {
        linux::Route { oif: Some(index), scope: Some(Scope::Host), ..linux::Route::to(IpNet::from(self.address.addr())) }
    }

    /// CHECK, in the container: in the main table, or in one that a rule for the address or the link's routing domain leads to.
    /// There `sbr` and `vrf` move them.
    fn is_there(&self, netlink: &mut Netlink, link: &Link) -> Result<(), CniError> {
        let (address, wanted) = (self.address.addr(), self.of_container(link.index));
        has_routes(netlink, link, &wanted, &[route::MAIN]).or_else(|_| {
            // A kernel without policy routing has no rules to tell.
            let rules = netlink.rules(Some(Family::of(address))).unwrap_or_default();
            let mut tables: Vec<u32> = rules.iter().filter(|r| r.only_from() == Some(address)).map(|r| r.table).collect();
            let master = link.master.map(|master| netlink.link_by_index(master)).transpose().map_err(internal)?.flatten();
            tables.extend(master.and_then(|master| master.vrf_table));
            tables.push(route::MAIN);
            has_routes(netlink, link, &wanted, &tables)
        })
    }

    /// The host's own address on the pair.
    fn gateway(&self) -> IpNet {
        IpNet::from(self.gateway)
    }
}

/// The ways of every address of a result.
fn ways(result: &AddResult) -> Result<Vec<PodRoutes>, CniError> {
    let way = |ip: &IpConfig| match ip.gateway {
        Some(gateway) if gateway.is_ipv4() == ip.address.addr().is_ipv4() => Ok(PodRoutes { address: ip.address, gateway }),
        Some(gateway) => Err(CniError::invalid("ipam", format!("gateway {gateway} of address {} is of the other family", ip.address))),
        None => Err(CniError::invalid("ipam", format!("address {} has no gateway, which ptp needs: give it one in \"ipam\"", ip.address))),
    };
    result.ips.iter().map(way).collect()
}

/// The host's end: it takes nothing from the container's router advertisements (CVE-2020-10749), has the gateways'
/// addresses, and the ways to the container.
fn host_side(cx: &mut Cx<'_>, outer: &Link, ways: &[PodRoutes]) -> Result<(), CniError> {
    address::set_ipv6(cx.host.inside(), outer, Ipv6Conf::AcceptRa, 0)?;
    if ways.iter().any(|w| w.gateway.is_ipv6()) {
        // The host may have IPv6 off for new interfaces.
        address::set_ipv6(cx.host.inside(), outer, Ipv6Conf::DisableIpv6, 0)?;
        // The link-local address is what the host asks for the container with, when it forwards: it must not wait.
        address::set_ipv6(cx.host.inside(), outer, Ipv6Conf::AcceptDad, 0)?;
    }
    linux::crash_point!("ptp-pair-quiet");
    for v4 in [true, false] {
        if ways.iter().any(|w| w.gateway.is_ipv4() == v4) {
            veth::forward(cx.host, v4)?;
        }
    }
    linux::crash_point!("ptp-host-forwards");
    let netlink = cx.host.netlink()?;
    let gateway = |w: &PodRoutes| {
        let flags = if w.gateway.is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        // Several addresses may have one gateway.
        let add = addr::add(outer.index, w.gateway(), flags).tolerate(Errno::EEXIST);
        add.called(format!("add gateway {} to {} on the host", w.gateway, outer.name))
    };
    netlink.send(ways.iter().map(gateway).collect()).map_err(internal)?;
    linux::crash_point!("ptp-gateway-there");
    for way in ways {
        let add = route::add(&way.of_host(outer.index));
        netlink.send_one(add.called(format!("add route {} dev {} on the host", way.address.addr(), outer.name))).map_err(|e| {
            match e.errno() {
                Errno::EEXIST => {
                    internal(format!("{e}; this host already has a route to that address: see `ip route get {}`", way.address.addr()))
                }
                _ => internal(e),
            }
        })?;
    }
    linux::crash_point!("ptp-host-routed");
    Ok(())
}

/// The container's end, from inside.
fn container_side(inside: &Inside, call: &Call<'_>, ways: &[PodRoutes], result: &mut AddResult) -> Result<Link, CniError> {
    let (mut netlink, name) = (open(inside)?, call.id.ifname.as_str());
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    address::ipv6(inside, &link, call, result, &[(Ipv6Conf::AcceptDad, 0)])?;
    let mut batch = Batch::new();
    for way in ways {
        let nodad = if way.address.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        let add = addr::add(link.index, way.address, AddrFlags::NOPREFIXROUTE | nodad);
        batch.push(add.called(format!("add address {} to {name} in the container", way.address)));
    }
    let up = link::set(link.index, &Change { up: Some(true), ..Change::default() });
    batch.push(up.called(format!("bring {name} up in the container")));
    for route in ways.iter().flat_map(|way| way.of_container(link.index)) {
        let via = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        // Two addresses may have one gateway, or be of one network.
        let add = route::add(&route).tolerate(Errno::EEXIST);
        batch.push(add.called(format!("add route {}{via} dev {name} in the container", route.dst)));
    }
    netlink.send(batch).map_err(internal)?;
    linux::crash_point!("ptp-addressed");
    address::routes(&mut netlink, link.index, &link.name, result)?;
    notice_carrier(&mut netlink, &link, ways)?;
    Ok(link)
}

/// Where both ends have the same index, the kernel takes up to a second to notice that there is a carrier, and IPv6 hears no
/// neighbour solicitation before that. Who asks for the link makes it look (Linux 6.8).
fn notice_carrier(netlink: &mut Netlink, link: &Link, ways: &[PodRoutes]) -> Result<(), CniError> {
    match ways.iter().any(|w| w.gateway.is_ipv6()) {
        true => netlink.link_by_index(link.index).map(drop).map_err(internal),
        false => Ok(()),
    }
}

/// The outer end, also of a pair that the reference plugin made: it has a name made by chance, and no bridge.
fn find(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    match veth::find(netlink, call)? {
        None if call.prev.is_none() => {
            let theirs = |l: &Link| l.group == 0 && l.master.is_none() && l.name.len() == 12 && l.name.starts_with("veth");
            veth::made_elsewhere(netlink, call, theirs)
        }
        found => Ok(found),
    }
}

fn check_host(netlink: &mut Netlink, outer: &Link, ways: &[PodRoutes]) -> Result<(), CniError> {
    let there = netlink.addresses(Some(outer.index)).map_err(internal)?;
    for way in ways {
        if !there.iter().any(|a| a.net == way.gateway()) {
            return Err(verify::changed(&outer.name, format!("it has lost the gateway's address {}", way.gateway())));
        }
        has_routes(netlink, outer, &[way.of_host(outer.index)], &[route::MAIN])?;
    }
    Ok(())
}

/// Each of them is in one of the tables.
fn has_routes(netlink: &mut Netlink, link: &Link, wanted: &[linux::Route], tables: &[u32]) -> Result<(), CniError> {
    let there = netlink.routes(RouteFilter { oif: Some(link.index), ..RouteFilter::default() }).map_err(internal)?;
    let found = |w: &linux::Route| there.iter().any(|r| r.dst == w.dst && tables.contains(&r.table) && r.gateway == w.gateway);
    match wanted.iter().find(|w| !found(w)) {
        Some(lost) => Err(verify::changed(&link.name, format!("route to {} is gone", lost.dst))),
        None => Ok(()),
    }
}

fn same_mtu(link: &Link, wanted: Option<u32>) -> Result<(), CniError> {
    match wanted {
        Some(mtu) if mtu != link.mtu => Err(verify::changed(&link.name, format!("its MTU is {}, not {mtu}", link.mtu))),
        _ => Ok(()),
    }
}
