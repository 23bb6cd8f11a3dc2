//! The files of `host-local`, which other programs write too: whatever stands in them, no address is given twice, and
//! what was given is freed.
#![no_main]

use std::cell::OnceCell;
use std::fs;
use std::net::IpAddr;

use ipam::{Owner, RangeSet, RangeSources, RawRange, Store};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{Scratch, name, parts};

/// So many addresses are held that an index is looked at.
const HELD: u8 = 20;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let path = scratch.get_or_init(|| held("lease")).path();
    let [lease, last, index] = parts(bytes);
    let store = Store::open(path, &name());
    fs::write(store.dir().join("10.0.0.9"), lease).expect("room for a lease");
    fs::write(store.dir().join("last_reserved_ip.0"), last).expect("room for an address");
    fs::write(path.join(".net.index"), index).expect("room for an index");
    let before: Vec<IpAddr> = store.all().expect("the leases are read").into_iter().map(|(ip, _)| ip).collect();
    assert_eq!(before.len(), usize::from(HELD));
    let new = owner("newcomer");
    if lease.windows(8).any(|w| w == b"newcomer") {
        return;
    }
    let ranges = vec![vec![RawRange { subnet: "10.0.0.0/26".into(), ..RawRange::default() }]];
    let sets = RangeSet::check_all(RangeSources { ranges: &ranges, ..RangeSources::default() }).expect("a good range");
    let given = store.allocate(&new, &sets, &[]).expect("an address is free");
    let given: Vec<IpAddr> = given.iter().map(|a| a.address.addr()).collect();
    assert!(given.iter().all(|ip| !before.contains(ip)));
    assert_eq!(store.held(&new).expect("the leases are read"), given);
    assert_eq!(store.release(&new).expect("the leases are read"), given);
    let _ = store.holder("10.0.0.9".parse().expect("an address"));
    assert_eq!(store.held(&owner("c2")).expect("the leases are read").first(), Some(&IpAddr::from([10, 0, 0, 2])));
}));

fn owner(id: &str) -> Owner {
    Owner { id: id.parse().expect("a good ID"), ifname: "eth0".parse().expect("a good name") }
}

fn held(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let store = Store::open(scratch.path(), &netloom_fuzz::name());
    fs::create_dir(store.dir()).expect("a directory");
    for n in 2..2 + HELD {
        fs::write(store.dir().join(format!("10.0.0.{n}")), format!("c{n}\r\neth0")).expect("room for a lease");
    }
    scratch
}
