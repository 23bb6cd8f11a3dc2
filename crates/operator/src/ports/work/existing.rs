//! Ports that exist already: what was read of them, and what came of giving them to pods, and back.

use std::collections::BTreeSet;

use binding::{Cluster, Owner, has_nobody, is_existing};
use neutron::{Error, Refusal};
use openstack::resource::Port;
use tokio::time::Instant;

use super::Work;
use crate::log::Line;
use crate::ports::call::Slot;

// === impl Work ===

impl Work {
    /// Forgets what was read of ports that nobody asks for, and of those that could not be given to anybody: both may have changed.
    pub(super) fn forget_existing(&mut self, now: Instant) {
        let elements = self.world.pods.values().flat_map(|pod| &pod.elements);
        let wanted: BTreeSet<&String> = elements.filter_map(|element| element.port.as_ref()).collect();
        let (calls, cluster, ports) = (&self.calls, &self.world.cluster, self.world.ports.as_ref());
        self.world.existing.retain(|id, port| {
            let known = ports.and_then(|ports| ports.get(id));
            let can_be_had = port.as_ref().is_some_and(|port| can_be_had(port, known, cluster));
            (wanted.contains(id) || known.is_some()) && (can_be_had || calls.is_paused(&Slot::Port(id.clone()), now))
        });
    }

    /// An empty text: it is read again later.
    pub(super) fn read_existing(&mut self, id: String, port: Option<Port>) -> Option<String> {
        let mut known = self.world.ports.as_mut();
        if port.is_none() {
            known.as_mut().and_then(|ports| ports.remove(&id));
        }
        let known = known.and_then(|ports| ports.get(&id));
        let can_be_had = port.as_ref().is_some_and(|port| can_be_had(port, known, &self.world.cluster));
        self.world.existing.insert(id, port);
        (!can_be_had).then(String::new)
    }

    /// A port of a pod has tags that it had not. One that existed before is a pod's from then on, or nobody's: it is read again for what follows.
    pub(super) fn tagged(&mut self, id: &str, tags: Vec<String>) {
        let read = self.world.existing.remove(id).flatten();
        let Some(ports) = &mut self.world.ports else { return };
        let Some(mut port) = ports.remove(id).or(read) else { return };
        let was_existing = is_existing(&port);
        port.tags = tags;
        // A list on its way may have begun before.
        if is_existing(&port) {
            self.deleted.remove(id);
            self.made.push(port.clone());
        }
        if Owner::of(&port, &self.world.cluster).is_some() || !was_existing {
            ports.insert(id.to_owned(), port);
        } else {
            Line::info("port").with("given_back", id).end();
            self.made.retain(|made| made.id != id);
            self.deleted.insert(id.to_owned());
        }
    }

    /// A port was given to a pod, or back.
    pub(super) fn handed(&mut self, id: &str, handed: Result<Port, Error>) -> Option<String> {
        self.world.existing.remove(id);
        match handed {
            Ok(port) => {
                Line::info("port").with("existing", id).with("host", &port.host).with("device_id", &port.device_id).end();
                if let Some(known) = self.world.ports.as_mut().and_then(|ports| ports.get_mut(id)) {
                    *known = port;
                }
                None
            }
            // Somebody was faster, or has deleted it: it is read again.
            Err(e) if matches!(e.refusal(), Some(Refusal::Changed | Refusal::NotFound)) => Some(String::new()),
            Err(e) => Some(e.to_string()),
        }
    }
}

/// Whether nobody has a port that was read, or the pod whose tags it has.
fn can_be_had(port: &Port, known: Option<&Port>, cluster: &Cluster) -> bool {
    let owner = || known.and_then(|known| Owner::of(known, cluster));
    has_nobody(port) || owner().is_some_and(|owner| owner.pod == port.device_id)
}
