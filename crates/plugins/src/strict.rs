//! `strictSource`: a container sends with its own IP addresses, or not at all. See crate `rules`.
//!
//! What a container has is known once IPAM has answered, which is before anybody else than plugins runs in it. The guard stands until
//! nothing passes any more: the host's end is set down before the elements go, as with `spoof`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AddResult, CniError, Code, Mac};
use linux::nft::SetElement;
use plugin::{Call, Cx, Restore, Stage};
use rules::GUARDS;

use crate::{internal, spoof, veth};

/// The elements are added; they are in the teardown before. `guarded`: the index of the pair's end on the host and the container's hardware
/// address, where that is guarded as well.
pub(crate) fn add(call: &Call<'_>, cx: &mut Cx<'_>, result: &AddResult, guarded: Option<(u32, &Mac)>) -> Result<(), CniError> {
    let mut elements = told(call, result)?;
    if let Some((outer, mac)) = guarded {
        elements.extend(rules::ordinary(call.id, outer, mac, Some(&addresses(result))));
    }
    linux::crash_point!("sources-free");
    remove(cx, elements.clone());
    rules::install_and_add(cx.host.nft()?, &elements).map_err(|e| status(cx).err().unwrap_or_else(|| internal(e)))?;
    linux::crash_point!("sources-strict");
    Ok(())
}

/// CHECK: every element is there.
pub(crate) fn check(call: &Call<'_>, cx: &mut Cx<'_>, prev: &AddResult) -> Result<(), CniError> {
    let elements = told(call, prev)?;
    rules::check(cx.host.nft()?, &elements).map_err(internal)
}

/// What ADD has added, to be put back. `is_guarded`: its hardware address is guarded as well.
pub(crate) fn restore(call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore, is_guarded: bool) -> Result<(), CniError> {
    let prev = call.prev()?;
    into.elements(told(call, prev)?);
    if is_guarded {
        into.elements(spoof::ordinary(call, cx, prev, Some(&addresses(prev)))?);
    }
    Ok(())
}

/// DEL, whatever `strictSource` says now: what counts is what ADD did. One key is looked up; only where it is there all are read.
pub(crate) fn del(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    if !cx.host.has_nft()? {
        return Ok(());
    }
    let key = rules::strict(call.id, &veth::outer_name(call.id)?);
    let nft = cx.host.nft()?;
    if nft.find(&[key]).map_err(internal)?.iter().flatten().next().is_none() {
        return Ok(());
    }
    let elements = rules::owned_by(nft, &GUARDS, call.id).map_err(internal)?;
    remove(cx, elements);
    Ok(())
}

/// STATUS: whether the kernel has rules for frames.
pub(crate) fn status(cx: &mut Cx<'_>) -> Result<(), CniError> {
    let Some(said) = rules::lacks_bridge_family(cx.host.nft()?).map_err(internal)? else { return Ok(()) };
    let msg = format!(
        "strictSource: the kernel does not support nftables rules for bridges: {said}; set it to false, or use a kernel with \
            CONFIG_NF_TABLES_BRIDGE"
    );
    Err(CniError::new(Code::NOT_AVAILABLE, msg))
}

/// The elements for the addresses that a result tells.
fn told(call: &Call<'_>, result: &AddResult) -> Result<Vec<SetElement>, CniError> {
    Ok(rules::strict_source(call.id, &veth::outer_name(call.id)?, &addresses(result)))
}

fn addresses(result: &AddResult) -> Vec<IpAddr> {
    result.ips.iter().map(|ip| ip.address.addr()).collect()
}

fn remove(cx: &mut Cx<'_>, elements: Vec<SetElement>) {
    if !elements.is_empty() {
        cx.teardown.at(Stage::Devices, "remove the guard against forged IP addresses", move |host| {
            let ports: BTreeSet<String> = elements.iter().filter_map(rules::strict_port).collect();
            spoof::set_down(host, ports)?;
            linux::crash_point!("strict-port-down");
            host.nft()?.delete_missing_ok(&elements).map_err(internal)
        });
    }
}
