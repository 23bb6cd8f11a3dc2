//! The bridge itself, and the gateway's address on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{AddResult, CniError};
use ipnet::IpNet;
use linux::link::{self, Change, Ipv6Conf, Kind};
use linux::{AddrFlags, Batch, Errno, Inside, Link, LinkSpec, Netlink, Sysctl, addr, neigh};
use plugin::Host;

use super::conf::Conf;
use crate::{address, internal, verify};

/// The bridge, made if it is missing, and up.
pub(super) fn ensure_bridge(host: &mut Host, conf: &Conf) -> Result<Link, CniError> {
    let netlink = host.netlink()?;
    let bridge = match netlink.link(conf.bridge.as_str()).map_err(internal)? {
        Some(link) => link,
        None => create(netlink, conf)?,
    };
    linux::crash_point!("bridge-made");
    is_bridge(&bridge)?;
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
    Ok(bridge)
}

/// Before the bridge comes up: it takes nothing from router advertisements, and answers at once: a link-local address
/// that waits for duplicate address detection would leave the first containers without a gateway for a second.
fn settings(inside: &Inside, bridge: &Link, conf: &Conf) -> Result<(), CniError> {
    address::set_ipv6(inside, bridge, Ipv6Conf::AcceptRa, 0)?;
    if conf.enable_dad { Ok(()) } else { address::set_ipv6(inside, bridge, Ipv6Conf::AcceptDad, 0) }
}

/// Several processes may make it at once: one does, the others find it.
fn create(netlink: &mut Netlink, conf: &Conf) -> Result<Link, CniError> {
    let spec = LinkSpec { mtu: conf.mtu, ..LinkSpec::new(conf.bridge.clone(), Kind::Bridge(link::Bridge::default())) };
    match netlink.send_one(link::create(&spec)) {
        Err(e) if e.errno() != Errno::EEXIST => return Err(internal(e)),
        _ => {}
    }
    let made = netlink.link(conf.bridge.as_str()).map_err(internal)?;
    made.ok_or_else(|| internal(format!("bridge {} vanished as it was made", conf.bridge)))
}

fn is_bridge(link: &Link) -> Result<(), CniError> {
    match link.is("bridge") {
        true => Ok(()),
        false => {
            let kind = link.kind.as_deref().map(|kind| format!(": it is a {kind}")).unwrap_or_default();
            Err(CniError::invalid("bridge", format!("{:?} already exists but is not a bridge{kind}; choose another name", link.name)))
        }
    }
}

/// Whether ADD could use the bridge: it is one, or is not there yet.
pub(super) fn usable(netlink: &mut Netlink, conf: &Conf) -> Result<(), CniError> {
    netlink.link(conf.bridge.as_str()).map_err(internal)?.map_or(Ok(()), |l| is_bridge(&l))
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

/// Puts the gateways' addresses on the bridge and lets the host forward.
pub(super) fn ensure_gateway(host: &mut Host, bridge: &Link, result: &AddResult, force: bool) -> Result<(), CniError> {
    for v4 in [true, false] {
        let mut wanted = Vec::new();
        for ip in result.ips.iter().filter(|ip| ip.address.addr().is_ipv4() == v4) {
            let Some(gateway) = ip.gateway else { continue };
            let net = IpNet::new(gateway, ip.address.prefix_len()).map_err(internal)?;
            if !wanted.contains(&net) {
                wanted.push(net);
            }
        }
        if wanted.is_empty() {
            continue;
        }
        addresses(host.netlink()?, bridge, &wanted, force)?;
        linux::crash_point!("bridge-addressed");
        forward(host.inside(), v4)?;
        linux::crash_point!("bridge-forwards");
    }
    Ok(())
}

fn addresses(netlink: &mut Netlink, bridge: &Link, wanted: &[IpNet], force: bool) -> Result<(), CniError> {
    let there: Vec<IpNet> = netlink.addresses(Some(bridge.index)).map_err(internal)?.into_iter().map(|a| a.net).collect();
    let mut batch = Batch::new();
    for net in wanted.iter().filter(|net| !there.contains(net)) {
        for other in there.iter().filter(|other| in_the_way(net, other) && !wanted.contains(other)) {
            if !force {
                let msg =
                    format!("{:?} already has an IP address different from {net}: {other}; remove it, or set forceAddress", bridge.name);
                return Err(CniError::invalid("bridge", msg));
            }
            batch.push(addr::delete(bridge.index, *other).tolerate(Errno::EADDRNOTAVAIL));
        }
        let flags = if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        batch.push(addr::add(bridge.index, *net, flags).tolerate(Errno::EEXIST));
    }
    if batch.is_empty() {
        return Ok(());
    }
    // Somebody else's bridge may take its lowest port's hardware address. As a gateway it keeps the one that neighbours
    // learn, and that the result tells.
    batch.push(link::set(bridge.index, &Change { mac: bridge.mac.clone(), ..Change::default() }));
    netlink.send(batch).map(drop).map_err(internal)
}

/// A bridge has one IPv4 address; of IPv6 it may have several, but not two in one network.
fn in_the_way(wanted: &IpNet, other: &IpNet) -> bool {
    match (wanted, other) {
        (IpNet::V4(_), IpNet::V4(_)) => true,
        (IpNet::V6(w), IpNet::V6(o)) => !o.addr().is_unicast_link_local() && (w.contains(&o.network()) || o.contains(&w.network())),
        _ => false,
    }
}

fn forward(inside: &Inside, v4: bool) -> Result<(), CniError> {
    let key: &[&str] = if v4 { &["net", "ipv4", "ip_forward"] } else { &["net", "ipv6", "conf", "all", "forwarding"] };
    let sysctl = Sysctl::new(key.iter().copied()).map_err(internal)?;
    // Writing it, even unchanged, makes the kernel walk every interface.
    match sysctl.read(inside).map_err(internal)?.as_str() {
        "1" => Ok(()),
        _ => sysctl.write(inside, "1").map_err(internal),
    }
}

/// The host forgets whoever had the container's addresses before. The announcement that the container's end makes when it
/// comes up may be lost, because the bridge forwards nothing for a new port until its carrier was noticed: then the host would
/// go on sending to the old hardware address until that entry has aged.
pub(super) fn forget_neighbours(netlink: &mut Netlink, bridge: &Link, result: &AddResult) -> Result<(), CniError> {
    let forget = |ip: &cni::IpConfig| neigh::delete(bridge.index, ip.address.addr()).tolerate(Errno::ENOENT).tolerate(Errno::EAFNOSUPPORT);
    let batch: Batch<'_> = result.ips.iter().map(forget).collect();
    if batch.is_empty() { Ok(()) } else { netlink.send(batch).map(drop).map_err(internal) }
}

/// CHECK of the host's side: the bridge, the outer end and its port.
pub(super) fn check(netlink: &mut Netlink, conf: &Conf, prev: &AddResult) -> Result<(), CniError> {
    let name = conf.bridge.as_str();
    let bridge = netlink.link(name).map_err(internal)?.ok_or_else(|| verify::changed(name, "it is gone from the host"))?;
    is_bridge(&bridge)?;
    if conf.promisc && !bridge.flags.promisc() {
        return Err(verify::changed(name, "it is not promiscuous any more"));
    }
    for end in prev.interfaces.iter().filter(|i| i.sandbox.is_empty()) {
        if end.name == bridge.name {
            verify::same_mac(name, &end.mac, bridge.mac.as_ref())?;
            continue;
        }
        let Some(link) = netlink.link(&end.name).map_err(internal)? else {
            return Err(verify::changed(&end.name, "it is gone from the host"));
        };
        // Chained plugins add interfaces of their own; only the pair is ours.
        if !link.is("veth") {
            continue;
        }
        verify::same_mac(&end.name, &end.mac, link.mac.as_ref())?;
        if link.master != Some(bridge.index) {
            return Err(verify::changed(&end.name, format!("it is no port of {name}")));
        }
        port(netlink, conf, &link)?;
    }
    Ok(())
}

fn port(netlink: &mut Netlink, conf: &Conf, link: &Link) -> Result<(), CniError> {
    let flags = netlink.port_flags(link.index).map_err(internal)?.unwrap_or_default();
    for (what, wanted, found) in [("hairpin mode", conf.hairpin, flags.hairpin), ("port isolation", conf.isolated, flags.isolated)] {
        if wanted && found != Some(true) {
            return Err(verify::changed(&link.name, format!("{what} is off")));
        }
    }
    Ok(())
}
