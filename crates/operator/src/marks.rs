//! Which ledgers there are, told by an object that is not of our kinds: where the kinds are deleted, and all that is in them, who makes a
//! ledger anew has to know that it is not the first one.
//!
//! ```text
//!   a root is there, and has no mark           it gets one: one write in the life of a network
//!   a root is to be made                       the marks are read before
//!   a root goes that nobody needs any more     its mark goes before
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::timeout;

use crate::log::Line;
use crate::seen::{Inner, Seen};

/// The ConfigMap's name.
pub(crate) const NAME: &str = "netloom-ledgers";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// Reads them. `false`: it is to be tried again. Where they may not be read there are none, and what nodes hold is all that tells of a
/// ledger that was lost.
pub(crate) async fn read(client: &Client, namespace: &str, seen: &Seen) -> bool {
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

/// Marks what is there and has no mark, without those that are about to go. Whether all is so then.
pub(crate) async fn write(client: &Client, namespace: &str, seen: &Seen) -> bool {
    let (wanted, version) = {
        let inner = seen.lock();
        let leaving: BTreeSet<String> = inner.idle().into_iter().map(|(name, _)| name).collect();
        let roots = inner.world.shards.iter().filter(|(_, shard)| shard.spec.base.ends_with("/0")).map(|(name, _)| name);
        let wanted: BTreeSet<String> = inner.world.ledgers.iter().chain(roots).filter(|name| !leaving.contains(*name)).cloned().collect();
        if wanted == inner.world.ledgers {
            return true;
        }
        (wanted, inner.marks.clone())
    };
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), resource_version: version.clone(), ..ObjectMeta::default() };
    let data: BTreeMap<String, String> = wanted.into_iter().map(|name| (name, String::new())).collect();
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let (api, post) = (api(client, namespace), PostParams::default());
    let written = match version {
        None => timeout(ANSWER, api.create(&post, &map)).await,
        Some(_) => timeout(ANSWER, api.replace(NAME, &post, &map)).await,
    };
    match written {
        Ok(Ok(map)) => {
            keep(&mut seen.lock(), Some(&map));
            linux::crash_point!("operator-marks");
            true
        }
        // Somebody was faster.
        Ok(Err(kube::Error::Api(status))) if [404, 409].contains(&status.code) => {
            read(client, namespace, seen).await;
            false
        }
        Ok(Err(e)) => {
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
    inner.marks = map.and_then(|map| map.metadata.resource_version.clone());
    inner.world.ledgers = map.and_then(|map| map.data.as_ref()).map(|data| data.keys().cloned().collect()).unwrap_or_default();
}

fn tell(verb: &str, namespace: &str, error: &dyn std::fmt::Display) {
    let next = "it is tried again; without it a ledger that is lost is known only by what nodes hold";
    Line::warn("marks").with("verb", verb).with("configmap", format!("{namespace}/{NAME}")).with("error", error).with("now", next).end();
}
