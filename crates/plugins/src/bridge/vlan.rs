//! The VLANs of a container's port, and the host's own way into one of them.
//!
//! ```text
//!   bridge  <-- veth...        pvid untagged: vlan; tagged: vlanTrunk          the container's port
//!     ^-------- gw...          pvid untagged: vlan       <bridge>.<vlan>       the gateway's address, with isGateway
//!                   \_______________ one pair ________________/
//! ```

use std::collections::BTreeSet;

use cni::{CniError, Code, IfName};
use linux::link::{self, Bridge, Change, Ipv6Conf, Kind, Peer, PortVlan};
use linux::{Batch, Errno, Link, LinkSpec, Netlink, Request};
use plugin::Host;

use super::conf::Conf;
use crate::veth::Queues;
use crate::{address, identity, internal, mac, verify};

/// What a configuration says of VLANs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vlans {
    /// `vlan`; 0: none
    native: u16,
    /// Those that the port is to have; none if the configuration has neither `vlan` nor `vlanTrunk`.
    wanted: Vec<PortVlan>,
    /// The port keeps what the bridge gave it.
    preserve: bool,
    /// A bridge that is made filters.
    pub(super) filter: bool,
}

// === impl Vlans ===

impl Vlans {
    /// `native` 0 is none; a trunk without it has 1, as in the reference plugin. A native VLAN that is in the trunk as well has
    /// no tag: it was asked for by name.
    pub(super) fn new(native: u16, mut trunk: BTreeSet<u16>, preserve: bool, trunk_given: bool) -> Self {
        let untagged = if native == 0 && !trunk.is_empty() { 1 } else { native };
        trunk.remove(&untagged);
        let mut wanted: Vec<PortVlan> = Vec::new();
        for id in trunk {
            match wanted.last_mut() {
                Some(row) if row.last.checked_add(1) == Some(id) => row.last = id,
                _ => wanted.push(PortVlan::tagged(id, id)),
            }
        }
        wanted.extend((untagged != 0).then(|| PortVlan::native(untagged)));
        wanted.sort_unstable();
        Vlans { native, wanted, preserve, filter: native != 0 || trunk_given }
    }

    /// Those of the gateway's port.
    fn of_gateway(&self) -> Self {
        Vlans { wanted: vec![PortVlan::native(self.native)], ..self.clone() }
    }

    /// Whether the bridge keeps these VLANs apart. One that does not takes the port's VLANs, and lets everything through.
    pub(super) fn fits(&self, bridge: &Link) -> Result<(), CniError> {
        let name = &bridge.name;
        match bridge.bridge {
            Some(Bridge { vlan_default_pvid: None, .. }) if !self.wanted.is_empty() => Err(not_filtering()),
            Some(Bridge { vlan_filtering: Some(false), .. }) if !self.wanted.is_empty() => {
                let msg = format!(
                    "{name:?} does not filter VLANs; enable it if no other port depends on that: ip link set {name} type bridge \
                        vlan_filtering 1"
                );
                Err(CniError::invalid("vlan", msg))
            }
            _ => Ok(()),
        }
    }

    /// What makes a new port of the bridge belong to them and, unless the default is to be kept, to nothing else.
    pub(super) fn of_port(&self, port: u32, bridge: &Link) -> Vec<Request<'static>> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let default = bridge.bridge.and_then(|b| b.vlan_default_pvid).filter(|pvid| *pvid != 0 && !self.preserve);
        let default = default.map(|pvid| link::delete_vlans(port, &[PortVlan::tagged(pvid, pvid)]));
        default.into_iter().chain([link::add_vlans(port, &self.wanted)]).collect()
    }

    /// CHECK of a port.
    pub(super) fn check(&self, netlink: &mut Netlink, port: &Link) -> Result<(), CniError> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let found = each(&netlink.port_vlans(port.index).map_err(internal)?);
        let wanted = each(&self.wanted);
        let differ = |what: &str, vlan: Option<&PortVlan>| match vlan {
            Some(vlan) => Err(verify::changed(&port.name, format!("{what} VLAN {vlan}"))),
            None => Ok(()),
        };
        differ("it does not belong any more to", wanted.difference(&found).next())?;
        if self.preserve { Ok(()) } else { differ("it now belongs to", found.difference(&wanted).next()) }
    }

    /// Makes a bridge that keeps them apart, if they need one.
    pub(super) fn made_bridge(&self, made: Result<(), linux::BatchError>) -> Result<(), CniError> {
        made.map_err(|e| if self.filter && e.errno() == Errno::EOPNOTSUPP { not_filtering() } else { internal(e) })
    }

    /// STATUS, where there is no bridge yet.
    pub(super) fn possible(&self, netlink: &mut Netlink) -> Result<(), CniError> {
        match self.filter && !link::probe_vlan_filtering(netlink).map_err(internal)? {
            true => Err(not_filtering()),
            false => Ok(()),
        }
    }

    /// The name of the host's link in the native VLAN; `None` where the bridge itself is the gateway.
    pub(super) fn gateway_name(&self, bridge: &IfName) -> Result<Option<IfName>, CniError> {
        if self.native == 0 {
            return Ok(None);
        }
        let name = format!("{bridge}.{}", self.native);
        let bad = |_| {
            let msg =
                format!("the gateway of VLAN {} would be {name:?}, which is longer than 15 bytes: use a shorter bridge name", self.native);
            CniError::invalid("bridge", msg)
        };
        IfName::parse(&name).map(Some).map_err(bad)
    }
}

/// Single VLANs: rows with a common border are told in different ways.
fn each(rows: &[PortVlan]) -> BTreeSet<PortVlan> {
    rows.iter().flat_map(|row| (row.first..=row.last).map(|id| PortVlan { first: id, last: id, ..*row })).collect()
}

fn not_filtering() -> CniError {
    let msg = "this kernel does not support VLAN filtering of bridges (CONFIG_BRIDGE_VLAN_FILTERING): use a separate bridge for each VLAN";
    CniError::new(Code::NOT_AVAILABLE, msg)
}

/// The host's link in the native VLAN, made if it is missing, and up; `None` where the bridge itself is the gateway. Like the
/// bridge it is the network's.
pub(super) fn ensure_gateway_link(host: &mut Host, conf: &Conf, bridge: &Link) -> Result<Option<Link>, CniError> {
    let Some(name) = conf.vlans.gateway_name(&conf.bridge)? else { return Ok(None) };
    let group = super::host::group(host, &name);
    let there = match host.netlink()?.link(name.as_str()).map_err(internal)? {
        Some(link) => super::host::lasting(host, link)?,
        None => {
            super::host::is_free(host, &name)?;
            make(host.netlink()?, conf, bridge, &name, group)?
        }
    };
    let netlink = host.netlink()?;
    // To bring it up is the last step of making it: whoever made this one may have been killed before, or be at it.
    if there.flags.up() {
        leads_into(netlink, &there, bridge)?;
        return Ok(Some(there));
    }
    let port = port_of(netlink, &there, bridge)?;
    for end in [&there, &port] {
        address::set_ipv6(host.inside(), end, Ipv6Conf::AcceptRa, 0)?;
    }
    if !conf.enable_dad {
        address::set_ipv6(host.inside(), &there, Ipv6Conf::AcceptDad, 0)?;
    }
    let mut batch: Batch<'_> = conf.vlans.of_gateway().of_port(port.index, bridge).into_iter().collect();
    batch.push(link::set(port.index, &Change { up: Some(true), ..Change::default() }));
    batch.push(link::set(there.index, &Change { up: Some(true), ..Change::default() }));
    host.netlink()?.send(batch).map_err(internal)?;
    linux::crash_point!("bridge-vlan-gateway-up");
    Ok(Some(there))
}

/// Several processes may make it at once: one does, the others find it.
fn make(netlink: &mut Netlink, conf: &Conf, bridge: &Link, name: &IfName, group: Option<u32>) -> Result<Link, CniError> {
    // The same for the same bridge and VLAN, and none of an attachment's.
    let port = IfName::parse(&format!("gw{:011x}", identity::of(&[name.as_str(), "gateway"]) >> 20)).map_err(internal)?;
    let queues = Queues::default().of_an_end();
    let peer = Peer { mtu: Some(bridge.mtu), group, queues, ..Peer::new(name.clone()) };
    let (mac, master) = (mac::of_port(), Some(bridge.index));
    let spec = LinkSpec { mtu: Some(bridge.mtu), mac, master, queues, ..LinkSpec::new(port, Kind::Veth(peer)) };
    match netlink.send_one(link::create(&spec)) {
        Err(e) if e.errno() != Errno::EEXIST => return Err(internal(e)),
        _ => {}
    }
    linux::crash_point!("bridge-vlan-gateway-made");
    let made = netlink.link(name.as_str()).map_err(internal)?;
    made.ok_or_else(|| internal(format!("{name}, the gateway of VLAN {}, disappeared while it was created", conf.vlans.native)))
}

/// The other end, which is a port of the bridge.
fn port_of(netlink: &mut Netlink, gateway: &Link, bridge: &Link) -> Result<Link, CniError> {
    let other = if gateway.is("veth") { netlink.link_by_index(gateway.other_end()).map_err(internal)? } else { None };
    other.filter(|l| l.is("veth") && l.master == Some(bridge.index)).ok_or_else(|| not_a_gateway(gateway, bridge))
}

/// What an administrator has made in its place may also be a VLAN link on the bridge.
fn leads_into(netlink: &mut Netlink, gateway: &Link, bridge: &Link) -> Result<(), CniError> {
    match gateway.is("vlan") && gateway.parent == Some(bridge.index) {
        true => Ok(()),
        false => port_of(netlink, gateway, bridge).map(drop),
    }
}

fn not_a_gateway(gateway: &Link, bridge: &Link) -> CniError {
    let msg =
        format!("{:?} exists already and is not connected to {:?}: remove it, or choose another bridge name", gateway.name, bridge.name);
    CniError::invalid("vlan", msg)
}

/// CHECK of the gateway's link.
pub(super) fn check_gateway_link(netlink: &mut Netlink, conf: &Conf, bridge: &Link, gateway: &Link) -> Result<(), CniError> {
    if !gateway.flags.up() {
        return Err(verify::changed(&gateway.name, "it is down"));
    }
    if gateway.is("vlan") {
        return leads_into(netlink, gateway, bridge);
    }
    let port =
        port_of(netlink, gateway, bridge).map_err(|_| verify::changed(&gateway.name, format!("it is not connected to {}", bridge.name)))?;
    conf.vlans.of_gateway().check(netlink, &port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(native: u16, trunk: &[u16]) -> Vec<String> {
        Vlans::new(native, trunk.iter().copied().collect(), false, !trunk.is_empty()).wanted.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rows_of_neighbours() {
        assert_eq!(rows(0, &[]), [""; 0]);
        assert_eq!(rows(7, &[]), ["7 pvid untagged"]);
        assert_eq!(rows(0, &[5, 3, 4, 9]), ["1 pvid untagged", "3-5", "9"]);
        // The native VLAN has no tag, also where the trunk has it.
        assert_eq!(rows(4, &[3, 4, 5]), ["3", "4 pvid untagged", "5"]);
        assert_eq!(rows(0, &[1, 2]), ["1 pvid untagged", "2"]);
        assert_eq!(rows(0, &[4093, 4094]), ["1 pvid untagged", "4093-4094"]);
    }

    #[test]
    fn a_name_that_is_too_long() {
        let vlans = Vlans::new(4094, BTreeSet::new(), false, false);
        let bridge = |name: &str| IfName::parse(name).unwrap();
        assert_eq!(vlans.gateway_name(&bridge("cluster123")).unwrap(), Some(bridge("cluster123.4094")));
        let e = vlans.gateway_name(&bridge("cluster1234")).unwrap_err();
        assert!(e.msg.contains("cluster1234.4094") && e.msg.contains("15 bytes"), "{e}");
    }
}
