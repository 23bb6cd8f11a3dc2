//! The archive: written once, and the snapshot read from it again.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// The snapshot's name in an archive.
pub(super) const SNAPSHOT: &str = "snapshot.json";
/// More than a snapshot ever has: an archive of somebody else's may say anything.
const MOST: u64 = 1 << 30;

/// An archive that is written. Root alone can read it: it says much of a network.
pub(super) struct Archive {
    tar: tar::Builder<GzEncoder<File>>,
    /// The directory in it.
    stem: String,
}

impl Archive {
    /// Makes it; a file that is there is not overwritten.
    pub(super) fn create(path: &Path, stem: &str) -> anyhow::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Archive { tar: tar::Builder::new(GzEncoder::new(file, Compression::default())), stem: stem.to_owned() })
    }

    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(bytes.len() as u64);
        self.tar.append_data(&mut header, format!("{}/{name}", self.stem), bytes)?;
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.tar.into_inner()?.finish()?.sync_all()?;
        Ok(())
    }
}

/// The snapshot's text in a file, which is an archive or the snapshot itself.
pub(crate) fn snapshot_in(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    let got = file.read(&mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    if magic.get(..got) != Some(&[0x1f, 0x8b]) {
        file.take(MOST).read_to_end(&mut text)?;
        return Ok(text);
    }
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(MOST));
    for entry in tar.entries().context("it is no archive of netloom sysdump")? {
        let entry = entry.context("it is no whole archive of netloom sysdump")?;
        if entry.path().is_ok_and(|path| path.file_name().is_some_and(|name| name == SNAPSHOT) && path.components().count() == 2) {
            entry.take(MOST).read_to_end(&mut text)?;
            return Ok(text);
        }
    }
    anyhow::bail!("it has no {SNAPSHOT}: take an archive with netloom sysdump")
}
