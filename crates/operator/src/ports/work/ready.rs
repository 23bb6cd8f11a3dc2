//! Ready ports: which ones may be given away.
//!
//! ```text
//!   KuryrPort gone, claim dropped --status forgotten--> watched --a poll that began after that: DOWN--> may be given away
//! ```
//!
//! What was known of a port before its pod had it is of no use afterwards: Neutron's agent says some time later that it was plugged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use binding::{ObjectName, Snapshot};
use tokio::time::Instant;

use crate::ports::call::Slot;

/// A ready port that cannot be bound for so long is deleted, and another one is made.
const UNBINDABLE: Duration = Duration::from_secs(60);

/// What is remembered of ready ports.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Those that pods had at the last decision, by ID.
    given: BTreeSet<String>,
    /// Those that pods had before, and whether a poll of them has begun since.
    returned: BTreeMap<String, bool>,
    /// Since when they cannot be bound.
    unbindable: BTreeMap<String, Instant>,
    /// The UIDs of pods for which KuryrPorts are being written.
    writing: BTreeMap<ObjectName, String>,
}

// === impl Ready ===

impl Ready {
    /// Brings what is known of ready ports up to date.
    pub(super) fn look(&mut self, world: &mut Snapshot, busy: &BTreeSet<Slot>, now: Instant) {
        let deleting = busy.iter().filter_map(|slot| match slot {
            Slot::Delete(id) => Some(id.clone()),
            _ => None,
        });
        world.deleting = deleting.collect();
        let (pods, writing) = (&world.pods, &self.writing);
        // A KuryrPort that is being written may be there in a moment.
        world.claims.retain(|_, (uid, _)| pods.get(uid).is_some_and(|pod| !pod.is_over) || writing.values().any(|of| of == uid));
        let Some(ports) = &mut world.ports else { return };
        let pooled = ports.values().filter(|port| world.cluster.is_pooled(port));
        let before = std::mem::take(&mut self.unbindable);
        let since = |id: &String| before.get(id).copied().unwrap_or(now);
        self.unbindable = pooled.filter(|port| port.is_unbindable()).map(|port| (port.id.clone(), since(&port.id))).collect();
        world.dead = self.unbindable.iter().filter(|(_, since)| **since + UNBINDABLE <= now).map(|(id, _)| id.clone()).collect();
        let named = world.kuryr_ports.values().flat_map(|stored| stored.object.status.vifs.values()).map(|vif| &vif.vif.id);
        let is_pooled = |id: &&String| ports.get(*id).is_some_and(|port| world.cluster.is_pooled(port));
        let given: BTreeSet<String> = named.chain(world.claims.keys()).filter(is_pooled).cloned().collect();
        self.returned.extend(self.given.difference(&given).map(|id| (id.clone(), false)));
        self.returned.retain(|id, _| ports.contains_key(id) && !given.contains(id));
        self.given = given;
        for id in self.returned.keys() {
            if let Some(port) = ports.get_mut(id) {
                port.status.clear();
            }
        }
    }

    pub(super) fn poll_begins(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(has_begun) = self.returned.get_mut(id) {
                *has_begun = true;
            }
        }
    }

    pub(super) fn polled(&mut self, ids: &[String]) {
        self.returned.retain(|id, has_begun| !(*has_begun && ids.contains(id)));
    }

    pub(super) fn write_begins(&mut self, name: &ObjectName, uid: &str) {
        self.writing.insert(name.clone(), uid.to_owned());
    }

    /// A call has ended, however.
    pub(super) fn ended(&mut self, slot: &Slot) {
        if let Slot::Object(name) = slot {
            self.writing.remove(name);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use binding::{Cluster, ClusterName, Defaults, Pod};
    use openstack::resource::Port;

    use super::*;

    fn world() -> Snapshot {
        let cluster = Cluster { name: ClusterName::parse("mine").unwrap(), uid: "c".to_owned() };
        let mut world = Snapshot::new(cluster, Defaults::default());
        let tags = ["netloom:cluster=mine", "netloom:uid=c", "netloom:pool=ready"].map(str::to_owned).to_vec();
        let port = |id: &str| Port { id: id.to_owned(), tags: tags.clone(), status: "DOWN".to_owned(), ..Port::default() };
        world.ports = Some(["x", "y"].map(|id| (id.to_owned(), port(id))).into());
        world
    }

    fn name() -> ObjectName {
        ObjectName { namespace: "a".to_owned(), name: "p".to_owned() }
    }

    fn give(world: &mut Snapshot) {
        let pod =
            Pod { name: name(), node: "n".to_owned(), host_ip: String::new(), is_over: false, annotation: None, elements: Vec::new() };
        world.pods.insert("pod".to_owned(), pod);
        world.claims.insert("x".to_owned(), ("pod".to_owned(), 1));
    }

    fn status(world: &Snapshot, id: &str) -> String {
        world.ports.as_ref().unwrap()[id].status.clone()
    }

    #[test]
    fn a_returned_port_is_known_again_after_a_poll_that_began_later() {
        let (mut ready, mut world, now) = (Ready::default(), world(), Instant::now());
        let look = |ready: &mut Ready, world: &mut Snapshot| ready.look(world, &BTreeSet::new(), now);
        give(&mut world);
        look(&mut ready, &mut world);
        assert_eq!((status(&world, "x").as_str(), world.claims.len()), ("DOWN", 1), "the claim lasts as long as the pod");
        let ids = ["x".to_owned()];
        ready.poll_begins(&ids);
        world.pods.clear();
        look(&mut ready, &mut world);
        assert_eq!((status(&world, "x"), status(&world, "y").as_str(), world.claims.len()), (String::new(), "DOWN", 0));
        let mut say_down = |ready: &mut Ready| {
            ready.polled(&ids);
            world.ports.as_mut().unwrap().get_mut("x").unwrap().status = "DOWN".to_owned();
            look(ready, &mut world);
            status(&world, "x")
        };
        assert_eq!(say_down(&mut ready), "", "it had begun before");
        ready.poll_begins(&ids);
        assert_eq!(say_down(&mut ready), "DOWN");
    }

    #[test]
    fn a_claim_lasts_while_its_kuryrport_is_being_written() {
        let (mut ready, mut world, now) = (Ready::default(), world(), Instant::now());
        give(&mut world);
        ready.write_begins(&name(), "pod");
        world.pods.clear();
        ready.look(&mut world, &BTreeSet::new(), now);
        assert_eq!(world.claims.len(), 1);
        ready.ended(&Slot::Object(name()));
        ready.look(&mut world, &BTreeSet::from([Slot::Delete("y".to_owned()), Slot::List]), now);
        assert_eq!((world.claims.len(), world.deleting.iter().next().map(String::as_str)), (0, Some("y")));
    }

    #[test]
    fn a_port_is_dead_that_cannot_be_bound_for_some_time() {
        let (mut ready, mut world, now) = (Ready::default(), world(), Instant::now());
        world.ports.as_mut().unwrap().get_mut("x").unwrap().vif_type = "binding_failed".to_owned();
        for (later, dead) in [(Duration::ZERO, 0), (UNBINDABLE / 2, 0), (UNBINDABLE, 1)] {
            ready.look(&mut world, &BTreeSet::new(), now + later);
            assert_eq!(world.dead.len(), dead, "{later:?}");
        }
    }
}
