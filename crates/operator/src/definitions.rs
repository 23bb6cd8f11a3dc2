//! Follows NetworkAttachmentDefinitions, and keeps the IPPools that they mean ([`crate::defined`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Scaling;
use cluster::Own;
use futures::StreamExt;
use http::{Method, Request};
use ipam::{RangePools, Undefined, range_pools};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use crate::carry::make;
use crate::defined::{DEFINITIONS, Due, There, WHEREABOUTS, drained, due, used};
use crate::follow::is_unserved;
use crate::lease::Leadership;
use crate::log::Line;
use crate::metrics::Metrics;
use crate::seen::Seen;

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(100);
/// How often it is looked whether a pool that nobody means is not used any more, and whether somebody has deleted one.
const LOOK: Duration = Duration::from_secs(10);
/// After something was changed, or failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What keeps these pools.
pub(crate) struct Definitions {
    pub(crate) client: Client,
    pub(crate) seen: Arc<Seen>,
    pub(crate) lead: Arc<Leadership>,
    pub(crate) metrics: Arc<Metrics>,
}

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition"),
        "network-attachment-definitions",
    )
}

// === impl Definitions ===

impl Definitions {
    /// For ever. A cluster that has no such kind has no such pools; what was read before holds where nothing can be read.
    pub(crate) async fn keep(self) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource());
        let mut events = watcher(api, Config::default()).default_backoff().boxed();
        let (mut known, mut list) = (None::<BTreeMap<String, String>>, BTreeMap::new());
        let (mut failing, mut told) = (false, Vec::new());
        let mut next = Instant::now() + LOOK;
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(event) = event else { return };
                    match event {
                        Err(e) => self.failed(&e, &mut failing),
                        Ok(event) => {
                            // Each try begins with this one, whatever comes of it.
                            failing &= matches!(event, Event::Init);
                            take_in(event, &mut known, &mut list);
                        }
                    }
                    next = next.min(Instant::now() + GATHER);
                }
                () = sleep_until(next) => {
                    next = Instant::now() + LOOK;
                    let Some(known) = known.as_ref().filter(|_| self.lead.leads() && self.seen.unlisted().is_empty()) else { continue };
                    let meant = range_pools(known.iter().map(|(name, config)| (name.as_str(), config.as_str())));
                    if meant.undefined != told {
                        tell(&meant.undefined);
                        told.clone_from(&meant.undefined);
                    }
                    match self.look(&meant).await {
                        Ok(0) => {}
                        Ok(_) => next = Instant::now() + AGAIN,
                        Err(error) => {
                            Line::warn("definitions").with("error", error).with("now", "it is tried again").end();
                            next = Instant::now() + AGAIN;
                        }
                    }
                }
            }
        }
    }

    /// Once. A cluster without definitions is none that fails, and who follows definitions for claims says that there are none.
    fn failed(&self, error: &kube::runtime::watcher::Error, failing: &mut bool) {
        if !std::mem::replace(failing, true) && !is_unserved(error) {
            self.metrics.watch_failed();
            let next = "pools of definitions stay as they are; it is tried again";
            Line::warn("watch").with("kind", "NetworkAttachmentDefinition").with("error", error).with("now", next).end();
        }
    }

    /// Makes it so; how much was to be changed.
    async fn look(&self, meant: &RangePools) -> Result<usize, String> {
        let api: Api<DynamicObject> = Own::IpPool.api(self.client.clone());
        let list = timeout(ANSWER, api.list(&ListParams::default())).await.map_err(|_| silent())?.map_err(|e| e.to_string())?;
        let there: BTreeMap<String, There> =
            list.items.iter().filter_map(|object| Some((object.metadata.name.clone()?, There::of(object)))).collect();
        let used = used(&self.seen.lock().world);
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
        let result = match timeout(ANSWER, self.client.request_text(request)).await {
            Err(_) => return Err(silent()),
            Ok(Ok(_)) => "done",
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

/// What is known, with what has changed; nothing before a whole list was read.
fn take_in(event: Event<DynamicObject>, known: &mut Option<BTreeMap<String, String>>, list: &mut BTreeMap<String, String>) {
    let named = |object: &DynamicObject| {
        let config = object.data.get("spec").and_then(|spec| spec.get("config")).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) =
            (object.metadata.namespace.as_deref().unwrap_or_default(), object.metadata.name.as_deref().unwrap_or_default());
        (format!("{namespace}/{name}"), config.to_owned())
    };
    match event {
        Event::Init => list.clear(),
        Event::InitApply(object) => list.extend([named(&object)]),
        Event::InitDone => *known = Some(std::mem::take(list)),
        Event::Apply(object) => known.iter_mut().for_each(|known| known.extend([named(&object)])),
        Event::Delete(object) => known.iter_mut().for_each(|known| drop(known.remove(&named(&object).0))),
    }
}
