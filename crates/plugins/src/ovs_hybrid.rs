//! `ovs-hybrid`: as `ovs`, with a Linux bridge between the container and the switch, on which Neutron's agent enforces security groups with
//! iptables (`firewall_driver = iptables_hybrid`).
//!
//! ```text
//!   Open vSwitch:  bridge <- port    host:  qvo... -- pair -- qvb...  -->  qbr...  <--  tap...  --- pair ---  eth0  :container
//! ```
//!
//! The names are those that Neutron's agent looks for: the first characters of the port's ID. Links of one attachment have its group, by
//! which they are found again: another attachment may have a port of the same ID after this one.

use std::collections::HashSet;
use std::os::fd::AsFd;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, IfName, NetworkName, Version};
use linux::link::{self, Change, Ipv4Conf, Ipv6Conf, Kind, Peer};
use linux::{Link, LinkSpec, offload};
use plugin::{About, Call, Cx, Draft, Key, LinkIdentity, LinkToDelete, Plugin};

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::ovs::{self, Conf, port};
use crate::{identity, internal, mac, open, verify, veth};

/// The plugin `ovs-hybrid`.
pub(crate) struct OvsHybrid;

static ABOUT: About = About {
    name: "ovs-hybrid",
    summary: "connects the container to a bridge of Open vSwitch by way of a Linux bridge, as Neutron's hybrid plug does",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("bridge", "string", "required", "the bridge of Open vSwitch, which must exist"),
        Key::new("iface_id", "string", "required", "the port's ID at Neutron, whose agent sets its VLAN and security groups"),
        Key::new("isolate", "bool", "false", "nothing passes (VLAN 4095) until Neutron's agent sets a VLAN; OVN sets none"),
        Key::new("mtu", "bytes", "the bridge's", "MTU of the container's interface, and of the links on its way"),
        Key::path("socket_file", ovsdb::DEFAULT_SOCKET, ovs::USUAL_SOCKETS, "socket of ovsdb-server"),
        Key::new("mac", "string", "chosen at random", "hardware address of the container's end"),
        mac::FROM_IP,
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

/// The links of a port on the host.
struct Names {
    /// The Linux bridge.
    qbr: IfName,
    /// The bridge's end of the pair.
    qvb: IfName,
    /// The switch's.
    qvo: IfName,
    /// The host's end of the container's pair.
    tap: IfName,
}

// === impl Names ===

impl Names {
    fn of(conf: &Conf) -> Result<Self, CniError> {
        let Some(id) = &conf.iface_id else {
            return Err(CniError::invalid("iface_id", "it is missing: the ID of a Neutron port, from which the links have their names"));
        };
        let short = port::short_id(id);
        let named = |prefix: &str| IfName::parse(&format!("{prefix}{short}")).map_err(|e| CniError::invalid("iface_id", e));
        Ok(Names { qbr: named("qbr")?, qvb: named("qvb")?, qvo: named("qvo")?, tap: named("tap")? })
    }
}

fn read(config: &Config, args: &CniArgs) -> Result<(Conf, Names), CniError> {
    let conf = Conf::read(config, args)?;
    if conf.ofport_request.is_some() {
        return Err(CniError::invalid("ofport_request", "ovs-hybrid does not have it: Neutron's agent knows the port by iface_id"));
    }
    let names = Names::of(&conf)?;
    Ok((conf, names))
}

impl Plugin for OvsHybrid {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        read(draft.config, &CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let (mut conf, names) = read(call.config, call.args)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(conf.ipam.clone(), call, cx)?;
        let mac = mac::of_new_link(call.config, conf.mac.clone(), &addresses, cx)?.or_else(mac::random);
        let mut switch = port::connect(&conf, cx)?;
        let bridge = port::bridge(&mut switch, &conf)?;
        // Who is attached already keeps the port: its links are in the way.
        if cx.host.netlink()?.link(names.qvo.as_str()).map_err(internal)?.is_none() {
            port::make_way(&mut switch, &names.qvo)?;
        }
        linux::crash_point!("hybrid-way-made");
        conf.mtu = port::mtu(cx.host.netlink()?, &conf)?;
        link_to_delete(call.id).for_each(|link| cx.teardown.link(link));
        let mac_of_network = Some(identity::hybrid_mac(&call.id.network)?);
        let qbr = LinkSpec { mac: mac_of_network, ..spec(call, &names.qbr, &conf, None, bridge_kind()) };
        let qbr = make(cx, call, &qbr)?;
        linux::crash_point!("hybrid-bridge-made");
        let queues = veth::Queues::default().of_an_end();
        let other_end = Peer { mtu: conf.mtu, queues, ..Peer::new(names.qvb.clone()) };
        let qvo = make(cx, call, &spec(call, &names.qvo, &conf, None, Kind::Veth(other_end)))?;
        let qvb = found(cx, &names.qvb)?;
        let inner = Peer { mac: mac.clone(), mtu: conf.mtu, queues, netns: Some(netns.as_fd()), ..Peer::new(call.id.ifname.clone()) };
        let tap = make(cx, call, &spec(call, &names.tap, &conf, Some(qbr.index), Kind::Veth(inner)))?;
        linux::crash_point!("hybrid-pairs-made");
        for link in [&qbr, &qvb, &qvo, &tap] {
            up_and_quiet(cx, link, (link.index == qvb.index).then_some(qbr.index))?;
        }
        linux::crash_point!("hybrid-links-up");
        port::note_removal_of(Some(call.id), &conf.socket, vec![qvo.name.clone()], true, cx);
        port::add(&mut switch, &conf, &bridge, call, &port::New::on(&qvo, mac.as_ref()))?;
        let mut result = addresses.with_link(call, cx, &Wire::Port(tap.index))?;
        let link = netns.enter(|inside| ovs::configure(inside, call, bridge.is_userspace, &mut result)).map_err(internal)??;
        result.interfaces = vec![address::of_host(&tap), address::interface(&link, netns)];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
        address::name_resolution(call.config, conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let (conf, names) = read(call.config, call.args)?;
        verify::ipam(call, cx)?;
        let (prev, name) = (&verify::told(call, cx)?, &call.id.ifname);
        let mut switch = port::connect(&conf, cx)?;
        let bridge = port::bridge(&mut switch, &conf)?;
        let checked = |inside: &linux::Inside| {
            verify::inside(&mut open(inside)?, prev, name.as_str(), "veth", true)?;
            match bridge.is_userspace && offload::tx_checksum(inside, name).map_err(internal)? {
                true => Err(verify::changed(name.as_str(), ovs::CHECKSUMS_ON)),
                false => Ok(()),
            }
        };
        call.netns()?.enter(checked).map_err(internal)??;
        let mut up = |wanted: &IfName, is_own: &dyn Fn(&Link) -> bool| {
            let link = cx.host.netlink()?.link(wanted.as_str()).map_err(internal)?.filter(is_own);
            let link = link.ok_or_else(|| verify::changed(wanted.as_str(), "it is gone from the host"))?;
            if link.flags.up() { Ok::<_, CniError>(link) } else { Err(verify::changed(wanted.as_str(), "it is down")) }
        };
        let group = identity::group(call.id);
        let has_group = |link: &Link| link.group == group;
        let (qbr, qvo) = (up(&names.qbr, &has_group)?, up(&names.qvo, &has_group)?);
        // The other end of a pair is born without a group.
        for port in [up(&names.tap, &has_group)?, up(&names.qvb, &|link| link.other_end() == qvo.index)?] {
            if port.master != Some(qbr.index) {
                return Err(verify::changed(&port.name, format!("it is not a port of {}", qbr.name)));
            }
        }
        ovs::check_port(&mut switch, &conf, &qvo.name)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // An ADD that such a configuration was refused for has left nothing.
        if let Ok((conf, names)) = read(call.config, &CniArgs::default()) {
            let has_link = found(cx, &names.qvo).is_ok_and(|link| link.group == identity::group(call.id));
            let was_made = port::may_be_made(call, has_link);
            port::note_removal_of(Some(call.id), &conf.socket, vec![names.qvo.to_string()], was_made, cx);
        }
        link_to_delete(call.id).for_each(|link| cx.teardown.link(link));
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let (conf, _) = read(config, &CniArgs::default())?;
        port::status(&conf, cx).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        verify::kernel_makes(cx.host.netlink()?, "bridge")?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let socket = Conf::socket(config);
        let names = port::stale(&socket, config, valid, cx)?;
        for short in names.iter().filter_map(|name| name.strip_prefix("qvo")) {
            for (kind, prefix) in [("bridge", "qbr"), ("veth", "qvo"), ("veth", "tap")] {
                let name = IfName::parse(&format!("{prefix}{short}")).map_err(internal)?;
                cx.teardown.link(LinkToDelete { netns: None, kind, mark: LinkIdentity::Name(name), lasting: true });
            }
        }
        if !names.is_empty() {
            port::note_removal(&socket, names, true, cx);
        }
        for group in stale(cx, &config.network, valid)? {
            doomed_of(group).for_each(|link| cx.teardown.link(link));
        }
        address::gc(config, valid, cx)
    }
}

/// What bridges of all hybrid plugs are: frames pass the host's iptables, where security groups are.
fn bridge_kind() -> Kind<'static> {
    Kind::Bridge(link::Bridge { netfilter: Some(true), ..link::Bridge::default() })
}

/// The links of an attachment on the host: the bridge last, by which GC finds the others.
fn link_to_delete(id: &AttachmentId) -> impl Iterator<Item = LinkToDelete> {
    doomed_of(identity::group(id))
}

fn doomed_of(group: u32) -> impl Iterator<Item = LinkToDelete> {
    let mark = LinkIdentity::Group(group);
    ["veth", "bridge"].into_iter().map(move |kind| LinkToDelete { netns: None, kind, mark: mark.clone(), lasting: true })
}

fn spec<'fd>(call: &Call<'_>, name: &IfName, conf: &Conf, master: Option<u32>, kind: Kind<'fd>) -> LinkSpec<'fd> {
    let queues = if matches!(kind, Kind::Veth(_)) { veth::Queues::default().of_an_end() } else { None };
    LinkSpec { mtu: conf.mtu, master, queues, group: Some(identity::group(call.id)), ..LinkSpec::new(name.clone(), kind) }
}

fn make(cx: &mut Cx<'_>, call: &Call<'_>, spec: &LinkSpec<'_>) -> Result<Link, CniError> {
    let name = &spec.name;
    cx.host.netlink()?.send_one(link::create(spec)).map_err(|e| match e.errno() {
        linux::Errno::EEXIST => {
            let next = "DEL the attachment that has it, or choose another interface name";
            internal(format!("{e}: {name} or the container's {} exists already: {next}", call.id.ifname))
        }
        _ => internal(e),
    })?;
    found(cx, name)
}

/// Groups of attachments of a network whose Linux bridge is there, and that nobody names any more: also where their port is gone, or was never
/// made.
fn stale(cx: &mut Cx<'_>, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<u32>, CniError> {
    let (keep, mac): (HashSet<u32>, _) = (valid.iter().map(identity::group).collect(), identity::hybrid_mac(network)?);
    let is_of = |link: &Link| link.is("bridge") && link.name.starts_with("qbr") && link.mac.as_ref() == Some(&mac);
    let links = cx.host.netlink()?.links().map_err(internal)?;
    Ok(links.iter().filter(|link| is_of(link) && link.group != 0 && !keep.contains(&link.group)).map(|link| link.group).collect())
}

fn found(cx: &mut Cx<'_>, name: &IfName) -> Result<Link, CniError> {
    let link = cx.host.netlink()?.link(name.as_str()).map_err(internal)?;
    link.ok_or_else(|| internal(format!("{name} disappeared while it was made")))
}

/// The host itself takes no part in what passes these links ([`ovs::quiet`]), and they come up.
fn up_and_quiet(cx: &mut Cx<'_>, link: &Link, master: Option<u32>) -> Result<(), CniError> {
    address::set_ipv6(cx.host.inside(), link, Ipv6Conf::DisableIpv6, 1)?;
    let change = Change { up: Some(true), master, ipv4_conf: vec![(Ipv4Conf::RpFilter, 1)], ..Change::default() };
    let set = link::set(link.index, &change);
    cx.host.netlink()?.send_one(set.called(format!("bring {} up", link.name))).map(drop).map_err(internal)
}
