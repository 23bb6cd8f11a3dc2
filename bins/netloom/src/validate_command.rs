//! `netloom validate`

use std::process::ExitCode;

use lab::manifest::{self, Purpose};

use crate::cli::{Listed, Structured, ValidateArgs};
use crate::diagnostics::{self, Diagnostic};
use crate::output::{BAD, GOOD, ODD, Rows, counted, putln, structured};

pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let examined = manifest::examine(&args.files, &mut std::io::stdin(), Purpose::Cluster);
    let found = diagnostics::of(&examined);
    match args.output {
        None => found.iter().for_each(|diagnostic| putln!("{diagnostic}")),
        Some(Listed::Json) => structured(&found, Structured::Json)?,
        Some(Listed::Yaml) => structured(&found, Structured::Yaml)?,
        Some(Listed::Table) => table(&found),
    }
    let errors = found.iter().filter(|diagnostic| diagnostic.is_error()).count();
    if args.output.is_none() {
        match (errors, found.len() - errors) {
            (0, 0) => putln!("{GOOD}nothing is wrong{GOOD:#}{}", read(&examined)),
            (0, others) => putln!("{ODD}no error{ODD:#}, {}{}", counted(others, "other finding"), read(&examined)),
            (errors, 0) => putln!("{BAD}{}{BAD:#}", counted(errors, "error")),
            (errors, others) => putln!("{BAD}{}{BAD:#}, {}", counted(errors, "error"), counted(others, "other finding")),
        }
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was read, as the end of a line.
fn read(examined: &manifest::Examined) -> String {
    let Ok(manifests) = &examined.manifests else { return String::new() };
    format!(": {}, {}", counted(manifests.definitions.len(), "network"), counted(manifests.pods.len(), "pod"))
}

fn table(found: &[Diagnostic]) {
    let mut rows = Rows::new(&["PLACE", "SEVERITY", "FIELD", "MESSAGE"]);
    for diagnostic in found {
        rows.push(vec![diagnostic.place(), diagnostic.severity.to_owned(), diagnostic.field.clone(), diagnostic.in_a_line()]);
    }
    rows.print(|line| if line.contains(" error ") { BAD } else { anstyle::Style::new() });
}
