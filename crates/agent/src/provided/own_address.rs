//! The address of each family that the node itself has of the pool [`CLUSTER_NETWORK`], where it sends through tunnels.
//!
//! What a node sends to a pod behind a tunnel has to come from an address whose answers come back through it: the network below need not carry
//! packets of pods. A Node's own range has its first address for that. Of a pool the node takes one as a pod does, and keeps it over restarts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use api::CLUSTER_NETWORK;
use ipam::cilium::own_key;
use ipam::{PoolStore, PoolStoreError};
use pool::{Ask, Family, Want};

/// Who has it, in the journal.
const HOLDER: &str = "node";
/// What is granted is told here and to the store at the same time: the store writes it to the disk first.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Takes an address of each of these families, unless the node has one, and gives back those of others: a pool that is deleted needs all of
/// its own. `None`: it is not known which, and what the node has it keeps. Those that the node has then, and why it has not all at this time.
pub(super) fn keep(store: &PoolStore, families: Option<&BTreeSet<Family>>, until: Instant) -> (BTreeSet<IpAddr>, Option<PoolStoreError>) {
    let (mut has, mut failed) = (BTreeSet::new(), None);
    for family in Family::ALL {
        let key = own_key(HOLDER, family);
        let lease = match (store.lease(&key), families.map(|families| families.contains(&family))) {
            (None, Some(false) | None) => continue,
            (Some(_), Some(false)) => store.release(&key, None).map(|_| None),
            (Some(lease), Some(true) | None) => Ok(Some(lease)),
            (None, Some(true)) => {
                let want = Want { pool: CLUSTER_NETWORK.to_owned(), family, address: None };
                store.reserve_by(&Ask { key, pod: None, claim: None, wants: vec![want] }, until).map(Some)
            }
        };
        match lease {
            Ok(lease) => has.extend(lease.iter().flat_map(|lease| &lease.addresses).map(|leased| leased.address)),
            Err(e) => failed = Some(e),
        }
    }
    (has, failed)
}
