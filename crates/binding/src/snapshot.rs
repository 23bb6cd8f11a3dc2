//! What was read: all that a decision depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use openstack::VifDriver;
use openstack::resource::{AddressPair, Network, Port, Subnet, Trunk};
use osvif::KuryrPort;

use crate::{Cluster, VnicType};

/// All that was read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which cluster this is.
    pub cluster: Cluster,
    /// What holds where nobody says something else.
    pub defaults: Defaults,
    /// The pods that want ports, by UID. Those of other pods are in it too as long as they have some.
    pub pods: BTreeMap<String, Pod>,
    /// UIDs of pods of which the API server has said that they are not there.
    pub gone: BTreeSet<String>,
    /// All ports with the cluster's tag, by ID; none where they are to be listed: at the start, and where it is not known whether a call has
    /// made some.
    pub ports: Option<BTreeMap<String, Port>>,
    /// Subnets by ID; none where Neutron has no such subnet.
    pub subnets: BTreeMap<String, Option<Subnet>>,
    /// Networks by ID; none where Neutron has no such network.
    pub networks: BTreeMap<String, Option<Network>>,
    /// IDs of the ports that have an address, by the address of a node; each of them is in `carriers`.
    pub node_ports: BTreeMap<String, Vec<String>>,
    /// Ports of nodes by ID; none where Neutron has no such port.
    pub carriers: BTreeMap<String, Option<Port>>,
    /// IDs of nodes' ports whose address pairs a call that began before may still change, of this operator or of the one before it: no port that one
    /// of them carries is deleted.
    pub unsettled: BTreeSet<String>,
    /// Trunks by ID; none where Neutron has no such trunk.
    pub trunks: BTreeMap<String, Option<Trunk>>,
    /// The VLAN ID that was given away last on each trunk.
    pub last_vlan: BTreeMap<String, u16>,
    /// Subports that were refused together with others, and ports of nodes that refused address pairs of several ports: one by one.
    pub lone: BTreeSet<String>,
    /// Ports that exist already and that elements name, as they were read before they are given to a pod, or given back, by ID; none where Neutron
    /// has no such port.
    pub existing: BTreeMap<String, Option<Port>>,
    /// KuryrPorts.
    pub kuryr_ports: BTreeMap<ObjectName, Stored>,
    /// Why pods wait, by UID, as their owners were told: their KuryrPorts say it to their nodes.
    pub told: BTreeMap<String, String>,
    /// Ports whose making was refused.
    pub tried: BTreeMap<Key, Tried>,
    /// Subnets and networks that had no address left: their ports are made one by one.
    pub scarce: BTreeSet<String>,
    /// Ready ports that were given to a pod, by ID, as long as the pod lives: its KuryrPort may not say it yet.
    pub claims: BTreeMap<String, Key>,
    /// Ports that are being deleted at this moment, by ID: they are given to nobody.
    pub deleting: BTreeSet<String>,
    /// Ready ports that are being taken off their trunk, or may be, by ID: they are given to nobody, and deleted.
    pub leaving: BTreeSet<String>,
    /// Ports that were seen on their trunk, by ID.
    pub joined: BTreeSet<String>,
    /// Ready ports that the operator before may be deleting, by ID: they are given to nobody.
    pub inherited: BTreeSet<String>,
    /// Ready ports that could not be bound for some time, by ID: others are made in their place.
    pub dead: BTreeSet<String>,
    /// Pools that nobody has needed for long.
    pub idle: BTreeSet<String>,
    /// Networks that are to be removed, by ID: their ready ports are deleted.
    pub closing: BTreeSet<String>,
    /// Ports that are being made at this moment, or of which nobody knows whether they were: not to be made now.
    pub pending: BTreeSet<Key>,
}

/// What holds where nobody says something else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The project of ports.
    pub project: String,
    /// Their security groups.
    pub security_groups: Vec<String>,
    /// Tags that each of them gets besides.
    pub tags: Vec<String>,
    /// The bridge where Neutron does not say one.
    pub ovs_bridge: Option<String>,
    /// Whether ports have their pods' names.
    pub port_names: bool,
    /// The largest MTU of an interface, where that of its network is larger.
    pub max_mtu: Option<u32>,
    /// How many ports the pods of a namespace have at most.
    pub ports_per_namespace: Option<usize>,
    /// How many ports are kept ready for pods that come.
    pub pool: Option<PoolSize>,
    /// The same of nested ports on trunks.
    pub nested_pool: Option<PoolSize>,
    /// Whether Neutron takes no tags with a new port: it gets them afterwards.
    pub tags_later: bool,
    /// The subnets of the nodes' own ports.
    pub node_subnets: Vec<String>,
    /// Whether the VIFs of a KuryrPort are in an annotation of its pod as well.
    pub annotates: bool,
}

/// How many ports are kept ready for each node or trunk, project, network, subnets and security groups that pods use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// At the least.
    pub min: usize,
    /// At the most; 0: any number.
    pub max: usize,
    /// So many are made at once.
    pub batch: usize,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace and name.
    pub name: ObjectName,
    /// The node that it is on.
    pub node: String,
    /// The node's address; empty as long as it is not known.
    pub host_ip: String,
    /// Whether it has ended, and never runs again.
    pub is_over: bool,
    /// A digest of its annotation with VIFs, if it has one.
    pub annotation: Option<u64>,
    /// What it wants, in order.
    pub elements: Vec<Element>,
}

/// One of the interfaces that a pod wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Which of the pod's networks it is: 0 is the default one, then selections in their order. Others than Neutron's count as well.
    pub number: usize,
    /// The interface's name in the pod.
    pub interface: String,
    /// How its port is plugged.
    pub driver: VifDriver,
    /// The subnets of its addresses, one address in each; all of one network. Without any, Neutron chooses those of `network`.
    pub subnets: Vec<String>,
    /// The network, where no subnet is named.
    pub network: String,
    /// Addresses that it must have.
    pub ips: Vec<IpAddr>,
    /// Whether they may lie outside of the subnets' allocation pools.
    pub outside_allocation_pools: bool,
    /// The hardware address that it must have.
    pub mac: Option<String>,
    /// The project of its port, where it is not the default one.
    pub project: Option<String>,
    /// The security groups of its port, where they are not the default ones.
    pub security_groups: Option<Vec<String>>,
    /// The QoS policy of its port.
    pub qos_policy: Option<String>,
    /// Addresses that it may send from besides its own.
    pub address_pairs: Vec<AddressPair>,
    /// What its port is connected to on the node.
    pub vnic_type: VnicType,
    /// The port that it is to have, which exists already: then subnets, network and all that a port is made with do not count.
    pub port: Option<String>,
}

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// An object as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The object.
    pub object: KuryrPort,
    /// Why it cannot be read as a whole: it is not written, and released when its pod is gone.
    pub damage: Option<String>,
    /// Its `resourceVersion`.
    pub version: String,
    /// A digest of the annotation that its pod is to have, if it is to have one.
    pub annotation: Option<u64>,
}

/// A port by what it is for: a pod's UID, and the number of its element.
pub type Key = (String, usize);

/// What came of making a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// Neutron refused it together with others: it is to be made alone, so that the one that is wrong shows.
    Together,
    /// Neutron refused it alone: not now.
    Alone,
}

// === impl Snapshot ===

impl Snapshot {
    /// A cluster of which nothing was read yet.
    #[must_use]
    pub fn new(cluster: Cluster, defaults: Defaults) -> Self {
        Snapshot {
            cluster,
            defaults,
            pods: BTreeMap::new(),
            gone: BTreeSet::new(),
            ports: None,
            subnets: BTreeMap::new(),
            networks: BTreeMap::new(),
            node_ports: BTreeMap::new(),
            carriers: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            trunks: BTreeMap::new(),
            last_vlan: BTreeMap::new(),
            lone: BTreeSet::new(),
            existing: BTreeMap::new(),
            kuryr_ports: BTreeMap::new(),
            told: BTreeMap::new(),
            tried: BTreeMap::new(),
            scarce: BTreeSet::new(),
            claims: BTreeMap::new(),
            deleting: BTreeSet::new(),
            leaving: BTreeSet::new(),
            joined: BTreeSet::new(),
            inherited: BTreeSet::new(),
            dead: BTreeSet::new(),
            idle: BTreeSet::new(),
            closing: BTreeSet::new(),
            pending: BTreeSet::new(),
        }
    }
}
