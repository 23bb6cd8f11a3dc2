//! What is in an archive: of a node, and of a lab.

use std::path::{Path, PathBuf};

use anyhow::Context;
use linux::file::{self, Links, ReadError};
use serde_json::json;
use verify::Snapshot;

use super::archive::SNAPSHOT;
use super::redact::redacted;
use crate::lab_command::open_named;
use crate::{agent_command, version_command};

/// Bytes of a file that are taken, and of all files together.
const MOST_OF_A_FILE: usize = 16 << 20;
const MOST: usize = 512 << 20;
/// How deep folders are looked into.
const DEEPEST: usize = 4;

/// Questions to a node's agent whose answers are kept.
const QUESTIONS: [&str; 3] = ["status", "pods", "nodes"];

/// What an archive has, and lacks.
pub(super) struct Collected {
    /// Each file's name in the archive, and its bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// What could not be collected, a sentence each.
    pub(super) missing: Vec<String>,
}

/// What is collected.
pub(super) struct Collection {
    /// When.
    pub(super) taken: String,
    files: Vec<(String, Vec<u8>)>,
    /// What could not be had, and why.
    missing: Vec<String>,
    bytes: usize,
}

/// Collects a lab: its name.
pub(super) fn lab(collection: &mut Collection, name: &str) -> anyhow::Result<String> {
    let lab = open_named(name)?;
    match lab::snapshot(&lab) {
        Ok(snapshot) => collection.snapshot(&snapshot)?,
        Err(e) => collection.missing.push(format!("the snapshot: {e}")),
    }
    collection.add(Path::new(""), &lab.description());
    for node in &lab.nodes {
        let below = Path::new("nodes").join(&node.name);
        collection.add(&below, &lab.records_dir(&node.name));
    }
    collection.add(Path::new(""), &lab.pools());
    collection.add(Path::new(""), &lab.leases());
    Ok(lab.name.to_string())
}

/// Collects this node: its name.
pub(super) fn node(collection: &mut Collection, config: Option<&Path>) -> anyhow::Result<String> {
    let settings = agent_command::run::settings_of(config)?;
    let snapshot = agent::observe_node(&settings);
    collection.snapshot(&snapshot)?;
    let file = config.map_or_else(|| PathBuf::from(agent_command::run::FILE), Path::to_owned);
    collection.add(Path::new("settings"), &file);
    collection.add(Path::new(""), &settings.records());
    let dirs = settings.dirs();
    collection.add(Path::new(""), &dirs.pools);
    collection.add(Path::new(""), &dirs.journal);
    collection.add(Path::new(""), Path::new(attach::SPOOL));
    for name in configurations() {
        collection.add(Path::new("net.d"), &name);
    }
    for log in logs() {
        collection.add(Path::new("logs"), &log);
    }
    for what in QUESTIONS {
        match agent_command::ask(Path::new(wire::ADMIN_SOCKET), what, &[]) {
            Ok(answer) => collection.put(format!("agent/{what}.json"), json::compact(&answer).into_bytes()),
            Err(e) => {
                collection.missing.push(format!("what the agent says of {what}: {}", e.to_string().lines().next().unwrap_or_default()))
            }
        }
    }
    Ok(settings.node_name.clone())
}

/// Network configurations of the runtime; kubeconfigs beside them are none.
fn configurations() -> Vec<PathBuf> {
    let is_configuration = |path: &PathBuf| path.extension().is_some_and(|end| end == "conf" || end == "conflist" || end == "json");
    let entries = std::fs::read_dir("/etc/cni/net.d").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(is_configuration).collect()
}

/// Logs of this node's own pods of Netloom.
fn logs() -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("_netloom"));
    std::fs::read_dir("/var/log/pods").into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_ours).collect()
}

// === impl Collection ===

impl Collection {
    pub(super) fn new() -> Self {
        let mut collection = Collection { taken: daemon::log::now(), files: Vec::new(), missing: Vec::new(), bytes: 0 };
        match version_command::as_json() {
            Ok(version) => collection.put("version.json".to_owned(), version),
            Err(e) => collection.missing.push(format!("the version: {e}")),
        }
        for name in ["/proc/sys/kernel/version", "/proc/meminfo", "/proc/loadavg", "/proc/net/softnet_stat", "/etc/os-release"] {
            collection.add(Path::new("host"), Path::new(name));
        }
        collection
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let text = serde_json::to_vec(snapshot).context("write the snapshot")?;
        self.put(SNAPSHOT.to_owned(), text);
        Ok(())
    }

    fn put(&mut self, name: String, bytes: Vec<u8>) {
        if self.bytes + bytes.len() > MOST {
            self.missing.push(format!("{name}: the archive would have more than {} MiB", MOST >> 20));
            return;
        }
        self.bytes += bytes.len();
        self.files.push((name, bytes));
    }

    /// Adds a file, or all files of a folder, below a folder of the archive. In a folder, links are passed over: somebody else may have put them
    /// there, to have a file of root's in the archive.
    pub(super) fn add(&mut self, below: &Path, path: &Path) {
        let Some(name) = path.file_name() else { return };
        match std::fs::metadata(path) {
            Ok(status) if status.is_dir() => self.folder(&below.join(name), path, DEEPEST),
            Ok(_) => self.file(&below.join(name), path, Links::Followed),
            Err(_) => {}
        }
    }

    fn folder(&mut self, name: &Path, path: &Path, deeper: usize) {
        let Some(deeper) = deeper.checked_sub(1) else { return };
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries.flatten(),
            Err(e) => return self.missing.push(format!("{}: {e}", path.display())),
        };
        for entry in entries {
            let (name, path) = (name.join(entry.file_name()), entry.path());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&name, &path, deeper),
                Ok(kind) if kind.is_file() => self.file(&name, &path, Links::Refused),
                _ => {}
            }
        }
    }

    fn file(&mut self, name: &Path, path: &Path, links: Links) {
        // Keys have no place in it, whatever else is in the folder.
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains("wireguard-keys")) {
            return;
        }
        match file::read(path, MOST_OF_A_FILE, links) {
            Ok(bytes) => self.put(name.to_string_lossy().into_owned(), redacted(bytes)),
            Err(ReadError::NotFound { .. } | ReadError::NotAFile { .. }) => {}
            Err(e) => self.missing.push(e.to_string()),
        }
    }

    /// All files with their names, and what is missing.
    pub(super) fn finish(mut self) -> anyhow::Result<Collected> {
        let contents = json!({ "taken": self.taken, "netloom": env!("CARGO_PKG_VERSION"), "missing": self.missing });
        let text = serde_json::to_vec_pretty(&contents).context("write the archive's description")?;
        self.files.insert(0, ("sysdump.json".to_owned(), text));
        Ok(Collected { files: self.files, missing: self.missing })
    }
}
