//! Where frames for a hardware address go: to which endpoint of a vxlan (`bridge fdb ... self`), to which port of a bridge (`... master`).

use std::net::IpAddr;

use cni::Mac;
use nix::errno::Errno;

use crate::batch::Request;
use crate::neigh::{NDMSG, header};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::family;
use crate::uapi::neighbour::*;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_REPLACE};
use crate::uapi::rtnetlink::{RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use crate::wire::{Attributes, Message, Received, ip, u16_at, u32_at, with_octets};

/// What `bridge` sends with `permanent`.
const PERMANENT: u16 = NUD_NOARP | NUD_PERMANENT;

/// An entry of a link's own forwarding database. Of an address with several endpoints, each is an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FdbEntry {
    /// Index of the link.
    pub index: u32,
    /// For whom frames are; all zeros: for everybody else.
    pub mac: Mac,
    /// Where they are sent.
    pub endpoint: Option<IpAddr>,
    /// Whether it is as [`replace`] writes it: permanent, and with neither a port, a network, a link nor a nexthop of its own.
    pub plain: bool,
}

// === impl FdbEntry ===

impl FdbEntry {
    /// `None` for an entry of the bridge that the link is a port of.
    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(NDMSG)?;
        let [of_family, _, _, _, index @ .., _, _, flags, _] = fixed else { return None };
        if *of_family != family::BRIDGE || flags & NTF_SELF == 0 {
            return None;
        }
        let state = fixed.get(8..).and_then(u16_at)?;
        let mut plain = state & NUD_PERMANENT != 0 && flags & !NTF_OFFLOADED == NTF_SELF;
        let (mut mac, mut endpoint) = (None, None);
        for (kind, value) in Attributes(attributes) {
            match kind {
                NDA_LLADDR => mac = Mac::from_bytes(value),
                NDA_DST => endpoint = ip(value),
                NDA_PORT | NDA_VNI | NDA_IFINDEX | NDA_SRC_VNI | NDA_NH_ID => plain = false,
                _ => {}
            }
        }
        Some(FdbEntry { index: u32_at(index)?, mac: mac?, endpoint, plain })
    }
}

/// Sends frames for this address to this endpoint, whatever the entry was before (`bridge fdb replace MAC dev LINK dst ENDPOINT self
/// permanent`). Errors: `EOPNOTSUPP`, the link has no such database; `EAFNOSUPPORT`, its endpoints are of the other family; `ENODEV`.
pub fn replace(index: u32, mac: &Mac, endpoint: IpAddr) -> Request<'static> {
    let fixed = header(family::BRIDGE, index, PERMANENT, NTF_SELF);
    let mut message = Message::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &fixed);
    message.put(NDA_LLADDR, mac.as_bytes());
    with_octets(endpoint, |octets| message.put(NDA_DST, octets));
    Request::new(format!("bridge fdb replace {mac} dev if{index} dst {endpoint} self permanent"), message)
}

/// Takes an address out of the database, with all its endpoints (`bridge fdb del MAC dev LINK self`). Errors: `ENOENT`, it is not in it;
/// `ENODEV`.
pub fn delete(index: u32, mac: &Mac) -> Request<'static> {
    let mut message = Message::new(RTM_DELNEIGH, 0, &header(family::BRIDGE, index, PERMANENT, NTF_SELF));
    message.put(NDA_LLADDR, mac.as_bytes());
    Request::new(format!("bridge fdb del {mac} dev if{index} self"), message)
}

impl Netlink {
    /// Behind which of its ports a bridge has seen hardware addresses, itself and its ports' own among them, by the ports' indexes (`bridge
    /// fdb show br LINK`).
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where it changes too fast to be read.
    pub fn stations(&mut self, bridge: u32) -> Result<Vec<(Mac, u32)>, ReadError> {
        let mut question = Message::new(RTM_GETNEIGH, 0, &header(family::BRIDGE, 0, 0, 0));
        question.put_u32(NDA_MASTER, bridge);
        self.dump(&format!("bridge fdb show br if{bridge}"), question, &[Errno::ENODEV], |m| {
            let (fixed, attributes) = m.payload.split_at_checked(NDMSG).filter(|_| m.kind == RTM_NEWNEIGH)?;
            let of = |kind: u16| Attributes(attributes).find(|(own, _)| *own == kind).map(|(_, value)| value);
            // Of a port that is a vxlan there are its own entries as well, which have no master.
            of(NDA_MASTER).and_then(u32_at).filter(|master| *master == bridge)?;
            Some((Mac::from_bytes(of(NDA_LLADDR)?)?, fixed.get(4..).and_then(u32_at)?))
        })
    }

    /// A link's own forwarding database (`bridge fdb show dev LINK self`).
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where it changes too fast to be read.
    pub fn fdb(&mut self, index: u32) -> Result<Vec<FdbEntry>, ReadError> {
        let mut question = Message::new(RTM_GETNEIGH, 0, &header(family::BRIDGE, 0, 0, 0));
        question.put_u32(NDA_IFINDEX, index);
        self.dump(&format!("bridge fdb show dev if{index}"), question, &[Errno::ENODEV], |m| {
            let entry = (m.kind == RTM_NEWNEIGH).then(|| FdbEntry::parse(m)).flatten()?;
            (entry.index == index).then_some(entry)
        })
    }
}
