//! A command that asks for Enter on its standard error: what it says, and whether it waits.

use std::io::{BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::until_seen;

/// How /proc/PID/syscall begins of a thread that reads its standard input.
const READS: &str = if cfg!(target_arch = "aarch64") { "63 0x0 " } else { "0 0x0 " };

/// A command with a pipe for each of its streams. It is killed when this is dropped.
#[derive(Debug)]
pub struct Prompted {
    child: Child,
    printed: Option<JoinHandle<String>>,
    said: Arc<Mutex<Vec<u8>>>,
}

// === impl Prompted ===

impl Prompted {
    /// Starts it.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let printed = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        let (said, stderr) = (Arc::<Mutex<Vec<u8>>>::default(), child.stderr.take().unwrap());
        let heard = Arc::clone(&said);
        std::thread::spawn(move || BufReader::new(stderr).bytes().map_while(Result::ok).for_each(|byte| heard.lock().unwrap().push(byte)));
        Prompted { child, printed: Some(printed), said }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on standard error.
    ///
    /// # Panics
    /// If a thread of this one panicked.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Waits until it has said something so many times, and one of its threads then reads the standard input.
    ///
    /// # Panics
    /// If it does not.
    pub fn waits(&self, prompt: &str, times: usize) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let syscalls = || {
            let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok()).collect::<Vec<_>>()
        };
        until_seen(
            &format!("it says {prompt:?} {times} times, and waits"),
            || (self.said(), syscalls()),
            |(said, syscalls)| said.matches(prompt).count() == times && syscalls.iter().any(|syscall| syscall.starts_with(READS)),
        );
    }

    /// Presses Enter.
    ///
    /// # Panics
    /// If the command reads no more.
    pub fn enter(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits until it ends, without another Enter: how, and what it has printed.
    ///
    /// # Panics
    /// If it does not end.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = until_seen("the command ends", || self.child.try_wait().unwrap(), Option::is_some).unwrap();
        (status, self.printed.take().unwrap().join().unwrap())
    }
}

impl Drop for Prompted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
