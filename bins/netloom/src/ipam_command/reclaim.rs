//! `netloom ipam reclaim`: a person says that nothing of a node runs any more.

use std::process::ExitCode;
use std::time::Duration;

use operator::{Life, Reclaim, Says, reclaim_by, what_to_reclaim_by};
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
    let kubeconfig = args.cluster.file()?;
    let what = what_to_reclaim_by(kubeconfig.as_deref(), &args.node)?;
    if args.output.is_none() {
        what.lives.iter().for_each(|life| show(&what, life));
    }
    let doubt = what.lives.iter().find_map(|life| doubt(&what, life));
    let agreed = match doubt {
        _ if args.dry_run => false,
        Some(doubt) if !args.yes => repair::confirmed(&format!("{doubt}: is node {} really gone for good?", what.node))?,
        _ => true,
    };
    if agreed {
        reclaim_by(kubeconfig.as_deref(), &what)?;
    }
    match args.output {
        Some(format) => structured(&view(&what, agreed), format)?,
        None if agreed => putln!("reported to the operator, with {}", pools(&what)),
        None => putln!("nothing was changed"),
    }
    Ok(if agreed || args.dry_run { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

/// Why it may live.
fn doubt(what: &Reclaim, life: &Life) -> Option<String> {
    let lately = life.spoke.filter(|spoke| *spoke < LATELY);
    match (what.says(life), lately) {
        _ if life.is_said => None,
        (Says::Nothing, _) => None,
        (_, Some(spoke)) => Some(format!("its agent reported {} ago", ago(spoke))),
        (Says::Silent, None) => Some("its Node exists".to_owned()),
        // A Node that is gone says nothing of the machine: its object, by which its agent would be known, goes with it.
        (Says::Free, None) if life.has.is_empty() => life.is_marked.then(|| format!("everything of {} is released", what.node)),
        (Says::Free, None) => {
            let are = if life.has.len() == 1 { "is" } else { "are" };
            Some(format!("{} {are} released at once", count(life)))
        }
    }
}

/// How much it has.
fn count(life: &Life) -> String {
    match life.has.len() {
        1 => "one block or address".to_owned(),
        many => format!("{many} blocks and addresses"),
    }
}

fn ago(spoke: Duration) -> String {
    words::age(u64::try_from(spoke.as_millis()).unwrap_or(u64::MAX))
}

fn show(what: &Reclaim, life: &Life) {
    let is = if life.is_there { "its Node exists" } else { "its Node is gone" };
    let spoke = life.spoke.map_or_else(String::new, |spoke| format!(", its agent reported {} ago", ago(spoke)));
    putln!("{}, UID {}: {is}{spoke}", what.node, life.uid);
    for had in &life.has {
        putln!("  {}  {} of network {}", had.pool, had.run, had.network);
    }
    match (what.says(life), life.has.is_empty()) {
        (Says::Silent, _) => {
            putln!(
                "{ODD}  it keeps its addresses even when its Node is deleted; a network whose ledger was lost does not wait for it any \
                    more{ODD:#}"
            );
        }
        (Says::Nothing, _) => putln!("  not included: the addresses of the earlier Node are released first"),
        (Says::Free, true) if life.is_marked => {
            putln!("  its addresses were lost with the ledger: they are free once all other nodes have reported theirs");
        }
        (Says::Free, true) => putln!("  it has no address; a network whose ledger was lost does not wait for it any more"),
        (Says::Free, false) => putln!("  {}: free at once", count(life)),
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
