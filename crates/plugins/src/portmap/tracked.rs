//! What the kernel remembers of connections to host ports. TCP ends by itself; a UDP client that goes on sending from one port,
//! or an SCTP association, would be led for ever where its first packet was led.

use cni::CniError;
use linux::Family;
use linux::nft::Flows;
use plugin::Host;
use rules::{HostPort, Protocol};

use crate::internal;

/// Those that went elsewhere before these ports were published: to whoever had them, or to the host itself.
pub(super) fn forget_before_us(ports: &[HostPort], host: &mut Host) -> Result<(), CniError> {
    let flows: Vec<Flows> = lasting(ports).map(|port| Flows { answered_by: None, ..flows(&port) }).collect();
    forget(&flows, host)
}

/// Those that these ports have led to the container.
pub(super) fn to_us(ports: &[HostPort]) -> Vec<Flows> {
    lasting(ports).map(|port| flows(&port)).collect()
}

pub(super) fn forget(flows: &[Flows], host: &mut Host) -> Result<(), CniError> {
    if flows.is_empty() {
        return Ok(());
    }
    let nft = host.nft()?;
    flows.iter().try_for_each(|flows| nft.forget(flows)).map_err(internal)
}

fn lasting(ports: &[HostPort]) -> impl Iterator<Item = HostPort> {
    ports.iter().copied().filter(|port| port.protocol != Protocol::Tcp)
}

fn flows(port: &HostPort) -> Flows {
    let to = port.to.ip();
    let protocol = port.protocol.number();
    Flows { family: Family::of(to), protocol, port: port.port, destination: port.at, answered_by: Some(to) }
}
