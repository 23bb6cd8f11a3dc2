//! A pool that one host has for itself: an `IPPool` in a file, checked.

use std::path::{Path, PathBuf};

use api::{ConflictDetection, IpPool};
use cni::{CniError, Code};
use pool::{Family, Run, Spec};

use crate::shown;

/// More than any manifest has.
const MAX_FILE: usize = 1 << 20;

/// A pool, and the addresses of it that are this host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its terms.
    pub spec: Spec,
    /// Its addresses, in order and none of them twice.
    pub runs: Vec<Run>,
    /// Whether machines outside are listened for. Nothing of its terms, which the journal keeps: who listens looks at the file, and an
    /// earlier release reads the journal.
    pub passive: bool,
}

/// A file that is no pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is none, or it cannot be read.
    #[error("cannot read pool {name:?}: {reason} (expected an IPPool as JSON in {})", path.display())]
    Read {
        /// The pool.
        name: String,
        /// Where it should be.
        path: PathBuf,
        /// Why.
        reason: String,
        /// There is no such file, and there could be one.
        missing: bool,
    },
    /// The directory cannot be listed.
    #[error("cannot list the pools in {}: {reason}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is not JSON of that shape.
    #[error("{}: {reason}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What, and where.
        reason: String,
    },
    /// What it says cannot be.
    #[error("{}: {place}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        place: String,
        /// Why.
        reason: String,
    },
}

impl From<PoolError> for CniError {
    fn from(e: PoolError) -> Self {
        let code = if matches!(e, PoolError::Read { .. } | PoolError::List { .. }) { Code::IO } else { Code::INVALID_CONFIG };
        CniError::new(code, e.to_string())
    }
}

impl PoolError {
    /// Whether there is no such file, so that the pool may be a cluster's.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, PoolError::Read { missing: true, .. })
    }
}

/// Where the pool of this name is in a directory: `NAME.json`.
#[must_use]
pub fn pool_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

/// Reads the pool of this name from its file in a directory ([`pool_path`]).
///
/// # Errors
/// [`PoolError`]
pub fn read_pool(dir: &Path, name: &str) -> Result<Pool, PoolError> {
    let path = pool_path(dir, name);
    let unread = |reason: String, missing| PoolError::Read { name: shown(name), path: path.clone(), reason, missing };
    // A name is never a path.
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) && !name.starts_with('.');
    if !plain {
        return Err(unread("its name may contain only letters, digits, \"-\", \".\" and \"_\"".to_owned(), false));
    }
    let bytes = linux::file::read(&path, MAX_FILE, linux::file::Links::Followed)
        .map_err(|e| unread(e.to_string(), matches!(e, linux::file::ReadError::NotFound { .. })))?;
    let shape = |reason: String| PoolError::Shape { path: path.clone(), reason };
    // Not read as Go reads: who misspells a key of our own object must hear of it.
    let mut text = serde_json::Deserializer::from_slice(&bytes);
    let object: IpPool = serde_path_to_error::deserialize(&mut text).map_err(|e| at_key(&path, &e))?;
    text.end().map_err(|e| shape(e.to_string()))?;
    if !["", api::API_VERSION].contains(&object.api_version.as_str()) {
        return Err(shape(format!("apiVersion is {:?}, not {:?}", shown(&object.api_version), api::API_VERSION)));
    }
    if !["", "IPPool"].contains(&object.kind.as_str()) {
        return Err(shape(format!("kind is {:?}, not IPPool", shown(&object.kind))));
    }
    if !["", name].contains(&object.metadata.name.as_str()) {
        return Err(shape(format!("metadata.name is {:?}, but the file is named after {name:?}", shown(&object.metadata.name))));
    }
    let value = |(place, reason): InvalidKey| PoolError::Value { path: path.clone(), place, reason };
    let pool = check_pool(name, &object).map_err(value)?;
    pool.runs.iter().find_map(no_interface_has).map_or(Ok(()), |wrong| Err(value(wrong)))?;
    Ok(pool)
}

/// Addresses of a run that are no interface's on a network.
fn no_interface_has(run: &Run) -> Option<InvalidKey> {
    let kinds = [("127.0.0.0", 8, "loopback"), ("224.0.0.0", 4, "multicast"), ("::1", 128, "loopback"), ("ff00::", 8, "multicast")];
    let has = |text: &str, prefix: u8| text.parse().is_ok_and(|first| Run::network(first, prefix).common(run).is_some());
    let (_, _, kind) = kinds.into_iter().find(|(first, prefix, _)| has(first, *prefix))?;
    let place = if run.family() == Family::V4 { "spec.ipv4.entries" } else { "spec.ipv6.entries" };
    Some((place.to_owned(), format!("{run} has {kind} addresses, which no interface of a network can have")))
}

/// What is no JSON is wrong at a place in the text, all else at a key.
fn at_key(path: &Path, e: &serde_path_to_error::Error<serde_json::Error>) -> PoolError {
    let (path, reason) = (path.to_owned(), e.inner().to_string());
    // A key that was not read to its end is a question mark there, and no JSON at all the path `.`.
    let key = e.path().to_string();
    match key.trim_end_matches('?').trim_end_matches('.') {
        "" => PoolError::Shape { path, reason },
        _ if e.inner().is_eof() => PoolError::Shape { path, reason },
        key => PoolError::Value { path, place: key.to_owned(), reason },
    }
}

/// The names of the pools that have a file in a directory, in order; none where there is no such directory.
///
/// # Errors
/// [`PoolError::List`]
pub fn pool_names(dir: &Path) -> Result<Vec<String>, PoolError> {
    let failed = |e: std::io::Error| PoolError::List { path: dir.to_owned(), reason: e.to_string() };
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(".json")).filter(|name| !name.starts_with('.'));
        names.extend(name.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// A key, and what is wrong with it.
pub type InvalidKey = (String, String);

/// Checks a pool of this name.
///
/// # Errors
/// The key, and what is wrong with it.
pub fn check_pool(name: &str, object: &IpPool) -> Result<Pool, InvalidKey> {
    let checked = ledger::check(name, &object.spec).map_err(|wrong| (wrong.place, wrong.reason))?;
    Ok(Pool { spec: checked.spec, runs: checked.runs, passive: object.spec.conflict_detection == ConflictDetection::Passive })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pool in a file of this text.
    fn read(name: &str, text: &str) -> Result<Pool, String> {
        let dir = std::env::temp_dir().join(format!("nl-pool-{}-{:p}", std::process::id(), text));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("lab.json"), text).unwrap();
        let pool = read_pool(&dir, name).map_err(|e| e.to_string().replace(&dir.display().to_string(), "DIR"));
        std::fs::remove_dir_all(&dir).unwrap();
        pool
    }

    #[test]
    fn entries_of_all_kinds() {
        let text = r#"{"kind": "IPPool", "metadata": {"name": "lab"}, "spec": {"ipv4": {"gateway": "10.0.0.1",
            "entries": [{"cidr": "10.0.0.0/24"}, {"range": "10.0.0.250-10.0.1.5"}, {"ip": "192.0.2.7"}]},
            "ipv6": {"entries": [{"cidr": "fd00::/64"}]}, "allowLastIP": true}}"#;
        let pool = read("lab", text).unwrap();
        let runs: Vec<String> = pool.runs.iter().map(ToString::to_string).collect();
        assert_eq!(runs, ["10.0.0.0/24", "10.0.1.0-10.0.1.5", "192.0.2.7", "fd00::/64"]);
        assert_eq!((pool.spec.v4.prefix, pool.spec.v6.prefix, pool.spec.network.as_str()), (24, 64, "lab"));
        let exclude: Vec<String> = pool.spec.exclude.iter().map(ToString::to_string).collect();
        assert_eq!(exclude, ["10.0.0.0", "fd00::"]);
    }

    #[test]
    fn what_is_wrong_and_where() {
        let refused = |text: &str| read("lab", text).unwrap_err();
        let entries = |entries: &str| refused(&format!(r#"{{"spec": {{"ipv4": {{"entries": [{entries}]}}}}}}"#));
        assert_eq!(
            entries(r#"{"cidr": "10.0.0.1/24"}"#),
            "DIR/lab.json: spec.ipv4.entries[0]: 10.0.0.1/24 has host bits set: the network is 10.0.0.0"
        );
        assert_eq!(entries(r#"{"ip": "fd00::1"}"#), "DIR/lab.json: spec.ipv4.entries[0]: fd00::1 is not an IPv4 address");
        assert!(entries(r#"{"ip": "10.0.0.0/24"}"#).ends_with("is under the wrong key: use cidr, range or ip as it is written"));
        assert_eq!(entries(""), "DIR/lab.json: spec: has no addresses: set ipv4.entries or ipv6.entries");
        assert!(refused(r#"{"kind": "Pod", "spec": {}}"#).contains("kind is \"Pod\", not IPPool"));
        assert!(
            refused(r#"{"metadata": {"name": "x"}, "spec": {}}"#).contains("metadata.name is \"x\", but the file is named after \"lab\"")
        );
        assert!(refused(r#"{"spec": {"exlude": []}}"#).contains("exlude"));
        for (key, text) in [
            ("spec.reuse.cooldownSeconds", r#"{"spec": {"reuse": {"cooldownSeconds": -1}}}"#),
            ("spec.conflictDetection", r#"{"spec": {"conflictDetection": false}}"#),
            ("spec.exclude", r#"{"spec": {"exclude": "10.0.0.1"}}"#),
            ("spec.ipv4.entries[1].ip", r#"{"spec": {"ipv4": {"entries": [{"ip": "10.0.0.1"}, {"ip": 7}]}}}"#),
        ] {
            let said = refused(text);
            assert!(said.starts_with(&format!("DIR/lab.json: {key}: ")), "{said}");
        }
        assert!(refused(r#"{"apiVersion": "cilium.io/v2alpha1", "spec": {}}"#).contains("apiVersion is \"cilium.io/v2alpha1\", not"));
        for (entry, kind) in [
            (r#"{"cidr": "224.0.0.0/24"}"#, "multicast"),
            (r#"{"cidr": "127.0.0.0/24"}"#, "loopback"),
            (r#"{"cidr": "0.0.0.0/0"}"#, "loopback"),
            (r#"{"range": "223.255.255.250-224.0.0.1"}"#, "multicast"),
        ] {
            assert!(entries(entry).contains(&format!("has {kind} addresses")), "{entry}");
        }
        assert!(refused(r#"{"spec": {"ipv6": {"entries": [{"cidr": "ff02::/64"}]}}}"#).contains("has multicast addresses"));
        assert!(refused("{").starts_with("DIR/lab.json: "));
        for name in ["other", "../lab", "", ".hidden"] {
            assert!(read(name, "{}").unwrap_err().starts_with(&format!("cannot read pool {name:?}: ")), "{name}");
        }
    }
}
