//! The archive: written once, and the snapshots read from it again.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use linux::file::Unfinished;

/// The snapshot's name in an archive.
pub(super) const SNAPSHOT: &str = "snapshot.json";
/// The folder of a cluster's archive with those of its nodes.
pub(super) const NODES: &str = "nodes";
/// How their names end.
pub(super) const ENDING: &str = ".tar.gz";
/// More than a snapshot ever has: an archive of somebody else's may say anything.
const MOST: u64 = 1 << 30;

/// Where an archive goes.
pub(super) enum Target {
    /// A new file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// An archive that is written. Root alone can read it: it says much of a network. What is not finished is not there.
pub(super) struct Archive {
    tar: tar::Builder<GzEncoder<Box<dyn Write>>>,
    /// The directory in it.
    stem: String,
    /// The file, until it is whole.
    file: Option<Unfinished>,
}

// === impl Archive ===

impl Archive {
    /// Makes it; a file that is there is not overwritten.
    pub(super) fn create(target: &Target, stem: &str) -> anyhow::Result<Self> {
        let (out, file): (Box<dyn Write>, _) = match target {
            Target::File(path) => {
                let create = || -> io::Result<_> {
                    let unfinished = Unfinished::create(path, 0o600)?;
                    Ok((unfinished.file().try_clone()?, unfinished))
                };
                let (file, unfinished) = create()
                    .with_context(|| format!("write {} (-o - writes to standard output, -o FILE to another place)", path.display()))?;
                (Box::new(file), Some(unfinished))
            }
            Target::Stdout => {
                let stdout = std::io::stdout();
                anyhow::ensure!(!stdout.is_terminal(), "-o -: standard output is a terminal: redirect it to a file, as with > dump.tar.gz");
                (Box::new(stdout), None)
            }
        };
        Ok(Archive { tar: tar::Builder::new(GzEncoder::new(out, Compression::default())), stem: stem.to_owned(), file })
    }

    /// A file that is read from its content, of so many bytes.
    pub(super) fn put(&mut self, name: &str, length: u64, content: impl Read) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(length);
        self.tar.append_data(&mut header, format!("{}/{name}", self.stem), content).context("write the archive")
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.write_rest().context("write the archive")?;
        self.file.take().map_or(Ok(()), Unfinished::finish).context("write the archive")
    }

    fn write_rest(&mut self) -> io::Result<()> {
        self.tar.finish()?;
        self.tar.get_mut().try_finish()?;
        self.tar.get_mut().get_mut().flush()?;
        self.file.as_ref().map_or(Ok(()), |unfinished| unfinished.file().sync_all())
    }
}

/// The snapshots' texts in a file: that of a node or a lab, those of a cluster's nodes, or the snapshot that the file is itself.
pub(crate) fn snapshots_in(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut file = BufReader::new(File::open(path)?);
    if !std::io::BufRead::fill_buf(&mut file)?.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text)?;
        return Ok(vec![text]);
    }
    let mut found = Vec::new();
    gather(&mut file, true, &mut found)?;
    anyhow::ensure!(!found.is_empty(), "it has no {SNAPSHOT}: take an archive with netloom sysdump");
    Ok(found)
}

/// The snapshots of an archive, and of those in it.
fn gather(archive: &mut dyn Read, is_outer: bool, found: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
    let mut tar = tar::Archive::new(GzDecoder::new(archive).take(MOST));
    for entry in tar.entries().context("it is no archive of netloom sysdump")? {
        let mut entry = entry.context("it is no whole archive of netloom sysdump")?;
        let Ok(name) = entry.path().map(|path| path.iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>())
        else {
            continue;
        };
        match name.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [SNAPSHOT] => {
                let mut text = Vec::new();
                entry.take(MOST).read_to_end(&mut text)?;
                found.push(text);
            }
            [NODES, inner] if is_outer && inner.ends_with(ENDING) => gather(&mut entry, false, found)?,
            _ => {}
        }
    }
    Ok(())
}
