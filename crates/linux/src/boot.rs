//! Which boot of the machine this is: what a power cut takes from the kernel, a record on disk must not claim to be there.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::libc;

/// Where the kernel tells when it was started.
const STAT: &str = "/proc/stat";

/// Where the kernel tells it.
const PATH: &str = "/proc/sys/kernel/random/boot_id";

/// A boot: random, and the same until the machine is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId(u128);

/// The boot cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootIdError {
    /// The kernel's file cannot be read.
    #[error("cannot read {PATH}: {0} (check that /proc is mounted)")]
    Read(Errno),
    /// The kernel's file does not tell when it was started.
    #[error("cannot read the line btime of {STAT} (check that /proc is mounted)")]
    Begun,
    /// Text that is no UUID.
    #[error("{0:?} is not a boot ID (expected a UUID)")]
    Text(String),
}

/// The present boot (`cat /proc/sys/kernel/random/boot_id`). No process sees another one.
///
/// # Errors
/// [`BootIdError::Read`] without /proc.
pub fn boot_id() -> Result<BootId, BootIdError> {
    static KNOWN: OnceLock<BootId> = OnceLock::new();
    match KNOWN.get() {
        Some(known) => Ok(*known),
        None => read_boot_id().map(|read| *KNOWN.get_or_init(|| read)),
    }
}

fn read_boot_id() -> Result<BootId, BootIdError> {
    // One read has it all.
    let mut bytes = [0; 64];
    let read = std::fs::File::open(PATH).and_then(|mut file| file.read(&mut bytes));
    let length = read.map_err(|e| BootIdError::Read(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EINVAL))))?;
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).trim_end().parse()
}

/// When the kernel was started, to the second, by the machine's clock as it is now (`uptime -s`): who sets the clock moves
/// it.
///
/// # Errors
/// [`BootIdError::Begun`] without /proc.
pub fn begun() -> Result<SystemTime, BootIdError> {
    let text = std::fs::read_to_string(STAT).map_err(|_| BootIdError::Begun)?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    seconds.map(|s| UNIX_EPOCH + Duration::from_secs(s)).ok_or(BootIdError::Begun)
}

/// Whether a file was last written before the kernel was started, by the machine's clock.
pub fn is_of_an_earlier(path: &Path) -> bool {
    let written = path.symlink_metadata().and_then(|about| about.modified());
    written.is_ok_and(|written| begun().is_ok_and(|begun| written < begun))
}

/// How long the machine has run, its sleep included (`CLOCK_BOOTTIME`): what nobody sets, and every process sees alike.
pub fn uptime() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

// === impl BootId ===

impl BootId {
    /// Its 16 bytes, as the UUID has them.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let (a, b, c, d) = (n >> 96, n >> 80 & 0xffff, n >> 64 & 0xffff, n >> 48 & 0xffff);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}", n & 0xffff_ffff_ffff)
    }
}

impl FromStr for BootId {
    type Err = BootIdError;

    fn from_str(s: &str) -> Result<Self, BootIdError> {
        let bad = || BootIdError::Text(s.chars().take(80).collect());
        if !s.split('-').map(str::len).eq([8, 4, 4, 4, 12]) || !s.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u128::from_str_radix(&s.replace('-', ""), 16).map(BootId).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_was_started_before_this() {
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up = Duration::from_secs_f64(up.split(' ').next().unwrap().parse().unwrap());
        let differs = SystemTime::now().duration_since(begun().unwrap()).unwrap().abs_diff(up);
        assert!(differs < Duration::from_secs(20), "{differs:?}");
    }

    #[test]
    fn the_kernels_text_is_read_back() {
        let id = boot_id().unwrap();
        assert_eq!(id.to_string(), std::fs::read_to_string(PATH).unwrap().trim_end());
        assert_eq!(id, boot_id().unwrap());
        for bad in [
            "",
            "-",
            "0",
            "00000000-0000-0000-0000-00000000000g",
            "000000000000-0000-0000-0000-00000000",
            "+0000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(bad.parse::<BootId>(), Err(BootIdError::Text(bad.to_owned())));
        }
    }
}
