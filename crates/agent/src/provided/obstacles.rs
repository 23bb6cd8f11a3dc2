//! What others have set on the node that may drop pods' packets, although the network itself is whole.
//!
//! Nothing of it is changed: it is somebody's firewall, or the host's protection. It is told, with what lets the packets pass. Looked at when
//! the agent starts, and every `reconcileEvery`: the kernel does not report changes of most of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use between::{Device, Plan, Underlay};
use ipnet::IpNet;
use linux::nft::{self, ForwardDrop};
use linux::{Family, Inside, Netlink, Sysctl};
use plugin::Host;

use super::gateway;
use super::gateway::Occupant;
use super::list::BRIDGE;
use super::ranges::Terms;

/// Where the kernel has what `br_netfilter` is told.
const BRIDGE_NETFILTER: [&str; 2] = ["net", "bridge"];
/// The value of `rp_filter` that drops a packet whose source is not reached by the link that it came by (RFC 3704 2.2).
const STRICT: u32 = 1;
/// How long `iptables-save` may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// All of it, each as a sentence with its next step. What cannot be looked at is told as well.
pub(crate) fn find(host: &mut Host, plan: &Plan, terms: &Terms, links: &[Underlay], own: &[IpAddr]) -> BTreeSet<String> {
    let families: Vec<Family> =
        [Family::V4, Family::V6].into_iter().filter(|family| plan.ranges.iter().any(|range| Family::of(range.addr()) == *family)).collect();
    let mut found = BTreeSet::new();
    found.extend(bridges(host, plan, terms));
    found.extend(dropped(host, &families));
    found.extend(bridge_netfilter(host.inside()));
    found.extend(families.iter().filter_map(|family| full_neighbours(host.inside(), *family, plan)));
    found.extend(strict_filters(host, plan, links, own));
    found
}

/// Links beside the pods' bridge that have addresses of their ranges, and bridges that have some of the pools of any node's ranges.
fn bridges(host: &mut Host, plan: &Plan, terms: &Terms) -> Vec<String> {
    let ranges: Vec<_> = plan.ranges.iter().copied().collect();
    let looked = host.netlink().and_then(|netlink| {
        let mut others = gateway::others(netlink, &ranges, &[])?;
        others.iter_mut().for_each(|other| other.pool = terms.pool_of(&other.range).map(str::to_owned));
        Ok((others, gateway::bridges_in(netlink, &terms.networks)?))
    });
    match looked {
        Ok((others, bridges)) => {
            let is_reported =
                |name: &str| others.iter().any(|other| matches!(&other.by, Occupant::Link { name: link, .. } if link == name));
            let elsewhere = bridges.iter().filter(|(name, ..)| !is_reported(name));
            let in_pool = |(name, address, network): &(String, IpNet, IpNet)| {
                let pool = terms.pool_of(network).unwrap_or_default();
                format!(
                    "bridge {name} has the address {address} in the network {network} of pool {pool}: what is on the bridge may have addresses \
                     that pods of other nodes get; give the bridge another subnet, or exclude this one from the pool"
                )
            };
            others.iter().map(ToString::to_string).chain(elsewhere.map(in_pool)).collect()
        }
        Err(e) => vec![format!("cannot read the node's addresses: {e}")],
    }
}

/// Chains that drop what the node forwards, and have no rule that names the pods' bridge.
fn dropped(host: &mut Host, families: &[Family]) -> Vec<String> {
    let mut tables = vec![nft::Family::Inet, nft::Family::Bridge];
    tables.extend(families.iter().map(|family| if *family == Family::V4 { nft::Family::Ip } else { nft::Family::Ip6 }));
    let mut found = Vec::new();
    for family in tables {
        let chains = host.nft().map_err(|e| e.to_string()).and_then(|nft| {
            let drops = nft.forward_drops(family).map_err(|e| e.to_string())?;
            let names_bridge = drops.iter().map(|chain| nft.has_rule_with(chain, BRIDGE.as_bytes()).map_err(|e| e.to_string()));
            let names_bridge = names_bridge.collect::<Result<Vec<bool>, _>>()?;
            Ok(drops.into_iter().zip(names_bridge).filter(|(_, names_bridge)| !names_bridge).map(|(chain, _)| chain).collect::<Vec<_>>())
        });
        match chains {
            Ok(chains) => found.extend(chains.iter().map(described)),
            Err(e) => found.push(format!("cannot read which firewall drops forwarded packets: {e}")),
        }
    }
    for family in families {
        match rules::legacy_drops_forwarded(*family, BRIDGE, Instant::now() + PATIENCE) {
            Ok(true) => found.push(of_iptables(*family)),
            Ok(false) => {}
            Err(e) => found.push(format!("cannot read iptables' policy for forwarded packets: {e}")),
        }
    }
    found
}

fn described(drop: &ForwardDrop) -> String {
    let ForwardDrop { family, table, chain } = drop;
    match family {
        nft::Family::Ip if table == "filter" && chain == "FORWARD" => return of_iptables(Family::V4),
        nft::Family::Ip6 if table == "filter" && chain == "FORWARD" => return of_iptables(Family::V6),
        _ => {}
    }
    let drops = format!(
        "the firewall's chain {chain} (table {family} {table}) drops forwarded packets that no rule accepts, which may be those of pods"
    );
    if *family == nft::Family::Bridge {
        // Not every kernel has a word for the bridge there (CONFIG_NFT_BRIDGE_META).
        return format!("{drops}: change its policy with `nft 'chain bridge {table} {chain} {{ policy accept; }}'`, or accept them in it");
    }
    let accept = |key: &str| format!("`nft add rule {family} {table} {chain} {key} {BRIDGE} accept`");
    format!("{drops}: let them pass with {} and {}", accept("iifname"), accept("oifname"))
}

fn of_iptables(family: Family) -> String {
    let (program, name) = if family == Family::V4 { ("iptables", "IPv4") } else { ("ip6tables", "IPv6") };
    format!(
        "{program}'s chain FORWARD has the policy DROP: {name} packets between pods and everything outside of the node may be dropped, and with \
         br_netfilter those between pods of the node: let them pass with `{program} -A FORWARD -i {BRIDGE} -j ACCEPT` and `{program} -A FORWARD \
         -o {BRIDGE} -j ACCEPT`"
    )
}

/// Without the module, an answer that the bridge passes on from pod to pod is not seen by whoever translated the question.
fn bridge_netfilter(inside: &Inside) -> Option<String> {
    let call = Sysctl::new(BRIDGE_NETFILTER.into_iter().chain(["bridge-nf-call-iptables"])).ok()?;
    let text = "the kernel module br_netfilter is not loaded: a pod may not reach a Service whose pod is on the same node; load it with \
                `modprobe br_netfilter`, and at boot by a file in /etc/modules-load.d";
    (!call.exists(inside)).then(|| text.to_owned())
}

/// The table of neighbours, where it may not hold all nodes to which a direct route leads: then the kernel drops packets to some of them.
fn full_neighbours(inside: &Inside, family: Family, plan: &Plan) -> Option<String> {
    let name = if family == Family::V4 { "ipv4" } else { "ipv6" };
    let most = Sysctl::new(["net", name, "neigh", "default", "gc_thresh3"]).ok()?.read(inside).ok()?.trim().parse().ok()?;
    too_many(direct(plan, family), most, name)
}

/// To how many nodes a direct route leads.
fn direct(plan: &Plan, family: Family) -> usize {
    let direct = plan.routes.values().filter(|route| matches!(route.device, Device::Link(_)));
    direct.filter_map(|route| route.via).filter(|via| Family::of(*via) == family).collect::<BTreeSet<_>>().len()
}

/// Told when four fifths of the table may be used by nodes: pods and others need room, too.
fn too_many(nodes: usize, most: usize, family: &str) -> Option<String> {
    let next = nodes.saturating_mul(4).max(4096).next_power_of_two();
    let text = || {
        format!(
            "packets go directly to {nodes} nodes, each of which is a neighbour, and the kernel keeps at most {most}: raise it on every node with \
             `sysctl -w net.{family}.neigh.default.gc_thresh3={next} net.{family}.neigh.default.gc_thresh2={}`, or use the mode vxlan",
            next / 2
        )
    };
    (nodes.saturating_mul(5) >= most.saturating_mul(4)).then(text)
}

/// Links by which other nodes' packets come, and drop them, because the way back leads over another one. Tunnels' devices are loose.
fn strict_filters(host: &mut Host, plan: &Plan, links: &[Underlay], own: &[IpAddr]) -> Vec<String> {
    let inside = Inside::here();
    let value = |name: &str| {
        let sysctl = Sysctl::new(["net", "ipv4", "conf", name, "rp_filter"]).ok()?;
        sysctl.read(&inside).ok()?.parse::<u32>().ok()
    };
    // The kernel uses the larger one of both.
    let all = value("all").unwrap_or_default();
    let is_strict = |link: &&Underlay| value(&link.name).unwrap_or_default().max(all) == STRICT;
    let strict: BTreeMap<u32, &Underlay> = links.iter().filter(is_strict).map(|link| (link.index, link)).collect();
    if strict.is_empty() {
        return Vec::new();
    }
    // By which link packets come that have a source: those of pods, where their route is direct, and those of tunnels.
    let mut sources: Vec<(u32, IpAddr)> = Vec::new();
    for (range, route) in &plan.routes {
        if let Device::Link(index) = route.device {
            sources.extend(gateway::of(range).map(|gateway| (index, gateway.addr())));
        }
    }
    let has_own = |link: &&Underlay| link.addresses.iter().any(|net| net.addr().is_ipv4() && own.contains(&net.addr()));
    if let Some(link) = links.iter().find(has_own) {
        sources.extend(plan.forwarding.values().map(|endpoint| (link.index, *endpoint)));
    }
    sources.retain(|(index, source)| source.is_ipv4() && strict.contains_key(index));
    let Ok(netlink) = host.netlink() else { return Vec::new() };
    let mut dropped: BTreeMap<u32, (usize, String)> = BTreeMap::new();
    for (index, source) in sources {
        let Ok(route) = netlink.route_to(source) else { continue };
        let back = route.as_ref().and_then(|route| route.oif);
        if back != Some(index) {
            let by = back.map_or_else(|| "no link".to_owned(), |back| link_name(netlink, back));
            let entry = dropped.entry(index).or_insert_with(|| (0, format!("{source} by {by}")));
            entry.0 += 1;
        }
    }
    let text = |(index, (count, example)): (u32, (usize, String))| {
        let name = &strict.get(&index)?.name;
        // A dot in a link's name is a slash in a sysctl's.
        let in_sysctl = name.replace('.', "/");
        Some(format!(
            "net.ipv4.conf.{in_sysctl}.rp_filter is strict, and drops what comes by {name} from {count} sources that the node reaches by another \
             link ({example}): loosen it with `sysctl -w net.ipv4.conf.{in_sysctl}.rp_filter=2`"
        ))
    };
    dropped.into_iter().filter_map(text).collect()
}

fn link_name(netlink: &mut Netlink, index: u32) -> String {
    netlink.link_by_index(index).ok().flatten().map_or_else(|| format!("if{index}"), |link| link.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_neighbours_is_told_of_before_it_is_full() {
        assert_eq!(too_many(818, 1024, "ipv4"), None);
        let said = too_many(820, 1024, "ipv4").unwrap();
        assert!(
            said.contains("820 nodes") && said.contains("at most 1024") && said.contains("ipv4.neigh.default.gc_thresh3=4096"),
            "{said}"
        );
        assert!(too_many(5000, 1024, "ipv6").unwrap().contains("net.ipv6.neigh.default.gc_thresh3=32768"));
    }

    #[test]
    fn only_direct_routes_have_nodes_as_neighbours() {
        let route = |via: &str, device| between::Route { via: Some(via.parse().unwrap()), device, onlink: false };
        let vxlan = Device::Vxlan { over: between::Family::V4, vni: 1, port: 4789 };
        let mut plan = Plan::default();
        for (range, route) in [
            ("10.1.1.0/24", route("192.0.2.1", Device::Link(2))),
            ("10.1.2.0/24", route("192.0.2.1", Device::Link(2))),
            ("10.1.3.0/24", route("10.1.3.0", vxlan)),
            ("fd00:1::/64", route("2001:db8::1", Device::Link(2))),
        ] {
            plan.routes.insert(range.parse().unwrap(), route);
        }
        assert_eq!((direct(&plan, Family::V4), direct(&plan, Family::V6)), (1, 1));
    }
}
