//! Policies of ingress, for `firewall`: which containers' packets a container gets.
//!
//! ```text
//! map policed4 { type ipv4_addr : verdict;                               an element an address, and the same for IPv6
//!     elements = { 10.88.0.5 comment "lab/pod-1/eth0" : jump same-bridge-cni0 } }
//! set bridges-with-policy { type ifname; elements = { "cni0" } }          an element a bridge
//!
//! chain from-bridges     { type filter hook forward priority filter; iifname @bridges-with-policy jump ingress }
//! chain ingress          { ip daddr vmap @policed4 }
//! chain same-bridge-cni0 { iifname != "cni0" drop }                       two chains a bridge
//! chain isolated-cni0    { drop }
//! ```
//!
//! A packet from a bridge with a policy, for a container with one: it passes if it came by the container's own bridge and the
//! policy is `same-bridge`. What comes from elsewhere, the host or the outside, is not looked at, nor is what goes there.
//!
//! **By interface, not by source.** Where a packet came from is told by the bridge that it came by; its source address a
//! container can write as it likes.
//!
//! **A bridge has both chains or none.** They come and go together with the bridge's element, in one transaction. The kernel refuses to
//! delete a chain that an element leads to (EBUSY), so that a DEL that has seen no container of the bridge and an ADD that has found its
//! chains cannot meet: the container never stands without its policy. A chain of a bridge's own that the kernel calls would be one of
//! 1,024 that a network namespace has for all programs (`MAX_HOOK_COUNT`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AttachmentId, IfName};
use linux::Errno;
use linux::nft::{Base, Chain, Cmp, Data, Element, Expr, Family, Field, Meta, Mode, Reg, SetElement, Socket, Step, Verdict};

use crate::firewall::{destinations, jump};
use crate::look::elements_of;
use crate::part::{CompanionChain, Fixed, Map, Rules, Subject, To, filter, targets};
use crate::phrase::address;
use crate::spoof::port_of;
use crate::{AddError, TABLE};

const POLICED4: &str = "policed4";
const POLICED6: &str = "policed6";
/// The maps of both families.
pub(crate) const POLICED: [&str; 2] = [POLICED4, POLICED6];
const LOOK_UP: &str = "ingress";
const BRIDGES: &str = "bridges-with-policy";
const FROM: &str = "from-bridges";
const SAME_BRIDGE: &str = "same-bridge-";
const ISOLATED: &str = "isolated-";

/// What policies need of the table.
pub static INGRESS: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: POLICED4, key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: POLICED6, key: &[Field::Ipv6Addr], to: To::Chain, held: false },
        Map { name: BRIDGES, key: &[Field::IfName], to: To::Companion, held: false },
    ],
    chains: &[
        Fixed { name: LOOK_UP, base: None, rules: || destinations(POLICED4, POLICED6) },
        Fixed { name: FROM, base: Some(filter(Base::FILTER)), rules: from_bridges },
    ],
    former: &[],
    target: |chain| Policy::of_chain(chain).map(|(policy, bridge)| policy.rules(bridge)),
    companion: |chain| Policy::of_chain(chain).map(|(policy, bridge)| policy.other().companion(bridge)),
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
    let chain = policy.chain(bridge.as_str());
    addresses.iter().map(|a| jump(owner, POLICED, *a, chain.clone())).collect()
}

/// The policy of an element of [`policed`]; `None` for any other element.
#[must_use]
pub fn policy_of(element: &SetElement) -> Option<Policy> {
    policed_of(element).map(|(_, policy, _)| policy)
}

/// Takes away what is there of bridges without any container that has a policy. A bridge that gets one meanwhile keeps all.
///
/// # Errors
/// [`AddError`]; repeat the whole call then, it is harmless.
pub fn forget_idle_bridges(socket: &mut Socket) -> Result<(), AddError> {
    let bridges = socket.elements(Family::Inet, TABLE, BRIDGES)?;
    if bridges.is_empty() {
        return Ok(());
    }
    let policed = elements_of(socket, &INGRESS)?;
    let used: BTreeSet<&str> = targets(&policed).into_iter().filter_map(|chain| Some(Policy::of_chain(chain)?.1)).collect();
    for bridge in bridges.iter().filter_map(|element| port_of(&element.key)).filter(|bridge| !used.contains(bridge.as_str())) {
        linux::crash_point!("firewall-bridge-idle");
        match socket.commit(&forgotten(&bridge).into_iter().collect()) {
            Err(e) if e.refusals().iter().any(|refusal| refusal.errno == Errno::EBUSY) => {}
            done => done?,
        }
    }
    Ok(())
}

/// What takes away all that there is of a bridge, also what is there in part.
pub(crate) fn forgotten(bridge: &str) -> Vec<Step> {
    let chains = [Policy::SameBridge, Policy::Isolated].map(|policy| policy.chain(bridge));
    let (family, table) = (Family::Inet, || TABLE.to_owned());
    let there = |name: &String| Step::Chain(Mode::Add, Chain { family, table: table(), name: name.clone(), base: None });
    let gone = |name: &String| Step::DeleteChain { family, table: table(), name: name.clone() };
    let mut steps: Vec<Step> = chains.iter().flat_map(|name| [there(name), gone(name)]).collect();
    steps.push(Step::Element(Mode::Add, element(bridge)));
    steps.push(Step::DeleteElement(element(bridge)));
    steps
}

/// The bridge that an element of [`BRIDGES`] is about; `None` for any other element.
pub(crate) fn bridge_of(element: &SetElement) -> Option<String> {
    if element.set == BRIDGES { port_of(&element.element.key) } else { None }
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

    fn other(self) -> Self {
        match self {
            Policy::SameBridge => Policy::Isolated,
            Policy::Isolated => Policy::SameBridge,
        }
    }

    fn chain(self, bridge: &str) -> String {
        format!("{}{bridge}", self.prefix())
    }

    fn companion(self, bridge: &str) -> CompanionChain {
        CompanionChain { name: self.chain(bridge), rules: self.rules(bridge), element: element(bridge) }
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

fn from_bridges() -> Rules {
    let by_bridge = Expr::Lookup { reg: Reg::FIRST, set: BRIDGES.to_owned(), negate: false };
    vec![vec![Expr::Meta { key: Meta::IifName, into: Reg::FIRST }, by_bridge, Expr::Jump(LOOK_UP.to_owned())]]
}

fn element(bridge: &str) -> SetElement {
    let element = Element { key: padded(bridge), key_end: None, data: None, comment: None, note: None };
    SetElement { family: Family::Inet, table: TABLE.to_owned(), set: BRIDGES.to_owned(), element }
}

/// `iifname == "NAME"`
pub(crate) fn came_by(name: &str, how: Cmp) -> [Expr; 2] {
    [Expr::Meta { key: Meta::IifName, into: Reg::FIRST }, Expr::Cmp { reg: Reg::FIRST, how, value: padded(name) }]
}

fn padded(name: &str) -> Vec<u8> {
    const IFNAMSIZ: usize = 16;
    let mut value = name.as_bytes().to_vec();
    value.resize(IFNAMSIZ, 0);
    value
}
