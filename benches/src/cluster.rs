//! A node of a cluster: its agent, as released, answers a runtime's calls and writes to a real API server.
//!
//! ```text
//!   Plane: etcd, API server, 110 pods, 1,000 definitions <--watch, network-status--> Agent <--socket-- netloom
//!   rounds, turn by turn:   a pod's four networks by `netloom`   |   ONE network by the reference `bridge` + `host-local`
//!     alone                 one call, then the next --> p50, p99; after DEL: until the last link is gone
//!     beside the least      ADD of four networks, and of the default network alone | the floor's program, then one PATCH by a warm client
//!     from 16 callers       100 pods --> total time; p50, p99 of each call   |   the same, and the floor's program with one PATCH each
//!   then: 110 pods attached --> the agent's memory
//!   then: 5,000 pods come and go, from 16 callers --> its memory again
//! ```
//!
//! With `--before DIR` the other side is an agent as released before, with an API server of its own: what a change costs.
//!
//! The containers' namespaces are made before a call is timed, and deleted after both sides' DEL, as a runtime does.

pub(crate) mod agent;
pub(crate) mod caller;
mod figures;
mod floor;
mod neighbours;
pub(crate) mod plane;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::namespace::{self, Namespace};
use crate::network::{self, BRIDGE, Network, Verb};
use crate::options::{Options, Scratch};
use crate::{machine, progress};

use agent::Agent;
use caller::Caller;
use figures::{Alone, Crowds, Figures, Other, WithFloor};
use floor::Floor;
pub(crate) use neighbours::run as neighbours;
use plane::{PODS, Plane};

/// Rounds before the first that counts.
const WARM_UP: usize = 5;
/// Pods of a round with many callers, and the callers.
const CROWD: usize = 100;
const CALLERS: usize = 16;
/// How long the kernel gets to take deleted namespaces apart.
const SETTLE: Duration = Duration::from_millis(100);
/// After which nothing happens any more that memory is used for.
const QUIET: Duration = Duration::from_secs(5);
const VERBS: [Verb; 2] = [Verb::Add, Verb::Del];

/// A node with its agent, before an API server, and what it takes to call it. What is first here ends first.
struct Scene {
    agent: Agent,
    plane: Plane,
    plugins: PathBuf,
    host: Namespace,
    scratch: Scratch,
}

// === impl Scene ===

impl Scene {
    /// That of these executables. Namespace, directory and control plane have its name.
    fn start(name: &str, netloom: &Path, netloom_cni: &Path, data_dir: &Path) -> Result<Self> {
        let scratch = Scratch::make(data_dir, name)?;
        let host = Namespace::make(name)?;
        network::prepare(&host)?;
        // API server and agent are on this host.
        host.join()?;
        let plane = Plane::start(name)?;
        let plugins = scratch.path().join("plugins");
        install(netloom_cni, &plugins)?;
        let network = default_network(&scratch.path().join("addresses"));
        let mut agent =
            Agent::start(netloom, &scratch.path().join("node"), &plane.kubeconfig(), &json!({"delegates": [network]}), plane::NODE)?;
        // The first comparison comes when the caches are complete.
        agent.until(|agent| agent.log().contains(" reconcile "))?;
        Ok(Scene { agent, plane, plugins, host, scratch })
    }

    /// That of the executables that are measured.
    fn of(options: &Options) -> Result<Self> {
        Scene::start("agent", &options.netloom, &options.netloom_cni, &options.data_dir)
    }

    /// Of no container anything may be left.
    fn nothing_left(&self) -> Result<()> {
        let links: Vec<String> = self.host.links("veth")?.into_iter().filter(|link| !link.starts_with("wire")).collect();
        if links.is_empty() { Ok(()) } else { bail!("links are left behind: {}", links.join(", ")) }
    }
}

/// Measures, and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    let mut scene = Scene::of(options)?;
    let begin = scene.agent.memory()?;
    let before = options.before.as_ref().map(|dir| {
        progress("start the agent of before", 0, 1);
        Scene::start("before", &dir.join("netloom"), &dir.join("netloom-cni"), &options.data_dir)
    });
    let before = before.transpose()?;
    // Our API server is asked from its host.
    scene.host.join()?;
    let theirs = Namespace::make("reference")?;
    network::prepare(&theirs)?;
    let config = one_network(&scene.scratch.path().join("reference"));
    let Scene { agent, plane, plugins, host, scratch } = &mut scene;
    let other = match &before {
        Some(before) => Caller::of_agent(&before.host, &before.plugins, &before.agent, before.plane.pods()),
        None => Caller { host: &theirs, plugins: &options.peers, plugin: "bridge", config, pods: plane.pods() },
    };
    let sides = [Caller::of_agent(host, plugins, agent, plane.pods()), other];
    let alone = alone(&sides, agent, options.rounds)?;
    let floor = Floor::start(options, plane, scratch.path())?;
    let with_floor = beside_floor(&sides[0], &floor, agent, plane, options.rounds)?;
    let crowd = crowds(&sides, &floor, agent, plane, options.crowds)?;
    drop(floor);
    let memory = full(&sides[0], agent, plane)?;
    let worn = turnover(&sides[0], agent, options.turnover)?;
    let other = if before.is_some() { Other::Before } else { Other::Reference };
    let figures = Figures {
        other,
        rounds: options.rounds,
        crowds: options.crowds,
        alone,
        with_floor,
        crowd,
        begin,
        memory,
        turnover: options.turnover,
        worn,
    };
    print!("\n{}\n{}", figures.table(), figures::stages("netloom", agent));
    if let Some(before) = &before {
        print!("{}", figures::stages("before", &before.agent));
        before.nothing_left()?;
    }
    println!("\ngoals, by the medians of this run");
    figures.goals().iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        let report = json!({"machine": machine.json(), "figures": figures.json()});
        std::fs::write(file, format!("{report:#}\n")).with_context(|| format!("write {}", file.display()))?;
    }
    scene.nothing_left()
}

/// One call at a time, turn by turn. Who goes first changes with every round.
fn alone(sides: &[Caller; 2], agent: &mut Agent, rounds: usize) -> Result<Alone> {
    let mut alone = Alone::default();
    for round in 0..WARM_UP + rounds {
        let mut containers = (0..2).map(|side| Namespace::make(&format!("{round}-{side}")).map(Some)).collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLE);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for verb in VERBS {
            for at in order {
                let (Some(side), Some(place)) = (sides.get(at), containers.get_mut(at)) else { continue };
                let Some(container) = place.as_ref() else { continue };
                let time = side.call(verb, container, round % PODS)?;
                if round >= WARM_UP {
                    alone.keep(verb, at, time);
                }
                if verb == Verb::Del {
                    let (name, answered) = (container.name().to_owned(), Instant::now());
                    // As the runtime does.
                    *place = None;
                    if at == 0 {
                        agent.until(|agent| !agent.knows(&name))?;
                        alone.gone.push(answered.elapsed());
                    }
                    thread::sleep(SETTLE);
                }
            }
        }
        progress("one call at a time", round, WARM_UP + rounds);
    }
    Ok(alone)
}

/// ADDs of a pod's four networks, and of the default network alone, in turn with the least that each can take.
fn beside_floor(ours: &Caller, floor: &Floor, agent: &mut Agent, plane: &Plane, rounds: usize) -> Result<WithFloor> {
    let mut found = WithFloor::default();
    let other = plane.pods().last().context("the API server has no pods")?;
    let plain = Caller { host: ours.host, plugins: ours.plugins, plugin: ours.plugin, config: ours.config.clone(), pods: plane.plain() };
    for round in 0..WARM_UP + rounds {
        for network in Network::ALL {
            let caller = if network == Network::Pod { ours } else { &plain };
            let [container, of_floor] = ["ours", "floor"].map(|whose| Namespace::make(&format!("{round}-{whose}")));
            let (container, of_floor) = (container?, of_floor?);
            thread::sleep(SETTLE);
            let number = round % caller.pods.len().saturating_sub(1).max(1);
            let (time, least) = if round % 2 == 0 {
                let time = caller.call(Verb::Add, &container, number)?;
                (time, floor.add(network, &of_floor, round, other)?)
            } else {
                let least = floor.add(network, &of_floor, round, other)?;
                (caller.call(Verb::Add, &container, number)?, least)
            };
            if round >= WARM_UP {
                found.keep(network, time, least);
            }
            caller.call(Verb::Del, &container, number)?;
            floor.del(network, &of_floor, round)?;
            let name = container.name().to_owned();
            drop((container, of_floor));
            agent.until(|agent| !agent.knows(&name))?;
            thread::sleep(SETTLE);
        }
        progress("beside the least", round, WARM_UP + rounds);
    }
    Ok(found)
}

/// Many at once, turn by turn; in every third turn the least that it can take.
fn crowds(sides: &[Caller; 2], floor: &Floor, agent: &mut Agent, plane: &Plane, rounds: usize) -> Result<Crowds> {
    let mut crowds = Crowds::default();
    let turns = sides.len() + 1;
    for turn in 0..turns * rounds {
        let at = (turn + turn / turns) % turns;
        let containers = namespaces(&format!("c{turn}"), CROWD)?;
        let Some(side) = sides.get(at) else {
            crowds.least.push(floor.crowd(sides[0].host, &containers, CALLERS, plane.pods())?.all);
            containers.iter().enumerate().try_for_each(|(number, container)| floor.del(Network::Pod, container, number))?;
            drop(containers);
            thread::sleep(4 * SETTLE);
            continue;
        };
        for verb in VERBS {
            let before = agent.computed()?;
            crowds.keep(verb, at, side.crowd(verb, &containers, CALLERS)?);
            if at == 0 {
                crowds.keep_computed(verb, agent.computed()?.saturating_sub(before));
            }
            if at == 0 && verb == Verb::Add {
                plane.check_statuses(CROWD)?;
            }
        }
        let answered = Instant::now();
        drop(containers);
        if at == 0 {
            agent.until(|agent| agent.records() == 0)?;
            crowds.gone.push(answered.elapsed());
        }
        thread::sleep(4 * SETTLE);
        progress("many at once", turn / turns, rounds);
    }
    Ok(crowds)
}

/// What the agent has of memory when its node is full, and has been for a moment.
fn full(side: &Caller, agent: &mut Agent, plane: &Plane) -> Result<agent::Memory> {
    let containers = namespaces("full", PODS)?;
    side.crowd(Verb::Add, &containers, CALLERS)?;
    plane.check_statuses(PODS)?;
    thread::sleep(QUIET);
    let memory = agent.memory();
    side.crowd(Verb::Del, &containers, CALLERS)?;
    drop(containers);
    agent.until(|agent| agent.records() == 0)?;
    memory
}

/// What it has when so many pods have come and gone.
fn turnover(side: &Caller, agent: &mut Agent, pods: usize) -> Result<agent::Memory> {
    for begun in (0..pods).step_by(CROWD) {
        let containers = namespaces(&format!("t{begun}"), CROWD.min(pods - begun))?;
        for verb in VERBS {
            side.crowd(verb, &containers, CALLERS)?;
        }
        drop(containers);
        agent.until(|agent| agent.records() == 0)?;
        progress("pods that come and go", begun, pods);
    }
    thread::sleep(QUIET);
    agent.memory()
}

fn namespaces(name: &str, number: usize) -> Result<Vec<Namespace>> {
    let containers = (0..number).map(|i| Namespace::make(&format!("{name}-{i}"))).collect::<Result<Vec<_>>>()?;
    thread::sleep(4 * SETTLE);
    Ok(containers)
}

/// Whether a line of an agent's log is of one call of many at once, by its container's name.
fn of_crowd(line: &str) -> bool {
    let name = line.split_whitespace().find_map(|word| word.strip_prefix("container=nlb-"));
    name.and_then(|name| name.split('-').nth(1)).is_some_and(|part| !part.starts_with(|c: char| c.is_ascii_digit()))
}

pub(crate) fn install(executable: &Path, plugins: &Path) -> Result<()> {
    let output = Command::new(executable).arg("install").arg(plugins).output();
    let output = output.with_context(|| format!("run {} (`make` builds it)", executable.display()))?;
    if !output.status.success() {
        bail!("{} install: {}", executable.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The default network, and all that the reference makes.
fn one_network(data: &Path) -> Value {
    let ranges = json!([[{"subnet": "10.77.0.0/16"}]]);
    json!({
        "cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": BRIDGE, "isGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "dataDir": data, "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// The same as a list.
fn default_network(data: &Path) -> Value {
    let mut plugin = one_network(data);
    if let Some(plugin) = plugin.as_object_mut() {
        plugin.remove("cniVersion");
        plugin.remove("name");
    }
    json!({"cniVersion": "1.0.0", "name": "bench", "plugins": [plugin]})
}
