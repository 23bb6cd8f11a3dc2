//! A definition as the API server sends it, trimmed to [`npwg::Definition`].

use std::fmt;
use std::sync::Arc;

use npwg::{Definition, DefinitionRef};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::cache::Limit;

/// The longest `spec.config` that is kept, in bytes. A network's configuration is a few hundred; etcd takes 1.5 MB, and
/// a thousand such definitions would fill the agent.
pub const MAX_CONFIG: usize = 128 << 10;

/// What the configurations of all definitions may have together, in bytes: those of 16,000 usual ones. Of more the agent knows only
/// that they are there, and asks for each when a pod selects it.
const MOST: usize = 8 << 20;

/// A definition in the cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CachedDefinition {
    /// It is here.
    Whole(Arc<Definition>),
    /// It is there, and not here.
    There,
    /// It cannot be used.
    TooLarge(TooLarge),
}

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
    #[serde(rename = "openstack.org/kuryr-config")]
    kuryr: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenSpec {
    config: Option<SeenConfig>,
}

/// A configuration, or the length of one that is too large to be kept.
#[derive(Debug, Clone)]
enum SeenConfig {
    Text(String),
    Large(usize),
}

impl<'de> Deserialize<'de> for SeenConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Looks at the text before there is a copy of it.
        struct Measured;
        impl Visitor<'_> for Measured {
            type Value = SeenConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<SeenConfig, E> {
                Ok(if text.len() > MAX_CONFIG { SeenConfig::Large(text.len()) } else { SeenConfig::Text(text.to_owned()) })
            }
        }
        deserializer.deserialize_str(Measured)
    }
}

// === impl CachedDefinition ===

impl CachedDefinition {
    /// What the cache may keep of all.
    pub(crate) const LIMIT: Limit<CachedDefinition> = Limit {
        most: MOST,
        weight: |known| match known {
            CachedDefinition::Whole(definition) => definition.config.as_ref().map_or(0, String::len),
            CachedDefinition::There | CachedDefinition::TooLarge(_) => 0,
        },
        light: |known| match known {
            CachedDefinition::TooLarge(large) => CachedDefinition::TooLarge(large.clone()),
            CachedDefinition::Whole(_) | CachedDefinition::There => CachedDefinition::There,
        },
    };
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
        let config = match config {
            Some(SeenConfig::Large(size)) => return Err(TooLarge { definition: DefinitionRef { namespace, name }, size }),
            Some(SeenConfig::Text(text)) => Some(text),
            None => None,
        };
        let SeenAnnotations { resource_name, kuryr } = meta.annotations.unwrap_or_default();
        Ok(Definition { namespace, name, config, resource_name, is_neutron: kuryr.is_some() })
    }
}
