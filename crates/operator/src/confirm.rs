//! What has to be read once more before a write: a watch may be far behind, and a write is refused only where its own object has
//! changed.
//!
//! ```text
//!   a block comes into a node's spec   its shard was read, or written by us, after that spec was
//!                                      or a block that was given back meanwhile would be there again:
//!                                      nobody frees one before it has left a spec
//!                                      the same of an address that comes into a CiliumNode's pool
//!   a shard is made                    all nodes' objects were read after it was found missing
//!                                      or what stands in one of them would be granted to somebody else
//!                                      and the root of its network: it may be lost as well
//!   a root is made                     besides: which roots there were before ("marks")
//!   a root stops gathering             all nodes' objects were read after that root, and which nodes have gone ("marks")
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::Own;
use futures::StreamExt;
use kube::Client;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use ledger::Write;
use tokio::time::timeout;

use crate::apply_write::{ReadResult, read};
use crate::cilium_nodes;
use crate::log::Line;
use crate::store::{Inner, Kind, Store};
use crate::tombstones;

/// So many requests are on their way at once.
const TOGETHER: usize = 16;
/// How long a list of all nodes' objects may take.
const LIST: Duration = Duration::from_secs(60);

/// When what was read, in steps: each thing that happens here is later than all before it.
#[derive(Debug, Default)]
pub(crate) struct Times {
    now: u64,
    /// When a node's spec has become what is known of it: a NodeIPPool by its name, a CiliumNode by [`cilium_nodes::key`].
    specs: BTreeMap<String, SpecChange>,
    /// When a request was sent, by name, whose answer told what is known of a shard, or an earlier version of it.
    shards: BTreeMap<String, u64>,
    /// Since when a shard is missing that was there.
    missing: BTreeMap<String, u64>,
    /// Since when those are missing that were never seen.
    never_seen: u64,
    /// When a request was sent that told what all nodes' objects are.
    listed: u64,
    /// When a request was sent that told which roots there were before.
    pub(crate) marked: u64,
    /// When a root that gathers has become what is known of it.
    gathering: BTreeMap<String, u64>,
}

/// Which spec of an object was seen, and when it was new.
#[derive(Debug)]
struct SpecChange {
    uid: Option<String>,
    /// `metadata.generation`: another one for each spec, the same for each status. An object may be without.
    generation: Option<i64>,
    at: u64,
}

// === impl Times ===

impl Times {
    /// A moment after all others.
    pub(crate) fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A node's object was seen. What its agent reports changes nothing here.
    pub(crate) fn saw_spec(&mut self, node: String, meta: &ObjectMeta) {
        let is_known = |seen: &SpecChange| meta.generation.is_some() && (&seen.uid, seen.generation) == (&meta.uid, meta.generation);
        if !self.specs.get(&node).is_some_and(is_known) {
            let at = self.now();
            self.specs.insert(node, SpecChange { uid: meta.uid.clone(), generation: meta.generation, at });
        }
    }

    /// A shard was read, or written, by a request that was sent then.
    pub(crate) fn read(&mut self, shard: &str, sent: u64) {
        let last = self.shards.entry(shard.to_owned()).or_default();
        *last = sent.max(*last);
    }

    /// A root gathers.
    pub(crate) fn gathers(&mut self, root: &str) {
        let now = self.now();
        self.gathering.insert(root.to_owned(), now);
    }

    /// A shard that was there is missing.
    pub(crate) fn missing(&mut self, shard: &str) {
        let now = self.now();
        self.missing.insert(shard.to_owned(), now);
        self.shards.remove(shard);
    }

    /// All shards were listed.
    pub(crate) fn shards_listed(&mut self) {
        self.never_seen = self.now();
    }

    /// CiliumNodes are there to be read, and no list of all nodes' objects had them before.
    pub(crate) fn cilium_begins(&mut self) {
        self.listed = 0;
    }

    fn is_read_later(&self, shard: &str, node: &str) -> bool {
        let (shard, spec) = (self.shards.get(shard).copied(), self.specs.get(node).map(|spec| spec.at));
        shard.is_some_and(|shard| spec.is_none_or(|spec| shard > spec))
    }

    /// Whether all nodes' objects were read after a shard was found missing, and what tells whether it is a network's first one.
    fn may_make(&self, shard: &str, root: Option<&str>) -> bool {
        let missing = self.missing.get(shard).copied().unwrap_or_default().max(self.never_seen);
        let first = match root {
            // It is the root itself.
            None => self.marked,
            Some(root) => self.shards.get(root).copied().unwrap_or_default(),
        };
        self.listed > missing && first > missing
    }

    fn may_open(&self, root: &str) -> bool {
        self.listed.min(self.marked) > self.gathering.get(root).copied().unwrap_or_default()
    }
}

/// What a write waits for.
#[derive(Default)]
struct WriteConfirmation {
    shards: BTreeSet<String>,
    lists: bool,
    marks: bool,
}

impl WriteConfirmation {
    fn of(inner: &Inner, write: &Write) -> Self {
        let mut waits = WriteConfirmation { shards: unread(inner, write), ..WriteConfirmation::default() };
        let Write::Shard { name, version, spec } = write else { return waits };
        let root = ledger::root_of(spec).filter(|root| root != name);
        match version {
            None if !inner.times.may_make(name, root.as_deref()) => {
                (waits.lists, waits.marks) = (true, root.is_none());
                waits.shards.extend(root);
            }
            Some(_) if root.is_none() && !inner.times.may_open(name) => (waits.lists, waits.marks) = (true, true),
            _ => {}
        }
        waits
    }

    fn is_nothing(&self) -> bool {
        self.shards.is_empty() && !self.lists
    }
}

/// Shards that are to be read before a write.
fn unread(inner: &Inner, write: &Write) -> BTreeSet<String> {
    let (object, mut shards) = match write {
        Write::NodePool { name, version: Some(_), spec } => (name.clone(), ledger::added(&inner.world, name, spec)),
        Write::CiliumPool { name, pool, .. } => (cilium_nodes::key(name), ledger::added_addresses(&inner.world, pool)),
        _ => return BTreeSet::new(),
    };
    shards.retain(|shard| !inner.times.is_read_later(shard, &object));
    shards
}

/// The writes that may be carried out; what is missing for the others is read. `false`: it could not be.
pub(crate) async fn confirm(client: &Client, namespace: &str, seen: &Store, mut writes: Vec<Write>) -> (Vec<Write>, bool) {
    let mut all = WriteConfirmation::default();
    {
        let inner = seen.lock();
        writes.retain(|write| {
            let waits = WriteConfirmation::of(&inner, write);
            let ready = waits.is_nothing();
            all.lists |= waits.lists;
            all.marks |= waits.marks;
            all.shards.extend(waits.shards);
            ready
        });
    }
    let read_shards = futures::stream::iter(all.shards).map(|shard| read_shard(client, seen, shard));
    let mut read = read_shards.buffer_unordered(TOGETHER).fold(true, |all, one| async move { all && one }).await;
    if all.lists {
        read &= list_nodes(client, seen).await;
    }
    if all.marks {
        read &= tombstones::read(client, namespace, seen).await;
    }
    (writes, read)
}

async fn read_shard(client: &Client, seen: &Store, shard: String) -> bool {
    let shard = shard.as_str();
    let kind = Kind::Own(Own::IpLedgerShard);
    let (sent, before) = {
        let mut inner = seen.lock();
        (inner.times.now(), inner.version(kind, shard).map(str::to_owned))
    };
    match read(client, kind, shard).await {
        ReadResult::Is(object) => seen.put(kind, *object),
        ReadResult::Absent => seen.absent(kind, shard, before.as_deref()),
        ReadResult::Unknown(error) => {
            Line::warn("read").with("kind", kind.name()).with("name", shard).with("error", error).with("now", "retrying").end();
            return false;
        }
    }
    seen.lock().times.read(shard, sent);
    true
}

/// What is not in the lists stays known: the watches tell what has gone, and what has come since.
async fn list_nodes(client: &Client, seen: &Store) -> bool {
    let (sent, cilium) = {
        let mut inner = seen.lock();
        (inner.times.now(), inner.world.cilium.complete)
    };
    let kinds = [Kind::Own(Own::NodeIpPool)].into_iter().chain(cilium.then_some(Kind::CiliumNode));
    for kind in kinds {
        let error = match timeout(LIST, kind.api(client.clone()).list(&ListParams::default())).await {
            Ok(Ok(list)) => {
                list.items.into_iter().for_each(|object| seen.put(kind, object));
                continue;
            }
            Ok(Err(kube::Error::Api(status))) if kind == Kind::CiliumNode && status.code == 404 => {
                seen.without_cilium_nodes();
                continue;
            }
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer in {} s", LIST.as_secs()),
        };
        Line::warn("read").with("kind", kind.name()).with("error", error).with("now", "retrying").end();
        return false;
    }
    let mut inner = seen.lock();
    // Those that came meanwhile are not in these lists.
    if cilium || !inner.world.cilium.complete {
        inner.times.listed = sent;
    }
    true
}
