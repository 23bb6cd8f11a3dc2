//! `tap`: an interface in the container whose wire is a program's, a virtual machine's for example.

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Dns, IfName, Mac, Version};
use linux::link::{self, Change};
use linux::tuntap::{self, TapError, TapSpec};
use linux::{Inside, Netlink};
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::{identity, internal, mac, open, single, verify};

/// The plugin `tap`.
pub(crate) struct Tap;

static ABOUT: About = About {
    name: "tap",
    summary: "gives the container an interface for a program that sends and receives frames",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("multiQueue", "bool", "false", "several descriptors share it, with a queue each"),
        Key::new("mtu", "bytes", "the kernel's", "largest packet"),
        Key::new("mac", "string", "set by the kernel", "hardware address"),
        mac::FROM_IP,
        Key::new("owner", "user ID", "anybody", "the only user that may open it without CAP_NET_ADMIN"),
        Key::new("group", "group ID", "anybody", "the only group whose members may; with owner, both apply"),
        Key::new("selinuxContext", "string", "this program's", "the SELinux context that it belongs to"),
        Key::new("bridge", "string", "none", "a bridge inside the container, of which it becomes a port"),
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    multi_queue: bool,
    mtu: i64,
    owner: json::Value,
    group: json::Value,
    selinux_context: String,
    bridge: String,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    spec: TapSpec,
    mtu: Option<u32>,
    mac: Option<Mac>,
    context: String,
    bridge: Option<IfName>,
    dns: Dns,
}

impl Conf {
    fn read(config: &Config, args: &CniArgs, name: &IfName) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let mtu = match keys.mtu {
            0 => None,
            68..=65521 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65521"))),
        };
        let bridge = match keys.bridge.as_str() {
            "" => None,
            name => Some(IfName::parse(name).map_err(|e| CniError::invalid("bridge", e))?),
        };
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let (owner, group) = (number("owner", "user", &keys.owner)?, number("group", "group", &keys.group)?);
        let spec = TapSpec { name: name.clone(), multi_queue: keys.multi_queue, owner, group };
        let mac = mac::requested(config, args, mac::INTERFACE)?;
        Ok(Conf { spec, mtu, mac, context: keys.selinux_context, bridge, dns: keys.dns })
    }
}

impl Plugin for Tap {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &CniArgs::default(), draft.ifname).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let mut conf = Conf::read(call.config, call.args, &call.id.ifname)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(call.config.ipam()?, call, cx)?;
        conf.mac = mac::of_new_link(call.config, conf.mac, &addresses, cx)?;
        linux::crash_point!("tap-addresses-known");
        netns.enter(|inside| make(inside, &conf, identity::group(call.id))).map_err(internal)??;
        linux::crash_point!("tap-made");
        single::configure("tun", conf.dns, addresses, &Wire::None, None, call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args, &call.id.ifname)?;
        let link = single::check("tun", call, cx)?;
        if let Some(found) = link.tun {
            same_users(&conf.spec, &found).map_err(|what| verify::changed(&link.name, what))?;
        }
        let Some(bridge) = &conf.bridge else { return Ok(()) };
        let master = |inside: &Inside| open(inside)?.link(bridge.as_str()).map_err(internal);
        let master = call.netns()?.enter(master).map_err(internal)??.map(|b| b.index);
        match master.is_some() && link.master == master {
            true => Ok(()),
            false => Err(verify::changed(&link.name, format!("it is not a port of {bridge}"))),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        single::del("tun", call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, &CniArgs::default(), &IfName::parse("tap0").map_err(internal)?)?;
        tuntap::usable().map_err(|e| CniError::new(Code::NOT_AVAILABLE, e.to_string()))?;
        if !conf.context.is_empty() {
            let usable = tuntap::context_usable(&conf.context);
            usable.map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..CniError::invalid("selinuxContext", e) })?;
        }
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        address::gc(config, valid, cx)
    }
}

/// `owner` and `group`: the kernel knows numbers only, and names are the container's own. The highest one is nobody's.
fn number(key: &str, of: &str, given: &json::Value) -> Result<Option<u32>, CniError> {
    match given {
        json::Value::Null => Ok(None),
        json::Value::Number(n) => match n.to_string().parse() {
            Ok(id) if id < u32::MAX => Ok(Some(id)),
            _ => Err(CniError::invalid(key, format!("{n} is not a valid {of} ID: expected 0 to {}", u32::MAX - 1))),
        },
        other => Err(CniError::invalid(key, format!("expected the number of a {of} (see `id -{}`), found {}", &of[..1], other.kind()))),
    }
}

/// Makes the tap in the container. It has its group before it stays, so that no crash leaves one that nobody knows.
fn make(inside: &Inside, conf: &Conf, group: u32) -> Result<(), CniError> {
    let mut netlink = open(inside)?;
    let master = conf.bridge.as_ref().map(|name| bridge(&mut netlink, name)).transpose()?;
    let change = Change { mtu: conf.mtu, mac: conf.mac.clone(), group: Some(group), master, ..Change::default() };
    let name = conf.spec.name.as_str();
    let set = |netlink: &mut Netlink| {
        let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was created")))?;
        netlink.send_one(link::set(link.index, &change).called(format!("set up tap {name} in the container"))).map_err(internal)
    };
    if conf.context.is_empty() {
        let tap = tuntap::Tap::create(inside, &conf.spec).map_err(|e| failed(&e))?;
        linux::crash_point!("tap-fleeting");
        set(&mut netlink)?;
        linux::crash_point!("tap-set");
        return tap.keep().map_err(|e| failed(&e));
    }
    tuntap::create_in_context(inside, &conf.spec, &conf.context).map_err(|e| failed(&e))?;
    set(&mut netlink).map(drop).inspect_err(|_| {
        // The teardown knows it by the group that it did not get.
        let _ = netlink.send_one(link::delete_by_name(&conf.spec.name));
    })
}

fn failed(e: &TapError) -> CniError {
    match e {
        TapError::Exists { name } => internal(format!("interface name {name} already exists in the container: choose another CNI_IFNAME")),
        TapError::Context { .. } => CniError::invalid("selinuxContext", e),
        e => internal(e),
    }
}

/// CHECK of who may use it, as far as the configuration says so.
fn same_users(wanted: &TapSpec, found: &link::Tun) -> Result<(), String> {
    for (what, wanted, found) in [("owner", wanted.owner, found.owner), ("group", wanted.group, found.group)] {
        if wanted.is_some() && wanted != found {
            let found = found.map_or_else(|| "nobody".to_owned(), |id| id.to_string());
            return Err(format!("its {what} is {found}, not {}", wanted.unwrap_or_default()));
        }
    }
    match (wanted.multi_queue, found.multi_queue) {
        (true, false) => Err("it has only one queue (multiQueue)".to_owned()),
        (false, true) => Err("it has several queues (multiQueue)".to_owned()),
        _ => Ok(()),
    }
}

/// Index of the bridge inside the container.
fn bridge(netlink: &mut Netlink, name: &IfName) -> Result<u32, CniError> {
    match netlink.link(name.as_str()).map_err(internal)? {
        Some(link) if link.is("bridge") => Ok(link.index),
        Some(_) => Err(CniError::invalid("bridge", format!("{name} in the container is not a bridge"))),
        None => Err(CniError::worded(
            format_args!("failed to get bridge {name}: Link not found"),
            "the bridge is looked for inside the container, which has no such interface",
        )),
    }
}
