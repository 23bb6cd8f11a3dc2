//! What is made from the tables of commands and plugins: lists, completion, man pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use plugin::About;
use plugins::BUILTINS;

use crate::cli::{Cli, PluginsArgs};
use crate::output::{Rows, putln, structured};

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
            let names: Vec<&str> = all.iter().map(|a| a.name).collect();
            let about = all.iter().find(|a| a.name == name.as_str());
            let about = about.with_context(|| format!("there is no built-in plugin {name:?}; there are {}", names.join(", ")))?;
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
    let mut rows = Rows::new(&["KEY", "VALUE", "DEFAULT", "WHAT IT DOES"]);
    for key in about.keys {
        rows.push([key.name, key.kind, key.default, key.summary].map(str::to_owned).to_vec());
    }
    rows.print(|_| anstyle::Style::new());
}

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
    clap_complete::generate(shell, &mut Cli::command(), "netloom", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}

/// `netloom man [DIR]`: one page for each command.
pub(crate) fn man(dir: &Path) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(|| format!("write man pages to {}", dir.display()))?;
    putln!("wrote the man pages of netloom to {}", dir.display());
    Ok(ExitCode::SUCCESS)
}
