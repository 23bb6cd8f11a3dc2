//! What is kept of pods' ports where it is known for long: KuryrPorts, tags; and what is freed of pods that are gone.

use std::collections::{BTreeMap, BTreeSet};

use openstack::resource::Port;
use osvif::{
    DEFAULT_INTERFACE, KuryrPort, KuryrPortSpec, MAX_KURYR_PORT, NODE_LABEL, PORT_FINALIZER, PodVif, REASON_ANNOTATION, Vif, memory_of,
    node_label,
};
use serde_json::{Map, Value, json};

use crate::owner::{Carrier, counts_as_active, is_existing, subnets_of};
use crate::snapshot::{ObjectName, Pod, Snapshot, Stored};
use crate::step::{CLUSTER_LABEL, Call, Index, is_of};
use crate::{Owner, Refused};

// === impl Index ===

impl<'w> Index<'w> {
    /// `wanted` is what the pod asks for, if all of it is there. If not, the object gives the reason that the pod's owner got ([`Snapshot::told`]).
    /// What the pod was bound to before stays, whatever it asks for by now, as long as the port is there: the node may have plugged it.
    pub(crate) fn write(&mut self, uid: &str, pod: &Pod, wanted: Option<BTreeMap<String, Vif>>) {
        let why = self.world.told.get(uid).filter(|_| wanted.is_none());
        if self.stored(pod).is_none() && wanted.is_none() && why.is_none() {
            return;
        }
        let Some((version, mut object)) = object_of(self.world, uid, pod) else { return };
        if wanted.is_some() || why.is_some() {
            set_reason(&mut object, why);
        }
        let ports = self.world.ports.as_ref();
        let is_elsewhere = |id: &str| wanted.iter().flatten().any(|(_, vif)| vif.id == id);
        object.status.vifs.retain(|interface, known| {
            let port = ports.and_then(|ports| ports.get(&known.vif.id));
            if let Some(port) = port.filter(|port| known.vif.active != Some(counts_as_active(port))) {
                known.vif.active = Some(counts_as_active(port));
            }
            match &wanted {
                None => true,
                Some(wanted) => wanted.contains_key(interface) || (port.is_some() && !is_elsewhere(&known.vif.id)),
            }
        });
        for (interface, vif) in wanted.into_iter().flatten() {
            let default = interface == DEFAULT_INTERFACE;
            object.status.vifs.insert(interface, PodVif { default, vif: Box::new(vif), rest: Map::new() });
        }
        if self.stored(pod).is_none_or(|stored| stored.object != object) {
            let bytes = memory_of(&object.clone().write());
            if bytes > MAX_KURYR_PORT {
                return self.step.refused.entry(uid.to_owned()).or_default().push(Refused::TooLarge { bytes });
            }
            self.step.calls.push(Call::WriteKuryrPort { name: pod.name.clone(), version, object: Box::new(object) });
        }
    }

    /// Writes the pod's annotation where it differs from the KuryrPort: everybody who may change the pod may have changed it.
    pub(crate) fn annotate(&mut self, uid: &str, pod: &Pod) {
        let differs = |stored: &Stored| is_own(stored, uid, &self.world.cluster.name.to_string()) && stored.annotation != pod.annotation;
        if self.world.defaults.annotates && self.stored(pod).is_some_and(differs) {
            self.step.calls.push(Call::AnnotatePod { name: pod.name.clone(), uid: uid.to_owned() });
        }
    }

    /// Ports that have no tags yet.
    pub(crate) fn tag(&mut self) {
        for ((pod, element), ports) in &self.owned {
            let tags = self.tags_of(&Owner { pod: pod.clone(), element: *element });
            for port in ports
                .iter()
                .filter(|port| !self.pool.has(&port.id) && !is_existing(port) && !tags.iter().all(|tag| port.tags.contains(tag)))
            {
                // What carries it may stand in its description alone.
                let carrier = Carrier::of(port).map(|carrier| carrier.tag()).filter(|tag| !port.tags.contains(tag));
                let others = port.tags.iter().filter(|tag| !tags.contains(tag)).cloned().chain(carrier);
                let all = tags.iter().cloned().chain(others).collect();
                let is_going = self.step.calls.contains(&Call::DeletePort(port.id.clone()));
                if !is_going {
                    self.step.calls.push(Call::TagPort(port.id.clone(), all));
                }
            }
        }
        let (cluster, defaults) = (&self.world.cluster, &self.world.defaults);
        let ports = self.world.ports.iter().flat_map(BTreeMap::values);
        for port in ports.filter(|port| port.tags.is_empty() && cluster.is_pooled(port)) {
            let carrier = Carrier::of(port).map(|carrier| carrier.tag());
            let tags = cluster.pool_tags(subnets_of(port)).into_iter().chain(carrier).chain(defaults.tags.iter().cloned()).collect();
            self.step.calls.push(Call::TagPort(port.id.clone(), tags));
        }
    }

    /// What pods have left behind, and what is there twice.
    pub(crate) fn free(&mut self) {
        let (mut left, mut surplus) = (BTreeSet::new(), Vec::new());
        for (key, ports) in &self.owned {
            let kept = self.port(key).map(|port| port.id.as_str());
            // Ready ports wait for the next pod when their KuryrPort is gone.
            let ports: Vec<&'w Port> = ports.iter().filter(|port| !self.pool.has(&port.id)).copied().collect();
            if ports.is_empty() {
                continue;
            }
            match (self.lives(&key.0), self.is_done(&key.0)) {
                (true, _) => surplus.extend(ports.into_iter().filter(|port| Some(port.id.as_str()) != kept)),
                (false, true) => surplus.extend(ports),
                (false, false) => drop(self.step.missing.insert(key.0.clone())),
            }
            left.insert(key.0.clone());
        }
        surplus.into_iter().for_each(|port| self.delete(port));
        let cluster = self.world.cluster.name.to_string();
        for (name, stored) in self.world.kuryr_ports.iter().filter(|(_, stored)| is_of(&stored.object, &cluster)) {
            let uid = stored.object.spec.pod_uid.as_str();
            if self.is_done(uid) && !left.contains(uid) {
                self.step.calls.push(Call::ReleaseKuryrPort { name: name.clone(), version: stored.version.clone() });
            } else if !self.is_done(uid) && !self.lives(uid) {
                self.step.missing.insert(uid.to_owned());
            }
        }
    }
}

/// Writes the reasons why pods wait into their KuryrPorts while Neutron's ports are not known.
pub(crate) fn reasons(world: &Snapshot) -> Vec<Call> {
    let of_pod = |(uid, why): (&String, &String)| {
        let pod = world.pods.get(uid).filter(|pod| !pod.is_over && !world.gone.contains(uid))?;
        let (version, mut object) = object_of(world, uid, pod)?;
        if object.status.vifs.is_empty() {
            set_reason(&mut object, Some(why));
        }
        let is_new = world.kuryr_ports.get(&pod.name).is_none_or(|stored| stored.object != object);
        is_new.then(|| Call::WriteKuryrPort { name: pod.name.clone(), version, object: Box::new(object) })
    };
    world.told.iter().filter_map(of_pod).collect()
}

/// The pod's KuryrPort as it is stored, with its version, or a new one. `None`: the stored one cannot be read, or is another controller's, or of an
/// earlier pod of this name, which goes first.
fn object_of(world: &Snapshot, uid: &str, pod: &Pod) -> Option<(Option<String>, KuryrPort)> {
    let cluster = world.cluster.name.to_string();
    match world.kuryr_ports.get(&pod.name) {
        None => Some((None, new_kuryr_port(uid, &pod.name, &pod.node, &cluster))),
        Some(stored) => is_own(stored, uid, &cluster).then(|| (Some(stored.version.clone()), stored.object.clone())),
    }
}

/// Whether a KuryrPort is this pod's and this controller's, and can be written.
fn is_own(stored: &Stored, uid: &str, cluster: &str) -> bool {
    stored.object.spec.pod_uid == uid && is_of(&stored.object, cluster) && stored.damage.is_none()
}

/// Writes into an object why its pod has no VIFs, or takes the reason out of it.
fn set_reason(object: &mut KuryrPort, why: Option<&String>) {
    let annotations = object.metadata.get_mut("annotations").and_then(Value::as_object_mut);
    match (annotations, why) {
        (Some(annotations), Some(why)) => drop(annotations.insert(REASON_ANNOTATION.to_owned(), json!(why))),
        (Some(annotations), None) => drop(annotations.remove(REASON_ANNOTATION)),
        (None, Some(why)) => drop(object.metadata.insert("annotations".to_owned(), json!({REASON_ANNOTATION: why}))),
        (None, None) => {}
    }
}

/// A pod's KuryrPort without VIFs, of a cluster's operator.
#[must_use]
pub fn new_kuryr_port(uid: &str, of: &ObjectName, node: &str, cluster: &str) -> KuryrPort {
    let ObjectName { namespace, name } = of;
    let metadata = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("namespace".to_owned(), json!(namespace)),
        ("finalizers".to_owned(), json!([PORT_FINALIZER])),
        ("labels".to_owned(), json!({NODE_LABEL: node_label(node), CLUSTER_LABEL: cluster})),
        ("ownerReferences".to_owned(), json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}])),
    ]);
    let spec = KuryrPortSpec { pod_uid: uid.to_owned(), pod_node_name: node.to_owned(), pod_static: Some(false), rest: Map::new() };
    KuryrPort { metadata, spec, ..KuryrPort::default() }
}
