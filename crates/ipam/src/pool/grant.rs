//! A pool that one host has for itself: an `IPPool` in a file, checked.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use api::{Entry, IpPool, IpPoolFamily, ReuseOrder};
use cni::{CniError, Code};
use pool::{Family, Order, ParseRunError, Run, Spec, Terms, edges};

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
}

/// A file that is no pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is none, or it cannot be read.
    #[error("cannot read pool {name:?}: {reason} (an IPPool as JSON belongs into {})", path.display())]
    Read {
        /// The pool.
        name: String,
        /// Where it should be.
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
        let code = if matches!(e, PoolError::Read { .. }) { Code::IO } else { Code::INVALID_CONFIG };
        CniError::new(code, e.to_string())
    }
}

/// Reads the pool of this name from its file in a directory: `NAME.json`.
///
/// # Errors
/// [`PoolError`]
pub fn read_pool(dir: &Path, name: &str) -> Result<Pool, PoolError> {
    let path = dir.join(format!("{name}.json"));
    let unread = |reason: String| PoolError::Read { name: shown(name), path: path.clone(), reason };
    // A name is never a path.
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) && !name.starts_with('.');
    if !plain {
        return Err(unread("its name has other characters than letters, digits, \"-\", \".\" and \"_\"".to_owned()));
    }
    let bytes = linux::file::read(&path, MAX_FILE, linux::file::Links::Followed).map_err(|e| unread(e.to_string()))?;
    let shape = |reason: String| PoolError::Shape { path: path.clone(), reason };
    // Not read as Go reads: who misspells a key of our own object must hear of it.
    let object: IpPool = serde_json::from_slice(&bytes).map_err(|e| shape(e.to_string()))?;
    if !["", "IPPool"].contains(&object.kind.as_str()) {
        return Err(shape(format!("kind is {:?}, not IPPool", shown(&object.kind))));
    }
    if !["", name].contains(&object.metadata.name.as_str()) {
        return Err(shape(format!("metadata.name is {:?}, the file's name says {name:?}", shown(&object.metadata.name))));
    }
    check(name, &object).map_err(|(place, reason)| PoolError::Value { path, place, reason })
}

/// A key, and what is wrong with it.
type Wrong = (String, String);

fn check(name: &str, object: &IpPool) -> Result<Pool, Wrong> {
    let raw = &object.spec;
    let mut spec = Spec::new(name, if raw.network.is_empty() { name } else { &raw.network });
    spec.exclude = runs("spec.exclude", &raw.exclude)?;
    spec.reserved = runs("spec.reserved", &raw.reserved)?;
    spec.reuse.cooldown = raw.reuse.cooldown_seconds.saturating_mul(1000);
    spec.reuse.order = match raw.reuse.order {
        ReuseOrder::Fifo => Order::Fifo,
        ReuseOrder::Lowest => Order::Lowest,
        ReuseOrder::Random => Order::Random,
    };
    let mut all = Vec::new();
    for (family, raw_family) in [(Family::V4, &raw.ipv4), (Family::V6, &raw.ipv6)] {
        let Some(raw_family) = raw_family else { continue };
        let place = if family == Family::V4 { "spec.ipv4" } else { "spec.ipv6" };
        let (terms, runs) = family_of(place, family, raw_family)?;
        if runs.is_empty() {
            continue;
        }
        let networks = raw_family.entries.iter().zip(&runs).filter(|(entry, _)| entry.cidr.is_some());
        spec.exclude.extend(networks.flat_map(|(_, run)| edges(run, raw.allow_first_ip, raw.allow_last_ip)));
        if family == Family::V4 {
            spec.v4 = terms
        } else {
            spec.v6 = terms
        }
        for run in runs {
            all = pieces(vec![run], &all).into_iter().chain(all).collect();
        }
    }
    if all.is_empty() {
        return Err(("spec".to_owned(), "has no addresses: give ipv4.entries or ipv6.entries".to_owned()));
    }
    all.sort();
    Ok(Pool { spec, runs: all })
}

/// What is left of runs without others.
pub(super) fn pieces(of: Vec<Run>, without: &[Run]) -> Vec<Run> {
    without.iter().fold(of, |left, other| left.into_iter().flat_map(|run| run.without(other)).collect())
}

fn runs(place: &str, texts: &[String]) -> Result<Vec<Run>, Wrong> {
    let read = |(i, text): (usize, &String)| text.parse().map_err(|e: ParseRunError| (format!("{place}[{i}]"), e.to_string()));
    texts.iter().enumerate().map(read).collect()
}

fn family_of(place: &str, family: Family, raw: &IpPoolFamily) -> Result<(Terms, Vec<Run>), Wrong> {
    let mut found = Vec::new();
    for (i, entry) in raw.entries.iter().enumerate() {
        let wrong = |reason: String| (format!("{place}.entries[{i}]"), reason);
        let run = run_of(entry).map_err(wrong)?;
        if run.family() != family {
            return Err(wrong(format!("{run} is no {family} address")));
        }
        found.push(run);
    }
    let networks = raw.entries.iter().zip(&found).filter(|(entry, _)| entry.cidr.is_some());
    let prefix = raw.prefix_length.or_else(|| networks.filter_map(|(_, run)| run.prefix()).next());
    let prefix = prefix.filter(|prefix| *prefix > 0).unwrap_or(family.bits());
    if prefix > family.bits() {
        return Err((format!("{place}.prefixLength"), format!("{prefix} is more than the {} bits of an address", family.bits())));
    }
    let gateway = raw.gateway.as_deref().map(|text| {
        let gateway = text.parse::<IpAddr>().ok().filter(|g| Family::of(*g) == family);
        gateway.ok_or_else(|| (format!("{place}.gateway"), format!("{:?} is no {family} address", shown(text))))
    });
    Ok((Terms { prefix, gateway: gateway.transpose()? }, found))
}

fn run_of(entry: &Entry) -> Result<Run, String> {
    let Entry { cidr, range, ip } = entry;
    let (text, form): (_, fn(&str) -> bool) = match (cidr, range, ip) {
        (Some(text), None, None) => (text, |t| t.contains('/')),
        (None, Some(text), None) => (text, |t| t.contains('-')),
        (None, None, Some(text)) => (text, |t| !t.contains(['/', '-'])),
        _ => return Err("has not one of cidr, range and ip".to_owned()),
    };
    let run: Run = text.parse().map_err(|e: ParseRunError| e.to_string())?;
    if form(text) { Ok(run) } else { Err(format!("{} is written under the wrong key of cidr, range and ip", shown(text))) }
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
            "DIR/lab.json: spec.ipv4.entries[0]: 10.0.0.1/24 has bits set behind its prefix: the network is 10.0.0.0"
        );
        assert_eq!(entries(r#"{"ip": "fd00::1"}"#), "DIR/lab.json: spec.ipv4.entries[0]: fd00::1 is no IPv4 address");
        assert!(entries(r#"{"ip": "10.0.0.0/24"}"#).ends_with("is written under the wrong key of cidr, range and ip"));
        assert_eq!(entries(""), "DIR/lab.json: spec: has no addresses: give ipv4.entries or ipv6.entries");
        assert!(refused(r#"{"kind": "Pod", "spec": {}}"#).contains("kind is \"Pod\", not IPPool"));
        assert!(refused(r#"{"metadata": {"name": "x"}, "spec": {}}"#).contains("metadata.name is \"x\", the file's name says \"lab\""));
        assert!(refused(r#"{"spec": {"exlude": []}}"#).contains("exlude"));
        assert!(refused("{").starts_with("DIR/lab.json: "));
        for name in ["other", "../lab", "", ".hidden"] {
            assert!(read(name, "{}").unwrap_err().starts_with(&format!("cannot read pool {name:?}: ")), "{name}");
        }
    }
}
