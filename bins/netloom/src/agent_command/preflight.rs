//! `netloom agent preflight`

use std::process::ExitCode;

use agent::{Finding, Settings};
use json::Object;

use super::NOT_READY;
use crate::cli::PreflightArgs;
use crate::output::{self, BAD, FAINT, GOOD, ODD, counted, putln};

/// How many pods a person is told by name.
const NAMED: usize = 5;

pub(super) fn run(settings: &Settings, args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let file = match (&args.cluster.kubeconfig, &settings.kubeconfig) {
        (None, Some(own)) => Some(own.clone()),
        _ => args.cluster.file()?,
    };
    let cluster = cluster::read_networks(file.as_deref(), settings.provide.is_some())?;
    let (all, of) = (cluster.definitions.len() + cluster.too_large.len(), cluster.pods.len());
    let findings = agent::preflight(settings, cluster);
    match args.output {
        Some(format) => output::structured(&findings.iter().map(value).collect::<Vec<_>>(), format)?,
        None => show(&findings, all, of),
    }
    let fails = findings.iter().any(|finding| finding.fails);
    Ok(if fails { ExitCode::from(NOT_READY) } else { ExitCode::SUCCESS })
}

fn value(finding: &Finding) -> Object {
    let mut o = Object::new();
    o.set("fails", finding.fails);
    o.set("message", finding.message.as_str());
    if let Some(rule) = finding.rule.as_deref() {
        match json::parse(rule.as_bytes()) {
            Ok(rule) => o.set("rule", rule),
            Err(_) => o.set("rule", rule),
        }
    }
    o.set("pods", finding.pods.clone());
    o
}

fn show(findings: &[Finding], definitions: usize, pods: usize) {
    let room = output::columns().map(|columns| columns.saturating_sub(10));
    for finding in findings {
        let (style, word) = if finding.fails { (BAD, "refused") } else { (ODD, "warned") };
        let message = finding.rule.as_ref().and_then(|rule| finding.message.strip_suffix(rule.as_str())).unwrap_or(&finding.message);
        for (at, line) in output::wrap(message.trim_end_matches(": "), room).into_iter().enumerate() {
            putln!("{style}{:8}{style:#}  {line}", if at == 0 { word } else { "" });
        }
        if let Some(rule) = &finding.rule {
            putln!("{:8}  {FAINT}allow{FAINT:#}  {rule}", "");
        }
        if !finding.of_cluster {
            putln!("{:8}  {FAINT}pods{FAINT:#}   {}", "", who(&finding.pods));
        }
    }
    let fails = findings.iter().filter(|finding| finding.fails).count();
    let style = if fails > 0 { BAD } else { GOOD };
    let pods = if pods == 1 { "1 pod that selects".to_owned() } else { format!("{pods} pods that select") };
    putln!(
        "{style}{fails} refused{style:#}, {} with warnings, of {} and {pods} networks",
        findings.len() - fails,
        counted(definitions, "definition")
    );
}

fn who(pods: &[String]) -> String {
    match pods.len() {
        0 => "no pod selects it".to_owned(),
        count if count > NAMED => format!("{}, and {} more", pods.get(..NAMED).unwrap_or_default().join(", "), count - NAMED),
        _ => pods.join(", "),
    }
}
