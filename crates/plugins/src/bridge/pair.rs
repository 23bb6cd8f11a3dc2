//! The veth pair of an attachment.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use cni::{AttachmentId, CniError, IfName, NetworkName};
use linux::link::{self, Kind, Peer};
use linux::{Errno, Link, LinkSpec, Netlink, Netns, PortFlags, Reply};
use plugin::{Call, Doomed, Mark};

use super::conf::Conf;
use crate::{identity, internal};

/// The outer end's name: the same for the same attachment each time, so that DEL finds it when it is told nothing.
pub(super) fn outer_name(id: &AttachmentId) -> Result<IfName, CniError> {
    // 44 bits: among a thousand attachments a collision has a chance of one in 35 million.
    let name = format!("veth{:011x}", identity::fingerprint(id) >> 20);
    IfName::parse(&name).map_err(internal)
}

/// Makes the pair, both ends with their final names, in their final namespaces, the outer end a port of the bridge.
/// Returns the outer end.
pub(super) fn make(netlink: &mut Netlink, conf: &Conf, call: &Call<'_>, bridge: &Link, netns: &Arc<Netns>) -> Result<Link, CniError> {
    let peer = Peer { mac: conf.mac.clone(), mtu: conf.mtu, netns: Some(netns.as_fd()), ..Peer::new(call.id.ifname.clone()) };
    let name = outer_name(call.id)?;
    // Up from the start: the other end is not, so nothing passes yet.
    let group = Some(identity::network_group(&call.id.network));
    let spec = LinkSpec { mtu: conf.mtu, master: Some(bridge.index), up: true, group, ..LinkSpec::new(name.clone(), Kind::Veth(peer)) };
    let made = netlink.send_one(link::create(&spec).echo()).map_err(|e| match e.errno() {
        Errno::EEXIST => taken(netlink, &name, call),
        _ => internal(e),
    })?;
    let outer = match made {
        Reply::Link(outer) => *outer,
        // A kernel that does not send back what it has made.
        _ => netlink.link(name.as_str()).map_err(internal)?.ok_or_else(|| internal(format!("{name} vanished as it was made")))?,
    };
    if !conf.hairpin && !conf.isolated {
        return Ok(outer);
    }
    let on = |flag: bool| flag.then_some(true);
    let flags = PortFlags { hairpin: on(conf.hairpin), isolated: on(conf.isolated), ..PortFlags::default() };
    linux::crash_point!("bridge-port-unset");
    match netlink.send_one(link::set_port(outer.index, &flags)) {
        Ok(_) => Ok(outer),
        Err(e) => {
            // The pair is not in the teardown yet: it is, once this function has returned it.
            let _ = netlink.send_one(link::delete(outer.index));
            Err(internal(e))
        }
    }
}

/// The pair goes by its end in the container, where all links of a pod go at once; by the outer end where the
/// container's namespace is not told, which may live on under a path that nobody knows.
pub(super) fn doomed(call: &Call<'_>, outer: &Link) -> Doomed {
    // One that another implementation made, without a result that names it, is found by its bridge alone.
    let lasting = call.prev.is_some() || is_own_name(&outer.name);
    let doomed = |netns, mark| Doomed { netns, kind: "veth", mark, lasting };
    match (call.netns, IfName::parse(&outer.name)) {
        (None, Ok(name)) => doomed(None, Mark::Name(name)),
        (netns, _) => doomed(netns.cloned(), Mark::Pair { outer: outer.index, inner: outer.other_end() }),
    }
}

/// The outer end of this attachment's pair; `None` if the pair is gone. It is known by its name, which nobody in the
/// container can change; a pair of another implementation by what the result of its ADD says.
pub(super) fn find(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    let own = outer_name(call.id)?;
    if let Some(outer) = netlink.link(own.as_str()).map_err(internal)?.filter(|l| l.is("veth")) {
        return Ok(Some(outer));
    }
    let Some(prev) = call.prev else { return made_elsewhere(netlink, call) };
    for told in prev.interfaces.iter().filter(|i| i.sandbox.is_empty()) {
        let link = netlink.link(&told.name).map_err(internal)?;
        let same = |l: &Link| l.is("veth") && l.mac.is_some() && l.mac == told.mac.parse().ok();
        if let Some(outer) = link.filter(same) {
            return Ok(Some(outer));
        }
    }
    Ok(None)
}

/// A pair that another implementation made, whose names nobody kept: its outer end is a port of the configured bridge.
fn made_elsewhere(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    let (Some(netns), Ok(conf)) = (call.netns, Conf::read(call.config, call.args)) else { return Ok(None) };
    let Some(bridge) = netlink.link(conf.bridge.as_str()).map_err(internal)? else { return Ok(None) };
    let name = call.id.ifname.as_str();
    let inner = netns.enter(|inside| Netlink::open(inside).map_err(internal)?.link(name).map_err(internal)).map_err(internal)??;
    let Some(index) = inner.filter(|l| l.is("veth")).map(|l| l.other_end()) else { return Ok(None) };
    let theirs = |l: &Link| l.is("veth") && l.master == Some(bridge.index) && !is_own_name(&l.name);
    Ok(netlink.link_by_index(index).map_err(internal)?.filter(theirs))
}

/// The outer ends of a network's pairs, but for those of valid attachments: their containers may have gone without a DEL.
pub(super) fn stale(netlink: &mut Netlink, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<Doomed>, CniError> {
    let keep = valid.iter().map(outer_name).collect::<Result<HashSet<IfName>, CniError>>()?;
    let group = identity::network_group(network);
    let ours = |l: &Link| l.is("veth") && l.group == group && is_own_name(&l.name);
    let names = netlink.links().map_err(internal)?.into_iter().filter(ours).filter_map(|l| IfName::parse(&l.name).ok());
    let doomed = |name| Doomed { netns: None, kind: "veth", mark: Mark::Name(name), lasting: true };
    Ok(names.filter(|name| !keep.contains(name)).map(doomed).collect())
}

/// Whether [`outer_name`] makes such names.
fn is_own_name(name: &str) -> bool {
    name.strip_prefix("veth").is_some_and(|rest| rest.len() == 11 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Which of the two names is taken.
fn taken(netlink: &mut Netlink, outer: &IfName, call: &Call<'_>) -> CniError {
    let ifname = &call.id.ifname;
    match netlink.link(outer.as_str()) {
        Ok(Some(_)) => {
            internal(format!("{outer} exists already: network {} is attached to this container as {ifname}; DEL it first", call.id.network))
        }
        _ => internal(format!("interface name {ifname} already exists in the container: choose another CNI_IFNAME")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_names_are_stable_and_differ() {
        let id =
            |c: &str, i: &str| AttachmentId { network: "net".parse().unwrap(), container: c.parse().unwrap(), ifname: i.parse().unwrap() };
        let mut seen = HashSet::new();
        for i in 0..20_000 {
            assert!(seen.insert(outer_name(&id(&format!("c{i}"), "eth0")).unwrap()));
        }
        assert_eq!(outer_name(&id("c1", "eth0")), outer_name(&id("c1", "eth0")));
        assert_ne!(outer_name(&id("c1", "eth0")), outer_name(&id("c1e", "th0")));
    }
}
