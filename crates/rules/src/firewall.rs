//! Forwarding, for `firewall`: what an attachment's addresses send and receive is let through where the host's own filter would
//! drop it.
//!
//! ```text
//! map forwarded4 { type ipv4_addr : verdict;                             an element an address, and the same for IPv6
//!     elements = { 10.88.0.5 comment "lab/pod-1/eth0" : jump forwarded } }
//!
//! chain forwarded   { meta mark set meta mark or 0x1000 }
//! chain forward     { type filter hook forward priority filter - 5;
//!     meta mark and 0x1000 != 0 meta mark set meta mark and not 0x1000
//!     ip saddr vmap @forwarded4
//!     ct state established,related ip daddr vmap @forwarded4 }
//! chain forward-end { type filter hook forward priority filter + 20;
//!     meta mark and 0x1000 != 0 meta mark set meta mark and not 0x1000 }
//! ```
//!
//! **Why a mark.** Each base chain decides for itself: to accept a packet in one does not keep the next from dropping it. So the
//! chain `forward` only marks what is to pass, and the host's filter accepts what is marked, in one rule that never changes
//! (module `gate` puts it into iptables' FORWARD). Behind it, before anybody who routes or queues by marks sees the packet, the
//! mark is taken off. It is taken off first as well: who marks packets for purposes of his own may use the same bit, and would let
//! them pass the host's filter.
//!
//! **What is let through** is what the reference plugin's rules let through: whatever comes from the address, and to it what
//! belongs to a connection, or to its errors.
//!
//! **Addresses that another firewall was told** (`told4`, `told6`) are noted here too, so that a DEL or a GC that is told
//! nothing knows what to take back, and from whom. No packet meets these maps: the chain `told` is called by none, and only
//! keeps them from being deleted.

use std::net::IpAddr;

use cni::AttachmentId;
use linux::nft::{Base, Cmp, Ct, Data, Element, Expr, Family, Field, Meta, Reg, SetElement};

use crate::ingress::POLICED;
use crate::part::{Fixed, Map, Rules, Subject, To, filter};
use crate::phrase::{address, connection, is_ipv4, is_ipv6, octets};
use crate::{OwnerKey, TABLE};

/// The bit of a packet's mark that says: this is for a container, or from one. Only between the chains `forward` and
/// `forward-end`.
///
/// Others' bits: kube-proxy 0x4000 and 0x8000, the reference `portmap` 0x2000, Calico 0xffff0000, Cilium 0x0f00 and (with
/// identities) 0xffff00ff, AWS 0x80, Istio 0x539, OVN-Kubernetes 0x3f0.
pub const FORWARD_MARK: u32 = 0x1000;

const FORWARDED4: &str = "forwarded4";
const FORWARDED6: &str = "forwarded6";
const TOLD4: &str = "told4";
const TOLD6: &str = "told6";
/// Where the elements lead to.
const MARKING: &str = "forwarded";
const TOLD_IPTABLES: &str = "told-iptables";
const TOLD_ZONE: &str = "told-firewalld-";

/// What forwarding needs of the table.
pub static FORWARDED: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: FORWARDED4, key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: FORWARDED6, key: &[Field::Ipv6Addr], to: To::Chain, held: false },
    ],
    chains: &[
        Fixed { name: MARKING, base: None, rules: || vec![marked(FORWARD_MARK)] },
        Fixed { name: "forward", base: Some(filter(Base::FILTER - 5)), rules: forward },
        Fixed { name: "forward-end", base: Some(filter(Base::FILTER + 20)), rules: unmark },
    ],
    former: &[],
    target: |_| None,
    companion: |_| None,
};

/// Notes of what other firewalls were told.
pub static DELEGATED: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: TOLD4, key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: TOLD6, key: &[Field::Ipv6Addr], to: To::Chain, held: false },
    ],
    chains: &[Fixed { name: "told", base: None, rules: || sources(TOLD4, TOLD6) }],
    former: &[],
    target: |chain| Firewall::of_chain(chain).map(|_| Vec::new()),
    companion: |_| None,
};

/// Another program's firewall that an address was told to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Firewall {
    /// iptables' chain CNI-FORWARD.
    Iptables,
    /// firewalld, as a source of this zone.
    Firewalld {
        /// The zone.
        zone: String,
    },
}

/// The elements that let these addresses through. Pure: add them with [`install_and_add`](crate::install_and_add).
#[must_use]
pub fn forwarded(owner: &AttachmentId, addresses: &[IpAddr]) -> Vec<SetElement> {
    addresses.iter().map(|a| jump(owner, [FORWARDED4, FORWARDED6], *a, MARKING.to_owned())).collect()
}

/// The elements that note to which firewall these addresses are told. Pure, as above.
#[must_use]
pub fn delegated(owner: &AttachmentId, addresses: &[IpAddr], firewall: &Firewall) -> Vec<SetElement> {
    addresses.iter().map(|a| jump(owner, [TOLD4, TOLD6], *a, firewall.chain())).collect()
}

/// Where elements of these addresses are, if there are any, of [`forwarded`], [`delegated`] and [`policed`](crate::policed): to be looked
/// up, as what they lead to is not said.
#[must_use]
pub fn places(owner: &AttachmentId, addresses: &[IpAddr]) -> Vec<SetElement> {
    let maps = [[FORWARDED4, FORWARDED6], [TOLD4, TOLD6], POLICED];
    addresses.iter().flat_map(|a| maps.map(|maps| element(owner, maps, *a, None))).collect()
}

/// The address that an element of [`delegated`] notes, and who was told; `None` for any other element.
#[must_use]
pub fn delegated_of(element: &SetElement) -> Option<(IpAddr, Firewall)> {
    let Some(Data::Jump(chain)) = &element.element.data else { return None };
    Some((address(&element.element.key)?, Firewall::of_chain(chain)?))
}

/// The address that an element of [`forwarded`] lets through; `None` for any other element.
pub(crate) fn forwarded_of(element: &SetElement) -> Option<IpAddr> {
    match &element.element.data {
        Some(Data::Jump(chain)) if chain == MARKING => address(&element.element.key),
        _ => None,
    }
}

/// An element of one of two maps, of an address: `ADDRESS : jump CHAIN`.
pub(crate) fn jump(owner: &AttachmentId, maps: [&str; 2], address: IpAddr, chain: String) -> SetElement {
    element(owner, maps, address, Some(Data::Jump(chain)))
}

fn element(owner: &AttachmentId, [v4, v6]: [&str; 2], address: IpAddr, data: Option<Data>) -> SetElement {
    let comment = Some(OwnerKey::of(owner).as_str().to_owned());
    let element = Element { key: octets(address), key_end: None, data, comment, note: None };
    let set = if address.is_ipv4() { v4 } else { v6 };
    SetElement { family: Family::Inet, table: TABLE.to_owned(), set: set.to_owned(), element }
}

// === impl Firewall ===

impl Firewall {
    fn chain(&self) -> String {
        match self {
            Firewall::Iptables => TOLD_IPTABLES.to_owned(),
            Firewall::Firewalld { zone } => format!("{TOLD_ZONE}{zone}"),
        }
    }

    fn of_chain(chain: &str) -> Option<Self> {
        if chain == TOLD_IPTABLES {
            return Some(Firewall::Iptables);
        }
        let zone = chain.strip_prefix(TOLD_ZONE).filter(|zone| !zone.is_empty())?;
        Some(Firewall::Firewalld { zone: zone.to_owned() })
    }
}

// --- rules ---

/// `ip saddr vmap @MAP4`, and for IPv6.
fn sources(v4: &str, v6: &str) -> Rules {
    look_up([Expr::ip_saddr(Reg::FIRST), Expr::ip6_saddr(Reg::FIRST)], v4, v6)
}

/// `ip daddr vmap @MAP4`, and for IPv6.
pub(crate) fn destinations(v4: &str, v6: &str) -> Rules {
    look_up([Expr::ip_daddr(Reg::FIRST), Expr::ip6_daddr(Reg::FIRST)], v4, v6)
}

fn look_up([load4, load6]: [Expr; 2], v4: &str, v6: &str) -> Rules {
    let vmap = |map: &str| Expr::VerdictMap { reg: Reg::FIRST, map: map.to_owned() };
    vec![[is_ipv4().as_slice(), &[load4, vmap(v4)]].concat(), [is_ipv6().as_slice(), &[load6, vmap(v6)]].concat()]
}

fn forward() -> Rules {
    let mut rules = unmark();
    rules.extend(sources(FORWARDED4, FORWARDED6));
    let belongs = connection(Ct::State, Ct::ESTABLISHED | Ct::RELATED, Cmp::NotEqual);
    rules.extend(destinations(FORWARDED4, FORWARDED6).into_iter().map(|rule| [belongs.as_slice(), &rule].concat()));
    rules
}

/// `meta mark set meta mark and not BIT or SET`
fn marked(set: u32) -> Vec<Expr> {
    let reg = Reg::FIRST;
    vec![Expr::Meta { key: Meta::Mark, into: reg }, Expr::Bits { reg, keep: !FORWARD_MARK, set }, Expr::SetMark(reg)]
}

/// `meta mark and BIT != 0 meta mark set meta mark and not BIT`
fn unmark() -> Rules {
    let reg = Reg::FIRST;
    let mut rule = vec![
        Expr::Meta { key: Meta::Mark, into: reg },
        Expr::Bits { reg, keep: FORWARD_MARK, set: 0 },
        Expr::Cmp { reg, how: Cmp::NotEqual, value: vec![0; 4] },
    ];
    rule.extend(marked(0));
    vec![rule]
}
