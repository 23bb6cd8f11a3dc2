//! What is in a directory, without the C library, which maps and unmaps memory for each.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// Bytes that are read at once.
const ROOM: usize = 8192;
/// Where in `struct linux_dirent64` (include/linux/dirent.h) its length, the entry's type and its name begin.
const LENGTH: usize = 16;
const TYPE: usize = 18;
const NAME: usize = 19;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a regular file; `None` where the file system does not say.
    pub regular: Option<bool>,
}

/// As the kernel wants it for the numbers in it.
#[repr(align(8))]
struct Buffer([u8; ROOM]);

/// Every entry of a directory but `.` and `..`, in no order.
///
/// # Errors
/// What the kernel says.
pub fn entries(dir: &Path) -> io::Result<Vec<Entry>> {
    let dir = File::open(dir)?;
    let (mut found, mut buffer) = (Vec::new(), Buffer([0; ROOM]));
    loop {
        // SAFETY: the descriptor is open for the call, which writes at most `ROOM` bytes to the buffer, and that outlives it.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.0.as_mut_ptr(), ROOM) };
        match Errno::result(read) {
            Ok(0) => return Ok(found),
            Ok(length) => found.extend(parse(buffer.0.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default())),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn parse(mut bytes: &[u8]) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(length) = bytes.get(LENGTH..).and_then(|rest| rest.first_chunk()).map(|length| usize::from(u16::from_ne_bytes(*length)))
    {
        let Some((entry, rest)) = bytes.split_at_checked(length).filter(|_| length > NAME) else { break };
        bytes = rest;
        let kind = entry.get(TYPE).copied().unwrap_or(libc::DT_UNKNOWN);
        let Some(name) = entry.get(NAME..).and_then(|name| CStr::from_bytes_until_nul(name).ok()) else { continue };
        if !matches!(name.to_bytes(), b"." | b"..") {
            let regular = (kind != libc::DT_UNKNOWN).then_some(kind == libc::DT_REG);
            found.push(Entry { name: OsStr::from_bytes(name.to_bytes()).to_owned(), regular });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_are_found_with_what_they_are() {
        let dir = std::env::temp_dir().join(format!("nllx-entries-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::os::unix::fs::symlink("sub", dir.join("link")).unwrap();
        // More than fit the buffer, of all lengths that a name may have.
        let names: Vec<String> = (0..600).map(|n| format!("{n:0width$}", width = n % 250 + 3)).collect();
        names.iter().for_each(|name| std::fs::write(dir.join(name), "").unwrap());
        let mut found = entries(&dir).unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let mut wanted: Vec<(&str, bool)> =
            names.iter().map(|name| (name.as_str(), true)).chain([("sub", false), ("link", false)]).collect();
        wanted.sort();
        let found: Vec<(&str, bool)> = found.iter().map(|e| (e.name.to_str().unwrap(), e.regular.unwrap())).collect();
        assert_eq!(found, wanted);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(entries(&dir).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(entries("/proc/self/status".as_ref()).is_err());
        assert!(!entries("/proc/self/ns".as_ref()).unwrap().is_empty());
    }

    #[test]
    fn what_is_cut_off_is_no_entry() {
        let bytes = [0_u8; 64];
        assert!(parse(&bytes).is_empty());
        let mut bytes = vec![0; 16];
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend([libc::DT_REG, b'a', 0, 0, 0, 0]);
        assert_eq!(parse(&bytes), [Entry { name: "a".into(), regular: Some(true) }]);
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_empty(), "{length}");
        }
    }
}
