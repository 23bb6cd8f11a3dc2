//! `macvlan`: an interface of its own MAC on a parent's wire.

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Dns, Mac, Version};
use linux::MacvlanMode;
use linux::link::{self, Kind};
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::parent::Parent;
use crate::{mac, single, verify};

/// The plugin `macvlan`.
pub(crate) struct Macvlan;

/// Packets: the queue is the parent's, for all of its macvlans, and the kernel uses the largest number that any of them asks for. A
/// parent that receives more broadcasts than it can copy would fill the machine's memory.
const MOST_QUEUED: u32 = 100_000;

static ABOUT: About = About {
    name: "macvlan",
    summary: "gives the container an interface with a hardware address of its own on a parent's network",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("master", "string", "interface of the default route", "parent interface"),
        Key::new("mode", "string", "bridge", "bridge, private, vepa or passthru"),
        Key::new("mtu", "bytes", "the parent's", "at most the parent's"),
        Key::new("mac", "string", "set by the kernel", "hardware address"),
        mac::FROM_IP,
        Key::new("linkInContainer", "bool", "false", "the parent is inside the container"),
        Key::new("bcqueuelen", "packets", "the kernel's", "length of the parent's broadcast queue, up to 100000"),
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    mode: String,
    bcqueuelen: i64,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    parent: Parent,
    macvlan: link::Macvlan,
    mac: Option<Mac>,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let mode = match keys.mode.as_str() {
            "" => MacvlanMode::Bridge,
            other => {
                other.parse().map_err(|e: linux::link::MacvlanModeError| CniError::new(Code::INVALID_CONFIG, e.to_string()).at("mode"))?
            }
        };
        let parent = Parent::read(config)?;
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let mac = mac::requested(config, args, mac::INTERFACE)?;
        let bc_queue_len = match u32::try_from(keys.bcqueuelen) {
            Ok(0) => None,
            Ok(packets @ 1..=MOST_QUEUED) => Some(packets),
            _ => {
                let why = "the queue is the parent's, for all of its macvlans";
                return Err(CniError::invalid("bcqueuelen", format!("{} is not between 0 and {MOST_QUEUED}: {why}", keys.bcqueuelen)));
            }
        };
        Ok(Conf { parent, macvlan: link::Macvlan { mode, bc_queue_len }, mac, dns: keys.dns })
    }
}

impl Plugin for Macvlan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &CniArgs::default())?.parent.validate(draft.links)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Conf { parent, macvlan, mac, dns } = Conf::read(call.config, call.args)?;
        let addresses = Addresses::before_link(call.config.ipam()?, call, cx)?;
        let mac = mac::of_new_link(call.config, mac, &addresses, cx)?;
        let index = parent.carry(call, cx, mac, |parent| Ok(Kind::Macvlan { parent: parent.index, macvlan }))?;
        single::configure("macvlan", dns, addresses, &Wire::Own, index, call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        let link = single::check("macvlan", call, cx)?;
        match link.macvlan.map(|m| m.mode) {
            Some(mode) if mode == conf.macvlan.mode => conf.parent.check(call, cx, &link),
            mode => {
                let mode = mode.map(|m| m.to_string()).unwrap_or_default();
                Err(verify::changed(&link.name, format!("its mode is {mode}, not {}", conf.macvlan.mode)))
            }
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        single::del("macvlan", call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config, &CniArgs::default())?.parent.status("macvlan", cx)?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        address::gc(config, valid, cx)
    }
}
