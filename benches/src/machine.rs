//! On what it was measured: a figure without this says nothing.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The machine, as far as it matters to a figure.
#[derive(Debug)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    memory_mib: u64,
    data_dir: PathBuf,
    file_system: String,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn look(data_dir: &Path) -> Result<Self> {
        let data_dir = fs::canonicalize(data_dir).with_context(|| format!("find {}", data_dir.display()))?;
        let kib = field(&read("/proc/meminfo")?, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
        Ok(Machine {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cpu: field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().context("count the cores")?.get(),
            memory_mib: kib.unwrap_or(0) / 1024,
            file_system: file_system(&read("/proc/self/mountinfo")?, &data_dir).unwrap_or_else(|| "unknown".to_owned()),
            data_dir,
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "kernel": self.kernel, "cpu": self.cpu, "cores": self.cores, "memory_mib": self.memory_mib,
            "data_dir": self.data_dir, "file_system": self.file_system,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel     {}", self.kernel)?;
        writeln!(f, "processor  {}, {} cores, {} MiB", self.cpu, self.cores, self.memory_mib)?;
        write!(f, "data       {} ({})", self.data_dir.display(), self.file_system)
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// The value of the first `NAME : VALUE`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// Type and options of the file system that holds a path: the last mount of the longest mount point above it
/// (proc_pid_mountinfo(5): mount point 5, options 6; after ` - ` the type and, third, the super block's options).
fn file_system(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, super_block) = line.split_once(" - ")?;
        let point = mount.split_whitespace().nth(4)?;
        let mut fields = super_block.split_whitespace();
        path.starts_with(point).then_some((point.len(), fields.next()?, fields.nth(1)?))
    });
    mounts.max_by_key(|(length, ..)| *length).map(|(_, kind, options)| format!("{kind}, {options}"))
}

/// How long a process has computed, to a hundredth of a second.
pub(crate) fn computed(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // Behind the name, which may have anything: utime and stime are the 14th and 15th field, in hundredths (USER_HZ).
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2));
    let ticks: u64 = fields.into_iter().flatten().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount_point() {
        let mountinfo = "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                         30 21 0:26 / /var rw shared:2 - xfs /dev/vdb rw,noquota\n\
                         31 21 0:27 / /var/lib rw,nosuid - tmpfs tmpfs rw,size=64k\n";
        assert_eq!(file_system(mountinfo, Path::new("/var/tmp")).unwrap(), "xfs, rw,noquota");
        assert_eq!(file_system(mountinfo, Path::new("/var/library")).unwrap(), "xfs, rw,noquota");
        assert_eq!(file_system(mountinfo, Path::new("/var/lib/cni")).unwrap(), "tmpfs, rw,size=64k");
        assert_eq!(file_system(mountinfo, Path::new("/home")).unwrap(), "ext4, rw,discard");
    }
}
