//! What a link's neighbours are known by (`ip neigh`).

use std::net::IpAddr;

use crate::batch::Request;
use crate::uapi::family;
use crate::uapi::neighbour::{NDA_DST, NUD_PERMANENT};
use crate::uapi::rtnetlink::RTM_DELNEIGH;
use crate::wire::{Message, with_octets};

/// Length of `struct ndmsg`.
const NDMSG: usize = 12;

/// Forgets which hardware address a neighbour has (`ip neigh del ADDRESS dev LINK`): it is asked for again. Errors: `ENOENT`,
/// nothing was known; `ENODEV`, the link is gone.
pub fn delete(index: u32, address: IpAddr) -> Request<'static> {
    let family = if address.is_ipv4() { family::INET } else { family::INET6 };
    let ([a, b, c, d], [state, more]) = (index.to_ne_bytes(), NUD_PERMANENT.to_ne_bytes());
    // The kernel does not look at the state; `ip` sends this one.
    let header: [u8; NDMSG] = [family, 0, 0, 0, a, b, c, d, state, more, 0, 0];
    let mut message = Message::new(RTM_DELNEIGH, 0, &header);
    with_octets(address, |octets| message.put(NDA_DST, octets));
    Request::new(format!("ip neigh del {address} dev if{index}"), message)
}
