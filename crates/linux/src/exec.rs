//! This process becomes a program inside a namespace, as `ip netns exec` has it.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
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

/// The path of the file that this process executes, as it was asked for (`AT_EXECFN`, getauxval(3)). Another file may be there by now.
pub fn executed_as() -> Option<&'static Path> {
    // SAFETY: the kernel puts the text above the stack of the process, where it stays; a null pointer says that there is none.
    let path = unsafe {
        let text = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    path.map(|path| Path::new(OsStr::from_bytes(path.to_bytes())))
}

fn own_sys() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)?;
    let _ = umount2("/sys", MntFlags::MNT_DETACH);
    mount(Some("netloom"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
}
