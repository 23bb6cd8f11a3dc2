//! Reverse paths: what comes to the host by a link of a definition's pods has an address that is behind it. See crate `rules`.
//!
//! The agent asks for it (`strictReversePath`) in the network of a definition; nobody else does, so it is no key that a plugin describes.

use std::collections::BTreeSet;

use cni::{AttachmentId, CniError, Config, IfName};
use linux::nft::SetElement;
use linux::{Link, link};
use plugin::{Call, Cx, Host, Restore, Stage};
use rules::REVERSE_PATHS;

use crate::{internal, spoof, veth};

/// Of an attachment's pair: before anything can come by it. The element is in the teardown before.
pub(crate) fn add(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let port = veth::outer_name(call.id)?;
    let element = rules::reverse_path(call.id, &port);
    linux::crash_point!("reverse-path-free");
    remove(cx, &port, call.id);
    rules::install_and_add(cx.host.nft()?, &[element]).map_err(internal)?;
    linux::crash_point!("reverse-path-strict");
    Ok(())
}

/// Of a bridge and the host's link into its VLAN, if they were made for definitions: they stay until these links are gone.
pub(crate) fn add_to_bridge<'l>(host: &mut Host, links: impl IntoIterator<Item = &'l Link>) -> Result<(), CniError> {
    let mut wanted = Vec::new();
    for made in links.into_iter().filter(|one| one.group == link::TRANSIENT) {
        wanted.extend(rules::reverse_path_of_all(&IfName::parse(&made.name).map_err(internal)?));
    }
    let nft = host.nft()?;
    if nft.find(&wanted).map_err(internal)?.iter().all(Option::is_some) {
        return Ok(());
    }
    rules::install_and_add(nft, &wanted).map_err(internal)?;
    linux::crash_point!("idle-bridge-reverse-path");
    Ok(())
}

/// What ADD has added of a pair, to be put back.
pub(crate) fn restore(call: &Call<'_>, into: &mut Restore) -> Result<(), CniError> {
    into.elements(vec![rules::reverse_path(call.id, &veth::outer_name(call.id)?)]);
    Ok(())
}

/// CHECK of a pair: its element is there.
pub(crate) fn check(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let element = rules::reverse_path(call.id, &veth::outer_name(call.id)?);
    rules::check(cx.host.nft()?, &[element]).map_err(internal)
}

/// Those of a bridge and its VLAN.
pub(crate) fn of_bridge(host: &mut Host, names: &[IfName]) -> Result<Vec<SetElement>, CniError> {
    let mut elements = Vec::new();
    for name in names {
        let there = host.netlink()?.link(name.as_str()).map_err(internal)?;
        if there.is_some_and(|there| there.group == link::TRANSIENT) {
            elements.extend(rules::reverse_path_of_all(name));
        }
    }
    Ok(elements)
}

/// DEL of a pair, whatever the configuration says now.
pub(crate) fn del(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    if !cx.host.has_nft()? {
        return Ok(());
    }
    let port = veth::outer_name(call.id)?;
    let there = cx.host.nft()?.find(&[rules::reverse_path(call.id, &port)]).map_err(internal)?;
    if there.iter().flatten().next().is_some() {
        remove(cx, &port, call.id);
    }
    Ok(())
}

/// GC: the elements of a network's attachments that are not valid.
pub(crate) fn gc(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    if cx.host.has_nft()? {
        let gone = rules::stale(cx.host.nft()?, &REVERSE_PATHS, &config.network, valid).map_err(internal)?;
        cx.teardown.elements(gone);
    }
    Ok(())
}

/// The host's end is set down first: nothing passes without the check.
fn remove(cx: &mut Cx<'_>, port: &IfName, id: &AttachmentId) {
    let (element, port) = (rules::reverse_path(id, port), port.to_string());
    cx.teardown.at(Stage::Devices, "remove the check of reverse paths", move |host| {
        spoof::set_down(host, BTreeSet::from([port]))?;
        linux::crash_point!("reverse-path-down");
        host.nft()?.delete_missing_ok(&[element]).map_err(internal)
    });
}
