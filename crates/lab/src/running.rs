//! A lab whose agents live: it grows with its manifests.
//!
//! ```text
//!   manifests --design--> what is there, and what is new --grow_to--> wires, nodes with agents, pods
//!                                                           |
//!                        `up` does this once, and ends; who keeps it running does it again when manifests change
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use attach::{Plan, Refusal};
use cni::{CniError, Code};
use linux::Netns;
use plugin::Host;
use serde_json::Value;

use crate::labs::{LabName, Labs};
use crate::manifest::Manifests;
use crate::node;
use crate::node_agent::NodeAgent;
use crate::state::{Lab, NodeName, Phase, Pod};
use crate::up::{self, Design, Event, Outcome, Plans, Setup, UpError};
use crate::{store, underlay, wire};

/// A lab whose nodes have agents. They end with it; what they made stays.
pub struct Running {
    /// The lab, and what the agents left with the pods.
    pub outcome: Outcome,
    labs: Labs,
    setup: Setup,
    wires: Option<Netns>,
    nodes: Vec<Live>,
    /// What the store was told, by what it is told of.
    told: BTreeMap<String, Value>,
    /// What was said of the network.
    problems: BTreeSet<String>,
    /// Whether the agents follow what changes.
    is_kept: bool,
}

/// A node whose agent lives.
struct Live {
    name: NodeName,
    netns: Netns,
    agent: NodeAgent,
}

// === impl Running ===

impl Running {
    /// One of which nothing is there yet.
    pub(crate) fn new(labs: &Labs, name: &LabName, setup: &Setup) -> Self {
        Running {
            outcome: Outcome { lab: labs.blank(name), store: store::empty() },
            labs: labs.clone(),
            setup: setup.clone(),
            wires: None,
            nodes: Vec::new(),
            told: BTreeMap::new(),
            problems: BTreeSet::new(),
            is_kept: false,
        }
    }

    /// Lets the agents follow what changes: nodes that join or get other ranges, MTUs, routes and rules that somebody removes.
    ///
    /// # Errors
    /// [`UpError`] if no thread can be started.
    pub fn keep(&mut self) -> Result<(), UpError> {
        self.is_kept = true;
        let lab = &self.outcome.lab;
        self.nodes.iter().try_for_each(|live| keep(lab, live))
    }

    /// Adds what manifests have and the lab has not: nodes, definitions, pods, and other ranges of nodes that are there. What they have no
    /// more stays. How many nodes and pods were added.
    ///
    /// # Errors
    /// [`UpError`]; what was added until then stays, and `down` takes it down with the lab.
    pub fn grow(&mut self, manifests: &Manifests, tell: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<(usize, usize), UpError> {
        let _lock = self.labs.lock(&self.outcome.lab.name)?;
        let there = self.labs.open(&self.outcome.lab.name)?;
        if there.phase != Phase::Up {
            return Err(UpError::Build(CniError::new(Code::INTERNAL, "the lab is being taken down")));
        }
        let (nodes, pods, zones) = (there.nodes.len(), there.pods.len(), there.zones.len());
        let design = up::design(there, manifests, &self.setup)?;
        let lab = &design.lab;
        if lab.zones.len() != zones {
            let why = "a zone cannot be added to a lab that is up: take it down, and up again";
            return Err(UpError::Build(CniError::invalid(underlay::ZONE, why)));
        }
        let netns = lab.nodes.iter().skip(nodes).map(|node| lab.node_netns(&node.name));
        let netns: Vec<_> = netns.chain(lab.pods.iter().skip(pods).map(|pod| lab.pod_netns(pod))).collect();
        up::must_be_free(&netns)?;
        lab.write()?;
        let added = (lab.nodes.len() - nodes, lab.pods.len() - pods);
        self.grow_to(design, tell)?;
        Ok(added)
    }

    /// Builds what a design has and the lab has not.
    pub(crate) fn grow_to(&mut self, design: Design, tell: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<(), UpError> {
        let internal = |e: &dyn std::fmt::Display| UpError::Build(CniError::new(Code::INTERNAL, e.to_string()));
        let Design { lab, mut plans, objects } = design;
        let before = std::mem::replace(&mut self.outcome.lab, lab);
        self.tell_store(objects)?;
        self.build_nodes(&before, &mut plans).map_err(UpError::Build)?;
        let lab = &self.outcome.lab;
        let mut failures = Vec::new();
        for live in &self.nodes {
            let mine: Vec<usize> =
                (before.pods.len()..lab.pods.len()).filter(|at| lab.pods.get(*at).is_some_and(|pod| pod.node == live.name)).collect();
            let is_new = !before.nodes.iter().any(|node| node.name == live.name);
            let (problems, plans) = (&mut self.problems, &plans);
            let mut work = || {
                if is_new {
                    for problem in live.agent.provide(lab.dirs(&live.name)) {
                        // Every node may see the same.
                        if !problems.contains(&problem) {
                            tell(Event::Problem(&problem));
                            problems.insert(problem);
                        }
                    }
                }
                attach(lab, live, &mine, plans, tell)
            };
            failures.extend(live.netns.enter(|_| work()).map_err(|e| internal(&e))?);
            live.agent.told();
            if is_new && self.is_kept {
                keep(lab, live)?;
            }
        }
        let lab = &mut self.outcome.lab;
        for (at, failure) in failures {
            if let Some(pod) = lab.pods.get_mut(at) {
                pod.failure = failure;
            }
        }
        lab.phase = Phase::Up;
        Ok(lab.write()?)
    }

    /// Tells the store what it does not know yet: what agents have written to an object stays as long as its manifest does.
    fn tell_store(&mut self, objects: Vec<Value>) -> Result<(), UpError> {
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let of = [text("/kind"), text("/metadata/namespace"), text("/metadata/name")].join("/");
            let store = &self.outcome.store;
            let told = match self.told.get(&of) {
                Some(before) if *before == object => continue,
                Some(_) => store.merge(&object).map(drop),
                None => store.put(&object),
            };
            told.map_err(|e| UpError::Build(CniError::new(Code::INVALID_CONFIG, e.to_string())))?;
            self.told.insert(of, object);
        }
        Ok(())
    }

    /// Makes wires and nodes that are new, and plugs old nodes into new wires.
    fn build_nodes(&mut self, before: &Lab, plans: &mut Plans) -> Result<(), CniError> {
        let lab = &mut self.outcome.lab;
        let internal = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, e.to_string());
        let wires = match self.wires.take() {
            Some(wires) => wires,
            None => {
                let wires = lab.journal().create(&lab.wires_netns()).map_err(|e| internal(&e))?;
                wire::prepare(&wires)?;
                wire::make(&wires, &underlay::wires(lab))?;
                wires
            }
        };
        let new: Vec<String> = (before.wires.len()..lab.wires.len()).map(wire::bridge).collect();
        wire::make(&wires, &new)?;
        if before.nodes.is_empty() {
            underlay::join(lab, &wires)?;
        }
        let no_longer = |parent: &String| (parent.clone(), node::refused(parent, "it was refused before"));
        let mut refused: BTreeMap<String, CniError> = lab.refused.iter().map(no_longer).collect();
        for (number, node) in lab.nodes.iter().enumerate() {
            match self.nodes.iter().find(|live| live.name == node.name) {
                Some(live) if !new.is_empty() => {
                    node::plug_in(lab, number, node, &wires, (&live.netns, before.wires.len()), &mut refused)?;
                    node::set_up(&live.netns, lab.wires.get(before.wires.len()..).unwrap_or_default())?;
                }
                Some(_) => {}
                None => {
                    let netns = node::build(lab, number, node, &wires, &mut refused)?;
                    let agent = NodeAgent::start(lab, &node.name, &self.outcome.store, &self.setup.default_network, &self.setup.conf_dirs)?;
                    self.nodes.push(Live { name: node.name.clone(), netns, agent });
                }
            }
        }
        self.wires = Some(wires);
        wire::refuse(plans, |list| wire::parents(list).iter().find_map(|parent| refused.get(parent).cloned()));
        lab.refused = refused.into_keys().collect();
        Ok(())
    }
}

fn keep(lab: &Lab, live: &Live) -> Result<(), UpError> {
    let internal = |e: &dyn std::fmt::Display| UpError::Build(CniError::new(Code::INTERNAL, e.to_string()));
    live.netns.enter(|_| live.agent.keep(lab.dirs(&live.name))).map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}

/// Attaches pods of a node, from inside it: the number of each, and why it failed.
fn attach(lab: &Lab, live: &Live, pods: &[usize], plans: &Plans, tell: &mut (dyn FnMut(Event<'_>) + Send)) -> Vec<(usize, Option<String>)> {
    let mut host = Host::here(lab.dirs(&live.name));
    let mine: Vec<(usize, &Pod)> = pods.iter().filter_map(|at| Some((*at, lab.pods.get(*at)?))).collect();
    let names: Vec<(&str, &str)> = mine.iter().map(|(_, pod)| (pod.namespace.as_str(), pod.name.as_str())).collect();
    live.agent.synced(&names);
    let one = |(at, pod): (usize, &Pod)| {
        let start = Instant::now();
        let failure = plans.get(at).and_then(|plan| attach_pod(lab, &live.agent, pod, plan, &mut host).err());
        tell(Event::Pod { pod: &Pod { failure: failure.clone(), ..pod.clone() }, took: start.elapsed() });
        (at, failure)
    };
    mine.into_iter().map(one).collect()
}

/// One pod: its namespace, then its attachments. The error is for a person.
///
/// The plan was made before anything was built, as the wires come from it; what it refuses, the agent is not asked for, which
/// knows nothing of wires. The agent makes its own.
fn attach_pod(lab: &Lab, agent: &NodeAgent, pod: &Pod, plan: &Result<Plan, Vec<Refusal>>, host: &mut Host) -> Result<(), String> {
    node::pod_namespace(lab, pod).map_err(|e| e.to_string())?;
    if let Err(refusals) = plan {
        let all = CniError::first_of(refusals.iter().cloned().map(CniError::from));
        return Err(all.map(|e| e.to_string()).unwrap_or_default());
    }
    let id = lab.sandbox(pod).map_err(|e| e.to_string())?;
    agent.add(lab, pod, &id, host).map_err(|e| e.to_string())
}
