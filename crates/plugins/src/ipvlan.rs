//! `ipvlan`: an interface on a parent's wire that shares the parent's MAC.
//!
//! Behind another plugin of a chain it stands on the one interface that this one tells, and has its addresses if there is
//! no IPAM plugin.

use cni::{AddResult, AttachmentId, CniError, Code, Config, Dns, Version};
use linux::IpvlanMode;
use linux::link::Kind;
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::parent::Parent;
use crate::{single, verify};

/// The plugin `ipvlan`.
pub(crate) struct Ipvlan;

static ABOUT: About = About {
    name: "ipvlan",
    summary: "gives the container an interface on a parent's network under the parent's hardware address",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::new("master", "string", "interface of the default route", "parent interface; in a chain, the one of the plugin before"),
        Key::new("mode", "string", "l2", "l2, l3 or l3s, for all ipvlans of the parent"),
        Key::new("mtu", "bytes", "the parent's", "at most the parent's"),
        Key::new("linkInContainer", "bool", "false", "the parent is inside the container"),
        Key::new("ipam", "object", "required", "addresses; in a chain, those of the plugin before"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    mode: String,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    parent: Parent,
    mode: IpvlanMode,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let mode = match keys.mode.as_str() {
            "" => IpvlanMode::L2,
            other => {
                other.parse().map_err(|e: linux::link::IpvlanModeError| CniError::new(Code::INVALID_CONFIG, e.to_string()).at("mode"))?
            }
        };
        Ok(Conf { parent: Parent::read(config)?, mode, dns: keys.dns })
    }
}

impl Plugin for Ipvlan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        // Behind another plugin it has that one's interface and addresses.
        if draft.is_first {
            address::required(draft.config, "ipvlan")?;
        }
        Conf::read(draft.config)?.parent.validate(draft.links)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Conf { mut parent, mode, dns } = Conf::read(call.config)?;
        if let (true, Some(prev)) = (parent.master.is_empty(), call.prev) {
            parent.master = only_interface(prev)?;
        }
        let addresses = match (call.config.ipam()?, call.prev) {
            (None, Some(prev)) if !prev.ips.is_empty() => Addresses::Known(AddResult { interfaces: Vec::new(), ..prev.clone() }),
            _ => Addresses::before_link(Some(address::required(call.config, "ipvlan")?), call, cx)?,
        };
        let index = parent.carry(call, cx, None, |parent| Ok(Kind::Ipvlan { parent: parent.index, mode }))?;
        single::configure("ipvlan", dns, addresses, &Wire::Parent(&parent), index, call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let link = single::check("ipvlan", call, cx)?;
        if link.ipvlan != Some(conf.mode) {
            let mode = link.ipvlan.map(|m| m.to_string()).unwrap_or_default();
            return Err(verify::changed(&link.name, format!("its mode is {mode}, not {}", conf.mode)));
        }
        // Without a name it may have been another plugin's interface, which nobody knows any more.
        if conf.parent.master.is_empty() { Ok(()) } else { conf.parent.check(call, cx, &link) }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        single::del("ipvlan", call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config)?;
        match conf.parent.master.is_empty() && config.ipam()?.is_none() {
            // Only in a chain, behind a plugin that makes the parent.
            true => verify::kernel_makes(cx.host.netlink()?, "ipvlan"),
            false => conf.parent.status("ipvlan", cx),
        }?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        address::gc(config, valid, cx)
    }
}

/// The interface that the plugin before this one tells.
fn only_interface(prev: &AddResult) -> Result<String, CniError> {
    match prev.interfaces.as_slice() {
        [only] if !only.name.is_empty() => Ok(only.name.clone()),
        several => {
            let names: Vec<&str> = several.iter().map(|i| i.name.as_str()).collect();
            let msg =
                format!("chained master failure. PrevResult lacks a single named interface: it has [{}]; set \"master\"", names.join(", "));
            Err(CniError::invalid("master", msg))
        }
    }
}
