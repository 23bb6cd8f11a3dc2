//! `resolv.conf` (resolv.conf(5)) to the DNS part of a result, as `ipam.resolvConf` asks for.

use std::path::{Path, PathBuf};

use cni::{CniError, Code, Dns};
use linux::file::{self, Links, ReadError};

/// Above this many bytes a file is no `resolv.conf`: it bounds what a path such as `/dev/zero` can do.
const MAX_SIZE: usize = 1 << 20;

/// A `resolv.conf` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolvConfError {
    /// The file cannot be opened or read.
    #[error("ipam.resolvConf: cannot read {path}: {reason}: correct the path or remove the key")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words, with the errno.
        reason: String,
    },
    /// The path is not a file, or a file far larger than a `resolv.conf`.
    #[error("ipam.resolvConf: {path} is not a regular file of at most {MAX_SIZE} bytes")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
}

impl From<ResolvConfError> for CniError {
    fn from(e: ResolvConfError) -> Self {
        CniError::new(Code::IO, e.to_string())
    }
}

/// Reads a file.
///
/// # Errors
/// [`ResolvConfError`] naming it.
pub fn read_resolv_conf(path: &Path) -> Result<Dns, ResolvConfError> {
    let unreadable = |errno: linux::Errno| ResolvConfError::Unreadable {
        path: path.to_owned(),
        reason: std::io::Error::from_raw_os_error(errno as i32).to_string(),
    };
    let bytes = file::read(path, MAX_SIZE, Links::Followed).map_err(|e| match e {
        ReadError::NotFound { .. } => unreadable(linux::Errno::ENOENT),
        ReadError::Refused { errno, .. } => unreadable(errno),
        _ => ResolvConfError::NotAFile { path: path.to_owned() },
    })?;
    Ok(parse_resolv_conf(&String::from_utf8_lossy(&bytes)))
}

/// Reads the text: every `nameserver`, `search` and `options` line adds, the last `domain` counts, anything else is
/// passed over.
pub fn parse_resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let (Some(key), Some(first)) = (words.next(), words.next()) else { continue };
        let all = || std::iter::once(first).chain(words).map(str::to_owned);
        match key {
            "nameserver" => dns.nameservers.push(first.to_owned()),
            "domain" => dns.domain = first.to_owned(),
            "search" => dns.search.extend(all()),
            "options" => dns.options.extend(all()),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "# c\n; c\n\n  nameserver\t192.0.2.0 ignored\r\nnameserver 192.0.2.1\nnameserver\ndomain a.test\ndomain b.test\n\
            search x y\nsearch z\noptions four five six\nsortlist 1\nNAMESERVER 1.1.1.1\n";
        let dns = parse_resolv_conf(text);
        assert_eq!(dns.nameservers, ["192.0.2.0", "192.0.2.1"]);
        assert_eq!(dns.domain, "b.test");
        assert_eq!(dns.search, ["x", "y", "z"]);
        assert_eq!(dns.options, ["four", "five", "six"]);
        assert_eq!(parse_resolv_conf(""), Dns::default());
    }

    #[test]
    fn bad_paths_are_named() {
        let error = |p: &str| read_resolv_conf(Path::new(p)).unwrap_err().to_string();
        assert!(error("/nowhere/resolv.conf").contains("/nowhere/resolv.conf: No such file"));
        assert!(error("/dev/zero").contains("/dev/zero is not a regular file"));
        assert!(error("/proc").contains("/proc is not a regular file"));
        // A regular file, as the kernel says, whose end never comes: whoever reads it as one waits for the next message.
        if Path::new("/proc/kmsg").exists() {
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || tell.send(read_resolv_conf(Path::new("/proc/kmsg")).is_ok()));
            told.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for what the kernel says next");
        }
    }
}
