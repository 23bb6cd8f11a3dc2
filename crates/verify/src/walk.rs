//! Follows one packet from namespace to namespace over a snapshot, as the kernels on the way would, until it is there or something stops it.
//!
//! ```text
//!   set out -> route -> output ---.                                       .-> input -> there
//!                                  +-> postrouting -> frames -> arrive --+
//!              route <- forward <-'   (or a tunnel:   prerouting, rp_filter
//!                                      a walk of its own)                 `-> route -> forward -> ...
//! ```
//!
//! The first thing that stops it is the [`Finding`]. What may have stopped it, and is known to be a consequence of other faults as often as a
//! fault, is a suspicion: it counts where neither way has a finding.

mod choices;
mod device;
mod filter;
mod frame;
mod neighbours;
mod nobody;
mod outside;
mod packet;
mod port;
mod route;
mod service;
#[cfg(test)]
mod tests;
mod tracking;
mod tunnel;

use std::net::IpAddr;

use crate::fault::{Direction, Fault, Finding};
use crate::network::{Device, Network};
use crate::snapshot::{Link, Namespace, Place, Route, RouteKind};
use crate::unread;
pub(crate) use choices::Choices;
pub(crate) use filter::POLICY;
use filter::{Culprit, Hook, HookPoint, Passage};
use packet::Tuple;
pub(crate) use packet::{Connection, Packet};
pub(crate) use route::leaves_by;
use route::{Key, NextHop, Routed};
pub(crate) use service::Asked;
use tracking::Entry;
pub(crate) use tracking::Translation;

/// Hosts that a packet may pass: more than there are on any way, fewer than its hop limit.
const MOST_HOSTS: usize = 12;

/// What to do about a rule of Netloom that is not as it should be.
pub(crate) const RESTORE: &str = "restore Netloom's rules: netloom repair";

/// A packet's way.
pub(crate) struct Walk<'a> {
    network: &'a Network<'a>,
    /// Where it is to arrive.
    pub(crate) to: &'a Place,
    direction: Direction,
    /// The Service that it is sent to.
    service: Option<Asked<'a>>,
    /// A load balancer has led it to a node.
    is_balanced: bool,
    /// A rule has led it from the Service to who is to answer.
    is_served: bool,
    /// A rule has led it to another backend of the Service than one that is asked: another question.
    pub(crate) is_anothers: bool,
    /// Where it was led, in words.
    pub(crate) led: Option<String>,
    /// The first node that should have led it on, and has not: it counts if the packet is stopped after that.
    unserved: Option<Finding>,
    /// What was tracked of the request: the reply's way takes it back.
    known: &'a [Entry],
    /// What is tracked of this way.
    entries: Vec<Entry>,
    /// As it came where it is.
    came: Option<Tuple>,
    /// The entry that it belongs to where it is.
    answers: Option<&'a Entry>,
    /// What keeps it out of connection tracking where it is.
    untracked: Option<filter::Culprit>,
    /// It is a tunnel's.
    in_tunnel: bool,
    /// A rule may lead it on: it is for a published port, or for a host outside.
    pub(crate) is_published: bool,
    /// The rule that has led it to another destination than it is for: what stops it after that is a consequence.
    misled: Option<Finding>,
    /// The rule that gives it to a proxy where it is.
    proxied: Option<Culprit>,
    /// What is taken where something is left to chance.
    pub(crate) choices: Choices,
    /// Of several ways of a route, which one is taken.
    pub(crate) turn: usize,
    /// How many ways the routes had at most that it met.
    pub(crate) ways: usize,
    /// A rule has rejected it: the sender is told.
    pub(crate) rejected: bool,
    /// Where it has been.
    passed: Vec<&'a Namespace>,
    /// The same for a person.
    pub(crate) hops: Vec<String>,
    pub(crate) translations: Vec<Translation>,
    pub(crate) suspicions: Vec<Finding>,
    /// What was not observed or not understood on the way: it counts after the suspicions.
    pub(crate) blind: Vec<Finding>,
}

/// How far a packet has got.
enum Step<'a> {
    /// It is there, or with a host that is not observed.
    There,
    /// It is at another host's device.
    At(Device<'a>),
}

impl<'a> Walk<'a> {
    /// A walk to a place.
    pub(crate) fn new(network: &'a Network<'a>, to: &'a Place, direction: Direction) -> Self {
        Walk {
            network,
            to,
            direction,
            service: None,
            is_balanced: false,
            is_served: false,
            is_anothers: false,
            led: None,
            unserved: None,
            known: &[],
            entries: Vec::new(),
            came: None,
            answers: None,
            untracked: None,
            in_tunnel: false,
            is_published: false,
            misled: None,
            proxied: None,
            choices: Choices::default(),
            turn: 0,
            ways: 1,
            rejected: false,
            passed: Vec::new(),
            hops: Vec::new(),
            translations: Vec::new(),
            suspicions: Vec::new(),
            blind: Vec::new(),
        }
    }

    /// The walk of a request to a Service: who answers, the rules say.
    pub(crate) fn to_service(network: &'a Network<'a>, to: &'a Place, service: Option<Asked<'a>>) -> Self {
        Walk { service, ..Walk::new(network, to, Direction::Request) }
    }

    /// The walk back: what the request has rewritten is taken back, and connections are known where it has been.
    pub(crate) fn back(request: &'a Walk<'a>, to: &'a Place) -> Walk<'a> {
        let (known, choices) = (request.entries.as_slice(), request.choices.clone());
        Walk { known, choices, turn: request.turn, ..Walk::new(request.network, to, Direction::Reply) }
    }

    /// Whether the one who has asked takes it for the answer: as far as was followed, it comes from the address that was asked.
    pub(crate) fn is_recognised(&self) -> bool {
        self.answers.is_some()
    }

    /// Follows a packet that a namespace sends; without a source it gets the one that the kernel would choose.
    ///
    /// # Errors
    /// What stops it.
    pub(crate) fn follow(&mut self, from: &Place, packet: &mut Packet) -> Result<(), Finding> {
        let done = self.go(from, packet);
        done.map_err(|finding| self.misled.take().unwrap_or(finding)).map_err(|finding| self.because(finding))
    }

    fn go(&mut self, from: &Place, packet: &mut Packet) -> Result<(), Finding> {
        let gone = |place: &Place| Finding {
            fault: Fault::NamespaceGone,
            place: place.clone(),
            device: None,
            direction: self.direction,
            evidence: "it was not found".to_owned(),
            next_step: Fault::NamespaceGone.next_step(None),
        };
        if self.network.namespace(self.to).is_none() && self.network.unobserved(self.to).is_none() {
            return Err(gone(self.to));
        }
        let (mut namespace, mut came_by) = match (self.network.namespace(from), self.network.unobserved(from)) {
            (Some(namespace), _) => (namespace, None),
            (None, Some(_)) => match self.set_out_unobserved(from, packet)? {
                Step::There => return Ok(()),
                Step::At(device) => (device.namespace, Some(device)),
            },
            (None, None) => return Err(gone(from)),
        };
        for _ in 0..MOST_HOSTS {
            match self.pass(namespace, came_by, packet)? {
                Step::There => return Ok(()),
                Step::At(device) => {
                    self.arrive(device, packet)?;
                    (namespace, came_by) = (device.namespace, Some(device));
                }
            }
        }
        let evidence = format!("it came here again and again: {}", self.hops.join("; "));
        Err(self.finding(Fault::RoutingLoop, namespace, came_by.map(|device| device.link.name.as_str()), evidence))
    }

    /// One namespace: takes the packet, or sends it on.
    fn pass(&mut self, namespace: &'a Namespace, came_by: Option<Device<'a>>, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        self.passed.push(namespace);
        let notes: Vec<&str> = unread::of(namespace, packet.destination.is_ipv4()).collect();
        if !notes.is_empty() {
            let evidence = format!("not read: {}", notes.join("; "));
            self.blind.push(self.finding(Fault::NotObserved, namespace, None, evidence));
        }
        match came_by {
            None => self.recognise(namespace, packet),
            Some(_) => self.must_serve(namespace, packet),
        }
        let mut way = match self.route(namespace, came_by, packet)? {
            Some(way) => way,
            None => {
                let Some(device) = came_by else { return self.loop_back(namespace, packet) };
                self.reverse_path(device, None, packet)?;
                return self.take(namespace, came_by, packet);
            }
        };
        if packet.source.is_unspecified()
            && let Some(source) = route::source(namespace, &way, packet.destination)
        {
            packet.source = source;
            self.came = Some(packet.tuple());
            // The kernel looks it up again with its source (`ip_route_connect`): a rule may be for that.
            way = self.route(namespace, came_by, packet)?.unwrap_or(way);
        }
        let way = match came_by {
            None => {
                packet.hop_limit = if packet.destination.is_ipv4() { namespace.ttl } else { way.link.hop_limit };
                self.own(namespace, way, packet)?
            }
            Some(device) => {
                self.reverse_path(device, Some(Device { namespace, link: way.link }), packet)?;
                self.forwards(device, packet)?;
                packet.hop_limit = packet.hop_limit.saturating_sub(1);
                let at = HookPoint { namespace, hook: Hook::Forward, in_bridge: false, iif: Some(device.link), oif: Some(way.link) };
                self.filter(&at, packet)?;
                Some(way)
            }
        };
        self.serves(namespace, packet)?;
        // What the namespace itself sent to a port of its own may have become another's.
        let Some(way) = way else { return self.loop_back(namespace, packet) };
        self.hops.push(format!("{} routes it by {way}", namespace.place));
        let at =
            HookPoint { namespace, hook: Hook::Postrouting, in_bridge: false, iif: came_by.map(|device| device.link), oif: Some(way.link) };
        let passage = self.filter(&at, packet)?;
        self.rewrite_source(namespace, route::source(namespace, &way, packet.destination), passage, packet);
        self.track(namespace, packet);
        self.send(Device { namespace, link: way.link }, &way, packet)
    }

    /// The output hook of a namespace's own packet. Where its destination is rewritten, it is routed again: `None` where it stays.
    fn own(&mut self, namespace: &'a Namespace, way: NextHop<'a>, packet: &mut Packet) -> Result<Option<NextHop<'a>>, Finding> {
        let at = HookPoint { namespace, hook: Hook::Output, in_bridge: false, iif: None, oif: Some(way.link) };
        let passage = self.filter(&at, packet)?;
        match passage.destination {
            None => Ok(Some(way)),
            Some(to) => {
                self.rewrite_destination(namespace, to, packet)?;
                self.route(namespace, None, packet)
            }
        }
    }

    /// What a namespace sends to itself: over `lo`.
    fn loop_back(&mut self, namespace: &'a Namespace, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        if packet.source.is_unspecified() {
            packet.source = packet.destination;
            self.came = Some(packet.tuple());
        }
        let lo = namespace.links.iter().find(|link| link.name == "lo");
        let before = packet.destination;
        let passage = self.filter(&HookPoint { namespace, hook: Hook::Output, in_bridge: false, iif: None, oif: lo }, packet)?;
        if let Some(to) = passage.destination {
            self.rewrite_destination(namespace, to, packet)?;
        }
        self.serves(namespace, packet)?;
        if packet.destination == before || namespace.is_local(packet.destination) {
            return self.take(namespace, None, packet);
        }
        let Some(way) = self.route(namespace, None, packet)? else { return self.take(namespace, None, packet) };
        let passage =
            self.filter(&HookPoint { namespace, hook: Hook::Postrouting, in_bridge: false, iif: None, oif: Some(way.link) }, packet)?;
        self.rewrite_source(namespace, route::source(namespace, &way, packet.destination), passage, packet);
        self.track(namespace, packet);
        self.send(Device { namespace, link: way.link }, &way, packet)
    }

    /// Where a namespace routes the packet; `None`: it keeps it.
    fn route(&mut self, namespace: &'a Namespace, came_by: Option<Device<'a>>, packet: &Packet) -> Result<Option<NextHop<'a>>, Finding> {
        let from = Some(packet.source).filter(|source| !source.is_unspecified());
        let came_by = came_by.map(|device| device.link);
        let key = Key { to: packet.destination, from, came_by, mark: packet.mark, turn: self.turn };
        let to = packet.destination;
        if let Some(rule) = route::passed_over(namespace, key) {
            let evidence = format!("the rule of policy routing {rule} has more conditions, which are not understood");
            let six = if to.is_ipv6() { " -6" } else { "" };
            let next_step = format!("look whether it is for these packets: ip{six} rule show priority {}", rule.priority);
            self.blind.push(Finding { next_step, ..self.finding(Fault::NotObserved, namespace, None, evidence) });
        }
        Err(match route::route(namespace, key) {
            Routed::Here => return Ok(None),
            Routed::On(way) => {
                self.ways = self.ways.max(way.among);
                return Ok(Some(way));
            }
            Routed::Refused(route) => {
                let evidence = format!("the route {:?} {} of table {} is for packets to {to}", route.kind, route.to, route.table);
                self.finding(Fault::RouteRefuses, namespace, None, evidence.to_lowercase())
            }
            Routed::RefusedByRule(rule) => {
                let evidence = format!("the rule of policy routing {rule} packets to {to}");
                self.finding(Fault::RouteRefuses, namespace, None, evidence)
            }
            Routed::Nowhere => self.no_route(namespace, to),
        })
    }

    fn no_route(&self, namespace: &'a Namespace, to: IpAddr) -> Finding {
        let is_default = |route: &&Route| route.to.prefix_len() == 0 && route.to.addr().is_ipv4() == to.is_ipv4();
        let there = routes_there(namespace, to.is_ipv4());
        let is_pod = matches!(namespace.place, Place::Pod(_));
        match (&namespace.place, self.passed.as_slice(), self.network.home(self.to)) {
            // Who answers from outside knows no pod: the request should not have left the cluster with a pod's address.
            (Place::Underlay | Place::Outside(_), [_], Some(home)) => {
                let evidence = format!(
                    "packets for outside of the cluster left {} with the source {to}, and nobody outside has a route to it",
                    home.place
                );
                return self.finding(Fault::MasqueradeMissing, home, None, evidence);
            }
            // Nor does it know pods in between: the node should have had a route of its own.
            (Place::Underlay | Place::Outside(_), [.., node, _], _) => {
                let evidence = format!("no route of its own leads to {to}; another one led to the router outside, which has none either");
                return self.finding(Fault::NoRoute, node, None, evidence);
            }
            _ => {}
        }
        if let Some(disabled) = self.routes_without_ipv6(namespace, to) {
            return disabled;
        }
        if let Some(link) = self.down(namespace, to) {
            let evidence = format!("no route leads to {to}: those by the link went with it");
            return self.finding(Fault::LinkDown, namespace, Some(&link.name), evidence);
        }
        if let Some(finding) = self.unasked(namespace, to) {
            return finding;
        }
        let fault = if is_pod && !namespace.routes.iter().any(|route| is_default(&route)) { Fault::NoDefaultRoute } else { Fault::NoRoute };
        self.finding(fault, namespace, None, format!("no route leads to {to}; {there}"))
    }

    /// The table main has a route, and no rule looks into it.
    fn unasked(&self, namespace: &Namespace, to: IpAddr) -> Option<Finding> {
        let leads = |route: &&Route| route.table == route::MAIN && route.kind == RouteKind::Unicast && route.to.contains(&to);
        let is_asked = route::tables(namespace, to.is_ipv4()).contains(&route::MAIN);
        let found = namespace.routes.iter().filter(leads).max_by_key(|route| route.to.prefix_len()).filter(|_| !is_asked)?;
        let evidence = format!("the table main has a route to {}, and no rule of policy routing looks into it", found.to);
        let six = if to.is_ipv6() { " -6" } else { "" };
        let next_step = format!("restore the rule: ip{six} rule add lookup main priority 32766");
        Some(Finding { next_step, ..self.finding(Fault::NoRoute, namespace, None, evidence) })
    }

    /// The link that is down and took the routes to a destination with it: one of its network, one of the next node's, a tunnel.
    fn down(&self, namespace: &'a Namespace, to: IpAddr) -> Option<&'a Link> {
        let down = || {
            namespace
                .links
                .iter()
                .filter(|link| !link.up && link.name != "lo" && link.addresses.iter().all(|own| !own.net.addr().is_loopback()))
        };
        let home = self.network.home(self.to).filter(|home| home.place != namespace.place);
        let next: Vec<IpAddr> =
            home.iter().flat_map(|home| &home.links).flat_map(|link| &link.addresses).map(|own| own.net.addr()).collect();
        // A link that is down keeps its addresses of IPv4 and loses those of IPv6: who is on its wire says the rest.
        let reaches = |link: &'a Link, address: &IpAddr| {
            let segment = self.network.segment(Device { namespace, link });
            let is_on_wire = segment.others().any(|other| other.link.has(*address));
            is_on_wire || link.addresses.iter().any(|own| own.net.contains(address))
        };
        let is_pod = matches!(namespace.place, Place::Pod(_));
        let of_family = |link: &&Link| is_pod && link.addresses.iter().any(|own| own.net.addr().is_ipv4() == to.is_ipv4());
        let is_tunnel = |link: &&Link| {
            let local = link.tunnel.and_then(|tunnel| tunnel.local);
            home.is_some() && (link.is("wireguard") || link.tunnel.is_some() && local.is_none_or(|local| local.is_ipv4() == to.is_ipv4()))
        };
        let by_network = down().find(|link| reaches(link, &to)).or_else(|| down().find(is_tunnel));
        by_network.or_else(|| down().find(|link| next.iter().any(|next| reaches(link, next)))).or_else(|| down().find(of_family))
    }

    /// Whether packets that came by a device are forwarded.
    fn forwards(&self, device: Device<'a>, packet: &Packet) -> Result<(), Finding> {
        let (forwards, setting) = match packet.destination {
            IpAddr::V4(_) => (device.link.forwards_ipv4, format!("net.ipv4.conf.{}.forwarding", device.link.name)),
            IpAddr::V6(_) => (device.namespace.forwards_ipv6, "net.ipv6.conf.all.forwarding".to_owned()),
        };
        if forwards && packet.hop_limit == 1 {
            return Err(self.hop_limit(device, packet));
        }
        if forwards {
            return Ok(());
        }
        let evidence = format!("{setting} is 0, and the packet is for {}", packet.destination);
        let next_step = format!("sysctl -w {setting}=1");
        Err(Finding { next_step, ..self.finding(Fault::ForwardingOff, device.namespace, Some(&device.link.name), evidence) })
    }

    /// The sender's packets may not be forwarded so often.
    fn hop_limit(&self, router: Device<'_>, packet: &Packet) -> Finding {
        let sender = self.passed.first().copied().unwrap_or(router.namespace);
        let link = route::leaves_by(sender, packet.destination).map_or("DEVICE", |link| link.name.as_str());
        let (setting, value) = match packet.destination {
            IpAddr::V4(_) => ("net.ipv4.ip_default_ttl".to_owned(), sender.ttl),
            IpAddr::V6(_) => {
                let of_link = sender.links.iter().find(|own| own.name == link).map_or(0, |own| own.hop_limit);
                (format!("net.ipv6.conf.{link}.hop_limit"), of_link)
            }
        };
        let evidence =
            format!("{setting} is {value}, and {} is to forward the packet to {} after that", router.namespace.place, packet.destination);
        let next_step = format!("sysctl -w {setting}=64");
        Finding { next_step, ..self.finding(Fault::HopLimitTooLow, sender, None, evidence) }
    }

    /// A packet comes in by a device.
    fn arrive(&mut self, device: Device<'a>, packet: &mut Packet) -> Result<(), Finding> {
        let Device { namespace, link } = device;
        if packet.destination.is_ipv6() && link.ipv6_disabled {
            let evidence = format!("net.ipv6.conf.{}.disable_ipv6 is 1", link.name);
            return Err(self.finding(Fault::Ipv6Disabled, namespace, Some(&link.name), evidence));
        }
        packet.frame = None;
        self.proxied = None;
        // The kernel takes the mark away where a packet changes the namespace.
        packet.mark = 0;
        self.recognise(namespace, packet);
        let passage =
            self.filter(&HookPoint { namespace, hook: Hook::Prerouting, in_bridge: false, iif: Some(link), oif: None }, packet)?;
        packet.rewritten = passage.destination.is_some();
        if let Some(to) = passage.destination {
            self.rewrite_destination(namespace, to, packet)?;
        }
        Ok(())
    }

    /// The reverse path filter of IPv4 (RFC 3704). What has no way back has that fault, whatever drops it first.
    /// The way back is looked up as for a packet that comes by the link that this one leaves by (`__fib_validate_source` in net/ipv4).
    fn reverse_path(&mut self, device: Device<'a>, leaves_by: Option<Device<'a>>, packet: &Packet) -> Result<(), Finding> {
        let Device { namespace, link } = device;
        if packet.source.is_ipv6() || link.rp_filter == 0 {
            return Ok(());
        }
        let back = Packet { mark: 0, ..packet.reply(packet.destination, packet.source) };
        let way = self.route(namespace, leaves_by, &back).map_err(|finding| {
            let evidence = format!("{}; for that, the reverse path filter of {} drops the packet already", finding.evidence, link.name);
            Finding { evidence, direction: self.direction.other(), ..finding }
        })?;
        let leads = match &way {
            Some(way) if link.rp_filter != 1 || way.link.index == link.index => return Ok(()),
            Some(way) => format!("the route to its source is {way}"),
            None => "its source is this host's own address".to_owned(),
        };
        let kept = self.kept(namespace, packet.source).filter(|_| way.is_none());
        if let Some(finding) = kept {
            let evidence = format!("{}; for that, the reverse path filter of {} drops what comes from there", finding.evidence, link.name);
            return Err(Finding { evidence, direction: self.direction.other(), ..finding });
        }
        let mode = if link.rp_filter == 1 { "strict" } else { "loose" };
        let evidence = format!("the filter of {} is {mode}; the packet is from {}, and {leads}", link.name, packet.source);
        let finding = self.finding(Fault::ReversePathFilter, namespace, Some(&link.name), evidence);
        // No setting lets pass what comes from the host's own address.
        let from_itself = format!("find who else sends from {}, or how the packet came back: ip route get {0}", packet.source);
        let next_step = if way.is_none() { from_itself } else { finding.next_step };
        Err(Finding { next_step, ..finding })
    }

    /// A packet is for the namespace where it is.
    fn take(&mut self, namespace: &'a Namespace, came_by: Option<Device<'a>>, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        let lo = namespace.links.iter().find(|link| link.name == "lo");
        let iif = came_by.map(|device| device.link).or(lo);
        self.filter(&HookPoint { namespace, hook: Hook::Input, in_bridge: false, iif, oif: None }, packet)?;
        self.serves(namespace, packet)?;
        self.track(namespace, packet);
        if namespace.place == *self.to {
            self.hops.push(format!("{} takes it", namespace.place));
            return self.misled.take().map_or(Ok(Step::There), Err);
        }
        Err(self.not_for(namespace, packet))
    }

    /// A namespace takes a packet that is for another one.
    fn not_for(&self, namespace: &Namespace, packet: &Packet) -> Finding {
        let to = packet.destination;
        let device = namespace.holder(to).map(|link| link.name.as_str());
        let is_home = self.network.home(self.to).is_some_and(|home| home.place == namespace.place);
        // What the destination itself has is its address, whichever node has it as well.
        let is_its_own = self.network.has(self.to, to) == Some(true);
        if is_home && !is_its_own && matches!(namespace.place, Place::Node(_)) {
            let evidence = format!("no rule leads port {} of {to} to {}", packet.port, self.to);
            let Some(by) = &self.untracked else { return self.finding(Fault::HostPortMissing, namespace, device, evidence) };
            let evidence = format!("{evidence}: {} keeps the packet out of connection tracking, so no rule rewrites it", by.text);
            let next_step = format!("let the rule leave out the port: {}", by.show);
            return Finding { next_step, ..self.finding(Fault::HostPortMissing, namespace, device, evidence) };
        }
        let has = format!("it has {to}, which is that of {}", self.to);
        self.kept(namespace, to).unwrap_or_else(|| self.finding(Fault::DuplicateAddress, namespace, device, has))
    }

    /// A local route keeps packets for an address that no link of the namespace has.
    fn kept(&self, namespace: &Namespace, address: IpAddr) -> Option<Finding> {
        let (route, link) = namespace.kept_by(address).filter(|_| namespace.holder(address).is_none())?;
        let kept = format!("the route local {} of table {} keeps packets for {address} there", route.to, route.table);
        if let Some(by) = &self.proxied {
            let next_step = format!("{}: {}", Fault::RedirectedByRule.next_step(None), by.show);
            let evidence = format!("{} gives the packet to a proxy of the host, and {kept}", by.text);
            return Some(Finding { next_step, ..self.finding(Fault::RedirectedByRule, namespace, None, evidence) });
        }
        let dev = link.map(|link| format!(" dev {}", link.name)).unwrap_or_default();
        let next_step = format!("delete the route: ip route del local {}{dev} table {}", route.to, route.table);
        let evidence = format!("{kept}; no link has the address");
        let device = link.map(|link| link.name.as_str());
        Some(Finding { next_step, ..self.finding(Fault::WrongNextHop, namespace, device, evidence) })
    }

    /// Asks nftables; what it drops is an error.
    fn filter(&mut self, at: &HookPoint<'a>, packet: &mut Packet) -> Result<Passage, Finding> {
        let mut passage = filter::ask(at, packet, &mut self.choices);
        packet.mark = passage.mark;
        for culprit in passage.unsure.drain(..) {
            let finding = self.dropped(at, packet, &culprit, "has conditions that are not understood, and may drop");
            // What counts while the probe is repeated is suspected first.
            let place = if culprit.has_counted { 0 } else { self.suspicions.len() };
            self.suspicions.insert(place, finding);
        }
        for culprit in passage.changed.drain(..) {
            let evidence = format!("{} changes the packet in a way that is not followed", culprit.text);
            let device = at.iif.or(at.oif).map(|link| link.name.as_str());
            let finding = self.finding(Fault::NotObserved, at.namespace, device, evidence);
            self.blind.push(Finding { next_step: format!("{}: {}", finding.next_step, culprit.show), ..finding });
        }
        if let Some(culprit) = passage.untracked.take() {
            self.leave_untracked(packet, culprit);
        }
        self.proxied = passage.proxied.take().or(self.proxied.take());
        match passage.dropped.take() {
            Some(culprit) => {
                self.rejected = culprit.rejects;
                Err(self.dropped(at, packet, &culprit, if culprit.rejects { "rejects" } else { "drops" }))
            }
            None => Ok(passage),
        }
    }

    fn dropped(&self, at: &HookPoint<'_>, packet: &Packet, culprit: &Culprit, verb: &str) -> Finding {
        let device = at.iif.or(at.oif).map(|link| link.name.as_str());
        let is_host = matches!(at.namespace.place, Place::Node(_)) && matches!(at.hook, Hook::Input | Hook::Output) && !at.in_bridge;
        let fault = match () {
            () if culprit.is_own => Fault::OwnRuleDrops,
            () if self.in_tunnel => Fault::TunnelBlocked,
            () if culprit.is_of_proxy => Fault::ServiceRefused,
            () if is_host => Fault::NodeFirewall,
            () => Fault::ForeignRuleDrops,
        };
        let Packet { source, destination, port, protocol, .. } = packet;
        let evidence = format!("{} {verb} {protocol} from {source} to {destination} port {port}", culprit.text);
        // Its rules let the packets of tunnels between nodes pass, unless an element of theirs is missing.
        let step = if culprit.is_own && self.in_tunnel { RESTORE.to_owned() } else { fault.next_step(device) };
        let next_step = format!("{step}: {}", culprit.show);
        Finding { next_step, ..self.finding(fault, at.namespace, device, evidence) }
    }

    fn finding(&self, fault: Fault, namespace: &Namespace, device: Option<&str>, evidence: String) -> Finding {
        Finding {
            fault,
            place: namespace.place.clone(),
            device: device.map(str::to_owned),
            direction: self.direction,
            evidence,
            next_step: fault.next_step(device),
        }
    }

    fn at(&self, fault: Fault, device: Device<'_>, evidence: String) -> Finding {
        self.finding(fault, device.namespace, Some(&device.link.name), evidence)
    }
}

/// The routes of a family that rules look into, in words.
fn routes_there(namespace: &Namespace, is_ipv4: bool) -> String {
    let tables = route::tables(namespace, is_ipv4);
    let is_asked = |route: &&Route| route.to.addr().is_ipv4() == is_ipv4 && route.kind != RouteKind::Other && tables.contains(&route.table);
    let name = |route: &Route| match route.table {
        route::MAIN => route.to.to_string(),
        table => format!("{} (table {table})", route.to),
    };
    // Every link has a route to link-local addresses.
    let is_telling = |route: &&Route| !crate::network::is_link_local(route.to.addr()) || route.to.addr().is_ipv4();
    let mut own: Vec<String> = namespace.routes.iter().filter(is_asked).filter(is_telling).map(name).collect();
    own.dedup();
    if own.is_empty() { "it has no route".to_owned() } else { format!("it has routes to {}", own.join(", ")) }
}
