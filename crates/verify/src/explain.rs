//! Why a probe did not come out as expected: both ways of its conversation are walked over a snapshot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;

use crate::case::{Limited, Target};
use crate::fault::{Direction, Fault, Finding};
use crate::judge::{Observation, megabits};
use crate::network::{Network, is_link_local};
use crate::plan::{Check, Expected, ExpectedSource};
use crate::snapshot::{Link, Namespace, Place, Route, Snapshot};
use crate::unread;
use crate::walk::{Asked, Choices, Connection, Packet, RESTORE, Translation, Walk, leaves_by};

/// Bytes of a small packet.
const SMALL: u32 = 64;
/// A port that a kernel gives to a client: which one does not matter to what is followed.
const CLIENT_PORT: u16 = 45_000;
/// Ways of a route that are looked at.
const MOST_WAYS: usize = 8;
/// Ways that are followed where rules leave one to chance: more endpoints than a Service of probes has.
const MOST_CHOICES: usize = 64;
/// What a packet between nodes may be wrapped in, as the kernel names it.
pub const TUNNELS: [&str; 7] = ["vxlan", "wireguard", "geneve", "ipip", "sit", "gre", "ip6tnl"];

/// What was found on both ways between the asker and one of those who may answer.
struct Conversation<'a> {
    to: &'a Place,
    /// What stops a packet, and whether the sender is told so at once: a rule rejects it.
    stopped: Option<(Finding, bool)>,
    /// An address is translated that must not be, or is not that must.
    translated: Option<Finding>,
    /// What may be wrong.
    suspicion: Option<Finding>,
    /// The hops of both ways.
    hops: Vec<String>,
    /// How many ways the routes had at most that both met.
    ways: usize,
    /// The source that the one who is asked sees, if the request gets there.
    seen: Option<IpAddr>,
    /// What was taken where something was left to chance.
    choices: Choices,
    /// Rules have led it to a backend that is not asked.
    is_anothers: bool,
}

/// The first place where what was observed differs from what the probe needs.
pub fn explain(snapshot: &Snapshot, check: &Check, observation: &Observation) -> Finding {
    let network = Network::new(snapshot);
    let finding = found(&network, check, observation);
    // What is missing, or decides where no rule does, may be among what was not read.
    let namespace = network.namespace(&finding.place);
    let mut notes = namespace.into_iter().flat_map(|namespace| unread::of(namespace, check.address.is_ipv4()));
    if let Some(note) = notes.find(|note| unread::is_below(&finding, note)) {
        let evidence = format!("not read: {note}; of what was read: {}: {}", finding.fault.title(), finding.evidence);
        return Finding { fault: Fault::NotObserved, device: None, evidence, next_step: Fault::NotObserved.next_step(None), ..finding };
    }
    let is_gone = network.namespace(&finding.place).is_some_and(|namespace| namespace.agent == Some(false));
    if !is_gone || !finding.fault.is_restored() {
        return finding;
    }
    let evidence = format!("{}: {}; the node's agent, which restores it, does not listen", finding.fault.title(), finding.evidence);
    let next_step = Fault::AgentGone.next_step(None);
    Finding { fault: Fault::AgentGone, device: None, evidence, next_step, ..finding }
}

fn found(network: &Network<'_>, check: &Check, observation: &Observation) -> Finding {
    let is_there = network.namespace(&check.from).is_some() || network.unobserved(&check.from).is_some();
    if let Observation::Broken(why) = observation
        && is_there
    {
        return said(Fault::ProbeFailed, &check.from, why.clone());
    }
    if let (Expected::TooLong, Some(size)) = (&check.expected, check.size)
        && let Some(finding) = too_long(network, check, size)
    {
        return finding;
    }
    if let (Expected::Rate { least, most }, Observation::Rate(bits)) = (&check.expected, observation) {
        let limited = if check.case.to == Target::Bandwidth(Limited::Sends) { Some(&check.from) } else { check.answerers.first() };
        let (limit, low, high) = (megabits(least.saturating_mul(4)), megabits(*least), megabits(*most));
        let (low, high) = (low.trim_end_matches(" Mbit/s"), high.trim_end_matches(" Mbit/s"));
        let slow = if bits < least { "; something else is slower: the machine, or another limit on the way" } else { "" };
        let evidence = format!(
            "{} get through from {} to {}; its limit is {limit}, and {low} to {high} would pass{slow}",
            megabits(*bits),
            check.from,
            check.whom()
        );
        return said(Fault::BandwidthDiffers, limited.unwrap_or(&check.from), evidence);
    }
    let mut conversations: Vec<Conversation<'_>> = Vec::new();
    for to in &check.answerers {
        // Rules may have led to it already.
        if conversations.iter().any(|conversation| conversation.to == to) {
            continue;
        }
        // A packet takes one of several ways, by a hash: each must pass.
        let mut turns = 0..1;
        while let Some(turn) = turns.next() {
            let mut next = Some(Choices::default());
            for _ in 0..MOST_CHOICES {
                let Some(choices) = next.take() else { break };
                let mut conversation = Conversation::follow(network, check, (to, turn), choices);
                turns.end = turns.end.max(conversation.ways.min(MOST_WAYS));
                next = std::mem::take(&mut conversation.choices).next();
                conversations.push(conversation);
            }
        }
    }
    // Of a Service's backends, those that are asked. If no rule leads to one, that is what is wrong.
    if conversations.iter().any(|conversation| !conversation.is_anothers) {
        conversations.retain(|conversation| !conversation.is_anothers);
    }
    let by = match observation {
        Observation::Answered { by, .. } => conversations.iter().find(|conversation| *by == conversation.to.to_string()),
        // Each packet may go to another one: the first that does not get there is what is wrong.
        _ => conversations.iter().find(|conversation| conversation.stopped.is_some() || conversation.translated.is_some()),
    };
    match by.or(conversations.first()) {
        Some(conversation) => conversation.explain(network, check, observation),
        None => said(Fault::Unexplained, &check.from, "nobody is to answer".to_owned()),
    }
}

/// What would come of a probe, as far as a snapshot shows: a way that nothing observed stops is passed. What listens is not observed.
pub fn predict(snapshot: &Snapshot, check: &Check) -> Observation {
    let network = Network::new(snapshot);
    let Some(to) = check.answerers.first() else { return Observation::Silent };
    let leaves_by = network.namespace(&check.from).and_then(|namespace| leaves_by(namespace, check.address));
    if check.size.zip(leaves_by).is_some_and(|(size, link)| size > link.mtu) {
        return Observation::TooLong;
    }
    let mut conversation = Conversation::follow(&network, check, (to, 0), Choices::default());
    for _ in 0..MOST_CHOICES {
        let Some(choices) = std::mem::take(&mut conversation.choices).next().filter(|_| conversation.is_anothers) else { break };
        conversation = Conversation::follow(&network, check, (to, 0), choices);
    }
    match conversation.stopped {
        Some((_, true)) => Observation::Refused,
        Some((_, false)) => Observation::Silent,
        None => Observation::Answered {
            by: conversation.to.to_string(),
            seen: conversation.seen.unwrap_or(check.address),
            took: Duration::ZERO,
        },
    }
}

/// The nodes whose pods of a family (`true`: IPv4) a node reaches through a tunnel, as its routes to what their pods have on `eth0` say.
///
/// A wrong route that leads past the tunnel does not change what the node was made for: another route or a neighbour of the tunnel still says so.
pub fn tunnels(snapshot: &Snapshot, node: &Namespace) -> Vec<(String, bool)> {
    let mut tunnels = Vec::new();
    for pod in &snapshot.namespaces {
        let Some(home) = pod.node.as_ref().filter(|home| Place::Node((*home).clone()) != node.place) else { continue };
        for net in pod.links.iter().filter(|link| link.name == "eth0").flat_map(|link| &link.addresses).map(|own| own.net) {
            let tunnel = (home.clone(), net.addr().is_ipv4());
            let is_carried = || node.links.iter().any(|link| is_tunnel(link) && carries(node, link, net));
            if !tunnels.contains(&tunnel) && (leaves_by(node, net.addr()).is_some_and(is_tunnel) || is_carried()) {
                tunnels.push(tunnel);
            }
        }
    }
    tunnels
}

fn is_tunnel(link: &Link) -> bool {
    TUNNELS.contains(&link.kind.as_str())
}

/// Whether a tunnel was made for a network: a route to it leads there, or a program has written a neighbour of it.
fn carries(node: &Namespace, tunnel: &Link, net: IpNet) -> bool {
    let net = net.trunc();
    let leads = |route: &Route| net.contains(&route.to) && route.ways.iter().any(|(_, link)| *link == Some(tunnel.index));
    node.routes.iter().any(leads) || tunnel.neighbours.iter().any(|neighbour| neighbour.permanent && net.contains(&neighbour.address))
}

/// Why a packet that probes of a network for its isolation was silent; `None`: the network keeps the two apart, as it promises.
///
/// Silence alone proves nothing: whatever else is broken is silent as well.
pub fn explain_silence(snapshot: &Snapshot, check: &Check) -> Option<Finding> {
    let network = Network::new(snapshot);
    let conversations = check.answerers.iter().map(|to| Conversation::follow(&network, check, (to, 0), Choices::default()));
    let wrong = |conversation: Conversation<'_>| match conversation.stopped {
        Some((finding, _)) if matches!(finding.fault, Fault::PortsIsolated | Fault::OwnRuleDrops) => None,
        Some((finding, _)) => Some(finding),
        None => Some(conversation.suspicion.unwrap_or_else(|| {
            let unobserved = [&check.from, conversation.to].into_iter().find_map(|place| Some((place, network.unobserved(place)?)));
            if let Some((place, why)) = unobserved {
                return said(Fault::NotObserved, place, why.to_owned());
            }
            let evidence = format!("nothing keeps the two apart: {}", conversation.hops.join("; "));
            said(Fault::NotIsolated, &check.from, evidence)
        })),
    };
    conversations.filter_map(wrong).next()
}

/// A packet longer than the network's was sent: the link that it leaves by takes it. `None`: no link takes it.
fn too_long(network: &Network<'_>, check: &Check, size: u32) -> Option<Finding> {
    let link = network.namespace(&check.from).and_then(|namespace| leaves_by(namespace, check.address))?;
    let made_for = size.saturating_sub(1);
    let next_step = Fault::MtuDiffers.next_step(Some(&link.name)).replace("{mtu}", &made_for.to_string());
    let evidence = format!("its MTU is {}; the network was made for {made_for}", link.mtu);
    Some(Finding { device: Some(link.name.clone()), next_step, ..said(Fault::MtuDiffers, &check.from, evidence) })
}

fn said(fault: Fault, place: &Place, evidence: String) -> Finding {
    Finding { fault, place: place.clone(), device: None, direction: Direction::Request, evidence, next_step: fault.next_step(None) }
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    fn follow(network: &Network<'_>, check: &'a Check, (to, turn): (&'a Place, usize), choices: Choices) -> Self {
        let any: IpAddr = if check.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut packet = Packet {
            source: any,
            destination: check.address,
            protocol: check.protocol,
            source_port: CLIENT_PORT,
            port: check.port,
            size: check.size.unwrap_or(SMALL),
            hop_limit: 0,
            connection: Connection::New,
            rewritten: false,
            mark: 0,
            frame: None,
        };
        let service = match check.case.to {
            Target::Service(service) => Some(Asked { service, address: check.address, port: check.port, answerers: &check.answerers }),
            _ => None,
        };
        let mut request = Walk::to_service(network, to, service);
        (request.turn, request.choices) = (turn, choices);
        request.is_published = matches!(check.case.to, Target::HostPort(..) | Target::Internet | Target::Metadata);
        let done = request.follow(&check.from, &mut packet);
        // Rules lead a Service's packets to one of those who may answer.
        let to = check.answerers.iter().find(|answerer| *answerer == request.to).unwrap_or(to);
        let led = request.led.clone();
        let with_endpoint = |finding: Finding| match &led {
            Some(led) => Finding { evidence: format!("{}; {led}", finding.evidence), ..finding },
            None => finding,
        };
        if let Err(finding) = done {
            return Conversation {
                to,
                stopped: Some((with_endpoint(finding), request.rejected)),
                translated: None,
                suspicion: None,
                hops: request.hops,
                ways: request.ways,
                seen: None,
                choices: request.choices,
                is_anothers: request.is_anothers,
            };
        }
        let translated = translated(check, to, network, packet.source, &request.translations);
        // Who answers knows the addresses that the packet has now.
        let mut reply = packet.reply(packet.destination, packet.source);
        let mut back = Walk::back(&request, &check.from);
        let source = packet.source;
        let by_source =
            |finding: Finding| from_another_link(check, network, source).filter(|_| finding.fault == Fault::NoRoute).unwrap_or(finding);
        let stopped = back.follow(to, &mut reply).err().map(|finding| (with_endpoint(by_source(finding)), false));
        let past = request.led.as_ref().filter(|_| stopped.is_none() && !back.is_recognised() && network.namespace(&check.from).is_some());
        let past = past.map(|_| {
            let evidence = format!("the answer reaches {} from {}, and it has asked {}", check.from, reply.source, check.address);
            let home = network.home(to).map_or(to, |home| &home.place);
            Finding { direction: Direction::Reply, ..said(Fault::ReplyPastTranslation, home, evidence) }
        });
        let suspicions = request.suspicions.iter().chain(&back.suspicions).chain(&past);
        let suspicion = suspicions.chain(&request.blind).chain(&back.blind).next().cloned().map(with_endpoint);
        let hops = request.hops.iter().chain(&back.hops).cloned().collect();
        let (ways, choices) = (request.ways.max(back.ways), back.choices.clone());
        Conversation { to, stopped, translated, suspicion, hops, ways, seen: Some(packet.source), choices, is_anothers: false }
    }

    /// What is said of it. What was observed is certain: a stop on a way that was passed is none.
    fn explain(&self, network: &Network<'_>, check: &Check, observation: &Observation) -> Finding {
        let hops = self.hops.join("; ");
        let stop = |counts: fn(&Finding, bool) -> bool| {
            self.stopped.as_ref().filter(|(finding, is_rejected)| counts(finding, *is_rejected)).map(|(finding, _)| finding.clone())
        };
        match observation {
            Observation::Answered { by, .. } if matches!(check.expected, Expected::Silence | Expected::NobodyServes) => {
                said(Fault::NotIsolated, &check.from, format!("{by} answers; the packet's way: {hops}"))
            }
            Observation::Answered { by, .. } if *by != self.to.to_string() => stop(|finding, _| leads_elsewhere(finding.fault))
                .unwrap_or_else(|| {
                    let place = by.parse().unwrap_or_else(|_| self.to.clone());
                    said(Fault::WrongHostAnswers, &place, format!("it answers at {}, which is that of {}", check.address, check.whom()))
                }),
            Observation::Answered { seen, .. } => other_source(check, network, *seen).or(self.translated.clone()).unwrap_or_else(|| {
                let evidence = format!("{} answers, and saw the packet come from {seen}; both ways: {hops}", self.to);
                said(Fault::Unexplained, &check.from, evidence)
            }),
            Observation::Refused => stop(|finding, is_rejected| is_rejected || leads_elsewhere(finding.fault))
                .unwrap_or_else(|| said(Fault::NothingListens, self.to, format!("it refuses connections to port {}", check.port))),
            // Where the request is stopped, nothing is known of what is translated; else that comes before what stops the reply.
            _ => {
                let found = self.translated.clone().or_else(|| stop(|_, _| true)).or_else(|| self.suspicion.clone());
                found.unwrap_or_else(|| said(Fault::Unexplained, &check.from, format!("both ways pass: {hops}")))
            }
        }
    }
}

/// Whether a fault leads packets to another host than the one that they are for, which may answer or refuse them.
fn leads_elsewhere(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::DuplicateAddress
            | Fault::DuplicateMac
            | Fault::EndpointStale
            | Fault::HostPortMissing
            | Fault::RedirectedByRule
            | Fault::ServiceUnserved
            | Fault::StaleBridgeEntry
            | Fault::TunnelEntryStale
            | Fault::WrongNeighbour
            | Fault::WrongNextHop
    )
}

/// Whether an address was translated that must not be, or was not that must.
fn translated(check: &Check, to: &Place, network: &Network<'_>, source: IpAddr, translations: &[Translation]) -> Option<Finding> {
    let of_source = translations.iter().find(|translation| translation.of_source);
    let (fault, place, evidence) = match (&check.expected, of_source) {
        (Expected::Answer(ExpectedSource::As(addresses)), Some(by)) if !addresses.contains(&by.now) => {
            let evidence = format!("{} rewrites the source {} to {}; {to} must see the pod's own", by.by, by.before, by.now);
            let finding = said(Fault::MasqueradeTooWide, &by.place, evidence);
            let next_step = if by.is_own { RESTORE.to_owned() } else { finding.next_step };
            return Some(Finding { next_step, ..finding });
        }
        (Expected::Answer(ExpectedSource::As(addresses)), None) if !addresses.contains(&source) => {
            if let Some(finding) = without_address(check, network).or_else(|| other_source(check, network, source)) {
                return Some(finding);
            }
            missing(check, network)?
        }
        (Expected::Answer(ExpectedSource::NotAs(_)), None) => missing(check, network)?,
        _ => return None,
    };
    Some(said(fault, &place, evidence))
}

/// The one who asks, and its node, have none of the addresses by which it must be seen: it sends from what it has.
fn without_address(check: &Check, network: &Network<'_>) -> Option<Finding> {
    let Expected::Answer(ExpectedSource::As(addresses)) = &check.expected else { return None };
    let (sender, home) = (network.namespace(&check.from)?, network.home(&check.from));
    let of_family = || addresses.iter().copied().filter(|address| address.is_ipv4() == check.address.is_ipv4());
    let has = |address: IpAddr| std::iter::once(sender).chain(home).any(|namespace| namespace.holder(address).is_some());
    let lost = of_family().next().filter(|_| !of_family().any(has))?;
    Some(said(Fault::AddressMissing, &check.from, format!("no link of it has {lost}: it sends from another address")))
}

/// The one who asks has sent from another address of its own than that by which it must be seen.
fn other_source(check: &Check, network: &Network<'_>, source: IpAddr) -> Option<Finding> {
    let Expected::Answer(ExpectedSource::As(addresses)) = &check.expected else { return None };
    let sender = network.namespace(&check.from)?;
    let device = sender.holder(source).filter(|_| !addresses.contains(&source))?.name.as_str();
    // Nobody is seen as 127.0.0.1, which every host has.
    let may_be_seen = |address: IpAddr| !address.is_loopback() && !is_link_local(address);
    let is_expected =
        |address: &&IpAddr| address.is_ipv4() == source.is_ipv4() && may_be_seen(**address) && sender.holder(**address).is_some();
    let wanted = addresses.iter().find(is_expected)?;
    Some(wrong_source(check, device, source, *wanted))
}

/// A pod has sent by one link from the address of another one, to which no route leads back.
fn from_another_link(check: &Check, network: &Network<'_>, source: IpAddr) -> Option<Finding> {
    let sender = network.namespace(&check.from).filter(|sender| matches!(sender.place, Place::Pod(_)))?;
    let leaves_by = leaves_by(sender, check.address).filter(|link| !link.has(source))?;
    let device = sender.holder(source)?.name.as_str();
    let is_usable = |own: &IpAddr| own.is_ipv4() == source.is_ipv4() && !is_link_local(*own);
    let wanted = leaves_by.addresses.iter().map(|own| own.net.addr()).find(is_usable)?;
    Some(wrong_source(check, device, source, wanted))
}

fn wrong_source(check: &Check, device: &str, source: IpAddr, wanted: IpAddr) -> Finding {
    let evidence = format!("it sends to {} from {source}, an address of its link {device}, and must be seen as {wanted}", check.address);
    let next_step =
        format!("look for src in its route, and for a second address of its link: ip route get {}; ip addr show", check.address);
    Finding { device: Some(device.to_owned()), next_step, ..said(Fault::WrongSource, &check.from, evidence) }
}

/// The node of the one who asks should have rewritten the source.
fn missing(check: &Check, network: &Network<'_>) -> Option<(Fault, Place, String)> {
    let home = network.home(&check.from)?.place.clone();
    let evidence = format!("no rule rewrites the source of what {} sends to {}", check.from, check.address);
    Some((Fault::MasqueradeMissing, home, evidence))
}
