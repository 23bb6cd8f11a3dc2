//! The VLANs of a bridge's port (`bridge vlan`), of which a bridge takes notice that filters VLANs.
//!
//! On the wire each is a flags and a number; a range is two of them, of which the first says that it begins one and the
//! second that it ends it (net/bridge/br_netlink.c).

use std::fmt;

use super::header;
use crate::batch::{BatchError, Request};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use crate::uapi::rtnetlink::{RTEXT_FILTER_BRVLAN_COMPRESSED, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK};
use crate::wire::{Attributes, Message, Received, u16_at, u32_at};
use nix::errno::Errno;

/// VLANs in a row to which a port belongs, from 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortVlan {
    /// The first one.
    pub first: u16,
    /// The last one; the same for a single VLAN.
    pub last: u16,
    /// What comes in without a tag belongs to it (`pvid`): a single VLAN, one of a port.
    pub pvid: bool,
    /// What goes out has no tag (`untagged`).
    pub untagged: bool,
}

// === impl PortVlan ===

impl PortVlan {
    /// A row whose frames carry their tag.
    pub fn tagged(first: u16, last: u16) -> Self {
        PortVlan { first, last, pvid: false, untagged: false }
    }

    /// The one VLAN of frames without a tag, both ways (`pvid untagged`).
    pub fn native(vlan: u16) -> Self {
        PortVlan { first: vlan, last: vlan, pvid: true, untagged: true }
    }

    fn write(&self, spec: &mut Message) {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let flags = flag(self.pvid, BRIDGE_VLAN_INFO_PVID) | flag(self.untagged, BRIDGE_VLAN_INFO_UNTAGGED);
        let mut put = |flags: u16, vlan: u16| {
            let ([a, b], [c, d]) = (flags.to_ne_bytes(), vlan.to_ne_bytes());
            spec.put(IFLA_BRIDGE_VLAN_INFO, &[a, b, c, d]);
        };
        if self.first == self.last {
            return put(flags, self.first);
        }
        put(flags | BRIDGE_VLAN_INFO_RANGE_BEGIN, self.first);
        put(flags | BRIDGE_VLAN_INFO_RANGE_END, self.last);
    }

    /// All of a port, from `IFLA_AF_SPEC`. What ends a range that did not begin is a VLAN of its own.
    fn parse_all(spec: &[u8]) -> Vec<Self> {
        let (mut vlans, mut begun) = (Vec::new(), None);
        for (kind, value) in Attributes(spec) {
            let (Some(flags), Some(vlan)) = (u16_at(value), value.get(2..).and_then(u16_at)) else { continue };
            if kind != IFLA_BRIDGE_VLAN_INFO {
                continue;
            }
            if flags & BRIDGE_VLAN_INFO_RANGE_BEGIN != 0 {
                begun = Some(vlan);
                continue;
            }
            let first = begun.take().filter(|_| flags & BRIDGE_VLAN_INFO_RANGE_END != 0).unwrap_or(vlan);
            let has = |bit| flags & bit != 0;
            vlans.push(PortVlan { first, last: vlan, pvid: has(BRIDGE_VLAN_INFO_PVID), untagged: has(BRIDGE_VLAN_INFO_UNTAGGED) });
        }
        vlans
    }
}

impl fmt::Display for PortVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        f.write_str(if self.pvid { " pvid" } else { "" })?;
        f.write_str(if self.untagged { " untagged" } else { "" })
    }
}

/// Makes a bridge's port belong to VLANs (`bridge vlan add`); one that it belongs to already takes the new flags. Errors:
/// `EINVAL`, a number is none or a range has a `pvid`; `EOPNOTSUPP`, the link is no port or the kernel filters no VLANs.
pub fn add_vlans(index: u32, vlans: &[PortVlan]) -> Request<'static> {
    change(RTM_SETLINK, "add", index, vlans)
}

/// Takes VLANs from a bridge's port (`bridge vlan del`). It is no error if it does not belong to one. Errors: as
/// [`add_vlans`].
pub fn delete_vlans(index: u32, vlans: &[PortVlan]) -> Request<'static> {
    change(RTM_DELLINK, "del", index, vlans)
}

fn change(kind: u16, verb: &str, index: u32, vlans: &[PortVlan]) -> Request<'static> {
    let mut message = Message::new(kind, 0, &header(family::BRIDGE, index, 0, 0));
    message.nest(IFLA_AF_SPEC, |spec| vlans.iter().for_each(|vlan| vlan.write(spec)));
    let words: Vec<String> = vlans.iter().map(ToString::to_string).collect();
    Request::new(format!("bridge vlan {verb} dev if{index} vid {}", words.join(", ")), message)
}

/// Whether this kernel makes bridges that filter VLANs, asked without making one.
///
/// The request is for a bridge with a name that none can have, and a VLAN protocol that there is not: a kernel that filters
/// refuses the protocol (`EPROTONOSUPPORT`) before it looks at the name, one that does not knows no protocol to refuse.
///
/// # Errors
/// What the kernel says besides, such as `EPERM`.
pub fn probe_vlan_filtering(netlink: &mut Netlink) -> Result<bool, BatchError> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &header(family::UNSPEC, 0, 0, 0));
    message.put_str(IFLA_IFNAME, "/");
    message.nest(IFLA_LINKINFO, |info| {
        info.put(IFLA_INFO_KIND, b"bridge");
        info.nest(IFLA_INFO_DATA, |data| data.put_u16(IFLA_BR_VLAN_PROTOCOL, 0));
    });
    match netlink.send_one(Request::new("ask for bridges that filter VLANs".into(), message)) {
        Err(e) if e.errno() == Errno::EPROTONOSUPPORT => Ok(true),
        Err(e) if ![Errno::EINVAL, Errno::EOPNOTSUPP].contains(&e.errno()) => Err(e),
        _ => Ok(false),
    }
}

impl Netlink {
    /// The VLANs of a bridge's port, in order (`bridge vlan show dev NAME`); none if it is no port. Neighbours with the same
    /// flags are one row.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where ports come and go too fast to read them.
    pub fn port_vlans(&mut self, index: u32) -> Result<Vec<PortVlan>, ReadError> {
        // The kernel takes no port's index here: it answers for all.
        let mut message = Message::new(RTM_GETLINK, 0, &header(family::BRIDGE, 0, 0, 0));
        message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED);
        let of_port = |m: &Received<'_>| {
            let (fixed, attributes) = m.payload.split_at_checked(super::IFINFOMSG)?;
            let ours = m.kind == RTM_NEWLINK && fixed.first() == Some(&family::BRIDGE) && fixed.get(4..).and_then(u32_at) == Some(index);
            let spec = Attributes(attributes).find(|(kind, _)| *kind == IFLA_AF_SPEC);
            spec.filter(|_| ours).map(|(_, spec)| PortVlan::parse_all(spec))
        };
        let mut vlans: Vec<PortVlan> =
            self.dump("bridge vlan show", message, &[Errno::EOPNOTSUPP], of_port)?.into_iter().flatten().collect();
        vlans.sort_unstable();
        Ok(vlans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_read() {
        let vlans = [PortVlan::native(7), PortVlan::tagged(100, 199), PortVlan::tagged(300, 300)];
        let mut message = Message::new(RTM_SETLINK, 0, &[]);
        vlans.iter().for_each(|vlan| vlan.write(&mut message));
        let bytes = message.finish();
        assert_eq!(PortVlan::parse_all(&bytes[16..]), vlans);
        // flags 6: pvid, untagged; 8 and 16: begin and end
        let numbers: Vec<[u16; 2]> = Attributes(&bytes[16..]).map(|(_, v)| [u16_at(v).unwrap(), u16_at(&v[2..]).unwrap()]).collect();
        assert_eq!(numbers, [[6, 7], [8, 100], [16, 199], [0, 300]]);
        assert_eq!(vlans.map(|v| v.to_string()), ["7 pvid untagged", "100-199", "300"]);
    }

    #[test]
    fn half_a_range_is_one_vlan() {
        let read = |entries: &[(u16, u16)]| {
            let mut message = Message::new(RTM_SETLINK, 0, &[]);
            entries
                .iter()
                .for_each(|(flags, vlan)| message.put(IFLA_BRIDGE_VLAN_INFO, &[flags.to_ne_bytes(), vlan.to_ne_bytes()].concat()));
            message.put(IFLA_BRIDGE_VLAN_INFO, &[1]);
            PortVlan::parse_all(&message.finish()[16..])
        };
        assert_eq!(read(&[(16, 9)]), [PortVlan::tagged(9, 9)]);
        assert_eq!(read(&[(8, 4), (0, 9)]), [PortVlan::tagged(9, 9)]);
        assert_eq!(read(&[(8, 4)]), []);
    }
}
