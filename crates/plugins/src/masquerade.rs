//! `ipMasq`: what leaves an attachment's network leaves with the host's address. See crate `rules`.

mod foreign;

use cni::{AddResult, AttachmentId, CniError, Config};
use ipnet::IpNet;
use linux::nft::{Element, SetElement};
use plugin::{Call, Cx, Restore};

use crate::internal;

/// The elements of the result's addresses are added; they are in the teardown before.
pub(crate) fn add(call: &Call<'_>, cx: &mut Cx<'_>, result: &AddResult) -> Result<(), CniError> {
    let elements = rules::masquerade(call.id, &nets(result));
    linux::crash_point!("unmasqueraded");
    cx.teardown.elements(elements.clone());
    rules::install_and_add(cx.host.nft()?, &elements).map_err(internal)?;
    linux::crash_point!("masqueraded");
    Ok(())
}

/// CHECK: every element is there.
pub(crate) fn check(call: &Call<'_>, cx: &mut Cx<'_>, prev: &AddResult) -> Result<(), CniError> {
    let elements = rules::masquerade(call.id, &nets(prev));
    rules::check(cx.host.nft()?, &elements).map_err(internal)
}

/// What ADD has added, to be put back.
pub(crate) fn restore(call: &Call<'_>, into: &mut Restore) -> Result<(), CniError> {
    into.elements(rules::masquerade(call.id, &nets(call.prev()?)));
    Ok(())
}

/// DEL. Whatever `ipMasq` says now: what counts is what ADD did. The result of an ADD with it says which elements there are.
/// Where they are not, another implementation may have made the attachment.
pub(crate) fn del(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let said = call.config.raw().get("ipMasq").and_then(json::Value::as_bool);
    // Without nftables nothing was made; who asks for it nevertheless is told what is missing.
    if said != Some(true) && !cx.host.has_nft()? {
        return Ok(());
    }
    let nft = cx.host.nft()?;
    let told = match call.prev.filter(|_| said == Some(true)) {
        Some(prev) => rules::masquerade(call.id, &nets(prev)),
        None => rules::owned_by(nft, &rules::MASQUERADE, call.id).map_err(internal)?,
    };
    let there = nft.find(&told).map_err(internal)?;
    let ours = |(told, there): (&SetElement, &Option<Element>)| there.as_ref().is_some_and(|e| e.comment == told.element.comment);
    if told.is_empty() || !told.iter().zip(&there).all(ours) {
        foreign::remove(call.id, said == Some(true), cx)?;
    }
    cx.teardown.elements(told);
    Ok(())
}

/// GC: the elements of a network's attachments that are not valid.
pub(crate) fn gc(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    if !cx.host.has_nft()? {
        return Ok(());
    }
    let gone = rules::stale(cx.host.nft()?, &rules::MASQUERADE, &config.network, valid).map_err(internal)?;
    cx.teardown.elements(gone);
    Ok(())
}

/// `ipMasqBackend`: both of the reference plugin's are served by nftables.
pub(crate) fn backend(named: &str) -> Result<(), CniError> {
    match named {
        "" | "nftables" | "iptables" => Ok(()),
        other => Err(CniError::worded(format_args!("unknown ipmasq backend {other:?}"), "ipMasqBackend is \"nftables\" or \"iptables\"")
            .at("ipMasqBackend")),
    }
}

fn nets(result: &AddResult) -> Vec<IpNet> {
    result.ips.iter().map(|ip| ip.address).collect()
}
