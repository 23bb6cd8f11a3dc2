//! Whether the kernel has refused a neighbour. Its tables of neighbours are those of all namespaces: the pods of a large lab, which are all asked
//! within a moment, need more room than its usual tables have, and a probe that finds none is lost though nothing is broken.

use std::sync::Mutex;
use std::time::Duration;

use ::verify::{Check, Observation};
use linux::{Family, Netlink, Netns};

/// How often a probe is repeated that was lost while neighbours were refused.
const MOST_REPEATS: usize = 4;
/// How long to wait before that, and how long for the answer at most. A full table is emptied of neighbours that are five seconds old.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Asks; again where the kernel has refused neighbours meanwhile and the answer is not the expected one. `ask` gets the time to wait for one.
pub(super) fn ask_while_refused(
    check: &Check,
    (timeout, pause): (Duration, Duration),
    refused: impl Fn() -> u64,
    ask: impl Fn(Duration) -> Observation,
) -> Observation {
    let mut before = refused();
    let mut said = ask(timeout);
    for _ in 0..MOST_REPEATS {
        if matches!(said, Observation::Rate(_)) || ::verify::judge(check, &said).is_none() || before == refused() {
            break;
        }
        before = refused();
        // Sleeps: the kernel tells nobody that it has room again.
        std::thread::sleep(pause);
        said = ask(timeout.min(PAUSE));
    }
    said
}

/// Both tables, as any namespace shows them.
pub(super) struct NeighbourTables(Option<Mutex<Netlink>>);

// === impl NeighbourTables ===

impl NeighbourTables {
    /// Opens them in a namespace. Without one that can be entered, nothing is known of them.
    pub(super) fn open(netns: Option<&Netns>) -> Self {
        let netlink = netns.and_then(|netns| netns.enter(Netlink::open).ok()?.ok());
        NeighbourTables(netlink.map(Mutex::new))
    }

    /// How many neighbours of a family have been refused since the kernel started.
    pub(super) fn refused(&self, is_ipv4: bool) -> u64 {
        let family = if is_ipv4 { Family::V4 } else { Family::V6 };
        let Some(Ok(mut netlink)) = self.0.as_ref().map(Mutex::lock) else { return 0 };
        netlink.neighbour_table(family).ok().flatten().map_or(0, |table| table.refused)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::IpAddr;

    use ::verify::{Expected, ExpectedSource, PORT, Place, Protocol};

    use super::*;

    /// A large lab's first verification named neighbours that do not answer: the kernel had no room for them for a moment.
    #[test]
    fn a_probe_is_repeated_while_neighbours_are_refused() {
        let place = |name: &str| -> Place { name.parse().unwrap() };
        let from = IpAddr::from([10, 0, 0, 1]);
        let check = Check {
            case: ::verify::CASES.first().unwrap(),
            network: None,
            from: place("pod/d/a"),
            answerers: vec![place("pod/d/b")],
            address: IpAddr::from([10, 0, 0, 2]),
            protocol: Protocol::Tcp,
            port: PORT,
            size: None,
            expected: Expected::Answer(ExpectedSource::As(vec![from])),
        };
        let answer = || Observation::Answered { by: "pod/d/b".to_owned(), seen: from, took: Duration::ZERO };
        // How often neighbours are refused, from which question on there is an answer, and how often it is asked.
        for (full, answers, expected) in [(0, 1, 1), (0, 9, 1), (2, 3, 3), (9, 9, 1 + MOST_REPEATS), (1, 9, 2)] {
            let asked = Cell::new(0);
            let refused = || asked.get().min(full);
            let ask = |_| {
                asked.set(asked.get() + 1);
                if asked.get() >= answers { answer() } else { Observation::Silent }
            };
            let said = ask_while_refused(&check, (Duration::ZERO, Duration::ZERO), refused, ask);
            assert_eq!(asked.get(), u64::try_from(expected).unwrap(), "refused {full} times, answered the {answers}th");
            assert_eq!(said == answer(), asked.get() >= answers);
        }
    }
}
