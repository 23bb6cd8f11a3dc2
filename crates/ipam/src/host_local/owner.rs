//! Whose an address is: what stands in its file.

use std::fmt;

use cni::{AttachmentId, ContainerId, IfName};

/// Who may hold addresses of a network: one interface of one container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The container.
    pub id: ContainerId,
    /// The interface inside it.
    pub ifname: IfName,
}

/// Who holds an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// An interface of a container.
    Attachment(Owner),
    /// A container, in a file from before interfaces were recorded.
    Container(ContainerId),
    /// Nobody knows: the file is empty (its writer was killed) or holds something else. Such an address is not handed
    /// out, and a collection frees it.
    Unknown,
}

/// How a file's content relates to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// Container and interface are the owner's.
    Exact,
    /// Only the owner's container is named.
    Container,
    /// It is somebody else's.
    No,
}

// === impl Owner ===

impl Owner {
    /// What is written into the file of an address.
    pub(super) fn text(&self) -> String {
        format!("{}\r\n{}", self.id, self.ifname)
    }

    pub(super) fn matches(&self, content: &[u8]) -> Match {
        let Some(rest) = content.trim_ascii().strip_prefix(self.id.as_str().as_bytes()) else { return Match::No };
        match rest.strip_prefix(b"\r\n") {
            Some(ifname) if ifname == self.ifname.as_str().as_bytes() => Match::Exact,
            None if rest.is_empty() => Match::Container,
            _ => Match::No,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {}, interface {}", self.id, self.ifname)
    }
}

impl From<&AttachmentId> for Owner {
    fn from(attachment: &AttachmentId) -> Self {
        Owner { id: attachment.container.clone(), ifname: attachment.ifname.clone() }
    }
}

// === impl Holder ===

impl Holder {
    pub(super) fn of(content: &[u8]) -> Self {
        let read = || -> Option<Holder> {
            let text = std::str::from_utf8(content.trim_ascii()).ok()?;
            match text.split_once("\r\n") {
                Some((id, ifname)) => {
                    Some(Holder::Attachment(Owner { id: ContainerId::parse(id).ok()?, ifname: IfName::parse(ifname).ok()? }))
                }
                None => Some(Holder::Container(ContainerId::parse(text).ok()?)),
            }
        };
        read().unwrap_or(Holder::Unknown)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Attachment(owner) => owner.fmt(f),
            Holder::Container(id) => write!(f, "container {id}"),
            Holder::Unknown => f.write_str("an unknown owner, because the file does not name one"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content() {
        let owner = Owner { id: ContainerId::parse("abc").unwrap(), ifname: IfName::parse("eth0").unwrap() };
        assert_eq!(owner.text(), "abc\r\neth0");
        for (content, expected, holder) in [
            ("abc\r\neth0", Match::Exact, "container abc, interface eth0"),
            (" abc\r\neth0\n", Match::Exact, "container abc, interface eth0"),
            ("abc\r\neth1", Match::No, "container abc, interface eth1"),
            ("abc\r\neth00", Match::No, "container abc, interface eth00"),
            ("abc", Match::Container, "container abc"),
            ("abc\r\n", Match::Container, "container abc"),
            ("abcd", Match::No, "container abcd"),
            ("abcd\r\neth0", Match::No, "container abcd, interface eth0"),
            ("", Match::No, "an unknown owner, because the file does not name one"),
            ("\u{0}\u{0}", Match::No, "an unknown owner, because the file does not name one"),
            ("abc\neth0", Match::No, "an unknown owner, because the file does not name one"),
        ] {
            assert_eq!(owner.matches(content.as_bytes()), expected, "{content:?}");
            assert_eq!(Holder::of(content.as_bytes()).to_string(), holder, "{content:?}");
        }
    }
}
