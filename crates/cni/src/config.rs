//! What one plugin is given on its standard input.

use json::{Object, Value};
use serde::de::DeserializeOwned;

use crate::{AddResult, CniError, Code, ConvertError, DecodeError, NameError, NetworkName, PluginType, Version, VersionError};

/// One plugin's configuration: what the runtime derived from a network's list. Every key is kept, known or not; a
/// plugin reads those that it knows with [`Config::read`].
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The network's name.
    pub network: NetworkName,
    /// The version that the result is printed in.
    pub version: Version,
    /// The plugin's type; `None` in a call that needs none.
    pub kind: Option<PluginType>,
    raw: Object,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON.
    #[error("network configuration: {0}")]
    Json(#[from] json::ParseError),
    /// JSON, but not an object.
    #[error("network configuration: expected a JSON object, found {found}")]
    NotAnObject {
        /// What was found.
        found: &'static str,
    },
    /// A key of the wrong type.
    #[error("{key}: expected {expected}, found {found}")]
    Type {
        /// The key.
        key: String,
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A name, type or ID that breaks its rules.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A plugin of a list has no usable type.
    #[error("plugins[{index}]: {source}")]
    Plugin {
        /// Which one.
        index: usize,
        /// Why.
        source: NameError,
    },
    /// A version that is none.
    #[error("cniVersion: {0}")]
    Version(#[from] VersionError),
    /// A plugin is nested so deeply that the list which holds it could not be read again.
    #[error("network configuration: lists and objects are nested {depth} levels deep, at most {max} are accepted")]
    TooDeep {
        /// Levels in the list.
        depth: usize,
        /// Levels accepted.
        max: usize,
    },
    /// A list without plugins.
    #[error("no plugins in list: \"plugins\" of network {0:?} needs at least one element")]
    NoPlugins(String),
    /// A single configuration was found where a list belongs, or the other way round.
    #[error("{0}")]
    WrongKind(&'static str),
}

impl From<ConfigError> for CniError {
    fn from(e: ConfigError) -> Self {
        let code = match &e {
            ConfigError::Json(_) | ConfigError::NotAnObject { .. } => Code::DECODE,
            // What every call decodes first (SPEC 5, code 6).
            ConfigError::Type { key, .. } if key == "name" || key == "cniVersion" => Code::DECODE,
            ConfigError::Version(_) => Code::INCOMPATIBLE_VERSION,
            _ => Code::INVALID_CONFIG,
        };
        CniError::new(code, e.to_string()).at(e.key())
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// The key that it is about, as `plugins[1].type`; empty if it is about the configuration as a whole.
    pub fn key(&self) -> String {
        match self {
            ConfigError::Type { key, .. } => key.clone(),
            ConfigError::Name(e) => e.key().to_owned(),
            ConfigError::Plugin { index, .. } => format!("plugins[{index}].type"),
            ConfigError::Version(_) => "cniVersion".to_owned(),
            ConfigError::NoPlugins(_) => "plugins".to_owned(),
            ConfigError::Json(_) | ConfigError::NotAnObject { .. } | ConfigError::TooDeep { .. } | ConfigError::WrongKind(_) => {
                String::new()
            }
        }
    }
}

// === impl Config ===

impl Config {
    /// Reads a plugin's standard input. What stood in `prevResult` is returned beside it.
    ///
    /// # Errors
    /// Code 6 for broken JSON, 7 for a bad or missing name, 1 for an unknown version.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Option<AddResult>), CniError> {
        Self::parse_named(Self::named(bytes)?)
    }

    /// The first half of [`Config::parse`]: an object with a network's name, before anything else is looked at.
    ///
    /// # Errors
    /// Code 6 for broken JSON, 7 for a bad or missing name.
    pub fn named(bytes: &[u8]) -> Result<Object, ConfigError> {
        let raw = match json::parse(bytes)? {
            // To Go `null` is an object without keys.
            Value::Null => Object::new(),
            value => object(value)?,
        };
        NetworkName::parse(text(&raw, "name")?)?;
        Ok(raw)
    }

    /// The second half of [`Config::parse`].
    ///
    /// # Errors
    /// As there.
    pub fn parse_named(raw: Object) -> Result<(Self, Option<AddResult>), CniError> {
        let config = Self::from_object(raw)?;
        let prev = config.raw.get("prevResult").map(|value| AddResult::read(value, config.version));
        let prev = prev.transpose().map_err(|e: DecodeError| CniError::from(e).within("prevResult"))?;
        Ok((config, prev.map(|(result, _)| result)))
    }

    /// From an object that already has its name and version.
    ///
    /// # Errors
    /// As [`Config::parse`], but for `prevResult`.
    pub fn from_object(raw: Object) -> Result<Self, ConfigError> {
        let network = NetworkName::parse(text(&raw, "name")?)?;
        let version = text(&raw, "cniVersion")?.parse()?;
        let kind = match text(&raw, "type")? {
            "" => None,
            kind => Some(PluginType::parse(kind)?),
        };
        Ok(Config { network, version, kind, raw })
    }

    /// All keys as they came.
    pub fn raw(&self) -> &Object {
        &self.raw
    }

    /// The keys that `T` knows.
    ///
    /// # Errors
    /// Code 7 with the path of the offending key.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, CniError> {
        json::read_object(&self.raw).map_err(CniError::from)
    }

    /// The plugin that `ipam.type` names; `None` without one (an attachment without addresses).
    ///
    /// # Errors
    /// Code 7 if it is not the name of an executable.
    pub fn ipam(&self) -> Result<Option<PluginType>, CniError> {
        match self.raw.get("ipam") {
            None => return Ok(None),
            Some(Value::Object(_)) => {}
            Some(other) => return Err(ConfigError::Type { key: "ipam".to_owned(), expected: "an object", found: other.kind() }.into()),
        }
        let named = self.raw.objects("ipam").rev().map(|ipam| text(ipam, "type")).find(|kind| *kind != Ok(""));
        match named.transpose().map_err(|e| CniError::from(e).within("ipam").at("ipam.type"))? {
            // Addresses that were configured and never given are the worst outcome.
            None if self.raw.objects("ipam").any(|ipam| !ipam.is_empty()) => {
                Err(CniError::invalid("ipam.type", "missing: set the IPAM plugin that assigns addresses"))
            }
            None => Ok(None),
            Some(kind) => PluginType::parse(kind).map(Some).map_err(|e| CniError::from(e).within("ipam.type").at("ipam.type")),
        }
    }

    /// The text for an external plugin's standard input.
    ///
    /// # Errors
    /// [`ConvertError`] if the configuration's version cannot express the previous result.
    pub fn print(&self, prev: Option<&AddResult>) -> Result<String, ConvertError> {
        let mut raw = self.raw.clone();
        match prev {
            Some(result) => raw.set("prevResult", result.to_value(self.version)?),
            None => raw.remove("prevResult"),
        }
        Ok(json::compact(&raw))
    }

    /// A copy with one key set.
    pub fn with(&self, key: &str, value: impl Into<Value>) -> Self {
        let mut copy = self.clone();
        copy.raw.set(key, value);
        copy
    }
}

/// The object that a configuration must be.
pub(crate) fn object(value: Value) -> Result<Object, ConfigError> {
    match value {
        Value::Object(o) => Ok(o),
        other => Err(ConfigError::NotAnObject { found: other.kind() }),
    }
}

/// A key's string; empty if absent or `null`.
pub(crate) fn text<'a>(o: &'a Object, key: &str) -> Result<&'a str, ConfigError> {
    match o.get(key) {
        None => Ok(""),
        Some(Value::String(s)) => Ok(s),
        Some(other) => Err(ConfigError::Type { key: key.to_owned(), expected: "a string", found: other.kind() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_runtime_sends() {
        let text = br#"{"cniVersion":"1.0.0","NAME":"net","type":"bridge","x":{"Y":null},"ipam":{"type":"host-local"},
            "prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/8"}]}}"#;
        let (config, prev) = Config::parse(text).unwrap();
        assert_eq!(config.network.as_str(), "net");
        assert_eq!(config.ipam().unwrap().unwrap().as_str(), "host-local");
        assert_eq!(prev.as_ref().unwrap().ips.len(), 1);
        let printed = config.print(None).unwrap();
        assert!(printed.contains(r#""x":{"Y":null}"#) && !printed.contains("prevResult"), "{printed}");
        let again = Config::parse(config.print(prev.as_ref()).unwrap().as_bytes()).unwrap();
        assert_eq!(again.1, prev);
    }

    #[test]
    fn codes() {
        let code = |text: &str| Config::parse(text.as_bytes()).unwrap_err().code;
        assert_eq!(code(""), Code::DECODE);
        assert_eq!(code("[]"), Code::DECODE);
        assert_eq!(code("{}"), Code::INVALID_CONFIG);
        assert_eq!(code(r#"{"name":7}"#), Code::DECODE);
        assert_eq!(code(r#"{"name":"x","type":7}"#), Code::INVALID_CONFIG);
        assert_eq!(code(r#"{"name":"../x"}"#), Code::INVALID_CONFIG);
        assert_eq!(code(r#"{"name":"x","type":"../x"}"#), Code::INVALID_CONFIG);
        assert_eq!(code(r#"{"name":"x","cniVersion":"7.0.0"}"#), Code::INCOMPATIBLE_VERSION);
        assert_eq!(code(r#"{"name":"x","cniVersion":"1.0.0","prevResult":{"ips":[{}]}}"#), Code::DECODE);
    }
}
