//! How fast we are, as whole processes, against the reference plugins and against the kernel's floor: `make bench`.
//!
//! ```text
//!   Options --> three Sides, each in a namespace that stands for its host: Netloom, the reference plugins, the floor
//!           --> rounds: for each verb one side, then the next --> Figures (p50, p99, ratios)
//!           --> way: to an agent that answers at once, and back
//!           --> crowd: 16 and 64 callers at once --> attachments a second
//!           --> scale: host-local with 60,000 addresses held
//!           --> plugins: each by itself, ours and the reference's
//!           --> backends: host ports and masquerading, ours and both of the reference's
//!           --> ports: with one host port published and with 10,000
//!           --> costs: size, memory, instructions, system calls
//!           --> anatomy: where the time of an ADD goes --> tables, a drawing, JSON
//! ```
//!
//! The floor is a program of its own that makes the same links, addresses and routes by bare netlink, and does nothing
//! else: what the kernel and one process cost whoever asks.
//!
//! `make bench-between` measures a node's agent among 5,000 Nodes, and packets between pods of two nodes: modules `nodes` and `paths`.
//!
//! `make bench-cluster` measures a node's agent, which writes to a real API server: module `cluster`; `make
//! bench-neighbours` an innocent pod beside a hostile namespace: module `cluster::neighbours`. `make bench-pool` measures
//! addresses that are durable, and those of a
//! cluster's ranges on a real API server: modules `addresses`, `ranges`. `make bench-ovs` measures a port of Open vSwitch: module `ovs`.

mod addresses;
mod anatomy;
mod backends;
mod cluster;
mod costs;
mod crowd;
mod figures;
mod goals;
mod lease;
mod machine;
mod namespace;
mod network;
mod nodes;
mod options;
mod ovs;
mod paths;
mod plugins;
mod ports;
mod ranges;
mod rounds;
mod scale;
mod side;
mod table;
mod way;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use network::Network;
use options::{Options, Scratch};
use side::Side;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => match measure(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("bench: {e:#}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            print!("{}", options::HELP);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprint!("bench: {e:#}\n\n{}", options::HELP);
            ExitCode::from(2)
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    match options {
        Options { cluster: true, .. } => cluster::run(options),
        Options { neighbours: true, .. } => cluster::neighbours(options),
        Options { nodes: true, .. } => nodes::run(options),
        Options { paths: true, .. } => paths::run(options),
        Options { plugins: true, .. } => only_plugins(options),
        Options { ovs: true, .. } => ovs::run(options),
        Options { pool: true, .. } => addresses::run(options),
        Options { ranges: true, .. } => ranges::run(options),
        _ => run(options),
    }
}

/// `netloom-benches plugins`
fn only_plugins(options: &Options) -> Result<()> {
    namespace::sweep()?;
    println!("{}", machine::Machine::look(&options.data_dir)?);
    let scratch = Scratch::make(&options.data_dir, "data")?;
    let installed = side::installed("netloom", &options.netloom_cni, scratch.path())?;
    let (mut report, goals) = plugins(options, &installed, &scratch)?;
    println!("\ngoals, by the medians of this run");
    goals.iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        report.insert("plugin_rounds".to_owned(), json!(options.plugin_rounds));
        write(file, &Value::Object(report))?;
    }
    Ok(())
}

/// Measures each plugin, and tells it: what goes into the report, and the goals.
fn plugins(options: &Options, installed: &Path, scratch: &Scratch) -> Result<(Map<String, Value>, Vec<goals::Goal>)> {
    if let Some(name) = &options.plugin {
        let known: Vec<&str> = plugins::names().chain(backends::Subject::ALL.map(backends::Subject::name)).chain([ports::NAME]).collect();
        ensure!(known.contains(&name.as_str()), "there is no figure of {name}: it is none of {}", known.join(", "));
    }
    let rounds = options.plugin_rounds;
    let mut tell = |name: &str, round| progress(name, round, rounds);
    let (mut report, mut goals) = (Map::new(), Vec::new());
    let times = plugins::run(options, installed, scratch.path(), &mut tell)?;
    if !times.is_empty() {
        let sizes = plugins::Sizes::look(options)?;
        let notes: String = times.iter().filter_map(plugins::Times::note).collect();
        print!("\n{}{notes}{}", table::plugins(rounds, &times), sizes.line());
        goals.extend(times.iter().map(plugins::Times::goal).chain([sizes.goal()]));
    }
    let by_backend = backends::run(options, installed, scratch.path(), &mut tell)?;
    if !by_backend.is_empty() {
        print!("\n{}", table::backends(rounds, &by_backend));
        goals.extend(by_backend.iter().flat_map(backends::Times::goals));
    }
    let growths = ports::run(options, installed, &mut tell)?;
    if !growths.is_empty() {
        print!("\n{}", table::ports(&growths));
        goals.extend(growths.iter().filter_map(ports::Growth::goal));
    }
    report.insert("plugins".to_owned(), times.iter().map(plugins::Times::json).collect());
    report.insert("backends".to_owned(), by_backend.iter().map(backends::Times::json).collect());
    report.insert("ports".to_owned(), growths.iter().map(ports::Growth::json).collect());
    Ok((report, goals))
}

fn write(file: &Path, report: &Value) -> Result<()> {
    std::fs::write(file, format!("{report:#}\n")).with_context(|| format!("write {}", file.display()))
}

fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    let scratch = Scratch::make(&options.data_dir, "data")?;
    let sides = [
        Side::netloom("netloom", &options.netloom_cni, scratch.path())?,
        Side::reference(&options.peers, scratch.path())?,
        Side::floor(&options.floor, scratch.path())?,
    ];
    let mut figures = Vec::new();
    for network in Network::ALL {
        let of_network = rounds::run(&sides, network, options.rounds, &mut |round| progress(network.name(), round, options.rounds))?;
        print!("\n{}", table::rounds(network, options.rounds, &of_network));
        figures.extend(of_network);
    }
    let installed = sides[0].plugins().context("no executable is installed")?;
    let tell = &mut |round| progress("the way to an agent", round, options.rounds);
    let way = way::run(installed, &options.floor, scratch.path(), options.rounds, tell)?;
    print!("\n{}", way.table(options.rounds));
    let (by_plugin, plugin_goals) = plugins(options, installed, &scratch)?;
    let crowds = crowd::run(&sides, options.crowds, &mut |round| progress("many at once", round, options.crowds))?;
    print!("\n{}", table::crowds(options.crowds, &crowds));
    let mut costs = Vec::new();
    for network in Network::ALL {
        let of_network = costs::look(&sides, network, &options.floor)?;
        print!("\n{}", table::costs(network, &of_network));
        costs.push(json!({"network": network.name(), "sides": of_network.iter().map(costs::Costs::json).collect::<Vec<_>>()}));
    }
    let scales = match [sides[0].plugins(), sides[1].plugins()] {
        [Some(ours), Some(theirs)] => {
            scale::run(ours, theirs, scratch.path(), &mut |round| progress("many addresses", round, scale::ROUNDS))?
        }
        _ => Vec::new(),
    };
    print!("\n{}", table::scales(&scales));
    let stages = anatomy::look(&options.traced, scratch.path())?;
    print!("\n{}", table::stages(anatomy::ROUNDS, &stages));
    println!("\ngoals, by the medians of this run");
    let of_way = [way.goal()];
    goals::of(&figures, &crowds, &scales).iter().chain(&of_way).chain(&plugin_goals).for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        let mut report = json!({
            "machine": machine.json(), "rounds": options.rounds, "reference": "v1.9.1", "figures": figures.iter().map(rounds::Figure::json).collect::<Vec<_>>(),
            "crowds": crowds.iter().map(crowd::Crowd::json).collect::<Vec<_>>(), "costs": costs,
            "scales": scales.iter().map(scale::Scale::json).collect::<Vec<_>>(),
            "way": way.json(), "stages": stages.iter().map(anatomy::Stage::json).collect::<Vec<_>>(),
        });
        if let Some(report) = report.as_object_mut() {
            report.extend(by_plugin);
        }
        write(file, &report)?;
    }
    Ok(())
}

/// Where it is, on a terminal.
fn progress(what: &str, round: usize, of: usize) {
    use std::io::{IsTerminal, Write};
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // What cannot be shown is not missed.
        let _ = write!(stderr, "\r\x1b[K{what}: {round} of {of}\r").and_then(|()| stderr.flush());
    }
}
