//! Keeps the IPPools that NetworkAttachmentDefinitions mean ([`crate::defined`]), as the one watch of them has read them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Scaling;
use cluster::Own;
use http::{Method, Request};
use ipam::{RangePools, Undefined};
use kube::Client;
use kube::core::DynamicObject;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use crate::apply_write::make;
use crate::defined::{DEFINITIONS, Due, There, WHEREABOUTS, drained, due, used};
use crate::lease::Leadership;
use crate::log::Line;
use crate::metrics::Metrics;
use crate::store::{Kind, Store};

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(100);
/// How often it is looked, in what was read, whether a pool that nobody means is not used any more, and whether somebody has deleted one.
const LOOK: Duration = Duration::from_secs(10);
/// After something was changed, or failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What keeps these pools.
pub(crate) struct Definitions {
    pub(crate) client: Client,
    pub(crate) seen: Arc<Store>,
    pub(crate) lead: Arc<Leadership>,
    pub(crate) metrics: Arc<Metrics>,
}

// === impl Definitions ===

impl Definitions {
    /// For ever. A cluster that has no such kind has no such pools; what was read before holds where nothing can be read.
    pub(crate) async fn keep(self) {
        let mut told = Vec::new();
        let mut next = Instant::now() + LOOK;
        loop {
            tokio::select! {
                () = self.seen.defined() => next = next.min(Instant::now() + GATHER),
                () = sleep_until(next) => {
                    next = Instant::now() + LOOK;
                    if !self.lead.leads() || !self.seen.unlisted().is_empty() {
                        continue;
                    }
                    let Some(meant) = self.seen.lock().meant() else { continue };
                    if meant.undefined != told {
                        tell(&meant.undefined);
                        told.clone_from(&meant.undefined);
                    }
                    match self.look(&meant).await {
                        Ok(0) => {}
                        Ok(_) => next = Instant::now() + AGAIN,
                        Err(error) => {
                            Line::warn("definitions").with("error", error).with("now", "retrying").end();
                            next = Instant::now() + AGAIN;
                        }
                    }
                }
            }
        }
    }

    /// Makes it so; how much was to be changed.
    async fn look(&self, meant: &RangePools) -> Result<usize, String> {
        let (there, used) = {
            let seen = self.seen.lock();
            let there: BTreeMap<String, There> = seen.pools.iter().map(|(name, more)| (name.clone(), more.there.clone())).collect();
            (there, used(&seen.world))
        };
        let due = due(meant, &there, &used);
        for due in &due {
            self.carry(due).await?;
        }
        Ok(due.len())
    }

    async fn carry(&self, due: &Due) -> Result<(), String> {
        let path = Own::IpPool.path();
        let (verb, name, request) = match due {
            Due::Make { name, spec, definitions } => {
                let metadata = json!({"name": name, "labels": {DEFINITIONS: WHEREABOUTS}, "annotations": {DEFINITIONS: definitions}});
                let (version, kind) = (Own::IpPool.api_version(), Own::IpPool.kind());
                let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
                ("create", name, make(Method::POST, path, "application/json", &object))
            }
            Due::Tell { name, version, definitions, scaling } => ("patch", name, patch(name, version, definitions, *scaling)),
            Due::Drain { name, version } => ("patch", name, patch(name, version, "", Some(drained()))),
            Due::Delete { name, uid, version } => {
                let options = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
                ("delete", name, make(Method::DELETE, format!("{path}/{name}"), "application/json", &options))
            }
        };
        let request = request.map_err(|e| e.to_string())?;
        let result = match timeout(ANSWER, self.client.request::<DynamicObject>(request)).await {
            Err(_) => return Err(silent()),
            Ok(Ok(object)) => {
                // What is deleted is there until its finalizer goes, and the watch tells when.
                if !matches!(due, Due::Delete { .. }) {
                    self.seen.put(Kind::Own(Own::IpPool), object);
                }
                "done"
            }
            // Somebody else was there first: the next look sees what is so now.
            Ok(Err(kube::Error::Api(status))) if [404, 409, 410].contains(&status.code) => "conflict",
            Ok(Err(e)) => return Err(format!("cannot {verb} IPPool {name}: {e}")),
        };
        self.metrics.wrote(verb, Own::IpPool.kind(), result);
        Line::info("definitions").with("verb", verb).with("pool", name).with("result", result).end();
        Ok(())
    }
}

/// Ranges that nobody can use.
fn tell(undefined: &[Undefined]) {
    for wrong in undefined {
        Line::warn("definition").with("name", &wrong.definition).with("error", &wrong.reason).end();
    }
}

fn silent() -> String {
    format!("no answer in {} s", ANSWER.as_secs())
}

fn patch(name: &str, version: &str, definitions: &str, scaling: Option<Scaling>) -> Result<Request<Vec<u8>>, http::Error> {
    let mut patch = json!({"metadata": {"resourceVersion": version, "annotations": {DEFINITIONS: definitions}}});
    if let (Some(scaling), Some(object)) = (scaling, patch.as_object_mut()) {
        object.insert("spec".to_owned(), json!({"scaling": scaling}));
    }
    make(Method::PATCH, format!("{}/{name}", Own::IpPool.path()), "application/merge-patch+json", &patch)
}
