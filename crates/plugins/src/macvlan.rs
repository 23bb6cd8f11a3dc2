//! `macvlan`: an interface of its own MAC on a parent's wire.

use std::os::fd::AsFd;
use std::sync::Arc;

use cni::{AddResult, AttachmentId, CniError, Code, Config, IfName, Interface, Mac, Version};
use linux::link::{self, Ipv6Conf, Kind};
use linux::{Family, Inside, Link, LinkSpec, MacvlanMode, Netlink, Netns};
use plugin::{About, Call, Cx, Doomed, Key, Mark, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses, Dad};
use crate::{identity, internal, mac, verify};

/// The plugin `macvlan`.
pub(crate) struct Macvlan;

static ABOUT: About = About {
    name: "macvlan",
    summary: "gives the container an interface with a hardware address of its own on a parent's network",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("master", "string", "interface of the default route", "parent interface"),
        Key::new("mode", "string", "bridge", "bridge, private, vepa or passthru"),
        Key::new("mtu", "bytes", "the parent's", "at most the parent's"),
        Key::new("mac", "string", "made by the kernel", "hardware address"),
        Key::new("linkInContainer", "bool", "false", "the parent is inside the container"),
        Key::new("bcqueuelen", "packets", "the kernel's", "length of the parent's broadcast queue"),
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    master: String,
    mode: String,
    mtu: i64,
    link_in_container: bool,
    bcqueuelen: u32,
    dns: cni::Dns,
}

/// The checked configuration.
struct Conf {
    keys: Keys,
    mode: MacvlanMode,
    mac: Option<Mac>,
}

impl Conf {
    fn read(call: &Call<'_>) -> Result<Self, CniError> {
        let keys: Keys = call.config.read()?;
        let mode = match keys.mode.as_str() {
            "" => MacvlanMode::Bridge,
            other => other.parse().map_err(|e| CniError::invalid("mode", e))?,
        };
        if !keys.master.is_empty() {
            IfName::parse(&keys.master).map_err(|e| CniError::invalid("master", e))?;
        }
        call.args.only(&["MAC", "IP", "GATEWAY"])?;
        let mac = mac::requested(call.config, call.args, mac::INTERFACE)?;
        Ok(Conf { keys, mode, mac })
    }

    fn mtu(&self, parent: &Link) -> Result<Option<u32>, CniError> {
        match self.keys.mtu {
            0 => Ok(None),
            mtu if mtu < 0 || mtu > i64::from(parent.mtu) => {
                Err(CniError::invalid("mtu", format!("invalid MTU {mtu}, must be [0, master MTU({})] of {}", parent.mtu, parent.name)))
            }
            mtu => Ok(u32::try_from(mtu).ok()),
        }
    }
}

impl Plugin for Macvlan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call)?;
        let ipam = call.config.ipam()?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(ipam, call, x)?;
        if conf.keys.link_in_container {
            netns.enter(|inside| make(&mut open(inside)?, &conf, call, None)).map_err(internal)??;
        } else {
            make(x.host.netlink()?, &conf, call, Some(netns))?;
        }
        linux::crash_point!("macvlan-made");
        x.teardown.link(doomed(call, Mark::Group(identity::group(call.id))));
        let mut result = addresses.with_link(call, x)?;
        let name = call.id.ifname.as_str();
        let link = netns.enter(|inside| configure(inside, name, &mut result)).map_err(internal)??;
        linux::crash_point!("macvlan-configured");
        let mac = link.mac.map(|m| m.to_string()).unwrap_or_default();
        let sandbox = netns.path().display().to_string();
        result.interfaces = vec![Interface { name: name.to_owned(), mac, sandbox, ..Interface::default() }];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        if !conf.keys.dns.is_empty() {
            result.dns = conf.keys.dns;
        }
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = call.config.read()?;
        verify::ipam(call, x)?;
        let (prev, name) = (call.prev()?, call.id.ifname.as_str());
        let netns = call.netns()?;
        let (link, found) = netns
            .enter(|inside| {
                let mut netlink = open(inside)?;
                let link = verify::inside(&mut netlink, prev, name, "macvlan", true)?;
                let found = netlink.macvlan(link.index).map_err(internal)?;
                Ok::<_, CniError>((link, found))
            })
            .map_err(internal)??;
        let wanted = if keys.mode.is_empty() { "bridge" } else { &keys.mode };
        let mode = found.map(|m| m.mode.to_string()).unwrap_or_default();
        if mode != wanted {
            return Err(verify::changed(name, format!("its mode is {mode}, not {wanted}")));
        }
        if !keys.link_in_container {
            let master = parent(x.host.netlink()?, &keys.master)?;
            if link.parent != Some(master.index) {
                return Err(verify::changed(name, format!("its parent is not {}", master.name)));
            }
        }
        Ok(())
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
        let keys: Keys = config.read()?;
        if !keys.link_in_container {
            let parent = parent(x.host.netlink()?, &keys.master).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
            // What ADD makes now has no carrier, as what is there has none any more.
            if !parent.flags.up() {
                let msg = format!("master: {0} is down, and so are the macvlans on it; bring it up: ip link set {0} up", parent.name);
                return Err(CniError::new(Code::LIMITED_CONNECTIVITY, msg));
            }
        }
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

/// The link of this attachment, known by the group that it was born with: name and hardware address are the
/// container's to change.
fn doomed(call: &Call<'_>, mark: Mark) -> Doomed {
    Doomed { netns: call.netns.cloned(), kind: "macvlan", mark, lasting: true }
}

/// Born in the container's namespace with its final name, on a parent that is where `netlink` is.
fn make(netlink: &mut Netlink, conf: &Conf, call: &Call<'_>, into: Option<&Arc<Netns>>) -> Result<(), CniError> {
    let parent = parent(netlink, &conf.keys.master)?;
    let bc_queue_len = (conf.keys.bcqueuelen > 0).then_some(conf.keys.bcqueuelen);
    let kind = Kind::Macvlan { parent: parent.index, macvlan: link::Macvlan { mode: conf.mode, bc_queue_len } };
    let spec = LinkSpec {
        mac: conf.mac.clone(),
        mtu: conf.mtu(&parent)?,
        group: Some(identity::group(call.id)),
        netns: into.map(|ns| ns.as_fd()),
        ..LinkSpec::new(call.id.ifname.clone(), kind)
    };
    netlink.send_one(link::create(&spec)).map_err(|e| match e.errno() {
        linux::Errno::EEXIST => {
            internal(format!("interface name {} already exists in the container: choose another CNI_IFNAME", call.id.ifname))
        }
        linux::Errno::EBUSY => internal(format!("{e}: is {} a bridge's port, or taken by a macvlan in mode passthru?", parent.name)),
        _ => internal(e),
    })?;
    Ok(())
}

/// The parent: by name, or the interface of the default route.
fn parent(netlink: &mut Netlink, name: &str) -> Result<Link, CniError> {
    if name.is_empty() {
        let index = match netlink.default_route_link(Family::V4).map_err(internal)? {
            Some(index) => Some(index),
            None => netlink.default_route_link(Family::V6).map_err(internal)?,
        };
        let link = index.map(|i| netlink.link_by_index(i)).transpose().map_err(internal)?.flatten();
        return link.ok_or_else(|| {
            CniError::invalid("master", "not given, and there is no default route whose interface could be taken; set \"master\"")
        });
    }
    if let Some(link) = netlink.link(name).map_err(internal)? {
        return Ok(link);
    }
    let there: Vec<String> = netlink.links().map_err(internal)?.into_iter().filter(|l| !l.flags.loopback()).map(|l| l.name).collect();
    Err(CniError::invalid("master", format!("there is no interface {name:?} here; there are {}", there.join(", "))))
}

fn configure(inside: &Inside, name: &str, result: &mut AddResult) -> Result<Link, CniError> {
    let mut netlink = open(inside)?;
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} vanished while it was configured")))?;
    address::ipv6(inside, &link, result, &[(Ipv6Conf::NdiscNotify, 1)])?;
    address::configure(&mut netlink, &link, result, Dad::Off)?;
    Ok(link)
}
