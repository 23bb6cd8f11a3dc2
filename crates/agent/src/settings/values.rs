//! Values of keys: from JSON to what they mean.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use attach::{Admission, InvalidAnnotation, Isolation, Policy};
use cni::Version;
use daemon::log::Level;
use ipnet::IpNet;
use json::{Object, Value};
use plugin::Prefer;

use super::{Ipam, SettingsError, kind};
use crate::provided::Source;

/// Multus's words beside ours.
pub(super) const LEVELS: &[(&str, Level)] = &[
    ("info", Level::Info),
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("debug", Level::Debug),
    ("verbose", Level::Info),
    ("panic", Level::Error),
];

/// The outermost object of the agent's file. JSON goes first: as YAML it could not have tabs, nor keys given twice.
pub(super) fn document(bytes: &[u8]) -> Result<Object, SettingsError> {
    let text = std::str::from_utf8(bytes).map_err(|e| SettingsError::Syntax(e.to_string()))?;
    let value = match text.trim_start().starts_with('{') {
        true => json::parse(bytes).map_err(|e| e.to_string()),
        false => yaml::json(text).map_err(|e| e.to_string()),
    };
    match value.map_err(SettingsError::Syntax)? {
        Value::Object(object) => Ok(object),
        // Nothing but comments.
        Value::Null => Ok(Object::new()),
        other => Err(SettingsError::Syntax(format!("found {}", kind(&other)))),
    }
}

/// A string that is not empty.
pub(super) fn text(keys: &Object, key: &str) -> Result<Option<String>, SettingsError> {
    match keys.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(other) => Err(wrong(key, "a string", other)),
    }
}

/// An absolute path.
pub(super) fn path(keys: &Object, key: &str) -> Result<Option<PathBuf>, SettingsError> {
    let Some(text) = text(keys, key)? else { return Ok(None) };
    match text.starts_with('/') && !text.contains('\0') {
        true => Ok(Some(on_host(&text).into())),
        false => Err(wrong(key, "an absolute path", &Value::String(text))),
    }
}

/// Multus's daemon has the host's directories below `/host`, and its file names them so. Where there is no such directory,
/// they are meant under their own names.
pub(super) fn on_host(path: &str) -> &str {
    let own = path.strip_prefix("/host").filter(|own| own.starts_with('/'));
    own.filter(|_| !Path::new("/host").is_dir()).unwrap_or(path)
}

/// A time: a number of seconds, or a number with its unit.
pub(super) fn duration(keys: &Object, key: &str, default: Duration) -> Result<Duration, SettingsError> {
    let read = |text: &str| {
        let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
        let seconds = match unit {
            "ms" => 0.001,
            "s" | "" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok().filter(|d| *d <= LONGEST)
    };
    let found = match keys.get(key) {
        None => return Ok(default),
        Some(Value::String(text)) => read(text.trim()),
        Some(Value::Number(number)) => read(&number.to_string()),
        Some(_) => None,
    };
    found.ok_or_else(|| wrong(key, "a duration such as 500ms, 2s or 5m, at most a day", keys.get(key).unwrap_or(&Value::Null)))
}

/// How long `netloom-cni` waits, which takes no more.
pub(super) fn agent_wait(keys: &Object) -> Result<Duration, SettingsError> {
    let wait = duration(keys, "agentWait", AGENT_WAIT)?;
    let expected = "a duration such as 500ms, 30s or 5m, at most an hour";
    if wait > LONGEST_WAIT { Err(wrong("agentWait", expected, keys.get("agentWait").unwrap_or(&Value::Null))) } else { Ok(wait) }
}

/// What `netloom-cni` does without the key.
pub(crate) const AGENT_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Longer ones are mistakes of the unit, and no clock may overflow.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A number from 1 to `most`.
pub(super) fn count(keys: &Object, key: &str, default: usize, most: usize) -> Result<usize, SettingsError> {
    let Some(value) = keys.get(key) else { return Ok(default) };
    let number = match value {
        Value::Number(number) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
        _ => None,
    };
    number.filter(|n| (1..=most).contains(n)).ok_or_else(|| wrong(key, &format!("a number from 1 to {most}"), value))
}

/// One of several words, of which the first is the default.
pub(super) fn word<T: Copy>(keys: &Object, key: &str, words: &[(&str, T)]) -> Result<T, SettingsError> {
    let given = text(keys, key)?;
    let found = match &given {
        None => words.first(),
        Some(given) => words.iter().find(|(word, _)| word.eq_ignore_ascii_case(given)),
    };
    let expected = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    found.map(|(_, value)| *value).ok_or_else(|| wrong(key, &expected(), &Value::String(given.unwrap_or_default())))
}

/// Where the node's addresses come from. With the network that the agent provides ([`source`]), other networks have those of pools.
pub(super) fn ipam(keys: &Object) -> Result<Ipam, SettingsError> {
    match keys.get("provide") {
        None => word(keys, "ipam", &[("pool", Ipam::Pool), ("crd", Ipam::Crd)]),
        Some(_) => source(keys).map(|_| Ipam::Pool),
    }
}

/// Where those of the network come from that the agent provides.
pub(super) fn source(keys: &Object) -> Result<Source, SettingsError> {
    word(keys, "ipam", &[("podCIDR", Source::PodCidrs), ("pool", Source::Pools)])
}

/// A version of CNI.
pub(super) fn version(keys: &Object, key: &str) -> Result<Version, SettingsError> {
    let Some(given) = text(keys, key)? else { return Ok(Version::V1_0_0) };
    given.parse().map_err(|_| wrong(key, "a CNI version such as 1.0.0", &Value::String(given)))
}

/// An address with a port.
pub(super) fn address(keys: &Object, key: &str) -> Result<Option<SocketAddr>, SettingsError> {
    let Some(given) = text(keys, key)? else { return Ok(None) };
    given.parse().map(Some).map_err(|_| wrong(key, "an address with a port, such as 127.0.0.1:9180", &Value::String(given)))
}

/// A list of networks in CIDR notation.
pub(super) fn ranges(keys: &Object, key: &str) -> Result<Vec<IpNet>, SettingsError> {
    let one = |text: String| text.trim().parse().map_err(|_| wrong(key, "networks such as 10.96.0.0/12", &Value::String(text)));
    strings(keys, key)?.unwrap_or_default().into_iter().map(one).collect()
}

/// What pods and definitions may do.
pub(super) fn admission(keys: &Object) -> Result<Admission, SettingsError> {
    let isolated = match keys.get("namespaceIsolation") {
        None => false,
        Some(Value::Bool(isolated)) => *isolated,
        Some(other) => return Err(wrong("namespaceIsolation", "true or false", other)),
    };
    let global = match keys.get("globalNamespaces") {
        Some(Value::String(text)) => Some(text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()),
        _ => strings(keys, "globalNamespaces")?,
    };
    let isolation = match global {
        // As with Multus, what names none leaves the default.
        Some(global_namespaces) if !Vec::is_empty(&global_namespaces) => Isolation { global_namespaces },
        _ => Isolation::default(),
    };
    let policy = match keys.get("policy") {
        None => Policy::OPEN,
        Some(rules) => Policy::parse(rules, "policy")?,
    };
    Ok(Admission {
        isolation: isolated.then_some(isolation),
        policy,
        invalid_annotation: word(keys, "invalidAnnotation", &[("fail", InvalidAnnotation::Fail), ("ignore", InvalidAnnotation::Ignore)])?,
        system_namespaces: strings(keys, "systemNamespaces")?.unwrap_or_else(|| vec!["kube-system".to_owned()]),
        executables_first: prefer(keys)? == Prefer::Path,
    })
}

/// Which plugin runs where one is both built in and an executable.
pub(super) fn prefer(keys: &Object) -> Result<Prefer, SettingsError> {
    word(keys, "prefer", &[("builtin", Prefer::Builtin), ("path", Prefer::Path)])
}

/// A list of strings.
pub(super) fn strings(keys: &Object, key: &str) -> Result<Option<Vec<String>>, SettingsError> {
    let Some(value) = keys.get(key) else { return Ok(None) };
    let Value::Array(list) = value else { return Err(wrong(key, "a list of strings", value)) };
    let one = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| wrong(key, "a list of strings", value));
    list.iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// A text for each of some names.
pub(super) fn texts(keys: &Object, key: &str) -> Result<BTreeMap<String, String>, SettingsError> {
    const EXPECTED: &str = "names, each with a string";
    let Some(value) = keys.get(key) else { return Ok(BTreeMap::new()) };
    let Value::Object(object) = value else { return Err(wrong(key, EXPECTED, value)) };
    let one = |(name, value): (&str, &Value)| match value.as_str().filter(|text| !text.is_empty()) {
        Some(text) => Ok((name.to_owned(), text.to_owned())),
        None => Err(wrong(key, EXPECTED, value)),
    };
    object.iter().map(one).collect()
}

pub(super) fn wrong(key: &str, expected: &str, found: &Value) -> SettingsError {
    SettingsError::Value { key: key.to_owned(), expected: expected.to_owned(), found: kind(found) }
}
