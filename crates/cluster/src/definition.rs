//! A definition as the API server sends it, trimmed to [`npwg::Definition`].

use npwg::{Definition, DefinitionRef};
use serde::Deserialize;

/// The longest `spec.config` that is kept, in bytes. A network's configuration is a few hundred; etcd takes 1.5 MB, and
/// a thousand such definitions would fill the agent.
pub const MAX_CONFIG: usize = 256 * 1024;

/// A definition whose `spec.config` is longer than [`MAX_CONFIG`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NetworkAttachmentDefinition {definition}: spec.config has {size} bytes, more than {MAX_CONFIG}: shorten it")]
pub struct TooLarge {
    /// Which definition.
    pub definition: DefinitionRef,
    /// Its `spec.config`'s length in bytes.
    pub size: usize,
}

/// What is read of a definition; the rest is skipped.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SeenDefinition {
    metadata: SeenMeta,
    #[serde(default)]
    spec: Option<SeenSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
    annotations: Option<SeenAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenAnnotations {
    #[serde(rename = "k8s.v1.cni.cncf.io/resourceName")]
    resource_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenSpec {
    config: Option<String>,
}

// === impl SeenDefinition ===

impl SeenDefinition {
    pub(crate) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }

    /// The definition, unless it is too large to be kept.
    pub(crate) fn checked(self) -> Result<Definition, TooLarge> {
        let (meta, config) = (self.metadata, self.spec.unwrap_or_default().config);
        let (namespace, name) = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
        match config.as_ref().map(String::len).filter(|size| *size > MAX_CONFIG) {
            Some(size) => Err(TooLarge { definition: DefinitionRef { namespace, name }, size }),
            None => Ok(Definition { namespace, name, config, resource_name: meta.annotations.unwrap_or_default().resource_name }),
        }
    }
}
