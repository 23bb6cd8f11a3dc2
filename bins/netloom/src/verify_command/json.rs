//! For a program.

use probe::{CaseResult, Failure};
use serde::Serialize;
use verify::Finding;

use super::{Kind, Run, State};
use crate::cli::Structured;
use crate::output::structured;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    lab: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    cluster: Option<&'a str>,
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
    cases: Vec<CaseView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CaseView<'a> {
    id: &'a str,
    words: &'a str,
    state: &'a str,
    passed: usize,
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<FailureView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<SkippedView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureView<'a> {
    from: String,
    to: String,
    address: String,
    protocol: verify::Protocol,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    observed: &'a str,
    title: &'a str,
    #[serde(flatten)]
    finding: &'a Finding,
}

#[derive(Serialize)]
struct SkippedView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<&'a str>,
    why: &'a str,
}

pub(super) fn print(run: &Run<'_>) -> anyhow::Result<()> {
    let view = View {
        lab: Some(run.name).filter(|_| run.kind == Kind::Lab),
        file: Some(run.name).filter(|_| run.kind == Kind::File),
        cluster: Some(run.name).filter(|_| run.kind == Kind::Cluster),
        passed: run.count(State::Passed),
        failed: run.count(State::Failed),
        skipped: run.count(State::Skipped),
        seconds: run.took.as_secs_f64(),
        cases: run.results.iter().map(case).collect(),
    };
    structured(&view, Structured::Json)
}

fn case(result: &CaseResult) -> CaseView<'_> {
    let family = |is_ipv4: bool| if is_ipv4 { "IPv4" } else { "IPv6" };
    CaseView {
        id: result.case.id,
        words: result.case.words,
        state: State::of(result).text(),
        passed: result.passed,
        seconds: result.took.as_secs_f64(),
        failures: result.failures.iter().map(failure).collect(),
        skipped: result.skipped.iter().map(|(is_ipv4, why)| SkippedView { family: is_ipv4.map(family), why }).collect(),
    }
}

fn failure(failure: &Failure) -> FailureView<'_> {
    let check = &failure.check;
    FailureView {
        from: check.from.to_string(),
        to: check.whom(),
        address: check.address.to_string(),
        protocol: check.protocol,
        port: check.port,
        network: check.network.as_deref(),
        size: check.size,
        observed: &failure.said,
        title: failure.finding.fault.title(),
        finding: &failure.finding,
    }
}
