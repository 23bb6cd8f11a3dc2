//! Nested ports: the pods of a node that is a virtual machine use the node's own port.
//!
//! ```text
//!   the node's address --ReadNodePorts--> its port --+-- nested-vlan: its trunk --AddSubPorts--> a subport, by a VLAN ID of this trunk
//!                                                    '-- nested-macvlan: --SetPairs--> the addresses of a port that nobody plugs
//!   the pod is gone --RemoveSubPorts, or SetPairs--> nothing carries it --> DeletePort
//! ```
//!
//! What carries a port is a tag of it, so it is found again when pod and node are gone. Neutron refuses a VLAN ID that a trunk has already, and a
//! change of a port that somebody else has changed meanwhile: then both are read again, and it is decided again.

use std::collections::{BTreeMap, BTreeSet};

use openstack::VifDriver;
use openstack::resource::{AddressPair, Port, SubPort, Trunk};
use osvif::{Vif, VifKind};

use crate::owner::{Carrier, is_existing};
use crate::snapshot::{Element, Pod};
use crate::step::{Call, Index, MAX_BULK};
use crate::{Refused, nested_vif};

/// The last VLAN ID.
const LAST_VLAN: u16 = 4094;

/// Nested ports that are to be put somewhere, or to be taken away, by what carries them.
#[derive(Default)]
pub(crate) struct Moves<'a> {
    /// By trunk: ports that are to be on it, each with its pod's UID; ready ones have none.
    joining: BTreeMap<String, Vec<(Option<String>, &'a str)>>,
    leaving: BTreeMap<String, Vec<String>>,
    /// By the node's port: ports whose addresses are to be among its address pairs.
    pairing: BTreeMap<String, Vec<&'a Port>>,
    unpairing: BTreeMap<String, Vec<&'a Port>>,
}

/// The address pairs of a port, as the port that carries it has them.
pub fn address_pairs(port: &Port) -> impl Iterator<Item = AddressPair> {
    let pair =
        |ip: &openstack::resource::FixedIp| AddressPair { ip_address: ip.ip_address.clone(), mac_address: Some(port.mac_address.clone()) };
    port.fixed_ips.iter().map(pair)
}

// === impl Index ===

impl<'w> Index<'w> {
    /// What is to carry the port of an element; none where it has to be read first, or is not known yet.
    pub(crate) fn carrier(&mut self, uid: &str, pod: &Pod, element: &Element, network_id: &str) -> Result<Option<Carrier>, Refused> {
        let Some(node_port) = self.node_port(uid, pod)? else { return Ok(None) };
        if element.driver == VifDriver::NestedVlan {
            let trunk = node_port.trunk.clone().ok_or_else(|| Refused::NodeWithoutTrunk(node_port.id.clone()))?;
            return Ok(Some(Carrier::Trunk(trunk)));
        }
        // In another network its addresses may be others': with them as address pairs the node could send as these.
        match node_port.network_id == network_id {
            true => Ok(Some(Carrier::Port(node_port.id.clone()))),
            false => Err(Refused::NodeInOtherNetwork { node: node_port.network_id.clone(), pod: network_id.to_owned() }),
        }
    }

    /// The port of the pod's node.
    fn node_port(&mut self, uid: &str, pod: &Pod) -> Result<Option<&'w Port>, Refused> {
        let ip = &pod.host_ip;
        if ip.is_empty() {
            // The kubelet writes it when it has seen the pod.
            self.step.without_address.insert(uid.to_owned());
            return Ok(None);
        }
        let Some(ids) = self.world.node_ports.get(ip) else {
            self.read(Call::ReadNodePorts(ip.clone()));
            return Ok(None);
        };
        // What is known of it is forgotten where it may be wrong.
        if let Some(id) = ids.iter().find(|id| !self.world.carriers.contains_key(*id)) {
            self.read(Call::ReadCarrier(id.clone()));
            return Ok(None);
        }
        let subnets = &self.world.defaults.node_subnets;
        let is_of_node = |port: &&Port| port.fixed_ips.iter().any(|of| of.ip_address == *ip && subnets.contains(&of.subnet_id));
        let mut all = ids.iter().filter_map(|id| self.world.carriers.get(id)?.as_ref()).filter(is_of_node);
        match (all.next(), all.next()) {
            (Some(port), None) => Ok(Some(port)),
            (None, _) => Err(Refused::NoNodePort(ip.clone())),
            (Some(_), Some(_)) => Err(Refused::SeveralNodePorts(ip.clone())),
        }
    }

    /// The VIF of a port that something carries; none where it is not carried yet. What the node knows of it holds.
    pub(crate) fn nested(&mut self, uid: &str, pod: &Pod, port: &'w Port, carrier: &Carrier) -> Result<Option<Vif>, Refused> {
        let stored = self.world.kuryr_ports.get(&pod.name).filter(|stored| stored.object.spec.pod_uid == uid);
        let known = stored.and_then(|stored| stored.object.status.vifs.values().find(|vif| vif.vif.id == port.id));
        let kind = match (known.map(|vif| &vif.vif.kind), carrier) {
            (Some(kind @ VifKind::VlanNested { .. }), Carrier::Trunk(_)) | (Some(kind @ VifKind::MacvlanNested), Carrier::Port(_)) => {
                Some(kind.clone())
            }
            (_, Carrier::Trunk(id)) => self.on_trunk(uid, port, id)?.map(|vlan_id| VifKind::VlanNested { vlan_id }),
            (_, Carrier::Port(id)) => self.is_paired(port, id)?.then_some(VifKind::MacvlanNested),
        };
        let (network, subnets) = self.places(port)?;
        let (Some(kind), Some(network), Some(subnets)) = (kind, network, subnets) else { return Ok(None) };
        nested_vif(port, network, &subnets, kind).map(Some)
    }

    /// A subport's VLAN ID, if it is on its trunk.
    fn on_trunk(&mut self, uid: &str, port: &'w Port, id: &str) -> Result<Option<u16>, Refused> {
        let Some(trunk) = self.known_trunk(id)? else { return Ok(None) };
        let on_it = trunk.sub_ports.iter().find(|sub| sub.port_id == port.id);
        // Its tags come first: Neutron's agent makes it another owner's port, and its description alone would not be looked at any more.
        if on_it.is_none() && !port.tags.is_empty() {
            self.moves.joining.entry(id.to_owned()).or_default().push((Some(uid.to_owned()), port.id.as_str()));
        }
        Ok(on_it.map(|sub| sub.segmentation_id))
    }

    /// A trunk by its ID; none where it has to be read first.
    pub(crate) fn known_trunk(&mut self, id: &str) -> Result<Option<&'w Trunk>, Refused> {
        self.known(self.world.trunks.get(id), || Refused::NoTrunk(id.to_owned()), || Call::ReadTrunk(id.to_owned()))
    }

    /// Puts a ready port on its trunk, if it is to be on one; whether that is there.
    pub(crate) fn join_ready(&mut self, port: &'w Port) -> bool {
        let Some(Carrier::Trunk(id)) = Carrier::of(port).filter(|_| !self.world.joined.contains(&port.id)) else { return true };
        match self.world.trunks.get(&id) {
            Some(None) => return false,
            Some(Some(trunk)) if trunk.sub_ports.iter().any(|sub| sub.port_id == port.id) || port.tags.is_empty() => {}
            Some(Some(_)) => self.moves.joining.entry(id).or_default().push((None, port.id.as_str())),
            None if !self.step.calls.contains(&Call::ReadTrunk(id.clone())) => self.step.calls.push(Call::ReadTrunk(id)),
            None => {}
        }
        true
    }

    /// Whether the node's port may send from the addresses of a port.
    fn is_paired(&mut self, port: &'w Port, id: &str) -> Result<bool, Refused> {
        let carrier = match self.world.carriers.get(id) {
            Some(Some(carrier)) => carrier,
            Some(None) => return Err(Refused::NodePortGone(id.to_owned())),
            None => {
                self.read(Call::ReadCarrier(id.to_owned()));
                return Ok(false);
            }
        };
        let is_paired = address_pairs(port).all(|pair| carrier.allowed_address_pairs.contains(&pair));
        if !is_paired && !port.tags.is_empty() {
            self.moves.pairing.entry(id.to_owned()).or_default().push(port);
        }
        Ok(is_paired)
    }

    /// Deletes a port that nothing carries; else what carries it lets it go first. One that existed before is given back.
    pub(crate) fn delete(&mut self, port: &'w Port) {
        let world = self.world;
        if is_existing(port) {
            return self.give_back(port);
        }
        let delete = || Some(Call::DeletePort(port.id.clone()));
        let call = match Carrier::of(port) {
            None => delete(),
            Some(Carrier::Trunk(id)) => match world.trunks.get(&id) {
                None => Some(Call::ReadTrunk(id)),
                Some(Some(trunk)) if trunk.sub_ports.iter().any(|sub| sub.port_id == port.id) => {
                    self.moves.leaving.entry(id).or_default().push(port.id.clone());
                    None
                }
                Some(_) => delete(),
            },
            Some(Carrier::Port(id)) => match world.carriers.get(&id) {
                None => Some(Call::ReadCarrier(id)),
                Some(Some(carrier)) if address_pairs(port).any(|pair| carrier.allowed_address_pairs.contains(&pair)) => {
                    self.moves.unpairing.entry(id).or_default().push(port);
                    None
                }
                // Its address may become a pair after it was deleted, and would stay one.
                Some(_) if world.unsettled.contains(&id) => None,
                Some(_) => delete(),
            },
        };
        let call = call.filter(|call| !self.step.calls.contains(call));
        self.step.calls.extend(call);
    }

    /// The changes of trunks and of nodes' ports: one for all ports of each.
    pub(crate) fn change_carriers(&mut self) {
        let Moves { joining, leaving, pairing, unpairing } = std::mem::take(&mut self.moves);
        // The others follow: Neutron takes its time for each.
        let some = |(id, ports): (String, Vec<String>)| Call::RemoveSubPorts(id, ports.into_iter().take(MAX_BULK).collect());
        self.step.calls.extend(leaving.into_iter().map(some));
        for (id, ports) in joining {
            self.join(&id, ports);
        }
        let ids: BTreeSet<&String> = pairing.keys().chain(unpairing.keys()).collect();
        for id in ids {
            let Some(Some(carrier)) = self.world.carriers.get(id) else { continue };
            let going: Vec<AddressPair> = unpairing.get(id).into_iter().flatten().flat_map(|port| address_pairs(port)).collect();
            // One that has had no place for the new ones loses others first.
            let most = match (self.world.lone.contains(id), going.is_empty()) {
                (false, _) => MAX_BULK,
                (true, true) => 1,
                (true, false) => 0,
            };
            let coming = pairing.get(id).into_iter().flatten().take(most).flat_map(|port| address_pairs(port));
            let mut all: Vec<AddressPair> = carrier.allowed_address_pairs.iter().filter(|pair| !going.contains(pair)).cloned().collect();
            let new: Vec<AddressPair> = coming.filter(|pair| !all.contains(pair)).collect();
            let adds = !new.is_empty();
            all.extend(new);
            self.step.calls.push(Call::SetPairs { port: id.clone(), revision: carrier.revision_number, pairs: all, adds });
        }
    }

    /// Puts ports on a trunk. A VLAN ID that was given away last is given away again last: a node may still be taking its interface down.
    fn join(&mut self, id: &str, ports: Vec<(Option<String>, &'w str)>) {
        let Some(Some(trunk)) = self.world.trunks.get(id) else { return };
        let taken: BTreeSet<u16> = trunk.sub_ports.iter().map(|sub| sub.segmentation_id).collect();
        let last = self.world.last_vlan.get(id).copied().unwrap_or_default().min(LAST_VLAN);
        let mut free = (last + 1..=LAST_VLAN).chain(1..=last).filter(|vlan| !taken.contains(vlan));
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for (uid, port) in ports {
            let Some(vlan) = free.next() else {
                if let Some(uid) = uid {
                    self.step.refused.entry(uid).or_default().push(Refused::TrunkFull(id.to_owned()));
                }
                continue;
            };
            let list = if self.world.lone.contains(port) { &mut alone } else { &mut together };
            list.push(SubPort::vlan(port, vlan));
        }
        let bulks = together.chunks(MAX_BULK).chain(alone.chunks(1));
        self.step.calls.extend(bulks.map(|bulk| Call::AddSubPorts(id.to_owned(), bulk.to_vec())));
    }
}
