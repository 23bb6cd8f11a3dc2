//! The leases of a node, read from its journal's files by their description and by nothing that writes them: the second pair of eyes of
//! [`crate::addresses`].
//!
//! ```text
//!   N.snapshot, N.log    magic u64, number u64, first record's number u64, frame, frame, ...
//!   frame                length u32, CRC-32 u32 of the length and all behind it, attempt u32, first record's number u64, records
//!   record               length u32, bytes: 7 begins a lease, 8 the end of one
//!   lease                network, container, interface; generation u64; pod? and claim?; boot 16 bytes, u64;
//!                        count u32, for each: pool, family u8, address u128, epoch u64
//! ```
//!
//! Numbers are little-endian, text begins with its length as u32, what may be missing with 0 or 1.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// What an attachment holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The container's ID.
    pub container: String,
    /// The name of its interface.
    pub ifname: String,
    /// All its addresses.
    pub addresses: Vec<IpAddr>,
}

/// All leases of a journal, at a moment at which nobody writes to it; none where there is no journal.
///
/// # Panics
/// If what counts of it cannot be read.
pub fn held(journal: &Path) -> Vec<Held> {
    let entries = std::fs::read_dir(journal).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let numbers = |kind: &str| {
        let mut found: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(kind)).collect();
        found.sort_unstable();
        found.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let base = numbers(".snapshot").last().cloned();
    let mut leases = BTreeMap::new();
    if let Some(base) = &base {
        let ended = read(&journal.join(format!("{base}.snapshot")), &mut leases);
        assert!(ended, "snapshot {base} has no end");
    }
    for log in numbers(".log").into_iter().filter(|log| base.as_ref().is_none_or(|base| log >= base)) {
        read(&journal.join(format!("{log}.log")), &mut leases);
    }
    leases.into_values().map(|(_, held)| held).collect()
}

type Leases = BTreeMap<[String; 3], (u64, Held)>;

/// Whether a frame without records ended it.
fn read(path: &Path, leases: &mut Leases) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut attempts) = (Bytes(&bytes[24.min(bytes.len())..]), 0);
    while let Some((attempt, mut records)) = rest.frame() {
        if attempt < attempts {
            break;
        }
        attempts = attempt;
        if records.0.is_empty() {
            return true;
        }
        while !records.0.is_empty() {
            let length = records.u32() as usize;
            Bytes(records.take(length)).event(leases);
        }
    }
    false
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let length = self.u32() as usize;
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn address(&mut self) -> IpAddr {
        let (family, number) = (self.take(1)[0], u128::from_le_bytes(self.take(16).try_into().unwrap()));
        if family == 4 { IpAddr::from(u32::try_from(number).unwrap().to_be_bytes()) } else { IpAddr::from(number.to_be_bytes()) }
    }

    /// The attempt and the records of a frame that is whole.
    fn frame(&mut self) -> Option<(u32, Bytes<'a>)> {
        let header: [u8; 8] = self.0.get(..8)?.try_into().unwrap();
        let (length, crc) = (&header[..4], u32::from_le_bytes(header[4..].try_into().unwrap()));
        let size = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let behind = self.0.get(8..8 + 12 + size)?;
        if crc32(length.iter().chain(behind)) != crc {
            return None;
        }
        self.take(8 + 12 + size);
        Some((u32::from_le_bytes(behind[..4].try_into().unwrap()), Bytes(&behind[12..])))
    }

    fn event(&mut self, leases: &mut Leases) {
        let event = self.take(1)[0];
        if ![7, 8].contains(&event) {
            return;
        }
        let key = [self.text(), self.text(), self.text()];
        let generation = self.u64();
        if event == 8 {
            if leases.get(&key).is_some_and(|(of, _)| *of == generation) {
                leases.remove(&key);
            }
            return;
        }
        for parts in [3, 1] {
            let there = self.take(1)[0] == 1;
            (0..if there { parts } else { 0 }).for_each(|_| drop(self.text()));
        }
        self.take(16 + 8);
        let count = self.u32();
        let one = |_| {
            self.text();
            let address = self.address();
            self.u64();
            address
        };
        let addresses = (0..count).map(one).collect();
        let held = Held { container: key[1].clone(), ifname: key[2].clone(), addresses };
        leases.insert(key, (generation, held));
    }
}

/// That of IEEE 802.3, bit by bit.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ipam::PoolStore;
    use pool::{Ask, Family, Key, Want};
    use serde_json::json;

    use super::*;

    /// A directory that goes with the test.
    struct Scratch(std::path::PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    /// It reads what the store has written: leases that came, went and came again, before and behind a snapshot.
    #[test]
    fn what_a_store_has_written() {
        let scratch = Scratch(std::env::temp_dir().join(format!("nl-leases-{}", std::process::id())));
        let dir = &scratch.0;
        let pools = dir.join("pools");
        std::fs::create_dir_all(&pools).unwrap();
        let spec = json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/16"}]}, "ipv6": {"entries": [{"cidr": "fd00::/64"}]}, "reuse": {"cooldownSeconds": 0}});
        std::fs::write(pools.join("p.json"), json!({"kind": "IPPool", "metadata": {"name": "p"}, "spec": spec}).to_string()).unwrap();
        let journal = dir.join("journal");
        assert_eq!(held(&journal), []);
        // Who opens it for a call writes a snapshot now and then.
        let open = |round: usize| {
            let soon = Instant::now() + Duration::from_secs(120);
            let store = if round == 1 { PoolStore::open_for_call(&journal, soon, true) } else { PoolStore::open(&journal, soon) }.unwrap();
            store.follow(&ipam::read_pool(&pools, "p").unwrap()).unwrap();
            store
        };
        let key = |n: usize| Key { network: "p".to_owned(), container: format!("{n:064x}"), ifname: "eth0".to_owned() };
        let wants = Family::ALL.map(|family| Want { pool: "p".to_owned(), family, address: None }).to_vec();
        let mut expected = BTreeMap::new();
        for round in 0..3 {
            let store = open(round);
            for n in (round * 1000..round * 1000 + 2000).filter(|n| n % 3 != 0) {
                if n % 2 == 0 {
                    store.release(&key(n), None).unwrap();
                    expected.remove(&n);
                }
                let lease = store.reserve(&Ask { key: key(n), pod: None, claim: None, wants: wants.clone() }).unwrap();
                expected.insert(n, lease.addresses.iter().map(|leased| leased.address).collect::<Vec<_>>());
            }
        }
        assert!(std::fs::read_dir(&journal).unwrap().flatten().any(|f| f.file_name().to_string_lossy().ends_with(".snapshot")));
        let found: BTreeMap<String, Vec<IpAddr>> = held(&journal).into_iter().map(|held| (held.container, held.addresses)).collect();
        assert_eq!(found, expected.into_iter().map(|(n, all)| (key(n).container, all)).collect());
    }
}
