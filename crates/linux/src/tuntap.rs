//! Taps: interfaces whose wire is a program's file descriptor (Documentation/networking/tuntap.rst; `ip tuntap`).
//!
//! ```text
//!   Tap::create -> it is there as long as the Tap is -> whatever else is to be set, by netlink -> keep: it stays
//! ```
//!
//! A process that is killed before [`Tap::keep`] leaves nothing.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use cni::IfName;
use nix::errno::Errno;
use nix::libc;

use crate::netns::Inside;

const DEVICE: &str = "/dev/net/tun";

/// Who may use a tap, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapSpec {
    /// Its name.
    pub name: IfName,
    /// Several descriptors may share it, a queue each (`multi_queue`). Who opens it must ask for the same.
    pub multi_queue: bool,
    /// The user who alone may open it without `CAP_NET_ADMIN`; `None`: anybody.
    pub owner: Option<u32>,
    /// The group whose members alone may; with an owner, who opens it must be both.
    pub group: Option<u32>,
}

/// A tap that goes when this is dropped.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: IfName,
}

/// A tap could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// No `/dev/net/tun`, or not for us.
    #[error("cannot open {DEVICE}: {0}; load the module (`modprobe tun`), and give this program's container access to the device")]
    Device(Errno),
    /// There is an interface of that name.
    #[error("cannot create tap {name}: there is an interface of that name")]
    Exists {
        /// The name.
        name: IfName,
    },
    /// The kernel refused a step.
    #[error("cannot create tap {name}: {step}: {errno}")]
    Refused {
        /// The name.
        name: IfName,
        /// The request.
        step: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// No program can be started in that SELinux context.
    #[error(
        "cannot use the SELinux context {context:?}: {errno}; check that SELinux is enabled and that this program may start others \
        in that context"
    )]
    Context {
        /// The context.
        context: String,
        /// What the kernel said.
        errno: Errno,
    },
    /// `ip`, which makes a tap in an SELinux context, could not.
    #[error("cannot create tap {name} in an SELinux context: ip tuntap: {said}")]
    Program {
        /// The name.
        name: IfName,
        /// What it said, or why it did not start.
        said: String,
    },
}

/// Whether taps can be made: opens the device, which also loads the module where it can be.
///
/// # Errors
/// [`TapError::Device`]
pub fn usable() -> Result<(), TapError> {
    open().map(drop)
}

fn open() -> Result<File, TapError> {
    let opened = File::options().read(true).write(true).open(DEVICE);
    opened.map_err(|e| TapError::Device(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))
}

// === impl Tap ===

impl Tap {
    /// Makes a tap without a packet information header (`ip tuntap add mode tap`), in the namespace that the thread is in. It
    /// is down, and goes with what is returned.
    ///
    /// # Errors
    /// [`TapError::Device`], [`TapError::Exists`], [`TapError::Refused`].
    pub fn create(_: &Inside, spec: &TapSpec) -> Result<Self, TapError> {
        let tap = Tap { file: open()?, name: spec.name.clone() };
        let queues = if spec.multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
        // Without IFF_TUN_EXCL, a tap that is there already would be taken.
        tap.name_it(libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | queues)?;
        if let Some(owner) = spec.owner {
            tap.request(libc::TUNSETOWNER, owner, "set its owner")?;
        }
        if let Some(group) = spec.group {
            tap.request(libc::TUNSETGROUP, group, "set its group")?;
        }
        Ok(tap)
    }

    /// It stays when its last descriptor is closed, as this one is then.
    ///
    /// # Errors
    /// [`TapError::Refused`]; it is gone then.
    pub fn keep(self) -> Result<(), TapError> {
        self.request(libc::TUNSETPERSIST, 1, "make it persistent")
    }

    fn name_it(&self, flags: libc::c_int) -> Result<(), TapError> {
        let mut name = [0; libc::IFNAMSIZ];
        // A name has 15 bytes at most: the last one stays 0.
        name.iter_mut().zip(self.name.as_str().bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        let flags = libc::c_short::from_ne_bytes((flags as u16).to_ne_bytes());
        let mut request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
        // SAFETY: TUNSETIFF reads, and writes back, one `struct ifreq`, which lives here and is lent for writing.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        match Errno::result(done) {
            Ok(_) => Ok(()),
            Err(Errno::EBUSY | Errno::EINVAL) if self.is_taken() => Err(TapError::Exists { name: self.name.clone() }),
            Err(errno) => Err(self.refused("name it", errno)),
        }
    }

    fn is_taken(&self) -> bool {
        nix::net::if_::if_nametoindex(self.name.as_str()).is_ok()
    }

    fn request(&self, code: libc::Ioctl, value: u32, step: &'static str) -> Result<(), TapError> {
        // SAFETY: these requests take their argument by value, as wide as a pointer.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), code, libc::c_ulong::from(value)) };
        Errno::result(done).map(drop).map_err(|errno| self.refused(step, errno))
    }

    fn refused(&self, step: &'static str, errno: Errno) -> TapError {
        TapError::Refused { name: self.name.clone(), step, errno }
    }
}

/// Makes a tap that stays, which belongs to an SELinux context: who opens it later is asked for the right to that. The kernel
/// gives a tap the context of the process that makes it, and no other, so it takes a process: `ip tuntap add`, started in
/// that context, in the namespace that the thread is in.
///
/// # Errors
/// [`TapError::Context`], [`TapError::Program`].
pub fn create_in_context(_: &Inside, spec: &TapSpec, context: &str) -> Result<(), TapError> {
    let failed = |said: String| TapError::Program { name: spec.name.clone(), said };
    let mut command = Command::new("ip");
    command.args(["tuntap", "add", "mode", "tap", "name", spec.name.as_str()]).stdin(Stdio::null());
    if spec.multi_queue {
        command.arg("multi_queue");
    }
    for (word, id) in [("user", spec.owner), ("group", spec.group)] {
        if let Some(id) = id {
            command.arg(word).arg(id.to_string());
        }
    }
    crate::local::lower_limit_of(&mut command);
    next_program_in(context).map_err(|errno| TapError::Context { context: context.to_owned(), errno })?;
    let output = command.output();
    // The next program that this thread starts is any.
    let _ = next_program_in("");
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(e) => Err(failed(format!("{e} (check that iproute2 is installed)"))),
    }
}

/// Whether a program could be started in that SELinux context. Nothing is started.
///
/// # Errors
/// [`TapError::Context`].
pub fn context_usable(context: &str) -> Result<(), TapError> {
    let usable = next_program_in(context).map_err(|errno| TapError::Context { context: context.to_owned(), errno });
    let _ = next_program_in("");
    usable
}

/// The SELinux context of the next program that this thread executes, or its children.
fn next_program_in(context: &str) -> Result<(), Errno> {
    let write = || File::options().write(true).open("/proc/thread-self/attr/exec")?.write_all(context.as_bytes());
    write().map_err(|e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
}
