//! Checks of the tree itself: `cargo xtask floors`, `cargo xtask conformance`.
//!
//! ```text
//!   cargo metadata --> Workspace (crates and who depends on whom) --> floors::violations --> drawing, exit code
//! ```

mod conformance;
mod floors;
mod metadata;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

const HELP: &str = "Checks of the tree itself.\n\nUsage:\n  cargo xtask floors    no crate imports from its own floor or above, \
                    and what a runtime executes stays small\n  \
                    cargo xtask conformance [--check]    write docs/conformance.md from the tests, or see that it is up to date\n";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let done = match (args.next().as_deref(), args.next().as_deref()) {
        (Some("floors"), None) => floors(),
        (Some("conformance"), None) => conformance(false),
        (Some("conformance"), Some("--check")) => conformance(true),
        (None | Some("help" | "--help" | "-h"), None) => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("{HELP}");
            Ok(ExitCode::from(2))
        }
    };
    done.unwrap_or_else(|e| {
        eprintln!("xtask: {e:#}");
        ExitCode::FAILURE
    })
}

fn conformance(check: bool) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the tree")?;
    let path = root.join("docs/conformance.md");
    let page = conformance::page(root)?;
    if check {
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        anyhow::ensure!(found == page, "docs/conformance.md is not what the tests say: run `cargo xtask conformance`");
        println!("docs/conformance.md is what the tests say");
    } else {
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        println!("wrote docs/conformance.md");
    }
    Ok(ExitCode::SUCCESS)
}

fn floors() -> anyhow::Result<ExitCode> {
    let graph = metadata::load()?;
    let violations = floors::violations(&graph);
    if violations.is_empty() {
        print!("{}", floors::drawing());
        println!("{} crates, no import goes up; {}", graph.members.len(), floors::small(&graph));
        return Ok(ExitCode::SUCCESS);
    }
    for violation in &violations {
        eprintln!("floors: {violation}");
    }
    Ok(ExitCode::FAILURE)
}
