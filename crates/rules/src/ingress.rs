//! Policies of ingress, for `firewall`: which containers' packets a container gets.
//!
//! ```text
//! map policed4 { type ipv4_addr : verdict;                               an element an address, and the same for IPv6
//!     elements = { 10.88.0.5 comment "lab/pod-1/eth0" : jump same-bridge-cni0 } }
//!
//! chain from-cni0        { type filter hook forward priority filter; iifname "cni0" jump ingress }      two chains a bridge
//! chain ingress          { ip daddr vmap @policed4 }
//! chain same-bridge-cni0 { iifname != "cni0" drop }
//! chain isolated-cni0    { drop }
//! ```
//!
//! A packet from a bridge with a policy, for a container with one: it passes if it came by the container's own bridge and the
//! policy is `same-bridge`. What comes from elsewhere, the host or the outside, is not looked at, nor is what goes there.
//!
//! **By interface, not by source.** Where a packet came from is told by the bridge that it came by; its source address a
//! container can write as it likes.
//!
//! **The chains of a bridge stay**, as those of a network do. Were `from-cni0` to go with the last of its bridge's containers,
//! a DEL that has counted and an ADD that has found the chain could meet, and the new container would stand without its policy.
//! A chain that is there for nobody keeps that bridge from containers that have asked for a policy, which is what they asked for.

use std::net::IpAddr;

use cni::{AttachmentId, IfName};
use linux::nft::{Base, Cmp, Data, Expr, Family, Field, Meta, Reg, SetElement, Verdict};

use crate::firewall::{destinations, jump};
use crate::part::{Beside, Fixed, Map, Part, Rules, To, filter};
use crate::phrase::address;

const POLICED4: &str = "policed4";
const POLICED6: &str = "policed6";
/// The maps of both families.
pub(crate) const POLICED: [&str; 2] = [POLICED4, POLICED6];
const LOOK_UP: &str = "ingress";
const FROM: &str = "from-";
const SAME_BRIDGE: &str = "same-bridge-";
const ISOLATED: &str = "isolated-";

/// What policies need of the table.
pub static INGRESS: Part = Part {
    family: Family::Inet,
    maps: &[
        Map { name: POLICED4, key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: POLICED6, key: &[Field::Ipv6Addr], to: To::Chain, held: false },
    ],
    chains: &[Fixed { name: LOOK_UP, base: None, rules: || destinations(POLICED4, POLICED6) }],
    target: |chain| Policy::of_chain(chain).map(|(policy, bridge)| policy.rules(bridge)),
    beside: |chain| Policy::of_chain(chain).map(|(_, bridge)| from(bridge)),
};

/// Whose packets a container gets of those that come from bridges with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Those of its own bridge.
    SameBridge,
    /// Nobody's.
    Isolated,
}

/// The elements that put these addresses under a policy, of a container whose packets come in by this bridge (or by the host's
/// interface in its VLAN). Pure: add them with
/// [`install_and_add`](crate::install_and_add).
#[must_use]
pub fn policed(owner: &AttachmentId, addresses: &[IpAddr], bridge: &IfName, policy: Policy) -> Vec<SetElement> {
    let chain = format!("{}{bridge}", policy.prefix());
    addresses.iter().map(|a| jump(owner, POLICED, *a, chain.clone())).collect()
}

/// The policy of an element of [`policed`]; `None` for any other element.
#[must_use]
pub fn policy_of(element: &SetElement) -> Option<Policy> {
    policed_of(element).map(|(_, policy, _)| policy)
}

/// The address that an element of [`policed`] is about, its policy and bridge; `None` for any other element.
pub(crate) fn policed_of(element: &SetElement) -> Option<(IpAddr, Policy, &str)> {
    let Some(Data::Jump(chain)) = &element.element.data else { return None };
    let (policy, bridge) = Policy::of_chain(chain)?;
    Some((address(&element.element.key)?, policy, bridge))
}

// === impl Policy ===

impl Policy {
    /// As a configuration names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::SameBridge => "same-bridge",
            Policy::Isolated => "isolated",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Policy::SameBridge => SAME_BRIDGE,
            Policy::Isolated => ISOLATED,
        }
    }

    fn of_chain(chain: &str) -> Option<(Self, &str)> {
        let bridge = |policy: Policy| chain.strip_prefix(policy.prefix()).map(|bridge| (policy, bridge));
        [Policy::SameBridge, Policy::Isolated].into_iter().find_map(bridge)
    }

    fn rules(self, bridge: &str) -> Rules {
        let mut rule = match self {
            Policy::SameBridge => came_by(bridge, Cmp::NotEqual).to_vec(),
            Policy::Isolated => Vec::new(),
        };
        rule.push(Expr::Verdict(Verdict::Drop));
        vec![rule]
    }
}

// --- rules ---

fn from(bridge: &str) -> Beside {
    let mut rule = came_by(bridge, Cmp::Equal).to_vec();
    rule.push(Expr::Jump(LOOK_UP.to_owned()));
    Beside { name: format!("{FROM}{bridge}"), base: filter(Base::FILTER), rules: vec![rule] }
}

/// `iifname == "NAME"`
pub(crate) fn came_by(name: &str, how: Cmp) -> [Expr; 2] {
    const IFNAMSIZ: usize = 16;
    let mut value = name.as_bytes().to_vec();
    value.resize(IFNAMSIZ, 0);
    [Expr::Meta { key: Meta::IifName, into: Reg::FIRST }, Expr::Cmp { reg: Reg::FIRST, how, value }]
}
