//! How fast a lab's networks are: each pair of pods of the sample, one after the other, so that none disturbs another one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::verify::{Check, Place, Planned, Protocol};
use probe::{AskError, Latency};

use super::{Lab, Namespaces, VerifyError, site};

/// Datagrams of a measurement.
const DATAGRAMS: u32 = 500;
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

/// How fast a path is.
#[derive(Debug)]
pub struct Speed {
    /// How long datagrams take to and fro.
    pub latency: Latency,
    /// Bytes in a second over one TCP connection.
    pub throughput: f64,
}

/// Measures the pairs of pods on networks that are wanted, and reports each when it is done. `time`: how long bytes are sent for throughput;
/// `patience`: how long an answer is waited for.
///
/// # Errors
/// [`VerifyError`]: nothing was measured then.
pub fn perf(
    lab: &Lab,
    wanted: &dyn Fn(&str) -> bool,
    (time, patience): (Duration, Duration),
    report: &mut dyn FnMut(&Measured),
) -> Result<Vec<Measured>, VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let site = site::of(lab, &namespaces)?;
    let default_of = |place: &Place| {
        let pod = site.pods.iter().find(|pod| pod.place() == *place);
        pod.and_then(|pod| pod.attachments.iter().find(|attachment| attachment.is_default)).map(|attachment| attachment.network.clone())
    };
    let pair = |planned| match planned {
        Planned::Check(check) if CASES.contains(&check.case.id) && check.protocol == Protocol::Tcp => Some(check),
        _ => None,
    };
    let of_network = |check: Check| Some((check.network.clone().or_else(|| default_of(&check.from))?, check));
    let pairs = ::verify::plan(&site).into_iter().filter_map(pair).filter_map(of_network);
    let pairs: Vec<(String, Check)> = pairs.filter(|(network, _)| wanted(network)).collect();
    let mut places: Vec<Place> = pairs.iter().flat_map(|(_, check)| check.answerers.clone()).collect();
    places.sort_unstable();
    places.dedup();
    let (listeners, sinks) = (namespaces.listen(&site)?, namespaces.sink(&places)?);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = &end;
        scope.spawn(|| probe::serve(&listeners, end));
        for sink in &sinks {
            scope.spawn(move || sink.swallow(end));
        }
        let mut all = Vec::new();
        for (network, check) in pairs {
            let (from, Some(to)) = (check.from.clone(), check.answerers.first().cloned()) else { continue };
            let measured = Measured { network, speed: speed(&namespaces, &check, (time, patience)), from, to, address: check.address };
            report(&measured);
            all.push(measured);
        }
        end.store(true, Ordering::Relaxed);
        Ok(all)
    })
}

fn speed(namespaces: &Namespaces, check: &Check, (time, patience): (Duration, Duration)) -> Result<Speed, AskError> {
    let netns = namespaces.netns(&check.from).ok_or_else(|| AskError::Failed(format!("{} is gone", check.from)))?;
    let measure = |inside: &linux::Inside| {
        let latency = probe::latency(inside, check.address, DATAGRAMS, patience)?;
        Ok(Speed { latency, throughput: probe::throughput(inside, check.address, time, patience)? })
    };
    netns.enter(measure).map_err(|e| AskError::Failed(e.to_string()))?
}
