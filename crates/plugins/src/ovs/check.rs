//! CHECK: the pair, the port in the database, and what ovs-vswitchd makes of it.

use cni::CniError;
use linux::offload;
use ovsdb::Switch;
use plugin::{Call, Cx};

use super::conf::Conf;
use super::port::{self, failed};
use crate::{internal, open, verify, veth};

/// The whole of it, from the container outwards.
pub(super) fn check(call: &Call<'_>, cx: &mut Cx<'_>, conf: &Conf) -> Result<(), CniError> {
    verify::ipam(call, cx)?;
    let (prev, name) = (&verify::told(call, cx)?, &call.id.ifname);
    let mut switch = port::connect(conf, cx)?;
    let bridge = port::bridge(&mut switch, conf)?;
    let checked = |inside: &linux::Inside| {
        verify::inside(&mut open(inside)?, prev, name.as_str(), "veth", true)?;
        match bridge.is_userspace && offload::tx_checksum(inside, name).map_err(internal)? {
            true => Err(verify::changed(name.as_str(), CHECKSUMS_ON)),
            false => Ok(()),
        }
    };
    call.netns()?.enter(checked).map_err(internal)??;
    let outer = veth::find(cx.host.netlink()?, call)?.ok_or_else(|| verify::changed(name.as_str(), "its other end on the host is gone"))?;
    if !outer.flags.up() {
        return Err(verify::changed(&outer.name, "it is down"));
    }
    port_of(&mut switch, conf, &outer.name)
}

/// What a container's end must not have.
pub(crate) const CHECKSUMS_ON: &str = "its transmit checksum offload is on, which a userspace datapath cannot do with";

/// The attachment's port in the database, and whether ovs-vswitchd uses it.
pub(crate) fn port_of(switch: &mut Switch, conf: &Conf, name: &str) -> Result<(), CniError> {
    let gone = || verify::changed(name, "it is not a port of Open vSwitch any more");
    let port = switch.port(name).map_err(failed)?.ok_or_else(gone)?;
    match switch.bridge_of(&port).map_err(failed)? {
        Some(bridge) if bridge == conf.bridge.as_str() => {}
        _ => return Err(verify::changed(name, format!("it is not a port of bridge {}", conf.bridge))),
    }
    if conf.vlans.is_some() && port.vlans != conf.vlans {
        return Err(verify::changed(name, "its port has other VLANs than the configuration"));
    }
    if let Some(id) = &conf.iface_id {
        port::has_id(switch, name, id)?;
    }
    port::usable(switch, name, &conf.bridge)
}
