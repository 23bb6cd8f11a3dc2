//! What a pod's attachments will ask the cluster's pools for: told before the first of them is made, since they are made one after the
//! other, and each would wait for its block alone.

use attach::{Plan, Planned, Source};
use ipam::ReserveHint;

use crate::Agent;

impl Agent {
    /// Counts as needed what the attachments of a plan take of pools, until that which is returned is dropped.
    pub(crate) fn reserve_hint(&self, container: &str, plan: &Plan) -> Option<ReserveHint> {
        let addresses = self.addresses.as_ref().filter(|_| plan.attachments.len() > 1)?;
        let coming = plan.attachments.iter().filter(|planned| takes_any(planned)).filter_map(|planned| {
            let (_, source) = ipam::source(std::str::from_utf8(&planned.list.source).ok()?);
            let (network, ifname) = (planned.list.name.to_string(), planned.ifname.to_string());
            Some((pool::Key { network, container: container.to_owned(), ifname }, source.ok()?))
        });
        Some(addresses.store.reserve_hint(coming.collect()))
    }
}

/// Whether any address will do: those of a claim, and one that is asked for, come by another way.
fn takes_any(planned: &Planned) -> bool {
    match &planned.source {
        Source::DefaultOf(selection) | Source::Selection(selection) => selection.ipam_claim.is_none() && selection.ips.is_empty(),
        Source::Default | Source::EveryPod => true,
    }
}
