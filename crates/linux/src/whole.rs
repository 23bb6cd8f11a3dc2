//! Datagrams that nobody on the way may cut into fragments.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

use crate::route::Family;

/// Makes a socket send each datagram whole or not at all, up to its link's MTU, whatever the kernel has learnt of the path (`IP_PMTUDISC_PROBE`,
/// ip(7)): one that is longer is refused with `EMSGSIZE`.
///
/// # Errors
/// What setsockopt(2) says.
pub fn send_whole(socket: impl AsFd, family: Family) -> Result<(), Errno> {
    let (level, option) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    let value: libc::c_int = libc::IP_PMTUDISC_PROBE;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = socket.as_fd();
    // SAFETY: the descriptor is open for the call, which reads `length` bytes of `value`.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    Errno::result(done).map(drop)
}
