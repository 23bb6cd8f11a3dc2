//! Whether what was observed is what was expected.

use std::net::IpAddr;
use std::time::Duration;

use crate::plan::{Check, Expected, ExpectedSource};

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// Somebody has answered.
    Answered {
        /// Who, by its own name.
        by: String,
        /// The address that the question came from, as it saw it.
        seen: IpAddr,
        /// How long it took.
        took: Duration,
    },
    /// The destination's host says that nobody listens.
    Refused,
    /// Nobody has answered in time.
    Silent,
    /// The packet is longer than the first link takes.
    TooLong,
    /// So many bits have got through in a second.
    Rate(u64),
    /// A router, or the own kernel, says that there is no way.
    Unreachable(String),
    /// The probe itself could not work.
    Broken(String),
}

/// What differs from what was expected; `None`: nothing.
pub fn judge(check: &Check, observation: &Observation) -> Option<String> {
    let address = check.address;
    match (&check.expected, observation) {
        (Expected::Answer(seen), Observation::Answered { by, seen: source, .. }) => {
            if !check.answerers.iter().any(|place| *by == place.to_string()) {
                return Some(format!("{by} answered at {address}, not {}", check.whom()));
            }
            match seen {
                ExpectedSource::As(addresses) if !addresses.contains(source) => {
                    Some(format!("{by} saw the packets come from {source}, not from {}", list(addresses)))
                }
                ExpectedSource::NotAs(addresses) if addresses.contains(source) => {
                    Some(format!("{by} saw the pod's own address {source}, which has no meaning there"))
                }
                _ => None,
            }
        }
        (Expected::Silence, Observation::Silent | Observation::Unreachable(_)) => None,
        (Expected::NobodyServes, Observation::Refused | Observation::Silent | Observation::Unreachable(_)) => None,
        (Expected::Silence | Expected::NobodyServes, Observation::Answered { by, .. }) => {
            Some(format!("{by} answered at {address}, and must not be reached"))
        }
        (Expected::TooLong, Observation::TooLong) => None,
        (Expected::Rate { least, most }, Observation::Rate(bits)) => {
            let (low, high) = (megabits(*least), megabits(*most));
            let is_within = (*least..=*most).contains(bits);
            (!is_within).then(|| format!("{} get through to {address}, not {low} to {high}", megabits(*bits)))
        }
        (_, Observation::Rate(bits)) => Some(format!("{} get through to {address}, and it was not asked how fast", megabits(*bits))),
        (Expected::Rate { .. }, Observation::Answered { .. }) => Some(format!("it is not known how fast bytes get to {address}")),
        (Expected::TooLong, _) => Some("the packet was sent, though it is longer than the MTU".to_owned()),
        (_, Observation::Refused) => Some(format!("{address} refuses connections to port {}", check.port)),
        (_, Observation::Silent) => Some(format!("no answer from {address} port {}", check.port)),
        (_, Observation::TooLong) => Some("the packet is longer than the first link takes".to_owned()),
        (_, Observation::Unreachable(why)) => Some(format!("{address} is not reachable: {why}")),
        (_, Observation::Broken(why)) => Some(format!("the probe failed: {why}")),
    }
}

/// Bits in a second, for a person.
pub(crate) fn megabits(bits: u64) -> String {
    format!("{}.{} Mbit/s", bits / 1_000_000, bits / 100_000 % 10)
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}
