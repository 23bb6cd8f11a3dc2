//! Networks of pods that the host routes, by the records of who is attached: nobody else's network on the node is to take their traffic.
//!
//! ```text
//!   ptp        a route to each of the pod's addresses
//!   bridge     a route to the network of the gateway, with every pod on that bridge
//!
//!   result of a plugin --Claim::hold--> counts for those who come later, from before it is looked at until the record says so
//!
//!   first look ---------> all records are read
//!   every other look ---> those whose files the kernel says have changed
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni::{AddResult, ContainerId, IfName, NetworkList};
use linux::Watch;
use plugin::Builtins;

use super::ranges::AddressRun;
use super::routed::HostSide;
use super::uses::Uses;
use crate::records::FileVersion;
use crate::{Record, RecordError, Records, Step};

/// What the pods of a namespace have of the addresses of IPv4 or IPv6, in all: as many as a network of this prefix. Of more than that each pod
/// has its own address alone: somebody who took all private addresses for pods would keep everybody else from them.
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
    known: Mutex<Known>,
    claims: Mutex<Claims>,
}

/// What records say.
#[derive(Debug, Default)]
struct Known {
    /// Says which records have changed; `None`: any may have.
    watch: Option<Watch>,
    /// Of each record, as long as it is the one that was read.
    read: HashMap<ContainerId, OfRecord>,
}

/// What a version of a record says.
type OfRecord = (FileVersion, Arc<[RoutedPod]>);

/// What the ADDs at work have that no record says yet, in the order in which they got it.
#[derive(Debug, Default)]
struct Claims {
    last: u64,
    all: BTreeMap<u64, Arc<[RoutedPod]>>,
}

/// What one ADD is about to have the host route. Whoever looks later sees it, until it is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    of: &'a RoutedPods,
    held: HashMap<IfName, u64>,
}

// === impl RoutedPod ===

impl RoutedPod {
    /// What the host routes to a pod by the result of a network. `pod` and `definition`: as `namespace/name`.
    pub fn of_result(pod: &str, definition: &str, list: &NetworkList, result: &AddResult, builtins: Builtins) -> Vec<Self> {
        let uses = list.plugins.iter().enumerate().map(|(index, plugin)| Uses::of_plugin(plugin, index, builtins));
        let sides: Vec<HostSide> = uses.flat_map(|uses| uses.sides).collect();
        let of_ip = |ip: &cni::IpConfig| {
            let (address, gateway) = (ip.address, ip.gateway);
            let of_side = move |side: &HostSide| {
                let bridge = match side {
                    HostSide::Addresses { .. } => None,
                    HostSide::Network { bridge } => Some(bridge.clone()),
                    HostSide::Rules | HostSide::Pod { .. } => return None,
                };
                let run = side.runs(address, gateway).into_iter().next().filter(|run| run.size() <= most(address.addr().is_ipv4()));
                let run = run.unwrap_or_else(|| AddressRun::one(address.addr()));
                let (pod, definition) = (pod.to_owned(), definition.to_owned());
                Some(RoutedPod { pod, definition, address: address.addr(), gateway, run, bridge })
            };
            sides.iter().filter_map(of_side).collect::<Vec<_>>()
        };
        result.ips.iter().flat_map(of_ip).collect()
    }

    fn namespace(&self) -> &str {
        self.pod.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

// === impl RoutedPods ===

impl RoutedPods {
    /// Those of all sandboxes that nobody has deleted, and those of the ADDs at work that claimed theirs before the one of this number. One directory
    /// at all times: records that have not changed since the last look are not looked at. One that cannot be read has none.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read.
    pub fn look(&self, records: &Records, builtins: Builtins, before: u64) -> Result<Vec<Arc<[RoutedPod]>>, RecordError> {
        // Before the records: what is claimed no more is in one.
        let mut all: Vec<Arc<[RoutedPod]>> = self.claims().all.range(..before).map(|(_, pods)| Arc::clone(pods)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.take_changes(records, builtins)?;
        all.extend(known.read.values().map(|(_, pods)| Arc::clone(pods)).filter(|pods| !pods.is_empty()));
        drop(known);
        Ok(bounded(all))
    }

    /// For an ADD that begins: it has nothing yet.
    pub fn claim(&self) -> Claim<'_> {
        Claim { of: self, held: HashMap::new() }
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Known ===

impl Known {
    /// Reads the records that have changed since the last look. After an error, the next look reads all records.
    fn take_changes(&mut self, records: &Records, builtins: Builtins) -> Result<(), RecordError> {
        let watch = self.watch.take();
        let (watch, changed) = match watch.and_then(|mut watch| Some((changed(&mut watch, records)?, watch))) {
            Some((sandboxes, watch)) => (Some(watch), Some(sandboxes)),
            // From before the first look: no change is missed.
            None => (Watch::on(slice::from_ref(&records.dir().to_owned())).ok(), None),
        };
        match changed {
            Some(sandboxes) => {
                for sandbox in sandboxes {
                    let before = self.read.remove(&sandbox);
                    if let Some(version) = records.living_version(&sandbox)? {
                        self.read.insert(sandbox.clone(), read(records, &sandbox, version, before, builtins));
                    }
                }
            }
            None => {
                let mut before = std::mem::take(&mut self.read);
                for (sandbox, version) in records.living(&BTreeSet::new())? {
                    let one = read(records, &sandbox, version, before.remove(&sandbox), builtins);
                    self.read.insert(sandbox, one);
                }
            }
        }
        self.watch = watch;
        Ok(())
    }
}

/// The sandboxes whose records may have changed; `None`: any may have.
fn changed(watch: &mut Watch, records: &Records) -> Option<BTreeSet<ContainerId>> {
    let mut sandboxes = BTreeSet::new();
    loop {
        let paths = watch.wait(Some(Duration::ZERO)).ok()?;
        if paths.is_empty() {
            return Some(sandboxes);
        }
        for path in paths {
            // Something became of the directory itself, or there was more than the kernel could keep.
            path.strip_prefix(records.dir()).ok().filter(|name| !name.as_os_str().is_empty())?;
            sandboxes.extend(records.sandbox_of(&path));
        }
    }
}

/// A record of this version. One that cannot be read has nothing.
fn read(records: &Records, sandbox: &ContainerId, version: FileVersion, before: Option<OfRecord>, builtins: Builtins) -> OfRecord {
    match before {
        Some(known) if known.0 == version => known,
        _ => {
            let record = records.read(sandbox).ok().flatten();
            (version, record.map(|record| of_record(&record, builtins).into()).unwrap_or_default())
        }
    }
}

/// How many addresses of a family are a namespace's at most.
fn most(is_v4: bool) -> u128 {
    if is_v4 { 1 << (32 - WIDEST.0) } else { 1 << (128 - WIDEST.1) }
}

/// The same, where pods of a namespace that has too many addresses have their own ones alone.
fn bounded(mut all: Vec<Arc<[RoutedPod]>>) -> Vec<Arc<[RoutedPod]>> {
    let mut of_namespaces: HashMap<(&str, bool), HashSet<AddressRun>> = HashMap::new();
    for one in all.iter().flat_map(|pods| pods.iter()) {
        of_namespaces.entry((one.namespace(), one.address.is_ipv4())).or_default().insert(one.run);
    }
    of_namespaces.retain(|(_, is_v4), runs| runs.iter().fold(0, |sum: u128, run| sum.saturating_add(run.size())) > most(*is_v4));
    if of_namespaces.is_empty() {
        return all;
    }
    let narrow: HashSet<(String, bool)> = of_namespaces.into_keys().map(|(namespace, is_v4)| (namespace.to_owned(), is_v4)).collect();
    let is_narrow =
        |one: &RoutedPod| narrow.iter().any(|(namespace, is_v4)| namespace == one.namespace() && *is_v4 == one.address.is_ipv4());
    for pods in all.iter_mut().filter(|pods| pods.iter().any(is_narrow)) {
        for one in Arc::make_mut(pods).iter_mut().filter(|one| is_narrow(one)) {
            one.run = AddressRun::one(one.address);
        }
    }
    all
}

// === impl Claim ===

impl Claim<'_> {
    /// Has these for an interface, and no others any more. The number says which claims of others are older.
    pub fn hold(&mut self, ifname: &IfName, pods: Vec<RoutedPod>) -> u64 {
        let mut claims = self.of.claims();
        if let Some(number) = self.held.get(ifname) {
            if claims.all.get(number).is_some_and(|held| **held == *pods) {
                return *number;
            }
            claims.all.remove(number);
        }
        claims.last += 1;
        let number = claims.last;
        claims.all.insert(number, pods.into());
        self.held.insert(ifname.clone(), number);
        number
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claims = self.of.claims();
        for number in self.held.values() {
            claims.all.remove(number);
        }
    }
}

fn of_record(record: &Record, builtins: Builtins) -> Vec<RoutedPod> {
    let pod = format!("{}/{}", record.pod.namespace, record.pod.name);
    let chosen = record.steps.iter().filter(|step| step.is_chosen());
    let of_step = |step: &Step| Some(RoutedPod::of_result(&pod, &step.name, &step.list, step.result()?, builtins));
    chosen.filter_map(of_step).flatten().collect()
}

#[cfg(test)]
mod tests;
