//! What must come of a cluster, by nested loops over everything: it shares no code with the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netloom_between::{Mode, Tunnel};

use crate::follow::Kind;
use crate::world::{Member, World};

/// First and last address of a range, as numbers of one family.
#[derive(Debug, Clone, Copy)]
struct Span {
    v4: bool,
    first: u128,
    last: u128,
}

pub(crate) struct Oracle<'a> {
    world: &'a World,
    owned: Vec<(String, IpNet)>,
    mtus: BTreeMap<String, Option<u32>>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn of(world: &'a World) -> Self {
        let mut oracle = Oracle { world, owned: Vec::new(), mtus: BTreeMap::new() };
        let mut members: Vec<&Member> = world.members.iter().collect();
        members.sort_by(|one, two| if older(one, two) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater });
        for member in members {
            let mut mine: Vec<IpNet> = Vec::new();
            for range in &member.seen.ranges {
                let inside = member.seen.ranges.iter().any(|outer| outer != range && contains(outer, range));
                if !inside && !mine.contains(range) && oracle.is_free(member, range) {
                    mine.push(*range);
                }
            }
            oracle.owned.extend(mine.into_iter().map(|range| (member.seen.name.clone(), range)));
        }
        oracle.mtus = world.nodes().map(|name| (name.clone(), oracle.count_mtu(name))).collect();
        oracle
    }

    /// Every range that a node has without conflict.
    pub(crate) fn owned(&self) -> &[(String, IpNet)] {
        &self.owned
    }

    pub(crate) fn owner(&self, address: IpAddr) -> Option<(&String, &IpNet)> {
        self.owned.iter().find(|(_, range)| range.contains(&address)).map(|(name, range)| (name, range))
    }

    /// Whether a node may have a range, where the ranges of all older nodes are known.
    fn is_free(&self, member: &Member, range: &IpNet) -> bool {
        let taken = self.owned.iter().any(|(_, other)| meet(span(range), span(other)));
        let endpoint = self.world.members.iter().filter(|other| !older(member, other)).any(|other| {
            let found = [true, false].map(|v4| self.endpoint(other, v4));
            found.into_iter().flatten().any(|endpoint| range.contains(&endpoint))
        });
        !is_reserved(range) && !taken && !endpoint
    }

    /// The endpoint of a node that no older one has, itself or in a range.
    pub(crate) fn endpoint(&self, member: &Member, v4: bool) -> Option<IpAddr> {
        let endpoint = first(member, v4)?;
        let taken = self.world.members.iter().any(|other| older(other, member) && first(other, v4) == Some(endpoint));
        let ranges = self.owned.iter().filter(|(owner, _)| older(self.world.get(owner), member));
        let within = ranges.into_iter().any(|(_, range)| range.contains(&endpoint));
        (!taken && !within).then_some(endpoint)
    }

    /// Where vxlan packets come from, to a node that takes some: not from a node that says it has another mode.
    pub(crate) fn endpoints(&self, at: &str) -> BTreeSet<IpAddr> {
        let mode = self.world.get(at).mode;
        let is_used = matches!(mode, Mode::Vxlan | Mode::Auto(Tunnel::Vxlan));
        let sends = |member: &&Member| is_used && (member.seen.name == at || member.seen.mode.is_none_or(|of_member| of_member == mode));
        let of = |member| [true, false].map(|v4| self.endpoint(member, v4));
        self.world.members.iter().filter(sends).flat_map(of).flatten().collect()
    }

    /// Whether a packet to an address may leave a node encrypted alone: it is in a range of a node that is reached so, also if that lost it,
    /// and nobody else is known to be there.
    pub(crate) fn is_closed(&self, at: &str, address: IpAddr) -> bool {
        let links = &self.world.get(at).own.links;
        let mut subnets = links.iter().flat_map(|link| &link.addresses).filter(|net| !is_link_local(net.addr()));
        let is_endpoint = || self.world.members.iter().any(|member| first(member, address.is_ipv4()) == Some(address));
        let owner = self.owner(address);
        if subnets.any(|net| net.contains(&address)) || (owner.is_none() && is_endpoint()) {
            return false;
        }
        if let Some((owner, range)) = owner {
            return owner != at && self.is_encrypted(at, owner, range);
        }
        self.world.members.iter().filter(|member| member.seen.name != at).any(|member| {
            let ranges = &member.seen.ranges;
            let mut counted = ranges.iter().filter(|range| !ranges.iter().any(|outer| outer != *range && contains(outer, range)));
            counted.any(|range| range.contains(&address) && !is_reserved(range) && self.is_encrypted(at, &member.seen.name, range))
        })
    }

    /// How the owner of a range is reached from a node; `None` if it is not.
    pub(crate) fn path(&self, from: &str, to: &str, range: &IpNet) -> Option<Kind> {
        let v4 = range.addr().is_ipv4();
        if self.is_local(from, range) || (!v4 && self.mtu(from).is_some_and(|mtu| mtu < 1280)) {
            return None;
        }
        self.kind(from, to, v4)
    }

    /// Whether a node does not route a range, nor give its addresses to devices, because of its own subnets.
    pub(crate) fn is_local(&self, at: &str, range: &IpNet) -> bool {
        let links = &self.world.get(at).own.links;
        let mut subnets = links.iter().flat_map(|link| &link.addresses).filter(|net| !is_link_local(net.addr()));
        subnets.any(|subnet| meet(span(subnet), span(range)))
    }

    /// Whether packets to a range may leave a node encrypted alone.
    pub(crate) fn is_encrypted(&self, from: &str, to: &str, range: &IpNet) -> bool {
        let (a, b, v4) = (self.world.get(from), self.world.get(to), range.addr().is_ipv4());
        match a.mode {
            Mode::WireGuard => true,
            Mode::Auto(Tunnel::WireGuard) => !self.endpoint(a, v4).zip(self.endpoint(b, v4)).is_some_and(|(here, there)| {
                let mut subnets = a.own.links.iter().flat_map(|link| &link.addresses).filter(|net| !is_link_local(net.addr()));
                subnets.any(|net| net.contains(&here) && net.contains(&there))
            }),
            _ => false,
        }
    }

    /// How packets for ranges of a family get from one node to another one.
    pub(crate) fn kind(&self, from: &str, to: &str, v4: bool) -> Option<Kind> {
        let (a, b) = (self.world.get(from), self.world.get(to));
        if b.seen.mode.is_some_and(|mode| mode != a.mode) {
            return None;
        }
        let own = |address: IpAddr| a.own.links.iter().flat_map(|link| &link.addresses).any(|net| net.addr() == address);
        // Subnets of these worlds do not overlap: one contains the peer, or none does.
        let subnet = |address: IpAddr| {
            let all = a.own.links.iter().flat_map(|link| &link.addresses);
            all.filter(|net| !is_link_local(net.addr())).find(|net| net.contains(&address))
        };
        let both = |v4| Some((self.endpoint(a, v4)?, self.endpoint(b, v4)?));
        let tunnel = match a.mode {
            Mode::Direct => {
                let (_, there) = both(v4)?;
                return (subnet(there).is_some() && !own(there)).then_some(Kind::Direct);
            }
            Mode::Vxlan => Tunnel::Vxlan,
            Mode::WireGuard => Tunnel::WireGuard,
            Mode::Auto(tunnel) => {
                if let Some((here, there)) = both(v4)
                    && subnet(there).is_some_and(|net| net.contains(&here))
                {
                    return (!own(there)).then_some(Kind::Direct);
                }
                tunnel
            }
        };
        let over_v4 = both(true).is_some();
        let (_, there) = both(true).or(both(false))?;
        if own(there) {
            return None;
        }
        if tunnel == Tunnel::Vxlan {
            let copied = |member: &Member| self.world.members.iter().any(|other| older(other, member) && other.seen.uid == member.seen.uid);
            return (!copied(a) && !copied(b)).then_some(Kind::Vxlan(over_v4));
        }
        (self.has_key(a, a) && self.has_key(a, b)).then_some(Kind::WireGuard(over_v4))
    }

    /// Whether one node sees a key of another one that no older one has, nor the node itself.
    fn has_key(&self, viewer: &Member, member: &Member) -> bool {
        let is_own = viewer.seen.name == member.seen.name;
        let older = || self.world.members.iter().filter(|other| older(other, member));
        let is_taken = |key: &[u8; 32]| counted(viewer).contains(key) || older().any(|other| counted(other).contains(key));
        counted(member).iter().any(|key| is_own || !is_taken(key))
    }

    /// Whether two nodes may see differently which keys they have: who announces another node's key is believed by nobody who knows better.
    pub(crate) fn is_contested(&self, one: &str, other: &str) -> bool {
        let keys = [one, other].map(|name| counted(self.world.get(name)));
        let copied = |name: &str, keys: &[[u8; 32]]| {
            let mut others = self.world.members.iter().filter(|member| member.seen.name != name);
            others.any(|member| counted(member).iter().any(|key| keys.contains(key)))
        };
        copied(one, &keys[0]) || copied(other, &keys[1])
    }

    /// What a node's pods get.
    pub(crate) fn mtu(&self, name: &str) -> Option<u32> {
        self.mtus[name]
    }

    /// The smallest link, less the largest header of what is exchanged with anybody.
    fn count_mtu(&self, name: &str) -> Option<u32> {
        let member = self.world.get(name);
        let header = |kind: Kind| match kind {
            Kind::Direct => 0,
            Kind::Vxlan(true) => 50,
            Kind::Vxlan(false) => 70,
            Kind::WireGuard(true) => 60,
            Kind::WireGuard(false) => 80,
        };
        let only_v6 = self.endpoint(member, true).is_none() && self.endpoint(member, false).is_some();
        let mut most = match member.mode {
            Mode::Direct | Mode::Auto(_) => 0,
            Mode::Vxlan => header(Kind::Vxlan(!only_v6)),
            Mode::WireGuard => header(Kind::WireGuard(!only_v6)),
        };
        for other in self.world.nodes() {
            for v4 in [true, false].into_iter().filter(|_| other != name) {
                let here = |who: &str| {
                    let of = self.owned.iter().filter(|(owner, range)| owner == who && range.addr().is_ipv4() == v4);
                    of.filter(|(_, range)| !self.is_local(name, range)).count()
                };
                if here(name) + here(other) > 0 {
                    most = most.max(self.kind(name, other, v4).map_or(0, header));
                }
            }
        }
        member.own.links.iter().map(|link| link.mtu - most).min()
    }
}

/// The keys of a node that count: the last two, one for each port.
fn counted(member: &Member) -> Vec<[u8; 32]> {
    match member.seen.keys.as_slice() {
        [.., old, new] if old.port != new.port => vec![old.key, new.key],
        [.., new] => vec![new.key],
        [] => Vec::new(),
    }
}

fn first(member: &Member, v4: bool) -> Option<IpAddr> {
    let useless = |address: &IpAddr| address.is_loopback() || is_link_local(*address);
    member.seen.endpoints.iter().copied().find(|address| address.is_ipv4() == v4 && !useless(address))
}

fn is_reserved(range: &IpNet) -> bool {
    let reserved = ["10.96.0.0/12", "fd96::/112", "127.0.0.0/8", "::1/128"];
    reserved.iter().any(|text| meet(span(range), span(&text.parse().unwrap())))
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[0] == 0xfe80)
}

fn older(one: &Member, two: &Member) -> bool {
    one.seen.created < two.seen.created || (one.seen.created == two.seen.created && one.seen.name < two.seen.name)
}

fn contains(outer: &IpNet, inner: &IpNet) -> bool {
    let (outer, inner) = (span(outer), span(inner));
    outer.v4 == inner.v4 && outer.first <= inner.first && inner.last <= outer.last
}

fn meet(one: Span, two: Span) -> bool {
    one.v4 == two.v4 && one.first <= two.last && two.first <= one.last
}

fn span(net: &IpNet) -> Span {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    Span { v4: net.addr().is_ipv4(), first: number(net.network()), last: number(net.broadcast()) }
}
