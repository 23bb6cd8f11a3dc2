//! Checks of the tree itself: `cargo xtask floors`, `conformance`, `documents`, `messages`, `plugins`, `sbom`, `sleeps`, `tests`.
//!
//! ```text
//!   cargo metadata --> Workspace (crates and who depends on whom) --> floors::violations --> drawing, exit code
//!   every source   --> Source (code, texts and comments apart)    --> sleeps, tally, messages --> list or table, exit code
//! ```

mod conformance;
mod documents;
mod floors;
mod messages;
mod metadata;
mod plugins;
mod sbom;
mod sleeps;
mod source;
mod suites;
mod tally;
mod testing;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

const HELP: &str = "Checks of the tree itself.\n\nUsage:\n  cargo xtask floors    no crate imports from its own floor or above, \
                    and what a runtime executes stays small\n  \
                    cargo xtask conformance [--check]    write docs/internals/conformance.md from the tests, or see that it is up to date\n  \
                    cargo xtask documents    links and anchors of the documents lead somewhere, and the book names every page\n  \
                    cargo xtask plugins [--check]    write the tables of docs/use/plugins/*.md, or see that they are up to date\n  \
                    cargo xtask messages [--count | PATH...]    every text that the released executables can show, as `file:line  message`\n  \
                    cargo xtask sbom TARGET [TIME]    print what a release for that target is made of, as CycloneDX\n  \
                    cargo xtask sleeps [--count]    no test sleeps without its reason beside it, or how many do\n  \
                    cargo xtask test [--all] [SUITE [FILTER...]]    build and run the tests, or one suite of them\n  \
                    cargo xtask suites [--check]    write the table of docs/internals/tests.md, or see that it is up to date\n  \
                    cargo xtask tests [-o json]    how many tests and assertions each part of the tree has\n";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["floors"] => floors(),
        ["conformance"] => conformance(false),
        ["conformance", "--check"] => conformance(true),
        ["documents"] => documents(),
        ["plugins"] => plugins(false),
        ["plugins", "--check"] => plugins(true),
        ["messages", "--count"] => count_messages(),
        ["messages", paths @ ..] => messages(paths),
        ["sbom", target] => sbom(target, None),
        ["sbom", target, time] => sbom(target, Some(time)),
        ["sleeps"] => sleeps(),
        ["sleeps", "--count"] => count_sleeps(),
        ["test", ..] => test(words.get(1..).unwrap_or_default()),
        ["suites"] => suites(false),
        ["suites", "--check"] => suites(true),
        ["tests"] => tests(false),
        ["tests", "-o", "json"] => tests(true),
        [] | ["help" | "--help" | "-h"] => {
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

fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the tree")
}

fn sbom(target: &str, time: Option<&str>) -> anyhow::Result<ExitCode> {
    print!("{}", sbom::document(root()?, target, time)?);
    Ok(ExitCode::SUCCESS)
}

fn test(args: &[String]) -> anyhow::Result<ExitCode> {
    Ok(if testing::run(root()?, args)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The table stands between its first line and the next empty one.
fn suites(check: bool) -> anyhow::Result<ExitCode> {
    let path = root()?.join("docs/internals/tests.md");
    let found = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (before, rest) = found.split_once("| suite |").context("docs/internals/tests.md has no table")?;
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let page = format!("{before}{}\n{after}", suites::table());
    if check {
        anyhow::ensure!(found == page, "docs/internals/tests.md is not what xtask/src/suites.rs says: run `cargo xtask suites`");
        println!("docs/internals/tests.md lists the suites");
    } else {
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        println!("wrote docs/internals/tests.md");
    }
    Ok(ExitCode::SUCCESS)
}

fn conformance(check: bool) -> anyhow::Result<ExitCode> {
    let root = root()?;
    let path = root.join("docs/internals/conformance.md");
    let page = conformance::page(root)?;
    if check {
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        anyhow::ensure!(found == page, "docs/internals/conformance.md is not what the tests say: run `cargo xtask conformance`");
        println!("docs/internals/conformance.md is what the tests say");
    } else {
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        println!("wrote docs/internals/conformance.md");
    }
    Ok(ExitCode::SUCCESS)
}

fn documents() -> anyhow::Result<ExitCode> {
    let (count, faults) = documents::faults(root()?)?;
    for fault in &faults {
        eprintln!("{fault}");
    }
    if faults.is_empty() {
        println!("{count} documents: links and anchors hold, and docs/SUMMARY.md names every page");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn plugins(check: bool) -> anyhow::Result<ExitCode> {
    let pages = plugins::pages(root()?)?;
    for page in &pages {
        if check {
            let path = page.path.display();
            anyhow::ensure!(page.found == page.wanted, "{path} is not what `netloom plugins` says: run `cargo xtask plugins`");
        } else {
            std::fs::write(&page.path, &page.wanted).with_context(|| page.path.display().to_string())?;
        }
    }
    println!("{} {} pages of docs/use/plugins/", if check { "checked" } else { "wrote" }, pages.len());
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

fn sleeps() -> anyhow::Result<ExitCode> {
    let found: Vec<sleeps::Sleep> = source::all(root()?)?.iter().flat_map(sleeps::sleeps).collect();
    let bare: Vec<&sleeps::Sleep> = found.iter().filter(|sleep| !sleep.has_reason).collect();
    if bare.is_empty() {
        println!("tests sleep in {} places, each for a reason", found.len());
        return Ok(ExitCode::SUCCESS);
    }
    for sleep in &bare {
        eprintln!("{}:{}: a test sleeps here and does not say why", sleep.path.display(), sleep.line);
    }
    eprintln!("{}", sleeps::ADVICE);
    Ok(ExitCode::FAILURE)
}

fn count_sleeps() -> anyhow::Result<ExitCode> {
    let found: Vec<sleeps::Sleep> = source::all(root()?)?.iter().flat_map(sleeps::sleeps).collect();
    let with_reason = found.iter().filter(|sleep| sleep.has_reason).count();
    println!("tests sleep in {} places: {with_reason} with a reason, {} without", found.len(), found.len() - with_reason);
    Ok(ExitCode::SUCCESS)
}

/// Those of all sources, or of those below a path.
fn messages(paths: &[&str]) -> anyhow::Result<ExitCode> {
    let sources = source::all(root()?)?;
    let asked = |source: &&source::Source| paths.is_empty() || paths.iter().any(|path| source.path.starts_with(path));
    for message in sources.iter().filter(asked).flat_map(messages::of) {
        println!("{}:{}  {}", message.path.display(), message.line, message.text);
    }
    Ok(ExitCode::SUCCESS)
}

fn count_messages() -> anyhow::Result<ExitCode> {
    print!("{}", messages::count(&source::all(root()?)?));
    Ok(ExitCode::SUCCESS)
}

fn tests(as_json: bool) -> anyhow::Result<ExitCode> {
    let counts = tally::count(&source::all(root()?)?);
    if as_json {
        println!("{:#}", tally::json(&counts));
    } else {
        print!("{}", tally::table(&counts));
    }
    Ok(ExitCode::SUCCESS)
}
