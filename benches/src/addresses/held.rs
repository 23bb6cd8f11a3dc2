//! One process has the store open.

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ipam::PoolStore;
use serde_json::{Value, json};

use super::flush::Flushed;
use super::peer::Peer;
use super::{HELD, Place, SUBNET, ask, key};
use crate::figures::Spread;
use crate::options::Options;

/// How many ask at once.
pub(super) const CALLERS: [usize; 2] = [1, 64];

/// Addresses of a round, shared among the callers.
pub(super) const COUNT: usize = 4096;

/// Of the reference's code, and flushes.
const FEWER: usize = 256;

/// Of the reference's code with many held, which reads all files for each: so many, in so many rounds, by one caller.
const SLOW: (usize, usize) = (2, 4);

/// So many addresses held, so many callers.
pub(super) struct Case {
    pub(super) held: usize,
    pub(super) callers: usize,
    pub(super) ours: Spread,
    /// All of a round.
    pub(super) round: Spread,
    /// `None`: it would take minutes.
    pub(super) reference: Option<Spread>,
    pub(super) flush: Spread,
}

/// Times of a case.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    round: Vec<Duration>,
    reference: Vec<Duration>,
    flush: Vec<Duration>,
}

/// Who is measured with so many addresses held.
struct Parties {
    held: usize,
    store: PoolStore,
    peer: Peer,
    /// The next attachment's number.
    next: usize,
}

/// Rounds of all cases, turn by turn.
pub(super) fn run(options: &Options, scratch: &Path, tell: &mut dyn FnMut(usize)) -> Result<Vec<Case>> {
    let mut flushed = Flushed::make(&scratch.join("flushed"))?;
    let mut parties = HELD.iter().map(|held| Parties::make(options, scratch, *held)).collect::<Result<Vec<_>>>()?;
    let mut times: Vec<Times> = (0..HELD.len() * CALLERS.len()).map(|_| Times::default()).collect();
    for round in 0..=options.rounds {
        let mut cases = times.iter_mut();
        for parties in &mut parties {
            for callers in CALLERS {
                let Some(times) = cases.next() else { continue };
                // The first one does not count.
                parties.round(round, callers, &mut flushed, if round == 0 { None } else { Some(times) })?;
            }
        }
        tell(round);
    }
    let all = HELD.into_iter().flat_map(|held| CALLERS.map(|callers| (held, callers)));
    let case = |((held, callers), times): ((usize, usize), Times)| Case {
        held,
        callers,
        ours: Spread::of(times.ours),
        round: Spread::of(times.round),
        reference: (!times.reference.is_empty()).then(|| Spread::of(times.reference)),
        flush: Spread::of(times.flush),
    };
    Ok(all.zip(times).map(case).collect())
}

// === impl Parties ===

impl Parties {
    fn make(options: &Options, scratch: &Path, held: usize) -> Result<Self> {
        let below = scratch.join(format!("held-{held}"));
        let store = Place::make(&below, "cidr", SUBNET)?.open()?;
        take(&store, 0, held, 64)?;
        let peer = Peer::start(&options.peers.join("addresses"), &below.join("reference"), held)?;
        Ok(Parties { held, store, peer, next: held })
    }

    fn round(&mut self, round: usize, callers: usize, flushed: &mut Flushed, times: Option<&mut Times>) -> Result<()> {
        let first = self.next;
        self.next += COUNT;
        let (ours, all) = take(&self.store, first, COUNT, callers)?;
        give_back(&self.store, first, COUNT)?;
        let flush = (0..FEWER).map(|_| flushed.time()).collect::<Result<Vec<_>>>()?;
        let reference = match (self.held, callers) {
            (few, callers) if few <= 1000 => self.peer.times(FEWER, callers)?,
            (_, 1) if round <= SLOW.1 => self.peer.times(SLOW.0, 1)?,
            _ => Vec::new(),
        };
        if let Some(times) = times {
            times.ours.extend(ours);
            times.round.push(all);
            times.flush.extend(flush);
            times.reference.extend(reference);
        }
        Ok(())
    }
}

/// The time of each of so many addresses, taken by so many callers at once, and of all together.
pub(super) fn take(store: &PoolStore, first: usize, count: usize, callers: usize) -> Result<(Vec<Duration>, Duration)> {
    let together = Barrier::new(callers);
    let share = |caller: usize| {
        together.wait();
        let numbers = (first + caller..first + count).step_by(callers);
        let taken = numbers.map(|number| {
            let ask = ask(number);
            let start = Instant::now();
            store.reserve(&ask)?;
            Ok(start.elapsed())
        });
        taken.collect::<Result<Vec<Duration>>>()
    };
    let share = &share;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|caller| scope.spawn(move || share(caller))).collect();
        let (mut times, mut longest) = (Vec::with_capacity(count), Duration::ZERO);
        for caller in callers {
            let own = caller.join().map_err(|_| anyhow!("a caller panicked"))??;
            longest = longest.max(own.iter().sum());
            times.extend(own);
        }
        Ok((times, longest))
    })
}

fn give_back(store: &PoolStore, first: usize, count: usize) -> Result<()> {
    let share = |caller: usize| {
        let mut numbers = (first + caller..first + count).step_by(64);
        numbers.try_for_each(|number| store.release(&key(number), None).map(drop))
    };
    let share = &share;
    thread::scope(|scope| {
        let all: Vec<_> = (0..64).map(|caller| scope.spawn(move || share(caller))).collect();
        all.into_iter().try_for_each(|one| Ok(one.join().map_err(|_| anyhow!("a caller panicked"))??))
    })
}

// === impl Case ===

impl Case {
    /// Addresses a second, by the median of the rounds.
    pub(super) fn a_second(&self) -> f64 {
        COUNT as f64 / self.round.p50.as_secs_f64()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "held": self.held, "callers": self.callers, "ours": self.ours.json(), "round": self.round.json(),
            "reference": self.reference.map(|r| r.json()), "flush": self.flush.json(),
        })
    }
}
