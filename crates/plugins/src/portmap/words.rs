//! The iptables backend: one `iptables-save` and one `iptables-restore` for each family, whatever the number of ports.

use std::cell::Cell;
use std::time::Instant;

use cni::{AddResult, AttachmentId, CniError, Code, NetworkName};
use ipnet::IpNet;
use linux::{Family, nft};
use plugin::{Call, Cx, Host, Restore, Stage};
use rules::iptables::{Changes, Iptables, Saved};
use rules::{AddError, HostPort};

use super::chains::{self, Own, TOP, Wanted};
use super::conf::{ConditionWords, Conf};
use super::{addresses, localnet, tracked};
use crate::foreign::{NAT, has_chain, is_legacy, refused, remove_chains};
use crate::internal;

/// Both, in the order in which they are changed.
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Publishes the ports of each address.
pub(super) fn add(conf: &Conf, words: &ConditionWords, call: &Call<'_>, prev: &AddResult, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let addresses = addresses(prev, call.id.ifname.as_str());
    if addresses.is_empty() || conf.mappings.is_empty() {
        return Ok(());
    }
    for address in &addresses {
        has_no_element(call.id, &conf.ports(*address), cx.host)?;
    }
    linux::crash_point!("portmap-words-unwritten");
    remove(call.id, cx);
    for address in addresses {
        let (wanted, ports) = (Wanted::of(conf, words, call.id, address), conf.ports(address));
        let iptables = Iptables::new(Family::of(address.addr()), cx.deadline);
        let taken = Cell::new(None);
        let changes = |saved: &Saved| {
            let found = chains::taken(saved, call.id, &ports);
            let changes = if found.is_some() { Changes::of(NAT) } else { wanted.changes(saved) };
            taken.set(found);
            changes
        };
        iptables.change(NAT, changes).map_err(refused)?;
        held(taken.take())?;
        linux::crash_point!("portmap-words-written");
        // These rules are asked first. Who has published one of the ports meanwhile, in its own way, keeps it.
        has_no_element(call.id, &ports, cx.host)?;
        tracked::forget_before_us(&ports, cx.host)?;
        linux::crash_point!("portmap-words-forgotten");
    }
    Ok(())
}

/// Whether no other container has one of these ports by rules of iptables, which are asked ahead of elements. The older kind is not
/// looked at: that would run a program for each attachment. Nor are rules that cannot be shown.
pub(super) fn are_free(id: &AttachmentId, ports: &[HostPort], cx: &mut Cx<'_>) -> Result<(), CniError> {
    for (family, table) in [(Family::V4, nft::Family::Ip), (Family::V6, nft::Family::Ip6)] {
        let ports: Vec<HostPort> = ports.iter().copied().filter(|port| Family::of(port.to.ip()) == family).collect();
        if ports.is_empty() || cx.host.nft()?.count_rules(table, NAT, TOP).map_err(internal)? == 0 {
            continue;
        }
        if let Ok(saved) = Iptables::new(family, cx.deadline).saved(NAT) {
            held(chains::taken(&saved, id, &ports))?;
        }
    }
    Ok(())
}

/// Whether no other container has one of these ports by an element. A kernel with iptables alone has none.
fn has_no_element(id: &AttachmentId, ports: &[HostPort], host: &mut Host) -> Result<(), CniError> {
    let Ok(nft) = host.nft() else { return Ok(()) };
    if !nft.has_table(nft::Family::Inet, rules::TABLE).map_err(internal)? {
        return Ok(());
    }
    rules::are_free(nft, id, ports).map_err(super::refused)
}

fn held(taken: Option<(HostPort, String)>) -> Result<(), CniError> {
    match taken {
        None => Ok(()),
        Some((port, owner)) => Err(super::refused(AddError::Held { what: port.to_string(), owner })),
    }
}

/// Whether every rule is there, and none besides.
pub(super) fn check(conf: &Conf, words: &ConditionWords, call: &Call<'_>, prev: &AddResult, by: Instant) -> Result<(), CniError> {
    if conf.mappings.is_empty() {
        return Ok(());
    }
    for address in addresses(prev, call.id.ifname.as_str()) {
        is_there(&Wanted::of(conf, words, call.id, address), address, by)?;
    }
    Ok(())
}

fn is_there(wanted: &Wanted, address: IpNet, by: Instant) -> Result<(), CniError> {
    let iptables = Iptables::new(Family::of(address.addr()), by);
    let saved = iptables.saved(NAT).map_err(refused)?;
    if let Some((chain, found)) = wanted.wrong_number(&saved) {
        let what = format!("chain {chain} in table {NAT} of {} has {found} rules for this container", name(address));
        return Err(internal(format!("{what}, which is not what was installed: attach the container again")));
    }
    let unseen = wanted.unseen(&saved);
    if let Some((chain, rule)) = iptables.missing(NAT, &unseen).map_err(refused)? {
        let what = format!("rule `-A {chain} {rule}` is missing in table {NAT} of {}", name(address));
        return Err(internal(format!("{what}: another program may have changed it; attach the container again")));
    }
    Ok(())
}

/// Notes every rule, to be put back.
pub(super) fn restore(conf: &Conf, words: &ConditionWords, call: &Call<'_>, prev: &AddResult, into: &mut Restore) {
    if conf.mappings.is_empty() {
        return;
    }
    if conf.rewrite.is_some() {
        into.rules("the chain that protects 127.0.0.0/8 from neighbours", |host, _| localnet::guard(host));
    }
    for address in addresses(prev, call.id.ifname.as_str()) {
        let (wanted, ports) = (Wanted::of(conf, words, call.id, address), conf.ports(address));
        into.rules(format!("host ports of {} in {}", address.addr(), name(address)), move |host, by| {
            if is_there(&wanted, address, by).is_ok() {
                return Ok(false);
            }
            Iptables::new(Family::of(address.addr()), by).change(NAT, |saved| wanted.changes(saved)).map_err(refused)?;
            linux::crash_point!("restore-portmap-words");
            tracked::forget_before_us(&ports, host)?;
            Ok(true)
        });
    }
}

fn name(address: IpNet) -> &'static str {
    if address.addr().is_ipv4() { "iptables" } else { "ip6tables" }
}

/// Notes that the attachment's chains are to go, of both families.
pub(super) fn remove(id: &AttachmentId, cx: &mut Cx<'_>) {
    let own = Own::of(id);
    cx.teardown.at(Stage::Devices, "remove the iptables chains of host ports", move |host| {
        FAMILIES.iter().try_for_each(|family| {
            let removed = remove_now(*family, &own, host);
            linux::crash_point!("portmap-words-removed");
            removed
        })
    });
}

/// As [`remove`], where something of it is there: for an attachment that may have been made by another implementation. No
/// program is run to find that out, unless `thoroughly` and the older kind of iptables is in use.
pub(super) fn remove_foreign(id: &AttachmentId, thoroughly: bool, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let own = Own::of(id);
    for family in FAMILIES {
        if has_chain(family, &own.ports, cx.host).map_err(internal)? || thoroughly && is_legacy(family, cx.host)? {
            remove(id, cx);
            break;
        }
    }
    Ok(())
}

fn remove_now(family: Family, own: &Own, host: &mut Host) -> Result<(), CniError> {
    let gone = [own.ports.clone(), own.old.clone()];
    let more = |saved: &Saved, changes: &mut Changes| chains::without_users(saved, &gone, changes);
    let Some(saved) = remove_chains(family, &gone, more, host)? else { return Ok(()) };
    tracked::forget(&tracked::to_us(&chains::published(&saved, own)), host)
}

/// Notes that the chains of a network's attachments that are not valid any more are to go.
pub(super) fn gc(network: &NetworkName, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    let valid: Vec<Own> = valid.iter().filter(|id| id.network == *network).map(Own::of).collect();
    for family in FAMILIES {
        if !has_chain(family, TOP, cx.host).unwrap_or(false) && !is_legacy(family, cx.host)? {
            continue;
        }
        let saved = Iptables::new(family, cx.deadline).saved(NAT).map_err(refused)?;
        for own in chains::stale(&saved, network, &valid) {
            let what = format!("remove the chain {} of a deleted attachment", own.ports);
            cx.teardown.at(Stage::Devices, what, move |host| remove_now(family, &own, host));
        }
    }
    Ok(())
}

/// Whether iptables of one family at least can be used.
pub(super) fn status(by: Instant) -> Result<(), CniError> {
    let mut why = Vec::new();
    for family in FAMILIES {
        match Iptables::new(family, by).saved(NAT) {
            Ok(_) => return Ok(()),
            Err(e) => why.push(e.to_string()),
        }
    }
    let msg = format!("neither iptables nor ip6tables is usable: {}", why.join("; "));
    Err(CniError::new(Code::NOT_AVAILABLE, msg))
}
