//! What holds packets back: a token bucket, for a whole link or for a class of it.

use std::fmt;

use super::{ROOT, TCMSG, handle, header};
use crate::batch::Request;
use crate::netlink::{Netlink, ReadError};
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use crate::uapi::rtnetlink::*;
use crate::uapi::sched::*;
use crate::wire::{Attributes, Message, Received, u32_at};

/// Length of `struct tc_ratespec`, with two of which the structures of both kinds begin.
const RATESPEC: usize = 12;

/// Nanoseconds in a tick of the interface (`PSCHED_SHIFT`, include/net/pkt_sched.h).
const TICK: u128 = 64;

/// The times of two equal buckets differ by less: a kernel rounds, and others write whole microseconds.
const ROUNDING: u32 = 2 * 1000 / 64 + 1;

/// What a shaper takes from: it fills with time, and each byte that leaves takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes in a second.
    pub rate: u64,
    /// What it holds: bytes that may leave at once.
    pub burst: u32,
}

/// A bucket as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenBucket {
    /// Bytes in a second.
    pub rate: u64,
    /// How long it takes to fill, in ticks of 64 ns, without what 32 bits do not hold.
    pub ticks: u32,
}

/// A token bucket filter (net/sched/sch_tbf.c; `tc qdisc add ... tbf rate RATE burst BURST limit LIMIT`). A packet that is
/// larger than the bucket never leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tbf {
    /// How fast.
    pub bucket: Bucket,
    /// Bytes that wait at most; what comes on top is dropped.
    pub limit: u32,
}

/// A qdisc that can be a link's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Root {
    /// All packets alike.
    Tbf(Tbf),
    /// Classes (net/sched/sch_htb.c; `tc qdisc add ... htb default N`). What belongs to none is not held back.
    Htb {
        /// The class of what no filter names, `1:N`; 0: none.
        default: u32,
    },
}

/// What is told of a root qdisc, or of a class's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeenRoot {
    /// [`Root::Tbf`]
    Tbf {
        /// How fast.
        bucket: SeenBucket,
        /// Bytes that wait at most.
        limit: u32,
    },
    /// [`Root::Htb`]
    Htb {
        /// The class of what no filter names.
        default: u32,
    },
    /// The queue of a class: [`add_fifo`].
    Bfifo {
        /// Bytes that wait at most.
        limit: u32,
    },
}

/// A class of [`Root::Htb`], as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenClass {
    /// Its number, `1:1` as 0x10001.
    pub handle: u32,
    /// How fast.
    pub bucket: SeenBucket,
}

// === impl Bucket ===

impl Bucket {
    /// How long it takes to fill, in ticks.
    fn ticks(self) -> u128 {
        u128::from(self.burst) * 1_000_000_000 / u128::from(self.rate.max(1)) / TICK
    }

    /// As the structures have it, which ends at 274 seconds.
    fn short_ticks(self) -> u32 {
        u32::try_from(self.ticks()).unwrap_or(u32::MAX)
    }

    /// `struct tc_ratespec`, without the table that kernels before 3.8 read. A rate that has more bits stands in an attribute of
    /// its own as well.
    fn ratespec(self) -> [u8; RATESPEC] {
        let [a, b, c, d] = u32::try_from(self.rate).unwrap_or(u32::MAX).to_ne_bytes();
        [0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0, a, b, c, d]
    }

    fn put_long_rate(self, options: &mut Message, attribute: u16) {
        if self.rate > u64::from(u32::MAX) {
            options.put(attribute, &self.rate.to_ne_bytes());
        }
    }

    /// Whether the kernel tells this one so. It tells a time, of which the upper bits are missing, or, in a class, are taken for
    /// as many as there are.
    pub fn is(self, seen: SeenBucket) -> bool {
        let low = u32::try_from(self.ticks() & u128::from(u32::MAX)).unwrap_or_default();
        let apart = low.wrapping_sub(seen.ticks).cast_signed().unsigned_abs().min(self.short_ticks().abs_diff(seen.ticks));
        self.rate == seen.rate && apart <= ROUNDING
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In words of `tc`, which knows bytes in a second as `bps`.
        write!(f, "rate {}bps burst {}", self.rate, self.burst)
    }
}

// === impl SeenBucket ===

impl SeenBucket {
    /// From the rate and the time at their places in a structure, and the attribute of a rate that has more bits.
    fn parse(parms: &[u8], ticks_at: usize, long: Option<&[u8]>) -> Option<Self> {
        let number = |at: usize| parms.get(at..).and_then(u32_at);
        let long = long.and_then(|value| value.first_chunk().copied()).map(u64::from_ne_bytes);
        let short = number(RATESPEC - 4)?;
        Some(SeenBucket { rate: long.unwrap_or(short.into()), ticks: number(ticks_at)? })
    }

    /// What it holds, in bytes, as far as the time tells.
    pub fn burst(self) -> u64 {
        u64::try_from(u128::from(self.ticks) * TICK * u128::from(self.rate) / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

// === impl Root ===

impl Root {
    /// The kernel's word for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Root::Tbf(_) => "tbf",
            Root::Htb { .. } => "htb",
        }
    }

    /// `TCA_OPTIONS`
    pub(super) fn write(&self, options: &mut Message) {
        match *self {
            Root::Tbf(Tbf { bucket, limit }) => {
                // `struct tc_tbf_qopt`: the rate, a peak rate, which there is none of, its packet size after the rest.
                let numbers = [limit, bucket.short_ticks(), 0].into_iter().flat_map(u32::to_ne_bytes);
                let parms: Vec<u8> = bucket.ratespec().into_iter().chain([0; RATESPEC]).chain(numbers).collect();
                options.put(TCA_TBF_PARMS, &parms);
                bucket.put_long_rate(options, TCA_TBF_RATE64);
                // It wins over the time (Linux 3.14), and has no end at 274 seconds.
                options.put_u32(TCA_TBF_BURST, bucket.burst);
            }
            Root::Htb { default } => {
                // `struct tc_htb_glob`: version, divisor of rates for quanta, default class, debugging, counter.
                let glob = [HTB_VERSION, 10, default, 0, 0].into_iter().flat_map(u32::to_ne_bytes);
                options.put(TCA_HTB_INIT, &glob.collect::<Vec<u8>>());
            }
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Root::Tbf(tbf) => write!(f, "tbf {} limit {}", tbf.bucket, tbf.limit),
            Root::Htb { default } => write!(f, "htb default {default}"),
        }
    }
}

// === impl SeenRoot ===

impl SeenRoot {
    /// `None` for another kind.
    pub(super) fn parse(kind: &str, options: &[u8]) -> Option<Self> {
        let find = |wanted| Attributes(options).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        match kind {
            "tbf" => {
                let parms = find(TCA_TBF_PARMS)?;
                let bucket = SeenBucket::parse(parms, 2 * RATESPEC + 4, find(TCA_TBF_RATE64))?;
                Some(SeenRoot::Tbf { bucket, limit: parms.get(2 * RATESPEC..).and_then(u32_at)? })
            }
            "htb" => Some(SeenRoot::Htb { default: find(TCA_HTB_INIT)?.get(8..).and_then(u32_at)? }),
            // `struct tc_fifo_qopt`, and no attributes.
            "bfifo" => Some(SeenRoot::Bfifo { limit: u32_at(options)? }),
            _ => None,
        }
    }
}

// === impl SeenClass ===

impl SeenClass {
    fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(TCMSG)?;
        let options = Attributes(attributes).find(|(kind, _)| *kind == TCA_OPTIONS)?.1;
        let find = |wanted| Attributes(options).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        let bucket = SeenBucket::parse(find(TCA_HTB_PARMS)?, 2 * RATESPEC, find(TCA_HTB_RATE64))?;
        Some(SeenClass { handle: fixed.get(8..).and_then(u32_at)?, bucket })
    }
}

/// Makes a class of a link's [`Root::Htb`] (`tc class add dev LINK parent 1: classid 1:N htb ...`), which borrows nothing.
/// `packet` is the largest frame in bytes: what it may send in a turn.
pub fn add_class(index: u32, class: u32, bucket: Bucket, packet: u32) -> Request<'static> {
    let mut message = Message::new(RTM_NEWTCLASS, NLM_F_CREATE | NLM_F_EXCL, &header(index, ROOT | class, ROOT, 0));
    message.put_str(TCA_KIND, "htb");
    message.nest(TCA_OPTIONS, |options| {
        // `struct tc_htb_opt`: rate, ceiling, a bucket for each, quantum, level, priority.
        let numbers = [bucket.short_ticks(), bucket.short_ticks(), packet, 0, 0].into_iter().flat_map(u32::to_ne_bytes);
        let parms: Vec<u8> = bucket.ratespec().into_iter().chain(bucket.ratespec()).chain(numbers).collect();
        options.put(TCA_HTB_PARMS, &parms);
        bucket.put_long_rate(options, TCA_HTB_RATE64);
        bucket.put_long_rate(options, TCA_HTB_CEIL64);
    });
    Request::new(format!("tc class add dev if{index} parent 1: classid {} htb {bucket}", handle(ROOT | class)), message)
}

/// Gives a class a queue of so many bytes (`tc qdisc add dev LINK parent 1:N bfifo limit LIMIT`).
pub fn add_fifo(index: u32, class: u32, limit: u32) -> Request<'static> {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &header(index, 0, ROOT | class, 0));
    message.put_str(TCA_KIND, "bfifo");
    message.put_u32(TCA_OPTIONS, limit);
    Request::new(format!("tc qdisc add dev if{index} parent {} bfifo limit {limit}", handle(ROOT | class)), message)
}

impl Netlink {
    /// The classes of a link (`tc class show dev LINK`).
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn classes(&mut self, index: u32) -> Result<Vec<SeenClass>, ReadError> {
        let question = Message::new(RTM_GETTCLASS, 0, &header(index, 0, 0, 0));
        let class = |m: &Received<'_>| (m.kind == RTM_NEWTCLASS).then(|| SeenClass::parse(m)).flatten();
        self.dump("tc class show", question, &[nix::errno::Errno::ENODEV], class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_known_again() {
        let seen = |rate: u64, ticks: u32| SeenBucket { rate, ticks };
        let small = Bucket { rate: 125_000, burst: 12_500 };
        // A tenth of a second.
        assert_eq!(small.ticks(), 1_562_500);
        assert!(small.is(seen(125_000, 1_562_500)) && small.is(seen(125_000, 1_562_490)));
        assert!(!small.is(seen(125_000, 1_562_600)) && !small.is(seen(125_001, 1_562_500)));
        assert_eq!(seen(125_000, 1_562_500).burst(), 12_500);
        // 2147 seconds: the upper bits are missing, or there are as many as there are.
        let large = Bucket { rate: 125_000, burst: 268_435_455 };
        assert_eq!(large.ticks(), 33_554_431_875);
        assert!(large.is(seen(125_000, 3_489_660_803)) && large.is(seen(125_000, u32::MAX)) && !large.is(seen(125_000, 7)));
    }
}
