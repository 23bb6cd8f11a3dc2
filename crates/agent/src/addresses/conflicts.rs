//! Machines outside that have an address of a pool: told in the log, and to the pod that was to have it.

use cluster::EventKind;
use ipam::AddressConflict;

use crate::Agent;
use crate::log::Line;

impl Agent {
    /// Tells what was met since this was called last.
    pub(crate) fn tell_conflicts(&self) {
        let Some(addresses) = &self.addresses else { return };
        for AddressConflict { pool, address, by, key, pod } in addresses.store.take_conflicts() {
            let line =
                Line::warn("addresses").with("pool", &pool).with("conflict", address).with("by", &by).with("container", &key.container);
            line.with("now", "nobody gets it for an hour; the attachment gets another one").end();
            let known = pod.and_then(|pod| self.cluster.pod(&pod.namespace, &pod.name));
            let message = format!(
                "address {address} of pool {pool} is used by another machine, {by}: exclude it in the IPPool, or give that machine another one"
            );
            if let Some(pod) = known {
                self.event(&pod, EventKind::Warning, "AddressConflict", &message);
            }
        }
    }
}
