//! Definitions from before the standard had a kind of its own: `Network` objects of `kubernetes.cni.cncf.io/v1`, which Kuryr's first releases read.
//!
//! ```text
//!   Network with openstack.org/kuryr-config, and no definition of its name --> NetworkAttachmentDefinition with the same annotation
//! ```
//!
//! Pods are not served from them: they are copied once. Nothing but the annotation is taken over, so that a definition cannot get a configuration for
//! the nodes in this way.

use std::collections::BTreeSet;
use std::time::Duration;

use binding::KURYR_CONFIG;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use tokio::time::timeout;

use super::known::Followed;
use super::look::{LookError, list};

/// What they are called in messages.
const NETWORKS: &str = "networks.kubernetes.cni.cncf.io";
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A cluster with more had another controller than Kuryr.
const MOST: u32 = 10_000;

/// The definitions that are to be made: namespace, name and annotation.
pub(super) async fn definitions(client: &Client) -> Result<Vec<(String, String, String)>, LookError> {
    let failed = |reason: String| LookError::Api { kind: NETWORKS, reason };
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubernetes.cni.cncf.io", "v1", "Network"), "networks");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let params = ListParams::default().limit(MOST);
    let former = match timeout(PATIENCE, api.list(&params)).await {
        Ok(Ok(former)) => former.items,
        // The cluster does not have the kind.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(Vec::new()),
        Ok(Err(e)) => return Err(failed(e.to_string())),
        Err(_) => return Err(failed(format!("no answer in {} s", PATIENCE.as_secs()))),
    };
    let wanted = |mut object: DynamicObject| {
        let annotation = object.metadata.annotations.as_mut()?.remove(KURYR_CONFIG)?;
        Some((object.metadata.namespace?, object.metadata.name?, annotation))
    };
    let wanted: Vec<(String, String, String)> = former.into_iter().filter_map(wanted).collect();
    if wanted.is_empty() {
        return Ok(wanted);
    }
    let there = list(client, Followed::Definition, npwg::crd::PLURAL).await?;
    let there: BTreeSet<(String, String)> =
        there.into_iter().filter_map(|object| Some((object.metadata.namespace?, object.metadata.name?))).collect();
    Ok(wanted.into_iter().filter(|(namespace, name, _)| !there.contains(&(namespace.clone(), name.clone()))).collect())
}

/// Makes one of them. Somebody else may have made it meanwhile.
pub(super) async fn make(client: &Client, (namespace, name, annotation): &(String, String, String)) -> Result<(), LookError> {
    let api = Followed::Definition.api_of(client.clone(), namespace);
    let mut object = DynamicObject::new(name, &Followed::Definition.resource());
    object.metadata.namespace = Some(namespace.clone());
    object.metadata.annotations = Some([(KURYR_CONFIG.to_owned(), annotation.clone())].into());
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(e) => Err(LookError::Change { what: format!("definition {namespace}/{name}"), reason: e.to_string() }),
        Ok(_) => Ok(()),
    }
}
