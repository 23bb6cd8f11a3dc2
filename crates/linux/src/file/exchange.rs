//! Names that change in one step, for which nix has nothing with musl.

use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;
use nix::libc;

/// Each of two files gets the other one's name, at once (`renameat2(2)`, `RENAME_EXCHANGE`).
///
/// # Errors
/// What the kernel says: `ENOENT` if one is not there, `EINVAL` on a file system that cannot do it.
pub(super) fn exchange(a: &Path, b: &Path) -> Result<(), Errno> {
    rename(a, b, libc::RENAME_EXCHANGE)
}

/// Gives a file another name that nothing has (`renameat2(2)`, `RENAME_NOREPLACE`).
///
/// # Errors
/// What the kernel says: `EEXIST` if something has the name, `EINVAL` on a file system that cannot do it.
pub fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    rename(from, to, libc::RENAME_NOREPLACE)
}

fn rename(a: &Path, b: &Path, how: libc::c_uint) -> Result<(), Errno> {
    let done = a.with_nix_path(|a| {
        b.with_nix_path(|b| {
            // SAFETY: both strings end with a zero and live until the call returns, and the kernel writes to neither.
            unsafe { libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), how) }
        })
    })??;
    Errno::result(done).map(drop)
}
