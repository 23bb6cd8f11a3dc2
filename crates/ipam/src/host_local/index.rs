//! An index beside a network's directory, so that a call costs the same whatever is held. It knows nothing that the
//! files do not say, and may be lost at any moment.
//!
//! ```text
//! <dataDir>/.<network>.index      0600
//!     header                      which directory, in which state; nonce, when read, where the tables are
//!     owners                      hash of a file's content -> its address
//!     blocks                      which addresses are taken, as a tree of bitmaps
//! ```
//!
//! It is not in the network's directory, because the reference plugin reads every file there.
//!
//! # When it is believed
//! Others change the directory behind our back: the reference plugin, which takes the same lock, and people, who take
//! none. The kernel sets the directory's mtime and ctime when a name in it appears, goes or changes, to one and the same
//! moment. So every change of ours ends, under the lock, with setting the mtime to a moment 10 s *before* now, and the
//! header notes both times. It is believed only if both are still so:
//!
//! - Whatever anybody does to a name makes the two times equal, and the header's differ: it is noticed however coarse
//!   the clock's ticks are and whatever is done to the clock, also within the same tick as our own change.
//! - Who then sets the mtime back (`touch -r`, `rsync -t`, a restored backup) moves the ctime, which nobody can set; only
//!   within the same tick as our stamp, 4 ms or so, and before Linux 6.13, would it look the same.
//! - A copy of the directory, or one of the same name made anew, is another inode or has another ctime.
//!
//! A process may be killed at any instruction. What it did to the directory has moved the mtime, and before it changes
//! the file it wipes the header; the header comes last. So either the old header speaks of a directory that has moved on,
//! or there is none. A power cut may leave pages of different moments, hence the boot ID in the header. Pages carry
//! checksums, so what is torn or garbled is noticed when it is read; then, as always when in doubt, all files are read,
//! and the index is written anew.
//!
//! # What it cannot see
//! - The content of a file that is rewritten in place, which neither plugin does: no name changes.
//! - What somebody who takes no lock does in the fraction of a millisecond between our last look at the times, which is
//!   before our first change and after all files have been read, and our stamp.
//!
//! Both are people's doing, and for both: an address is taken in one step, which fails if it is not free; it is
//! freed only after its own file has been read; that no address is free is said only if all files were read less than
//! a minute ago, so that a full range, of which every ADD is refused, is not read by each of them. What remains is that an
//! address that was freed in this way may be missed for a minute, and an owner that came in this way is not found; the next
//! change by anybody else mends both, so does a collection, and after an hour at the latest the files are read again in
//! any case.
//!
//! An index that cannot be written (a full disk, a directory of somebody else) is none, and no error.

mod blocks;
mod header;
mod table;

use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::rc::Rc;

use linux::file::IN_PLACE;

use crate::range::{address, number};
use blocks::Block;
use header::Header;
pub(super) use header::Stamp;
#[cfg(test)]
pub(super) use table::WRITES_LEFT;
use table::{Disk, PAGE, Record, Table, checksum, write};

/// Of fewer addresses none is written: reading their files costs no more.
pub(super) const LEAST: usize = 16;

/// What is held in one directory.
#[derive(Debug)]
pub(super) struct Index {
    owners: Table<IndexEntry>,
    blocks: Table<Block>,
    /// When the files were read, in seconds since 1970.
    read: u64,
    /// Where it comes from; `None`: just made from the files.
    disk: Option<Rc<Disk>>,
    changed: bool,
    worth_keeping: bool,
}

/// An address and the hash of what stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexEntry {
    key: u64,
    ip: IpAddr,
}

impl Record for IndexEntry {
    const SIZE: usize = 25;

    fn home(&self) -> u64 {
        self.key
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.key.to_le_bytes().into_iter().chain(number(self.ip).to_le_bytes()));
        to.push(u8::from(self.ip.is_ipv4()));
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let (key, rest) = from.split_first_chunk()?;
        let (ip, v4) = rest.split_first_chunk()?;
        Some(IndexEntry { key: u64::from_le_bytes(*key), ip: address(v4 == [1], u128::from_le_bytes(*ip)) })
    }
}

/// What a file's content is found by, its key; two contents may share one.
pub(super) fn key(content: &[u8]) -> u64 {
    checksum(1, content.trim_ascii())
}

// === impl Index ===

impl Index {
    /// An index of nothing, with room for so many addresses, to be filled from the files; whether it is to be written.
    pub(super) fn of_files(room: usize, worth_keeping: bool) -> Self {
        // Addresses that were handed out in turn lie close together; if they do not, the table grows.
        let (owners, blocks) = (Table::with_room(room), Table::with_room(room / 64));
        Index { owners, blocks, read: header::now(), disk: None, changed: false, worth_keeping }
    }

    /// The index in a file, if it can be believed. The lock of `dir` is held.
    pub(super) fn open(path: &Path, dir: &File, write: bool) -> Option<Self> {
        let file = OpenOptions::new().read(true).write(write).custom_flags(IN_PLACE).open(path).ok()?;
        let mut bytes = [0; PAGE];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let Header { nonce, owners, blocks, read, .. } = Header::decode(&bytes).filter(|header| header.fits(dir))?;
        let disk = Disk::new(file, nonce);
        let (owners, blocks) = (Table::on(&disk, owners), Table::on(&disk, blocks));
        Some(Index { owners, blocks, read, disk: Some(disk), changed: false, worth_keeping: true })
    }

    /// Whether something has been read that was not written so; then nothing that it said is to be believed.
    pub(super) fn is_broken(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_broken())
    }

    /// Whether the files were read so lately that it may say that no address is free.
    pub(super) fn is_recent(&self) -> bool {
        header::is_recent(self.read)
    }

    /// Whether there is something to write.
    pub(super) fn has_news(&self) -> bool {
        if self.disk.is_some() { self.changed } else { self.worth_keeping }
    }

    /// Notes an address; one whose file holds nothing has no owner.
    pub(super) fn take(&mut self, ip: IpAddr, content: &[u8]) {
        if !content.trim_ascii().is_empty() {
            self.owners.insert(IndexEntry { key: key(content), ip });
        }
        self.blocks.take(ip);
        self.changed = true;
    }

    /// Forgets an address, whose file's content had this key.
    pub(super) fn free(&mut self, ip: IpAddr, key: u64) {
        let held = IndexEntry { key, ip };
        self.owners.remove(held.home(), |h| *h == held);
        self.blocks.free(ip);
        self.changed = true;
    }

    /// The addresses whose files may hold this content, sorted.
    pub(super) fn with_content(&mut self, content: &[u8]) -> Vec<IpAddr> {
        let (key, mut found) = (key(content), Vec::new());
        self.owners.each_at(key, |h| found.extend((h.key == key).then_some(h.ip)));
        found.sort();
        found
    }

    /// The first number from `from` to `to` whose address is free.
    pub(super) fn first_free(&mut self, v4: bool, from: u128, to: u128) -> Option<u128> {
        self.blocks.first_free(v4, from, to)
    }

    /// Writes what has changed and marks the directory's state as the one it speaks of. The lock of `dir` is held, and
    /// nothing in it is changed any more. After an error there is no index.
    pub(super) fn commit(mut self, path: &Path, dir: &File) -> io::Result<()> {
        match self.disk.clone() {
            Some(disk) if disk.is_broken() => Ok(()),
            Some(disk) if !self.owners.is_whole() && !self.blocks.is_whole() => {
                write(&disk.file, &[0; PAGE], 0)?;
                self.owners.write()?;
                self.blocks.write()?;
                self.seal(&disk.file, disk.nonce, dir)
            }
            _ => self.write_anew(path, dir),
        }
    }

    fn write_anew(&mut self, path: &Path, dir: &File) -> io::Result<()> {
        // What has not been read yet is in the file that is about to be overwritten.
        self.owners.load();
        self.blocks.load();
        if self.is_broken() {
            return Ok(());
        }
        let owners = self.owners.place(1);
        let blocks = self.blocks.place(owners.first + owners.total);
        let (nonce, mut bytes) = (header::nonce(), vec![0; PAGE]);
        bytes.reserve((blocks.first + blocks.total) as usize * PAGE);
        self.owners.encode(nonce, &mut bytes);
        self.blocks.encode(nonce, &mut bytes);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(IN_PLACE).open(path)?;
        // On a full disk what has been written is given back: an address may need the room.
        write(&file, &bytes, 0).inspect_err(|_| drop(file.set_len(0)))?;
        file.set_len(bytes.len() as u64)?;
        self.seal(&file, nonce, dir)
    }

    fn seal(&self, file: &File, nonce: u64, dir: &File) -> io::Result<()> {
        let Some(stamp) = Stamp::put(dir)? else { return Ok(()) };
        let header = Header { nonce, stamp, read: self.read, owners: self.owners.extent(), blocks: self.blocks.extent() };
        match header.encode() {
            Some(bytes) => write(file, &bytes, 0),
            None => Ok(()),
        }
    }
}

/// Makes an index believed, whatever it says: as if what was done to the directory had not been seen.
#[cfg(test)]
pub(super) fn believe(path: &Path, dir: &Path, read_ago: i64) {
    let (file, dir) = (File::options().read(true).write(true).open(path).unwrap(), File::open(dir).unwrap());
    let mut bytes = [0; PAGE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (header, stamp) = (Header::decode(&bytes).unwrap(), Stamp::put(&dir).unwrap().unwrap());
    let read = header::now().saturating_add_signed(-read_ago);
    file.write_all_at(&Header { stamp, read, ..header }.encode().unwrap(), 0).unwrap();
}
