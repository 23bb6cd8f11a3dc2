//! One call at a time: every side, turn by turn, in fresh containers.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::side::Side;

/// Rounds before the first one that counts: the bridge is made, executables and directories are in the page cache.
const WARM_UP: usize = 5;

/// Rounds for which containers are made at once. A namespace's end takes the kernel tens of milliseconds after `ip
/// netns del` has returned, under locks that every link's creation and removal wants: so containers end between batches.
const BATCH: usize = 20;

/// How long the kernel gets for that.
pub(crate) const SETTLE: Duration = Duration::from_millis(400);

/// One verb of one network: the times of each side.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) network: Network,
    pub(crate) verb: Verb,
    /// In the order of the sides.
    pub(crate) spreads: Vec<Spread>,
}

/// Runs all rounds of a network. The first error ends it: a time without an effect is no figure.
pub(crate) fn run(sides: &[Side], network: Network, rounds: usize, tell: &mut dyn FnMut(usize)) -> Result<Vec<Figure>> {
    let mut times: BTreeMap<Verb, Vec<Vec<Duration>>> = BTreeMap::new();
    let total = WARM_UP + rounds;
    for first in (0..total).step_by(BATCH) {
        batch(sides, network, first..total.min(first + BATCH), &mut times)?;
        tell(first);
    }
    for side in sides {
        side.check_nothing_left()?;
    }
    let figure = |(verb, times): (Verb, Vec<Vec<Duration>>)| Figure { network, verb, spreads: times.into_iter().map(Spread::of).collect() };
    Ok(times.into_iter().map(figure).collect())
}

fn batch(sides: &[Side], network: Network, rounds: std::ops::Range<usize>, times: &mut BTreeMap<Verb, Vec<Vec<Duration>>>) -> Result<()> {
    let of_round = |round: usize| (0..sides.len()).map(|side| Namespace::make(&format!("{round}-{side}"))).collect::<Result<Vec<_>>>();
    let containers = rounds.clone().map(of_round).collect::<Result<Vec<_>>>()?;
    thread::sleep(SETTLE);
    for (round, containers) in rounds.zip(&containers) {
        for verb in network.verbs() {
            let times = times.entry(*verb).or_insert_with(|| vec![Vec::new(); sides.len()]);
            let mut order: Vec<_> = sides.iter().zip(containers).zip(times).collect();
            // Who goes first changes with every round: nobody profits from what another one left in the caches.
            order.rotate_left(round % sides.len());
            for ((side, container), times) in order {
                let time = side.time(network, *verb, container, round)?;
                if round >= WARM_UP {
                    times.push(time);
                }
            }
        }
    }
    drop(containers);
    thread::sleep(SETTLE);
    Ok(())
}

// === impl Figure ===

impl Figure {
    pub(crate) fn json(&self) -> Value {
        let spreads: Vec<Value> = self.spreads.iter().map(Spread::json).collect();
        json!({"network": self.network.name(), "verb": self.verb.name(), "sides": spreads})
    }
}
