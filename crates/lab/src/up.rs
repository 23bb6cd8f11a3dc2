//! `lab up`: from manifests to attached namespaces.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attach::{Attacher, ImplicitNetwork, Plan, PlanRequest, Refusal};
use between::{Mode, Tunnel};
use chain::Chain;
use cni::{CniError, Code, IfName, NetworkList};
use linux::Inside;
use linux::wireguard::WireGuard;
use npwg::Definition;
use objects::Store;
use plugin::{Finder, Prefer};
use plugins::BUILTINS;
use serde_json::Value;

use crate::error::StateError;
use crate::labs::{LabName, Labs};
use crate::manifest::{ContainerPort, Manifests, PodManifest};
use crate::network::LabNetworks;
use crate::node;
use crate::node_agent;
use crate::running::Running;
use crate::state::{Lab, Node, NodeName, Pod, PortMapping};
use crate::store;
use crate::switch;
use crate::underlay;
use crate::wire;

/// What a lab is built from, besides its manifests.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The network that pods get first.
    pub default_network: DefaultNetwork,
    /// Where definitions without a configuration are looked for, in order.
    pub conf_dirs: Vec<PathBuf>,
    /// Where plugins that are not built in are looked for, in order.
    pub cni_path: Vec<PathBuf>,
}

/// The network that pods get first.
#[derive(Debug, Clone, PartialEq)]
pub enum DefaultNetwork {
    /// The cluster's own, which each node's agent provides: how packets get from node to node.
    Cluster(Mode),
    /// None: pods have only what they select.
    None,
    /// This one, on every node.
    Given(Box<NetworkList>),
}

/// What happens while a lab is built.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Namespaces of wires and nodes are being made.
    Building {
        /// How many nodes.
        nodes: usize,
        /// How many pods follow.
        pods: usize,
    },
    /// Something keeps packets from a node, or from a range.
    Problem(&'a str),
    /// A pod has its attachments, or has not.
    Pod {
        /// Which one.
        pod: &'a Pod,
        /// How long it took.
        took: Duration,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The lab, with the failures of its pods.
    pub lab: Lab,
    /// What the nodes' agents left with the pods: network-status, Events.
    pub store: Store,
}

/// A lab that could not be built at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// Its state could not be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// Wires or nodes could not be built; nothing is left of them.
    #[error("{0}")]
    Build(CniError),
    /// Nor could all that was begun be removed again.
    #[error("{error}; and not everything could be removed again: {left}; fix the cause and run `netloom lab down --name {lab}`")]
    Left {
        /// The lab.
        lab: LabName,
        /// What failed first.
        error: Box<UpError>,
        /// What was left.
        left: String,
    },
}

/// One pod of a dry run.
#[derive(Debug)]
pub struct PlannedPod {
    /// The pod.
    pub pod: Pod,
    /// What would be done, or every reason why not.
    pub plan: Result<Plan, Vec<Refusal>>,
}

// === impl DefaultNetwork ===

impl DefaultNetwork {
    /// Whether WireGuard carries packets between some nodes.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self, DefaultNetwork::Cluster(mode) if mode.tunnel() == Some(Tunnel::WireGuard))
    }

    /// Refuses what the kernel cannot do, before anything is built.
    fn must_be_possible(&self) -> Result<(), UpError> {
        if !self.has_keys() {
            return Ok(());
        }
        let opened = WireGuard::open(&Inside::here()).map(drop);
        opened.map_err(|e| UpError::Build(CniError::new(Code::INVALID_CONFIG, format!("cannot build the network between nodes: {e}"))))
    }
}

// === impl Outcome ===

impl Outcome {
    /// How many pods could not be attached.
    pub fn failed(&self) -> usize {
        self.lab.pods.iter().filter(|p| p.failure.is_some()).count()
    }

    /// What the nodes' agents warn of in Events, less what is a pod's failure: pod (`namespace/name`) and warning.
    pub fn warnings(&self) -> Vec<(String, String)> {
        let is_failure = |pod: &str, what: &str| self.lab.pods.iter().any(|p| p.full_name() == pod && p.failure.as_deref() == Some(what));
        node_agent::warnings(&self.store).into_iter().filter(|(pod, what)| !is_failure(pod, what)).collect()
    }
}

/// A plan for each pod, or why there is none.
pub(crate) type Plans = Vec<Result<Plan, Vec<Refusal>>>;

/// Everything that is decided before anything is built.
pub(crate) struct Design {
    pub(crate) lab: Lab,
    /// Of all pods, also of those that are there.
    pub(crate) plans: Plans,
    /// What agents are to know.
    pub(crate) objects: Vec<Value>,
}

/// What [`up`] would do; nothing is built.
///
/// # Errors
/// [`UpError`] if not even that can be said.
pub fn dry_run(labs: &Labs, name: &LabName, manifests: &Manifests, setup: &Setup) -> Result<Vec<PlannedPod>, UpError> {
    let Design { lab, plans, .. } = design(labs.blank(name), manifests, setup)?;
    let pods = lab.pods.iter().zip(plans);
    Ok(pods.map(|(pod, plan)| PlannedPod { pod: pod.clone(), plan: plan.and_then(|plan| with_plugins(&lab, pod, plan)) }).collect())
}

/// A plan whose plugins are all there.
fn with_plugins(lab: &Lab, pod: &Pod, plan: Plan) -> Result<Plan, Vec<Refusal>> {
    let refusal = |e: attach::AddError| Refusal { what: format!("network {}", e.network), error: e.error };
    match attacher(lab, &pod.node).verify(&plan) {
        Ok(()) => Ok(plan),
        Err(errors) => Err(errors.into_iter().map(refusal).collect()),
    }
}

/// Builds a lab. A pod that cannot be attached is left without networks and says why; the others stay up.
///
/// # Errors
/// [`UpError`] if the lab could not be built at all; nothing is left of it then.
pub fn up(
    labs: &Labs,
    name: &LabName,
    manifests: &Manifests,
    setup: &Setup,
    tell: &mut (dyn FnMut(Event<'_>) + Send),
) -> Result<Running, UpError> {
    let _lock = labs.lock(name)?;
    let design = begin(labs, name, manifests, setup).inspect_err(|_| labs.forget_lock(name))?;
    tell(Event::Building { nodes: design.lab.nodes.len(), pods: design.lab.pods.len() });
    let mut running = Running::new(labs, name, setup);
    let pools = design.lab.write_pools(&manifests.pools).map_err(UpError::from);
    if let Err(e) = pools.and_then(|()| running.grow_to(design, tell)) {
        return Err(match crate::down::undo(labs, &running.outcome.lab) {
            Ok(()) => e,
            Err(left) => UpError::Left { lab: name.clone(), error: Box::new(e), left },
        });
    }
    Ok(running)
}

/// Decides everything and writes it down before anything is built: `down` finds it, whenever this process ends.
fn begin(labs: &Labs, name: &LabName, manifests: &Manifests, setup: &Setup) -> Result<Design, UpError> {
    labs.must_not_be(name)?;
    setup.default_network.must_be_possible()?;
    let design = design(labs.blank(name), manifests, setup)?;
    let lab = &design.lab;
    for pod in &lab.pods {
        lab.sandbox(pod)?;
    }
    must_be_free(&lab.all_netns())?;
    lab.begin()?;
    Ok(design)
}

/// None of these namespaces is there.
pub(crate) fn must_be_free(paths: &[PathBuf]) -> Result<(), UpError> {
    let there: Vec<String> = paths
        .iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .filter_map(|path| path.file_name().map(|n| n.to_string_lossy().into_owned()))
        .collect();
    if there.is_empty() { Ok(()) } else { Err(StateError::Taken { there }.into()) }
}

/// A lab as manifests want it, from the one that is there, which may be blank. What is there stays as it is, but for the ranges of nodes.
pub(crate) fn design(there: Lab, manifests: &Manifests, setup: &Setup) -> Result<Design, UpError> {
    let mut lab = there;
    let names = node::names(&lab.nodes, &manifests.nodes, &manifests.pods);
    lab.pods = pods(manifests, &lab.pods, &names);
    lab.zones = underlay::zones(&lab.zones, &manifests.nodes);
    lab.nodes = node::all(&names, &lab.nodes, &lab.zones, &manifests.nodes, &lab.pods);
    underlay::check(&lab).map_err(UpError::Build)?;
    lab.cni_path = setup.cni_path.clone();
    let definitions: BTreeMap<String, Definition> =
        manifests.definitions.iter().map(|d| (d.definition.reference().to_string(), d.definition.clone())).collect();
    let mut plans = Vec::with_capacity(lab.pods.len());
    let first = IfName::parse("eth0").map_err(|e| UpError::Build(e.into()))?;
    let admission = node_agent::admission();
    for pod in &lab.pods {
        let networks = networks(lab.node(&pod.node), &definitions, setup).map_err(UpError::Build)?;
        // No kubelet gave the pods of a lab any device.
        let sent = pod.runtime_config().and_then(|sent| json::parse(sent.to_string().as_bytes()).ok());
        let view = pod.view();
        let asked = PlanRequest {
            admission: &admission,
            runtime_config: sent.as_ref().and_then(json::Value::as_object),
            ..PlanRequest::new(&view, &first, BUILTINS)
        };
        plans.push(attach::plan(&asked, &networks));
    }
    wire::refuse(&mut plans, |list| wire::clash(list).or_else(|| switch::refusal(list)));
    let more: Vec<String> = switch::bridges(&plans).into_iter().filter(|name| !lab.bridges.contains(name)).collect();
    lab.bridges.extend(more);
    let uplinks = (0..lab.bridges.len()).map(switch::uplink);
    let more: Vec<String> = wire::names(&plans).into_iter().chain(uplinks).filter(|name| !lab.wires.contains(name)).collect();
    lab.wires.extend(more);
    let place: BTreeMap<String, String> = lab.pods.iter().map(|pod| (pod.full_name(), pod.node.clone())).collect();
    let objects = store::objects(manifests, &lab.nodes, |pod| place.get(&pod.to_string()).cloned().unwrap_or_default());
    Ok(Design { lab, plans, objects })
}

/// All pods: those that are there, as they are unless they could not be attached; then the new ones. Those without a node go to the nodes in
/// turn.
fn pods(manifests: &Manifests, there: &[Pod], nodes: &[String]) -> Vec<Pod> {
    let mut turn = nodes.iter().cycle();
    let is_of = |pod: &Pod, m: &PodManifest| pod.namespace == m.namespace && pod.name == m.name;
    let planned = |m: &PodManifest, node: NodeName| Pod {
        namespace: m.namespace.clone(),
        name: m.name.clone(),
        node,
        networks: m.networks.as_ref().map(|a| a.text.clone()),
        default_network: m.default_network.as_ref().map(|a| a.text.clone()),
        port_mappings: m.ports.iter().filter_map(port_mapping).collect(),
        failure: None,
    };
    let old = |pod: &Pod| match manifests.pods.iter().find(|m| pod.failure.is_some() && is_of(pod, m)) {
        Some(manifest) => planned(manifest, pod.node.clone()),
        None => pod.clone(),
    };
    let mut all: Vec<Pod> = there.iter().map(old).collect();
    for manifest in manifests.pods.iter().filter(|m| !there.iter().any(|pod| is_of(pod, m))) {
        all.push(planned(manifest, node::of(manifest, nodes, &mut turn).unwrap_or_default()));
    }
    all
}

fn port_mapping(port: &ContainerPort) -> Option<PortMapping> {
    let protocol = port.protocol.to_string();
    Some(PortMapping { host_port: port.host_port?, container_port: port.container_port, protocol, host_ip: port.host_ip })
}

fn networks<'a>(node: Option<&Node>, definitions: &'a BTreeMap<String, Definition>, setup: &'a Setup) -> Result<LabNetworks<'a>, CniError> {
    let default = default_network(node, setup)?.map(|list| ImplicitNetwork { list, definition: None });
    Ok(LabNetworks { default, definitions, conf_dirs: &setup.conf_dirs })
}

/// What the agent of the node will take.
fn default_network(node: Option<&Node>, setup: &Setup) -> Result<Option<NetworkList>, CniError> {
    Ok(match (&setup.default_network, node) {
        (DefaultNetwork::None, _) | (_, None) => None,
        (DefaultNetwork::Cluster(_), Some(node)) => Some(agent::provided_list(
            agent::ProvidedAddresses::Ranges(&node.pod_cidrs),
            None,
            agent::ProvidedPorts { strict: false, hairpin: true },
        )?),
        (DefaultNetwork::Given(list), _) => Some((**list).clone()),
    })
}

/// What detaches the pods of a node, and looks whether they are as they were.
pub(crate) fn attacher(lab: &Lab, node: &str) -> Attacher {
    let finder = Finder::new(BUILTINS, lab.cni_path.clone(), Prefer::Builtin, std::env::vars_os().collect());
    Attacher::new(Chain::new(finder, None), lab.records(node))
}
