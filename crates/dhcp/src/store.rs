//! Where leases are kept: a directory beside the daemon's socket, with a file for each.
//!
//! ```text
//!   /run/cni/dhcp.sock
//!   /run/cni/dhcp.leases/.lock                           held by who works on the files: the daemon while it runs, else a DEL or GC
//!   /run/cni/dhcp.leases/<network>@<container>@<ifname>  a lease
//! ```
//!
//! The file is the lease: a daemon that does not find it any more lets go of it. A reboot takes what the files tell of, and
//! `/run` with it; where it stays, the boot's ID in each tells.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{AttachmentId, CniError, Code};
use linux::file::{self, Durability, Links, Lock, LockError};
use linux::{BootId, boot_id};

use crate::lease::{Lease, NotALease};
use crate::link::internal;

/// No lease's file has more bytes.
const LARGEST: usize = 1 << 20;
/// No container ID has an `@` in it.
const SEPARATOR: char = '@';
/// What a file's name has at the most, its hash left aside.
const LONGEST: usize = 200;

/// The directory.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    dir: PathBuf,
    boot: BootId,
    /// What stands before every path of the host, seen from here. In the files there is none, for who sees the host itself.
    prefix: PathBuf,
}

/// A path of the host, as it is seen from where the host's files stand below a prefix.
pub(crate) fn on_host(prefix: &Path, path: &Path) -> PathBuf {
    match prefix.as_os_str().is_empty() {
        true => path.to_owned(),
        false => prefix.join(path.strip_prefix("/").unwrap_or(path)),
    }
}

/// Everything that a directory has.
#[derive(Debug, Default)]
pub(crate) struct StoredLeases {
    pub(crate) leases: Vec<Lease>,
    /// Files that could not be read, and why.
    pub(crate) unread: Vec<(PathBuf, String)>,
}

// === impl Store ===

impl Store {
    /// That of a daemon's socket.
    pub(crate) fn beside(socket: &Path) -> Result<Self, CniError> {
        Ok(Store { dir: socket.with_extension("leases"), boot: boot_id().map_err(internal)?, prefix: PathBuf::new() })
    }

    /// The same for who finds the host's files below a prefix.
    pub(crate) fn below(self, prefix: &Path) -> Self {
        Store { prefix: prefix.to_owned(), ..self }
    }

    /// Makes the directory where it is missing.
    pub(crate) fn make(&self) -> Result<(), CniError> {
        let made = file::make_own_dir(&self.dir);
        made.map_err(|e| CniError::new(Code::IO, format!("create the directory {} for leases: {e}", self.dir.display())))
    }

    /// Whether there is no directory: then there never was a lease.
    pub(crate) fn is_missing(&self) -> bool {
        !self.dir.exists()
    }

    /// The lock of who works on the files; `None` if somebody else has it all the time.
    pub(crate) fn lock(&self, patience: Duration) -> Result<Option<Lock>, CniError> {
        match file::lock(&self.dir.join(".lock"), Some(Instant::now() + patience)) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::TimedOut { .. }) => Ok(None),
            Err(e) => Err(CniError::new(Code::IO, e.to_string())),
        }
    }

    pub(crate) fn path(&self, id: &AttachmentId) -> PathBuf {
        let name = format!("{}{SEPARATOR}{}{SEPARATOR}{}", id.network, id.container, id.ifname);
        if name.len() <= LONGEST {
            return self.dir.join(name);
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let cut: String = name.chars().take(LONGEST).collect();
        self.dir.join(format!("{cut}{SEPARATOR}{:016x}", hasher.finish()))
    }

    pub(crate) fn has(&self, id: &AttachmentId) -> bool {
        self.path(id).exists()
    }

    pub(crate) fn save(&self, lease: &Lease) -> Result<(), CniError> {
        let mut lease = lease.clone();
        if let Ok(path) = lease.place.path.strip_prefix(&self.prefix)
            && !self.prefix.as_os_str().is_empty()
        {
            lease.place.path = Path::new("/").join(path);
        }
        let text = lease.print(self.boot);
        file::write_atomic(&self.path(&lease.id), text.as_bytes(), 0o600, Durability::Volatile)
            .map_err(|e| CniError::new(Code::IO, format!("store the lease: {e}")))
    }

    pub(crate) fn remove(&self, id: &AttachmentId) -> Result<(), CniError> {
        file::remove(&self.path(id)).map_err(|e| CniError::new(Code::IO, format!("remove the lease: {e}")))
    }

    /// One lease; `None` without its file, or if that tells nothing.
    pub(crate) fn load(&self, id: &AttachmentId) -> Option<Lease> {
        let bytes = file::read(&self.path(id), LARGEST, Links::Refused).ok()?;
        self.parse(&bytes).ok().filter(|lease| lease.id == *id)
    }

    fn parse(&self, bytes: &[u8]) -> Result<Lease, NotALease> {
        let mut lease = Lease::parse(bytes, self.boot)?;
        lease.place.path = on_host(&self.prefix, &lease.place.path);
        Ok(lease)
    }

    /// All leases. Files of an earlier boot are removed.
    pub(crate) fn load_all(&self) -> Result<StoredLeases, CniError> {
        let failed = |e: std::io::Error| CniError::new(Code::IO, format!("read the directory {}: {e}", self.dir.display()));
        let mut found = StoredLeases::default();
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let read = file::read(&path, LARGEST, Links::Refused).map_err(|e| NotALease::Torn(e.to_string()));
            match read.and_then(|bytes| self.parse(&bytes)) {
                Ok(lease) if self.path(&lease.id) == path => found.leases.push(lease),
                Ok(lease) => found.unread.push((path, format!("it is the lease of {}, under another lease's name", lease.id))),
                Err(NotALease::OtherBoot) => drop(file::remove(&path)),
                Err(e) => found.unread.push((path, e.to_string())),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed of the fuzz target, of this boot.
    fn lease() -> Lease {
        let text = include_str!("../../../fuzz/seeds/dhcp/file").trim_start_matches('f');
        Lease::parse(text.as_bytes(), "11111111-2222-3333-4444-555555555555".parse().unwrap()).unwrap()
    }

    /// A daemon in a container, and a plugin on the host that finds it gone.
    #[test]
    fn a_file_names_the_path_of_the_host() {
        let dir = std::env::temp_dir().join(format!("nllx-dhcp-store-{}", std::process::id()));
        let on_host = Store::beside(&dir.join("dhcp.sock")).unwrap();
        let daemons = on_host.clone().below(Path::new("/host"));
        on_host.make().unwrap();
        let mut own = lease();
        let path = own.place.path.clone();
        own.place.path = super::on_host(Path::new("/host"), &path);
        daemons.save(&own).unwrap();
        let (seen, kept) = (on_host.load(&own.id).unwrap(), daemons.load(&own.id).unwrap());
        let all = daemons.load_all().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((seen.place.path, &kept), (path, &own));
        assert_eq!(all.leases, [own]);
    }
}
