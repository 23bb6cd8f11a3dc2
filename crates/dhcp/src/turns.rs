//! Whose turn it is, when more leases are due than there are workers.
//!
//! ```text
//!   due, its network answers         first; of several the one whose end is nearest
//!   due, its network is silent       then, by half of the workers at the most; the network that was asked longest ago
//!   its end has come                 like the first: its address goes off the interface, and nobody is waited for
//! ```
//!
//! A renewal that nobody answers keeps a worker for seconds. A server that is gone would so keep all of them, for hundreds of
//! leases, while those of servers that are there end.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use cni::{AttachmentId, NetworkName};

/// When something is to be done for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    /// When the address that is on the interface ends; `None`: never, or there is none.
    pub(crate) end: Option<Duration>,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerTask {
    /// Look after this lease, and say so with [`Turns::done`]; `patient`: its network was silent.
    Now { id: AttachmentId, patient: bool },
    /// Nothing before this moment.
    At(Duration),
    /// Nothing.
    Never,
}

/// The next moment of each lease.
#[derive(Debug)]
pub(crate) struct Turns {
    moments: HashMap<AttachmentId, Moment>,
    /// Networks whose server did not answer last, and the number of the turn they had last.
    silent: HashMap<NetworkName, u64>,
    turn: u64,
    /// How many workers are with silent networks, and how many may be.
    patient: usize,
    at_most: usize,
}

// === impl Turns ===

impl Turns {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Turns { moments: HashMap::new(), silent: HashMap::new(), turn: 0, patient: 0, at_most: (workers / 2).max(1) }
    }

    /// Notes the next moment of a lease; `None`: it has none any more.
    pub(crate) fn set(&mut self, id: &AttachmentId, moment: Option<Moment>) {
        match moment {
            Some(moment) => drop(self.moments.insert(id.clone(), moment)),
            None => drop(self.moments.remove(id)),
        }
    }

    /// Whose turn it is now.
    pub(crate) fn next(&mut self, now: Duration) -> WorkerTask {
        let crowded = self.patient >= self.at_most;
        let mut soonest: Option<Duration> = None;
        let mut best = None;
        for (id, moment) in &self.moments {
            if moment.at > now {
                soonest = Some(soonest.map_or(moment.at, |s| s.min(moment.at)));
                continue;
            }
            let over = moment.end.is_some_and(|end| end <= now);
            let last = self.silent.get(&id.network).filter(|_| !over);
            if last.is_some() && crowded {
                continue;
            }
            // None comes before Some, and nearer ends before later ones and those that never come.
            let rank = (last, Reverse(moment.end.map(Reverse)));
            if best.as_ref().is_none_or(|(lowest, _)| rank < *lowest) {
                best = Some((rank, id));
            }
        }
        let Some(((last, _), id)) = best else { return soonest.map_or(WorkerTask::Never, WorkerTask::At) };
        let (id, patient) = (id.clone(), last.is_some());
        self.moments.remove(&id);
        if patient {
            self.patient += 1;
            self.turn += 1;
            self.silent.insert(id.network.clone(), self.turn);
        }
        WorkerTask::Now { id, patient }
    }

    /// A turn is over; `answered`: whether the server did, where one was asked.
    pub(crate) fn done(&mut self, network: &NetworkName, patient: bool, answered: Option<bool>) {
        self.patient -= usize::from(patient);
        match answered {
            Some(true) => drop(self.silent.remove(network)),
            Some(false) => drop(self.silent.entry(network.clone()).or_insert(self.turn)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(network: &str, container: &str) -> AttachmentId {
        AttachmentId { network: network.parse().unwrap(), container: container.parse().unwrap(), ifname: "eth0".parse().unwrap() }
    }

    fn at(at: u64, end: u64) -> Option<Moment> {
        Some(Moment { at: Duration::from_secs(at), end: (end != 0).then(|| Duration::from_secs(end)) })
    }

    fn now(turns: &mut Turns, seconds: u64) -> String {
        match turns.next(Duration::from_secs(seconds)) {
            WorkerTask::Now { id, patient } => format!("{}{}", id.container, if patient { ", patient" } else { "" }),
            WorkerTask::At(at) => format!("at {}", at.as_secs()),
            WorkerTask::Never => "never".to_owned(),
        }
    }

    #[test]
    fn the_nearest_end_is_first() {
        let mut turns = Turns::new(8);
        assert_eq!(now(&mut turns, 0), "never");
        for (container, moment) in [("never", at(1, 0)), ("late", at(1, 90)), ("soon", at(3, 30)), ("later", at(7, 8))] {
            turns.set(&id("n", container), moment);
        }
        assert_eq!(now(&mut turns, 0), "at 1");
        assert_eq!([5, 5, 5, 5].map(|s| now(&mut turns, s)), ["soon", "late", "never", "at 7"]);
        turns.set(&id("n", "later"), None);
        assert_eq!(now(&mut turns, 9), "never");
    }

    #[test]
    fn silent_networks_get_half_of_the_workers_in_turn() {
        let mut turns = Turns::new(4);
        let [a, b]: [NetworkName; 2] = ["a", "b"].map(|n| n.parse().unwrap());
        turns.done(&a, false, Some(false));
        turns.done(&b, false, Some(false));
        for name in ["a1", "a2", "a3"] {
            turns.set(&id("a", name), at(1, 50));
        }
        turns.set(&id("b", "b1"), at(1, 90));
        turns.set(&id("live", "live"), at(1, 99));
        assert_eq!(now(&mut turns, 5), "live");
        let mut first = [now(&mut turns, 5), now(&mut turns, 5)];
        first.sort();
        assert!(first[0].starts_with('a') && first[1] == "b1, patient", "{first:?}");
        assert_eq!(now(&mut turns, 5), "never", "half of them are kept for others");
        turns.set(&id("live", "live"), at(6, 99));
        assert_eq!(now(&mut turns, 6), "live");
        // Whose time is over waits for nobody.
        assert!(now(&mut turns, 50).starts_with('a') && !now(&mut turns, 50).contains("patient"));
        turns.set(&id("a", "a4"), at(51, 99));
        assert_eq!(now(&mut turns, 51), "never");
        turns.done(&a, true, Some(true));
        assert_eq!(now(&mut turns, 51), "a4", "it answers again");
    }
}
