//! What a definition may use: rules of the cluster's owner, held against a network before anything is touched.
//!
//! ```text
//!   the owner's rules --parse--> Policy
//!   a definition's network, whole chain --uses--> plugin types, host devices, sysctls
//!   Policy::check: every rule that concerns the pod's and the definition's namespace must allow all of them
//! ```
//!
//! A definition is written by whoever may write to a namespace, and its plugins run as root in the host's namespace. What
//! is read here must therefore be all that a plugin could read: every spelling of a key, every one of several equal keys.

use std::fmt;

use cni::{CniError, Code, NetworkList};
use npwg::DefinitionRef;

mod glob;
mod parse;
mod uses;

pub use glob::Glob;
pub use parse::PolicyError;
use uses::{Use, Uses};

/// What definitions may use. Without a rule: everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rules; each that concerns a network must allow it.
    pub rules: Vec<Rule>,
}

/// One rule: whom it concerns, and what it allows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it is called in refusals.
    pub name: String,
    /// Namespaces of the pods that it concerns.
    pub pod_namespaces: Vec<Glob>,
    /// Namespaces of the definitions that it concerns.
    pub definition_namespaces: Vec<Glob>,
    /// What is allowed.
    pub allow: Allow,
}

/// What a rule allows. A list that is not given restricts nothing; an empty one allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    /// Plugin types, those that others delegate to and those for addresses included.
    pub plugins: Option<Vec<Glob>>,
    /// Interfaces, bridges, hardware addresses, kernel paths and PCI addresses of the host.
    pub devices: Option<Vec<Glob>>,
    /// Sysctls, with dots between their parts.
    pub sysctls: Option<Vec<Glob>>,
    /// Namespaces of the definitions that pods may refer to; [`OWN`] stands for the pod's own.
    pub namespaces: Option<Vec<Glob>>,
}

/// What stands for the pod's own namespace in [`Allow::namespaces`]. No namespace can be called so.
pub const OWN: &str = "$pod";

/// A network that a policy is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The pod's namespace.
    pub pod_namespace: &'a str,
    /// The definition.
    pub definition: &'a DefinitionRef,
    /// Whether the pod refers to it; not if every pod gets it.
    pub is_selected: bool,
    /// Its network, with what the pod adds to the plugins' `args`.
    pub list: &'a NetworkList,
    /// A device that the pod names without anybody knowing whether it holds it.
    pub device: Option<&'a str>,
}

/// Why a plugin that is not known must be allowed by its very name.
const UNTOLD: &str = ", of which nobody knows what devices and sysctls it uses: the rule's \"plugins\" must list it without an asterisk";

/// Something that a rule does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy rule {rule:?}: {what}{}; allowed: {allowed}", if *.is_opaque { UNTOLD } else { "" })]
pub struct Forbidden {
    /// The rule's name.
    pub rule: String,
    /// What was asked for, and where.
    pub what: String,
    /// What is allowed instead.
    pub allowed: String,
    /// Whether it is refused because nobody knows what it uses.
    pub is_opaque: bool,
}

// === impl Forbidden ===

impl From<Forbidden> for CniError {
    /// Code 7.
    fn from(e: Forbidden) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string())
    }
}

// === impl Policy ===

impl Policy {
    /// Everything is allowed.
    pub const OPEN: Policy = Policy { rules: Vec::new() };

    /// How many refusals are told at the most; who has mended those may meet more.
    pub const MAX_FORBIDDEN: usize = 20;

    /// Whether every rule that concerns the network allows it.
    ///
    /// # Errors
    /// What is not allowed, the first [`Policy::MAX_FORBIDDEN`] of it.
    pub fn check(&self, case: &Case) -> Result<(), Vec<Forbidden>> {
        let mut rules = self.rules.iter().filter(|rule| rule.concerns(case)).peekable();
        if rules.peek().is_none() {
            return Ok(());
        }
        let mut uses = Uses::of(case.list);
        uses.add_device("deviceID", case.device);
        let forbidden: Vec<Forbidden> = rules.flat_map(|rule| rule.forbidden(case, &uses)).take(Self::MAX_FORBIDDEN).collect();
        if forbidden.is_empty() { Ok(()) } else { Err(forbidden) }
    }
}

// === impl Rule ===

impl Rule {
    fn concerns(&self, case: &Case) -> bool {
        let matches = |globs: &[Glob], namespace: &str| globs.iter().any(|glob| glob.matches(namespace));
        matches(&self.pod_namespaces, case.pod_namespace) && matches(&self.definition_namespaces, &case.definition.namespace)
    }

    fn forbidden(&self, case: &Case, uses: &Uses) -> Vec<Forbidden> {
        let Allow { plugins, devices, sysctls, namespaces } = &self.allow;
        let definition = case.definition;
        let refusal = |what, allowed: &[Glob], is_opaque| Forbidden { rule: self.name.clone(), what, allowed: listed(allowed), is_opaque };
        if let Some(allowed) = namespaces.as_deref().filter(|allowed| case.is_selected && !case.may_refer(allowed)) {
            // What a definition holds is not told to who may not refer to it.
            let what = format!("a pod of namespace {} refers to definition {definition}", case.pod_namespace);
            return vec![refusal(what, allowed, false)];
        }
        let mut forbidden = Vec::new();
        let held = [("plugin", &uses.plugins, plugins), ("host device", &uses.devices, devices), ("sysctl", &uses.sysctls, sysctls)];
        for (word, used, allowed) in held {
            let Some(allowed) = allowed else { continue };
            let not_allowed = used.iter().filter(|one| !matches_any(allowed, &one.what));
            forbidden.extend(not_allowed.map(|one| refusal(format!("definition {definition} uses the {word} {one}"), allowed, false)));
        }
        if devices.is_some() || sysctls.is_some() {
            let types = plugins.as_deref().unwrap_or_default();
            let not_listed = uses.opaque.iter().filter(|plugin| !types.iter().any(|glob| glob.as_str() == plugin.what));
            forbidden.extend(not_listed.map(|plugin| refusal(format!("definition {definition} uses the plugin {plugin}"), types, true)));
        }
        forbidden
    }
}

// === impl Case ===

impl Case<'_> {
    fn may_refer(&self, allowed: &[Glob]) -> bool {
        let own = self.definition.namespace == self.pod_namespace && allowed.iter().any(|glob| glob.as_str() == OWN);
        own || matches_any(allowed, &self.definition.namespace)
    }
}

fn matches_any(globs: &[Glob], text: &str) -> bool {
    globs.iter().any(|glob| glob.matches(text))
}

fn listed(globs: &[Glob]) -> String {
    let all: Vec<&str> = globs.iter().map(Glob::as_str).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a definition says may be long.
        let short: String = self.what.chars().take(80).collect();
        write!(f, "{short:?} ({})", self.place)
    }
}

#[cfg(test)]
mod tests;
