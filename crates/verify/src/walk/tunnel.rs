//! Through WireGuard, and through a vxlan: neighbour and entry say which endpoint gets the packet; the tunnel's own packet is a walk of its own.

use std::net::IpAddr;

use cni::Mac;

use super::{Connection, NextHop, Packet, Walk};
use crate::case::Protocol;
use crate::fault::{Fault, Finding};
use crate::network::Device;
use crate::snapshot::{Link, Namespace, Tunnel};

/// Headers of Ethernet, vxlan and UDP; those of IP come to it (RFC 7348).
const HEADERS: u32 = 14 + 8 + 8;

impl<'a> Walk<'a> {
    /// Sends a packet through a tunnel: the tunnel's end on the node that it is for.
    pub(super) fn through(
        &mut self,
        device: Device<'a>,
        tunnel: Tunnel,
        way: &NextHop<'a>,
        packet: &mut Packet,
    ) -> Result<Device<'a>, Finding> {
        let next = way.gateway.unwrap_or(packet.destination);
        let mac = self.tunnel_neighbour(device, way, next)?;
        let remote = self.remote(device, tunnel, mac)?;
        if remote.link.mac.as_ref() != Some(mac) {
            let own = remote.link.mac.as_ref().map(|own| own.to_string()).unwrap_or_default();
            let evidence = format!("it knows {next} by {mac}; the tunnel of {} has {own}", remote.namespace.place);
            let next_step = format!("ip neigh replace {next} lladdr {own} dev {} nud permanent", device.link.name);
            return Err(Finding { next_step, ..self.at(Fault::WrongNeighbour, device, evidence) });
        }
        let endpoint = self.endpoint(device, tunnel, mac)?;
        if remote.namespace.holder(endpoint).is_none() {
            let whose = self.network.holders(endpoint).next().map(|other| format!(", which is that of {}", other.namespace.place));
            let evidence =
                format!("frames for {mac} go to {endpoint}{}; {} is to get them", whose.unwrap_or_default(), remote.namespace.place);
            return Err(self.at(Fault::TunnelEntryStale, device, evidence));
        }
        self.outer(device, (tunnel, endpoint), remote, packet)?;
        self.hops.push(format!("{device} sends it through the tunnel to {endpoint}"));
        if !remote.link.up {
            return Err(self.at(Fault::LinkDown, remote, "the tunnel ends there".to_owned()));
        }
        Ok(remote)
    }

    /// Sends a packet through WireGuard, whose peers are not observed: it is taken for there with the node that it is for.
    pub(super) fn encrypted(&mut self, device: Device<'a>) -> Result<Device<'a>, Finding> {
        let home = self.network.home(self.to).unwrap_or(device.namespace);
        let other = home.links.iter().find(|link| link.is("wireguard"));
        let Some(link) = other.filter(|_| home.place != device.namespace.place) else {
            return Err(self.finding(Fault::TunnelMissing, home, None, "it has no WireGuard device".to_owned()));
        };
        let remote = Device { namespace: home, link };
        if !link.up {
            return Err(self.at(Fault::LinkDown, remote, "the tunnel ends there".to_owned()));
        }
        self.hops.push(format!("{device} encrypts it for {}", home.place));
        Ok(remote)
    }

    fn tunnel_neighbour(&self, device: Device<'a>, way: &NextHop<'a>, next: IpAddr) -> Result<&'a Mac, Finding> {
        let known = device.link.neighbour(next).and_then(|neighbour| neighbour.mac.as_ref());
        known.ok_or_else(|| match way.gateway {
            // The tunnel knows nodes, and not each of their pods.
            None if device.link.neighbours.iter().any(|neighbour| neighbour.permanent) => {
                let evidence = format!("the route {way} has no next hop, and the tunnel knows next hops alone: none is {next}");
                self.without_next_hop(device, way, evidence)
            }
            _ => self.at(Fault::TunnelEntryMissing, device, format!("it has no hardware address for its neighbour {next}")),
        })
    }

    /// Where frames for a hardware address go.
    fn endpoint(&self, device: Device<'a>, tunnel: Tunnel, mac: &Mac) -> Result<IpAddr, Finding> {
        let of = |wanted: &Mac| device.link.fdb.iter().find(|entry| entry.mac == *wanted).and_then(|entry| entry.endpoint);
        let everybody = Mac::from_bytes(&[0; 6]).and_then(|everybody| of(&everybody));
        let endpoint = of(mac).or(everybody).or(tunnel.remote);
        endpoint.ok_or_else(|| self.at(Fault::TunnelEntryMissing, device, format!("it has no endpoint for {mac}")))
    }

    /// The other end: that of the node that the packet is for; of a packet that leaves the cluster, that of the hardware address.
    fn remote(&self, device: Device<'a>, tunnel: Tunnel, mac: &Mac) -> Result<Device<'a>, Finding> {
        let same = |link: &&Link| {
            let family = |tunnel: Tunnel| tunnel.local.map(|local| local.is_ipv4());
            link.tunnel.is_some_and(|other| other.vni == tunnel.vni && family(other) == family(tunnel))
        };
        let end = |namespace: &'a Namespace| namespace.links.iter().find(same).map(|link| Device { namespace, link });
        let by_mac =
            || self.network.devices().find(|other| same(&other.link) && other.link.mac.as_ref() == Some(mac) && !other.is(&device));
        let home = self.network.home(self.to);
        let found = home.and_then(end).or_else(by_mac);
        found.ok_or_else(|| {
            let namespace = home.unwrap_or(device.namespace);
            let evidence = format!("it has no vxlan with the number {} and the port {}", tunnel.vni, tunnel.port);
            self.finding(Fault::TunnelMissing, namespace, None, evidence)
        })
    }

    /// The tunnel's own packet, from node to node.
    fn outer(
        &mut self,
        device: Device<'a>,
        (tunnel, endpoint): (Tunnel, IpAddr),
        remote: Device<'a>,
        inner: &Packet,
    ) -> Result<(), Finding> {
        let (unspecified, header): (IpAddr, u32) = if endpoint.is_ipv4() { ([0; 4].into(), 20) } else { ([0; 16].into(), 40) };
        let mut packet = Packet {
            source: tunnel.local.unwrap_or(unspecified),
            destination: endpoint,
            protocol: Protocol::Udp,
            source_port: 0,
            port: tunnel.port,
            size: inner.size + HEADERS + header,
            hop_limit: 0,
            connection: Connection::New,
            rewritten: false,
            mark: 0,
            frame: None,
        };
        let mut walk = Walk { in_tunnel: true, ..Walk::new(self.network, &remote.namespace.place, self.direction) };
        let done = walk.follow(&device.namespace.place, &mut packet);
        self.suspicions.append(&mut walk.suspicions);
        self.blind.append(&mut walk.blind);
        self.ways = self.ways.max(walk.ways);
        done.map_err(|finding| Finding { evidence: format!("of the tunnel's packets: {}", finding.evidence), ..finding })
    }
}
