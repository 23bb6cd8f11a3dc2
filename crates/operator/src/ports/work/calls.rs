//! Calls that begin: what was decided, what is looked at again, and how many of each kind are on their way at once.

use std::collections::BTreeSet;
use std::time::Duration;

use binding::{Carrier, Owner, Refused, Step, is_existing};
use openstack::resource::Port;
use tokio::time::Instant;

use super::Work;
use crate::ports::Ports;
use crate::ports::call::{Slot, Task, annotation_of};

/// So many requests that make ports are on their way at once: what comes meanwhile goes into the next one, up to
/// [`binding::MAX_BULK`] ports.
const MAKING: usize = 3;
/// So many deletions are on their way at once: pods that wait for ports have places left.
const DELETING: usize = 4;
/// So many ports get tags or security groups at once: a changed setting is one of all ports, and pods that come wait for none of them.
const UPDATING: usize = 4;
/// A port that is not bound for so long is not being bound: a port takes Neutron a second, and on a busy machine ten.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// How many pods get their annotation at once: with a new setting all pods need one, and new pods do not wait for that.
const ANNOTATING: usize = 8;
/// How many namespaces' networks are made or removed at once: each needs several requests.
const NAMESPACES: usize = 4;
/// So many other calls.
const OTHERS: usize = 16;

// === impl Work ===

impl Work {
    /// Looks at ports that are not ACTIVE, at all ports now and then, and at pods that were not seen; takes back what cannot be bound.
    pub(super) fn look_again(&mut self, ports: &Ports, step: &Step) {
        let now = Instant::now();
        self.waiting.watch(&step.watched, now);
        if !self.busy.contains(&Slot::Poll) {
            let due = self.waiting.due(now);
            if !due.is_empty() {
                self.begin(ports, Task::Poll(due));
            }
        }
        let is_due = self.next_list <= now || self.unsure.next().is_some_and(|next| next <= now);
        if self.world.ports.is_some() && is_due {
            self.begin(ports, self.list(ports));
        }
        self.alive.retain(|_, until| *until > now);
        let missing: BTreeSet<String> = step.missing.iter().filter(|uid| !self.alive.contains_key(*uid)).cloned().collect();
        if !missing.is_empty() {
            self.begin(ports, Task::Confirm(missing));
        }
        self.rebind(ports, step, now);
        self.bind_forgotten(ports, step, now);
    }

    /// A server that failed between a port and its binding leaves one that nobody binds.
    fn bind_forgotten(&mut self, ports: &Ports, step: &Step, now: Instant) {
        let Some(all) = &self.world.ports else { return };
        let is_forgotten = |port: &&Port| port.vif_type == "unbound" && !port.host.is_empty() && Carrier::of(port).is_none();
        let forgotten: Vec<(String, String)> = step
            .watched
            .iter()
            .filter_map(|id| all.get(id))
            .filter(is_forgotten)
            .map(|port| (port.id.clone(), port.host.clone()))
            .collect();
        self.bound_again.retain(|id, _| step.watched.contains(id));
        for (id, host) in forgotten {
            let since = self.bound_again.get(&id).copied().or(self.waiting.since(&id));
            if since.is_some_and(|since| since + FORGOTTEN <= now) {
                self.bound_again.insert(id.clone(), now);
                self.begin(ports, Task::bind(id, &host));
            }
        }
    }

    /// A port that no mechanism driver can bind stays so: it is made again, ever more seldom; one that existed before is bound again.
    fn rebind(&mut self, ports: &Ports, step: &Step, now: Instant) {
        for refused in step.refused.values().flatten() {
            let Refused::Binding { port, .. } = refused else { continue };
            let known = self.world.ports.as_ref().and_then(|all| all.get(port));
            let owner = known.and_then(|known| Owner::of(known, &self.world.cluster));
            // Neutron tries to bind it again when it is changed.
            let again = match known.filter(|known| is_existing(known)) {
                Some(known) => Task::bind(port.clone(), &known.host),
                None => Task::Delete(port.clone()),
            };
            let Some(key) = owner.map(|owner| (owner.pod, owner.element)) else { continue };
            match self.waiting.since(port) {
                Some(since) if since == now => self.keys.failed(&key, refused.to_string(), now),
                _ if !self.keys.is_paused(&key, now) => self.begin(ports, again),
                _ => {}
            }
        }
    }

    /// Makes a call, if nothing is in its way.
    pub(super) fn begin(&mut self, ports: &Ports, mut task: Task) {
        let (slot, now) = (task.slot(), Instant::now());
        let is_excluded = self.busy.iter().any(|busy| slot.excludes(busy));
        if is_excluded || is_full(&self.busy, &slot) || self.busy.contains(&slot) || self.calls.is_paused(&slot, now) {
            return;
        }
        match &mut task {
            Task::Annotate { name, text, digest, .. } => match ports.known.lock().kuryr_ports.get(name) {
                Some(stored) => (*text, *digest) = (annotation_of(&stored.object), stored.annotation),
                None => return,
            },
            Task::Create(wanted) => self.making.extend(wanted.iter().map(|(key, _)| key.clone())),
            Task::Poll(ids) => self.ready.poll_begins(ids),
            Task::Write(name, _, object) => self.ready.write_begins(name, &object.spec.pod_uid),
            Task::RemoveSubPorts(_, ports) => self.world.leaving.extend(ports.iter().cloned()),
            Task::Pairs { port, .. } => {
                self.pairing.entry(port.clone()).or_insert(now);
            }
            Task::List { .. } => {
                self.list_began = Some(now);
                self.unsure.list_begins(now);
                (self.made, self.deleted) = (Vec::new(), BTreeSet::new());
            }
            _ => {}
        }
        self.busy.insert(slot.clone());
        let (client, neutron) = (ports.client.clone(), ports.neutron.clone());
        self.tasks.spawn(async move { (slot, task.run(client, neutron).await) });
    }
}

/// A call that has to wait until others of its kind have ended.
fn is_full(busy: &BTreeSet<Slot>, slot: &Slot) -> bool {
    let (is_of, max): (fn(&Slot) -> bool, usize) = match slot {
        Slot::Create(_) => (|slot| matches!(slot, Slot::Create(_)), MAKING),
        Slot::Delete(_) => (|slot| matches!(slot, Slot::Delete(_)), DELETING),
        Slot::Tag(_) | Slot::Groups(_) | Slot::Bind(_) => (is_update, UPDATING),
        Slot::Annotation(_) => (|slot| matches!(slot, Slot::Annotation(_)), ANNOTATING),
        Slot::Namespace(_) => (|slot| matches!(slot, Slot::Namespace(_)), NAMESPACES),
        _ => (is_other, OTHERS),
    };
    busy.iter().filter(|slot| is_of(slot)).count() >= max
}

fn is_other(slot: &Slot) -> bool {
    !matches!(slot, Slot::Create(_) | Slot::Delete(_) | Slot::Annotation(_) | Slot::Namespace(_)) && !is_update(slot)
}

fn is_update(slot: &Slot) -> bool {
    matches!(slot, Slot::Tag(_) | Slot::Groups(_) | Slot::Bind(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_all_pods_leaves_places_for_others() {
        let slots = |kind: fn(String) -> Slot, count: usize| (0..count).map(move |n| kind(n.to_string()));
        let busy: BTreeSet<Slot> = slots(Slot::Groups, 2).chain(slots(Slot::Tag, 2)).collect();
        assert!(is_full(&busy, &Slot::Groups("x".to_owned())) && is_full(&busy, &Slot::Tag("x".to_owned())));
        let name = |name: String| Slot::Annotation(binding::ObjectName { namespace: "a".to_owned(), name });
        let busy = busy.into_iter().chain(slots(name, ANNOTATING)).chain(slots(Slot::Namespace, NAMESPACES)).collect::<BTreeSet<_>>();
        assert!(is_full(&busy, &name("x".to_owned())) && is_full(&busy, &Slot::Namespace("x".to_owned())));
        let others = busy.into_iter().chain(slots(Slot::Subnet, 15)).collect();
        assert!(!is_full(&others, &Slot::List) && !is_full(&others, &Slot::Delete("x".to_owned())));
        let others = others.into_iter().chain([Slot::Poll]).collect();
        assert!(is_full(&others, &Slot::List));
    }
}
