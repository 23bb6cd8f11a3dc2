//! What the fuzz targets share: how one input becomes several, and where files of a run are kept.
//!
//! A target fails by a panic. It does not only look for those of the code that it calls: each states what must hold of
//! whatever was read, above all that it is read again as it was printed.

use std::path::{Path, PathBuf};

use cni::{NetworkList, NetworkName};

/// The parts of an input: NUL stands between them, which no text of ours may contain. Missing ones are empty.
pub fn parts<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    let mut rest = bytes.splitn(N, |b| *b == 0);
    std::array::from_fn(|_| rest.next().unwrap_or_default())
}

/// Some name, where any will do.
pub fn name() -> NetworkName {
    NetworkName::parse("net").expect("a good name")
}

/// Holds a network against its own source, which is what the result cache and the record of a sandbox keep of it: DEL
/// must find in there what ADD had.
pub fn assert_kept(list: &NetworkList) {
    let again = NetworkList::parse(&list.source, None).expect("a network's source is a network");
    let seen = |l: &NetworkList| (l.name.clone(), l.version, l.disable_check, l.disable_gc, l.load_only_inlined_plugins);
    assert_eq!(seen(&again), seen(list));
    assert_eq!(again.plugins, list.plugins);
}

/// A directory for what can be reached through files alone. Its parent is `TMPDIR`, which `scripts/fuzz.sh` puts into
/// memory, and removes: libFuzzer ends a process without a word to anyone.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, empty.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netloom-fuzz-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the run");
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}
