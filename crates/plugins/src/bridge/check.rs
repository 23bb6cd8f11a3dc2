//! CHECK of the host's side: the bridge, the outer end and its port, the gateway.

use cni::{AddResult, CniError};
use linux::{Inside, Link, Netlink};
use plugin::{Call, Host};

use super::conf::Conf;
use super::{host, vlan};
use crate::{firewall, internal, verify, veth};

/// The whole of it, in the order in which ADD makes it.
pub(super) fn check(call: &Call<'_>, host: &mut Host, conf: &Conf) -> Result<(), CniError> {
    let (prev, name) = (call.prev()?, conf.bridge.as_str());
    let isolated = conf.isolated || firewall::isolates(call.id, host);
    let netlink = host.netlink()?;
    let bridge = link(netlink, name)?;
    host::is_bridge(&bridge)?;
    up(&bridge)?;
    conf.vlans.fits(&bridge).map_err(|e| verify::changed(name, e.msg))?;
    // Another network's configuration may want it, so only the lack of it is a change.
    if conf.promisc && !bridge.flags.promisc() {
        return Err(verify::changed(name, "it is not promiscuous any more"));
    }
    if conf.mac_spoof_check && host::trusts_no_group(&bridge) == Some(false) {
        return Err(verify::changed(name, "it learns from link-local frames again (no_linklocal_learn), which macspoofchk does not see"));
    }
    let gateway = if conf.is_gateway { conf.vlans.gateway_name(&conf.bridge)? } else { None };
    for end in prev.interfaces.iter().filter(|i| i.sandbox.is_empty()) {
        if end.name == bridge.name {
            // One that somebody else made may take its lowest port's; as a gateway it keeps what it had.
            if conf.is_gateway {
                verify::same_mac(name, &end.mac, bridge.mac.as_ref())?;
            }
            continue;
        }
        let found = link(netlink, &end.name)?;
        let of_gateway = gateway.as_ref().is_some_and(|g| g.as_str() == end.name);
        // Chained plugins add interfaces of their own; only the pair is ours, and the way into the VLAN.
        if !of_gateway && !found.is("veth") {
            continue;
        }
        verify::same_mac(&end.name, &end.mac, found.mac.as_ref())?;
        match of_gateway {
            true => vlan::check_gateway_link(netlink, conf, &bridge, &found)?,
            false => outer(netlink, conf, isolated, &bridge, &found)?,
        }
    }
    if !conf.is_gateway || prev.ips.is_empty() {
        return Ok(());
    }
    let holder = match gateway {
        Some(name) => link(netlink, name.as_str())?,
        None => bridge,
    };
    addresses(netlink, call, prev, &holder)?;
    forwarding(host.inside(), prev)
}

fn link(netlink: &mut Netlink, name: &str) -> Result<Link, CniError> {
    netlink.link(name).map_err(internal)?.ok_or_else(|| verify::changed(name, "it is gone from the host"))
}

fn up(link: &Link) -> Result<(), CniError> {
    if link.flags.up() { Ok(()) } else { Err(verify::changed(&link.name, "it is down")) }
}

/// The outer end: a port of the bridge with the flags and VLANs that it was given.
fn outer(netlink: &mut Netlink, conf: &Conf, isolated: bool, bridge: &Link, link: &Link) -> Result<(), CniError> {
    if link.master != Some(bridge.index) {
        return Err(verify::changed(&link.name, format!("it is not a port of {}", bridge.name)));
    }
    up(link)?;
    if let Some(wanted) = conf.mtu.filter(|mtu| *mtu != link.mtu) {
        return Err(verify::changed(&link.name, format!("its MTU is {}, not {wanted}", link.mtu)));
    }
    let flags = link.port.unwrap_or_default();
    for (what, wanted, found) in [("hairpin mode", conf.hairpin, flags.hairpin), ("port isolation", isolated, flags.isolated)] {
        if found.unwrap_or(false) != wanted {
            return Err(verify::changed(&link.name, format!("{what} is {}", if wanted { "off" } else { "on" })));
        }
    }
    conf.vlans.check(netlink, link)
}

/// The gateways' addresses; those of what chained plugins have added are theirs.
fn addresses(netlink: &mut Netlink, call: &Call<'_>, prev: &AddResult, holder: &Link) -> Result<(), CniError> {
    let (at, _) = verify::interface(prev, call.id.ifname.as_str())?;
    let there = netlink.addresses(Some(holder.index)).map_err(internal)?;
    for net in host::gateway_nets(prev, |ip| ip.interface.is_none_or(|i| i == at as i64)) {
        if !there.iter().any(|a| a.net == net) {
            return Err(verify::changed(&holder.name, format!("it has lost the gateway's address {net}")));
        }
    }
    Ok(())
}

fn forwarding(inside: &Inside, prev: &AddResult) -> Result<(), CniError> {
    for v4 in [true, false] {
        if !host::gateway_nets(prev, |ip| ip.address.addr().is_ipv4() == v4).is_empty() {
            veth::forwards(inside, v4)?;
        }
    }
    Ok(())
}
