//! The networks that the settings name.

use std::path::Path;
use std::sync::Arc;

use cni::NetworkList;
use json::{Object, Value};

use between::{Mode, Tunnel, Vxlan};

use super::values::{count, duration, on_host, path, ranges, source as source_of_addresses, text, word, wrong};
use super::{NetworkSource, SettingsError};
use crate::provided::{PodPorts, Provide};

/// Keys that name another default network.
const OTHERS: [&str; 5] = ["clusterNetwork", "defaultNetwork", "delegates", "multusAutoconfigDir", "multusMasterCNI"];
/// Keys of the network that is provided.
const OF_PROVIDED: [&str; 9] = [
    "between",
    "clusterCIDRs",
    "hairpinMode",
    "nonMasqueradeCIDRs",
    "strictSource",
    "vxlanVNI",
    "vxlanPort",
    "wireguardPort",
    "wireguardOverlap",
];

/// The cluster's network, where the agent provides it.
pub(super) fn provide(keys: &Object) -> Result<Option<Provide>, SettingsError> {
    if keys.get("provide").is_none() {
        return match OF_PROVIDED.into_iter().find(|key| keys.get(key).is_some()) {
            Some(key) => Err(SettingsError::Without { key, needed: "provide: netloom" }),
            None => Ok(None),
        };
    }
    word(keys, "provide", &[("netloom", ())])?;
    if let Some(other) = OTHERS.into_iter().find(|key| keys.get(key).is_some()) {
        return Err(SettingsError::Both { first: "provide", second: other });
    }
    let all = [
        ("auto", Mode::Auto(Tunnel::Vxlan)),
        ("auto-wireguard", Mode::Auto(Tunnel::WireGuard)),
        ("direct", Mode::Direct),
        ("vxlan", Mode::Vxlan),
        ("wireguard", Mode::WireGuard),
    ];
    let default = Provide::new(word(keys, "between", &all)?);
    let source = source_of_addresses(keys)?;
    let number = |key, default, most| count(keys, key, default, most).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let vni = number("vxlanVNI", default.vxlan.vni as usize, (1 << 24) - 1)?;
    let port = number("vxlanPort", usize::from(default.vxlan.port), usize::from(u16::MAX))?;
    // A rotation has the next port.
    let wireguard_port = number("wireguardPort", usize::from(default.wireguard_port), usize::from(u16::MAX - 1))?;
    Ok(Some(Provide {
        source,
        vxlan: Vxlan { vni, port: u16::try_from(port).unwrap_or(u16::MAX) },
        wireguard_port: u16::try_from(wireguard_port).unwrap_or(u16::MAX - 1),
        wireguard_overlap: duration(keys, "wireguardOverlap", default.wireguard_overlap)?,
        ports: PodPorts {
            strict: match keys.get("strictSource") {
                None => default.ports.strict,
                Some(Value::Bool(strict)) => *strict,
                Some(other) => return Err(wrong("strictSource", "true or false", other)),
            },
            hairpin: word(keys, "hairpinMode", &[("hairpin-veth", true), ("none", false)])?,
        },
        cluster_ranges: ranges(keys, "clusterCIDRs")?,
        non_masquerade: keys.get("nonMasqueradeCIDRs").is_some().then(|| ranges(keys, "nonMasqueradeCIDRs")).transpose()?,
        ..default
    }))
}

/// The cluster's default network: `clusterNetwork`, else the first of `delegates`, else a file of a directory.
pub(super) fn default_network(keys: &Object, cni_config_dir: &Path) -> Result<NetworkSource, SettingsError> {
    let both = (keys.get("clusterNetwork"), keys.get("defaultNetwork"));
    if let (Some(one), Some(other)) = both
        && one != other
    {
        return Err(SettingsError::Both { first: "clusterNetwork", second: "defaultNetwork" });
    }
    if keys.get("provide").is_some() {
        return Ok(NetworkSource::Provided);
    }
    if let Some(source) = named(keys)? {
        return Ok(source);
    }
    if let Some(first) = delegates(keys)?.into_iter().next() {
        return Ok(first);
    }
    let path = path(keys, "multusAutoconfigDir")?.unwrap_or_else(|| cni_config_dir.to_owned());
    let file = text(keys, "multusMasterCNI")?;
    match &file {
        // It is a name, and joined to the directory.
        Some(name) if name.contains('/') => Err(wrong("multusMasterCNI", "the name of a file", &Value::String(name.clone()))),
        _ => Ok(NetworkSource::Directory { path, file }),
    }
}

/// What every pod gets besides: `defaultNetworks`, else the other ones of `delegates`.
pub(super) fn every_pod(keys: &Object) -> Result<Vec<NetworkSource>, SettingsError> {
    let mut sources = match keys.get("defaultNetworks") {
        None => Vec::new(),
        Some(Value::Array(list)) => {
            let one = |(at, value): (usize, &Value)| source(&format!("defaultNetworks[{at}]"), value);
            list.iter().enumerate().map(one).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong("defaultNetworks", "a list of networks", other)),
    };
    if named(keys)?.is_none() {
        sources.extend(delegates(keys)?.into_iter().skip(1));
    }
    Ok(sources)
}

/// The directory of plugins beside the default network's file, where the default network is a file.
pub(super) fn auxiliary_chain(keys: &Object) -> Result<Option<String>, SettingsError> {
    let Some(name) = text(keys, "auxiliaryCNIChainName")? else { return Ok(None) };
    match named(keys)? {
        _ if name.contains('/') || name.starts_with('.') => {
            Err(wrong("auxiliaryCNIChainName", "the name of a directory", &Value::String(name)))
        }
        Some(NetworkSource::File(_) | NetworkSource::Directory { .. }) => Ok(Some(name)),
        // The first file of a directory, as Multus's own daemon has it.
        None if delegates(keys)?.is_empty() => Ok(Some(name)),
        _ => Err(SettingsError::AuxiliaryChain { name }),
    }
}

/// `clusterNetwork`, under either name.
fn named(keys: &Object) -> Result<Option<NetworkSource>, SettingsError> {
    let given = ["clusterNetwork", "defaultNetwork"].into_iter().find_map(|key| Some((key, keys.get(key)?)));
    // As with Multus, an empty one is none.
    let given = given.filter(|(_, value)| value.as_str() != Some(""));
    given.map(|(key, value)| source(key, value)).transpose()
}

fn delegates(keys: &Object) -> Result<Vec<NetworkSource>, SettingsError> {
    match keys.get("delegates") {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let one = |(at, value): (usize, &Value)| match value {
                Value::Object(object) => inline(&format!("delegates[{at}]"), object),
                other => Err(wrong(&format!("delegates[{at}]"), "a network's configuration", other)),
            };
            list.iter().enumerate().map(one).collect()
        }
        Some(other) => Err(wrong("delegates", "a list of networks", other)),
    }
}

/// A path, a name or the network itself. What a path leads to, its ending tells: a file may come after the agent.
fn source(key: &str, value: &Value) -> Result<NetworkSource, SettingsError> {
    let expected = "a name, an absolute path, or a network's configuration";
    let text = match value {
        Value::Object(object) => return inline(key, object),
        Value::String(text) => on_host(text.trim()),
        other => return Err(wrong(key, expected, other)),
    };
    let is_file = Path::new(text).extension().is_some_and(|e| ["conf", "conflist", "json"].iter().any(|known| e == *known));
    match text.starts_with('/') {
        true if is_file => Ok(NetworkSource::File(text.into())),
        true => Ok(NetworkSource::Directory { path: text.into(), file: None }),
        false if text.is_empty() || text.contains('/') => Err(wrong(key, expected, value)),
        false => Ok(NetworkSource::Named(text.to_owned())),
    }
}

fn inline(key: &str, object: &Object) -> Result<NetworkSource, SettingsError> {
    let refused = |problem: String| SettingsError::Network { key: key.to_owned(), problem };
    let list = NetworkList::parse(json::compact(object).as_bytes(), None).map_err(|e| refused(e.to_string()))?;
    match list.plugins.is_empty() {
        true => Err(refused("it names no plugin: give it a \"type\", or \"plugins\"".to_owned())),
        false => Ok(NetworkSource::Inline(Arc::new(list))),
    }
}
