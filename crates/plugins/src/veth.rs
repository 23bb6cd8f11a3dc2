//! The veth pair between a container and its host, for every plugin that makes one.
//!
//! ```text
//!   host:  veth.........  --- one pair ---  eth0  :container
//!          named by the attachment, in the network's group
//! ```
//!
//! Both ends are born with their final names, in their final namespaces.

use std::collections::HashSet;
use std::os::fd::AsFd;

use cni::{AttachmentId, CniError, IfName, Mac, NetworkName};
use linux::link::{self, Kind, Peer};
use linux::{Errno, Family, Inside, Link, LinkSpec, Netlink, Reply, Sysctl};
use plugin::{Call, Host, Key, LinkIdentity, LinkToDelete};

use crate::{identity, internal, mac, open};

/// What a pair may be given.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    /// Bytes in a packet, of both ends.
    pub(crate) mtu: Option<u32>,
    /// Hardware address of the container's end.
    pub(crate) mac: Option<Mac>,
    /// Index of the bridge that the host's end is a port of.
    pub(crate) master: Option<u32>,
    /// Whether the host's end is left down, until there is what has to be there before the first packet.
    pub(crate) down: bool,
    /// Queues of each end in each direction.
    pub(crate) queues: Queues,
}

/// How many queues each end of a pair has in each direction (`queues`). One is what the kernel uses if nobody says otherwise, but it makes
/// one for each processor then, to be used when somebody asks for them (`ethtool -L`), and interrupts all processors twice to put them aside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queues(u32);

/// The author of a definition is not trusted. Each queue takes some kilobytes of the kernel's memory, and the kernel holds the lock of all links
/// while it creates the queue.
const MOST_QUEUES: u32 = 16;

impl Default for Queues {
    fn default() -> Self {
        Queues(1)
    }
}

impl Queues {
    /// The documentation of the key.
    pub(crate) const KEY: Key =
        Key::new("queues", "number", "1", "queues of each end of the pair in each direction, up to 16; fixed when ADD makes the pair");

    /// The key's value; 0 where it is not there, or as good as not there.
    pub(crate) fn read(value: i64) -> Result<Self, CniError> {
        match u32::try_from(value) {
            Ok(0) => Ok(Queues::default()),
            Ok(queues @ 1..=MOST_QUEUES) => Ok(Queues(queues)),
            _ => Err(CniError::invalid("queues", format!("{value} is not between 0 (none chosen) and {MOST_QUEUES}"))),
        }
    }

    /// What the kernel is asked for.
    pub(crate) fn of_an_end(self) -> Option<u32> {
        Some(self.0)
    }
}

/// The outer end's name: the same for the same attachment each time, so that DEL finds it when it is told nothing.
pub(crate) fn outer_name(id: &AttachmentId) -> Result<IfName, CniError> {
    // 44 bits: among a thousand attachments a collision has a chance of one in 35 million.
    let name = format!("veth{:011x}", identity::fingerprint(id) >> 20);
    IfName::parse(&name).map_err(internal)
}

/// Whether [`outer_name`] makes such names.
pub(crate) fn is_own_name(name: &str) -> bool {
    name.strip_prefix("veth").is_some_and(|rest| rest.len() == 11 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Makes the pair. The outer end, which is returned, is up from the start, if it may be: the other one is not, so nothing passes
/// until somebody in the container sets that one up.
pub(crate) fn make(netlink: &mut Netlink, call: &Call<'_>, pair: &Pair) -> Result<Link, CniError> {
    let netns = call.netns()?;
    let queues = pair.queues.of_an_end();
    let peer = Peer { mac: pair.mac.clone(), mtu: pair.mtu, queues, netns: Some(netns.as_fd()), ..Peer::new(call.id.ifname.clone()) };
    let name = outer_name(call.id)?;
    let group = Some(identity::network_group(&call.id.network));
    let mac = pair.master.and_then(|_| mac::of_port());
    let spec = LinkSpec {
        mtu: pair.mtu,
        mac,
        master: pair.master,
        queues,
        up: !pair.down,
        group,
        ..LinkSpec::new(name.clone(), Kind::Veth(peer))
    };
    let made = netlink.send_one(link::create(&spec).echo()).map_err(|e| match e.errno() {
        Errno::EEXIST => taken(netlink, &name, call),
        _ => internal(e),
    })?;
    match made {
        Reply::Link(outer) => Ok(*outer),
        // A kernel that does not send back what it has made.
        _ => netlink.link(name.as_str()).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was created"))),
    }
}

/// The pair goes by its end in the container, where all links of a pod go at once; by the outer end where the
/// container's namespace is not told, which may live on under a path that nobody knows.
pub(crate) fn link_to_delete(call: &Call<'_>, outer: &Link) -> LinkToDelete {
    // One that another implementation made, without a result that names it, is not found again once it is off its bridge.
    let lasting = call.prev.is_some() || is_own_name(&outer.name);
    let link_to_delete = |netns, mark| LinkToDelete { netns, kind: "veth", mark, lasting };
    match (call.netns, IfName::parse(&outer.name)) {
        (None, Ok(name)) => link_to_delete(None, LinkIdentity::Name(name)),
        (netns, _) => link_to_delete(netns.cloned(), LinkIdentity::Pair { outer: outer.index, inner: outer.other_end() }),
    }
}

/// The outer end of this attachment's pair; `None` if the pair is gone. It is known by its name, which nobody in the
/// container can change; a pair of another implementation by what the result of its ADD says.
pub(crate) fn find(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    let own = outer_name(call.id)?;
    if let Some(outer) = netlink.link(own.as_str()).map_err(internal)?.filter(|l| l.is("veth")) {
        return Ok(Some(outer));
    }
    let Some(prev) = call.prev else { return Ok(None) };
    // A bridge's gateway in a VLAN is the network's: a veth as well, `<bridge>.<vlan>`.
    let of_network = |name: &str| name.rsplit_once('.').is_some_and(|(bridge, _)| prev.interfaces.iter().any(|i| i.name == bridge));
    for told in prev.interfaces.iter().filter(|i| i.sandbox.is_empty() && !of_network(&i.name)) {
        let link = netlink.link(&told.name).map_err(internal)?;
        let same = |l: &Link| l.is("veth") && l.mac.is_some() && l.mac == told.mac.parse().ok();
        if let Some(outer) = link.filter(same) {
            return Ok(Some(outer));
        }
    }
    Ok(None)
}

/// The host's end of a pair whose names nobody kept: the other end of the veth that the container has under the
/// attachment's name, if `theirs` says that another implementation of the same plugin makes such ones.
pub(crate) fn made_elsewhere(netlink: &mut Netlink, call: &Call<'_>, theirs: impl Fn(&Link) -> bool) -> Result<Option<Link>, CniError> {
    let Some(netns) = call.netns else { return Ok(None) };
    let name = call.id.ifname.as_str();
    let inner = netns.enter(|inside| open(inside)?.link(name).map_err(internal)).map_err(internal)??;
    let Some(index) = inner.filter(|l| l.is("veth")).map(|l| l.other_end()) else { return Ok(None) };
    let theirs = |l: &Link| l.is("veth") && !is_own_name(&l.name) && theirs(l);
    Ok(netlink.link_by_index(index).map_err(internal)?.filter(theirs))
}

/// The outer ends of a network's pairs, but for those of valid attachments: their containers may have gone without a DEL.
pub(crate) fn stale(netlink: &mut Netlink, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<LinkToDelete>, CniError> {
    let keep = valid.iter().map(outer_name).collect::<Result<HashSet<IfName>, CniError>>()?;
    let group = identity::network_group(network);
    let ours = |l: &Link| l.is("veth") && l.group == group && is_own_name(&l.name);
    let names = netlink.links().map_err(internal)?.into_iter().filter(ours).filter_map(|l| IfName::parse(&l.name).ok());
    let link_to_delete = |name| LinkToDelete { netns: None, kind: "veth", mark: LinkIdentity::Name(name), lasting: true };
    Ok(names.filter(|name| !keep.contains(name)).map(link_to_delete).collect())
}

/// Lets the host forward packets of a family. It keeps a default route that a router has advertised ([`linux::forward`]).
pub(crate) fn forward(host: &mut Host, v4: bool) -> Result<(), CniError> {
    let family = if v4 { Family::V4 } else { Family::V6 };
    // Asked for by a message: to open the file takes five times as long.
    if host.netlink()?.forwarding(family).is_ok_and(|value| value == Some(1)) {
        return Ok(());
    }
    // The host's namespace is that of this thread.
    linux::forward(&Inside::here(), host.netlink()?, family).map(drop).map_err(internal)
}

/// CHECK: whether the host still forwards packets of a family.
pub(crate) fn forwards(inside: &Inside, v4: bool) -> Result<(), CniError> {
    let sysctl = forwarding(v4)?;
    // IPv6 has another value that forwards as well.
    match sysctl.read(inside).map_err(internal)?.as_str() {
        "0" => Err(internal(format!("the host does not forward packets for its containers any more: {sysctl} is 0"))),
        _ => Ok(()),
    }
}

fn forwarding(v4: bool) -> Result<Sysctl, CniError> {
    let key: &[&str] = if v4 { &["net", "ipv4", "ip_forward"] } else { &["net", "ipv6", "conf", "all", "forwarding"] };
    Sysctl::new(key.iter().copied()).map_err(internal)
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
