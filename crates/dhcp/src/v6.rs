//! DHCPv6: RFC 8415, stateful addresses only. Routes come from router advertisements.

pub(crate) mod client;
mod grant;
pub(crate) mod message;
pub(crate) mod neighbour;
pub(crate) mod terms;
