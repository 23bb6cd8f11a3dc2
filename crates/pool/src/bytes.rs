//! Events as bytes, for a journal. Numbers are little-endian, text and lists begin with their length; the first byte says which
//! event it is. What a release has written every later one reads: a new field of an event is a new event.

use std::fmt;
use std::net::IpAddr;

use crate::family_pool::State;
use crate::{Block, Event, Family, Key, Lease, Leased, Moment, Order, Origin, Pod, Reuse, Run, Scaling, Spec, Terms, Unavailable};

/// Bytes that are no event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end in the middle.
    Short,
    /// There are more of them behind the event.
    Long {
        /// How many.
        more: usize,
    },
    /// Something has a number that this release does not know: another one wrote it.
    Unknown {
        /// What.
        what: &'static str,
        /// The number.
        found: u8,
    },
    /// Text is no UTF-8, or a run ends before it begins.
    Nonsense,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the event is cut off"),
            Self::Long { more } => write!(f, "{more} bytes follow the event"),
            Self::Unknown { what, found } => write!(f, "{what} {found} is not supported by this version: use the version that wrote it"),
            Self::Nonsense => f.write_str("the event has an invalid field"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Event {
    /// The event as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(128));
        match self {
            Event::Pool(spec) if spec.probe => w.byte(13).spec(spec),
            Event::Pool(spec) => w.byte(1).spec(spec),
            Event::PoolGone { pool } => w.byte(2).text(pool),
            Event::Block(block, state) => w.byte(3).block(block).byte(match state {
                State::Active => 0,
                State::Frozen => 1,
                State::Withdrawn => 2,
            }),
            Event::Frozen { pool, run, epoch } => w.byte(4).text(pool).run(*run).number(*epoch),
            Event::Withdrawn { pool, run, epoch } => w.byte(5).text(pool).run(*run).number(*epoch),
            Event::BlockGone { pool, run, epoch } => w.byte(6).text(pool).run(*run).number(*epoch),
            Event::Leased(lease) => return Event::encode_leased(lease),
            Event::Released { key, generation, at } => w.byte(8).key(key).number(*generation).moment(at),
            Event::Cooling { pool, address, taken } => w.byte(9).text(pool).address(*address).taken(taken),
            Event::Quarantined { pool, address, taken } => w.byte(10).text(pool).address(*address).taken(taken),
            Event::Generation(next) => w.byte(11).number(*next),
            Event::Only { pool, runs } => w.byte(12).text(pool).list(runs, |w, run| {
                w.run(*run);
            }),
        };
        w.0
    }

    /// [`Event::Leased`] as bytes, of a lease that is somebody else's.
    pub(crate) fn encode_leased(lease: &Lease) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(256));
        w.byte(7).lease(lease);
        w.0
    }

    /// Back from [`Event::encode`].
    ///
    /// # Errors
    /// [`DecodeError`]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(bytes);
        let event = match r.byte()? {
            1 => Event::Pool(r.spec()?),
            2 => Event::PoolGone { pool: r.text()? },
            3 => {
                let block = r.block()?;
                let state = match r.byte()? {
                    0 => State::Active,
                    1 => State::Frozen,
                    2 => State::Withdrawn,
                    found => return Err(DecodeError::Unknown { what: "state of a block", found }),
                };
                Event::Block(block, state)
            }
            4 => Event::Frozen { pool: r.text()?, run: r.run()?, epoch: r.number()? },
            5 => Event::Withdrawn { pool: r.text()?, run: r.run()?, epoch: r.number()? },
            6 => Event::BlockGone { pool: r.text()?, run: r.run()?, epoch: r.number()? },
            7 => Event::Leased(r.lease()?),
            8 => Event::Released { key: r.key()?, generation: r.number()?, at: r.moment()? },
            9 => Event::Cooling { pool: r.text()?, address: r.address()?, taken: r.taken()? },
            10 => Event::Quarantined { pool: r.text()?, address: r.address()?, taken: r.taken()? },
            11 => Event::Generation(r.number()?),
            12 => Event::Only { pool: r.text()?, runs: r.list(Reader::run)? },
            // A pool of which addresses are asked for on the wire: releases that cannot do that know no such event.
            13 => Event::Pool(Spec { probe: true, ..r.spec()? }),
            found => return Err(DecodeError::Unknown { what: "event", found }),
        };
        if r.0.is_empty() { Ok(event) } else { Err(DecodeError::Long { more: r.0.len() }) }
    }
}

struct Writer(Vec<u8>);

// === impl Writer ===

impl Writer {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn wide(&mut self, number: u128) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn length(&mut self, length: usize) -> &mut Self {
        self.0.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.length(text.len());
        self.0.extend(text.as_bytes());
        self
    }

    fn option<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) -> &mut Self {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.length(values.len());
        values.iter().for_each(|value| write(self, value));
        self
    }

    fn address(&mut self, address: IpAddr) -> &mut Self {
        self.family(Family::of(address)).wide(crate::number(address))
    }

    fn family(&mut self, family: Family) -> &mut Self {
        self.byte(match family {
            Family::V4 => 4,
            Family::V6 => 6,
        })
    }

    fn run(&mut self, run: Run) -> &mut Self {
        let (first, last) = run.numbers();
        self.family(run.family()).wide(first).wide(last)
    }

    fn moment(&mut self, moment: &Moment) -> &mut Self {
        self.0.extend(moment.boot);
        self.number(moment.millis)
    }

    fn key(&mut self, key: &Key) -> &mut Self {
        self.text(&key.network).text(&key.container).text(&key.ifname)
    }

    fn pod(&mut self, pod: Option<&Pod>) -> &mut Self {
        self.option(pod, |w, pod| {
            w.text(&pod.namespace).text(&pod.name).text(&pod.uid);
        })
    }

    fn optional_text(&mut self, text: Option<&String>) -> &mut Self {
        self.option(text, |w, text| {
            w.text(text);
        })
    }

    fn block(&mut self, block: &Block) -> &mut Self {
        self.text(&block.pool).run(block.run).number(block.epoch).optional_text(block.claim.as_ref())
    }

    fn lease(&mut self, lease: &Lease) -> &mut Self {
        self.key(&lease.key).number(lease.generation).pod(lease.pod.as_ref()).optional_text(lease.claim.as_ref()).moment(&lease.since);
        self.list(&lease.addresses, |w, leased| {
            w.text(&leased.pool).address(leased.address).number(leased.epoch);
        })
    }

    fn taken(&mut self, taken: &Unavailable) -> &mut Self {
        match taken {
            Unavailable::Held(key) => self.byte(0).key(key),
            Unavailable::Cooling { since, generation, pod } => self.byte(1).moment(since).number(*generation).pod(pod.as_ref()),
            Unavailable::Quarantined { since, millis, by } => self.byte(2).moment(since).number(*millis).text(by),
        }
    }

    fn terms(&mut self, terms: &Terms) -> &mut Self {
        self.byte(terms.prefix).option(terms.gateway.as_ref(), |w, gateway| {
            w.address(*gateway);
        })
    }

    fn spec(&mut self, spec: &Spec) -> &mut Self {
        let run = |w: &mut Self, run: &Run| {
            w.run(*run);
        };
        self.text(&spec.name).text(&spec.network).byte(match spec.origin {
            Origin::File => 0,
            Origin::Cluster => 1,
            Origin::CiliumNode => 2,
        });
        self.terms(&spec.v4).terms(&spec.v6).list(&spec.exclude, run).list(&spec.reserved, run);
        self.number(spec.reuse.cooldown).byte(match spec.reuse.order {
            Order::Fifo => 0,
            Order::Lowest => 1,
            Order::Random => 2,
        });
        let s = &spec.scaling;
        self.number(s.min_allocate).number(s.pre_allocate).number(s.max_allocate).number(s.max_above_watermark)
    }
}

struct Reader<'a>(&'a [u8]);

// === impl Reader ===

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    fn wide(&mut self) -> Result<u128, DecodeError> {
        self.take().map(u128::from_le_bytes)
    }

    /// Never more than the bytes that are there: each element has at least one.
    fn length(&mut self) -> Result<usize, DecodeError> {
        let length = usize::try_from(self.take().map(u32::from_le_bytes)?).map_err(|_| DecodeError::Short)?;
        if length > self.0.len() { Err(DecodeError::Short) } else { Ok(length) }
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let length = self.length()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.0 = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| DecodeError::Nonsense)
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<Option<T>, DecodeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            found => Err(DecodeError::Unknown { what: "presence", found }),
        }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        (0..self.length()?).map(|_| read(self)).collect()
    }

    fn family(&mut self) -> Result<Family, DecodeError> {
        match self.byte()? {
            4 => Ok(Family::V4),
            6 => Ok(Family::V6),
            found => Err(DecodeError::Unknown { what: "address family", found }),
        }
    }

    fn address(&mut self) -> Result<IpAddr, DecodeError> {
        let (family, number) = (self.family()?, self.wide()?);
        let address = family.address(number);
        // What is written is written back: no number above the family's, and no IPv4 address in IPv6 clothes.
        if number <= family.highest() && Family::of(address) == family { Ok(address) } else { Err(DecodeError::Nonsense) }
    }

    fn run(&mut self) -> Result<Run, DecodeError> {
        Run::of_numbers(self.family()?, self.wide()?, self.wide()?).ok_or(DecodeError::Nonsense)
    }

    fn moment(&mut self) -> Result<Moment, DecodeError> {
        Ok(Moment { boot: self.take()?, millis: self.number()? })
    }

    fn key(&mut self) -> Result<Key, DecodeError> {
        Ok(Key { network: self.text()?, container: self.text()?, ifname: self.text()? })
    }

    fn pod(&mut self) -> Result<Option<Pod>, DecodeError> {
        self.option(|r| Ok(Pod { namespace: r.text()?, name: r.text()?, uid: r.text()? }))
    }

    fn block(&mut self) -> Result<Block, DecodeError> {
        Ok(Block { pool: self.text()?, run: self.run()?, epoch: self.number()?, claim: self.option(Self::text)? })
    }

    fn lease(&mut self) -> Result<Lease, DecodeError> {
        let (key, generation, pod) = (self.key()?, self.number()?, self.pod()?);
        let (claim, since) = (self.option(Self::text)?, self.moment()?);
        let addresses = self.list(|r| Ok(Leased { pool: r.text()?, address: r.address()?, epoch: r.number()? }))?;
        Ok(Lease { key, generation, pod, claim, since, addresses })
    }

    fn taken(&mut self) -> Result<Unavailable, DecodeError> {
        match self.byte()? {
            0 => Ok(Unavailable::Held(self.key()?)),
            1 => Ok(Unavailable::Cooling { since: self.moment()?, generation: self.number()?, pod: self.pod()? }),
            2 => Ok(Unavailable::Quarantined { since: self.moment()?, millis: self.number()?, by: self.text()? }),
            found => Err(DecodeError::Unknown { what: "state of an address", found }),
        }
    }

    fn terms(&mut self) -> Result<Terms, DecodeError> {
        Ok(Terms { prefix: self.byte()?, gateway: self.option(Self::address)? })
    }

    fn spec(&mut self) -> Result<Spec, DecodeError> {
        let (name, network) = (self.text()?, self.text()?);
        let origin = match self.byte()? {
            0 => Origin::File,
            1 => Origin::Cluster,
            2 => Origin::CiliumNode,
            found => return Err(DecodeError::Unknown { what: "origin of a pool", found }),
        };
        let (v4, v6) = (self.terms()?, self.terms()?);
        let (exclude, reserved) = (self.list(Self::run)?, self.list(Self::run)?);
        let cooldown = self.number()?;
        let order = match self.byte()? {
            0 => Order::Fifo,
            1 => Order::Lowest,
            2 => Order::Random,
            found => return Err(DecodeError::Unknown { what: "order", found }),
        };
        let scaling = Scaling {
            min_allocate: self.number()?,
            pre_allocate: self.number()?,
            max_allocate: self.number()?,
            max_above_watermark: self.number()?,
        };
        Ok(Spec { name, network, origin, v4, v6, exclude, reserved, reuse: Reuse { cooldown, order }, scaling, probe: false })
    }
}
