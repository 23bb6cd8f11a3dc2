//! What one network namespace has, as `verify` reads it: links, addresses, routes, rules, neighbours, forwarding databases, the settings that drop
//! packets, and the ruleset.
//!
//! Read only, and told whole: what cannot be read is named in the snapshot, and the rest is there. What is more than there is room for is
//! named as well.

use std::collections::HashMap;
use std::fmt::Display;

use linux::link::{Ipv6Conf, PortState};
use linux::{
    AddrFlags, Errno, Family, Inside, Link, MacvlanMode, Netlink, Netns, RouteFilter, RouteKind, RuleAction, Sysctl, SysctlError, nft,
    xtables,
};
use verify::{Address, BridgePort, End, FdbEntry, FullTable, Namespace, Neighbour, Place, PortVlan, QueueDiscipline, Route, Rule, Tunnel};

use crate::node_own::virtual_servers;

/// Bytes of the kernel's messages that are kept of a namespace: of its links, addresses, routes and neighbours, and of its rules. In memory they
/// are two to three times as much, and an agent's container has 128 MiB.
const LISTS: usize = 4 << 20;
const RULES: usize = 12 << 20;

/// Another namespace, in which the other end of a link may be.
pub type PeerNamespace<'a> = (Place, &'a Netns);

/// What could not be read, and why.
#[derive(Default)]
struct Unread(Vec<String>);

/// Observes the namespace where the caller is. `beside`: where the other ends of its links may be.
pub fn observe(inside: &Inside, place: Place, node: Option<String>, beside: &[PeerNamespace<'_>]) -> Namespace {
    let mut unread = Unread::default();
    let mut seen = Namespace {
        place,
        node,
        links: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        forwards_ipv6: false,
        ttl: 0,
        tables: Vec::new(),
        unread: Vec::new(),
        agent: None,
        full_tables: Vec::new(),
    };
    if let Some(mut netlink) = unread.keep("netlink", Netlink::open(inside)) {
        netlink.limit_lists(LISTS);
        let numbers = beside.iter().filter_map(|(place, netns)| Some((netlink.number_of(netns).ok()??, place))).collect();
        let links = unread.keep("links", netlink.links()).unwrap_or_default();
        seen.links = links.iter().map(|link| observed(inside, &mut netlink, link, (&seen.place, &numbers), &mut unread)).collect();
        let filters: Vec<u32> = seen.links.iter().filter(|link| link.filters_vlans).map(|link| link.index).collect();
        let of_bridge =
            |link: &&mut verify::Link| filters.contains(&link.index) || link.master.is_some_and(|master| filters.contains(&master));
        for link in seen.links.iter_mut().filter(of_bridge) {
            let vlans = unread.keep(&format!("VLANs of {}", link.name), netlink.port_vlans(link.index)).unwrap_or_default();
            link.vlans = vlans.iter().map(port_vlan).collect();
        }
        for address in unread.keep("addresses", netlink.addresses(None)).unwrap_or_default() {
            // IFA_F_DADFAILED, IFA_F_TENTATIVE; what is optimistic is usable.
            let usable = address.flags.bits() & 0x48 == 0 || address.flags.contains(AddrFlags::NODAD);
            let of = seen.links.iter_mut().find(|link| link.index == address.index);
            if let Some(link) = of {
                link.addresses.push(Address { net: address.net, usable });
            }
        }
        seen.routes = unread.keep("routes", netlink.routes(RouteFilter::default())).unwrap_or_default().iter().map(route).collect();
        let rules = match netlink.rules(None) {
            // A kernel without policy routing has none.
            Err(e) if matches!(e.errno(), Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT) => Vec::new(),
            rules => unread.keep("rules of policy routing", rules).unwrap_or_default(),
        };
        seen.rules = rules.iter().map(rule).collect();
        // All namespaces of a kernel have the same.
        if matches!(seen.place, Place::Node(_)) {
            seen.full_tables =
                [Family::V4, Family::V6].into_iter().filter_map(|family| full_table(&mut netlink, family, &mut unread)).collect();
        }
        unread.left_out("links, neighbours, addresses or routes", netlink.left_out(), LISTS);
    }
    seen.forwards_ipv6 = unread.is_on(inside, &["net", "ipv6", "conf", "all", "forwarding"]);
    seen.ttl = unread.number(inside, &["net", "ipv4", "ip_default_ttl"]);
    if let Some(mut socket) = unread.keep("nftables", nft::Socket::open(inside)) {
        socket.limit_lists(RULES);
        seen.tables = unread.keep("nftables", socket.ruleset()).unwrap_or_default();
        unread.left_out("nftables", socket.left_out(), RULES);
    }
    unread.note_other_rules(inside);
    Namespace { unread: unread.0, ..seen }
}

/// A table of neighbours that has been full.
fn full_table(netlink: &mut Netlink, family: Family, unread: &mut Unread) -> Option<FullTable> {
    let table = unread.keep("tables of neighbours", netlink.neighbour_table(family))?.filter(|table| table.refused > 0)?;
    let cleared = u64::try_from(table.cleared.as_millis()).unwrap_or(u64::MAX);
    Some(FullTable { is_ipv4: family == Family::V4, entries: table.entries, most: table.most, refused: table.refused, cleared })
}

fn observed(
    inside: &Inside,
    netlink: &mut Netlink,
    link: &Link,
    (own, numbers): (&Place, &HashMap<i32, &Place>),
    unread: &mut Unread,
) -> verify::Link {
    let name = link.name.as_str();
    let is_bridge = link.is("bridge");
    let fdb = match () {
        () if is_bridge => {
            let stations = unread.keep(&format!("entries of {name}"), netlink.stations(link.index)).unwrap_or_default();
            stations.into_iter().map(|(mac, port)| FdbEntry { mac, port: Some(port), endpoint: None }).collect()
        }
        () if link.vxlan.is_some() => {
            let entries = unread.keep(&format!("entries of {name}"), netlink.fdb(link.index)).unwrap_or_default();
            entries.into_iter().map(|entry| FdbEntry { mac: entry.mac, port: None, endpoint: entry.endpoint }).collect()
        }
        () => Vec::new(),
    };
    // A port has no neighbours of its own.
    let neighbours = match link.master {
        Some(_) => Vec::new(),
        None => unread.keep(&format!("neighbours of {name}"), netlink.neighbours(link.index)).unwrap_or_default(),
    };
    // A bridge may have it of its own, or as all bridges of the namespace; without the module it has neither.
    let of_its_own = link.bridge.and_then(|bridge| bridge.netfilter) == Some(true);
    let mut filters = |setting: &str| is_bridge && (of_its_own || unread.is_on(inside, &["net", "bridge", setting]));
    let (filters_ipv4, filters_ipv6) = (filters("bridge-nf-call-iptables"), filters("bridge-nf-call-ip6tables"));
    let place = link.link_netnsid.map_or(Some(own), |number| numbers.get(&number).copied());
    let other = link.parent.zip(place).map(|(index, place)| End { place: place.clone(), index });
    verify::Link {
        index: link.index,
        name: link.name.clone(),
        kind: link.kind.clone().unwrap_or_default(),
        mac: link.mac.clone(),
        mtu: link.mtu,
        up: link.flags.up(),
        carrier: link.flags.lower_up(),
        master: link.master,
        other,
        addresses: Vec::new(),
        vlan: link.vlan,
        private: link.macvlan.is_some_and(|macvlan| macvlan.mode == MacvlanMode::Private),
        vepa: link.macvlan.is_some_and(|macvlan| macvlan.mode == MacvlanMode::Vepa),
        tunnel: link.vxlan.map(|vxlan| Tunnel { vni: vxlan.vni, port: vxlan.port, local: vxlan.local, remote: vxlan.remote }),
        port: link.port_state.map(|state| port(state, link)),
        neighbours: neighbours.into_iter().map(|n| Neighbour { address: n.address, mac: n.mac, permanent: n.permanent }).collect(),
        fdb,
        forwards_ipv4: unread.is_on(inside, &["net", "ipv4", "conf", name, "forwarding"]),
        rp_filter: unread
            .number(inside, &["net", "ipv4", "conf", "all", "rp_filter"])
            .max(unread.number(inside, &["net", "ipv4", "conf", name, "rp_filter"])),
        hop_limit: link.ipv6(Ipv6Conf::HopLimit).and_then(|limit| u8::try_from(limit).ok()).unwrap_or(0),
        ipv6_disabled: link.ipv6(Ipv6Conf::DisableIpv6) == Some(1),
        filters_vlans: link.bridge.and_then(|bridge| bridge.vlan_filtering) == Some(true),
        vlans: Vec::new(),
        filters_ipv4,
        filters_ipv6,
        no_arp: link.flags.noarp(),
        qdiscs: [
            unread.keep("traffic control", netlink.root_qdisc(link.index)),
            unread.keep("traffic control", netlink.ingress_qdisc(link.index)),
        ]
        .into_iter()
        .filter_map(Option::flatten)
        .map(|qdisc| QueueDiscipline { kind: qdisc.kind, dropped: qdisc.dropped.into(), grown: None })
        .collect(),
    }
}

fn port(state: PortState, link: &Link) -> BridgePort {
    let state = match state {
        PortState::Disabled => "disabled",
        PortState::Listening => "listening",
        PortState::Learning => "learning",
        PortState::Forwarding => "forwarding",
        PortState::Blocking => "blocking",
        _ => "unknown",
    };
    let flags = link.port.unwrap_or_default();
    BridgePort {
        state: state.to_owned(),
        isolated: flags.isolated == Some(true),
        locked: flags.locked == Some(true),
        no_flood: flags.flood == Some(false),
        no_broadcast: flags.bcast_flood == Some(false),
    }
}

fn port_vlan(vlan: &linux::link::PortVlan) -> PortVlan {
    PortVlan { first: vlan.first, last: vlan.last, pvid: vlan.pvid, untagged: vlan.untagged }
}

fn route(route: &linux::Route) -> Route {
    let kind = match route.kind {
        RouteKind::Unicast => verify::RouteKind::Unicast,
        RouteKind::Local => verify::RouteKind::Local,
        RouteKind::Broadcast => verify::RouteKind::Broadcast,
        RouteKind::Blackhole => verify::RouteKind::Blackhole,
        RouteKind::Unreachable => verify::RouteKind::Unreachable,
        RouteKind::Prohibit => verify::RouteKind::Prohibit,
        _ => verify::RouteKind::Other,
    };
    let ways = route.ways().collect();
    Route { to: route.dst, ways, table: route.table, metric: route.priority, kind, from: route.from, source: route.src, mtu: route.mtu }
}

fn rule(rule: &linux::Rule) -> Rule {
    // FR_ACT_BLACKHOLE to FR_ACT_PROHIBIT refuse; `goto` and `nop` decide nothing by themselves.
    let (table, is_odd) = match rule.action {
        RuleAction::Table => (Some(rule.table), false),
        RuleAction::Other(6..=8) => (None, false),
        RuleAction::Other(_) => (None, true),
        _ => (None, true),
    };
    Rule {
        priority: rule.priority,
        is_ipv4: rule.family == Family::V4,
        from: rule.from,
        to: rule.to,
        iif: rule.iif.clone(),
        oif: rule.oif.clone(),
        mark: rule.mark,
        suppress: rule.suppress,
        table,
        negated: rule.negated && !rule.has_more && !is_odd,
        // A reader of before knows no `not`: it passes the rule over.
        has_more: rule.has_more || is_odd || rule.negated,
    }
}

// === impl Unread ===

impl Unread {
    /// What was more than there is room for.
    fn left_out(&mut self, what: &str, bytes: usize, limit: usize) {
        if bytes > 0 {
            self.0.push(format!("{what}: {} KiB are left out: more than {} MiB", bytes.div_ceil(1024), limit >> 20));
        }
    }

    /// Rules that netlink does not show: those of legacy iptables, and virtual servers of IPVS.
    fn note_other_rules(&mut self, inside: &Inside) {
        for (family, note) in [Family::V4, Family::V6].into_iter().zip(verify::LEGACY) {
            let tables = self.keep(note, xtables::legacy_tables_in_use(inside, family)).unwrap_or_default();
            if !tables.is_empty() {
                let program = note.trim_start_matches("legacy ");
                self.0.push(format!("{note}: the rules of its tables {} ({program}-legacy-save shows them)", tables.join(", ")));
            }
        }
        if self.keep(verify::IPVS, virtual_servers::is_any()).unwrap_or(false) {
            self.0.push(format!("{}: what its virtual servers do (ipvsadm -Ln shows them)", verify::IPVS));
        }
    }

    /// A setting that is a number; 0 where the kernel does not have it, and where it could not be read, which is noted.
    fn number(&mut self, inside: &Inside, name: &[&str]) -> u8 {
        match Sysctl::new(name.iter().copied()).and_then(|sysctl| sysctl.read(inside)) {
            Err(SysctlError::Read { errno: Errno::ENOENT, .. }) => 0,
            value => self.keep("settings", value).and_then(|value| self.keep(&name.join("."), value.parse())).unwrap_or(0),
        }
    }

    fn is_on(&mut self, inside: &Inside, name: &[&str]) -> bool {
        self.number(inside, name) != 0
    }

    /// What was read; what was not is noted.
    fn keep<T, E: Display>(&mut self, what: &str, read: Result<T, E>) -> Option<T> {
        read.map_err(|e| self.0.push(format!("{what}: {e}"))).ok()
    }
}
