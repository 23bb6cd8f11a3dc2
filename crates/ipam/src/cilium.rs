//! Cilium's CRD-backed mode: what a node's `CiliumNode` means for its addresses, without a clock or a request.
//!
//! ```text
//!   spec.ipam.pool --Offer::read--> Offer --granted--> Granted --> the store
//!   status.ipam.release-ips --answers(freeze)--> the same, answered      frozen first, told afterwards
//!   the store's leases, its gateways --used--> status.ipam.used
//! ```
//!
//! Each key of the pool is a block of the pool [`POOL`]: usually of one address. Such an object has no epochs, so they are counted
//! here: a key whose block this node has given back, or whose owner has changed, comes as another life of it.

mod offer;
mod status;
#[cfg(test)]
mod tests;

pub use offer::{Offer, Offered, Skipped, required};
pub use status::{answers, owner, routers, used};

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{CiliumIpamStatus, Release};
use pool::{Allocator, Ask, Block, Family, Key, Order, Origin, Reuse, Run, Spec, State, Terms, Want};

use crate::pool::Granted;

/// The pool that a node's object is, for `type: pool`.
pub const POOL: &str = "default";

/// Who has an address for the node itself, as the status calls it.
pub const ROUTER: &str = "router";
/// The same: what other nodes probe.
pub const HEALTH: &str = "health";

/// What the node's own settings say, which the object does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Local {
    /// The prefix length that an interface gets, IPv4 and IPv6.
    pub prefixes: [u8; 2],
    /// For how many milliseconds an address rests that was given back.
    pub cooldown: u64,
    /// Whether the node takes an address for probes besides the router's.
    pub health: bool,
}

/// The attachment that the node itself is. No network has an empty name, so GC of none of them frees it.
#[must_use]
pub fn own_key(of: &str, family: Family) -> Key {
    Key { network: String::new(), container: of.to_owned(), ifname: family.to_string() }
}

/// Whether it is one that [`own_key`] makes.
#[must_use]
pub fn is_own(key: &Key) -> bool {
    key.network.is_empty()
}

/// The address that the node itself has as a router: the gateway of all pods.
#[must_use]
pub fn router(now: &Allocator, family: Family) -> Option<IpAddr> {
    now.spec(POOL)?.terms(family).gateway
}

/// What the node asks for itself, of one family.
#[must_use]
pub fn own_ask(of: &str, family: Family) -> Ask {
    let want = Want { pool: POOL.to_owned(), family, address: None };
    Ask { key: own_key(of, family), pod: None, claim: None, wants: vec![want] }
}

/// What the store is to have. The node itself comes before all pods: as a router it has one address of each family, for good, if it
/// can be the one that it would rather have. What has been promised stays promised while the object says how far it is; where it
/// says so no more, the operator has thought better of it.
#[must_use]
pub fn granted(offer: &Offer, status: &CiliumIpamStatus, now: &Allocator, local: &Local) -> Granted {
    let promised = offer::leaving(&status.release_ips, is_promised);
    // An answer of which nobody knows whether it arrived may arrive yet.
    let leaving = offer::leaving(&status.release_ips, |release| is_promised(release) || *release == Release::MarkedForRelease);
    let known = Family::ALL.into_iter().flat_map(|family| now.blocks(POOL, family));
    let known: BTreeMap<Run, (&Block, State)> = known.map(|(block, state)| (block.run, (block, state))).collect();
    let mut last = now.last_epoch(POOL);
    let mut blocks = Vec::with_capacity(offer.entries.len());
    for entry in &offer.entries {
        let leaves = promised.contains(&entry.run);
        // What was promised under another key, which is there no more, nobody gets of this one.
        let runs = if leaves { vec![entry.run] } else { offer::without(entry.run, &promised) };
        for run in runs {
            let is_same =
                |(block, state): &&(&Block, State)| block.claim == entry.pin && (*state != State::Frozen || leaving.contains(&run));
            let (epoch, state) = match known.get(&run).filter(is_same) {
                Some((block, _)) => (block.epoch, State::Active),
                None => {
                    last += 1;
                    (last, if leaves { State::Frozen } else { State::Active })
                }
            };
            blocks.push((Block { pool: POOL.to_owned(), run, epoch, claim: entry.pin.clone() }, state));
        }
    }
    Granted { spec: spec(offer, status, now, local), blocks }
}

fn spec(offer: &Offer, status: &CiliumIpamStatus, now: &Allocator, local: &Local) -> Spec {
    let mut spec = Spec::new(POOL, POOL);
    spec.origin = Origin::CiliumNode;
    spec.reuse = Reuse { cooldown: local.cooldown, order: Order::Fifo };
    spec.exclude.clone_from(&offer.edges);
    let there = families(offer, status, now, local);
    let terms = |family: Family, prefix: u8| {
        let gateway = || router(now, family).or_else(|| offer.pick(family, status, now));
        if there.contains(&family) { Terms { prefix, gateway: gateway() } } else { Terms::default() }
    };
    let [v4, v6] = local.prefixes;
    spec.v4 = terms(Family::V4, v4);
    spec.v6 = terms(Family::V6, v6);
    spec
}

/// The families of which each pod gets an address: a new one when there is more of it than the node itself needs, or pods would wait
/// for what a few stray addresses promise; where that is so of none, the one that there is most of.
fn families(offer: &Offer, status: &CiliumIpamStatus, now: &Allocator, local: &Local) -> Vec<Family> {
    let usable = |family: Family| offer.usable(family, &status.release_ips);
    let begins = |family: Family| usable(family) > own_addresses(local.health);
    let stays = |family: Family| {
        // An object that was emptied does not say that there will be no addresses again.
        let is_offered = offer.entries.is_empty() || offer.entries.iter().any(|entry| entry.run.family() == family);
        is_offered && now.spec(POOL).is_some_and(|spec| spec.has(family))
    };
    let there: Vec<Family> = Family::ALL.into_iter().filter(|family| stays(*family) || begins(*family)).collect();
    if there.is_empty() {
        Family::ALL.into_iter().filter(|family| usable(*family) > 0).rev().max_by_key(|f| usable(*f)).into_iter().collect()
    } else {
        there
    }
}

/// How many addresses of a family the node itself takes.
fn own_addresses(health: bool) -> u128 {
    1 + u128::from(health)
}

/// Whether the operator takes it back, or has.
fn is_promised(release: &Release) -> bool {
    matches!(release, Release::ReadyForRelease | Release::Released)
}

/// A key as addresses, however it is written.
fn run_of(key: &str) -> Option<Run> {
    key.parse().ok()
}
