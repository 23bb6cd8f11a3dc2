//! Machines outside that have an address of a pool: told in the log, to the pod that was to have it or has it, and in the node's object.

use api::Problem;
use cluster::EventKind;
use ipam::{AddressConflict, PoolStore, Was};
use pool::{Family, Origin, Unavailable};

use crate::Agent;
use crate::log::Line;

/// The most addresses with a problem that are told.
const PROBLEMS: usize = 16;

impl Agent {
    /// Tells what was met since this was called last.
    pub(crate) fn tell_conflicts(&self) {
        let Some(addresses) = &self.addresses else { return };
        for AddressConflict { pool, address, by, was, pod } in addresses.store.take_conflicts() {
            let line = Line::warn("addresses").with("pool", &pool).with("conflict", address).with("by", &by);
            let (line, now) = match &was {
                Was::Granted(key) => {
                    (line.with("container", &key.container), "it is not assigned for an hour; the attachment gets another address")
                }
                Was::Held(key) => {
                    (line.with("container", &key.container), "the attachment keeps it; after its release it is not assigned for an hour")
                }
                Was::Free => (line, "it is not assigned for an hour after it was last seen"),
            };
            line.with("now", now).end();
            let (too, next) = match was {
                Was::Held(_) => (" too", "give that machine another address, or exclude this one in the IPPool and recreate the pod"),
                Was::Granted(_) | Was::Free => ("", "exclude it in the IPPool, or give that machine another address"),
            };
            let known = pod.and_then(|pod| self.cluster.pod(&pod.namespace, &pod.name));
            let message = format!("address {address} of pool {pool} is used by another machine{too}, {by}: {next}");
            if let Some(pod) = known {
                self.event(&pod, EventKind::Warning, "AddressConflict", &message);
            }
        }
    }
}

/// What another machine answers for, or was heard with, of a cluster's pools: first what attachments have nevertheless.
pub(super) fn problems(store: &PoolStore) -> Vec<Problem> {
    let problem = |ip: std::net::IpAddr, pool: &str| Problem { ip: ip.to_string(), pool: pool.to_owned(), reason: "Conflict".to_owned() };
    let heard = store.heard_addresses();
    store.look(|all| {
        let of_cluster = |pool: &str| all.origin(pool) == Some(Origin::Cluster);
        let held = heard.iter().filter(|heard| of_cluster(&heard.pool)).map(|heard| problem(heard.address, &heard.pool));
        let pools = all.pools().filter(|pool| of_cluster(pool)).filter_map(|name| all.spec(name));
        let quarantined = pools.flat_map(|spec| {
            let taken = all.all_taken(&spec.network).filter(|(_, taken)| matches!(taken, Unavailable::Quarantined { .. }));
            taken
                .filter(|(ip, _)| all.blocks(&spec.name, Family::of(*ip)).any(|(b, _)| b.run.contains(*ip)))
                .map(|(ip, _)| problem(ip, &spec.name))
        });
        held.chain(quarantined).take(PROBLEMS).collect()
    })
}
