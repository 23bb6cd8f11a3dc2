//! What is in an archive: of a node, and of a lab.

use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use linux::file::{self, Links, ReadError};
use serde_json::json;
use verify::Namespace;

use super::archive::{Archive, SNAPSHOT, Target};
use super::redact::Redactor;
use crate::lab_command::open_named;
use crate::{agent_command, version_command};

/// Bytes of a file that are taken, and of all files together.
pub(super) const MOST_OF_A_FILE: usize = 16 << 20;
const MOST: u64 = 512 << 20;
/// Bytes of a node's snapshot. In memory it is compressed, to a tenth or less.
const MOST_OF_A_SNAPSHOT: u64 = 128 << 20;
/// How deep folders are looked into.
const DEEPEST: usize = 4;

/// Questions to a node's agent whose answers are kept.
const QUESTIONS: [&str; 3] = ["status", "pods", "nodes"];

/// What came of it.
pub(super) struct Collected {
    /// How many files are in the archive.
    pub(super) files: usize,
    /// What could not be collected, a sentence each.
    pub(super) missing: Vec<String>,
}

/// What is collected. Each file is in the archive before the next one is read: an agent's container has little memory.
pub(super) struct Collection {
    archive: Archive,
    redactor: Redactor,
    /// When.
    taken: String,
    files: usize,
    /// What could not be had, and why.
    missing: Vec<String>,
    bytes: u64,
}

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Netloom's own, in a form that has no secrets: it may be no text.
    Own,
    /// Anybody's.
    Any,
}

/// Collects a lab.
pub(super) fn lab(collection: &mut Collection, name: &str) -> anyhow::Result<()> {
    let lab = open_named(name)?;
    match lab::snapshot(&lab) {
        Ok(mut snapshot) => {
            let mut written = Compressed::new();
            snapshot.namespaces.iter_mut().for_each(|namespace| collection.redactor.namespace(namespace));
            serde_json::to_writer(&mut written, &snapshot).context("write the snapshot")?;
            collection.put_compressed(SNAPSHOT, written)?;
        }
        Err(e) => collection.missing.push(format!("the snapshot: {e}")),
    }
    collection.add(Path::new(""), &lab.description())?;
    for node in &lab.nodes {
        let below = Path::new("nodes").join(&node.name);
        collection.add(&below, &lab.records_dir(&node.name))?;
    }
    collection.add_own(&lab.pools())?;
    collection.add_own(&lab.leases())
}

/// Collects this node. `agents`: the namespace of the agents' pods.
pub(super) fn node(collection: &mut Collection, settings: &agent::Settings, config: Option<&Path>, agents: &str) -> anyhow::Result<()> {
    let mut written = Compressed::new();
    let edit = |namespace: &mut Namespace| collection.redactor.namespace(namespace);
    agent::observe_node(settings, &edit, &mut written, MOST_OF_A_SNAPSHOT).context("write the snapshot")?;
    collection.put_compressed(SNAPSHOT, written)?;
    let file = config.map_or_else(|| PathBuf::from(agent_command::run::FILE), Path::to_owned);
    collection.add(Path::new("settings"), &file)?;
    collection.add(Path::new(""), &settings.records())?;
    let dirs = settings.dirs();
    collection.add_own(&dirs.pools)?;
    collection.add_own(&dirs.journal)?;
    collection.add(Path::new(""), Path::new(attach::SPOOL))?;
    for name in configurations() {
        collection.add(Path::new("net.d"), &name)?;
    }
    let logs = logs(agents);
    if logs.is_empty() {
        collection.missing.push(format!(
            "the logs of Netloom's pods: /var/log/pods has none of namespace {agents}: name theirs with --agents, or use netloom sysdump \
            --cluster, which gets them from the API server"
        ));
    }
    for log in logs {
        collection.add(Path::new("logs"), &log)?;
    }
    for what in QUESTIONS {
        match agent_command::ask(Path::new(wire::ADMIN_SOCKET), what, &[]) {
            Ok(answer) => collection.put(&format!("agent/{what}.json"), json::compact(&answer).as_bytes())?,
            Err(e) => {
                let why = format!("what the agent says of {what}: {}", e.to_string().lines().next().unwrap_or_default());
                collection.missing.push(why);
            }
        }
    }
    Ok(())
}

/// Network configurations of the runtime; kubeconfigs beside them are none.
fn configurations() -> Vec<PathBuf> {
    let is_configuration = |path: &PathBuf| path.extension().is_some_and(|end| end == "conf" || end == "conflist" || end == "json");
    let entries = std::fs::read_dir("/etc/cni/net.d").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(is_configuration).collect()
}

/// Logs of this node's own pods of Netloom: those of the namespace of the agents, whose names begin with theirs.
fn logs(agents: &str) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| is_log_of_ours(&name.to_string_lossy(), agents));
    std::fs::read_dir("/var/log/pods").into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_ours).collect()
}

/// `NAMESPACE_POD_UID`. Anybody may call a pod as he likes, but not in the namespace of the agents.
fn is_log_of_ours(folder: &str, agents: &str) -> bool {
    folder.strip_prefix(agents).and_then(|rest| rest.strip_prefix("_netloom-")).is_some()
}

// === impl Redactor ===

impl Redactor {
    /// What others wrote into a namespace: remarks in its rules.
    pub(crate) fn namespace(&self, namespace: &mut Namespace) {
        let rules = namespace.tables.iter_mut().flat_map(|table| &mut table.chains).flat_map(|chain| &mut chain.rules);
        for comment in rules.filter_map(|rule| rule.comment.as_mut()) {
            *comment = self.text(comment);
        }
    }
}

/// What is written, compressed, in memory.
struct Compressed {
    gzip: GzEncoder<Vec<u8>>,
    length: u64,
}

impl Compressed {
    fn new() -> Self {
        Compressed { gzip: GzEncoder::new(Vec::new(), Compression::fast()), length: 0 }
    }
}

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.gzip.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl Collection ===

impl Collection {
    /// An archive that has been taken at a time, with what is said of the program and the host.
    pub(super) fn new(target: &Target, stem: &str, taken: String) -> anyhow::Result<Self> {
        let archive = Archive::create(target, stem)?;
        let mut collection = Collection { archive, redactor: Redactor::new(), taken, files: 0, missing: Vec::new(), bytes: 0 };
        match version_command::as_json() {
            Ok(version) => collection.put("version.json", &version)?,
            Err(e) => collection.missing.push(format!("the version: {e}")),
        }
        Ok(collection)
    }

    /// What is said of the host.
    pub(super) fn host(&mut self) -> anyhow::Result<()> {
        for name in ["/proc/sys/kernel/version", "/proc/meminfo", "/proc/loadavg", "/proc/net/softnet_stat", "/etc/os-release"] {
            self.add(Path::new("host"), Path::new(name))?;
        }
        Ok(())
    }

    /// Whether there is room for a file.
    fn has_room(&mut self, name: &str, length: u64) -> bool {
        if self.bytes + length > MOST {
            self.missing.push(format!("{name}: the archive would have more than {} MiB", MOST >> 20));
            return false;
        }
        self.bytes += length;
        self.files += 1;
        true
    }

    /// Puts a text into the archive, without secrets; what is not text is left out.
    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        match self.redactor.bytes(bytes) {
            Ok(text) => self.put_as_it_is(name, &text),
            Err(_) => {
                self.missing
                    .push(format!("{name}: it is not text, and secrets in it would not be found: send it by itself if it is needed"));
                Ok(())
            }
        }
    }

    /// Puts into the archive what has no secrets, or none any more.
    pub(super) fn put_as_it_is(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        if !self.has_room(name, bytes.len() as u64) {
            return Ok(());
        }
        self.archive.put(name, bytes.len() as u64, bytes)
    }

    fn put_compressed(&mut self, name: &str, written: Compressed) -> anyhow::Result<()> {
        let length = written.length;
        let bytes = written.gzip.finish().context("compress the snapshot")?;
        if !self.has_room(name, length) {
            return Ok(());
        }
        self.archive.put(name, length, GzDecoder::new(bytes.as_slice()))
    }

    /// Notes what could not be had.
    pub(super) fn lacks(&mut self, why: String) {
        self.missing.push(why);
    }

    /// Adds what the user names: its whole path is its name, as several may have the same last part.
    pub(super) fn add_named(&mut self, path: &Path) -> anyhow::Result<()> {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
        let name = Path::new("added").join(parts.collect::<PathBuf>());
        self.take(&name, path, Whose::Any)
    }

    /// Adds a file, or all files of a folder, below a folder of the archive. In a folder, links are passed over: somebody else may have put them
    /// there, to have a file of root's in the archive.
    fn add(&mut self, below: &Path, path: &Path) -> anyhow::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        self.take(&below.join(name), path, Whose::Any)
    }

    /// Adds Netloom's own state.
    fn add_own(&mut self, path: &Path) -> anyhow::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        self.take(Path::new(name), path, Whose::Own)
    }

    fn take(&mut self, name: &Path, path: &Path, whose: Whose) -> anyhow::Result<()> {
        match std::fs::metadata(path) {
            Ok(status) if status.is_dir() => self.folder(name, path, (whose, DEEPEST)),
            Ok(_) => self.file(name, path, (whose, Links::Followed)),
            Err(_) => Ok(()),
        }
    }

    fn folder(&mut self, name: &Path, path: &Path, (whose, deeper): (Whose, usize)) -> anyhow::Result<()> {
        let Some(deeper) = deeper.checked_sub(1) else {
            self.missing.push(format!("{}: folders that deep are not looked into", path.display()));
            return Ok(());
        };
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries.flatten(),
            Err(e) => {
                self.missing.push(format!("{}: {e}", path.display()));
                return Ok(());
            }
        };
        for entry in entries {
            let (name, path) = (name.join(entry.file_name()), entry.path());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&name, &path, (whose, deeper))?,
                Ok(kind) if kind.is_file() => self.file(&name, &path, (whose, Links::Refused))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &Path, path: &Path, (whose, links): (Whose, Links)) -> anyhow::Result<()> {
        // Keys have no place in it, whatever else is in the folder.
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains("wireguard-keys")) {
            return Ok(());
        }
        let name = name.to_string_lossy();
        match file::read(path, MOST_OF_A_FILE, links) {
            Ok(bytes) if whose == Whose::Own && bytes.contains(&0) => self.put_as_it_is(&name, &bytes),
            Ok(bytes) => self.put(&name, &bytes),
            Err(ReadError::NotFound { .. } | ReadError::NotAFile { .. }) => Ok(()),
            Err(e) => {
                self.missing.push(e.to_string());
                Ok(())
            }
        }
    }

    /// Writes what is missing, and ends the archive.
    pub(super) fn finish(mut self) -> anyhow::Result<Collected> {
        let contents = json!({ "taken": self.taken, "netloom": env!("CARGO_PKG_VERSION"), "missing": self.missing });
        let text = serde_json::to_vec_pretty(&contents).context("write the archive's description")?;
        self.put("sysdump.json", &text)?;
        self.archive.finish()?;
        Ok(Collected { files: self.files, missing: self.missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_with_our_name_elsewhere_is_not_ours() {
        assert!(is_log_of_ours("kube-system_netloom-x7k2p_0b1c", "kube-system"));
        assert!(is_log_of_ours("kube-system_netloom-operator-5d_0b1c", "kube-system"));
        assert!(is_log_of_ours("network_netloom-x7k2p_0b1c", "network"));
        assert!(!is_log_of_ours("kube-system_netloom-x7k2p_0b1c", "network"));
        for other in ["default_netloom-x7k2p_0b1c", "kube-system_web_netloom-1", "a_b_netloom", "kube-system_x-netloom-1_u"] {
            assert!(!is_log_of_ours(other, "kube-system"), "{other}");
        }
    }
}
