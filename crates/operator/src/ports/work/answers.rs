//! What came of calls: it becomes what is known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use binding::{Key, Owner, Tried};
use neutron::{Answered, Error, Refusal};
use openstack::resource::{NewPort, Port};
use tokio::time::Instant;

use super::blocked::places;
use super::{ALIVE, EXTENSION, EXTENSIONS_OF_TAGS, Work, can_be_used};
use crate::apply_write::Outcome;
use crate::log::Line;
use crate::ports::Ports;
use crate::ports::call::{Came, Slot};

// === impl Work ===

impl Work {
    /// Takes in what came of a call.
    pub(super) fn take(&mut self, ports: &Ports, ended: Result<(Slot, Came), tokio::task::JoinError>) {
        // A task that panics takes the process with it, or is a defect: whoever is busy then stays so until the next start.
        let Ok((slot, came)) = ended else { return };
        self.busy.remove(&slot);
        self.ready.ended(&slot);
        let now = Instant::now();
        match self.failure_of(ports, &slot, came, now) {
            None => self.calls.done(&slot),
            Some(why) => {
                if !why.is_empty() && self.calls.why(&slot) != Some(why.as_str()) {
                    Line::warn(slot.logged_as()).with("error", &why).with("now", "retrying").end();
                }
                self.calls.failed(&slot, why, now);
            }
        }
    }

    /// Takes what an answer says into the world; why it is no good. An empty text: there is nothing to tell.
    fn failure_of(&mut self, ports: &Ports, slot: &Slot, came: Came, now: Instant) -> Option<String> {
        match came {
            Came::Extensions(Ok(all)) => self.read_extensions(&all),
            Came::Listed(Ok(all)) => self.listed(all, now),
            Came::Polled(ids, Ok(all)) => self.polled(&ids, all),
            Came::Subnet(id, Ok(subnet)) => {
                let is_missing = subnet.is_none();
                self.read_at.insert(slot.clone(), now);
                self.world.subnets.insert(id, subnet);
                is_missing.then(String::new)
            }
            Came::Network(id, Ok(network)) => {
                let is_missing = network.is_none();
                self.read_at.insert(slot.clone(), now);
                self.world.networks.insert(id, network);
                is_missing.then(String::new)
            }
            Came::NodePorts(address, Ok(ports)) => {
                self.read_node_ports(address, ports);
                None
            }
            Came::Carrier(id, Ok(port)) => {
                match port {
                    Some(port) => self.read_carrier(*port),
                    None => drop(self.world.carriers.insert(id, None)),
                }
                None
            }
            Came::Trunk(id, Ok(trunk)) => {
                self.read_trunk(id, trunk);
                None
            }
            Came::AddedSubPorts(id, ports, added) => self.added(&id, &ports, added),
            Came::RemovedSubPorts(id, ports, removed) => self.removed(&id, &ports, removed),
            Came::Paired(id, paired) => self.paired(&id, paired, now, ports.neutron.timeout()),
            Came::Created(wanted, Ok(made)) => self.made(&wanted, made),
            Came::Created(wanted, Err(e)) => self.not_made(&wanted, &e, now, ports.neutron.timeout()),
            Came::Tagged(id, tags, Ok(())) => {
                self.tagged(&id, tags);
                None
            }
            Came::Port(id, Ok(port)) => self.read_existing(id, port.map(|port| *port)),
            Came::Handed(id, handed) => self.handed(&id, handed.map(|port| *port)),
            Came::Updated(Ok(port)) => self.updated(*port),
            Came::Deleted(id, Ok(answer)) => self.deleted(&id, &answer, now),
            Came::Wrote(name, Outcome::Done(object)) => {
                if let Some(object) = object {
                    ports.known.put_kuryr_port(*object);
                }
                Line::info("kuryrport").with("wrote", format!("{}/{}", name.namespace, name.name)).end();
                None
            }
            Came::Released(name, Outcome::Done(_)) => {
                ports.known.drop_kuryr_port(&name);
                Line::info("kuryrport").with("released", format!("{}/{}", name.namespace, name.name)).end();
                None
            }
            Came::Annotated { name, uid, digest, outcome: Outcome::Done(object) } => {
                if let Some(version) = object.and_then(|object| object.metadata.resource_version) {
                    ports.known.annotated(&uid, digest, version);
                }
                Line::info("pod").with("annotated", format!("{}/{}", name.namespace, name.name)).end();
                None
            }
            Came::Networks(Ok(all)) => {
                self.networks = Some(all.into_iter().map(|network| (network.id, network.description)).collect());
                self.networks_read = Some(now);
                None
            }
            Came::MadeNetwork(_, Ok((object, network))) => {
                if let Some(networks) = &mut self.networks {
                    networks.insert(network.id, network.description);
                }
                ports.known.put_network(*object);
                None
            }
            Came::MadeNetwork(namespace, Err(not_made)) => {
                let why = format!("network of namespace {namespace}: {}", not_made.why);
                if not_made.may_go_on {
                    self.making_networks.insert(namespace, now + ports.neutron.timeout());
                }
                Some(why)
            }
            Came::RemovedNetwork(namespace, Ok(())) => {
                ports.known.drop_network(&namespace);
                // A part of the quota is free, and a range of the pool.
                self.calls.hurry(now, |why| why.starts_with("network of namespace"));
                None
            }
            Came::RemovedNetwork(namespace, Err(why)) => Some(format!("network of namespace {namespace}: {why}")),
            // The watch tells what it is now.
            Came::Wrote(_, Outcome::Conflict)
            | Came::Released(_, Outcome::Conflict)
            | Came::Annotated { outcome: Outcome::Conflict, .. } => Some(String::new()),
            Came::Wrote(_, Outcome::Refused(why) | Outcome::Failed(why))
            | Came::Released(_, Outcome::Refused(why) | Outcome::Failed(why))
            | Came::Annotated { outcome: Outcome::Refused(why) | Outcome::Failed(why), .. } => Some(why),
            Came::Confirmed(uids, Ok(live)) => self.confirmed(&uids, live, now),
            Came::Confirmed(_, Err(why)) => Some(why),
            Came::Extensions(Err(e))
            | Came::Listed(Err(e))
            | Came::Polled(_, Err(e))
            | Came::Subnet(_, Err(e))
            | Came::Network(_, Err(e))
            | Came::NodePorts(_, Err(e))
            | Came::Carrier(_, Err(e))
            | Came::Trunk(_, Err(e))
            | Came::Port(_, Err(e))
            | Came::Networks(Err(e))
            | Came::Tagged(_, _, Err(e))
            | Came::Updated(Err(e)) => Some(e.to_string()),
            Came::Deleted(id, Err(e)) => {
                self.not_deleted(&id, &e);
                Some(e.to_string())
            }
        }
    }

    fn read_extensions(&mut self, all: &BTreeSet<String>) -> Option<String> {
        if !can_be_used(all) {
            let (with, later) = (EXTENSION, EXTENSIONS_OF_TAGS.join(" and "));
            return Some(format!(
                "Neutron has neither the extension {with} nor {later}: ports cannot be told apart; add tag_ports_during_bulk_creation to ML2's extension_drivers"
            ));
        }
        self.is_supported = true;
        self.world.defaults.tags_later = !all.contains(EXTENSION);
        None
    }

    fn updated(&mut self, port: Port) -> Option<String> {
        Line::info("port").with("updated", &port.id).with("security_groups", port.security_groups.join(",")).end();
        if let Some(known) = self.world.ports.as_mut().and_then(|ports| ports.get_mut(&port.id)) {
            *known = port;
        }
        None
    }

    /// Which of these pods live; the others are gone.
    fn confirmed(&mut self, uids: &BTreeSet<String>, live: BTreeSet<String>, now: Instant) -> Option<String> {
        for uid in uids.difference(&live) {
            Line::info("pod").with("gone", uid).with("now", "deleting its ports").end();
            self.gone.insert(uid.clone());
        }
        self.alive.extend(live.into_iter().map(|uid| (uid, now + ALIVE)));
        None
    }

    fn listed(&mut self, all: Vec<Port>, now: Instant) -> Option<String> {
        // Another operator has worked since it began: it may lack what that one has made.
        let began = self.list_began.take()?;
        let mut listed: BTreeMap<String, Port> = all.into_iter().map(|port| (port.id.clone(), port)).collect();
        for port in std::mem::take(&mut self.made) {
            listed.entry(port.id.clone()).or_insert(port);
        }
        listed.retain(|id, _| !self.deleted.contains(id));
        if self.world.ports.is_none() {
            let pooled = listed.values().filter(|port| self.world.cluster.is_pooled(port));
            self.world.inherited = pooled.map(|port| port.id.clone()).collect();
        }
        for of in [&mut self.world.leaving, &mut self.world.joined] {
            of.retain(|id| listed.contains_key(id));
        }
        keep_newer(&mut listed, self.world.ports.take().unwrap_or_default());
        self.notice_anothers(&listed);
        let there: BTreeSet<Key> =
            listed.values().filter_map(|port| Owner::of(port, &self.world.cluster)).map(|owner| (owner.pod, owner.element)).collect();
        self.world.ports = Some(listed);
        self.unsure.listed(|key| there.contains(key), now);
        let next = now + self.reconcile_every;
        self.next_list = self.former.may_make_after(began).map_or(next, |until| until.min(next));
        self.forget_carriers();
        // What nobody uses is read again when somebody does; what was missing may be there.
        let networks: BTreeSet<&String> = self.world.ports.iter().flat_map(BTreeMap::values).map(|port| &port.network_id).collect();
        self.world.networks.retain(|id, network| network.is_some() && networks.contains(id));
        let networks = &self.world.networks;
        self.world.subnets.retain(|_, subnet| subnet.as_ref().is_some_and(|subnet| networks.contains_key(&subnet.network_id)));
        let world = &self.world;
        self.read_at.retain(|slot, _| match slot {
            Slot::Subnet(id) => world.subnets.contains_key(id),
            Slot::Network(id) => world.networks.contains_key(id),
            _ => false,
        });
        None
    }

    /// Another cluster has the same name: its ports are left alone, and somebody should know.
    fn notice_anothers(&mut self, listed: &BTreeMap<String, Port>) {
        let anothers = listed.values().filter(|port| self.world.cluster.is_anothers(port)).count();
        if anothers > 0 && self.anothers == 0 {
            let now = "leaving them alone: give each cluster a name of its own";
            let what = format!("another cluster is called {} as well, and has {anothers} ports", self.world.cluster.name);
            Line::warn("openstack").with("error", what).with("now", now).end();
        }
        self.anothers = anothers;
    }

    fn polled(&mut self, ids: &[String], all: Vec<Port>) -> Option<String> {
        self.ready.polled(ids);
        let Some(known) = &mut self.world.ports else { return None };
        let mut found: BTreeMap<String, Port> = all.into_iter().map(|port| (port.id.clone(), port)).collect();
        for id in ids {
            match (found.remove(id), known.get_mut(id)) {
                (Some(port), Some(known)) if port.revision_number >= known.revision_number => *known = port,
                (None, Some(_)) => drop(known.remove(id)),
                _ => {}
            }
        }
        None
    }

    fn made(&mut self, wanted: &[(Key, NewPort)], made: Answered<Vec<Port>>) -> Option<String> {
        for (key, _) in wanted {
            self.making.remove(key);
            self.world.tried.remove(key);
        }
        let request = made.request_id.unwrap_or_default();
        for port in made.value {
            let owner = Owner::of(&port, &self.world.cluster);
            if let Some(owner) = owner.as_ref().filter(|_| !port.is_unbindable()) {
                self.keys.done(&(owner.pod.clone(), owner.element));
            }
            let pod = owner.and_then(|owner| self.world.pods.get(&owner.pod));
            let pod = pod.map(|pod| format!("{}/{}", pod.name.namespace, pod.name.name)).unwrap_or_default();
            let addresses: Vec<&str> = port.fixed_ips.iter().map(|ip| ip.ip_address.as_str()).collect();
            let line = Line::info("port").with("made", &port.id).with("pod", pod).with("host", &port.host).with("status", &port.status);
            line.with("addresses", addresses.join(",")).with("request", &request).end();
            self.made.push(port.clone());
            if let Some(known) = &mut self.world.ports {
                known.insert(port.id.clone(), port);
            }
        }
        None
    }

    /// Together: each is tried alone. Alone: it is the port's own fault, or nobody's.
    fn not_made(&mut self, wanted: &[(Key, NewPort)], e: &Error, now: Instant, timeout: Duration) -> Option<String> {
        let keys = || wanted.iter().map(|(key, _)| key);
        for key in keys() {
            self.making.remove(key);
        }
        if e.is_uncertain() {
            Line::warn("port").with("error", e).with("now", "looking whether they were made").end();
            // They are not made again before a list has told that they are not there, and cannot come any more.
            self.unsure.add(keys().cloned(), if e.may_go_on() { now + timeout } else { now }, now);
        }
        // What is known of its network may be of before.
        if matches!(e.refusal(), Some(Refusal::NotFound | Refusal::Invalid | Refusal::InUse)) {
            for slot in wanted.iter().flat_map(|(_, port)| places(port)) {
                self.read_at.remove(&slot);
            }
        }
        if e.refusal() == Some(Refusal::NoAddressLeft) {
            let places = wanted.iter().flat_map(|(_, port)| {
                let subnets = port.fixed_ips.iter().filter_map(|ip| ip.subnet_id.clone());
                subnets.chain(port.fixed_ips.is_empty().then(|| port.network_id.clone()))
            });
            // Of several nobody knows which one is full.
            if wanted.len() == 1 {
                self.scarce.extend(places.map(|place| (place, now)));
            }
        }
        // Where Neutron itself has failed, it may be one of them that it fails at.
        let has_failed = e.is_uncertain() && !e.may_go_on();
        let is_own = has_failed || !matches!(e.refusal(), None | Some(Refusal::Busy | Refusal::Unauthorized | Refusal::Server));
        match (is_own, wanted) {
            (true, [(key, _)]) => {
                self.keys.failed(key, e.to_string(), now);
                self.world.tried.insert(key.clone(), Tried::Alone);
            }
            (true, _) => self.world.tried.extend(keys().map(|key| (key.clone(), Tried::Together))),
            (false, _) => {
                for key in keys() {
                    self.keys.failed(key, e.to_string(), now);
                    self.world.tried.remove(key);
                }
            }
        }
        None
    }

    fn deleted(&mut self, id: &str, answer: &Answered<bool>, now: Instant) -> Option<String> {
        let port = self.world.ports.as_mut().and_then(|ports| ports.remove(id));
        self.deleted.insert(id.to_owned());
        let pod = port.and_then(|port| Owner::of(&port, &self.world.cluster)).map(|owner| owner.pod).unwrap_or_default();
        let request = answer.request_id.as_deref().unwrap_or_default();
        Line::info("port").with("deleted", id).with("pod_uid", pod).with("request", request).end();
        // An address, or a part of the quota, is free: one of those that wait for it has a chance.
        self.keys.hurry(now, |why| why.contains("IpAddressGenerationFailure") || why.contains("OverQuota"));
        None
    }
}

/// What was read, or answered, while a list was on its way may be newer than the list.
fn keep_newer(listed: &mut BTreeMap<String, Port>, known: BTreeMap<String, Port>) {
    for (id, known) in known {
        if let Some(port) = listed.get_mut(&id).filter(|port| port.revision_number < known.revision_number) {
            *port = known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_does_not_take_back_what_was_read_after_it() {
        let ports = |of: &[(&str, u64)]| {
            let port = |&(id, revision_number): &(&str, u64)| Port { id: id.to_owned(), revision_number, ..Port::default() };
            of.iter().map(|of| (of.0.to_owned(), port(of))).collect::<BTreeMap<_, _>>()
        };
        let mut listed = ports(&[("a", 3), ("b", 5), ("c", 1)]);
        keep_newer(&mut listed, ports(&[("a", 4), ("b", 4), ("gone", 9)]));
        assert_eq!(listed, ports(&[("a", 4), ("b", 5), ("c", 1)]));
    }
}
