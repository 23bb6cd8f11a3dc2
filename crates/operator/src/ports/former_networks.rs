//! Definitions from before the standard had a kind of its own: `Network` objects of `kubernetes.cni.cncf.io/v1`, which Kuryr's first releases read.
//!
//! ```text
//!   Network with openstack.org/kuryr-config, and no definition of its name --> NetworkAttachmentDefinition with the same annotation
//! ```
//!
//! Pods are not served from them: they are copied once. Nothing but the annotation is taken over, so that a definition cannot get a configuration for
//! the nodes in this way.

use std::collections::BTreeSet;

use binding::KURYR_CONFIG;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};

use super::known::Followed;
use super::look::{LookError, list, list_of};

/// What they are called in messages.
const NETWORKS: &str = "networks.kubernetes.cni.cncf.io";

/// A definition that is to be made.
struct Wanted {
    namespace: String,
    name: String,
    annotation: String,
}

/// Makes the definitions, or with `dry_run` none: their namespaces and names.
pub(super) async fn take_over(client: &Client, dry_run: bool) -> Result<Vec<String>, LookError> {
    let mut names = Vec::new();
    for definition in wanted(client).await? {
        if !dry_run {
            make(client, &definition).await?;
        }
        names.push(format!("{}/{}", definition.namespace, definition.name));
    }
    Ok(names)
}

async fn wanted(client: &Client) -> Result<Vec<Wanted>, LookError> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubernetes.cni.cncf.io", "v1", "Network"), "networks");
    let former = match list_of(&Api::all_with(client.clone(), &kind), NETWORKS).await {
        Err(LookError::Absent { .. }) => return Ok(Vec::new()),
        former => former?,
    };
    let of_neutron = |mut object: DynamicObject| {
        let annotation = object.metadata.annotations.as_mut()?.remove(KURYR_CONFIG)?;
        Some(Wanted { namespace: object.metadata.namespace?, name: object.metadata.name?, annotation })
    };
    let mut wanted: Vec<Wanted> = former.into_iter().filter_map(of_neutron).collect();
    if !wanted.is_empty() {
        let there = list(client, Followed::Definition, npwg::crd::PLURAL).await?;
        let there: BTreeSet<(String, String)> =
            there.into_iter().filter_map(|object| Some((object.metadata.namespace?, object.metadata.name?))).collect();
        wanted.retain(|one| !there.contains(&(one.namespace.clone(), one.name.clone())));
    }
    Ok(wanted)
}

/// Somebody else may have made it meanwhile.
async fn make(client: &Client, Wanted { namespace, name, annotation }: &Wanted) -> Result<(), LookError> {
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
