//! Whose a port of the node is on which no program listens: it leads to a Service.
//!
//! ```text
//!   an address of a Service, or one that kube-proxy in mode IPVS gives the node
//!   a NodePort: in the API, in kube-proxy's rules (nftables), among the virtual servers of IPVS
//! ```

use std::net::IpAddr;

use linux::link::Link;
use npwg::Protocol;

use super::{ThisNode, links, node_ports, virtual_servers};

impl ThisNode<'_> {
    /// Where a port that is published at this address, or at all, would be taken from a Service: kube-proxy in mode IPVS gives the node
    /// the addresses of Services, and takes their connections at the node's own addresses.
    pub(super) fn published(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        let ip = ip.map(|ip| ip.to_canonical());
        if let Some(ip) = ip.filter(|ip| !ip.is_unspecified())
            && let Some(whose) = self.whose_in_cluster(ip)
        {
            return Some(format!("at {ip}, {whose}"));
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
