//! `netloom verify`: one file for each format, and for each way to verify something else than a lab as it is now.

mod cluster;
mod html;
mod json;
mod junit;
mod markup;
mod perf;
mod recorded;
mod table;
mod watch;

use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use probe::{CaseResult, Event};
use regex_lite::Regex;
use verify::{CASES, Case};

use crate::cli::{VerifyArgs, VerifyCommand, VerifyFormat};
use crate::lab_command::{must_be_root, open, shown};
use crate::output::{ODD, Rows, counted, put, show_progress};

/// The exit code where some cases fail. A verification that cannot begin has 1, as every command that fails.
const SOME_FAILED: u8 = 3;

/// A verification that has ended.
struct Run<'a> {
    /// What was verified.
    kind: Kind,
    /// Its name.
    name: &'a str,
    results: &'a [CaseResult],
    took: Duration,
}

/// What is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lab,
    File,
    Cluster,
}

/// How a case came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Passed,
    Failed,
    Skipped,
}

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if let Some(VerifyCommand::Perf(args)) = &args.command {
        return perf::run(args);
    }
    let patterns: Vec<Regex> =
        args.test.iter().map(|text| Regex::new(text).with_context(|| format!("--test {text:?}"))).collect::<Result<_, _>>()?;
    let wanted = |case: &Case| {
        let matches = |pattern: &Regex| pattern.is_match(case.id) || pattern.is_match(case.words);
        patterns.is_empty() || patterns.iter().any(matches)
    };
    anyhow::ensure!(CASES.iter().any(wanted), "no case matches --test {}: see them with `netloom verify --list`", args.test.join(", "));
    if args.list {
        list(&wanted);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.from {
        return recorded::run(args, file, &wanted);
    }
    if args.cluster.probed.wanted { run_cluster(args, &wanted) } else { run_lab(args, &wanted) }
}

fn run_lab(args: &VerifyArgs, wanted: &dyn Fn(&Case) -> bool) -> anyhow::Result<ExitCode> {
    must_be_root()?;
    let lab = open(&args.which)?;
    for pod in lab.pods.iter().filter(|pod| pod.failure.is_some()) {
        crate::output::eputln!("{ODD}warning:{ODD:#} {} is not attached, and not verified", pod.full_name());
    }
    if args.watch {
        return watch::run(args, &lab, wanted);
    }
    let began = Instant::now();
    let mut report = |event: Event<'_>| report(args, event);
    let results = lab::verify(&lab, wanted, (how(args), args.bandwidth), &mut report)?;
    ended(args, &Run { kind: Kind::Lab, name: lab.name.as_str(), results: &results, took: began.elapsed() })
}

fn run_cluster(args: &VerifyArgs, wanted: &dyn Fn(&Case) -> bool) -> anyhow::Result<ExitCode> {
    if args.watch {
        return watch::run_cluster(args, wanted);
    }
    let began = Instant::now();
    let verified = cluster::verify(args, wanted, how(args), &mut |event| shown_and_paused(args, event))?;
    let took = began.elapsed();
    let recorded = match args.cluster.record.as_deref().zip(verified.recorded) {
        Some((file, snapshot)) => cluster::record(snapshot, file),
        None => Ok(()),
    };
    // Results are shown also where the record cannot be written.
    let code = ended(args, &Run { kind: Kind::Cluster, name: &verified.server, results: &verified.results, took })?;
    recorded.map(|()| code)
}

fn how(args: &VerifyArgs) -> probe::Run {
    probe::Run { concurrency: args.concurrency.into(), timeout: Duration::from_secs(args.timeout) }
}

/// Shows what is done, and waits for Enter if that is wanted of a case that has failed.
fn report(args: &VerifyArgs, event: Event<'_>) {
    if shown_and_paused(args, &event)
        && let Event::Case(result) = event
    {
        crate::output::write_error(format_args!("{ODD}{} failed; press Enter to go on{ODD:#} ", result.case.id));
        let _ = std::io::stdin().lock().read_line(&mut String::new());
    }
}

/// Shows what is done; whether to wait then until a person has looked at it.
fn shown_and_paused(args: &VerifyArgs, event: &Event<'_>) -> bool {
    let result = match event {
        Event::Probe { done, all } => {
            show_progress(&format!("{done} of {}", counted(*all, "probe")));
            return false;
        }
        Event::Case(result) => result,
    };
    if args.output == VerifyFormat::Table {
        table::case(result);
    }
    let pauses = args.pause_on_fail && State::of(result) == State::Failed;
    if pauses {
        table::failures(result);
    }
    pauses
}

fn ended(args: &VerifyArgs, run: &Run<'_>) -> anyhow::Result<ExitCode> {
    match args.output {
        VerifyFormat::Table => table::end(run),
        VerifyFormat::Json => json::print(run)?,
        VerifyFormat::Junit => put!("{}", junit::text(run)),
        VerifyFormat::Html => put!("{}", html::text(run)),
    }
    let failed = run.results.iter().any(|result| State::of(result) == State::Failed);
    Ok(if failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn list(wanted: &dyn Fn(&Case) -> bool) {
    let mut rows = Rows::new(&["CASE", "WHAT", "NEEDS", "FAMILIES"]);
    for case in CASES.iter().filter(|case| wanted(case)) {
        let needs: Vec<String> = case.needs().iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() { "-".to_owned() } else { needs.join(", ") };
        rows.push(vec![case.id.to_owned(), case.words.to_owned(), needs, families(case)]);
    }
    rows.print(|_| anstyle::Style::new());
}

/// The families that have a case, and what is expected of one that differs.
fn families(case: &Case) -> String {
    match (case.impossible(true), case.impossible(false)) {
        (None, None) if case.asks_loopback() => "both; over IPv6 no answer at [::1]".to_owned(),
        (None, None) => "both".to_owned(),
        (None, Some(why)) => format!("IPv4; IPv6 is skipped: {why}"),
        (Some(why), None) => format!("IPv6; IPv4 is skipped: {why}"),
        (Some(why), Some(_)) => format!("none: {why}"),
    }
}

// === impl Kind ===

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Lab => "lab",
            Kind::File => "file",
            Kind::Cluster => "cluster",
        })
    }
}

// === impl State ===

impl State {
    fn of(result: &CaseResult) -> Self {
        match (result.failures.len(), result.passed) {
            (0, 0) => State::Skipped,
            (0, _) => State::Passed,
            _ => State::Failed,
        }
    }

    fn text(self) -> &'static str {
        match self {
            State::Passed => "passed",
            State::Failed => "failed",
            State::Skipped => "skipped",
        }
    }
}

// === impl Run ===

impl Run<'_> {
    fn count(&self, state: State) -> usize {
        self.results.iter().filter(|result| State::of(result) == state).count()
    }
}

/// How a case passed: its probes, how long they took, and what of it was not tried.
fn how_passed(result: &CaseResult) -> String {
    let done = format!("{} in {}", counted(result.passed, "probe"), shown(result.took));
    if result.skipped.is_empty() { done } else { format!("{done}; not tried: {}", reasons(result)) }
}

/// Why a case, or a part of it, was not tried.
fn reasons(result: &CaseResult) -> String {
    let reason = |(is_ipv4, why): &(Option<bool>, String)| match is_ipv4 {
        None => why.clone(),
        Some(true) => format!("IPv4: {why}"),
        Some(false) => format!("IPv6: {why}"),
    };
    let mut reasons: Vec<String> = match result.skipped.as_slice() {
        // The same in both families is said once.
        [(_, one), (_, other)] if one == other => vec![one.clone()],
        several => several.iter().map(reason).collect(),
    };
    reasons.dedup();
    reasons.join("; ")
}
