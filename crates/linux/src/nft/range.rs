//! Sets of address ranges: what `nft` calls `flags interval`, with a key of one field.
//!
//! ```text
//! set inside4 { type ipv4_addr; flags interval; elements = { 10.0.0.0/24 } }
//!
//!   10.0.0.0      the first address       two elements of the kernel's:
//!   10.0.1.0 end  the one behind the last  none behind the last address of all
//! ```
//!
//! The kernel keeps them in a tree: a look-up, an insertion and a deletion cost the logarithm of their number (Linux 3.16).
//! A concatenation with intervals, which has one element a range, costs a deletion a walk over all others: 110 ms among 10,000
//! of IPv4 (Linux 6.18).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::element::{DATA_VALUE, ELEMENT_KEY, ELEMENT_USERDATA, LIST_ELEMENTS, LIST_SET, LIST_TABLE};
use super::wire::{self, Writer};
use super::{Family, ReadError, Socket};

const ELEMENT_FLAGS: u16 = 3;
/// `NFT_SET_ELEM_INTERVAL_END`
const INTERVAL_END: u32 = 1;
/// `NFTNL_UDATA_SET_ELEM_FLAGS`, four bytes in the order of `nft`: `NFTNL_SET_ELEM_F_INTERVAL_OPEN`. It tells `nft list` that no
/// end follows.
const OPEN: [u8; 6] = [1, 4, 1, 0, 0, 0];

/// Addresses of one family, from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// A range and the set that it is in. No two ranges of a set may overlap; they may be neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetRange {
    /// The table's family.
    pub family: Family,
    /// The table's name.
    pub table: String,
    /// The set's name; its key is one field.
    pub set: String,
    /// The range itself.
    pub range: Range,
}

/// One of the kernel's two elements. An end sorts before a beginning at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Boundary {
    at: IpAddr,
    begins: bool,
}

// === impl Range ===

impl Range {
    /// The first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The last address, which is in the range.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        self.last
    }
}

impl From<IpNet> for Range {
    fn from(net: IpNet) -> Self {
        Self { first: net.network(), last: net.broadcast() }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

// === impl SetRange ===

impl SetRange {
    /// Writes the place and both elements, as add and delete take them.
    pub(super) fn write(&self, w: &mut Writer) {
        let Range { first, last } = self.range;
        w.name(LIST_TABLE, &self.table);
        w.name(LIST_SET, &self.set);
        w.nested(LIST_ELEMENTS, |w| {
            // Numbered as `nft` does; the kernel takes any number.
            let behind = next(last);
            Boundary { at: first, begins: true }.write(w, 1, behind.is_none());
            if let Some(at) = behind {
                Boundary { at, begins: false }.write(w, 2, false);
            }
        });
    }
}

impl fmt::Display for SetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.family, self.table, self.set, self.range)
    }
}

// === impl Boundary ===

impl Boundary {
    fn write(self, w: &mut Writer, number: u16, open: bool) {
        w.nested(number, |w| {
            if !self.begins {
                w.number(ELEMENT_FLAGS, INTERVAL_END);
            }
            w.nested(ELEMENT_KEY, |w| match self.at {
                IpAddr::V4(at) => w.bytes(DATA_VALUE, &at.octets()),
                IpAddr::V6(at) => w.bytes(DATA_VALUE, &at.octets()),
            });
            if open {
                w.bytes(ELEMENT_USERDATA, &OPEN);
            }
        });
    }

    /// Reads one `NFTA_LIST_ELEM`. `None` for what is no address.
    pub(super) fn read(element: &[u8]) -> Option<Self> {
        let key = wire::find(wire::find(element, ELEMENT_KEY)?, DATA_VALUE)?;
        let v4 = || <[u8; 4]>::try_from(key).ok().map(|key| IpAddr::V4(Ipv4Addr::from(key)));
        let v6 = || <[u8; 16]>::try_from(key).ok().map(|key| IpAddr::V6(Ipv6Addr::from(key)));
        let flags = wire::find(element, ELEMENT_FLAGS).and_then(|flags| flags.first_chunk()).copied().map_or(0, u32::from_be_bytes);
        Some(Self { at: v4().or_else(v6)?, begins: flags & INTERVAL_END == 0 })
    }
}

// === impl Socket ===

impl Socket {
    /// The ranges of a set whose key is one field of addresses, in order (`nft list set`). Empty as well when there is no such
    /// table or set.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn ranges(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Range>, ReadError> {
        Ok(between(self.each_element(family, table, set, Boundary::read)?))
    }
}

/// The ranges between boundaries. An end without a beginning is none: `nft` puts one at the lowest address.
pub(super) fn between(mut boundaries: Vec<Boundary>) -> Vec<Range> {
    boundaries.sort_unstable();
    let mut ranges = Vec::with_capacity(boundaries.len() / 2);
    let mut begun: Option<IpAddr> = None;
    for Boundary { at, begins } in boundaries {
        let ended = begun.zip(previous(at)).filter(|(first, last)| first <= last && first.is_ipv4() == last.is_ipv4());
        ranges.extend(ended.map(|(first, last)| Range { first, last }));
        begun = begins.then_some(at);
    }
    // Nothing is behind the last address of all.
    ranges.extend(begun.map(|first| Range { first, last: highest(first) }));
    ranges
}

fn next(at: IpAddr) -> Option<IpAddr> {
    match at {
        IpAddr::V4(at) => at.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(at) => at.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

fn previous(at: IpAddr) -> Option<IpAddr> {
    match at {
        IpAddr::V4(at) => at.to_bits().checked_sub(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(at) => at.to_bits().checked_sub(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

fn highest(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(u128::MAX).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::from(text.parse::<IpNet>().unwrap())
    }

    fn boundaries(ranges: &[Range]) -> Vec<Boundary> {
        let of = |range: &Range| {
            let end = next(range.last).map(|at| Boundary { at, begins: false });
            std::iter::once(Boundary { at: range.first, begins: true }).chain(end)
        };
        ranges.iter().flat_map(of).collect()
    }

    #[test]
    fn boundaries_are_ranges_again() {
        for texts in [
            &["0.0.0.0/0"][..],
            &["0.0.0.0/8", "1.0.0.0/8", "10.0.0.5/32", "10.0.0.6/31", "255.255.255.255/32"],
            &["::/0"],
            &["::/128", "fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:3::5/128", "ff00::/8"],
        ] {
            let ranges: Vec<Range> = texts.iter().map(|text| range(text)).collect();
            let mut all = boundaries(&ranges);
            all.reverse();
            assert_eq!(between(all), ranges);
        }
        assert_eq!(between(Vec::new()), []);
    }

    #[test]
    fn boundaries_without_a_partner() {
        let at = |text: &str, begins| Boundary { at: text.parse().unwrap(), begins };
        // As `nft` begins a set.
        assert_eq!(between(vec![at("0.0.0.0", false), at("10.0.0.0", true), at("10.0.1.0", false)]), [range("10.0.0.0/24")]);
        assert_eq!(between(vec![at("10.0.0.0", false), at("10.0.1.0", false)]), []);
        let open = between(vec![at("10.0.0.0", true), at("10.0.0.8", true), at("10.0.0.9", false)]);
        assert_eq!(open, [range("10.0.0.0/29"), range("10.0.0.8/32")]);
    }

    #[test]
    fn texts() {
        assert_eq!(range("10.0.0.7/32").to_string(), "10.0.0.7");
        assert_eq!(range("10.0.0.7/30").to_string(), "10.0.0.4-10.0.0.7");
        assert_eq!((range("fd00::/127").first(), range("fd00::/127").last()), ("fd00::".parse().unwrap(), "fd00::1".parse().unwrap()));
    }
}
