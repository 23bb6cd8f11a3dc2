//! `/proc/sys` and `/sys` in a container: its runtime mounts them read-only.

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};

const SYSCTLS: &str = "/proc/sys";
const SYSFS: &str = "/sys";

/// Makes sysctls writable for this process and those that share its mount namespace, where a container's runtime has mounted
/// them read-only; whether that was so. What may be written the kernel decides all the same, by the network namespace and
/// the capabilities of who writes. As `mount -o remount,bind,rw /proc/sys`.
///
/// # Errors
/// What the kernel says: `EPERM` without `CAP_SYS_ADMIN`, `EACCES` where a security module forbids it.
pub fn make_sysctls_writable() -> Result<bool, Errno> {
    make_writable(SYSCTLS)
}

/// The same for `/sys`, where drivers of devices are chosen. As `mount -o remount,bind,rw /sys`.
///
/// # Errors
/// As [`make_sysctls_writable`].
pub(crate) fn make_sysfs_writable() -> Result<bool, Errno> {
    make_writable(SYSFS)
}

fn make_writable(path: &str) -> Result<bool, Errno> {
    let flags = statvfs(path)?.flags();
    if !flags.contains(FsFlags::ST_RDONLY) {
        return Ok(false);
    }
    // The mount's other flags stay: who takes them away as well is refused in a user namespace. Those of access times stay
    // by themselves where none is named.
    let others =
        [(FsFlags::ST_NOSUID, MsFlags::MS_NOSUID), (FsFlags::ST_NODEV, MsFlags::MS_NODEV), (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC)];
    let kept = others.into_iter().filter(|(is, _)| flags.contains(*is)).fold(MsFlags::empty(), |kept, (_, flag)| kept | flag);
    let none: Option<&str> = None;
    mount(none, path, none, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | kept, none)?;
    Ok(true)
}
