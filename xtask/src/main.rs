//! Checks of the tree itself: `cargo xtask floors`, `cargo xtask conformance`.
//!
//! ```text
//!   cargo metadata --> Workspace (crates and who depends on whom) --> floors::violations --> drawing, exit code
//! ```

mod conformance;
mod floors;
mod metadata;
mod suites;
mod testing;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

const HELP: &str = "Checks of the tree itself.\n\nUsage:\n  cargo xtask floors    no crate imports from its own floor or above, \
                    and what a runtime executes stays small\n  \
                    cargo xtask conformance [--check]    write docs/conformance.md from the tests, or see that it is up to date\n";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("test", args)) = words.split_first().map(|(word, args)| (word.as_str(), args)) {
        return test(args).unwrap_or_else(failed);
    }
    let mut args = words.into_iter();
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
    done.unwrap_or_else(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "what unwrap_or_else hands over")]
fn failed(error: anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}

fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the tree")
}

fn test(args: &[String]) -> anyhow::Result<ExitCode> {
    Ok(if testing::run(root()?, args)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn conformance(check: bool) -> anyhow::Result<ExitCode> {
    let root = root()?;
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
