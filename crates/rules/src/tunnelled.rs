//! What comes from pods of other nodes comes through the tunnel, where there is one that proves who sends: a plain packet with such a source,
//! by whichever link, reaches no pod.
//!
//! ```text
//! set local4     { type ipv4_addr; flags interval;                       the ranges that this node's pods are in
//!     elements = { 10.244.3.0/24 } }
//! set tunnelled4 { type ipv4_addr; flags interval;                       the ranges of nodes whose packets come through the tunnel
//!     elements = { 10.244.0.0/23, 10.244.2.0/24 } }
//! chain tunnelled { type filter hook prerouting priority -99; policy accept;
//!     iifname "nlw-*" meta iifkind "wireguard" return
//!     ip daddr @local4 ip saddr @tunnelled4 counter drop }                                        and the same for IPv6
//! ```
//!
//! **A device of ours** has such a name and is a WireGuard device. The name alone is no proof: whoever may name links of the node can give it to
//! one on which anybody's packets come in.
//!
//! WireGuard itself lets through what comes by a device of ours only if the peer may send with that source (`allowed-ips`). The reverse-path
//! filter would drop the plain packets too, but there is none for IPv6, and a strict one drops what comes by a tunnel that routes have left
//! already.
//!
//! **Behind `dstnat`**, so that also a packet to a port of the host that leads to a pod has the pod's address here. A connection's later
//! packets are looked at as the first one is.
//!
//! A packet that is for no pod costs a comparison and a look-up, and one from a tunnel two comparisons. The ranges belong to no attachment, as those of `egress.rs`: [`guard_tunnels`] alone
//! changes them. Where no tunnel proves anything, nothing is installed.

use ipnet::IpNet;
use linux::nft::{Base, ChainType, Cmp, Expr, Family, Field, Hook, Meta, Reg, Socket, Verdict};

use crate::install::AddError;
use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::{is_ipv4, is_ipv6};
use crate::ranges::{self, RangeChanges, Wanted};
use crate::spoof::NAME;

/// How the names of all WireGuard devices of ours begin (`fabric::device_name`).
pub const TUNNEL_PREFIX: &str = "nlw-";
/// What `ip -d link` calls them.
const KIND: &str = "wireguard";

const LOCAL4: &str = "local4";
const LOCAL6: &str = "local6";
const TUNNELLED4: &str = "tunnelled4";
const TUNNELLED6: &str = "tunnelled6";
/// One behind `dstnat`.
const BASE: Base = Base { kind: ChainType::Filter, hook: Hook::Prerouting, priority: -99 };

/// What the guard of tunnels needs of the table.
pub static TUNNELLED: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: LOCAL4, key: &[Field::Ipv4Addr], to: To::Ranges, held: false },
        Map { name: TUNNELLED4, key: &[Field::Ipv4Addr], to: To::Ranges, held: false },
        Map { name: LOCAL6, key: &[Field::Ipv6Addr], to: To::Ranges, held: false },
        Map { name: TUNNELLED6, key: &[Field::Ipv6Addr], to: To::Ranges, held: false },
    ],
    chains: &[Fixed { name: "tunnelled", base: Some(BASE), rules: guarded }],
    former: &[],
    target: |_| None,
    companion: |_| None,
};

/// Whose packets are taken from a tunnel alone, and by whom. Ranges may overlap and come in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tunnelled {
    /// The ranges that this node's pods have their addresses of.
    pub own: Vec<IpNet>,
    /// The ranges of the nodes that are reached through WireGuard, whether or not the tunnel stands. None: nobody's packets are looked at.
    pub peers: Vec<IpNet>,
}

/// Makes the kernel have exactly these ranges, and the rules over them, as [`keep`](crate::keep) does for masquerade.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn guard_tunnels(socket: &mut Socket, tunnelled: &Tunnelled) -> Result<RangeChanges, AddError> {
    let Tunnelled { own, peers } = tunnelled;
    // Without peers an empty set of local ranges is the shortest way past the rule that may be there.
    let own: &[IpNet] = if peers.is_empty() { &[] } else { own };
    let sets = [Wanted::v4(LOCAL4, own), Wanted::v4(TUNNELLED4, peers), Wanted::v6(LOCAL6, own), Wanted::v6(TUNNELLED6, peers)];
    ranges::keep(socket, &TUNNELLED, &sets)
}

// --- rules ---

fn guarded() -> Rules {
    vec![
        from_tunnel(),
        rule(is_ipv4(), (Expr::ip_daddr(Reg::FIRST), LOCAL4), (Expr::ip_saddr(Reg::FIRST), TUNNELLED4)),
        rule(is_ipv6(), (Expr::ip6_daddr(Reg::FIRST), LOCAL6), (Expr::ip6_saddr(Reg::FIRST), TUNNELLED6)),
    ]
}

fn rule(is_family: [Expr; 2], (to, local): (Expr, &str), (from, peers): (Expr, &str)) -> Vec<Expr> {
    let reg = Reg::FIRST;
    let look_up = |set: &str| Expr::Lookup { reg, set: set.to_owned(), negate: false };
    let mut exprs = is_family.to_vec();
    exprs.extend([to, look_up(local), from, look_up(peers), Expr::Counter, Expr::Verdict(Verdict::Drop)]);
    exprs
}

/// What comes by a device of ours.
fn from_tunnel() -> Vec<Expr> {
    let reg = Reg::FIRST;
    let is = |value: Vec<u8>| Expr::Cmp { reg, how: Cmp::Equal, value };
    let mut kind = KIND.as_bytes().to_vec();
    kind.resize(NAME, 0);
    vec![
        Expr::Meta { key: Meta::IifName, into: reg },
        is(TUNNEL_PREFIX.as_bytes().to_vec()),
        Expr::Meta { key: Meta::IifKind, into: reg },
        is(kind),
        Expr::Verdict(Verdict::Return),
    ]
}
