//! The network of a namespace, where each has its own (`pod_subnets_driver = namespace`).
//!
//! ```text
//!   make     KuryrNetwork with a finalizer --> network, with the object's UID in its description --> subnet --> router --> status
//!   remove   router --> network, with its subnets --> finalizer
//! ```
//!
//! Both begin with a look at what is there, and so go on where an operator that was killed has ended.

use binding::{CLUSTER_LABEL, Cluster};
use http::Method;
use kube::Client;
use kube::core::DynamicObject;
use neutron::{Error, Neutron};
use openstack::NamespaceSubnets;
use openstack::resource::{Network, NewNetwork, NewSubnet, Subnet};
use osvif::{KURYR_PORT_VERSION, KuryrNetwork, NETWORK_FINALIZER, network_crd};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::known::NetworkSeen;
use crate::apply_write::{Outcome, make as request, send};
use crate::log::Line;

/// What is to be made, or removed.
#[derive(Debug, Clone)]
pub(super) struct NamespaceNetwork {
    pub(super) namespace: String,
    pub(super) cluster: Cluster,
    pub(super) project: String,
    /// Tags of all that is made.
    pub(super) tags: Vec<String>,
    pub(super) subnets: NamespaceSubnets,
    /// The KuryrNetwork as it was read; none: there is none yet.
    pub(super) seen: Option<NetworkSeen>,
}

// === impl NamespaceNetwork ===

impl NamespaceNetwork {
    /// The KuryrNetwork, with a subnet that pods can have.
    pub(super) async fn make(self, client: &Client, neutron: &Neutron) -> Result<Box<DynamicObject>, String> {
        let seen = match &self.seen {
            Some(seen) => seen.clone(),
            None => NetworkSeen::of(*self.create(client).await?).ok_or("the KuryrNetwork that was made has no name")?,
        };
        let known = seen.read.clone()?;
        let of_neutron = self.make_in_neutron(neutron, &seen.uid, known).await;
        let made = match of_neutron {
            Ok(made) => made,
            Err(e) => {
                // It may be made all the same: nothing is made again before that is seen.
                if e.may_go_on() {
                    sleep(neutron.timeout()).await;
                }
                return Err(e.to_string());
            }
        };
        let line = Line::info("network").with("namespace", &self.namespace).with("network", made.network.as_deref().unwrap_or_default());
        line.with("subnet", made.subnet.as_deref().unwrap_or_default()).with("cidr", made.cidr.as_deref().unwrap_or_default()).end();
        let patch = json!({"metadata": {"uid": seen.uid}, "status": made.status()});
        self.patch(client, &patch).await?.ok_or_else(|| "the KuryrNetwork is gone".to_owned())
    }

    /// Whatever has its network, and then its object.
    pub(super) async fn remove(self, client: &Client, neutron: &Neutron) -> Result<(), String> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let known = seen.read.clone()?;
        self.remove_from_neutron(neutron, &seen.uid, &known).await.map_err(|e| e.to_string())?;
        Line::info("network").with("namespace", &self.namespace).with("removed", known.network.as_deref().unwrap_or("none")).end();
        let others: Vec<&String> = seen.finalizers.iter().filter(|one| *one != NETWORK_FINALIZER).collect();
        self.patch(client, &json!({"metadata": {"resourceVersion": seen.version, "finalizers": others}})).await.map(drop)
    }

    async fn create(&self, client: &Client) -> Result<Box<DynamicObject>, String> {
        let labels = json!({CLUSTER_LABEL: self.cluster.name.to_string()});
        let metadata = json!({"name": self.namespace, "namespace": self.namespace, "finalizers": [NETWORK_FINALIZER], "labels": labels});
        let network = KuryrNetwork { namespace: self.namespace.clone(), project_id: self.project.clone(), ..KuryrNetwork::default() };
        let object = json!({"apiVersion": KURYR_PORT_VERSION, "kind": network_crd::KIND, "metadata": metadata, "spec": network.spec()});
        let outcome = send(client, request(Method::POST, self.path(), "application/json", &object)).await;
        answered(outcome)?.ok_or_else(|| "the KuryrNetwork was not made".to_owned())
    }

    async fn patch(&self, client: &Client, patch: &Value) -> Result<Option<Box<DynamicObject>>, String> {
        let place = format!("{}/{}", self.path(), self.namespace);
        answered(send(client, request(Method::PATCH, place, "application/merge-patch+json", patch)).await)
    }

    fn path(&self) -> String {
        format!("/apis/{KURYR_PORT_VERSION}/namespaces/{}/{}", self.namespace, network_crd::PLURAL)
    }

    async fn make_in_neutron(&self, neutron: &Neutron, uid: &str, known: KuryrNetwork) -> Result<KuryrNetwork, Error> {
        let network = match known.network {
            Some(network) => network,
            None => self.network(neutron, uid).await?,
        };
        let subnets = neutron.subnets_of(&network).await?;
        let subnet = match subnets.into_iter().find(|subnet| known.subnet.as_ref().is_none_or(|id| *id == subnet.id)) {
            Some(subnet) => subnet,
            None => self.subnet(neutron, &network).await?,
        };
        let router = self.subnets.router.clone();
        if neutron.connect_subnet(&router, &subnet.id).await? {
            linux::crash_point!("operator-subnet-connected");
        }
        Ok(KuryrNetwork { network: Some(network), subnet: Some(subnet.id), cidr: Some(subnet.cidr), router: Some(router), ..known })
    }

    /// One of this object that is there, else a new one.
    async fn network(&self, neutron: &Neutron, uid: &str) -> Result<String, Error> {
        let found = self.found(neutron, uid).await?;
        let network = match found.into_iter().next() {
            Some(network) => network,
            None => {
                let new = NewNetwork {
                    name: format!("ns/{}-net", self.namespace),
                    project_id: self.project.clone(),
                    description: self.description(uid),
                };
                let made = neutron.create_network(&new).await?;
                linux::crash_point!("operator-network-made");
                made
            }
        };
        if !self.tags.iter().all(|tag| network.tags.contains(tag)) {
            neutron.set_tags("networks", &network.id, &self.tags).await?;
        }
        Ok(network.id)
    }

    async fn subnet(&self, neutron: &Neutron, network: &str) -> Result<Subnet, Error> {
        let pool = neutron.subnet_pool(&self.subnets.pool).await?;
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
        if !self.tags.is_empty() {
            neutron.set_tags("subnets", &made.id, &self.tags).await?;
        }
        Ok(made)
    }

    /// Networks that were made for this object: one, or two where an operator was killed while Neutron made the first one.
    async fn found(&self, neutron: &Neutron, uid: &str) -> Result<Vec<Network>, Error> {
        neutron.networks_described(&self.description(uid), &self.project).await
    }

    fn description(&self, uid: &str) -> String {
        format!("{} netloom:uid={} netloom:namespace-network={uid}", self.cluster.name.tag(), self.cluster.uid)
    }

    async fn remove_from_neutron(&self, neutron: &Neutron, uid: &str, known: &KuryrNetwork) -> Result<(), Error> {
        let found = self.found(neutron, uid).await?.into_iter().map(|network| network.id);
        let mut all: Vec<String> = known.network.iter().cloned().collect();
        all.extend(found.filter(|id| known.network.as_ref() != Some(id)).collect::<Vec<_>>());
        let router = known.router.as_ref().unwrap_or(&self.subnets.router);
        for network in all {
            for subnet in neutron.subnets_of(&network).await? {
                neutron.disconnect_subnet(router, &subnet.id).await?;
            }
            neutron.delete_network(&network).await?;
            linux::crash_point!("operator-network-removed");
        }
        Ok(())
    }
}

fn answered(outcome: Outcome) -> Result<Option<Box<DynamicObject>>, String> {
    match outcome {
        Outcome::Done(object) => Ok(object),
        Outcome::Conflict => Err("somebody else has changed the KuryrNetwork meanwhile".to_owned()),
        Outcome::Refused(why) | Outcome::Failed(why) => Err(why),
    }
}
