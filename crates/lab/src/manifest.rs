//! Kubernetes manifests: what a lab is made of.
//!
//! ```text
//! files, folders, "-" --source--> documents --tree--> nodes with their places --object, pod, node, definition-->
//!     checked manifests --relations--> Manifests, or every error of every file with file, document, line and field
//! ```
//!
//! Read are Pods, Nodes, NetworkAttachmentDefinitions and IPPools, also inside a `List`, as YAML or JSON, as `kubectl apply -f`
//! takes them. Objects of other kinds are left out with a warning, as real folders of manifests are full of them, and so
//! are keys that a lab has no use for. A key that it does use must have the type and the value that the API server
//! would accept. Nothing is made of manifests with an error in them, so all errors are found at once. What the API server accepts, and a plugin
//! or another pod does not, is a [`Finding`]: who has the manifests decides what becomes of it.
//!
//! ```
//! # use netloom_lab::manifest;
//! let web = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n";
//! let manifests = manifest::load(&["-".into()], &mut web.as_bytes())?;
//! assert_eq!(manifests.pods[0].to_string(), "default/web");
//!
//! let refused = manifest::load(&["-".into()], &mut web.replace("web", "Web_1").as_bytes()).unwrap_err().to_string();
//! assert!(refused.starts_with(r#"standard input: document 1, line 3, column 18: metadata.name: "Web_1" is not a DNS-1123"#));
//! # Ok::<(), manifest::ManifestErrors>(())
//! ```

mod check;
mod definition;
mod error;
mod fields;
mod names;
mod near;
mod node;
mod object;
mod pod;
mod pool;
mod relations;
mod source;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

pub use error::{Finding, FindingKind, ManifestError, ManifestErrors, ManifestProblem, NameProblem};
pub use source::{MAX_DOCUMENTS, MAX_FILE};

use relations::Reading;

/// The namespace of an object that names none, as `kubectl` has it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The namespace of a default network's definition that is named without one: Multus's `multusNamespace`.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Everything that a lab is made of, checked, in the order of the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    /// The nodes; none means one node that needs no name.
    pub nodes: Vec<NodeManifest>,
    /// The networks that pods can select.
    pub definitions: Vec<DefinitionManifest>,
    /// The pools of addresses, of which the nodes of a lab share each.
    pub pools: Vec<PoolManifest>,
    /// The pods; those that have no network of their own are left out with a warning.
    pub pods: Vec<PodManifest>,
    /// What is wrong with them, what looks so, and what was left out.
    pub findings: Vec<Finding>,
}

/// What manifests are read for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A lab is built of them.
    #[default]
    Lab,
    /// A node serves them without a cluster.
    Host,
    /// Somebody wants to know what is wrong with them. They are for a cluster, which may have more: nodes, definitions, other kinds.
    Cluster,
}

/// What was read, and the texts that it was read from.
#[derive(Debug)]
pub struct Examined {
    /// What they are, or why they are nothing.
    pub manifests: Result<Manifests, ManifestErrors>,
    documents: Vec<source::Document>,
}

/// Where an object or a field was read. Shown as `pods.yaml: document 2, line 31, column 9`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file as it was named on the command line, or `standard input`.
    pub file: Arc<str>,
    /// The document in the file; the first is 1, and 0 is the file as a whole.
    pub document: usize,
    /// The line in the file; the first is 1, and 0 is the document as a whole.
    pub line: usize,
    /// The column in the line, in characters; the first is 1.
    pub column: usize,
}

/// The workload that a pod comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    /// `KIND/NAME` of its owner, and of what that one may come from.
    pub(crate) names: Vec<String>,
    /// Of a template: how many pods are made from it.
    pub(crate) copies: Option<u32>,
}

/// A Pod (`v1`).
#[derive(Debug, Clone, PartialEq)]
pub struct PodManifest {
    /// What it comes from.
    pub(crate) workload: Workload,
    /// `metadata.namespace`, or [`DEFAULT_NAMESPACE`].
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, which an object read back from a cluster has.
    pub uid: Option<String>,
    /// `spec.nodeName`: the node that it must be on. One of the manifests' nodes if there are any.
    pub node: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, all of them.
    pub annotations: BTreeMap<String, String>,
    /// The annotation [`npwg::NETWORKS`].
    pub networks: Option<Annotation<Vec<npwg::Selection>>>,
    /// The annotation [`npwg::DEFAULT_NETWORK`].
    pub default_network: Option<Annotation<Option<npwg::Selection>>>,
    /// `spec.containers[].ports[]`, of all containers.
    pub ports: Vec<ContainerPort>,
    /// Where the object begins.
    pub origin: Origin,
}

/// An annotation that selects networks.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation<T> {
    /// Its text as written.
    pub text: String,
    /// What it selects; nothing if the text breaks a rule, of which a warning tells.
    pub selected: T,
    /// Where its value is.
    pub origin: Origin,
}

/// A port that a container listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContainerPort {
    /// `containerPort`; never 0.
    pub container_port: u16,
    /// `hostPort`: the port of the node that leads to it; never 0.
    pub host_port: Option<u16>,
    /// `hostIP`: the node's address that listens; every one if not given.
    pub host_ip: Option<IpAddr>,
    /// `protocol`; TCP if not given.
    pub protocol: npwg::Protocol,
}

/// A Node (`v1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeManifest {
    /// `metadata.name`.
    pub name: String,
    /// `spec.podCIDRs`, or `spec.podCIDR`: at most one of each family, none shared with another node.
    pub pod_cidrs: Vec<IpNet>,
    /// The label `topology.kubernetes.io/zone`; empty without.
    pub zone: String,
    /// The addresses of type `InternalIP` in `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Where the object begins.
    pub origin: Origin,
}

/// A NetworkAttachmentDefinition (`k8s.cni.cncf.io/v1`).
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionManifest {
    /// The definition.
    pub definition: npwg::Definition,
    /// The network of its `spec.config`; `None` if it has none and a configuration on disk is meant.
    pub network: Option<cni::NetworkList>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Where the object begins.
    pub origin: Origin,
}

/// An IPPool (`netloom.io/v1alpha1`), which is one.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolManifest {
    /// The pool, as [`ipam::check_pool`] has found it good.
    pub pool: api::IpPool,
    /// Where the object begins.
    pub origin: Origin,
}

/// Reads manifests. Each of `files` is a file, a folder (its `*.yaml`, `*.yml` and `*.json` in the order of their names,
/// without those of folders in it, as `kubectl apply -f` has it) or `-`, which is `stdin`.
///
/// # Errors
/// [`ManifestErrors`] with every error of every file.
pub fn load(files: &[PathBuf], stdin: &mut dyn Read) -> Result<Manifests, ManifestErrors> {
    examine(files, stdin, Purpose::Lab).manifests
}

/// Reads manifests as [`load`] does, and keeps their texts.
pub fn examine(files: &[PathBuf], stdin: &mut dyn Read, purpose: Purpose) -> Examined {
    let mut reading = Reading::new(purpose);
    let documents = source::read(files, stdin, &mut reading);
    let first = documents.first().map_or_else(|| Origin::of_file("manifests".into()), source::Document::file_origin);
    let read = yaml::with_room(|| documents.iter().for_each(|document| object::read(document, &mut reading)));
    if let Err(e) = read {
        reading.unreadable(first.clone(), ManifestProblem::Unreadable { kind: e.kind(), errno: e.raw_os_error() });
    }
    Examined { manifests: reading.finish(first), documents }
}

// === impl Examined ===

impl Examined {
    /// The line that a place is in; `None` of a place that is none.
    pub fn line(&self, origin: &Origin) -> Option<&str> {
        self.documents.iter().find_map(|document| document.line(origin))
    }
}

// === impl Origin ===

impl Origin {
    /// A file as a whole.
    pub(crate) fn of_file(file: Arc<str>) -> Self {
        Origin { file, document: 0, line: 0, column: 0 }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.document > 0 {
            write!(f, ": document {}", self.document)?;
        }
        if self.line > 0 {
            write!(f, ", line {}, column {}", self.line, self.column)?;
        }
        Ok(())
    }
}

// === impl PodManifest ===

impl PodManifest {
    /// What the pod selects besides its default network; empty without the annotation.
    pub fn selections(&self) -> &[npwg::Selection] {
        self.networks.as_ref().map_or(&[], |annotation| &annotation.selected)
    }
}

/// `NAMESPACE/NAME`.
impl fmt::Display for PodManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
#[path = "manifest/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "manifest/bad_tests.rs"]
mod bad_tests;
