//! What can be wrong on a packet's way: a closed set, each kind with its words. `docs/use/verify.md` has a row for each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::snapshot::Place;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The namespace is gone.
    NamespaceGone,
    /// No link of the destination has the address.
    AddressMissing,
    /// The address waits for duplicate address detection, or has failed it.
    AddressUnusable,
    /// IPv6 is switched off on the link.
    Ipv6Disabled,
    /// No route leads to the destination.
    NoRoute,
    /// A pod has no default route, and no other route leads to the destination.
    NoDefaultRoute,
    /// A route or rule refuses packets to the destination.
    RouteRefuses,
    /// A route leads to a host that is not on the way to the destination.
    WrongNextHop,
    /// An address has a prefix so short that another network's addresses are looked for on the link.
    WrongPrefixLength,
    /// Two links have addresses of one network, and are not on one wire.
    WrongNetwork,
    /// Nobody on the link has the gateway's address.
    GatewayMissing,
    /// A link is set down.
    LinkDown,
    /// A link has no carrier.
    NoCarrier,
    /// A bridge's port does not pass frames on.
    BridgePortDown,
    /// A port of a bridge keeps frames out by what it is set to.
    BridgePortRestricted,
    /// A link is a port of no bridge, and has no address either.
    BridgePortMissing,
    /// Two ports of a bridge are isolated from each other.
    PortsIsolated,
    /// A port of a bridge does not belong to the frames' VLAN.
    VlanFiltered,
    /// The neighbour's hardware address is not the one that it has.
    WrongNeighbour,
    /// The neighbour is there, and does not answer.
    NeighbourSilent,
    /// The kernel has no room for the neighbour.
    NeighbourTableFull,
    /// Two links on one network have one address.
    DuplicateAddress,
    /// Two links on one network have one hardware address.
    DuplicateMac,
    /// A bridge has seen the hardware address behind another port.
    StaleBridgeEntry,
    /// The tunnel has no entry for the node.
    TunnelEntryMissing,
    /// The tunnel sends packets for the node to another endpoint.
    TunnelEntryStale,
    /// The other node has no end of the tunnel.
    TunnelMissing,
    /// A firewall drops the tunnel's own packets.
    TunnelBlocked,
    /// A packet is longer than a link on the way takes.
    MtuExceeded,
    /// The link takes longer packets than the network was made for.
    MtuDiffers,
    /// A pod receives or sends faster than its limit, or much slower.
    BandwidthDiffers,
    /// The node does not forward packets.
    ForwardingOff,
    /// A sender's packets may not be forwarded as often as they must be.
    HopLimitTooLow,
    /// The reverse path filter drops packets, as their source is not reached by the link that they came by.
    ReversePathFilter,
    /// A rule of Netloom drops the packet.
    OwnRuleDrops,
    /// A rule of another program drops packets that the node forwards.
    ForeignRuleDrops,
    /// A firewall drops what is for the node or comes from it.
    NodeFirewall,
    /// Traffic control of a link drops packets.
    TrafficControlDrops,
    /// A pod sends from another of its addresses than that of its network.
    WrongSource,
    /// Packets that leave the cluster keep the pod's address.
    MasqueradeMissing,
    /// Packets inside the cluster lose the pod's address.
    MasqueradeTooWide,
    /// The node has no rule for the published port.
    HostPortMissing,
    /// A node has no rule that leads packets for a Service to a pod.
    ServiceUnserved,
    /// kube-proxy's rule drops or rejects packets for a Service.
    ServiceRefused,
    /// A Service's rule leads to an address that none of its pods has.
    EndpointStale,
    /// The answer does not pass the node that has rewritten the request.
    ReplyPastTranslation,
    /// A rule leads the packet to another host or port than the one that it is for.
    RedirectedByRule,
    /// A node's agent does not run, and what it restores is missing or wrong.
    AgentGone,
    /// Packets go in a circle.
    RoutingLoop,
    /// The destination is reached, and nothing listens on the port.
    NothingListens,
    /// Another host answers.
    WrongHostAnswers,
    /// Packets pass where they must not.
    NotIsolated,
    /// The probe itself could not work.
    ProbeFailed,
    /// What the packet passes could not be observed.
    NotObserved,
    /// Every hop that was observed passes the packet.
    Unexplained,
}

/// Which of the two ways of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The request's.
    Request,
    /// The reply's.
    Reply,
}

/// The first place where what was observed differs from what the packet needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// In which namespace.
    pub place: Place,
    /// On which device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
    /// On which way.
    pub direction: Direction,
    /// What shows it: what was observed, and what was needed.
    pub evidence: String,
    /// What to do.
    pub next_step: String,
}

// === impl Fault ===

impl Fault {
    /// Whether a node's agent restores what is missing or wrong there, as long as it runs.
    pub(crate) fn is_restored(self) -> bool {
        matches!(
            self,
            Fault::NoRoute
                | Fault::TunnelEntryMissing
                | Fault::TunnelEntryStale
                | Fault::TunnelMissing
                | Fault::MasqueradeMissing
                | Fault::HostPortMissing
        )
    }

    /// Whether counters show more of it: a rule is named, or nothing is certain.
    pub fn is_of_rules(self) -> bool {
        matches!(
            self,
            Fault::OwnRuleDrops
                | Fault::ForeignRuleDrops
                | Fault::NodeFirewall
                | Fault::TunnelBlocked
                | Fault::TrafficControlDrops
                | Fault::ServiceRefused
                | Fault::NotObserved
                | Fault::Unexplained
        )
    }

    /// What is wrong, in a few words.
    pub fn title(self) -> &'static str {
        self.words().0
    }

    /// What to do about it on a device.
    pub(crate) fn next_step(self, device: Option<&str>) -> String {
        self.words().1.replace("{device}", device.unwrap_or("DEVICE"))
    }

    /// What is wrong, and what to do: `{device}` stands for the device.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Fault::NamespaceGone => ("the network namespace is gone", "recreate the pod"),
            Fault::AddressMissing => {
                ("the destination does not have the address", "recreate the pod, or restore the address: ip addr show")
            }
            Fault::AddressUnusable => ("the address is not usable", "find who else has the address: ip -6 addr show dev {device}"),
            Fault::Ipv6Disabled => ("IPv6 is disabled on the link", "sysctl -w net.ipv6.conf.{device}.disable_ipv6=0"),
            Fault::NoRoute => ("no route to the destination", "look for who removed it, and restore it: ip route show table all"),
            Fault::NoDefaultRoute => {
                ("the pod has no default route", "check isDefaultGateway and routes of its network, or recreate the pod")
            }
            Fault::RouteRefuses => ("a route refuses the packet", "delete the route or the rule: ip route show table all; ip rule show"),
            Fault::WrongNextHop => ("the route leads to the wrong host", "replace the route: ip route show table all"),
            Fault::WrongPrefixLength => ("an address has the wrong prefix length", "correct the prefix length: ip addr show dev {device}"),
            Fault::WrongNetwork => (
                "the link is on another network than its address",
                "move the link or the address to the right network: ip -d link show {device}; ip addr show dev {device}",
            ),
            Fault::GatewayMissing => ("nobody on the link has the gateway's address", "correct the gateway, or restore its address"),
            Fault::LinkDown => ("the link is down", "ip link set {device} up"),
            Fault::NoCarrier => ("the link has no carrier", "check the cable or the other end: ip -d link show {device}"),
            Fault::BridgePortDown => ("the bridge's port does not pass frames", "bridge link set dev {device} state 3"),
            Fault::BridgePortRestricted => {
                ("the bridge's port keeps the frames out", "set it back, if it is not intended: bridge -d link show dev {device}")
            }
            Fault::BridgePortMissing => ("the link is not a port of the bridge", "ip link set {device} master BRIDGE"),
            Fault::PortsIsolated => {
                ("the ports are isolated from each other", "bridge link set dev {device} isolated off, if it is not intended")
            }
            Fault::VlanFiltered => {
                ("the port does not belong to the VLAN", "bridge vlan add dev {device} vid VLAN, or correct vlan and vlanTrunk")
            }
            Fault::WrongNeighbour => ("the neighbour's hardware address is wrong", "ip neigh del ADDRESS dev {device}"),
            Fault::NeighbourSilent => {
                ("the neighbour does not answer", "watch its ARP or neighbour solicitations: tcpdump -ni {device} arp or icmp6")
            }
            Fault::NeighbourTableFull => (
                "the kernel's table of neighbours is full",
                "sysctl -w net.{family}.neigh.default.gc_thresh3={most} net.{family}.neigh.default.gc_thresh2={less}, outside of containers",
            ),
            Fault::DuplicateAddress => ("two hosts have the address", "remove the address from one of them"),
            Fault::DuplicateMac => {
                ("two hosts have the hardware address", "give one of them another one: ip link set {device} address MAC")
            }
            Fault::StaleBridgeEntry => ("the bridge looks for the host behind the wrong port", "bridge fdb del MAC dev {device} master"),
            Fault::TunnelEntryMissing => {
                ("the tunnel has no entry for the node", "check that the agent runs; it restores entries: netloom status")
            }
            Fault::TunnelEntryStale => {
                ("the tunnel sends to the wrong endpoint", "check that the agent runs; it restores entries: netloom status")
            }
            Fault::TunnelMissing => ("the other end of the tunnel is missing", "check that the node's agent runs: netloom status"),
            Fault::TunnelBlocked => ("a firewall drops the tunnel's packets", "allow its UDP port between the nodes"),
            Fault::MtuExceeded => ("the packet is longer than the link takes", "lower the sender's MTU, or raise that of {device}"),
            Fault::MtuDiffers => ("the link's MTU is not the network's", "set it back: ip link set {device} mtu {mtu}"),
            Fault::BandwidthDiffers => (
                "the pod's bandwidth limit does not hold",
                "check that the pod's network has the plugin bandwidth, and look at its limits on the node: tc -s qdisc show",
            ),
            Fault::ForwardingOff => {
                ("the node does not forward packets", "sysctl -w net.ipv4.conf.all.forwarding=1 net.ipv6.conf.all.forwarding=1")
            }
            Fault::HopLimitTooLow => {
                ("the sender's hop limit is too low", "sysctl -w net.ipv4.ip_default_ttl=64 net.ipv6.conf.{device}.hop_limit=64")
            }
            Fault::ReversePathFilter => {
                ("the reverse path filter drops the packet", "sysctl -w net.ipv4.conf.{device}.rp_filter=2, and the same of all")
            }
            Fault::OwnRuleDrops => ("a rule of Netloom drops the packet", "look up the rule: netloom rules"),
            Fault::ForeignRuleDrops => ("another program's rule drops the packet", "let the rule accept pods' packets"),
            Fault::NodeFirewall => ("the node's firewall drops the packet", "let the firewall accept it"),
            Fault::TrafficControlDrops => ("traffic control drops packets", "look at it, and at who has put it there"),
            Fault::WrongSource => (
                "the sender uses the wrong one of its addresses",
                "look for src in its route, and for a second address of its link: ip route get ADDRESS; ip addr show",
            ),
            Fault::MasqueradeMissing => {
                ("the pod's address is not masqueraded", "check that the agent runs; it restores rules: netloom repair")
            }
            Fault::MasqueradeTooWide => ("the pod's address is masqueraded", "exclude the pods' ranges from the rule"),
            Fault::HostPortMissing => ("the port is not published on the node", "restore the rules: netloom repair"),
            Fault::ServiceUnserved => (
                "the node does not serve the Service",
                "check that kube-proxy runs there and follows the API server: curl 127.0.0.1:10256/healthz",
            ),
            Fault::ServiceRefused => {
                ("kube-proxy refuses the packet", "check that the Service has ready endpoints: kubectl get endpointslices -A")
            }
            Fault::EndpointStale => (
                "the Service leads to an address that none of its pods has",
                "compare the rules with kubectl get endpointslices -A, and restart kube-proxy",
            ),
            Fault::ReplyPastTranslation => (
                "the answer does not pass the node that has rewritten the request",
                "lead the answer back by that node; between two pods of one bridge: sysctl -w net.bridge.bridge-nf-call-iptables=1",
            ),
            Fault::RedirectedByRule => {
                ("a rule leads the packet elsewhere", "delete the rule, or let it leave out what is for pods and nodes")
            }
            Fault::AgentGone => {
                ("the node's agent does not run", "start it, and look at its log: kubectl -n kube-system get pods -l app=netloom -o wide")
            }
            Fault::RoutingLoop => ("the packet goes in a circle", "replace the route that leads back: ip route show table all"),
            Fault::NothingListens => ("nothing listens on the port", "start the server, or correct the port"),
            Fault::WrongHostAnswers => ("another host answers", "find who has the address: ip neigh show"),
            Fault::NotIsolated => ("packets pass that must not", "check the network's isolation, and routes past it"),
            Fault::ProbeFailed => ("the probe itself could not work", "remove what keeps it from working, and repeat"),
            Fault::NotObserved => ("a part of the way could not be observed", "look there by hand, or make it observable, and repeat"),
            Fault::Unexplained => (
                "every observed hop passes the packet",
                "watch the packet along the way with tcpdump: BPF programs, IPsec, path MTUs that were learned, modes of macvlans, hop limits of \
                 tunnels and rules on ARP are not observed",
            ),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

// === impl Direction ===

impl Direction {
    /// The other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Direction::Request => Direction::Reply,
            Direction::Reply => Direction::Request,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Request => "request",
            Direction::Reply => "reply",
        })
    }
}

// === impl Finding ===

impl Finding {
    /// `node/left netloom0`
    pub fn at(&self) -> String {
        match &self.device {
            Some(device) => format!("{} {device}", self.place),
            None => self.place.to_string(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}): {}", self.at(), self.fault.title(), self.direction, self.evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind: serde lists them where it refuses another name.
    fn all() -> Vec<Fault> {
        let refusal = serde_json::from_str::<Fault>("\"\"").unwrap_err().to_string();
        let names = refusal.split('`').skip(3).step_by(2);
        names.map(|name| serde_json::from_str(&format!("{name:?}")).unwrap()).collect()
    }

    /// Each kind is documented, under the name that the command prints.
    #[test]
    fn each_fault_has_its_row_in_the_documents() {
        let page = include_str!("../../../docs/use/verify.md");
        let all = all();
        assert!(all.first() == Some(&Fault::NamespaceGone) && all.last() == Some(&Fault::Unexplained), "{all:?}");
        for fault in all {
            assert!(
                page.contains(&format!("| `{fault}` | {}", fault.title())),
                "docs/use/verify.md lacks a row: | `{fault}` | {}",
                fault.title()
            );
        }
    }
}
