//! This process becomes a program inside a namespace, as `ip netns exec` has it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::Netns;

/// Why this process could not become the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// No command was given.
    #[error("no command was given")]
    Empty,
    /// The namespace could not be entered.
    #[error("enter {}: {errno}", netns.display())]
    Enter {
        /// Its path.
        netns: std::path::PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The program could not be started.
    #[error("run {}: {errno}{}", command.to_string_lossy(), if *errno == Errno::ENOENT { "; check that it is installed and on PATH" } else { "" })]
    Start {
        /// The program.
        command: OsString,
        /// Why.
        errno: Errno,
    },
}

/// Enters a network namespace for good and becomes `command`. `/sys` shows that namespace, in a mount namespace of the
/// program's own, where that is possible. Returns only if it failed.
///
/// To be called while the process has one thread: it is the calling thread that enters.
pub fn exec_in(netns: &Netns, command: &[OsString]) -> ExecError {
    let Some((program, args)) = command.split_first() else { return ExecError::Empty };
    if let Err(errno) = setns(netns, CloneFlags::CLONE_NEWNET) {
        return ExecError::Enter { netns: netns.path().to_owned(), errno };
    }
    // Programs that look into /sys/class/net would see the namespace that /sys was mounted in. Without the right to mount
    // they still do; everything else works.
    let _ = own_sys();
    let e = Command::new(program).args(args).exec();
    ExecError::Start { command: program.clone(), errno: Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)) }
}

fn own_sys() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)?;
    let _ = umount2("/sys", MntFlags::MNT_DETACH);
    mount(Some("netloom"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
}
