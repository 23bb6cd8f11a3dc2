//! What came of calls that concern nested ports: nodes' ports and trunks.
//!
//! What is known of them is as old as the last list of ports at the most, and is read again after each change that was refused, or whose answer is
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use binding::Carrier;
use neutron::{Error, Refusal};
use openstack::resource::{Port, SubPort, Trunk};
use tokio::time::Instant;

use super::Work;
use crate::log::Line;
use crate::ports::call::Slot;

// === impl Work ===

impl Work {
    pub(super) fn read_node_ports(&mut self, address: String, ports: Vec<Port>) {
        self.world.node_ports.insert(address, ports.iter().map(|port| port.id.clone()).collect());
        for port in ports {
            self.read_carrier(port);
        }
    }

    /// An answer to an earlier question may come later.
    pub(super) fn read_carrier(&mut self, port: Port) {
        let known = self.world.carriers.get(&port.id).and_then(Option::as_ref);
        if known.is_none_or(|known| known.revision_number <= port.revision_number) {
            self.world.carriers.insert(port.id.clone(), Some(port));
        }
    }

    pub(super) fn read_trunk(&mut self, id: String, trunk: Option<Trunk>) {
        let of = Some(Carrier::Trunk(id.clone()));
        for port in self.world.ports.iter().flat_map(BTreeMap::values).filter(|port| Carrier::of(port) == of) {
            self.world.joined.remove(&port.id);
        }
        self.world.joined.extend(trunk.iter().flat_map(|trunk| &trunk.sub_ports).map(|sub| sub.port_id.clone()));
        self.world.trunks.insert(id, trunk);
    }

    pub(super) fn added(&mut self, id: &str, ports: &[SubPort], added: Result<(), Error>) -> Option<String> {
        let Err(e) = added else {
            for port in ports {
                Line::info("port").with("added", &port.port_id).with("trunk", id).with("vlan", port.segmentation_id).end();
                self.world.lone.remove(&port.port_id);
                self.world.joined.insert(port.port_id.clone());
            }
            if let Some(last) = ports.last() {
                self.world.last_vlan.insert(id.to_owned(), last.segmentation_id);
            }
            if let Some(Some(trunk)) = self.world.trunks.get_mut(id) {
                trunk.sub_ports.extend(ports.iter().cloned());
            }
            return None;
        };
        self.world.trunks.remove(id);
        if is_own(&e) {
            // One of them is wrong, or a VLAN ID is taken by now. One that was refused alone must not hold up those that come.
            self.world.lone.extend(ports.iter().map(|port| port.port_id.clone()));
        }
        Some(e.to_string())
    }

    pub(super) fn removed(&mut self, id: &str, ports: &[String], removed: Result<(), Error>) -> Option<String> {
        let Err(e) = removed else {
            for port in ports {
                Line::info("port").with("removed", port).with("trunk", id).end();
            }
            if let Some(Some(trunk)) = self.world.trunks.get_mut(id) {
                trunk.sub_ports.retain(|sub| !ports.contains(&sub.port_id));
            }
            return None;
        };
        self.world.trunks.remove(id);
        Some(if e.refusal() == Some(Refusal::NotFound) { String::new() } else { e.to_string() })
    }

    pub(super) fn paired(&mut self, id: &str, paired: Result<Box<Port>, Error>, now: Instant, timeout: Duration) -> Option<String> {
        match &paired {
            Err(e) if e.may_go_on() => {
                self.pairing.insert(id.to_owned(), now + timeout);
            }
            Err(e) if e.refusal() != Some(Refusal::Changed) => {}
            // The port has another revision by now: an earlier request without an answer cannot be carried out any more.
            _ => {
                self.pairing.insert(id.to_owned(), now);
                if settled(&self.pairing, &self.busy, now).iter().any(|settled| settled == id) {
                    self.pairing.remove(id);
                }
            }
        }
        match paired {
            Ok(port) => {
                self.former.has_changed(id);
                let pairs = port.allowed_address_pairs.len();
                Line::info("port").with("updated", id).with("allowed_address_pairs", pairs).end();
                self.world.lone.remove(id);
                self.read_carrier(*port);
                None
            }
            Err(e) => {
                self.world.carriers.remove(id);
                if e.refusal() == Some(Refusal::Changed) {
                    // Somebody else was faster.
                    return Some(String::new());
                }
                if is_own(&e) {
                    self.world.lone.insert(id.to_owned());
                }
                Some(e.to_string())
            }
        }
    }

    /// What was read of a node's port while its pairs might change may be of before: it is read again before a port that it carries is deleted.
    pub(super) fn settle_pairs(&mut self, now: Instant) {
        for id in settled(&self.pairing, &self.busy, now) {
            self.pairing.remove(&id);
            self.world.carriers.remove(&id);
        }
        self.world.unsettled = self.pairing.keys().cloned().collect();
        let ports = self.world.ports.iter().flat_map(BTreeMap::values);
        let carriers = ports.filter_map(|port| match Carrier::of(port)? {
            Carrier::Port(id) => Some(id),
            Carrier::Trunk(_) => None,
        });
        let of_former = self.former.settle(carriers, &self.busy, now);
        for id in of_former.settled {
            self.world.carriers.remove(&id);
        }
        self.world.unsettled.extend(of_former.unsettled);
    }

    /// A port that Neutron does not delete: what is known of its trunk is wrong.
    pub(super) fn not_deleted(&mut self, id: &str, e: &Error) {
        let port = self.world.ports.as_ref().and_then(|ports| ports.get(id));
        if let (Some(Refusal::InUse), Some(Carrier::Trunk(trunk))) = (e.refusal(), port.and_then(Carrier::of)) {
            self.world.trunks.remove(&trunk);
        }
    }

    /// Nothing of it is of use for longer than what is known of ports.
    pub(super) fn forget_carriers(&mut self) {
        let world = &mut self.world;
        (world.node_ports, world.carriers, world.trunks) = Default::default();
        let ports = || world.ports.iter().flat_map(BTreeMap::values);
        let (ids, carriers): (BTreeSet<&String>, BTreeSet<Carrier>) =
            (ports().map(|port| &port.id).collect(), ports().filter_map(Carrier::of).collect());
        world.lone.retain(|id| ids.contains(id));
        world.last_vlan.retain(|id, _| carriers.contains(&Carrier::Trunk(id.clone())));
    }
}

/// Those whose pairs no call changes any more, and that nothing on its way has read before.
fn settled(pairing: &BTreeMap<String, Instant>, busy: &BTreeSet<Slot>, now: Instant) -> Vec<String> {
    let concerns = |id: &String, slot: &Slot| match slot {
        Slot::NodePorts(_) => true,
        Slot::Carrier(of) | Slot::Pairs(of, _) => id == of,
        _ => false,
    };
    let is_over = |(id, until): &(&String, &Instant)| **until <= now && !busy.iter().any(|slot| concerns(id, slot));
    pairing.iter().filter(is_over).map(|(id, _)| id.clone()).collect()
}

/// Whether it is refused for what it asks for.
fn is_own(e: &Error) -> bool {
    !matches!(e.refusal(), None | Some(Refusal::Busy | Refusal::Unauthorized | Refusal::Server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_pairs_are_settled_when_no_call_and_no_reader_of_before_is_left() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let name = |id: &str| id.to_owned();
        let pairing = [(name("done"), start), (name("lost"), at(60))].into();
        let of = |busy: &[Slot], now| settled(&pairing, &busy.iter().cloned().collect(), now);
        assert_eq!(of(&[], start), ["done"]);
        assert!(of(&[Slot::Pairs(name("done"), true)], start).is_empty());
        assert_eq!(of(&[Slot::Carrier(name("lost"))], at(60)), ["done"]);
        assert_eq!(of(&[Slot::Carrier(name("other"))], at(60)), ["done", "lost"]);
        assert!(of(&[Slot::NodePorts(name("10.0.0.1"))], at(60)).is_empty());
    }
}
