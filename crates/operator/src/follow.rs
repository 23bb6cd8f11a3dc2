//! Lists and watches: what the API server has, kept at hand.

use std::sync::Arc;

use cluster::Own;
use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Client};

use crate::log::Line;
use crate::metrics::Metrics;
use crate::store::{CLAIM_KINDS, Kind, Store};
use crate::taken::StoredObject;
use crate::{cilium_nodes, claims};

// === impl Kind ===

impl Kind {
    pub(crate) fn api(self, client: Client) -> Api<DynamicObject> {
        match self {
            Kind::Node => Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&())),
            Kind::Own(own) => Own::api(own, client),
            Kind::Claim => Api::all_with(client, &claims::resource()),
            Kind::Definition => {
                let gvk = GroupVersionKind::gvk(npwg::crd::GROUP, npwg::crd::VERSION, npwg::crd::KIND);
                Api::all_with(client, &ApiResource::from_gvk_with_plural(&gvk, npwg::crd::PLURAL))
            }
            Kind::Pod => Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())),
            Kind::CiliumNode => Api::all_with(client, &cilium_nodes::resource()),
            Kind::StatefulSet => Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::apps::v1::StatefulSet>(&())),
        }
    }

    /// How many are asked for at a time. An object has 1.5 MB at the most, and a page is in memory as a whole, several times while it is
    /// read; two kinds are read at once.
    pub(crate) fn page(self) -> u32 {
        match self {
            Kind::Definition | Kind::Pod | Kind::StatefulSet | Kind::Claim | Kind::Own(Own::IpPool) => 25,
            Kind::Own(_) | Kind::CiliumNode => 100,
            Kind::Node => 500,
        }
    }

    /// What a cluster without this kind goes without, and what to do about it.
    fn without(self) -> &'static str {
        match self {
            Kind::Claim => "claims are not installed; to keep addresses: kubectl apply -f deploy/ipamclaims.yaml",
            Kind::Definition => {
                "claims and definition pools are not available; for pods with several networks: kubectl apply -f deploy/definition.yaml"
            }
            Kind::CiliumNode => "CiliumNodes are not filled: kubectl apply -f deploy/cilium-crd/ciliumnodes.yaml",
            Kind::Node | Kind::Own(_) | Kind::Pod | Kind::StatefulSet => "claims are not installed",
        }
    }
}

/// Follows one kind for ever. A list asks for the state of now, never for one that a cache has; what fails is tried again, ever more
/// seldom, and what is known stays.
pub(crate) async fn follow(client: Client, kind: Kind, seen: Arc<Store>, metrics: Arc<Metrics>) {
    let config = Config::default().page_size(kind.page());
    let begin = || watcher(kind.api(client.clone()), config.clone()).default_backoff().boxed();
    let mut events = begin();
    let (mut list, mut unserved) = (Vec::new(), false);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => list.clear(),
            Ok(Event::InitApply(object)) => list.extend(StoredObject::of(kind, object)),
            Ok(Event::InitDone) => {
                unserved = false;
                seen.replace(kind, std::mem::take(&mut list));
            }
            Ok(Event::Apply(object)) => seen.put(kind, object),
            Ok(Event::Delete(object)) => seen.remove(kind, &object),
            Err(e) if (kind == Kind::CiliumNode || CLAIM_KINDS.contains(&kind)) && is_unserved(&e) => {
                if kind == Kind::CiliumNode {
                    seen.without_cilium_nodes();
                }
                // It was there before, and comes again as another one: what it has then is for a list to say.
                if matches!(e, Error::WatchStartFailed(_)) {
                    events = begin();
                }
                if !std::mem::replace(&mut unserved, true) {
                    let why = "the cluster does not have this kind";
                    Line::info("watch").with("kind", kind.name()).with("why", why).with("now", kind.without()).end();
                }
            }
            Err(e) => {
                metrics.watch_failed();
                if kind == Kind::Own(Own::NodeIpPool) && matches!(e, Error::InitialListFailed(_) | Error::WatchStartFailed(_)) {
                    seen.lock().deaf = true;
                }
                let next = "using what was received before; retrying";
                Line::warn("watch").with("kind", kind.name()).with("error", e).with("now", next).end();
            }
        }
    }
}

/// Whether the cluster does not have this kind, or not any more.
fn is_unserved(e: &Error) -> bool {
    matches!(e, Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 404)
}
