//! The cases that need a Service proxy, and the metadata service.
//!
//! A Service suits a case by who its backends are, seen from the one who asks: itself alone (hairpin), itself and one other pod, or another pod
//! alone. Of those with policy Local, any number may be there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Check, Expected, ExpectedSource, Planner};
use crate::case::{Backend, By, Client, Need, On, Protocol, Service, ServiceOwner};
use crate::site::{ServicePort, SiteNode, SitePod, SiteService};
use crate::snapshot::Place;

/// The port of a metadata service.
const HTTP: u16 = 80;

/// Who asks.
struct Asker {
    place: Place,
    /// The node that it is, or is on; outside: none.
    node: Option<String>,
    /// The addresses that it may be seen as.
    sources: Vec<IpAddr>,
}

/// Where a Service is asked.
struct ServiceEndpoint {
    address: IpAddr,
    /// The node, where it is one's port.
    node: Option<String>,
}

impl Planner<'_> {
    /// Everybody who may ask asks each Service that suits the case.
    pub(super) fn services(&mut self, client: Client, wanted: Service) {
        let site = self.site;
        for asker in self.askers(client) {
            let suiting = site.services.iter().filter_map(|service| Some((service, self.answerers(&asker, wanted, service)?)));
            // Of those that say the same one is enough; with policy Local it matters where each one's backends are.
            let most = if wanted.is_local { usize::MAX } else { 1 };
            for (service, answerers) in suiting.take(most).collect::<Vec<_>>() {
                for asked in self.asked(&asker, wanted.by, service) {
                    if let Some(expected) = self.expected(client, &asker, wanted, &asked, &answerers) {
                        self.ask_service(&asker, wanted, service, &asked, expected);
                    }
                }
                self.loopback(&asker, wanted, service, &answerers);
            }
        }
    }

    /// A pod of each node asks the metadata service over HTTP.
    pub(super) fn metadata(&mut self) {
        let site = self.site;
        let Some(host) = site.outside(Need::Metadata) else { return };
        let Some(address) = host.address(self.is_ipv4) else { return };
        for asker in self.askers(Client::Pod) {
            let (case, answerers, expected) = (self.case, vec![host.place.clone()], Expected::Answer(ExpectedSource::Anyhow));
            let (from, protocol) = (asker.place, Protocol::Tcp);
            self.checks.push(Check { case, network: None, from, answerers, address, protocol, port: HTTP, size: None, expected });
        }
    }

    /// A pod of each node, each node, or the client outside.
    fn askers(&self, client: Client) -> Vec<Asker> {
        let site = self.site;
        match client {
            Client::Pod => {
                let has_address = |pod: &&SitePod| pod.address(self.is_ipv4).is_some();
                let pods = site.nodes.iter().filter_map(|node| Some((node, site.pods_of(&node.name).find(has_address)?)));
                pods.map(|(node, pod)| Asker { place: pod.place(), node: Some(node.name.clone()), sources: self.pod(pod).1 }).collect()
            }
            Client::Node => {
                let nodes = site.nodes.iter().filter(|node| node.address(self.is_ipv4).is_some());
                nodes.map(|node| Asker { place: node.place(), node: Some(node.name.clone()), sources: node.sources.clone() }).collect()
            }
            Client::Public => {
                let outside = site.outside(Need::PublicClient).filter(|outside| outside.address(self.is_ipv4).is_some());
                outside
                    .map(|host| Asker { place: host.place.clone(), node: None, sources: host.sources(self.is_ipv4) })
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Which backends may answer, if the Service is one that the case means.
    fn answerers(&self, asker: &Asker, wanted: Service, service: &SiteService) -> Option<Vec<Place>> {
        let own = &asker.place;
        let is_manual = wanted.backend == Some(Backend::Manual);
        if service.is_local != wanted.is_local || service.is_manual != is_manual {
            return None;
        }
        let is_where = |backend: &Place, on: On| (self.node_of(backend) == asker.node.as_deref()) == (on == On::SameNode);
        let others: Vec<&Place> = service.backends.iter().filter(|backend| *backend != own).collect();
        let is_own = others.len() < service.backends.len();
        if is_own != (wanted.of == ServiceOwner::Itself) {
            return None;
        }
        match (wanted.backend, others.as_slice()) {
            (None | Some(Backend::Manual), _) => Some(service.backends.clone()),
            (Some(Backend::Itself), []) => Some(vec![own.clone()]),
            (Some(Backend::Pod(on)), [other]) if is_where(other, on) => Some(vec![(*other).clone()]),
            _ => None,
        }
    }

    /// The addresses at which the case asks the Service.
    fn asked(&self, asker: &Asker, by: By, service: &SiteService) -> Vec<ServiceEndpoint> {
        let of_family = |addresses: &[IpAddr]| addresses.iter().copied().filter(|a| a.is_ipv4() == self.is_ipv4).collect::<Vec<_>>();
        match by {
            By::ClusterIp => of_family(&service.cluster_ips).into_iter().map(|address| ServiceEndpoint { address, node: None }).collect(),
            By::LoadBalancer => {
                of_family(&service.balancer_ips).into_iter().map(|address| ServiceEndpoint { address, node: None }).collect()
            }
            By::NodePort(on) => {
                let is_where = |node: &&SiteNode| (asker.node.as_ref() == Some(&node.name)) == (on == On::SameNode);
                let nodes = self.site.nodes.iter().filter(is_where);
                nodes
                    .filter_map(|node| Some(ServiceEndpoint { address: node.address(self.is_ipv4)?, node: Some(node.name.clone()) }))
                    .collect()
            }
        }
    }

    /// What must come of it. `None`: Kubernetes promises nothing.
    fn expected(
        &self,
        client: Client,
        asker: &Asker,
        wanted: Service,
        asked: &ServiceEndpoint,
        answerers: &[Place],
    ) -> Option<(Vec<Place>, Expected)> {
        if !wanted.is_local {
            return Some((answerers.to_vec(), Expected::Answer(ExpectedSource::Anyhow)));
        }
        let Some(node) = &asked.node else {
            // A load balancer leads to nodes that have a backend; a proxy may take its place for pods and nodes.
            let seen = if client == Client::Public { ExpectedSource::As(asker.sources.clone()) } else { ExpectedSource::Anyhow };
            return Some((answerers.to_vec(), Expected::Answer(seen)));
        };
        let local: Vec<Place> = answerers.iter().filter(|backend| self.node_of(backend) == Some(node)).cloned().collect();
        match client {
            // Policy Local is for who comes from outside: what a node itself sends reaches every backend.
            Client::Node if asker.node.as_ref() == Some(node) => Some((answerers.to_vec(), Expected::Answer(ExpectedSource::Anyhow))),
            // Whether pods count as outside depends on how the proxy finds out who is local.
            Client::Pod => (!local.is_empty()).then(|| (answerers.to_vec(), Expected::Answer(ExpectedSource::Anyhow))),
            Client::Node => (!local.is_empty()).then_some((local, Expected::Answer(ExpectedSource::Anyhow))),
            Client::Public if local.is_empty() => Some((answerers.to_vec(), Expected::Silence)),
            Client::Public => Some((local, Expected::Answer(ExpectedSource::As(asker.sources.clone())))),
        }
    }

    fn ask_service(
        &mut self,
        asker: &Asker,
        wanted: Service,
        service: &SiteService,
        asked: &ServiceEndpoint,
        (answerers, expected): (Vec<Place>, Expected),
    ) {
        for port in service.ports.iter().filter(|port| port.remaps == wanted.remaps) {
            let Some(number) = number(port, wanted.by) else { continue };
            let (case, from, address, protocol) = (self.case, asker.place.clone(), asked.address, port.protocol);
            let (answerers, expected) = (answerers.clone(), expected.clone());
            self.checks.push(Check { case, network: None, from, answerers, address, protocol, port: number, size: None, expected });
        }
    }

    /// A node's own loopback address, where the case asks it.
    fn loopback(&mut self, asker: &Asker, wanted: Service, service: &SiteService, answerers: &[Place]) {
        let Some(is_served) = self.site.loopback_node_ports.filter(|_| self.case.asks_loopback()) else { return };
        let (address, is_served) =
            if self.is_ipv4 { (IpAddr::from(Ipv4Addr::LOCALHOST), is_served) } else { (IpAddr::from(Ipv6Addr::LOCALHOST), false) };
        let expected = if is_served { Expected::Answer(ExpectedSource::Anyhow) } else { Expected::NobodyServes };
        self.ask_service(asker, wanted, service, &ServiceEndpoint { address, node: None }, (answerers.to_vec(), expected));
    }

    fn node_of<'p>(&'p self, place: &'p Place) -> Option<&'p str> {
        match place {
            Place::Node(name) => Some(name),
            Place::Pod(name) => self.site.pods.iter().find(|pod| pod.name == *name).map(|pod| pod.node.as_str()),
            _ => None,
        }
    }
}

fn number(port: &ServicePort, by: By) -> Option<u16> {
    match by {
        By::NodePort(_) => port.node_port,
        By::ClusterIp | By::LoadBalancer => Some(port.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PORT, Planned, SINK, plan};
    use crate::site::{Attachment, LimitedPod, Limits, Outside, Publication, Reach, Site, SitePod};
    use crate::{Fault, Observation, Snapshot, explain, judge};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn node(number: u8) -> SiteNode {
        let addresses = vec![ip(&format!("198.18.0.1{number}")), ip(&format!("fd00::1{number}"))];
        SiteNode { name: format!("node-{number}"), sources: addresses.clone(), addresses, tunnels: Vec::new() }
    }

    fn pod(word: &str, number: u8) -> SitePod {
        let last = if word == "client" { 2 } else { 3 };
        let addresses = vec![ip(&format!("10.244.{number}.{last}")), ip(&format!("fd00:10:244:{number}::{last}"))];
        let port = |protocol| Publication { protocol, at: None, host_port: PORT + last, pod_port: PORT };
        SitePod {
            name: format!("verify/{word}-{number}"),
            node: format!("node-{number}"),
            attachments: vec![Attachment {
                network: "pods".to_owned(),
                is_default: true,
                addresses,
                mtu: Some(1500),
                reach: Reach::Everywhere,
                zone: None,
            }],
            ports: vec![port(Protocol::Tcp), port(Protocol::Udp)],
        }
    }

    fn service(number: usize, name: &str, is_local: bool, backends: &[&str]) -> SiteService {
        let port = |protocol, port, node_port, remaps| ServicePort { protocol, port, node_port: Some(node_port), remaps };
        SiteService {
            name: name.to_owned(),
            backends: backends.iter().map(|pod| Place::Pod(format!("verify/{pod}"))).collect(),
            is_manual: false,
            is_local,
            cluster_ips: vec![ip(&format!("10.96.0.{number}")), ip(&format!("fd00:10:96::{number}"))],
            balancer_ips: vec![ip(&format!("203.0.113.{number}")), ip(&format!("fd00:203::{number}"))],
            ports: vec![
                port(Protocol::Tcp, PORT, 30_000, false),
                port(Protocol::Udp, PORT, 30_000, false),
                port(Protocol::Tcp, 80, 30_001, true),
            ],
        }
    }

    fn site() -> Site {
        let outside = |role, name: &str, address: &str| Outside {
            role,
            place: Place::Outside(name.to_owned()),
            addresses: vec![ip(address)],
            seen_as: Vec::new(),
        };
        let mut services = vec![
            service(1, "client-1", false, &["client-1"]),
            service(2, "server-1", false, &["server-1"]),
            service(3, "client-2", false, &["client-2"]),
            service(4, "server-2", false, &["server-2"]),
            service(5, "beside-1", false, &["client-1", "server-1"]),
            service(6, "across-1", false, &["client-1", "client-2"]),
            service(7, "beside-2", false, &["client-2", "server-2"]),
            service(8, "across-2", false, &["client-2", "client-1"]),
            service(9, "local", true, &["client-1", "client-2"]),
            service(10, "local-servers", true, &["server-1", "server-2"]),
            service(11, "local-server", true, &["server-1"]),
            service(12, "manual", false, &[]),
        ];
        let manual = services.last_mut().unwrap();
        (manual.is_manual, manual.backends) = (true, vec![Place::Node("node-1".to_owned())]);
        Site {
            nodes: vec![node(1), node(2)],
            pods: vec![pod("client", 1), pod("server", 1), pod("client", 2), pod("server", 2)],
            outside: vec![
                outside(Need::Internet, "internet", "198.18.0.200"),
                outside(Need::Metadata, "metadata", "169.254.169.254"),
                outside(Need::PublicClient, "public", "198.18.0.200"),
            ],
            services,
            loopback_node_ports: Some(true),
            ..Site::default()
        }
    }

    fn checks(site: &Site, id: &str, is_ipv4: bool) -> Vec<Check> {
        let checks = plan(site).into_iter().filter_map(|planned| match planned {
            Planned::Check(check) => Some(check),
            Planned::Skipped { .. } => None,
        });
        checks.filter(|check| check.case.id == id && check.address.is_ipv4() == is_ipv4).collect()
    }

    /// There was to be a metadata service, which has no address of IPv6.
    #[test]
    fn what_no_family_can_have_is_not_asked_for() {
        let mut site = site();
        site.lacks = vec![(Need::Metadata, "name it".to_owned())];
        let why = |site: &Site| -> Vec<(Option<bool>, bool)> {
            let of_metadata = plan(site).into_iter().filter(|planned| planned.case().id == "9");
            let skipped = of_metadata.filter_map(|planned| match planned {
                Planned::Skipped { is_ipv4, why, .. } => Some((is_ipv4, why == "name it")),
                Planned::Check(_) => None,
            });
            skipped.collect()
        };
        assert_eq!(why(&site), [(None, true)]);
        site.pods.iter_mut().flat_map(|pod| &mut pod.attachments).for_each(|attachment| attachment.addresses.retain(IpAddr::is_ipv6));
        site.nodes.iter_mut().for_each(|node| node.addresses.retain(IpAddr::is_ipv6));
        assert_eq!(why(&site), [(Some(false), false)]);
    }

    /// A pod that sent to another one from its address on a second network passed.
    #[test]
    fn pods_see_each_other_by_the_default_network() {
        let mut site = site();
        let second = Attachment {
            network: "fast".to_owned(),
            is_default: false,
            addresses: vec![ip("192.168.77.2")],
            ..site.pods[0].attachments[0].clone()
        };
        site.pods[0].attachments.push(second);
        for id in ["1", "2", "model-1"] {
            let asked = checks(&site, id, true).into_iter().find(|check| check.from == site.pods[0].place()).unwrap();
            let Expected::Answer(ExpectedSource::As(sources)) = asked.expected else { panic!("{id}") };
            assert!(sources.contains(&ip("10.244.1.2")) && !sources.contains(&ip("192.168.77.2")), "{id}: {sources:?}");
        }
    }

    /// A rule for one pod's packets to other nodes was noticed by chance alone.
    #[test]
    fn each_pod_asks_and_is_asked_across_nodes() {
        let mut site = site();
        for number in 4..9 {
            site.pods.push(SitePod { name: format!("verify/more-{number}"), ..pod("client", 1) });
        }
        site.nodes.push(node(3));
        site.pods.push(pod("client", 3));
        for id in ["2", "model-1"] {
            let checks = checks(&site, id, true);
            for pod in &site.pods {
                let asks = checks.iter().any(|check| check.from == pod.place());
                assert!(asks && checks.iter().any(|check| check.answerers.contains(&pod.place())), "{id}: {}", pod.name);
            }
            let distinct: std::collections::BTreeSet<_> =
                checks.iter().map(|check| (check.from.clone(), check.answerers.clone(), check.protocol)).collect();
            assert_eq!(distinct.len(), checks.len(), "{id}");
        }
    }

    /// None of the 56 is left out where everything is there.
    #[test]
    fn every_case_of_the_matrix_is_tried() {
        let site = site();
        let skipped = plan(&site).into_iter().filter_map(|planned| match planned {
            Planned::Skipped { case, is_ipv4: None | Some(true), why } if case.id.parse::<u8>().is_ok() => Some((case.id, why)),
            _ => None,
        });
        assert_eq!(skipped.collect::<Vec<_>>(), []);
    }

    /// A pod with a limit and one beside it: each sends once, in the first family, and neither takes part in any other case.
    #[test]
    fn a_limit_is_tried_in_both_directions() {
        let addresses = vec![ip("10.244.1.9"), ip("fd00:10:244:1::9")];
        let both = |bits| Limits { receives: Some(bits), sends: Some(bits) };
        let limited = LimitedPod {
            name: "verify/limited-1".to_owned(),
            node: "node-1".to_owned(),
            network: None,
            addresses,
            limits: both(20_000_000),
        };
        let site = Site { limited: vec![limited.clone()], ..site() };
        let only_v6 = Site { limited: vec![LimitedPod { addresses: vec![ip("fd00:10:244:1::9")], ..limited.clone() }], ..site.clone() };
        // A pod beside it that may send less: that is what the first one receives.
        let beside = LimitedPod { name: "verify/client-1".to_owned(), limits: both(4_000_000), ..limited.clone() };
        let slower = Site { limited: vec![limited.clone(), beside], ..site.clone() };
        for id in ["bandwidth-1", "bandwidth-2"] {
            let all = checks(&slower, id, true);
            let [check] = all.as_slice() else { panic!("of each node and network one: {all:?}") };
            assert_eq!(check.expected, Expected::Rate { least: 1_000_000, most: 5_000_000 });
        }
        for (site, is_ipv4) in [(&site, true), (&only_v6, false)] {
            let (client, limited) = (site.pods[0].address(is_ipv4).unwrap(), &site.limited[0]);
            for (id, from, to, address) in [
                ("bandwidth-1", site.pods[0].place(), limited.place(), limited.address(is_ipv4).unwrap()),
                ("bandwidth-2", limited.place(), site.pods[0].place(), client),
            ] {
                let all = checks(site, id, is_ipv4);
                let [check] = all.as_slice() else { panic!("{id}: {all:?}") };
                assert!(checks(site, id, !is_ipv4).is_empty(), "{id}");
                assert_eq!((&check.from, &check.answerers, check.address, check.port), (&from, &vec![to], address, SINK), "{id}");
                for (bits, is_right) in [(4_900_000, false), (5_000_000, true), (19_000_000, true), (25_000_000, true), (25_000_001, false)]
                {
                    let said = judge(check, &Observation::Rate(bits));
                    assert_eq!(said.is_none(), is_right, "{bits}: {said:?}");
                }
                assert!(judge(check, &Observation::Silent).is_some());
                let finding = explain(&Snapshot::default(), check, &Observation::Rate(900_000_000));
                assert_eq!((finding.fault, finding.place), (Fault::BandwidthDiffers, limited.place()), "{id}");
                assert!(finding.evidence.starts_with("900.0 Mbit/s get through"), "{}", finding.evidence);
                let limit = "; its limit is 20.0 Mbit/s, and 5.0 to 25.0 would pass";
                assert!(finding.evidence.ends_with(limit), "{}", finding.evidence);
                let slow = explain(&Snapshot::default(), check, &Observation::Rate(1_000_000)).evidence;
                assert!(slow.ends_with(&format!("{limit}; something else is slower: the machine, or another limit on the way")), "{slow}");
            }
        }
        let others = plan(&site).into_iter().filter_map(|planned| match planned {
            Planned::Check(check) if !check.case.id.starts_with("bandwidth") => Some(check),
            _ => None,
        });
        assert!(others.into_iter().all(|check| check.from != limited.place() && !check.answerers.contains(&limited.place())));
    }

    #[test]
    fn each_service_case_asks_the_backend_that_it_means() {
        let site = site();
        // From node-1's client: hairpin, own Service beside, own Service across, another one across.
        for (id, backend, address) in [
            ("14", "client-1", "10.96.0.1"),
            ("15", "server-1", "10.96.0.5"),
            ("17", "client-2", "10.96.0.6"),
            ("21", "client-2", "10.96.0.3"),
        ] {
            let own: Vec<Check> = checks(&site, id, true).into_iter().filter(|c| c.from.to_string() == "pod/verify/client-1").collect();
            assert!(!own.is_empty(), "{id}");
            for check in own {
                assert_eq!((check.answerers, check.address), (vec![Place::Pod(format!("verify/{backend}"))], ip(address)), "{id}");
            }
        }
        assert!(checks(&site, "16", true).iter().all(|check| check.port == 80), "the port is remapped");
        assert!(checks(&site, "29", true).iter().all(|check| check.port == 30_000 && check.address.to_string().starts_with("198.18.")));
    }

    /// Policy Local: a node without a backend drops what comes from outside; with one, the client is seen as itself.
    #[test]
    fn policy_local_keeps_the_clients_address_or_drops() {
        let site = site();
        let of = |node: &str| checks(&site, "49", true).into_iter().filter(|check| check.address == ip(node)).collect::<Vec<_>>();
        let servers = [Place::Pod("verify/server-1".to_owned())];
        let dropped: Vec<Check> = of("198.18.0.12").into_iter().filter(|check| check.answerers == servers).collect();
        assert!(!dropped.is_empty() && dropped.iter().all(|check| check.expected == Expected::Silence), "{dropped:?}");
        assert!(dropped.iter().all(|check| check.proofs().is_empty()), "nobody keeps these apart");
        let seen = Expected::Answer(ExpectedSource::As(vec![ip("198.18.0.200")]));
        assert!(!of("198.18.0.11").is_empty() && of("198.18.0.11").iter().all(|check| check.expected == seen));
        // What a node itself sends to its own port reaches every backend.
        let own: Vec<Check> =
            checks(&site, "42", true).into_iter().filter(|check| check.from == Place::Node("node-2".to_owned())).collect();
        assert!(own.iter().any(|check| check.answerers == servers && matches!(check.expected, Expected::Answer(_))), "{own:?}");
    }

    /// A client behind a router that rewrites its address is seen as that router, and with policy Local as nobody else.
    #[test]
    fn a_client_behind_nat_is_seen_as_its_router() {
        let mut site = site();
        site.outside.last_mut().unwrap().seen_as = vec![ip("192.0.2.7")];
        let seen = Expected::Answer(ExpectedSource::As(vec![ip("192.0.2.7")]));
        let answered: Vec<Check> = checks(&site, "49", true).into_iter().filter(|check| check.expected != Expected::Silence).collect();
        assert!(!answered.is_empty() && answered.iter().all(|check| check.expected == seen), "{answered:?}");
        // What was seen in one family says nothing of the other one.
        site.outside.last_mut().unwrap().addresses.push(ip("fd00::c8"));
        assert!(
            checks(&site, "51", false).iter().all(|check| check.expected == Expected::Answer(ExpectedSource::As(vec![ip("fd00::c8")])))
        );
    }

    #[test]
    fn the_loopback_address_serves_node_ports_in_one_mode_alone() {
        let mut site = site();
        let loopback = |site: &Site, is_ipv4| {
            let all = checks(site, "43", is_ipv4).into_iter().filter(|check| check.address.is_loopback());
            all.map(|check| check.expected).collect::<Vec<_>>()
        };
        assert!(loopback(&site, true).iter().all(|expected| matches!(expected, Expected::Answer(_))) && !loopback(&site, true).is_empty());
        assert!(loopback(&site, false).iter().all(|expected| *expected == Expected::NobodyServes) && !loopback(&site, false).is_empty());
        site.loopback_node_ports = Some(false);
        assert!(loopback(&site, true).iter().all(|expected| *expected == Expected::NobodyServes));
        site.loopback_node_ports = None;
        assert_eq!(loopback(&site, true), []);
    }
}
