//! Namespaces whose processes, mounts and links live exactly as long as who made them.
//!
//! ```text
//!   who made it --- pipe ---> sh, process 1 of the namespaces: `cat` reads the pipe until it is closed
//!        `--- nsenter ---> etcd, kubelet, containerd and its shims, pods, ... : when process 1 ends, the kernel kills them all
//! ```
//!
//! The kernel closes the pipe also when its owner is killed, so nothing has to be swept by id: processes, mounts, links
//! and the pods' namespaces go with the last reference. Only folders of control groups and of logs are left then, which
//! [`crate::sweep`] knows by their names.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long the processes of a den may take to die; one that waits for a disk does.
const ENDING: Duration = Duration::from_secs(10);

/// Process and mount namespaces, and a network namespace where wanted.
#[derive(Debug)]
pub struct Den {
    /// `unshare`, which waits for process 1.
    holder: Child,
    /// Process 1, by the ID that it has here.
    first: u32,
    /// Whether it has a network namespace of its own.
    net: bool,
}

// === impl Den ===

impl Den {
    /// Makes the namespaces, and runs the lines of `setup` in them, with `sh -e`.
    ///
    /// `hostname` gives it a network namespace and a host name; without, it is on the network of who calls.
    ///
    /// # Errors
    /// If this is not root's process, or a line of `setup` fails.
    pub fn new(hostname: Option<&str>, setup: &str) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--propagation", "private"]);
        let mut lines = String::from("set -e\n");
        if let Some(name) = hostname {
            command.args(["--net", "--uts"]);
            lines.push_str(&format!("hostname {name}\nip link set lo up\n"));
        }
        // `exit`, so that the shell does not become `cat`, which would not wait for orphans.
        lines.push_str(setup);
        lines.push_str("\necho ready\ncat >/dev/null\nexit 0");
        // `ps` shows what it is, and not the lines.
        command.args(["sh", "-c", "eval \"$LINES_TO_RUN\"; exit 0", "netloom-testbed"]).env("LINES_TO_RUN", &lines);
        command.arg(hostname.unwrap_or("processes")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let holder = command.spawn().context("unshare (util-linux) cannot be started")?;
        let mut den = Den { holder, first: 0, net: hostname.is_some() };
        let mut said = [0; 6];
        let read = den.holder.stdout.as_mut().map(|out| out.read_exact(&mut said));
        if !matches!(read, Some(Ok(()))) || &said != b"ready\n" {
            drop(den.holder.stdin.take());
            let mut why = String::new();
            if let Some(mut err) = den.holder.stderr.take() {
                drop(err.read_to_string(&mut why));
            }
            bail!("no namespaces can be made here (is this root?): {}", why.trim());
        }
        den.first = only_child(den.holder.id()).context("unshare has no child")?;
        Ok(den)
    }

    /// The ID that the den's process 1 has here: `/proc/PID/ns` are its namespaces.
    pub fn pid(&self) -> u32 {
        self.first
    }

    /// The way from here to a path as the den's processes see it.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        Path::new("/proc").join(self.pid().to_string()).join("root").join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Writes a file as the den sees it, and makes the directories it is in.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, inside: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(inside);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("the directory of {inside}"))?;
        }
        std::fs::write(&path, text).with_context(|| format!("{inside} cannot be written"))
    }

    /// A program to be run in all of the den's namespaces. Its process ends with the den.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.pid().to_string()).args(["--mount", "--pid"]);
        if self.net {
            command.args(["--net", "--uts"]);
        }
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn try_run(&self, argv: &[&str]) -> Result<Output> {
        let (program, args) = argv.split_first().context("no program is named")?;
        self.command(program).args(args).output().with_context(|| format!("{program} cannot be started"))
    }

    /// Runs a program, and returns what it prints.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        printed(&argv.join(" "), self.try_run(argv)?)
    }

    /// Runs a line of `ip` with the den's network, and with process IDs as they are here.
    ///
    /// # Errors
    /// As [`Den::run`].
    pub fn ip(&self, line: &str) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.pid().to_string()).args(["--net", "--", "ip"]);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        printed(&format!("ip {line}"), command.output().context("nsenter (util-linux) cannot be started")?)
    }
}

impl Drop for Den {
    fn drop(&mut self) {
        // Process 1 ends, but not before the kernel has killed all others and they are gone.
        drop(self.holder.stdin.take());
        let end = Instant::now() + ENDING;
        while matches!(self.holder.try_wait(), Ok(None)) && Instant::now() < end {
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// The child of a process that has one.
pub(crate) fn only_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// What a program printed; an error, with what it said, if it failed.
pub(crate) fn printed(what: &str, output: Output) -> Result<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{what}: {}\n{stdout}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}
