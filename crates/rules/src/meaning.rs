//! What elements mean, for whoever shows what is installed.

use std::net::IpAddr;

use cni::Mac;
use ipnet::IpNet;
use linux::nft::{Count, ReadError, SetElement, Socket};

use crate::part::PARTS;
use crate::{Firewall, HostPort, OwnerKey, Policy, all, firewall, hostports, ingress, masquerade, reverse, source, spoof};

/// What an element does for its attachment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Meaning {
    /// What comes for a port of the host goes to the container.
    HostPort(HostPort),
    /// Who connects through a host port from this network or from 127.0.0.0/8, or (`None`) from anywhere, is seen by this
    /// address as the host.
    Rewrite {
        /// The container's address.
        address: IpAddr,
        /// Its network.
        from: Option<IpNet>,
    },
    /// What this address sends to anywhere but its own network leaves with the host's address.
    Masquerade {
        /// The container's address.
        address: IpAddr,
        /// Its network.
        network: IpNet,
    },
    /// What this address sends, and the answers, pass where the host's filter drops.
    Forwarded {
        /// The container's address.
        address: IpAddr,
    },
    /// As above, by another firewall, which was told.
    Delegated {
        /// The container's address.
        address: IpAddr,
        /// Who was told.
        firewall: Firewall,
    },
    /// Packets from bridges with a policy reach this address only as the policy says.
    Policed {
        /// The container's address.
        address: IpAddr,
        /// What it says.
        policy: Policy,
        /// The container's bridge.
        bridge: String,
    },
    /// What this port of a bridge sends from another hardware address is dropped.
    SpoofGuard {
        /// The host's end of the container's pair.
        port: String,
        /// The hardware address that it may send with; `None`: none, which somebody has removed.
        mac: Option<Mac>,
        /// What was dropped so far.
        dropped: Count,
    },
    /// What this port of a bridge sends from another IP address is dropped.
    StrictSource {
        /// The host's end of the container's pair.
        port: String,
        /// The addresses that it may send with, in order; none where somebody has removed them.
        addresses: Vec<IpAddr>,
        /// What was dropped so far.
        dropped: Count,
    },
    /// What comes to the host by this link has an address to which the host's routes lead over it.
    ReversePath {
        /// The host's end of the container's pair.
        link: String,
    },
}

/// What all attachments have in this namespace, and whose it is, in order. Nothing installed is nothing found; elements that
/// somebody added by hand are left out.
///
/// # Errors
/// [`ReadError`]
pub fn meanings(socket: &mut Socket) -> Result<Vec<(OwnerKey, Meaning)>, ReadError> {
    let mut found = Vec::new();
    for part in PARTS {
        let meant = all(socket, part)?.into_iter().filter_map(|(owner, element)| Some((owner, Meaning::of(&element)?)));
        found.extend(meant);
    }
    found.extend(spoof::meanings(socket)?);
    found.extend(source::meanings(socket)?);
    found.sort();
    Ok(found)
}

// === impl Meaning ===

impl Meaning {
    /// Of an element that says all of it; those of a guard say it together.
    pub fn of(element: &SetElement) -> Option<Self> {
        let rewritten = || hostports::rewritten(element).map(|(address, from)| Meaning::Rewrite { address, from });
        let masqueraded = || masquerade::masqueraded(element).map(|(address, network)| Meaning::Masquerade { address, network });
        let forwarded = || firewall::forwarded_of(element).map(|address| Meaning::Forwarded { address });
        let told = || firewall::delegated_of(element).map(|(address, firewall)| Meaning::Delegated { address, firewall });
        let policed = || {
            let (address, policy, bridge) = ingress::policed_of(element)?;
            Some(Meaning::Policed { address, policy, bridge: bridge.to_owned() })
        };
        let checked = || reverse::checked_link(element).map(|link| Meaning::ReversePath { link });
        let port = HostPort::of(element).map(Meaning::HostPort);
        port.or_else(rewritten).or_else(masqueraded).or_else(forwarded).or_else(told).or_else(policed).or_else(checked)
    }
}
