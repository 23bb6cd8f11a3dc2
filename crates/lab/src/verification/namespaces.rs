//! The namespaces of a lab, held open while it is verified.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use linux::Netns;
use probe::{ListenError, Listener, Sink, Transport};
use verify::{PORT, Place, Site, Snapshot};

use super::neighbours::NeighbourTables;
use super::{VerifyError, transport};
use crate::state::Lab;

/// Threads that observe at a time.
const OBSERVERS: usize = 4;

/// A namespace, and whose it is.
struct ObservedNamespace {
    place: Place,
    node: Option<String>,
    netns: Netns,
}

/// All of them.
pub(super) struct Namespaces {
    all: Vec<ObservedNamespace>,
    by_place: HashMap<Place, usize>,
    /// The kernel's, of all of them.
    pub(super) tables: NeighbourTables,
}

// === impl Namespaces ===

impl Namespaces {
    /// Opens those of nodes, of pods that are attached, and of the wires.
    pub(super) fn open(lab: &Lab) -> Result<Self, VerifyError> {
        let hold = |place: Place, node: Option<String>, path: &Path| match Netns::open(path) {
            Ok(Some(netns)) => Ok(ObservedNamespace { place, node, netns }),
            Ok(None) => {
                Err(VerifyError::Namespace { place: place.to_string(), why: format!("its network namespace {} is gone", path.display()) })
            }
            Err(e) => Err(VerifyError::Namespace { place: place.to_string(), why: e.to_string() }),
        };
        let nodes = lab.nodes.iter().map(|node| hold(Place::Node(node.name.clone()), None, &lab.node_netns(&node.name)));
        let attached = lab.pods.iter().filter(|pod| pod.failure.is_none());
        let pods = attached.map(|pod| hold(Place::Pod(pod.full_name()), Some(pod.node.clone()), &lab.pod_netns(pod)));
        let underlay = hold(Place::Underlay, None, &lab.wires_netns());
        let all: Vec<ObservedNamespace> = nodes.chain(pods).chain([underlay]).collect::<Result<_, _>>()?;
        let by_place = all.iter().enumerate().map(|(at, held)| (held.place.clone(), at)).collect();
        let tables = NeighbourTables::open(all.first().map(|held| &held.netns));
        Ok(Namespaces { all, by_place, tables })
    }

    pub(super) fn netns(&self, place: &Place) -> Option<&Netns> {
        self.by_place.get(place).and_then(|at| self.all.get(*at)).map(|held| &held.netns)
    }

    /// Opens what takes the bytes of a measurement, once in each of these places.
    pub(super) fn sink<'p>(&self, places: impl Iterator<Item = &'p Place>) -> Result<Vec<Sink>, VerifyError> {
        let open = |place: &Place| {
            let gone = |why: String| VerifyError::Namespace { place: place.to_string(), why };
            let netns = self.netns(place).ok_or_else(|| gone("it is gone".to_owned()))?;
            let opened = netns.enter(|inside| Sink::open(inside, &place.to_string())).map_err(|e| gone(e.to_string()))?;
            Ok(opened?)
        };
        places.collect::<BTreeSet<&Place>>().into_iter().map(open).collect()
    }

    /// Opens what answers: the probe's port everywhere, and the ports that pods publish.
    pub(super) fn listen(&self, site: &Site) -> Result<Vec<Listener>, VerifyError> {
        let mut listeners = Vec::new();
        for ObservedNamespace { place, netns, .. } in &self.all {
            let published = site.pods.iter().filter(|pod| pod.place() == *place).flat_map(|pod| &pod.ports);
            let published = published.filter(|port| !site.unsupported.contains(&port.protocol));
            let mut ports: Vec<(Transport, u16)> = vec![(Transport::Tcp, PORT), (Transport::Udp, PORT)];
            for port in published.map(|port| (transport(port.protocol), port.pod_port)) {
                if !ports.contains(&port) {
                    ports.push(port);
                }
            }
            let name = place.to_string();
            let opened = netns.enter(|inside| {
                let open = |(transport, port): &(Transport, u16)| Listener::open(inside, &name, *transport, *port);
                ports.iter().map(open).collect::<Result<Vec<Listener>, ListenError>>()
            });
            let opened = opened.map_err(|e| VerifyError::Namespace { place: name.clone(), why: e.to_string() })?;
            listeners.extend(opened?);
        }
        Ok(listeners)
    }

    /// What is in all of them now. One that cannot be entered is not in it.
    pub(super) fn snapshot(&self) -> Snapshot {
        let share = self.all.len().div_ceil(OBSERVERS).max(1);
        let namespaces = std::thread::scope(|scope| {
            let observers: Vec<_> = self
                .all
                .chunks(share)
                .map(|some| scope.spawn(|| some.iter().filter_map(|held| self.observe_one(held)).collect::<Vec<_>>()))
                .collect();
            observers.into_iter().flat_map(|observer| observer.join().unwrap_or_default()).collect()
        });
        Snapshot { namespaces, ..Snapshot::default() }
    }

    fn observe_one(&self, held: &ObservedNamespace) -> Option<verify::Namespace> {
        // A pod's links end on its node, or in another pod's namespace that the node made; a node's in its pods and on the wires.
        let is_beside = |other: &&ObservedNamespace| match (&held.place, &other.place) {
            (Place::Pod(_), Place::Node(name)) => held.node.as_ref() == Some(name),
            (Place::Node(name), Place::Pod(_)) => other.node.as_ref() == Some(name),
            (Place::Node(_), Place::Underlay) | (Place::Underlay, Place::Node(_)) => true,
            _ => false,
        };
        let beside: Vec<agent::PeerNamespace<'_>> =
            self.all.iter().filter(is_beside).map(|other| (other.place.clone(), &other.netns)).collect();
        held.netns.enter(|inside| agent::observe(inside, held.place.clone(), held.node.clone(), &beside)).ok()
    }
}
