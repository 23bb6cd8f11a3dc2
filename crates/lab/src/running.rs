//! A lab whose agents live: it grows with its manifests.
//!
//! ```text
//!   manifests --design--> what is there, and what is new --grow_to--> wires, nodes with agents, pods
//!                                                           |
//!                        `up` does this once, and ends; who keeps it running does it again when manifests change
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attach::{Plan, Refusal};
use cni::{CniError, Code};
use linux::Netns;
use plugin::Host;
use serde_json::Value;

use crate::error::StateError;
use crate::labs::{LabName, Labs};
use crate::manifest::Manifests;
use crate::node;
use crate::node_agent::NodeAgent;
use crate::state::{Lab, NodeName, Phase, Pod};
use crate::up::{self, Design, Event, Outcome, Plans, Setup, UpError};
use crate::{store, switch, underlay, wire};

/// Between two looks whether the lab's lock is free.
const LOOK: Duration = Duration::from_millis(20);

/// A lab whose nodes have agents. They end with it, unless [`Running::keep`] was called; what they made stays.
pub struct Running {
    /// The lab, and what the agents left with the pods.
    pub outcome: Outcome,
    labs: Labs,
    setup: Setup,
    wires: Option<Arc<Netns>>,
    nodes: Vec<Live>,
    /// The objects that the store has from manifests, by kind and name.
    objects: BTreeMap<String, Value>,
    /// The problems of the network that were reported.
    problems: BTreeSet<String>,
    /// Whether the agents follow what changes.
    is_kept: bool,
    /// Which directory is the lab's: another lab of its name has another one.
    dir: Option<u64>,
}

/// A node whose agent lives.
struct Live {
    name: NodeName,
    netns: Netns,
    agent: NodeAgent,
}

/// What came of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// So many nodes and pods were added.
    Added {
        /// Nodes.
        nodes: usize,
        /// Pods, those among them that could not be attached before.
        pods: usize,
    },
    /// Somebody takes the lab down, or has taken it down.
    Gone,
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
            objects: BTreeMap::new(),
            problems: BTreeSet::new(),
            is_kept: false,
            dir: None,
        }
    }

    /// Lets the agents follow what changes, for as long as this process lives: nodes that join or get other ranges, MTUs, routes and rules
    /// that somebody removes.
    ///
    /// # Errors
    /// [`UpError`] if no thread can be started.
    pub fn keep(&mut self) -> Result<(), UpError> {
        self.is_kept = true;
        let lab = &self.outcome.lab;
        self.nodes.iter().try_for_each(|live| keep(lab, live))
    }

    /// Whether the lab is still there, and nobody takes it down.
    ///
    /// # Errors
    /// [`StateError`](crate::StateError) if its description cannot be read.
    pub fn is_up(&self) -> Result<bool, UpError> {
        let lab = match self.labs.open(&self.outcome.lab.name) {
            Err(StateError::NoLab { .. }) => return Ok(false),
            other => other?,
        };
        Ok(lab.phase != Phase::GoingDown && inode(&lab) == self.dir)
    }

    /// Adds what manifests have and the lab has not: nodes, definitions, pools, pods, other ranges of nodes that are there. Pods that could
    /// not be attached are attached again. What manifests no longer have stays.
    ///
    /// # Errors
    /// [`UpError`]; the lab is as it was before then.
    pub fn grow(&mut self, manifests: &Manifests, tell: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<Growth, UpError> {
        let name = self.outcome.lab.name.clone();
        let _lock = loop {
            if !self.is_up()? {
                return Ok(Growth::Gone);
            }
            match self.labs.try_lock(&name)? {
                Some(lock) => break lock,
                // Sleeps: who has it may be about to take the lab down, and waits for this process to end.
                None => std::thread::sleep(LOOK),
            }
        };
        // Whoever had the lock may have taken it down.
        if !self.is_up()? {
            self.labs.forget_lock(&name);
            return Ok(Growth::Gone);
        }
        let before = self.labs.open(&name)?;
        let mut design = up::design(before.clone(), manifests, &self.setup)?;
        let lab = &mut design.lab;
        if let Some(node) = lab.nodes.iter().find(|node| !before.zones.contains(&node.zone)) {
            let (node, zone) = (&node.name, &node.zone);
            let why = format!(
                "node {node} is in the zone {zone:?}, and a zone cannot be added to a lab that is up: correct the Node's label, or run `netloom \
                 lab down --name {name}`, and `up` again"
            );
            return Err(UpError::Build(CniError::invalid(underlay::ZONE, why)));
        }
        let new = new_netns(&before, lab);
        up::must_be_free(&new)?;
        lab.write_pools(&manifests.pools)?;
        // Whoever is killed now was not done.
        lab.phase = Phase::Building;
        lab.write()?;
        let failed = before.pods.iter().filter(|pod| pod.failure.is_some()).count();
        let added = Growth::Added { nodes: lab.nodes.len() - before.nodes.len(), pods: lab.pods.len() - before.pods.len() + failed };
        match self.grow_to(design, tell) {
            Ok(()) => Ok(added),
            Err(e) => {
                let left = crate::down::shrink(&self.outcome.lab, &before, &new);
                self.nodes.retain(|live| before.nodes.iter().any(|node| node.name == live.name));
                self.outcome.lab = before;
                self.outcome.lab.write()?;
                Err(left.map_or(e.clone(), |left| UpError::Left { lab: name, error: Box::new(e), left }))
            }
        }
    }

    /// Builds what a design has and the lab has not.
    pub(crate) fn grow_to(&mut self, design: Design, tell: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<(), UpError> {
        let internal = |e: &dyn std::fmt::Display| UpError::Build(CniError::new(Code::INTERNAL, e.to_string()));
        let Design { lab, mut plans, objects } = design;
        let before = std::mem::replace(&mut self.outcome.lab, lab);
        self.dir = inode(&self.outcome.lab);
        self.fill_store(objects)?;
        self.build_nodes(&before, &mut plans).map_err(UpError::Build)?;
        self.exchange_keys(&before).map_err(|e| internal(&e))?;
        let lab = &self.outcome.lab;
        let mut failures = Vec::new();
        for live in &self.nodes {
            let is_mine = |(_, pod): &(usize, &Pod)| pod.node == live.name && !before.is_attached(pod);
            let mine: Vec<(usize, &Pod)> = lab.pods.iter().enumerate().filter(is_mine).collect();
            let is_new = !before.nodes.iter().any(|node| node.name == live.name);
            let (problems, plans, is_kept) = (&mut self.problems, &plans, self.is_kept);
            let work = || {
                if is_new {
                    for problem in live.agent.provide(lab.dirs(&live.name)) {
                        // Every node may see the same.
                        if !problems.contains(&problem) {
                            tell(Event::Problem(&problem));
                            problems.insert(problem);
                        }
                    }
                }
                attach(lab, live, (mine, is_kept && !is_new), plans, tell)
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

    /// Lets new nodes announce their WireGuard keys, so that each finds those of the others when it makes its part of the network.
    fn exchange_keys(&self, before: &Lab) -> Result<(), linux::EnterError> {
        if !self.setup.default_network.has_keys() {
            return Ok(());
        }
        let lab = &self.outcome.lab;
        for live in self.nodes.iter().filter(|live| !before.nodes.iter().any(|node| node.name == live.name)) {
            // What is wrong is reported when all keys are known.
            live.netns.enter(|_| drop(live.agent.provide(lab.dirs(&live.name))))?;
        }
        self.nodes.iter().for_each(|live| live.agent.knows_keys());
        Ok(())
    }

    /// Gives the store what is new, and changes what was changed. What agents have written stays.
    fn fill_store(&mut self, objects: Vec<Value>) -> Result<(), UpError> {
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let of = [text("/kind"), text("/metadata/namespace"), text("/metadata/name")].join("/");
            let store = &self.outcome.store;
            let done = match self.objects.get(&of) {
                Some(before) if *before == object => continue,
                Some(before) => store.merge(&store::difference(before, &object)).map(drop),
                None => store.put(&object),
            };
            done.map_err(|e| UpError::Build(CniError::new(Code::INVALID_CONFIG, e.to_string())))?;
            self.objects.insert(of, object);
        }
        Ok(())
    }

    /// Makes wires and nodes that are new, and plugs old nodes into new wires.
    fn build_nodes(&mut self, before: &Lab, plans: &mut Plans) -> Result<(), CniError> {
        let lab = &mut self.outcome.lab;
        let internal = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, e.to_string());
        let wires = match &self.wires {
            Some(wires) => Arc::clone(wires),
            None => {
                let wires = Arc::new(lab.journal().create(&lab.wires_netns()).map_err(|e| internal(&e))?);
                wire::prepare(&wires)?;
                wire::make(&wires, &underlay::wires(lab))?;
                self.wires = Some(Arc::clone(&wires));
                wires
            }
        };
        let new: Vec<String> = (before.wires.len()..lab.wires.len()).map(wire::bridge).collect();
        wire::make(&wires, &new)?;
        underlay::join(lab, &wires)?;
        let no_longer = |parent: &String| (parent.clone(), node::refused(parent, "it was refused before"));
        let mut refused: BTreeMap<String, CniError> = lab.refused.iter().map(no_longer).collect();
        for (number, node) in lab.nodes.iter().enumerate() {
            match self.nodes.iter().find(|live| live.name == node.name) {
                Some(live) if !new.is_empty() => {
                    node::plug_in(lab, number, node, &wires, (&live.netns, before.wires.len()), &mut refused)?;
                    node::set_up(&live.netns, lab.wires.get(before.wires.len()..).unwrap_or_default())?;
                    switch::serve(lab, &node.name, &live.netns, before.bridges.len())?;
                }
                // A new bridge has a new uplink.
                Some(_) => {}
                None => {
                    let netns = node::build(lab, number, node, &wires, &mut refused)?;
                    switch::serve(lab, &node.name, &netns, 0)?;
                    let agent = NodeAgent::start(lab, &node.name, &self.outcome.store, &self.setup.default_network, &self.setup.conf_dirs)?;
                    self.nodes.push(Live { name: node.name.clone(), netns, agent });
                }
            }
        }
        wire::refuse(plans, |list| wire::parents(list).iter().find_map(|parent| refused.get(parent).cloned()));
        lab.refused = refused.into_keys().collect();
        Ok(())
    }
}

/// The namespaces that a lab has and the one before had not.
fn new_netns(before: &Lab, lab: &Lab) -> Vec<PathBuf> {
    let there = before.all_netns();
    lab.all_netns().into_iter().filter(|path| !there.contains(path)).collect()
}

fn inode(lab: &Lab) -> Option<u64> {
    lab.description().parent()?.metadata().ok().map(|dir| dir.ino())
}

fn keep(lab: &Lab, live: &Live) -> Result<(), UpError> {
    let internal = |e: &dyn std::fmt::Display| UpError::Build(CniError::new(Code::INTERNAL, e.to_string()));
    live.netns.enter(|_| live.agent.keep(lab.dirs(&live.name))).map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}

/// Attaches pods of a node, from inside it: the number of each, and why it failed.
fn attach(
    lab: &Lab,
    live: &Live,
    (mine, is_kept): (Vec<(usize, &Pod)>, bool),
    plans: &Plans,
    tell: &mut (dyn FnMut(Event<'_>) + Send),
) -> Vec<(usize, Option<String>)> {
    let mut host = Host::here(lab.dirs(&live.name));
    let names: Vec<(&str, &str)> = mine.iter().map(|(_, pod)| (pod.namespace.as_str(), pod.name.as_str())).collect();
    // Once nobody keeps the network, ranges do not change; those that are refused have been reported.
    let ranges = lab.node(&live.name).filter(|_| is_kept).map(|node| node.pod_cidrs.as_slice());
    live.agent.synced(&names, ranges);
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
    // Of a pod that could not be attached before it is there.
    if lab.pod_netns(pod).symlink_metadata().is_err() {
        node::pod_namespace(lab, pod).map_err(|e| e.to_string())?;
    }
    if let Err(refusals) = plan {
        let all = CniError::first_of(refusals.iter().cloned().map(CniError::from));
        return Err(all.map(|e| e.to_string()).unwrap_or_default());
    }
    let id = lab.sandbox(pod).map_err(|e| e.to_string())?;
    agent.add(lab, pod, &id, host).map_err(|e| e.to_string())
}
