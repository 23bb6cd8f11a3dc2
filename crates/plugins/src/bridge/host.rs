//! The bridge itself, and the gateway's address on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{AddResult, CniError, Code, IfName, IpConfig};
use ipnet::IpNet;
use linux::link::{self, Change, Ipv6Conf, Kind};
use linux::{AddrFlags, Address, Batch, Errno, Inside, Link, LinkSpec, Netlink, Reply, addr, neigh};
use plugin::Host;

use super::conf::Conf;
use crate::{address, host_device, internal, veth};

/// The bridge, made if it is missing, and up.
pub(super) fn ensure_bridge(host: &mut Host, conf: &Conf) -> Result<Link, CniError> {
    let group = group(host, &conf.bridge);
    let bridge = match host.netlink()?.link(conf.bridge.as_str()).map_err(internal)? {
        Some(link) => lasting(host, link)?,
        None => {
            is_free(host, &conf.bridge)?;
            create(host.netlink()?, conf, group)?
        }
    };
    linux::crash_point!("bridge-made");
    is_bridge(&bridge)?;
    conf.vlans.fits(&bridge)?;
    // To bring it up is the last step of making it: whoever made this one may have been killed before, or be at it.
    let unfinished = !bridge.flags.up();
    if unfinished {
        settings(host.inside(), &bridge, conf)?;
        linux::crash_point!("bridge-set");
    }
    let netlink = host.netlink()?;
    let promisc = conf.promisc && !bridge.flags.promisc();
    if unfinished || promisc {
        // A bridge whose address was never set takes the lowest one of its ports, and changes it with them.
        let mac = bridge.mac.clone().filter(|_| unfinished);
        let change = Change { up: unfinished.then_some(true), promisc: promisc.then_some(true), mac, ..Change::default() };
        netlink.send_one(link::set(bridge.index, &change)).map_err(internal)?;
    }
    if conf.mac_spoof_check && !trusts_no_group(&bridge).unwrap_or(false) {
        let wanted = link::Bridge { no_linklocal_learn: Some(true), ..link::Bridge::default() };
        netlink.send_one(link::set_bridge(bridge.index, &wanted)).map_err(internal)?;
    }
    Ok(bridge)
}

/// Whether the bridge learns nothing from frames that are for itself, which no rule sees before it; `None` where the kernel
/// does not tell.
pub(super) fn trusts_no_group(bridge: &Link) -> Option<bool> {
    bridge.bridge.and_then(|bridge| bridge.no_linklocal_learn)
}

/// Before the bridge comes up: it takes nothing from router advertisements, and answers at once: a link-local address
/// that waits for duplicate address detection would leave the first containers without a gateway for a second.
fn settings(inside: &Inside, bridge: &Link, conf: &Conf) -> Result<(), CniError> {
    address::set_ipv6(inside, bridge, Ipv6Conf::AcceptRa, 0)?;
    if conf.enable_dad { Ok(()) } else { address::set_ipv6(inside, bridge, Ipv6Conf::AcceptDad, 0) }
}

/// Whether no device will come back under a name that is not there now: it could not.
pub(super) fn is_free(host: &Host, name: &IfName) -> Result<(), CniError> {
    match host_device::is_lent(host, name.as_str())? {
        true => {
            Err(CniError::invalid("bridge", format!("{name} is the name of a device that a container has borrowed: choose another one")))
        }
        false => Ok(()),
    }
}

/// What says that a link goes with its last user.
pub(super) fn group(host: &Host, name: &IfName) -> Option<u32> {
    host.is_transient(name.as_str()).then_some(link::TRANSIENT)
}

/// A link that is there. One that was made for a network that a pod chose stays from now on, if this network is none.
pub(super) fn lasting(host: &mut Host, mut link: Link) -> Result<Link, CniError> {
    if link.group != link::TRANSIENT || host.is_transient(&link.name) {
        return Ok(link);
    }
    let change = Change { group: Some(0), ..Change::default() };
    host.netlink()?.send_one(link::set(link.index, &change)).map_err(internal)?;
    link.group = 0;
    Ok(link)
}

/// Several processes may make it at once: one does, the others find it.
fn create(netlink: &mut Netlink, conf: &Conf, group: Option<u32>) -> Result<Link, CniError> {
    let kind = link::Bridge { vlan_filtering: conf.vlans.filter.then_some(true), ..link::Bridge::default() };
    let spec = LinkSpec { mtu: conf.mtu, mac: conf.bridge_mac.clone(), group, ..LinkSpec::new(conf.bridge.clone(), Kind::Bridge(kind)) };
    conf.vlans.made_bridge(netlink.send_one(link::create(&spec).tolerate(Errno::EEXIST)).map(drop))?;
    let made = netlink.link(conf.bridge.as_str()).map_err(internal)?;
    made.ok_or_else(|| internal(format!("bridge {} disappeared while it was created", conf.bridge)))
}

/// Whether the link is one.
pub(super) fn is_bridge(link: &Link) -> Result<(), CniError> {
    match link.is("bridge") {
        true => Ok(()),
        false => {
            let kind = link.kind.as_deref().map(|kind| format!("it is a {kind}; ")).unwrap_or_default();
            Err(CniError::worded(
                format_args!("failed to create bridge {0:?}: {0:?} already exists but is not a bridge", link.name),
                format_args!("{kind}choose another name in \"bridge\""),
            ))
        }
    }
}

/// Whether ADD could use the bridge: it is one that keeps the VLANs apart, or is not there yet and could be made.
pub(super) fn usable(netlink: &mut Netlink, conf: &Conf) -> Result<(), CniError> {
    match netlink.link(conf.bridge.as_str()).map_err(internal)? {
        Some(link) => is_bridge(&link).and_then(|()| conf.vlans.fits(&link)),
        None if !link::probe(netlink, "bridge").map_err(internal)? => {
            Err(CniError::new(Code::NOT_AVAILABLE, "the kernel does not support bridges; load the module: modprobe bridge"))
        }
        None => conf.vlans.possible(netlink),
    }
}

/// The first address of a network, which is its gateway where nobody names one.
pub(super) fn first_address(net: &IpNet) -> Result<IpAddr, CniError> {
    let too_small = || CniError::invalid("isGateway", format!("network {} has no room for a gateway", net.trunc()));
    match net {
        IpNet::V4(net) => u32::from(net.network()).checked_add(1).map(|n| Ipv4Addr::from(n).into()),
        IpNet::V6(net) => u128::from(net.network()).checked_add(1).map(|n| Ipv6Addr::from(n).into()),
    }
    .filter(|first| net.contains(first))
    .ok_or_else(too_small)
}

/// Puts the gateways' addresses on the bridge and lets the host forward. Those of a network that the pod chose are marked as what
/// goes with the bridge's last pod.
pub(super) fn ensure_gateway(host: &mut Host, bridge: &Link, result: &AddResult, force: bool) -> Result<(), CniError> {
    for v4 in [true, false] {
        let wanted = gateway_nets(result, |ip| ip.address.addr().is_ipv4() == v4);
        if wanted.is_empty() {
            continue;
        }
        if !v4 {
            // The host may have IPv6 off for new interfaces.
            address::set_ipv6(host.inside(), bridge, Ipv6Conf::DisableIpv6, 0)?;
        }
        let mark = if host.is_transient(&bridge.name) { addr::TRANSIENT } else { addr::GATEWAY };
        addresses(host.netlink()?, bridge, (wanted.as_slice(), mark), force)?;
        linux::crash_point!("bridge-addressed");
        veth::forward(host, v4)?;
        linux::crash_point!("bridge-forwards");
    }
    Ok(())
}

/// The gateways' addresses with the prefix of their network, each once.
pub(super) fn gateway_nets(result: &AddResult, of: impl Fn(&IpConfig) -> bool) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for ip in result.ips.iter().filter(|ip| of(ip)) {
        let net = ip.gateway.and_then(|gateway| IpNet::new(gateway, ip.address.prefix_len()).ok());
        nets.extend(net.filter(|net| !nets.contains(net)));
    }
    nets
}

fn addresses(netlink: &mut Netlink, bridge: &Link, (wanted, mark): (&[IpNet], u8), force: bool) -> Result<(), CniError> {
    let all = netlink.addresses(Some(bridge.index)).map_err(internal)?;
    let there: Vec<IpNet> = all.iter().map(|a| a.net).collect();
    let mut batch = Batch::new();
    let goes = |a: &&Address| a.protocol == addr::TRANSIENT && mark != addr::TRANSIENT && wanted.contains(&a.net);
    // It was given for a network that a pod chose. If it has gone meanwhile, the kernel adds it.
    batch.extend(all.iter().filter(goes).map(|a| addr::mark(mark, a.index, a.net, a.flags)));
    for net in wanted.iter().filter(|net| !there.contains(net)) {
        for other in there.iter().filter(|other| in_the_way(net, other) && !wanted.contains(other)) {
            if !force {
                let text = format!("failed to set bridge addr: {:?} already has an IP address different from {net}", bridge.name);
                return Err(CniError::worded(text, format_args!("it has {other}; remove it, or set forceAddress")));
            }
            batch.push(addr::delete(bridge.index, *other).tolerate(Errno::EADDRNOTAVAIL));
        }
        let flags = if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        batch.push(addr::add_of(mark, bridge.index, *net, flags).tolerate(Errno::EEXIST));
    }
    if batch.is_empty() {
        return Ok(());
    }
    // Somebody else's bridge may take its lowest port's hardware address. As a gateway it keeps the one that neighbours
    // learn, and that the result tells.
    batch.push(link::set(bridge.index, &Change { mac: bridge.mac.clone(), ..Change::default() }));
    netlink.send(batch).map(drop).map_err(internal)
}

/// A bridge has one IPv4 address, less those that are alone in their network; of IPv6 it may have several, but not two in one network.
fn in_the_way(wanted: &IpNet, other: &IpNet) -> bool {
    match (wanted, other) {
        (IpNet::V4(w), IpNet::V4(o)) => w.prefix_len() < 32 || o.prefix_len() < 32,
        (IpNet::V6(w), IpNet::V6(o)) => !o.addr().is_unicast_link_local() && (w.contains(&o.network()) || o.contains(&w.network())),
        _ => false,
    }
}

/// The host looks at the new port's carrier, and forgets whoever had the container's addresses before. The announcement that the
/// container's end makes when it comes up may be lost, because the bridge forwards nothing for a new port until its carrier was
/// noticed: then the host would go on sending to the old hardware address until that entry has aged.
///
/// Returns the bridge as it is now: one whose hardware address nobody has set takes that of a port.
pub(super) fn meet(netlink: &mut Netlink, bridge: Link, gateway: Option<&Link>, port: &Link, result: &AddResult) -> Result<Link, CniError> {
    let speaks = gateway.map_or(bridge.index, |gateway| gateway.index);
    let forget = |ip: &IpConfig| neigh::delete(speaks, ip.address.addr()).tolerate(Errno::ENOENT).tolerate(Errno::EAFNOSUPPORT);
    let mut batch: Batch<'_> = std::iter::once(link::get_by_index(port.index)).chain(result.ips.iter().map(forget)).collect();
    batch.push(link::get_by_index(bridge.index));
    match netlink.send(batch).map(|mut replies| replies.pop()) {
        Ok(Some(Reply::Link(now))) => Ok(*now),
        // An emulator of another processor (qemu-user) knows no request about neighbours, and sends nothing: the old entry ages. An answer
        // that did not fit is asked for again.
        Err(e) if matches!(e.errno(), Errno::EOPNOTSUPP | Errno::ENOBUFS) => {
            Ok(netlink.link_by_index(bridge.index).map_err(internal)?.unwrap_or(bridge))
        }
        sent => sent.map(|_| bridge).map_err(internal),
    }
}
