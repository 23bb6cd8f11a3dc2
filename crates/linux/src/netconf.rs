//! Whether the kernel forwards packets (`ip netconf show dev all`): the value of a sysctl, by a message instead of a file.

use nix::errno::Errno;

use crate::batch::{Reply, Request};
use crate::netlink::{Netlink, ReadError};
use crate::route::Family;
use crate::uapi::netconf::*;
use crate::uapi::rtnetlink::RTM_GETNETCONF;
use crate::wire::{Attributes, Message, Received, i32_at};

/// Length of `struct netconfmsg` (linux/netconf.h), padded.
const NETCONFMSG: usize = 4;

/// `None` for what does not say it.
pub(crate) fn parse(message: &Received<'_>) -> Option<i32> {
    let (_, attributes) = message.payload.split_at_checked(NETCONFMSG)?;
    Attributes(attributes).find(|(kind, _)| *kind == NETCONFA_FORWARDING).and_then(|(_, value)| i32_at(value))
}

impl Netlink {
    /// The value of `net.ipv4.ip_forward` or `net.ipv6.conf.all.forwarding` in the socket's namespace; `None` where the kernel does not say
    /// it in this way.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn forwarding(&mut self, family: Family) -> Result<Option<i32>, ReadError> {
        let mut message = Message::new(RTM_GETNETCONF, 0, &[family.number(), 0, 0, 0]);
        message.put(NETCONFA_IFINDEX, &NETCONFA_IFINDEX_ALL.to_ne_bytes());
        // What kernels say that do not know the request, or not the family.
        let request = Request::new("ip netconf show dev all".to_owned(), message);
        match self.ask(request.tolerate(Errno::EOPNOTSUPP).tolerate(Errno::EINVAL))? {
            Some(Reply::Forwarding(value)) => Ok(Some(value)),
            _ => Ok(None),
        }
    }
}
