//! DHCPv4: RFC 2131, 2132, 3442.

pub(crate) mod client;
pub(crate) mod datagram;
mod grant;
pub(crate) mod message;
pub(crate) mod option;
pub(crate) mod terms;
