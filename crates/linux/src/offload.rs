//! What a device computes for the kernel: of all of it, the checksums of what it sends (`ethtool -K DEVICE tx on|off`).
//!
//! A veth computes none: it passes packets on without one, which the kernel at the other end knows. A reader of raw frames does not.

use std::os::fd::AsRawFd;

use cni::IfName;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::netns::Inside;

/// linux/ethtool.h
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;

/// `struct ethtool_value`: what is asked, and a number that goes in or comes out.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// The setting could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {step} the checksum offload of {name}: {errno}")]
pub struct OffloadError {
    /// The device.
    pub name: IfName,
    /// What was to be done.
    pub step: &'static str,
    /// What the kernel said: `ENODEV`, or `EOPNOTSUPP` of a device that has no such setting.
    pub errno: Errno,
}

/// Whether a device sends packets without their checksums (`ethtool -k DEVICE`: tx-checksumming).
///
/// # Errors
/// [`OffloadError`]
pub fn tx_checksum(inside: &Inside, name: &IfName) -> Result<bool, OffloadError> {
    let value = ask(inside, name, EthtoolValue { cmd: ETHTOOL_GTXCSUM, data: 0 });
    value.map(|value| value != 0).map_err(|errno| OffloadError { name: name.clone(), step: "read", errno })
}

/// `ethtool -K DEVICE tx on|off`. Without it the kernel turns off segmentation offload as well, which needs it.
///
/// # Errors
/// [`OffloadError`]
pub fn set_tx_checksum(inside: &Inside, name: &IfName, on: bool) -> Result<(), OffloadError> {
    let value = ask(inside, name, EthtoolValue { cmd: ETHTOOL_STXCSUM, data: on.into() });
    value.map(drop).map_err(|errno| OffloadError { name: name.clone(), step: if on { "turn on" } else { "turn off" }, errno })
}

fn ask(_: &Inside, name: &IfName, mut value: EthtoolValue) -> Result<u32, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    // A name has 15 bytes at most: the last one stays 0.
    ifr_name.iter_mut().zip(name.as_str().bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    let data: *mut EthtoolValue = &raw mut value;
    let mut request = libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data.cast() } };
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, whose `ifr_data` points to a `struct ethtool_value`; the commands above read or write
    // that one and no more. Both live here until the call is over.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) };
    Errno::result(done).map(|_| value.data)
}
