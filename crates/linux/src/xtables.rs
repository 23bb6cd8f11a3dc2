//! The older kind of iptables, whose rules netlink does not show.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::Family;
use crate::netns::Inside;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const INFO: libc::c_int = 64;
const ENTRIES: libc::c_int = 65;
/// Bytes of a table's name (`XT_TABLE_MAXNAMELEN`).
const NAME: usize = 32;
/// Hooks (`NF_INET_NUMHOOKS`).
const HOOKS: usize = 5;
/// Words of 32 bits that `struct ipt_getinfo` has behind the name: which hooks are valid, each hook's first entry, each one's policy, the number of
/// entries, and the bytes of them.
const WORDS: usize = 1 + HOOKS + HOOKS + 2;
/// The most bytes of a table that are looked at for its policies.
const MOST: usize = 16 << 20;
/// The verdict DROP, as a standard target has it: `-NF_DROP - 1`.
const DROP: i32 = -1;

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

/// Those of [`legacy_tables`] that do something: they have rules, or a policy that drops. Who lists an empty table makes it be there.
///
/// # Errors
/// What the kernel says.
pub fn legacy_tables_in_use(inside: &Inside, family: Family) -> Result<Vec<String>, Errno> {
    let mut used = Vec::new();
    for name in legacy_tables(inside, family)? {
        if is_in_use(inside, family, &name)? {
            used.push(name);
        }
    }
    Ok(used)
}

/// As many of its entries are policies as it has hooks, and one is the end.
fn is_in_use(inside: &Inside, family: Family, table: &str) -> Result<bool, Errno> {
    let mut info = vec![0; NAME + 4 * WORDS];
    put_name(&mut info, table);
    asked(inside, family, INFO, &mut info)?;
    let word = |number: usize| u32_at(&info, NAME + 4 * number).unwrap_or(0);
    let (valid, entries, size) = (word(0), word(1 + 2 * HOOKS), usize::try_from(word(2 + 2 * HOOKS)).unwrap_or(usize::MAX));
    if entries > valid.count_ones() + 1 || size > MOST {
        return Ok(true);
    }
    // The name, the size, and at a multiple of eight the entries.
    let head = NAME + 8;
    let mut all = vec![0; head + size];
    put_name(&mut all, table);
    all.get_mut(NAME..NAME + 4).into_iter().for_each(|at| at.copy_from_slice(&word(2 + 2 * HOOKS).to_ne_bytes()));
    match asked(inside, family, ENTRIES, &mut all) {
        Ok(()) => {}
        // Somebody has changed it since: it is in use.
        Err(Errno::EAGAIN) => return Ok(true),
        Err(e) => return Err(e),
    }
    let policies = (0..HOOKS).filter(|hook| valid & (1 << hook) != 0).map(|hook| word(1 + HOOKS + hook));
    let verdict = |offset: u32| {
        let entry = head + usize::try_from(offset).ok()?;
        // `struct ipt_entry` and `struct ip6t_entry`: the condition, a word, and where in the entry its target is: size, name and revision
        // come first there, then the verdict.
        let condition = if family == Family::V4 { 84 } else { 136 };
        let target = all.get(entry + condition + 4..entry + condition + 6)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))?;
        u32_at(&all, entry + usize::from(target) + 32).map(u32::cast_signed)
    };
    Ok(policies.map(verdict).any(|verdict| verdict.is_none_or(|verdict| verdict == DROP)))
}

fn put_name(to: &mut [u8], name: &str) {
    to.iter_mut().zip(name.bytes().take(NAME - 1)).for_each(|(to, byte)| *to = byte);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Asks the kernel about a table, as `iptables-legacy` does.
fn asked(_: &Inside, family: Family, option: libc::c_int, about: &mut [u8]) -> Result<(), Errno> {
    let (domain, level) =
        if family == Family::V4 { (AddressFamily::Inet, libc::IPPROTO_IP) } else { (AddressFamily::Inet6, libc::IPPROTO_IPV6) };
    let socket = socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut length = libc::socklen_t::try_from(about.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the descriptor is open for the call, which writes at most `length` bytes to `about`, and both outlive it.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, about.as_mut_ptr().cast(), &mut length) };
    Errno::result(done).map(drop)
}
