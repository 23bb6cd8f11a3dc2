//! A Neutron and an API server that keep what they were told, and know what must never be.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use netloom_binding::{Carrier, Cluster, ClusterName, DEVICE_OWNER, Element, Key, ObjectName, Owner, Pod, Stored, counts_as_active};
use openstack::VifDriver;
use openstack::resource::{AddressPair, AllocationPool, FixedIp, Network, NewPort, Port, SubPort, Subnet, Trunk, VifDetails};
use osvif::KuryrPort;

/// A subnet with two addresses.
pub(crate) const FULL: &str = "subnet-4";
/// A subnet of which each port gets an address, where there is one.
pub(crate) const AUTO: &str = "subnet-9";
/// The subnet of subports.
pub(crate) const VLAN: u8 = 5;
/// The subnet of the node's own port, and of macvlans.
pub(crate) const MACVLAN: u8 = 6;
/// The node's address, its port, and the trunk of it.
pub(crate) const HOST_IP: &str = "10.0.0.250";
pub(crate) const NODE_PORT: &str = "node-port";
pub(crate) const TRUNK: &str = "trunk-1";
/// Stands for a port that exists already: no subnet has this number.
pub(crate) const EXISTING: u8 = 7;
/// That port.
pub(crate) const EXISTING_PORT: &str = "00000000-0000-4000-8000-0000000000ff";
/// A subnet that does not exist.
pub(crate) const NOWHERE: &str = "subnet-3";

pub(crate) struct Cloud {
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) kuryr_ports: BTreeMap<ObjectName, Stored>,
    pub(crate) posts: usize,
    pub(crate) posts_refused: usize,
    /// Whether each network has a subnet of which Neutron gives every port an address.
    pub(crate) has_auto_address: bool,
    /// How it binds new ports.
    pub(crate) vif_type: &'static str,
    ports: BTreeMap<String, Port>,
    /// The node's port; none where somebody has deleted it.
    pub(crate) node_port: Option<Port>,
    pub(crate) trunk: Option<Trunk>,
    last: usize,
}

/// What a POST of ports comes to.
pub(crate) enum Made {
    Ports(Vec<Port>),
    Refused,
}

pub(crate) fn mine() -> Cluster {
    named("mine", "uid-1")
}

fn named(name: &str, uid: &str) -> Cluster {
    Cluster { name: ClusterName::parse(name).unwrap(), uid: uid.to_owned() }
}

/// Of what its pod's annotation is to say.
fn digest(object: &KuryrPort) -> u64 {
    let mut hasher = DefaultHasher::new();
    osvif::PodState::of_vifs(&object.status.vifs).annotation().hash(&mut hasher);
    hasher.finish()
}

// === impl Cloud ===

impl Cloud {
    /// With ports of others: without tags, and of another cluster's pod.
    pub(crate) fn new() -> Self {
        let mut cloud = Cloud {
            pods: BTreeMap::new(),
            kuryr_ports: BTreeMap::new(),
            posts: 0,
            posts_refused: 0,
            has_auto_address: false,
            vif_type: "ovs",
            ports: BTreeMap::new(),
            node_port: Some(node_port()),
            trunk: Some(Trunk { id: TRUNK.to_owned(), sub_ports: vec![SubPort::vlan("another's", 1)], ..Trunk::default() }),
            last: 0,
        };
        let owner = Owner { pod: "pod-1".to_owned(), element: 0 };
        for tags in [Vec::new(), owner.tags(&named("other", "uid-1")), owner.tags(&named("mine", "uid-2")), vec![mine().name.tag()]] {
            let id = cloud.next_id();
            cloud.ports.insert(id.clone(), Port { id, tags, ..Port::default() });
        }
        let fixed_ips = vec![FixedIp { subnet_id: "subnet-0".to_owned(), ip_address: "10.0.0.9".to_owned() }];
        let (id, network_id, tags) = (EXISTING_PORT.to_owned(), "network-0".to_owned(), vec!["its-own".to_owned()]);
        let (mac_address, vif_type) = ("fa:16:3e:00:ff:ff".to_owned(), "unbound".to_owned());
        cloud.ports.insert(id.clone(), Port { id, network_id, mac_address, tags, fixed_ips, vif_type, ..Port::default() });
        cloud
    }

    fn next_id(&mut self) -> String {
        self.last += 1;
        format!("00000000-0000-4000-8000-{:012x}", 0x1000 + self.last)
    }

    pub(crate) fn listed(&self, cluster: &Cluster) -> BTreeMap<String, Port> {
        let is_described = |port: &Port| port.tags.is_empty() && port.description.contains(&cluster.name.tag());
        self.ports
            .iter()
            .filter(|(_, port)| port.tags.contains(&cluster.name.tag()) || is_described(port))
            .map(|(id, port)| (id.clone(), port.clone()))
            .collect()
    }

    pub(crate) fn subnet(&self, id: &str) -> Option<Subnet> {
        let number = id.strip_prefix("subnet-")?;
        let subnet = || Subnet {
            id: id.to_owned(),
            network_id: format!("network-{number}"),
            cidr: "10.0.0.0/24".to_owned(),
            gateway_ip: Some("10.0.0.1".to_owned()),
            allocation_pools: vec![AllocationPool { start: "10.0.0.1".to_owned(), end: "10.0.0.99".to_owned() }],
            ..Subnet::default()
        };
        (id != NOWHERE).then(subnet)
    }

    pub(crate) fn network(&self, id: &str) -> Network {
        let id = id.replace("network-", "00000000-0000-4000-8000-00000000000");
        Network { id, name: "n".to_owned(), mtu: Some(1450), ..Network::default() }
    }

    /// As Neutron: all or none, no VLAN ID twice, no port twice, none that has a device.
    pub(crate) fn add_sub_ports(&mut self, ports: &[SubPort]) -> bool {
        let Some(trunk) = &mut self.trunk else { return false };
        let is_good = |port: &SubPort| {
            let is_new = trunk.sub_ports.iter().all(|sub| sub.port_id != port.port_id && sub.segmentation_id != port.segmentation_id);
            let of = self.ports.get(&port.port_id);
            is_new && of.is_some_and(|of| of.device_id.is_empty() && of.host.is_empty() && of.tags.contains(&mine().name.tag()))
        };
        let is_done = ports.iter().all(is_good);
        if is_done {
            trunk.sub_ports.extend(ports.iter().cloned());
        }
        is_done
    }

    pub(crate) fn remove_sub_ports(&mut self, ports: &[String]) -> bool {
        let Some(trunk) = &mut self.trunk else { return false };
        let is_done = ports.iter().all(|id| trunk.sub_ports.iter().any(|sub| sub.port_id == *id));
        if is_done {
            trunk.sub_ports.retain(|sub| !ports.contains(&sub.port_id));
        }
        is_done
    }

    pub(crate) fn set_pairs(&mut self, revision: u64, pairs: Vec<AddressPair>) -> Option<Port> {
        let port = self.node_port.as_mut().filter(|port| port.revision_number == revision)?;
        (port.allowed_address_pairs, port.revision_number) = (pairs, revision + 1);
        Some(port.clone())
    }

    pub(crate) fn create(&mut self, wanted: &[(Key, NewPort)]) -> Made {
        self.posts += 1;
        let full = |port: &NewPort| port.fixed_ips[0].subnet_id.as_deref() == Some(FULL);
        let used = self.ports.values().filter(|port| port.fixed_ips.iter().any(|ip| ip.subnet_id == FULL)).count();
        if used + wanted.iter().filter(|(_, port)| full(port)).count() > 2 && wanted.iter().any(|(_, port)| full(port)) {
            self.posts_refused += 1;
            return Made::Refused;
        }
        let made = wanted.iter().map(|(_, wanted)| self.bound(wanted)).collect::<Vec<_>>();
        self.ports.extend(made.iter().map(|port| (port.id.clone(), port.clone())));
        Made::Ports(made)
    }

    fn bound(&mut self, wanted: &NewPort) -> Port {
        let id = self.next_id();
        let subnets = wanted.fixed_ips.iter().filter_map(|ip| ip.subnet_id.clone()).chain(self.has_auto_address.then(|| AUTO.to_owned()));
        let fixed_ips = subnets.map(|subnet_id| FixedIp { subnet_id, ip_address: "10.0.0.7".to_owned() }).collect();
        Port {
            id,
            network_id: wanted.network_id.clone(),
            mac_address: format!("fa:16:3e:00:{:02x}:{:02x}", self.last / 256, self.last % 256),
            status: "DOWN".to_owned(),
            tags: wanted.tags.clone(),
            description: wanted.description.clone(),
            security_groups: wanted.security_groups.clone().unwrap_or_default(),
            host: wanted.host.clone(),
            device_id: wanted.device_id.clone(),
            project_id: wanted.project_id.clone(),
            vif_type: if wanted.host.is_empty() { "unbound" } else { self.vif_type }.to_owned(),
            fixed_ips,
            vif_details: VifDetails { bridge_name: Some("br-int".to_owned()), ..VifDetails::default() },
            ..Port::default()
        }
    }

    pub(crate) fn existing(&self, id: &str) -> Option<Port> {
        self.ports.get(id).filter(|_| id == EXISTING_PORT).cloned()
    }

    /// Gives an existing port to a pod, or to nobody.
    pub(crate) fn hand(&mut self, id: &str, revision: u64, uid: &str, host: &str) -> Option<Port> {
        let port = self.ports.get_mut(id).filter(|port| port.revision_number == revision)?;
        assert_eq!(id, EXISTING_PORT, "somebody else's port was taken");
        (port.device_id, port.host, port.revision_number) = (uid.to_owned(), host.to_owned(), revision + 1);
        port.device_owner = if uid.is_empty() { String::new() } else { DEVICE_OWNER.to_owned() };
        port.vif_type = if host.is_empty() { "unbound" } else { "ovs" }.to_owned();
        port.status = "DOWN".to_owned();
        port.vif_details = VifDetails { bridge_name: Some("br-int".to_owned()), ..VifDetails::default() };
        Some(port.clone())
    }

    /// Of this cluster's ports alone, and of the one that existed before.
    pub(crate) fn tag(&mut self, id: &str, tags: Vec<String>) {
        let Some(port) = self.ports.get_mut(id) else { return };
        if id == EXISTING_PORT {
            assert!(tags.contains(&"its-own".to_owned()), "a tag of its own was removed: {tags:?}");
            (port.tags, port.revision_number) = (tags, port.revision_number + 1);
            return;
        }
        let mut whole = port.clone();
        let is_named = self.kuryr_ports.values().flat_map(|stored| stored.object.status.vifs.values()).any(|vif| vif.vif.id == id);
        whole.tags.extend(is_named.then(|| "netloom:uid=uid-1".to_owned()).filter(|uid| !port.tags.contains(uid)));
        let owner = Owner::of(&whole, &mine());
        assert!(owner.is_some() || mine().is_pooled(port), "somebody else's port was tagged: {port:?}");
        port.tags = tags;
        assert_eq!((Owner::of(port, &mine()), mine().is_pooled(port)), (owner.clone(), owner.is_none()));
    }

    pub(crate) fn set_groups(&mut self, id: &str, groups: Vec<String>) {
        if let Some(port) = self.ports.get_mut(id) {
            port.security_groups = groups;
        }
    }

    /// The tags of a pod's ports say no UID of a cluster.
    pub(crate) fn forget_uid(&mut self, uid: &str) {
        let is_of = |port: &&mut Port| Owner::of(port, &mine()).is_some_and(|owner| owner.pod == uid);
        self.ports.values_mut().filter(is_of).for_each(|port| port.tags.retain(|tag| !tag.starts_with("netloom:uid=")));
    }

    /// Somebody deletes the ports of a pod in Neutron.
    pub(crate) fn lose(&mut self, uid: &str) {
        self.ports.retain(|_, port| Owner::of(port, &mine()).is_none_or(|owner| owner.pod != uid));
    }

    /// Neutron loses the bindings of a pod's ports.
    pub(crate) fn unbind(&mut self, uid: &str) {
        let is_of = |port: &&mut Port| Owner::of(port, &mine()).is_some_and(|owner| owner.pod == uid);
        self.ports.values_mut().filter(is_of).for_each(|port| port.vif_type = "binding_failed".to_owned());
    }

    pub(crate) fn ports_of(&self, uid: &str) -> Vec<Port> {
        let is_of = |port: &&Port| Owner::of(port, &mine()).is_some_and(|owner| owner.pod == uid);
        self.ports.values().filter(is_of).cloned().collect()
    }

    /// Only of this cluster, and of a pod that needs it no more.
    pub(crate) fn delete(&mut self, id: &str) -> bool {
        if self.trunk.iter().flat_map(|trunk| &trunk.sub_ports).any(|sub| sub.port_id == id) {
            // Neutron refuses it.
            return false;
        }
        assert_ne!(id, EXISTING_PORT, "a port that existed before was deleted");
        let Some(port) = self.ports.remove(id) else { return true };
        let pairs = self.node_port.iter().flat_map(|of| &of.allowed_address_pairs);
        let is_paired = pairs.into_iter().any(|pair| pair.mac_address.as_ref() == Some(&port.mac_address));
        assert!(!is_paired, "deleted while the node may send from its address: {port:?}");
        if mine().is_pooled(&port) {
            let mut vifs = self.kuryr_ports.values().flat_map(|stored| stored.object.status.vifs.values());
            assert!(vifs.all(|vif| vif.vif.id != port.id), "the ready port of a pod was deleted: {port:?}");
            return true;
        }
        let owner = Owner::of(&port, &mine()).unwrap_or_else(|| panic!("somebody else's port was deleted: {port:?}"));
        let lives = self.pods.get(&owner.pod).is_some_and(|pod| !pod.is_over);
        let is_left = self.ports.values().any(|other| other.tags == port.tags);
        assert!(!lives || is_left, "the port of a living pod was deleted: {port:?}");
        true
    }

    pub(crate) fn write(&mut self, name: ObjectName, version: Option<&str>, mut object: KuryrPort) {
        let stored = self.kuryr_ports.get(&name);
        if stored.map(|stored| stored.version.as_str()) != version {
            return;
        }
        let before = stored.map(|stored| &stored.object.spec.pod_uid);
        assert!(before.is_none_or(|uid| *uid == object.spec.pod_uid), "another pod's object was taken: {object:?}");
        self.last += 1;
        // As it is read again.
        object = KuryrPort::read(object.write()).unwrap();
        let annotation = (!object.status.vifs.is_empty()).then(|| digest(&object));
        self.kuryr_ports.insert(name, Stored { object, damage: None, version: self.last.to_string(), annotation });
    }

    /// Writes what the pod's KuryrPort says, if the pod is still that one.
    pub(crate) fn annotate(&mut self, name: &ObjectName, uid: &str) {
        let stored = self.kuryr_ports.get(name).unwrap();
        assert_eq!(stored.object.spec.pod_uid, uid, "another pod's VIFs were written");
        if let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.name == *name) {
            pod.annotation = stored.annotation;
        }
    }

    /// Whoever may change a pod writes something.
    pub(crate) fn forge(&mut self, number: u8) {
        if let Some(pod) = self.nth_pod(number).and_then(|uid| self.pods.get_mut(&uid)) {
            pod.annotation = Some(1);
        }
    }

    /// Another controller was at work at the same time: each port is there twice, and the second one is listed first.
    pub(crate) fn double(&mut self) {
        let ours: Vec<Port> = self.listed(&mine()).into_values().filter(|port| Owner::of(port, &mine()).is_some()).collect();
        let twins = ours.into_iter().map(|port| Port { id: port.id.replacen("-4000-", "-3000-", 1), ..port });
        self.ports.extend(twins.map(|port| (port.id.clone(), port)));
    }

    pub(crate) fn plug_pooled(&mut self) {
        self.ports.values_mut().filter(|port| mine().is_pooled(port)).for_each(|port| port.status = "ACTIVE".to_owned());
    }

    pub(crate) fn pooled(&self) -> usize {
        self.ports.values().filter(|port| mine().is_pooled(port)).count()
    }

    /// How many ports pods have.
    pub(crate) fn owned(&self) -> usize {
        self.ports.values().filter(|port| Owner::of(port, &mine()).is_some()).count()
    }

    pub(crate) fn release(&mut self, name: &ObjectName, version: &str) {
        if let Some(stored) = self.kuryr_ports.get(name).filter(|stored| stored.version == version) {
            let uid = stored.object.spec.pod_uid.clone();
            let left = self.ports.values().filter_map(|port| Owner::of(port, &mine())).any(|owner| owner.pod == uid);
            assert!(!left, "released before its ports were gone");
            let released = self.kuryr_ports.remove(name).unwrap();
            // The node has unplugged them.
            for id in released.object.status.vifs.values().map(|vif| &vif.vif.id) {
                if let Some(port) = self.ports.get_mut(id) {
                    port.status = "DOWN".to_owned();
                }
            }
        }
    }

    /// Names are used again: UIDs are not.
    pub(crate) fn add_pod(&mut self, subnets: &[u8]) {
        self.last += 1;
        let mut names = (0..).map(|n| ObjectName { namespace: "a".to_owned(), name: format!("p{n}") });
        let free = |name: &ObjectName| self.pods.values().all(|pod| pod.name != *name);
        let element = |(i, n): (usize, &u8)| Element {
            number: i,
            interface: format!("eth{i}"),
            subnets: if *n == EXISTING { Vec::new() } else { vec![format!("subnet-{n}")] },
            port: (*n == EXISTING).then(|| EXISTING_PORT.to_owned()),
            driver: match *n {
                VLAN => VifDriver::NestedVlan,
                MACVLAN => VifDriver::NestedMacvlan,
                _ => VifDriver::NeutronVif,
            },
            ..Element::default()
        };
        let elements = subnets.iter().enumerate().map(element).collect();
        let pod = Pod {
            name: names.find(free).unwrap(),
            node: "node-1".to_owned(),
            host_ip: HOST_IP.to_owned(),
            is_over: false,
            annotation: None,
            elements,
        };
        self.pods.insert(format!("pod-{:04}", self.last), pod);
    }

    fn nth_pod(&self, number: u8) -> Option<String> {
        self.pods.keys().nth(usize::from(number) % self.pods.len().max(1)).cloned()
    }

    pub(crate) fn delete_pod(&mut self, number: u8) {
        if let Some(uid) = self.nth_pod(number) {
            self.pods.remove(&uid);
        }
    }

    pub(crate) fn end_pod(&mut self, number: u8) {
        if let Some(pod) = self.nth_pod(number).and_then(|uid| self.pods.get_mut(&uid)) {
            pod.is_over = true;
        }
    }

    pub(crate) fn plug(&mut self, number: u8) {
        let ours = self.ports.values_mut().filter(|port| Owner::of(port, &mine()).is_some());
        if let Some(port) = ours.collect::<Vec<_>>().into_iter().nth(usize::from(number % 8)) {
            port.status = "ACTIVE".to_owned();
        }
    }

    /// What holds at each moment.
    pub(crate) fn assert_sound(&self) {
        let owners: Vec<Owner> = self.ports.values().filter_map(|port| Owner::of(port, &mine())).collect();
        let once: BTreeSet<&Owner> = owners.iter().collect();
        assert_eq!(once.len(), owners.len(), "a port is there twice: {owners:?}");
        let ids: Vec<&String> =
            self.kuryr_ports.values().flat_map(|stored| stored.object.status.vifs.values()).map(|vif| &vif.vif.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "a port has two pods: {ids:?}");
        let trunk = self.trunk.iter().flat_map(|trunk| &trunk.sub_ports);
        let vlans: BTreeSet<u16> = trunk.clone().map(|sub| sub.segmentation_id).collect();
        assert_eq!(vlans.len(), trunk.clone().count(), "a VLAN ID is there twice");
        assert!(trunk.clone().any(|sub| sub.port_id == "another's"), "another one's subport was removed");
        let others = self.node_port.iter().flat_map(|port| &port.allowed_address_pairs).filter(|pair| pair.mac_address.is_none());
        assert_eq!(others.count(), self.node_port.iter().count(), "another one's address pair was removed, or changed");
        let is_foreign = |port: &&Port| port.id != EXISTING_PORT && Owner::of(port, &mine()).is_none() && !mine().is_pooled(port);
        let foreign = self.ports.values().filter(is_foreign).count();
        assert_eq!(foreign, 4);
    }

    /// What holds when all is done: everything for pods that can be served, nothing for those that are over.
    pub(crate) fn assert_complete(&self, refused: &BTreeSet<String>) {
        let lives: BTreeMap<&String, &Pod> = self.pods.iter().filter(|(_, pod)| !pod.is_over).collect();
        for port in self.ports.values() {
            if let Some(owner) = Owner::of(port, &mine()) {
                assert!(lives.contains_key(&owner.pod), "left behind: {port:?}");
                assert!(port.tags.contains(&mine().name.tag()), "without tags: {port:?}");
            }
        }
        let existing = &self.ports[EXISTING_PORT];
        if Owner::of(existing, &mine()).is_none() {
            let words = (existing.device_id.as_str(), existing.device_owner.as_str(), existing.host.as_str(), existing.tags.as_slice());
            assert_eq!(words, ("", "", "", ["its-own".to_owned()].as_slice()), "it was not given back as it was");
        }
        assert!(self.kuryr_ports.values().all(|stored| lives.contains_key(&stored.object.spec.pod_uid)), "left behind");
        for (uid, pod) in lives.iter().filter(|(uid, _)| !refused.contains(**uid)) {
            let object = &self.kuryr_ports.get(&pod.name).unwrap_or_else(|| panic!("{uid} has nothing: {pod:?}")).object;
            assert_eq!((&object.spec.pod_uid, object.status.vifs.len()), (*uid, pod.elements.len()));
            assert_eq!(pod.annotation, Some(digest(object)), "{uid}'s annotation says something else");
            for vif in object.status.vifs.values().map(|vif| &vif.vif) {
                let port = &self.ports[&vif.id];
                assert!(mine().is_pooled(port) || Owner::of(port, &mine()).unwrap().pod == **uid);
                assert_eq!(vif.active, Some(counts_as_active(port)));
                self.assert_carried(&vif.kind, port);
            }
        }
        let ours = self.ports.values().filter(|port| matches!(Carrier::of(port), Some(Carrier::Trunk(_)))).count();
        let on_trunk = self.trunk.iter().flat_map(|trunk| &trunk.sub_ports).count();
        assert_eq!(on_trunk, ours + 1, "a subport is left behind");
        let ours = self.ports.values().filter(|port| matches!(Carrier::of(port), Some(Carrier::Port(_)))).count();
        let pairs = self.node_port.iter().map(|port| port.allowed_address_pairs.len()).sum::<usize>();
        assert_eq!(pairs, ours + 1, "an address pair is left behind");
    }

    /// What a VIF says is so.
    fn assert_carried(&self, kind: &osvif::VifKind, port: &Port) {
        match kind {
            osvif::VifKind::VlanNested { vlan_id } => {
                let trunk = self.trunk.as_ref().unwrap();
                assert!(trunk.sub_ports.contains(&SubPort::vlan(port.id.as_str(), *vlan_id)), "{port:?} is not on the trunk");
            }
            osvif::VifKind::MacvlanNested => {
                let pairs = &self.node_port.as_ref().unwrap().allowed_address_pairs;
                assert!(pairs.iter().any(|pair| pair.mac_address.as_ref() == Some(&port.mac_address)), "{port:?} has no pair");
            }
            _ => assert_eq!(Carrier::of(port), None),
        }
    }
}

/// With a pair that is somebody else's.
fn node_port() -> Port {
    let pair = AddressPair { ip_address: "10.9.9.9".to_owned(), mac_address: None };
    Port {
        id: NODE_PORT.to_owned(),
        network_id: "network-6".to_owned(),
        fixed_ips: vec![FixedIp { subnet_id: "subnet-6".to_owned(), ip_address: HOST_IP.to_owned() }],
        allowed_address_pairs: vec![pair],
        trunk: Some(TRUNK.to_owned()),
        ..Port::default()
    }
}
