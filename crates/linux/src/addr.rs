//! Addresses of links (`ip addr`).

use std::fmt;
use std::net::IpAddr;
use std::ops::BitOr;

use ipnet::IpNet;
use nix::errno::Errno;

use crate::batch::Request;
use crate::netlink::{Netlink, ReadError};
use crate::route::Scope;
use crate::uapi::addr::*;
use crate::uapi::family;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use crate::uapi::rtnetlink::{RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR};
use crate::wire::{Attributes, Message, Received, ip, text, u32_at, with_octets};

/// Length of `struct ifaddrmsg`.
const IFADDRMSG: usize = 8;

/// The protocol of addresses that go with their link's last user (`ip addr add ... proto 110`): a number that neither the kernel nor
/// iproute2 uses, as that of our routes.
pub const TRANSIENT: u8 = 110;

/// The protocol of pods' gateways that stay.
pub const GATEWAY: u8 = 111;

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// Index of the link.
    pub index: u32,
    /// The address itself, with the length of its network's prefix.
    pub net: IpNet,
    /// The other end's address, on a link with two ends that is configured so (`peer`).
    pub peer: Option<IpAddr>,
    /// Tentative, permanent, ...
    pub flags: AddrFlags,
    /// How far it is valid.
    pub scope: Scope,
    /// Who has given it, as they say themselves; 0: nobody says (before Linux 5.18).
    pub protocol: u8,
    /// Name of an IPv4 address: the link's, or an alias of it such as `eth0:1`.
    pub label: Option<String>,
}

/// Flags of an address (`IFA_F_*`, linux/if_addr.h), joined by `|`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct AddrFlags(u32);

// === impl AddrFlags ===

impl AddrFlags {
    /// No flag.
    pub const NONE: AddrFlags = AddrFlags(0);
    /// Another address of the same network was there first (IPv4); temporary (IPv6).
    pub const SECONDARY: AddrFlags = AddrFlags(0x01);
    /// IPv6: use it at once, without asking whether someone else has it.
    pub const NODAD: AddrFlags = AddrFlags(0x02);
    /// IPv6: someone else has it; it is not used.
    pub const DADFAILED: AddrFlags = AddrFlags(0x08);
    /// Not chosen as a source any more.
    pub const DEPRECATED: AddrFlags = AddrFlags(0x20);
    /// IPv6: not used yet, being asked for.
    pub const TENTATIVE: AddrFlags = AddrFlags(0x40);
    /// Does not expire.
    pub const PERMANENT: AddrFlags = AddrFlags(0x80);
    /// Makes no route to its network.
    pub const NOPREFIXROUTE: AddrFlags = AddrFlags(0x200);

    /// The raw `IFA_F_*` bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of these flags are set.
    pub fn contains(self, flags: AddrFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for AddrFlags {
    type Output = AddrFlags;

    fn bitor(self, other: AddrFlags) -> AddrFlags {
        AddrFlags(self.0 | other.0)
    }
}

impl fmt::Debug for AddrFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddrFlags({:#x})", self.0)
    }
}

// === impl Address ===

impl Address {
    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(IFADDRMSG)?;
        let [family, prefix, flags, scope, index @ ..] = fixed else { return None };
        let mut flags = AddrFlags(u32::from(*flags));
        let (mut address, mut local, mut label, mut protocol) = (None, None, None, 0);
        for (kind, value) in Attributes(attributes) {
            match kind {
                IFA_ADDRESS => address = ip(value),
                IFA_LOCAL => local = ip(value),
                IFA_LABEL => label = Some(text(value)),
                IFA_FLAGS => flags = AddrFlags(u32_at(value)?),
                IFA_PROTO => protocol = *value.first()?,
                _ => {}
            }
        }
        // With two different ones, IFA_LOCAL is ours and IFA_ADDRESS the other end's.
        let own = local.or(address)?;
        let peer = address.filter(|address| *address != own);
        if (*family == family::INET) != own.is_ipv4() {
            return None;
        }
        Some(Address {
            index: u32_at(index)?,
            net: IpNet::new(own, *prefix).ok()?,
            peer,
            flags,
            scope: Scope::from(*scope),
            protocol,
            label,
        })
    }
}

/// Gives a link an address (`ip addr add NET dev LINK`, with `brd +` for IPv4 networks that have a broadcast address).
/// Errors: `EEXIST`, the link has it; `ENODEV`, the link is gone; `EACCES`, IPv6 is disabled there.
pub fn add(index: u32, net: IpNet, flags: AddrFlags) -> Request<'static> {
    let nodad = if flags.contains(AddrFlags::NODAD) { " nodad" } else { "" };
    Request::new(format!("ip addr add {net} dev if{index}{nodad}"), addition(index, net, flags))
}

/// The same with a protocol (`ip addr add NET dev LINK proto NUMBER`), which a kernel before Linux 5.18 forgets.
pub fn add_of(protocol: u8, index: u32, net: IpNet, flags: AddrFlags) -> Request<'static> {
    let mut message = addition(index, net, flags);
    message.put(IFA_PROTO, &[protocol]);
    let nodad = if flags.contains(AddrFlags::NODAD) { " nodad" } else { "" };
    Request::new(format!("ip addr add {net} dev if{index}{nodad} proto {protocol}"), message)
}

/// Gives an address that a link has another protocol (`ip addr change NET dev LINK proto NUMBER`). A kernel before Linux 5.18 has none.
/// The kernel adds an address that is not there.
pub fn mark(protocol: u8, index: u32, net: IpNet, flags: AddrFlags) -> Request<'static> {
    let mut message = message(RTM_NEWADDR, NLM_F_REPLACE, index, net, flags);
    message.put(IFA_PROTO, &[protocol]);
    Request::new(format!("ip addr change {net} dev if{index} proto {protocol}"), message)
}

fn addition(index: u32, net: IpNet, flags: AddrFlags) -> Message {
    let mut message = message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, index, net, flags);
    if let IpNet::V4(v4) = net
        && v4.prefix_len() < 31
    {
        message.put(IFA_BROADCAST, &v4.broadcast().octets());
    }
    message
}

/// Takes an address from a link (`ip addr del NET dev LINK`). Errors: `EADDRNOTAVAIL`, it does not have it; `ENODEV`.
pub fn delete(index: u32, net: IpNet) -> Request<'static> {
    Request::new(format!("ip addr del {net} dev if{index}"), message(RTM_DELADDR, 0, index, net, AddrFlags::NONE))
}

fn message(kind: u16, how: u16, index: u32, net: IpNet, flags: AddrFlags) -> Message {
    let family = if net.addr().is_ipv4() { family::INET } else { family::INET6 };
    // As `ip` has it: what is a loopback address is valid on this machine only.
    let scope = if net.addr().is_loopback() { Scope::Host } else { Scope::Universe };
    let mut message = Message::new(kind, how, &header(family, net.prefix_len(), flags, scope, index));
    with_octets(net.addr(), |octets| {
        message.put(IFA_LOCAL, octets);
        // The header has room for the first eight only; this replaces them.
        if flags.bits() > 0xff {
            message.put_u32(IFA_FLAGS, flags.bits());
        }
        message.put(IFA_ADDRESS, octets);
    });
    message
}

/// `struct ifaddrmsg`.
fn header(family: u8, prefix: u8, flags: AddrFlags, scope: Scope, index: u32) -> [u8; IFADDRMSG] {
    let [a, b, c, d] = index.to_ne_bytes();
    let few = u8::try_from(flags.bits()).unwrap_or(0);
    [family, prefix, few, scope.into(), a, b, c, d]
}

impl Netlink {
    /// The addresses of a link, or of all (`ip addr show [dev LINK]`), IPv4 first. A link that is gone has none.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where addresses come and go too fast to read them.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>, ReadError> {
        let fixed = header(family::UNSPEC, 0, AddrFlags::NONE, Scope::Universe, index.unwrap_or(0));
        let question = Message::new(RTM_GETADDR, 0, &fixed);
        let mut addresses = self.dump("ip addr show", question, &[Errno::ENODEV], |m| {
            let address = (m.kind == RTM_NEWADDR).then(|| Address::parse(m)).flatten()?;
            index.is_none_or(|index| index == address.index).then_some(address)
        })?;
        addresses.sort_by_key(|address| address.net.addr().is_ipv6());
        Ok(addresses)
    }
}
