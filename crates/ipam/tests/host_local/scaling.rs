//! What a call costs does not grow with what is held. System calls are counted, not time, which other work on the
//! machine would falsify.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use netloom_ipam::Store;

use crate::scratch::{Scratch, owner, sets};

const RANGES: &str = r#"[[{"subnet":"10.1.0.0/16"}]]"#;
const CALLS: u32 = 25;

/// So many addresses in a row are held, in files as the reference plugin writes them.
fn held(n: u32) -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.store().dir()).unwrap();
    for n in 0..n {
        let ip = Ipv4Addr::from_bits(0x0a01_0002 + n);
        fs::write(scratch.store().dir().join(ip.to_string()), format!("{n:064x}\r\neth0")).unwrap();
    }
    // The first call reads them all.
    assert_eq!(scratch.store().release(&owner("nobody", "eth0")).unwrap().len(), 0);
    scratch
}

/// ADD, ADD with a request, CHECK, DEL, DEL again.
fn calls(store: &Store) {
    let sets = sets(RANGES);
    for n in 0..CALLS {
        let (who, asking) = (owner(&format!("new{n}"), "eth0"), owner(&format!("asking{n}"), "eth0"));
        let given = store.allocate(&who, &sets, &[]).unwrap()[0].address.addr();
        let wanted = IpAddr::V4(Ipv4Addr::from_bits(0x0a01_ff00 + 2 * n));
        assert_eq!(store.allocate(&asking, &sets, &[wanted]).unwrap()[0].address.addr(), wanted);
        assert_eq!(store.held(&who).unwrap(), [given]);
        assert_eq!(store.release(&who).unwrap(), [given]);
        assert_eq!(store.release(&asking).unwrap(), [wanted]);
        assert_eq!(store.release(&who).unwrap().len(), 0);
    }
}

/// Reads and writes of this thread so far, and their bytes (proc_pid_io(5)).
fn io() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    let all: BTreeMap<&str, u64> = text.lines().filter_map(|l| l.split_once(": ")).map(|(k, v)| (k, v.parse().unwrap())).collect();
    (all["syscr"] + all["syscw"], all["rchar"] + all["wchar"])
}

#[test]
fn reads_and_writes_do_not_grow() {
    let mut counted = Vec::new();
    for n in [100, 20_000] {
        let scratch = held(n);
        let before = io();
        calls(&scratch.store());
        let after = io();
        counted.push(((after.0 - before.0) / u64::from(CALLS), (after.1 - before.1) / u64::from(CALLS)));
    }
    let [few, many] = counted[..] else { panic!() };
    // A page here and there runs over into the next.
    assert!(many.0 <= few.0 + 8 && many.1 <= few.1 + 8 * 512, "with 100 held {few:?}, with 20,000 {many:?}");
    assert!(many.0 < 100, "{many:?}");
}

#[test]
#[ignore = "started by system_calls_do_not_grow under strace"]
fn child() {
    let dir = std::env::var("NETLOOM_TEST_DIR").unwrap();
    calls(&Store::open(dir.as_ref(), &"net".parse().unwrap()));
}

/// All system calls of a process, those that list directories among them.
#[test]
fn system_calls_do_not_grow() {
    if Command::new("strace").arg("-V").output().is_err() {
        return println!("skipped: strace is not installed, so only reads and writes are counted");
    }
    let mut counted = Vec::new();
    for n in [100, 20_000] {
        let scratch = held(n);
        let trace = scratch.0.join("trace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o"]).arg(&trace).arg(std::env::current_exe().unwrap()).args(["--exact", "scaling::child", "--ignored"]);
        let done = strace.env("NETLOOM_TEST_DIR", &scratch.0).output().unwrap();
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
        let text = fs::read_to_string(&trace).unwrap();
        let ours =
            |line: &&str| line.contains("/net/") || line.contains("pread64(") || line.contains("pwrite64(") || line.contains("getdents");
        counted.push((text.lines().count(), text.lines().filter(ours).count(), text.matches("getdents").count()));
    }
    let [few, many] = counted[..] else { panic!() };
    let room = CALLS as usize * 8;
    assert!(many.0 <= few.0 + room && many.1 <= few.1 + room && many.2 == few.2, "with 100 held {few:?}, with 20,000 {many:?}");
}
