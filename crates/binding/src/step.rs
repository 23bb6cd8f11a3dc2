//! What is to be called next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use openstack::VifDriver;
use openstack::resource::{AddressPair, AllocationPool, Network, NewPort, Port, SubPort, Subnet, WantedIp};
use osvif::{DEFAULT_INTERFACE, KuryrPort, KuryrPortSpec, MAX_KURYR_PORT, NODE_LABEL, PORT_FINALIZER, PodVif, Vif, memory_of, node_label};
use serde_json::{Map, Value, json};

use crate::nested::Moves;
use crate::owner::{Carrier, counts_as_active, subnets_of};
use crate::pool::{Pool, Taken};
use crate::snapshot::{Element, Key, ObjectName, Pod, Snapshot, Stored, Tried};
use crate::{Owner, Refused, vif};

/// So many ports are made by one request, at most: Neutron takes a fifth of a second for each, and others wait meanwhile.
pub const MAX_BULK: usize = 20;

/// A subnet that has fewer addresses left than this, as far as is known, may have too few for a bulk.
const RESERVE: u128 = 2 * MAX_BULK as u128;

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
    /// Delete a port.
    DeletePort(String),
    /// Write a KuryrPort under this `resourceVersion`; without one, create it.
    WriteKuryrPort {
        /// Its name.
        name: ObjectName,
        /// The version that was read.
        version: Option<String>,
        /// The object.
        object: Box<KuryrPort>,
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
}

/// Ports by what they are for.
pub(crate) struct Index<'a> {
    pub(crate) world: &'a Snapshot,
    pub(crate) pool: Pool<'a>,
    owned: BTreeMap<Key, Vec<&'a Port>>,
    pub(crate) step: Step,
    pub(crate) new: Vec<(Key, NewPort)>,
    /// What has to be read for the pod at hand.
    reading: Vec<Call>,
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
        return Step { calls: vec![Call::ListPorts], ..Step::default() };
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
    let mut index = Index { world, pool, owned, step: Step::default(), new: Vec::new(), reading: Vec::new(), taken, moves, used };
    for (uid, pod) in &world.pods {
        if index.lives(uid) {
            index.serve(uid, pod);
        }
    }
    index.free();
    index.change_carriers();
    index.tag();
    index.fill();
    index.watch();
    index.make();
    index.step
}

// === impl Index ===

impl<'w> Index<'w> {
    fn lives(&self, uid: &str) -> bool {
        !self.world.gone.contains(uid) && self.world.pods.get(uid).is_some_and(|pod| !pod.is_over)
    }

    /// Whether the pod is known to need nothing any more. One that was not seen may only be new.
    fn is_done(&self, uid: &str) -> bool {
        self.world.gone.contains(uid) || self.world.pods.get(uid).is_some_and(|pod| pod.is_over)
    }

    /// The pod's KuryrPort, if there is one.
    fn stored(&self, pod: &Pod) -> Option<&Stored> {
        self.world.kuryr_ports.get(&pod.name)
    }

    /// The port of a key: that which the node knows, else the first. Two of one key are there only if two controllers were at work.
    fn port(&self, key: &Key) -> Option<&'w Port> {
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
        if !reading.is_empty() || self.step.refused.contains_key(uid) {
            self.new.truncate(before);
        }
        self.count(uid, pod, before);
        self.settle(pod, !reading.is_empty() || self.step.refused.contains_key(uid));
        if !reading.is_empty() {
            self.step.reading.insert(uid.to_owned(), reading);
        }
        // The node plugs all of them, or none.
        let is_whole = !vifs.is_empty() && vifs.len() == pod.elements.len();
        self.write(uid, pod, is_whole.then_some(vifs));
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
        stored.object.status.vifs.get(interface).map(|vif| &vif.vif)
    }

    /// The VIF of an element; none where something has to be called first. What a port was made with holds, whatever is wanted by now.
    fn element(&mut self, uid: &str, pod: &'w Pod, element: &Element) -> Result<Option<Vif>, Refused> {
        let key = (uid.to_owned(), element.number);
        let bound = self.bound(uid, pod, &element.interface);
        let port = if let Some(port) = self.port(&key) {
            self.note(pod, element, &port.network_id);
            port
        } else {
            // It was ACTIVE, so it was plugged: who runs with it would not notice another one.
            if let Some(gone) = bound.filter(|vif| vif.active == Some(true)) {
                let (port, interface) = (gone.id.clone(), element.interface.clone());
                return Err(if self.pool.has(&port) { Refused::Shared { port, interface } } else { Refused::Gone { port, interface } });
            }
            match self.without_port(key, pod, element)? {
                Some(ready) => ready,
                None => return Ok(None),
            }
        };
        self.groups(port, element);
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
            Refused::Binding { port, host } if bound.is_some_and(|vif| vif.id == port) => Refused::Unbound { port, host },
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
        if let Some(ready) = self.ready(&key, pod, element, network_id) {
            return Ok(Some(ready));
        }
        let carrier = match element.driver {
            VifDriver::NestedVlan | VifDriver::NestedMacvlan => match self.carrier(pod, element, network_id)? {
                None => return Ok(None),
                carrier => carrier,
            },
            VifDriver::NeutronVif | VifDriver::NestedDpdk => None,
        };
        if self.world.tried.get(&key) == Some(&Tried::Alone) {
            let place = element.subnets.first().unwrap_or(&element.network).clone();
            return Err(Refused::Port { number: element.number, interface: element.interface.clone(), place });
        }
        if !self.world.pending.contains(&key) {
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
        match self.world.networks.get(id) {
            Some(Some(network)) => Ok(Some(network)),
            Some(None) => Err(Refused::NoNetwork(id.to_owned())),
            None => {
                self.read(Call::ReadNetwork(id.to_owned()));
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

    fn new_port(&self, uid: &str, pod: &Pod, element: &Element, network_id: &str, subnets: &[&Subnet]) -> NewPort {
        let defaults = &self.world.defaults;
        let owner = Owner { pod: uid.to_owned(), element: element.number };
        let (tags, description) = match defaults.tags_later {
            true => (Vec::new(), owner.description(&self.world.cluster)),
            false => (self.tags_of(&owner), String::new()),
        };
        let ObjectName { namespace, name } = &pod.name;
        let security_groups = element.security_groups.as_ref().unwrap_or(&defaults.security_groups).clone();
        NewPort {
            network_id: network_id.to_owned(),
            project_id: element.project.as_ref().unwrap_or(&defaults.project).clone(),
            name: if defaults.port_names { format!("{namespace}/{name}") } else { String::new() },
            admin_state_up: true,
            device_owner: DEVICE_OWNER.to_owned(),
            device_id: uid.to_owned(),
            fixed_ips: addresses(&element.ips, subnets),
            mac_address: element.mac.clone(),
            security_groups: Some(security_groups).filter(|groups| !groups.is_empty()),
            host: pod.node.clone(),
            tags,
            description,
            ..NewPort::default()
        }
    }

    /// A port that is bound to no host. Neutron puts no port on a trunk that has a device.
    fn carried(&self, port: &mut NewPort, carrier: &Carrier) {
        port.host.clear();
        if matches!(carrier, Carrier::Trunk(_)) {
            port.device_id.clear();
        }
        match self.world.defaults.tags_later {
            true => port.description = format!("{} {}", port.description, carrier.tag()),
            false => port.tags.push(carrier.tag()),
        }
    }

    /// Several pods need the same one.
    pub(crate) fn read(&mut self, call: Call) {
        self.reading.push(call.clone());
        if !self.step.calls.contains(&call) {
            self.step.calls.push(call);
        }
    }

    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        let mut tags = owner.tags(&self.world.cluster);
        tags.extend(self.world.defaults.tags.iter().cloned());
        tags
    }

    /// `wanted` is what the pod asks for, if all of it is there. What it was bound to before stays, whatever it asks for by now, as long as the port
    /// is there: the node may have plugged it.
    fn write(&mut self, uid: &str, pod: &Pod, wanted: Option<BTreeMap<String, Vif>>) {
        let cluster = self.world.cluster.name.to_string();
        let (version, mut object) = match (self.stored(pod), &wanted) {
            (None, None) => return,
            (None, Some(_)) => (None, new_object(uid, pod, &cluster)),
            (Some(stored), _) if stored.object.spec.pod_uid == uid && is_of(&stored.object, &cluster) => {
                (Some(stored.version.clone()), stored.object.clone())
            }
            // That of a pod that had this name goes first.
            (Some(_), _) => return,
        };
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
            object.status.vifs.insert(interface, PodVif { default, vif, rest: Map::new() });
        }
        if self.stored(pod).is_none_or(|stored| stored.object != object) {
            let bytes = memory_of(&object.clone().write());
            if bytes > MAX_KURYR_PORT {
                return self.step.refused.entry(uid.to_owned()).or_default().push(Refused::TooLarge { bytes });
            }
            self.step.calls.push(Call::WriteKuryrPort { name: pod.name.clone(), version, object: Box::new(object) });
        }
    }

    /// Ports that have no tags yet.
    fn tag(&mut self) {
        for ((pod, element), ports) in &self.owned {
            let tags = self.tags_of(&Owner { pod: pod.clone(), element: *element });
            for port in ports.iter().filter(|port| !self.pool.has(&port.id) && !tags.iter().all(|tag| port.tags.contains(tag))) {
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
            let tags = cluster.pool_tags(subnets_of(port)).into_iter().chain(defaults.tags.iter().cloned()).collect();
            self.step.calls.push(Call::TagPort(port.id.clone(), tags));
        }
    }

    /// What pods have left behind, and what is there twice.
    fn free(&mut self) {
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

    /// What changes without us.
    fn watch(&mut self) {
        for ((uid, _), ports) in &self.owned {
            if self.lives(uid) {
                self.step.watched.extend(ports.iter().filter(|port| !counts_as_active(port)).map(|port| port.id.clone()));
            }
        }
        self.step
            .watched
            .extend(self.pool.free.values().filter(|port| port.status != "DOWN" || port.vif_type == "unbound").map(|port| port.id.clone()));
    }

    /// New ports, many at once; those that were refused together, one by one, and so those of subnets that may be full: where a subnet has
    /// too few addresses for a bulk, Neutron 21 forgets to free those that it had taken for it (`create_port_bulk`, `allocate_ips_for_ports`).
    fn make(&mut self) {
        let mut used: BTreeMap<&str, u128> = BTreeMap::new();
        for ip in self.world.ports.iter().flat_map(BTreeMap::values).flat_map(|port| &port.fixed_ips) {
            *used.entry(ip.subnet_id.as_str()).or_default() += 1;
        }
        let is_scarce = |id: &str| {
            let size = self.world.subnets.get(id).and_then(|subnet| size(&subnet.as_ref()?.cidr)).unwrap_or_default();
            self.world.scarce.contains(id) || size.saturating_sub(used.get(id).copied().unwrap_or_default()) < RESERVE
        };
        let is_alone = |key: &Key, port: &NewPort| {
            let of = port.fixed_ips.iter().filter_map(|ip| ip.subnet_id.as_deref());
            self.world.tried.contains_key(key) || self.world.scarce.contains(&port.network_id) || of.into_iter().any(is_scarce)
        };
        let (alone, together): (Vec<_>, Vec<_>) = std::mem::take(&mut self.new).into_iter().partition(|(key, port)| is_alone(key, port));
        let bulks = together.chunks(MAX_BULK).chain(alone.chunks(1));
        self.step.calls.extend(bulks.map(|bulk| Call::CreatePorts(bulk.to_vec())));
    }
}

/// How many addresses a range has.
fn size(cidr: &str) -> Option<u128> {
    let cidr: IpNet = cidr.parse().ok()?;
    Some(1_u128.checked_shl(u32::from(cidr.max_prefix_len() - cidr.prefix_len())).unwrap_or(u128::MAX))
}

/// Whether a pod may ask for an address: one that Neutron would give away, or with a rule that allows it another one of the subnet; never the
/// router's.
fn may_have(ip: IpAddr, subnets: &[&Subnet], outside_pools: bool) -> Result<(), Refused> {
    if subnets.is_empty() {
        return Err(Refused::AddressWithoutSubnet(ip));
    }
    let is_inside = |subnet: &&&Subnet| subnet.cidr.parse::<IpNet>().is_ok_and(|cidr| cidr.contains(&ip));
    let subnet = subnets.iter().find(is_inside).ok_or(Refused::AddressOutside(ip))?;
    let is = |text: &str, wanted: fn(IpAddr, IpAddr) -> bool| text.parse().is_ok_and(|other| wanted(ip, other));
    if subnets.iter().filter_map(|subnet| subnet.gateway_ip.as_deref()).any(|gateway| is(gateway, |ip, gateway| ip == gateway)) {
        return Err(Refused::AddressOfGateway(ip, subnet.id.clone()));
    }
    let is_in_pool = |pool: &AllocationPool| is(&pool.start, |ip, start| ip >= start) && is(&pool.end, |ip, end| ip <= end);
    match outside_pools || subnet.allocation_pools.iter().any(is_in_pool) {
        true => Ok(()),
        false => Err(Refused::AddressOutsidePools(ip, subnet.id.clone())),
    }
}

/// An address in each subnet: that which is asked for, where it is one of the subnet's. In a network without named subnets Neutron chooses.
fn addresses(ips: &[IpAddr], subnets: &[&Subnet]) -> Vec<WantedIp> {
    let subnet_of = |ip: &IpAddr| subnets.iter().find(|subnet| subnet.cidr.parse::<IpNet>().is_ok_and(|cidr| cidr.contains(ip)));
    let wanted = |subnet_id: Option<String>, ip: Option<&IpAddr>| WantedIp { subnet_id, ip_address: ip.map(ToString::to_string) };
    let asked = ips.iter().map(|ip| wanted(subnet_of(ip).map(|subnet| subnet.id.clone()), Some(ip)));
    let any = subnets.iter().filter(|subnet| !ips.iter().any(|ip| subnet_of(ip).is_some_and(|of| of.id == subnet.id)));
    asked.chain(any.map(|subnet| wanted(Some(subnet.id.clone()), None))).collect()
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
fn is_of(object: &KuryrPort, cluster: &str) -> bool {
    let label = object.metadata.get("labels").and_then(|labels| labels.get(CLUSTER_LABEL));
    label.and_then(Value::as_str) == Some(cluster)
}

fn new_object(uid: &str, pod: &Pod, cluster: &str) -> KuryrPort {
    let ObjectName { namespace, name } = &pod.name;
    let metadata = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("namespace".to_owned(), json!(namespace)),
        ("finalizers".to_owned(), json!([PORT_FINALIZER])),
        ("labels".to_owned(), json!({NODE_LABEL: node_label(&pod.node), CLUSTER_LABEL: cluster})),
        ("ownerReferences".to_owned(), json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}])),
    ]);
    let spec = KuryrPortSpec { pod_uid: uid.to_owned(), pod_node_name: pod.node.clone(), pod_static: Some(false), rest: Map::new() };
    KuryrPort { metadata, spec, ..KuryrPort::default() }
}
