//! Which probes show whether a case holds at a site. A sample: each pair of nodes, each pod, each published port, each pair of pods' networks is in
//! it; not each pair of pods.

mod services;

use std::net::IpAddr;

use crate::case::{By, CASES, Case, Client, Limited, Need, On, Protocol, Quality, Rule, Service, ServiceOwner, Target};
use crate::site::{Attachment, LimitedPod, Publication, Reach, Site, SiteNode, SitePod};
use crate::snapshot::Place;

/// The port on which probes answer, TCP and UDP. Below the ports that a kernel gives to clients, and below node ports.
pub const PORT: u16 = 26_767;

/// The port on which pods take bytes as fast as they come.
pub const SINK: u16 = PORT + 1;

/// A case at a site: what is to be done, or why nothing is.
#[derive(Debug, Clone)]
pub enum Planned {
    /// A probe.
    Check(Check),
    /// The case cannot be tried here.
    Skipped {
        /// Which one.
        case: &'static Case,
        /// In which family; `None`: in both.
        is_ipv4: Option<bool>,
        /// Why.
        why: String,
    },
}

/// One probe.
#[derive(Debug, Clone)]
pub struct Check {
    /// Which case it is of.
    pub case: &'static Case,
    /// The network, where it is of one.
    pub network: Option<String>,
    /// Who asks.
    pub from: Place,
    /// Who may answer: one of them must. A Service has as many as it has backends.
    pub answerers: Vec<Place>,
    /// The address that is asked.
    pub address: IpAddr,
    /// By which protocol.
    pub protocol: Protocol,
    /// On which port.
    pub port: u16,
    /// Bytes of the packet with its IP header; `None`: it does not matter.
    pub size: Option<u32>,
    /// What must come of it.
    pub expected: Expected,
}

/// What must come of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// An answer.
    Answer(ExpectedSource),
    /// None.
    Silence,
    /// None, or a refusal: nobody serves the address.
    NobodyServes,
    /// The sender's own link refuses the packet.
    TooLong,
    /// Bytes get through, when any burst is over, at a rate between these, in bits per second.
    Rate {
        /// A limit lets so much through: a network that is not slower for other reasons has far more.
        least: u64,
        /// And no more than that.
        most: u64,
    },
}

/// As whom the one who asks must be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedSource {
    /// As one of these: no address is translated.
    As(Vec<IpAddr>),
    /// As another than these: the address is translated.
    NotAs(Vec<IpAddr>),
    /// It does not matter.
    Anyhow,
}

impl Check {
    /// Whether silence is expected because a network keeps its pods apart. Where nobody serves an address, silence proves itself.
    pub fn is_of_isolation(&self) -> bool {
        self.expected == Expected::Silence && self.case.to == Target::Network(Quality::Isolation)
    }

    /// What must be answered for silence to mean something: each who must not answer this probe answers itself, at the same address and port.
    pub fn proofs(&self) -> Vec<Check> {
        let proof = |to: &Place| Check {
            from: to.clone(),
            answerers: vec![to.clone()],
            expected: Expected::Answer(ExpectedSource::Anyhow),
            ..self.clone()
        };
        self.answerers.iter().filter(|_| self.is_of_isolation()).map(proof).collect()
    }

    /// Who is to answer, in words.
    pub fn whom(&self) -> String {
        const MOST: usize = 3;
        let names: Vec<String> = self.answerers.iter().take(MOST).map(Place::to_string).collect();
        match self.answerers.len().checked_sub(MOST).filter(|more| *more > 0) {
            Some(more) => format!("{} or {more} more", names.join(", ")),
            None => names.join(" or "),
        }
    }
}

impl Planned {
    /// Which case it is of.
    pub fn case(&self) -> &'static Case {
        match self {
            Planned::Check(Check { case, .. }) | Planned::Skipped { case, .. } => case,
        }
    }
}

struct Planner<'a> {
    site: &'a Site,
    case: &'static Case,
    is_ipv4: bool,
    checks: Vec<Check>,
    /// Why a part of the case is not tried.
    untried: Vec<String>,
}

/// Who asks whom: place, and the addresses that it may be seen as.
type Asker = (Place, Vec<IpAddr>);

/// Every case at a site, in order.
pub fn plan(site: &Site) -> Vec<Planned> {
    CASES.iter().flat_map(|case| of_case(site, case)).collect()
}

fn of_case(site: &Site, case: &'static Case) -> Vec<Planned> {
    let skipped = |is_ipv4, why: &str| Planned::Skipped { case, is_ipv4, why: why.to_owned() };
    let lacks = |need: &Need| site.lacks.iter().find(|(lacking, _)| lacking == need).map(|(_, why)| why.as_str());
    // Nobody is to look for what a case needs that no family here can have.
    let is_impossible = site.families().next().is_some() && site.families().all(|is_ipv4| case.impossible(is_ipv4).is_some());
    if let Some(why) = case.needs().iter().find_map(lacks).filter(|_| !is_impossible) {
        return vec![skipped(None, why)];
    }
    let mut planned = Vec::new();
    for is_ipv4 in site.families() {
        if let Some(why) = case.impossible(is_ipv4) {
            planned.push(skipped(Some(is_ipv4), why));
            continue;
        }
        let mut planner = Planner { site, case, is_ipv4, checks: Vec::new(), untried: Vec::new() };
        planner.plan();
        if planner.checks.is_empty() && planner.untried.is_empty() {
            planned.push(skipped(Some(is_ipv4), nobody(case)));
        }
        planned.extend(planner.checks.into_iter().map(Planned::Check));
        planned.extend(planner.untried.iter().map(|why| skipped(Some(is_ipv4), why)));
        // A limit is the pod's, of both families together: two that are measured at once would share it.
        if matches!(case.to, Target::Bandwidth(_)) && matches!(planned.last(), Some(Planned::Check(_))) {
            break;
        }
    }
    planned
}

/// Why a case has no probes here.
fn nobody(case: &Case) -> &'static str {
    match case.to {
        Target::HostPort(..) => "no pod publishes a port, or there is nobody to ask it",
        Target::Network(Quality::Isolation) => "no network keeps its pods apart",
        Target::Network(_) => "no two pods have such a network in common",
        Target::Bandwidth(_) => "limits of bandwidth are tried with --bandwidth, where a pod has one and there is another pod beside it",
        Target::Internet | Target::Metadata => "there is no host outside with an address of the family",
        Target::Service(Service { by: By::LoadBalancer, .. }) => "the load balancer has no address of the family, or no Service suits",
        Target::Service(_) => "there are too few nodes, or no Service suits",
        _ => "there are too few nodes or pods with addresses of the family",
    }
}

// === impl Planner ===

impl<'a> Planner<'a> {
    fn plan(&mut self) {
        match (self.case.from, self.case.to) {
            (Client::Pod, Target::Pod(On::SameNode)) => self.beside(&[Protocol::Tcp, Protocol::Udp]),
            (Client::Pod, Target::Pod(On::OtherNode)) => self.across(&[Protocol::Tcp, Protocol::Udp]),
            (Client::Pod, Target::Node(on)) => self.pods_to_nodes(on, Protocol::Tcp),
            (Client::Node, Target::Pod(on)) => self.nodes_to_pods(on, Protocol::Tcp),
            (client, Target::HostPort(on, of)) => self.host_ports(client, on, of),
            (_, Target::Internet) => self.outside(),
            (_, Target::Model(Rule::PodsWithPods)) => {
                self.beside(&[Protocol::Udp]);
                self.across(&[Protocol::Udp]);
            }
            (_, Target::Model(Rule::NodesWithPods)) => {
                for on in [On::SameNode, On::OtherNode] {
                    self.nodes_to_pods(on, Protocol::Udp);
                    self.pods_to_nodes(on, Protocol::Udp);
                }
            }
            (_, Target::Model(Rule::OneAddress)) => self.back(Protocol::Tcp),
            (_, Target::Network(quality)) => self.networks(quality),
            (_, Target::Bandwidth(limited)) => self.bandwidth(limited),
            (client, Target::Service(service)) => self.services(client, service),
            (_, Target::Metadata) => self.metadata(),
            // No case is about them.
            (Client::Node, Target::Node(_)) | (Client::Public, Target::Pod(_) | Target::Node(_)) => {}
        }
    }

    fn check(&mut self, (from, sources): Asker, to: Place, address: IpAddr, protocol: Protocol) {
        let expected = Expected::Answer(ExpectedSource::As(sources));
        let case = self.case;
        self.checks.push(Check { case, network: None, from, answerers: vec![to], address, protocol, port: PORT, size: None, expected });
    }

    fn pod(&self, pod: &SitePod) -> Asker {
        (pod.place(), pod.attachments.iter().flat_map(|attachment| attachment.addresses.iter().copied()).collect())
    }

    /// The same where another pod is asked, on the default network: it must not see an address of another network.
    fn pod_by_default(&self, pod: &SitePod) -> Asker {
        let own = pod.attachments.iter().filter(|attachment| attachment.is_default);
        (pod.place(), own.flat_map(|attachment| attachment.addresses.iter().copied()).collect())
    }

    /// Each pod asks another one on its node: two and two each other, that a pod has one neighbour. The kernel has room for about a thousand.
    fn beside(&mut self, protocols: &[Protocol]) {
        let site = self.site;
        for node in &site.nodes {
            let pods: Vec<&SitePod> = site.pods_of(&node.name).collect();
            for (place, pod) in pods.iter().enumerate() {
                // The last one of an odd number asks the one before.
                let Some(other) = pods.get(place ^ 1).or(pods.get(place.wrapping_sub(1))) else { continue };
                for (protocol, address) in protocols.iter().zip(std::iter::repeat(other.address(self.is_ipv4))) {
                    let Some(address) = address.filter(|_| pod.address(self.is_ipv4).is_some()) else { continue };
                    self.check(self.pod_by_default(pod), other.place(), address, *protocol);
                }
            }
        }
    }

    /// A pod of each node asks one of each other node; another one each time.
    fn across(&mut self, protocols: &[Protocol]) {
        let others = self.site.nodes.len().saturating_sub(1);
        for (from, to) in self.pairs() {
            let (askers, asked) = (self.pods_at(from), self.pods_at(to));
            // Each pod asks and is asked, however many there are for each other node.
            for round in 0..askers.len().max(asked.len()).div_ceil(others.max(1)) {
                // Its place among the nodes other than the first one.
                let nth = |pods: &[&'a SitePod], node: usize, other: usize| {
                    let place = other - usize::from(other > node) + round * others;
                    pods.get(place % pods.len().max(1)).copied()
                };
                let (Some(one), Some(other)) = (nth(&askers, from, to), nth(&asked, to, from)) else { continue };
                self.ask_across(one, other, protocols);
            }
        }
    }

    /// The same with one probe for each two nodes, and the later node asks.
    fn back(&mut self, protocol: Protocol) {
        for (from, to) in self.pairs().filter(|(from, to)| from < to) {
            let (Some(one), Some(other)) = (self.nth_pod(from, to), self.nth_pod(to, from)) else { continue };
            self.ask_across(other, one, &[protocol]);
        }
    }

    fn ask_across(&mut self, one: &SitePod, other: &SitePod, protocols: &[Protocol]) {
        let Some(address) = other.address(self.is_ipv4).filter(|_| one.address(self.is_ipv4).is_some()) else { return };
        protocols.iter().for_each(|protocol| self.check(self.pod_by_default(one), other.place(), address, *protocol));
    }

    fn pods_to_nodes(&mut self, on: On, protocol: Protocol) {
        let site = self.site;
        let pairs: Vec<(&SitePod, &SiteNode)> = match on {
            On::SameNode => site.pods.iter().filter_map(|pod| Some((pod, site.nodes.iter().find(|node| node.name == pod.node)?))).collect(),
            On::OtherNode => self.pairs().filter_map(|(from, to)| Some((self.nth_pod(from, to)?, site.nodes.get(to)?))).collect(),
        };
        for (pod, node) in pairs {
            let home = site.nodes.iter().find(|home| home.name == pod.node);
            // A node without an address of the family has no way to another one's.
            let has_way = on == On::SameNode || home.is_some_and(|home| home.address(self.is_ipv4).is_some());
            let has_address = pod.address(self.is_ipv4).is_some();
            let Some(address) = node.address(self.is_ipv4).filter(|_| has_way && has_address) else { continue };
            let mut asker = self.pod(pod);
            // What is between the nodes knows no pod: a node behind a tunnel sees the other node's address.
            if let Some(home) = home.filter(|home| home.tunnels.contains(&(node.name.clone(), self.is_ipv4))) {
                asker.1 = home.sources_seen(self.is_ipv4);
            }
            self.check(asker, node.place(), address, protocol);
        }
    }

    fn nodes_to_pods(&mut self, on: On, protocol: Protocol) {
        let site = self.site;
        let pairs: Vec<(&SiteNode, &SitePod)> = match on {
            On::SameNode => site.pods.iter().filter_map(|pod| Some((site.nodes.iter().find(|node| node.name == pod.node)?, pod))).collect(),
            On::OtherNode => self.pairs().filter_map(|(from, to)| Some((site.nodes.get(from)?, self.nth_pod(to, from)?))).collect(),
        };
        for (node, pod) in pairs {
            let Some(address) = pod.address(self.is_ipv4).filter(|_| node.address(self.is_ipv4).is_some()) else { continue };
            self.check((node.place(), node.sources_seen(self.is_ipv4)), pod.place(), address, protocol);
        }
    }

    /// Each published port, asked by who is where the case says.
    fn host_ports(&mut self, client: Client, on: On, of: ServiceOwner) {
        let site = self.site;
        for (pod, port) in site.pods.iter().flat_map(|pod| pod.ports.iter().map(move |port| (pod, port))) {
            let Some(node) = site.nodes.iter().find(|node| node.name == pod.node) else { continue };
            // 0.0.0.0 and :: are every address of their family.
            let every = port.at.is_none_or(|at| at.is_unspecified() && at.is_ipv4() == self.is_ipv4);
            let address = if every { node.address(self.is_ipv4) } else { port.at.filter(|at| !at.is_unspecified()) };
            let is_reached = address.is_some_and(|address| !address.is_loopback() && address.is_ipv4() == self.is_ipv4);
            let Some(address) = address.filter(|_| is_reached && pod.address(self.is_ipv4).is_some()) else { continue };
            let is_where = |other: &str| (other == node.name) == (on == On::SameNode);
            let askers: Vec<Place> = match (client, of) {
                (Client::Pod, ServiceOwner::Itself) => vec![pod.place()],
                (Client::Pod, ServiceOwner::Another) => {
                    let of_node = |other: &SiteNode| site.pods_of(&other.name).find(|other| other.name != pod.name).map(SitePod::place);
                    site.nodes.iter().filter(|other| is_where(&other.name)).filter_map(of_node).collect()
                }
                _ => site.nodes.iter().filter(|other| is_where(&other.name)).map(SiteNode::place).collect(),
            };
            askers.into_iter().for_each(|from| self.host_port(from, pod, address, port));
        }
    }

    fn host_port(&mut self, from: Place, pod: &SitePod, address: IpAddr, port: &Publication) {
        let (case, to, port, protocol) = (self.case, pod.place(), port.host_port, port.protocol);
        if self.site.unsupported.contains(&protocol) {
            let why = format!("published ports over {protocol}: this kernel has no such sockets");
            if !self.untried.contains(&why) {
                self.untried.push(why);
            }
            return;
        }
        let expected = Expected::Answer(ExpectedSource::Anyhow);
        self.checks.push(Check { case, network: None, from, answerers: vec![to], address, protocol, port, size: None, expected });
    }

    /// A pod of each node asks the host outside, which must not see the pod's own address.
    fn outside(&mut self) {
        let site = self.site;
        let Some(host) = site.outside(Need::Internet) else { return };
        let Some(address) = host.address(self.is_ipv4) else { return };
        for pod in site.nodes.iter().filter_map(|node| site.pods_of(&node.name).find(|pod| pod.address(self.is_ipv4).is_some())) {
            let (from, own) = self.pod(pod);
            let (case, expected) = (self.case, Expected::Answer(ExpectedSource::NotAs(own)));
            let (answerers, protocol) = (vec![host.place.clone()], Protocol::Tcp);
            self.checks.push(Check { case, network: None, from, answerers, address, protocol, port: PORT, size: None, expected });
        }
    }

    /// Of each network, a pod with a limit on each node, and another one beside it: what is between nodes may have limits of its own.
    fn bandwidth(&mut self, limited: Limited) {
        let site = self.site;
        let mut tried: Vec<(&str, Option<&str>)> = Vec::new();
        for pod in &site.limited {
            let network = pod.network.as_deref();
            if tried.contains(&(&pod.node, network)) {
                continue;
            }
            let (Some(bits), Some(own), Some((other, others))) =
                (pod.limits.of(limited), pod.address(self.is_ipv4), self.beside_limited(pod))
            else {
                continue;
            };
            tried.push((&pod.node, network));
            // The other end may have a limit as well: the lower one shows.
            let is_other = |limited: &&LimitedPod| limited.name == other.name && limited.network == pod.network;
            let of_other = site.limited.iter().find(is_other).and_then(|end| end.limits.of(limited.other()));
            let bits = of_other.map_or(bits, |of_other| of_other.min(bits));
            let (from, to, address) = match limited {
                Limited::Receives => (other.place(), pod.place(), own),
                Limited::Sends => (pod.place(), other.place(), others),
            };
            // A quarter: what is measured is a program's bytes on a machine that has more to do.
            let expected = Expected::Rate { least: bits / 4, most: bits + bits / 4 };
            let (case, network, protocol, port) = (self.case, pod.network.clone(), Protocol::Tcp, SINK);
            self.checks.push(Check { case, network, from, answerers: vec![to], address, protocol, port, size: None, expected });
        }
    }

    /// Another pod on the node and the network of one with a limit that reaches it, and its address there.
    fn beside_limited(&self, pod: &'a LimitedPod) -> Option<(&'a SitePod, IpAddr)> {
        let is_there = |attachment: &&Attachment| match &pod.network {
            Some(network) => attachment.network == *network && matches!(attachment.reach, Reach::Everywhere | Reach::SameNode),
            None => attachment.is_default,
        };
        let others = self.site.pods_of(&pod.node).filter(|other| other.name != pod.name);
        let mut reached = others.filter_map(|other| Some((other, other.attachments.iter().find(is_there)?.address(self.is_ipv4)?)));
        reached.next()
    }

    /// Pods that have a network in common: each asks the next one of its node, and the first of each node those of the others.
    fn networks(&mut self, quality: Quality) {
        let site = self.site;
        let mut names: Vec<&str> =
            site.pods.iter().flat_map(|pod| &pod.attachments).map(|attachment| attachment.network.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let on = |pod: &'_ SitePod| {
                pod.attachments.iter().position(|attachment| attachment.network == name && attachment.address(self.is_ipv4).is_some())
            };
            let members: Vec<(&SitePod, &Attachment)> =
                site.pods.iter().filter_map(|pod| Some((pod, pod.attachments.get(on(pod)?)?))).collect();
            let of_node = |node: &SiteNode| members.iter().copied().filter(|(pod, _)| pod.node == node.name).collect::<Vec<_>>();
            let by_node: Vec<Vec<(&SitePod, &Attachment)>> = site.nodes.iter().map(of_node).collect();
            let beside = by_node.iter().flat_map(|members| members.iter().copied().zip(members.iter().copied().skip(1)));
            let across = self.pairs().filter_map(|(from, to)| {
                let nth =
                    |node: usize, other: usize| by_node.get(node).and_then(|members| members.get(other % members.len().max(1))).copied();
                Some((nth(from, to)?, nth(to, from)?))
            });
            let pairs = beside.map(|pair| (On::SameNode, pair)).chain(across.map(|pair| (On::OtherNode, pair))).collect::<Vec<_>>();
            for (on, (from, to)) in pairs {
                self.member(quality, on, from, to);
            }
        }
    }

    fn member(&mut self, quality: Quality, on: On, from: (&SitePod, &Attachment), to: (&SitePod, &Attachment)) {
        let reaches = |attachment: &Attachment| match attachment.reach {
            Reach::Everywhere => Some(true),
            Reach::SameNode => (on == On::SameNode).then_some(true),
            Reach::OtherNode => (on == On::OtherNode).then_some(true),
            // What is between nodes knows nothing of it.
            Reach::Nobody => (on == On::SameNode).then_some(false),
            Reach::Unknown => None,
        };
        // A link of one zone promises nothing about the others.
        let is_reached = reaches(from.1).filter(|_| from.1.zone == to.1.zone);
        let (protocol, size, expected) = match quality {
            Quality::Reach(where_) if where_ == on && is_reached == Some(true) && !from.1.is_default => {
                (Protocol::Tcp, None, Expected::Answer(ExpectedSource::As(from.1.addresses.clone())))
            }
            Quality::FitsMtu if is_reached == Some(true) && from.1.mtu.is_some() => {
                (Protocol::Udp, from.1.mtu, Expected::Answer(ExpectedSource::Anyhow))
            }
            Quality::ExceedsMtu if is_reached == Some(true) && from.1.mtu.is_some() => {
                (Protocol::Udp, from.1.mtu.map(|mtu| mtu + 1), Expected::TooLong)
            }
            Quality::Isolation if is_reached == Some(false) => (Protocol::Tcp, None, Expected::Silence),
            _ => return,
        };
        let Some(address) = to.1.address(self.is_ipv4) else { return };
        let (case, network) = (self.case, Some(from.1.network.clone()));
        let (asker, answerers) = (from.0.place(), vec![to.0.place()]);
        self.checks.push(Check { case, network, from: asker, answerers, address, protocol, port: PORT, size, expected });
    }

    /// Each pair of two nodes, by their places in the list.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.site.nodes.len();
        (0..count).flat_map(move |from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to)
    }

    /// Another pod of a node for each other node.
    fn nth_pod(&self, node: usize, other: usize) -> Option<&'a SitePod> {
        let pods = self.pods_at(node);
        pods.get(other % pods.len().max(1)).copied()
    }

    /// The pods of a node, by its place in the list.
    fn pods_at(&self, node: usize) -> Vec<&'a SitePod> {
        self.site.nodes.get(node).into_iter().flat_map(|node| self.site.pods_of(&node.name)).collect()
    }
}
