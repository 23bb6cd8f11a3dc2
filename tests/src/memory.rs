//! What a process may have of memory, as the kubelet limits a container's: the kernel ends it where it takes more.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A memory cgroup, of version 1 or 2. Where there is none to be had, `RLIMIT_DATA` stands for it (setrlimit(2)).
pub struct MemoryLimit {
    bytes: u64,
    group: Option<PathBuf>,
}

/// The file of the limit, and that of the most that was in use, in a group of either version.
const FILES: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"), ("/sys/fs/cgroup", "memory.max", "memory.peak")];

// === impl MemoryLimit ===

impl MemoryLimit {
    /// So many bytes; the name is for a person who looks.
    pub fn new(name: &str, bytes: u64) -> Self {
        let group = FILES.iter().find_map(|(root, limit, _)| {
            let group = PathBuf::from(root).join(format!("nllx-{name}-{}", std::process::id()));
            let _ = fs::write(PathBuf::from(root).join("cgroup.subtree_control"), "+memory");
            fs::create_dir(&group).ok()?;
            if fs::write(group.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
            let _ = fs::remove_dir(&group);
            None
        });
        MemoryLimit { bytes, group }
    }

    /// Holds for a process from now on.
    ///
    /// # Panics
    /// If it has ended.
    pub fn holds_for(&self, pid: u32) {
        match &self.group {
            Some(group) => fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap(),
            None => {
                let limit = format!("--data={}", self.bytes);
                assert!(Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status().unwrap().success());
            }
        }
    }

    /// The most that was in use at a time, in bytes, page cache included; `None` where nobody counts.
    pub fn peak(&self) -> Option<u64> {
        let group = self.group.as_ref()?;
        FILES.iter().find_map(|(_, _, peak)| fs::read_to_string(group.join(peak)).ok()?.trim().parse().ok())
    }
}

impl Drop for MemoryLimit {
    /// To be dropped after its processes.
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            for _ in 0..200 {
                if fs::remove_dir(group).is_ok() {
                    return;
                }
                // Sleeps: a process leaves its group some time after it was waited for.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}
