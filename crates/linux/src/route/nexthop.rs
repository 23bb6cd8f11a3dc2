//! Next hops that routes name by number (`ip nexthop`). Where `net.ipv4.nexthop_compat_mode` is 0, the kernel tells of such a route no link
//! and no router but the number.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Hop, Route};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::rtnetlink::*;
use crate::wire::{Attributes, Message, Received, ip, u32_at};

/// Length of `struct nhmsg` (linux/nexthop.h).
const NHMSG: usize = 8;
/// Length of `struct nexthop_grp`.
const NEXTHOP_GRP: usize = 8;

/// One object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NextHop {
    id: u32,
    gateway: Option<IpAddr>,
    oif: Option<u32>,
    onlink: bool,
    /// Of a group: each member, and its share from 1 on.
    group: Vec<(u32, u16)>,
}

// === impl NextHop ===

impl NextHop {
    fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(NHMSG)?;
        let flags = u32_at(fixed.get(4..)?)?;
        let mut object = NextHop { onlink: flags & u32::from(RTNH_F_ONLINK) != 0, ..NextHop::default() };
        for (kind, value) in Attributes(attributes) {
            match kind {
                NHA_ID => object.id = u32_at(value)?,
                NHA_OIF => object.oif = u32_at(value),
                NHA_GATEWAY => object.gateway = ip(value),
                NHA_GROUP => object.group = value.chunks_exact(NEXTHOP_GRP).filter_map(member).collect(),
                _ => {}
            }
        }
        Some(object)
    }

    fn hop(&self, weight: u16) -> Option<Hop> {
        Some(Hop { gateway: self.gateway, oif: self.oif?, weight, onlink: self.onlink })
    }
}

/// `struct nexthop_grp`: the object's number, and its share less one in two bytes, the lower one first.
fn member(record: &[u8]) -> Option<(u32, u16)> {
    let (id, shares) = record.split_first_chunk()?;
    let [low, high, ..] = shares else { return None };
    Some((u32::from_ne_bytes(*id), u16::from_le_bytes([*low, *high]).saturating_add(1)))
}

/// Gives routes the ways of the objects that they name, if one does. One that has just gone leaves a route without any.
///
/// # Errors
/// As [`Netlink::routes`].
pub(super) fn resolve(netlink: &mut Netlink, routes: &mut [Route]) -> Result<bool, ReadError> {
    if routes.iter().all(|route| route.nexthop.is_none()) {
        return Ok(false);
    }
    let question = Message::new(RTM_GETNEXTHOP, 0, &[0; NHMSG]);
    let read = |message: &Received<'_>| (message.kind == RTM_NEWNEXTHOP).then(|| NextHop::parse(message)).flatten();
    let objects = netlink.dump("ip nexthop show", question, &[], read)?;
    let objects: HashMap<u32, NextHop> = objects.into_iter().map(|object| (object.id, object)).collect();
    for route in routes {
        let Some(object) = route.nexthop.take().and_then(|id| objects.get(&id)) else { continue };
        let members = object.group.iter().filter_map(|(id, weight)| objects.get(id)?.hop(*weight));
        route.hops = members.collect();
        if object.group.is_empty() {
            (route.gateway, route.oif, route.onlink) = (object.gateway, object.oif, object.onlink && object.gateway.is_some());
        }
    }
    Ok(true)
}
