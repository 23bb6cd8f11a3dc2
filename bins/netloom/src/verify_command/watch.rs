//! `netloom verify --watch`: a line when a path breaks, and one when it heals.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use probe::{Change, Now};
use serde::Serialize;
use verify::{Case, Finding};

use crate::cli::{VerifyArgs, VerifyFormat};
use crate::output::{BAD, FAINT, GOOD, counted, putln};
use crate::terminal::plain;

/// A change, as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    time: String,
    state: &'a str,
    case: &'a str,
    from: String,
    to: String,
    address: String,
    protocol: verify::Protocol,
    /// How long it was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    finding: Option<&'a Finding>,
}

pub(super) fn run(args: &VerifyArgs, lab: &lab::Lab, wanted: &dyn Fn(&Case) -> bool) -> anyhow::Result<ExitCode> {
    lab::watch(lab, wanted, Duration::from_secs(args.timeout), &begins, &mut report(args)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run_cluster(args: &VerifyArgs, wanted: &dyn Fn(&Case) -> bool) -> anyhow::Result<ExitCode> {
    super::cluster::watch(&args.cluster, wanted, Duration::from_secs(args.timeout), &begins, &mut report(args)?)?;
    Ok(ExitCode::SUCCESS)
}

fn begins(paths: usize) {
    crate::output::eputln!("{FAINT}watching {}; Ctrl-C ends it{FAINT:#}", counted(paths, "path"));
}

/// Prints each change.
fn report(args: &VerifyArgs) -> anyhow::Result<impl FnMut(&Change<'_>) + use<>> {
    let is_json = match args.output {
        VerifyFormat::Table => false,
        VerifyFormat::Json => true,
        VerifyFormat::Junit | VerifyFormat::Html => anyhow::bail!("--watch has no end: use -o table or -o json"),
    };
    Ok(move |change: &Change<'_>| if is_json { json(change) } else { line(change) })
}

/// To a tenth of a second.
fn time(at: SystemTime) -> String {
    Timestamp::try_from(at).map(|at| format!("{at:.1}")).unwrap_or_default()
}

fn line(change: &Change<'_>) {
    let check = change.check;
    let path = format!("{}: {} to {} over {} at {}", check.case.id, check.from, check.whom(), check.protocol, check.address);
    let (path, at) = (plain(&path), time(change.at));
    match &change.now {
        Now::Broken { said, finding } => {
            putln!("{at}  {BAD}broken{BAD:#}  {path}: {}", plain(said));
            let (place, evidence) = (finding.at(), plain(&finding.evidence));
            putln!("{:at$}          {} {} {FAINT}{evidence}{FAINT:#}", "", plain(&place), finding.fault.title(), at = at.len());
        }
        Now::Healed { after } => putln!("{at}  {GOOD}healed{GOOD:#}  {path}: after {:.1} s", after.as_secs_f64()),
    }
}

fn json(change: &Change<'_>) {
    let check = change.check;
    let (state, seconds, observed, finding) = match &change.now {
        Now::Broken { said, finding } => ("broken", None, Some(said.as_str()), Some(&**finding)),
        Now::Healed { after } => ("healed", Some((after.as_secs_f64() * 10.0).round() / 10.0), None, None),
    };
    let view = View {
        time: time(change.at),
        state,
        case: check.case.id,
        from: check.from.to_string(),
        to: check.whom(),
        address: check.address.to_string(),
        protocol: check.protocol,
        seconds,
        observed,
        finding,
    };
    // Texts and numbers alone: they can be written.
    putln!("{}", serde_json::to_string(&view).unwrap_or_default());
}
