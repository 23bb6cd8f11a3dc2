//! What is to be called next.

use std::collections::{BTreeMap, BTreeSet};

use openstack::VifDriver;
use openstack::resource::{AddressPair, Network, NewPort, Port, SubPort, Subnet};
use osvif::{KuryrPort, Vif};
use serde_json::Value;

use crate::keeping::reasons;
use crate::making::may_have;
use crate::nested::Moves;
use crate::owner::{Carrier, counts_as_active, is_existing};
use crate::pool::{Pool, Taken};
use crate::snapshot::{Element, Key, ObjectName, Pod, Snapshot, Stored, Tried};
use crate::{Owner, Refused, vif};

/// So many ports are made by one request, at most: Neutron takes a fifth of a second for each, and others wait meanwhile.
pub const MAX_BULK: usize = 20;

/// What our ports are for, as Neutron shows it; Kuryr's word, so that its users' tools go on.
pub const DEVICE_OWNER: &str = "compute:kuryr";

/// The label of KuryrPorts that are ours: the cluster's name. Nobody else's is written or released.
pub const CLUSTER_LABEL: &str = "netloom.io/ports-of";

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// List all ports of the cluster, by its tag, and by their description where tags come later. Nothing is made before.
    ListPorts,
    /// Read a subnet.
    ReadSubnet(String),
    /// Read a network.
    ReadNetwork(String),
    /// Read the ports that have this address, which is a node's.
    ReadNodePorts(String),
    /// Read a node's port.
    ReadCarrier(String),
    /// Read a trunk.
    ReadTrunk(String),
    /// Put these ports on a trunk, all or none.
    AddSubPorts(String, Vec<SubPort>),
    /// Take these ports off a trunk.
    RemoveSubPorts(String, Vec<String>),
    /// Give a node's port these address pairs, and no others, if nobody has changed it since.
    SetPairs {
        /// The port.
        port: String,
        /// Its revision as it was read.
        revision: u64,
        /// The pairs.
        pairs: Vec<AddressPair>,
        /// Whether some of them are new.
        adds: bool,
    },
    /// Make these ports by one request: all or none. Where it is not known what came of it, [`Snapshot::ports`] is none until they are listed.
    CreatePorts(Vec<(Key, NewPort)>),
    /// Give a port these tags, and no others.
    TagPort(String, Vec<String>),
    /// Give a port these security groups, and no others.
    SetGroups(String, Vec<String>),
    /// Give a port these address pairs, and no others.
    AllowPairs(String, Vec<AddressPair>),
    /// Delete a port.
    DeletePort(String),
    /// Read a port that exists already.
    ReadPort(String),
    /// Give a port that exists already to a pod, if nobody has changed it since.
    TakePort {
        /// The port.
        port: String,
        /// Its revision as it was read.
        revision: u64,
        /// The pod's UID.
        uid: String,
        /// The host that it is to be bound to.
        host: String,
    },
    /// Take it from the pod, and bind it to nothing, if nobody has changed it since.
    FreePort {
        /// The port.
        port: String,
        /// Its revision as it was read.
        revision: u64,
    },
    /// Write a KuryrPort under this `resourceVersion`; without one, create it.
    WriteKuryrPort {
        /// Its name.
        name: ObjectName,
        /// The version that was read.
        version: Option<String>,
        /// The object.
        object: Box<KuryrPort>,
    },
    /// Write the VIFs of its KuryrPort into a pod's annotation, or remove the annotation where the KuryrPort has none.
    AnnotatePod {
        /// Its name.
        name: ObjectName,
        /// Its UID: another pod of the name gets nothing.
        uid: String,
    },
    /// Take our finalizer off a KuryrPort and delete it, under this `resourceVersion`.
    ReleaseKuryrPort {
        /// Its name.
        name: ObjectName,
        /// The version that was read.
        version: String,
    },
}

/// What follows from a [`Snapshot`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The calls. Each stands for itself: any of them may be lost, late or refused.
    pub calls: Vec<Call>,
    /// UIDs of pods that have ports and were not seen: somebody must ask for them, and tell by [`Snapshot::gone`].
    pub missing: BTreeSet<String>,
    /// Pods that do not get all ports now, by UID, and why.
    pub refused: BTreeMap<String, Vec<Refused>>,
    /// Ports that are to be looked at soon: those of pods that are not ACTIVE yet, and ready ones that are not DOWN yet.
    pub watched: BTreeSet<String>,
    /// Ready ports that are given to pods now, by ID: what is to be in [`Snapshot::claims`] until a KuryrPort says it.
    pub claims: BTreeMap<String, Key>,
    /// How many ports wait in each pool, by the pool's name, and whether pods use such ports at all.
    pub pools: BTreeMap<String, (usize, bool)>,
    /// Pods that wait for something to be read, by UID, and for what: [`Call::ReadSubnet`], [`Call::ReadNetwork`].
    pub reading: BTreeMap<String, Vec<Call>>,
    /// How many ready ports can be given to pods now.
    pub ready: usize,
    /// UIDs of pods that wait for their node's address, which the kubelet writes into the pod's status.
    pub without_address: BTreeSet<String>,
}

/// Ports by what they are for.
pub(crate) struct Index<'a> {
    pub(crate) world: &'a Snapshot,
    pub(crate) pool: Pool<'a>,
    pub(crate) owned: BTreeMap<Key, Vec<&'a Port>>,
    pub(crate) step: Step,
    pub(crate) new: Vec<(Key, NewPort)>,
    /// What has to be read for the pod at hand.
    reading: Vec<Call>,
    /// What gives existing ports to the pod at hand.
    pub(crate) taking: Vec<Call>,
    /// What the pod at hand has of pools.
    pub(crate) taken: Taken<'a>,
    /// Nested ports that are put somewhere, or taken away.
    pub(crate) moves: Moves<'a>,
    /// How many addresses the ports of each namespace's pods have, or will have.
    pub(crate) used: BTreeMap<&'a str, usize>,
}

/// Decides what is to be called.
#[must_use]
pub fn step(world: &Snapshot) -> Step {
    let Some(ports) = &world.ports else {
        return Step { calls: [Call::ListPorts].into_iter().chain(reasons(world)).collect(), ..Step::default() };
    };
    let mut owned: BTreeMap<Key, Vec<&Port>> = BTreeMap::new();
    for port in ports.values() {
        let owner = Owner::of(port, &world.cluster).or_else(|| untagged_owner(world, port));
        if let Some(Owner { pod, element }) = owner {
            owned.entry((pod, element)).or_default().push(port);
        }
    }
    let pool = Pool::of(world, ports, &mut owned);
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for ((uid, _), ports) in &owned {
        if let Some(pod) = world.pods.get(uid) {
            let addresses: usize = ports.iter().map(|port| port.fixed_ips.len().max(1)).sum();
            *used.entry(pod.name.namespace.as_str()).or_default() += addresses;
        }
    }
    for key in world.pending.iter().filter(|key| !owned.contains_key(*key)) {
        if let Some(pod) = world.pods.get(&key.0) {
            let element = pod.elements.iter().find(|element| element.number == key.1);
            *used.entry(pod.name.namespace.as_str()).or_default() += element.map_or(1, |element| element.subnets.len().max(1));
        }
    }
    let (taken, moves) = (Taken::default(), Moves::default());
    let mut index =
        Index { world, pool, owned, step: Step::default(), new: Vec::new(), reading: Vec::new(), taking: Vec::new(), taken, moves, used };
    for (uid, pod) in &world.pods {
        if index.lives(uid) {
            index.serve(uid, pod);
        }
    }
    index.free();
    index.fill();
    index.change_carriers();
    index.tag();
    index.watch();
    index.make();
    index.step.ready = index.pool.free.values().filter(|port| index.can_be_given(port)).count();
    index.step
}

// === impl Index ===

impl<'w> Index<'w> {
    pub(crate) fn lives(&self, uid: &str) -> bool {
        !self.world.gone.contains(uid) && self.world.pods.get(uid).is_some_and(|pod| !pod.is_over)
    }

    /// Whether the pod is known to need nothing any more. One that was not seen may only be new.
    pub(crate) fn is_done(&self, uid: &str) -> bool {
        self.world.gone.contains(uid) || self.world.pods.get(uid).is_some_and(|pod| pod.is_over)
    }

    /// The pod's KuryrPort, if there is one.
    pub(crate) fn stored(&self, pod: &Pod) -> Option<&Stored> {
        self.world.kuryr_ports.get(&pod.name)
    }

    /// The port of a key: that which the node knows, else the first. Two of one key are there only if two controllers were at work.
    pub(crate) fn port(&self, key: &Key) -> Option<&'w Port> {
        let all = self.owned.get(key)?;
        let stored = self.world.pods.get(&key.0).and_then(|pod| self.stored(pod));
        let known = |port: &&&Port| stored.is_some_and(|stored| stored.object.status.vifs.values().any(|vif| vif.vif.id == port.id));
        all.iter().find(known).or(all.first()).copied()
    }

    fn serve(&mut self, uid: &str, pod: &'w Pod) {
        let cluster = self.world.cluster.name.to_string();
        // Another controller's pod has that controller's ports.
        if !pod.elements.is_empty() && self.stored(pod).is_some_and(|stored| !is_of(&stored.object, &cluster)) {
            let foreign = Refused::ForeignKuryrPort(format!("{}/{}", pod.name.namespace, pod.name.name));
            return self.step.refused.entry(uid.to_owned()).or_default().push(foreign);
        }
        let ours = self.stored(pod).filter(|stored| stored.object.spec.pod_uid == uid);
        if let Some(damage) = ours.and_then(|stored| stored.damage.clone()) {
            let unreadable = Refused::UnreadableKuryrPort(format!("{}/{}", pod.name.namespace, pod.name.name), damage);
            return self.step.refused.entry(uid.to_owned()).or_default().push(unreadable);
        }
        let (mut vifs, before) = (BTreeMap::new(), self.new.len());
        for element in &pod.elements {
            match self.element(uid, pod, element) {
                Ok(Some(vif)) => drop(vifs.insert(element.interface.clone(), vif)),
                Ok(None) => {}
                Err(why) => self.step.refused.entry(uid.to_owned()).or_default().push(why),
            }
        }
        let reading = std::mem::take(&mut self.reading);
        // A port alone is of no use, and many are made by one request: nothing is made before all is known of the pod.
        if !reading.is_empty() || self.step.without_address.contains(uid) || self.step.refused.contains_key(uid) {
            self.new.truncate(before);
            self.taking.clear();
        }
        self.step.calls.append(&mut self.taking);
        self.count(uid, pod, before);
        self.settle(pod, !reading.is_empty() || self.step.without_address.contains(uid) || self.step.refused.contains_key(uid));
        if !reading.is_empty() {
            self.step.reading.insert(uid.to_owned(), reading);
        }
        // The node plugs all of them, or none.
        let is_whole = !vifs.is_empty() && vifs.len() == pod.elements.len();
        self.write(uid, pod, is_whole.then_some(vifs));
        self.annotate(uid, pod);
    }

    /// Makes none of the pod's new ports where its namespace would have too many: those of another namespace's subnet are not its own to use up.
    fn count(&mut self, uid: &str, pod: &'w Pod, before: usize) {
        let more = self.new.iter().skip(before).map(|(_, port)| port.fixed_ips.len().max(1)).sum::<usize>();
        let namespace = pod.name.namespace.as_str();
        let used = self.used.entry(namespace).or_default();
        match self.world.defaults.ports_per_namespace.filter(|max| more > 0 && *used + more > *max) {
            None => *used += more,
            Some(max) => {
                let too_many = Refused::TooMany { namespace: namespace.to_owned(), used: *used, more, max };
                self.step.refused.entry(uid.to_owned()).or_default().push(too_many);
                self.new.truncate(before);
            }
        }
    }

    /// What the node knows of an interface of this pod.
    fn bound(&self, uid: &str, pod: &Pod, interface: &str) -> Option<&'w Vif> {
        let stored = self.world.kuryr_ports.get(&pod.name).filter(|stored| stored.object.spec.pod_uid == uid)?;
        stored.object.status.vifs.get(interface).map(|vif| &*vif.vif)
    }

    /// The VIF of an element; none where something has to be called first. What a port was made with holds, whatever is wanted by now.
    fn element(&mut self, uid: &str, pod: &'w Pod, element: &Element) -> Result<Option<Vif>, Refused> {
        let key = (uid.to_owned(), element.number);
        let bound = self.bound(uid, pod, &element.interface);
        let port = if let Some(port) = self.port(&key) {
            self.note(pod, element, port);
            port
        } else {
            // It was ACTIVE, so it was plugged: who runs with it would not notice another one.
            if let Some(gone) = bound.filter(|vif| vif.active == Some(true)) {
                let (port, interface) = (gone.id.clone(), element.interface.clone());
                return Err(if self.pool.has(&port) { Refused::Shared { port, interface } } else { Refused::Gone { port, interface } });
            }
            if let Some(id) = &element.port {
                self.tag_existing(key, element, id)?;
                return Ok(None);
            }
            match self.without_port(key, pod, element)? {
                Some(ready) => ready,
                None => return Ok(None),
            }
        };
        if is_existing(port) {
            if !self.is_taken(uid, pod, port)? {
                return Ok(None);
            }
        } else {
            self.groups(port, element);
            if bound.is_none() && !self.has_pairs(port, element) {
                return Ok(None);
            }
        }
        if let Some(carrier) = Carrier::of(port) {
            let vif = self.nested(uid, pod, port, &carrier)?;
            return Ok(vif.map(|vif| self.with_max_mtu(vif)));
        }
        // Neutron binds it after it has answered: a later look tells how.
        if port.vif_type == "unbound" && !port.host.is_empty() {
            return Ok(None);
        }
        let (network, subnets) = self.places(port)?;
        let (Some(network), Some(subnets)) = (network, subnets) else { return Ok(None) };
        let vif = vif(port, network, &subnets, self.world.defaults.ovs_bridge.as_deref()).map_err(|why| match why {
            Refused::Binding { port, host, .. } if bound.is_some_and(|vif| vif.id == port) => Refused::Unbound { port, host },
            Refused::Binding { port, host, .. } => Refused::Binding { port, interface: element.interface.clone(), host },
            why => why,
        })?;
        Ok(Some(self.with_max_mtu(vif)))
    }

    /// The network of a port and the subnets of its addresses, if both are known.
    #[allow(clippy::type_complexity, reason = "two answers, each of which may be missing")]
    pub(crate) fn places(&mut self, port: &Port) -> Result<(Option<&'w Network>, Option<Vec<&'w Subnet>>), Refused> {
        let of_port: BTreeSet<&String> = port.fixed_ips.iter().map(|ip| &ip.subnet_id).collect();
        Ok((self.network(&port.network_id)?, self.subnets(of_port)?))
    }

    fn with_max_mtu(&self, mut vif: Vif) -> Vif {
        if let (Some(network), Some(max)) = (&mut vif.network, self.world.defaults.max_mtu) {
            network.mtu = Some(network.mtu.map_or(max, |mtu| mtu.min(max)));
        }
        vif
    }

    /// Security groups follow the definition, and the settings, while the pod runs. Without any, they are Neutron's to choose.
    fn groups(&mut self, port: &Port, element: &Element) {
        let wanted = element.security_groups.as_ref().unwrap_or(&self.world.defaults.security_groups);
        let set = |groups: &[String]| groups.iter().cloned().collect::<BTreeSet<String>>();
        if !wanted.is_empty() && set(wanted) != set(&port.security_groups) {
            self.step.calls.push(Call::SetGroups(port.id.clone(), wanted.clone()));
        }
    }

    /// Whether a new port has address pairs, if its definition names some: Neutron 21 leaves them out of ports that are made with one request for many
    /// (`_create_port_bulk`).
    fn has_pairs(&mut self, port: &Port, element: &Element) -> bool {
        let is_without = port.allowed_address_pairs.is_empty() && !element.address_pairs.is_empty();
        if is_without {
            self.step.calls.push(Call::AllowPairs(port.id.clone(), element.address_pairs.clone()));
        }
        !is_without
    }

    /// An element that has no port yet: what is to be read for it, then the port that is to be made.
    fn without_port(&mut self, key: Key, pod: &'w Pod, element: &Element) -> Result<Option<&'w Port>, Refused> {
        let Some(subnets) = self.subnets(&element.subnets)? else { return Ok(None) };
        let network_id = subnets.first().map_or(element.network.as_str(), |subnet| subnet.network_id.as_str());
        if let Some(other) = subnets.iter().find(|subnet| subnet.network_id != network_id) {
            return Err(Refused::TwoNetworks(element.subnets.first().cloned().unwrap_or_default(), other.id.clone()));
        }
        element.ips.iter().try_for_each(|ip| may_have(*ip, &subnets, element.outside_allocation_pools))?;
        // It is needed as soon as the port is there.
        self.network(network_id)?;
        let carrier = match element.driver {
            VifDriver::NestedVlan | VifDriver::NestedMacvlan => match self.carrier(&key.0, pod, element, network_id)? {
                None => return Ok(None),
                carrier => carrier,
            },
            VifDriver::NeutronVif | VifDriver::NestedDpdk => None,
        };
        if let Some(Carrier::Trunk(id)) = &carrier
            && self.known_trunk(id)?.is_none()
        {
            return Ok(None);
        }
        let is_being_made = self.world.pending.contains(&key);
        if is_being_made {
            self.expect(pod, element, network_id, carrier.as_ref());
        } else if let Some(ready) = self.ready(&key, pod, element, network_id, carrier.as_ref()) {
            return Ok(Some(ready));
        }
        if self.world.tried.get(&key) == Some(&Tried::Alone) {
            let place = element.subnets.first().unwrap_or(&element.network).clone();
            return Err(Refused::Port { number: element.number, interface: element.interface.clone(), place });
        }
        if !is_being_made {
            let mut port = self.new_port(&key.0, pod, element, network_id, &subnets);
            if let Some(carrier) = carrier {
                self.carried(&mut port, &carrier);
            }
            self.new.push((key, port));
        }
        Ok(None)
    }

    /// A network by its ID; none where it has to be read first.
    fn network(&mut self, id: &str) -> Result<Option<&'w Network>, Refused> {
        self.known(self.world.networks.get(id), || Refused::NoNetwork(id.to_owned()), || Call::ReadNetwork(id.to_owned()))
    }

    /// What was read of Neutron, which may be that it is `missing`; none where it has to be read first, by this call.
    pub(crate) fn known<T>(
        &mut self,
        read: Option<&'w Option<T>>,
        missing: impl FnOnce() -> Refused,
        call: impl FnOnce() -> Call,
    ) -> Result<Option<&'w T>, Refused> {
        match read {
            Some(found) => found.as_ref().map(Some).ok_or_else(missing),
            None => {
                self.read(call());
                Ok(None)
            }
        }
    }

    /// Subnets by their IDs; none where some have to be read first.
    fn subnets<'a>(&mut self, ids: impl IntoIterator<Item = &'a String>) -> Result<Option<Vec<&'w Subnet>>, Refused> {
        let (mut found, mut is_whole) = (Vec::new(), true);
        for id in ids {
            match self.world.subnets.get(id) {
                Some(Some(subnet)) => found.push(subnet),
                Some(None) => return Err(Refused::NoSubnet(id.clone())),
                None => {
                    self.read(Call::ReadSubnet(id.clone()));
                    is_whole = false;
                }
            }
        }
        Ok(is_whole.then_some(found))
    }

    /// Several pods need the same one.
    pub(crate) fn read(&mut self, call: Call) {
        self.reading.push(call.clone());
        if !self.step.calls.contains(&call) {
            self.step.calls.push(call);
        }
    }

    pub(crate) fn tags_of(&self, owner: &Owner) -> Vec<String> {
        let mut tags = owner.tags(&self.world.cluster);
        tags.extend(self.world.defaults.tags.iter().cloned());
        tags
    }

    /// Whether the next pod can have this ready port.
    fn can_be_given(&self, port: &Port) -> bool {
        !is_unknown(port) && !port.is_unbindable() && !self.world.inherited.contains(&port.id)
    }

    /// What changes without us.
    fn watch(&mut self) {
        for ((uid, _), ports) in &self.owned {
            if self.lives(uid) {
                self.step.watched.extend(ports.iter().filter(|port| !counts_as_active(port)).map(|port| port.id.clone()));
            }
        }
        self.step.watched.extend(self.pool.free.values().filter(|port| is_unknown(port)).map(|port| port.id.clone()));
    }
}

/// Whether a ready port has to be looked at before a pod can have it. A subport is ACTIVE or DOWN, whoever has it.
fn is_unknown(port: &Port) -> bool {
    match Carrier::of(port) {
        Some(_) => port.status.is_empty(),
        None => port.status != "DOWN" || port.vif_type == "unbound",
    }
}

/// Whose a port is that has the cluster's name, and not its UID: tags of before had none. It is ours where a KuryrPort of ours says so.
fn untagged_owner(world: &Snapshot, port: &Port) -> Option<Owner> {
    let (owner, cluster) = (Owner::without_uid(port, &world.cluster)?, world.cluster.name.to_string());
    let is_named = |stored: &Stored| {
        let object = &stored.object;
        object.spec.pod_uid == owner.pod && is_of(object, &cluster) && object.status.vifs.values().any(|vif| vif.vif.id == port.id)
    };
    world.kuryr_ports.values().any(is_named).then_some(owner)
}

/// Whether the controller of this cluster has made it.
pub(crate) fn is_of(object: &KuryrPort, cluster: &str) -> bool {
    let label = object.metadata.get("labels").and_then(|labels| labels.get(CLUSTER_LABEL));
    label.and_then(Value::as_str) == Some(cluster)
}
