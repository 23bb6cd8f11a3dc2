//! What was measured: tables, goals, JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::agent::{Agent, Memory};
use super::caller::Crowd;
use super::floor::Least;
use super::plane::DEFINITIONS;
use super::{CALLERS, CROWD, PODS};
use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::network::{Network, Verb};

/// What ours is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// One network by the reference plugins.
    Reference,
    /// A pod's four networks by an agent as released before.
    Before,
}

/// Times of both sides: ours, then the other's.
type Both = [Vec<Duration>; 2];

/// One call at a time.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    add: Both,
    del: Both,
    /// From a DEL's answer until nothing of the sandbox is left.
    pub(crate) gone: Vec<Duration>,
}

/// ADDs beside the least that they can take: of the default network alone, and of a pod's four networks.
#[derive(Debug, Default)]
pub(crate) struct WithFloor {
    of_network: [Beside; 2],
}

#[derive(Debug, Default)]
struct Beside {
    add: Vec<Duration>,
    links: Vec<Duration>,
    patch: Vec<Duration>,
    least: Vec<Duration>,
}

/// Many at once: each call, and all of a round.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    add: Both,
    del: Both,
    all_added: Both,
    all_deleted: Both,
    /// The least that all ADDs of a round can take.
    pub(crate) least: Vec<Duration>,
    /// The agent's processor time until all have their answer, of each round: of ADD, then of DEL.
    computed: [Vec<Duration>; 2],
    pub(crate) gone: Vec<Duration>,
}

/// Everything that is told.
pub(crate) struct Figures {
    pub(crate) other: Other,
    pub(crate) rounds: usize,
    pub(crate) crowds: usize,
    pub(crate) alone: Alone,
    pub(crate) with_floor: WithFloor,
    pub(crate) crowd: Crowds,
    /// The agent's memory with its caches complete, before the first call.
    pub(crate) begin: Memory,
    /// On a full node.
    pub(crate) memory: Memory,
    /// How many pods have come and gone then.
    pub(crate) turnover: usize,
    /// After them, with no pod.
    pub(crate) worn: Memory,
}

/// One line of the table.
struct Row {
    name: String,
    spreads: [Spread; 2],
    /// The goal for our time by the other's.
    bound: Option<f64>,
}

/// The most that a change may cost, by the medians of both.
const NO_SLOWER: f64 = 1.03;

/// Where the time of an agent's calls went by its log's lines, of calls alone and of many at once.
pub(crate) fn stages(name: &str, agent: &Agent) -> String {
    let line = |verb, crowd, calls: &str| {
        let laps: String = agent.laps(verb, crowd).into_iter().map(|(name, ms)| format!(" {name} {ms:.1}")).collect();
        format!("{name}, {verb} {calls}, medians of its log, ms:{laps}\n")
    };
    let lines = |verb| [line(verb, false, "alone"), line(verb, true, "of many")].concat();
    ["ADD", "DEL"].map(lines).concat()
}

// === impl Alone ===

impl Alone {
    pub(crate) fn keep(&mut self, verb: Verb, side: usize, time: Duration) {
        let of_verb = if verb == Verb::Add { &mut self.add } else { &mut self.del };
        of_verb.iter_mut().skip(side).take(1).for_each(|times| times.push(time));
    }
}

// === impl WithFloor ===

impl WithFloor {
    pub(crate) fn keep(&mut self, network: Network, add: Duration, least: Least) {
        for of_network in self.of_network.iter_mut().skip(usize::from(network == Network::Pod)).take(1) {
            of_network.add.push(add);
            of_network.links.push(least.links);
            of_network.patch.push(least.patch);
            of_network.least.push(least.links + least.patch);
        }
    }

    /// The name of each, the goal, and the spreads: of the ADD, and of what it is compared with.
    fn rows(&self, crowds: &Crowds) -> [(String, f64, Spread, Spread); 3] {
        let row =
            |name: String, goal, add: &[Duration], least: &[Duration]| (name, goal, Spread::of(add.to_vec()), Spread::of(least.to_vec()));
        let [default, pod] = &self.of_network;
        [
            row("ADD of the default network alone".to_owned(), 1.3, &default.add, &default.least),
            row("ADD of four networks".to_owned(), 1.4, &pod.add, &pod.least),
            row(format!("ADD of {CROWD} pods, {CALLERS} callers"), 1.4, &crowds.all_added[0], &crowds.least),
        ]
    }

    fn table(&self, crowds: &Crowds) -> String {
        let mut text = format!("\n{:32} {:^19} {:^19} {:>8}\n", "ADD with its status, ms", "netloom", "floor and PATCH", "/floor");
        for (name, _, ours, least) in self.rows(crowds) {
            let times = [ours.p50, ours.p99, least.p50, least.p99].map(|time| format!(" {:>9}", ms(time))).concat();
            text += &format!("{name:32}{times} {:>7.2}x\n", least.ratio(ours));
        }
        for (name, of) in ["of the default network", "of four networks"].into_iter().zip(&self.of_network) {
            let parts = [&of.links, &of.patch].map(|times| ms(Spread::of(times.clone()).p50));
            text += &format!("the floor's links {name} {}, one PATCH by a warm client {}\n", parts[0], parts[1]);
        }
        text
    }

    fn json(&self, crowds: &Crowds) -> Value {
        self.rows(crowds)
            .into_iter()
            .map(|(name, _, ours, least)| json!({"what": name, "netloom": ours.json(), "floor_and_patch": least.json()}))
            .collect()
    }
}

// === impl Crowds ===

impl Crowds {
    pub(crate) fn keep(&mut self, verb: Verb, side: usize, crowd: Crowd) {
        let (each, all) = if verb == Verb::Add { (&mut self.add, &mut self.all_added) } else { (&mut self.del, &mut self.all_deleted) };
        each.iter_mut().skip(side).take(1).for_each(|times| times.extend_from_slice(&crowd.each));
        all.iter_mut().skip(side).take(1).for_each(|times| times.push(crowd.all));
    }

    pub(crate) fn keep_computed(&mut self, verb: Verb, of_all: Duration) {
        let at = usize::from(verb != Verb::Add);
        self.computed.iter_mut().skip(at).take(1).for_each(|times| times.push(of_all));
    }

    /// The same of one pod, with its name in the table.
    fn computed_each(&self) -> [(String, Spread); 2] {
        let each = |verb: Verb, times: &[Duration]| {
            let times = times.iter().map(|of_all| *of_all / CROWD as u32).collect();
            (format!("agent's CPU, {} of {CROWD}, each", verb.name()), Spread::of(times))
        };
        [each(Verb::Add, &self.computed[0]), each(Verb::Del, &self.computed[1])]
    }
}

// === impl Figures ===

impl Figures {
    fn rows(&self) -> Vec<Row> {
        let row = |name: String, both: &Both, bound: Option<f64>| Row {
            name,
            spreads: [0, 1].map(|at| Spread::of(both.get(at).cloned().unwrap_or_default())),
            bound: if self.other == Other::Before { Some(NO_SLOWER) } else { bound },
        };
        vec![
            row("ADD".to_owned(), &self.alone.add, Some(0.6)),
            row("DEL".to_owned(), &self.alone.del, Some(0.5)),
            row(format!("ADD, {CALLERS} callers"), &self.crowd.add, None),
            row(format!("DEL, {CALLERS} callers"), &self.crowd.del, None),
            row(format!("ADD of {CROWD} pods, {CALLERS} callers"), &self.crowd.all_added, Some(0.6)),
            row(format!("DEL of {CROWD} pods, {CALLERS} callers"), &self.crowd.all_deleted, Some(0.5)),
        ]
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "a pod's four networks through the agent, {}: {} rounds, {} of {CROWD} pods, ms\n",
            match self.other {
                Other::Reference => "ONE network by the reference v1.9.1",
                Other::Before => "and through an agent as released before",
            },
            self.rounds,
            self.crowds
        );
        let (other, by) = match self.other {
            Other::Reference => ("reference", "/ref."),
            Other::Before => ("before", "/before"),
        };
        text += &format!("{:31} {:^19} {:^19} {:>9}\n", "", "netloom", other, "netloom");
        text += &format!("{:31} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "", "p50", "p99", "p50", "p99", by);
        for Row { name, spreads: [ours, theirs], .. } in self.rows() {
            let times = [ours.p50, ours.p99, theirs.p50, theirs.p99].map(|time| format!(" {:>9}", ms(time))).concat();
            text += &format!("{name:31}{times} {:>8.2}x\n", theirs.ratio(ours));
        }
        for (name, gone) in [("a pod".to_owned(), &self.alone.gone), (format!("{CROWD} pods"), &self.crowd.gone)] {
            let gone = Spread::of(gone.clone());
            text += &format!("{:31} {:>9} {:>9}\n", format!("DEL of {name}: until all is gone"), ms(gone.p50), ms(gone.p99));
        }
        for (name, each) in self.crowd.computed_each() {
            text += &format!("{name:31} {:>9} {:>9}\n", ms(each.p50), ms(each.p99));
        }
        text += &self.with_floor.table(&self.crowd);
        text += &format!("\n{:46} {:>9} {:>9} {:>9}\n", "the agent's memory, KiB", "resident", "peak", "anonymous");
        let worn = format!("{} pods more came and went, none is left", self.turnover);
        let full = "every pod attached, after all of the above";
        for (name, memory) in [("pods and definitions listed", self.begin), (full, self.memory), (&worn, self.worn)] {
            text += &format!("{name:46} {:>9} {:>9} {:>9}\n", memory.resident, memory.peak, memory.anonymous);
        }
        text
    }

    pub(crate) fn goals(&self) -> Vec<Goal> {
        let rows = self.rows();
        let by = if self.other == Other::Before { "that of before" } else { "the reference's" };
        let ratio = |row: &Row| Some((row.bound?, row.spreads.get(1)?.ratio(*row.spreads.first()?)));
        let ratios = rows.iter().filter_map(|row| ratio(row).map(|(bound, found)| (row, bound, found)));
        let mut goals: Vec<Goal> =
            ratios.map(|(row, bound, found)| Goal::at_most(&format!("{}, by {by}", row.name), bound, found)).collect();
        for (name, bound, ours, least) in self.with_floor.rows(&self.crowd) {
            goals.push(Goal::at_most(&format!("{name}, by floor and PATCH"), bound, least.ratio(ours)));
        }
        let mib = |kib: u64| kib as f64 / 1024.0;
        let what = format!("resident with {PODS} pods, {DEFINITIONS} definitions, MiB");
        goals.push(Goal::at_most(&what, 16.0, mib(self.memory.resident)));
        goals.push(Goal::at_most("  its peak until then, MiB", 16.0, mib(self.memory.peak)));
        let what = format!("resident after {} more ADD and DEL from {CALLERS} callers, MiB", self.turnover);
        goals.push(Goal::at_most(&what, 16.0, mib(self.worn.resident)));
        goals
    }

    pub(crate) fn json(&self) -> Value {
        let other = if self.other == Other::Before { "before" } else { "reference" };
        let row = |row: &Row| json!({"what": row.name, "netloom": row.spreads[0].json(), other: row.spreads[1].json()});
        let rows: Vec<Value> = self.rows().iter().map(row).collect();
        let gone = [&self.alone.gone, &self.crowd.gone].map(|times| Spread::of(times.clone()).json());
        let computed = self.crowd.computed_each().map(|(_, each)| each.json());
        let memory = |m: Memory| json!({"resident_kib": m.resident, "peak_kib": m.peak, "anonymous_kib": m.anonymous});
        json!({"times": rows, "with_floor": self.with_floor.json(&self.crowd), "until_gone": gone, "computed_each": computed, "memory": {"begin": memory(self.begin), "full": memory(self.memory), "worn": memory(self.worn)}})
    }
}
