//! Masquerade for a cluster's own network: what a node's pods send to somewhere outside the cluster leaves with the node's
//! address; inside, each sees a pod's own.
//!
//! ```text
//! set own4    { type ipv4_addr; flags interval;                          the ranges that this node's pods are in
//!     elements = { 10.244.3.0/24 } }
//! set inside4 { type ipv4_addr; flags interval;                          the ranges that see a pod's own address
//!     elements = { 10.244.0.0/16, 192.0.2.11, 192.0.2.12 } }
//! chain egress { type nat hook postrouting priority srcnat; policy accept;
//!     ip saddr @own4 ip daddr != @inside4 ip daddr != 224.0.0.0/4 ip daddr != 169.254.0.0/16
//!         ip daddr != 255.255.255.255 fib daddr type != local masquerade }                     and the same for IPv6
//! ```
//!
//! The meaning is that of kubenet and the kubelet's `nonMasqueradeCIDR`: from a pod, to what is neither inside nor the host itself.
//! In addition it spares what no router passes on: with `br_netfilter`, frames that a bridge forwards pass here too.
//!
//! The first packet of a connection, and no other, costs a look-up in `own4`, and if it is a pod's one in `inside4`: each the
//! logarithm of the number of ranges. A connection keeps the address that it began with.
//!
//! **The ranges belong to no attachment.** They have no owner's comment, and nobody but [`keep`] adds or takes them away: GC, DEL
//! and [`restore`](crate::restore) neither see nor read them. Flushed rules over them are put back by [`keep`] and by
//! [`repair`](crate::repair).
//!
//! With 5,000 nodes, each with two ranges and an address that join no other's, the kernel (6.18) takes 0.1 s for the first filling. For a
//! node that comes or goes it takes 10 ms to read what is there, and 3 ms to write the difference: who knows what is there has [`change`].

use std::collections::BTreeSet;

use ipnet::IpNet;
use linux::nft::{Base, Cmp, Expr, Family, Field, Hook, Range, ReadError, Reg, Socket};

use crate::hostports::{LOCAL, nat};
use crate::install::AddError;
use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::{is_ipv4, is_ipv6, within};
use crate::ranges::{self, RangeChanges, Wanted, joined};

const OWN4: &str = "own4";
const OWN6: &str = "own6";
const INSIDE4: &str = "inside4";
const INSIDE6: &str = "inside6";

/// What masquerade at the cluster's edge needs of the table.
pub static EGRESS: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: OWN4, key: &[Field::Ipv4Addr], to: To::Ranges, held: false },
        Map { name: INSIDE4, key: &[Field::Ipv4Addr], to: To::Ranges, held: false },
        Map { name: OWN6, key: &[Field::Ipv6Addr], to: To::Ranges, held: false },
        Map { name: INSIDE6, key: &[Field::Ipv6Addr], to: To::Ranges, held: false },
    ],
    chains: &[Fixed { name: "egress", base: Some(nat(Hook::Postrouting, Base::SRCNAT)), rules: masqueraded }],
    former: &[],
    target: |_| None,
    companion: |_| None,
};

/// Whose packets leave the cluster with the node's address. Ranges may overlap and come in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    /// The ranges that this node's pods have their addresses of.
    pub own: Vec<IpNet>,
    /// The ranges that see a pod's own address: every node's range and address, or those that are configured. `own` is not
    /// among them by itself.
    pub inside: Vec<IpNet>,
}

/// The same as the kernel's sets have it: ranges that do not overlap, as few as there can be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinedEgress {
    own4: BTreeSet<Range>,
    inside4: BTreeSet<Range>,
    own6: BTreeSet<Range>,
    inside6: BTreeSet<Range>,
}

/// Makes the kernel have exactly these ranges, and the rules over them: reads what is there and writes the differences, in one
/// transaction. Where nothing is to be masqueraded and nothing is there, nothing is installed. The elements of attachments, and
/// what others have, are not touched.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn keep(socket: &mut Socket, egress: &Egress) -> Result<RangeChanges, AddError> {
    ranges::keep(socket, &EGRESS, &egress.joined().sets())
}

/// As [`keep`], where the kernel has what the last call has left, as far as is known: reads nothing, and writes the differences between the
/// two. Where the kernel says that it has something else, it is read after all. What somebody else has changed and this change does not
/// meet stays as it is: who watches the table calls [`keep`] then.
///
/// # Errors
/// As [`keep`].
pub fn change(socket: &mut Socket, before: &JoinedEgress, now: &JoinedEgress) -> Result<RangeChanges, AddError> {
    ranges::change(socket, &EGRESS, &before.sets(), &now.sets())
}

/// Whether the kernel has exactly these ranges, and the rules over them; nothing is changed.
///
/// # Errors
/// [`ReadError`]
pub fn egress_is_whole(socket: &mut Socket, egress: &Egress) -> Result<bool, ReadError> {
    Ok(ranges::differences(socket, &EGRESS, &egress.joined().sets())?.is_nothing())
}

// === impl Egress ===

impl Egress {
    /// Joins the ranges that overlap or adjoin.
    #[must_use]
    pub fn joined(&self) -> JoinedEgress {
        let of = |nets: &[IpNet]| (joined(nets, true), joined(nets, false));
        let ((own4, own6), (inside4, inside6)) = (of(&self.own), of(&self.inside));
        JoinedEgress { own4, inside4, own6, inside6 }
    }
}

// === impl JoinedEgress ===

impl JoinedEgress {
    fn sets(&self) -> [Wanted<'_>; 4] {
        [Wanted::of(OWN4, &self.own4), Wanted::of(INSIDE4, &self.inside4), Wanted::of(OWN6, &self.own6), Wanted::of(INSIDE6, &self.inside6)]
    }
}

// --- rules ---

fn masqueraded() -> Rules {
    const MULTICAST4: (&[u8], u8) = (&[224, 0, 0, 0], 4);
    const LINK_LOCAL4: (&[u8], u8) = (&[169, 254, 0, 0], 16);
    const BROADCAST4: (&[u8], u8) = (&[255; 4], 32);
    const MULTICAST6: (&[u8], u8) = (&[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    const LINK_LOCAL6: (&[u8], u8) = (&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10);
    let (from4, to4) = (Expr::ip_saddr(Reg::FIRST), Expr::ip_daddr(Reg::FIRST));
    let (from6, to6) = (Expr::ip6_saddr(Reg::FIRST), Expr::ip6_daddr(Reg::FIRST));
    vec![
        rule(is_ipv4(), (from4, OWN4), (to4, INSIDE4), &[MULTICAST4, LINK_LOCAL4, BROADCAST4]),
        rule(is_ipv6(), (from6, OWN6), (to6, INSIDE6), &[MULTICAST6, LINK_LOCAL6]),
    ]
}

fn rule(is_family: [Expr; 2], (from, own): (Expr, &str), (to, inside): (Expr, &str), spared: &[(&[u8], u8)]) -> Vec<Expr> {
    let reg = Reg::FIRST;
    let look_up = |set: &str, negate: bool| Expr::Lookup { reg, set: set.to_owned(), negate };
    let mut exprs = is_family.to_vec();
    exprs.extend([from, look_up(own, false), to.clone(), look_up(inside, true)]);
    for (network, length) in spared {
        exprs.extend(within(&to, Cmp::NotEqual, network, *length));
    }
    exprs.push(Expr::DestinationType { into: reg });
    exprs.push(Expr::Cmp { reg, how: Cmp::NotEqual, value: LOCAL.to_ne_bytes().to_vec() });
    exprs.push(Expr::Masquerade);
    exprs
}
