//! What each node has once conflicts are settled: the part that all nodes decide alike.
//!
//! Nodes are taken in the order of their creation, then of their names. Each keeps what no earlier one has kept, be it an endpoint or a range: a
//! range without an earlier node's endpoint, an endpoint outside of earlier nodes' ranges. What a node loses is in nobody's way: a later node
//! may have it. Of WireGuard keys alone each node has its own memory: a copy does not take a key from the node
//! that is known to have it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{Family, Mac, Mode, NodeSeen, OwnNode, Problem, PublicKey, Settings, Tunnel, vtep_mac};

/// Addresses that no pod can have: this host (RFC 1122), loopback, link-local, multicast and what is above it. So a default route is no range.
const NEVER: [IpNet; 7] = [
    v4(Ipv4Addr::new(0, 0, 0, 0), 8),
    v4(Ipv4Addr::new(127, 0, 0, 0), 8),
    v4(Ipv4Addr::new(169, 254, 0, 0), 16),
    v4(Ipv4Addr::new(224, 0, 0, 0), 3),
    v6(Ipv6Addr::UNSPECIFIED, 127),
    v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// A node with what it may use.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub(crate) seen: &'a NodeSeen,
    /// Disjoint from each other and from those of all members.
    pub(crate) ranges: Vec<IpNet>,
    /// Ranges of its Node that are not among them because somebody else has a part of them, or the own node's subnets have.
    pub(crate) refused: Vec<IpNet>,
    /// Whether a range of its Node is not among them.
    pub(crate) lacks_ranges: bool,
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
    /// `None` if an older node has the same one.
    pub(crate) mac: Option<Mac>,
    /// The newest last; no port twice, and no rotation.
    pub(crate) keys: Vec<TunnelKey>,
}

/// A WireGuard key, with the port of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelKey {
    pub(crate) key: [u8; 32],
    pub(crate) port: u16,
    pub(crate) rotation: u64,
}

/// What members have, with the name of who has it.
#[derive(Debug, Default)]
pub(crate) struct ClaimedValues<'a> {
    endpoints: BTreeMap<IpAddr, &'a str>,
    macs: BTreeMap<Mac, &'a str>,
    keys: BTreeMap<[u8; 32], &'a str>,
    /// By the first address.
    ranges: BTreeMap<IpAddr, (IpNet, &'a str)>,
}

/// All nodes in order, with what they keep, and what is taken; what they lose is a problem.
pub(crate) fn members<'a>(
    settings: &Settings,
    own: &OwnNode,
    nodes: impl IntoIterator<Item = &'a NodeSeen>,
    problems: &mut BTreeSet<Problem>,
) -> (Vec<Member<'a>>, ClaimedValues<'a>) {
    let mut order: Vec<&NodeSeen> = nodes.into_iter().collect();
    order.sort_by_key(|seen| (&seen.created, &seen.name, &seen.uid));
    let mut taken = ClaimedValues::default();
    if settings.mode.tunnel() == Some(Tunnel::WireGuard) {
        taken.reserve_keys(settings, own, &order);
    }
    let mut members: Vec<Member<'a>> = Vec::with_capacity(order.len());
    for seen in order {
        // A node's endpoints come before its ranges, and both before all of a later node: no later node's address takes a range away.
        let mut member = taken.member(settings, seen, problems);
        for range in outermost(&seen.ranges) {
            match taken.take_range(settings, seen, range) {
                Ok(()) => member.ranges.push(range),
                Err(problem) => {
                    member.lacks_ranges = true;
                    // What is reserved stays reachable, and so does all that a mistake like a range of everything has around it.
                    if !matches!(problem, Problem::RangeReserved { .. } | Problem::RangeOutside { .. }) {
                        member.refused.push(range);
                    }
                    problems.insert(problem);
                }
            }
        }
        problems.extend(lacks_endpoint(seen));
        members.push(member);
    }
    (members, taken)
}

fn lacks_endpoint(seen: &NodeSeen) -> Option<Problem> {
    let has_endpoint = endpoint_of(seen, Family::V4).or(endpoint_of(seen, Family::V6)).is_some();
    (!seen.ranges.is_empty() && !has_endpoint).then(|| Problem::NoEndpoint { node: seen.name.clone() })
}

/// Whether two ranges have an address in common: CIDR ranges do if one contains the other.
pub(crate) fn overlap(one: &IpNet, two: &IpNet) -> bool {
    one.contains(two) || two.contains(one)
}

/// What a Node claims of what only one may have, whatever becomes of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    endpoints: Vec<IpAddr>,
    mac: Mac,
    ranges: Vec<IpNet>,
}

/// The claims of many Nodes, with how often there is each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    endpoints: BTreeMap<IpAddr, usize>,
    macs: BTreeMap<Mac, usize>,
    ranges: BTreeMap<IpNet, usize>,
}

// === impl Claim ===

impl Claim {
    pub(crate) fn of(seen: &NodeSeen) -> Self {
        let endpoints = [Family::V4, Family::V6].into_iter().filter_map(|family| endpoint_of(seen, family)).collect();
        Claim { endpoints, mac: vtep_mac(&seen.uid), ranges: outermost(&seen.ranges) }
    }

    /// The Node with all that it claims, and what is wrong with it all the same; `None` if nobody can have that, or not the own node.
    pub(crate) fn member<'a>(&self, settings: &Settings, own: &OwnNode, seen: &'a NodeSeen) -> Option<(Member<'a>, Option<Problem>)> {
        let subnets = || own.links.iter().flat_map(|link| &link.addresses).map(IpNet::trunc);
        for range in &self.ranges {
            let is_never = settings.reserved.iter().chain(&NEVER).any(|reserved| overlap(reserved, range));
            let holds_endpoint = self.endpoints.iter().any(|endpoint| range.contains(endpoint));
            if is_never || settings.is_outside(range) || holds_endpoint || subnets().any(|subnet| overlap(&subnet, range)) {
                return None;
            }
        }
        let [v4, v6] = [Family::V4, Family::V6].map(|family| endpoint_of(seen, family));
        let mac = (settings.mode.tunnel() == Some(Tunnel::Vxlan)).then_some(self.mac);
        let member = Member { seen, ranges: self.ranges.clone(), refused: Vec::new(), lacks_ranges: false, v4, v6, mac, keys: Vec::new() };
        Some((member, lacks_endpoint(seen)))
    }
}

// === impl Claims ===

impl Claims {
    pub(crate) fn add(&mut self, claim: &Claim) {
        claim.endpoints.iter().for_each(|endpoint| *self.endpoints.entry(*endpoint).or_default() += 1);
        claim.ranges.iter().for_each(|range| *self.ranges.entry(*range).or_default() += 1);
        *self.macs.entry(claim.mac).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, claim: &Claim) {
        claim.endpoints.iter().for_each(|endpoint| one_less(&mut self.endpoints, endpoint));
        claim.ranges.iter().for_each(|range| one_less(&mut self.ranges, range));
        one_less(&mut self.macs, &claim.mac);
    }

    /// Whether any of these claims is in the way of another one. Each look is into a sorted table: ranges that lie in one follow it there,
    /// and those around it have one of its shorter prefixes.
    pub(crate) fn meet(&self, claim: &Claim) -> bool {
        let is_around = |net: IpNet| (0..=net.prefix_len()).any(|length| is_claimed(&self.ranges, net, length));
        let holds = |range: &IpNet| {
            let last = IpNet::from(range.broadcast());
            self.endpoints.range(range.network()..=range.broadcast()).next().is_some() || self.ranges.range(*range..=last).next().is_some()
        };
        let is_held = |endpoint: &IpAddr| self.endpoints.contains_key(endpoint) || is_around(IpNet::from(*endpoint));
        self.macs.contains_key(&claim.mac)
            || claim.endpoints.iter().any(is_held)
            || claim.ranges.iter().any(|range| holds(range) || is_around(*range))
    }
}

fn is_claimed(ranges: &BTreeMap<IpNet, usize>, net: IpNet, length: u8) -> bool {
    IpNet::new(net.addr(), length).is_ok_and(|around| ranges.contains_key(&around.trunc()))
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

// === impl Member ===

impl Member<'_> {
    /// Where packets to this node are sent.
    pub(crate) fn endpoint(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Where its vxlan packets come from; nowhere, where the mode uses no vxlan, or the node is known to have another mode than the own node's:
    /// no packet goes there, so none is taken from there. The own node (`own`) has the mode whatever its Node says yet.
    pub(crate) fn vxlan_endpoints(&self, mode: Mode, own: &str) -> impl Iterator<Item = IpAddr> {
        let is_other = self.seen.mode.is_some_and(|announced| announced != mode) && self.seen.name != own;
        let is_used = mode.tunnel() == Some(Tunnel::Vxlan) && !is_other;
        [self.v4, self.v6].into_iter().flatten().filter(move |_| is_used)
    }

    /// Whether it has an endpoint of any family.
    pub(crate) fn is_reachable(&self) -> bool {
        self.v4.or(self.v6).is_some()
    }

    /// Its ranges of a family.
    pub(crate) fn ranges_of(&self, family: Family) -> impl Iterator<Item = &IpNet> {
        self.ranges.iter().filter(move |range| Family::of(range.addr()) == family)
    }

    /// The name of its Node.
    pub(crate) fn name(&self) -> String {
        self.seen.name.clone()
    }
}

// === impl ClaimedValues ===

impl<'a> ClaimedValues<'a> {
    /// Gives keys to those who are known to have had them, before the age of Nodes counts: whoever may write a Node may copy a key into it,
    /// and an older Node would take the tunnel away from the key's owner. The own node knows its own keys best.
    fn reserve_keys(&mut self, settings: &Settings, own: &OwnNode, order: &[&'a NodeSeen]) {
        let keys = |seen: &NodeSeen| keys_of(settings, seen).into_iter().map(|own| own.key).collect::<Vec<_>>();
        for seen in order.iter().filter(|seen| seen.name == own.name) {
            self.keys.extend(keys(seen).into_iter().map(|key| (key, seen.name.as_str())));
        }
        for seen in order {
            let had = |ranges: &BTreeSet<IpNet>| seen.ranges.iter().any(|range| ranges.contains(&range.trunc()));
            for key in keys(seen).into_iter().filter(|key| own.known.get(key).is_some_and(had)) {
                self.keys.entry(key).or_insert(&seen.name);
            }
        }
    }

    /// A node with all that it keeps but its ranges.
    fn member(&mut self, settings: &Settings, seen: &'a NodeSeen, problems: &mut BTreeSet<Problem>) -> Member<'a> {
        let [v4, v6] = [Family::V4, Family::V6].map(|family| {
            let endpoint = endpoint_of(seen, family)?;
            if let Some((range, other)) = self.range_of(endpoint) {
                problems.insert(Problem::EndpointInRange { node: seen.name.clone(), endpoint, other: other.to_owned(), range });
                return None;
            }
            keep(&mut self.endpoints, endpoint, &seen.name)
                .map_err(|other| problems.insert(Problem::SameEndpoint { node: seen.name.clone(), other: other.to_owned(), endpoint }))
                .ok()
        });
        let mut member = Member { seen, ranges: Vec::new(), refused: Vec::new(), lacks_ranges: false, v4, v6, mac: None, keys: Vec::new() };
        match settings.mode.tunnel() {
            Some(Tunnel::Vxlan) => {
                let mac = vtep_mac(&seen.uid);
                member.mac = keep(&mut self.macs, mac, &seen.name)
                    .map_err(|other| problems.insert(Problem::SameMac { node: seen.name.clone(), other: other.to_owned(), mac }))
                    .ok();
            }
            Some(Tunnel::WireGuard) => {
                for tunnel_key in keys_of(settings, seen) {
                    match keep(&mut self.keys, tunnel_key.key, &seen.name) {
                        Ok(_) => member.keys.push(tunnel_key),
                        Err(other) => drop(problems.insert(Problem::SameKey { node: seen.name.clone(), other: other.to_owned() })),
                    }
                }
            }
            None => {}
        }
        member
    }

    /// The range that an address lies in, and who has it.
    fn range_of(&self, address: IpAddr) -> Option<(IpNet, &'a str)> {
        self.ranges.range(..=address).next_back().map(|(_, kept)| *kept).filter(|(range, _)| range.contains(&address))
    }

    /// Takes a range for a node, if nobody has a part of it.
    ///
    /// Those that are kept are disjoint. So of all that begin before this one ends, the last one overlaps with it if any does: one look
    /// into a sorted table instead of a comparison with every other node.
    fn take_range(&mut self, settings: &Settings, seen: &'a NodeSeen, range: IpNet) -> Result<(), Problem> {
        let node = || seen.name.clone();
        let last = self.ranges.range(..=range.broadcast()).next_back();
        if let Some(reserved) = settings.reserved.iter().chain(&NEVER).find(|reserved| overlap(reserved, &range)) {
            Err(Problem::RangeReserved { node: node(), range, reserved: *reserved })
        } else if settings.is_outside(&range) {
            Err(Problem::RangeOutside { node: node(), range })
        } else if let Some((endpoint, other)) = self.endpoints.range(range.network()..=range.broadcast()).next() {
            Err(Problem::RangeHoldsEndpoint { node: node(), range, other: (*other).to_owned(), endpoint: *endpoint })
        } else if let Some((_, (other_range, other))) = last.filter(|(_, (kept, _))| overlap(kept, &range)) {
            Err(Problem::RangeOverlap { node: node(), range, other: (*other).to_owned(), other_range: *other_range })
        } else {
            self.ranges.insert(range.network(), (range, &seen.name));
            Ok(())
        }
    }

    /// The parts of a node's range that no other node has anything of, and that lie in none of these subnets: as few as there can be, the largest
    /// first, and at most so many. Whether there are more.
    pub(crate) fn rest_of(&self, node: &str, range: IpNet, subnets: &[IpNet], most: usize) -> (Vec<IpNet>, bool) {
        // Those that are kept are disjoint: one may lie around the range, and all others begin in it.
        let begin = || range.network()..=range.broadcast();
        let around = self.range_of(range.network()).into_iter();
        let of_others = self.ranges.range(begin()).map(|(_, kept)| *kept).chain(around).filter(|(_, owner)| *owner != node);
        let endpoints = self.endpoints.range(begin()).map(|(endpoint, _)| IpNet::from(*endpoint));
        let of_subnets = subnets.iter().filter(|subnet| overlap(subnet, &range)).copied();
        parts(range, of_others.map(|(kept, _)| kept).chain(endpoints).chain(of_subnets).collect(), most)
    }
}

/// Halves a range until each part is taken as a whole, or not at all; the latter, the largest first, and at most so many. Whether there are more.
pub(crate) fn parts(range: IpNet, taken: Vec<IpNet>, most: usize) -> (Vec<IpNet>, bool) {
    let mut parts = Vec::new();
    let mut level = vec![(range, taken)];
    // There are no more of one length than are taken, twice.
    while !level.is_empty() {
        let mut halves = Vec::new();
        for (range, taken) in level {
            if taken.is_empty() {
                if parts.len() == most {
                    return (parts, true);
                }
                parts.push(range);
            } else if !taken.iter().any(|taken| taken.contains(&range)) {
                let of_half = |half: IpNet| (half, taken.iter().filter(|taken| overlap(taken, &half)).copied().collect());
                halves.extend(range.subnets(range.prefix_len() + 1).into_iter().flatten().map(of_half));
            }
        }
        level = halves;
    }
    (parts, false)
}

/// Takes something that only one node may have; or the node that has it.
fn keep<'a, K: Ord + Copy>(taken: &mut BTreeMap<K, &'a str>, key: K, node: &'a str) -> Result<K, &'a str> {
    match *taken.entry(key).or_insert(node) {
        owner if owner == node => Ok(key),
        owner => Err(owner),
    }
}

/// The first InternalIP of a family that packets can be sent to. A link-local one says nothing without a link.
fn endpoint_of(seen: &NodeSeen, family: Family) -> Option<IpAddr> {
    let never = |address: &IpAddr| NEVER.iter().any(|net| net.contains(address));
    seen.endpoints.iter().map(IpAddr::to_canonical).find(|address| Family::of(*address) == family && !never(address))
}

/// The keys that count: the last two, and of two with one port or of one rotation the later one.
fn keys_of(settings: &Settings, seen: &NodeSeen) -> Vec<TunnelKey> {
    let mut keys: Vec<TunnelKey> = Vec::new();
    for announced in seen.keys.iter().rev().take(2).rev() {
        let PublicKey { key, rotation, .. } = *announced;
        let port = announced.port.unwrap_or(settings.wireguard_port);
        keys.retain(|before| before.port != port && before.rotation != rotation);
        keys.push(TunnelKey { key, port, rotation });
    }
    keys
}

/// A node's ranges without their host bits, and without those that lie in another one of the same node. In their order such a one comes
/// behind the one around it: a node may have thousands of blocks.
fn outermost(ranges: &[IpNet]) -> Vec<IpNet> {
    let all: BTreeSet<IpNet> = ranges.iter().map(IpNet::trunc).collect();
    let mut outer: Vec<IpNet> = Vec::with_capacity(all.len());
    for range in all {
        if !outer.last().is_some_and(|last| last.contains(&range)) {
            outer.push(range);
        }
    }
    outer
}

const fn v4(address: Ipv4Addr, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(address, prefix))
}

const fn v6(address: Ipv6Addr, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(address, prefix))
}
