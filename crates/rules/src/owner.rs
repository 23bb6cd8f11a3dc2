//! Whose an element is: an attachment's identity, in the 127 bytes of a comment.

use std::fmt;
use std::hash::Hasher;

use cni::{AttachmentId, ContainerId, NetworkName};

/// Room for each part. Together with two `/` they fill the 127 bytes of a comment: an
/// interface name has up to 15, the container IDs of all runtimes 64.
const NETWORK: usize = 46;
const CONTAINER: usize = 64;

/// An attachment as the comment of its elements: `NETWORK/CONTAINER/INTERFACE`.
///
/// A network's name of more than 46 bytes, or a container ID of more than 64, is there with
/// its beginning, `~`, and 16 hexadecimal digits of SipHash-2-4 of the whole. No name has a
/// `/` or a `~` in it but an interface's a `~`, which comes last: a key never stands for two
/// attachments by accident, and to find a second name for one takes 2^64 attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerKey(String);

// === impl OwnerKey ===

impl OwnerKey {
    /// The key of an attachment.
    #[must_use]
    pub fn of(id: &AttachmentId) -> Self {
        let network = fit(id.network.as_str(), NETWORK);
        let container = fit(id.container.as_str(), CONTAINER);
        Self(format!("{network}/{container}/{}", id.ifname))
    }

    /// Reads an element's comment; `None` if it is no attachment's.
    #[must_use]
    pub fn parse(comment: &str) -> Option<Self> {
        let parts = comment.split('/');
        let whole = parts.clone().count() == 3 && parts.clone().all(|p| !p.is_empty());
        whole.then(|| Self(comment.to_owned()))
    }

    /// Whether the attachment is one of this network: for GC, which knows of one network
    /// only what is valid.
    #[must_use]
    pub fn is_of(&self, network: &NetworkName) -> bool {
        self.0.split('/').next() == Some(fit(network.as_str(), NETWORK).as_str())
    }

    /// Whether the attachment is one of this container.
    #[must_use]
    pub fn is_of_container(&self, container: &ContainerId) -> bool {
        self.0.split('/').nth(1) == Some(fit(container.as_str(), CONTAINER).as_str())
    }

    /// Network, container and interface, each whole or as its beginning and a hash.
    #[must_use]
    pub fn parts(&self) -> [&str; 3] {
        let mut parts = self.0.splitn(3, '/');
        [(); 3].map(|()| parts.next().unwrap_or_default())
    }

    /// The comment.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name whole, or cut and with its hash.
fn fit(name: &str, room: usize) -> String {
    if name.len() <= room {
        return name.to_owned();
    }
    // `~` and 16 digits.
    let mut end = room.saturating_sub(17);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{:016x}", name.get(..end).unwrap_or_default(), hash(name))
}

// Deprecated for hash maps, where the algorithm may change. Here it must not: releases read
// each other's comments, and this type is documented as SipHash-2-4.
#[expect(deprecated)]
fn hash(name: &str) -> u64 {
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName};
    use linux::nft::COMMENT_MAX;

    use super::*;

    fn id(network: &str, container: &str, ifname: &str) -> AttachmentId {
        AttachmentId {
            network: NetworkName::parse(network).unwrap(),
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse(ifname).unwrap(),
        }
    }

    #[test]
    fn readable_where_it_fits() {
        let key = OwnerKey::of(&id("lab", "cnitool-77383ca0a0715733ca6f", "eth0"));
        assert_eq!(key.as_str(), "lab/cnitool-77383ca0a0715733ca6f/eth0");
        assert_eq!(OwnerKey::parse(key.as_str()), Some(key.clone()));
        assert!(key.is_of(&NetworkName::parse("lab").unwrap()));
        assert!(!key.is_of(&NetworkName::parse("la").unwrap()));
    }

    #[test]
    fn the_longest_names_fit_and_differ() {
        let long = |last: &str, n| format!("{}{last}", "n".repeat(n));
        let ids = ["a", "b"].map(|n| id(&long(n, 117), &long("c", 117), "abcdefghijklmno"));
        let keys = ids.clone().map(|id| OwnerKey::of(&id));
        assert_ne!(keys[0], keys[1]);
        for (id, key) in ids.iter().zip(&keys) {
            assert_eq!(key.as_str().len(), COMMENT_MAX);
            assert!(key.is_of(&id.network));
        }
        assert!(!keys[0].is_of(&ids[1].network));
        let whole = OwnerKey::of(&id(&long("w", 45), &long("c", 63), "abcdefghijklmno"));
        assert_eq!(whole.as_str().len(), COMMENT_MAX);
        assert!(!whole.as_str().contains('~'));
    }

    #[test]
    fn the_hash_is_for_ever() {
        // SipHash-2-4 with a zero key, of the empty input: a known answer.
        assert_eq!(hash(""), 0x1e92_4b9d_7377_00d7);
        let network = "a-network-name-of-more-than-forty-six-characters";
        let key = OwnerKey::of(&id(network, "c1", "eth0"));
        assert_eq!(key.as_str(), "a-network-name-of-more-than-f~367a4e3275c73e9e/c1/eth0");
    }

    #[test]
    fn other_comments_are_nobodys() {
        for comment in ["", "a", "a/b", "a/b/c/d", "a//c", "/b/c"] {
            assert_eq!(OwnerKey::parse(comment), None, "{comment}");
        }
    }
}
