//! `dummy`: an interface without a wire, which holds addresses.

use cni::{AddResult, AttachmentId, CniArgs, CniError, Config, Dns, Mac, PluginType, Version};
use linux::link::{self, Kind};
use linux::{Errno, LinkSpec};
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::{identity, internal, mac, open, single, verify};

/// The plugin `dummy`.
pub(crate) struct Dummy;

static ABOUT: About = About {
    name: "dummy",
    summary: "gives the container an interface without a network, to hold addresses",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("mac", "string", "set by the kernel", "hardware address"),
        mac::FROM_IP,
        Key::new("ipam", "object", "required", "addresses"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    ipam: PluginType,
    mac: Option<Mac>,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let Keys { dns } = config.read()?;
        Ok(Conf { ipam: address::required(config, "dummy")?, mac: mac::requested(config, args, mac::INTERFACE)?, dns })
    }
}

impl Plugin for Dummy {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &CniArgs::default()).map(drop)
    }

    fn refuse(&self, config: &Config) -> Result<(), CniError> {
        address::required(config, "dummy").map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config, call.args)?;
        let addresses = Addresses::before_link(Some(conf.ipam), call, cx)?;
        let mac = mac::of_new_link(call.config, conf.mac, &addresses, cx)?;
        let name = &call.id.ifname;
        let spec = LinkSpec { mac, group: Some(identity::group(call.id)), ..LinkSpec::new(name.clone(), Kind::Dummy) };
        let made = call.netns()?.enter(|inside| Ok::<_, CniError>(open(inside)?.send_one(link::create(&spec)))).map_err(internal)??;
        made.map_err(|e| match e.errno() {
            Errno::EEXIST => internal(format!("interface name {name} already exists in the container: choose another CNI_IFNAME")),
            Errno::EOPNOTSUPP => verify::lacks("dummy"),
            _ => internal(e),
        })?;
        single::configure("dummy", conf.dns, addresses, &Wire::None, None, call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(call.config, call.args)?;
        single::check("dummy", call, cx).map(drop)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        single::del("dummy", call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config, &CniArgs::default())?;
        verify::kernel_makes(cx.host.netlink()?, "dummy")?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        address::gc(config, valid, cx)
    }
}
