//! Many callers at once, as when a node starts: how many attachments a second.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::rounds::SETTLE;
use crate::side::Side;

/// Attachments of one round, shared among the callers.
const ATTACHMENTS: usize = 64;

/// How many call at once.
const CALLERS: [usize; 2] = [16, 64];

/// One verb with so many callers: the time for all attachments, of each side.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) callers: usize,
    pub(crate) verb: Verb,
    pub(crate) spreads: Vec<Spread>,
}

/// Rounds with each number of callers; `bridge + host-local`.
pub(crate) fn run(sides: &[Side], rounds: usize, tell: &mut dyn FnMut(usize)) -> Result<Vec<Crowd>> {
    let verbs = [Verb::Add, Verb::Del];
    let mut crowds = Vec::new();
    for callers in CALLERS {
        let mut times = verbs.map(|_| vec![Vec::new(); sides.len()]);
        for round in 0..rounds {
            for turn in 0..sides.len() {
                let at = (round + turn) % sides.len();
                let (Some(side), Some(containers)) = (sides.get(at), containers(round, at)?.into()) else { continue };
                for (verb, times) in verbs.iter().zip(&mut times) {
                    let time = all_at_once(side, *verb, &containers, callers)?;
                    if let Some(times) = times.get_mut(at) {
                        times.push(time);
                    }
                }
                drop(containers);
                thread::sleep(SETTLE);
            }
            tell(round);
        }
        let spreads = |times: Vec<Vec<Duration>>| times.into_iter().map(Spread::of).collect();
        crowds.extend(verbs.into_iter().zip(times).map(|(verb, times)| Crowd { callers, verb, spreads: spreads(times) }));
    }
    sides.iter().try_for_each(Side::check_nothing_left)?;
    Ok(crowds)
}

fn containers(round: usize, side: usize) -> Result<Vec<Namespace>> {
    let containers = (0..ATTACHMENTS).map(|i| Namespace::make(&format!("c{round}-{side}-{i}"))).collect::<Result<Vec<_>>>()?;
    thread::sleep(SETTLE);
    Ok(containers)
}

/// From the first start to the last end; every caller has its share, one after the other.
fn all_at_once(side: &Side, verb: Verb, containers: &[Namespace], callers: usize) -> Result<Duration> {
    let start = Instant::now();
    thread::scope(|scope| {
        let share = containers.len() / callers;
        let call = move |(part, containers): (usize, &[Namespace])| {
            let mut numbered = (part * share..).zip(containers);
            numbered.try_for_each(|(number, container)| side.time(Network::Bridge, verb, container, number).map(drop))
        };
        let callers: Vec<_> = containers.chunks(share).enumerate().map(|part| scope.spawn(move || call(part))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?)
    })?;
    Ok(start.elapsed())
}

// === impl Crowd ===

impl Crowd {
    /// Attachments a second, by the median.
    pub(crate) fn a_second(spread: Spread) -> f64 {
        ATTACHMENTS as f64 / spread.p50.as_secs_f64()
    }

    pub(crate) fn json(&self) -> Value {
        let spreads: Vec<Value> = self.spreads.iter().map(Spread::json).collect();
        json!({"callers": self.callers, "attachments": ATTACHMENTS, "verb": self.verb.name(), "sides": spreads})
    }
}
