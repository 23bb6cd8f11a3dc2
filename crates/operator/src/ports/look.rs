//! One look at all ports of this cluster, for a command: whose they are, and which are nobody's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use binding::{Carrier, Cluster, Owner, PoolKind, address_pairs, counts_as_active, is_existing, own_tags};
use cluster::ConnectError;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client};
use neutron::{Neutron, Refusal};
use openstack::resource::{Port, PortUpdate};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::call::{all_ports, handed};
use super::cluster_uid::cluster_uid;
use super::known::Followed;
use super::options::OpenStack;
use super::work::{EXTENSION, can_be_used};
use crate::lease;

/// How long the API server may take for a page.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many objects are asked for at a time.
const PAGE: u32 = 200;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// There is no way to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The API server refuses, or does not answer.
    #[error("list {kind} of the API server: {reason}")]
    Api {
        /// What was asked for.
        kind: &'static str,
        /// Why.
        reason: String,
    },
    /// The cluster does not have the kind.
    #[error("list {kind} of the API server: {reason}; if the kind is missing: kubectl apply -f deploy/openstack/{kind}.yaml")]
    Absent {
        /// What was asked for.
        kind: &'static str,
        /// What the API server says.
        reason: String,
    },
    /// The API server does not change an object.
    #[error("change {what}: {reason}; what was done before is kept: run the command again")]
    Change {
        /// Its namespace and name.
        what: String,
        /// Why.
        reason: String,
    },
    /// An operator may need what is to be deleted.
    #[error(
        "operator {holder} is running and may be giving ready ports to pods: set vif_pool_driver to noop, or stop it (kubectl -n kube-system scale deployment netloom-operator --replicas=0), wait 15 s, and run the command again"
    )]
    AtWork {
        /// Who has the Lease.
        holder: String,
    },
    /// Nothing says whether an operator works.
    #[error(
        "namespace {namespace} has no Lease netloom-operator, so nothing says whether an operator is running: name the operator's namespace with --namespace"
    )]
    NoLease {
        /// Where it was looked for.
        namespace: String,
    },
    /// What seems to be a ready port may be a pod's.
    #[error(
        "KuryrPort {}: what seems to be a ready port may be in use by its pod; delete the pod, or mend the KuryrPort, and run the command again", .0.join("; KuryrPort ")
    )]
    Unreadable(
        /// Their namespaces and names, each with what is wrong.
        Vec<String>,
    ),
    /// No port can be made anywhere.
    #[error("the settings name no subnet to try a port in: set [neutron_defaults] pod_subnet")]
    NoSubnet,
    /// Neutron, or Keystone.
    #[error(transparent)]
    Neutron(Box<neutron::Error>),
    /// Nothing can be asked here.
    #[error("start the asynchronous runtime: {0}")]
    Runtime(String),
}

/// All that was seen.
#[derive(Debug, Clone, Default)]
pub struct PortsSeen {
    /// Whether Neutron takes tags with a new port, or afterwards.
    pub is_supported: bool,
    /// Configured subnets that Neutron does not have, or does not show.
    pub missing_subnets: Vec<String>,
    /// The ports of this cluster's pods, by pod and element.
    pub ports: Vec<OwnedPort>,
    /// Ports of this cluster whose pods are gone.
    pub orphans: Vec<Orphan>,
    /// Ready ports that no pod has.
    pub ready: Vec<Port>,
    /// Pools of ready ports.
    pub pools: Vec<PoolSeen>,
    /// Ports with this cluster's name that are not this cluster's: another one has the same name, or somebody else has set the tag. They are never
    /// deleted.
    pub anothers: Vec<Port>,
    /// Pods that have a KuryrPort.
    pub pods: usize,
    /// KuryrPorts that cannot be read as a whole, each with what is wrong: ports of their pods may be among the ready ones.
    pub unreadable: Vec<String>,
}

/// A port of a pod that is there.
#[derive(Debug, Clone)]
pub struct OwnedPort {
    /// Its namespace and name.
    pub pod: String,
    /// The interface, once the node knows it.
    pub interface: Option<String>,
    /// The port.
    pub port: Port,
}

/// A pool of ready ports.
#[derive(Debug, Clone)]
pub struct PoolSeen {
    /// What its ports have in common.
    pub kind: PoolKind,
    /// The subnets of their addresses.
    pub subnets: Vec<String>,
    /// How many wait for a pod.
    pub ready: usize,
    /// How many pods have.
    pub used: usize,
}

/// A port of this cluster that nobody has.
#[derive(Debug, Clone)]
pub struct Orphan {
    /// The pod's UID.
    pub pod_uid: String,
    /// The port.
    pub port: Port,
}

// === impl LookError ===

impl From<neutron::Error> for LookError {
    fn from(e: neutron::Error) -> Self {
        LookError::Neutron(Box::new(e))
    }
}

// === impl OwnedPort ===

impl OwnedPort {
    /// Whether it works, as far as Neutron says it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        counts_as_active(&self.port)
    }
}

// === impl Orphan ===

impl Orphan {
    /// Whether the port was there before its pod, and is given back instead of deleted.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        is_existing(&self.port)
    }
}

/// Looks: first at the ports, then at the pods. So a port whose pod is not there was made for one that is gone.
///
/// # Errors
/// [`LookError`]
pub fn look(openstack: &OpenStack, kubeconfig: Option<&Path>) -> Result<PortsSeen, LookError> {
    runtime()?.block_on(async {
        let client = cluster::client(kubeconfig).await?.client();
        look_with(openstack, &client).await
    })
}

async fn look_with(openstack: &OpenStack, client: &Client) -> Result<PortsSeen, LookError> {
    let neutron = &openstack.neutron;
    let extensions = neutron.extensions().await?;
    let (is_supported, tags_later) = (can_be_used(&extensions), !extensions.contains(EXTENSION));
    let mut missing_subnets = Vec::new();
    for id in openstack.settings.subnet.iter().chain(openstack.settings.subnet_of_driver.values()) {
        match neutron.subnet(id).await {
            Ok(_) => {}
            Err(e) if e.refusal() == Some(neutron::Refusal::NotFound) => missing_subnets.push(id.clone()),
            Err(e) => return Err(e.into()),
        }
    }
    let all = all_ports(neutron, openstack.cluster.tag(), tags_later).await?;
    let all: BTreeMap<String, Port> = all.into_iter().map(|port| (port.id.clone(), port)).collect();
    let uid = cluster_uid(client).await.map_err(|reason| LookError::Api { kind: "namespaces", reason })?;
    let cluster = Cluster { name: openstack.cluster.clone(), uid };
    let pods = pods(client).await?;
    let interfaces = interfaces(client).await?;
    let (pods_bound, unreadable) = (interfaces.pods, interfaces.unreadable);
    let mut seen = PortsSeen { is_supported, missing_subnets, pods: pods_bound, unreadable, ..PortsSeen::default() };
    let mut pools: BTreeMap<PoolKind, (Vec<Port>, Vec<Port>)> = BTreeMap::new();
    for port in all.into_values() {
        if cluster.is_pooled(&port) {
            let (ready, used) = pools.entry(PoolKind::of(&port)).or_insert_with(|| (Vec::new(), Vec::new()));
            let list = if interfaces.of_port.contains_key(&port.id) { used } else { ready };
            list.push(port.clone());
            match interfaces.of_port.get(&port.id).cloned() {
                Some((pod, interface)) => seen.ports.push(OwnedPort { pod, interface: Some(interface), port }),
                None => seen.ready.push(port),
            }
            continue;
        }
        let Some(owner) = Owner::of(&port, &cluster) else {
            seen.anothers.push(port);
            continue;
        };
        match pods.get(&owner.pod) {
            Some(pod) => {
                let interface = interfaces.of_port.get(&port.id).map(|(_, interface)| interface.clone());
                seen.ports.push(OwnedPort { pod: pod.clone(), interface, port });
            }
            None => seen.orphans.push(Orphan { pod_uid: owner.pod, port }),
        }
    }
    seen.pools = pools.into_iter().map(|(kind, (ready, used))| pool(kind, &ready, &used)).collect();
    seen.ports.sort_by(|a, b| (&a.pod, &a.interface, &a.port.id).cmp(&(&b.pod, &b.interface, &b.port.id)));
    Ok(seen)
}

fn pool(kind: PoolKind, ready: &[Port], used: &[Port]) -> PoolSeen {
    let ids = ready.iter().chain(used).flat_map(|port| &port.fixed_ips).map(|ip| ip.subnet_id.clone());
    let subnets: BTreeSet<String> = ids.collect();
    PoolSeen { kind, subnets: subnets.into_iter().collect(), ready: ready.len(), used: used.len() }
}

/// Deletes ports that nobody has, and says of each whether it was there. An operator may work meanwhile, or may just have ended: its last change of a
/// node's address pairs may be carried out until a request's time is over. So a port whose addresses a node's port may have is deleted after that time,
/// if it is still an orphan then.
///
/// # Errors
/// [`LookError`]
pub fn delete_orphans(
    openstack: &OpenStack,
    kubeconfig: Option<&Path>,
    orphans: &[Orphan],
    mut done: impl FnMut(&Orphan, bool),
) -> Result<(), LookError> {
    let is_paired = |orphan: &&Orphan| matches!(Carrier::of(&orphan.port), Some(Carrier::Port(_)));
    let (paired, others): (Vec<&Orphan>, Vec<&Orphan>) = orphans.iter().partition(is_paired);
    runtime()?.block_on(async {
        for orphan in others {
            done(orphan, delete_orphan(&openstack.neutron, orphan).await?);
        }
        if paired.is_empty() {
            return Ok(());
        }
        let client = cluster::client(kubeconfig).await?.client();
        sleep(openstack.neutron.timeout()).await;
        let still: BTreeSet<String> = look_with(openstack, &client).await?.orphans.into_iter().map(|orphan| orphan.port.id).collect();
        for orphan in paired {
            let is_there = still.contains(&orphan.port.id) && delete_orphan(&openstack.neutron, orphan).await?;
            done(orphan, is_there);
        }
        Ok(())
    })
}

/// Whether it was there. One that existed before it was given to a pod is given back.
async fn delete_orphan(neutron: &Neutron, orphan: &Orphan) -> Result<bool, neutron::Error> {
    if is_existing(&orphan.port) {
        return give_back(neutron, orphan).await;
    }
    detach(neutron, &orphan.port).await?;
    Ok(neutron.delete_port(&orphan.port.id).await?.value)
}

/// As an operator does it, which may have done it meanwhile.
async fn give_back(neutron: &Neutron, orphan: &Orphan) -> Result<bool, neutron::Error> {
    loop {
        let port = match neutron.port(&orphan.port.id).await {
            Err(e) if e.refusal() == Some(Refusal::NotFound) => return Ok(false),
            read => read?,
        };
        if !is_existing(&port) || port.tags != orphan.port.tags {
            return Ok(false);
        }
        if port.device_id != orphan.pod_uid {
            return neutron.set_port_tags(&port.id, &own_tags(&port)).await.map(|()| true);
        }
        let update = handed("", String::new(), String::new());
        match neutron.update_port(&port.id, &update, Some(port.revision_number)).await {
            Err(e) if matches!(e.refusal(), Some(Refusal::Changed | Refusal::NotFound)) => {}
            updated => drop(updated?),
        }
    }
}

/// So that nothing carries it any more.
async fn detach(neutron: &Neutron, port: &Port) -> Result<(), neutron::Error> {
    let is_gone = |e: &neutron::Error| e.refusal() == Some(Refusal::NotFound);
    match Carrier::of(port) {
        None => Ok(()),
        Some(Carrier::Trunk(id)) => match neutron.remove_sub_ports(&id, &[&port.id]).await {
            Err(e) if is_gone(&e) => Ok(()),
            removed => removed,
        },
        Some(Carrier::Port(id)) => loop {
            match unpair(neutron, port, &id).await {
                Err(e) if is_gone(&e) => return Ok(()),
                // Somebody else was faster.
                Err(e) if e.refusal() == Some(Refusal::Changed) => {}
                done => return done,
            }
        },
    }
}

/// Takes a port's addresses from the address pairs of a node's port.
async fn unpair(neutron: &Neutron, port: &Port, id: &str) -> Result<(), neutron::Error> {
    let parent = neutron.port(id).await?;
    let own: Vec<_> = address_pairs(port).collect();
    let rest: Vec<_> = parent.allowed_address_pairs.iter().filter(|pair| !own.contains(pair)).cloned().collect();
    if rest.len() == parent.allowed_address_pairs.len() {
        return Ok(());
    }
    let update = PortUpdate { allowed_address_pairs: Some(rest), ..PortUpdate::default() };
    neutron.update_port(id, &update, Some(parent.revision_number)).await.map(drop)
}

/// Deletes the ready ports that no pod has, while no operator works: one that does may be giving them to pods. The IDs of those that were there.
///
/// # Errors
/// [`LookError`]
pub fn delete_ready(openstack: &OpenStack, kubeconfig: Option<&Path>, namespace: &str) -> Result<Vec<String>, LookError> {
    runtime()?.block_on(async {
        let client = cluster::client(kubeconfig).await?.client();
        if !lease::exists(&client, namespace).await.map_err(|reason| LookError::Api { kind: "leases", reason })? {
            return Err(LookError::NoLease { namespace: namespace.to_owned() });
        }
        let holder = lease::holder(&client, namespace).await.map_err(|reason| LookError::Api { kind: "leases", reason })?;
        if let Some(holder) = holder {
            return Err(LookError::AtWork { holder });
        }
        let (seen, mut deleted) = (look_with(openstack, &client).await?, Vec::new());
        if !seen.unreadable.is_empty() {
            return Err(LookError::Unreadable(seen.unreadable));
        }
        for port in seen.ready {
            detach(&openstack.neutron, &port).await?;
            if openstack.neutron.delete_port(&port.id).await?.value {
                deleted.push(port.id);
            }
        }
        Ok(deleted)
    })
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, LookError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| LookError::Runtime(e.to_string()))
}

/// The names of all pods by their UIDs, but of those that are over.
async fn pods(client: &Client) -> Result<BTreeMap<String, String>, LookError> {
    let is_over = |pod: &DynamicObject| {
        let phase = pod.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        matches!(phase, "Succeeded" | "Failed")
    };
    let all = list(client, Followed::Pod, "pods").await?;
    let name = |pod: &DynamicObject| Some(format!("{}/{}", pod.metadata.namespace.as_ref()?, pod.metadata.name.as_ref()?));
    Ok(all.iter().filter(|pod| !is_over(pod)).filter_map(|pod| Some((pod.metadata.uid.clone()?, name(pod)?))).collect())
}

struct Interfaces {
    pods: usize,
    unreadable: Vec<String>,
    of_port: BTreeMap<String, (String, String)>,
}

/// The pods and interfaces that KuryrPorts name, by the port.
async fn interfaces(client: &Client) -> Result<Interfaces, LookError> {
    let all = list(client, Followed::KuryrPort, osvif::crd::PLURAL).await?;
    Ok(interfaces_of(all))
}

fn interfaces_of(all: Vec<DynamicObject>) -> Interfaces {
    let mut interfaces = Interfaces { pods: all.len(), unreadable: Vec::new(), of_port: BTreeMap::new() };
    for object in all {
        let pod =
            format!("{}/{}", object.metadata.namespace.as_deref().unwrap_or_default(), object.metadata.name.as_deref().unwrap_or_default());
        let value = serde_json::to_value(object).unwrap_or_default();
        let read = match osvif::KuryrPort::read(value.clone()) {
            Ok(read) => Some(read),
            Err(why) => {
                interfaces.unreadable.push(format!("{pod}: {why}"));
                osvif::KuryrPort::read_partly(&value)
            }
        };
        for (interface, vif) in read.into_iter().flat_map(|object| object.status.vifs) {
            interfaces.of_port.insert(vif.vif.id, (pod.clone(), interface));
        }
    }
    interfaces
}

/// All objects of a kind, page by page.
pub(super) async fn list(client: &Client, kind: Followed, name: &'static str) -> Result<Vec<DynamicObject>, LookError> {
    list_of(&kind.api(client.clone()), name).await
}

/// The same of a kind that is not followed.
pub(super) async fn list_of(api: &Api<DynamicObject>, name: &'static str) -> Result<Vec<DynamicObject>, LookError> {
    let failed = |reason: String| LookError::Api { kind: name, reason };
    let refused = |e: kube::Error| match &e {
        kube::Error::Api(status) if status.code == 404 => LookError::Absent { kind: name, reason: e.to_string() },
        _ => failed(e.to_string()),
    };
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let params = ListParams { limit: Some(PAGE), continue_token: token, ..ListParams::default() };
        let page = timeout(PATIENCE, api.list(&params)).await.map_err(|_| failed(format!("no answer in {} s", PATIENCE.as_secs())))?;
        let page = page.map_err(refused)?;
        all.extend(page.items);
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_kuryrport_that_cannot_be_read_the_name_and_the_readable_ports_are_known() {
        let vif: Value = serde_json::from_str(include_str!("../../../osvif/tests/captured/VIFOpenVSwitch.json")).unwrap_or_default();
        let object = |name: &str, vifs: Value| {
            let spec = serde_json::json!({"podUid": "u", "podNodeName": "n"});
            let value = serde_json::json!({"metadata": {"namespace": "a", "name": name}, "spec": spec, "status": {"vifs": vifs}});
            serde_json::from_value::<DynamicObject>(value).unwrap_or_else(|e| unreachable!("{e}"))
        };
        let good = serde_json::json!({"default": false, "vif": vif});
        let damaged = object("web", serde_json::json!({"eth1": good, "eth2": {"default": 1}}));
        let of = interfaces_of(vec![damaged, object("empty", serde_json::json!({}))]);
        assert_eq!(of.of_port.into_values().collect::<Vec<_>>(), [("a/web".to_owned(), "eth1".to_owned())]);
        assert_eq!((of.pods, of.unreadable.len()), (2, 1));
        let refused = LookError::Unreadable(of.unreadable).to_string();
        assert!(refused.starts_with("KuryrPort a/web: "), "{refused}");
    }
}
