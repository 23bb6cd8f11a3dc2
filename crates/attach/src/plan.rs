//! From what a pod asks for to what will be done: pure, and everything that can be wrong is found here.

use std::collections::BTreeMap;

use cni::{CniError, Code, IfName, NetworkList};
use json::Object;
use npwg::{Definition, DefinitionRef, Selection, SelectionErrors};
use plugin::Builtins;

use crate::admission::{self, Admission, InvalidAnnotation};
use crate::{Device, Devices, NodeOwn, Protection};

mod names;
mod resolve;

use names::interface_names;
pub use resolve::{
    MAX_DEFINITION, MAX_DESTINATIONS, MAX_HOST_PORTS, MAX_LEVELS, MAX_NETWORKS, MAX_NETWORKS_VALUES, MAX_PLUGINS, MAX_VALUES, network_of,
};
use resolve::{Resolved, Resolver, memory_of};

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
    /// Whether each of its attachments has a claim of its own ([`npwg::STICKY`]).
    pub sticky: bool,
    /// Whether it may have its claims' addresses while another pod has them ([`npwg::MIGRATION`]).
    pub migrates: bool,
}

/// A network that pods get without asking for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ImplicitNetwork {
    /// The network.
    pub list: NetworkList,
    /// The definition that it was read from, to which policy applies and whose resource it needs; `None` for a network of
    /// the node's own configuration.
    pub definition: Option<DefinitionRef>,
}

/// Where networks come from.
pub trait Networks {
    /// The cluster-wide default network; `None` where pods have none.
    fn default_network(&self) -> Option<&ImplicitNetwork>;

    /// The networks that every pod gets besides, in order; not those of system namespaces.
    fn every_pod(&self) -> &[ImplicitNetwork] {
        &[]
    }

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

/// What a controller has bound a selection to: a port of its own, whose network no definition describes.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The network of the port.
    pub list: NetworkList,
    /// The interface, where the selection names none.
    pub ifname: IfName,
    /// The resource of which the attachment must have a device, where it needs one.
    pub resource: Option<String>,
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
    /// What becomes of it if it gets an address that is the node's own.
    pub protection: Protection,
    /// Whether its configuration is a file of the node's, which says where the host's routes lead.
    pub is_on_disk: bool,
    /// The links of the host that its plugins may make, and that stay after its last pod: those of networks that pods get without asking.
    pub lasting: Vec<String>,
}

/// A pod's attachments, in order: the default network first (S46).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What is to be done, one after the other (S53).
    pub attachments: Vec<Planned>,
    /// What the pod asked for and does not get, although it starts.
    pub warnings: Vec<Refusal>,
    /// What it takes of the node's own, where that is only warned of.
    pub taken: Vec<Refusal>,
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

impl From<Refusal> for CniError {
    fn from(refusal: Refusal) -> Self {
        if refusal.what.is_empty() { refusal.error } else { refusal.error.within(refusal.what) }
    }
}

/// What a plan is made from. More may be needed one day: a caller names what it has, and takes the rest from [`PlanRequest::new`].
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    /// The pod.
    pub pod: &'a PodView,
    /// The default network's interface, unless the pod chooses another name.
    pub ifname: &'a IfName,
    /// The plugins that are built in: their keys tell which paths a definition names.
    pub builtins: Builtins,
    /// The devices that the kubelet gave the pod; `None` where nobody knows.
    pub devices: Option<&'a Devices>,
    /// `runtimeConfig` of the runtime, for the default network alone (S55). What none of its plugins declares is dropped, as
    /// libcni drops it.
    pub runtime_config: Option<&'a Object>,
    /// What the cluster's owner admits.
    pub admission: &'a Admission,
    /// What is the node's own, held against what the pod selects; `None`: nothing is.
    pub own: Option<&'a dyn NodeOwn>,
    /// What is bound already, by the numbers of the selections in the pod's annotation, from 0.
    pub bound: &'a BTreeMap<usize, Bound>,
}

/// Where no controller binds anything.
const NOTHING_BOUND: &BTreeMap<usize, Bound> = &BTreeMap::new();

/// Plans a pod's attachments.
///
/// # Errors
/// Every reason why it cannot be done, not only the first.
pub fn plan(asked: &PlanRequest, networks: &dyn Networks) -> Result<Plan, Vec<Refusal>> {
    let pod = asked.pod;
    let (mut refusals, mut warnings) = (Vec::new(), Vec::new());
    let mut invalid = |e: SelectionErrors| match asked.admission.invalid_annotation {
        InvalidAnnotation::Fail => refusals.push(Refusal { what: String::new(), error: e.into() }),
        InvalidAnnotation::Ignore => warnings.push(Refusal { what: "ignored".to_owned(), error: e.into() }),
    };
    let mut sources = vec![default_source(pod, networks, &mut invalid)];
    let mut selections = selections(pod, &mut invalid);
    for (number, bound) in asked.bound {
        if let Some(selection) = selections.get_mut(*number) {
            selection.interface.get_or_insert_with(|| bound.ifname.clone());
        }
    }
    let given = match asked.admission.system_namespaces.contains(&pod.namespace) {
        true => &[],
        false => networks.every_pod(),
    };
    sources.extend(given.iter().map(|_| Source::EveryPod));
    sources.extend(selections.into_iter().map(|s| Source::Selection(Box::new(s))));
    refusals.extend(second_default_route(&sources));
    let mut resolver = Resolver::new(asked, networks, &sources);
    let wanted = resolver.all(&sources, given, &mut refusals);
    let plan = Plan::named(wanted, asked.ifname, &[], refusals)?;
    Ok(Plan { warnings, taken: resolver.taken, ..plan })
}

fn default_source(pod: &PodView, networks: &dyn Networks, invalid: &mut dyn FnMut(SelectionErrors)) -> Source {
    let Some(text) = pod.default_network.as_deref().filter(|t| !t.trim().is_empty()) else { return Source::Default };
    match npwg::default_network(text, networks.system_namespace()) {
        Ok(selection) => Source::DefaultOf(Box::new(selection)),
        Err(e) => {
            invalid(e);
            Source::Default
        }
    }
}

fn selections(pod: &PodView, invalid: &mut dyn FnMut(SelectionErrors)) -> Vec<Selection> {
    match pod.networks.as_deref().map(|text| npwg::parse(text, &pod.namespace)) {
        None => Vec::new(),
        Some(Ok(mut selections)) => {
            if pod.sticky {
                npwg::stick(&pod.name, &mut selections);
            }
            selections.iter_mut().for_each(|selection| selection.migrates = pod.migrates);
            selections
        }
        Some(Err(e)) => {
            invalid(e);
            Vec::new()
        }
    }
}

/// Only one attachment has the default route of a family (S26), also where the default network's annotation is the other place.
fn second_default_route(sources: &[Source]) -> Option<Refusal> {
    let of = |source: &Source| source.selection()?.default_route.as_deref().map(npwg::default_routes);
    let (first, taken) = sources.iter().find_map(|source| Some((source, of(source)?))).filter(|(source, _)| source.is_default())?;
    let both = |other: [bool; 2]| taken.iter().zip(other).any(|(a, b)| *a && b);
    let second = sources.iter().filter(|source| !source.is_default()).find(|source| of(source).is_some_and(both))?;
    let msg = format!(
        "default-route: the default network {first} (annotation {}) has it already: only one attachment of a pod may have the default \
            route of a family",
        npwg::DEFAULT_NETWORK
    );
    Some(Refusal { what: format!("network {second}"), error: CniError::new(Code::INVALID_CONFIG, msg) })
}

// === impl PlanRequest ===

impl<'a> PlanRequest<'a> {
    /// Only the pod, the default network's interface and the plugins whose keys are known: no runtime says anything, and no rule restricts.
    pub fn new(pod: &'a PodView, ifname: &'a IfName, builtins: Builtins) -> Self {
        PlanRequest {
            pod,
            ifname,
            builtins,
            devices: None,
            runtime_config: None,
            admission: &admission::OPEN,
            own: None,
            bound: NOTHING_BOUND,
        }
    }
}

// === impl Plan ===

impl Plan {
    /// About how many bytes of memory it takes to attach this pod as planned.
    pub fn memory(&self, pod: &PodView) -> usize {
        let networks = self.attachments.iter().map(|planned| planned.list.source.as_slice());
        let annotations = pod.networks.iter().chain(&pod.default_network).map(String::as_bytes);
        networks.chain(annotations).map(memory_of).sum()
    }

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
        let resolved = |at: usize, list| Resolved { args: args(at), ..Resolved::of(list) };
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
            let Resolved { list, args, device, protection, is_on_disk, lasting } = resolved?;
            Some(Planned { source, list, ifname, capability_args: args, device, protection, is_on_disk, lasting })
        });
        Ok(Plan { attachments: attachments.collect(), ..Plan::default() })
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
