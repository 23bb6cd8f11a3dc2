//! Who holds a lock, as far as the kernel tells (`lslocks`).

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The process that took a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its ID.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`); empty if it has ended and a child of it holds on.
    pub name: String,
}

// === impl LockHolder ===

impl LockHolder {
    /// Whoever has the exclusive or a shared `flock(2)` lock of a file. `None`: nobody, or a process that cannot be seen
    /// from this PID namespace.
    pub fn of(file: &File) -> Option<Self> {
        let about = file.metadata().ok()?;
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let pid = holder_in(&locks, about.dev(), about.ino())?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(LockHolder { pid, name: name.trim().to_owned() })
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid),
            name => write!(f, "process {} ({name})", self.pid),
        }
    }
}

/// The process that holds a lock, in the text of `/proc/locks` (proc_locks(5)):
/// `1: FLOCK  ADVISORY  WRITE 4711 fd:01:123 0 EOF`; a waiting one has `->` in the second column. The process is 0 if
/// it lives in a PID namespace that is not ours.
fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let (major, minor) = ((dev >> 8 & 0xfff) | (dev >> 32 & !0xfff), (dev & 0xff) | (dev >> 12 & 0xffff_ff00));
    let file = format!("{major:02x}:{minor:02x}:{ino}");
    let line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next()? == "FLOCK";
        let pid: u32 = words.nth(2)?.parse().ok()?;
        (flock && words.next()? == file && pid != 0).then_some(pid)
    };
    locks.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fd:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 fd:01:77 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 4712 fd:01:77 0 EOF\n3: FLOCK  ADVISORY  READ 0 103:00101:78 0 EOF\n4: FLOCK\n";
        assert_eq!(holder_in(locks, 0xfd01, 77), Some(4711));
        assert_eq!(holder_in(locks, 0xfd02, 77), None);
        assert_eq!(holder_in(locks, 0xfd01, 78), None);
        assert_eq!(holder_in("", 1, 1), None);
    }
}
