//! The network of a namespace, where each has its own (`pod_subnets_driver = namespace`).
//!
//! ```text
//!   make     KuryrNetwork with a finalizer --> network, with the object's UID in its description --> subnet --> router --> status
//!   remove   nobody else has a port there --> router --> network, with its subnets --> finalizer
//! ```
//!
//! Both begin with a look at what is there, and so go on where an operator that was killed has ended. Nothing is removed whose description does not
//! name the object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use binding::{CLUSTER_LABEL, Cluster};
use http::Method;
use kube::Client;
use kube::core::DynamicObject;
use neutron::{Error, Neutron, PortFilter};
use openstack::NamespaceSubnets;
use openstack::resource::{Network, NewNetwork, NewSubnet, Port, Subnet};
use osvif::{KURYR_PORT_VERSION, KuryrNetwork, NETWORK_FINALIZER, network_crd};
use serde_json::{Value, json};

use super::known::NetworkSeen;
use crate::apply_write::{Outcome, make as request, send};
use crate::lease::Leadership;
use crate::log::Line;

/// Descriptions of the networks that the operators of a cluster have made, by ID.
pub(super) type MadeNetworks = BTreeMap<String, String>;

/// Owners of ports by which a router is in a network: they go with the interface.
const OF_ROUTERS: [&str; 4] = [
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
    "network:router_centralized_snat",
];
/// Owners of ports that Neutron has in a network by itself: they go with it.
const OF_NEUTRON: [&str; 2] = ["network:dhcp", "network:distributed"];

/// What is to be made.
#[derive(Clone)]
pub(super) struct NamespaceNetwork {
    pub(super) namespace: String,
    pub(super) cluster: Cluster,
    pub(super) project: String,
    /// Tags of all that is made.
    pub(super) tags: Vec<String>,
    pub(super) subnets: NamespaceSubnets,
    /// The KuryrNetwork as it was read; none: there is none yet.
    pub(super) seen: Option<NetworkSeen>,
    pub(super) lead: Arc<Leadership>,
}

/// What is to be removed.
#[derive(Clone)]
pub(super) struct FormerNetwork {
    pub(super) namespace: String,
    pub(super) cluster: Cluster,
    /// The project of the settings, for an object that cannot be read.
    pub(super) project: String,
    pub(super) seen: NetworkSeen,
}

/// Why a network was not made.
pub(super) struct NotMade {
    pub(super) why: String,
    /// Neutron may still be making it: nothing is made again before that is over.
    pub(super) may_go_on: bool,
}

/// The description of the network of a KuryrNetwork with this UID.
pub(super) fn description(cluster: &Cluster, uid: &str) -> String {
    format!("{} netloom:uid={} netloom:namespace-network={uid}", cluster.name.tag(), cluster.uid)
}

// === impl NotMade ===

impl From<String> for NotMade {
    fn from(why: String) -> Self {
        NotMade { why, may_go_on: false }
    }
}

impl From<Error> for NotMade {
    fn from(e: Error) -> Self {
        NotMade { may_go_on: e.may_go_on(), why: e.to_string() }
    }
}

// === impl NamespaceNetwork ===

impl NamespaceNetwork {
    /// The KuryrNetwork with a subnet that pods can have, and its network.
    pub(super) async fn make(self, client: &Client, neutron: &Neutron) -> Result<(Box<DynamicObject>, Network), NotMade> {
        let seen = match &self.seen {
            Some(seen) => seen.clone(),
            None => NetworkSeen::of(*self.create(client).await?).ok_or_else(|| "the KuryrNetwork that was made has no name".to_owned())?,
        };
        let known = seen.read.clone()?;
        let network = self.network(neutron, &seen.uid).await?;
        let subnet = self.subnet(neutron, &network.id, known.subnet.as_deref()).await?;
        self.still_leads()?;
        let router = self.subnets.router.clone();
        if neutron.connect_subnet(&router, &subnet.id).await? {
            linux::crash_point!("operator-subnet-connected");
        }
        let line = Line::info("network").with("namespace", &self.namespace).with("network", &network.id);
        line.with("subnet", &subnet.id).with("cidr", &subnet.cidr).end();
        let made = KuryrNetwork {
            network: Some(network.id.clone()),
            subnet: Some(subnet.id),
            cidr: Some(subnet.cidr),
            router: Some(router),
            ..known
        };
        let patch = json!({"metadata": {"uid": seen.uid, "resourceVersion": seen.version}, "status": made.status()});
        let patched = patch_object(client, &self.namespace, &patch).await?;
        Ok((patched.ok_or_else(|| "the KuryrNetwork is gone".to_owned())?, network))
    }

    async fn create(&self, client: &Client) -> Result<Box<DynamicObject>, String> {
        let labels = json!({CLUSTER_LABEL: self.cluster.name.to_string()});
        let metadata = json!({"name": self.namespace, "namespace": self.namespace, "finalizers": [NETWORK_FINALIZER], "labels": labels});
        let network = KuryrNetwork { namespace: self.namespace.clone(), project_id: self.project.clone(), ..KuryrNetwork::default() };
        let object = json!({"apiVersion": KURYR_PORT_VERSION, "kind": network_crd::KIND, "metadata": metadata, "spec": network.spec()});
        let outcome = send(client, request(Method::POST, path(&self.namespace), "application/json", &object)).await;
        answered(outcome)?.ok_or_else(|| "the KuryrNetwork was not made".to_owned())
    }

    /// Another operator that works may be at the same.
    fn still_leads(&self) -> Result<(), String> {
        if self.lead.leads() { Ok(()) } else { Err("another operator works now".to_owned()) }
    }

    /// One of this object that is there, else a new one; with the tags by which all of them are listed.
    async fn network(&self, neutron: &Neutron, uid: &str) -> Result<Network, NotMade> {
        let description = description(&self.cluster, uid);
        let found = neutron.networks_described(&description, &self.project).await?;
        let network = match found.into_iter().next() {
            Some(network) => network,
            None => {
                self.still_leads()?;
                let name = format!("ns/{}-net", self.namespace);
                let made = neutron.create_network(&NewNetwork { name, project_id: self.project.clone(), description }).await?;
                linux::crash_point!("operator-network-made");
                made
            }
        };
        let tags: Vec<String> = [self.cluster.name.tag()].into_iter().chain(self.tags.iter().cloned()).collect();
        tag(neutron, "networks", &network.id, &network.tags, &tags).await?;
        Ok(network)
    }

    /// The one that the object names, else any that is there, else a new one.
    async fn subnet(&self, neutron: &Neutron, network: &str, known: Option<&str>) -> Result<Subnet, NotMade> {
        let mut there = neutron.subnets_of(network).await?;
        there.sort_by_key(|subnet| Some(subnet.id.as_str()) != known);
        let subnet = match there.into_iter().next() {
            Some(subnet) => subnet,
            None => {
                let pool = neutron.subnet_pool(&self.subnets.pool).await?;
                self.still_leads()?;
                let new = NewSubnet {
                    name: format!("ns/{}-subnet", self.namespace),
                    project_id: self.project.clone(),
                    network_id: network.to_owned(),
                    ip_version: pool.ip_version,
                    subnetpool_id: pool.id,
                    enable_dhcp: false,
                };
                let made = neutron.create_subnet(&new).await?;
                linux::crash_point!("operator-subnet-made");
                made
            }
        };
        tag(neutron, "subnets", &subnet.id, &subnet.tags, &self.tags).await?;
        Ok(subnet)
    }
}

// === impl FormerNetwork ===

impl FormerNetwork {
    /// Removes the network, and then lets its object go.
    pub(super) async fn remove(self, client: &Client, neutron: &Neutron) -> Result<(), String> {
        let known = self.seen.read.as_ref().ok();
        let project = known.map_or(&self.project, |known| &known.project_id);
        let found = neutron.networks_described(&description(&self.cluster, &self.seen.uid), project).await.map_err(|e| e.to_string())?;
        for network in &found {
            remove_from_neutron(neutron, &network.id, known.and_then(|known| known.router.as_deref())).await?;
            linux::crash_point!("operator-network-removed");
            Line::info("network").with("namespace", &self.namespace).with("removed", &network.id).end();
        }
        let named = known.and_then(|known| known.network.as_ref());
        if let Some(named) = named.filter(|named| found.iter().all(|network| network.id != **named)) {
            let error = "it is gone, or no operator of this cluster has made it";
            Line::warn("network")
                .with("namespace", &self.namespace)
                .with("network", named)
                .with("error", error)
                .with("now", "leaving it")
                .end();
        }
        let others: Vec<&String> = self.seen.finalizers.iter().filter(|one| *one != NETWORK_FINALIZER).collect();
        let patch = json!({"metadata": {"resourceVersion": self.seen.version, "finalizers": others}});
        patch_object(client, &self.namespace, &patch).await.map(drop)
    }
}

/// Nothing is changed as long as somebody else has a port there. Without a router in the object, any is the one that it was connected to.
async fn remove_from_neutron(neutron: &Neutron, network: &str, router: Option<&str>) -> Result<(), String> {
    let failed = |e: Error| e.to_string();
    let there = neutron.ports(&PortFilter { network_id: Some(network.to_owned()), ..PortFilter::default() }).await.map_err(failed)?;
    let is_of_router =
        |port: &Port| OF_ROUTERS.contains(&port.device_owner.as_str()) && router.is_none_or(|router| port.device_id == router);
    let is_own = |port: &Port| is_of_router(port) || OF_NEUTRON.contains(&port.device_owner.as_str());
    if let Some(port) = there.iter().find(|port| !is_own(port)) {
        let Port { id, device_owner, .. } = port;
        let owner = if device_owner.is_empty() { "nobody" } else { device_owner };
        return Err(format!("network {network} still has port {id} of {owner}: delete the port"));
    }
    let connected = there.iter().filter(|port| is_of_router(port));
    let connected: BTreeSet<(&str, &str)> =
        connected.flat_map(|port| port.fixed_ips.iter().map(|ip| (port.device_id.as_str(), ip.subnet_id.as_str()))).collect();
    for (router, subnet) in connected {
        neutron.disconnect_subnet(router, subnet).await.map_err(failed)?;
    }
    neutron.delete_network(network).await.map(drop).map_err(failed)
}

/// Adds tags to those that a resource has.
pub(super) async fn tag(neutron: &Neutron, resource: &str, id: &str, has: &[String], wanted: &[String]) -> Result<(), Error> {
    if wanted.iter().all(|tag| has.contains(tag)) {
        return Ok(());
    }
    let others = has.iter().filter(|tag| !wanted.contains(tag));
    neutron.set_tags(resource, id, &wanted.iter().chain(others).cloned().collect::<Vec<_>>()).await
}

fn path(namespace: &str) -> String {
    format!("/apis/{KURYR_PORT_VERSION}/namespaces/{namespace}/{}", network_crd::PLURAL)
}

async fn patch_object(client: &Client, namespace: &str, patch: &Value) -> Result<Option<Box<DynamicObject>>, String> {
    let place = format!("{}/{namespace}", path(namespace));
    answered(send(client, request(Method::PATCH, place, "application/merge-patch+json", patch)).await)
}

fn answered(outcome: Outcome) -> Result<Option<Box<DynamicObject>>, String> {
    match outcome {
        Outcome::Done(object) => Ok(object),
        Outcome::Conflict => Err("somebody else has changed the KuryrNetwork meanwhile".to_owned()),
        Outcome::Refused(why) | Outcome::Failed(why) => Err(why),
    }
}
