//! A plugin that is an executable.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::Errno;
use linux::process::{self, ProcessError, Program};

/// A program's whole environment.
pub type Environment = Vec<(OsString, OsString)>;

/// More output than this is no CNI result: 8 MiB.
const MAX_OUTPUT: usize = 8 << 20;

/// How often an executable that is being replaced ("text file busy") is tried again, and after what time.
const BUSY_PAUSES: [Duration; 5] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// What an executable printed, and whether it succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether its exit code was 0.
    pub success: bool,
    /// Its exit code, or what ended it, in words.
    pub ended: String,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Why an executable could not be run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// It could not be started here, was too slow or printed too much.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The process that waits for us and was to run it is gone.
    #[error("cannot run {}: the runtime's call that was to run it has ended ({reason}); no action is needed", path.display())]
    CallerGone {
        /// The executable.
        path: PathBuf,
        /// How that was noticed.
        reason: String,
    },
    /// The process that waits for us could not run it to its end.
    #[error("{reason}")]
    ByCaller {
        /// Whether the cause is one that passes.
        try_again: bool,
        /// Why, with the executable in it.
        reason: String,
    },
    /// The host's mount namespace is not to be reached.
    #[error("cannot run {} on the host: open /proc/1/ns/mnt: {errno}; check that the agent has hostPID and may read the host's \
        processes", path.display())]
    HostMounts {
        /// The executable.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
}

// === impl ExecError ===

impl ExecError {
    /// Whether another attempt may go better, as the cause is one that passes.
    pub fn may_pass(&self) -> bool {
        match self {
            ExecError::Process(e) => matches!(e, ProcessError::TimedOut { .. } | ProcessError::TextFileBusy { .. }),
            ExecError::ByCaller { try_again, .. } => *try_again,
            ExecError::CallerGone { .. } => true,
            ExecError::HostMounts { .. } => false,
        }
    }
}

/// Where an executable is run: by this process, or by another that waits for us.
pub trait Exec: Send + Sync {
    /// Runs it with an environment and a standard input, until a moment at the latest.
    ///
    /// # Errors
    /// [`ExecError`] if it did not come to its end.
    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError>;

    /// Whether somebody still waits for what comes of it.
    fn is_waited_for(&self) -> bool {
        true
    }

    /// The call waits for somebody else from here on (`true`), or goes on: others may be served meanwhile. To be called by its thread.
    fn waits(&self, begins: bool) {
        let _ = begins;
    }
}

/// Executables are children of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Here;

impl Exec for Here {
    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError> {
        child(Program {
            path,
            args: &[],
            env: env.clone(),
            stdin,
            deadline: by,
            max_output: MAX_OUTPUT,
            mounts: None,
            bound: false,
            sole: false,
        })
    }
}

/// Executables are children of this process, and end with the thread that runs them: for who runs them for somebody else, who
/// takes them for ended when this process is gone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bound;

impl Exec for Bound {
    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError> {
        child(Program {
            path,
            args: &[],
            env: env.clone(),
            stdin,
            deadline: by,
            max_output: MAX_OUTPUT,
            mounts: None,
            bound: true,
            sole: true,
        })
    }
}

/// Executables are children of this process that see the host's files: for who runs in a container, when nobody of the
/// host waits. Where this process sees the host's files itself it is [`Here`].
#[derive(Debug, Clone, Copy, Default)]
pub struct InHost;

impl Exec for InHost {
    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError> {
        let mounts = process::host_mounts().map_err(|errno| ExecError::HostMounts { path: path.to_owned(), errno })?;
        let mounts = mounts.as_ref().map(AsFd::as_fd);
        child(Program { path, args: &[], env: env.clone(), stdin, deadline: by, max_output: MAX_OUTPUT, mounts, bound: false, sole: false })
    }
}

fn child(program: Program<'_>) -> Result<Output, ExecError> {
    // What our own caller left open is none of the plugin's business.
    // (Before Linux 5.11 it cannot be said for all at once.)
    let _ = process::close_on_exec();
    let mut pauses = BUSY_PAUSES.iter();
    loop {
        let e = match process::run(&program) {
            Ok(out) => {
                let (success, ended) = (out.status.success(), out.status.to_string());
                return Ok(Output { success, ended, stdout: out.stdout, stderr: out.stderr });
            }
            Err(e) => e,
        };
        match pauses.next().filter(|pause| matches!(e, ProcessError::TextFileBusy { .. }) && Instant::now() + **pause < program.deadline) {
            Some(pause) => std::thread::sleep(*pause),
            None => return Err(e.into()),
        }
    }
}

impl From<ExecError> for CniError {
    fn from(e: ExecError) -> Self {
        let code = if e.may_pass() { Code::TRY_AGAIN_LATER } else { Code::INTERNAL };
        CniError::new(code, e.to_string())
    }
}

/// What a failed executable said: its CNI error, or what it printed instead.
pub(crate) fn failure(path: &Path, out: &Output) -> CniError {
    if let Some(e) = CniError::parse(&out.stdout) {
        return e;
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().chars().take(2000).collect::<String>();
    let (stdout, stderr) = (shown(&out.stdout), shown(&out.stderr));
    let said = match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => "no error message; run it by hand, or see the system log".to_owned(),
        (true, false) => format!("{stderr:?} on its standard error"),
        (false, _) => format!("{stdout:?}, which is not a CNI error"),
    };
    CniError::new(Code::UNKNOWN, format!("{}: netplugin failed ({}) with {said}", path.display(), out.ended))
}

/// An error of our own making, as the reference library numbers them.
pub(crate) fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}
