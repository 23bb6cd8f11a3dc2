//! Addresses as numbers, and runs of them. Text is read and written here only, so that one address has one form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

/// Addresses of one family without a gap, at least one: `10.0.0.0/24`, `10.0.0.10-10.0.0.99`, `192.0.2.7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    family: Family,
    first: u128,
    last: u128,
}

/// Text that is no run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseRunError {
    /// A part is no address.
    Address {
        /// The part.
        text: String,
    },
    /// The number behind `/` is none, or larger than the family has bits.
    PrefixLength {
        /// What stands there.
        text: String,
        /// The most there can be.
        most: u8,
    },
    /// The address in front of `/` is not the network's own.
    HostBits {
        /// The run.
        text: String,
        /// The network's address.
        network: IpAddr,
    },
    /// One end is IPv4, the other IPv6.
    Families {
        /// The run.
        text: String,
    },
    /// The last address comes before the first.
    Backwards {
        /// The run.
        text: String,
    },
}

// === impl Family ===

impl Family {
    /// Both, in the order in which results have them.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// That of an address. An IPv4 address mapped into IPv6 is IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The bits of an address: 32 or 128.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// The address with this number; a number that IPv4 has not is cut to its lowest 32 bits.
    #[must_use]
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "numbers of IPv4 addresses have 32 bits")]
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }

    /// The highest number.
    #[must_use]
    pub const fn highest(self) -> u128 {
        match self {
            Family::V4 => u32::MAX as u128,
            Family::V6 => u128::MAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// An address as a number. An IPv4 address mapped into IPv6 has the number of the IPv4 address.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

// === impl Run ===

impl Run {
    /// From an address to another, both in it; `None` where the last comes before the first or they are of two families.
    #[must_use]
    pub fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let family = Family::of(first);
        Run::of_numbers(family, number(first), number(last)).filter(|_| Family::of(last) == family)
    }

    /// The same with numbers; `None` also where the family has no such numbers.
    #[must_use]
    pub fn of_numbers(family: Family, first: u128, last: u128) -> Option<Self> {
        (first <= last && last <= family.highest()).then_some(Run { family, first, last })
    }

    /// One address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        let number = number(address);
        Run { family: Family::of(address), first: number, last: number }
    }

    /// The network of an address, whatever its host bits; a longer prefix than the family has bits is one address.
    #[must_use]
    pub fn network(address: IpAddr, prefix: u8) -> Self {
        let family = Family::of(address);
        let host = u32::from(family.bits().saturating_sub(prefix));
        let ones = if host >= 128 { u128::MAX } else { (1 << host) - 1 };
        let first = number(address) & !ones;
        Run { family, first, last: first | (ones & family.highest()) }
    }

    /// `::ffff:0:0/96`: IPv4 addresses in IPv6's clothes, which no host has (RFC 4291 2.5.5.2).
    pub(crate) fn mapped() -> Option<Self> {
        Run::of_numbers(Family::V6, 0xffff << 32, 0xffff_ffff_ffff)
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// The first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.family.address(self.first)
    }

    /// The last address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        self.family.address(self.last)
    }

    /// The numbers of the first and the last address.
    #[must_use]
    pub fn numbers(&self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// How many addresses; all of IPv6 is one less than there are.
    #[must_use]
    pub fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && (self.first..=self.last).contains(&number(address))
    }

    /// Whether all of the other is in it.
    #[must_use]
    pub fn covers(&self, other: &Run) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    /// What both have.
    #[must_use]
    pub fn common(&self, other: &Run) -> Option<Run> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        Run::of_numbers(self.family, first, last).filter(|_| self.family == other.family)
    }

    /// What is left of it without the other: nothing, one run or two.
    #[must_use]
    pub fn without(&self, other: &Run) -> Vec<Run> {
        let Some(common) = self.common(other) else { return vec![*self] };
        let before = common.first.checked_sub(1).and_then(|last| Run::of_numbers(self.family, self.first, last));
        let after = common.last.checked_add(1).and_then(|first| Run::of_numbers(self.family, first, self.last));
        before.into_iter().chain(after).collect()
    }

    /// The prefix length, where it is a network.
    #[must_use]
    pub fn prefix(&self) -> Option<u8> {
        let host = (self.last ^ self.first).checked_add(1).map_or(128, u128::trailing_zeros);
        let prefix = self.family.bits().checked_sub(u8::try_from(host).ok()?)?;
        (Run::network(self.first(), prefix) == *self).then_some(prefix)
    }
}

impl FromStr for Run {
    type Err = ParseRunError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| ParseRunError::Address { text: part.trim().to_owned() });
        if let Some((network, prefix)) = text.split_once('/') {
            let network = address(network)?;
            let (prefix, most) = (prefix.trim(), Family::of(network).bits());
            let wrong = || ParseRunError::PrefixLength { text: prefix.to_owned(), most };
            // A sign, which Rust would read, belongs to no prefix length.
            let digits = Some(prefix).filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
            let prefix: u8 = digits.and_then(|p| p.parse().ok()).filter(|p| *p <= most).ok_or_else(wrong)?;
            let run = Run::network(network, prefix);
            if run.first != number(network) {
                return Err(ParseRunError::HostBits { text: text.trim().to_owned(), network: run.first() });
            }
            return Ok(run);
        }
        let Some((first, last)) = text.split_once('-') else { return Ok(Run::single(address(text)?)) };
        let (first, last) = (address(first)?, address(last)?);
        if Family::of(first) != Family::of(last) {
            return Err(ParseRunError::Families { text: text.trim().to_owned() });
        }
        Run::between(first, last).ok_or_else(|| ParseRunError::Backwards { text: text.trim().to_owned() })
    }
}

/// As it is read: one address, a network, or the first and the last address.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix() {
            _ if self.first == self.last => write!(f, "{}", self.first()),
            Some(prefix) => write!(f, "{}/{prefix}", self.first()),
            None => write!(f, "{}-{}", self.first(), self.last()),
        }
    }
}

// === impl ParseRunError ===

impl fmt::Display for ParseRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORMS: &str = "expected 10.0.0.0/24, 10.0.0.10-10.0.0.99 or 10.0.0.7";
        match self {
            Self::Address { text } => write!(f, "{text:?} is not an IP address: {FORMS}"),
            Self::PrefixLength { text, most } => write!(f, "{text:?} is not a prefix length between 0 and {most}"),
            Self::HostBits { text, network } => write!(f, "{text} has host bits set: the network is {network}"),
            Self::Families { text } => write!(f, "{text} begins in one address family and ends in the other"),
            Self::Backwards { text } => write!(f, "{text} ends before it begins"),
        }
    }
}

impl std::error::Error for ParseRunError {}
