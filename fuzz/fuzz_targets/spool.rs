//! DELs that wait on disk: any file in the place of one is read or refused, and what is read is kept as it was.
#![no_main]

use std::cell::OnceCell;

use attach::{Spool, Spooled};
use cni::{ContainerId, IfName};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

/// The first line that belongs to these bytes.
fn headed(json: &[u8]) -> Vec<u8> {
    let sum = json.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    [format!("netloom-spool 1 {sum:016x} {}\n", json.len()).as_bytes(), json].concat()
}

fn read(spool: &Spool, bytes: &[u8]) -> Option<Spooled> {
    let path = spool.dir().join("fuzzed@eth0.del");
    std::fs::write(&path, bytes).expect("room for a file");
    match spool.read(&path) {
        Ok(Some(spooled)) => Some(spooled),
        Ok(None) => panic!("the file was not seen"),
        Err(e) => {
            assert!(!e.to_string().is_empty());
            None
        }
    }
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let spool = Spool::new(scratch.get_or_init(|| Scratch::new("spool")).path().to_owned());
    read(&spool, bytes);
    // A checksum is nothing that is guessed.
    let Some(spooled) = read(&spool, &headed(bytes)) else { return };
    let (container, ifname) = (ContainerId::parse("fuzzed").expect("a good ID"), IfName::parse("eth0").expect("a good name"));
    spool.keep(&container, &ifname, &spooled.call).expect("a DEL is kept");
    let again = spool.find(&container, &ifname).expect("it is read").expect("it is there");
    assert_eq!(again.call, spooled.call);
    spool.done(&again).expect("a DEL is forgotten");
    assert_eq!(spool.files(), Ok(Vec::new()));
}));
