//! What waits for a call that is not the pod's own: a subnet that has to be read again, an object that cannot be written.

use std::collections::{BTreeMap, BTreeSet};

use binding::{Call, Carrier, ObjectName, Owner, Pod, Step};
use openstack::resource::{NewPort, Port};
use tokio::time::Instant;

use super::{FRESH, UNWRITTEN, Work};
use crate::ports::Ports;
use crate::ports::call::{Slot, Task};

// === impl Work ===

impl Work {
    /// What is to be made in a subnet or network that was read long ago, or that Neutron has refused a port of, waits until it was read again.
    pub(super) fn fresh(&self, tasks: Vec<Task>, step: &mut Step, now: Instant) -> Vec<Task> {
        let mut all = Vec::new();
        for task in tasks {
            let Task::Create(wanted) = &task else {
                all.push(task);
                continue;
            };
            let is_old = |slot: &Slot| self.read_at.get(slot).is_none_or(|read| *read + FRESH <= now);
            let (mut fresh, mut old) = (Vec::new(), BTreeSet::new());
            for (key, port) in wanted {
                let of_port: Vec<Slot> = places(port).into_iter().filter(is_old).collect();
                if of_port.is_empty() {
                    fresh.push((key.clone(), port.clone()));
                }
                let reading = step.reading.entry(key.0.clone()).or_default();
                reading.extend(of_port.iter().filter_map(Slot::call));
                old.extend(of_port);
            }
            all.extend(old.iter().filter_map(Slot::call).filter_map(|call| Task::of(call, || Task::Extensions, |_| None)));
            if !fresh.is_empty() {
                all.push(Task::Create(fresh));
            }
        }
        all
    }

    /// Pods that wait for a call that fails, and is their own or that of several.
    pub(super) fn blocked(&self, ports: &Ports, step: &Step, problems: &mut BTreeMap<String, String>) {
        let mut add = |uid: &String, why: String| {
            problems.entry(uid.clone()).or_insert(why);
        };
        for (uid, calls) in &step.reading {
            let slot = |call: &Call| match call {
                Call::ReadSubnet(id) => Some(Slot::Subnet(id.clone())),
                Call::ReadNetwork(id) => Some(Slot::Network(id.clone())),
                Call::ReadNodePorts(address) => Some(Slot::NodePorts(address.clone())),
                Call::ReadCarrier(id) => Some(Slot::Carrier(id.clone())),
                Call::ReadTrunk(id) => Some(Slot::Trunk(id.clone())),
                Call::ReadPort(id) => Some(Slot::Port(id.clone())),
                _ => None,
            };
            let why = calls.iter().filter_map(slot).find_map(|slot| self.calls.why(&slot).filter(|why| !why.is_empty()));
            if let Some(why) = why {
                let next = "check Neutron, and that the credentials may see its networks and subnets, and nodes' ports and trunks";
                add(uid, format!("{why}; the pod's ports wait for it: {next}"));
            }
        }
        let mut pods: BTreeMap<&ObjectName, Vec<&String>> = BTreeMap::new();
        if self.calls.failing().any(|(slot, _)| matches!(slot, Slot::Object(_) | Slot::Annotation(_))) {
            let all = self.world.pods.iter().filter(|(_, pod)| !pod.is_over);
            all.for_each(|(uid, pod)| pods.entry(&pod.name).or_default().push(uid));
        }
        let of_name = |name: &ObjectName| pods.get(name).into_iter().flatten().copied();
        for (slot, why) in self.calls.failing().filter(|(_, why)| !why.is_empty()) {
            match slot {
                Slot::Object(name) => {
                    let next = "check the API server, and the operator's rights (deploy/openstack/access.yaml)";
                    of_name(name).for_each(|uid| add(uid, format!("KuryrPort {}/{}: {why}; {next}", name.namespace, name.name)));
                }
                Slot::Networks => {
                    let next = "check Neutron: which networks of namespaces this operator has made must be known";
                    let all = self.world.pods.iter().filter(|(_, pod)| pod.elements.is_empty() && !pod.is_over);
                    all.for_each(|(uid, _)| add(uid, format!("{why}; {next}")));
                }
                Slot::Namespace(namespace) => {
                    let next =
                        "check Neutron, its quota, pod_router and pod_subnet_pool, and the rights of the credentials and of the operator";
                    let waits = |pod: &Pod| pod.name.namespace == *namespace && pod.elements.is_empty() && !pod.is_over;
                    let all = self.world.pods.iter().filter(|(_, pod)| waits(pod));
                    all.for_each(|(uid, _)| add(uid, format!("{why}; {next}")));
                }
                Slot::Annotation(name) => {
                    let next = "check the API server, and the operator's rights (deploy/openstack/annotation.yaml)";
                    // One that runs has what it needs: the log has it.
                    let known = ports.known.lock();
                    let waits = |uid: &&String| known.pods.get(*uid).is_some_and(|pod| !pod.is_running);
                    of_name(name).filter(waits).for_each(|uid| add(uid, format!("annotation {}: {why}; {next}", osvif::VIF_ANNOTATION)));
                }
                Slot::Groups(id) | Slot::Tag(id) | Slot::Bind(id) => {
                    let port = self.world.ports.as_ref().and_then(|ports| ports.get(id));
                    let owner = port.and_then(|port| Owner::of(port, &self.world.cluster));
                    let next = "check the credentials' rights, and the definition's securityGroups and allowedAddressPairs";
                    if let Some(owner) = owner.filter(|owner| self.world.pods.contains_key(&owner.pod)) {
                        add(&owner.pod, format!("{why}; {next}"));
                    } else {
                        let names = |pod: &Pod| pod.elements.iter().any(|element| element.port.as_ref() == Some(id));
                        let all = self.world.pods.iter().filter(|(_, pod)| !pod.is_over && names(pod));
                        all.for_each(|(uid, _)| add(uid, format!("{why}; {next}")));
                    }
                }
                Slot::AddSubPorts(..) | Slot::Pairs(..) => {
                    let next = "check the node's port and its trunk in Neutron, and the credentials' rights";
                    self.carried_by(slot).into_iter().for_each(|uid| add(&uid, format!("{why}; {next}")));
                }
                _ => {}
            }
        }
    }

    /// Pods whose kubelet does not say where they are.
    pub(super) fn unwritten(&mut self, step: &Step, now: Instant, problems: &mut BTreeMap<String, String>) {
        self.without_address.retain(|uid, _| step.without_address.contains(uid));
        for uid in &step.without_address {
            let since = *self.without_address.entry(uid.clone()).or_insert(now);
            if let Some(pod) = self.world.pods.get(uid).filter(|_| since + UNWRITTEN <= now) {
                let why = format!(
                    "the pod's status.hostIP is missing, and its nested ports wait for it: check that the kubelet of node {} runs",
                    pod.node
                );
                problems.entry(uid.clone()).or_insert(why);
            }
        }
    }

    /// Pods whose ports wait for this change of what carries them.
    fn carried_by(&self, slot: &Slot) -> BTreeSet<String> {
        let waits = |port: &Port| match (slot, Carrier::of(port)) {
            (Slot::AddSubPorts(_, first), Some(Carrier::Trunk(_))) => port.id == *first,
            (Slot::Pairs(id, true), Some(Carrier::Port(of))) => {
                let is_paired =
                    |parent: &Port| parent.allowed_address_pairs.iter().any(|pair| pair.mac_address.as_deref() == Some(&port.mac_address));
                of == *id && !self.world.carriers.get(id).and_then(Option::as_ref).is_some_and(is_paired)
            }
            _ => false,
        };
        let pods = self.owned().filter(|(_, port)| waits(port)).map(|(owner, _)| owner.pod);
        pods.filter(|uid| self.world.pods.get(uid).is_some_and(|pod| !pod.is_over)).collect()
    }
}

/// The network and the subnets of a port that is to be made.
pub(super) fn places(port: &NewPort) -> Vec<Slot> {
    let subnets = port.fixed_ips.iter().filter_map(|ip| ip.subnet_id.clone()).map(Slot::Subnet);
    [Slot::Network(port.network_id.clone())].into_iter().chain(subnets).collect()
}
