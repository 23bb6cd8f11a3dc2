//! Which ledgers there are, and which nodes have gone that have something of them, told by an object that is not of our kinds: where the kinds
//! are deleted, and all that is in them, who makes a ledger anew has to know that it is not the first one, and whose pods may run.
//!
//! ```text
//!   a root is there, and has no mark           it gets one: one write in the life of a network
//!   a root is to be made, or to be opened      the marks are read before
//!   a root goes that nobody needs any more     its mark goes before
//!   a node is gone that has something          it gets one before anybody acts on it
//!   nothing is left of what it had             its mark goes
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::timeout;

use crate::log::Line;
use crate::store::{Inner, Store};

/// The ConfigMap's name.
pub(crate) const NAME: &str = "netloom-ledgers";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// What is before a node's UID in the key of its mark, whose value is the node's name. Those of roots are empty.
const NODE: &str = "node.";
/// So many nodes have a mark. One takes 350 bytes at the most, and the API server keeps 1 MiB; of further ones nothing is known where a ledger
/// is lost before their grace is over.
const MOST: usize = 2048;

/// What is known of the object.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Its version; none: it is not there.
    version: Option<String>,
    /// The nodes that have a mark, by UID.
    nodes: BTreeMap<String, String>,
    /// The API server does not take it as it should be: nobody waits for that.
    refused: bool,
}

// === impl Marks ===

impl Marks {
    /// Whether a node that is no more may be said to be: it has its mark, or cannot have one.
    pub(crate) fn are_seen_to(&self, uid: &str) -> bool {
        self.nodes.contains_key(uid) || self.refused || self.nodes.len() >= MOST || !is_key(uid)
    }

    /// Whether the API server does not take it.
    pub(crate) fn are_refused(&self) -> bool {
        self.refused
    }

    /// The nodes that are to have a mark: those that have one first.
    fn wanted(&self, departed: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let (known, new): (Vec<_>, Vec<_>) = departed.iter().partition(|(uid, _)| self.nodes.contains_key(*uid));
        let all = known.into_iter().chain(new).filter(|(uid, _)| is_key(uid));
        all.take(MOST).map(|(uid, name)| (uid.clone(), name.clone())).collect()
    }
}

/// Whether a UID can be part of a key. Those of the API server can; owners of an object may be anything.
fn is_key(uid: &str) -> bool {
    !uid.is_empty() && uid.len() <= 200 && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

/// The nodes, names by UID, and the roots that the object marks. Who has lost its name is known by its UID alone. What is neither is
/// somebody else's.
fn parse(map: Option<&ConfigMap>) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let (mut nodes, mut roots) = (BTreeMap::new(), BTreeSet::new());
    for (key, name) in map.and_then(|map| map.data.as_ref()).into_iter().flatten() {
        match key.strip_prefix(NODE) {
            Some(uid) if !name.is_empty() => drop(nodes.insert(uid.to_owned(), name.clone())),
            // A network may have the name that nodes' keys begin with.
            _ if ledger::is_root_name(key) => drop(roots.insert(key.clone())),
            Some(uid) => drop(nodes.insert(uid.to_owned(), uid.to_owned())),
            None => {}
        }
    }
    (nodes, roots)
}

/// The nodes that any namespace's object marks, names by UID: in which one the operator is nobody has said. Where it may not be read, that is
/// an error: without them a living Node might be taken for the one of its name that has gone.
pub(crate) async fn departed(client: &Client) -> kube::Result<BTreeMap<String, String>> {
    let named = ListParams::default().fields(&format!("metadata.name={NAME}"));
    let maps = Api::<ConfigMap>::all(client.clone()).list(&named).await?;
    Ok(maps.iter().flat_map(|map| parse(Some(map)).0).collect())
}

/// Reads them. `false`: it is to be tried again. Where they may not be read there are none, and what nodes hold is all that tells of a
/// ledger that was lost.
pub(crate) async fn read(client: &Client, namespace: &str, seen: &Store) -> bool {
    let sent = seen.lock().times.now();
    let found = timeout(ANSWER, api(client, namespace).get_opt(NAME)).await;
    let map = match found {
        Ok(Ok(map)) => map,
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            tell("read", namespace, &status);
            None
        }
        Ok(Err(e)) => {
            tell("read", namespace, &e);
            return false;
        }
        Err(_) => {
            tell("read", namespace, &format!("no answer in {} s", ANSWER.as_secs()));
            return false;
        }
    };
    let mut inner = seen.lock();
    keep(&mut inner, map.as_ref());
    inner.times.marked = sent;
    true
}

/// Marks what is there, or has gone, and has no mark, without those that are about to go. Whether all is so then.
pub(crate) async fn write(client: &Client, namespace: &str, seen: &Store) -> bool {
    let (roots, nodes, version) = {
        let inner = seen.lock();
        let leaving: BTreeSet<String> = inner.idle().into_iter().map(|(name, _)| name).collect();
        let there = inner.world.shards.iter().filter(|(_, shard)| shard.spec.base.ends_with("/0")).map(|(name, _)| name);
        let roots: BTreeSet<String> = inner.world.ledgers.iter().chain(there).filter(|name| !leaving.contains(*name)).cloned().collect();
        let nodes = inner.marks.wanted(&inner.world.departed);
        if roots == inner.world.ledgers && nodes == inner.marks.nodes {
            return true;
        }
        (roots, nodes, inner.marks.version.clone())
    };
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), resource_version: version.clone(), ..ObjectMeta::default() };
    let nodes = nodes.into_iter().map(|(uid, name)| (format!("{NODE}{uid}"), name));
    let data = roots.into_iter().map(|name| (name, String::new())).chain(nodes).collect();
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let (api, post) = (api(client, namespace), PostParams::default());
    let written = match version {
        None => timeout(ANSWER, api.create(&post, &map)).await,
        Some(_) => timeout(ANSWER, api.replace(NAME, &post, &map)).await,
    };
    match written {
        Ok(Ok(map)) => {
            let mut inner = seen.lock();
            keep(&mut inner, Some(&map));
            inner.marks.refused = false;
            drop(inner);
            linux::crash_point!("operator-marks");
            true
        }
        // Somebody was faster. Where nothing is made that is not there, its namespace is not.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 || (status.code == 404 && version.is_some()) => {
            // Where it is there and may not be read, nobody waits for it.
            if read(client, namespace, seen).await && version.is_none() {
                let mut inner = seen.lock();
                inner.marks.refused |= inner.marks.version.is_none();
            }
            false
        }
        Ok(Err(e)) => {
            let refused =
                matches!(&e, kube::Error::Api(status) if (400..500).contains(&status.code) && ![401, 408, 429].contains(&status.code));
            seen.lock().marks.refused |= refused;
            tell("write", namespace, &e);
            false
        }
        Err(_) => {
            tell("write", namespace, &format!("no answer in {} s", ANSWER.as_secs()));
            false
        }
    }
}

fn api(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn keep(inner: &mut Inner, map: Option<&ConfigMap>) {
    let (nodes, roots) = parse(map);
    let (marks, world) = (&mut inner.marks, &mut inner.world);
    marks.version = map.and_then(|map| map.metadata.resource_version.clone());
    world.ledgers = roots;
    // Who has no mark any more was settled, by whoever took it off; who has none yet is to get one.
    world.departed.retain(|uid, _| !marks.nodes.contains_key(uid));
    world.departed.extend(nodes.clone());
    marks.nodes = nodes;
}

fn tell(verb: &str, namespace: &str, error: &dyn std::fmt::Display) {
    let next = "retrying; until then a lost ledger can be rebuilt only from the nodes that still exist";
    Line::warn("marks").with("verb", verb).with("configmap", format!("{namespace}/{NAME}")).with("error", error).with("now", next).end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_nodes_have_a_mark_and_who_has_one_keeps_it() {
        let departed: BTreeMap<String, String> = (0..MOST + 2).map(|n| (format!("uid-{n:05}"), "n".to_owned())).collect();
        let last = format!("uid-{:05}", MOST + 1);
        let mut marks = Marks { nodes: BTreeMap::from([(last.clone(), "n".to_owned())]), ..Marks::default() };
        assert!(!marks.are_seen_to("uid-00000"));
        marks.nodes = marks.wanted(&departed);
        assert_eq!((marks.nodes.len(), marks.nodes.contains_key(&last)), (MOST, true));
        // Who cannot have one is not waited for.
        assert!(departed.keys().all(|uid| marks.are_seen_to(uid)));
    }

    #[test]
    fn a_node_without_a_name_is_no_root_and_a_network_of_that_name_is_one() {
        let data = [("p.v4", ""), ("node.v6", ""), ("node.6f2c-01", ""), ("node.77", "a"), ("other", "")];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let (nodes, roots) = parse(Some(&ConfigMap { data: Some(data), ..ConfigMap::default() }));
        let nodes: Vec<_> = nodes.iter().map(|(uid, name)| (uid.as_str(), name.as_str())).collect();
        assert_eq!(nodes, [("6f2c-01", "6f2c-01"), ("77", "a")]);
        assert_eq!(roots.into_iter().collect::<Vec<_>>(), ["node.v6", "p.v4"]);
    }

    #[test]
    fn what_is_no_key_and_what_is_refused_keeps_nobody_waiting() {
        let departed = BTreeMap::from([("a/b".to_owned(), "n".to_owned()), ("c".to_owned(), "n".to_owned())]);
        let mut marks = Marks::default();
        assert_eq!(marks.wanted(&departed).into_keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!((marks.are_seen_to("a/b"), marks.are_seen_to("c")), (true, false));
        marks.refused = true;
        assert!(marks.are_seen_to("c"));
    }
}
