//! The numbers that a namespace has for others (`ip netns list-id`): by them [`Link::link_netnsid`](crate::Link) says where the
//! other end of a pair is.

use std::os::fd::{AsFd, AsRawFd};

use crate::batch::{Reply, Request};
use crate::netlink::{Netlink, ReadError};
use crate::netns::Netns;
use crate::uapi::rtnetlink::*;
use crate::wire::{Attributes, Message, Received, i32_at};

/// Length of `struct rtgenmsg` (linux/rtnetlink.h), padded.
const RTGENMSG: usize = 4;

/// `None` for what tells no number.
pub(crate) fn parse(message: &Received<'_>) -> Option<i32> {
    let (_, attributes) = message.payload.split_at_checked(RTGENMSG)?;
    Attributes(attributes).find(|(kind, _)| *kind == NETNSA_NSID).and_then(|(_, value)| i32_at(value))
}

impl Netlink {
    /// The number that the socket's namespace has for another one; `None` if it has none, as where no link leads there.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn number_of(&mut self, netns: &Netns) -> Result<Option<i32>, ReadError> {
        let mut message = Message::new(RTM_GETNSID, 0, &[0; RTGENMSG]);
        message.put(NETNSA_FD, &netns.as_fd().as_raw_fd().to_ne_bytes());
        match self.ask(Request::new("ip netns list-id".to_owned(), message))? {
            // What has none is -1 (`NETNSA_NSID_NOT_ASSIGNED`).
            Some(Reply::NetnsNumber(number)) => Ok(Some(number).filter(|n| *n >= 0)),
            _ => Ok(None),
        }
    }
}
