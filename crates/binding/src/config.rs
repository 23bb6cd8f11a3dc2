//! What a definition says of its ports: the annotation [`KURYR_CONFIG`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use openstack::VifDriver;
use openstack::resource::AddressPair;
use serde_json::{Map, Value};

/// The annotation that makes a definition one of Neutron's.
pub const KURYR_CONFIG: &str = "openstack.org/kuryr-config";

/// The keys that there are.
const KEYS: [&str; 10] = [
    "allowedAddressPairs",
    "driverType",
    "networkId",
    "portId",
    "projectId",
    "qosPolicy",
    "securityGroups",
    "subnetId",
    "subnetIds",
    "vnicType",
];

/// So many subnets a port has at most: each takes an address.
pub(crate) const MAX_SUBNETS: usize = 8;

/// So many address pairs a port has at most: `max_allowed_address_pair` of Neutron.
const MAX_PAIRS: usize = 10;

/// What a definition says of its ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// The subnets of a port's addresses.
    pub subnets: Vec<String>,
    /// The network, where no subnet is named.
    pub network: Option<String>,
    /// How a port is plugged.
    pub driver: Option<VifDriver>,
    /// The port's project.
    pub project: Option<String>,
    /// The port's security groups.
    pub security_groups: Option<Vec<String>>,
    /// The port's QoS policy.
    pub qos_policy: Option<String>,
    /// Addresses that the pod may send from besides its own.
    pub address_pairs: Vec<AddressPair>,
    /// What a port is connected to on its host.
    pub vnic_type: Option<VnicType>,
    /// A port that exists already: then nothing else is named.
    pub port: Option<String>,
}

/// What a port is connected to on its host: `binding:vnic_type` of Neutron.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VnicType {
    /// A switch.
    #[default]
    Normal,
    /// A virtual function of a card, which a device plugin gives the pod.
    Direct,
}

/// The annotation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is not JSON.
    #[error("{KURYR_CONFIG} is not a JSON object: {0}")]
    Json(String),
    /// A value of another type.
    #[error("{KURYR_CONFIG}: {key} must be {expected}")]
    Type {
        /// The key.
        key: &'static str,
        /// What its value is.
        expected: &'static str,
    },
    /// A key that nobody reads.
    #[error("{KURYR_CONFIG}: unknown key {0:?}; known keys are {known}", known = KEYS.join(", "))]
    Unknown(String),
    /// No driver of Kuryr has this name.
    #[error("{KURYR_CONFIG}: driverType {0:?} is unknown: use neutron-vif, nested-vlan or nested-macvlan")]
    UnknownDriver(String),
    /// A type of port that nobody here can plug.
    #[error("{KURYR_CONFIG}: vnicType {0:?} is not supported: use normal or direct")]
    UnknownVnicType(String),
    /// An address pair that cannot be read.
    #[error(
        "{KURYR_CONFIG}: allowedAddressPairs must be a list of objects with ipAddress, an address or a range such as 10.9.0.0/24, and macAddress, which may be missing"
    )]
    AddressPairs,
    /// More address pairs than Neutron takes where nobody has changed its limit.
    #[error("{KURYR_CONFIG}: allowedAddressPairs has {0} elements, and a port has {MAX_PAIRS} at most: name fewer")]
    TooManyPairs(usize),
    /// More subnets than a port may have.
    #[error("{KURYR_CONFIG}: subnetIds names {0} subnets, and a port has {MAX_SUBNETS} at most: name fewer")]
    TooManySubnets(usize),
    /// Two keys that exclude each other.
    #[error("{KURYR_CONFIG}: {0} and {1} are both given: remove one")]
    Both(&'static str, &'static str),
}

// === impl PortConfig ===

impl PortConfig {
    /// Reads the annotation's value. A key that is `null` counts as not given.
    ///
    /// # Errors
    /// [`ConfigError`]: the first one.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut keys: Map<String, Value> = serde_json::from_str(text).map_err(|e| ConfigError::Json(e.to_string()))?;
        keys.retain(|_, value| !value.is_null());
        if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(ConfigError::Unknown(key.chars().take(80).collect()));
        }
        if let Some(port) = text_of(&mut keys, "portId")? {
            // It has all that the other keys would say.
            return match KEYS.iter().find(|key| keys.contains_key(**key)) {
                Some(key) => Err(ConfigError::Both("portId", key)),
                None => Ok(PortConfig { port: Some(port), ..PortConfig::default() }),
            };
        }
        let subnet = text_of(&mut keys, "subnetId")?;
        let subnets = list_of(&mut keys, "subnetIds")?.map(once);
        if let Some(subnets) = subnets.as_ref().filter(|subnets| subnets.len() > MAX_SUBNETS) {
            return Err(ConfigError::TooManySubnets(subnets.len()));
        }
        let network = text_of(&mut keys, "networkId")?;
        for (given, key) in [(subnet.is_some(), "subnetId"), (subnets.is_some(), "subnetIds")] {
            if given && network.is_some() {
                return Err(ConfigError::Both(key, "networkId"));
            }
        }
        if subnet.is_some() && subnets.is_some() {
            return Err(ConfigError::Both("subnetId", "subnetIds"));
        }
        let driver = text_of(&mut keys, "driverType")?;
        let driver = driver.map(|name| VifDriver::parse(&name).ok_or(ConfigError::UnknownDriver(name))).transpose()?;
        Ok(PortConfig {
            subnets: subnets.unwrap_or_else(|| subnet.into_iter().collect()),
            network,
            driver,
            project: text_of(&mut keys, "projectId")?,
            security_groups: list_of(&mut keys, "securityGroups")?,
            qos_policy: text_of(&mut keys, "qosPolicy")?,
            address_pairs: pairs_of(&mut keys)?,
            vnic_type: text_of(&mut keys, "vnicType")?.map(VnicType::parse).transpose()?,
            port: None,
        })
    }
}

// === impl VnicType ===

impl VnicType {
    fn parse(name: String) -> Result<Self, ConfigError> {
        match name.as_str() {
            "normal" => Ok(VnicType::Normal),
            "direct" => Ok(VnicType::Direct),
            _ => Err(ConfigError::UnknownVnicType(name.chars().take(80).collect())),
        }
    }

    /// As Neutron has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VnicType::Normal => "normal",
            VnicType::Direct => "direct",
        }
    }
}

/// Each of them once, in their order.
pub(crate) fn once(all: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    all.into_iter().filter(|one| seen.insert(one.clone())).collect()
}

/// The address pairs, as a definition has them.
fn pairs_of(keys: &mut Map<String, Value>) -> Result<Vec<AddressPair>, ConfigError> {
    let Some(value) = keys.remove("allowedAddressPairs") else { return Ok(Vec::new()) };
    let Value::Array(all) = value else { return Err(ConfigError::AddressPairs) };
    if all.len() > MAX_PAIRS {
        return Err(ConfigError::TooManyPairs(all.len()));
    }
    all.into_iter().map(pair_of).collect::<Option<_>>().ok_or(ConfigError::AddressPairs)
}

fn pair_of(value: Value) -> Option<AddressPair> {
    let Value::Object(mut keys) = value else { return None };
    let mac_address = text_of(&mut keys, "macAddress").ok()?;
    let ip_address = text_of(&mut keys, "ipAddress").ok()??;
    let is_good = ip_address.parse::<IpAddr>().is_ok() || ip_address.parse::<IpNet>().is_ok();
    (is_good && keys.is_empty()).then_some(AddressPair { ip_address, mac_address })
}

fn text_of(keys: &mut Map<String, Value>, key: &'static str) -> Result<Option<String>, ConfigError> {
    match keys.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(ConfigError::Type { key, expected: "a text, and not an empty one" }),
    }
}

fn list_of(keys: &mut Map<String, Value>, key: &'static str) -> Result<Option<Vec<String>>, ConfigError> {
    let wrong = || ConfigError::Type { key, expected: "a list of texts, and not an empty one" };
    let Some(value) = keys.remove(key) else { return Ok(None) };
    let Value::Array(all) = value else { return Err(wrong()) };
    let texts = all.into_iter().map(|one| match one {
        Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    });
    let texts: Vec<String> = texts.collect::<Option<_>>().ok_or_else(wrong)?;
    if texts.is_empty() { Err(wrong()) } else { Ok(Some(texts)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_read_and_a_wrong_one_is_named() {
        let config = PortConfig::parse(r#"{"subnetId": "s", "driverType": "neutron-vif", "projectId": "p", "securityGroups": ["a", "b"]}"#);
        let config = config.unwrap();
        assert_eq!(
            (config.subnets, config.driver, config.project.as_deref()),
            (vec!["s".to_owned()], Some(VifDriver::NeutronVif), Some("p"))
        );
        assert_eq!(config.security_groups.unwrap(), ["a", "b"]);
        let pairs = r#"[{"ipAddress": "10.9.0.0/24"}, {"ipAddress": "fd00::9", "macAddress": "02:00:00:00:00:09"}]"#;
        let config = PortConfig::parse(&format!(r#"{{"qosPolicy": "q", "allowedAddressPairs": {pairs}}}"#)).unwrap();
        let shown: Vec<_> = config.address_pairs.iter().map(|pair| (pair.ip_address.as_str(), pair.mac_address.as_deref())).collect();
        assert_eq!(shown, [("10.9.0.0/24", None), ("fd00::9", Some("02:00:00:00:00:09"))]);
        assert_eq!(config.qos_policy.as_deref(), Some("q"));
        let eleven = [r#"{"ipAddress": "10.9.0.1"}"#; 11].join(",");
        let refused = PortConfig::parse(&format!(r#"{{"allowedAddressPairs": [{eleven}]}}"#)).unwrap_err();
        assert_eq!(refused, ConfigError::TooManyPairs(11));
        assert_eq!(PortConfig::parse(r#"{"subnetId": null}"#).unwrap(), PortConfig::default());
        let existing = PortConfig { port: Some("x".to_owned()), ..PortConfig::default() };
        assert_eq!(PortConfig::parse(r#"{"portId": "x", "subnetId": null}"#).unwrap(), existing);
        assert_eq!(PortConfig::parse(r#"{"vnicType": "direct"}"#).unwrap().vnic_type, Some(VnicType::Direct));
        let twice = PortConfig::parse(r#"{"subnetIds": ["t", "s", "t", "s"]}"#).unwrap();
        assert_eq!(twice.subnets, ["t", "s"]);
        let many = |count: usize| format!(r#"{{"subnetIds": {:?}}}"#, (0..count).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(PortConfig::parse(&many(8)).unwrap().subnets.len(), 8);
        for (text, words) in [
            (many(9).as_str(), "subnetIds names 9 subnets, and a port has 8 at most"),
            ("{", "is not a JSON object"),
            ("[]", "is not a JSON object"),
            (r#"{"subnetID": "x"}"#, r#"unknown key "subnetID"; known keys are allowedAddressPairs, driverType,"#),
            (r#"{"subnetId": ""}"#, "subnetId must be a text"),
            (r#"{"subnetIds": []}"#, "subnetIds must be a list"),
            (r#"{"securityGroups": "a"}"#, "securityGroups must be a list"),
            (r#"{"driverType": "vlan"}"#, r#"driverType "vlan" is unknown"#),
            (r#"{"portId": "x", "securityGroups": ["a"]}"#, "portId and securityGroups are both given"),
            (r#"{"portId": 7}"#, "portId must be a text"),
            (r#"{"vnicType": "macvtap"}"#, r#"vnicType "macvtap" is not supported: use normal or direct"#),
            (r#"{"allowedAddressPairs": [{"ipAddress": "10.9.0.x"}]}"#, "allowedAddressPairs must be a list of objects with ipAddress"),
            (r#"{"allowedAddressPairs": [{"ip_address": "10.9.0.1"}]}"#, "allowedAddressPairs must be a list of objects with ipAddress"),
            (r#"{"subnetId": "x", "networkId": "y"}"#, "subnetId and networkId are both given"),
            (r#"{"subnetId": "x", "subnetIds": ["y"]}"#, "subnetId and subnetIds are both given"),
        ] {
            let refused = PortConfig::parse(text).unwrap_err().to_string();
            assert!(refused.starts_with(KURYR_CONFIG) && refused.contains(words), "{text}: {refused}");
        }
    }
}
