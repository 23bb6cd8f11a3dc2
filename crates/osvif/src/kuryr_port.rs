//! `KuryrPort`, group `openstack.org`, version `v1`: a pod's VIFs in an object of the pod's name and namespace.
//!
//! ```text
//!   spec          whose it is              the controller's, when it sees the pod
//!   status.vifs   VIFs by interface        the controller's: at first none, then all, then with `active`
//! ```
//!
//! The object has no status subresource: whoever may write it may write all of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fields::{self, Fields};
use crate::object::put;
use crate::{Problem, Reason, Vif};

/// The group and version of [`KuryrPort`].
pub const KURYR_PORT_VERSION: &str = "openstack.org/v1";

/// Where KuryrPorts are in the Kubernetes API: `/apis/openstack.org/v1/namespaces/NAMESPACE/kuryrports/NAME`.
pub mod crd {
    /// API group.
    pub const GROUP: &str = "openstack.org";
    /// Version in the group.
    pub const VERSION: &str = "v1";
    /// Kind of an object.
    pub const KIND: &str = "KuryrPort";
    /// Plural, as in a path.
    pub const PLURAL: &str = "kuryrports";
    /// Name of the custom resource definition itself.
    pub const NAME: &str = "kuryrports.openstack.org";
}

/// What keeps a KuryrPort until its ports are gone.
pub const PORT_FINALIZER: &str = "kuryr.openstack.org/kuryrport-finalizer";

/// The label with the node's name ([`node_label`]), by which a node's agent watches its own.
pub const NODE_LABEL: &str = "kuryr.openstack.org/nodeName";
/// The annotation that says why a pod has no VIFs yet. It is ours: Kuryr has none.
pub const REASON_ANNOTATION: &str = "netloom.io/reason";

/// What an object may take of memory, in bytes: some fifty VIFs.
pub const MAX_KURYR_PORT: usize = 512 << 10;

/// About what a value takes of memory, in bytes.
#[must_use]
pub fn memory_of(value: &Value) -> usize {
    /// A value in a list or an object.
    const ONE: usize = 64;
    let below = match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(memory_of).sum(),
        Value::Object(all) => all.iter().map(|(key, value)| ONE + key.len() + memory_of(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    ONE + below
}

/// The characters of a label's value at the most; a node's name has up to 253.
const LONGEST_LABEL: usize = 63;

/// The value of [`NODE_LABEL`] of a node's KuryrPorts: its name, or of a longer one the beginning and a digest (FNV-1a). Who reads it looks at
/// `podNodeName` as well.
#[must_use]
pub fn node_label(node: &str) -> String {
    if node.len() <= LONGEST_LABEL {
        return node.to_owned();
    }
    let digest = node.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let digest = format!("{digest:016x}");
    let beginning: String = node.chars().take(LONGEST_LABEL - 1 - digest.len()).collect();
    format!("{beginning}-{digest}")
}

/// A pod's ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KuryrPort {
    /// All of it is the API server's.
    pub metadata: Map<String, Value>,
    /// Whose it is.
    pub spec: KuryrPortSpec,
    /// What was made for it.
    pub status: KuryrPortStatus,
    /// Other keys of the object.
    pub rest: Map<String, Value>,
}

/// Whose ports they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KuryrPortSpec {
    /// The pod's UID.
    pub pod_uid: String,
    /// The node's name.
    pub pod_node_name: String,
    /// Whether it is a static pod, whose UID in a runtime's call is another one. Kuryr writes it since 2022.
    pub pod_static: Option<bool>,
    /// What else it has.
    pub rest: Map<String, Value>,
}

/// What was made for a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KuryrPortStatus {
    /// The VIFs, by the names of their interfaces.
    pub vifs: BTreeMap<String, PodVif>,
    /// The project of the ports. Kuryr's namespace drivers write it.
    pub project_id: Option<String>,
    /// What else it has.
    pub rest: Map<String, Value>,
}

/// A VIF in a KuryrPort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVif {
    /// Whether it is the pod's first interface.
    pub default: bool,
    /// The VIF; apart, because a map of one has room for eleven.
    pub vif: Box<Vif>,
    /// What else it has.
    pub rest: Map<String, Value>,
}

// === impl KuryrPort ===

impl KuryrPort {
    /// Reads an object.
    ///
    /// # Errors
    /// [`Problem`]: what is wrong, and where.
    pub fn read(value: Value) -> Result<Self, Problem> {
        let bytes = memory_of(&value);
        if bytes > MAX_KURYR_PORT {
            return Err(Problem::of(Reason::Large { bytes, most: MAX_KURYR_PORT }));
        }
        let mut object = Fields::of(value)?;
        // They are written again, and say nothing of this object.
        let (_version, _kind) = (object.optional("apiVersion", fields::text)?, object.optional("kind", fields::text)?);
        let metadata = object.optional("metadata", |value| Fields::of(value).map(Fields::rest))?.unwrap_or_default();
        let spec = object.required("spec", KuryrPortSpec::read)?;
        let status = object.optional("status", KuryrPortStatus::read)?.unwrap_or_default();
        Ok(KuryrPort { metadata, spec, status, rest: object.rest() })
    }

    /// What can be read of an object that [`KuryrPort::read`] refuses: whose it is, and each VIF that is readable by itself. None where it does not
    /// say whose it is.
    #[must_use]
    pub fn read_partly(value: &Value) -> Option<Self> {
        let spec = KuryrPortSpec::read(value.get("spec")?.clone()).ok()?;
        let metadata = value.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        let vifs = value.pointer("/status/vifs").and_then(Value::as_object).into_iter().flatten();
        let vifs = vifs.filter_map(|(interface, vif)| Some((interface.clone(), PodVif::read(vif.clone()).ok()?))).collect();
        let status = KuryrPortStatus { vifs, ..KuryrPortStatus::default() };
        Some(KuryrPort { metadata, spec, status, rest: Map::new() })
    }

    /// The object as it is written.
    #[must_use]
    pub fn write(self) -> Value {
        let KuryrPort { metadata, spec, status, mut rest } = self;
        put(&mut rest, "apiVersion", Some(KURYR_PORT_VERSION));
        put(&mut rest, "kind", Some("KuryrPort"));
        put(&mut rest, "metadata", Some(metadata));
        put(&mut rest, "spec", Some(spec.write()));
        put(&mut rest, "status", Some(status.write()));
        rest.into()
    }
}

// === impl KuryrPortSpec ===

impl KuryrPortSpec {
    fn read(value: Value) -> Result<Self, Problem> {
        let mut spec = Fields::of(value)?;
        Ok(KuryrPortSpec {
            pod_uid: spec.required("podUid", fields::text)?,
            pod_node_name: spec.required("podNodeName", fields::text)?,
            pod_static: spec.optional("podStatic", fields::flag)?,
            rest: spec.rest(),
        })
    }

    fn write(self) -> Map<String, Value> {
        let mut spec = self.rest;
        put(&mut spec, "podUid", Some(self.pod_uid));
        put(&mut spec, "podNodeName", Some(self.pod_node_name));
        put(&mut spec, "podStatic", self.pod_static);
        spec
    }
}

// === impl KuryrPortStatus ===

impl KuryrPortStatus {
    fn read(value: Value) -> Result<Self, Problem> {
        let mut status = Fields::of(value)?;
        let vifs = status.optional("vifs", |value| Ok(Fields::of(value)?.each(PodVif::read)?.collect()))?;
        let project_id = status.optional("projectId", fields::text)?;
        Ok(KuryrPortStatus { vifs: vifs.unwrap_or_default(), project_id, rest: status.rest() })
    }

    fn write(self) -> Map<String, Value> {
        let mut status = self.rest;
        let vifs: Map<String, Value> = self.vifs.into_iter().map(|(name, vif)| (name, vif.write())).collect();
        put(&mut status, "vifs", Some(vifs));
        put(&mut status, "projectId", self.project_id);
        status
    }
}

// === impl PodVif ===

impl PodVif {
    fn read(value: Value) -> Result<Self, Problem> {
        let mut fields = Fields::of(value)?;
        let (default, vif) = (fields.required("default", fields::flag)?, fields.required("vif", Vif::read)?);
        Ok(PodVif { default, vif: Box::new(vif), rest: fields.rest() })
    }

    fn write(self) -> Value {
        let mut data = self.rest;
        put(&mut data, "default", Some(self.default));
        put(&mut data, "vif", Some(self.vif.write()));
        data.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_object_that_is_refused_is_known_whose_it_is() {
        let vif: Value = serde_json::from_str(include_str!("../tests/captured/VIFOpenVSwitch.json")).unwrap_or_default();
        let good = serde_json::json!({"default": false, "vif": vif});
        let value = |spec: Value| {
            let vifs = serde_json::json!({"eth1": good, "eth2": {"default": 1}});
            let padding = "x".repeat(MAX_KURYR_PORT);
            serde_json::json!({"metadata": {"name": "web", "annotations": {"a": padding}}, "spec": spec, "status": {"vifs": vifs}})
        };
        let large = value(serde_json::json!({"podUid": "u", "podNodeName": "n"}));
        assert!(KuryrPort::read(large.clone()).is_err());
        let read = KuryrPort::read_partly(&large).map(|read| (read.spec.pod_uid, read.status.vifs.into_keys().collect::<Vec<_>>()));
        assert_eq!(read, Some(("u".to_owned(), vec!["eth1".to_owned()])));
        assert_eq!(KuryrPort::read_partly(&value(serde_json::json!({"podNodeName": "n"}))), None);
    }

    #[test]
    fn a_label_takes_the_name_of_every_node() {
        let long = format!("{}.example", "a".repeat(70));
        assert_eq!(node_label("node-1.example"), "node-1.example");
        let label = node_label(&long);
        assert_eq!((label.len(), &label[..47]), (63, format!("{}-", "a".repeat(46)).as_str()));
        assert_ne!(label, node_label(&format!("{long}2")));
    }
}
