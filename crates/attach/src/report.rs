//! What a pod's owner gets to see: the annotation `k8s.v1.cni.cncf.io/network-status`, and Events of what was attached.

use linux::Family;
use npwg::{NetworkStatus, StatusIps};

use crate::{Record, Source, Step, default_route};

/// One entry for each attachment that was made (S32 to S44).
pub fn network_status(record: &Record, ips: StatusIps) -> Vec<NetworkStatus> {
    let moved = record.steps.iter().filter_map(|step| step.default_route.as_deref());
    let families: Vec<Family> = moved.flat_map(default_route::families).collect();
    let entry = |step: &Step| {
        let mut status = NetworkStatus::from_result(&step.name, step.result()?, &step.ifname, step.default, ips);
        // A network that lost the route still has a gateway, but it is the pod's no more.
        let own = step.default_route.as_deref().unwrap_or_default();
        status.gateway.retain(|gateway| own.contains(gateway) || !families.contains(&Family::of(*gateway)));
        Some(NetworkStatus { default_route: step.default_route.clone(), device_info: step.device.info().cloned(), ..status })
    };
    record.steps.iter().filter_map(entry).collect()
}

/// What Multus's Event `AddedInterface` says of each attachment that was made, in order: `Add net1 [10.91.0.6/16] from t/mv1`.
pub fn added_interfaces(record: &Record) -> impl Iterator<Item = String> {
    let said = |step: &Step| {
        let ips: Vec<String> = step.result()?.ips.iter().map(|ip| ip.address.to_string()).collect();
        Some(format!("Add {} [{}] from {}", step.ifname, ips.join(" "), step.name))
    };
    record.steps.iter().filter_map(said)
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.selection() {
            None => f.write_str("default network"),
            Some(selection) => selection.fmt(f),
        }
    }
}
