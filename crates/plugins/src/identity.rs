//! What tells an attachment's links from all others.

use cni::{AttachmentId, CniError, IfName, Mac, NetworkName};

use crate::internal;

/// 64 bits of an attachment's identity (FNV-1a, mixed with splitmix64's finaliser): for names and numbers that must
/// differ and stay the same, not a secret. It is part of what running links are known by: it never changes.
pub(crate) fn fingerprint(id: &AttachmentId) -> u64 {
    of(&[id.network.as_str(), id.container.as_str(), id.ifname.as_str()])
}

/// 64 bits of some words, as [`fingerprint`] of the three of an attachment.
pub(crate) fn of(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|p| p.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The group that an attachment's link is born with: never 0, which is everybody's, and below 2^30, above which links
/// are gathered to be deleted together.
pub(crate) fn group(id: &AttachmentId) -> u32 {
    group_of(fingerprint(id))
}

/// The group of what a network's attachments have on the host, by which GC finds those that nobody names any more.
pub(crate) fn network_group(network: &NetworkName) -> u32 {
    group_of(of(&[network.as_str()]))
}

/// The hardware address of what `bandwidth` makes for a network's attachments, by which GC finds those that nobody names any
/// more: each has a group of its own. Nothing is ever sent from it.
pub(crate) fn bandwidth_mac(network: &NetworkName) -> Result<Mac, CniError> {
    mac_of("bandwidth", network)
}

/// The same of the Linux bridges that `ovs-hybrid` makes.
pub(crate) fn hybrid_mac(network: &NetworkName) -> Result<Mac, CniError> {
    mac_of("hybrid", network)
}

fn mac_of(kind: &str, network: &NetworkName) -> Result<Mac, CniError> {
    let [_, a, b, c, d, e, ..] = of(&[kind, network.as_str()]).to_be_bytes();
    // 02: given by nobody, for one link.
    Mac::from_bytes(&[2, a, b, c, d, e]).ok_or_else(|| internal("an address of six bytes"))
}

/// Whether links of one network's attachments look like the other's to who finds them by group or hardware address alone: who chooses a name can
/// choose one of which that is true. A network looks like itself.
pub fn look_alike(one: &NetworkName, other: &NetworkName) -> bool {
    let macs = |name| (bandwidth_mac(name).ok(), hybrid_mac(name).ok());
    let ((bandwidth, hybrid), (other_bandwidth, other_hybrid)) = (macs(one), macs(other));
    network_group(one) == network_group(other) || bandwidth == other_bandwidth || hybrid == other_hybrid
}

/// The group of a VRF in a container, by which the attachments that share it know that one of them made it.
pub(crate) fn vrf_group(name: &IfName) -> u32 {
    group_of(of(&["vrf", name.as_str()]))
}

fn group_of(fingerprint: u64) -> u32 {
    let bits = u32::try_from(fingerprint >> 34).unwrap_or(1);
    bits.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_as_it_is() {
        let id = AttachmentId { network: "net".parse().unwrap(), container: "c1".parse().unwrap(), ifname: "eth0".parse().unwrap() };
        assert_eq!(format!("{:016x}", fingerprint(&id)), "d70aef4ffcc9599f");
        assert!(group(&id) > 0 && group(&id) < 1 << 30);
        assert_eq!(network_group(&id.network), 221_220_459);
    }

    /// The second of these was found in ten seconds.
    #[test]
    fn networks_whose_links_look_alike() {
        let alike = |one: &str, other: &str| look_alike(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(alike("pods", "alike-bkdvr45") && alike("pods", "pods") && !alike("pods", "pods2"));
    }
}
