//! Every namespace that something leads to: a process in it, or a mount.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::NetnsId;

/// The network namespaces of this machine that can be reached from here, with a path to each: those of processes (`/proc/PID/ns/net`)
/// and those that are mounted in this mount namespace (as `ip netns list` and `lsns -t net` find them). One that only a socket or
/// a descriptor holds is not among them, nor what another PID namespace hides.
///
/// # Errors
/// `/proc` cannot be read.
pub fn reachable() -> io::Result<Vec<(NetnsId, PathBuf)>> {
    let mut found = BTreeMap::new();
    // A mount outlives any process: its path is the better one.
    for path in mounted(&std::fs::read_to_string("/proc/self/mountinfo")?) {
        note(&mut found, path);
    }
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
            note(&mut found, path.join("ns/net"));
        }
    }
    Ok(found.into_iter().map(|((dev, ino), path)| (NetnsId { dev, ino }, path)).collect())
}

/// What is gone by now is not there.
fn note(found: &mut BTreeMap<(u64, u64), PathBuf>, path: PathBuf) {
    if let Ok(status) = std::fs::metadata(&path) {
        found.entry((status.dev(), status.ino())).or_insert(path);
    }
}

/// Where `/proc/PID/mountinfo` (proc(5)) has network namespaces mounted.
fn mounted(mountinfo: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let (fields, rest) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        (rest.starts_with("nsfs ") && root.starts_with("net:[")).then(|| unescaped(at))
    };
    mountinfo.lines().filter_map(of_line).collect()
}

/// Blanks and backslashes stand as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let signs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    Path::new(&signs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_namespaces() {
        let text = "25 30 0:23 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n\
                    612 25 0:4 net:[4026532281] /run/netns/a\\040b rw shared:400 - nsfs nsfs rw\n\
                    613 25 0:4 mnt:[4026532282] /run/mnt rw - nsfs nsfs rw\n";
        assert_eq!(mounted(text), [Path::new("/run/netns/a b")]);
    }

    #[test]
    fn this_one_is_among_them() {
        let own = super::super::Netns::current().unwrap().id();
        assert!(reachable().unwrap().iter().any(|(id, _)| *id == own));
    }
}
