//! Virtual functions of a card (SR-IOV), as its physical function keeps them: the lines `vf N` of `ip link show`.
//!
//! What is set here holds for whoever drives the virtual function, be it a container or a virtual machine, and cannot be changed from there.

use cni::Mac;

use super::{Errno, Netlink, ReadError, header};
use crate::batch::{Reply, Request};
use crate::uapi::family;
use crate::uapi::link::*;
use crate::uapi::rtnetlink::*;
use crate::wire::{Attributes, Message, u32_at};

/// Length of a hardware address in `struct ifla_vf_mac` (linux/if_link.h).
const VF_MAC: usize = 32;

/// What a card has for one of its virtual functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Its number on the card, from 0.
    pub number: u32,
    /// The six bytes of its hardware address; all zero: its driver chooses one.
    pub mac: [u8; 6],
    /// The VLAN that the card tags all of its packets with; 0: none.
    pub vlan: u16,
    /// The priority in these tags, 0 to 7.
    pub qos: u8,
}

// === impl VirtualFunction ===

impl VirtualFunction {
    /// Of `IFLA_VF_INFO`; `None` for what has no number.
    pub(super) fn parse(info: &[u8]) -> Option<Self> {
        let mut function = None;
        for (kind, value) in Attributes(info) {
            let one = || VirtualFunction { number: u32_at(value).unwrap_or_default(), mac: [0; 6], vlan: 0, qos: 0 };
            let field = |at: usize| value.get(at..).and_then(u32_at).unwrap_or_default();
            match kind {
                IFLA_VF_MAC => {
                    let mac = value.get(4..10).and_then(|mac| mac.try_into().ok())?;
                    function.get_or_insert_with(one).mac = mac;
                }
                IFLA_VF_VLAN => {
                    let function = function.get_or_insert_with(one);
                    (function.vlan, function.qos) = (u16::try_from(field(4)).ok()?, u8::try_from(field(8)).ok()?);
                }
                _ => {}
            }
        }
        function
    }
}

/// Sets the hardware address of a virtual function (`ip link set dev PF vf N mac MAC`). `index` is the physical function's. Error: `EOPNOTSUPP`, it has
/// no virtual functions; `EINVAL`, not this one.
pub fn set_vf_mac(index: u32, number: u32, mac: [u8; 6]) -> Request<'static> {
    let mut value = [0; 4 + VF_MAC];
    value.iter_mut().zip(number.to_ne_bytes()).for_each(|(to, from)| *to = from);
    value.iter_mut().skip(4).zip(mac).for_each(|(to, from)| *to = from);
    let shown = Mac::from_bytes(&mac).map(|mac| mac.to_string()).unwrap_or_default();
    set(index, IFLA_VF_MAC, &value, format!("ip link set dev if{index} vf {number} mac {shown}"))
}

/// Sets the VLAN of a virtual function, and the priority in its tags (`ip link set dev PF vf N vlan VLAN qos QOS`). Errors: as [`set_vf_mac`].
pub fn set_vf_vlan(index: u32, number: u32, vlan: u16, qos: u8) -> Request<'static> {
    let value: Vec<u8> = [number, vlan.into(), qos.into()].iter().flat_map(|number| number.to_ne_bytes()).collect();
    set(index, IFLA_VF_VLAN, &value, format!("ip link set dev if{index} vf {number} vlan {vlan} qos {qos}"))
}

fn set(index: u32, attribute: u16, value: &[u8], words: String) -> Request<'static> {
    let mut message = Message::new(RTM_SETLINK, 0, &header(family::UNSPEC, index, 0, 0));
    message.nest(IFLA_VFINFO_LIST, |list| list.nest(IFLA_VF_INFO, |info| info.put(attribute, value)));
    Request::new(words, message)
}

impl Netlink {
    /// What a card has for its virtual functions (`ip link show dev PF`); `index` is the physical function's. None where it has none.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn virtual_functions(&mut self, index: u32) -> Result<Vec<VirtualFunction>, ReadError> {
        let mut message = Message::new(RTM_GETLINK, 0, &header(family::UNSPEC, index, 0, 0));
        message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS);
        let request = Request::new(format!("ip link show dev if{index}"), message).tolerate(Errno::ENODEV);
        Ok(match self.ask(request)? {
            Some(Reply::Link(link)) => link.virtual_functions,
            _ => Vec::new(),
        })
    }
}
