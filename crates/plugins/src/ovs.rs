//! `ovs`: a veth pair between the container and a bridge of Open vSwitch, which is there already.
//!
//! ```text
//!   Open vSwitch:  bridge <- port    host:  veth...  --- one pair ---  eth0  :container
//!                  in its database          of that name              addresses, routes
//! ```
//!
//! The port is added and removed over the database's socket. Order matters: the pair before the port, which is known by the name of its
//! link; on DEL the port before the pair, so that ovs-vswitchd does not look for a link that is gone.

mod check;
mod conf;
pub(crate) mod port;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Version};
use linux::link::{self, Change, Ipv4Conf, Ipv6Conf};
use linux::{Inside, Link, offload};
use plugin::{About, Call, Cx, Draft, Key, Plugin};

use crate::address::{self, Addresses, Dad};
use crate::conflict::Wire;
use crate::veth::{self, Pair};
use crate::{internal, mac, open};
pub(crate) use check::{CHECKSUMS_ON, port_of as check_port};
pub(crate) use conf::{Conf, USUAL_SOCKETS};

/// The plugin `ovs`.
pub(crate) struct Ovs;

static ABOUT: About = About {
    name: "ovs",
    summary: "connects the container to a bridge of Open vSwitch with a veth pair",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("bridge", "string", "required", "the bridge of Open vSwitch, which must exist"),
        Key::new("vlan", "number", "none", "the VLAN to which the container belongs, up to 4094; without it every VLAN, with its tag"),
        Key::new("trunk", "list", "all", "VLANs that the container sends and receives with their tags: {\"id\"}, {\"minID\", \"maxID\"}")
            .of(&["id", "minID", "maxID"]),
        Key::new("mtu", "bytes", "the bridge's", "MTU of the pair"),
        Key::new("ofport_request", "number", "chosen by Open vSwitch", "OpenFlow port number, 1 to 65279, if it is free"),
        Key::new("iface_id", "string", "none", "the port's ID at Neutron or OVN, whose agent then sets its VLAN and security groups"),
        Key::new("isolate", "bool", "false", "with iface_id: nothing passes (VLAN 4095) until Neutron's agent sets a VLAN; OVN sets none"),
        Key::path("socket_file", ovsdb::DEFAULT_SOCKET, USUAL_SOCKETS, "socket of ovsdb-server"),
        Key::new("mac", "string", "chosen at random", "hardware address of the container's end"),
        mac::FROM_IP,
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

impl Plugin for Ovs {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config, call.args)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(conf.ipam.clone(), call, cx)?;
        // It is told to the switch, so it is chosen here where nobody else does.
        let mac = mac::of_new_link(call.config, conf.mac.clone(), &addresses, cx)?.or_else(mac::random);
        let mut switch = port::connect(&conf, cx)?;
        let bridge = port::bridge(&mut switch, &conf)?;
        let name = veth::outer_name(call.id)?;
        // Who is attached already keeps the port: the pair is refused.
        if cx.host.netlink()?.link(name.as_str()).map_err(internal)?.is_none() {
            port::make_way(&mut switch, &name)?;
        }
        linux::crash_point!("ovs-way-made");
        let mtu = port::mtu(cx.host.netlink()?, &conf)?;
        let pair = Pair { mtu, mac: mac.clone(), ..Pair::default() };
        let outer = veth::make(cx.host.netlink()?, call, &pair)?;
        cx.teardown.link(veth::link_to_delete(call, &outer));
        linux::crash_point!("ovs-pair-made");
        quiet(cx, &outer)?;
        linux::crash_point!("ovs-pair-quiet");
        port::note_removal(&conf.socket, vec![outer.name.clone()], true, cx);
        port::add(&mut switch, &conf, &bridge, call, &port::New::on(&outer, mac.as_ref()))?;
        let mut result = addresses.with_link(call, cx, &Wire::Port(outer.index))?;
        let link = netns.enter(|inside| configure(inside, call, bridge.is_userspace, &mut result)).map_err(internal)??;
        result.interfaces = vec![address::of_host(&outer), address::interface(&link, netns)];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
        address::name_resolution(call.config, conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        check::check(call, cx, &Conf::read(call.config, call.args)?)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let outer = veth::find(cx.host.netlink()?, call)?;
        let was_made = port::may_be_made(call, outer.is_some());
        let mut names = vec![veth::outer_name(call.id)?.as_str().to_owned()];
        names.extend(outer.iter().map(|outer| outer.name.clone()));
        let told = call.prev.into_iter().flat_map(|prev| prev.interfaces.iter()).filter(|i| i.sandbox.is_empty());
        names.extend(told.map(|interface| interface.name.clone()));
        names.sort();
        names.dedup();
        port::note_removal(&Conf::socket(call.config), names, was_made, cx);
        if let Some(outer) = outer {
            cx.teardown.link(veth::link_to_delete(call, &outer));
        }
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, &CniArgs::default())?;
        port::status(&conf, cx).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let socket = Conf::socket(config);
        let names = port::stale(&socket, config, valid, cx)?;
        if !names.is_empty() {
            port::note_removal(&socket, names, true, cx);
        }
        for outer in veth::stale(cx.host.netlink()?, &config.network, valid)? {
            cx.teardown.link(outer);
        }
        address::gc(config, valid, cx)
    }
}

/// The host itself takes no part in what the container sends. With a userspace datapath it sees all of it, as ovs-vswitchd only reads
/// along: it would answer for its own addresses, and forward, past the switch and its VLANs. On a link without an address, reverse path
/// filtering of either kind drops every packet and every ARP request (net/ipv4/fib_frontend.c, `last_resort`); IPv6 is off.
fn quiet(cx: &mut Cx<'_>, outer: &Link) -> Result<(), CniError> {
    address::set_ipv6(cx.host.inside(), outer, Ipv6Conf::DisableIpv6, 1)?;
    let set = link::set(outer.index, &Change { ipv4_conf: vec![(Ipv4Conf::RpFilter, 1)], ..Change::default() });
    cx.host.netlink()?.send_one(set.called(format!("keep the host's own IP off {}", outer.name))).map(drop).map_err(internal)
}

/// The container's end, from inside.
pub(crate) fn configure(inside: &Inside, call: &Call<'_>, is_userspace: bool, result: &mut AddResult) -> Result<Link, CniError> {
    let (mut netlink, name) = (open(inside)?, &call.id.ifname);
    let gone = || internal(format!("{name} disappeared while it was configured"));
    let link = netlink.link(name.as_str()).map_err(internal)?.ok_or_else(gone)?;
    if is_userspace {
        // ovs-vswitchd reads frames as they are, and a veth's have no checksum: nobody would take a TCP segment of them.
        offload::set_tx_checksum(inside, name, false).map_err(internal)?;
    }
    linux::crash_point!("ovs-offload-off");
    address::ipv6(inside, &link, call, result, &[(Ipv6Conf::AcceptDad, 0)])?;
    address::configure(&mut netlink, &link, result, Dad::Off)?;
    Ok(link)
}
