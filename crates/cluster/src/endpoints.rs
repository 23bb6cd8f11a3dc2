//! The API server's own addresses (`EndpointSlice` `default/kubernetes`, discovery.k8s.io/v1, Kubernetes 1.21), followed.

use std::sync::Arc;

use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::cache::{Cache, Listed};
use crate::watch::{Watch, Watched};
use crate::{ApiError, Cluster};

/// The addresses, followed until this is dropped.
pub struct ApiEndpoints {
    cache: Arc<Cache<Arc<[String]>>>,
    watch: AbortHandle,
}

/// The kind, for a watch.
pub(crate) struct Endpoints;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartialObject {
    metadata: Meta,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    resource_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    addresses: Option<Vec<String>>,
}

// === impl Endpoints ===

impl Endpoints {
    /// The one object in which API servers publish themselves.
    pub(crate) const FIELDS: &'static str = "metadata.name=kubernetes";
}

impl Watched for Endpoints {
    type PartialObject = PartialObject;
    type Stored = Arc<[String]>;
    const RESOURCE: (&'static str, &'static str) = ("discovery.k8s.io", "endpointslices");
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    const PAGE: u32 = 0;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Self::Stored) {
        let addresses = seen.endpoints.unwrap_or_default().into_iter().flat_map(|endpoint| endpoint.addresses.unwrap_or_default());
        (format!("default/{}", seen.metadata.name).into(), addresses.collect())
    }
}

// === impl ApiEndpoints ===

impl ApiEndpoints {
    /// Every address, as the object has it, as it was seen last.
    pub fn all(&self) -> Vec<String> {
        self.cache.all().iter().flat_map(|addresses| addresses.iter().cloned()).collect()
    }

    /// Whether they can be trusted.
    pub fn listed(&self) -> Listed {
        self.cache.listed()
    }
}

impl Drop for ApiEndpoints {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows the addresses of the API servers from now on. Must be called within a tokio runtime.
    pub fn follow_api_endpoints(&self) -> ApiEndpoints {
        let cache = Arc::new(Cache::new());
        let fields = Some(Endpoints::FIELDS.to_owned());
        let watch = Watch::<Endpoints> { caller: self.inner.caller.clone(), cache: Arc::clone(&cache), selector: fields };
        ApiEndpoints { cache, watch: tokio::spawn(watch.run()).abort_handle() }
    }
}

impl ApiError {
    /// Whether the server has answered that it will not give this: it is not served, or a role lacks a rule. Asked again, it says the same
    /// until somebody changes that.
    pub fn is_final(&self) -> bool {
        matches!(self, ApiError::NotServed { .. } | ApiError::Forbidden { .. } | ApiError::Unauthorized { .. })
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes).map(Endpoints::keep));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_an_object_as_the_api_server_writes_it() {
        let text = r#"{"metadata":{"name":"kubernetes","namespace":"default","resourceVersion":"7"},"addressType":"IPv4",
            "endpoints":[{"addresses":["192.168.1.10"],"conditions":{"ready":true}},{"addresses":["192.168.1.11"]},{"addresses":null}]}"#;
        let (key, addresses) = Endpoints::keep(serde_json::from_str(text).unwrap());
        assert_eq!((&*key, &*addresses), ("default/kubernetes", ["192.168.1.10".to_owned(), "192.168.1.11".to_owned()].as_slice()));
        let none: PartialObject = serde_json::from_str(r#"{"metadata":{"name":"kubernetes"},"endpoints":null}"#).unwrap();
        assert!(Endpoints::keep(none).1.is_empty());
    }
}
