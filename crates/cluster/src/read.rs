//! One look at all objects of a kind, for whoever has no runtime of its own: a command.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::{DynamicObject, Request};
use npwg::Definition;
use serde_json::Value;

use crate::call::Caller;
use crate::cluster::{Definitions, Pods};
use crate::list::Page;
use crate::watch::Watched;
use crate::{ApiError, Asked, ConnectError, Own, Pod, client};

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
            let asked = Asked { verb: "list", group: "netloom.io", resource: kind.plural(), of: "".into() };
            let list = list.map_err(|e| ReadError::Api(Box::new(ApiError::from_kube(asked, Arc::clone(&server), &e))))?;
            *found = list.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
            found.sort_by_cached_key(|object| object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        Ok(all)
    })
}

/// All definitions that can be used, and all pods that ask for networks. Without a kubeconfig the pod's service
/// account is used.
///
/// # Errors
/// [`ReadError`]
pub fn read_networks(kubeconfig: Option<&Path>) -> Result<(Vec<Definition>, Vec<Pod>), ReadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ReadError::Runtime(e.to_string()))?;
    runtime.block_on(async {
        let caller = Caller::new(client(kubeconfig).await?);
        let definition = |seen: <Definitions as Watched>::Seen| seen.checked().ok();
        let definitions = list::<Definitions, _>(&caller, definition).await?;
        let pods = list::<Pods, _>(&caller, |seen| Some(Pod::from(seen)).filter(Pod::asks)).await?;
        Ok((definitions, pods))
    })
}

/// What is wanted of a list, so far.
struct Chosen<W: Watched, T> {
    all: Vec<T>,
    keep: fn(W::Seen) -> Option<T>,
}

// === impl Chosen ===

impl<W: Watched, T> Chosen<W, T> {
    fn take(&mut self, seen: W::Seen) {
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

async fn list<W: Watched, T: Send + 'static>(caller: &Caller, keep: fn(W::Seen) -> Option<T>) -> Result<Vec<T>, ReadError> {
    let (group, resource) = W::RESOURCE;
    let asked = Asked { verb: "list", group, resource, of: "".into() };
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
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
