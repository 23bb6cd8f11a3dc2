//! Completion: scripts for shells, and the names that they offer.
//!
//! ```text
//!   shell, on TAB -> netloom with NETLOOM_COMPLETE=SHELL -> clap_complete walks the commands -> labs, pods, networks, pools
//! ```
//!
//! Whatever cannot be read offers no name: a shell has no place for a message.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use lab::{Lab, Labs};
use plugins::BUILTINS;

use crate::agent_command;

/// The variable in which a script names its shell.
pub(crate) const VARIABLE: &str = "NETLOOM_COMPLETE";

/// Writes a shell's script.
///
/// # Errors
/// A shell that has none, or what cannot be written.
pub(crate) fn script(shell: clap_complete::Shell, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&name) else { return Err(std::io::Error::other(format!("{name} is not supported"))) };
    shell.write_registration(VARIABLE, "netloom", "netloom", "netloom", out)
}

fn candidates(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The labs that are up.
pub(crate) fn labs() -> Vec<CompletionCandidate> {
    candidates(Labs::default().names().unwrap_or_default().into_iter().map(|name| name.to_string()))
}

/// The pods of every lab; those of the namespace `default` by their names alone.
pub(crate) fn lab_pods() -> Vec<CompletionCandidate> {
    let labs = Labs::default();
    let open: Vec<Lab> = labs.names().unwrap_or_default().iter().filter_map(|name| labs.open(name).ok()).collect();
    candidates(open.iter().flat_map(|lab| lab.pods.iter().map(|pod| short(&pod.full_name()))))
}

/// The pods of this node's agent.
pub(crate) fn pods() -> Vec<CompletionCandidate> {
    candidates(agent_command::pods::names(Path::new(wire::ADMIN_SOCKET)).into_values().map(|name| short(&name)))
}

fn short(name: &str) -> String {
    name.strip_prefix("default/").unwrap_or(name).to_owned()
}

/// The networks of the configuration directory.
pub(crate) fn networks() -> Vec<CompletionCandidate> {
    let dir = std::env::var_os("NETCONFPATH").filter(|dir| !dir.is_empty()).map_or_else(|| "/etc/cni/net.d".into(), PathBuf::from);
    let name = |path: PathBuf| json::parse(&std::fs::read(path).ok()?).ok()?.as_object()?.str("name").map(str::to_owned);
    candidates(files(&dir, &["conf", "conflist", "json"]).into_iter().filter_map(name))
}

/// The pools of this host.
pub(crate) fn pools() -> Vec<CompletionCandidate> {
    candidates(pool_names(Path::new("/etc/netloom/pools")))
}

fn pool_names(dir: &Path) -> impl Iterator<Item = String> {
    let stem = |path: PathBuf| path.file_stem().and_then(OsStr::to_str).map(str::to_owned);
    files(dir, &["json"]).into_iter().filter_map(stem)
}

/// The built-in plugins.
pub(crate) fn plugins() -> Vec<CompletionCandidate> {
    BUILTINS
        .iter()
        .map(|plugin| plugin.about())
        .map(|about| CompletionCandidate::new(about.name).help(Some(about.summary.into())))
        .collect()
}

fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let wanted = |path: &PathBuf| path.extension().and_then(OsStr::to_str).is_some_and(|e| extensions.contains(&e));
    entries.map(|entry| entry.path()).filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_files_of_a_directory() {
        let dir = std::env::temp_dir().join(format!("netloom-complete-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for file in ["office.json", "office.json.bak", "README"] {
            std::fs::write(dir.join(file), "{}").unwrap();
        }
        assert_eq!(pool_names(&dir).collect::<Vec<_>>(), ["office"]);
        assert_eq!(pool_names(&dir.join("none")).count(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
