//! What a process has started, and what that has started: a session or a group of its own is no way out.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often it is looked again for what was started meanwhile.
const ROUNDS: u32 = 20;

/// Kills all of them. Those whose parent has ended are found where this process is their subreaper, or not at all.
pub(super) fn end(process: u32) {
    // While they run they may start more: each is stopped when it is found, so that a further round finds nothing new.
    let mut stopped: Vec<u32> = Vec::new();
    for _ in 0..ROUNDS {
        let found: Vec<u32> = below(process).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if found.is_empty() {
            break;
        }
        found.iter().for_each(|pid| send(*pid, Signal::SIGSTOP));
        stopped.extend(found);
    }
    stopped.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
}

/// ESRCH: it has ended. Its number is nobody else's yet: it was read a moment ago.
fn send(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn below(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some((pid, parent)) = parent(&entry.path()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![process]);
    while let Some(pid) = next.pop() {
        let own = children.remove(&pid).unwrap_or_default();
        found.extend(&own);
        next.extend(own);
    }
    found
}

/// A process and its parent, from `/proc/PID/stat` (proc_pid_stat(5)): behind the name, which may have anything, stand state and parent.
fn parent(dir: &Path) -> Option<(u32, u32)> {
    let pid = dir.file_name()?.to_str()?.parse().ok()?;
    let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some((pid, parent))
}
