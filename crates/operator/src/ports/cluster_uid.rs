//! What tells this cluster from another one that has the same name by mistake.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

/// The namespace that is there as long as the cluster is.
const NAMESPACE: &str = "kube-system";

/// Its UID.
///
/// # Errors
/// Why there is none.
pub(super) async fn cluster_uid(client: &Client) -> Result<String, String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found =
        api.get(NAMESPACE).await.map_err(|e| format!("read namespace {NAMESPACE}: {e}; its UID tells clusters of one name apart"))?;
    found.metadata.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| format!("namespace {NAMESPACE} has no UID"))
}
