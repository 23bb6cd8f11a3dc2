//! Over what is not observed: a router outside, and hosts that are not in the snapshot. It is taken for whole: what must be right there is a
//! suspicion, which counts where nothing else is wrong.

use super::{NextHop, Packet, Step, Walk};
use crate::fault::{Fault, Finding};
use crate::network::Device;
use crate::snapshot::{Namespace, Place};

impl<'a> Walk<'a> {
    /// A packet leaves the snapshot by a way: to a router that nobody observes, or to a host there.
    pub(super) fn leave(&mut self, device: Device<'a>, way: &NextHop<'a>, packet: &Packet) -> Result<Step<'a>, Finding> {
        let (to, next) = (packet.destination, way.gateway.unwrap_or(packet.destination));
        if device.link.neighbour(next).is_some_and(|neighbour| neighbour.mac.is_none()) {
            let is_gateway = way.gateway.is_some();
            let evidence = format!("the route is {way}, and nobody has answered to who has {next}");
            return Err(self.at(if is_gateway { Fault::GatewayMissing } else { Fault::NeighbourSilent }, device, evidence));
        }
        let Some(gateway) = way.gateway else {
            // Another host on the link, which no observed one is.
            return match self.network.unobserved(self.to) {
                Some(why) => Ok(self.reach_unobserved(why)),
                None => Err(self.nobody(device, way, next)),
            };
        };
        self.hops.push(format!("{device} sends it to {gateway}, which is not observed"));
        if let Some(why) = self.network.unobserved(self.to) {
            return Ok(self.reach_unobserved(why));
        }
        let is_host = self.network.holders(to).any(|holder| matches!(holder.namespace.place, Place::Node(_) | Place::Outside(_)));
        if !is_host {
            // Nodes have routes of their own to each other's pods.
            let (fault, evidence) = match way.route.to.prefix_len() {
                0 => (
                    Fault::NoRoute,
                    format!("no route of its own leads to {to}; the default route leads to {gateway}, which is not observed"),
                ),
                _ => (Fault::GatewayMissing, format!("the route is {way}, and no observed host has {gateway}")),
            };
            self.suspicions.push(self.at(fault, device, evidence));
        }
        self.enter(packet, device)
    }

    /// A packet of a host that is not observed: where it comes in.
    pub(super) fn set_out_unobserved(&mut self, from: &Place, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        if packet.source.is_unspecified()
            && let Some(source) = self.network.outside(from, packet.destination.is_ipv4())
        {
            packet.source = source;
        }
        self.hops.push(format!("{from}, which is not observed, sends it"));
        match self.entry_for(packet) {
            Some(device) => {
                self.arrive(device, packet)?;
                Ok(Step::At(device))
            }
            None => Ok(Step::There),
        }
    }

    /// A packet comes in again from what is not observed.
    fn enter(&mut self, packet: &Packet, device: Device<'a>) -> Result<Step<'a>, Finding> {
        let is_balanced = self.awaits_balancer(packet);
        match self.entry_for(packet) {
            Some(entry) if entry.namespace.place != device.namespace.place || is_balanced => Ok(Step::At(entry)),
            _ => {
                let evidence = format!("packets for {} leave it to a router outside", packet.destination);
                Err(self.at(Fault::WrongNextHop, device, evidence))
            }
        }
    }

    /// The link by which a packet reaches the host that it is for: that with its destination, or the node of the pod. A load balancer may lead
    /// to any node; with policy Local, to those with a backend.
    fn entry_for(&mut self, packet: &Packet) -> Option<Device<'a>> {
        let to = packet.destination;
        let is_host = |device: &Device<'a>| matches!(device.namespace.place, Place::Node(_) | Place::Outside(_));
        let network = self.network;
        let by_address = network.holders(to).filter(is_host).find_map(|holder| network.uplink(holder.namespace, to));
        if let Some(service) = self.unled((to, packet.port)).filter(|_| by_address.is_none()) {
            let suits = |node: &&'a Namespace| {
                let is_home = |place: &Place| network.home(place).is_some_and(|home| home.place == node.place);
                !service.service.is_local || service.answerers.iter().any(is_home)
            };
            let entries: Vec<Device<'a>> = network.nodes().filter(suits).filter_map(|node| network.uplink(node, to)).collect();
            let taken = self.choices.take(u32::try_from(entries.len()).unwrap_or(u32::MAX));
            if let Some(entry) = entries.get(usize::try_from(taken).unwrap_or(0)) {
                self.is_balanced = true;
                self.hops.push(format!("a load balancer leads it to {entry}"));
                return Some(*entry);
            }
        }
        by_address.or_else(|| network.home(self.to).and_then(|home| network.uplink(home, to)))
    }

    /// Whether a packet is still for a Service's address that no host has: somebody outside leads it to a node.
    fn awaits_balancer(&self, packet: &Packet) -> bool {
        self.unled((packet.destination, packet.port)).is_some() && self.network.holders(packet.destination).next().is_none()
    }

    /// It is with a host that is not observed: what is there may be wrong.
    fn reach_unobserved(&mut self, why: &str) -> Step<'a> {
        let to = self.to;
        self.hops.push(format!("{to} is not observed"));
        if !matches!(to, Place::Outside(_)) {
            self.suspicions.push(Finding {
                fault: Fault::NotObserved,
                place: to.clone(),
                device: None,
                direction: self.direction,
                evidence: why.to_owned(),
                next_step: Fault::NotObserved.next_step(None),
            });
        }
        Step::There
    }
}
