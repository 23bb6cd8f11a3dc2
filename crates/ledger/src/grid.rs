//! The grid: every address of a family lies in one cell, every cell in one shard.

use std::net::IpAddr;

use api::CELLS;
use pool::{Family, Run, number};

/// The bits that number a shard's cells.
const CELL_BITS: u8 = CELLS.trailing_zeros() as u8;
/// The longest network that stands in a shard's name as it is.
const LONGEST: usize = 180;

/// A cell: so many bits, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellPosition {
    /// The cell's addresses.
    run: Run,
    prefix: u8,
}

// === impl CellPosition ===

impl CellPosition {
    /// The cell of an address, where cells have this prefix length.
    #[must_use]
    pub fn of(address: IpAddr, prefix: u8) -> Self {
        let prefix = prefix.min(Family::of(address).bits());
        CellPosition { run: Run::network(address, prefix), prefix }
    }

    /// The cell with these addresses and no others.
    #[must_use]
    pub fn exactly(run: &Run, prefix: u8) -> Option<Self> {
        Some(CellPosition::of(run.first(), prefix)).filter(|place| place.run == *run)
    }

    /// A cell of a shard by its number.
    #[must_use]
    pub fn in_shard(base: &Run, cell: u32, prefix: u8) -> Option<Self> {
        let size = Run::network(base.first(), prefix).count();
        let (first, last) = base.numbers();
        let at = first.checked_add(size.checked_mul(cell.into())?)?;
        (at <= last).then(|| CellPosition::of(base.family().address(at), prefix))
    }

    /// Its addresses.
    #[must_use]
    pub fn run(&self) -> Run {
        self.run
    }

    /// All addresses of its shard.
    #[must_use]
    pub fn base(&self) -> Run {
        Run::network(self.run.first(), self.prefix.saturating_sub(CELL_BITS))
    }

    /// Its number in the shard, from 0.
    #[must_use]
    pub fn cell(&self) -> u32 {
        let beyond = number(self.run.first()) - number(self.base().first());
        // Less than CELLS: the shard has no more of them.
        u32::try_from(beyond / self.run.count()).unwrap_or(u32::MAX)
    }

    /// The number of an address within it, from 0.
    #[must_use]
    pub fn offset(&self, address: IpAddr) -> Option<u128> {
        self.run.contains(address).then(|| number(address) - number(self.run.first()))
    }

    /// The next cell; `None` behind the last one there is.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        let next = self.run.numbers().1.checked_add(1).filter(|n| *n <= self.run.family().highest())?;
        Some(CellPosition::of(self.run.family().address(next), self.prefix))
    }

    /// The name of its shard's object.
    #[must_use]
    pub fn shard_name(&self, network: &str) -> String {
        let first = match self.base().first() {
            IpAddr::V4(first) => first.to_string(),
            IpAddr::V6(first) => first.segments().map(|group| format!("{group:x}")).join("-"),
        };
        format!("{}.{first}", root_name(network, self.run.family()))
    }
}

/// The name of the object that says how large the cells of a network are, with which those of its shards begin.
///
/// A network whose name may be an object's stands there as it is. Any other one, and one that might be mistaken for what follows, is
/// `x--` and its bytes as hexadecimal digits; a very long one `x--h`, which no digit is, and a number made of it.
#[must_use]
pub fn root_name(network: &str, family: Family) -> String {
    let family = match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    format!("{}.{family}", safe(network))
}

/// Whether that is such a name.
#[must_use]
pub fn is_root_name(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(network, family)| !network.is_empty() && ["v4", "v6"].contains(&family))
}

fn safe(network: &str) -> String {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |l: &str| {
        let ends = l.bytes().next().is_some_and(inner) && l.bytes().last().is_some_and(inner);
        ends && l.bytes().all(|b| inner(b) || b == b'-')
    };
    if network.len() <= LONGEST && !network.starts_with("x--") && network.split('.').all(label) {
        return network.to_owned();
    }
    if network.is_empty() {
        return "x--e".to_owned();
    }
    if network.len() <= LONGEST / 2 {
        return network.bytes().fold("x--".to_owned(), |name, b| name + &format!("{b:02x}"));
    }
    // FNV-1a of 128 bits. Two networks of one number would refuse each other's shards, which name their network.
    let hash = network.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, b| {
        (hash ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("x--h{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, prefix: u8) -> CellPosition {
        CellPosition::of(address.parse().unwrap(), prefix)
    }

    #[test]
    fn an_address_lies_in_one_cell_of_one_shard() {
        let at = place("10.20.0.200", 26);
        assert_eq!((at.run().to_string(), at.base().to_string(), at.cell()), ("10.20.0.192/26".into(), "10.20.0.0/20".into(), 3));
        assert_eq!(at.offset("10.20.0.200".parse().unwrap()), Some(8));
        assert_eq!(CellPosition::in_shard(&at.base(), 3, 26), Some(at));
        assert_eq!(CellPosition::in_shard(&at.base(), 64, 26), None);
        assert_eq!(place("255.255.255.255", 26).next(), None);
        let six = place("fd00:20::1:0", 120);
        assert_eq!((six.base().to_string(), six.cell()), ("fd00:20::1:0/114".into(), 0));
        assert_eq!(CellPosition::exactly(&"10.20.0.192/27".parse().unwrap(), 26), None);
        let one = place("192.0.2.7", 32);
        assert_eq!((one.run().count(), one.base().to_string(), one.cell()), (1, "192.0.2.0/26".into(), 7));
    }

    #[test]
    fn names_are_an_objects_and_tell_networks_apart() {
        assert_eq!(place("10.20.0.200", 26).shard_name("storage"), "storage.v4.10.20.0.0");
        assert_eq!(place("fd00:20::1:0", 120).shard_name("a.b-c"), "a.b-c.v6.fd00-20-0-0-0-0-1-0");
        assert_eq!(root_name("My_net", Family::V4), "x--4d795f6e6574.v4");
        assert_eq!(root_name("", Family::V4), "x--e.v4");
        let names = ["storage", "x--73", "Storage", "storage.", "-a", "a..b", &"a".repeat(200), &"b".repeat(200), &"A".repeat(100)];
        let mut found: Vec<String> = names.iter().map(|n| root_name(n, Family::V6)).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), names.len(), "{found:?}");
        assert!(found.iter().all(|n| n.len() <= 253 - 40 && is_root_name(n)), "{found:?}");
        assert!(!is_root_name("node.6f2c") && !is_root_name("storage.v4.10.20.0.0"));
    }
}
