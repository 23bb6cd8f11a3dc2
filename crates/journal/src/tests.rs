//! Real files; power cuts and flipped bits are made by hand in what was written.

mod part;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// A directory of a test's own.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Dir(std::env::temp_dir().join(format!("nl-journal-{}-{n}", std::process::id())))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("0000000000000000.log")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Of a machine that does much else.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// For who waits in vain.
fn at_once() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

fn try_open(dir: &Path) -> Result<(Journal, Vec<String>), OpenError> {
    try_open_by(dir, soon())
}

fn try_open_by(dir: &Path, deadline: Instant) -> Result<(Journal, Vec<String>), OpenError> {
    let mut records = Vec::new();
    let journal = Journal::open(dir, deadline, |r| records.push(String::from_utf8(r.to_vec()).unwrap()))?;
    Ok((journal, records))
}

fn open(dir: &Dir) -> (Journal, Vec<String>) {
    try_open(&dir.0).unwrap()
}

fn put(journal: &Journal, record: &str) {
    journal.wait(&journal.append(record.as_bytes())).unwrap();
}

/// A journal with these records, one write each, and the byte at which each write ends.
fn written(dir: &Dir, records: &[&str]) -> Vec<u64> {
    let (journal, _) = open(dir);
    let ends = records.iter().map(|record| {
        put(&journal, record);
        journal.log_size()
    });
    ends.collect()
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Nothing from here on has reached the disk.
fn blank(path: &Path, from: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let rest = usize::try_from(file.metadata().unwrap().len() - from).unwrap();
    file.write_all_at(&vec![0; rest], from).unwrap();
}

#[test]
fn what_was_waited_for_comes_back() {
    let dir = Dir::new();
    let (journal, records) = open(&dir);
    assert_eq!(records, [""; 0]);
    ["a", "", "ccc"].iter().for_each(|r| put(&journal, r));
    drop(journal);
    let (journal, records) = open(&dir);
    assert_eq!(records, ["a", "", "ccc"]);
    put(&journal, "d");
    drop(journal);
    assert_eq!(open(&dir).1, ["a", "", "ccc", "d"]);
}

#[test]
fn a_directory_that_others_may_look_into_is_closed_if_it_is_a_journals_own() {
    let mode = |dir: &Dir| fs::metadata(&dir.0).unwrap().permissions().mode() & 0o777;
    let open_to_all = |dir: &Dir| fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = Dir::new();
    drop(open(&dir));
    assert_eq!(mode(&dir), 0o700);
    // As an earlier release has made it; what was damaged is put aside in it.
    open_to_all(&dir);
    fs::create_dir(dir.path("damaged-0000000000000001")).unwrap();
    drop(open(&dir));
    assert_eq!(mode(&dir), 0o700);
    // One that has something else is somebody else's as well: /var/lib, say.
    open_to_all(&dir);
    fs::create_dir(dir.path("dpkg")).unwrap();
    drop(open(&dir));
    assert_eq!(mode(&dir), 0o755);
}

#[test]
fn one_at_a_time() {
    let dir = Dir::new();
    let (_journal, _) = open(&dir);
    assert!(matches!(try_open_by(&dir.0, at_once()), Err(OpenError::Locked(_))));
}

#[test]
fn many_wait_for_few_writes() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    thread::scope(|s| {
        for t in 0..16 {
            let journal = &journal;
            s.spawn(move || (0..50).for_each(|n| put(journal, &format!("{t}:{n}"))));
        }
    });
    drop(journal);
    let (_, records) = open(&dir);
    assert_eq!(records.len(), 800);
    let mut next = BTreeMap::<&str, usize>::new();
    for record in &records {
        let (thread, n) = record.split_once(':').unwrap();
        let next = next.entry(thread).or_default();
        assert_eq!(n.parse(), Ok(*next), "each thread's own come in its order");
        *next += 1;
    }
}

#[test]
fn a_write_that_was_not_finished_is_dropped() {
    let dir = Dir::new();
    let ends = written(&dir, &["one", "two", "three"]);
    for cut in ends[1] + 1..ends[2] {
        blank(&dir.log(), cut);
        assert_eq!(open(&dir).1, ["one", "two"], "cut at {cut}");
    }
    // And the next one goes to its place.
    put(&open(&dir).0, "four");
    assert_eq!(open(&dir).1, ["one", "two", "four"]);
}

fn cut(path: &Path, to: u64) {
    File::options().write(true).open(path).unwrap().set_len(to).unwrap();
}

fn is_lost(dir: &Dir) -> bool {
    let is_so = |e: OpenError| matches!(e, OpenError::Damaged { .. } | OpenError::Missing { .. });
    let (seen, opened) = (read(&dir.0).is_err_and(is_so), try_open(&dir.0).is_err_and(is_so));
    assert_eq!(seen, opened, "who looks and who opens it are told the same");
    opened
}

/// A log has its room before anything is written there: a write that was not finished makes it no shorter.
#[test]
fn a_log_that_ends_too_early_is_told() {
    let dir = Dir::new();
    let ends = written(&dir, &["one", "two"]);
    let whole = fs::read(dir.log()).unwrap();
    for to in (0..=ends[1] + 50).chain([4096, whole.len() as u64 - 1]) {
        cut(&dir.log(), to);
        assert!(is_lost(&dir), "cut to {to}");
        fs::write(dir.log(), &whole).unwrap();
    }
    // A disk that forgets all of it.
    blank(&dir.log(), 0);
    assert!(is_lost(&dir));
    fs::write(dir.log(), &whole).unwrap();
    assert_eq!(open(&dir).1, ["one", "two"]);
}

/// What was left of a long frame stands behind a shorter one: its bytes say nothing of a length.
#[test]
fn what_is_left_of_a_write_says_nothing() {
    let dir = Dir::new();
    let end = written(&dir, &["one"])[0];
    // Of a frame that nobody finished, whose records would be a length of many bytes wherever one is read.
    let mut whole = fs::read(dir.log()).unwrap();
    let left = usize::try_from(end).unwrap();
    whole.iter_mut().skip(left + 8).step_by(4).take(1000).for_each(|byte| *byte = 0xff);
    fs::write(dir.log(), &whole).unwrap();
    for length in [1, 500, 501, 502, 503] {
        let (journal, found) = open(&dir);
        assert_eq!(found, ["one"]);
        put(&journal, &"x".repeat(length));
        drop(journal);
        assert_eq!(open(&dir).1.len(), 2, "{length} bytes");
        fs::write(dir.log(), &whole).unwrap();
    }
}

/// The same of one that has grown, wherever in what it has grown by it ends.
#[test]
fn a_long_log_that_ends_too_early_is_told() {
    let dir = Dir::new();
    let records: Vec<String> = (0..12).map(|n| format!("{n}{}", "x".repeat(50_000))).collect();
    let ends = written(&dir, &records.iter().map(String::as_str).collect::<Vec<_>>());
    let whole = fs::read(dir.log()).unwrap();
    let chunk = 256 << 10;
    assert_eq!(whole.len(), 3 * chunk);
    let exact = ends.iter().copied().filter(|end| *end > chunk as u64);
    for to in [chunk, 2 * chunk].map(|at| at as u64).into_iter().chain(exact.flat_map(|end| [end - 30_000, end - 5, end])) {
        cut(&dir.log(), to);
        assert!(is_lost(&dir), "cut to {to} of {}", whole.len());
        fs::write(dir.log(), &whole).unwrap();
    }
    // Whoever was killed while he made room leaves any length, and nothing in it; the next one goes on from there.
    for extra in [1, 4096, chunk - 1] {
        fs::write(dir.log(), [whole.clone(), vec![0; extra]].concat()).unwrap();
        let (journal, found) = open(&dir);
        assert_eq!(found, records, "{extra} bytes more");
        put(&journal, &"y".repeat(chunk));
        drop(journal);
        assert_eq!(fs::metadata(dir.log()).unwrap().len() % chunk as u64, 0);
        assert_eq!(open(&dir).1.len(), records.len() + 1);
    }
}

/// Where one was and none is: the only one, and the last of two.
#[test]
fn a_log_that_is_gone_is_told() {
    let dir = Dir::new();
    written(&dir, &["one"]);
    let whole = fs::read(dir.log()).unwrap();
    fs::remove_file(dir.log()).unwrap();
    assert!(is_lost(&dir));
    // Made anew it is damaged until its snapshot is there, and in order then.
    let log = dir.path("0000000000000001.log");
    begin_anew(&dir.0, soon(), ["one"]).unwrap();
    assert_eq!(open(&dir).1, ["one"]);
    fs::remove_file(dir.path("0000000000000001.snapshot")).unwrap();
    assert!(log.exists() && is_lost(&dir));
    fs::remove_file(log).unwrap();
    fs::write(dir.log(), whole).unwrap();
    let (journal, _) = open(&dir);
    drop(journal.turn().unwrap());
    put(&journal, "two");
    drop(journal);
    assert_eq!(open(&dir).1, ["one", "two"]);
    fs::remove_file(dir.path("0000000000000001.log")).unwrap();
    assert!(is_lost(&dir));
}

/// Whoever makes a journal, or the next log of one, may be killed before it has its name, and before it is marked.
#[test]
fn a_log_that_is_being_made() {
    let dir = Dir::new();
    fs::create_dir_all(&dir.0).unwrap();
    fs::write(dir.path("0000000000000000.log.unfinished"), "half").unwrap();
    assert_eq!(read(&dir.0), Ok(None));
    put(&open(&dir).0, "first");
    fs::remove_file(dir.path("begun")).unwrap();
    assert_eq!(open(&dir).1, ["first"]);
    fs::write(dir.path("0000000000000001.log.unfinished"), vec![0; 40]).unwrap();
    assert_eq!(open(&dir).1, ["first"]);
    assert_eq!(dir.names(), ["0000000000000000.log", "begun", "lock"]);
    // The next one has its name, and the one before does not say so yet.
    drop(log::Log::create(dir.path("0000000000000001.log"), 1, 1).unwrap());
    put(&open(&dir).0, "second");
    assert_eq!(open(&dir).1, ["first", "second"]);
}

/// A release before this one may have been killed before anything was in it. From then on it is as one of ours.
#[test]
fn a_log_of_a_release_before_this_one_is_begun_again() {
    let header = frame::file_header(0, 0).to_vec();
    for bytes in [vec![], vec![0; 10], vec![0; 24], vec![0; 4096], vec![0; 300_000], header.clone(), [header, vec![0; 99]].concat()] {
        let dir = Dir::new();
        fs::create_dir_all(&dir.0).unwrap();
        fs::write(dir.log(), &bytes).unwrap();
        drop(open(&dir));
        put(&open(&dir).0, "first");
        assert_eq!(open(&dir).1, ["first"], "{} bytes", bytes.len());
        cut(&dir.log(), 0);
        assert!(is_lost(&dir));
    }
}

/// What is still there of a damaged one, whatever stands between.
#[test]
fn what_can_be_read_of_a_damaged_one() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    ["one", "two"].iter().for_each(|record| put(&journal, record));
    journal.turn().unwrap().write(["all"]).unwrap();
    ["three", "four", "five"].iter().for_each(|record| put(&journal, record));
    drop(journal);
    flip(&dir.path("0000000000000001.log"), 45);
    assert!(is_lost(&dir));
    let mut found = Vec::new();
    salvage(&dir.0, |record| found.push(String::from_utf8(record.to_vec()).unwrap())).unwrap();
    assert_eq!(found, ["one", "two", "all", "four", "five"]);
}

#[test]
fn a_bit_that_flips_in_the_middle_is_told() {
    let dir = Dir::new();
    let ends = written(&dir, &["one", "two", "three"]);
    for at in 0..ends[1] {
        flip(&dir.log(), at);
        let found = try_open(&dir.0).map(|(_, records)| records);
        assert!(matches!(found, Err(OpenError::Damaged { .. })), "byte {at}: {found:?}");
        flip(&dir.log(), at);
    }
    assert_eq!(open(&dir).1, ["one", "two", "three"]);
}

#[test]
fn what_a_failed_write_has_left_is_not_taken_for_a_record() {
    let dir = Dir::new();
    let ends = written(&dir, &["one"]);
    // A write of two frames' length that was told to have failed, as its flush did.
    let (mut records, mut second) = (Vec::new(), Vec::new());
    frame::put_record(&mut records, b"two");
    frame::put_record(&mut second, b"lost");
    let left = [frame::frame(2, 1, &records), frame::frame(2, 2, &second)].concat();
    File::options().write(true).open(dir.log()).unwrap().write_all_at(&left, ends[0]).unwrap();
    let mut log = log::Log::resume(dir.log(), 0, &scanned_at(&dir, ends[0])).unwrap();
    log.write(&records, 1).unwrap();
    drop(log);
    assert_eq!(open(&dir).1, ["one", "two"]);
}

/// What is known of the log by whoever has written the first record, and had a failure then.
fn scanned_at(dir: &Dir, end: u64) -> log::Scanned {
    let copy = dir.path("copy");
    fs::copy(dir.log(), &copy).unwrap();
    blank(&copy, end);
    let mut scanned = log::scan(&copy, 0, None, log::Length::Whole, |_| ()).unwrap();
    scanned.attempt = 2;
    scanned
}

#[test]
fn a_snapshot_replaces_what_was_before() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    (0..10).for_each(|n| put(&journal, &format!("old {n}")));
    let pending = journal.append(b"with the turn");
    let turn = journal.turn().unwrap();
    assert_eq!(journal.wait(&pending), Ok(()));
    put(&journal, "meanwhile");
    turn.write(["state"]).unwrap();
    put(&journal, "later");
    drop(journal);
    assert_eq!(dir.names(), ["0000000000000000.log", "0000000000000001.log", "0000000000000001.snapshot", "begun", "lock"]);
    let (journal, records) = open(&dir);
    assert_eq!(records, ["state", "meanwhile", "later"]);
    journal.turn().unwrap().write(["a", "b"]).unwrap();
    drop(journal);
    assert_eq!(open(&dir).1, ["a", "b"]);
    assert_eq!(dir.names(), ["0000000000000001.log", "0000000000000002.log", "0000000000000002.snapshot", "begun", "lock"]);
}

fn texts(records: &[Vec<u8>]) -> Vec<&str> {
    records.iter().map(|r| std::str::from_utf8(r).unwrap()).collect()
}

#[test]
fn who_only_looks_takes_no_lock_and_makes_nothing() {
    let dir = Dir::new();
    assert_eq!(read(&dir.0), Ok(None));
    fs::create_dir_all(&dir.0).unwrap();
    assert_eq!(read(&dir.0), Ok(None));
    assert_eq!(dir.names(), [""; 0]);
    let (journal, _) = open(&dir);
    ["one", "two"].iter().for_each(|r| put(&journal, r));
    let reading = read(&dir.0).unwrap().unwrap();
    assert_eq!((texts(&reading.records), texts(&reading.past)), (vec!["one", "two"], vec![]));
    journal.turn().unwrap().write(["both"]).unwrap();
    put(&journal, "three");
    let reading = read(&dir.0).unwrap().unwrap();
    assert_eq!((texts(&reading.records), texts(&reading.past)), (vec!["both", "three"], vec!["one", "two"]));
    // What has been is not what is: damage to it harms nobody.
    flip(&dir.log(), 30);
    assert_eq!(texts(&read(&dir.0).unwrap().unwrap().records), ["both", "three"]);
    flip(&dir.path("0000000000000001.snapshot"), 30);
    assert!(matches!(read(&dir.0), Err(OpenError::Damaged { .. })));
}

#[test]
fn a_damaged_one_is_kept_beside_a_new_one() {
    let dir = Dir::new();
    written(&dir, &["one", "two", "three"]);
    flip(&dir.log(), 40);
    assert!(matches!(try_open(&dir.0), Err(OpenError::Damaged { .. })));
    let broken = fs::read(dir.log()).unwrap();
    let kept = begin_anew(&dir.0, soon(), ["two", "three"]).unwrap();
    let (journal, records) = open(&dir);
    assert_eq!(records, ["two", "three"]);
    assert_eq!(fs::read(kept.join("0000000000000000.log")).unwrap(), broken);
    put(&journal, "four");
    assert!(matches!(begin_anew(&dir.0, at_once(), ["x"]), Err(OpenError::Locked(_))));
    drop(journal);
    assert_eq!(open(&dir).1, ["two", "three", "four"]);
    fs::remove_file(dir.path("0000000000000001.snapshot")).unwrap();
    assert!(try_open(&dir.0).is_err(), "it does not count without its snapshot");
}

/// Whoever reads sees a beginning of what is written, and all that was on the disk when the reading began: never damage.
#[test]
fn reading_while_others_write_and_make_snapshots() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    let (done, readings) = (AtomicU32::new(0), AtomicU32::new(0));
    let count = |reading: Reading| {
        let mut next = 0;
        for text in texts(&reading.records) {
            // A snapshot is one record: how many there have been.
            next = match text.strip_prefix("all ") {
                Some(all) => all.parse().unwrap(),
                None => (text.parse::<u32>().unwrap() == next).then_some(next + 1).expect("none is missing"),
            };
        }
        next
    };
    let begun = Instant::now();
    thread::scope(|s| {
        let writer = s.spawn(|| {
            // Until there was enough to see, and somebody has seen enough.
            let more = |n: &u32| *n < 3000 || readings.load(Ordering::SeqCst) <= 5 && begun.elapsed() < Duration::from_secs(300);
            for n in (0..).take_while(more) {
                put(&journal, &format!("{n:0>300}"));
                done.store(n + 1, Ordering::SeqCst);
                if n % 50 == 49 {
                    journal.turn().unwrap().write([format!("all {}", n + 1)]).unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let least = done.load(Ordering::SeqCst);
            let seen = read(&dir.0).unwrap().map_or(0, count);
            assert!(seen >= least, "{seen} of {least}");
            readings.fetch_add(1, Ordering::SeqCst);
        }
    });
    let readings = readings.into_inner();
    assert!(readings > 5, "{readings}");
    assert_eq!(count(read(&dir.0).unwrap().unwrap()), done.into_inner());
}

#[test]
fn without_its_snapshot_a_turn_loses_nothing() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    put(&journal, "one");
    drop(journal.turn().unwrap());
    put(&journal, "two");
    drop(journal.turn().unwrap());
    put(&journal, "three");
    drop(journal);
    fs::write(dir.path("0000000000000002.unfinished"), "half a snapshot").unwrap();
    let (journal, records) = open(&dir);
    assert_eq!(records, ["one", "two", "three"]);
    journal.turn().unwrap().write(["all"]).unwrap();
    drop(journal);
    assert_eq!(open(&dir).1, ["all"]);
    fs::remove_file(dir.path("0000000000000003.log")).unwrap();
    let missing = try_open(&dir.0).map(|(_, records)| records).unwrap_err();
    assert_eq!(missing, OpenError::Missing { path: dir.path("0000000000000003.log") });
}

#[test]
fn a_log_that_is_missing_between_others_is_told() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    for n in 0..3 {
        put(&journal, &n.to_string());
        drop(journal.turn().unwrap());
    }
    drop(journal);
    fs::remove_file(dir.path("0000000000000001.log")).unwrap();
    assert!(matches!(try_open(&dir.0), Err(OpenError::Missing { .. })));
}

#[test]
fn a_large_snapshot_comes_back_and_a_damaged_one_is_told() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    let records: Vec<String> = (0..30_000).map(|n| format!("{n:0>100}")).collect();
    journal.turn().unwrap().write(&records).unwrap();
    drop(journal);
    assert_eq!(open(&dir).1, records);
    let path = dir.path("0000000000000001.snapshot");
    let size = fs::metadata(&path).unwrap().len();
    for at in [0, 30, size / 2, size - 1] {
        flip(&path, at);
        assert!(matches!(try_open(&dir.0), Err(OpenError::Damaged { .. })), "byte {at}");
        flip(&path, at);
    }
    File::options().write(true).open(&path).unwrap().set_len(size - 20).unwrap();
    assert!(matches!(try_open(&dir.0), Err(OpenError::Damaged { .. })), "its last frame is missing");
}

#[test]
fn a_full_disk_refuses_and_harms_nothing() {
    let dir = Dir::new();
    fs::create_dir_all(&dir.0).unwrap();
    let small = Small::mount(&dir.0, "1m");
    let (journal, _) = open(&dir);
    let large = "x".repeat(100 << 10);
    let mut kept = 0;
    let failure = loop {
        match journal.wait(&journal.append(large.as_bytes())) {
            Ok(()) => kept += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(failure.errno, nix::libc::ENOSPC, "{failure}");
    assert!(kept > 2);
    // There is room for what is small, and a snapshot that does not fit leaves all as it was.
    put(&journal, "small");
    assert!(journal.turn().and_then(|turn| turn.write(std::iter::repeat_n(&large, 100))).is_err());
    drop(journal);
    let (_, records) = open(&dir);
    assert_eq!((records.len(), records.last().unwrap().as_str()), (kept + 1, "small"));
    drop(small);
}

/// What is appended at once may be more than a frame has: it becomes several, and a disk that is full keeps the first of them.
#[test]
fn more_than_a_frame_has() {
    let dir = Dir::new();
    fs::create_dir_all(&dir.0).unwrap();
    let small = Small::mount(&dir.0, "40m");
    let (journal, _) = open(&dir);
    let record = |n: usize| format!("{n:0>4000}");
    let each = frame::MOST / frame::record_size(record(0).as_bytes());
    let tickets: Vec<Ticket> = (0..each + 10).map(|n| journal.append(record(n).as_bytes())).collect();
    tickets.iter().for_each(|ticket| journal.wait(ticket).unwrap());
    let full: Vec<Ticket> = (0..2 * each).map(|n| journal.append(record(n).as_bytes())).collect();
    let done: Vec<bool> = full.iter().map(|ticket| journal.wait(ticket).is_ok()).collect();
    let kept = done.iter().take_while(|done| **done).count();
    assert!(kept > 0 && done[kept..].iter().all(|done| !done), "{kept} of {}", done.len());
    put(&journal, "small");
    assert!(journal.wait(&journal.append(&vec![0; frame::MOST])).is_err(), "nobody could read it");
    drop(journal);
    let (_, records) = open(&dir);
    assert_eq!((records.len(), records.last().unwrap().as_str()), (each + 10 + kept + 1, "small"));
    assert!(records[..each + 10].iter().enumerate().all(|(n, found)| *found == record(n)));
    drop(small);
}

/// What is looked for behind a large write that was not finished, and what must not be missed there, is found in a moment.
#[test]
fn behind_a_large_write_that_was_not_finished() {
    let dir = Dir::new();
    let ends = written(&dir, &["one"]);
    let mut records = Vec::new();
    for n in 0..60_000_u64 {
        // As what is given back at a start: lengths, texts, numbers.
        let mut record = vec![7];
        frame::put_record(&mut record, b"pods");
        frame::put_record(&mut record, format!("{n:0>10}").as_bytes());
        record.extend([n.to_le_bytes(), [9; 8], (n + 9_000_000).to_le_bytes()].concat());
        frame::put_record(&mut records, &record);
    }
    let large = frame::frame(1, 1, &records);
    let mut next = Vec::new();
    frame::put_record(&mut next, b"next");
    let file = File::options().write(true).open(dir.log()).unwrap();
    let at = |behind: usize| ends[0] + behind as u64;
    file.write_all_at(&large[4096..], at(4096)).unwrap();
    let since = Instant::now();
    assert_eq!(open(&dir).1, ["one"]);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    file.write_all_at(&frame::frame(1, 60_001, &next), at(large.len())).unwrap();
    assert!(matches!(try_open(&dir.0), Err(OpenError::Damaged { at, .. }) if at == ends[0]));
}

/// A file system of so many bytes.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, size: &str) -> Self {
        let size = format!("size={size}");
        let done = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &size, "nl-journal"]).arg(at).status().unwrap();
        assert!(done.success());
        Small(at.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a power cut leaves of the last write, and whatever byte is changed: what comes back is a beginning of what was
    /// written with all that was finished, or damage is told.
    #[test]
    fn a_beginning_or_nothing(
        records in proptest::collection::vec("[a-z]{0,300}", 1..20),
        turns in proptest::collection::btree_set(0..20_usize, 0..3),
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
    ) {
        let dir = Dir::new();
        let (journal, _) = open(&dir);
        for (n, record) in records.iter().enumerate() {
            if turns.contains(&n) {
                drop(journal.turn().unwrap());
            }
            put(&journal, record);
        }
        drop(journal);
        let names: Vec<String> = dir.names().into_iter().filter(|n| n.ends_with("log")).collect();
        let path = dir.path(at.get::<String>(&names));
        let used = fs::read(&path).unwrap().iter().rposition(|b| *b != 0).unwrap() + 40;
        File::options().write(true).open(&path).unwrap().write_all_at(&[value], at.index(used) as u64).unwrap();
        match try_open(&dir.0) {
            // The last write of the last log may be lost to it, no other.
            Ok((_, found)) => prop_assert!(records.starts_with(&found) && found.len() + 1 >= records.len(), "{found:?}"),
            Err(e) => prop_assert!(matches!(e, OpenError::Damaged { .. }), "{e}"),
        }
    }

    #[test]
    fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600), header in any::<bool>()) {
        let dir = Dir::new();
        fs::create_dir_all(&dir.0).unwrap();
        let begin = if header { frame::file_header(0, 0).to_vec() } else { Vec::new() };
        fs::write(dir.log(), [begin, bytes].concat()).unwrap();
        let _ = try_open(&dir.0);
    }
}

/// Whoever was killed while it wrote a snapshot leaves a part of one; nobody reads it, and it does not stay.
#[test]
fn what_was_never_finished_goes() {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    assert_eq!(journal.behind(), 0);
    drop(journal.turn().unwrap());
    fs::write(dir.path("0000000000000001.unfinished"), "a part").unwrap();
    drop(journal);
    let (journal, _) = open(&dir);
    assert_eq!(journal.behind(), 1, "the snapshot is not there");
    assert!(!dir.names().iter().any(|name| name.ends_with("unfinished")), "{:?}", dir.names());
}

/// Zeros that stand behind the last record are room for the next one; those that are part of it are not.
#[test]
fn records_that_end_in_zeros() {
    let dir = Dir::new();
    let records: Vec<String> = [10_usize, 40_000, 70_000, 0, 1, 32 << 10, 150_000].iter().map(|n| "\0".repeat(*n)).collect();
    for (n, record) in records.iter().enumerate() {
        let (journal, found) = open(&dir);
        assert_eq!(found, records[..n], "{n}");
        put(&journal, record);
    }
    assert_eq!(open(&dir).1, records);
}
