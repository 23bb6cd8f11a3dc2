//! A journal's file with any bytes: it is read or refused, what is read stays, and what is appended comes behind it.
#![no_main]

use std::cell::OnceCell;
use std::path::Path;
use std::time::Instant;

use journal::{Journal, OpenError};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fn open(dir: &Path) -> Result<(Journal, Vec<Vec<u8>>), OpenError> {
    let mut records = Vec::new();
    let journal = Journal::open(dir, Instant::now(), |record| records.push(record.to_vec()))?;
    Ok((journal, records))
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dir = scratch.get_or_init(|| Scratch::new("journal")).path();
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).expect("a directory");
    // The header is nothing that is guessed.
    let header = [&b"netloomJ"[..], &[0; 16]].concat();
    let (plain, bytes) = bytes.split_first().map_or((true, bytes), |(first, rest)| (first % 8 == 0, rest));
    let file = if plain { bytes.to_vec() } else { [&header, bytes].concat() };
    std::fs::write(dir.join("0000000000000000.log"), file).expect("room for a file");
    match open(dir) {
        Ok((journal, mut records)) => {
            journal.wait(&journal.append(b"new")).expect("room for a record");
            drop(journal);
            records.push(b"new".to_vec());
            assert_eq!(open(dir).expect("what was written is read").1, records);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}));
