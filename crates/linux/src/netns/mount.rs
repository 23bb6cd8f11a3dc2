//! The mounts that keep a namespace alive without a process, laid out as `ip netns` lays them out.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::{Netns, NetnsError, OWN, errno, on_thread};

/// Two namespaces mounted over each other, and more, at one path: so many are unmounted.
const STACKED: usize = 16;

pub(super) fn create(path: &Path) -> Result<Netns, NetnsError> {
    let failed = |step, errno| NetnsError::Failed { step, path: path.to_owned(), errno };
    let folder =
        path.parent().filter(|p| !p.as_os_str().is_empty()).ok_or_else(|| failed("create a network namespace at", Errno::EINVAL))?;
    let _lock = share(folder)?;
    claim(path)?;
    crate::crash_point!("netns-claimed");
    let made = on_thread(path, || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed("create a network namespace (needs CAP_SYS_ADMIN) for", e))?;
        mount(Some(OWN), path, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|e| failed("mount the network namespace at", e))?;
        crate::crash_point!("netns-mounted");
        Netns::open(path)?.ok_or_else(|| failed("open the new network namespace at", Errno::ENOENT))
    });
    let made = made.map_err(NetnsError::from).flatten();
    if made.is_err() {
        // Nothing is to be kept, and the first error tells more than this one's.
        let _ = remove(path);
    }
    made
}

/// Makes the folder a shared mount and holds the lock that `ip netns add` holds meanwhile: two that do this at once would
/// mount the folder over itself twice, and hide each other's namespaces.
fn share(folder: &Path) -> Result<Flock<File>, NetnsError> {
    let failed = |step, errno| NetnsError::Failed { step, path: folder.to_owned(), errno };
    DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|e| failed("create the folder", errno(&e)))?;
    let handle = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(folder)
        .map_err(|e| failed("open the folder", errno(&e)))?;
    let lock = Flock::lock(handle, FlockArg::LockExclusive).map_err(|(_, e)| failed("lock the folder", e))?;
    let none = None::<&str>;
    let share = || mount(Some(""), folder, Some("none"), MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    match share() {
        // No mount point yet.
        Err(Errno::EINVAL) => {
            mount(Some(folder), folder, Some("none"), MsFlags::MS_BIND | MsFlags::MS_REC, none)
                .map_err(|e| failed("mount onto itself the folder", e))?;
            crate::crash_point!("netns-folder-mounted");
            share().map_err(|e| failed("share the mount of the folder", e))?;
        }
        shared => shared.map_err(|e| failed("share the mount of the folder", e))?,
    }
    Ok(lock)
}

/// Makes the empty file on which the namespace is mounted, or takes over one that was left without its mount.
fn claim(path: &Path) -> Result<(), NetnsError> {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    match File::options().write(true).create_new(true).mode(0o000).custom_flags(flags).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) && is_remnant(path) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Err(NetnsError::Exists { path: path.to_owned() }),
        Err(e) => Err(NetnsError::Failed { step: "create the file", path: path.to_owned(), errno: errno(&e) }),
    }
}

/// Whether the path is such a file without its mount: empty, regular, without permissions. (A namespace's file has some.)
fn is_remnant(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() == 0 && m.permissions().mode() & 0o777 == 0)
}

pub(super) fn remove(path: &Path) -> Result<(), NetnsError> {
    let failed = |step, errno| NetnsError::Failed { step, path: path.to_owned(), errno };
    // Killed after the first step, the second is what remains to be done next time. Unmounting goes first: a mounted file
    // cannot be deleted in this mount namespace, and deleting it in another would unmount it there only.
    let mut unmounted = false;
    for _ in 0..STACKED {
        if is_namespace(path)? {
            match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => unmounted = true,
                Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(e) => return Err(failed("unmount the network namespace", e)),
            }
        }
        match fs::symlink_metadata(path) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(e) => return Err(failed("look at", errno(&e))),
            Ok(status) if unmounted && status.is_file() && status.len() == 0 => {}
            Ok(_) if is_remnant(path) => {}
            Ok(_) => return Err(NetnsError::NotANamespace { path: path.to_owned() }),
        }
        crate::crash_point!("netns-unmounted");
        match fs::remove_file(path) {
            Ok(()) => {
                crate::crash_point!("netns-removed");
                return Ok(());
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            // Something is still mounted on it, here.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(failed("delete", errno(&e))),
        }
    }
    Err(failed("delete (too many mounts over each other)", Errno::EBUSY))
}

/// Whether a network namespace is mounted there. The check keeps a wrong path from losing its mount.
fn is_namespace(path: &Path) -> Result<bool, NetnsError> {
    match Netns::open(path) {
        Ok(found) => Ok(found.is_some()),
        Err(NetnsError::NotANamespace { .. }) => Ok(false),
        // A remnant has no permissions; only root's capabilities open it.
        Err(NetnsError::Failed { errno: Errno::EACCES, .. }) => Ok(false),
        Err(e) => Err(e),
    }
}
