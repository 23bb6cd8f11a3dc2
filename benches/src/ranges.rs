//! Addresses of a range that was made for whereabouts, in a cluster: `netloom-benches ranges`.
//!
//! ```text
//!   real API server, the operator, ten agents; a round has a range of its own, of which no node has anything (cold):
//!     one after another   pods of one node
//!     from 16 callers     pods of one node
//!     from 40 callers     pods of ten nodes
//!   then the same pods come again, whose addresses are on the nodes by now (warm)
//!   beside them, turn by turn: what one address costs whereabouts on this API server, ten requests one after another
//! ```
//!
//! Told are the time of each ADD, addresses a second, how many requests the API server was sent for addresses, and the processor time of
//! agents and operator.

mod figures;
mod operator;
pub(crate) mod whereabouts;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;

use crate::cluster::agent::Agent;
use crate::cluster::caller::Caller;
use crate::cluster::plane::{Plane, Pod};
use crate::namespace::{self, Namespace};
use crate::network::{self, Verb};
use crate::options::{Options, Scratch};
use crate::{machine, progress};

use figures::{Figures, Pass};
use operator::Operator;

/// Nodes, of which the first has pods by itself.
const NODES: usize = 10;
/// How many pods come in a turn: one after another, from 16 callers, from 40 callers to ten nodes.
const CASES: [Case; 3] = [
    Case { what: "one after another", nodes: 1, callers: 1, pods: 60 },
    Case { what: "16 callers, one node", nodes: 1, callers: 16, pods: 320 },
    Case { what: "40 callers, ten nodes", nodes: NODES, callers: 40, pods: 400 },
];
/// How long the kernel gets to take deleted namespaces apart.
const SETTLE: Duration = Duration::from_millis(400);
/// How long it may take until agents know what they need.
const PATIENCE: Duration = Duration::from_secs(60);

/// How pods come.
#[derive(Debug, Clone, Copy)]
struct Case {
    what: &'static str,
    nodes: usize,
    callers: usize,
    pods: usize,
}

/// A node: its agent, which shares the host's namespace with the others.
struct Node {
    agent: Agent,
    name: String,
}

/// What is first here ends first.
struct Scene {
    nodes: Vec<Node>,
    operator: Operator,
    plane: Plane,
    plugins: PathBuf,
    host: Namespace,
    _scratch: Scratch,
}

/// Measures, and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    let mut scene = Scene::start(options)?;
    let mut figures = Figures::new(options.rounds, CASES.map(|case| case.what));
    for round in 0..options.rounds {
        for (at, case) in CASES.iter().enumerate() {
            let name = format!("range-{round}-{at}");
            let octet = u8::try_from(round * CASES.len() + at).context("no more rounds than 85")?;
            let pods = scene.prepare(&name, octet, case)?;
            figures.theirs.extend(whereabouts::address(&scene.plane, &name, round * CASES.len() + at)?);
            figures.keep(at, true, scene.pass(case, &pods)?);
            figures.keep(at, false, scene.pass(case, &pods)?);
            scene.plane.forget(&pods)?;
            progress("ranges", round * CASES.len() + at, options.rounds * CASES.len());
        }
    }
    print!("\n{}", figures.table());
    println!("\ngoals, by the medians of this run");
    figures.goals().iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        crate::write(file, &json!({"machine": machine.json(), "figures": figures.json()}))?;
    }
    Ok(())
}

// === impl Scene ===

impl Scene {
    fn start(options: &Options) -> Result<Self> {
        let scratch = Scratch::make(&options.data_dir, "data")?;
        let host = Namespace::make("ranges")?;
        network::prepare(&host)?;
        host.join()?;
        let plane = Plane::bare()?;
        let plugins = scratch.path().join("plugins");
        crate::cluster::install(&options.netloom_cni, &plugins)?;
        let operator = Operator::start(&options.netloom, scratch.path(), &plane.kubeconfig())?;
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let name = format!("bench-{number}");
            plane.node(&name)?;
            // A bridge without rules: what is measured is the other network's address.
            let dir = scratch.path().join(format!("{name}-addresses"));
            let ipam = json!({"type": "host-local", "dataDir": dir, "ranges": [[{"subnet": format!("10.{}.0.0/16", 200 + number)}]]});
            let plugin = json!({"type": "bridge", "bridge": format!("node{number}"), "ipam": ipam});
            let network = json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]});
            let agent =
                Agent::start(&options.netloom, &scratch.path().join(&name), &plane.kubeconfig(), &json!({"delegates": [network]}), &name)?;
            nodes.push(Node { agent, name });
        }
        Ok(Scene { nodes, operator, plane, plugins, host, _scratch: scratch })
    }

    /// A range of its own, and pods on nodes that select it. It begins when the nodes know of the range.
    fn prepare(&mut self, name: &str, octet: u8, case: &Case) -> Result<Vec<Vec<Pod>>> {
        let range = format!("10.{octet}.0.0/20");
        let plugin = json!({"type": "bridge", "bridge": "ranges", "ipam": {"type": "whereabouts", "range": range}});
        self.plane.define("default", name, &plugin)?;
        let share = case.pods / case.nodes;
        let pods = self.nodes.iter().take(case.nodes).map(|node| self.plane.pods_of(&node.name, name, share));
        let pods = pods.collect::<Result<Vec<_>>>()?;
        let pool = format!("whereabouts-10.{octet}.0.0-20");
        let end = Instant::now() + PATIENCE;
        for node in self.nodes.iter().take(case.nodes) {
            while !self.plane.has_terms(&node.name, &pool)? {
                ensure!(Instant::now() < end, "{} does not hear of {pool} within {PATIENCE:?}: {}", node.name, self.operator.log());
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(pods)
    }

    /// All pods come, then they go.
    fn pass(&mut self, case: &Case, pods: &[Vec<Pod>]) -> Result<Pass> {
        let containers = pods.iter().enumerate().map(|(node, pods)| {
            let make = |n| Namespace::make(&format!("{node}-{n}"));
            (0..pods.len()).map(make).collect::<Result<Vec<_>>>()
        });
        let containers = containers.collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLE);
        let before = (self.plane.address_requests()?, self.computed()?);
        let crowds = self.crowds(Verb::Add, case, pods, &containers)?;
        let after = (self.plane.address_requests()?, self.computed()?);
        self.crowds(Verb::Del, case, pods, &containers)?;
        drop(containers);
        for node in self.nodes.iter_mut().take(case.nodes) {
            node.agent.until(|agent| agent.records() == 0)?;
        }
        thread::sleep(SETTLE);
        let (each, all) = crowds;
        let counted = |(what, count): (String, u64)| {
            let count = count - before.0.get(&what).copied().unwrap_or_default();
            (count > 0).then_some((what, count))
        };
        let requests = after.0.into_iter().filter_map(counted).collect();
        Ok(Pass { pods: case.pods, each, all, requests, computed: after.1.saturating_sub(before.1) })
    }

    /// A call for each pod: on all nodes at the same time, from so many callers in all.
    fn crowds(&self, verb: Verb, case: &Case, pods: &[Vec<Pod>], containers: &[Vec<Namespace>]) -> Result<(Vec<Duration>, Duration)> {
        let start = Instant::now();
        let each = thread::scope(|scope| {
            let work = self.nodes.iter().zip(pods.iter().zip(containers)).map(|(node, (pods, containers))| {
                let caller = Caller::of_agent(&self.host, &self.plugins, &node.agent, pods);
                scope.spawn(move || caller.crowd(verb, containers, case.callers / case.nodes))
            });
            let work: Vec<_> = work.collect();
            let done = work.into_iter().map(|one| one.join().map_err(|_| anyhow!("a node's callers panicked"))?);
            done.map(|crowd| Ok(crowd?.each)).collect::<Result<Vec<Vec<Duration>>>>()
        })?;
        Ok((each.concat(), start.elapsed()))
    }

    /// The processor time of the agents and the operator.
    fn computed(&self) -> Result<Duration> {
        let agents = self.nodes.iter().map(|node| node.agent.computed()).sum::<Result<Duration>>()?;
        Ok(agents + self.operator.computed()?)
    }
}
