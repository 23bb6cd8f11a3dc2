//! External programs, within limits of time and output.
//!
//! ```text
//!  input --memfd--> program --pipes--> output        one poll loop over both pipes and the process itself
//!                      |
//!                      +- its own process group, killed whole when a limit is reached, or when it has failed
//! ```
//!
//! The input is a file in memory rather than a pipe: nothing has to be fed while the program runs, and one that does not
//! read it is no broken pipe.

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

mod descendants;

/// How long to wait, after the program has ended, for the end of its output, which a process that it started may hold open.
const GRACE: Duration = Duration::from_millis(100);
/// Where programs start: nobody can make a file there, and none can be written. They may be told a name to write their log to.
const NOWHERE: &CStr = c"/proc/self/fdinfo";
/// Where distributions have programs, if not on `PATH`: an ordinary user's lacks the directories of administrators on Debian.
pub const USUAL_DIRS: [&str; 7] =
    ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];
/// What is read at once.
const PIECE: usize = 16 * 1024;

/// A program to run, and its limits.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// The executable. Not searched for.
    pub path: &'a Path,
    /// Its arguments, without its own name.
    pub args: &'a [&'a str],
    /// Its whole environment; nothing of ours is added.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads.
    pub stdin: &'a [u8],
    /// When it must have ended.
    pub deadline: Instant,
    /// How many bytes it may print, on each of its two outputs.
    pub max_output: usize,
    /// The mount namespace in which it is looked for and runs; ours where there is none. See [`host_mounts`].
    pub mounts: Option<BorrowedFd<'a>>,
    /// It is killed when the thread that runs it ends, by whatever: nobody would undo what it makes afterwards.
    pub bound: bool,
    /// This process has no other children, and will have none meanwhile: it becomes the subreaper of what loses its parent, and what is
    /// ended with the program is every descendant of this process.
    pub sole: bool,
}

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended, well or not.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

/// A program could not be run, or reached a limit and was killed, with every process of its group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no such file, or not the interpreter that its first line names.
    #[error("cannot run {}: no such file (or not the interpreter that its first line names)", path.display())]
    NotFound {
        /// The executable.
        path: PathBuf,
    },
    /// It may not be executed, or is no program.
    #[error("cannot run {}: {errno} (check that it is executable and built for this machine)", path.display())]
    NotExecutable {
        /// The executable.
        path: PathBuf,
        /// `EACCES` or `ENOEXEC`.
        errno: Errno,
    },
    /// It is being written, by an installation for example. Worth another attempt.
    #[error("cannot run {}: it is being written (text file busy); retry", path.display())]
    TextFileBusy {
        /// The executable.
        path: PathBuf,
    },
    /// It ran beyond the deadline.
    #[error("{} timed out and was killed{}", path.display(), last_words(stderr))]
    TimedOut {
        /// The executable.
        path: PathBuf,
        /// What it had printed as errors until then.
        stderr: Vec<u8>,
    },
    /// It printed more than it may.
    #[error("{} printed more than {limit} bytes and was killed", path.display())]
    TooMuchOutput {
        /// The executable.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// Something else failed before or while it ran.
    #[error("cannot run {}: {step}: {errno}", path.display())]
    Spawn {
        /// The executable.
        path: PathBuf,
        /// What was attempted.
        step: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// The end of what a program printed as errors, for a message.
fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr.get(stderr.len().saturating_sub(200)..).unwrap_or_default());
    match text.trim() {
        "" => String::new(),
        text => format!("; it had printed: {text}"),
    }
}

/// Runs a program and collects what it prints, until it ends or a limit is reached. Its working directory is one in which nobody makes or
/// changes a file: a name without a directory, in what it is told, leads to no file of the host.
///
/// It gets its input and outputs, and none of the descriptors that we opened (see [`close_on_exec`] for the others). When it has ended but a process that it
/// started keeps its output open, that process is killed after 100 ms, if it is still in the group.
///
/// # Errors
/// [`ProcessError`]. That the program itself failed is no error here: see [`Output::status`].
pub fn run(program: &Program<'_>) -> Result<Output, ProcessError> {
    let failed = |step, errno| ProcessError::Spawn { path: program.path.to_owned(), step, errno };
    let stdin = memory(program.stdin).map_err(|e| failed("its input", e))?;
    let mut running = Running::start(program, stdin)?;
    let outcome = running.watch(program);
    // Now nothing of it is left to be found under this number, whatever happened.
    let status = running.end(outcome.is_err() || running.has_failed()).map_err(|e| failed("wait for it", e))?;
    match outcome {
        Ok(()) => Ok(Output { status, stdout: running.stdout.take(), stderr: running.stderr.take() }),
        Err(Limit::Time) => Err(ProcessError::TimedOut { path: program.path.to_owned(), stderr: running.stderr.take() }),
        Err(Limit::Output) => Err(ProcessError::TooMuchOutput { path: program.path.to_owned(), limit: program.max_output }),
        Err(Limit::Failed(step, errno)) => Err(failed(step, errno)),
    }
}

/// The paths under which a program may be found, in order: in the directories of `PATH`, then in [`USUAL_DIRS`].
pub fn places(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    on_path.into_iter().chain(USUAL_DIRS.map(PathBuf::from)).filter(|dir| dir.is_absolute()).map(move |dir| dir.join(name))
}

/// Ends a process that is not a child of ours, and returns when it is gone. It gets `SIGTERM`, and `SIGKILL` if it still runs after `patience`.
///
/// `is_meant` is called when the process's number can no longer pass to another process. A process that it refuses, or that is gone, is no error.
///
/// # Errors
/// What the kernel says: `EPERM`; `ETIMEDOUT` if it does not end.
pub fn end(pid: u32, is_meant: impl FnOnce() -> bool, patience: Duration) -> Result<(), Errno> {
    let process = match pidfd(pid) {
        Err(Errno::ESRCH) => return Ok(()),
        opened => opened?,
    };
    if !is_meant() {
        return Ok(());
    }
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // SAFETY: the call takes a descriptor, which is open, and numbers; it reads no memory where the third one is null.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as libc::c_int, std::ptr::null::<()>(), 0) };
        match Errno::result(sent) {
            Err(Errno::ESRCH) => return Ok(()),
            sent => drop(sent?),
        }
        let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, time)? > 0 {
            return Ok(());
        }
    }
    Err(Errno::ETIMEDOUT)
}

/// The mount namespace of the machine's first process, which is the host's where its processes are to be seen
/// (`hostPID` in Kubernetes); `None` if it is ours. As `nsenter --target 1 --mount`.
///
/// # Errors
/// What the kernel says: `EACCES` without the right to look at that process (`CAP_SYS_PTRACE`).
pub fn host_mounts() -> Result<Option<OwnedFd>, Errno> {
    let host = match File::open("/proc/1/ns/mnt") {
        // Who may not look at that process is still told what it has mounted, and no mount is in two namespaces.
        Err(e) if e.kind() == ErrorKind::PermissionDenied && first_mount("1").is_some_and(|m| Some(m) == first_mount("self")) => {
            return Ok(None);
        }
        opened => opened.map_err(|e| errno(&e))?,
    };
    let own = std::fs::metadata("/proc/self/ns/mnt").map_err(|e| errno(&e))?;
    let file = host.metadata().map_err(|e| errno(&e))?;
    let same = (file.dev(), file.ino()) == (own.dev(), own.ino());
    Ok((!same).then(|| host.into()))
}

/// The first mount that a process sees, by its number.
fn first_mount(process: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/{process}/mountinfo")).ok()?.split(' ').next()?.parse().ok()
}

/// Marks every descriptor to be closed on exec but the standard three and the locks that are passed on: those that this
/// process got from who started it too, which [`run`] would hand to its program otherwise.
///
/// # Errors
/// `EINVAL` before Linux 5.11.
pub fn close_on_exec() -> Result<(), Errno> {
    // SAFETY: no descriptor is closed here, only marked; the call takes three numbers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(done)?;
    for fd in crate::file::passed_on().iter() {
        // SAFETY: the lock is open as long as it stands in that list, which is held here; the call only changes a flag.
        Errno::result(unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// Why a program is killed.
enum Limit {
    Time,
    Output,
    Failed(&'static str, Errno),
}

/// A program between its start and its end. Dropped, it is killed.
struct Running {
    child: Child,
    process: OwnedFd,
    stdout: Stream,
    stderr: Stream,
    reaped: bool,
    sole: bool,
}

/// One output: its pipe until it is closed, and what came through it.
struct Stream {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

// === impl Running ===

impl Running {
    fn start(program: &Program<'_>, stdin: File) -> Result<Self, ProcessError> {
        let path = || program.path.to_owned();
        let mut command = Command::new(program.path);
        command.args(program.args).env_clear().envs(program.env.iter().map(|(k, v)| (k, v)));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(mounts) = program.mounts {
            enter_mounts(&mut command, mounts);
        }
        if program.bound {
            bind(&mut command);
        }
        crate::local::lower_limit_of(&mut command);
        crate::interrupt::let_end(&mut command);
        // A relative path is one of who runs us by hand.
        if program.path.is_absolute() {
            command.current_dir(NOWHERE.to_string_lossy().as_ref());
        }
        if program.sole {
            // SAFETY: the call takes two numbers. Where the kernel refuses, what loses its parent is out of reach.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        }
        let mut child = command.spawn().map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => ProcessError::NotFound { path: path() },
            Some(libc::ETXTBSY) => ProcessError::TextFileBusy { path: path() },
            Some(errno @ (libc::EACCES | libc::ENOEXEC | libc::EISDIR)) => {
                ProcessError::NotExecutable { path: path(), errno: Errno::from_raw(errno) }
            }
            _ if program.mounts.is_some() => ProcessError::Spawn {
                path: path(),
                step: "enter the host's mount namespace (CAP_SYS_ADMIN), or start it",
                errno: errno(&e),
            },
            _ => ProcessError::Spawn { path: path(), step: "start it", errno: errno(&e) },
        })?;
        let streams = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
        let process = pidfd(child.id());
        match (process, streams) {
            (Ok(process), (Some(stdout), Some(stderr))) => {
                let (stdout, stderr) = (Stream::new(stdout), Stream::new(stderr));
                Ok(Running { child, process, stdout, stderr, reaped: false, sole: program.sole })
            }
            (process, _) => {
                let _ = child.kill().and_then(|()| child.wait());
                let errno = process.err().unwrap_or(Errno::EBADF);
                Err(ProcessError::Spawn { path: path(), step: "watch it (pidfd_open: Linux 5.3 or later)", errno })
            }
        }
    }

    /// Reads until the program has ended and its outputs are closed.
    fn watch(&mut self, program: &Program<'_>) -> Result<(), Limit> {
        let mut deadline = program.deadline;
        let mut ended = false;
        while !ended || self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            let [stdout, stderr, process] = self.wait(ended, deadline).map_err(|e| Limit::Failed("poll", e))?;
            for (stream, ready) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
                if ready {
                    stream.read(program.max_output)?;
                }
            }
            if process && !ended {
                ended = true;
                deadline = Instant::now() + GRACE;
            } else if Instant::now() >= deadline {
                // Ended in time, what it printed is there; only someone else still holds its output open.
                if !ended {
                    return Err(Limit::Time);
                }
                self.kill();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until an output can be read, or is closed, or the program ends: which of the three it is.
    fn wait(&self, ended: bool, deadline: Instant) -> Result<[bool; 3], Errno> {
        let process = (!ended).then(|| self.process.as_fd());
        let sources = [self.stdout.pipe.as_ref().map(AsFd::as_fd), self.stderr.pipe.as_ref().map(AsFd::as_fd), process];
        let mut fds: Vec<PollFd<'_>> = sources.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let left = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        let timeout = PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
        let mut answers = fds.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(sources.map(|source| source.is_some() && answers.next().unwrap_or(false)))
    }

    /// Kills the whole group, and whatever it has started besides. Before the program is waited for, its number cannot be another's.
    fn kill(&self) {
        if let Ok(group) = i32::try_from(self.child.id())
            && !self.reaped
        {
            descendants::end(if self.sole { std::process::id() } else { self.child.id() });
            // ESRCH: all of them have ended.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// Whether it has ended badly. It is not waited for, so that its number stays its own: what it has left of its group can be killed.
    fn has_failed(&self) -> bool {
        // SAFETY: all zeros is such a structure, which has numbers only.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure lives as long as the call, which keeps no pointer.
        let asked = unsafe { libc::waitid(libc::P_PID, self.child.id(), &raw mut about, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG) };
        // SAFETY: what the kernel fills in for a child is that part; it is zero where none has ended.
        let status = || unsafe { about.si_status() };
        asked == 0 && (about.si_code != libc::CLD_EXITED || status() != 0)
    }

    fn end(&mut self, kill: bool) -> Result<ExitStatus, Errno> {
        if kill {
            self.kill();
        }
        let status = self.child.wait().map_err(|e| errno(&e));
        self.reaped = true;
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.end(true);
        }
    }
}

// === impl Stream ===

impl Stream {
    fn new(pipe: OwnedFd) -> Self {
        Stream { pipe: Some(File::from(pipe)), bytes: Vec::new() }
    }

    /// Reads once from a pipe that is ready.
    fn read(&mut self, limit: usize) -> Result<(), Limit> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut piece = [0; PIECE];
        match pipe.read(&mut piece) {
            Ok(0) => self.pipe = None,
            Ok(length) if self.bytes.len() + length > limit => return Err(Limit::Output),
            Ok(length) => self.bytes.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Limit::Failed("read its output", errno(&e))),
        }
        Ok(())
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// The child is killed when the thread that starts it ends (`prctl(2)`, PR_SET_PDEATHSIG).
fn bind(command: &mut Command) {
    let parent = Pid::this();
    let bind = move || {
        // SAFETY: the call takes two numbers.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map_err(std::io::Error::from)?;
        // It may have ended before that.
        if Pid::parent() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec there are two system calls, and an error is made of a number: nothing is allocated, no
    // lock is taken.
    unsafe { command.pre_exec(bind) };
}

/// The child enters a mount namespace before it becomes the program, which is then looked for there.
fn enter_mounts(command: &mut Command, mounts: BorrowedFd<'_>) {
    let fd = mounts.as_raw_fd();
    let enter = move || {
        // SAFETY: the call takes two numbers. Who runs the program holds the descriptor until it is started.
        Errno::result(unsafe { libc::setns(fd, libc::CLONE_NEWNS) }).map_err(std::io::Error::from)?;
        // It is at the root there.
        nix::unistd::chdir(NOWHERE).map_err(std::io::Error::from)
    };
    // SAFETY: between fork and exec there are two system calls, and an error is made of a number: nothing is allocated, no
    // lock is taken.
    unsafe { command.pre_exec(enter) };
}

/// A file in memory, at its beginning.
fn memory(bytes: &[u8]) -> Result<File, Errno> {
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a C string constant; the call keeps no pointer.
        let fd = unsafe { libc::memfd_create(c"stdin".as_ptr(), libc::MFD_CLOEXEC | flags) };
        // SAFETY: a descriptor that the call has just made belongs to nobody else.
        Errno::result(fd).map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    // Asked for where the kernel knows it (6.3): it may be set to refuse, or complain about, one that could be executed.
    let mut file = match create(libc::MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => create(0),
        made => made,
    }?;
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(|e| errno(&e))?;
    Ok(file)
}

/// A descriptor of a process, such as a child that was not waited for; readable when it has ended. Closed on exec by itself.
fn pidfd(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: a descriptor that the call has just made belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))
}
