//! `netloom lab list`

use std::process::ExitCode;

use lab::{LabName, Labs, Phase};
use serde::Serialize;

use super::labs;
use crate::cli::Structured;
use crate::output::{BAD, Rows, putln, structured};

/// One lab.
#[derive(Default, Serialize)]
struct Row {
    name: String,
    state: &'static str,
    nodes: usize,
    pods: usize,
    failed: usize,
    /// Why it is broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(crate) fn run(output: Option<Structured>) -> anyhow::Result<ExitCode> {
    let labs = labs();
    let all: Vec<Row> = labs.names()?.iter().map(|name| row(&labs, name)).collect();
    match output {
        Some(format) => structured(&all, format)?,
        None if all.is_empty() => putln!("no lab is up; start one with `netloom lab up FILES`"),
        None => table(&all),
    }
    Ok(ExitCode::SUCCESS)
}

fn row(labs: &Labs, name: &LabName) -> Row {
    let row = Row { name: name.to_string(), ..Row::default() };
    let lab = match labs.open(name) {
        Ok(lab) => lab,
        Err(e) => return Row { state: "Broken", reason: Some(e.to_string()), ..row },
    };
    let state = match lab.phase {
        Phase::Building => "Building",
        Phase::Up => "Up",
        Phase::GoingDown => "GoingDown",
    };
    let failed = lab.pods.iter().filter(|p| p.failure.is_some()).count();
    Row { state, nodes: lab.nodes.len(), pods: lab.pods.len(), failed, ..row }
}

fn table(all: &[Row]) {
    let mut rows = Rows::new(&["LAB", "STATE", "NODES", "PODS", "FAILED"]);
    for row in all {
        let count = |n: usize| if row.reason.is_some() { "-".to_owned() } else { n.to_string() };
        rows.push(vec![row.name.clone(), row.state.to_owned(), count(row.nodes), count(row.pods), count(row.failed)]);
    }
    rows.print(|line| if line.ends_with(" 0") && line.contains(" Up ") { anstyle::Style::new() } else { BAD });
    for reason in all.iter().filter_map(|row| row.reason.as_ref()) {
        crate::output::eputln!("{BAD}{reason}{BAD:#}");
    }
}
