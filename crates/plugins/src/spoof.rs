//! `macspoofchk`: a container sends with its own hardware address, or not at all. See crate `rules`.
//!
//! ```text
//!   the pair is made, the host's end down -> its name and the container's hardware address are elements -> it is set up
//! ```
//!
//! So nothing has passed before the guard stands. It stands until nothing passes any more: the host's end is set down before the
//! elements go. To wait for the end of the pair would cost the kernel one more grace period.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Mac};
use linux::link::{self, Change};
use linux::nft::SetElement;
use linux::{Errno, Link, Netlink};
use plugin::{Call, Cx, Host, Restore, Stage};
use rules::GUARDS;

use crate::{internal, verify, veth};

/// The elements are added, in the teardown before, and the host's end is set up. `is_strict`: what it may send at once is for `strict` to
/// say, which knows its IP addresses.
pub(crate) fn add(call: &Call<'_>, cx: &mut Cx<'_>, outer: &Link, mac: &Mac, is_strict: bool) -> Result<(), CniError> {
    let mut elements = rules::spoof_guard(call.id, &veth::outer_name(call.id)?, mac);
    if !is_strict {
        elements.extend(rules::ordinary(call.id, outer.index, mac, None));
    }
    linux::crash_point!("unguarded");
    remove(cx, elements.clone());
    rules::install_and_add(cx.host.nft()?, &elements).map_err(|e| status(cx).err().unwrap_or_else(|| internal(e)))?;
    linux::crash_point!("guarded");
    let netlink: &mut Netlink = cx.host.netlink()?;
    let up = link::set(outer.index, &Change { up: Some(true), ..Change::default() });
    netlink.send_one(up.called(format!("bring {} up on the host", outer.name))).map(drop).map_err(internal)
}

/// A hardware address that a later plugin of the chain gives the container instead, which the guard has to know. Where
/// there is none nothing happens.
pub(crate) fn change(call: &Call<'_>, cx: &mut Cx<'_>, mac: &Mac) -> Result<(), CniError> {
    let port = veth::outer_name(call.id)?;
    let nft = cx.host.nft()?;
    if !own(call.id, nft.find(&[rules::guarded(call.id, &port)]).map_err(internal)?.into_iter().flatten()) {
        return Ok(());
    }
    let mut old = rules::owned_by(nft, &GUARDS, call.id).map_err(internal)?;
    // The IP addresses that it may send with stay.
    old.retain(|e| rules::guarded_port(e).is_some() || rules::is_ordinary(e));
    let mut wanted = rules::spoof_guard(call.id, &port, mac);
    wanted.extend(old.iter().filter_map(|e| rules::ordinary_with(e, mac)));
    let new: Vec<SetElement> = wanted.iter().filter(|w| !old.contains(w)).cloned().collect();
    old.retain(|e| !wanted.contains(e));
    cx.teardown.elements(new.clone());
    let nft = cx.host.nft()?;
    rules::install_and_add(nft, &new).map_err(internal)?;
    linux::crash_point!("guard-knows-both");
    nft.delete_missing_ok(&old).map_err(internal)?;
    linux::crash_point!("guard-changed");
    Ok(())
}

/// CHECK: the elements are there, for the hardware address that the result of the chain tells.
pub(crate) fn check(call: &Call<'_>, cx: &mut Cx<'_>, prev: &AddResult) -> Result<(), CniError> {
    let elements = told(call, prev)?;
    rules::check(cx.host.nft()?, &elements).map_err(internal)
}

/// What ADD has added, to be put back. `is_strict`: as [`add`] has it.
pub(crate) fn restore(call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore, is_strict: bool) -> Result<(), CniError> {
    into.elements(told(call, call.prev()?)?);
    if !is_strict {
        into.elements(ordinary(call, cx, call.prev()?, None)?);
    }
    Ok(())
}

/// The elements for the hardware address that the result of the chain tells.
fn told(call: &Call<'_>, prev: &AddResult) -> Result<Vec<SetElement>, CniError> {
    Ok(rules::spoof_guard(call.id, &veth::outer_name(call.id)?, &own_mac(call, prev)?))
}

/// The elements of what the container sends at once: see `rules::ordinary`. None where the pair is gone. CHECK does not look for them,
/// because they decide about nothing but time, and containers of a release of before have none until they are put back.
pub(crate) fn ordinary(
    call: &Call<'_>,
    cx: &mut Cx<'_>,
    prev: &AddResult,
    addresses: Option<&[IpAddr]>,
) -> Result<Vec<SetElement>, CniError> {
    let mac = own_mac(call, prev)?;
    let outer = cx.host.netlink()?.link(veth::outer_name(call.id)?.as_str()).map_err(internal)?;
    Ok(outer.map(|outer| rules::ordinary(call.id, outer.index, &mac, addresses)).unwrap_or_default())
}

fn own_mac(call: &Call<'_>, prev: &AddResult) -> Result<Mac, CniError> {
    let ifname = call.id.ifname.as_str();
    let mac = verify::interface(prev, ifname)?.1.mac.parse();
    mac.map_err(|e| CniError::invalid("prevResult", format!("interface {ifname}: {e}")))
}

/// DEL, whatever `macspoofchk` says now: what counts is what ADD did. Three keys are looked up; only where the pair is gone, or the result
/// does not tell the hardware address that the guard has, all elements are read. `outer`: the index of the pair's end on the host.
pub(crate) fn del(call: &Call<'_>, cx: &mut Cx<'_>, outer: Option<u32>) -> Result<(), CniError> {
    if !cx.host.has_nft()? {
        return Ok(());
    }
    let port = veth::outer_name(call.id)?;
    let told = call.prev.and_then(|prev| verify::interface(prev, call.id.ifname.as_str()).ok());
    let mac: Option<Mac> = told.and_then(|(_, interface)| interface.mac.parse().ok());
    let guard = mac.as_ref().map_or_else(|| vec![rules::guarded(call.id, &port)], |mac| rules::spoof_guard(call.id, &port, mac));
    let ordinary = mac.zip(outer).map(|(mac, outer)| rules::ordinary(call.id, outer, &mac, None));
    let length = guard.len();
    let known = [guard, ordinary.clone().unwrap_or_default()].concat();
    let nft = cx.host.nft()?;
    let found = nft.find(&known).map_err(internal)?;
    let elements = match found.iter().take(length).flatten().count() {
        0 => return Ok(()),
        n if n == length && ordinary.is_some() => known.into_iter().zip(found).filter_map(|(e, found)| found.map(|_| e)).collect(),
        _ => rules::owned_by(nft, &GUARDS, call.id).map_err(internal)?,
    };
    remove(cx, elements);
    Ok(())
}

/// STATUS: whether the kernel has rules for frames.
pub(crate) fn status(cx: &mut Cx<'_>) -> Result<(), CniError> {
    let Some(said) = rules::lacks_bridge_family(cx.host.nft()?).map_err(internal)? else { return Ok(()) };
    let msg = format!(
        "macspoofchk: the kernel does not support nftables rules for bridges: {said}; remove the key, or use a kernel with \
            CONFIG_NF_TABLES_BRIDGE"
    );
    Err(CniError::new(Code::NOT_AVAILABLE, msg))
}

/// GC: the elements of both guards, of a network's attachments that are not valid.
pub(crate) fn gc(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    if !cx.host.has_nft()? {
        return Ok(());
    }
    let gone = rules::stale(cx.host.nft()?, &GUARDS, &config.network, valid).map_err(internal)?;
    remove(cx, gone);
    Ok(())
}

/// Whether one of these elements is the attachment's.
fn own(id: &AttachmentId, mut found: impl Iterator<Item = linux::nft::Element>) -> bool {
    let owner = rules::OwnerKey::of(id);
    found.any(|e| e.comment.as_deref() == Some(owner.as_str()))
}

/// The ports are set down first, as they are to go.
fn remove(cx: &mut Cx<'_>, elements: Vec<SetElement>) {
    if !elements.is_empty() {
        cx.teardown.at(Stage::Devices, "remove the guard against forged hardware addresses", move |host| {
            set_down(host, elements.iter().filter_map(|e| rules::guarded_port(e).or_else(|| rules::strict_port(e))).collect())?;
            linux::crash_point!("guarded-port-down");
            host.nft()?.delete_missing_ok(&elements).map_err(internal)
        });
    }
}

/// Sets pairs' ends on the host down, where they are still there: nothing passes them any more.
pub(crate) fn set_down(host: &mut Host, ports: BTreeSet<String>) -> Result<(), CniError> {
    let netlink = host.netlink()?;
    for port in ports {
        let Some(link) = netlink.link(&port).map_err(internal)?.filter(|l| l.is("veth")) else { continue };
        let down = link::set(link.index, &Change { up: Some(false), ..Change::default() });
        netlink.send_one(down.tolerate(Errno::ENODEV)).map_err(internal)?;
    }
    Ok(())
}
