//! Where a node's addresses come from, and the keys of Cilium's CRD-backed mode.

use std::time::Duration;

use cni::IfName;
use json::{Object, Value};

use super::{SettingsError, values};

/// Who says which addresses a node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ipam {
    /// Pools: files of this host, and what the cluster's operator grants.
    #[default]
    Pool,
    /// The node's `CiliumNode`, whoever fills it.
    Crd,
}

/// What holds in Cilium's CRD-backed mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crd {
    /// The status is written no more often than this.
    pub update_rate: Duration,
    /// The prefix length that an interface gets, IPv4 and IPv6.
    pub prefixes: [u8; 2],
    /// The bridge that has the router's address; nothing has it if not given.
    pub bridge: Option<IfName>,
    /// Whether an address is taken that other nodes can probe.
    pub health: bool,
}

impl Crd {
    pub(super) fn read(keys: &Object) -> Result<Self, SettingsError> {
        let prefix = |key: &str, bits: u8| -> Result<u8, SettingsError> {
            Ok(u8::try_from(values::count(keys, key, bits.into(), bits.into())?).unwrap_or(bits))
        };
        let bridge = values::text(keys, "ipamBridge")?.unwrap_or_else(|| "netloom0".to_owned());
        let bridge = match bridge.as_str() {
            "none" => None,
            name => Some(IfName::parse(name).map_err(|e| {
                let expected = format!("none, or the name of a bridge ({e})");
                values::wrong("ipamBridge", &expected, &Value::String(name.to_owned()))
            })?),
        };
        Ok(Crd {
            update_rate: values::duration(keys, "ciliumNodeUpdateRate", Duration::from_secs(15))?,
            prefixes: [prefix("ipamPrefixIPv4", 32)?, prefix("ipamPrefixIPv6", 128)?],
            bridge,
            health: values::word(keys, "ipamHealth", &[("enabled", true), ("disabled", false)])?,
        })
    }
}
