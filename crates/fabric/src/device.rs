//! A device of ours, in the planner's words and in the kernel's.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use between::{Device, Family, Mac, Wanted};
use cni::IfName;
use linux::link::{AddrGenMode, Change, Ipv4Conf, Kind, Vxlan};
use linux::{AddrFlags, Address, Batch, BatchError, Errno, Link, LinkSpec, Netlink, ReadError, Request, Scope, addr, link, wireguard};

use crate::Options;
use crate::wireguard::{Secrets, is_wireguard};

/// The value of `rp_filter` that accepts a source that is reached by any link (RFC 3704 2.4).
const LOOSE: u32 = 2;

/// Why a device is not as it is to be.
pub(crate) enum SetUpError {
    /// Another program's link of this type has the name.
    NameTaken { kind: String },
    /// The kernel refuses the device.
    Refused(linux::Failure),
    /// The device with this index is there, but the kernel refuses some of what it is to have.
    Incomplete { index: u32, failure: linux::Failure },
}

/// The name of a device that we make: `nl4-1000-2118` has IPv4 endpoints, the VNI 0x1000 and the port 0x2118; `nlw-ca6c` is WireGuard on the
/// port 0xca6c. It holds what the kernel cannot change of a device, and fits the kernel's 15 bytes. `None` of a device that we do not make.
#[must_use]
pub fn name(device: &Device) -> Option<String> {
    match device {
        Device::Vxlan { over, vni, port } => {
            let family = if *over == Family::V4 { 4 } else { 6 };
            Some(format!("nl{family}-{vni:x}-{port:x}"))
        }
        Device::WireGuard { port } => Some(format!("nlw-{port:x}")),
        Device::Link(_) => None,
    }
}

/// The device that has this name.
pub(crate) fn named(text: &str) -> Option<Device> {
    let mut parts = text.strip_prefix("nl")?.split('-');
    let kind = parts.next()?;
    let device = if kind == "w" {
        Device::WireGuard { port: u16::from_str_radix(parts.next()?, 16).ok()? }
    } else {
        let over = match kind {
            "4" => Family::V4,
            "6" => Family::V6,
            _ => return None,
        };
        let vni = u32::from_str_radix(parts.next()?, 16).ok()?;
        Device::Vxlan { over, vni, port: u16::from_str_radix(parts.next()?, 16).ok()? }
    };
    // One spelling only: neither zeros in front nor more behind.
    (name(&device).as_deref() == Some(text)).then_some(device)
}

/// Whether a link is a device that we make.
#[must_use]
pub fn is_ours(link: &Link) -> bool {
    recognise(link).is_some()
}

/// The UDP port of a link that is a WireGuard device of ours.
#[must_use]
pub fn wireguard_port(link: &Link) -> Option<u16> {
    if let Some(Device::WireGuard { port }) = recognise(link) { Some(port) } else { None }
}

/// Which of our devices a link is, whatever another program has changed of it.
pub(crate) fn recognise(link: &Link) -> Option<Device> {
    let device = named(&link.name)?;
    let Device::Vxlan { over, vni, port } = device else { return Some(device).filter(|_| is_wireguard(link)) };
    let found = link.vxlan?;
    let is_of_family = found.local.is_none_or(|local| Family::of(local) == over);
    (found.vni == vni && found.port == port && is_of_family).then_some(device)
}

/// Whether a device of ours is as it is wanted, but for its addresses, and for its key if it is WireGuard.
pub(crate) fn is_as_wanted(link: &Link, wanted: &Wanted) -> bool {
    match wanted {
        Wanted::Vxlan { mac, local, mtu, .. } => {
            is_sound(link)
                && link.mac.as_ref().is_some_and(|found| found.as_bytes() == mac.0)
                && link.vxlan.is_some_and(|vxlan| vxlan.local == Some(*local))
                && link.mtu == *mtu
        }
        Wanted::WireGuard { mtu, .. } => is_sound(link) && is_wireguard(link) && link.mtu == *mtu,
    }
}

/// Whether it has all that every device of ours has, and no plan says.
fn is_sound(link: &Link) -> bool {
    let is_plain = |vxlan: Vxlan| vxlan.remote.is_none() && vxlan.link.is_none() && !vxlan.learning;
    // WireGuard has no addresses to ask for.
    let is_of_kind = is_wireguard(link) || (!link.flags.noarp() && link.vxlan.is_some_and(is_plain));
    link.flags.up() && link.master.is_none() && is_of_kind
}

/// A device of ours as a plan would want it. If no plan would, because another program has changed it, it differs from whatever is wanted.
/// `inner`: what a WireGuard device has besides.
pub(crate) fn as_planned(link: &Link, addresses: &[Address], inner: Option<&wireguard::Device>) -> Wanted {
    let planned = || {
        let counted = addresses.iter().filter(|address| counts(address));
        let addresses = counted.map(|address| is_whole(address).then(|| address.net.addr())).collect::<Option<_>>()?;
        let mtu = link.mtu;
        is_sound(link).then_some(())?;
        if is_wireguard(link) {
            let inner = inner.filter(|inner| inner.mark == 0 && named(&link.name) == Some(Device::WireGuard { port: inner.port }))?;
            return Some(Wanted::WireGuard { key: inner.key?, mtu, addresses });
        }
        Some(Wanted::Vxlan { mac: ethernet(link.mac.as_ref()?)?, local: link.vxlan?.local?, mtu, addresses })
    };
    let altered = || Wanted::Vxlan { mac: Mac([0; 6]), local: Ipv4Addr::UNSPECIFIED.into(), mtu: 0, addresses: BTreeSet::new() };
    planned().unwrap_or_else(altered)
}

/// A hardware address of six bytes.
pub(crate) fn ethernet(mac: &cni::Mac) -> Option<Mac> {
    mac.as_bytes().try_into().ok().map(Mac)
}

/// Whether a program has given the link this address; a link-local one the kernel makes by itself.
pub(crate) fn counts(address: &Address) -> bool {
    address.net.addr().is_ipv4() || address.scope != Scope::Link
}

/// Whether it is an address alone, without a subnet.
pub(crate) fn is_whole(address: &Address) -> bool {
    address.net.prefix_len() == address.net.max_prefix_len() && address.peer.is_none()
}

/// Whether another program has bound it to a link. The kernel never frees it ([`link::set_vxlan`]), so it has to be made again.
fn is_bound(link: &Link) -> bool {
    link.vxlan.is_some_and(|vxlan| vxlan.link.is_some())
}

/// Makes a device, or makes one that is there what it is to be. Its index.
pub(crate) fn set_up(
    netlink: &mut Netlink,
    secrets: &mut Secrets,
    device: &Device,
    wanted: &Wanted,
    options: Options,
) -> Result<u32, SetUpError> {
    let Some((name, spec)) = spec(device, wanted) else { return Err(SetUpError::Refused(gone(device))) };
    let mut before = netlink.link(&name).map_err(refused)?;
    if let Some(bound) = before.take_if(|link| recognise(link).as_ref() == Some(device) && is_bound(link)) {
        netlink.send_one(link::delete(bound.index).tolerate(Errno::ENODEV)).map_err(|e| SetUpError::Refused(e.first().clone()))?;
    }
    let found = match before {
        Some(found) => found,
        None => {
            netlink.send_one(link::create(&spec)).map_err(|e| SetUpError::Refused(e.first().clone()))?;
            netlink.link(&name).map_err(refused)?.ok_or_else(|| SetUpError::Refused(gone(device)))?
        }
    };
    if recognise(&found).as_ref() != Some(device) {
        return Err(SetUpError::NameTaken { kind: found.kind.unwrap_or_else(|| "hardware".to_owned()) });
    }
    let addresses = netlink.addresses(Some(found.index)).map_err(refused)?;
    let index = found.index;
    if let (Device::WireGuard { port }, Wanted::WireGuard { key, .. }) = (device, wanted) {
        secrets.set_up(&found, *port, key).map_err(|failure| SetUpError::Incomplete { index, failure })?;
    }
    let incomplete = |e: BatchError| SetUpError::Incomplete { index, failure: e.first().clone() };
    netlink.send(adjustments(&found, &spec, wanted, &addresses, options)).map_err(incomplete)?;
    Ok(index)
}

/// Deletes a device of ours, if it is there.
pub(crate) fn remove(netlink: &mut Netlink, device: &Device) -> Result<(), linux::Failure> {
    let Some(name) = name(device) else { return Ok(()) };
    let found = netlink.link(&name).map_err(failure)?;
    let Some(found) = found.filter(|found| recognise(found).as_ref() == Some(device)) else { return Ok(()) };
    netlink.send_one(link::delete(found.index).tolerate(Errno::ENODEV)).map(drop).map_err(|e| e.first().clone())
}

/// A device as it is born: down, so that no packet finds it before it is complete.
fn spec(device: &Device, wanted: &Wanted) -> Option<(String, LinkSpec<'static>)> {
    let (kind, mtu, mac) = match (device, wanted) {
        (Device::Vxlan { vni, port, .. }, Wanted::Vxlan { mac, local, mtu, .. }) => {
            let vxlan = Vxlan { vni: *vni, port: *port, local: Some(*local), remote: None, link: None, learning: false };
            (Kind::Vxlan(vxlan), *mtu, cni::Mac::from_bytes(&mac.0))
        }
        (Device::WireGuard { .. }, Wanted::WireGuard { mtu, .. }) => (Kind::WireGuard, *mtu, None),
        _ => return None,
    };
    let name = name(device)?;
    let spec = LinkSpec { mtu: Some(mtu), mac, ..LinkSpec::new(IfName::parse(&name).ok()?, kind) };
    Some((name, spec))
}

/// All that makes a link what it is to be; nothing of it does harm to one that is so already.
fn adjustments(found: &Link, spec: &LinkSpec<'static>, wanted: &Wanted, addresses: &[Address], options: Options) -> Batch<'static> {
    let index = found.index;
    let mut batch = Batch::new();
    // No link-local address: what the link would send to all, as solicitations for its neighbours, vanishes. Has to come before the link
    // is up.
    let mode = Change { addr_gen_mode: Some(AddrGenMode::None), ..Change::default() };
    batch.push(link::set(index, &mode).tolerate(Errno::EAFNOSUPPORT));
    if let Kind::Vxlan(vxlan) = &spec.kind
        && found.vxlan.as_ref() != Some(vxlan)
    {
        batch.push(link::set_vxlan(index, vxlan));
    }
    batch.push(link::set(
        index,
        &Change {
            up: Some(true),
            arp: (!is_wireguard(found)).then_some(true),
            mtu: spec.mtu.filter(|mtu| found.mtu != *mtu),
            mac: spec.mac.clone().filter(|mac| found.mac.as_ref() != Some(mac)),
            master: found.master.map(|_| 0),
            ipv4_conf: if options.loose_rp_filter { vec![(Ipv4Conf::RpFilter, LOOSE)] } else { Vec::new() },
            ..Change::default()
        },
    ));
    batch.extend(address_changes(index, wanted, addresses));
    batch
}

fn address_changes(index: u32, wanted: &Wanted, addresses: &[Address]) -> Vec<Request<'static>> {
    let (Wanted::Vxlan { addresses: all, .. } | Wanted::WireGuard { addresses: all, .. }) = wanted;
    let is_kept = |address: &&Address| is_whole(address) && all.contains(&address.net.addr());
    let (kept, others): (Vec<&Address>, Vec<&Address>) = addresses.iter().filter(|address| counts(address)).partition(is_kept);
    let goes = others.into_iter().map(|address| addr::delete(index, address.net).tolerate(Errno::EADDRNOTAVAIL));
    let missing = all.iter().filter(|wanted| !kept.iter().any(|address| address.net.addr() == **wanted));
    // Nobody else can have it: there is nothing to ask for (DAD).
    let comes = missing.map(|address| addr::add(index, (*address).into(), AddrFlags::NODAD).tolerate(Errno::EEXIST));
    // With its last address a link loses its routes, so the new one is there before the old one goes.
    comes.chain(goes).collect()
}

fn refused(error: ReadError) -> SetUpError {
    SetUpError::Refused(failure(error))
}

/// A question that was refused, as a request that was.
pub(crate) fn failure(error: ReadError) -> linux::Failure {
    match error {
        ReadError::Refused(failure) => failure,
        other => linux::Failure { index: 0, what: other.to_string(), errno: other.errno(), text: None },
    }
}

fn gone(device: &Device) -> linux::Failure {
    let what = format!("ip link show dev {}", name(device).unwrap_or_default());
    linux::Failure { index: 0, what, errno: Errno::ENODEV, text: None }
}

/// The link that a next hop, or a whole table, is on, for a person.
pub(crate) fn shown(netlink: &mut Netlink, device: &Device) -> String {
    match device {
        Device::Link(index) => netlink.link_by_index(*index).ok().flatten().map_or_else(|| format!("if{index}"), |link| link.name),
        other => name(other).unwrap_or_default(),
    }
}

/// Whether a link is a vxlan with the VNI, the port and the family of a device. The kernel has only one.
pub(crate) fn is_twin(link: &Link, device: &Device) -> bool {
    let Some(vxlan) = link.vxlan else { return false };
    let over = vxlan.local.or(vxlan.remote).map_or(Family::V4, Family::of);
    *device == Device::Vxlan { over, vni: vxlan.vni, port: vxlan.port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_device_it_is_and_fits() {
        for (over, vni, port, expected) in [
            (Family::V4, 1, 8472, "nl4-1-2118"),
            (Family::V6, 4096, 4789, "nl6-1000-12b5"),
            (Family::V6, 0xff_ffff, 0xffff, "nl6-ffffff-ffff"),
        ] {
            let device = Device::Vxlan { over, vni, port };
            assert_eq!(name(&device).as_deref(), Some(expected));
            assert_eq!(named(expected), Some(device));
            assert!(IfName::parse(expected).is_ok());
        }
        for (port, expected) in [(51820, "nlw-ca6c"), (1, "nlw-1")] {
            let device = Device::WireGuard { port };
            assert_eq!((name(&device).as_deref(), named(expected)), (Some(expected), Some(device)));
        }
        for other in [
            "",
            "nl",
            "nl4",
            "nl5-1-1",
            "nl4-1",
            "nl4-01-2118",
            "nl4-1-2118-0",
            "nl4-1-02118",
            "nl4-G-1",
            "nl4-+1-1",
            "eth0",
            "nl4-1-12345",
            "nlw",
            "nlw-0ca6c",
            "nlw-ca6c-1",
            "nlw-key",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
        assert_eq!(name(&Device::Link(3)), None);
    }
}
