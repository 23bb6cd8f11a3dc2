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

mod contest;
mod follow;
mod pace;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::AgentIdentity;
use ipam::PoolStore;
use linux::file::{self, Links};
use tokio::sync::Notify;

use crate::Agent;
use crate::agent::RunError;
use crate::log::Line;

/// How long short processes that use the store now are waited for.
const OTHERS: Duration = Duration::from_secs(60);
/// More than an identity has.
const MAX_ID: usize = 64;

/// The store of this node's pools, and who this agent is.
pub(crate) struct Addresses {
    pub(crate) store: Arc<PoolStore>,
    identity: AgentIdentity,
    changed: Arc<Notify>,
    /// How long it took to read the journal.
    pub(crate) restored: Duration,
}

// === impl Addresses ===

impl Addresses {
    /// Opens the store, and holds it: every plugin of this process uses it.
    pub(crate) fn open(dir: &Path) -> Result<Self, RunError> {
        let own = |reason: String| RunError::Own { step: "open the addresses of pools", reason };
        let begun = Instant::now();
        let store = Arc::new(PoolStore::open(dir, begun + OTHERS).map_err(|e| own(e.to_string()))?);
        let restored = begun.elapsed();
        let identity = AgentIdentity {
            store_id: store_id(dir).map_err(own)?,
            boot_id: linux::boot_id().map_err(|e| own(e.to_string()))?.to_string(),
            instance: random().map_err(own)?,
        };
        let changed = Arc::new(Notify::new());
        plugins::hold_pool_store(&store);
        let leases = store.look(|all| all.leases().count());
        Line::info("addresses").with("store", dir.display()).with("held", leases).took("took", restored).end();
        Ok(Addresses { store, identity, changed, restored })
    }
}

/// Follows this node's object for as long as the agent lives.
pub(crate) fn follow(agent: &Arc<Agent>, on_wait: impl Fn(usize) + Send + Sync + 'static) {
    let Some(addresses) = &agent.addresses else { return };
    let (changed, store) = (Arc::clone(&addresses.changed), Arc::downgrade(&addresses.store));
    let waiting = AtomicUsize::new(0);
    addresses.store.when_changed(move || {
        let now = store.upgrade().map_or(0, |store| store.waiting());
        if waiting.swap(now, Ordering::Relaxed) != now {
            on_wait(now);
        }
        changed.notify_one();
    });
    agent.runtime.spawn(follow::Follow::new(agent, addresses).run());
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
