//! What is made from the tables of commands and plugins: lists, completion, man pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use plugin::About;
use plugins::BUILTINS;

use crate::cli::PluginsArgs;
use crate::output::{Rows, columns, put, putln, structured, wrap};
use crate::{complete, help};

/// `netloom plugins [NAME]`
pub(crate) fn plugins(args: &PluginsArgs) -> anyhow::Result<ExitCode> {
    let all: Vec<&About> = BUILTINS.iter().map(|p| p.about()).collect();
    match (&args.name, args.output) {
        (None, Some(format)) => structured(&all.iter().map(|a| describe(a)).collect::<Vec<_>>(), format)?,
        (None, None) => {
            let mut rows = Rows::new(&["PLUGIN", "VERSIONS", "SUMMARY"]);
            for about in all {
                rows.push(vec![about.name.to_owned(), versions(about), about.summary.to_owned()]);
            }
            rows.print(|_| anstyle::Style::new());
        }
        (Some(name), format) => {
            let near = || npwg::nearest(name, all.iter().map(|a| a.name));
            let hint = || near().map_or("`netloom plugins` lists them".to_owned(), |near| format!("did you mean {near:?}?"));
            let about = all.iter().find(|a| a.name == name.as_str());
            let about = about.with_context(|| format!("there is no built-in plugin {name:?}: {}", hint()))?;
            match format {
                Some(format) => structured(&describe(about), format)?,
                None => keys(about),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn versions(about: &About) -> String {
    match (about.versions.first(), about.versions.last()) {
        (Some(first), Some(last)) => format!("{first} - {last}"),
        _ => String::new(),
    }
}

fn keys(about: &About) {
    putln!("{}: {}", about.name, about.summary);
    if !about.capabilities.is_empty() {
        putln!("capabilities: {}", about.capabilities.join(", "));
    }
    putln!();
    table(about, columns()).print(|_| anstyle::Style::new());
}

/// The keys. Where a terminal has not the columns, what they do goes on below itself: the rest is what one searches for.
fn table(about: &About, columns: Option<usize>) -> Rows {
    const HEADER: [&str; 4] = ["KEY", "VALUE", "DEFAULT", "WHAT IT DOES"];
    let texts: Vec<[&str; 4]> = about.keys.iter().map(|key| [key.name, key.kind, key.default, key.summary]).collect();
    let rows = |room: Option<usize>| {
        let mut rows = Rows::new(&HEADER);
        for [name, kind, default, summary] in &texts {
            for (i, line) in wrap(summary, room).into_iter().enumerate() {
                let first = if i == 0 { [*name, *kind, *default] } else { [""; 3] };
                rows.push(first.into_iter().map(str::to_owned).chain([line]).collect());
            }
        }
        rows
    };
    let whole = rows(None);
    let widest = texts.iter().chain([&HEADER]).map(|t| t.last().map_or(0, |text| text.chars().count())).max().unwrap_or(0);
    match columns {
        Some(columns) if !whole.fits_in(Some(columns)) => {
            let others = whole.width().saturating_sub(widest);
            // A column of single words is read worse than a line that the terminal breaks.
            rows(Some(columns.saturating_sub(others).max(LEAST)))
        }
        _ => whole,
    }
}

/// The least room for a sentence.
const LEAST: usize = 16;

fn describe(about: &About) -> serde_json::Value {
    let key = |k: &plugin::Key| serde_json::json!({ "name": k.name, "kind": k.kind, "default": k.default, "summary": k.summary });
    serde_json::json!({
        "name": about.name,
        "summary": about.summary,
        "versions": about.versions.iter().map(|v| v.as_str()).collect::<Vec<_>>(),
        "capabilities": about.capabilities,
        "keys": about.keys.iter().map(key).collect::<Vec<_>>(),
    })
}

/// `netloom completion SHELL`
pub(crate) fn completion(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    complete::script(shell, &mut script).with_context(|| format!("print a completion script for {shell}"))?;
    put!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// `netloom man [DIR]`: one page for each command.
pub(crate) fn man(dir: &Path) -> anyhow::Result<ExitCode> {
    help::man(dir)?;
    putln!("wrote the man pages of netloom to {}", dir.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keys_do_stays_within_the_terminal() {
        for about in BUILTINS.iter().map(|p| p.about()) {
            let words = |rows: &Rows| rows.lines().flat_map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).count();
            let whole = table(about, None);
            let narrow = table(about, Some(80));
            assert!(narrow.fits_in(Some(80)), "{}:\n{}", about.name, narrow.lines().collect::<Vec<_>>().join("\n"));
            assert_eq!(words(&narrow), words(&whole), "{}", about.name);
            assert_eq!(table(about, Some(10)).lines().next(), whole.lines().next(), "{}", about.name);
        }
    }
}
