//! Sysctls, as files below `/proc/sys`.
//!
//! Which namespace's `net` is seen below `/proc/sys` is decided by the thread that resolves the path: this is why reading
//! and writing asks for an [`Inside`]. (`/proc/sys` is not below `/proc/PID`, unlike `/proc/net`, which always shows the
//! main thread's namespace.)

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;

use crate::netns::Inside;

/// A sysctl, by the components of its name: `["net", "ipv6", "conf", "eth0.7", "accept_dad"]`. An interface name may hold
/// dots, so the usual dotted form says less.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysctl {
    path: PathBuf,
}

/// A sysctl could not be named, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// A component that would lead elsewhere.
    #[error("{component:?} cannot be part of a sysctl's name (not empty, not '.' or '..', without '/')")]
    Component {
        /// What was given.
        component: String,
    },
    /// No component at all.
    #[error("a sysctl without a name")]
    Empty,
    /// It cannot be read. `ENOENT`: the kernel does not have it, or there is no such interface.
    #[error("cannot read {}: {errno}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// It cannot be written. `EINVAL`: no value for it; `EROFS`: /proc/sys is mounted read-only.
    #[error("cannot write {value:?} to {}: {errno}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// What the kernel said.
        errno: Errno,
    },
}

// === impl SysctlError ===

impl SysctlError {
    /// What the kernel said; `EINVAL` where it was not asked.
    pub fn errno(&self) -> Errno {
        match self {
            SysctlError::Component { .. } | SysctlError::Empty => Errno::EINVAL,
            SysctlError::Read { errno, .. } | SysctlError::Write { errno, .. } => *errno,
        }
    }
}

// === impl Sysctl ===

impl Sysctl {
    /// Checks and joins the components.
    ///
    /// # Errors
    /// [`SysctlError::Component`] for one that is empty, `.`, `..` or holds `/` or NUL; [`SysctlError::Empty`] for none.
    pub fn new<'a>(components: impl IntoIterator<Item = &'a str>) -> Result<Self, SysctlError> {
        let mut path = PathBuf::with_capacity(64);
        path.push("/proc/sys");
        let mut any = false;
        for component in components {
            if matches!(component, "" | "." | "..") || component.contains(['/', '\0']) {
                return Err(SysctlError::Component { component: component.chars().take(80).collect() });
            }
            path.push(component);
            any = true;
        }
        if any { Ok(Sysctl { path }) } else { Err(SysctlError::Empty) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value, without white space around it (`sysctl -n`).
    ///
    /// # Errors
    /// [`SysctlError::Read`].
    pub fn read(&self, _: &Inside) -> Result<String, SysctlError> {
        let failed = |e: std::io::Error| SysctlError::Read { path: self.path.clone(), errno: errno(&e) };
        let mut file = File::options().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(&self.path).map_err(failed)?;
        // One read has it all, but for the long ones.
        let mut value = vec![0; 64];
        let length = file.read(&mut value).map_err(failed)?;
        value.truncate(length);
        if length == 64 {
            file.read_to_end(&mut value).map_err(failed)?;
        }
        Ok(String::from_utf8_lossy(&value).trim_end().to_owned())
    }

    /// Sets the value (`sysctl -w`), in one `write`, as the kernel wants it.
    ///
    /// # Errors
    /// [`SysctlError::Write`].
    pub fn write(&self, _: &Inside, value: &str) -> Result<(), SysctlError> {
        let failed = |errno| SysctlError::Write { path: self.path.clone(), value: value.to_owned(), errno };
        let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let mut file = File::options().write(true).custom_flags(flags).open(&self.path).map_err(|e| failed(errno(&e)))?;
        crate::crash_point!("sysctl-unwritten");
        let written = file.write(value.as_bytes());
        crate::crash_point!("sysctl-written");
        match written {
            Ok(written) if written == value.len() => Ok(()),
            // What was cut off is lost: a second write would start anew.
            Ok(_) => Err(failed(Errno::EINVAL)),
            Err(e) => Err(failed(errno(&e))),
        }
    }

    /// [`Sysctl::write`] where the kernel has it, nothing where it has not: without IPv6, say, there is nothing to set.
    ///
    /// # Errors
    /// [`SysctlError::Write`], but for a file that is not there.
    pub fn write_if_there(&self, inside: &Inside, value: &str) -> Result<(), SysctlError> {
        match self.write(inside, value) {
            Err(SysctlError::Write { errno: Errno::ENOENT, .. }) => Ok(()),
            done => done,
        }
    }

    /// Whether the kernel has it, in this namespace.
    pub fn exists(&self, _: &Inside) -> bool {
        self.path.symlink_metadata().is_ok()
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_stay_below_proc_sys() {
        let good = Sysctl::new(["net", "ipv4", "conf", "eth0.7", "arp_notify"]).unwrap();
        assert_eq!(good.path(), Path::new("/proc/sys/net/ipv4/conf/eth0.7/arp_notify"));
        for bad in ["", ".", "..", "a/b", "/etc", "../x", "a\0b"] {
            let error = Sysctl::new(["net", bad, "x"]).unwrap_err();
            assert_eq!(error, SysctlError::Component { component: bad.to_owned() });
        }
        assert_eq!(Sysctl::new([]), Err(SysctlError::Empty));
    }

    #[test]
    fn an_error_names_file_and_value() {
        let sysctl = Sysctl::new(["net", "ipv4", "no_such"]).unwrap();
        let here = Inside::here();
        assert!(!sysctl.exists(&here));
        assert_eq!(
            sysctl.read(&here).unwrap_err().to_string(),
            "cannot read /proc/sys/net/ipv4/no_such: ENOENT: No such file or directory"
        );
        let error = sysctl.write(&here, "1").unwrap_err();
        assert_eq!(error.to_string(), "cannot write \"1\" to /proc/sys/net/ipv4/no_such: ENOENT: No such file or directory");
    }
}
