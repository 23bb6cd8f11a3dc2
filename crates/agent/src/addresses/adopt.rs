//! A store that has lost what it knew, and leases that nobody needs: what records and namespaces know, brought into the store.
//!
//! ```text
//!   store lost    records of this boot -> leases again     an address in a namespace without a record -> quarantine
//!   reconcile     lease without record, without a runtime's cached result, its addresses in no namespace, twice -> given back
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use attach::{Record, Records};
use chain::Cache;
use cni::{AttachmentId, ContainerId, IfName, NetworkName};
use ipam::{PoolStore, PoolStoreError};
use linux::{Netlink, Netns, NetnsId};
use plugin::Dirs;
use pool::{Ask, Family, Key, Pod, Want};

use crate::Agent;
use crate::abandoned::namespaces_in_use;
use crate::log::Line;

/// For so long nobody gets an address that is in a namespace of which nobody knows anything.
const UNEXPLAINED: u64 = 24 * 3600 * 1000;
/// A lease is not looked at before it is so old, in milliseconds: whoever got it may be about to use it.
const YOUNG: u64 = 120_000;
/// Plugins whose addresses are in the store.
const PLUGINS: [&str; 2] = ["pool", "whereabouts"];
/// Namespaces that have names, besides those with processes.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// What an attachment has according to its record.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    key: Key,
    pod: Pod,
    addresses: Vec<IpAddr>,
    /// Its pool's file, where its configuration says which pool.
    file: Option<(PathBuf, String)>,
}

/// What records of this boot say of addresses of pools.
pub(super) fn orphans(records: &Records, dirs: &Dirs) -> Vec<Orphan> {
    let boot = linux::boot_id().ok();
    let read = records.sandboxes().unwrap_or_default().into_iter().filter_map(|sandbox| records.read(&sandbox).ok().flatten());
    read.filter(|record| Some(record.boot) == boot).flat_map(|record| of_record(&record, dirs)).collect()
}

fn of_record(record: &Record, dirs: &Dirs) -> Vec<Orphan> {
    let mut found = Vec::new();
    for step in &record.steps {
        let Some(result) = step.result() else { continue };
        let ipam = step.list.plugins.iter().filter_map(|plugin| plugin.raw().object("ipam"));
        let Some(ipam) = ipam.into_iter().find(|ipam| ipam.str("type").is_some_and(|kind| PLUGINS.contains(&kind))) else { continue };
        let name = ipam.str("pool").filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
        let dir = dirs.configured(ipam.str("pools").unwrap_or_default(), &dirs.pools);
        let key = Key { network: step.list.name.to_string(), container: record.sandbox.to_string(), ifname: step.ifname.to_string() };
        let (namespace, pod, uid) = (record.pod.namespace.clone(), record.pod.name.clone(), record.pod.uid.clone().unwrap_or_default());
        found.push(Orphan {
            key,
            pod: Pod { namespace, name: pod, uid },
            addresses: result.ips.iter().map(|ip| ip.address.addr()).collect(),
            file: (ipam.str("type") == Some(PLUGINS[0])).then_some((dir, name)),
        });
    }
    found
}

/// Makes a store anew that was lost: of the host's own pools at once, of a cluster's as soon as it grants them.
pub(super) fn recover(store: &PoolStore, orphans: Vec<Orphan>) {
    let again = |store: &PoolStore, orphans: Vec<Orphan>| {
        let left = adopt(store, orphans);
        if let Err(e) = quarantine_unexplained(store) {
            Line::error("addresses").with("what", "addresses that are in use are not kept from others").with("error", e).end();
        }
        left
    };
    let mut left = again(store, orphans);
    store.recover_with(move |store| {
        left = again(store, std::mem::take(&mut left));
        left.is_empty()
    });
}

/// Makes leases again of what the store has blocks for; returned are those for which it has none.
fn adopt(store: &PoolStore, orphans: Vec<Orphan>) -> Vec<Orphan> {
    let mut left = Vec::new();
    for orphan in orphans {
        if let Some((dir, name)) = &orphan.file
            && let Ok(grant) = ipam::read_pool(dir, name)
            && let Err(e) = store.follow(&grant)
        {
            Line::warn("addresses").with("adopt", &orphan.key).with("error", e).end();
        }
        let wants: Vec<Want> = orphan.addresses.iter().filter_map(|address| want(store, *address)).collect();
        if wants.is_empty() {
            left.push(orphan);
            continue;
        }
        let claim = wants.first().and_then(|want| claim(store, want));
        let ask = Ask { key: orphan.key.clone(), pod: Some(orphan.pod), claim, wants };
        match store.adopt(&ask) {
            Ok(_) => Line::info("addresses")
                .with("adopted", &ask.key)
                .with("pod", ask.pod.as_ref().map(ToString::to_string).unwrap_or_default())
                .end(),
            Err(e) => Line::error("addresses").with("adopt", &ask.key).with("error", e).end(),
        }
    }
    left
}

fn want(store: &PoolStore, address: IpAddr) -> Option<Want> {
    let family = Family::of(address);
    let has = |pool: &&str, all: &pool::Allocator| all.blocks(pool, family).any(|(block, _)| block.run.contains(address));
    let pool = store.look(|all| all.every_pool().find(|pool| has(pool, all)).map(str::to_owned))?;
    Some(Want { pool, family, address: Some(address) })
}

/// Who alone may have it.
fn claim(store: &PoolStore, want: &Want) -> Option<String> {
    let address = want.address?;
    store.look(|all| all.blocks(&want.pool, want.family).find(|(b, _)| b.run.contains(address)).and_then(|(b, _)| b.claim.clone()))
}

/// Nobody gets what is in a namespace and in no lease. How many addresses that are.
fn quarantine_unexplained(store: &PoolStore) -> Result<usize, PoolStoreError> {
    let mut count = 0;
    for (address, place) in addresses_in_use().unwrap_or_default() {
        let Some(Want { pool, .. }) = want(store, address) else { continue };
        if store.quarantine(&pool, address, UNEXPLAINED, &place.display().to_string())? {
            Line::warn("addresses")
                .with("address", address)
                .with("pool", pool)
                .with("why", format!("{} has it, and nobody knows whose it is", place.display()))
                .end();
            count += 1;
        }
    }
    Ok(count)
}

/// The addresses of all namespaces of this machine besides the one that this thread is in, each with where it is; `None` if not
/// everything can be seen.
pub(super) fn addresses_in_use() -> Option<HashMap<IpAddr, PathBuf>> {
    let mut spaces: BTreeMap<NetnsId, PathBuf> = namespaces_in_use()?;
    for dir in NAMED {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match Netns::open(&entry.path()) {
                Ok(Some(netns)) => drop(spaces.entry(netns.id()).or_insert(entry.path())),
                // What is left of one that is gone.
                Ok(None) | Err(linux::NetnsError::NotANamespace { .. }) => {}
                Err(_) => return None,
            }
        }
    }
    spaces.remove(&Netns::current().ok()?.id());
    let mut found = HashMap::new();
    for path in spaces.into_values() {
        let addresses = match Netns::open(&path) {
            Ok(Some(netns)) => netns.enter(|inside| Netlink::open(inside).ok()?.addresses(None).ok()).ok()??,
            Ok(None) => continue,
            Err(_) => return None,
        };
        found.extend(addresses.into_iter().map(|address| (address.net.addr(), path.clone())));
    }
    Some(found)
}

impl Agent {
    /// Gives back what attachments hold that are not there any more, by two looks. How many it were.
    pub(crate) fn collect_leases(&self) -> usize {
        let Some(addresses) = &self.addresses else { return 0 };
        let (store, now) = (&addresses.store, addresses.store.now());
        let nobodys = |lease: &&pool::Lease| lease.since.elapsed(&now) >= YOUNG && !self.is_known(&lease.key);
        let found: Vec<(Key, u64)> = store.look(|all| all.leases().filter(nobodys).map(|l| (l.key.clone(), l.generation)).collect());
        let in_use = if found.is_empty() { None } else { addresses_in_use() };
        let Some(in_use) = in_use else {
            crate::lock(&addresses.suspects).clear();
            return 0;
        };
        let used = |key: &Key| store.lease(key).is_some_and(|lease| lease.addresses.iter().any(|l| in_use.contains_key(&l.address)));
        let now: BTreeSet<(Key, u64)> = found.into_iter().filter(|(key, _)| !used(key)).collect();
        let before = std::mem::replace(&mut *crate::lock(&addresses.suspects), now.clone());
        let mut freed = 0;
        for (key, generation) in now.intersection(&before) {
            let why = "it has no record, no cached result, and its addresses are in no namespace";
            match store.release(key, Some(*generation)) {
                Ok(_) => {
                    freed += 1;
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
        let cached = |dir: &Path| {
            let id = AttachmentId { network: network.clone(), container: container.clone(), ifname: ifname.clone() };
            Cache::new(dir).path(&id).exists()
        };
        self.records.knows(&container) || cached(runtimes) || cached(&runtimes.join("multus"))
    }
}
