//! What the object's status says of this node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{CiliumAddress, Release};
use pool::{Allocator, Family, Lease, Run};

use super::{Offer, POOL, ROUTER, is_own, router, run_of};

/// How far each address is that is taken back, but the node's own. `freeze` makes sure that nobody gets a block any more, so that it is true whatever
/// happens next, and says whether that is so: not where somebody has it.
pub fn answers(
    offer: &Offer,
    routers: &[IpAddr],
    before: &BTreeMap<String, Release>,
    mut freeze: impl FnMut(Run) -> bool,
) -> BTreeMap<String, Release> {
    let mut after = BTreeMap::new();
    for (key, release) in before {
        let offered = run_of(key).filter(|run| offer.has(run));
        let answer = match (release, offered) {
            // It has gone, and this is the last word of it.
            (Release::Released, None) => continue,
            (Release::MarkedForRelease | Release::ReadyForRelease, Some(run)) => {
                if !routers.iter().any(|router| run.contains(*router)) && freeze(run) {
                    Release::ReadyForRelease
                } else {
                    Release::DoNotRelease
                }
            }
            // Nobody can give back what it has not, or not under that name.
            (Release::MarkedForRelease, None) => Release::DoNotRelease,
            (other, _) => other.clone(),
        };
        after.insert(key.clone(), answer);
    }
    after
}

/// Who has which address: pods as `namespace/name`, the node itself as what it needs it for.
#[must_use]
pub fn used(offer: &Offer, before: &BTreeMap<String, CiliumAddress>, now: &Allocator) -> BTreeMap<String, CiliumAddress> {
    let own = routers(now).into_iter().map(|address| (address, ROUTER.to_owned()));
    let leased = now.leases().flat_map(|lease| {
        let of_pool = lease.addresses.iter().filter(|leased| leased.pool == POOL);
        of_pool.map(move |leased| (leased.address, owner(lease)))
    });
    let told = |(address, owner): (IpAddr, String)| {
        let key = address.to_string();
        // Of one that has left the object its last words hold.
        let known = || before.get(&key).map(|a| a.resource.clone());
        let resource = offer.resource(address).map(str::to_owned).or_else(known).unwrap_or_default();
        (key, CiliumAddress { owner, resource })
    };
    own.chain(leased).map(told).collect()
}

/// The addresses that the node itself has as a router.
#[must_use]
pub fn routers(now: &Allocator) -> Vec<IpAddr> {
    Family::ALL.into_iter().filter_map(|family| router(now, family)).collect()
}

/// Who holds a lease: a pod as `namespace/name`, the node itself as what it needs it for.
#[must_use]
pub fn owner(lease: &Lease) -> String {
    match &lease.pod {
        _ if is_own(&lease.key) => lease.key.container.clone(),
        Some(pod) => pod.to_string(),
        None => lease.key.to_string(),
    }
}
