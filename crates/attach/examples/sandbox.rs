//! Attaches a sandbox to networks and detaches it, as an agent does it for a runtime.
//!
//! ```text
//! cargo build -p netloom-attach --example sandbox
//! target/debug/examples/sandbox add ID NETNS NETWORK.conflist...      eth0 for the first network, net1 for the next ...
//! target/debug/examples/sandbox del ID                                needs neither namespace nor configuration
//! target/debug/examples/sandbox retire ID                             the first half of it: says whether there is a second
//! target/debug/examples/sandbox finish ID...                          the second half, of many at once
//! ```
//!
//! Records are in `/run/netloom/sandboxes`, plugins that are not built in are looked for on `CNI_PATH`, and either command
//! has `PATIENCE` seconds (60). Prints the network status.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use attach::{Attacher, DelError, Lost, Plan, Planned, PodView, Protection, Records, Sandbox, Source};
use chain::Chain;
use cni::{CniArgs, ContainerId, IfName};
use netloom_attach as attach;
use npwg::StatusIps;
use plugin::{Dirs, Finder, Host, Prefer};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["add", id, netns, networks @ ..] => add(id, netns, networks),
        ["del", id] => del(id),
        ["retire", id] => retire(id),
        ["finish", ids @ ..] => finish(ids),
        _ => Err(anyhow::anyhow!("usage: sandbox add ID NETNS NETWORK.conflist... | sandbox del|retire ID | sandbox finish ID...")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn add(id: &str, netns: &str, networks: &[&str]) -> anyhow::Result<()> {
    let sandbox =
        Sandbox { id: ContainerId::parse(id)?, netns: netns.into(), opened: None, args: CniArgs::default(), pod: PodView::default() };
    let mut plan = Plan::default();
    for (number, network) in networks.iter().enumerate() {
        let name = if number == 0 { "eth0".to_owned() } else { format!("net{number}") };
        let list = chain::from_file(Path::new(network), None).with_context(|| format!("read {network}"))?;
        let planned = Planned {
            source: Source::Default,
            list,
            ifname: IfName::parse(&name)?,
            capability_args: json::Object::new(),
            device: None,
            protection: Protection::Off,
            is_on_disk: false,
            lasting: Vec::new(),
        };
        plan.attachments.push(planned);
    }
    match attacher().add(&sandbox, &plan, &mut Host::here(Dirs::default()), deadline()?) {
        Ok(record) => {
            println!("{}", serde_json::to_string_pretty(&attach::network_status(&record, StatusIps::Bare))?);
            Ok(())
        }
        Err(e) if e.left.is_empty() => bail!("{e} (code {})", e.error.code),
        Err(e) => bail!("{e} (code {}); not undone: {:?}", e.error.code, e.left),
    }
}

fn del(id: &str) -> anyhow::Result<()> {
    attacher().del(&ContainerId::parse(id)?, Lost::EveryAddress, &mut Host::here(Dirs::default()), deadline()?).map_err(|e| failed(&e))
}

fn retire(id: &str) -> anyhow::Result<()> {
    let done = attacher().retire(&ContainerId::parse(id)?, Lost::EveryAddress, &mut Host::here(Dirs::default()), deadline()?);
    println!("{:?}", done.map_err(|e| failed(&e))?);
    Ok(())
}

fn finish(ids: &[&str]) -> anyhow::Result<()> {
    let ids = ids.iter().map(|id| ContainerId::parse(id)).collect::<Result<Vec<_>, _>>()?;
    for (id, done) in attacher().finish(&ids, &mut Host::here(Dirs::default()), deadline()?) {
        done.map_err(|e| failed(&e)).with_context(|| format!("finish {id}"))?;
    }
    Ok(())
}

fn failed(e: &DelError) -> anyhow::Error {
    anyhow::anyhow!("{e} (code {})", e.errors.first().map_or(cni::Code::UNKNOWN, |e| e.code))
}

fn attacher() -> Attacher {
    let path: Vec<PathBuf> = std::env::var_os("CNI_PATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or_default();
    let finder = Finder::new(plugins::BUILTINS, path, Prefer::Builtin, std::env::vars_os().collect());
    Attacher::new(Chain::new(finder, None), Records::new("/run/netloom/sandboxes".into()))
}

fn deadline() -> anyhow::Result<Instant> {
    let patience = std::env::var("PATIENCE").ok().map_or(Ok(60.0), |p| p.parse()).context("PATIENCE is a number of seconds")?;
    Ok(Instant::now() + Duration::try_from_secs_f64(patience)?)
}
