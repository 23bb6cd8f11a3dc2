//! What a cluster's operator has granted a node, and what the node says to that: pure.
//!
//! ```text
//!   NodeIPPool.spec   --node_grants--> Granted, for PoolStore::grant; pools that end
//!   what is in use    --node_demand--> NodeIPPool.status.demand, in whole blocks
//!                     --surplus------> how many addresses of which pool are too many
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{
    AddressUser, ConflictDetection, Demand, GrantedFamily, GrantedIp, GrantedPool, Holder, Holding, MOST_BLOCKS, NodeIpPoolSpec, Owner,
    Returning,
};
use pool::{Allocator, Block, Family, Key, Origin, Pod, Run, Spec, State, Terms, Unavailable};

use super::granted::Granted;
use super::stock::Stocks;
use crate::cilium;

/// No claim is named so: a claim's name has no space.
const KEPT_FOR: &str = "attachment ";
/// The most users of a block that are told.
const USERS: usize = 16;

/// What a node's object grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGrants {
    /// Its pools, with all blocks.
    pub pools: Vec<Granted>,
    /// Pools of which nothing is handed out any more, and the blocks of them that the node has yet.
    pub ending: BTreeMap<String, Vec<Block>>,
    /// What cannot be read, a sentence each. It is as if it were not there.
    pub unread: Vec<String>,
}

/// An attachment for which a single address is kept, and that has no lease: it was made before this node's agent was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFor {
    /// The pod, `namespace/name`.
    pub pod: String,
    /// Its container's ID; empty: nobody knows.
    pub container: String,
    /// Its interface.
    pub ifname: String,
}

/// How many addresses of a pool's family a node has too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surplus {
    /// The pool.
    pub pool: String,
    /// The family.
    pub family: Family,
    /// So many addresses.
    pub addresses: u128,
    /// For so many seconds they must have been too many before a block is given back.
    pub delay: u64,
}

/// Reads what a node's object grants. `returning`: what this node's agents have said before that they give back; a block in it
/// with its epoch is never used, even if nothing else remembers it.
#[must_use]
pub fn node_grants(spec: &NodeIpPoolSpec, returning: &[Returning]) -> NodeGrants {
    let mut grants = NodeGrants::default();
    let mut blocks = blocks_of(spec, returning, &mut grants.unread);
    for (name, pool) in &spec.pools {
        let own = blocks.remove(name).unwrap_or_default();
        match spec_of(name, pool) {
            _ if pool.ending => drop(grants.ending.insert(name.clone(), own.into_iter().map(|(block, _)| block).collect())),
            Ok(spec) => grants.pools.push(Granted { spec, blocks: own }),
            Err(why) => grants.unread.push(format!("pool {name:?}: {why}")),
        }
    }
    // Blocks of a pool without terms: nobody can be given an address without a prefix length.
    for (pool, blocks) in blocks {
        grants.unread.push(format!("pool {pool:?}: it has blocks but no terms"));
        grants.ending.insert(pool, blocks.into_iter().map(|(block, _)| block).collect());
    }
    grants
}

fn blocks_of(spec: &NodeIpPoolSpec, returning: &[Returning], unread: &mut Vec<String>) -> BTreeMap<String, Vec<(Block, State)>> {
    let mut all: BTreeMap<String, Vec<(Block, State)>> = BTreeMap::new();
    let frozen = |block: &Block| {
        let same =
            |r: &&Returning| r.epoch == block.epoch && r.pool == block.pool && r.cidr.parse::<Run>().is_ok_and(|run| run == block.run);
        if returning.iter().any(|r| same(&r)) { State::Frozen } else { State::Active }
    };
    let whole = spec.blocks.iter().map(|b| (&b.cidr, &b.pool, b.epoch, None));
    let single = spec.ips.iter().map(|ip| (&ip.ip, &ip.pool, ip.epoch, Some(owner_name(&ip.owner))));
    for (text, pool, epoch, claim) in whole.chain(single) {
        match text.parse::<Run>() {
            Ok(run) => {
                let block = Block { pool: pool.clone(), run, epoch, claim };
                let state = frozen(&block);
                all.entry(pool.clone()).or_default().push((block, state));
            }
            Err(e) => unread.push(format!("pool {pool:?}: block {e}")),
        }
    }
    all
}

impl KeptFor {
    /// Reads what [`owner_name`] has made of such an owner; `None`: it is another one's.
    #[must_use]
    pub fn parse(claim: &str) -> Option<Self> {
        let mut words = claim.strip_prefix(KEPT_FOR)?.split(' ').map(str::to_owned);
        Some(KeptFor { pod: words.next()?, container: words.next()?, ifname: words.next()? })
    }
}

impl std::fmt::Display for KeptFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{KEPT_FOR}{} {} {}", self.pod, self.container, self.ifname)
    }
}

/// Whom the owner's name of a block means, in words: `claim shop/db`, `pod shop/web-0`, `pod shop/web-0, net1 of container 3f2a`.
#[must_use]
pub fn owner_in_words(name: &str) -> String {
    match owner_of(name) {
        Owner { pod, attachment: Some(Holder { container_id, ifname }), .. } => {
            let container = if container_id.is_empty() { String::new() } else { format!(" of container {container_id}") };
            format!("pod {pod}, {ifname}{container}")
        }
        Owner { pod, .. } if !pod.is_empty() => format!("pod {pod}"),
        Owner { claim, .. } => format!("claim {claim}"),
    }
}

/// Who an address is for, as [`pool::Block::claim`] has it.
#[must_use]
pub fn owner_name(owner: &Owner) -> String {
    let name = |pod: &str| {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() }.pin()
    };
    match (&owner.attachment, owner.claim.as_str(), owner.pod.as_str()) {
        (_, claim, _) if !claim.is_empty() && owner.migrates => pool::migrating(claim),
        (_, claim, _) if !claim.is_empty() => claim.to_owned(),
        (Some(Holder { container_id, ifname }), ..) => {
            KeptFor { pod: owner.pod.clone(), container: container_id.clone(), ifname: ifname.clone() }.to_string()
        }
        (None, _, pod) => name(pod),
    }
}

/// Whose an address is that is for somebody of that name: the other way round.
fn owner_of(name: &str) -> Owner {
    match (KeptFor::parse(name), Pod::pinned(name)) {
        (Some(KeptFor { pod, container, ifname }), _) => {
            Owner { pod, attachment: Some(Holder { container_id: container, ifname }), ..Owner::default() }
        }
        (None, Some(pod)) => Owner { pod: pod.to_owned(), ..Owner::default() },
        (None, None) => {
            let migrating = pool::migrating_of(name);
            Owner { claim: migrating.unwrap_or(name).to_owned(), migrates: migrating.is_some(), ..Owner::default() }
        }
    }
}

fn spec_of(name: &str, pool: &GrantedPool) -> Result<Spec, String> {
    let mut spec = Spec::new(name, if pool.network.is_empty() { name } else { &pool.network });
    spec.origin = Origin::Cluster;
    spec.v4 = terms_of(Family::V4, pool.ipv4.as_ref())?;
    spec.v6 = terms_of(Family::V6, pool.ipv6.as_ref())?;
    spec.exclude = runs("exclude", &pool.exclude)?;
    spec.reserved = runs("reserved", &pool.reserved)?;
    (spec.reuse, spec.scaling) = ledger::rates(&pool.reuse, &pool.scaling);
    spec.probe = pool.conflict_detection == ConflictDetection::Probe;
    Ok(spec)
}

fn runs(place: &str, texts: &[String]) -> Result<Vec<Run>, String> {
    texts.iter().map(|text| text.parse().map_err(|e| format!("{place}: {e}"))).collect()
}

fn terms_of(family: Family, raw: Option<&GrantedFamily>) -> Result<Terms, String> {
    let Some(raw) = raw else { return Ok(Terms::default()) };
    let gateway = raw.gateway.as_deref().map(|text| {
        let gateway = text.parse::<IpAddr>().ok().filter(|g| Family::of(*g) == family);
        gateway.ok_or_else(|| format!("its gateway {text:?} is not an {family} address"))
    });
    let prefix = if raw.prefix_length == 0 { family.bits() } else { raw.prefix_length.min(family.bits()) };
    Ok(Terms { prefix, gateway: gateway.transpose()? })
}

/// The addresses of a block, as far as they can be counted.
pub(super) fn block_size(family: Family, raw: &GrantedFamily) -> u64 {
    let host = u32::from(family.bits().saturating_sub(raw.block_prefix));
    if raw.block_prefix == 0 { 1 } else { 1_u64.checked_shl(host).unwrap_or(u64::MAX) }
}

pub(super) fn families(pool: &GrantedPool) -> impl Iterator<Item = (Family, &GrantedFamily)> {
    [(Family::V4, pool.ipv4.as_ref()), (Family::V6, pool.ipv6.as_ref())].into_iter().filter_map(|(f, raw)| Some((f, raw?)))
}

/// Whether a pool of this name is the host's own, which the cluster's of that name does not get before nobody has anything of it: its
/// blocks are none of the cluster's, nor is what is in use of it.
pub(super) fn is_own(all: &Allocator, pool: &str) -> bool {
    all.origin(pool) == Some(Origin::File)
}

/// How much of each pool a node needs, where it needs any, with its stocks as they were looked at last. Both families of a pool are needed for the same pods.
#[must_use]
pub fn node_demand(all: &Allocator, spec: &NodeIpPoolSpec, stocks: &Stocks) -> Vec<Demand> {
    let of_pool = |(name, pool): (&String, &GrantedPool)| {
        let mut demand = Demand { pool: name.clone(), ..Demand::default() };
        if is_own(all, name) {
            return demand;
        }
        for (family, raw) in families(pool) {
            let (size, in_use) = (block_size(family, raw), all.usage(name, family).held);
            // More is never granted, and not even heard.
            let kept = all.want(name, family, size).min(size.saturating_mul(MOST_BLOCKS));
            let want = with_stock(kept, name, family, pool, stocks).min(size.saturating_mul(MOST_BLOCKS));
            demand.waiting |= all.usage(name, family).is_short();
            let blocks = all.blocks_held(name, family);
            match family {
                Family::V4 => (demand.v4, demand.in_use_v4, demand.blocks_v4, demand.stock_v4) = (want, in_use, blocks, want - kept),
                Family::V6 => (demand.v6, demand.in_use_v6, demand.blocks_v6, demand.stock_v6) = (want, in_use, blocks, want - kept),
            }
        }
        demand
    };
    let is_any = |demand: &Demand| demand.waiting || demand.v4.max(demand.v6) > 0 || demand.in_use_v4.max(demand.in_use_v6) > 0;
    spec.pools.iter().filter(|(_, pool)| !pool.ending).map(of_pool).filter(is_any).collect()
}

/// What a node wants of a pool and family with its stock, where it wants so many without.
fn with_stock(kept: u64, name: &str, family: Family, pool: &GrantedPool, stocks: &Stocks) -> u64 {
    let most = if pool.scaling.max_allocate == 0 { u64::MAX } else { pool.scaling.max_allocate };
    stocks.wants(name, family).min(most).max(kept)
}

/// Whether a node needs more of a pool than it has.
#[must_use]
pub fn lacks(all: &Allocator, demand: &[Demand]) -> bool {
    let more = |pool: &str, needed: u64, family| u128::from(needed) > has(all, pool, family);
    demand.iter().any(|d| more(&d.pool, d.v4, Family::V4) || more(&d.pool, d.v6, Family::V6))
}

/// How many addresses it has of a pool, for anybody.
pub(super) fn has(all: &Allocator, pool: &str, family: Family) -> u128 {
    let active = all.blocks(pool, family).filter(|(block, state)| *state != State::Frozen && block.claim.is_none());
    active.fold(0_u128, |sum, (block, _)| sum.saturating_add(block.run.count()))
}

/// In how many blocks what is in use lies, IPv4 and IPv6, where the node is asked for those that it does not need; 0 otherwise.
#[must_use]
pub fn blocks_in_use(spec: &NodeIpPoolSpec, demand: Option<&Demand>) -> (u64, u64) {
    let Some((demand, pool)) = demand.and_then(|demand| Some((demand, spec.pools.get(&demand.pool)?))) else { return (0, 0) };
    let blocks = |is_ipv4| {
        let asked = pool.family(is_ipv4).is_some_and(|raw| raw.keep.is_some());
        if asked { demand.blocks(is_ipv4) } else { 0 }
    };
    (blocks(true), blocks(false))
}

/// Whether a node that had told that something is in use in each of its blocks has one that can be asked for.
#[must_use]
pub fn has_emptied(spec: &NodeIpPoolSpec, told: &Demand, now: &Demand) -> bool {
    let is_of = |cidr: &str, is_ipv4: bool| cidr.parse().is_ok_and(|run: Run| (run.family() == Family::V4) == is_ipv4);
    let has = |is_ipv4| spec.blocks.iter().filter(|block| block.pool == now.pool && is_of(&block.cidr, is_ipv4)).count() as u64;
    let emptied = |is_ipv4| told.blocks(is_ipv4) > now.blocks(is_ipv4) && told.blocks(is_ipv4) >= has(is_ipv4);
    emptied(true) || emptied(false)
}

/// What a node has above what it needs and may keep; where it is asked for blocks, above what it cannot do without.
#[must_use]
pub fn surplus(all: &Allocator, spec: &NodeIpPoolSpec, stocks: &Stocks) -> Vec<Surplus> {
    let mut found = Vec::new();
    for (name, pool) in spec.pools.iter().filter(|(name, _)| !is_own(all, name)) {
        for (family, raw) in families(pool) {
            let size = block_size(family, raw);
            let (want, above, delay) = match (pool.ending, raw.keep) {
                (true, _) => (0, 0, 0),
                (false, Some(keep)) => (all.need(name, family, size).max(keep.saturating_mul(size)), 0, 0),
                (false, None) => {
                    let want = with_stock(all.want(name, family, size), name, family, pool, stocks);
                    (want, pool.scaling.max_above_watermark, pool.scaling.release_delay_seconds)
                }
            };
            let addresses = has(all, name, family).saturating_sub(u128::from(want)).saturating_sub(u128::from(above));
            if addresses > 0 {
                found.push(Surplus { pool: name.clone(), family, addresses, delay });
            }
        }
    }
    found
}

/// Blocks of a cluster's pools of which this node has something yet and that its object does not name: its Node was made anew, say, or
/// that object and the ledger were lost.
#[must_use]
pub fn node_holding(all: &Allocator, spec: &NodeIpPoolSpec) -> Vec<Holding> {
    let named = |block: &Block| {
        let whole = spec.blocks.iter().map(|b| (&b.cidr, &b.pool, b.epoch));
        let mut both = whole.chain(spec.ips.iter().map(|ip| (&ip.ip, &ip.pool, ip.epoch)));
        both.any(|(text, pool, epoch)| *pool == block.pool && epoch == block.epoch && text.parse().is_ok_and(|run: Run| run == block.run))
    };
    let of_cluster = all.every_pool().filter(|pool| all.origin(pool) == Some(Origin::Cluster));
    let blocks = of_cluster.flat_map(|pool| Family::ALL.into_iter().flat_map(|family| all.blocks(pool, family)));
    let is_used = |block: &Block| all.is_used(block) || is_kept(block);
    let kept = blocks.filter(|(block, state)| *state != State::Frozen && is_used(block) && !named(block));
    let users = |block: &Block, network: &str| -> Vec<AddressUser> {
        let held = all.all_taken(network).filter(|(ip, _)| block.run.contains(*ip)).filter_map(|(ip, taken)| match taken {
            Unavailable::Held(key) => Some((ip, key)),
            Unavailable::Cooling { .. } | Unavailable::Quarantined { .. } => None,
        });
        let user = |(ip, key): (IpAddr, &Key)| {
            let pod = all.lease(key).and_then(|lease| lease.pod.as_ref()).map(|pod| format!("{}/{}", pod.namespace, pod.name));
            AddressUser { ip: ip.to_string(), pod: pod.unwrap_or_else(|| key.container.clone()) }
        };
        held.map(user).take(USERS).collect()
    };
    let holding = |(block, _): (&Block, State)| {
        let Returning { cidr, pool, epoch } = returning(block);
        let network = all.network(&pool).unwrap_or(&pool).to_owned();
        let (owner, users) = (block.claim.as_deref().map(owner_of).unwrap_or_default(), users(block, &network));
        Holding { cidr, network, pool, epoch, owner, users }
    };
    let mut holding: Vec<Holding> = kept.map(holding).collect();
    holding.sort();
    // No more can be told.
    holding.truncate(usize::try_from(MOST_BLOCKS).unwrap_or(usize::MAX));
    holding
}

/// Whether anything on this node has an address that it was granted: of any pool, also of one that ends or has no terms any more. The node's
/// own addresses are none of its pods'.
#[must_use]
pub fn node_in_use(all: &Allocator) -> bool {
    let is_granted = |pool: &str| !is_own(all, pool);
    let mut leases = all.leases().filter(|lease| !cilium::is_own(&lease.key));
    let leased = leases.any(|lease| lease.addresses.iter().any(|leased| is_granted(&leased.pool)));
    let granted = || all.every_pool().filter(|pool| is_granted(pool)).flat_map(|pool| Family::ALL.map(|family| (pool, family)));
    // What nobody explains is in a namespace.
    let quarantined = || granted().any(|(pool, family)| all.usage(pool, family).quarantined > 0);
    let kept = |(block, state): (&Block, State)| state != State::Frozen && is_kept(block);
    leased || quarantined() || granted().flat_map(|(pool, family)| all.blocks(pool, family)).any(kept)
}

/// Whether an address is kept for an attachment that was there before this agent, and has no lease.
fn is_kept(block: &Block) -> bool {
    block.claim.as_deref().is_some_and(|claim| KeptFor::parse(claim).is_some())
}

/// The single addresses that a node is asked to return.
#[must_use]
pub fn recalled(spec: &NodeIpPoolSpec) -> Vec<Block> {
    let block = |ip: &GrantedIp| Some(Block { pool: ip.pool.clone(), run: ip.ip.parse().ok()?, epoch: ip.epoch, claim: None });
    spec.ips.iter().filter(|ip| ip.ending).filter_map(block).collect()
}

/// A block as a node tells of it.
#[must_use]
pub fn returning(block: &Block) -> Returning {
    let cidr = match block.run.prefix() {
        Some(prefix) => format!("{}/{prefix}", block.run.first()),
        None => block.run.to_string(),
    };
    Returning { cidr, pool: block.pool.clone(), epoch: block.epoch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_an_address_is_stays_as_it_is_told() {
        let claim = Owner { claim: "ns/vm".to_owned(), ..Owner::default() };
        let migrating = Owner { migrates: true, ..claim.clone() };
        let pod = Owner { pod: "ns/web-0".to_owned(), ..Owner::default() };
        let attachment = Owner { attachment: Some(Holder { container_id: "c".to_owned(), ifname: "net1".to_owned() }), ..pod.clone() };
        let all = [claim, migrating, pod, attachment];
        for owner in &all {
            assert_eq!(owner_of(&owner_name(owner)), *owner);
        }
        assert_ne!(owner_name(&all[0]), owner_name(&all[1]));
        let told = all.map(|owner| owner_in_words(&owner_name(&owner)));
        assert_eq!(told, ["claim ns/vm", "claim ns/vm", "pod ns/web-0", "pod ns/web-0, net1 of container c"]);
    }

    /// An allocator with the block 10.0.0.0/30 of the pool `p`, or one address of it where somebody's name stands there.
    fn granted(origin: Origin, claim: Option<String>) -> Allocator {
        let mut spec = Spec::new("p", "p");
        spec.origin = origin;
        let run = if claim.is_some() { "10.0.0.0" } else { "10.0.0.0/30" };
        let block = Block { pool: "p".to_owned(), run: run.parse().unwrap(), epoch: 1, claim };
        let mut all = Allocator::new(0);
        assert_eq!(Granted { spec, blocks: vec![(block, State::Active)] }.apply(&mut all), Some(Vec::new()));
        all
    }

    fn attach(all: &mut Allocator, key: &Key) {
        let want = pool::Want { pool: "p".to_owned(), family: Family::V4, address: None };
        all.reserve(&pool::Ask { key: key.clone(), pod: None, claim: None, wants: vec![want] }, &pool::Moment::default()).unwrap();
    }

    #[test]
    fn what_is_in_use_is_so_whatever_becomes_of_its_pool() {
        let key = Key { network: "net".to_owned(), container: "c".to_owned(), ifname: "eth0".to_owned() };
        let gone = pool::Event::PoolGone { pool: "p".to_owned() };
        for origin in [Origin::Cluster, Origin::CiliumNode] {
            let mut all = granted(origin, None);
            assert!(!node_in_use(&all), "{origin:?}");
            // What the node itself has is no pod's.
            attach(&mut all, &cilium::own_key(cilium::ROUTER, Family::V4));
            assert!(!node_in_use(&all), "{origin:?}");
            attach(&mut all, &key);
            assert!(node_in_use(&all), "{origin:?}");
            all.apply(&gone);
            assert!(node_in_use(&all), "{origin:?}: of a pool that ends");
            all.release(&key, None, &pool::Moment::default());
            assert!(!node_in_use(&all), "{origin:?}: it rests");
        }
        let mut own = granted(Origin::Cluster, None);
        own.apply(&pool::Event::Pool(Spec { origin: Origin::File, ..own.spec("p").unwrap().clone() }));
        attach(&mut own, &key);
        assert!(!node_in_use(&own), "a pool of the host's own");
        // It was there before this agent, and has no lease.
        let kept = KeptFor { pod: "ns/web-0".to_owned(), container: "c".to_owned(), ifname: "net1".to_owned() }.to_string();
        let mut kept = granted(Origin::Cluster, Some(kept));
        assert!(node_in_use(&kept));
        kept.apply(&pool::Event::Frozen { pool: "p".to_owned(), run: "10.0.0.0".parse().unwrap(), epoch: 1 });
        assert!(!node_in_use(&kept));
        assert!(!node_in_use(&granted(Origin::Cluster, Some("ns/claim".to_owned()))), "no pod has what is kept for a claim");
        // Somebody has it, and nobody knows who.
        let mut unknown = granted(Origin::Cluster, None);
        let taken = Unavailable::Quarantined { since: pool::Moment::default(), millis: 1000, by: "x".to_owned() };
        unknown.apply(&pool::Event::Quarantined { pool: "p".to_owned(), address: "10.0.0.1".parse().unwrap(), taken });
        assert!(node_in_use(&unknown));
    }
}
