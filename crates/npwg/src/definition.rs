//! What a pod can be attached to: the NetworkAttachmentDefinition (S6 to S12).

use std::fmt;

use cni::{ConfigError, NetworkList, NetworkName};

use crate::{NameProblem, NameRule};

/// The annotation of a definition that names the device resource which its attachments need; not in the standard,
/// but read by Multus and by the resource injectors.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

/// The annotation of a definition whose attachments are ports of OpenStack's Neutron, which a controller makes and binds; Kuryr's.
pub const KURYR_CONFIG: &str = "openstack.org/kuryr-config";

/// How the API server knows definitions (S6).
pub mod crd {
    /// API group.
    pub const GROUP: &str = "k8s.cni.cncf.io";
    /// Version in the group.
    pub const VERSION: &str = "v1";
    /// Group and version, as `apiVersion` has them.
    pub const API_VERSION: &str = "k8s.cni.cncf.io/v1";
    /// Kind of an object.
    pub const KIND: &str = "NetworkAttachmentDefinition";
    /// Plural, as in a path.
    pub const PLURAL: &str = "network-attachment-definitions";
    /// Singular.
    pub const SINGULAR: &str = "network-attachment-definition";
    /// Short names, for `kubectl`: the standard's, and the one that Multus adds.
    pub const SHORT_NAMES: [&str; 2] = ["net-attach-def", "nad"];
    /// Name of the custom resource definition itself.
    pub const NAME: &str = "network-attachment-definitions.k8s.cni.cncf.io";
}

/// Which definition: a namespace and a name in it (S9). Shown as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DefinitionRef {
    /// The definition's namespace.
    pub namespace: String,
    /// The definition's name.
    pub name: String,
}

/// A NetworkAttachmentDefinition, less what Kubernetes adds to every object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.config`: a CNI configuration or configuration list as JSON text (S7).
    pub config: Option<String>,
    /// The value of its annotation [`RESOURCE_NAME`].
    pub resource_name: Option<String>,
    /// Whether it has the annotation [`KURYR_CONFIG`].
    pub is_neutron: bool,
}

/// A definition that names no usable network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Its namespace or name breaks the rules (S9).
    #[error("NetworkAttachmentDefinition {definition}: {problem}")]
    Name {
        /// Which definition.
        definition: DefinitionRef,
        /// Why.
        problem: NameProblem,
    },
    /// `spec.config` is no CNI configuration.
    #[error("NetworkAttachmentDefinition {definition}: spec.config: {problem}")]
    Config {
        /// Which definition.
        definition: DefinitionRef,
        /// Why.
        problem: ConfigError,
    },
    /// `spec.config` is an object that names no plugin.
    #[error(
        "NetworkAttachmentDefinition {0}: spec.config names no plugin: set \"type\", or \"plugins\" with at least one element; remove \
            spec.config to use the node's network of that name"
    )]
    NoPlugin(DefinitionRef),
}

// === impl DefinitionRef ===

impl DefinitionRef {
    /// A checked reference.
    ///
    /// # Errors
    /// [`NameProblem`] that says what to write instead.
    pub fn new(namespace: &str, name: &str) -> Result<Self, NameProblem> {
        NameRule::Namespace.check(namespace)?;
        NameRule::Definition.check(name)?;
        Ok(DefinitionRef { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Reads `name` or `namespace/name` (S9); without a namespace it is `namespace`.
    ///
    /// # Errors
    /// [`NameProblem`] that says what to write instead.
    pub fn parse(text: &str, namespace: &str) -> Result<Self, NameProblem> {
        match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Self::new(namespace, text),
        }
    }
}

impl fmt::Display for DefinitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Definition ===

impl Definition {
    /// How others refer to it.
    pub fn reference(&self) -> DefinitionRef {
        DefinitionRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The network that `spec.config` describes. A configuration without a name gets the definition's (S11); one
    /// with another name keeps it (S12). `None` without `spec.config`, or with a blank one: then a configuration on
    /// disk is meant whose own name is the definition's (S10), which the caller looks up.
    ///
    /// # Errors
    /// [`DefinitionError`] naming the definition and the key.
    pub fn network(&self) -> Result<Option<NetworkList>, DefinitionError> {
        self.check()?;
        let Some(config) = self.config.as_deref().filter(|_| self.has_config()) else { return Ok(None) };
        let refused = |problem| DefinitionError::Config { definition: self.reference(), problem };
        let name = NetworkName::parse(&self.name).map_err(|e| refused(e.into()))?;
        let mut list = NetworkList::parse(config.as_bytes(), Some(&name)).map_err(refused)?;
        // A device, a path on the host: runtime and pod say that of an attachment, and not who wrote the network.
        list.remove_from_plugins("runtimeConfig");
        // A list on disk may get its plugins from files beside it; a definition has no such place.
        if list.plugins.is_empty() {
            return Err(DefinitionError::NoPlugin(self.reference()));
        }
        Ok(Some(list))
    }

    /// Whether it holds a configuration: without one it means a network of the node (S10).
    pub fn has_config(&self) -> bool {
        self.config.as_deref().is_some_and(|text| !text.trim().is_empty())
    }

    /// Whether namespace and name are what the API server and the standard accept (S9).
    ///
    /// # Errors
    /// [`DefinitionError::Name`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        let refused = |problem| DefinitionError::Name { definition: self.reference(), problem };
        DefinitionRef::new(&self.namespace, &self.name).map(|_| ()).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, config: Option<&str>) -> Definition {
        Definition {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            config: config.map(str::to_owned),
            resource_name: None,
            is_neutron: false,
        }
    }

    #[test]
    fn s6_the_crd_has_the_standards_names() {
        assert_eq!(crd::NAME, "network-attachment-definitions.k8s.cni.cncf.io");
        assert_eq!(crd::NAME, format!("{}.{}", crd::PLURAL, crd::GROUP));
        assert_eq!((crd::API_VERSION, crd::KIND), ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"));
        assert_eq!(crd::API_VERSION, format!("{}/{}", crd::GROUP, crd::VERSION));
        assert_eq!((crd::SINGULAR, crd::SHORT_NAMES[0]), ("network-attachment-definition", "net-attach-def"));
    }

    #[test]
    fn s7_config_is_a_configuration_or_a_list() {
        let single = definition("a", Some(r#"{"cniVersion":"1.0.0","name":"n","type":"macvlan"}"#)).network().unwrap().unwrap();
        assert_eq!((single.name.as_str(), single.plugins.len()), ("n", 1));
        let list = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#;
        assert_eq!(definition("a", Some(list)).network().unwrap().unwrap().plugins.len(), 2);
    }

    #[test]
    fn what_is_the_runtimes_to_say_does_not_come_from_a_definition() {
        let config = r#"{"cniVersion":"1.0.0","type":"a","runtimeConfig":{"CNIDeviceInfoFile":"/etc/x"}}"#;
        let list = definition("n", Some(config)).network().unwrap().unwrap();
        assert!(!String::from_utf8(list.source).unwrap().contains("/etc/x"));
        assert!(list.plugins.iter().all(|plugin| plugin.raw().get("runtimeConfig").is_none()));
    }

    #[test]
    fn s10_no_config_means_a_network_on_disk() {
        for config in [None, Some(""), Some(" \n")] {
            assert_eq!(definition("a", config).network(), Ok(None));
        }
    }

    #[test]
    fn s10_a_config_that_is_present_counts_even_if_it_is_bad() {
        for bad in [
            "{",
            "[]",
            "7",
            "{}",
            r#"{"plugins":[]}"#,
            r#"{"type":"../x"}"#,
            r#"{"type":"x","cniVersion":"9.9.9"}"#,
            r#"{"cniVersion":"1.0.0"}"#,
        ] {
            let e = definition("a", Some(bad)).network().unwrap_err().to_string();
            assert!(e.starts_with("NetworkAttachmentDefinition default/a: spec.config"), "{bad}: {e}");
        }
        assert_eq!(definition("a", Some("{}")).network(), Err(DefinitionError::NoPlugin(definition("a", None).reference())));
    }

    #[test]
    fn s11_a_missing_name_is_the_definitions() {
        for config in
            [r#"{"cniVersion":"1.0.0","type":"x"}"#, r#"{"cniVersion":"1.0.0","plugins":[{"type":"x"}]}"#, r#"{"name":"","type":"x"}"#]
        {
            let list = definition("storage", Some(config)).network().unwrap().unwrap();
            assert_eq!(list.name.as_str(), "storage");
            assert!(String::from_utf8(list.source).unwrap().contains(r#""name":"storage""#));
        }
    }

    #[test]
    fn s12_another_name_is_kept() {
        let list = definition("storage", Some(r#"{"name":"own","type":"x"}"#)).network().unwrap().unwrap();
        assert_eq!(list.name.as_str(), "own");
    }

    #[test]
    fn s9_references() {
        assert_eq!(DefinitionRef::parse("net", "blue").unwrap().to_string(), "blue/net");
        assert_eq!(DefinitionRef::parse("red/net", "blue").unwrap().to_string(), "red/net");
        for bad in ["", "/", "a/", "/a", "a/b/c", "A/b", "a/B", "../a"] {
            assert!(DefinitionRef::parse(bad, "blue").is_err(), "{bad}");
        }
        assert!(matches!(definition("../x", Some(r#"{"type":"x"}"#)).network(), Err(DefinitionError::Name { .. })));
    }
}
