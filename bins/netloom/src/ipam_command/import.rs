//! `netloom ipam import whereabouts`: what whereabouts has handed out, brought into the cluster's ledger.

use std::process::ExitCode;

use anstyle::Style;
use ipam::{Left, NotedBy, Reservation};
use operator::Imported;
use serde::Serialize;

use super::NOT_WELL;
use crate::cli::{ImportSource, IpamImportArgs};
use crate::output::{ODD, Rows, putln, structured};

/// An address, in one line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    address: String,
    /// `kept`, `stale`, `unclear` or `refused`.
    what: &'static str,
    pod: String,
    pool: String,
    node: String,
    why: String,
}

pub(super) fn run(args: &IpamImportArgs) -> anyhow::Result<ExitCode> {
    let ImportSource::Whereabouts = args.from;
    let done = operator::import_by(args.cluster.file()?.as_deref(), args.dry_run)?;
    let views = views(&done);
    match args.output {
        Some(format) => structured(&views, format)?,
        None => show(&views, &done, args.dry_run),
    }
    let well = done.refused.is_empty() && done.plan.unclear.is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn views(done: &Imported) -> Vec<View> {
    let of_kept = |kept: &Reservation, what, why: &str| View {
        address: kept.address.to_string(),
        what,
        pod: kept.owner.pod.clone(),
        pool: kept.pool.clone(),
        node: kept.node.clone(),
        why: why.to_owned(),
    };
    let of_left = |left: &Left, what| {
        let (address, pod, pool, why) = (left.address.clone(), left.pod.clone(), left.pool.clone(), left.why.clone());
        View { address, what, pod, pool, node: String::new(), why }
    };
    let refused = |kept: &&Reservation| done.refused.iter().any(|(other, _)| other == *kept);
    let kept = done.plan.kept.iter().filter(|kept| !refused(kept));
    let unsure = |kept: &Reservation| match (kept.by, kept.confirmed) {
        (NotedBy::Pool, true) => "",
        (NotedBy::Pool, false) => "the pod's network-status does not list it",
        (NotedBy::Reservation, true) => "whereabouts has a reservation for it, but no allocation in a pool",
        (NotedBy::Reservation, false) => {
            "whereabouts has a reservation for it, but no allocation in a pool, and the pod's network-status does not list it"
        }
        (NotedBy::Pod, _) => "whereabouts has no allocation for it, but the pod's network-status lists it",
    };
    let mut views: Vec<View> = kept.map(|kept| of_kept(kept, "kept", unsure(kept))).collect();
    views.extend(done.plan.stale.iter().map(|left| of_left(left, "stale")));
    views.extend(done.plan.unclear.iter().map(|left| of_left(left, "unclear")));
    views.extend(done.refused.iter().map(|(kept, why)| of_kept(kept, "refused", why)));
    views
}

fn show(views: &[View], done: &Imported, dry: bool) {
    let mut rows = Rows::new(&["ADDRESS", "", "POD", "POOL", "NODE", "WHY"]);
    for view in views {
        let View { address, what, pod, pool, node, why } = view;
        rows.push([address, *what, pod, pool, node, why].map(str::to_owned).to_vec());
    }
    rows.print(|line| if [" unclear ", " refused "].iter().any(|odd| line.contains(odd)) { ODD } else { Style::new() });
    let count = |what: &str| views.iter().filter(|view| view.what == what).count();
    let (kept, stale, odd) = (count("kept"), count("stale"), count("unclear") + count("refused"));
    let so = if dry { "nothing was changed".to_owned() } else { format!("{} added to the ledger", done.entered) };
    putln!("{kept} kept by their pods, {stale} stale and left out, {odd} to be checked; {so}");
}
