//! Networks of pods that the host routes, by the records of who is attached: nobody else's network on the node is to take their traffic.
//!
//! ```text
//!   ptp        a route to each of the pod's addresses
//!   bridge     a route to the network of the gateway, with every pod on that bridge
//! ```

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use cni::ContainerId;
use plugin::Builtins;

use super::ranges::AddressRun;
use super::routed::HostSide;
use super::uses::Uses;
use crate::records::FileVersion;
use crate::{Record, RecordError, Records};

/// What is wider, of IPv4 or IPv6, belongs to nobody as a whole: somebody who takes all private addresses for a pod would keep everybody else
/// from them.
const WIDEST: (u8, u8) = (16, 48);

/// An address of a pod, and what of its network the host routes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedPod {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The definition of the network, as `namespace/name`.
    pub definition: String,
    /// The address.
    pub address: IpAddr,
    /// Its gateway on the host.
    pub gateway: Option<IpAddr>,
    /// What the host's route leads to.
    pub run: AddressRun,
    /// The bridge that the route leads over; `None`: it is the pod's own pair.
    pub bridge: Option<String>,
}

/// The pods of a node that the host has routes to, on networks that pods selected.
#[derive(Debug, Default)]
pub struct RoutedPods {
    /// Of each record, as long as it is the one that was read.
    read: Mutex<HashMap<ContainerId, OfRecord>>,
}

/// What a version of a record says.
type OfRecord = (FileVersion, Arc<[RoutedPod]>);

// === impl RoutedPods ===

impl RoutedPods {
    /// Those of all sandboxes that nobody has deleted. Only records that are new or changed are read; one that cannot be read has none.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read.
    pub fn look(&self, records: &Records, builtins: Builtins) -> Result<Vec<Arc<[RoutedPod]>>, RecordError> {
        let living = records.living(&BTreeSet::new())?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *read);
        for (sandbox, version) in living {
            let pods = match before.remove(&sandbox) {
                Some((of, pods)) if of == version => pods,
                _ => records.read(&sandbox).ok().flatten().map(|record| of_record(&record, builtins).into()).unwrap_or_default(),
            };
            read.insert(sandbox, (version, pods));
        }
        Ok(read.values().map(|(_, pods)| Arc::clone(pods)).filter(|pods| !pods.is_empty()).collect())
    }
}

fn of_record(record: &Record, builtins: Builtins) -> Vec<RoutedPod> {
    let mut all = Vec::new();
    for step in record.steps.iter().filter(|step| step.is_chosen()) {
        let sides: Vec<HostSide> =
            step.list.plugins.iter().enumerate().flat_map(|(index, plugin)| Uses::of_plugin(plugin, index, builtins).sides).collect();
        for ip in step.result().into_iter().flat_map(|result| &result.ips) {
            let of_side = |side: &HostSide| {
                let bridge = match side {
                    HostSide::Addresses { .. } => None,
                    HostSide::Network { bridge } => Some(bridge.clone()),
                    HostSide::Rules | HostSide::Pod { .. } => return None,
                };
                let of_address = || AddressRun::one(ip.address.addr());
                let widest = if ip.address.addr().is_ipv4() { WIDEST.0 } else { WIDEST.1 };
                let is_wide = ip.address.prefix_len() < widest;
                let run =
                    if is_wide { of_address() } else { side.runs(ip.address, ip.gateway).into_iter().next().unwrap_or_else(of_address) };
                let pod = format!("{}/{}", record.pod.namespace, record.pod.name);
                Some(RoutedPod { pod, definition: step.name.clone(), address: ip.address.addr(), gateway: ip.gateway, run, bridge })
            };
            all.extend(sides.iter().filter_map(of_side));
        }
    }
    all
}
