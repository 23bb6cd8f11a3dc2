//! The configuration of `bridge`: as received, then checked.

use cni::{CniArgs, CniError, Config, Dns, IfName, Mac, PluginType};
use serde::Deserialize;

use super::vlan::Vlans;
use crate::trunk::{self, LAST, Trunk};
use crate::veth::Queues;
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
    queues: i64,
    hairpin_mode: bool,
    promisc_mode: bool,
    vlan: i64,
    vlan_trunk: Option<Vec<Trunk>>,
    preserve_default_vlan: bool,
    macspoofchk: bool,
    strict_source: bool,
    strict_reverse_path: bool,
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
    pub(super) queues: Queues,
    pub(super) hairpin: bool,
    pub(super) promisc: bool,
    pub(super) isolated: bool,
    pub(super) mac_spoof_check: bool,
    pub(super) strict_source: bool,
    /// Set by the agent in the network of a definition.
    pub(super) strict_reverse_path: bool,
    pub(super) vlans: Vlans,
    pub(super) enable_dad: bool,
    pub(super) disable_container_interface: bool,
    pub(super) mac: Option<Mac>,
    /// Of a bridge that is made; `None` until the gateway's address is known.
    pub(super) bridge_mac: Option<Mac>,
    pub(super) ipam: Option<PluginType>,
    pub(super) dns: Dns,
}

impl Conf {
    pub(super) fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        masquerade::backend(&keys.ip_masq_backend)?;
        let bridge = if keys.bridge.is_empty() { "cni0" } else { &keys.bridge };
        let bridge = IfName::parse(bridge).map_err(|e| CniError::invalid("bridge", e))?;
        let mtu = match keys.mtu {
            0 => None,
            68..=65535 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65535"))),
        };
        if keys.hairpin_mode && keys.promisc_mode {
            return Err(CniError::worded(
                "cannot set hairpin mode and promiscuous mode at the same time",
                "set either hairpinMode or promiscMode",
            )
            .at("promiscMode"));
        }
        let ipam = config.ipam()?;
        if keys.disable_container_interface && ipam.is_some() {
            return Err(CniError::worded("cannot use IPAM when DisableContainerInterface flag is set", "remove \"ipam\"").at("ipam"));
        }
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let vlans = vlans(&keys)?;
        let is_gateway = keys.is_gateway || keys.is_default_gateway;
        if is_gateway {
            vlans.gateway_name(&bridge)?;
        }
        Ok(Conf {
            bridge,
            is_gateway,
            is_default_gateway: keys.is_default_gateway,
            force_address: keys.force_address,
            ip_masq: keys.ip_masq,
            mtu,
            queues: Queues::read(keys.queues)?,
            hairpin: keys.hairpin_mode,
            promisc: keys.promisc_mode,
            isolated: keys.port_isolation,
            mac_spoof_check: keys.macspoofchk,
            strict_source: keys.strict_source,
            strict_reverse_path: keys.strict_reverse_path,
            vlans,
            enable_dad: keys.enabledad,
            disable_container_interface: keys.disable_container_interface,
            mac: mac::requested(config, args, mac::INTERFACE)?,
            bridge_mac: None,
            ipam,
            dns: keys.dns,
        })
    }

    /// The links of the host that all containers of the network have: the bridge, and the gateway's link into its VLAN.
    pub(super) fn own_links(&self) -> Result<Vec<IfName>, CniError> {
        let way_in = if self.is_gateway { self.vlans.gateway_name(&self.bridge)? } else { None };
        Ok(std::iter::once(self.bridge.clone()).chain(way_in).collect())
    }
}

fn vlans(keys: &Keys) -> Result<Vlans, CniError> {
    let native = u16::try_from(keys.vlan).ok().filter(|vlan| *vlan <= LAST);
    let native = native
        .ok_or_else(|| CniError::worded(format_args!("invalid VLAN ID {} (must be between 0 and {LAST})", keys.vlan), "vlan").at("vlan"))?;
    let trunk = trunk::vlans("vlanTrunk", 1, keys.vlan_trunk.as_deref().unwrap_or_default())?;
    Ok(Vlans::new(native, trunk, keys.preserve_default_vlan, keys.vlan_trunk.is_some()))
}
