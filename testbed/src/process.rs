//! A daemon in a den: started, watched, stopped, frozen; its output in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Den;

/// How much of a log stands in an error, in lines.
const TAIL: usize = 15;

/// A daemon. It is killed when it is dropped, and goes with its den, if nobody stops it before.
#[derive(Debug)]
pub struct Process {
    /// `nsenter`, which waits for the daemon and ends as that does.
    child: Child,
    name: String,
    log: PathBuf,
}

/// What is sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: it may clean up.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGHUP.
    Hangup,
    /// SIGSTOP: it stays, and does nothing.
    Stop,
    /// SIGCONT.
    Continue,
}

// === impl Process ===

impl Process {
    /// Starts a program in a den; `log` gets what it prints, after what is there.
    ///
    /// # Errors
    /// If the log cannot be opened or `nsenter` not started. Whether the program itself starts is seen by [`Process::alive`].
    pub fn start(den: &Den, name: &str, log: &Path, program: &Path, args: &[String]) -> Result<Self> {
        let mut command = den.command(program);
        command.args(args);
        Process::spawn(command, name, log)
    }

    /// As [`Process::start`], of a command that [`Den::command`] made.
    ///
    /// # Errors
    /// As there.
    pub fn spawn(mut command: Command, name: &str, log: &Path) -> Result<Self> {
        let open = File::options().create(true).append(true).open(log);
        let out = open.with_context(|| format!("the log {} cannot be opened", log.display()))?;
        let err = out.try_clone().context("a descriptor of the log")?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        Ok(Process { child, name: name.to_owned(), log: log.to_owned() })
    }

    /// Its process ID as seen from here; `None` when it has ended, or has not begun.
    pub fn pid(&self) -> Option<u32> {
        crate::den::only_child(self.child.id())
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// That it still runs.
    ///
    /// # Errors
    /// If it has ended: how, and what it said last.
    pub fn alive(&mut self) -> Result<()> {
        let ended = self.child.try_wait().with_context(|| format!("{} cannot be waited for", self.name))?;
        match ended {
            None => Ok(()),
            Some(status) => bail!("{} has ended, {status}; the end of {}:\n{}", self.name, self.log.display(), self.tail()),
        }
    }

    /// Waits until `ready` holds, asking again after `pause` each time.
    ///
    /// # Errors
    /// If the process ends before, or it takes longer than `patience`: with the end of its log.
    pub fn until(&mut self, what: &str, patience: Duration, pause: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let end = Instant::now() + patience;
        while !ready() {
            self.alive()?;
            if Instant::now() > end {
                let (log, tail) = (self.log.display(), self.tail());
                bail!("{}: not within {} s: {what}; the end of {log}:\n{tail}", self.name, patience.as_secs());
            }
            // Sleeps: between two looks.
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// Sends a signal to it.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name))?;
        kill(signal, pid).with_context(|| format!("{} cannot be signalled", self.name))?;
        // nsenter stops when its child does, and has to go on when that does.
        if signal == Signal::Continue { kill(signal, self.child.id()) } else { Ok(()) }
    }

    /// Ends it: SIGTERM, and SIGKILL if it is still there after `patience`. Returns whether it ended by itself.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop(&mut self, patience: Duration) -> Result<bool> {
        drop(self.signal(Signal::Continue));
        drop(self.signal(Signal::Terminate));
        let end = Instant::now() + patience;
        let waiting = || format!("{} cannot be waited for", self.name);
        while self.child.try_wait().with_context(waiting)?.is_none() {
            if Instant::now() > end {
                self.kill()?;
                return Ok(false);
            }
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(true)
    }

    /// Ends it at once, with SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Ok(());
        }
        if let Some(pid) = self.pid() {
            drop(kill(Signal::Kill, pid));
        } else {
            drop(self.child.kill());
        }
        // Somebody else may have stopped the daemon, and let it go on: nsenter has stopped with it, and would never see it end.
        drop(kill(Signal::Continue, self.child.id()));
        self.child.wait().map(drop).with_context(|| format!("{} cannot be waited for", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// `kill -SIGNAL PID`.
fn kill(signal: Signal, pid: u32) -> Result<()> {
    let name = match signal {
        Signal::Terminate => "-TERM",
        Signal::Kill => "-KILL",
        Signal::Hangup => "-HUP",
        Signal::Stop => "-STOP",
        Signal::Continue => "-CONT",
    };
    let output = Command::new("kill").args([name, &pid.to_string()]).output().context("kill (procps) cannot be started")?;
    crate::den::printed(&format!("kill {name} {pid}"), output).map(drop)
}
