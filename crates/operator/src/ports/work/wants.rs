//! What pods ask for, and what is wrong with that.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use binding::{Element, Pod, RequestError, default_element, elements};

use super::{Work, is_of_pool};
use crate::ports::Ports;
use crate::ports::known::{Inner, NamespaceSubnet, PodSeen};

// === impl Work ===

impl Work {
    /// What the pods ask for; what is wrong with that.
    pub(super) fn ask(&mut self, ports: &Ports, inner: &Inner) -> BTreeMap<String, String> {
        let mut problems = BTreeMap::new();
        self.asked.retain(|uid, _| inner.pods.contains_key(uid));
        self.world.pods.clear();
        let has_own = ports.options.settings.namespace_subnets.is_some();
        let mut of_namespaces: BTreeMap<&str, NamespaceSubnet<'_>> = BTreeMap::new();
        for (uid, pod) in &inner.pods {
            let namespace = pod.name.namespace.as_str();
            let subnet = || inner.subnet_of(namespace, &self.world.cluster, self.networks.as_ref());
            let own = (has_own && pod.has_default).then(|| &*of_namespaces.entry(namespace).or_insert_with(subnet));
            let mut hasher = DefaultHasher::new();
            (&pod.annotation, &pod.additional_subnets, pod.has_default, inner.definitions_revision).hash(&mut hasher);
            own.hash(&mut hasher);
            let digest = hasher.finish();
            let known = self.asked.get(uid).is_some_and(|(of, _)| *of == digest);
            if !known {
                self.asked.insert(uid.clone(), (digest, asks(ports, inner, pod, own)));
            }
            let elements = match self.asked.get(uid) {
                Some((_, Ok(elements))) => elements.clone(),
                // What it has stays, and only new pods are affected.
                Some((_, Err(_))) if is_bound(inner, uid, &pod.name) => Vec::new(),
                Some((_, Err(problem))) if !pod.is_over => {
                    problems.insert(uid.clone(), problem.clone());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let (name, node, host_ip, is_over) = (pod.name.clone(), pod.node.clone(), pod.host_ip.clone(), pod.is_over);
            self.world.pods.insert(uid.clone(), Pod { name, node, host_ip, is_over, annotation: pod.vifs, elements });
        }
        // Those of pools are no pod's.
        self.keys.retain(|key| inner.pods.contains_key(&key.0) || is_of_pool(key));
        problems
    }
}

/// Whether the node knows ports of this pod.
fn is_bound(inner: &Inner, uid: &str, name: &binding::ObjectName) -> bool {
    let is_of = |stored: &binding::Stored| stored.object.spec.pod_uid == uid && !stored.object.status.vifs.is_empty();
    inner.kuryr_ports.get(name).is_some_and(is_of)
}

/// What a pod asks for, or what is wrong with that; `own`: the subnet of its namespace, where each has its own and the pod is to be in it.
fn asks(ports: &Ports, inner: &Inner, pod: &PodSeen, own: Option<&NamespaceSubnet<'_>>) -> Result<Vec<Element>, String> {
    let (namespace, settings) = (&pod.name.namespace, &ports.options.settings);
    let permits = |of: &npwg::DefinitionRef| ports.options.permits(namespace, of);
    let selected = match settings.selections {
        true => elements(&pod.annotation, namespace, settings, |of| inner.definition(of), permits),
        false => Ok(Vec::new()),
    };
    let selected = match selected {
        // The agent refuses it, and says so: it may have nothing to do with Neutron.
        Err(RequestError::Annotation(_)) => return Ok(Vec::new()),
        other => other.map_err(|e| e.to_string())?,
    };
    if !pod.has_default {
        return Ok(selected);
    }
    let own = match own {
        None => None,
        Some(NamespaceSubnet::Ready(subnet)) => Some(*subnet),
        // It waits, and nothing is wrong.
        Some(NamespaceSubnet::NotYet | NamespaceSubnet::Unknown) => return Ok(Vec::new()),
        Some(NamespaceSubnet::Refused(why) | NamespaceSubnet::Unproven(why)) => return Err(why.clone()),
    };
    // The pod itself names them: what a definition of its namespace may name.
    let of_pod = npwg::DefinitionRef { namespace: namespace.clone(), name: pod.name.name.clone() };
    let default = default_element(own, pod.additional_subnets.as_deref(), settings, &permits(&of_pod)).map_err(|e| e.to_string())?;
    Ok([default].into_iter().chain(selected).collect())
}
