//! The link of the host where a container's egress waits: its name, and how it is found again.

use std::collections::HashSet;

use cni::{AttachmentId, CniError, IfName, NetworkName};
use linux::link::{self, Kind};
use linux::{Errno, Link, LinkSpec, Netlink, Reply};
use plugin::{Call, LinkIdentity, LinkToDelete};
use sha2::{Digest, Sha512};

use crate::{identity, internal, verify};

/// What a name begins with; twelve hexadecimal digits follow, all that fits.
const PREFIX: &str = "bwp";

/// Makes it, down: what comes to an ifb without a queue of its own is held back by nothing.
pub(super) fn make(netlink: &mut Netlink, id: &AttachmentId, mtu: u32) -> Result<Link, CniError> {
    let [first, second] = names(id)?;
    let made = match create(netlink, id, &first, mtu)? {
        Some(ifb) => Some(ifb),
        // The container has another attachment to this network, whose it is.
        None if !is_there(netlink, &first, id)? => create(netlink, id, &second, mtu)?,
        None => None,
    };
    let network = &id.network;
    made.ok_or_else(|| {
        internal(format!("{first} exists already: network {network} is attached to this container as {}; DEL it first", id.ifname))
    })
}

/// `None`: the name is taken.
fn create(netlink: &mut Netlink, id: &AttachmentId, name: &IfName, mtu: u32) -> Result<Option<Link>, CniError> {
    let spec = LinkSpec {
        mtu: Some(mtu),
        mac: Some(identity::bandwidth_mac(&id.network)?),
        group: Some(identity::group(id)),
        // None but the limit's own.
        txqlen: Some(0),
        ..LinkSpec::new(name.clone(), Kind::Ifb)
    };
    match netlink.send_one(link::create(&spec).echo()) {
        Ok(Reply::Link(ifb)) => Ok(Some(*ifb)),
        // A kernel that does not send back what it has made.
        Ok(_) => netlink
            .link(name.as_str())
            .map_err(internal)?
            .ok_or_else(|| {
                internal(format!(
                    "{name} disappeared while it was \
                created"
                ))
            })
            .map(Some),
        Err(e) if e.errno() == Errno::EEXIST => Ok(None),
        Err(e) if e.errno() == Errno::EOPNOTSUPP => Err(verify::lacks("ifb")),
        Err(e) => Err(internal(e)),
    }
}

fn is_there(netlink: &mut Netlink, name: &IfName, id: &AttachmentId) -> Result<bool, CniError> {
    Ok(netlink.link(name.as_str()).map_err(internal)?.is_some_and(|l| l.group == identity::group(id)))
}

/// The attachment's, as far as it is there. It is known by its group; one of another implementation, which has none, by the
/// name, unless the result says that the attachment has no such link.
pub(super) fn find(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    let [first, second] = names(call.id)?;
    let group = identity::group(call.id);
    let told = |name: &IfName| call.prev.is_none_or(|prev| prev.interfaces.iter().any(|i| i.name == name.as_str() && i.sandbox.is_empty()));
    for name in [&first, &second] {
        let ifb = netlink.link(name.as_str()).map_err(internal)?.filter(|l| l.is("ifb"));
        if let Some(ifb) = ifb.filter(|l| l.group == group || (l.group == 0 && *name == first && told(name))) {
            return Ok(Some(ifb));
        }
    }
    Ok(None)
}

/// What an ADD that fails leaves to undo: whichever name it has.
pub(super) fn link_to_delete(id: &AttachmentId) -> LinkToDelete {
    LinkToDelete { netns: None, kind: "ifb", mark: LinkIdentity::Group(identity::group(id)), lasting: true }
}

/// As [`link_to_delete`], of one that was found: by its name it can go with others.
pub(super) fn link_to_delete_by_name(ifb: &Link) -> Result<LinkToDelete, CniError> {
    let name = IfName::parse(&ifb.name).map_err(internal)?;
    Ok(LinkToDelete { netns: None, kind: "ifb", mark: LinkIdentity::Name(name), lasting: true })
}

/// Those of a network's attachments that are not valid.
pub(super) fn stale(netlink: &mut Netlink, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<Link>, CniError> {
    let keep: HashSet<u32> = valid.iter().map(identity::group).collect();
    let mac = identity::bandwidth_mac(network)?;
    let stale =
        |l: &Link| l.is("ifb") && l.name.starts_with(PREFIX) && l.mac.as_ref() == Some(&mac) && l.group != 0 && !keep.contains(&l.group);
    Ok(netlink.links().map_err(internal)?.into_iter().filter(stale).collect())
}

/// The reference plugin's name, of network and container, by which either one's DEL finds the other's link; and one for each
/// further attachment of the container to the same network.
fn names(id: &AttachmentId) -> Result<[IfName; 2], CniError> {
    let name = |parts: &[&str]| {
        let digest = parts.iter().fold(Sha512::new(), |hash, part| hash.chain_update(part.as_bytes())).finalize();
        let digits: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        IfName::parse(&format!("{PREFIX}{digits}")).map_err(internal)
    };
    let (network, container) = (id.network.as_str(), id.container.as_str());
    Ok([name(&[network, container])?, name(&[network, container, "/", id.ifname.as_str()])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_references() {
        let id = AttachmentId { network: "net".parse().unwrap(), container: "c1".parse().unwrap(), ifname: "eth0".parse().unwrap() };
        let [first, second] = names(&id).unwrap();
        // printf netc1 | sha512sum
        assert_eq!((first.as_str(), second.as_str()), ("bwp623e1c388032", "bwpdf21d8a2a422"));
    }
}
