//! What durability costs: a record appended to a file that has its blocks, and flushed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// As long as a lease is in the journal.
const RECORD: [u8; 192] = [0x5a; 192];

/// Behind the end it begins again.
const SIZE: u64 = 1 << 20;

/// A file with all its blocks.
pub(super) struct Flushed {
    file: File,
    at: u64,
}

// === impl Flushed ===

impl Flushed {
    pub(super) fn make(path: &Path) -> Result<Self> {
        std::fs::write(path, vec![0; usize::try_from(SIZE)?]).with_context(|| format!("write {}", path.display()))?;
        let file = File::options().write(true).open(path)?;
        file.sync_all()?;
        Ok(Flushed { file, at: 0 })
    }

    /// One record, until it is on the disk.
    pub(super) fn time(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.file.write_all_at(&RECORD, self.at)?;
        self.file.sync_data()?;
        let time = start.elapsed();
        self.at = (self.at + RECORD.len() as u64) % (SIZE - RECORD.len() as u64);
        Ok(time)
    }
}
