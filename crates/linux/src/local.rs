//! Stream sockets of this machine: reaching one, who is at its other end, one that was opened for us, and how many there may be.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};

/// The process at the other end of a connection, as it was when it connected or began to listen (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number, as it is seen from here; 0 for a process that is not.
    pub pid: i32,
    /// Whose it is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Who is at the other end.
///
/// # Errors
/// `ENOTSOCK` and the like: the descriptor is no such connection.
pub fn peer(stream: &impl AsFd) -> Result<Peer, Errno> {
    let credentials = socket::getsockopt(&stream.as_fd(), sockopt::PeerCredentials)?;
    Ok(Peer { pid: credentials.pid(), uid: credentials.uid(), gid: credentials.gid() })
}

/// The limit that this process had before it raised it; [`NOT_RAISED`] if it has not.
static BEFORE: AtomicU64 = AtomicU64::new(NOT_RAISED);

const NOT_RAISED: u64 = u64::MAX;

/// Lets this process have as many descriptors as it may ever have (`ulimit -n hard`), and returns how many that are. A service manager
/// gives 1024, for programs that still call `select`: those that are started from here get that limit back ([`lower_limit_of`]).
///
/// # Errors
/// If the kernel refuses it.
pub fn raise_limit() -> Result<u64, Errno> {
    let (usual, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if usual < most {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        BEFORE.store(usual, Ordering::Relaxed);
    }
    Ok(most)
}

/// Gives a program that is about to be started the limit that this process had before [`raise_limit`]: one that calls `select` writes
/// past its table for a descriptor above 1023, and one that closes every descriptor that it may have does so a million times.
pub fn lower_limit_of(command: &mut Command) {
    let usual = BEFORE.load(Ordering::Relaxed);
    if usual == NOT_RAISED {
        return;
    }
    let lower = move || {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, usual.min(most), most).map_err(std::io::Error::from)
    };
    // SAFETY: between fork and exec there are two system calls, and an error is made of a number: nothing is allocated, no
    // lock is taken.
    unsafe { command.pre_exec(lower) };
}

/// Whether the other end has closed the connection, or its process is gone.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn hung_up(stream: &impl AsFd) -> Result<bool, Errno> {
    match socket::recv(stream.as_fd().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(0) | Err(Errno::ECONNRESET) => Ok(true),
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether something can be read from a connection, or its end was noticed, within a time.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn speaks(stream: &impl AsFd, within: Duration) -> Result<bool, Errno> {
    let by = Instant::now() + within;
    loop {
        let left = TimeSpec::from_duration(by.saturating_duration_since(Instant::now()));
        match ppoll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], Some(left), None) {
            Err(Errno::EINTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

/// Connects to a socket. Unlike the standard library's way it does not wait for ever for one whose owner accepts nobody
/// while its queue is full. The time is also the limit of each write afterwards.
///
/// # Errors
/// `ENOENT` and `ECONNREFUSED`: nobody is there. `EAGAIN`: somebody is, but accepts nobody. `ENAMETOOLONG`: the path has
/// more than 107 bytes.
pub fn connect(path: &Path, time: Duration) -> Result<UnixStream, Errno> {
    let address = UnixAddr::new(path)?;
    let fd: OwnedFd = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Zero would mean without a limit.
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX).max(1);
    socket::setsockopt(&fd, sockopt::SendTimeout, &TimeVal::microseconds(micros))?;
    socket::connect(fd.as_raw_fd(), &address)?;
    Ok(UnixStream::from(fd))
}

/// The sockets that a service manager has opened for this process (systemd's `LISTEN_FDS`, sd_listen_fds(3)): the only one. `None`
/// where there is none, and for everybody but the first who asks: a descriptor has one owner.
///
/// # Errors
/// How many there are, if there are more.
pub fn inherited_socket() -> Result<Option<OwnedFd>, u32> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) if TAKEN.swap(true, Ordering::SeqCst) => Ok(None),
        Some(1) => {
            // SAFETY: the one who started this process says that descriptor 3 is ours; nobody here has taken it before (`TAKEN`).
            let fd = unsafe { OwnedFd::from_raw_fd(3) };
            // It is not for programs that are started from here.
            let _ = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
            Ok(Some(fd))
        }
        Some(more) => Err(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "NETLOOM_TEST_INHERITS";
    const RAISED: &str = "NETLOOM_TEST_RAISES";

    /// A second caller would close the descriptor of the first one, or use one that something else has by then.
    #[test]
    fn an_inherited_socket_has_one_owner() {
        if std::env::var_os(CHILD).is_none() {
            // In a process of its own, to which somebody says that descriptor 3 is its.
            let name = std::thread::current().name().unwrap().to_owned();
            let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --exact \"$1\" --test-threads 1 3</dev/null";
            let child = Command::new("sh").args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(name).env(CHILD, "1").output();
            let child = child.unwrap();
            assert!(child.status.success() && String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
            return;
        }
        let first = inherited_socket().unwrap().expect("descriptor 3 is ours");
        assert_eq!(first.as_raw_fd(), 3);
        let flags = fcntl(&first, FcntlArg::F_GETFD).unwrap();
        assert_ne!(flags & FdFlag::FD_CLOEXEC.bits(), 0, "programs that are started do not get it");
        for _ in 0..2 {
            assert!(inherited_socket().unwrap().is_none(), "it has an owner");
        }
        let is_open = || std::fs::read_link("/proc/self/fd/3").is_ok();
        assert!(is_open());
        drop(first);
        assert!(!is_open() && inherited_socket().unwrap().is_none(), "nor later");
    }

    /// External plugins had the limit of the process that ran them.
    #[test]
    fn programs_have_the_limit_from_before_it_was_raised() {
        if std::env::var_os(RAISED).is_none() {
            // In a process of its own, as other tests run beside this one.
            let name = std::thread::current().name().unwrap().to_owned();
            let script = "ulimit -Sn 256 && exec \"$0\" --exact \"$1\" --test-threads 1";
            let child = Command::new("sh").args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(name).env(RAISED, "1").output();
            let child = child.unwrap();
            assert!(child.status.success() && String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
            return;
        }
        let limits = || {
            let args = &["-c", "ulimit -Sn; ulimit -Hn"];
            let deadline = Instant::now() + Duration::from_secs(60);
            let (stdin, env, max_output): (&[u8], _, _) = (b"", Vec::new(), 100);
            let program = crate::process::Program {
                path: Path::new("/bin/sh"),
                args,
                env,
                stdin,
                deadline,
                max_output,
                mounts: None,
                bound: false,
                sole: false,
            };
            String::from_utf8(crate::process::run(&program).unwrap().stdout).unwrap()
        };
        let before = limits();
        assert!(before.starts_with("256\n"), "{before}");
        for _ in 0..2 {
            let most = raise_limit().unwrap();
            assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (most, most));
            assert!(most > 256);
            assert_eq!(limits(), before);
        }
    }
}
