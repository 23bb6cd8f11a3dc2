//! Networks of namespaces that a Kuryr-Kubernetes has made: their KuryrNetworks become this cluster's.
//!
//! ```text
//!   KuryrNetwork without our label --its network is what it should be--> description and tag of the network --> label of the object
//!   from then on the operator gives its subnet to pods, and removes it with its namespace
//! ```
//!
//! Everybody who could write a KuryrNetwork while Kuryr worked could name any network in it: it must be of the project of the settings, have this subnet and
//! none of the settings, be on the router of the settings, and be named once.

use std::collections::BTreeMap;

use binding::{CLUSTER_LABEL, Cluster};
use kube::Client;
use kube::core::DynamicObject;
use neutron::{Neutron, PortFilter, Refusal};
use openstack::{NamespaceSubnets, Settings};
use osvif::{KuryrNetwork, network_crd};
use serde_json::json;

use super::adopt::{full_name, patch};
use super::known::{Followed, NetworkSeen};
use super::look::{LookError, list};
use super::namespace_network::{description, tag};
use super::options::OpenStack;

/// What becomes of KuryrNetworks: namespaces whose networks are taken over, and those that stay as they are, with the reasons.
#[derive(Default)]
pub(super) struct FormerNamespaces {
    pub(super) taken: Vec<String>,
    pub(super) refused: Vec<(String, String)>,
}

/// Takes them over, or with `dry_run` none.
pub(super) async fn take_over(
    openstack: &OpenStack,
    cluster: &Cluster,
    client: &Client,
    dry_run: bool,
) -> Result<FormerNamespaces, LookError> {
    let objects = match list(client, Followed::KuryrNetwork, network_crd::PLURAL).await {
        Err(LookError::Absent { .. }) => Vec::new(),
        objects => objects?,
    };
    let read: Vec<(DynamicObject, NetworkSeen)> =
        objects.into_iter().filter_map(|object| Some((object.clone(), NetworkSeen::of(object)?))).collect();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let named = read.iter().filter_map(|(_, seen)| seen.read.as_ref().ok()?.network.as_deref());
    named.for_each(|network| *times.entry(network).or_default() += 1);
    let mut all = FormerNamespaces::default();
    for (object, seen) in read.iter().filter(|(_, seen)| seen.made_by.is_none()) {
        let name = full_name(object);
        let Some(subnets) = &openstack.settings.namespace_subnets else {
            let why = "set pod_subnets_driver to namespace to take it over, or delete it while Kuryr's controller works";
            all.refused.push((name, why.to_owned()));
            continue;
        };
        match &seen.read {
            Err(why) => all.refused.push((name, why.clone())),
            Ok(network) => match wrong(network, object, &openstack.settings, subnets, &times, &openstack.neutron).await? {
                Some(why) => all.refused.push((name, why)),
                None => {
                    if !dry_run {
                        mark(openstack, cluster, network, &seen.uid).await?;
                        patch(client, Followed::KuryrNetwork, object, ("labels", json!({CLUSTER_LABEL: openstack.cluster.to_string()})))
                            .await?;
                    }
                    all.taken.push(network.namespace.clone());
                }
            },
        }
    }
    Ok(all)
}

/// The network says whose it is: the operator trusts, and removes, no other one.
async fn mark(openstack: &OpenStack, cluster: &Cluster, known: &KuryrNetwork, uid: &str) -> Result<(), LookError> {
    let Some(id) = &known.network else { return Ok(()) };
    let network = openstack.neutron.describe_network(id, &description(cluster, uid)).await?;
    tag(&openstack.neutron, "networks", id, &network.tags, &[cluster.name.tag()]).await?;
    Ok(())
}

/// Why a network cannot be taken over.
async fn wrong(
    known: &KuryrNetwork,
    object: &DynamicObject,
    settings: &Settings,
    subnets: &NamespaceSubnets,
    times: &BTreeMap<&str, usize>,
    neutron: &Neutron,
) -> Result<Option<String>, LookError> {
    let why = |text: &str| Ok(Some(text.to_owned()));
    let (Some(network), Some(subnet)) = (&known.network, known.ready()) else {
        return why("its network was not made to its end: delete the object with its finalizer, and its network if there is one");
    };
    let checks = [
        (object.metadata.namespace.as_ref() == Some(&known.namespace), "it is of another namespace than it says"),
        (known.router.as_ref() == Some(&subnets.router), "its router is not [namespace_subnet] pod_router"),
        (times.get(network.as_str()) == Some(&1), "several KuryrNetworks name its network"),
        (!of_settings(settings).any(|id| id == subnet), "its subnet is one of the settings"),
    ];
    if let Some((_, text)) = checks.iter().find(|(is_good, _)| !is_good) {
        return why(text);
    }
    match neutron.subnet(subnet).await {
        Err(e) if e.refusal() == Some(Refusal::NotFound) => why("Neutron has no such subnet"),
        Err(e) => Err(e.into()),
        Ok(found) if found.network_id != *network => why("its subnet is of another network"),
        Ok(found) if found.project_id != settings.project => why("its subnet is of another project"),
        Ok(_) => {
            let filter = PortFilter { network_id: Some(network.clone()), device_id: Some(subnets.router.clone()), ..PortFilter::default() };
            let on_router = neutron.ports(&filter).await?.iter().any(|port| port.fixed_ips.iter().any(|ip| ip.subnet_id == subnet));
            if on_router { Ok(None) } else { why("its subnet is not on [namespace_subnet] pod_router") }
        }
    }
}

/// Subnets that are for something else.
fn of_settings(settings: &Settings) -> impl Iterator<Item = &String> {
    settings.subnet.iter().chain(settings.subnet_of_driver.values()).chain(&settings.nested.node_subnets)
}
