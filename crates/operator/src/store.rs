//! Everything that was read, always at hand: what lists and watches brought, and the answers to our own writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::{CellState, IpLedgerShardSpec, IpPoolStatus, NodeIpPoolStatus};
use cluster::Own;
use ipam::RangePools;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, ObjectMeta};
use ledger::{FINALIZER, Gone, NodePoolSeen, NodeSeen, PoolSeen, ShardSeen, Snapshot, Step};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::agents::Agents;
use crate::configs::Configs;
use crate::confirm::Times;
use crate::defined::There;
use crate::reclaim::{RECLAIM, said};
use crate::taken::{StoredObject, named};
use crate::tombstones::Marks;
use crate::{cilium_nodes, claims};

/// A kind that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Node,
    Own(Own),
    Claim,
    Definition,
    Pod,
    StatefulSet,
    CiliumNode,
}

/// All of them.
pub(crate) const KINDS: [Kind; 4] = [Kind::Node, Kind::Own(Own::IpPool), Kind::Own(Own::NodeIpPool), Kind::Own(Own::IpLedgerShard)];

/// Those that claims need besides. A cluster that does not have one of them has no claims.
pub(crate) const CLAIM_KINDS: [Kind; 4] = [Kind::Claim, Kind::Definition, Kind::Pod, Kind::StatefulSet];

/// What was read.
#[derive(Default)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    changed: Notify,
    /// The same of definitions.
    defined: Notify,
}

/// What was read, under its lock.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) world: Snapshot,
    /// What the ledger does not need to know of pools.
    pub(crate) pools: BTreeMap<String, More>,
    /// The versions of nodes.
    nodes: BTreeMap<String, String>,
    /// What definitions say, for the pools that they mean.
    configs: Configs,
    /// Finalizers of claims.
    pub(crate) claims: BTreeMap<String, Vec<String>>,
    /// UIDs of StatefulSets.
    sets: BTreeMap<String, String>,
    /// Who owns each CiliumNode.
    pub(crate) cilium: BTreeMap<String, Vec<OwnerReference>>,
    /// Who owns each NodeIPPool that a Node owns, besides.
    pub(crate) owners: BTreeMap<String, Vec<OwnerReference>>,
    /// When the agent of a node that is no more was heard of last, by the node's UID. It outlives the node's object.
    pub(crate) heard: BTreeMap<String, Instant>,
    /// The watch of nodes' objects could not be begun: no agent may have been heard.
    pub(crate) deaf: bool,
    /// Shards that somebody has deleted: they stay as long as anybody has a block of them.
    pub(crate) dying: BTreeSet<String>,
    listed: BTreeSet<Kind>,
    /// What outlives the ledger.
    pub(crate) marks: Marks,
    /// When what was read.
    pub(crate) times: Times,
    /// Who has spoken for which node.
    pub(crate) agents: Agents,
}

/// More of a pool.
#[derive(Default)]
pub(crate) struct More {
    pub(crate) uid: String,
    /// Ours and others'.
    pub(crate) finalizers: Vec<String>,
    /// UIDs of nodes that were gone when a person said that nothing of them runs any more.
    pub(crate) reclaim: Vec<String>,
    /// UIDs of nodes that were there, and for which nobody is to wait.
    pub(crate) silent: Vec<String>,
    /// What who keeps the pools of definitions has to know of it.
    pub(crate) there: There,
}

// === impl Kind ===

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Node => "Node",
            Kind::Own(own) => own.kind(),
            Kind::Claim => "IPAMClaim",
            Kind::Definition => "NetworkAttachmentDefinition",
            Kind::Pod => "Pod",
            Kind::StatefulSet => "StatefulSet",
            Kind::CiliumNode => "CiliumNode",
        }
    }
}

// === impl Store ===

impl Store {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until something has changed since this was called last.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Until a definition has changed since this was called last.
    pub(crate) async fn defined(&self) {
        self.defined.notified().await;
    }

    fn tell(&self, kind: Kind) {
        if kind == Kind::Definition {
            self.defined.notify_one();
        }
        self.changed.notify_one();
    }

    pub(crate) fn put(&self, kind: Kind, object: DynamicObject) {
        let name = named(&object.metadata);
        match StoredObject::of(kind, object) {
            Some(taken) => self.lock().put(kind, taken),
            // Pods come and go all the time; few of them have a claim, and one that had may have none any more.
            None if name.is_some_and(|name| self.lock().forget(kind, &name)) => {}
            None => return,
        }
        self.tell(kind);
    }

    pub(crate) fn remove(&self, kind: Kind, object: &DynamicObject) {
        if self.lock().remove(kind, &object.metadata) {
            self.tell(kind);
        }
    }

    /// There is no such object: somebody asked, and had read that version of it before.
    pub(crate) fn absent(&self, kind: Kind, name: &str, before: Option<&str>) {
        let mut inner = self.lock();
        if inner.version(kind, name) == before {
            inner.forget(kind, name);
        }
        self.changed.notify_one();
    }

    /// A whole list, in the place of what was known.
    pub(crate) fn replace(&self, kind: Kind, objects: Vec<StoredObject>) {
        let mut inner = self.lock();
        let names: BTreeSet<String> = objects.iter().filter_map(StoredObject::name).collect();
        for name in inner.names(kind).into_iter().filter(|name| !names.contains(name)) {
            inner.forget(kind, &name);
        }
        if kind == Kind::Own(Own::IpLedgerShard) {
            inner.times.shards_listed();
        }
        objects.into_iter().for_each(|object| inner.put(kind, object));
        inner.listed.insert(kind);
        let cilium = inner.listed.contains(&Kind::CiliumNode);
        if cilium && !std::mem::replace(&mut inner.world.cilium.complete, cilium) {
            inner.times.cilium_begins();
        }
        inner.world.cilium.unserved &= kind != Kind::CiliumNode;
        // How many pods a StatefulSet has decides about nothing that is in use.
        inner.world.claims.complete = CLAIM_KINDS.iter().all(|kind| *kind == Kind::StatefulSet || inner.listed.contains(kind));
        drop(inner);
        self.tell(kind);
    }

    /// The cluster does not have CiliumNodes, or not any more: nobody has anything of one. Decided is about them when they were listed again.
    pub(crate) fn without_cilium_nodes(&self) {
        let mut inner = self.lock();
        inner.listed.remove(&Kind::CiliumNode);
        inner.world.cilium.complete = false;
        let known = std::mem::replace(&mut inner.world.cilium.unserved, true);
        drop(inner);
        if !known {
            self.tell(Kind::CiliumNode);
        }
    }

    /// What was never listed.
    pub(crate) fn unlisted(&self) -> Vec<&'static str> {
        let inner = self.lock();
        KINDS.iter().filter(|kind| !inner.listed.contains(kind)).map(|kind| kind.name()).collect()
    }
}

// === impl Inner ===

impl Inner {
    fn put(&mut self, kind: Kind, taken: StoredObject) {
        let object = match taken {
            StoredObject::Whole(object) => *object,
            StoredObject::Definition(name, definition) => {
                let seen = self.configs.put(&name, definition);
                self.world.claims.definitions.insert(name, seen);
                return;
            }
            StoredObject::Pod(name, pod) => return drop(self.world.claims.pods.insert(name, pod)),
        };
        let meta = &object.metadata;
        let Some(name) = named(meta) else { return };
        let version = meta.resource_version.clone().unwrap_or_default();
        // The answer to a write of ours may be here before an earlier change.
        if self.version(kind, &name).is_some_and(|known| is_older(&version, known)) {
            return;
        }
        match kind {
            Kind::Node => {
                let labels = meta.labels.clone().unwrap_or_default();
                self.nodes.insert(name.clone(), version);
                let uid = meta.uid.clone().unwrap_or_default();
                let before = self.world.nodes.insert(name.clone(), NodeSeen { uid: uid.clone(), labels });
                if let Some(before) = before.filter(|before| before.uid != uid) {
                    self.departs(name, before);
                }
            }
            Kind::Own(Own::IpPool) => {
                let finalizers = meta.finalizers.clone().unwrap_or_default();
                let by_hand = meta.annotations.as_ref().and_then(|all| all.get(RECLAIM));
                let (reclaim, silent) = by_hand.map(|by_hand| said(by_hand)).unwrap_or_default();
                let (uid, there) = (meta.uid.clone().unwrap_or_default(), There::of(&object));
                self.pools.insert(name.clone(), More { uid, finalizers, reclaim, silent, there });
                self.world.pools.insert(name, pool(version, &object));
            }
            Kind::Own(Own::NodeIpPool) => {
                self.times.saw_spec(name.clone(), meta);
                let uid = meta.uid.clone().unwrap_or_default();
                let (spec, status) = (part(&object.data, "spec").unwrap_or_default(), part(&object.data, "status"));
                let status: NodeIpPoolStatus = status.unwrap_or_default();
                self.agents.put(&name, &status.agent);
                let all = meta.owner_references.iter().flatten();
                let (nodes, others): (Vec<_>, Vec<_>) = all.cloned().partition(|owner| owner.kind == "Node");
                let owned = !nodes.is_empty();
                if owned {
                    self.owners.insert(name.clone(), others)
                } else {
                    self.owners.remove(&name)
                };
                let seen = NodePoolSeen { version, uid, spec, status, owned };
                self.hear(&name, &seen);
                self.world.node_pools.insert(name, seen);
            }
            Kind::Own(Own::IpLedgerShard) => {
                // One that cannot be read has no base, by which the ledger knows it.
                let spec: IpLedgerShardSpec = part(&object.data, "spec").unwrap_or_default();
                if meta.deletion_timestamp.is_some() {
                    self.dying.insert(name.clone());
                }
                if spec.gathering && self.version(kind, &name) != Some(&version) {
                    self.times.gathers(&name);
                }
                self.world.shards.insert(name, ShardSeen { version, spec });
            }
            Kind::Claim => {
                self.claims.insert(name.clone(), meta.finalizers.clone().unwrap_or_default());
                self.world.claims.claims.insert(name, claims::claim(version, &object));
            }
            // Not whole.
            Kind::Definition | Kind::Pod => {}
            Kind::StatefulSet => {
                let uid = meta.uid.clone().unwrap_or_default();
                self.sets.insert(name, uid.clone());
                self.world.claims.sets.insert(uid, claims::set(&object));
            }
            Kind::CiliumNode => {
                self.times.saw_spec(cilium_nodes::key(&name), meta);
                self.cilium.insert(name.clone(), meta.owner_references.clone().unwrap_or_default());
                self.world.cilium.nodes.insert(name, cilium_nodes::node(version, &object));
            }
        }
    }

    /// Whether that changed something.
    fn remove(&mut self, kind: Kind, meta: &ObjectMeta) -> bool {
        let (name, version) = (named(meta).unwrap_or_default(), meta.resource_version.as_deref().unwrap_or_default());
        // It may be there again already.
        let again = match kind {
            Kind::Node => self.world.nodes.get(&name).is_some_and(|node| Some(&node.uid) != meta.uid.as_ref()),
            _ => self.version(kind, &name).is_some_and(|known| is_older(version, known)),
        };
        !again && self.forget(kind, &name)
    }

    /// Whether it was there.
    fn forget(&mut self, kind: Kind, name: &str) -> bool {
        let Snapshot { nodes, pools, node_pools, shards, claims, cilium, .. } = &mut self.world;
        match kind {
            Kind::Node => {
                self.nodes.remove(name);
                let node = nodes.remove(name);
                node.map(|node| self.departs(name.to_owned(), node)).is_some()
            }
            Kind::Own(Own::IpPool) => {
                self.pools.remove(name);
                pools.remove(name).is_some()
            }
            Kind::Own(Own::NodeIpPool) => {
                self.agents.forget(name);
                self.owners.remove(name);
                node_pools.remove(name).is_some()
            }
            Kind::Own(Own::IpLedgerShard) => {
                self.times.missing(name);
                self.dying.remove(name);
                shards.remove(name).is_some()
            }
            Kind::Claim => {
                self.claims.remove(name);
                claims.claims.remove(name).is_some()
            }
            Kind::Definition => {
                self.configs.forget(name);
                claims.definitions.remove(name).is_some()
            }
            Kind::Pod => claims.pods.remove(name).is_some(),
            Kind::StatefulSet => self.sets.remove(name).is_some_and(|uid| claims.sets.remove(&uid).is_some()),
            Kind::CiliumNode => {
                self.cilium.remove(name);
                cilium.nodes.remove(name).is_some()
            }
        }
    }

    /// The agent of a node that is no more is heard by what it writes. It may be silent from then on only, and not before it was asked.
    fn hear(&mut self, name: &str, now: &NodePoolSeen) {
        let uid = &now.spec.node_uid;
        let Some(before) = self.world.node_pools.get(name).filter(|before| before.spec.node_uid == *uid) else { return };
        let is_asked = |seen: &NodePoolSeen| seen.spec.reclaim_after_seconds.is_some();
        let is_heard = before.status != now.status || is_asked(now) != is_asked(before);
        if is_heard && self.world.nodes.get(name).is_none_or(|node| node.uid != *uid) {
            self.heard.insert(uid.clone(), Instant::now());
        }
    }

    /// Whether the agent of a node that is no more has an object that does not ask whether it lives.
    pub(crate) fn was_not_asked(&self, name: &str, uid: &str) -> bool {
        let object = self.world.node_pools.get(name).filter(|seen| seen.spec.node_uid == uid);
        self.world.grace.is_some() && object.is_some_and(|seen| seen.spec.reclaim_after_seconds.is_none())
    }

    /// A node goes while a ledger is missing, or has to be told what it was: whether it has something nothing else tells.
    fn departs(&mut self, name: String, node: NodeSeen) {
        if !self.world.is_whole() {
            self.world.departed.insert(node.uid, name);
        }
    }

    /// Takes in what follows from a step: who is found to be gone and has something is to be marked, who has nothing any more is not.
    /// Whether anybody is to be marked.
    pub(crate) fn mark(&mut self, decided: &Step, gone: &BTreeMap<String, Gone>) -> bool {
        let departed = &mut self.world.departed;
        departed.retain(|uid, _| !decided.settled.contains(uid));
        for (uid, name) in decided.departing.iter().filter(|(uid, _)| gone.contains_key(*uid)) {
            departed.entry(uid.clone()).or_insert_with(|| name.clone());
        }
        departed.keys().any(|uid| !self.marks.are_seen_to(uid))
    }

    /// Who is gone and has no mark yet is not said to be gone: what follows from that comes behind its mark.
    pub(crate) fn withhold(&self, decided: &Step, gone: &mut BTreeMap<String, Gone>) {
        gone.retain(|uid, _| !decided.departing.contains_key(uid) || self.marks.are_seen_to(uid));
    }

    /// The pools that definitions mean; `None` before all definitions were read.
    pub(crate) fn meant(&self) -> Option<RangePools> {
        let listed = self.listed.contains(&Kind::Definition);
        listed.then(|| self.configs.meant())
    }

    /// Deleted shards that nobody misses, with their versions: no cell of them is anybody's, and where one says how large the cells of a
    /// network are, none of that network.
    pub(crate) fn idle(&self) -> Vec<(String, String)> {
        let free = |seen: &ShardSeen| seen.spec.cells.values().all(|cell| cell.state == CellState::Free);
        let whole = |seen: &ShardSeen| seen.spec.base.ends_with("/0");
        // What cannot be read has no base, and may be of any network.
        let other = |seen: &ShardSeen, network: &str| !seen.spec.base.is_empty() && seen.spec.network != network;
        let known = |seen: &ShardSeen| !seen.spec.base.is_empty() && free(seen);
        let unused = |network: &str| self.world.shards.values().all(|seen| other(seen, network) || known(seen));
        let idle = |seen: &ShardSeen| free(seen) && (!whole(seen) || unused(&seen.spec.network));
        let dying = self.dying.iter().filter_map(|name| Some((name, self.world.shards.get(name)?)));
        dying.filter(|(_, seen)| idle(seen)).map(|(name, seen)| (name.clone(), seen.version.clone())).collect()
    }

    /// What a person says holds for a node that is really gone, and was when it was said.
    pub(crate) fn end_by_hand(&self, gone: &mut BTreeMap<String, Gone>) {
        for uid in self.pools.values().flat_map(|pool| &pool.reclaim) {
            gone.entry(uid.clone()).and_modify(|gone| *gone = Gone::ByHand);
        }
    }

    /// The version that was read last. What is neither written here nor asked for has none.
    pub(crate) fn version(&self, kind: Kind, name: &str) -> Option<&str> {
        match kind {
            Kind::Node => self.nodes.get(name).map(String::as_str),
            Kind::Own(Own::IpPool) => self.world.pools.get(name).map(|seen| seen.version.as_str()),
            Kind::Own(Own::NodeIpPool) => self.world.node_pools.get(name).map(|seen| seen.version.as_str()),
            Kind::Own(Own::IpLedgerShard) => self.world.shards.get(name).map(|seen| seen.version.as_str()),
            Kind::Claim => self.world.claims.claims.get(name).map(|seen| seen.version.as_str()),
            Kind::CiliumNode => self.world.cilium.nodes.get(name).map(|seen| seen.version.as_str()),
            Kind::Definition | Kind::Pod | Kind::StatefulSet => None,
        }
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        match kind {
            Kind::Node => self.world.nodes.keys().cloned().collect(),
            Kind::Own(Own::IpPool) => self.world.pools.keys().cloned().collect(),
            Kind::Own(Own::NodeIpPool) => self.world.node_pools.keys().cloned().collect(),
            Kind::Own(Own::IpLedgerShard) => self.world.shards.keys().cloned().collect(),
            Kind::Claim => self.world.claims.claims.keys().cloned().collect(),
            Kind::Definition => self.world.claims.definitions.keys().cloned().collect(),
            Kind::Pod => self.world.claims.pods.keys().cloned().collect(),
            Kind::StatefulSet => self.sets.keys().cloned().collect(),
            Kind::CiliumNode => self.cilium.keys().cloned().collect(),
        }
    }
}

/// Whether a version of an object comes before another one. Versions of one resource are numbers that grow (KEP-5504); of what is no
/// number nothing is known, and the one that came last holds.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

pub(crate) fn part<T: DeserializeOwned>(data: &Value, key: &str) -> Option<T> {
    serde_json::from_value(data.get(key)?.clone()).ok()
}

fn pool(version: String, object: &DynamicObject) -> PoolSeen {
    let meta = &object.metadata;
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    PoolSeen {
        version,
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        spec: serde_json::from_value(spec).map_err(|e| format!("spec: {e}")),
        status: part::<IpPoolStatus>(&object.data, "status"),
    }
}
