//! What the host's routes lead to other pods of this node, on networks that they selected: first come, first served.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;

use attach::{AddressRun, Records, RoutedPod, RoutedPods};
use linux::route::RouteKind;
use plugins::BUILTINS;

use super::ThisNode;
use crate::node_traffic::is_of_a_link;

/// The pods of the node, but for one.
#[derive(Debug)]
pub(crate) struct OtherPods<'a> {
    known: &'a RoutedPods,
    records: &'a Records,
    /// That one, as `namespace/name`.
    but: String,
    /// What others claim counts if they did before this one, by the claim's number.
    claimed: u64,
    all: OnceCell<Result<Vec<Arc<[RoutedPod]>>, String>>,
}

// === impl OtherPods ===

impl<'a> OtherPods<'a> {
    /// Those of these records.
    pub(crate) fn new(known: &'a RoutedPods, records: &'a Records, but: String) -> Self {
        OtherPods { known, records, but, claimed: u64::MAX, all: OnceCell::new() }
    }

    /// As the one that has claimed its own addresses by this number.
    pub(crate) fn claimed_before(self, number: u64) -> Self {
        OtherPods { claimed: number, ..self }
    }

    fn all(&self) -> Result<impl Iterator<Item = &RoutedPod>, String> {
        let look = || self.known.look(self.records, BUILTINS, self.claimed).map_err(|e| e.to_string());
        let all = self.all.get_or_init(look).as_ref().map_err(String::clone)?;
        Ok(all.iter().flat_map(|pods| pods.iter()).filter(|one| one.pod != self.but))
    }
}

/// A pod in words, as others may hear of it.
fn shown(other: &RoutedPod) -> String {
    format!("pod {}, by {}", other.pod, other.definition)
}

impl<'a> ThisNode<'a> {
    /// The same as another pod than these has it.
    pub(crate) fn beside(self, others: OtherPods<'a>) -> Self {
        ThisNode { others: Some(others), ..self }
    }

    /// The same as the pod that has claimed its own addresses by this number.
    pub(crate) fn claimed_before(self, number: u64) -> Self {
        ThisNode { others: self.others.map(|others| others.claimed_before(number)), ..self }
    }

    fn other_pods(&self) -> Result<impl Iterator<Item = &RoutedPod>, String> {
        Ok(self.others.as_ref().map(OtherPods::all).transpose()?.into_iter().flatten())
    }

    /// Whose traffic a route to all of these addresses would take, in words. A wider route takes nothing from a narrower one, nor does a pod on
    /// the same bridge.
    pub(crate) fn taken_from_other_pods(&self, run: AddressRun, bridge: Option<&str>) -> Result<Option<String>, String> {
        let is_elsewhere = |other: &&RoutedPod| bridge.is_none() || other.bridge.as_deref() != bridge;
        let has = |other: &RoutedPod| other.run.contains(run.first) && other.run.contains(run.last);
        let other = self.other_pods()?.filter(is_elsewhere).find(|other| has(other));
        Ok(other.map(|other| format!("which redirects traffic for {}, the network of {}", other.run, shown(other))))
    }

    /// What pods of other networks have a bridge for, in words. `definition`: as `namespace/name`.
    pub(super) fn is_gateway_of_others(&self, bridge: &str, definition: &str) -> Result<Option<String>, String> {
        for other in self.other_pods()?.filter(|other| other.definition != definition && other.gateway.is_some()) {
            if let Some(own) = &other.bridge
                && self.are_one(own, bridge)?
            {
                return Ok(Some(format!("{bridge}, which has the gateway of {}", shown(other))));
            }
        }
        Ok(None)
    }

    /// Which pod has an address that the host has not itself, in words. Every link reaches link-local addresses of IPv6.
    pub(super) fn who_has(&self, address: IpAddr) -> Result<Option<String>, String> {
        if is_of_a_link(address) {
            return Ok(None);
        }
        if let Some(other) = self.other_pods()?.find(|other| other.address == address) {
            return Ok(Some(format!("which {} has", shown(other))));
        }
        let Some(way) = self.way_to(address)?.filter(|way| way.kind == RouteKind::Unicast) else { return Ok(None) };
        let Some(link) = self.over_pods(&way)? else { return Ok(None) };
        // To an IPv6 address that waits for duplicate address detection, as a bridge's new one, no route of the host leads yet.
        if self.has_now(link.index, address)? {
            return Ok(None);
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_to_it =
            |route: &linux::Route| route.dst.prefix_len() == most && route.dst.addr() == address && route.oif == Some(link.index);
        if self.routes()?.iter().any(is_to_it) || self.answers(link.index, address)? {
            return Ok(Some(format!("which may be a pod's: the host reaches it over {}", link.name)));
        }
        Ok(None)
    }

    /// Whether a neighbour on a link has answered for an address.
    fn answers(&self, index: u32, address: IpAddr) -> Result<bool, String> {
        let mut host = self.host.borrow_mut();
        let netlink = host.netlink().map_err(|e| e.to_string())?;
        let known = netlink.neighbours(index).map_err(|e| e.to_string())?;
        Ok(known.iter().any(|one| one.address == address && one.mac.is_some()))
    }
}
