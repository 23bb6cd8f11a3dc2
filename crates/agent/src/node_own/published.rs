//! Whose a port of the node is on which no program listens: it leads to a Service.
//!
//! ```text
//!   an address of a Service, or one that kube-proxy in mode IPVS gives the node
//!   a port of a Service at an address that the node has as well: an external address, or that of a load balancer on the node (K3s)
//!   a NodePort: in the API, in kube-proxy's rules (nftables), among the virtual servers of IPVS
//! ```

use std::net::IpAddr;

use linux::link::Link;
use npwg::Protocol;

use super::{ThisNode, links, node_ports, virtual_servers};
use crate::node_traffic::is_metadata;

impl ThisNode<'_> {
    /// Where a port that is published at this address, or at all, would be taken from a Service: kube-proxy in mode IPVS gives the node
    /// the addresses of Services, and takes their connections at the node's own addresses.
    pub(super) fn published(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        let ip = ip.map(|ip| ip.to_canonical());
        let single = ip.filter(|ip| !ip.is_unspecified());
        if let Some(whose) =
            single.filter(|ip| !self.is_shared(*ip)).and_then(|ip| Some(format!("at {ip}, {}", self.whose_in_cluster(ip)?)))
        {
            return Some(whose);
        }
        if let Some(address) = self.served(port, protocol, ip) {
            let at = if single.is_some() { "at" } else { "also at" };
            return Some(format!("{at} {address}, where a Service has this port: choose another one"));
        }
        let of_services = match self.addresses_of_services.get_or_init(|| self.read_addresses_of_services()) {
            Ok(addresses) => addresses,
            Err(e) => return Some(format!("which may be a Service's ({e})")),
        };
        let also = of_services.iter().find(|(address, _)| match ip {
            Some(ip) if !ip.is_unspecified() => ip == *address,
            Some(ip) => ip.is_ipv4() == address.is_ipv4(),
            None => true,
        });
        if let Some((service, link)) = also {
            let at = if ip == Some(*service) { "at" } else { "also at" };
            return Some(format!("{at} {service}, a Service's address that the node has on {link} (IPVS): name another one in \"hostIP\""));
        }
        if let Some(whose) = self.node_port(port, protocol) {
            return Some(whose);
        }
        match self.virtual_servers.get_or_init(virtual_servers::all) {
            Ok(servers) => {
                let server = servers.iter().find(|server| server.is_at(port, protocol, ip))?;
                Some(format!("at {}, where IPVS takes it for a Service: choose another port", server.address))
            }
            Err(e) => Some(format!("which may be a Service's ({e})")),
        }
    }

    /// Whether the node has an address for itself, whoever else is reached there: not for Services alone, as kube-proxy in mode IPVS gives it
    /// some.
    fn is_shared(&self, ip: IpAddr) -> bool {
        let is_of_services = self.cluster.ranges.iter().any(|range| range.contains(&ip)) || is_metadata(ip);
        let (Ok(links), Ok(addresses)) = (self.links(), self.addresses()) else { return false };
        let is_proxys = |index: u32| links.iter().any(|link| link.index == index && virtual_servers::LINKS.contains(&link.name.as_str()));
        !is_of_services && addresses.iter().any(|one| one.net.addr() == ip && !is_proxys(one.index))
    }

    /// The address of the node at which a Service has this port, of those at which it would be published: with no endpoint of the Service,
    /// no rule of kube-proxy takes its connections first.
    fn served(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<IpAddr> {
        let is_meant = |own: IpAddr| match ip {
            Some(ip) if !ip.is_unspecified() => own == ip,
            Some(ip) => own.is_ipv4() == ip.is_ipv4(),
            None => true,
        };
        self.cluster.services?.serves(port, protocol, |own| is_meant(own) && self.is_shared(own))
    }

    /// What takes a port of the node for a Service, in words: its NodePort in the API, and in the rules of kube-proxy, which may be there
    /// before the API has told of it, or where the API may not be asked for Services.
    fn node_port(&self, port: u16, protocol: Protocol) -> Option<String> {
        if self.cluster.services.is_some_and(|services| services.has_node_port(port, protocol)) {
            return Some("which is a Service's NodePort: choose another port".to_owned());
        }
        let mut host = self.host.borrow_mut();
        let of_proxy =
            host.nft().map_err(|e| e.to_string()).and_then(|nft| node_ports::is_there(nft, port, protocol).map_err(|e| e.to_string()));
        match of_proxy {
            Ok(true) => Some("which kube-proxy takes for a Service's NodePort: choose another port".to_owned()),
            Ok(false) => None,
            Err(e) => Some(format!("which may be a Service's NodePort ({e})")),
        }
    }

    /// The addresses of the links that have those of Services, with the link's name; of the uplink only Services'. Among them are those that
    /// are in no range of Services: of load balancers, and external ones.
    fn read_addresses_of_services(&self) -> Result<Vec<(IpAddr, String)>, String> {
        let is_service = |address: IpAddr| self.cluster.ranges.iter().any(|range| range.contains(&address));
        let addresses = self.addresses()?;
        let has = |link: &Link| {
            link.is("dummy") && virtual_servers::LINKS.contains(&link.name.as_str())
                || addresses.iter().any(|one| one.index == link.index && is_service(one.net.addr()))
        };
        let links: Vec<&Link> = self.links()?.iter().filter(|link| has(link)).collect();
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let needed = self.needed()?;
        let is_shared = |index: u32| needed.get(&index).is_some_and(|need| need.is_uplink());
        let of = |one: &linux::Address| {
            let (link, address) = (links.iter().find(|link| link.index == one.index)?, one.net.addr());
            (is_service(address) || links::is_global(address) && !is_shared(link.index)).then(|| (address, link.name.clone()))
        };
        Ok(addresses.iter().filter_map(of).collect())
    }
}
