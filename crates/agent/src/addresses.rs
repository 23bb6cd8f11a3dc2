//! The addresses of pools on this node: one store, which the agent holds for its life.
//!
//! ```text
//!   plugins in this process --reserve, release--> PoolStore --changed--> follow --status: what is needed, given back--> API
//!                                                    ^                     |
//!                                                    +---grant, freeze-----+<--spec: what is granted-- NodeIPPool
//! ```
//!
//! An ADD takes what the store has and asks nobody. What is granted is on the disk before it is used, so that an agent which
//! starts while the API server is away goes on with it.

mod adopt;
mod asked;
mod beside;
mod choice;
mod conflicts;
mod figures;
mod follow;
mod identity_conflict;
mod in_use;
mod kept;
mod listen;
mod pace;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::AgentIdentity;
use attach::Records;
use ipam::cilium::POOL;
use ipam::{PoolStore, PoolStoreError, RECOVERING, StoreLocation};
use linux::file::{self, Links};
use plugin::Dirs;
use pool::Origin;
use tokio::sync::Notify;

use self::choice::Selectors;
pub(crate) use self::follow::NODE_GONE;
use self::in_use::InUse;
use crate::agent::RunError;
use crate::log::Line;
use crate::settings::Ipam;
use crate::{Agent, cilium_node, shares};

/// How long short processes that use the store now are waited for.
const OTHERS: Duration = Duration::from_secs(60);
/// More than an identity has.
const MAX_ID: usize = 64;

/// The store of this node's pools, and who this agent is.
pub(crate) struct Addresses {
    pub(crate) store: Arc<PoolStore>,
    identity: AgentIdentity,
    /// Where the journal is now.
    place: StoreLocation,
    /// It was copied: another agent may have the one that it is of.
    copied: bool,
    /// Told when the store has changed.
    pub(crate) changed: Arc<Notify>,
    /// Which pods the pools are for that this node may use.
    selectors: Arc<Selectors>,
    /// How long it took to read the journal.
    pub(crate) restored: Duration,
    /// What the round before took for leases that nobody needs.
    suspects: Mutex<BTreeSet<(pool::Key, u64)>>,
    /// What it took for addresses that are kept for nobody: pool, address, epoch.
    unneeded: Mutex<BTreeSet<(String, pool::Run, u64)>>,
}

// === impl Addresses ===

impl Addresses {
    /// Opens the store, and holds it: every plugin of this process uses it.
    ///
    /// A journal that is damaged is put aside, and made anew from the records, from what
    /// runtimes have cached below `runtimes`, and from what is in the namespaces.
    pub(crate) fn open(dirs: &Dirs, records: &Records, runtimes: &Path, ipam: Ipam) -> Result<Self, RunError> {
        let (dir, begun) = (&dirs.journal, Instant::now());
        let own = |reason: String| RunError::Own { step: "open the addresses of pools", reason };
        let mark = dir.join(RECOVERING);
        let mut damaged = is_unrecovered(dir).map_err(own)?;
        if damaged {
            begin_recovery(dir).map_err(own)?;
        }
        let opened = match PoolStore::open(dir, begun + OTHERS) {
            Err(e) if e.is_lost() => {
                let aside = put_aside(dir).map_err(own)?;
                Line::error("addresses").with("error", e).with("now", format!("it is {} now; created again", aside.display())).end();
                damaged = true;
                begin_recovery(dir).map_err(own)?;
                PoolStore::open(dir, begun + OTHERS)
            }
            opened => opened,
        };
        let store = Arc::new(opened.map_err(|e| own(e.to_string()))?);
        // Before the first call: what is a cluster's must not be taken for this host's own, as long as nobody knows that.
        store.expect(true);
        let restored = begun.elapsed();
        let is_empty = store.look(|all| all.every_pool().next().is_none());
        let orphans = if is_empty || damaged { adopt::orphans(records, &adopt::caches(runtimes), dirs) } else { Vec::new() };
        // A node that is new has nobody's addresses: who else has a namespace on this machine is another network's.
        if damaged || !orphans.is_empty() {
            begin_recovery(dir).map_err(own)?;
            adopt::recover(&store, sources(ipam), orphans, records, dirs, mark);
        }
        adopt::renew_quarantines(&store, InUse::look).map_err(|e| own(e.to_string()))?;
        store.recall_heard().map_err(|e| own(e.to_string()))?;
        let place = StoreLocation::of(dir).map_err(own)?;
        let mut copied = place.is_another(dir).map_err(own)?;
        let granted = store.cluster_pools();
        match ipam {
            // What a CiliumNode says is this node's by its name alone: nothing of the journal says more.
            Ipam::Crd if copied && granted.iter().all(|pool| pool == POOL) => {
                place.take(dir).map_err(own)?;
                copied = false;
            }
            // Of other pools nobody gets anything before it is granted again.
            Ipam::Crd if copied => {
                granted.iter().filter(|pool| *pool != POOL).try_for_each(|pool| store.end(pool)).map_err(|e| own(e.to_string()))?
            }
            Ipam::Crd | Ipam::Pool => {}
        }
        // What it says that this node has, the other one may hand out.
        if copied && ipam == Ipam::Pool && !granted.is_empty() {
            let why = format!("the journal {} was copied from another place, which may still be in use", dir.display());
            Line::warn("addresses").with("why", &why).end();
            store.close(Some(why));
        }
        let identity = AgentIdentity {
            store_id: store_id(dir).map_err(own)?,
            machine_id: place.machine.clone(),
            boot_id: linux::boot_id().map_err(|e| own(e.to_string()))?.to_string(),
            instance: random().map_err(own)?,
        };
        let changed = Arc::new(Notify::new());
        plugins::hold_pool_store(&store);
        let leases = store.look(|all| all.leases().count());
        Line::info("addresses").with("store", dir.display()).with("held", leases).took("took", restored).end();
        let selectors = Arc::new(Selectors::of(&store));
        Ok(Addresses {
            store,
            identity,
            place,
            copied,
            changed,
            selectors,
            restored,
            suspects: Mutex::default(),
            unneeded: Mutex::default(),
        })
    }

    /// Goes on with what a lost store has not got yet, and keeps from others what is in use.
    fn mend(&self) {
        if self.store.expects() {
            self.store.recover();
        } else if self.store.closed().is_none() {
            // Nothing is granted here: all that there is are the host's own pools.
            let _: Result<(), PoolStoreError> = self.store.take_in(Origin::Cluster, |_| Ok(()));
        }
        if let Err(e) = adopt::renew_quarantines(&self.store, InUse::look) {
            Line::error("addresses").with("what", "addresses that are in use may be assigned again").with("error", e).end();
        }
    }
}

/// Says beside the journal where this agent is to be asked.
pub(crate) fn announce(agent: &Agent) -> Result<(), RunError> {
    let Some(addresses) = &agent.addresses else { return Ok(()) };
    let (path, socket) = (addresses.store.dir().join(ipam::AGENT), agent.settings.socket());
    let written = file::write_atomic(&path, socket.as_os_str().as_encoded_bytes(), 0o600, file::Durability::Volatile);
    written.map_err(|e| RunError::Own { step: "announce the agent's socket for addresses", reason: e.to_string() })
}

/// Follows this node's objects for as long as the agent lives.
pub(crate) fn follow(agent: &Arc<Agent>, on_wait: impl Fn(bool) + Send + Sync + 'static) {
    let Some(addresses) = &agent.addresses else { return };
    let changed = Arc::clone(&addresses.changed);
    let of_node = Arc::new(Notify::new());
    let of_node_too = Arc::clone(&of_node);
    addresses.store.when_waiting(on_wait, shares::is_waited_for);
    addresses.store.when_changed(move || {
        changed.notify_one();
        of_node_too.notify_one();
    });
    // One pool is the CiliumNode's, all others are the operator's in each mode.
    drop(agent.runtime.spawn(follow::Follow::new(agent, addresses).run()));
    if agent.settings.ipam == Ipam::Crd {
        cilium_node::follow(agent, of_node);
    }
}

/// Who may grant this node something.
fn sources(ipam: Ipam) -> &'static [Origin] {
    match ipam {
        Ipam::Pool => &[Origin::Cluster],
        Ipam::Crd => &[Origin::Cluster, Origin::CiliumNode],
    }
}

/// Renames the directory, so that what is in it can be looked at.
fn put_aside(dir: &Path) -> Result<PathBuf, String> {
    let aside = (0..u32::MAX).map(|n| aside(dir, n)).find(|path| !path.exists()).unwrap_or_default();
    std::fs::rename(dir, &aside).map(|()| aside).map_err(|e| format!("put {} aside: {e}", dir.display()))
}

fn aside(dir: &Path, n: u32) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    dir.with_file_name(format!("{name}.damaged-{n}"))
}

/// Notes in the new directory, before anything is used of it, that nobody knows yet who has which address.
fn begin_recovery(dir: &Path) -> Result<(), String> {
    file::make_own_dir(dir).map_err(|e| format!("make {}: {e}", dir.display()))?;
    let written = file::write_atomic(&dir.join(RECOVERING), b"", 0o600, file::Durability::Durable);
    written.and_then(|()| file::sync_folder(dir)).map_err(|e| e.to_string())
}

/// Whether the agent before this one has lost its store, and has ended before it was made anew.
fn is_unrecovered(dir: &Path) -> Result<bool, String> {
    let is_there = |path: &Path| path.try_exists().map_err(|e| format!("look for {}: {e}", path.display()));
    Ok(is_there(&dir.join(RECOVERING))? || (!is_there(dir)? && is_there(&aside(dir, 0))?))
}

/// What this store is called: one that was lost has another name.
fn store_id(dir: &Path) -> Result<String, String> {
    let path = dir.join("id");
    match file::read(&path, MAX_ID, Links::Refused) {
        Ok(id) if !id.is_empty() => return Ok(String::from_utf8_lossy(&id).trim().to_owned()),
        Ok(_) | Err(file::ReadError::NotFound { .. }) => {}
        Err(e) => return Err(e.to_string()),
    }
    let id = random()?;
    file::write_atomic(&path, id.as_bytes(), 0o600, file::Durability::Durable).map_err(|e| e.to_string())?;
    Ok(id)
}

/// Thirty-six characters that nobody else has.
fn random() -> Result<String, String> {
    let path = "/proc/sys/kernel/random/uuid";
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|e| format!("read {path}: {e}"))
}
