//! A directory of the test's own, and short words for what every test needs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use netloom_ipam::{Holder, Owner, RangeSet, RangeSources, RawRange, Store};

/// A directory that goes when the test ends, however it ends.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("netloom-ipam-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.0, &"net".parse().unwrap())
    }

    /// The network's index.
    pub(crate) fn index(&self) -> PathBuf {
        self.0.join(".net.index")
    }

    /// Addresses that are in nobody's way: enough that there is an index.
    pub(crate) fn fill(&self, n: u32) {
        fs::create_dir_all(self.store().dir()).unwrap();
        for n in 1..=n {
            let file = self.store().dir().join(filler(n).0.to_string());
            fs::write(file, format!("filler{n}\r\neth0")).unwrap();
        }
    }

    /// A copy of the network's directory, and of nothing else.
    pub(crate) fn without_index(&self) -> Scratch {
        let copy = Scratch::new();
        fs::create_dir(copy.store().dir()).unwrap();
        for entry in fs::read_dir(self.store().dir()).unwrap().map(Result::unwrap) {
            let to = copy.store().dir().join(entry.file_name());
            match fs::read_link(entry.path()) {
                Ok(target) => symlink(target, to).unwrap(),
                Err(_) => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
        copy
    }

    /// Says of every owner, and of the address that comes next, what it says without an index.
    pub(crate) fn agrees(&self, sets: &[RangeSet], at: &str) {
        let mut owners: BTreeMap<Owner, Vec<IpAddr>> = BTreeMap::new();
        for (ip, holder) in self.store().all().unwrap() {
            if let Holder::Attachment(owner) = holder {
                owners.entry(owner).or_default().push(ip);
            }
        }
        for (owner, held) in owners {
            assert_eq!(self.store().held(&owner).unwrap(), held, "{at}: {owner}");
        }
        let (copy, next) = (self.without_index(), owner("next", "eth0"));
        let give = |store: Store| store.allocate(&next, sets, &[]).map(|all| all.iter().map(|a| a.address).collect::<Vec<_>>());
        assert_eq!(give(self.store()).ok(), give(copy.store()).ok(), "{at}");
        self.store().release(&next).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn owner(id: &str, ifname: &str) -> Owner {
    Owner { id: id.parse().unwrap(), ifname: ifname.parse().unwrap() }
}

/// Range sets from the text of `ipam.ranges`.
pub(crate) fn sets(json: &str) -> Vec<RangeSet> {
    let ranges: Vec<Vec<RawRange>> = serde_json::from_str(json).unwrap();
    RangeSet::check_all(RangeSources { ranges: &ranges, ..RangeSources::default() }).unwrap()
}

/// The n-th address that is in nobody's way, with its owner.
pub(crate) fn filler(n: u32) -> (IpAddr, Owner) {
    (IpAddr::V4(Ipv4Addr::from_bits(0xc000_0200 + n)), owner(&format!("filler{n}"), "eth0"))
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Everything below a directory: path, mode and content (`-` for a directory).
pub(crate) fn tree(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_file() { fs::read(&path).unwrap() } else { b"-".to_vec() };
            all.insert(path.strip_prefix(dir).unwrap().display().to_string(), (about.permissions().mode(), content));
            if about.is_dir() {
                left.push(path);
            }
        }
    }
    all
}

/// A linear congruential generator (Knuth's MMIX constants): the same numbers in every run.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
