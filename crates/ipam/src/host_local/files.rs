//! The files of a network's directory: listed, read, made and removed. Symbolic links are never followed: what cannot
//! be a file of ours still keeps its address from being handed out, but is not read.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use linux::Errno;
use linux::file::{IN_PLACE, rename_new};

use super::failure::IoFailure;
use super::owner::Holder;

/// The name under which an address's file is written before it appears under its own. Found, it is left from a writer
/// that was killed: whoever writes holds the lock.
pub(super) const HALF_WRITTEN: &str = ".reserving";

/// A file named after an address.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) ip: IpAddr,
    pub(super) name: String,
    regular: bool,
}

// How often a thread has listed a directory and read an address's file.
#[cfg(test)]
thread_local! {
    pub(super) static LISTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    pub(super) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Reads one file after the other with one buffer.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    dir: &'a Path,
    buffer: [u8; 512],
}

/// Whether the directory is there. A symbolic link in its place is refused: it could lead anywhere.
pub(super) fn exists(dir: &Path) -> Result<bool, IoFailure> {
    match fs::symlink_metadata(dir) {
        Ok(about) if about.is_dir() => Ok(true),
        Ok(about) => Err(IoFailure::of("use", dir)(io::Error::from_raw_os_error(if about.is_symlink() { 40 } else { 20 }))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(IoFailure::of("use", dir)(e)),
    }
}

/// Makes the directory and those above it, as the reference plugin does.
pub(super) fn create(dir: &Path) -> Result<(), IoFailure> {
    if !exists(dir)? {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(IoFailure::of("create the directory", dir))?;
    }
    Ok(())
}

/// Whether files can be made in the directory, or it can be made where it belongs. Nothing is changed, also no time.
pub(super) fn can_be_made(dir: &Path) -> Result<(), IoFailure> {
    let there = if exists(dir)? { dir } else { dir.ancestors().skip(1).find(|d| d.exists()).unwrap_or(Path::new("/")) };
    linux::file::can_make_files(there).map_err(|e| IoFailure::of("create files in", there)(e.into()))
}

/// Every file named after an address, in no order.
pub(super) fn list(dir: &Path) -> Result<Vec<Entry>, IoFailure> {
    #[cfg(test)]
    LISTED.set(LISTED.get() + 1);
    let mut entries = Vec::new();
    for entry in linux::file::entries(dir).map_err(IoFailure::of("list", dir))? {
        let Ok(name) = entry.name.into_string() else { continue };
        if let Ok(ip) = name.parse::<IpAddr>() {
            let look = || fs::symlink_metadata(dir.join(&name)).is_ok_and(|about| about.is_file());
            let regular = entry.regular.unwrap_or_else(look);
            entries.push(Entry { ip: ip.to_canonical(), name, regular });
        }
    }
    Ok(entries)
}

/// The file of an address, if there is one.
pub(super) fn entry(dir: &Path, ip: IpAddr) -> Result<Option<Entry>, IoFailure> {
    let name = ip.to_string();
    let path = dir.join(&name);
    match fs::symlink_metadata(&path) {
        Ok(about) => Ok(Some(Entry { ip, name, regular: about.is_file() })),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(IoFailure::of("read", &path)(e)),
    }
}

/// Who holds an address.
pub(super) fn holder(dir: &Path, ip: IpAddr) -> Result<Option<Holder>, IoFailure> {
    let Some(entry) = entry(dir, ip)? else { return Ok(None) };
    Ok(Reader::new(dir).read(&entry)?.map(Holder::of))
}

/// Lets an address's file appear, whole or not at all; `false` if the address is taken.
///
/// The content is written under another name first: a writer that is killed between making and filling the file would
/// leave an address that is nobody's and yet taken. It then gets its name in one step, which fails if somebody has it.
pub(super) fn reserve(dir: &Path, ip: IpAddr, content: &str) -> Result<bool, IoFailure> {
    let path = dir.join(ip.to_string());
    let half = dir.join(HALF_WRITTEN);
    let written = match write_new(&half, content) {
        // Never opened again: it may share its inode with the file of an address.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove(&half)?;
            write_new(&half, content)
        }
        other => other,
    };
    written.map_err(IoFailure::of("write", &half))?;
    linux::crash_point!("lease-half-written");
    let (named, is_left) = match rename_new(&half, &path) {
        Ok(()) => (Ok(()), false),
        // A file system that cannot do it (some network and user-space ones), or a filter of system calls that does not know it.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EPERM) => (link(&half, &path, content), true),
        Err(e) => (Err(e.into()), true),
    };
    linux::crash_point!("lease-linked");
    let removed = if is_left { remove(&half) } else { Ok(()) };
    linux::crash_point!("lease-named");
    match named {
        Ok(()) => removed.map(|()| true).inspect_err(|_| drop(fs::remove_file(&path))),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => removed.map(|()| false),
        Err(e) => Err(IoFailure::of("write", &path)(e)),
    }
}

fn link(half: &Path, path: &Path, content: &str) -> io::Result<()> {
    match fs::hard_link(half, path) {
        // A file system without hard links (FAT, some network and user-space ones): then as the reference plugin does.
        Err(e) if matches!(e.raw_os_error(), Some(1 | 38 | 95)) => write_new(path, content),
        other => other,
    }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    linux::crash_point!("lease-opened");
    file.write_all(content.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

/// Removes a file; it need not exist.
pub(super) fn remove(path: &Path) -> Result<(), IoFailure> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(IoFailure::of("remove", path)(e)),
        _ => Ok(()),
    }
}

/// How many sets' files stay open from the search until the next address is noted: a configuration may have hundreds, and a process has a
/// limit of open files.
const KEPT_OPEN: usize = 4;

/// The file with the address of a set that was handed out last.
#[derive(Debug)]
pub(super) struct LastReserved {
    /// The address. It only says where the search begins: one that cannot be read begins at the beginning.
    pub(super) ip: Option<IpAddr>,
    path: PathBuf,
    /// With how many bytes it has; `None`: it is not there, or of no use.
    file: Option<(File, u64)>,
}

impl LastReserved {
    /// Of a set that is not searched.
    pub(super) fn unread(dir: &Path, set: usize) -> Self {
        LastReserved { ip: None, path: last_reserved_path(dir, set), file: None }
    }

    pub(super) fn read(dir: &Path, set: usize) -> Self {
        let mut last = LastReserved::unread(dir, set);
        let Ok(mut file) = OpenOptions::new().read(true).write(true).custom_flags(IN_PLACE).open(&last.path) else { return last };
        let Some(about) = file.metadata().ok().filter(Metadata::is_file) else { return last };
        let mut bytes = [0; 64];
        let Ok(length) = read_some(&mut file, &mut bytes) else { return last };
        let text = bytes.get(..length).and_then(|text| str::from_utf8(text).ok());
        last.ip = text.and_then(|text| text.trim().parse::<IpAddr>().ok()).map(|ip| ip.to_canonical());
        last.file = (set < KEPT_OPEN).then_some((file, about.len()));
        last
    }

    /// Written over the old text and only then cut to length, so that a full disk does not lose what was there.
    pub(super) fn note(&self, ip: IpAddr) -> Result<(), IoFailure> {
        let text = ip.to_string();
        let made = || -> io::Result<(File, u64)> {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(IN_PLACE).open(&self.path)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        };
        let write = || -> io::Result<()> {
            let new;
            let (file, length) = match &self.file {
                Some(open) => open,
                None => {
                    new = made()?;
                    &new
                }
            };
            linux::crash_point!("last-reserved-opened");
            file.write_all_at(text.as_bytes(), 0)?;
            linux::crash_point!("last-reserved-written");
            // To set the length it has already would be a change to the file system too.
            if *length <= text.len() as u64 { Ok(()) } else { file.set_len(text.len() as u64) }
        };
        write().map_err(IoFailure::of("write", &self.path))
    }
}

fn last_reserved_path(dir: &Path, set: usize) -> PathBuf {
    dir.join(format!("last_reserved_ip.{set}"))
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(dir: &'a Path) -> Self {
        Reader { dir, buffer: [0; 512] }
    }

    /// What stands in a file; empty if that cannot be a file of ours, `None` if the file has gone.
    pub(super) fn read(&mut self, entry: &Entry) -> Result<Option<&[u8]>, IoFailure> {
        if !entry.regular {
            return Ok(Some(&[]));
        }
        #[cfg(test)]
        READ.set(READ.get() + 1);
        let path = self.dir.join(&entry.name);
        let mut file = match OpenOptions::new().read(true).custom_flags(IN_PLACE).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(IoFailure::of("read", &path)(e)),
        };
        let length = read_some(&mut file, &mut self.buffer).map_err(IoFailure::of("read", &path))?;
        // The longest of ours has 135 bytes: a full buffer is something else.
        let content = self.buffer.get(..length).filter(|c| c.len() < self.buffer.len());
        Ok(Some(content.unwrap_or_default()))
    }
}

/// A regular file gives all it has in one read.
fn read_some(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
