//! `netloom ipam reclaim`: a person says that nothing of a node runs any more.

use std::process::ExitCode;
use std::time::Duration;

use operator::{Life, Reclaim, reclaim_by, what_to_reclaim_by};
use serde::Serialize;

use super::{NOT_WELL, repair, words};
use crate::cli::IpamReclaimArgs;
use crate::output::{ODD, putln, structured};

/// An agent that has spoken so lately may live.
const LATELY: Duration = Duration::from_secs(600);

/// For programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    node: &'a str,
    lives: Vec<LifeView<'a>>,
    /// The IPPools that say so now.
    pools: &'a [String],
    reclaimed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LifeView<'a> {
    #[serde(rename = "nodeUID")]
    uid: &'a str,
    /// The Node is there.
    exists: bool,
    /// When its agent has spoken last; missing: nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    spoke_seconds_ago: Option<u64>,
    blocks: Vec<BlockView<'a>>,
}

#[derive(Serialize)]
struct BlockView<'a> {
    cidr: String,
    network: &'a str,
    pool: &'a str,
}

pub(super) fn run(args: &IpamReclaimArgs) -> anyhow::Result<ExitCode> {
    let kubeconfig = args.cluster.file();
    let what = what_to_reclaim_by(kubeconfig.as_deref(), &args.node)?;
    if args.output.is_none() {
        what.lives.iter().for_each(|life| show(&what.node, life));
    }
    let doubt = what.lives.iter().find_map(doubt);
    let agreed = match doubt {
        _ if args.dry_run => false,
        Some(doubt) if !args.yes => repair::confirmed(&format!("{doubt}: does really nothing of {} run any more?", what.node))?,
        _ => true,
    };
    if agreed {
        reclaim_by(kubeconfig.as_deref(), &what)?;
    }
    match args.output {
        Some(format) => structured(&view(&what, agreed), format)?,
        None if agreed => putln!("the operator has been told, by {}", pools(&what)),
        None => putln!("nothing was changed"),
    }
    Ok(if agreed || args.dry_run { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

/// Why it may live.
fn doubt(life: &Life) -> Option<String> {
    let lately = life.spoke.filter(|spoke| *spoke < LATELY);
    match (life.is_there, lately) {
        (_, Some(spoke)) => Some(format!("its agent has spoken {} ago", ago(spoke))),
        (true, None) => Some("its Node is there".to_owned()),
        (false, None) => None,
    }
}

fn ago(spoke: Duration) -> String {
    words::age(u64::try_from(spoke.as_millis()).unwrap_or(u64::MAX))
}

fn show(node: &str, life: &Life) {
    let is = if life.is_there { "its Node is there" } else { "its Node is gone" };
    let spoke = life.spoke.map_or_else(String::new, |spoke| format!(", its agent has spoken {} ago", ago(spoke)));
    putln!("{node}, UID {}: {is}{spoke}", life.uid);
    for had in &life.has {
        putln!("  {}  {} of network {}", had.pool, had.run, had.network);
    }
    match (life.is_there, life.has.is_empty()) {
        (true, _) => {
            putln!("{ODD}  nothing of it becomes free while its Node is there; a network whose ledger was lost waits for it no more{ODD:#}")
        }
        (false, true) => putln!("  it has nothing; a network whose ledger was lost waits for it no more"),
        (false, false) => putln!("  {} blocks and addresses become free, for everybody, at once", life.has.len()),
    }
}

fn pools(what: &Reclaim) -> String {
    format!("the annotation netloom.io/reclaim of {}", what.pools.join(", "))
}

fn view(what: &Reclaim, reclaimed: bool) -> View<'_> {
    View { node: &what.node, lives: what.lives.iter().map(of_life).collect(), pools: &what.pools, reclaimed }
}

fn of_life(life: &Life) -> LifeView<'_> {
    let blocks = life.has.iter().map(|had| BlockView { cidr: had.run.to_string(), network: &had.network, pool: &had.pool });
    LifeView { uid: &life.uid, exists: life.is_there, spoke_seconds_ago: life.spoke.map(|spoke| spoke.as_secs()), blocks: blocks.collect() }
}
