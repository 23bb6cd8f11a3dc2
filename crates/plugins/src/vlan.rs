//! `vlan`: an 802.1Q VLAN of a parent, which the container has for itself.

use cni::{AddResult, AttachmentId, CniError, Config, Dns, PluginType, Version};
use linux::link::Kind;
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::parent::{self, Parent};
use crate::{single, verify};

/// The plugin `vlan`.
pub(crate) struct Vlan;

static ABOUT: About = About {
    name: "vlan",
    summary: "gives the container a VLAN of a parent's network",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::new("master", "string", "required", "parent interface"),
        Key::new("vlanId", "number", "0", "the VLAN, 0 to 4094; 0 has a priority tag only"),
        Key::new("mtu", "bytes", "the parent's", "at most the parent's"),
        Key::new("linkInContainer", "bool", "false", "the parent is inside the container"),
        Key::new("ipam", "object", "required", "addresses"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    vlan_id: i64,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    parent: Parent,
    id: u16,
    ipam: PluginType,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let parent = Parent::read(config)?;
        if parent.master.is_empty() {
            return Err(CniError::invalid("master", "\"master\" field is required: the interface that carries the VLAN"));
        }
        let id = u16::try_from(keys.vlan_id).ok().filter(|id| *id <= 4094);
        let id = id.ok_or_else(|| {
            CniError::worded(format_args!("invalid VLAN ID {} (must be between 0 and 4094)", keys.vlan_id), "vlanId").at("vlanId")
        })?;
        let ipam = address::required(config, "vlan")?;
        Ok(Conf { parent, id, ipam, dns: keys.dns })
    }
}

impl Plugin for Vlan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config)?.parent.validate(draft.links)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Conf { parent, id, ipam, dns } = Conf::read(call.config)?;
        let addresses = Addresses::before_link(Some(ipam), call, cx)?;
        let index = parent.carry(call, cx, None, |parent| match parent.flags.up() {
            true => Ok(Kind::Vlan { parent: parent.index, id }),
            // It would not come up (ENETDOWN).
            false => Err(parent::down(parent, "vlan")),
        })?;
        single::configure("vlan", dns, addresses, &Wire::Own, index, call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let link = single::check("vlan", call, cx)?;
        match link.vlan {
            Some(id) if id == conf.id => conf.parent.check(call, cx, &link),
            id => Err(verify::changed(&link.name, format!("its VLAN is {}, not {}", id.unwrap_or_default(), conf.id))),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        single::del("vlan", call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?.parent.status("vlan", cx)?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        address::gc(config, valid, cx)
    }
}
