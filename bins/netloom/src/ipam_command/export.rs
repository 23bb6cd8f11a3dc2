//! `netloom ipam export whereabouts`: what pods of a cluster have, written as whereabouts' objects.

use std::process::ExitCode;

use anstyle::Style;
use serde::Serialize;

use super::NOT_WELL;
use crate::cli::{ImportSource, IpamExportArgs};
use crate::output::{ODD, Rows, counted, putln, structured};

/// An address, in one line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    address: String,
    /// `exported` or `left out`.
    what: &'static str,
    pod: String,
    pool: String,
    why: String,
}

pub(super) fn run(args: &IpamExportArgs) -> anyhow::Result<ExitCode> {
    let ImportSource::Whereabouts = args.to;
    let done = operator::export_by(args.cluster.file()?.as_deref(), &args.namespace, args.dry_run)?;
    let kept = done.plan.kept.iter().map(|kept| View {
        address: kept.address.to_string(),
        what: "exported",
        pod: kept.owner.pod.clone(),
        pool: kept.pool.clone(),
        why: String::new(),
    });
    let left = done.plan.left.iter().map(|left| View {
        address: left.address.clone(),
        what: "left out",
        pod: left.pod.clone(),
        pool: left.pool.clone(),
        why: left.why.clone(),
    });
    let views: Vec<View> = kept.chain(left).collect();
    match args.output {
        Some(format) => structured(&views, format)?,
        None => {
            let mut rows = Rows::new(&["ADDRESS", "", "POD", "POOL", "WHY"]);
            for View { address, what, pod, pool, why } in &views {
                rows.push([address, *what, pod, pool, why].map(str::to_owned).to_vec());
            }
            rows.print(|line| if line.contains(" left out ") { ODD } else { Style::new() });
            let (written, deleted) = (counted(done.written, "object"), counted(done.deleted, "object"));
            let would = if args.dry_run { "would be " } else { "" };
            putln!(
                "{} exported, {} left out; {written} {would}written, {deleted} {would}deleted",
                counted(done.plan.kept.len(), "address"),
                done.plan.left.len()
            );
        }
    }
    Ok(if done.plan.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}
