//! The older kind of iptables, whose rules netlink does not show.

use std::io::ErrorKind;

use nix::errno::Errno;

use crate::Family;
use crate::netns::Inside;

/// The tables of that kind that somebody has used in this namespace (`/proc/net/ip_tables_names`); `iptables-legacy-save` shows
/// what is in them. None where the kernel has no such iptables.
///
/// # Errors
/// What the kernel says, if the list is there and cannot be read.
pub fn legacy_tables(_: &Inside, family: Family) -> Result<Vec<String>, Errno> {
    // That of this thread: /proc/net shows the main thread's namespace.
    let file = if family == Family::V4 { "ip_tables_names" } else { "ip6_tables_names" };
    match std::fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Errno::from_raw(e.raw_os_error().unwrap_or_default())),
    }
}
