//! A person says that nothing of a node runs any more: what it had is free, and nobody waits for what it would tell.
//!
//! ```text
//!   Node, NodeIPPool, ledger, marks --what_to_reclaim--> which UIDs had that name, and what they have
//!   --reclaim--> an annotation of the IPPools, which the operator follows
//! ```
//!
//! Of a Node that is there nothing is freed, nor when it goes later: but a network whose ledger was lost does not wait for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use api::{IpLedgerShardSpec, NodeIpPoolSpec};
use cluster::{ConnectError, Connection, Own};
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::core::DynamicObject;
use ledger::{Holding, holdings_of};
use serde_json::json;

use crate::apply_write::{ReadResult, make, read};
use crate::store::{Kind, part};
use crate::tombstones;

/// The annotation that says so: UIDs with commas between them, each with [`SILENT`] where its Node was there when it was said.
pub(crate) const RECLAIM: &str = "netloom.io/reclaim";
/// Behind the UID of a Node that is there: nobody waits for what it would tell. What it has stays its own, also when it goes later:
/// nobody has said then that its pods are gone.
const SILENT: &str = ":silent";

/// So often is a pool that others change at the same time read again.
const TRIES: u32 = 16;

/// What is to be said of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// Its name.
    pub node: String,
    /// The nodes that have had it.
    pub lives: Vec<Life>,
    /// The IPPools that will say so: those that there are.
    pub pools: Vec<String>,
}

/// A node: one that was made anew under its name is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// `metadata.uid` of the Node.
    pub uid: String,
    /// Whether the Node is there.
    pub is_there: bool,
    /// How long ago its agent has written the status of its object, where that is known.
    pub spoke: Option<Duration>,
    /// What it has by the ledger.
    pub has: Vec<Holding>,
    /// It was deleted when it had something: where the ledger is lost it may have more than that tells.
    pub is_marked: bool,
    /// All IPPools say already what is to be said of it.
    pub is_said: bool,
}

/// What is said of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// What it has is free, and nobody waits for it.
    Free,
    /// Nobody waits for what it would tell; what it has stays its own.
    Silent,
    /// Nothing yet: who is gone comes first, and who is there may be well.
    Nothing,
}

/// Why nothing was said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReclaimError {
    /// No connection could be prepared.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No requests can be sent.
    #[error("cannot start the asynchronous runtime: {0}")]
    Runtime(String),
    /// Something cannot be read. Nothing is guessed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// What.
        what: String,
        /// Why.
        error: String,
    },
    /// Nobody has that name, and nobody had it.
    #[error("there is no Node {node:?}, and the ledger does not know it: list the nodes with `netloom ipam nodes`")]
    Unknown {
        /// The name.
        node: String,
    },
    /// There is nothing that could say so.
    #[error("the cluster has no IPPool, so no address was granted")]
    NoPool,
    /// A pool cannot be written.
    #[error("cannot write IPPool {pool}: {error}; fix the cause and run the command again, which continues")]
    Write {
        /// The pool.
        pool: String,
        /// Why.
        error: String,
    },
}

/// [`what_to_reclaim`], for who has no connection yet.
///
/// # Errors
/// [`ReclaimError`]
pub fn what_to_reclaim_by(kubeconfig: Option<&Path>, node: &str) -> Result<Reclaim, ReclaimError> {
    runtime()?.block_on(async { what_to_reclaim(&cluster::client(kubeconfig).await?, node).await })
}

/// [`reclaim`], for who has no connection yet.
///
/// # Errors
/// [`ReclaimError`]
pub fn reclaim_by(kubeconfig: Option<&Path>, what: &Reclaim) -> Result<(), ReclaimError> {
    runtime()?.block_on(async { reclaim(&cluster::client(kubeconfig).await?, what).await })
}

fn runtime() -> Result<tokio::runtime::Runtime, ReclaimError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ReclaimError::Runtime(e.to_string()))
}

/// Which nodes have had that name, and what they have.
///
/// # Errors
/// [`ReclaimError`]; nothing was changed.
pub async fn what_to_reclaim(connection: &Connection, node: &str) -> Result<Reclaim, ReclaimError> {
    let client = connection.client();
    let known = found(&client, Kind::Node, node).await?;
    let object = found(&client, Kind::Own(Own::NodeIpPool), node).await?;
    let shards: Vec<IpLedgerShardSpec> =
        list(&client, Own::IpLedgerShard).await?.iter().filter_map(|shard| part(&shard.data, "spec")).collect();
    let marked = tombstones::departed(&client).await;
    let marked = marked.map_err(|e| ReclaimError::Read { what: format!("ConfigMap {}", tombstones::NAME), error: e.to_string() })?;
    let is_marked = |uid: &str| marked.get(uid).is_some_and(|name| name == node);
    let pools: Vec<(String, String)> = list(&client, Own::IpPool).await?.iter().filter_map(annotation).collect();
    let is_said = |entry: &str| pools.iter().all(|(_, said)| entries(said).any(|said| said == entry));
    let mut has = holdings_of(&shards, node);
    let there = known.and_then(|node| node.metadata.uid).unwrap_or_default();
    let spec: NodeIpPoolSpec = object.as_ref().and_then(|object| part(&object.data, "spec")).unwrap_or_default();
    let spoke = object.as_ref().and_then(spoke);
    let mut uids: BTreeSet<String> = has.keys().cloned().collect();
    uids.extend([there.clone(), spec.node_uid.clone()]);
    uids.extend(marked.keys().filter(|uid| is_marked(uid)).cloned());
    uids.remove("");
    let life = |uid: String| Life {
        is_there: uid == there,
        spoke: spoke.filter(|_| uid == spec.node_uid),
        has: has.remove(&uid).unwrap_or_default(),
        is_marked: is_marked(&uid),
        is_said: is_said(&entry(&uid, uid == there)),
        uid,
    };
    let lives: Vec<Life> = uids.into_iter().map(life).collect();
    if lives.is_empty() {
        return Err(ReclaimError::Unknown { node: node.to_owned() });
    }
    if pools.is_empty() {
        return Err(ReclaimError::NoPool);
    }
    Ok(Reclaim { node: node.to_owned(), lives, pools: pools.into_iter().map(|(name, _)| name).collect() })
}

/// Says so. What is said already is not said twice.
///
/// # Errors
/// [`ReclaimError::Write`]
pub async fn reclaim(connection: &Connection, what: &Reclaim) -> Result<(), ReclaimError> {
    let client = connection.client();
    for pool in &what.pools {
        let failed = |error: String| ReclaimError::Write { pool: pool.clone(), error };
        let mut tries = TRIES;
        while !annotate(&client, pool, what).await.map_err(failed)? {
            tries = tries.checked_sub(1).ok_or_else(|| failed("it is changed by others all the time".to_owned()))?;
        }
    }
    Ok(())
}

/// Whether it says so now; `false`: it was changed meanwhile.
async fn annotate(client: &Client, pool: &str, what: &Reclaim) -> Result<bool, String> {
    let object = match read(client, Kind::Own(Own::IpPool), pool).await {
        ReadResult::Is(object) => object,
        ReadResult::Absent => return Ok(true),
        ReadResult::Unknown(error) => return Err(error),
    };
    let Some((_, before)) = annotation(&object) else { return Ok(true) };
    let Some(said) = what.added_to(&before) else { return Ok(true) };
    let version = object.metadata.resource_version.unwrap_or_default();
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {RECLAIM: said}}});
    let path = format!("{}/{pool}", Own::IpPool.path());
    let request = make(Method::PATCH, path, "application/merge-patch+json", &patch).map_err(|e| e.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}

async fn found(client: &Client, kind: Kind, name: &str) -> Result<Option<DynamicObject>, ReclaimError> {
    match read(client, kind, name).await {
        ReadResult::Is(object) => Ok(Some(*object)),
        ReadResult::Absent => Ok(None),
        ReadResult::Unknown(error) => Err(ReclaimError::Read { what: format!("{} {name}", kind.name()), error }),
    }
}

async fn list(client: &Client, own: Own) -> Result<Vec<DynamicObject>, ReclaimError> {
    let listed = own.api::<DynamicObject>(client.clone()).list(&ListParams::default()).await;
    listed.map(|list| list.items).map_err(|e| ReclaimError::Read { what: own.plural().to_owned(), error: e.to_string() })
}

// === impl Reclaim ===

impl Reclaim {
    /// What is said of one of its lives.
    #[must_use]
    pub fn says(&self, life: &Life) -> Says {
        let is_first = |other: &Life| !other.is_there && (other.is_marked || !other.has.is_empty()) && !other.is_said;
        match life.is_there {
            false => Says::Free,
            true if self.lives.iter().any(is_first) => Says::Nothing,
            true => Says::Silent,
        }
    }

    /// An annotation with what is to be said besides. `None`: it says so already.
    fn added_to(&self, said: &str) -> Option<String> {
        let before: Vec<&str> = entries(said).collect();
        let mut after = before.clone();
        let spoken_of: Vec<(&Life, String)> =
            self.lives.iter().filter(|life| self.says(life) != Says::Nothing).map(|life| (life, entry(&life.uid, life.is_there))).collect();
        for (life, entry) in &spoken_of {
            if !after.contains(&entry.as_str()) {
                // What was said while its Node was there.
                after.retain(|other| other.strip_suffix(SILENT) != Some(&life.uid));
                after.push(entry);
            }
        }
        (after != before).then(|| after.join(","))
    }
}

/// What is said of a UID.
fn entry(uid: &str, is_there: bool) -> String {
    if is_there { format!("{uid}{SILENT}") } else { uid.to_owned() }
}

fn entries(said: &str) -> impl Iterator<Item = &str> {
    said.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// The UIDs of an annotation: of those that were gone when it was said, and of those that were there.
pub(crate) fn said(annotation: &str) -> (Vec<String>, Vec<String>) {
    let (there, gone): (Vec<&str>, Vec<&str>) = entries(annotation).partition(|entry| entry.ends_with(SILENT));
    (
        gone.into_iter().map(str::to_owned).collect(),
        there.iter().filter_map(|entry| entry.strip_suffix(SILENT)).map(str::to_owned).collect(),
    )
}

/// An object's name, and what is said there.
fn annotation(object: &DynamicObject) -> Option<(String, String)> {
    let said = object.metadata.annotations.as_ref().and_then(|all| all.get(RECLAIM)).cloned().unwrap_or_default();
    Some((object.metadata.name.clone()?, said))
}

/// How long ago the status was written, as the API server notes of each writer. Its clock may be ahead of ours.
fn spoke(object: &DynamicObject) -> Option<Duration> {
    let fields = object.metadata.managed_fields.iter().flatten().filter(|field| field.subresource.as_deref() == Some("status"));
    let last = fields.filter_map(|field| field.time.as_ref()).map(|time| time.0).max()?;
    Some(since(last, Timestamp::now()))
}

fn since(last: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(last)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(uid: &str, is_there: bool, has: bool) -> Life {
        let holdings_of =
            Holding { network: "p".into(), pool: "p".into(), run: pool::Run::single("10.0.0.1".parse().unwrap_or([0, 0, 0, 0].into())) };
        let has = if has { vec![holdings_of] } else { Vec::new() };
        Life { uid: uid.into(), is_there, spoke: None, has, is_marked: false, is_said: false }
    }

    fn reclaim(lives: &[Life]) -> Reclaim {
        Reclaim { node: "n".into(), lives: lives.to_vec(), pools: vec!["p".into()] }
    }

    #[test]
    fn a_living_node_is_not_condemned_with_the_dead_one_of_its_name() {
        let mut both = [life("old", false, true), life("new", true, true)];
        assert_eq!(reclaim(&both).added_to("before").as_deref(), Some("before,old"));
        // What it had was lost with the ledger, and is known by its mark alone.
        both[0].has.clear();
        both[0].is_marked = true;
        assert_eq!(reclaim(&both).added_to("before").as_deref(), Some("before,old"));
        // What is left to be said after that.
        both[0].is_said = true;
        assert_eq!(reclaim(&both).added_to("old").as_deref(), Some("old,new:silent"));
        assert_eq!(reclaim(&both).added_to("old, new:silent"), None);
    }

    #[test]
    fn what_is_said_of_a_node_that_is_there_frees_nothing_until_it_is_said_again() {
        let said_once = reclaim(&[life("u", true, true)]).added_to("").unwrap_or_default();
        assert_eq!(said(&said_once), (vec![], vec!["u".to_owned()]));
        let said_again = reclaim(&[life("u", false, true)]).added_to(&said_once).unwrap_or_default();
        assert_eq!(said(&said_again), (vec!["u".to_owned()], vec![]));
    }

    #[test]
    fn what_was_said_of_a_node_that_was_there_does_not_free_it_when_it_is_gone() {
        let seen = crate::store::Store::default();
        let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "spec": {},
            "metadata": {"name": "p", "resourceVersion": "1", "annotations": {RECLAIM: "a,b:silent"}}});
        seen.put(Kind::Own(Own::IpPool), serde_json::from_value(pool).unwrap_or_else(|e| panic!("{e}")));
        let mut gone: std::collections::BTreeMap<_, _> = ["a", "b"].map(|uid| (uid.to_owned(), ledger::Gone::Confirmed)).into();
        seen.lock().end_by_hand(&mut gone);
        assert_eq!(gone.into_values().collect::<Vec<_>>(), [ledger::Gone::ByHand, ledger::Gone::Confirmed]);
    }

    #[test]
    fn who_has_spoken_by_a_clock_that_is_ahead_has_spoken_now() {
        let (last, now) = (Timestamp::from_second(100).unwrap_or_default(), Timestamp::from_second(95).unwrap_or_default());
        assert_eq!((since(last, now), since(now, last)), (Duration::ZERO, Duration::from_secs(5)));
    }
}
