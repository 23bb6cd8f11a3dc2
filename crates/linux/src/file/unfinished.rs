//! A new file that is not there before it is whole.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::linkat;

/// A new file that is written. It gets its name when it is whole (`O_TMPFILE`): of a process that is killed before, nothing is left. On a file
/// system without such files it has its name from the beginning, and is removed if this is dropped unfinished.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    path: PathBuf,
    /// It has its name, and is not whole.
    is_named: bool,
}

// === impl Unfinished ===

impl Unfinished {
    /// Makes it, with these permissions, less the umask.
    ///
    /// # Errors
    /// `EEXIST` if there is something with this name, and those of `open`.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(Errno::EEXIST.into());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let nameless = File::options().write(true).custom_flags(OFlag::O_TMPFILE.bits()).mode(mode).open(folder);
        // What ends with a slash is no name of a file, which the other way says.
        let file = nameless.ok().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
        let is_named = file.is_none();
        let file = file.map_or_else(|| File::options().write(true).create_new(true).mode(mode).open(path), Ok)?;
        Ok(Unfinished { file, path: path.to_owned(), is_named })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// `EEXIST` if another file has got the name meanwhile, and those of `linkat`.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.is_named {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(AT_FDCWD, open.as_str(), AT_FDCWD, &self.path, AtFlags::AT_SYMLINK_FOLLOW)?;
        }
        self.is_named = false;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_named {
            // Half of it is of no use.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_is_there_when_it_is_whole() {
        let dir = std::env::temp_dir().join(format!("nllx-unfinished-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("new");
        let begun = Unfinished::create(&path, 0o600).unwrap();
        begun.file().write_all(b"half").unwrap();
        drop(begun);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        let whole = Unfinished::create(&path, 0o600).unwrap();
        whole.file().write_all(b"whole").unwrap();
        assert!(!path.exists());
        whole.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(Unfinished::create(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        // Another one was faster.
        let other = dir.join("other");
        let late = Unfinished::create(&other, 0o600).unwrap();
        std::fs::write(&other, b"first").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&other).unwrap(), b"first");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
