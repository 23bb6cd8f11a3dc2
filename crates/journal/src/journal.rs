//! The directory: which files count, who writes, and who waits.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use linux::file::Lock;

use crate::brief::{Behind, Name, RecordSource};
use crate::log::{self, Length, Log, Scanned};
use crate::{Failure, OpenError, frame, snapshot};

/// There has been a log, with its name on the disk: from then on one that is not there, or not whole, is a lost one.
const BEGUN: &str = "begun";

/// A journal that is open, and nobody else's.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    shared: Mutex<Shared>,
    /// The log is there again: for who wants it for something else than writing.
    returned: Condvar,
    behind: u64,
    _lock: Lock,
}

#[derive(Debug)]
struct Shared {
    /// `None`: somebody is writing to it.
    log: Option<Log>,
    /// How many bytes it had when it was here last.
    size: u64,
    /// What is not written yet: a frame each, and all but the last are as large as one may be.
    full: Vec<Pending>,
    last: Pending,
    /// How many went to the disk together last.
    together: u64,
    number: u64,
}

/// What becomes a frame.
#[derive(Debug, Default)]
struct Pending {
    batch: Arc<Batch>,
    records: Vec<u8>,
    count: u64,
}

/// Records that go to the disk together. Who waits for them has a lock of their own: who is woken is in nobody's way.
#[derive(Debug, Default)]
struct Batch {
    done: OnceLock<Result<(), Failure>>,
    /// The log is there: one of those that wait may write.
    may_write: Mutex<bool>,
    /// It is done, or may be written. Nobody is woken for another batch than his own.
    changed: Condvar,
}

/// A record that was appended: [`Journal::wait`] until it is on the disk.
#[derive(Debug)]
#[must_use = "a record is on the disk when it was waited for"]
pub struct Ticket(Arc<Batch>);

/// A snapshot that is to be written: [`PendingSnapshot::write`]. Without it, what was before stays, and nothing is lost.
#[derive(Debug)]
#[must_use = "the previous files stay until the snapshot is written"]
pub struct PendingSnapshot {
    dir: PathBuf,
    number: u64,
}

// === impl Journal ===

impl Journal {
    /// Opens the journal of a directory, which is made if it is not there, and gives each of its records to `each`, in order.
    /// Waits until the deadline for another process that has it.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(dir: &Path, deadline: Instant, mut each: impl FnMut(&[u8])) -> Result<Self, OpenError> {
        linux::file::make_own_dir(dir).map_err(|e| Failure::new("make", dir, &e))?;
        let lock = linux::file::lock(&dir.join("lock"), Some(deadline))?;
        let Files { base, last } = files(dir, &mut each)?;
        let is_new = last.is_none();
        let (number, log) = match last {
            Some((number, scanned)) => (number, Log::resume(dir.join(log_name(number)), number, &scanned)?),
            None => (base, Log::create(dir.join(log_name(base)), base, 0)?),
        };
        // On a full disk one of a release before this one has no mark, and works as ever.
        mark_begun(dir).or_else(|e| if is_new { Err(e) } else { Ok(()) })?;
        close_to_others(dir);
        tidy(dir, base)?;
        remove_unfinished(dir)?;
        Ok(Journal { behind: number.saturating_sub(base), ..Journal::of(dir, number, log, lock) })
    }

    /// How many snapshots were begun after the latest one, and are not there: who wrote them was killed, or the disk is full.
    pub fn behind(&self) -> u64 {
        self.behind
    }

    /// Opens the journal of a directory for one thing: of the snapshot its brief is read ([`PendingSnapshot::write_in_short`]) and the records
    /// with this name, and then the log, which has to be at most as many bytes as `most` says of a snapshot of so many. Of a record of the log
    /// `each` may answer with another name: the snapshot's records of that come last. What it costs does not depend on how much the snapshot
    /// has.
    ///
    /// `None`: that is not to be had, whatever `each` was given, and nothing was changed. [`Journal::open`] has all, or tells why not.
    ///
    /// # Errors
    /// [`OpenError::Locked`]
    pub fn open_part(
        dir: &Path,
        deadline: Instant,
        name: Name,
        most: impl Fn(u64) -> u64,
        mut each: impl FnMut(RecordSource, &[u8]) -> Option<Name>,
    ) -> Result<Option<Self>, OpenError> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let lock = linux::file::lock(&dir.join("lock"), Some(deadline))?;
        let mut read = || -> Option<(u64, Log)> {
            // One of a release before this one.
            if !is_begun(dir).ok()? {
                return None;
            }
            let (snapshots, logs) = numbers(dir).ok()?;
            let base = snapshots.last().copied()?;
            // A snapshot that was begun and is not there yet.
            if !logs.range(base..).eq([&base]) {
                return None;
            }
            let snapshot = Behind::open(&dir.join(snapshot_name(base)), base)?;
            snapshot.brief(|record| {
                each(RecordSource::Brief, record);
            })?;
            let named = |name, each: &mut dyn FnMut(RecordSource, &[u8]) -> Option<Name>| {
                snapshot.named(name, |record| {
                    each(RecordSource::Named, record);
                })
            };
            named(name, &mut each)?;
            let mut others = BTreeSet::new();
            let log = dir.join(log_name(base));
            let scanned = log::scan(&log, base, None, Length::Whole, |record| others.extend(each(RecordSource::Log, record))).ok()?;
            if scanned.closed || scanned.end > most(snapshot.size()) {
                return None;
            }
            others.into_iter().try_for_each(|name| named(name, &mut each))?;
            Some((base, Log::resume(log, base, &scanned).ok()?))
        };
        Ok(read().map(|(number, log)| Journal::of(dir, number, log, lock)))
    }

    fn of(dir: &Path, number: u64, log: Log, lock: Lock) -> Self {
        let size = log.size();
        let shared = Shared { log: Some(log), size, full: Vec::new(), last: Pending::default(), together: 0, number };
        Journal { dir: dir.to_owned(), shared: Mutex::new(shared), returned: Condvar::new(), behind: 0, _lock: lock }
    }

    /// Appends a record, in memory: a record appended later stands behind it.
    pub fn append(&self, record: &[u8]) -> Ticket {
        let mut shared = self.shared();
        if shared.last.count > 0 && shared.last.records.len() + frame::record_size(record) > frame::MOST {
            let full = std::mem::take(&mut shared.last);
            shared.full.push(full);
        }
        frame::put_record(&mut shared.last.records, record);
        shared.last.count += 1;
        Ticket(Arc::clone(&shared.last.batch))
    }

    /// Waits until the record is on the disk. Whoever comes first writes for all that have come by then.
    ///
    /// # Errors
    /// [`Failure`]: it is not, and will not be. What is appended afterwards may be.
    pub fn wait(&self, ticket: &Ticket) -> Result<(), Failure> {
        let Ticket(own) = ticket;
        loop {
            if let Some(done) = own.done.get() {
                return done.clone();
            }
            let log = self.shared().log.take();
            match log {
                Some(log) => self.write(log),
                None => own.wait(),
            }
        }
    }

    /// Writes what all have appended by now.
    fn write(&self, mut log: Log) {
        let mut shared = self.gather();
        // Whoever found the log may have nothing left to write: somebody has written it for him.
        if shared.count() > 0 {
            shared.together = shared.count();
        }
        let pending = shared.take();
        drop(shared);
        let written = put(&mut log, pending);
        self.give_back(&mut self.shared(), log);
        written.into_iter().for_each(|(batch, done)| batch.finish(done));
    }

    /// Those whose records were written together are on their way to the next ones: where they were many, one flush more or less is
    /// worth a moment. It is over when no more have come.
    fn gather(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared();
        let mut seen = 0;
        while seen < shared.count() && shared.count() < shared.together {
            seen = shared.count();
            drop(shared);
            thread::yield_now();
            shared = self.shared();
        }
        shared
    }

    /// How many bytes the log has: when it is many times what a snapshot has, it is time for one.
    #[must_use]
    pub fn log_size(&self) -> u64 {
        self.shared().size
    }

    /// Begins a snapshot: what is appended from now on is not in it. Call it while the state cannot change, take the state's
    /// records, and write them with [`PendingSnapshot::write`] when it may change again. What was appended before is on the disk when
    /// this returns.
    ///
    /// # Errors
    /// [`Failure`]; the journal goes on as before.
    pub fn turn(&self) -> Result<PendingSnapshot, Failure> {
        let mut shared = self.shared();
        let mut log = loop {
            match shared.log.take() {
                Some(log) => break log,
                None => shared = self.returned.wait(shared).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let turned = shared.turn(&self.dir, &mut log);
        self.give_back(&mut shared, log);
        turned
    }

    /// Who waits for it gets it, or one of those whose records are not written yet.
    fn give_back(&self, shared: &mut Shared, log: Log) {
        shared.size = log.size();
        shared.log = Some(log);
        shared.pending().for_each(|pending| pending.batch.may_write());
        self.returned.notify_one();
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Shared ===

impl Shared {
    /// What is not written yet, in order.
    fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.full.iter().chain([&self.last]).filter(|pending| pending.count > 0)
    }

    fn count(&self) -> u64 {
        self.pending().map(|pending| pending.count).sum()
    }

    fn take(&mut self) -> Vec<Pending> {
        let mut pending = std::mem::take(&mut self.full);
        if self.last.count > 0 {
            pending.push(std::mem::take(&mut self.last));
        }
        pending
    }

    fn turn(&mut self, dir: &Path, log: &mut Log) -> Result<PendingSnapshot, Failure> {
        let written = put(log, self.take());
        let done = written.iter().try_for_each(|(_, done)| done.clone());
        written.into_iter().for_each(|(batch, done)| batch.finish(done));
        done?;
        let number = self.number + 1;
        let path = dir.join(log_name(number));
        log.prepare_close()?;
        // First the new one has its name, then the old one says so: nothing is in the new one before both is on the disk.
        let made = Log::create(path.clone(), number, log.next()).and_then(|new| log.close().map(|()| new));
        match made {
            Ok(new) => {
                linux::crash_point!("journal-turned");
                *log = new;
                self.number = number;
                Ok(PendingSnapshot { dir: dir.to_owned(), number })
            }
            Err(e) => {
                // The old one goes on: a new one would be in the way of who reads both.
                let _ = std::fs::remove_file(&path).map(|()| linux::file::sync_folder(&path));
                Err(e)
            }
        }
    }
}

/// Writes them one after the other. What is on the disk is a beginning of what was appended: behind what could not be written nothing is.
fn put(log: &mut Log, pending: Vec<Pending>) -> Vec<(Arc<Batch>, Result<(), Failure>)> {
    let mut done = Ok(());
    let write = |Pending { batch, records, count }| {
        done = done.clone().and_then(|()| log.write(&records, count));
        (batch, done.clone())
    };
    pending.into_iter().map(write).collect()
}

// === impl Batch ===

impl Batch {
    fn finish(&self, result: Result<(), Failure>) {
        // Once: whoever finishes it has taken it out.
        let _ = self.done.set(result);
        // Who has looked before it was done waits now.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// One of those that wait writes it.
    fn may_write(&self) {
        *self.lock() = true;
        self.changed.notify_one();
    }

    /// Waits until it is done, or may be written.
    fn wait(&self) {
        let waits = |may_write: &mut bool| !*may_write && self.done.get().is_none();
        let mut may_write = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        *may_write = false;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.may_write.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PendingSnapshot ===

impl PendingSnapshot {
    /// Writes the snapshot, and removes what it replaces.
    ///
    /// # Errors
    /// [`Failure`]; what was before is still there then, and counts.
    pub fn write<R: AsRef<[u8]>>(self, records: impl IntoIterator<Item = R>) -> Result<(), Failure> {
        self.write_all(unnamed(records), None::<[&[u8]; 0]>)
    }

    /// The same, for who opens the journal for one thing, too ([`Journal::open_part`]): `brief` stands for all records, and those
    /// that have a name are found by it.
    ///
    /// # Errors
    /// As for [`PendingSnapshot::write`].
    pub fn write_in_short<R: AsRef<[u8]>, B: AsRef<[u8]>>(
        self,
        records: impl IntoIterator<Item = (Option<Name>, R)>,
        brief: impl IntoIterator<Item = B>,
    ) -> Result<(), Failure> {
        self.write_all(records, Some(brief))
    }

    fn write_all<R: AsRef<[u8]>, B: AsRef<[u8]>>(
        self,
        records: impl IntoIterator<Item = (Option<Name>, R)>,
        brief: Option<impl IntoIterator<Item = B>>,
    ) -> Result<(), Failure> {
        snapshot::write(&self.dir.join(snapshot_name(self.number)), self.number, records, brief)?;
        tidy(&self.dir, self.number)
    }
}

pub(crate) fn unnamed<R>(records: impl IntoIterator<Item = R>) -> impl Iterator<Item = (Option<Name>, R)> {
    records.into_iter().map(|record| (None, record))
}

pub(crate) fn log_name(number: u64) -> String {
    format!("{number:016x}.log")
}

pub(crate) fn snapshot_name(number: u64) -> String {
    format!("{number:016x}.snapshot")
}

/// What was read of a directory.
pub(crate) struct Files {
    /// The number of the snapshot that counts; 0 where there is none yet.
    pub(crate) base: u64,
    /// The last log and its number.
    pub(crate) last: Option<(u64, Scanned)>,
}

/// Reads all that counts in a directory, record by record.
pub(crate) fn files(dir: &Path, mut each: impl FnMut(&[u8])) -> Result<Files, OpenError> {
    // Before the look at what there is: whoever makes the first log marks it afterwards.
    let begun = is_begun(dir)?;
    let (snapshots, logs) = numbers(dir)?;
    let base = snapshots.last().copied().unwrap_or(0);
    if snapshots.contains(&base) {
        snapshot::read(&dir.join(snapshot_name(base)), base, &mut each)?;
    }
    let mut last: Option<(u64, Scanned)> = None;
    for number in logs.range(base..).copied() {
        let expected = last.as_ref().map_or(base, |(number, _)| number + 1);
        if number != expected {
            return Err(OpenError::Missing { path: dir.join(log_name(expected)) });
        }
        let length = if begun && logs.last() == Some(&number) { Length::Whole } else { Length::Any };
        let scanned = log::scan(&dir.join(log_name(number)), number, last.as_ref().map(|(_, s)| s.next), length, &mut each)?;
        last = Some((number, scanned));
    }
    let missing = match &last {
        // The log of a snapshot is made before it.
        None => (begun || base > 0).then_some(base),
        Some((number, scanned)) => scanned.closed.then_some(number + 1),
    };
    match missing {
        Some(number) => Err(OpenError::Missing { path: dir.join(log_name(number)) }),
        None => Ok(Files { base, last }),
    }
}

/// Whether there has been a log, so that there must be one.
fn is_begun(dir: &Path) -> Result<bool, Failure> {
    let mark = dir.join(BEGUN);
    mark.try_exists().map_err(|e| Failure::new("look for", &mark, &e))
}

/// An earlier release, or a person, may have made the directory for all to look into. One that has nothing but a journal's files is a
/// journal's own; any other keeps its mode. Where it cannot be changed, its files are root's alone all the same.
fn close_to_others(dir: &Path) {
    let is_own = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let is_dir = entry.file_type().map_or(true, |kind| kind.is_dir());
            !is_dir || entry.file_name().as_encoded_bytes().starts_with(b"damaged-")
        })
    };
    let is_open = std::fs::metadata(dir).is_ok_and(|about| about.permissions().mode() & 0o077 != 0);
    if is_open && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.all(is_own)) {
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    }
}

/// There is a log, as a whole and on the disk.
pub(crate) fn mark_begun(dir: &Path) -> Result<(), Failure> {
    if is_begun(dir)? {
        return Ok(());
    }
    Ok(linux::file::write_atomic(&dir.join(BEGUN), b"", 0o600, linux::file::Durability::Durable)?)
}

/// Reads one log, whatever stands before and behind it.
pub(crate) fn log_of(dir: &Path, number: u64, each: impl FnMut(&[u8])) -> Result<(), OpenError> {
    log::scan(&dir.join(log_name(number)), number, None, Length::Any, each).map(drop)
}

/// The snapshots and logs that there are.
pub(crate) fn numbers(dir: &Path) -> Result<(BTreeSet<u64>, BTreeSet<u64>), Failure> {
    let (mut snapshots, mut logs) = (BTreeSet::new(), BTreeSet::new());
    let failed = |e: std::io::Error| Failure::new("read", dir, &e);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let Some(number) = u64::from_str_radix(number, 16).ok().filter(|_| number.len() == 16) else { continue };
        match kind {
            "snapshot" => snapshots.insert(number),
            "log" => logs.insert(number),
            _ => false,
        };
    }
    Ok((snapshots, logs))
}

/// Removes snapshots and logs that were never finished: who wrote them is no more, as nobody else has the journal.
fn remove_unfinished(dir: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(dir).map_err(|e| Failure::new("read", dir, &e))? {
        let path = entry.map_err(|e| Failure::new("read", dir, &e))?.path();
        if path.extension().is_some_and(|kind| kind == "unfinished") {
            std::fs::remove_file(&path).map_err(|e| Failure::new("remove", &path, &e))?;
        }
    }
    Ok(())
}

/// Removes what a snapshot has replaced. The log before the snapshot stays: it counts no more,
/// but tells whoever asks who had what ([`crate::Reading::past`]).
pub(crate) fn tidy(dir: &Path, base: u64) -> Result<(), Failure> {
    let (snapshots, logs) = numbers(dir)?;
    let logs = logs.range(..base.saturating_sub(1));
    let old = snapshots.range(..base).map(|n| snapshot_name(*n)).chain(logs.map(|n| log_name(*n)));
    let mut removed = false;
    for name in old {
        let path = dir.join(name);
        std::fs::remove_file(&path).map_err(|e| Failure::new("remove", &path, &e))?;
        linux::crash_point!("journal-old-removed");
        removed = true;
    }
    if removed { Ok(linux::file::sync_folder(&dir.join("lock"))?) } else { Ok(()) }
}
