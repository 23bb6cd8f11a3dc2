//! Services: kube-proxy's rules on a node lead a packet from the Service's address to one of those who answer for it.
//!
//! ```text
//!   asked: 10.96.0.5 port 80 --- a node's rules, by chance ---> 10.244.1.2 port 8080: the walk goes on to the pod that has it
//!                            `-- no rule                   ---> the node does not serve the Service
//!                            `-- an address of nobody      ---> the rules are older than the endpoints
//! ```

use std::net::IpAddr;

use super::filter::Culprit;
use super::packet::Tuple;
use super::{Packet, Walk};
use crate::case::{By, Service};
use crate::fault::{Fault, Finding};
use crate::snapshot::{Namespace, Place};

/// The device that has every Service's address where kube-proxy uses IPVS.
const IPVS: &str = "kube-ipvs0";

/// A Service that is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) service: Service,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// Who may answer.
    pub(crate) answerers: &'a [Place],
}

impl<'a> Walk<'a> {
    /// The Service, as long as no rule has led the packet on.
    pub(super) fn unled(&self, to: (IpAddr, u16)) -> Option<Asked<'a>> {
        self.service.filter(|service| !self.is_served && !self.in_tunnel && (service.address, service.port) == to)
    }

    /// A rule has rewritten the destination: the packet is now for who has that address.
    pub(super) fn lead(&mut self, namespace: &Namespace, before: Tuple, packet: &Packet, by: &Culprit) -> Result<(), Finding> {
        let Some(service) = self.unled((before.destination, before.port)) else { return Ok(()) };
        self.is_served = true;
        let (now, port) = (packet.destination, packet.port);
        let asked = format!("{} port {}", service.address, service.port);
        let network = self.network;
        let has = |place: &Place| network.has(place, now);
        if let Some(to) = service.answerers.iter().find(|place| has(place) == Some(true)) {
            self.to = to;
            self.led = Some(format!("{} leads packets for {asked} to {to} at {now} port {port}", namespace.place));
            self.hops.push(format!("{} rewrites {asked} to {now} port {port}", namespace.place));
            return Ok(());
        }
        // Some are not known: it may be one of theirs.
        if service.answerers.iter().any(|place| has(place).is_none()) {
            return Ok(());
        }
        self.is_anothers = network.backends(service.address, service.port).any(|place| has(place) == Some(true));
        let whose: Vec<String> = network.holders(now).map(|holder| holder.namespace.place.to_string()).collect();
        let whose = if whose.is_empty() { "nobody has".to_owned() } else { format!("{} has", whose.join(" and ")) };
        let answerers: Vec<String> = service.answerers.iter().map(Place::to_string).collect();
        let evidence =
            format!("{} leads packets for {asked} to {now} port {port}, which {whose}; {} is to answer", by.text, answerers.join(" or "));
        let next_step = format!("{}: {}", Fault::EndpointStale.next_step(None), by.show);
        Err(Finding { next_step, ..self.finding(Fault::EndpointStale, namespace, None, evidence) })
    }

    /// A node whose rules have seen a packet for a Service must have led it on: what stops the packet after that is a consequence.
    ///
    /// Where a load balancer is asked, the packet may pass to it, and come back.
    pub(super) fn must_serve(&mut self, namespace: &Namespace, packet: &Packet) {
        let Some(service) = self.unled((packet.destination, packet.port)) else { return };
        let must = !matches!(service.service.by, By::NodePort(_)) || namespace.is_local(packet.destination);
        if must && matches!(namespace.place, Place::Node(_)) && self.unserved.is_none() {
            self.unserved = Some(self.unserved_by(namespace, service, packet));
        }
    }

    /// The same, where the node sends the packet on or takes it: nobody else serves a cluster IP, and no other node a port of this one.
    pub(super) fn serves(&mut self, namespace: &Namespace, packet: &Packet) -> Result<(), Finding> {
        self.must_serve(namespace, packet);
        let may_be_led = !self.is_balanced && self.service.is_some_and(|service| service.service.by == By::LoadBalancer);
        match self.unserved.take_if(|_| !may_be_led && !self.is_served) {
            Some(finding) => Err(finding),
            None => Ok(()),
        }
    }

    /// What has stopped the packet: a node that has not served it before, unless kube-proxy's own rules say more.
    pub(super) fn because(&mut self, finding: Finding) -> Finding {
        let unserved = self.unserved.take().filter(|_| !self.is_served && finding.fault != Fault::ServiceRefused);
        unserved.unwrap_or(finding)
    }

    fn unserved_by(&self, namespace: &Namespace, service: Asked<'_>, packet: &Packet) -> Finding {
        if namespace.links.iter().any(|link| link.name == IPVS) {
            let evidence = "its Services are served by IPVS, whose tables are not observed".to_owned();
            return self.finding(Fault::NotObserved, namespace, Some(IPVS), evidence);
        }
        let asked = format!("{} port {} over {}", service.address, service.port, packet.protocol);
        let others = self.network.nodes().any(has_proxy_rules);
        let evidence = match (has_proxy_rules(namespace), others) {
            (true, _) => format!("kube-proxy has rules there, and none leads {asked} to a pod: they are older than the Service, or cut"),
            (false, true) => format!("there is no rule of kube-proxy, so nothing leads {asked} to a pod; other nodes have them"),
            (false, false) => format!("no node has a rule of kube-proxy, and nothing that is observed leads {asked} to a pod"),
        };
        self.finding(Fault::ServiceUnserved, namespace, None, evidence)
    }
}

/// Whether kube-proxy has rules in a namespace, in its mode nftables or iptables.
fn has_proxy_rules(namespace: &Namespace) -> bool {
    namespace.tables.iter().any(|table| table.name == "kube-proxy" || table.chains.iter().any(|chain| chain.name == "KUBE-SERVICES"))
}
