//! What was observed of a network: its namespaces at one moment, as plain data.
//!
//! `agent::observe` writes it, the walk reads it, and a file of it is explained as a running network is. A key that an older file lacks has its
//! default; a file of a later version is refused.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use cni::Mac;
use ipnet::IpNet;
use linux::nft::ListedTable;
use serde::{Deserialize, Serialize};

use crate::site::{LimitedPod, Site, SitePod};

/// The version of a snapshot's form. It grows when a reader of before would misunderstand what is written.
const VERSION: u32 = 2;

/// The routing table of what stays in a namespace (`RT_TABLE_LOCAL`).
pub(crate) const LOCAL: u32 = 255;

/// A network at one moment: every namespace that packets may pass. As JSON, it is the file that `netloom verify --from` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of its form.
    pub version: u32,
    /// When it was taken (RFC 3339); empty: not known.
    #[serde(default)]
    pub taken: String,
    /// Who was there: what a plan of probes is made from.
    #[serde(default)]
    pub site: Option<Site>,
    /// Nodes, pods, and what stands for the physical network.
    pub namespaces: Vec<Namespace>,
    /// The namespaces that are there and could not be observed.
    #[serde(default)]
    pub unobserved: Vec<Unobserved>,
}

/// A namespace that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unobserved {
    /// Which one.
    pub place: Place,
    /// Why.
    pub why: String,
}

/// A text is not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is not JSON, or not of this form; the message has line and column.
    Malformed(String),
    /// A later version has written it.
    Later(u32),
}

/// Where something is. Written `node/NAME`, `pod/NAMESPACE/NAME`, `outside/NAME`, `underlay`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Place {
    /// A node's own namespace.
    Node(String),
    /// A pod's namespace, `NAMESPACE/NAME`.
    Pod(String),
    /// A host outside of the cluster, by the name that its user gave it: `internet`, say. It may be observed or not.
    Outside(String),
    /// What is between nodes: a lab's wires, and the router between its zones.
    Underlay,
}

/// A text that names no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPlace(pub String);

/// What one network namespace had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    /// Whose it is.
    pub place: Place,
    /// Of a pod: the node that it is on.
    #[serde(default)]
    pub node: Option<String>,
    /// Its links.
    pub links: Vec<Link>,
    /// Its routes, of every table.
    pub routes: Vec<Route>,
    /// Its rules of policy routing, in the order in which they are asked.
    pub rules: Vec<Rule>,
    /// Whether it forwards IPv6 packets (`net.ipv6.conf.all.forwarding`).
    pub forwards_ipv6: bool,
    /// The hop limit of its IPv4 packets (`net.ipv4.ip_default_ttl`); 0: not known.
    #[serde(default)]
    pub ttl: u8,
    /// Its nftables.
    pub tables: Vec<ListedTable>,
    /// What could not be read, and why.
    #[serde(default)]
    pub unread: Vec<String>,
    /// Of a node: whether its agent listens for calls; `None`: that was not tried.
    #[serde(default)]
    pub agent: Option<bool>,
    /// Of a node: its kernel's tables of neighbours that have been full.
    #[serde(default)]
    pub full_tables: Vec<FullTable>,
}

/// A kernel's table of the neighbours of one family, of all its namespaces, which had no room for some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullTable {
    /// Of which family.
    pub is_ipv4: bool,
    /// How many neighbours it has.
    pub entries: u32,
    /// How many it may have (`gc_thresh3`).
    pub most: u32,
    /// For how many there was no room, since the kernel has started.
    pub refused: u64,
    /// Milliseconds since old ones were last removed to make room.
    pub cleared: u64,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What made it: `veth`, `bridge`, `vxlan`, ...; empty for hardware and `lo`.
    #[serde(default)]
    pub kind: String,
    /// Its hardware address.
    pub mac: Option<Mac>,
    /// Bytes in a packet.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// The bridge, bond or VRF that it belongs to.
    #[serde(default)]
    pub master: Option<u32>,
    /// A veth's other end, or the link that a macvlan, ipvlan or vlan stands on, where it was found.
    #[serde(default)]
    pub other: Option<End>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// The number of a vlan.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Macvlans in this mode do not reach each other on one link.
    #[serde(default)]
    pub private: bool,
    /// What macvlans in this mode send to each other on one link goes out to the switch, which must send it back.
    #[serde(default)]
    pub vepa: bool,
    /// What a vxlan is made with.
    #[serde(default)]
    pub tunnel: Option<Tunnel>,
    /// What it is as a bridge's port.
    #[serde(default)]
    pub port: Option<BridgePort>,
    /// Who is behind which hardware address, as far as it is known.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
    /// Of a bridge: behind which port an address was seen. Of a vxlan: behind which endpoint it is.
    #[serde(default)]
    pub fdb: Vec<FdbEntry>,
    /// Whether IPv4 packets that come by it are forwarded (`net.ipv4.conf.LINK.forwarding`).
    #[serde(default)]
    pub forwards_ipv4: bool,
    /// The reverse path filter that applies to it: 0 off, 1 strict, 2 loose.
    #[serde(default)]
    pub rp_filter: u8,
    /// Whether IPv6 is switched off on it.
    #[serde(default)]
    pub ipv6_disabled: bool,
    /// The hop limit of IPv6 packets that leave by it (`net.ipv6.conf.LINK.hop_limit`); 0: not known.
    #[serde(default)]
    pub hop_limit: u8,
    /// Of a bridge: frames pass only where both ports belong to their VLAN (`vlan_filtering`).
    #[serde(default)]
    pub filters_vlans: bool,
    /// Of a bridge and of its ports: the VLANs that they belong to.
    #[serde(default)]
    pub vlans: Vec<PortVlan>,
    /// Of a bridge: IPv4 packets that it passes from port to port meet the router's rules as well (br_netfilter).
    #[serde(default)]
    pub filters_ipv4: bool,
    /// The same of IPv6.
    #[serde(default)]
    pub filters_ipv6: bool,
    /// It asks for no hardware addresses, and answers to no such question (`arp off`).
    #[serde(default)]
    pub no_arp: bool,
    /// What somebody has put where its packets leave or come in (`tc qdisc`).
    #[serde(default)]
    pub qdiscs: Vec<QueueDiscipline>,
}

/// A queueing discipline that is not the kernel's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDiscipline {
    /// `tbf`, `htb`, `ingress`, `clsact`, ...
    pub kind: String,
    /// Packets that it has dropped.
    #[serde(default)]
    pub dropped: u64,
    /// How many of them since an earlier look; `None`: there was none.
    #[serde(default)]
    pub grown: Option<u64>,
}

/// A link of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The namespace.
    pub place: Place,
    /// The link's number there.
    pub index: u32,
}

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address, and the length of its network's prefix.
    pub net: IpNet,
    /// Whether it can be used: duplicate address detection has not failed and is done.
    pub usable: bool,
}

/// A vxlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The network's number.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The address that its packets come from.
    pub local: Option<IpAddr>,
    /// Where frames go for which there is no entry.
    pub remote: Option<IpAddr>,
}

/// A link as a bridge's port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgePort {
    /// `forwarding`, `disabled`, `blocking`, ...
    pub state: String,
    /// It talks only to ports that are not isolated.
    pub isolated: bool,
    /// It takes frames only of hardware addresses that the bridge has seen or been told behind it.
    #[serde(default)]
    pub locked: bool,
    /// It gets no frames for hardware addresses that the bridge does not know (`flood off`).
    #[serde(default)]
    pub no_flood: bool,
    /// It gets no broadcast (`bcast_flood off`).
    #[serde(default)]
    pub no_broadcast: bool,
}

/// VLANs in a row that a port of a bridge belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortVlan {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// What comes in without a tag belongs to it.
    #[serde(default)]
    pub pvid: bool,
    /// What goes out has no tag.
    #[serde(default)]
    pub untagged: bool,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address; `None`: it did not answer.
    pub mac: Option<Mac>,
    /// A program has written it, and it is never asked for.
    pub permanent: bool,
}

/// An entry of a forwarding database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// For whom frames are; all zeros: for everybody else.
    pub mac: Mac,
    /// Of a bridge: the port's number.
    #[serde(default)]
    pub port: Option<u32>,
    /// Of a vxlan: the endpoint.
    #[serde(default)]
    pub endpoint: Option<IpAddr>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where it leads.
    pub to: IpNet,
    /// Its ways: gateway and link. Packets of one connection take one of them.
    pub ways: Vec<(Option<IpAddr>, Option<u32>)>,
    /// Its table.
    pub table: u32,
    /// The lowest wins.
    pub metric: u32,
    /// What happens to packets.
    pub kind: RouteKind,
    /// Of packets from where; `None`: of all.
    #[serde(default)]
    pub from: Option<IpNet>,
    /// The source of packets that have none yet.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// Bytes in a packet.
    #[serde(default)]
    pub mtu: Option<u32>,
}

/// What happens to packets for which a route is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// They are sent on.
    Unicast,
    /// They are for this namespace.
    Local,
    /// They are for everybody on the link.
    Broadcast,
    /// They vanish.
    Blackhole,
    /// The sender is told that there is no way.
    Unreachable,
    /// The sender is told that it is forbidden.
    Prohibit,
    /// Something else.
    Other,
}

/// A rule of policy routing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The lowest is asked first.
    pub priority: u32,
    /// Of packets of IPv4.
    pub is_ipv4: bool,
    /// Their source.
    #[serde(default)]
    pub from: Option<IpNet>,
    /// Their destination.
    #[serde(default)]
    pub to: Option<IpNet>,
    /// The link that they came by; `lo`: the namespace's own.
    #[serde(default)]
    pub iif: Option<String>,
    /// The link that their socket is bound to.
    #[serde(default)]
    pub oif: Option<String>,
    /// The mark that they have, in the bits of a mask.
    #[serde(default)]
    pub mark: Option<(u32, u32)>,
    /// Of the table's answers, those with a prefix of at most this length do not count.
    #[serde(default)]
    pub suppress: Option<u32>,
    /// The table that is asked; `None`: they are refused.
    pub table: Option<u32>,
    /// It is for the packets for which its conditions do not hold, and all of them were understood (`not`).
    #[serde(default)]
    pub negated: bool,
    /// It has conditions that were not understood: it is passed over. It is set of every rule with `not` as well, which readers of before do not
    /// understand.
    #[serde(default)]
    pub has_more: bool,
}

// === impl Snapshot ===

impl Snapshot {
    /// Notes of each rule and queueing discipline what it has counted since an earlier look.
    #[must_use]
    pub fn counted_since(mut self, earlier: &Snapshot) -> Self {
        for namespace in &mut self.namespaces {
            let Some(before) = earlier.namespaces.iter().find(|before| before.place == namespace.place) else { continue };
            for link in &mut namespace.links {
                let Some(before) = before.link(link.index) else { continue };
                for qdisc in &mut link.qdiscs {
                    let before = before.qdiscs.iter().find(|before| before.kind == qdisc.kind);
                    qdisc.grown = before.map(|before| qdisc.dropped.saturating_sub(before.dropped));
                }
            }
            for table in &mut namespace.tables {
                let same = |other: &&ListedTable| other.name == table.name && other.family == table.family;
                let Some(before) = before.tables.iter().find(same) else { continue };
                // A handle is a rule's for as long as its table is there.
                let counted = before.chains.iter().flat_map(|chain| &chain.rules).filter_map(|rule| Some((rule.handle, rule.packets?)));
                let counted: HashMap<u64, u64> = counted.collect();
                for rule in table.chains.iter_mut().flat_map(|chain| &mut chain.rules) {
                    rule.grown = rule.packets.zip(counted.get(&rule.handle)).map(|(now, before)| now.saturating_sub(*before));
                }
            }
        }
        self
    }

    /// Where a node could not be observed, neither could its pods: they are there all the same.
    pub fn leave_open(&mut self, site: &Site) {
        let pods_of = |unobserved: &Unobserved| {
            let Place::Node(node) = &unobserved.place else { return Vec::new() };
            let limited = site.limited.iter().filter(|pod| pod.node == *node).map(LimitedPod::place);
            let missing = |place| Unobserved { place, why: unobserved.why.clone() };
            site.pods_of(node).map(SitePod::place).chain(limited).map(missing).collect()
        };
        let pods: Vec<Unobserved> = self.unobserved.iter().flat_map(pods_of).collect();
        self.unobserved.extend(pods);
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot { version: VERSION, taken: String::new(), site: None, namespaces: Vec::new(), unobserved: Vec::new() }
    }
}

impl Snapshot {
    /// Reads one from its JSON.
    ///
    /// # Errors
    /// [`SnapshotError`]
    pub fn read(text: &[u8]) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let malformed = |e: serde_json::Error| SnapshotError::Malformed(e.to_string());
        let head: Head = serde_json::from_slice(text).map_err(malformed)?;
        if head.version > VERSION {
            return Err(SnapshotError::Later(head.version));
        }
        serde_json::from_slice(text).map_err(malformed)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Malformed(why) => write!(f, "not a snapshot: {why}; take one with `netloom sysdump`"),
            SnapshotError::Later(version) => {
                write!(f, "the snapshot has version {version}, this netloom reads up to {VERSION}: use the netloom that has taken it")
            }
        }
    }
}

impl std::error::Error for SnapshotError {}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Node(name) => write!(f, "node/{name}"),
            Place::Pod(name) => write!(f, "pod/{name}"),
            Place::Outside(name) => write!(f, "outside/{name}"),
            Place::Underlay => f.write_str("underlay"),
        }
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        match text.split_once('/') {
            Some(("node", name)) => Ok(Place::Node(name.to_owned())),
            Some(("pod", name)) => Ok(Place::Pod(name.to_owned())),
            Some(("outside", name)) => Ok(Place::Outside(name.to_owned())),
            None if text == "underlay" => Ok(Place::Underlay),
            _ => Err(NoPlace(text.to_owned())),
        }
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

impl TryFrom<String> for Place {
    type Error = NoPlace;

    fn try_from(text: String) -> Result<Self, NoPlace> {
        text.parse()
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a place: expected node/NAME, pod/NAMESPACE/NAME, outside/NAME or underlay", self.0)
    }
}

impl std::error::Error for NoPlace {}

// === impl Link ===

impl Link {
    /// Whether it has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.net.addr() == address)
    }

    /// The VLAN of frames without a tag, as a port of a bridge that filters.
    pub(crate) fn native(&self) -> Option<u16> {
        self.vlans.iter().find(|vlan| vlan.pvid).map(|vlan| vlan.first)
    }

    /// Whether it belongs to a VLAN, and if so whether frames leave it without a tag.
    pub(crate) fn member(&self, vlan: u16) -> Option<bool> {
        self.vlans.iter().find(|row| row.first <= vlan && vlan <= row.last).map(|row| row.untagged)
    }

    /// What is known of a neighbour.
    pub fn neighbour(&self, address: IpAddr) -> Option<&Neighbour> {
        self.neighbours.iter().find(|neighbour| neighbour.address == address)
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }
}

// === impl Rule ===

impl Rule {
    /// Whether conditions of it were not understood.
    pub(crate) fn is_odd(&self) -> bool {
        self.has_more && !self.negated
    }
}

/// As `ip rule show` has it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.priority, if self.negated { " not" } else { "" })?;
        match self.from {
            Some(from) => write!(f, " from {from}")?,
            None => f.write_str(" from all")?,
        }
        self.to.map_or(Ok(()), |to| write!(f, " to {to}"))?;
        self.iif.as_ref().map_or(Ok(()), |iif| write!(f, " iif {iif}"))?;
        self.oif.as_ref().map_or(Ok(()), |oif| write!(f, " oif {oif}"))?;
        match self.mark {
            Some((mark, u32::MAX)) => write!(f, " fwmark {mark:#x}")?,
            Some((mark, mask)) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
            None => {}
        }
        match self.table {
            Some(table) => write!(f, " lookup {table}")?,
            None => f.write_str(" refuses")?,
        }
        self.suppress.map_or(Ok(()), |length| write!(f, " suppress_prefixlength {length}"))
    }
}

// === impl Namespace ===

impl Namespace {
    /// The link of this number.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The link that has this address.
    pub fn holder(&self, address: IpAddr) -> Option<&Link> {
        self.links.iter().find(|link| link.has(address))
    }

    /// The route that keeps packets for this address here, and its link.
    pub(crate) fn kept_by(&self, address: IpAddr) -> Option<(&Route, Option<&Link>)> {
        let keeps = |route: &&Route| route.kind == RouteKind::Local && route.to.contains(&address);
        let route = self.routes.iter().filter(keeps).max_by_key(|route| route.to.prefix_len())?;
        let link = route.ways.first().and_then(|(_, link)| self.link((*link)?));
        Some((route, link))
    }

    /// Whether packets for this address stay here.
    pub fn is_local(&self, address: IpAddr) -> bool {
        // The table local says so, and may have more or fewer than the links have.
        let mut own = self.routes.iter().filter(|route| route.table == LOCAL && route.to.addr().is_ipv4() == address.is_ipv4()).peekable();
        let by_table = own.peek().is_some().then(|| own.any(|route| route.kind == RouteKind::Local && route.to.contains(&address)));
        address.is_loopback() || by_table.unwrap_or_else(|| self.holder(address).is_some_and(|link| link.up))
    }
}
