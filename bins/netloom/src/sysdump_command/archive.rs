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
/// The most bytes of all snapshots' texts together that are read: an archive of somebody else's may say anything. What is read of them is in
/// memory, two to three times as large.
const MOST: u64 = 512 << 20;
/// The most bytes of an archive that are looked through, unpacked: more than `netloom sysdump` puts in. They are not in memory.
const MOST_OF_AN_ARCHIVE: u64 = 1 << 30;
/// The most bytes of a file's name.
const LONGEST_NAME: u64 = 4096;

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

/// Hands over each snapshot's text in a file: that of a node or a lab, those of a cluster's nodes, or the snapshot that the file is itself.
pub(crate) fn each_snapshot(path: &Path, take: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut reader = Snapshots { left: MOST, found: 0, take };
    if !std::io::BufRead::fill_buf(&mut file)?.starts_with(&[0x1f, 0x8b]) {
        return reader.read(&mut file);
    }
    reader.gather(&mut file, true)?;
    anyhow::ensure!(reader.found > 0, "it has no {SNAPSHOT}: take an archive with netloom sysdump");
    Ok(())
}

/// Reads snapshots, one after the other: the text of one is in memory at a time.
struct Snapshots<'a> {
    /// Bytes that may still be read.
    left: u64,
    found: usize,
    take: &'a mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
}

// === impl Snapshots ===

impl Snapshots<'_> {
    fn read(&mut self, from: &mut dyn Read) -> anyhow::Result<()> {
        let mut text = Vec::new();
        from.take(self.left + 1).read_to_end(&mut text)?;
        let Some(left) = self.left.checked_sub(text.len() as u64) else {
            anyhow::bail!(
                "its snapshots have more than {} MiB together: of a cluster, unpack {NODES}/NODE{ENDING} from it and verify that",
                MOST >> 20
            );
        };
        self.left = left;
        self.found += 1;
        (self.take)(&text)
    }

    /// The snapshots of an archive, and of those in it.
    fn gather(&mut self, archive: &mut dyn Read, is_outer: bool) -> anyhow::Result<()> {
        let mut tar = tar::Archive::new(GzDecoder::new(archive).take(MOST_OF_AN_ARCHIVE));
        let mut long_name = None;
        // Raw: what is behind a header is in memory only if it is read here. Otherwise a name has the length that the archive says.
        for entry in tar.entries().context("it is not an archive of netloom sysdump")?.raw(true) {
            let mut entry = entry.context("it is not a complete archive of netloom sysdump")?;
            let kind = entry.header().entry_type();
            if kind.is_gnu_longname() {
                let mut name = Vec::new();
                entry.take(LONGEST_NAME).read_to_end(&mut name)?;
                long_name = name.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
                continue;
            }
            let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
            let name = String::from_utf8_lossy(&name).into_owned();
            match name.split('/').skip(1).collect::<Vec<_>>().as_slice() {
                _ if !kind.is_file() => {}
                [SNAPSHOT] => self.read(&mut entry)?,
                [NODES, inner] if is_outer && inner.ends_with(ENDING) => self.gather(&mut entry, false)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with files of a name, a byte that is repeated, and a length.
    fn archive(files: &[(&str, u8, u64)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, byte, length) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(*length);
            tar.append_data(&mut header, format!("stem/{name}"), io::repeat(*byte).take(*length)).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    /// The lengths of the snapshots that are read, of at most so many bytes together.
    fn read(bytes: &[u8], left: u64) -> anyhow::Result<Vec<usize>> {
        let mut lengths = Vec::new();
        let mut take = |text: &[u8]| {
            lengths.push(text.len());
            Ok(())
        };
        Snapshots { left, found: 0, take: &mut take }.gather(&mut &*bytes, true)?;
        Ok(lengths)
    }

    #[test]
    fn snapshots_have_a_limit_together() {
        let inner = archive(&[(SNAPSHOT, b'x', 600), ("logs/a", b'y', 9000)]);
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        // A node's name may be longer than a header has room for.
        for node in ["n1".to_owned(), "n".repeat(250)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(inner.len() as u64);
            tar.append_data(&mut header, format!("stem/{NODES}/{node}{ENDING}"), inner.as_slice()).unwrap();
        }
        let outer = tar.into_inner().unwrap().finish().unwrap();
        assert_eq!(read(&outer, 1200).unwrap(), [600, 600]);
        let said = read(&outer, 1199).unwrap_err().to_string();
        assert!(said.contains("more than 512 MiB together"), "{said}");
    }
}
