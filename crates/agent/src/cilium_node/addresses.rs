//! The node's own addresses, where packets find them: the router's on the bridge, those for probes beside it or on `lo`.
//!
//! A bridge has one IPv4 address, that of the gateway, and the kernel answers for one of `lo` on every interface. For an IPv6
//! address it answers on the interface that has it, and a bridge may have several.

use std::fmt::Display;
use std::net::IpAddr;

use cni::{CniError, Code, IfName};
use ipam::PoolStore;
use ipam::cilium::{HEALTH, own_key, router};
use ipnet::IpNet;
use linux::link::{self, Change, Kind};
use linux::{AddrFlags, Batch, Errno, LinkSpec, Netlink, Sysctl, addr};
use plugin::{Dirs, Host};
use pool::Family;

use crate::settings::Crd;

/// What is there now.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// So many were missing.
    pub(super) added: usize,
    /// Those that are for probes.
    pub(super) probed: Vec<IpAddr>,
}

/// Puts them there, if they are missing. The last words on the state of the bridge are the plugin's that attaches to it.
pub(super) fn place(store: &PoolStore, crd: &Crd) -> Result<Placed, CniError> {
    let Some(bridge) = &crd.bridge else { return Ok(Placed::default()) };
    let routers = store.look(|all| Family::ALL.map(|family| router(all, family)));
    let probed =
        store.look(|all| Family::ALL.map(|family| all.lease(&own_key(HEALTH, family)).and_then(|l| Some(l.addresses.first()?.address))));
    let mut placed = Placed { added: 0, probed: probed.into_iter().flatten().collect() };
    let routed = routers.into_iter().flatten().map(|a| net(a, crd.prefixes));
    let (probed4, probed6): (Vec<IpNet>, Vec<IpNet>) = probed.into_iter().flatten().map(IpNet::from).partition(|net| net.addr().is_ipv4());
    let on_bridge: Vec<IpNet> = routed.chain(probed6).collect();
    let mut host = Host::here(Dirs::default());
    if !on_bridge.is_empty() {
        let index = bridge_index(host.netlink()?, bridge)?;
        if on_bridge.iter().any(|net| net.addr().is_ipv6()) {
            // The bridge may be from before there was IPv6, or the host has it off for new interfaces.
            let off = Sysctl::new(["net", "ipv6", "conf", bridge.as_str(), "disable_ipv6"]).map_err(internal)?;
            if off.read(host.inside()).is_ok_and(|value| value.trim() != "0") {
                off.write(host.inside(), "0").map_err(internal)?;
            }
        }
        placed.added += give(host.netlink()?, index, &on_bridge)?;
    }
    if !probed4.is_empty() {
        let netlink = host.netlink()?;
        let lo = netlink.link("lo").map_err(internal)?.ok_or_else(|| internal("there is no lo"))?;
        placed.added += give(netlink, lo.index, &probed4)?;
    }
    Ok(placed)
}

fn net(address: IpAddr, [v4, v6]: [u8; 2]) -> IpNet {
    let prefix = if address.is_ipv4() { v4 } else { v6 };
    IpNet::new(address, prefix).unwrap_or_else(|_| IpNet::from(address))
}

/// The bridge, made if it is missing, and up.
fn bridge_index(netlink: &mut Netlink, name: &IfName) -> Result<u32, CniError> {
    if netlink.link(name.as_str()).map_err(internal)?.is_none() {
        let spec = LinkSpec::new(name.clone(), Kind::Bridge(link::Bridge::default()));
        netlink.send_one(link::create(&spec).tolerate(Errno::EEXIST)).map_err(internal)?;
    }
    let bridge = netlink.link(name.as_str()).map_err(internal)?;
    let bridge = bridge.ok_or_else(|| internal(format!("bridge {name} was there a moment ago")))?;
    if !bridge.flags.up() {
        // One whose address was never set takes the lowest one of its ports, and changes it with them.
        let change = Change { up: Some(true), mac: bridge.mac.clone(), ..Change::default() };
        netlink.send_one(link::set(bridge.index, &change)).map_err(internal)?;
    }
    Ok(bridge.index)
}

/// Gives a link what it has not yet: so many. What it has with another prefix length, as the settings have changed, is changed.
fn give(netlink: &mut Netlink, index: u32, wanted: &[IpNet]) -> Result<usize, CniError> {
    let there: Vec<IpNet> = netlink.addresses(Some(index)).map_err(internal)?.into_iter().map(|a| a.net).collect();
    let (mut batch, mut missing) = (Batch::new(), 0);
    for net in wanted {
        for other in there.iter().filter(|there| there.addr() == net.addr() && *there != net) {
            batch.push(addr::delete(index, *other).tolerate(Errno::EADDRNOTAVAIL));
        }
        if !there.contains(net) {
            missing += 1;
            let flags = if net.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
            batch.push(addr::add(index, *net, flags).tolerate(Errno::EEXIST));
        }
    }
    if !batch.is_empty() {
        netlink.send(batch).map_err(internal)?;
    }
    Ok(missing)
}

fn internal(e: impl Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}
