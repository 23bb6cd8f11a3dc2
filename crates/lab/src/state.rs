//! What a lab is made of, as it is written down before it is built: `<state dir>/<lab>/lab.json`.

use std::fmt;
use std::path::{Path, PathBuf};

use attach::{PodView, Records};
use cni::{CniArgs, ContainerId};
use linux::file::{self, Durability};
use plugin::Dirs;
use serde::{Deserialize, Serialize};

use crate::error::StateError;
use crate::journal::Journal;
use crate::labs::{LabName, make_dir};
use crate::manifest::PoolManifest;
use crate::switch;

/// A node's name.
pub type NodeName = String;

/// A lab: every namespace that it has, and what was to be in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lab {
    /// Its name.
    pub name: LabName,
    /// Its nodes; at least one.
    pub nodes: Vec<Node>,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// How far it is.
    pub phase: Phase,
    /// The wires that join the nodes' parents, by the parents' name; numbered from 1 where they are.
    pub wires: Vec<String>,
    /// Those of them that the kernel has refused to some node.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Bridges of Open vSwitch that every node has; each has an uplink, which is among the wires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<String>,
    /// The zones of the nodes, each with a link of its own. One where the nodes are all on one link.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Where plugins that are not built in are looked for, also when the pods are detached.
    pub cni_path: Vec<PathBuf>,
    /// Where it is kept.
    #[serde(skip)]
    dir: PathBuf,
    #[serde(skip)]
    netns: PathBuf,
}

/// How far a lab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// `up` is at work, or was killed.
    Building,
    /// `up` came to its end.
    Up,
    /// `down` is at work, or did not come to its end.
    GoingDown,
}

/// A node of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its zone; empty if it has none.
    #[serde(default)]
    pub zone: String,
    /// Its addresses on its zone's link, with prefix lengths.
    pub addresses: Vec<ipnet::IpNet>,
    /// The ranges that its pods get addresses of on the default network.
    pub pod_cidrs: Vec<ipnet::IpNet>,
}

/// A pod of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pod {
    /// Its namespace in Kubernetes' sense.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is on.
    pub node: NodeName,
    /// The annotation `k8s.v1.cni.cncf.io/networks`.
    pub networks: Option<String>,
    /// The annotation `v1.multus-cni.io/default-network`.
    pub default_network: Option<String>,
    /// The ports that it publishes on its node, as a runtime says them to its networks (`portMappings`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_mappings: Vec<PortMapping>,
    /// Why it could not be attached; `None` if it was.
    pub failure: Option<String>,
}

/// A port of a pod that is published on its node, as containerd writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// The node's address; each one, if there is none.
    #[serde(rename = "hostIP", default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<std::net::IpAddr>,
}

/// `[NAMESPACE/]POD`, as a person names a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// The namespace, if it was given.
    pub namespace: Option<String>,
    /// The pod's name.
    pub name: String,
}

// === impl Lab ===

impl Lab {
    pub(crate) fn blank(name: LabName, dir: PathBuf, netns: PathBuf) -> Self {
        let phase = Phase::Building;
        Lab {
            name,
            nodes: Vec::new(),
            pods: Vec::new(),
            phase,
            wires: Vec::new(),
            refused: Vec::new(),
            bridges: Vec::new(),
            zones: Vec::new(),
            cni_path: Vec::new(),
            dir,
            netns,
        }
    }

    /// The same lab at another one's place.
    pub(crate) fn placed(self, at: Lab) -> Self {
        Lab { dir: at.dir, netns: at.netns, ..self }
    }

    /// Begins the lab's directory: without a description, what is there is the rest of a lab that was.
    pub(crate) fn begin(&self) -> Result<(), StateError> {
        if let Err(e) = std::fs::remove_dir_all(&self.dir)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Err(StateError::Io { step: "remove the rest of an earlier lab", path: self.dir.clone(), reason: e.to_string() });
        }
        make_dir(&self.dir)?;
        self.journal().begin().and_then(|()| self.write()).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&self.dir);
        })
    }

    /// A node's or pod's name that cannot have been written down by `up`: it would be more, or less, than one part of a
    /// path.
    pub(crate) fn odd_name(&self) -> Option<&str> {
        let names = self.nodes.iter().map(|node| &node.name).chain(self.pods.iter().flat_map(|pod| [&pod.namespace, &pod.name, &pod.node]));
        names.map(String::as_str).find(|name| matches!(*name, "" | "." | "..") || name.contains(['/', '\0']))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that describes it.
    pub fn description(&self) -> PathBuf {
        self.dir.join("lab.json")
    }

    /// Which namespaces are its own.
    pub(crate) fn journal(&self) -> Journal {
        Journal::new(self.name.as_str(), self.dir.join("namespaces"), self.netns.clone())
    }

    pub(crate) fn nodes_dir(&self) -> PathBuf {
        self.dir.join("nodes")
    }

    /// Writes down the pools, each where the plugin `pool` reads it.
    ///
    /// # Errors
    /// [`StateError::Io`]
    pub(crate) fn write_pools(&self, pools: &[PoolManifest]) -> Result<(), StateError> {
        if !pools.is_empty() {
            make_dir(&self.pools())?;
        }
        for PoolManifest { pool, .. } in pools {
            let path = ipam::pool_path(&self.pools(), &pool.metadata.name);
            let fail = |reason: String| StateError::Io { step: "write", path: path.clone(), reason };
            let text = serde_json::to_vec_pretty(pool).map_err(|e| fail(e.to_string()))?;
            file::write_atomic(&path, &text, 0o644, Durability::Volatile).map_err(|e| fail(e.to_string()))?;
        }
        Ok(())
    }

    /// Writes down what the lab is made of.
    ///
    /// # Errors
    /// [`StateError::Io`]
    pub fn write(&self) -> Result<(), StateError> {
        let path = self.description();
        let fail = |reason: String| StateError::Io { step: "write", path: path.clone(), reason };
        let text = serde_json::to_vec_pretty(self).map_err(|e| fail(e.to_string()))?;
        file::write_atomic(&path, &text, 0o644, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }

    /// Whether a pod of this name is attached in it.
    pub(crate) fn is_attached(&self, pod: &Pod) -> bool {
        self.pods.iter().any(|own| own.namespace == pod.namespace && own.name == pod.name && own.failure.is_none())
    }

    /// The namespace that the wires are in.
    pub fn wires_netns(&self) -> PathBuf {
        self.netns.join(format!("nl.{}.wires", self.name))
    }

    /// A node's namespace.
    pub fn node_netns(&self, node: &str) -> PathBuf {
        self.netns.join(format!("nl.{}.node.{node}", self.name))
    }

    /// A pod's namespace.
    pub fn pod_netns(&self, pod: &Pod) -> PathBuf {
        self.netns.join(format!("nl.{}.pod.{}.{}", self.name, pod.namespace, pod.name))
    }

    /// Every namespace: pods, then nodes, then the wires; the order of taking them down.
    pub fn all_netns(&self) -> Vec<PathBuf> {
        let pods = self.pods.iter().map(|p| self.pod_netns(p));
        let nodes = self.nodes.iter().map(|n| self.node_netns(&n.name));
        pods.chain(nodes).chain([self.wires_netns()]).collect()
    }

    /// What is kept of a node.
    pub(crate) fn node_dir(&self, node: &str) -> PathBuf {
        self.nodes_dir().join(node)
    }

    /// The records of a node's pods: where its agent keeps them.
    pub fn records(&self, node: &str) -> Records {
        Records::new(self.records_dir(node))
    }

    /// The folder of these records.
    pub fn records_dir(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("sandboxes")
    }

    /// Where a node's plugins keep their state: shared with nothing on the machine, and with the other nodes only what a
    /// cluster's nodes share, the pools.
    pub fn dirs(&self, node: &str) -> Dirs {
        let switch = Some(self.switch_dir(node).join(switch::SOCKET));
        Dirs { pools: self.pools(), journal: self.leases(), switch, ..Dirs::below(&self.node_dir(node)) }
    }

    /// Where the nodes' switches have their files.
    pub(crate) fn switches_dir(&self) -> PathBuf {
        self.dir.join("switches")
    }

    /// Those of a node: by its number, because its name may be too long for the path of a socket.
    pub(crate) fn switch_dir(&self, node: &str) -> PathBuf {
        let before = self.nodes.iter().take_while(|own| own.name != node).count();
        self.switches_dir().join((before + 1).to_string())
    }

    /// The pools of addresses: a file for each.
    pub fn pools(&self) -> PathBuf {
        self.dir.join("pools")
    }

    /// Who has which address of them: a journal.
    pub fn leases(&self) -> PathBuf {
        self.dir.join("ipam")
    }

    /// The container ID of a pod's sandbox.
    ///
    /// # Errors
    /// [`StateError::TooLong`] if the pod's namespace could not have a file name.
    pub fn sandbox(&self, pod: &Pod) -> Result<ContainerId, StateError> {
        let too_long = || StateError::TooLong(pod.full_name());
        if self.pod_netns(pod).file_name().is_none_or(|n| n.len() > 255) {
            return Err(too_long());
        }
        let hash = fnv1a(&[self.name.as_str(), &pod.namespace, &pod.name]);
        let stem: String = pod.name.chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).take(40).collect();
        ContainerId::parse(&format!("{stem}-{:016x}", hash)).map_err(|_| too_long())
    }

    /// A pod as a person names it.
    ///
    /// # Errors
    /// [`StateError::NoPod`] or [`StateError::Ambiguous`]
    pub fn pod(&self, wanted: &PodRef) -> Result<&Pod, StateError> {
        let fits = |p: &&Pod| p.name == wanted.name && wanted.namespace.as_ref().is_none_or(|ns| *ns == p.namespace);
        let found: Vec<&Pod> = self.pods.iter().filter(fits).collect();
        let names = |pods: &[&Pod]| pods.iter().map(|p| p.full_name()).collect::<Vec<_>>().join(", ");
        match found.as_slice() {
            [one] => Ok(one),
            [] => {
                let all: Vec<String> = self.pods.iter().map(Pod::full_name).collect();
                // Who gave no namespace is told of the nearest names, whatever their namespace.
                let name = |full: &'_ str| full.split_once('/').map_or(0, |(namespace, _)| namespace.len() + 1);
                let near = cni::nearest(&wanted.name, all.iter().map(|full| full.get(name(full)..).unwrap_or_default()));
                let there = match near {
                    Some(near) => format!("did you mean {near:?}?"),
                    None if all.is_empty() => "it has no pods".to_owned(),
                    None => format!("it has {}", cni::near_names(&wanted.to_string(), all.iter().map(String::as_str))),
                };
                Err(StateError::NoPod { lab: self.name.to_string(), pod: wanted.to_string(), there })
            }
            several => Err(StateError::Ambiguous { lab: self.name.to_string(), pod: wanted.to_string(), there: names(several) }),
        }
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|n| n.name == name)
    }
}

// === impl Pod ===

impl Pod {
    /// `namespace/name`
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What `attach` is told of it.
    pub fn view(&self) -> PodView {
        PodView {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: None,
            networks: self.networks.clone(),
            default_network: self.default_network.clone(),
            sticky: false,
            migrates: false,
        }
    }

    /// `runtimeConfig`, as a Kubernetes runtime sends it; `None` if there is nothing to say.
    pub(crate) fn runtime_config(&self) -> Option<serde_json::Value> {
        (!self.port_mappings.is_empty()).then(|| serde_json::json!({"portMappings": self.port_mappings}))
    }

    /// `CNI_ARGS`, as a Kubernetes runtime sends them.
    pub fn args(&self, sandbox: &ContainerId) -> CniArgs {
        let mut args = CniArgs::default();
        let pairs = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", &self.namespace),
            ("K8S_POD_NAME", &self.name),
            ("K8S_POD_INFRA_CONTAINER_ID", sandbox.as_str()),
        ];
        pairs.iter().for_each(|(key, value)| args.push(key, value));
        args
    }
}

// === impl PodRef ===

impl std::str::FromStr for PodRef {
    type Err = std::convert::Infallible;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Ok(match s.split_once('/') {
            Some((namespace, name)) => PodRef { namespace: Some(namespace.to_owned()), name: name.to_owned() },
            None => PodRef { namespace: None, name: s.to_owned() },
        })
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// FNV-1a, 64 bits: records on disk are named by it, so no release of a library may change it.
fn fnv1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // With its closing zero byte, which keeps ("a", "bc") and ("ab", "c") apart.
        assert_eq!(fnv1a(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(&["a"]), (0xaf63_dc4c_8601_ec8c_u64).wrapping_mul(0x0000_0100_0000_01b3));
        assert_ne!(fnv1a(&["a", "bc"]), fnv1a(&["ab", "c"]));
    }

    #[test]
    fn a_pods_container_id_stays_what_it_is() {
        let lab = Lab::blank(LabName::parse("lab").unwrap(), "/d".into(), "/n".into());
        let pod = |name: &str| Pod {
            namespace: "default".into(),
            name: name.into(),
            node: "n".into(),
            networks: None,
            default_network: None,
            port_mappings: Vec::new(),
            failure: None,
        };
        assert_eq!(lab.sandbox(&pod("web")).unwrap().as_str(), format!("web-{:016x}", fnv1a(&["lab", "default", "web"])));
        assert_eq!(lab.sandbox(&pod(&"a".repeat(250))), Err(StateError::TooLong(format!("default/{}", "a".repeat(250)))));
    }
}
