//! The configuration of `bridge`: as received, then checked.

use cni::{CniArgs, CniError, Config, Dns, IfName, Mac, PluginType};
use json::Value;
use serde::Deserialize;

use crate::{mac, masquerade};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    bridge: String,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    ip_masq: bool,
    ip_masq_backend: String,
    mtu: i64,
    hairpin_mode: bool,
    promisc_mode: bool,
    vlan: i64,
    vlan_trunk: Vec<Value>,
    macspoofchk: bool,
    enabledad: bool,
    disable_container_interface: bool,
    port_isolation: bool,
    dns: Dns,
}

/// The checked configuration.
pub(super) struct Conf {
    pub(super) bridge: IfName,
    pub(super) is_gateway: bool,
    pub(super) is_default_gateway: bool,
    pub(super) force_address: bool,
    pub(super) ip_masq: bool,
    pub(super) mtu: Option<u32>,
    pub(super) hairpin: bool,
    pub(super) promisc: bool,
    pub(super) isolated: bool,
    pub(super) enable_dad: bool,
    pub(super) disable_container_interface: bool,
    pub(super) mac: Option<Mac>,
    pub(super) ipam: Option<PluginType>,
    pub(super) dns: Dns,
}

impl Conf {
    pub(super) fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        refuse_unsupported(&keys)?;
        let bridge = if keys.bridge.is_empty() { "cni0" } else { &keys.bridge };
        let bridge = IfName::parse(bridge).map_err(|e| CniError::invalid("bridge", e))?;
        let mtu = match keys.mtu {
            0 => None,
            68..=65535 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65535"))),
        };
        if keys.hairpin_mode && keys.promisc_mode {
            return Err(CniError::invalid("hairpinMode", "cannot set hairpin mode and promiscuous mode at the same time: use one of them"));
        }
        let ipam = config.ipam()?;
        if keys.disable_container_interface && ipam.is_some() {
            return Err(CniError::invalid(
                "disableContainerInterface",
                "an interface that stays down cannot have addresses: remove \"ipam\"",
            ));
        }
        args.only(&["MAC", "IP", "GATEWAY"])?;
        Ok(Conf {
            bridge,
            is_gateway: keys.is_gateway || keys.is_default_gateway,
            is_default_gateway: keys.is_default_gateway,
            force_address: keys.force_address,
            ip_masq: keys.ip_masq,
            mtu,
            hairpin: keys.hairpin_mode,
            promisc: keys.promisc_mode,
            isolated: keys.port_isolation,
            enable_dad: keys.enabledad,
            disable_container_interface: keys.disable_container_interface,
            mac: mac::requested(config, args, mac::INTERFACE)?,
            ipam,
            dns: keys.dns,
        })
    }
}

/// What is not there yet is refused by name, never ignored.
fn refuse_unsupported(keys: &Keys) -> Result<(), CniError> {
    let why = "this version of bridge has no vlan filtering; use a bridge of its own for each vlan";
    if keys.vlan != 0 {
        return Err(CniError::unsupported("vlan", keys.vlan, why));
    }
    if !keys.vlan_trunk.is_empty() {
        return Err(CniError::unsupported("vlanTrunk", json::compact(&keys.vlan_trunk), why));
    }
    if keys.macspoofchk {
        return Err(CniError::unsupported("macspoofchk", true, "this version of bridge has no anti-spoofing rules; remove the key"));
    }
    masquerade::backend(&keys.ip_masq_backend)
}
