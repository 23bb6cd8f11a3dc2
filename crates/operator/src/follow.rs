//! Lists and watches: what the API server has, kept at hand.

use std::sync::Arc;

use cluster::Own;
use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};

use crate::log::Line;
use crate::metrics::Metrics;
use crate::seen::{Kind, Seen};

// === impl Kind ===

impl Kind {
    fn api(self, client: Client) -> Api<DynamicObject> {
        match self {
            Kind::Node => Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&())),
            Kind::Own(own) => Own::api(own, client),
        }
    }
}

/// Follows one kind for ever. A list asks for the state of now, never for one that a cache has; what fails is tried again, ever more
/// seldom, and what is known stays.
pub(crate) async fn follow(client: Client, kind: Kind, seen: Arc<Seen>, metrics: Arc<Metrics>) {
    let mut events = watcher(kind.api(client), Config::default()).default_backoff().boxed();
    let mut list = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => list.clear(),
            Ok(Event::InitApply(object)) => list.push(object),
            Ok(Event::InitDone) => seen.replace(kind, std::mem::take(&mut list)),
            Ok(Event::Apply(object)) => seen.put(kind, object),
            Ok(Event::Delete(object)) => seen.remove(kind, &object),
            Err(e) => {
                metrics.watch_failed();
                let next = "what was read before holds; it is tried again";
                Line::warn("watch").with("kind", kind.name()).with("error", e).with("now", next).end();
            }
        }
    }
}
