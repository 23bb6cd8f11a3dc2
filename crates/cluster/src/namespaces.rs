//! The labels of namespaces, for selectors: followed only where something asks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::GetParams;
use kube::core::Request;
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::cache::Cache;
use crate::watch::{Watch, Watched};
use crate::{ApiError, Cluster, RequestedObject};

const PATH: &str = "/api/v1/namespaces";

/// The labels of an object, by their keys.
pub type Labels = BTreeMap<String, String>;

/// The namespaces of the cluster, followed until this is dropped.
pub struct Namespaces {
    cache: Arc<Cache<Arc<Labels>>>,
    watch: AbortHandle,
}

/// The kind, for a watch.
struct Followed;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
struct PartialObject {
    metadata: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    resource_version: String,
    labels: Option<Labels>,
}

// === impl Followed ===

impl Watched for Followed {
    type PartialObject = PartialObject;
    type Stored = Arc<Labels>;
    const RESOURCE: (&'static str, &'static str) = ("", "namespaces");
    const PATH: &'static str = PATH;
    const PAGE: u32 = 500;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Arc<Labels>) {
        let Meta { name, labels, .. } = seen.metadata;
        (format!("/{name}").into(), Arc::new(labels.unwrap_or_default()))
    }
}

// === impl Namespaces ===

impl Namespaces {
    /// The labels of a namespace as they were seen last. `None`: it was never seen, or is gone.
    pub fn labels(&self, namespace: &str) -> Option<Arc<Labels>> {
        self.cache.get("", namespace)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows all namespaces from now on. Must be called within a tokio runtime.
    pub fn follow_namespaces(&self) -> Namespaces {
        let cache = Arc::new(Cache::new());
        let watch = Watch::<Followed> { caller: self.inner.caller.clone(), cache: Arc::clone(&cache), selector: None };
        Namespaces { cache, watch: tokio::spawn(watch.run()).abort_handle() }
    }

    /// The labels of a namespace, from the API server. `None`: there is none.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of it.
    pub async fn fetch_namespace(&self, namespace: &str) -> Result<Option<Labels>, ApiError> {
        let asked = RequestedObject { verb: "get", group: "", resource: "namespaces", of: namespace.to_owned().into() };
        let seen: Option<PartialObject> = self.inner.caller.get(&asked, Request::new(PATH).get(namespace, &GetParams::default())).await?;
        Ok(seen.map(|seen| seen.metadata.labels.unwrap_or_default()))
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes).map(Followed::keep));
}
