//! `tap`: an interface in the container whose wire is a program's, a virtual machine's for example.

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Dns, IfName, Interface, Mac, Version};
use linux::link::{self, Change};
use linux::tuntap::{self, TapError, TapSpec};
use linux::{Inside, Link, Netlink};
use plugin::{About, Call, Cx, Doomed, Key, Mark, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses, Dad};
use crate::{identity, internal, mac, verify};

/// The plugin `tap`.
pub(crate) struct Tap;

static ABOUT: About = About {
    name: "tap",
    summary: "gives the container an interface that a program in it sends and receives for",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("multiQueue", "bool", "false", "several descriptors share it, a queue each"),
        Key::new("mtu", "bytes", "the kernel's", "largest packet"),
        Key::new("mac", "string", "made by the kernel", "hardware address"),
        Key::new("owner", "user ID", "anybody", "who alone may open it without CAP_NET_ADMIN"),
        Key::new("group", "group ID", "anybody", "the group whose members alone may; with owner, both count"),
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
    owner: Option<u32>,
    group: Option<u32>,
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
        let spec = TapSpec { name: name.clone(), multi_queue: keys.multi_queue, owner: keys.owner, group: keys.group };
        let mac = mac::requested(config, args, mac::INTERFACE)?;
        Ok(Conf { spec, mtu, mac, context: keys.selinux_context, bridge, dns: keys.dns })
    }
}

impl Plugin for Tap {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let name = &call.id.ifname;
        let conf = Conf::read(call.config, call.args, name)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(call.config.ipam()?, call, x)?;
        linux::crash_point!("tap-addresses-known");
        x.teardown.link(doomed(call, Mark::Group(identity::group(call.id))));
        netns.enter(|inside| make(inside, &conf, identity::group(call.id))).map_err(internal)??;
        linux::crash_point!("tap-made");
        let mut result = addresses.with_link(call, x)?;
        let link = netns.enter(|inside| configure(inside, name.as_str(), &mut result)).map_err(internal)??;
        linux::crash_point!("tap-configured");
        let mac = link.mac.map(|m| m.to_string()).unwrap_or_default();
        let sandbox = netns.path().display().to_string();
        result.interfaces = vec![Interface { name: name.to_string(), mac, sandbox, ..Interface::default() }];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        if !conf.dns.is_empty() {
            result.dns = conf.dns;
        }
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let name = call.id.ifname.as_str();
        let conf = Conf::read(call.config, call.args, &call.id.ifname)?;
        verify::ipam(call, x)?;
        let prev = call.prev()?;
        call.netns()?
            .enter(|inside| {
                let mut netlink = open(inside)?;
                let link = verify::inside(&mut netlink, prev, name, "tun", true)?;
                if let Some(mtu) = conf.mtu.filter(|mtu| *mtu != link.mtu) {
                    return Err(verify::changed(name, format!("its MTU is {}, not {mtu}", link.mtu)));
                }
                let Some(bridge) = &conf.bridge else { return Ok(()) };
                let master = netlink.link(bridge.as_str()).map_err(internal)?.map(|b| b.index);
                match master.is_some() && link.master == master {
                    true => Ok(()),
                    false => Err(verify::changed(name, format!("it is no port of {bridge}"))),
                }
            })
            .map_err(internal)?
    }

    fn del(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        if call.netns.is_some() {
            x.teardown.link(doomed(call, Mark::Group(identity::group(call.id))));
            // Another implementation made it, if that is what the result of its ADD says.
            if call.prev.is_some_and(|prev| verify::interface(prev, call.id.ifname.as_str()).is_ok()) {
                x.teardown.link(doomed(call, Mark::Foreign(call.id.ifname.clone())));
            }
        }
        address::release(call, x)
    }

    fn status(&self, config: &Config, x: &mut Cx<'_>) -> Result<(), CniError> {
        tuntap::usable().map_err(|e| CniError::new(Code::NOT_AVAILABLE, e.to_string()))?;
        match config.ipam()? {
            Some(kind) => x.delegate.status(&kind, config, x),
            None => Ok(()),
        }
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
        match config.ipam()? {
            Some(kind) => x.delegate.gc(&kind, config, valid, x),
            None => Ok(()),
        }
    }
}

fn open(inside: &Inside) -> Result<Netlink, CniError> {
    Netlink::open(inside).map_err(internal)
}

/// The link of this attachment, known by its group: name and hardware address are the container's to change.
fn doomed(call: &Call<'_>, mark: Mark) -> Doomed {
    Doomed { netns: call.netns.cloned(), kind: "tun", mark, lasting: true }
}

/// Makes the tap in the container. It has its group before it stays, so that no crash leaves one that nobody knows.
fn make(inside: &Inside, conf: &Conf, group: u32) -> Result<(), CniError> {
    let mut netlink = open(inside)?;
    let master = conf.bridge.as_ref().map(|name| bridge(&mut netlink, name)).transpose()?;
    let change = Change { mtu: conf.mtu, mac: conf.mac.clone(), group: Some(group), master, ..Change::default() };
    let name = conf.spec.name.as_str();
    let set = |netlink: &mut Netlink| {
        let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} vanished as it was made")))?;
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

/// Index of the bridge inside the container.
fn bridge(netlink: &mut Netlink, name: &IfName) -> Result<u32, CniError> {
    match netlink.link(name.as_str()).map_err(internal)? {
        Some(link) if link.is("bridge") => Ok(link.index),
        Some(_) => Err(CniError::invalid("bridge", format!("{name} in the container is no bridge"))),
        None => Err(CniError::invalid(
            "bridge",
            format!("failed to get bridge {name}: the container has no such interface; it is looked for inside"),
        )),
    }
}

fn configure(inside: &Inside, name: &str, result: &mut AddResult) -> Result<Link, CniError> {
    let mut netlink = open(inside)?;
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} vanished while it was configured")))?;
    address::ipv6(inside, &link, result, &[])?;
    address::configure(&mut netlink, &link, result, Dad::Off)?;
    Ok(link)
}
