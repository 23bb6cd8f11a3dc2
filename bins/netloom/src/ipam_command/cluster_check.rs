//! `netloom ipam check --cluster`: what nodes have, against the ledger and against each other.

use std::process::ExitCode;

use operator::OfTwo;

use super::NOT_WELL;
use crate::cli::IpamCheckArgs;
use crate::output::{BAD, ODD, counted, put, putln, structured};
use crate::page::{Hang, Look, Page};

/// Of the column with the node's name.
const WIDTH: usize = 16;

pub(super) fn run(args: &IpamCheckArgs) -> anyhow::Result<ExitCode> {
    let found = operator::check_by(args.of.file()?.as_deref())?;
    match args.output {
        Some(format) => structured(&found, format)?,
        None if found.is_empty() => putln!("no address of the cluster belongs to two, and every node has what the ledger says"),
        None => {
            let mut page = Page::new(Look::here());
            for one in &found {
                page.pair(Hang::default(), &one.node, WIDTH, BAD, &one.what);
                for OfTwo { ip, pods: [pod, other], nodes: [node, elsewhere] } in &one.addresses {
                    page.pair(Hang::default(), "", WIDTH, ODD, &format!("{ip}: pod {pod} on {node}, and pod {other} on {elsewhere}"));
                }
            }
            put!("{}", page.into_text());
            putln!("{}", counted(found.len(), "contradiction"));
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}
