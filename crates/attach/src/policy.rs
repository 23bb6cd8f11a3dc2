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
//!
//! Without any rule a definition names no path of the host but the usual ones ([`plugin::Names`]), runs nothing of Netloom's own, and takes
//! nothing that is the node's own ([`NodeOwn`]).

use std::fmt;
use std::path::{Path, PathBuf};

use cni::{CniError, Code};
use json::Object;
use linux::file;
use npwg::DefinitionRef;

mod glob;
mod keys;
mod own;
mod parse;
mod ranges;
mod routed;
mod routed_pods;
mod uses;

pub use glob::Glob;
pub use own::{NodeOwn, Protection, lease_dirs, protected};
pub use parse::PolicyError;
pub use ranges::AddressRun;
pub use routed::{AddressSource, Parent, handed_out, source_of, taken_by_result};
pub use routed_pods::{Claim, RoutedPod, RoutedPods};
use uses::Use;
pub use uses::Uses;
pub(crate) use uses::links_of;

/// What definitions may use. Without a rule: every plugin, device and sysctl, and no path of the host but the usual ones.
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
    /// What becomes of a network that takes what is the node's own. `None`: other rules say it.
    pub protect: Option<Protection>,
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
    /// Paths of the host that configurations may name besides the usual ones: these, from the root, and what is below them once links
    /// are followed. Without any rule that says so, none.
    pub paths: Option<Vec<PathBuf>>,
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
    /// What its network uses, with what the pod adds to the plugins' `args`.
    pub uses: &'a Uses,
    /// A device that the pod names without anybody knowing whether it holds it.
    pub device: Option<&'a str>,
    /// The device that the kubelet gave the pod for it.
    pub granted: Option<&'a str>,
    /// Whether its configuration is a file of the node's, which names what paths it likes.
    pub is_on_disk: bool,
}

/// Why a plugin that is not known must be allowed by its very name.
const UNTOLD: &str = ", whose use of devices and sysctls is unknown: list it by name in the rule's \"plugins\"";

/// Something that a rule does not allow, or that needs one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// A rule does not allow it.
    #[error("policy rule {rule:?}: {what}{}; allowed: {allowed}", if *.is_opaque { UNTOLD } else { "" })]
    ByRule {
        /// The rule's name.
        rule: String,
        /// What was asked for, and where.
        what: String,
        /// What is allowed instead.
        allowed: String,
        /// Whether it is refused because nobody knows what it uses.
        is_opaque: bool,
    },
    /// A path that no rule allows.
    #[error(
        "{what}: only files on the node may name it; remove or change the key, or allow the path with a rule of the agent's \"policy\": {rule}"
    )]
    Path {
        /// What was asked for, and where.
        what: String,
        /// The rule that would allow it, as JSON.
        rule: String,
    },
    /// What is the node's own.
    #[error("{what}: the node's own resources are protected; allow it with a rule of the agent's \"policy\": {rule}")]
    Own {
        /// What was asked for, where, and whose it is.
        what: String,
        /// The rule that would allow it, as JSON.
        rule: String,
    },
    /// Netloom itself as a plugin: it would run outside the agent, with any keys that it has.
    #[error("{what}: it is Netloom itself or a name of it; select several networks in the pod's annotation instead")]
    Itself {
        /// What was asked for, and where.
        what: String,
    },
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
        let rules = || self.rules.iter().filter(|rule| rule.concerns(case));
        let without_a_rule = || {
            let uses = Some(case.uses).filter(|_| !case.is_on_disk);
            let itself = uses.into_iter().flat_map(|uses| &uses.itself);
            let itself = itself.map(|one| Forbidden::Itself { what: format!("definition {} uses the plugin {one}", case.definition) });
            let has_definitions_rule = rules().any(|rule| rule.allow.paths.is_some());
            let named = case.paths().iter().filter(move |_| !has_definitions_rule).map(|path| needs_rule(case, path));
            let has_rule = rules().any(|rule| rule.allow.paths.is_some() && !rule.is_of_definitions_alone());
            let asked = case.asked_paths(has_definitions_rule).filter(move |_| !has_rule).map(|path| needs_rule_of_pods(case, path));
            itself.chain(named).chain(asked)
        };
        // Who may not refer to a definition is not told what it holds.
        let hidden = rules().any(|rule| rule.hides(case));
        let by_rules = rules().flat_map(|rule| rule.forbidden(case));
        let all = by_rules.chain(without_a_rule().filter(|_| !hidden));
        let forbidden: Vec<Forbidden> = all.take(Self::MAX_FORBIDDEN).collect();
        if forbidden.is_empty() { Ok(()) } else { Err(forbidden) }
    }
}

fn needs_rule(case: &Case, path: &Use) -> Forbidden {
    let mut allow = Object::new();
    allow.set("paths", vec![path.what.clone()]);
    let mut rule = Object::new();
    rule.set("name", "paths");
    rule.set("definitionNamespaces", vec![case.definition.namespace.clone()]);
    rule.set("allow", allow);
    Forbidden::Path { what: format!("definition {} names the host's path {path}", case.definition), rule: json::compact(&rule) }
}

/// The same for what the pod's selection names: who may select a definition is not who writes it.
fn needs_rule_of_pods(case: &Case, path: &Use) -> Forbidden {
    let mut allow = Object::new();
    allow.set("paths", vec![path.what.clone()]);
    let mut rule = Object::new();
    rule.set("name", "paths");
    rule.set("podNamespaces", vec![case.pod_namespace.to_owned()]);
    rule.set("allow", allow);
    Forbidden::Path { what: format!("the pod's selection names the host's path {path}"), rule: json::compact(&rule) }
}

// === impl Rule ===

impl Rule {
    /// A rule that concerns every pod and every definition.
    pub fn of_all(name: impl Into<String>, allow: Allow) -> Self {
        let all = || vec![Glob::new("*")];
        Rule { name: name.into(), pod_namespaces: all(), definition_namespaces: all(), allow, protect: None }
    }

    fn concerns(&self, case: &Case) -> bool {
        let matches = |globs: &[Glob], namespace: &str| globs.iter().any(|glob| glob.matches(namespace));
        matches(&self.pod_namespaces, case.pod_namespace) && matches(&self.definition_namespaces, &case.definition.namespace)
    }

    /// Whether it trusts those who write some definitions, whoever selects them.
    fn is_of_definitions_alone(&self) -> bool {
        let is_all = |globs: &[Glob]| globs.iter().any(|glob| glob.as_str() == "*");
        is_all(&self.pod_namespaces) && !is_all(&self.definition_namespaces)
    }

    fn is_of_all_definitions(&self) -> bool {
        self.definition_namespaces.iter().any(|glob| glob.as_str() == "*")
    }

    fn forbidden(&self, case: &Case) -> Vec<Forbidden> {
        let Allow { plugins, devices, sysctls, namespaces, paths } = &self.allow;
        let (definition, uses) = (case.definition, case.uses);
        let refusal =
            |what, allowed: &[Glob], is_opaque| Forbidden::ByRule { rule: self.name.clone(), what, allowed: listed(allowed), is_opaque };
        if let Some(allowed) = namespaces.as_deref().filter(|_| self.hides(case)) {
            // What a definition holds is not told to who may not refer to it.
            let what = format!("a pod of namespace {} refers to definition {definition}", case.pod_namespace);
            return vec![refusal(what, allowed, false)];
        }
        let mut forbidden = Vec::new();
        let (named, none) = (case.named(), None);
        let held = [
            ("plugin", &uses.plugins, &none, plugins),
            ("host device", &uses.devices, &named, devices),
            ("sysctl", &uses.sysctls, &none, sysctls),
        ];
        for (word, used, more, allowed) in held {
            let Some(allowed) = allowed else { continue };
            let not_allowed = used.iter().chain(more).filter(|one| !matches_any(allowed, &one.what));
            forbidden.extend(not_allowed.map(|one| refusal(format!("definition {definition} uses the {word} {one}"), allowed, false)));
        }
        if devices.is_some() || sysctls.is_some() {
            let types = plugins.as_deref().unwrap_or_default();
            let not_listed = uses.opaque.iter().filter(|plugin| !types.iter().any(|glob| glob.as_str() == plugin.what));
            forbidden.extend(not_listed.map(|plugin| refusal(format!("definition {definition} uses the plugin {plugin}"), types, true)));
        }
        if let Some(allowed) = paths {
            let is_within = |path: &Path| allowed.iter().any(|dir| dir == Path::new("/") || file::is_within(path, dir));
            let is_outside = |path: &&Use| !is_within(Path::new(&path.what));
            let shown: Vec<Glob> = allowed.iter().map(|dir| Glob::new(dir.to_string_lossy())).collect();
            let named = case.paths().iter().filter(is_outside);
            let named = named.map(|path| format!("definition {definition} names the host's path {path}"));
            let asked = case.asked_paths(false).filter(|_| !self.is_of_definitions_alone()).filter(is_outside);
            let asked = asked.map(|path| format!("the pod's selection names the host's path {path}"));
            forbidden.extend(named.chain(asked).map(|what| refusal(what, &shown, false)));
        }
        forbidden
    }

    /// Whether the pod may not refer to the definition at all.
    fn hides(&self, case: &Case) -> bool {
        self.allow.namespaces.as_deref().is_some_and(|allowed| case.is_selected && !case.may_refer(allowed))
    }
}

// === impl Case ===

impl Case<'_> {
    /// The device that the pod names.
    fn named(&self) -> Option<Use> {
        self.device.map(|device| Use { what: device.to_owned(), place: "deviceID".to_owned() })
    }

    /// The devices that the pod takes from the node, in the words of who names them.
    fn taken(&self) -> Vec<&str> {
        let is_taker = self.uses.plugins.iter().any(|plugin| uses::TAKERS.contains(&plugin.what.as_str()));
        let of_pod = self.device.into_iter().chain(self.granted).filter(|_| is_taker);
        self.uses.taken.iter().map(|one| one.what.as_str()).chain(of_pod).collect()
    }

    /// The paths of the host that are looked at: a file of the node's names what it likes.
    fn paths(&self) -> &[Use] {
        if self.is_on_disk { &[] } else { &self.uses.paths }
    }

    /// Those that the pod's selection names, whoever has written the network; `all`: also those that are among [`Case::paths`], because a
    /// definition's plugins have `cni-args` in their configurations.
    fn asked_paths(&self, all: bool) -> impl Iterator<Item = &Use> {
        self.uses.asked_paths.iter().filter(move |path| all || self.is_on_disk || path.place == uses::DEVICE_ID)
    }

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
        let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        write!(f, "{:?} ({})", short(&self.what, 80), short(&self.place, Use::MAX_PLACE))
    }
}

#[cfg(test)]
pub(crate) mod tests;
