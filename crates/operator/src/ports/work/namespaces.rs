//! Networks of namespaces, where each has its own: which are made, and which removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Work;
use crate::ports::Ports;
use crate::ports::call::Task;
use crate::ports::known::{Inner, NamespaceSubnet, NetworkSeen};
use crate::ports::namespace_network::{FormerNetwork, NamespaceNetwork};

/// Networks are listed again so soon where one is not known.
const READ_AGAIN: Duration = Duration::from_secs(60);

// === impl Work ===

impl Work {
    /// Makes the networks of namespaces in which pods wait for one, and removes those whose KuryrNetwork somebody has deleted, as with its
    /// namespace, when the last port there is gone.
    pub(super) fn namespaces(&mut self, ports: &Ports, inner: &Inner, now: Instant) -> Vec<Task> {
        let (settings, cluster) = (&ports.options.settings, &self.world.cluster);
        self.making_networks.retain(|_, until| *until > now);
        let mut tasks = Vec::new();
        if let Some(subnets) = &settings.namespace_subnets {
            let pods = inner.pods.values().filter(|pod| pod.has_default && !pod.is_over);
            let lived_in: BTreeSet<&str> = pods.map(|pod| pod.name.namespace.as_str()).collect();
            let subnet_of = |namespace: &str| inner.subnet_of(namespace, cluster, self.networks.as_ref());
            // One that was taken over since is not known.
            let is_unproven = lived_in.iter().any(|namespace| matches!(subnet_of(namespace), NamespaceSubnet::Unproven(_)));
            if self.networks.is_none() || (is_unproven && self.networks_read.is_none_or(|read| read + READ_AGAIN <= now)) {
                tasks.push(Task::Networks(cluster.name.tag()));
            }
            let is_missing = |namespace: &&str| {
                let is_free = self.networks.is_some() && !self.making_networks.contains_key(*namespace);
                is_free && subnet_of(namespace) == NamespaceSubnet::NotYet
            };
            let network = |namespace: &str| NamespaceNetwork {
                namespace: namespace.to_owned(),
                cluster: cluster.clone(),
                project: settings.project.clone(),
                tags: settings.tags.clone(),
                subnets: subnets.clone(),
                seen: inner.networks.get(namespace).cloned(),
                lead: Arc::clone(&ports.lead),
            };
            tasks.extend(lived_in.into_iter().filter(is_missing).map(|namespace| Task::MakeNetwork(Box::new(network(namespace)))));
        }
        let is_going = |seen: &NetworkSeen| seen.is_going && seen.made_by == Some(cluster.name.to_string());
        let going: Vec<(&String, &NetworkSeen)> = inner.networks.iter().filter(|(_, seen)| is_going(seen)).collect();
        let network_of = |seen: &NetworkSeen| seen.read.as_ref().ok().and_then(|read| read.network.clone());
        for (namespace, seen) in &going {
            if self.is_empty(inner, namespace, network_of(seen).as_deref()) && !self.making_networks.contains_key(*namespace) {
                let (namespace, cluster, project) = ((*namespace).clone(), cluster.clone(), settings.project.clone());
                tasks.push(Task::RemoveNetwork(Box::new(FormerNetwork { namespace, cluster, project, seen: (*seen).clone() })));
            }
        }
        self.world.closing = going.iter().filter_map(|(_, seen)| network_of(seen)).collect();
        tasks
    }

    /// Whether no port of ours is in a namespace's network, and none can come: neither by a call on its way, nor by the operator before.
    fn is_empty(&self, inner: &Inner, namespace: &str, network: Option<&str>) -> bool {
        let Some(all) = &self.world.ports else { return false };
        let is_here = |uid: &String| inner.pods.get(uid).is_none_or(|pod| pod.name.namespace == namespace);
        let mut coming = self.making.iter().chain(self.unsure.keys()).map(|(uid, _)| uid);
        self.former.is_over() && !all.values().any(|port| Some(port.network_id.as_str()) == network) && !coming.any(is_here)
    }
}
