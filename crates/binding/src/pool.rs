//! Ready ports: made before a pod needs them, bound to its node, given to one pod after the other.
//!
//! ```text
//!   pods on a node use ports of a kind --fewer than `min` wait--> CreatePorts, many at once --> wait, DOWN
//!   pod --one of its kind waits--> its VIF stands in the KuryrPort, and so it is the pod's: no call of Neutron
//!   the KuryrPort is gone --DOWN again: the node has unplugged it--> waits
//! ```
//!
//! A ready nested port waits on the trunk of its node's port, with its VLAN ID: AddSubPorts follows CreatePorts, and RemoveSubPorts comes before
//! DeletePort. Neutron says nothing of whether a node has taken its interface down; another one with this VLAN ID cannot be made before.
//!
//! Whose a ready port is, KuryrPorts say, and nothing else does: who starts reads them. Between the decision and the KuryrPort, [`Snapshot::claims`] does.

use std::collections::{BTreeMap, BTreeSet};

use openstack::VifDriver;
use openstack::resource::{NewPort, Port, WantedIp};

use crate::VnicType;
use crate::owner::{Carrier, digest, subnets_of};
use crate::snapshot::{Element, Key, Pod, PoolSize, Snapshot, Tried};
use crate::step::{CLUSTER_LABEL, DEVICE_OWNER, Index};

/// What ports of one pool have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolKind {
    /// The host that they are bound to; empty where they are on a trunk.
    pub host: String,
    /// The trunk that they are on.
    pub trunk: Option<String>,
    /// Their project.
    pub project: String,
    /// Their network.
    pub network: String,
    /// The digest of the subnets that were asked for: a port may have addresses of others as well.
    pub subnets: String,
    /// Their security groups.
    pub groups: BTreeSet<String>,
}

/// Ready ports, and which kinds pods use.
pub(crate) struct Pool<'a> {
    /// All of them, by ID.
    all: BTreeSet<&'a str>,
    /// Those that nobody has.
    pub(crate) free: BTreeMap<&'a str, &'a Port>,
    /// Those that are being taken off their trunk.
    leaving: Vec<&'a Port>,
    /// With the subnets to ask for.
    used: BTreeMap<PoolKind, BTreeSet<String>>,
}

/// What a pod that is being served has of pools: it is given back where the pod cannot be served now.
#[derive(Default)]
pub(crate) struct Taken<'a> {
    ports: Vec<(&'a Port, usize)>,
    used: BTreeMap<PoolKind, BTreeSet<String>>,
}

// === impl PoolKind ===

impl PoolKind {
    /// That of a ready port.
    #[must_use]
    pub fn of(port: &Port) -> Self {
        PoolKind {
            host: port.host.clone(),
            trunk: trunk_of(Carrier::of(port).as_ref()),
            project: port.project_id.clone(),
            network: port.network_id.clone(),
            subnets: subnets_of(port).to_owned(),
            groups: port.security_groups.iter().cloned().collect(),
        }
    }

    /// The pool's name; also the first part of the keys of ports that are made for it.
    fn name(&self) -> String {
        let list = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(",");
        let place = self.trunk.as_ref().unwrap_or(&self.host);
        format!("pool {place} {} {} {} {}", self.project, self.network, self.subnets, list(&self.groups))
    }
}

// === impl Pool ===

impl<'a> Pool<'a> {
    /// Ready ports that pods have become theirs.
    pub(crate) fn of(world: &'a Snapshot, ports: &'a BTreeMap<String, Port>, owned: &mut BTreeMap<Key, Vec<&'a Port>>) -> Self {
        let mut free: BTreeMap<&str, &Port> =
            ports.values().filter(|port| world.cluster.is_pooled(port)).map(|port| (port.id.as_str(), port)).collect();
        let all = free.keys().copied().collect();
        let cluster = world.cluster.name.to_string();
        let is_ours =
            |label: Option<&serde_json::Value>| label.and_then(|labels| labels.get(CLUSTER_LABEL)?.as_str()) == Some(cluster.as_str());
        for object in world.kuryr_ports.values().map(|stored| &stored.object).filter(|object| is_ours(object.metadata.get("labels"))) {
            let uid = &object.spec.pod_uid;
            for (interface, vif) in &object.status.vifs {
                let Some(port) = free.remove(vif.vif.id.as_str()) else { continue };
                let element = world.pods.get(uid).and_then(|pod| pod.elements.iter().find(|element| element.interface == *interface));
                if let Some(element) = element {
                    owned.entry((uid.clone(), element.number)).or_default().push(port);
                }
            }
        }
        for (id, key) in &world.claims {
            if let Some(port) = free.remove(id.as_str()) {
                owned.entry(key.clone()).or_default().push(port);
            }
        }
        free.retain(|id, _| !world.deleting.contains(*id));
        let leaving = world.leaving.iter().filter_map(|id| free.remove(id.as_str())).collect();
        Pool { all, free, leaving, used: BTreeMap::new() }
    }

    /// Whether it is a ready port, in use or not.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.all.contains(id)
    }
}

fn trunk_of(carrier: Option<&Carrier>) -> Option<String> {
    match carrier {
        Some(Carrier::Trunk(id)) => Some(id.clone()),
        _ => None,
    }
}

/// Whether any port of its networks will do.
fn is_any(element: &Element) -> bool {
    let is_plain = element.qos_policy.is_none() && element.address_pairs.is_empty() && element.vnic_type == VnicType::Normal;
    is_plain && element.ips.is_empty() && element.mac.is_none() && !element.subnets.is_empty()
}

// === impl Index ===

impl<'w> Index<'w> {
    /// A ready port for an element. Without security groups there is none: which ones Neutron chooses is not known before.
    pub(crate) fn ready(
        &mut self,
        key: &Key,
        pod: &'w Pod,
        element: &Element,
        network: &str,
        carrier: Option<&Carrier>,
    ) -> Option<&'w Port> {
        let kind = self.kind(pod, element, network, carrier)?;
        let used = self.used.entry(pod.name.namespace.as_str()).or_default();
        let addresses = element.subnets.len();
        if self.world.defaults.ports_per_namespace.is_some_and(|max| *used + addresses > max) {
            return None;
        }
        let has_all = |port: &Port| element.subnets.iter().all(|id| port.fixed_ips.iter().any(|ip| ip.subnet_id == *id));
        let trunk = kind.trunk.as_ref().and_then(|id| self.world.trunks.get(id)?.as_ref());
        let can_be_plugged = |port: &Port| match trunk {
            // Its status is that of the trunk's subport, whoever has it.
            Some(trunk) => !port.status.is_empty() && trunk.sub_ports.iter().any(|sub| sub.port_id == port.id),
            None => port.status == "DOWN" && port.vif_type == "ovs",
        };
        let is_kept = |port: &Port| !self.world.inherited.contains(&port.id);
        let fits = |port: &&Port| can_be_plugged(port) && is_kept(port) && PoolKind::of(port) == kind && has_all(port);
        let found = self.pool.free.values().find(|port| fits(port)).copied();
        self.taken.used.insert(kind, element.subnets.iter().cloned().collect());
        let port = found?;
        *used += addresses;
        self.taken.ports.push((port, addresses));
        self.pool.free.remove(port.id.as_str());
        self.step.claims.insert(port.id.clone(), key.clone());
        Some(port)
    }

    /// The pod uses such ports: that which it has may be a ready one, or not.
    pub(crate) fn note(&mut self, pod: &Pod, element: &Element, port: &Port) {
        self.expect(pod, element, &port.network_id, Carrier::of(port).as_ref());
    }

    /// The same of a pod whose port is being made: a ready one would be its second.
    pub(crate) fn expect(&mut self, pod: &Pod, element: &Element, network: &str, carrier: Option<&Carrier>) {
        if let Some(kind) = self.kind(pod, element, network, carrier) {
            self.taken.used.insert(kind, element.subnets.iter().cloned().collect());
        }
    }

    /// The kind of ready ports that an element can have.
    fn kind(&self, pod: &Pod, element: &Element, network: &str, carrier: Option<&Carrier>) -> Option<PoolKind> {
        let defaults = &self.world.defaults;
        let groups = element.security_groups.as_ref().unwrap_or(&defaults.security_groups);
        let trunk = trunk_of(carrier);
        let has_pools = match element.driver {
            VifDriver::NeutronVif => carrier.is_none(),
            VifDriver::NestedVlan => trunk.is_some(),
            VifDriver::NestedMacvlan | VifDriver::NestedDpdk => false,
        };
        let kind = PoolKind {
            host: if trunk.is_none() { pod.node.clone() } else { String::new() },
            trunk,
            project: element.project.as_ref().unwrap_or(&defaults.project).clone(),
            network: network.to_owned(),
            subnets: digest(&element.subnets.iter().cloned().collect()),
            groups: groups.iter().cloned().collect(),
        };
        (has_pools && self.size(&kind).is_some() && is_any(element) && !groups.is_empty()).then_some(kind)
    }

    /// How many ports of a kind are kept ready.
    fn size(&self, kind: &PoolKind) -> Option<PoolSize> {
        let defaults = &self.world.defaults;
        if kind.trunk.is_some() { defaults.nested_pool } else { defaults.pool }
    }

    /// The pod has what it has taken, and pools are filled for it; where it cannot be served now, neither.
    pub(crate) fn settle(&mut self, pod: &'w Pod, is_put_off: bool) {
        let Taken { ports, used } = std::mem::take(&mut self.taken);
        if !is_put_off {
            return self.pool.used.extend(used);
        }
        for (port, addresses) in ports {
            self.pool.free.insert(port.id.as_str(), port);
            self.step.claims.remove(&port.id);
            *self.used.entry(pod.name.namespace.as_str()).or_default() -= addresses;
        }
    }

    /// Makes what is missing, and deletes what is too many, or has not been needed for long.
    pub(crate) fn fill(&mut self) {
        let surplus = self.keep_size();
        // What seems to wait may be the port of a pod whose KuryrPort does not say it.
        if self.world.kuryr_ports.values().all(|stored| stored.damage.is_none()) {
            surplus.into_iter().for_each(|port| self.delete(port));
        }
    }

    /// What is to be deleted.
    fn keep_size(&mut self) -> Vec<&'w Port> {
        let mut surplus = std::mem::take(&mut self.pool.leaving);
        let mut free: BTreeMap<PoolKind, Vec<&'w Port>> = self.pool.used.keys().map(|kind| (kind.clone(), Vec::new())).collect();
        for port in self.pool.free.values() {
            free.entry(PoolKind::of(port)).or_default().push(*port);
        }
        for (kind, ports) in free {
            let Some(size) = self.size(&kind) else {
                // They were switched off.
                surplus.extend(ports);
                continue;
            };
            let (name, subnets) = (kind.name(), self.pool.used.get(&kind).cloned());
            let is_used = subnets.is_some();
            // One that no mechanism driver could bind stays so: another one is made in its place, some time later.
            let (dead, mut ports): (Vec<&Port>, Vec<&Port>) = ports.into_iter().partition(|port| port.is_unbindable());
            surplus.extend(dead.iter().filter(|port| !is_used || self.world.dead.contains(&port.id)));
            self.step.pools.insert(name.clone(), (ports.len(), is_used));
            if let Some(subnets) = &subnets {
                self.refill(&kind, subnets, &name, (ports.len(), dead.len()), size);
            }
            let is_idle = !is_used && (self.world.idle.contains(&name) || self.world.closing.contains(&kind.network));
            let keep = if is_idle { 0 } else { Some(size.max).filter(|max| *max > 0).unwrap_or(usize::MAX) };
            surplus.extend(ports.split_off(keep.min(ports.len())));
            let lost = ports.into_iter().filter(|port| !self.join_ready(port));
            surplus.extend(lost);
        }
        surplus
    }

    fn refill(&mut self, kind: &PoolKind, subnets: &BTreeSet<String>, name: &str, (free, dead): (usize, usize), size: PoolSize) {
        let world = self.world;
        // What is on its way, or was refused a moment ago.
        let is_busy = |number: &usize| {
            let key = (name.to_owned(), *number);
            world.pending.contains(&key) || world.tried.get(&key) == Some(&Tried::Alone)
        };
        let range = (name.to_owned(), 0)..=(name.to_owned(), usize::MAX);
        let busy =
            world.pending.range(range.clone()).count() + world.tried.range(range).filter(|(_, tried)| **tried == Tried::Alone).count();
        let busy = busy + dead;
        if free + busy >= size.min || kind.groups.is_empty() {
            return;
        }
        let room = Some(size.max).filter(|max| *max > 0).map_or(usize::MAX, |max| max.saturating_sub(free + busy));
        let count = size.batch.max(size.min - free - busy).min(room);
        for number in (0..).filter(|number| !is_busy(number)).take(count) {
            self.new.push(((name.to_owned(), number), self.ready_port(kind, subnets)));
        }
    }

    fn ready_port(&self, kind: &PoolKind, subnets: &BTreeSet<String>) -> NewPort {
        let (defaults, cluster) = (&self.world.defaults, &self.world.cluster);
        let trunk = kind.trunk.clone().map(|id| Carrier::Trunk(id).tag());
        let own = cluster.pool_tags(&kind.subnets).into_iter().chain(trunk);
        let (tags, description) = match defaults.tags_later {
            true => (Vec::new(), own.collect::<Vec<_>>().join(" ")),
            false => (own.chain(defaults.tags.iter().cloned()).collect(), String::new()),
        };
        let wanted = |id: &String| WantedIp { subnet_id: Some(id.clone()), ip_address: None };
        NewPort {
            network_id: kind.network.clone(),
            project_id: kind.project.clone(),
            admin_state_up: true,
            device_owner: DEVICE_OWNER.to_owned(),
            fixed_ips: subnets.iter().map(wanted).collect(),
            security_groups: Some(kind.groups.iter().cloned().collect()),
            host: kind.host.clone(),
            tags,
            description,
            ..NewPort::default()
        }
    }
}
