//! The record of a sandbox: any file in its place is read or refused, and what is read is written as it was.
#![no_main]

use std::cell::OnceCell;

use attach::Records;
use cni::ContainerId;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dir = scratch.get_or_init(|| Scratch::new("record")).path();
    let sandbox = ContainerId::parse("fuzzed").expect("a good ID");
    std::fs::write(dir.join("fuzzed.json"), bytes).expect("room for a record");
    let records = Records::new(dir.to_owned());
    match records.read(&sandbox) {
        Ok(Some(record)) => {
            records.write(&record).expect("a record is written");
            assert_eq!(records.read(&record.sandbox), Ok(Some(record.clone())));
            records.remove(&record.sandbox).expect("a record is removed");
        }
        Ok(None) => panic!("the record was not seen"),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}));
