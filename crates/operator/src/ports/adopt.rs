//! Takes over what a Kuryr-Kubernetes has made that works no more: its KuryrPorts and their ports become this cluster's.
//!
//! ```text
//!   nested ones: the pod's node's address --> the node's port --> its trunk has the port with the VIF's VLAN ID, or it has the port's address pairs
//!   KuryrPort without our label --its ports are what they should be--> tags on each port --> label on the KuryrPort
//!   port of a pool of Kuryr's, on a node of this cluster, with resource_tags --> tags of a ready port
//!   annotation openstack.org/kuryr-vif of a pod without a KuryrPort, its ports are what they should be --> tags on each port --> KuryrPort
//!   KuryrNetwork without our label, with a network that is what it should be --> description and tag of the network --> label
//!   Network of kubernetes.cni.cncf.io/v1 with Kuryr's annotation --> definition of its name
//!   pod with Kuryr's finalizer, all of its ports taken over -->  without it
//! ```
//!
//! Tags come before the label, so that a kill in between leaves what the next run goes on with; the operator does nothing with an object that has
//! no label, nor with its ports. Whoever could write a KuryrPort while Kuryr worked could name any port in it: a port must be of Kuryr's owner, on
//! the pod's node, with the VIF's hardware address, and named once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use binding::{CLUSTER_LABEL, Carrier, Cluster, DEVICE_OWNER, ObjectName, Owner, address_pairs, new_kuryr_port};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use neutron::PortFilter;
use openstack::resource::{Port, Trunk};
use osvif::{KuryrPort, PodState, VIF_ANNOTATION, Vif, VifKind};
use serde_json::json;

use super::cluster_uid::cluster_uid;
use super::known::Followed;
use super::look::{LookError, list, runtime};
use super::options::OpenStack;
use super::{former_namespaces, former_networks};

/// What Kuryr keeps pods with until their ports are gone.
const POD_FINALIZER: &str = "kuryr.openstack.org/pod-finalizer";

/// What Neutron's agents make of a subport's owner.
const SUBPORT_OWNER: &str = "trunk:subport";

/// What nodes' ports carry, by the nodes' addresses; read where a VIF says that it is nested.
#[derive(Default)]
struct Carriers {
    /// The address of each pod's node, by the pod's UID.
    hosts: BTreeMap<String, String>,
    node_ports: BTreeMap<String, Vec<Port>>,
    trunks: BTreeMap<String, Trunk>,
}

/// What was taken over, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoption {
    /// The ports: pod, interface, ID.
    pub ports: Vec<(String, String, String)>,
    /// Ports of Kuryr's pools that no pod has: host, ID.
    pub ready: Vec<(String, String)>,
    /// Namespaces whose networks, which Kuryr has made, are this cluster's now.
    pub namespaces: Vec<String>,
    /// Definitions that were made from `Network` objects of `kubernetes.cni.cncf.io/v1`.
    pub definitions: Vec<String>,
    /// Pods that have lost Kuryr's finalizer.
    pub pods: Vec<String>,
    /// KuryrPorts and KuryrNetworks that stay as they are, and why.
    pub refused: Vec<(String, String)>,
}

/// Takes over all KuryrPorts of another controller; `dry_run` changes nothing.
///
/// # Errors
/// [`LookError`]: what was done before stays done, and the next run goes on.
pub fn adopt(openstack: &OpenStack, kubeconfig: Option<&Path>, dry_run: bool) -> Result<Adoption, LookError> {
    runtime()?.block_on(async {
        let client = cluster::client(kubeconfig).await?.client();
        let uid = cluster_uid(&client).await.map_err(|reason| LookError::Api { kind: "namespaces", reason })?;
        let cluster = Cluster { name: openstack.cluster.clone(), uid };
        let pods = list(&client, Followed::Pod, "pods").await?;
        let objects = list(&client, Followed::KuryrPort, osvif::crd::PLURAL).await?;
        let mut read: Vec<(DynamicObject, Result<KuryrPort, String>)> = objects.into_iter().map(read).collect();
        let there: BTreeSet<String> = read.iter().map(|(object, _)| full_name(object)).collect();
        read.extend(pods.iter().filter(|pod| !there.contains(&full_name(pod))).filter_map(|pod| annotated(pod, &cluster)));
        let of_others =
            || read.iter().filter(|(object, _)| object.metadata.labels.as_ref().is_none_or(|all| !all.contains_key(CLUSTER_LABEL)));
        let named = of_others().filter_map(|(_, port)| port.as_ref().ok()).flat_map(|port| port.status.vifs.values());
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        named.for_each(|vif| *times.entry(vif.vif.id.clone()).or_default() += 1);
        let ids: Vec<String> = times.keys().cloned().collect();
        let found = match ids.is_empty() {
            true => Vec::new(),
            false => openstack.neutron.ports(&PortFilter { ids, ..PortFilter::default() }).await?,
        };
        let ports: BTreeMap<&str, &Port> = found.iter().map(|port| (port.id.as_str(), port)).collect();
        let of_others_read = of_others().filter_map(|(_, port)| port.as_ref().ok());
        let carriers = Carriers::read(openstack, &pods, of_others_read).await?;
        let (mut adoption, mut kept) = (Adoption::default(), BTreeSet::new());
        for (object, read) in of_others() {
            let name = full_name(object);
            let plan = read.clone().and_then(|read| plan(&read, openstack, &cluster, &ports, &carriers, &times));
            match plan {
                Err(why) => {
                    kept.insert(name.clone());
                    adoption.refused.push((name, why));
                }
                Ok(plan) => {
                    for (interface, id, tags) in plan {
                        if !dry_run {
                            openstack.neutron.set_port_tags(&id, &tags).await?;
                        }
                        adoption.ports.push((name.clone(), interface, id));
                    }
                    match read {
                        Ok(new) if !dry_run && object.metadata.resource_version.is_none() => create(&client, object, new).await?,
                        _ if !dry_run => label(&client, object, &openstack.cluster.to_string()).await?,
                        _ => {}
                    }
                }
            }
        }
        let named = read.iter().filter_map(|(_, port)| port.as_ref().ok()).flat_map(|port| port.status.vifs.values());
        let named: BTreeSet<&str> = named.map(|vif| vif.vif.id.as_str()).collect();
        // What seems to wait may be the port of a pod whose KuryrPort does not say it.
        let unread: Vec<(String, &String)> =
            read.iter().filter_map(|(object, read)| Some((full_name(object), read.as_ref().err()?))).collect();
        let ready = if unread.is_empty() { pooled(openstack, &client, &named).await? } else { Vec::new() };
        // Those without our label are among the refused.
        for (name, why) in unread.into_iter().filter(|(name, _)| !kept.contains(name)) {
            adoption.refused.push((name, format!("{why}; no ready ports are taken over as long as it cannot be read")));
        }
        for port in ready {
            if !dry_run {
                let subnets = port.fixed_ips.iter().map(|ip| ip.subnet_id.clone()).collect();
                let tags: Vec<String> = cluster.ready_tags(&subnets).into_iter().chain(port.tags.iter().cloned()).collect();
                openstack.neutron.set_port_tags(&port.id, &tags).await?;
            }
            adoption.ready.push((port.host, port.id));
        }
        let namespaces = former_namespaces::take_over(openstack, &cluster, &client, dry_run).await?;
        adoption.namespaces = namespaces.taken;
        adoption.refused.extend(namespaces.refused.into_iter().map(|(name, why)| (name, format!("KuryrNetwork: {why}"))));
        adoption.definitions = former_networks::take_over(&client, dry_run).await?;
        for pod in &pods {
            let name = full_name(pod);
            let has = pod.metadata.finalizers.iter().flatten().any(|one| one == POD_FINALIZER);
            if has && !kept.contains(&name) {
                if !dry_run {
                    let rest: Vec<&String> = pod.metadata.finalizers.iter().flatten().filter(|one| *one != POD_FINALIZER).collect();
                    patch(&client, Followed::Pod, pod, ("finalizers", json!(rest))).await?;
                }
                adoption.pods.push(name);
            }
        }
        Ok(adoption)
    })
}

/// Ports of Kuryr's pools that wait on this cluster's nodes. Nothing but `resource_tags` tells whose they are; without them there are none.
async fn pooled(openstack: &OpenStack, client: &Client, named: &BTreeSet<&str>) -> Result<Vec<Port>, LookError> {
    let tags = &openstack.settings.tags;
    if tags.is_empty() || openstack.pool.is_none() {
        return Ok(Vec::new());
    }
    let failed = |e: kube::Error| LookError::Api { kind: "nodes", reason: e.to_string() };
    let api: Api<Node> = Api::all(client.clone());
    let nodes = api.list_metadata(&ListParams::default()).await.map_err(failed)?;
    let nodes: BTreeSet<String> = nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
    let filter = PortFilter { tags: tags.clone(), device_owner: Some(DEVICE_OWNER.to_owned()), ..PortFilter::default() };
    let waits = |port: &Port| {
        let is_ours = port.tags.iter().any(|tag| tag.starts_with("netloom:"));
        let is_free = !named.contains(port.id.as_str()) && port.status == "DOWN" && port.vif_type == "ovs";
        is_free && !is_ours && nodes.contains(&port.host)
    };
    Ok(openstack.neutron.ports(&filter).await?.into_iter().filter(waits).collect())
}

pub(super) fn full_name(object: &DynamicObject) -> String {
    format!("{}/{}", object.metadata.namespace.as_deref().unwrap_or_default(), object.metadata.name.as_deref().unwrap_or_default())
}

fn read(object: DynamicObject) -> (DynamicObject, Result<KuryrPort, String>) {
    let read = serde_json::to_value(&object).map_err(|e| e.to_string()).and_then(|value| KuryrPort::read(value).map_err(|e| e.to_string()));
    (object, read)
}

/// The VIFs of a pod in whose annotation a Kuryr from before KuryrPorts has written them, as the KuryrPort that is to be made; none: it has none.
fn annotated(pod: &DynamicObject, cluster: &Cluster) -> Option<(DynamicObject, Result<KuryrPort, String>)> {
    let text = pod.metadata.annotations.as_ref()?.get(VIF_ANNOTATION)?;
    let node = pod.data.pointer("/spec/nodeName")?.as_str()?;
    let name = ObjectName { namespace: pod.metadata.namespace.clone()?, name: pod.metadata.name.clone()? };
    let mut object = DynamicObject::new(&name.name, &Followed::KuryrPort.resource());
    object.metadata.namespace = Some(name.namespace.clone());
    let read = PodState::parse(text).map_err(|e| format!("annotation {VIF_ANNOTATION} of the pod: {e}"));
    let port = read.map(|state| {
        let mut port = new_kuryr_port(pod.metadata.uid.as_deref().unwrap_or_default(), &name, node, &cluster.name.to_string());
        port.status.vifs = state.into_vifs();
        port
    });
    Some((object, port))
}

/// Interface, port and its tags, of each VIF; or why the object cannot be taken over.
fn plan(
    object: &KuryrPort,
    openstack: &OpenStack,
    cluster: &Cluster,
    ports: &BTreeMap<&str, &Port>,
    carriers: &Carriers,
    times: &BTreeMap<String, usize>,
) -> Result<Vec<(String, String, Vec<String>)>, String> {
    let mut all = Vec::new();
    for (interface, vif) in &object.status.vifs {
        let (id, vif) = (vif.vif.id.as_str(), &vif.vif);
        let wrong = |why: &str| format!("{interface}, port {id}: {why}");
        let is_nested = matches!(vif.kind, VifKind::VlanNested { .. } | VifKind::MacvlanNested);
        if !is_nested && !matches!(vif.kind, VifKind::OpenVSwitch { .. } | VifKind::Bridge { .. }) {
            return Err(wrong(&format!("a VIF of kind {} is not supported: delete the pod before Kuryr is stopped", vif.kind.name())));
        }
        // Of one that is gone nothing is left to be taken over.
        let Some(port) = ports.get(id) else { continue };
        let number = match interface.as_str() {
            osvif::DEFAULT_INTERFACE => Some(0),
            name => name.strip_prefix(&openstack.settings.interface_prefix).and_then(|number| number.parse().ok()),
        };
        let number = number.ok_or_else(|| wrong("its interface has another name than additional_ifname_prefix and a number"))?;
        let is_ours = Owner::of(port, cluster).is_some_and(|owner| owner.pod == object.spec.pod_uid && owner.element == number);
        let is_taken = port.tags.iter().any(|tag| tag.starts_with("netloom:")) && !is_ours;
        let checks = [
            (port.device_owner == DEVICE_OWNER || (is_nested && port.device_owner == SUBPORT_OWNER), "its device_owner is not Kuryr's"),
            (is_nested || port.host == object.spec.pod_node_name, "it is bound to another node"),
            (
                vif.address.as_ref().is_some_and(|mac| mac.eq_ignore_ascii_case(&port.mac_address)),
                "it has another MAC address than the VIF",
            ),
            (times.get(id) == Some(&1), "several pods name it"),
            (!is_taken, "it is another pod's, by its tags"),
        ];
        if let Some((_, why)) = checks.iter().find(|(is_good, _)| !is_good) {
            return Err(wrong(why));
        }
        let carrier = match is_nested {
            true => Some(carriers.of(&object.spec.pod_uid, vif, port).map_err(|why| wrong(&why))?),
            false => None,
        };
        let mut tags = Owner { pod: object.spec.pod_uid.clone(), element: number }.tags(cluster);
        tags.extend(carrier.map(|carrier| carrier.tag()));
        tags.extend(port.tags.iter().filter(|tag| !tags.contains(tag)).cloned().collect::<Vec<_>>());
        all.push((interface.clone(), id.to_owned(), tags));
    }
    Ok(all)
}

// === impl Carriers ===

impl Carriers {
    async fn read<'a>(
        openstack: &OpenStack,
        pods: &[DynamicObject],
        objects: impl Iterator<Item = &'a KuryrPort>,
    ) -> Result<Self, LookError> {
        let host = |pod: &DynamicObject| {
            let ip = pod.data.pointer("/status/hostIP").and_then(serde_json::Value::as_str)?;
            Some((pod.metadata.uid.clone()?, ip.to_owned()))
        };
        let mut carriers = Carriers { hosts: pods.iter().filter_map(host).collect(), ..Carriers::default() };
        let is_nested = |object: &&KuryrPort| {
            let mut kinds = object.status.vifs.values().map(|vif| &vif.vif.kind);
            kinds.any(|kind| matches!(kind, VifKind::VlanNested { .. } | VifKind::MacvlanNested))
        };
        let hosts: BTreeSet<&String> = objects.filter(is_nested).filter_map(|object| carriers.hosts.get(&object.spec.pod_uid)).collect();
        for host in hosts {
            let found = openstack.neutron.ports(&PortFilter { address: Some(host.clone()), ..PortFilter::default() }).await?;
            let subnets = &openstack.settings.nested.node_subnets;
            let is_of_node = |port: &Port| port.fixed_ips.iter().any(|ip| ip.ip_address == *host && subnets.contains(&ip.subnet_id));
            let found: Vec<Port> = found.into_iter().filter(is_of_node).collect();
            for id in found.iter().filter_map(|port| port.trunk.clone()) {
                let trunk = openstack.neutron.trunk(&id).await?;
                carriers.trunks.insert(id, trunk);
            }
            carriers.node_ports.insert(host.clone(), found);
        }
        Ok(carriers)
    }

    /// What carries a nested port, if it is that which its VIF says.
    fn of(&self, pod: &str, vif: &Vif, port: &Port) -> Result<Carrier, String> {
        let host = self.hosts.get(pod).ok_or("its pod is gone, or its node's address is not known")?;
        let [node_port] = self.node_ports.get(host).map(Vec::as_slice).unwrap_or_default() else {
            return Err(format!("no port, or several, in [pod_vif_nested] worker_nodes_subnets have the node's address {host}"));
        };
        if let VifKind::VlanNested { vlan_id } = vif.kind {
            let trunk = node_port.trunk.as_ref().and_then(|id| self.trunks.get(id));
            let trunk = trunk.ok_or_else(|| format!("the node's port {} has no trunk", node_port.id))?;
            let is_on_it = trunk.sub_ports.iter().any(|sub| sub.port_id == port.id && sub.segmentation_id == vlan_id);
            return if is_on_it {
                Ok(Carrier::Trunk(trunk.id.clone()))
            } else {
                Err(format!("trunk {} does not carry the port with VLAN ID {vlan_id}", trunk.id))
            };
        }
        let is_paired = address_pairs(port).all(|pair| node_port.allowed_address_pairs.contains(&pair));
        if is_paired {
            Ok(Carrier::Port(node_port.id.clone()))
        } else {
            Err(format!("the node's port {} lacks the port's address pairs", node_port.id))
        }
    }
}

async fn create(client: &Client, object: &DynamicObject, new: &KuryrPort) -> Result<(), LookError> {
    let failed = |reason: String| LookError::Change { what: full_name(object), reason };
    let new: DynamicObject = serde_json::from_value(new.clone().write()).map_err(|e| failed(e.to_string()))?;
    let api = Followed::KuryrPort.api_of(client.clone(), object.metadata.namespace.as_deref().unwrap_or_default());
    api.create(&PostParams::default(), &new).await.map(drop).map_err(|e| failed(e.to_string()))
}

async fn label(client: &Client, object: &DynamicObject, cluster: &str) -> Result<(), LookError> {
    patch(client, Followed::KuryrPort, object, ("labels", json!({CLUSTER_LABEL: cluster}))).await
}

/// Only if the object is as it was read.
pub(super) async fn patch(
    client: &Client,
    kind: Followed,
    object: &DynamicObject,
    change: (&str, serde_json::Value),
) -> Result<(), LookError> {
    let (key, value) = change;
    let metadata = json!({"resourceVersion": object.metadata.resource_version, key: value});
    let (namespace, name) = (object.metadata.namespace.as_deref().unwrap_or_default(), object.metadata.name.as_deref().unwrap_or_default());
    let patched =
        kind.api_of(client.clone(), namespace).patch(name, &PatchParams::default(), &Patch::Merge(json!({"metadata": metadata}))).await;
    patched.map(drop).map_err(|e| LookError::Change { what: full_name(object), reason: e.to_string() })
}
