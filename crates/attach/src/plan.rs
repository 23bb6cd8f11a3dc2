//! From what a pod asks for to what will be done: pure, and everything that can be wrong is found here.

use cni::{CniError, Code, IfName, NetworkList};
use json::{Object, Value};
use npwg::{Definition, DefinitionRef, Selection};

use crate::device::Choice;
use crate::{Device, Devices};

/// What a pod says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, where there is one.
    pub uid: Option<String>,
    /// The annotation `k8s.v1.cni.cncf.io/networks`.
    pub networks: Option<String>,
    /// The annotation `v1.multus-cni.io/default-network`.
    pub default_network: Option<String>,
}

/// Where networks come from.
pub trait Networks {
    /// The cluster-wide default network; `None` where pods have none.
    fn default_network(&self) -> Option<&NetworkList>;

    /// The namespace of a default network that a pod names without one, as every implementation has it.
    fn system_namespace(&self) -> &str {
        "kube-system"
    }

    /// A definition (NetworkAttachmentDefinition).
    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition>;

    /// A network of this node's configuration directory, for a definition without a configuration of its own (S10).
    ///
    /// # Errors
    /// If there is none of that name, or it is bad.
    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError>;
}

/// Where an attachment comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The cluster-wide default network.
    Default,
    /// The pod's own choice of a default network.
    DefaultOf(Box<Selection>),
    /// An element of the pod's selections.
    Selection(Box<Selection>),
    /// A network that every pod gets besides its default network.
    EveryPod,
}

/// One attachment to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Why.
    pub source: Source,
    /// The network, with what the selection adds to its plugins' `args`.
    pub list: NetworkList,
    /// The interface inside the pod.
    pub ifname: IfName,
    /// `runtimeConfig` for plugins with the capability.
    pub capability_args: Object,
    /// The device that it gets, if any.
    pub device: Option<Device>,
}

/// A pod's attachments, in order: the default network first (S46).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What is to be done, one after the other (S53).
    pub attachments: Vec<Planned>,
}

/// Why a pod cannot be attached as it asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{error}", if what.is_empty() { String::new() } else { format!("{what}: ") })]
pub struct Refusal {
    /// Which network or selection; empty where the error says so itself.
    pub what: String,
    /// The reason, with the code that a runtime gets.
    pub error: CniError,
}

/// Plans a pod's attachments; `eth0` is the default network's interface unless the pod chooses another name. `devices` are
/// those that the kubelet gave the pod; `None` where nobody knows.
///
/// # Errors
/// Every reason why it cannot be done, not only the first.
pub fn plan(pod: &PodView, networks: &dyn Networks, devices: Option<&Devices>, first: &IfName) -> Result<Plan, Vec<Refusal>> {
    let mut refusals = Vec::new();
    let mut sources: Vec<Source> = default_source(pod, networks, &mut refusals).into_iter().collect();
    sources.extend(selections(pod, &mut refusals).into_iter().map(|s| Source::Selection(Box::new(s))));
    refusals.extend(second_default_route(&sources));
    let named = sources.iter().filter_map(Source::selection);
    let named = named.filter_map(|s| Some((resource(&s.definition, networks), s.device_id.as_deref()?)));
    let mut choice = Choice::new(devices, named);
    let mut wanted: Vec<(Source, Option<Resolved>)> = Vec::with_capacity(sources.len());
    for source in &sources {
        let resolved = match source.selection() {
            None => networks.default_network().map(|list| Resolved { list: list.clone(), args: Object::new(), device: None }),
            Some(selection) => resolve(selection, networks, &mut choice, &mut refusals),
        };
        wanted.push((source.clone(), resolved));
    }
    // Where pods have no default network, there is nothing to attach.
    wanted.retain(|(source, resolved)| resolved.is_some() || *source != Source::Default);
    Plan::named(wanted, first, &[], refusals)
}

/// A network that was found, and what the selection sends along.
struct Resolved {
    list: NetworkList,
    args: Object,
    device: Option<Device>,
}

fn default_source(pod: &PodView, networks: &dyn Networks, refusals: &mut Vec<Refusal>) -> Option<Source> {
    let Some(text) = pod.default_network.as_deref().filter(|t| !t.trim().is_empty()) else { return Some(Source::Default) };
    match npwg::default_network(text, networks.system_namespace()) {
        Ok(selection) => Some(Source::DefaultOf(Box::new(selection))),
        Err(e) => {
            refusals.push(Refusal { what: String::new(), error: e.into() });
            None
        }
    }
}

fn selections(pod: &PodView, refusals: &mut Vec<Refusal>) -> Vec<Selection> {
    match pod.networks.as_deref().map(|text| npwg::parse(text, &pod.namespace)) {
        None => Vec::new(),
        Some(Ok(selections)) => selections,
        Some(Err(e)) => {
            refusals.push(Refusal { what: String::new(), error: e.into() });
            Vec::new()
        }
    }
}

/// Only one attachment has the key `default-route` (S26), also where the default network's annotation is the other place.
fn second_default_route(sources: &[Source]) -> Option<Refusal> {
    let mut keyed = sources.iter().filter(|source| source.selection().is_some_and(|s| s.default_route.is_some()));
    let (first, second) = (keyed.next()?, keyed.next()?);
    let msg = format!(
        "default-route: the default network {first} (annotation {}) has it already: only one attachment of a pod may have this key",
        npwg::DEFAULT_NETWORK
    );
    Some(Refusal { what: format!("network {second}"), error: CniError::new(Code::INVALID_CONFIG, msg) })
}

/// The network that a selection means (S10), with the selection's demands checked (S20 and others) and put in.
fn resolve<'a>(
    selection: &Selection,
    networks: &'a dyn Networks,
    choice: &mut Choice<'a>,
    refusals: &mut Vec<Refusal>,
) -> Option<Resolved> {
    let mut refuse = |error: CniError| refusals.push(Refusal { what: format!("network {selection}"), error });
    let mut list = network(&selection.definition, networks).map_err(&mut refuse).ok()?;
    let device = choice.next(resource(&selection.definition, networks), selection.device_id.as_deref()).map_err(&mut refuse).ok()?;
    if let Err(missing) = selection.verify(&list) {
        // These name the selection themselves.
        refusals.extend(missing.into_iter().map(|m| Refusal { what: String::new(), error: m.into() }));
        return None;
    }
    list.set_in_plugins("args", |own| selection.args(own.and_then(Value::as_object)).map(Value::Object));
    let mut args = selection.runtime_config();
    if let Some(device) = &device {
        device.tell(&mut list, &mut args);
    }
    Some(Resolved { list, args, device })
}

/// The resource that a definition's attachments need a device of.
fn resource<'a>(reference: &DefinitionRef, networks: &'a dyn Networks) -> Option<&'a str> {
    networks.definition(reference)?.resource_name.as_deref().filter(|resource| !resource.is_empty())
}

fn network(reference: &DefinitionRef, networks: &dyn Networks) -> Result<NetworkList, CniError> {
    let Some(definition) = networks.definition(reference) else {
        let (name, namespace) = (&reference.name, &reference.namespace);
        let msg = format!("cannot find a network-attachment-definition ({name}) in namespace ({namespace})");
        return Err(CniError::new(Code::INVALID_CONFIG, msg));
    };
    match definition.network()? {
        Some(list) => Ok(list),
        None => networks.on_disk(&definition.name).map_err(|e| e.within("a definition without a config means a network of this node")),
    }
}

/// Requested names first, then `net1`, `net2`, ... by position, as every consumer expects; a number that somebody asked
/// for is passed over (S22, S31).
fn interface_names<'a>(
    wanted: impl Iterator<Item = &'a Source> + Clone,
    first: &IfName,
    others: &[IfName],
    refusals: &mut Vec<Refusal>,
) -> Vec<IfName> {
    let mut taken: Vec<String> = others.iter().map(ToString::to_string).chain(["lo".to_owned()]).collect();
    let mut names: Vec<Option<IfName>> = Vec::new();
    for source in wanted.clone() {
        let (requested, shown) = match source {
            Source::Default => (Some(first.clone()), String::new()),
            Source::DefaultOf(s) => (Some(s.interface.clone().unwrap_or_else(|| first.clone())), s.to_string()),
            Source::Selection(s) => (s.interface.clone(), s.to_string()),
            Source::EveryPod => (None, String::new()),
        };
        if let Some(name) = &requested {
            if taken.iter().any(|t| t == name.as_str()) {
                let msg = format!("interface: {name} is taken by another interface of the pod; choose another name");
                refusals.push(Refusal { what: format!("network {shown}"), error: CniError::new(Code::INVALID_CONFIG, msg) });
            }
            taken.push(name.to_string());
        }
        names.push(requested);
    }
    // The default network, where there is one, is number 0.
    let offset = usize::from(!wanted.clone().next().is_some_and(Source::is_default));
    let mut named = Vec::with_capacity(names.len());
    for (position, name) in names.into_iter().enumerate() {
        let mut number = position + offset;
        let name = name.or_else(|| {
            loop {
                let candidate = format!("net{number}");
                if !taken.contains(&candidate) {
                    taken.push(candidate.clone());
                    break IfName::parse(&candidate).ok();
                }
                number += 1;
            }
        });
        named.extend(name);
    }
    named
}

// === impl Plan ===

impl Plan {
    /// The same for every pod: the first network is the default network, and gets the runtime's `runtimeConfig` (S55). The
    /// others get names that are not `taken`, as those of a container's other sandboxes are.
    ///
    /// # Errors
    /// [`Refusal`], as of [`plan`].
    pub fn of_every_pod(
        networks: Vec<NetworkList>,
        first: &IfName,
        taken: &[IfName],
        runtime_config: Object,
    ) -> Result<Plan, Vec<Refusal>> {
        let source = |at: usize| if at == 0 { Source::Default } else { Source::EveryPod };
        let args = |at: usize| if at == 0 { runtime_config.clone() } else { Object::new() };
        let resolved = |at: usize, list| Resolved { list, args: args(at), device: None };
        let wanted = networks.into_iter().enumerate().map(|(at, list)| (source(at), Some(resolved(at, list))));
        Plan::named(wanted.collect(), first, taken, Vec::new())
    }

    fn named(
        wanted: Vec<(Source, Option<Resolved>)>,
        first: &IfName,
        taken: &[IfName],
        mut refusals: Vec<Refusal>,
    ) -> Result<Plan, Vec<Refusal>> {
        let names = interface_names(wanted.iter().map(|(source, _)| source), first, taken, &mut refusals);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let attachments = wanted.into_iter().zip(names).filter_map(|((source, resolved), ifname)| {
            let Resolved { list, args, device } = resolved?;
            Some(Planned { source, list, ifname, capability_args: args, device })
        });
        Ok(Plan { attachments: attachments.collect() })
    }
}

// === impl Source ===

impl Source {
    /// The selection behind it, if the pod chose it.
    pub fn selection(&self) -> Option<&Selection> {
        match self {
            Source::Default | Source::EveryPod => None,
            Source::DefaultOf(s) | Source::Selection(s) => Some(s),
        }
    }

    /// Whether it is the pod's default network.
    pub fn is_default(&self) -> bool {
        matches!(self, Source::Default | Source::DefaultOf(_))
    }
}

// === impl Planned ===

impl Planned {
    /// What the attachment is called in status and messages: the definition, or the default network's own name.
    pub fn name(&self) -> String {
        match self.source.selection() {
            Some(selection) => selection.definition.to_string(),
            None => self.list.name.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
