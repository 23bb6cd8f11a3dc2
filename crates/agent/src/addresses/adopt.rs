//! A store that has lost what it knew, and leases that nobody needs: what records and namespaces know, brought into the store.
//!
//! ```text
//!   store lost    records of this boot, runtimes' cached results -> leases again     an address in a namespace without a record -> quarantine,
//!                                                 for as long as it is there
//!   reconcile     lease without record, without a runtime's cached result, its addresses in no namespace, twice -> given back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use attach::{Record, Records};
use chain::{Cache, Cached};
use cni::{AttachmentId, ContainerId, IfName, NetworkName};
use ipam::{Intake, PoolStore, PoolStoreError, Whereabouts, WhereaboutsRange};
use json::{Object, Value};
use linux::{Netns, NetnsError, file};
use plugin::Dirs;
use pool::{Allocator, Ask, Family, Key, Origin, Pod, Unavailable, Want};

use super::in_use::InUse;
use crate::Agent;
use crate::log::Line;

/// For so long nobody gets an address that is in a namespace of which nobody knows anything.
const UNEXPLAINED: u64 = 24 * 3600 * 1000;
/// A lease is not looked at before it is so old, in milliseconds: whoever got it may be about to use it.
const YOUNG: u64 = 120_000;

/// What an attachment has according to its record, or to what a runtime keeps of it.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    key: Key,
    pod: Option<Pod>,
    /// Each with its pool: another one may have the same address.
    addresses: Vec<(String, IpAddr)>,
    /// Its pool's file, where its configuration says which pool.
    file: Option<(PathBuf, String)>,
    known: AttachmentEvidence,
}

/// What tells of an attachment for as long as it is there.
#[derive(Debug, Clone)]
enum AttachmentEvidence {
    Record(ContainerId),
    /// The file of a runtime's cached result.
    Cached(PathBuf),
}

/// What records of this boot say of addresses of pools, and what runtimes have cached of attachments without a record: who calls a
/// plugin without us.
pub(super) fn orphans(records: &Records, caches: &[Cache], dirs: &Dirs) -> Vec<Orphan> {
    let boot = linux::boot_id().ok();
    let read = records.sandboxes().unwrap_or_default().into_iter().filter_map(|sandbox| records.read(&sandbox).ok().flatten());
    let mut found: Vec<Orphan> = read.filter(|record| Some(record.boot) == boot).flat_map(|record| of_record(&record, dirs)).collect();
    let mut keys: BTreeSet<String> = found.iter().map(|orphan| orphan.key.to_string()).collect();
    for cache in caches {
        let (cached, errors) = cache.of_this_boot();
        errors.iter().for_each(|e| Line::warn("addresses").with("recover", "cached results").with("error", e).end());
        let orphans = cached.iter().filter_map(|one| of_cached(one, cache.path(&one.id), dirs));
        found.extend(orphans.filter(|orphan| keys.insert(orphan.key.to_string())).collect::<Vec<_>>());
    }
    found
}

/// The caches of runtimes on this node.
pub(super) fn caches(runtimes: &Path) -> [Cache; 2] {
    [Cache::new(runtimes), Cache::new(&runtimes.join("multus"))]
}

fn of_cached(one: &Cached, file: PathBuf, dirs: &Dirs) -> Option<Orphan> {
    let is_gone = !one.netns.is_empty() && matches!(Netns::open(Path::new(&one.netns)), Ok(None) | Err(NetnsError::NotANamespace { .. }));
    let Value::Object(list) = json::parse(&one.config).ok().filter(|_| !is_gone)? else { return None };
    let told: Vec<IpAddr> = one.result.as_ref()?.ips.iter().map(|ip| ip.address.addr()).collect();
    let plugins = list.get("plugins").and_then(Value::as_array).unwrap_or_default();
    let (addresses, file_of_pool) =
        plugins.iter().filter_map(Value::as_object).chain([&list]).find_map(|plugin| source(plugin, &told, dirs))?;
    let of = |name: &str| one.args.get(name).unwrap_or_default().to_owned();
    let pod = Pod { namespace: of("K8S_POD_NAMESPACE"), name: of("K8S_POD_NAME"), uid: of("K8S_POD_UID") };
    let pod = Some(pod).filter(|pod| !pod.name.is_empty());
    let orphan = Orphan { key: plugins::pool_key(&one.id), pod, addresses, file: file_of_pool, known: AttachmentEvidence::Cached(file) };
    Some(orphan).filter(|orphan| !orphan.addresses.is_empty())
}

fn of_record(record: &Record, dirs: &Dirs) -> Vec<Orphan> {
    let mut found = Vec::new();
    for step in &record.steps {
        let Some(result) = step.result() else { continue };
        let told: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.addr()).collect();
        let has = step.list.plugins.iter().find_map(|plugin| source(plugin.raw(), &told, dirs));
        let Some((addresses, file)) = has else { continue };
        let key = Key { network: step.list.name.to_string(), container: record.sandbox.to_string(), ifname: step.ifname.to_string() };
        let (namespace, name, uid) = (record.pod.namespace.clone(), record.pod.name.clone(), record.pod.uid.clone().unwrap_or_default());
        let (pod, known) = (Some(Pod { namespace, name, uid }), AttachmentEvidence::Record(record.sandbox.clone()));
        found.push(Orphan { key, pod, addresses, file, known });
    }
    found.retain(|orphan: &Orphan| !orphan.addresses.is_empty());
    found
}

/// Addresses, each with its pool.
type OfPools = Vec<(String, IpAddr)>;

/// The addresses of an attachment, each with its pool, and the pool's file where the plugin's configuration says which pool; `None`: it has
/// none of pools, or of another journal's.
fn source(plugin: &Object, told: &[IpAddr], dirs: &Dirs) -> Option<(OfPools, Option<(PathBuf, String)>)> {
    let ipam = plugin.objects("ipam").rev().find(|ipam| ipam.str("type").is_some_and(|kind| !kind.is_empty()))?;
    let text = |key: &str| ipam.str(key).unwrap_or_default();
    match text("type") {
        "pool" if dirs.configured(text("dataDir"), &dirs.journal) == dirs.journal => {
            let name = ipam::pool_name(text("pool"), text("network")).to_owned();
            let dir = dirs.configured(text("pools"), &dirs.pools);
            Some((told.iter().map(|address| (name.clone(), *address)).collect(), Some((dir, name))))
        }
        "whereabouts" => {
            let meant = Whereabouts::of_plugin(plugin)
                .inspect_err(|e| Line::error("addresses").with("recover", "addresses of a range").with("error", e).end())
                .ok()?;
            let of_range =
                |(range, address): (&WhereaboutsRange, &IpAddr)| range.run.contains(*address).then(|| (range.pool.clone(), *address));
            Some((meant.ranges.iter().zip(told).filter_map(of_range).collect(), None))
        }
        _ => None,
    }
}

/// Makes a store anew that was lost: of the host's own pools at once, of a cluster's as soon as it grants them. When nothing is
/// left that could come, of whoever may grant something, `mark` goes.
pub(super) fn recover(store: &PoolStore, of: &[Origin], orphans: Vec<Orphan>, records: &Records, dirs: &Dirs, mark: PathBuf) {
    let (records, pools) = (records.clone(), dirs.pools.clone());
    let mut left = orphans;
    store.recover_with(of, move |intake| {
        left.retain(|orphan| match &orphan.known {
            AttachmentEvidence::Record(sandbox) => records.knows(sandbox),
            AttachmentEvidence::Cached(file) => file.exists(),
        });
        follow_files(intake, &pools, &left);
        left = adopt(intake.store(), std::mem::take(&mut left));
        let is_safe = quarantine_unexplained(intake.store(), &left).unwrap_or_else(|e| {
            Line::error("addresses").with("what", "addresses that are in use may be assigned again").with("error", e).end();
            false
        });
        if !(is_safe && left.is_empty() && intake.is_complete()) {
            return false;
        }
        file::remove(&mark).inspect_err(|e| Line::error("addresses").with("remove", mark.display()).with("error", e).end()).is_ok()
    });
}

/// The host's own pools, as their files say.
fn follow_files(intake: &Intake<'_>, pools: &Path, orphans: &[Orphan]) {
    let names = ipam::pool_names(pools).unwrap_or_else(|e| {
        Line::warn("addresses").with("recover", pools.display()).with("error", e).end();
        Vec::new()
    });
    let named = names.into_iter().map(|name| (pools.to_owned(), name));
    let files: BTreeSet<(PathBuf, String)> = named.chain(orphans.iter().filter_map(|orphan| orphan.file.clone())).collect();
    for (dir, name) in files {
        let done = match ipam::read_pool(&dir, &name) {
            // A cluster's.
            Err(e) if e.is_missing() => continue,
            Err(e) => Err(e.to_string()),
            Ok(pool) => intake.follow(&pool).map_err(|e| e.to_string()),
        };
        if let Err(e) = done {
            Line::warn("addresses").with("recover", name).with("error", e).end();
        }
    }
}

/// Makes leases again of what the store has blocks for; returned are those that have an address for which it has none.
fn adopt(store: &PoolStore, orphans: Vec<Orphan>) -> Vec<Orphan> {
    let mut left = Vec::new();
    for orphan in orphans {
        if !orphan.addresses.iter().all(|(pool, address)| store.look(|all| has(all, pool, *address))) {
            left.push(orphan);
            continue;
        }
        let want = |(pool, address): &(String, IpAddr)| Want { pool: pool.clone(), family: Family::of(*address), address: Some(*address) };
        let wants: Vec<Want> = orphan.addresses.iter().map(want).collect();
        let claim = wants.first().and_then(|want| claim(store, want));
        let ask = Ask { key: orphan.key.clone(), pod: orphan.pod.clone(), claim, wants };
        match store.adopt(&ask) {
            Ok(_) => Line::info("addresses")
                .with("adopted", &ask.key)
                .with("pod", orphan.pod.map(|pod| pod.to_string()).unwrap_or_default())
                .end(),
            Err(e) => {
                Line::error("addresses").with("adopt", &ask.key).with("error", &e).end();
                // What another attachment has it does not get, whenever it is asked for.
                if !matches!(e, PoolStoreError::Refused(_)) {
                    left.push(orphan);
                }
            }
        }
    }
    left
}

/// Whether something may be handed out of this pool, and it has this address.
fn has(all: &Allocator, pool: &str, address: IpAddr) -> bool {
    all.spec(pool).is_some() && all.blocks(pool, Family::of(address)).any(|(block, _)| block.run.contains(address))
}

/// Who alone may have it.
fn claim(store: &PoolStore, want: &Want) -> Option<String> {
    let address = want.address?;
    store.look(|all| all.blocks(&want.pool, want.family).find(|(b, _)| b.run.contains(address)).and_then(|(b, _)| b.claim.clone()))
}

/// Nobody gets what is in more namespaces than attachments have it, in whichever network: whose it is nobody knows. Nor what is
/// left of an attachment that has not got all of its own again. Whether everything could be seen.
fn quarantine_unexplained(store: &PoolStore, left: &[Orphan]) -> Result<bool, PoolStoreError> {
    for (pool, address) in left.iter().flat_map(|orphan| &orphan.addresses) {
        if store.look(|all| has(all, pool, *address)) {
            store.quarantine(pool, *address, UNEXPLAINED, "an attachment of which something is missing yet")?;
        }
    }
    let seen = InUse::look();
    for (address, places) in &seen.addresses {
        let (pools, held) = store.look(|all| pools_with(all, *address));
        let Some(place) = places.first().filter(|_| places.len() > held) else { continue };
        for pool in pools {
            if store.quarantine(&pool, *address, UNEXPLAINED, &place.display().to_string())? {
                Line::warn("addresses")
                    .with("address", address)
                    .with("pool", pool)
                    .with("why", format!("{} has it, and its owner is unknown", place.display()))
                    .end();
            }
        }
    }
    Ok(seen.complete)
}

/// A pool of each network that has an address, and how many attachments have it.
fn pools_with(all: &Allocator, address: IpAddr) -> (Vec<String>, usize) {
    let with = all.pools().filter(|pool| has(all, pool, address)).filter_map(|pool| Some((all.spec(pool)?.network.as_str(), pool)));
    let networks: BTreeMap<&str, &str> = with.collect();
    let held = networks.keys().filter(|network| matches!(all.taken(network, address), Some(Unavailable::Held(_)))).count();
    (networks.into_values().map(str::to_owned).collect(), held)
}

/// What was put into quarantine because it was in use, and is so still, or may be, stays there.
pub(super) fn renew_quarantines(store: &PoolStore, look: impl FnOnce() -> InUse) -> Result<(), PoolStoreError> {
    let now = store.now();
    let ends: Vec<(String, IpAddr, String)> = store.look(|all| {
        let of_pool = |pool: &str| {
            let network = all.spec(pool).map(|spec| spec.network.as_str()).unwrap_or_default();
            let ends = all.all_taken(network).filter_map(|(address, taken)| match taken {
                Unavailable::Quarantined { by, .. } if taken.frees_in(0, &now).is_some_and(|left| left < UNEXPLAINED / 2) => {
                    Some((pool.to_owned(), address, by.clone()))
                }
                _ => None,
            });
            ends.filter(|(pool, address, _)| has(all, pool, *address)).collect::<Vec<_>>()
        };
        all.pools().flat_map(of_pool).collect()
    });
    if ends.is_empty() {
        return Ok(());
    }
    let seen = look();
    for (pool, address, by) in ends {
        if seen.may_have(address) {
            store.renew_quarantine(&pool, address, UNEXPLAINED, &by)?;
        }
    }
    Ok(())
}

impl Agent {
    /// Gives back what attachments hold that are not there any more, by two looks. How many it were.
    pub(crate) fn collect_leases(&self) -> usize {
        let Some(addresses) = &self.addresses else { return 0 };
        addresses.mend();
        let (store, now) = (&addresses.store, addresses.store.now());
        let nobodys = |lease: &&pool::Lease| lease.since.elapsed(&now) >= YOUNG && !self.is_known(&lease.key);
        let found: Vec<(Key, u64)> = store.look(|all| all.leases().filter(nobodys).map(|l| (l.key.clone(), l.generation)).collect());
        let in_use = if found.is_empty() { None } else { Some(InUse::look()).filter(|seen| seen.complete) };
        let Some(in_use) = in_use else {
            crate::lock(&addresses.suspects).clear();
            return 0;
        };
        let used = |key: &Key| store.lease(key).is_some_and(|lease| lease.addresses.iter().any(|l| in_use.may_have(l.address)));
        let now: BTreeSet<(Key, u64)> = found.into_iter().filter(|(key, _)| !used(key)).collect();
        let before = std::mem::replace(&mut *crate::lock(&addresses.suspects), now.clone());
        let mut freed = 0;
        for (key, generation) in now.intersection(&before) {
            let why = "it has no record, no cached result, and its addresses are in no namespace";
            match store.release(key, Some(*generation)) {
                Ok(_) => {
                    freed += 1;
                    store.meters().collected.orphan.fetch_add(1, Ordering::Relaxed);
                    Line::info("addresses").with("given_back", key).with("why", why).end();
                }
                Err(e) => Line::warn("addresses").with("give_back", key).with("error", e).end(),
            }
        }
        freed
    }

    /// Whether anybody on this node knows of an attachment: our record, or what a runtime keeps of each that it has made.
    fn is_known(&self, key: &Key) -> bool {
        let parsed = (ContainerId::parse(&key.container), NetworkName::parse(&key.network), IfName::parse(&key.ifname));
        let (Ok(container), Ok(network), Ok(ifname)) = parsed else { return true };
        let runtimes = self.settings.plugin_state_dir.as_deref().unwrap_or(Path::new("/var/lib/cni"));
        let id = AttachmentId { network, container, ifname };
        self.records.knows(&id.container) || caches(runtimes).iter().any(|cache| cache.path(&id).exists())
    }
}

#[cfg(test)]
#[path = "adopt_tests.rs"]
mod tests;
