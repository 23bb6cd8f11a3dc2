//! Why a probe did not come out as expected: both ways of its conversation are walked over a snapshot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fault::{Direction, Fault, Finding};
use crate::judge::Observation;
use crate::network::Network;
use crate::plan::{Check, Expected, Seen};
use crate::snapshot::{Place, Snapshot};
use crate::walk::{Packet, Translation, Walk};

/// Bytes of a small packet.
const SMALL: u32 = 64;
/// A port that a kernel gives to a client: which one does not matter to what is followed.
const CLIENT_PORT: u16 = 45_000;

/// The first place where what was observed differs from what the probe needs.
pub fn explain(snapshot: &Snapshot, check: &Check, observation: &Observation) -> Finding {
    let network = Network::new(snapshot);
    let any: IpAddr = if check.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut packet = Packet {
        source: any,
        destination: check.address,
        protocol: check.protocol,
        source_port: CLIENT_PORT,
        port: check.port,
        size: check.size.unwrap_or(SMALL),
        established: false,
        rewritten: false,
        mark: 0,
        frame: None,
    };
    let mut request = Walk::new(&network, &check.to, Direction::Request, &[]);
    if let Err(finding) = request.follow(&check.from, &mut packet) {
        return finding;
    }
    if let Some(finding) = translated(check, &network, packet.source, &request.translations) {
        return finding;
    }
    // Who answers knows the addresses that the packet has now.
    let mut reply = packet.reply(packet.destination, packet.source);
    let mut back = Walk::new(&network, &check.from, Direction::Reply, &request.translations);
    if let Err(finding) = back.follow(&check.to, &mut reply) {
        return finding;
    }
    let suspicion = request.suspicions.drain(..).chain(back.suspicions.drain(..)).next();
    let hops: Vec<&str> = request.hops.iter().chain(&back.hops).map(String::as_str).collect();
    reached(check, observation, suspicion, &hops.join("; "))
}

/// Whether an address was translated that must not be, or was not that must.
fn translated(check: &Check, network: &Network<'_>, source: IpAddr, translations: &[Translation]) -> Option<Finding> {
    let of_source = translations.iter().find(|translation| translation.of_source);
    let (fault, place, evidence) = match (&check.expected, of_source) {
        (Expected::Answer(Seen::As(addresses)), Some(by)) if !addresses.contains(&by.now) => {
            let evidence = format!("{} rewrites the source {} to {}; {} must see the pod's own", by.by, by.before, by.now, check.to);
            (Fault::MasqueradeTooWide, by.place.clone(), evidence)
        }
        (Expected::Answer(Seen::As(addresses)), None) if !addresses.contains(&source) => missing(check, network)?,
        (Expected::Answer(Seen::NotAs(_)), None) => missing(check, network)?,
        _ => return None,
    };
    let next_step = fault.next_step(None);
    Some(Finding { fault, place, device: None, direction: Direction::Request, evidence, next_step })
}

/// The node of the one who asks should have rewritten the source.
fn missing(check: &Check, network: &Network<'_>) -> Option<(Fault, Place, String)> {
    let home = network.home(&check.from)?.place.clone();
    let evidence = format!("no rule rewrites the source of what {} sends to {}", check.from, check.address);
    Some((Fault::MasqueradeMissing, home, evidence))
}

/// What is said where both ways pass.
fn reached(check: &Check, observation: &Observation, suspicion: Option<Finding>, hops: &str) -> Finding {
    let at = |fault: Fault, place: &Place, evidence: String| Finding {
        fault,
        place: place.clone(),
        device: None,
        direction: Direction::Request,
        evidence,
        next_step: fault.next_step(None),
    };
    match (observation, suspicion) {
        (Observation::Answered { by, .. }, _) if check.expected == Expected::Silence => {
            at(Fault::NotIsolated, &check.from, format!("{by} answers; the packet's way: {hops}"))
        }
        (Observation::Answered { by, .. }, _) if *by != check.to.to_string() => {
            let place = by.parse().unwrap_or_else(|_| check.to.clone());
            at(Fault::WrongHostAnswers, &place, format!("it answers at {}, which is that of {}", check.address, check.to))
        }
        (Observation::Refused, _) => at(Fault::NothingListens, &check.to, format!("it refuses connections to port {}", check.port)),
        (_, Some(suspicion)) => suspicion,
        _ => at(Fault::Unexplained, &check.from, format!("both ways pass: {hops}")),
    }
}
