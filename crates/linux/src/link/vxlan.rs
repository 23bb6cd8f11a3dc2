//! What sets a vxlan apart: written at its creation, read back, changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header;
use crate::batch::Request;
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::rtnetlink::RTM_NEWLINK;
use crate::wire::{Attributes, Message, ip, u32_at, with_octets};

/// A vxlan's properties, as far as anybody here asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// The network's number (VNI), of 24 bits. The kernel does not change it.
    pub vni: u32,
    /// The UDP port that it sends to and receives on. The kernel does not change it.
    pub port: u16,
    /// The address that its packets come from. Its family is that of all endpoints. `None` when read: any address.
    pub local: Option<IpAddr>,
    /// Where frames go for which there is no forwarding entry (`remote`, `group`); `None`: nowhere.
    pub remote: Option<IpAddr>,
    /// Index of the link that its packets leave by (`dev`); `None`: routes decide.
    pub link: Option<u32>,
    /// Whether it learns from packets behind which endpoint their senders are.
    pub learning: bool,
}

// === impl Vxlan ===

impl Vxlan {
    /// `None` without a VNI or a port.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let (mut vni, mut port) = (None, None);
        let mut vxlan = Vxlan { vni: 0, port: 0, local: None, remote: None, link: None, learning: false };
        for (kind, value) in Attributes(data) {
            match kind {
                IFLA_VXLAN_ID => vni = u32_at(value),
                IFLA_VXLAN_PORT => port = value.first_chunk().copied().map(u16::from_be_bytes),
                IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => vxlan.local = ip(value).filter(|address| !address.is_unspecified()),
                IFLA_VXLAN_GROUP | IFLA_VXLAN_GROUP6 => vxlan.remote = ip(value).filter(|address| !address.is_unspecified()),
                IFLA_VXLAN_LINK => vxlan.link = u32_at(value).filter(|index| *index != 0),
                IFLA_VXLAN_LEARNING => vxlan.learning = value.first().is_some_and(|byte| *byte != 0),
                _ => {}
            }
        }
        Some(Vxlan { vni: vni?, port: port?, ..vxlan })
    }

    /// In the order of `ip`.
    pub(super) fn write(&self, data: &mut Message) {
        data.put_u32(IFLA_VXLAN_ID, self.vni);
        if let Some(link) = self.link {
            data.put_u32(IFLA_VXLAN_LINK, link);
        }
        if let Some(local) = self.local {
            put_local(data, local);
        }
        if let Some(remote) = self.remote {
            put_remote(data, remote);
        }
        data.put_u8(IFLA_VXLAN_LEARNING, self.learning.into());
        // In network order, unlike most numbers of netlink.
        data.put(IFLA_VXLAN_PORT, &self.port.to_be_bytes());
    }
}

/// Makes a vxlan send from `local` (if given), learn or not, by `link` (if given) and to `remote` or, for `None`, to no endpoint in
/// particular (`ip link set type vxlan ...`). VNI and port stay, and so does a link once it has one: the kernel takes another, but not none
/// (`vxlan_config_apply` in drivers/net/vxlan/vxlan_core.c). Errors: `EOPNOTSUPP`, `local` is of the other family.
pub fn set_vxlan(index: u32, vxlan: &Vxlan) -> Request<'static> {
    let mut message = Message::new(RTM_NEWLINK, 0, &header(family::UNSPEC, index, 0, 0));
    let nowhere = vxlan.local.map(|local| match local {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    });
    message.nest(IFLA_LINKINFO, |info| {
        info.put(IFLA_INFO_KIND, b"vxlan");
        info.nest(IFLA_INFO_DATA, |data| {
            if let Some(link) = vxlan.link {
                data.put_u32(IFLA_VXLAN_LINK, link);
            }
            if let Some(local) = vxlan.local {
                put_local(data, local);
            }
            if let Some(remote) = vxlan.remote.or(nowhere) {
                put_remote(data, remote);
            }
            data.put_u8(IFLA_VXLAN_LEARNING, vxlan.learning.into());
        });
    });
    let local = vxlan.local.map(|local| format!(" local {local}")).unwrap_or_default();
    let learning = if vxlan.learning { "learning" } else { "nolearning" };
    Request::new(format!("ip link set dev if{index} type vxlan{local} {learning}"), message)
}

fn put_local(data: &mut Message, local: IpAddr) {
    with_octets(local, |octets| data.put(if local.is_ipv4() { IFLA_VXLAN_LOCAL } else { IFLA_VXLAN_LOCAL6 }, octets));
}

fn put_remote(data: &mut Message, remote: IpAddr) {
    with_octets(remote, |octets| data.put(if remote.is_ipv4() { IFLA_VXLAN_GROUP } else { IFLA_VXLAN_GROUP6 }, octets));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let v4 = Vxlan { vni: 4096, port: 8472, local: Some([192, 0, 2, 1].into()), remote: None, link: None, learning: false };
        let remote = Some("2001:db8::9".parse().unwrap());
        let v6 = Vxlan { local: Some("2001:db8::1".parse().unwrap()), remote, link: Some(7), learning: true, ..v4 };
        for vxlan in [v4, v6] {
            let mut message = Message::new(0, 0, &[]);
            vxlan.write(&mut message);
            let bytes = message.finish();
            assert_eq!(Vxlan::parse(&bytes[crate::wire::HEADER..]), Some(vxlan));
            for cut in 0..bytes.len() - crate::wire::HEADER {
                let _ = Vxlan::parse(&bytes[crate::wire::HEADER..][..cut]);
            }
        }
    }
}
