//! The ranges from which Services get their addresses (`ServiceCIDR`, networking.k8s.io/v1, Kubernetes 1.33), followed.

use std::sync::Arc;

use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::Cluster;
use crate::cache::{Cache, Listed};
use crate::watch::{Watch, Watched};

/// The ranges, followed until this is dropped.
pub struct ServiceRanges {
    cache: Arc<Cache<Arc<[String]>>>,
    watch: AbortHandle,
}

/// The kind, for a watch.
pub(crate) struct ServiceCidrs;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartialObject {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    resource_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    cidrs: Option<Vec<String>>,
}

// === impl ServiceCidrs ===

impl Watched for ServiceCidrs {
    type PartialObject = PartialObject;
    type Stored = Arc<[String]>;
    const RESOURCE: (&'static str, &'static str) = ("networking.k8s.io", "servicecidrs");
    const PATH: &'static str = "/apis/networking.k8s.io/v1/servicecidrs";
    const PAGE: u32 = 500;
    const IS_OPTIONAL: bool = true;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Self::Stored) {
        (format!("/{}", seen.metadata.name).into(), seen.spec.cidrs.unwrap_or_default().into())
    }
}

// === impl ServiceRanges ===

impl ServiceRanges {
    /// Every range, as the objects have it (`10.96.0.0/12`), as they were seen last.
    pub fn all(&self) -> Vec<String> {
        self.cache.all().iter().flat_map(|ranges| ranges.iter().cloned()).collect()
    }

    /// Whether they can be trusted.
    pub fn listed(&self) -> Listed {
        self.cache.listed()
    }
}

impl Drop for ServiceRanges {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows the ranges of Services from now on; a cluster that has no such objects has no ranges. Must be called within a tokio runtime.
    pub fn follow_service_ranges(&self) -> ServiceRanges {
        let cache = Arc::new(Cache::new());
        let watch = Watch::<ServiceCidrs> { caller: self.inner.caller.clone(), cache: Arc::clone(&cache), selector: None };
        ServiceRanges { cache, watch: tokio::spawn(watch.run()).abort_handle() }
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes).map(ServiceCidrs::keep));
}
