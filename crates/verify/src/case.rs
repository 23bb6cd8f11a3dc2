//! What a network must do: a table of cases. Each is data: who asks whom, by what, and what is expected in each family.

use std::fmt;

use serde::{Deserialize, Serialize};

mod table;

pub use table::CASES;

/// One case.
#[derive(Debug, PartialEq, Eq)]
pub struct Case {
    /// `1` to `56`: its number in the connectivity matrix (kubernetes/community#692). `model-1` and so on: a rule of the network model.
    /// `network-1` and so on: of each network that pods have.
    pub id: &'static str,
    /// The document's words.
    pub words: &'static str,
    /// Who asks.
    pub from: Client,
    /// Who is asked.
    pub to: Target,
    /// Why IPv4 cannot have it, if so.
    pub not_ipv4: Option<&'static str>,
    /// Why IPv6 cannot have it, if so.
    pub not_ipv6: Option<&'static str>,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A pod.
    Pod,
    /// A node.
    Node,
    /// Somebody outside of the cluster.
    Public,
}

/// Where something is, seen from who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On the same node.
    SameNode,
    /// On another one.
    OtherNode,
}

/// Whose a port or a Service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOwner {
    /// Of the pod that asks.
    Itself,
    /// Of another pod.
    Another,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A pod.
    Pod(On),
    /// A node.
    Node(On),
    /// A port that a pod publishes on a node.
    HostPort(On, ServiceOwner),
    /// A host outside of the cluster.
    Internet,
    /// The provider's metadata service.
    Metadata,
    /// A Service.
    Service(Service),
    /// A rule of the network model.
    Model(Rule),
    /// Another pod of a network.
    Network(Quality),
    /// Another pod, at full speed: one of the two has a limit.
    Bandwidth(Limited),
}

/// What a pod with a limit of its bandwidth does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// It receives (`kubernetes.io/ingress-bandwidth`).
    Receives,
    /// It sends (`kubernetes.io/egress-bandwidth`).
    Sends,
}

/// A Service as a client meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// What is asked.
    pub by: By,
    /// Whose it is, seen from a pod that asks.
    pub of: ServiceOwner,
    /// Where its backend is; `None`: the node alone decides (policy Local), or the proxy.
    pub backend: Option<Backend>,
    /// The Service's port is another one than the backend's.
    pub remaps: bool,
    /// `externalTrafficPolicy: Local`
    pub is_local: bool,
}

/// By what a Service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Its cluster IP.
    ClusterIp,
    /// A port of a node.
    NodePort(On),
    /// A load balancer outside.
    LoadBalancer,
}

/// Where a backend is, seen from who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// It is who asks: the packet turns round (hairpin).
    Itself,
    /// Another pod.
    Pod(On),
    /// No pod: an EndpointSlice that somebody has written.
    Manual,
}

/// A rule of Kubernetes' network model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Pods reach pods without address translation.
    PodsWithPods,
    /// Nodes reach pods, and pods nodes, without address translation.
    NodesWithPods,
    /// A pod has the address that others see.
    OneAddress,
}

/// What a network of pods must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Its pods reach each other.
    Reach(On),
    /// A packet of exactly the MTU passes.
    FitsMtu,
    /// One byte more does not.
    ExceedsMtu,
    /// Pods that it keeps apart do not reach each other.
    Isolation,
}

/// What must be there for a case, beyond nodes and pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// kube-proxy, or what takes its place.
    ServiceProxy,
    /// A load balancer.
    LoadBalancer,
    /// A client outside of the cluster.
    PublicClient,
    /// A host outside of the cluster that answers.
    Internet,
    /// A metadata service.
    Metadata,
}

// === impl Case ===

impl Case {
    /// What must be there for it.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = match self.to {
            Target::Internet => vec![Need::Internet],
            Target::Metadata => vec![Need::Metadata],
            Target::Service(Service { by: By::LoadBalancer, .. }) => vec![Need::ServiceProxy, Need::LoadBalancer],
            Target::Service(_) => vec![Need::ServiceProxy],
            _ => Vec::new(),
        };
        if self.from == Client::Public {
            needs.push(Need::PublicClient);
        }
        needs
    }

    /// Whether a node also asks its own loopback address. kube-proxy serves node ports there over IPv4 in mode iptables alone, and over IPv6 in none.
    pub fn asks_loopback(&self) -> bool {
        let is_meant = |service: Service| service.by == By::NodePort(On::SameNode) && !service.is_local;
        self.from == Client::Node && matches!(self.to, Target::Service(service) if is_meant(service))
    }

    /// Why a family cannot have it, if so.
    pub fn impossible(&self, is_ipv4: bool) -> Option<&'static str> {
        if is_ipv4 { self.not_ipv4 } else { self.not_ipv6 }
    }
}

// === impl Limited ===

impl Limited {
    /// What the pod at the other end does.
    pub(crate) fn other(self) -> Self {
        match self {
            Limited::Receives => Limited::Sends,
            Limited::Sends => Limited::Receives,
        }
    }
}

// === impl Protocol ===

impl Protocol {
    /// Its number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        })
    }
}

// === impl Need ===

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::ServiceProxy => "a service proxy",
            Need::LoadBalancer => "a load balancer",
            Need::PublicClient => "a client outside of the cluster",
            Need::Internet => "a host outside of the cluster",
            Need::Metadata => "a metadata service",
        })
    }
}
