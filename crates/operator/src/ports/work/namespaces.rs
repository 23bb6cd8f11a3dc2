//! Networks of namespaces, where each has its own: which are made, and which removed.

use std::collections::{BTreeMap, BTreeSet};

use super::Work;
use crate::ports::Ports;
use crate::ports::call::Task;
use crate::ports::known::{Inner, NamespaceSubnet, NetworkSeen};
use crate::ports::namespace_network::NamespaceNetwork;

// === impl Work ===

impl Work {
    /// Makes the networks of namespaces in which pods wait for one, and removes those whose KuryrNetwork somebody has deleted, as with its
    /// namespace, when the last port there is gone.
    pub(super) fn namespaces(&mut self, ports: &Ports, inner: &Inner) -> Vec<Task> {
        self.world.closing.clear();
        let (settings, cluster) = (&ports.options.settings, &ports.options.cluster);
        let Some(subnets) = &settings.namespace_subnets else { return Vec::new() };
        let one = |namespace: &str, seen: Option<&NetworkSeen>| {
            Box::new(NamespaceNetwork {
                namespace: namespace.to_owned(),
                cluster: self.world.cluster.clone(),
                project: settings.project.clone(),
                tags: settings.tags.clone(),
                subnets: subnets.clone(),
                seen: seen.cloned(),
            })
        };
        let pods = inner.pods.values().filter(|pod| pod.has_default && !pod.is_over);
        let lived_in: BTreeSet<&str> = pods.map(|pod| pod.name.namespace.as_str()).collect();
        let waited_for = lived_in.iter().filter(|namespace| inner.subnet_of(namespace, cluster) == NamespaceSubnet::NotYet);
        let mut tasks: Vec<Task> = waited_for.map(|namespace| Task::MakeNetwork(one(namespace, inner.networks.get(*namespace)))).collect();
        let is_left = |namespace: &str, seen: &NetworkSeen| {
            seen.is_going && seen.made_by == Some(cluster.to_string()) && !lived_in.contains(namespace)
        };
        let mut closing = BTreeSet::new();
        for (namespace, seen) in inner.networks.iter().filter(|(namespace, seen)| is_left(namespace, seen)) {
            let network = seen.read.as_ref().ok().and_then(|read| read.network.clone());
            let mut all = self.world.ports.iter().flat_map(BTreeMap::values);
            let is_empty = self.world.ports.is_some() && all.all(|port| Some(&port.network_id) != network.as_ref());
            tasks.extend(is_empty.then(|| Task::RemoveNetwork(one(namespace, Some(seen)))));
            closing.extend(network);
        }
        self.world.closing = closing;
        tasks
    }
}
