//! How the annotation [`NETWORK_STATUS`](crate::NETWORK_STATUS) is read back, ours or Multus's.

use std::net::IpAddr;

use cni::Dns;
use json::{Object, Value};
use serde::Deserialize;

use crate::problem::shortened;
use crate::{DeviceInfo, DeviceInfoError, MAX_ANNOTATION, NETWORK_STATUS, NetworkStatus};

/// A status annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// More bytes than the API server takes.
    #[error("annotation {NETWORK_STATUS}: {0} bytes are too many: at most {MAX_ANNOTATION} are accepted")]
    TooLong(usize),
    /// Not JSON.
    #[error("annotation {NETWORK_STATUS}: {0}")]
    Json(json::ParseError),
    /// JSON, but not a list.
    #[error("annotation {NETWORK_STATUS}: expected a list of objects, found {0}")]
    NotAList(&'static str),
    /// An entry with a value of the wrong type.
    #[error("annotation {NETWORK_STATUS}: entry {number}: {problem}")]
    Entry {
        /// The first entry is 1.
        number: usize,
        /// What is wrong.
        problem: json::ReadError,
    },
    /// An entry without a name (S37).
    #[error("annotation {NETWORK_STATUS}: entry {0}: missing: \"name\"")]
    NoName(usize),
    /// A gateway that is no address.
    #[error("annotation {NETWORK_STATUS}: entry {number}: {key}: {text:?} is not an IP address")]
    Gateway {
        /// The first entry is 1.
        number: usize,
        /// The key.
        key: &'static str,
        /// What stands there.
        text: String,
    },
    /// Information on a device that cannot be (S44).
    #[error("annotation {NETWORK_STATUS}: entry {number}: {problem}")]
    Device {
        /// The first entry is 1.
        number: usize,
        /// What is wrong.
        problem: DeviceInfoError,
    },
}

const KNOWN: &[&str] = &["name", "interface", "ips", "mac", "mtu", "default", "dns", "default-route", "gateway", "device-info"];

/// An entry as received.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Raw {
    name: String,
    interface: String,
    ips: Vec<String>,
    mac: String,
    mtu: u32,
    default: bool,
    dns: Dns,
    default_route: Option<Vec<String>>,
    gateway: Vec<String>,
}

/// Reads the annotation; a blank one has no entries. Addresses are kept as they are written, in either form.
///
/// # Errors
/// [`StatusError`] naming the entry and the key.
pub fn parse_status(annotation: &str) -> Result<Vec<NetworkStatus>, StatusError> {
    if annotation.len() > MAX_ANNOTATION {
        return Err(StatusError::TooLong(annotation.len()));
    }
    if annotation.trim().is_empty() {
        return Ok(Vec::new());
    }
    match json::parse(annotation.as_bytes()).map_err(StatusError::Json)? {
        Value::Array(list) => list.iter().enumerate().map(|(i, value)| entry(i + 1, value)).collect(),
        other => Err(StatusError::NotAList(other.kind())),
    }
}

fn entry(number: usize, value: &Value) -> Result<NetworkStatus, StatusError> {
    let raw: Raw = json::read(value).map_err(|problem| StatusError::Entry { number, problem })?;
    if raw.name.is_empty() {
        return Err(StatusError::NoName(number));
    }
    let given = |text: String| (!text.is_empty()).then_some(text);
    let unknown = |o: &Object| -> Object {
        let unknown = o.iter().filter(|(key, _)| !KNOWN.iter().any(|k| k.eq_ignore_ascii_case(key)));
        unknown.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    };
    Ok(NetworkStatus {
        name: raw.name,
        interface: given(raw.interface),
        ips: raw.ips,
        mac: given(raw.mac),
        mtu: Some(raw.mtu).filter(|mtu| *mtu != 0),
        default: raw.default,
        dns: raw.dns,
        default_route: raw.default_route.map(|list| addresses(number, "default-route", &list)).transpose()?,
        gateway: addresses(number, "gateway", &raw.gateway)?,
        device_info: device(number, value)?,
        extensions: value.as_object().map(unknown).unwrap_or_default(),
    })
}

/// Read from what came: on its way through a type it would lose its duplicate keys.
fn device(number: usize, entry: &Value) -> Result<Option<DeviceInfo>, StatusError> {
    let info = entry.as_object().and_then(|entry| entry.get("device-info"));
    info.map(DeviceInfo::read).transpose().map_err(|problem| StatusError::Device { number, problem })
}

/// Multus writes `<nil>` for a default route without a next hop.
fn addresses(number: usize, key: &'static str, list: &[String]) -> Result<Vec<IpAddr>, StatusError> {
    let bad = |text: &str| StatusError::Gateway { number, key, text: shortened(text) };
    list.iter().filter(|text| !matches!(text.as_str(), "" | "<nil>")).map(|text| text.parse().map_err(|_| bad(text))).collect()
}
