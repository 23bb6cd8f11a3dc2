//! What the journal of pools keeps: any bytes are read or refused, and what is read is written as it was, and harms no allocator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pool::{Allocator, Event};

fuzz_target!(|bytes: &[u8]| {
    let mut all = Allocator::new(7);
    // One event behind the other, each with its length in front.
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first() {
        let (record, left) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = left;
        match Event::decode(record) {
            Ok(event) => {
                assert_eq!(Event::decode(&event.encode()).as_ref(), Ok(&event));
                all.apply(&event);
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    // What it knows makes the same state again.
    let mut again = Allocator::new(7);
    all.events().iter().for_each(|event| again.apply(event));
    assert_eq!(again.leases().count(), all.leases().count());
});
