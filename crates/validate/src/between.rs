//! What is wrong between networks and pods.

use std::net::IpAddr;

use cni::NetworkList;
use npwg::{DefinitionRef, Protocol, Selection};

use crate::finding::Finding;
use crate::network::Surroundings;
use crate::{overlap, requests, shared};

/// A network that pods select.
#[derive(Debug, Clone, Copy)]
pub struct Network<'a> {
    /// Its definition.
    pub reference: &'a DefinitionRef,
    /// The network.
    pub list: &'a NetworkList,
    /// The text that it was read from.
    pub text: &'a str,
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// `namespace/name`.
    pub name: &'a str,
    /// The node that it is on; `None` where the cluster's scheduler says so.
    pub node: Option<&'a str>,
    /// The elements of its annotation.
    pub selections: &'a [Selection],
    /// The ports of its containers.
    pub ports: &'a [Port],
    /// The workloads that it comes from, as `Deployment/NAME` in its namespace: its own, and those that this one may come from.
    pub workloads: &'a [String],
    /// Of a workload's template: how many pods are made from it. `None`: it is a pod.
    pub copies: Option<u32>,
}

/// A port of a container that the node publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The node's port.
    pub host_port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The node's address that listens; every one if not given.
    pub host_ip: Option<IpAddr>,
}

/// What a finding is about; its path leads on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The text of this network.
    Network(usize),
    /// The annotation of this pod, a list of selections: `[0].ips[1]`.
    Selections(usize),
    /// The ports of this pod: `[2]`.
    Ports(usize),
}

/// A finding between networks and pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// What it is about.
    pub about: About,
    /// What is wrong.
    pub finding: Finding,
}

/// What is wrong between these networks and pods, each looked at by itself before.
pub fn between(networks: &[Network<'_>], pods: &[Pod<'_>], around: &Surroundings<'_>) -> Vec<Between> {
    let mut found = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        let of_pod = requests::refused(pod, networks, around);
        found.extend(of_pod.into_iter().map(|finding| Between { about: About::Selections(at), finding }));
    }
    found.extend(shared::requests(networks, pods));
    found.extend(shared::fixed_addresses(networks, pods));
    found.extend(shared::host_ports(pods));
    found.extend(shared::ranges(networks, pods, around.builtins));
    found.extend(overlap::ranges(networks, around.builtins));
    found
}

// === impl Pod ===

impl Pod<'_> {
    /// Whether two pods are on different nodes, as far as is known.
    pub(crate) fn is_apart(&self, other: &Pod<'_>) -> bool {
        matches!((self.node, other.node), (Some(a), Some(b)) if a != b)
    }

    /// Whether one is the template that the other one is made from: both are the same pod.
    pub(crate) fn is_same(&self, other: &Pod<'_>) -> bool {
        let namespace = |name: &str| name.split_once('/').map(|(namespace, _)| namespace.to_owned());
        let is_template = self.copies.is_some() || other.copies.is_some();
        is_template && namespace(self.name) == namespace(other.name) && self.workloads.iter().any(|own| other.workloads.contains(own))
    }

    /// How many pods are made from a template, where they are more than one.
    pub(crate) fn many(&self) -> Option<u32> {
        self.copies.filter(|copies| *copies > 1)
    }

    /// Whether two pods are on one node, as far as is known.
    pub(crate) fn is_beside(&self, other: &Pod<'_>) -> bool {
        matches!((self.node, other.node), (Some(a), Some(b)) if a == b)
    }
}
