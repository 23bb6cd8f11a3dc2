//! An innocent pod, while a hostile namespace of the same node does its worst: `netloom-benches neighbours`.
//!
//! ```text
//!   for each attack, turn by turn:   50 pods of the hostile namespace that behave well  |  50 pods that attack
//!     each of them: ADD, DEL, again, fifty times as often as a kubelet          meanwhile: ADD and DEL of the innocent pod
//!   --> p50, p99 of the innocent pod's ADD beside both, and p99 by p99
//! ```

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::agent::Agent;
use super::caller::Caller;
use super::plane::Pod;
use super::{Scene, namespaces};
use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::namespace::{self, Namespace};
use crate::network::Verb;
use crate::options::Options;
use crate::{machine, progress};

/// Pods of the hostile namespace, each with a caller of its own.
const PODS: usize = 50;
/// The namespace.
const HOSTILE: &str = "hostile";
/// Turns of each attack: those that behave well, and those that attack.
const TURNS: usize = 4;
/// From one ADD of a hostile pod to the next, at least. A kubelet waits ten seconds before it tries a pod again (`backOffPeriod` of its
/// pkg/kubelet/kubelet.go). Without it, this would measure how often two processors can start a process that is refused.
const PACE: Duration = Duration::from_millis(200);
/// Between two looks at a call that may come to no end.
const LOOK: Duration = Duration::from_millis(5);
/// Of either side: the innocent ADD, the hostile namespace's calls a second, and the agent's processor time of one call.
const COLUMNS: &str = "       p50       p99   calls/s   of each";
/// The worst that is accepted, by the p99 beside those that behave well.
const BOUND: f64 = 1.5;

/// One way to hold up others.
struct Attack {
    name: &'static str,
    /// What a definition says, or else the annotation selects a network of the innocent ones.
    config: Option<Value>,
    /// What the pods' annotation says besides, so that it is of its largest size.
    padding: usize,
}

/// The innocent pod's ADDs beside those that behave well, and beside those that attack.
struct Beside {
    name: &'static str,
    good: Side,
    bad: Side,
}

/// What was measured on one of both sides.
#[derive(Default)]
struct Side {
    /// The innocent pod's ADDs.
    times: Vec<Duration>,
    /// All calls, of the innocent pod and of the hostile namespace.
    calls: u32,
    /// How long that took.
    lasted: Duration,
    /// The agent's processor time meanwhile.
    computed: Duration,
}

fn attacks(scratch: &Path) -> Vec<Attack> {
    let attack = |name, plugin: Value| Attack { name, config: Some(plugin), padding: 0 };
    let flannel = json!({"type": "flannel", "subnetFile": scratch.join("none"), "dataDir": scratch.join("kept")});
    vec![
        attack("a plugin that comes to no end", json!({"type": "endless"})),
        attack("Netloom nested in itself", json!({"type": "netloom", "cniDir": "/run/x1", "delegates": [flannel]})),
        attack("the journal's lock", json!({"type": "bridge", "bridge": "evil0", "ipam": {"type": "pool", "dataDir": "/var/lib/netloom"}})),
        attack(
            "a file without an end",
            json!({"type": "bridge", "bridge": "evil0", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24", "resolvConf": "/proc/kmsg"}}),
        ),
        attack("a definition of 900 kB", json!({"type": "macvlan", "comment": "x".repeat(900_000)})),
        Attack { name: "annotations of 200 kB", config: None, padding: 200_000 },
    ]
}

/// Measures, and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    println!("{}", machine::Machine::look(&options.data_dir)?);
    let mut scene = Scene::of(options)?;
    let attacks = attacks(scene.scratch.path());
    endless(&scene.plugins)?;
    let Scene { agent, plane, plugins, host, .. } = &mut scene;
    let innocent = Caller::of_agent(host, plugins, agent, plane.pods());
    let good = Crowd { pods: plane.more_pods(HOSTILE, "good", PODS, "default/bench1", 0)?, caller: &innocent };
    let mut found = Vec::new();
    for (number, attack) in attacks.iter().enumerate() {
        let network = match &attack.config {
            Some(config) => plane.define(HOSTILE, &format!("attack{number}"), config)?,
            None => "default/bench1".to_owned(),
        };
        let pods = plane.more_pods(HOSTILE, &format!("bad{number}"), PODS, &network, attack.padding)?;
        let bad = Crowd { pods, caller: &innocent };
        found.push(beside(attack.name, [&good, &bad], &innocent, agent, options.rounds)?);
    }
    print!("\n{}", table(&found, options.rounds));
    println!("\ngoals, by the p99 of this run");
    for beside in &found {
        print!("{}", Goal::at_most(&format!("ADD beside {}, by that beside good pods", beside.name), BOUND, beside.ratio()).line());
    }
    let memory = scene.agent.memory()?;
    println!("the agent's memory afterwards: {} KiB resident, {} KiB at its peak", memory.resident, memory.peak);
    scene.nothing_left()
}

/// Turn by turn; who goes first changes.
fn beside(name: &'static str, crowds: [&Crowd<'_>; 2], innocent: &Caller<'_>, agent: &mut Agent, rounds: usize) -> Result<Beside> {
    let mut sides = <[Side; 2]>::default();
    for turn in 0..2 * TURNS {
        let at = (turn + turn / 2) % 2;
        let (Some(crowd), Some(side)) = (crowds.get(at), sides.get_mut(at)) else { continue };
        let containers = namespaces(&format!("h{turn}"), PODS)?;
        let own = namespaces(&format!("i{turn}"), 1)?;
        let stop = AtomicBool::new(false);
        let (began, before) = (Instant::now(), agent.computed()?);
        let mut made = 0;
        let done: Result<Vec<Duration>> = thread::scope(|scope| {
            let stop = &stop;
            let pairs = crowd.pods.iter().zip(&containers);
            let busy: Vec<_> = pairs.map(|(pod, container)| scope.spawn(move || crowd.repeat(pod, container, stop))).collect();
            let done = own.first().context("no container").and_then(|own| come_and_go(innocent, own, rounds.div_ceil(TURNS)));
            stop.store(true, Ordering::Relaxed);
            for thread in busy {
                made += thread.join().map_err(|_| anyhow!("a caller panicked"))??;
            }
            done
        });
        let done = done.with_context(|| format!("beside {name}"))?;
        side.calls += made + 2 * u32::try_from(done.len())?;
        side.lasted += began.elapsed();
        side.computed += agent.computed()? - before;
        side.times.extend(done);
        drop((containers, own));
        agent.until(|agent| agent.records() == 0)?;
        progress(name, turn, 2 * TURNS);
    }
    let [good, bad] = sides;
    Ok(Beside { name, good, bad })
}

/// The innocent pod's ADDs, each with its DEL.
fn come_and_go(innocent: &Caller<'_>, container: &Namespace, rounds: usize) -> Result<Vec<Duration>> {
    (0..rounds)
        .map(|_| {
            let took = innocent.call(Verb::Add, container, 0)?;
            innocent.call(Verb::Del, container, 0)?;
            Ok(took)
        })
        .collect()
}

/// Pods of the hostile namespace.
struct Crowd<'a> {
    pods: Vec<Pod>,
    caller: &'a Caller<'a>,
}

// === impl Crowd ===

impl Crowd<'_> {
    /// A pod's ADD and DEL, again and again, until it is to stop, and how many calls that were: an ADD that has not ended by then is killed, as a runtime does.
    fn repeat(&self, pod: &Pod, container: &Namespace, stop: &AtomicBool) -> Result<u32> {
        self.caller.host.enter(|| {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                self.run(Verb::Add, pod, container, Some(stop))?;
                self.run(Verb::Del, pod, container, None)?;
                calls += 2;
                thread::sleep(PACE.saturating_sub(began.elapsed()));
            }
            Ok(calls)
        })
    }

    /// Whether it fails is the pod's own concern.
    fn run(&self, verb: Verb, pod: &Pod, container: &Namespace, stop: Option<&AtomicBool>) -> Result<()> {
        let job = self.caller.job(verb, container, Some(pod));
        let mut command = Command::new(&job.program);
        command.env_clear().envs(job.env.iter().cloned()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("start a hostile pod's call")?;
        if let Some(mut stdin) = child.stdin.take() {
            std::io::Write::write_all(&mut stdin, job.input.as_bytes()).ok();
        }
        while let Some(stop) = stop {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                child.kill()?;
                break;
            }
            thread::sleep(LOOK);
        }
        child.wait()?;
        Ok(())
    }
}

/// An executable of somebody else's that waits, in the directory of plugins.
fn endless(plugins: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let file = plugins.join("endless");
    std::fs::write(&file, "#!/bin/sh\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\nexec sleep 1000\n").context("write a plugin")?;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).context("make it executable")
}

fn table(found: &[Beside], rounds: usize) -> String {
    let mut text = format!("ADD of an innocent pod beside {PODS} pods of another namespace, {rounds} on each side, ms\n");
    text += &format!("{:31} {:^39} {:^39} {:>9}\n", "", "they behave well", "they attack", "p99 by");
    text += &format!("{:31}{}{} {:>9}\n", "", COLUMNS, COLUMNS, "p99");
    for beside in found {
        text += &format!("{:31}{}{} {:>8.2}x\n", beside.name, beside.good.columns(), beside.bad.columns(), beside.ratio());
    }
    text
}

// === impl Beside ===

impl Beside {
    /// The p99 beside those that attack, by that beside those that behave well.
    fn ratio(&self) -> f64 {
        self.bad.spread().p99.as_secs_f64() / self.good.spread().p99.as_secs_f64()
    }
}

// === impl Side ===

impl Side {
    fn spread(&self) -> Spread {
        Spread::of(self.times.clone())
    }

    /// Below [`COLUMNS`].
    fn columns(&self) -> String {
        let Spread { p50, p99 } = self.spread();
        let a_second = f64::from(self.calls) / self.lasted.as_secs_f64();
        format!(" {:>9} {:>9} {a_second:>9.0} {:>9}", ms(p50), ms(p99), ms(self.computed / self.calls.max(1)))
    }
}
