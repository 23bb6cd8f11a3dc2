//! Which pairs of pods are measured, and what came of each.

use std::net::IpAddr;

use verify::{Check, Place, Planned, Protocol, Site};

use crate::client::AskError;
use crate::perf::Speed;

/// The cases of pods that ask pods.
const CASES: [&str; 4] = ["1", "2", "network-1", "network-2"];

/// What was measured between two pods on one network.
#[derive(Debug)]
pub struct Measured {
    /// The network.
    pub network: String,
    /// Who asks.
    pub from: Place,
    /// Who answers.
    pub to: Place,
    /// At which address.
    pub address: IpAddr,
    /// What came of it.
    pub speed: Result<Speed, AskError>,
}

/// Two pods on one network.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The network.
    pub network: String,
    /// Who asks.
    pub from: Place,
    /// Who answers.
    pub to: Place,
    /// At which address.
    pub address: IpAddr,
}

/// The pairs of pods that a site's plan asks, on the networks that are wanted.
pub fn pairs(site: &Site, wanted: &dyn Fn(&str) -> bool) -> Vec<Pair> {
    let default_of = |place: &Place| {
        let pod = site.pods.iter().find(|pod| pod.place() == *place);
        pod.and_then(|pod| pod.attachments.iter().find(|attachment| attachment.is_default)).map(|attachment| attachment.network.clone())
    };
    let asked = verify::plan(site).into_iter().filter_map(|planned| match planned {
        Planned::Check(check) if CASES.contains(&check.case.id) && check.protocol == Protocol::Tcp => Some(check),
        _ => None,
    });
    let pair = |check: Check| {
        let network = check.network.or_else(|| default_of(&check.from))?;
        Some(Pair { network, to: check.answerers.first()?.clone(), from: check.from, address: check.address })
    };
    asked.filter_map(pair).filter(|pair| wanted(&pair.network)).collect()
}

// === impl Pair ===

impl Pair {
    /// What came of measuring it.
    pub fn measured(self, speed: Result<Speed, AskError>) -> Measured {
        Measured { network: self.network, from: self.from, to: self.to, address: self.address, speed }
    }
}
