//! One look at all objects of a kind, for whoever has no runtime of its own: a command.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::{DynamicObject, Request};
use npwg::Definition;
use serde_json::Value;

use crate::call::Caller;
use crate::cluster::{Definitions, Pods};
use crate::endpoints::Endpoints;
use crate::list::Page;
use crate::node_blocks::{AllBlocks, NodeBlocks};
use crate::nodes::{AllNodes, Node};
use crate::reached::{EveryService, Services};
use crate::services::ServiceCidrs;
use crate::watch::Watched;
use crate::{ApiError, ConnectError, Own, Pod, RequestedObject, TooLarge, client};

/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many objects are asked for at a time.
const PAGE: u32 = 200;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no way to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refuses, does not serve the kind, or cannot be reached.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// It does not answer.
    #[error("list {} of {server}: no answer within {} s", kind.plural(), PATIENCE.as_secs())]
    Late {
        /// The server's address.
        server: Arc<str>,
        /// What was asked for.
        kind: Own,
    },
    /// Nothing can be asked here.
    #[error("start the asynchronous runtime: {0}")]
    Runtime(String),
}

/// All objects of these kinds, each kind by name, as the server has them. Without a kubeconfig the pod's service account is used.
///
/// # Errors
/// [`ReadError`]
pub fn read_all<const N: usize>(kubeconfig: Option<&Path>, kinds: [Own; N]) -> Result<[Vec<Value>; N], ReadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ReadError::Runtime(e.to_string()))?;
    runtime.block_on(async {
        let connection = client(kubeconfig).await?;
        let mut all = [const { Vec::new() }; N];
        for (found, kind) in all.iter_mut().zip(kinds) {
            let server = connection.server_shared();
            let late = |_| ReadError::Late { server: Arc::clone(&server), kind };
            let listed = kind.api::<DynamicObject>(connection.client());
            let list = tokio::time::timeout(PATIENCE, listed.list(&ListParams::default())).await.map_err(late)?;
            let asked = RequestedObject { verb: "list", group: "netloom.io", resource: kind.plural(), of: "".into() };
            let list = list.map_err(|e| ReadError::Api(Box::new(ApiError::from_kube(asked, Arc::clone(&server), &e))))?;
            *found = list.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
            found.sort_by_cached_key(|object| object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        Ok(all)
    })
}

/// What a cluster has that concerns networks, at one look.
pub struct ClusterNetworks {
    /// The definitions that can be used.
    pub definitions: Vec<Definition>,
    /// Those that are too large to be used.
    pub too_large: Vec<TooLarge>,
    /// The pods that ask for networks.
    pub pods: Vec<Pod>,
    /// The ranges of Services, as `10.96.0.0/12`; none where the server does not tell.
    pub service_ranges: Vec<String>,
    /// Where Services are reached; nowhere where the server does not tell.
    pub services: Services,
    /// The addresses of the API servers, as far as the server tells.
    pub servers: Vec<String>,
    /// The Nodes, with their ranges and addresses; none where they are not asked for.
    pub nodes: Vec<Arc<Node>>,
    /// What nodes were granted of the pools of the cluster's own network; nothing where that is not asked for.
    pub blocks: Vec<Arc<NodeBlocks>>,
    /// What the server refuses to tell of all this, or does not have.
    pub unread: Vec<ApiError>,
    /// The address at which it was asked, where its URL names no host.
    pub asked_at: Option<IpAddr>,
}

/// What concerns networks; `of_nodes`: the network of pods as well, which agents provide. Without a kubeconfig the pod's service account is
/// used.
///
/// # Errors
/// [`ReadError`]
pub fn read_networks(kubeconfig: Option<&Path>, of_nodes: bool) -> Result<ClusterNetworks, ReadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ReadError::Runtime(e.to_string()))?;
    runtime.block_on(async {
        let caller = Caller::new(client(kubeconfig).await?);
        let (mut definitions, mut too_large) = (Vec::new(), Vec::new());
        for checked in list::<Definitions, _>(&caller, |seen| Some(seen.checked()), None).await? {
            match checked {
                Ok(definition) => definitions.push(definition),
                Err(e) => too_large.push(e),
            }
        }
        let pods = list::<Pods, _>(&caller, |seen| Some(Pod::from(seen)).filter(Pod::asks), None).await?;
        let mut unread = Vec::new();
        let service_ranges = list::<ServiceCidrs, _>(&caller, |seen| Some(ServiceCidrs::keep(seen).1), None).await;
        let service_ranges = texts(if_told(service_ranges, &mut unread)?);
        let servers = list::<Endpoints, _>(&caller, |seen| Some(Endpoints::keep(seen).1), Some(Endpoints::FIELDS)).await;
        let servers = texts(if_told(servers, &mut unread)?);
        let services = list::<EveryService, _>(&caller, |seen| Some(EveryService::keep(seen)), None).await;
        let services = Services::of(if_told(services, &mut unread)?);
        let (mut nodes, mut blocks) = (Vec::new(), Vec::new());
        if of_nodes {
            nodes = if_told(list::<AllNodes, _>(&caller, |seen| Some(AllNodes::keep(seen).1), None).await, &mut unread)?;
            // Without pools there are none, nor the kind.
            blocks = if_told(list::<AllBlocks, _>(&caller, |seen| Some(AllBlocks::keep(seen).1), None).await, &mut Vec::new())?;
        }
        let asked_at = caller.ip();
        Ok(ClusterNetworks { definitions, too_large, pods, service_ranges, services, servers, nodes, blocks, unread, asked_at })
    })
}

/// What is kept of objects, or nothing where the server will never tell.
fn if_told<T>(listed: Result<Vec<T>, ReadError>, unread: &mut Vec<ApiError>) -> Result<Vec<T>, ReadError> {
    match listed {
        Err(ReadError::Api(e)) if e.is_final() => {
            unread.push(*e);
            Ok(Vec::new())
        }
        other => other,
    }
}

/// All texts that objects have.
fn texts(all: Vec<Arc<[String]>>) -> Vec<String> {
    all.iter().flat_map(|texts| texts.iter().cloned()).collect()
}

/// What is wanted of a list, so far.
struct Chosen<W: Watched, T> {
    all: Vec<T>,
    keep: fn(W::PartialObject) -> Option<T>,
}

// === impl Chosen ===

impl<W: Watched, T> Chosen<W, T> {
    fn take(&mut self, seen: W::PartialObject) {
        self.all.extend((self.keep)(seen));
    }
}

// === impl Pod ===

impl Pod {
    /// Whether it has anything to say about its networks.
    fn asks(&self) -> bool {
        self.networks.is_some() || self.default_network.is_some()
    }
}

async fn list<W: Watched, T: Send + 'static>(
    caller: &Caller,
    keep: fn(W::PartialObject) -> Option<T>,
    fields: Option<&str>,
) -> Result<Vec<T>, ReadError> {
    let (group, resource) = W::RESOURCE;
    let asked = RequestedObject { verb: "list", group, resource, of: "".into() };
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    params.field_selector = fields.map(str::to_owned);
    loop {
        let page = Page { state: Chosen::<W, T> { all, keep }, take: Chosen::take };
        let read = caller.read_list(&asked, Request::new(W::PATH).list(&params), page).await;
        let (so_far, meta) = read.map_err(|e| ReadError::Api(Box::new(e)))?;
        all = so_far.all;
        match meta.more.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(more),
            None => return Ok(all),
        }
    }
}
