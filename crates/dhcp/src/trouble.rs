//! Why an exchange with a server led to nothing.

use std::net::IpAddr;

use linux::Errno;
use linux::packet::EtherAddr;

use crate::v4::terms::Useless;

/// Why an exchange led to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("the caller is gone")]
    Stopped,
    #[error("no DHCP server answered the {0}")]
    Silence(&'static str),
    #[error("the DHCP server {server} refused: {reason}")]
    Refused { server: String, reason: String },
    #[error("the DHCP server offered {address}, which {} uses already; sent a DHCPDECLINE", mac(station))]
    Conflict { address: IpAddr, station: EtherAddr },
    #[error(transparent)]
    Useless(#[from] Useless),
    #[error("there is no IPv6 link-local address to send from: check that IPv6 is enabled and that the other end of the link is up")]
    NoLinkLocal,
    #[error("{step}: {errno}")]
    Kernel { step: &'static str, errno: Errno },
}

/// What a server has written, for a person: one short line.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

/// A hardware address as it is written.
pub(crate) fn mac(station: &EtherAddr) -> String {
    cni::Mac::from_bytes(station).map(|m| m.to_string()).unwrap_or_default()
}

/// A closure for `map_err`.
pub(crate) fn kernel(step: &'static str) -> impl Fn(Errno) -> Trouble {
    move |errno| Trouble::Kernel { step, errno }
}

/// The same for what the standard library says.
pub(crate) fn io(step: &'static str) -> impl Fn(std::io::Error) -> Trouble {
    move |e| Trouble::Kernel { step, errno: Errno::from_raw(e.raw_os_error().unwrap_or(5)) }
}
