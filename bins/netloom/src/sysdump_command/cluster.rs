//! A cluster: each node's archive, logs and events, with the rights of the caller and no other.

use anyhow::Context;
use connectivity::{Collect, Piece};

use super::archive::{ENDING, NODES, Target};
use super::begin;
use super::collect::{Collection, MOST_OF_A_FILE};
use crate::cli::SysdumpArgs;
use crate::output::{FAINT, eputln};

/// Collects the cluster: its name, where the archive goes, and the archive.
pub(super) fn collect(args: &SysdumpArgs) -> anyhow::Result<(String, Target, Collection)> {
    let logs = args.logs.iter().map(|pod| pod_of(pod)).collect::<Result<_, _>>()?;
    let wanted = Collect { kubeconfig: args.of.file()?, agents: args.agents.clone(), logs, most: MOST_OF_A_FILE as u64 };
    let (target, mut collection) = begin(args, "cluster")?;
    let mut written = Ok(());
    let mut piece = |piece: Piece| {
        if written.is_ok() {
            written = put(&mut collection, piece);
        }
    };
    let progress = |line: &str| eputln!("{FAINT}{line}{FAINT:#}");
    connectivity::collect(&wanted, &progress, &mut piece)?;
    written?;
    Ok(("cluster".to_owned(), target, collection))
}

fn put(collection: &mut Collection, piece: Piece) -> anyhow::Result<()> {
    match piece {
        // The agent's pod has taken the secrets out of it.
        Piece::Node { node, archive } => collection.put_as_it_is(&format!("{NODES}/{node}{ENDING}"), &archive),
        Piece::Text { name, text } => collection.put(&name, &text),
        Piece::Missing(why) => {
            collection.lacks(why);
            Ok(())
        }
    }
}

fn pod_of(text: &str) -> anyhow::Result<(String, String)> {
    let (namespace, pod) = text.split_once('/').with_context(|| format!("--logs {text:?}: expected NAMESPACE/POD"))?;
    anyhow::ensure!(!namespace.is_empty() && !pod.is_empty() && !pod.contains('/'), "--logs {text:?}: expected NAMESPACE/POD");
    Ok((namespace.to_owned(), pod.to_owned()))
}
