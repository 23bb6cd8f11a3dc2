//! What a cluster's owner admits: which definitions a pod may refer to, what those may use, and what becomes of an
//! annotation that is invalid.

use cni::{CniError, Code, NetworkList};
use npwg::DefinitionRef;
use plugin::Builtins;

use crate::{Policy, Uses};

/// The decisions of a cluster's owner that a plan is made under. Without any, everything is admitted and nothing ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// Whose definitions a pod may select; `None`: everybody's.
    pub isolation: Option<Isolation>,
    /// What definitions may use.
    pub policy: Policy,
    /// What becomes of an annotation that breaks the standard's rules.
    pub invalid_annotation: InvalidAnnotation,
    /// Namespaces whose pods get none of the networks that every pod gets besides its default network.
    pub system_namespaces: Vec<String>,
    /// Whether an executable runs in the place of a plugin of its name that is built in. Every text that looks like a path needs a rule then.
    pub executables_first: bool,
}

/// What becomes of an annotation that breaks the standard's rules (S18 to S28).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InvalidAnnotation {
    /// The pod fails, and is told element and key.
    #[default]
    Fail,
    /// The standard's behaviour: the annotation counts as not given, with a warning in the plan.
    Ignore,
}

/// A pod selects definitions of its own namespace and of the global ones only (S54), as with Multus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// Namespaces whose definitions everybody may select.
    pub global_namespaces: Vec<String>,
}

/// Nothing refused, nothing ignored.
pub(crate) static OPEN: Admission = Admission {
    isolation: None,
    policy: Policy::OPEN,
    invalid_annotation: InvalidAnnotation::Fail,
    system_namespaces: Vec::new(),
    executables_first: false,
};

// === impl Admission ===

impl Admission {
    /// What a network uses, as far as its configuration and that of all its plugins tells. `builtins`: the plugins whose keys are known.
    pub fn uses(&self, list: &NetworkList, builtins: Builtins) -> Uses {
        let uses = Uses::of(list, builtins);
        if self.executables_first { uses.by_executables(list, builtins) } else { uses }
    }
}

// === impl Isolation ===

impl Default for Isolation {
    /// As Multus has it: the definitions of the namespace `default` are everybody's.
    fn default() -> Self {
        Isolation { global_namespaces: vec!["default".to_owned()] }
    }
}

impl Isolation {
    /// Whether a pod of `namespace` may select `definition`. What the definition is, and whether it is there, is not told
    /// to who may not.
    ///
    /// # Errors
    /// Code 7 with Multus's words, for which runbooks search.
    pub fn check(&self, namespace: &str, definition: &DefinitionRef) -> Result<(), CniError> {
        let target = &definition.namespace;
        if target == namespace || self.global_namespaces.contains(target) {
            return Ok(());
        }
        let msg = format!(
            "namespace isolation enabled, annotation violates permission, pod is in namespace {namespace} but refers to target namespace \
             {target}"
        );
        Err(CniError::new(Code::INVALID_CONFIG, msg))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s54_own_and_global_namespaces_may_be_selected() {
        let check = |global: &[&str], target: &str| {
            let isolation = Isolation { global_namespaces: global.iter().map(|&n| n.to_owned()).collect() };
            isolation.check("a", &DefinitionRef::new(target, "n").unwrap()).map_err(|e| (e.code, e.msg))
        };
        let refused = "namespace isolation enabled, annotation violates permission, pod is in namespace a but refers to target namespace \
                       default";
        assert_eq!(check(&[], "default"), Err((Code::INVALID_CONFIG, refused.to_owned())));
        assert_eq!((check(&[], "a"), check(&["default", "infra"], "infra")), (Ok(()), Ok(())));
        // Those that are given replace "default".
        assert!(check(&["infra"], "default").is_err());
        assert_eq!(Isolation::default().check("a", &DefinitionRef::new("default", "n").unwrap()), Ok(()));
    }
}
