//! Who is there: nodes, pods, and their networks. What a plan is made from.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::case::{Limited, Need, Protocol};
use crate::network::is_link_local;
use crate::snapshot::Place;

/// A lab, or a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Its nodes.
    pub nodes: Vec<SiteNode>,
    /// Its pods that are attached.
    pub pods: Vec<SitePod>,
    /// Interfaces of pods with a limit of their bandwidth that is to be tried. Their pods need not be among `pods`.
    #[serde(default)]
    pub limited: Vec<LimitedPod>,
    /// Hosts outside, each with what it serves as.
    pub outside: Vec<Outside>,
    /// What it lacks, and why.
    pub lacks: Vec<(Need, String)>,
    /// Protocols of published ports for which the kernel has no sockets.
    #[serde(default)]
    pub unsupported: Vec<Protocol>,
    /// Services that lead to its pods.
    #[serde(default)]
    pub services: Vec<SiteService>,
    /// Whether the service proxies serve node ports at 127.0.0.1; `None`: not known.
    #[serde(default)]
    pub loopback_node_ports: Option<bool>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteService {
    /// Its name.
    pub name: String,
    /// Who answers there.
    pub backends: Vec<Place>,
    /// A person has written its endpoints.
    pub is_manual: bool,
    /// `externalTrafficPolicy: Local`
    pub is_local: bool,
    /// Its addresses in the cluster.
    pub cluster_ips: Vec<IpAddr>,
    /// Its addresses at the load balancer.
    pub balancer_ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Of which protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// Its number on nodes.
    pub node_port: Option<u16>,
    /// Whether its number is another one than the backends'.
    pub remaps: bool,
}

/// A host outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// As what it serves: internet, metadata service, public client or load balancer.
    pub role: Need,
    /// Where it is: what answers there has this name.
    pub place: Place,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// As whom nodes have seen it, where that was tried: somebody on its way may rewrite its address.
    #[serde(default)]
    pub seen_as: Vec<IpAddr>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteNode {
    /// Its name.
    pub name: String,
    /// Its addresses, as its Node object has them.
    pub addresses: Vec<IpAddr>,
    /// Every address that its own packets may have.
    pub sources: Vec<IpAddr>,
    /// The nodes whose pods of a family (`true`: IPv4) it reaches through a tunnel. They see its own address where one of its pods asks them.
    pub tunnels: Vec<(String, bool)>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitePod {
    /// `NAMESPACE/NAME`
    pub name: String,
    /// Its node's name.
    pub node: String,
    /// Its networks, the default one first.
    pub attachments: Vec<Attachment>,
    /// What it publishes.
    pub ports: Vec<Publication>,
}

/// An interface of a pod with a limit of its bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedPod {
    /// `NAMESPACE/NAME`
    pub name: String,
    /// Its node's name.
    pub node: String,
    /// The network; `None`: the default one.
    #[serde(default)]
    pub network: Option<String>,
    /// Its addresses there.
    pub addresses: Vec<IpAddr>,
    /// How fast it may be.
    #[serde(default)]
    pub limits: Limits,
}

/// How fast an interface of a pod may be, in bits per second; `None`: there is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// What it receives.
    pub receives: Option<u64>,
    /// What it sends.
    pub sends: Option<u64>,
}

/// One interface of a pod on one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// Whether it is the pod's default network.
    pub is_default: bool,
    /// The addresses on it.
    pub addresses: Vec<IpAddr>,
    /// Bytes in a packet that it was made for; `None`: not known. The link may have another one now.
    pub mtu: Option<u32>,
    /// Whom it reaches.
    pub reach: Reach,
    /// The zone that its network's link does not leave: pods of other zones are not on that link. `None`: it is the same link on all nodes.
    #[serde(default)]
    pub zone: Option<String>,
}

/// Which other pods of a network a pod reaches on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// All.
    Everywhere,
    /// Those on its node.
    SameNode,
    /// Those on other nodes. On its own the switch outside decides.
    OtherNode,
    /// Nobody on its node: the network keeps pods apart.
    Nobody,
    /// That is not known.
    Unknown,
}

/// A port of a pod that is published on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// Of which protocol.
    pub protocol: Protocol,
    /// The node's address; `None`: all.
    pub at: Option<IpAddr>,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub pod_port: u16,
}

// === impl Site ===

impl Site {
    /// The pods of a node.
    pub fn pods_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a SitePod> + Clone {
        self.pods.iter().filter(move |pod| pod.node == node)
    }

    /// The host outside that serves as something.
    pub fn outside(&self, role: Need) -> Option<&Outside> {
        self.outside.iter().find(|outside| outside.role == role)
    }

    /// The families that anybody has.
    pub fn families(&self) -> impl Iterator<Item = bool> + '_ {
        [true, false].into_iter().filter(|is_ipv4| {
            let of_pods = self.pods.iter().flat_map(|pod| &pod.attachments).flat_map(|attachment| &attachment.addresses);
            of_pods.chain(self.nodes.iter().flat_map(|node| &node.addresses)).any(|address| address.is_ipv4() == *is_ipv4)
        })
    }
}

// === impl Outside ===

impl Outside {
    /// Its address of a family.
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        of_family(&self.addresses, is_ipv4)
    }

    /// The address of a family that its packets arrive with.
    pub fn source(&self, is_ipv4: bool) -> Option<IpAddr> {
        of_family(&self.seen_as, is_ipv4).or_else(|| self.address(is_ipv4))
    }

    /// As whom it may be seen in a family: as nodes have seen it, else with an address of its own.
    pub fn sources(&self, is_ipv4: bool) -> Vec<IpAddr> {
        let of_family = |all: &[IpAddr]| all.iter().copied().filter(|address| address.is_ipv4() == is_ipv4).collect::<Vec<_>>();
        let seen = of_family(&self.seen_as);
        if seen.is_empty() { of_family(&self.addresses) } else { seen }
    }
}

// === impl SiteNode ===

impl SiteNode {
    /// Its place.
    pub fn place(&self) -> Place {
        Place::Node(self.name.clone())
    }

    /// Its address of a family.
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        of_family(&self.addresses, is_ipv4)
    }

    /// The addresses of a family with which others may see its packets.
    pub fn sources_seen(&self, is_ipv4: bool) -> Vec<IpAddr> {
        let is_seen = |address: &&IpAddr| address.is_ipv4() == is_ipv4 && !address.is_loopback() && !is_link_local(**address);
        self.sources.iter().filter(is_seen).copied().collect()
    }
}

// === impl SitePod ===

impl SitePod {
    /// Its place.
    pub fn place(&self) -> Place {
        Place::Pod(self.name.clone())
    }

    /// Its address of a family on the default network.
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        self.attachments.iter().find(|attachment| attachment.is_default).and_then(|attachment| attachment.address(is_ipv4))
    }
}

// === impl LimitedPod ===

impl LimitedPod {
    /// Its place.
    pub fn place(&self) -> Place {
        Place::Pod(self.name.clone())
    }

    /// Its address of a family.
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        of_family(&self.addresses, is_ipv4)
    }
}

// === impl Limits ===

impl Limits {
    /// That of one direction.
    pub(crate) fn of(self, limited: Limited) -> Option<u64> {
        match limited {
            Limited::Receives => self.receives,
            Limited::Sends => self.sends,
        }
    }
}

// === impl Attachment ===

impl Attachment {
    /// Its address of a family.
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        of_family(&self.addresses, is_ipv4)
    }
}

fn of_family(addresses: &[IpAddr], is_ipv4: bool) -> Option<IpAddr> {
    addresses.iter().find(|address| address.is_ipv4() == is_ipv4).copied()
}
