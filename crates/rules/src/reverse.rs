//! Reverse paths: what comes to the host by a link of a definition's pods comes from an address that the host reaches over that very link,
//! or not at all. The host routes between such a link and the default network, past the guards of that one's ports.
//!
//! ```text
//! set reverse-links   { type ifname; elements = { "brteam", "veth77383ca0a07" comment "lab/pod-1/net1" } }
//! set reverse-bridged { type ifname . ifname; elements = { "brteam" . "brteam" } }
//! chain reverse-path  { iifname . oifname @reverse-bridged return
//!                       ip saddr 0.0.0.0 return                             DHCP
//!                       ip saddr 169.254.0.0/16 ip daddr 224.0.0.0/24 return       and to 255.255.255.255
//!                       ip6 saddr :: return; ip6 saddr fe80::/10 return     duplicate address detection; neighbours
//!                       fib saddr . iif oif missing counter drop }
//! chain reverse-input   { type filter hook input priority filter; policy accept; iifname @reverse-links jump reverse-path }
//! chain reverse-forward { type filter hook forward priority filter; policy accept; iifname @reverse-links jump reverse-path }
//! ```
//!
//! **Not at prerouting.** Where `br_netfilter` has bridged frames pass the rules for IP, they pass prerouting and forward as come by the bridge:
//! what containers on a bridge without an address send each other would be dropped. What is bridged leaves by the bridge that it came by.
//!
//! **Who owns what.** A pair's element is its attachment's. A bridge is that of several, and any of them may send over it: its elements have no
//! owner, come with its first pod, and stay as long as the bridge ([`forget_reverse_paths`]).
//!
//! A packet of another link costs a look-up in a hash. IPVS turns packets behind both chains.

use cni::{AttachmentId, IfName};
use linux::nft::{Base, ChainType, Cmp, Element, Expr, Family, Field, Hook, Meta, Reg, SetElement, Socket, Verdict};

use crate::install::AddError;
use crate::part::{Fixed, Map, Rules, Subject, To, filter};
use crate::phrase::{is_ipv4, is_ipv6, within};
use crate::spoof::{name, port_of};
use crate::{OwnerKey, TABLE};

const LINKS: &str = "reverse-links";
const BRIDGED: &str = "reverse-bridged";
const CHECK: &str = "reverse-path";
const INPUT: Base = Base { kind: ChainType::Filter, hook: Hook::Input, priority: Base::FILTER };

/// What the check of reverse paths needs of the table.
pub static REVERSE_PATHS: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: LINKS, key: &[Field::IfName], to: To::Nothing, held: false },
        Map { name: BRIDGED, key: &[Field::IfName, Field::IfName], to: To::Nothing, held: false },
    ],
    chains: &[
        Fixed { name: CHECK, base: None, rules: check },
        Fixed { name: "reverse-input", base: Some(INPUT), rules: of_links },
        Fixed { name: "reverse-forward", base: Some(filter(Base::FILTER)), rules: of_links },
    ],
    former: &[],
    target: |_| None,
    companion: |_| None,
};

/// The element by which the host checks what comes by its end of an attachment's pair. Pure: add it with
/// [`install_and_add`](crate::install_and_add).
#[must_use]
pub fn reverse_path(owner: &AttachmentId, link: &IfName) -> SetElement {
    element(LINKS, name(link), Some(OwnerKey::of(owner).as_str().to_owned()))
}

/// The elements by which the host checks what comes by a bridge, or by its link into a VLAN of one; they are the same for all attachments.
#[must_use]
pub fn reverse_path_of_all(link: &IfName) -> Vec<SetElement> {
    vec![element(LINKS, name(link), None), element(BRIDGED, [name(link), name(link)].concat(), None)]
}

/// Takes away the elements without an owner whose link is not there any more.
///
/// # Errors
/// [`AddError`]; repeat the whole call then, it is harmless.
pub fn forget_reverse_paths(socket: &mut Socket, is_there: impl Fn(&str) -> bool) -> Result<usize, AddError> {
    let mut gone = Vec::new();
    for set in [LINKS, BRIDGED] {
        let elements = socket.elements(Family::Inet, TABLE, set)?;
        let idle = elements.into_iter().filter(|e| e.comment.is_none() && !port_of(&e.key).is_some_and(|link| is_there(&link)));
        gone.extend(idle.map(|e| element(set, e.key, None)));
    }
    let steps = gone.iter().cloned().map(linux::nft::Step::DeleteElement);
    match socket.commit(&steps.collect()) {
        Ok(()) => Ok(gone.len()),
        // Somebody else was faster.
        Err(e) if e.is_missing() => Ok(0),
        Err(e) => Err(e.into()),
    }
}

/// The link of an attachment's element of [`reverse_path`].
pub(crate) fn checked_link(element: &SetElement) -> Option<String> {
    (element.set == LINKS).then(|| port_of(&element.element.key)).flatten()
}

/// Whether there may be elements for [`forget_reverse_paths`].
///
/// # Errors
/// [`AddError`]
pub fn has_reverse_paths(socket: &mut Socket) -> Result<bool, AddError> {
    Ok(!socket.elements(Family::Inet, TABLE, BRIDGED)?.is_empty())
}

fn element(set: &str, key: Vec<u8>, comment: Option<String>) -> SetElement {
    let element = Element { key, key_end: None, data: None, comment, note: None };
    SetElement { family: Family::Inet, table: TABLE.to_owned(), set: set.to_owned(), element }
}

// --- rules ---

fn of_links() -> Rules {
    let of_link = Expr::Lookup { reg: Reg::FIRST, set: LINKS.to_owned(), negate: false };
    vec![vec![Expr::Meta { key: Meta::IifName, into: Reg::FIRST }, of_link, Expr::Jump(CHECK.to_owned())]]
}

fn check() -> Rules {
    const LINK_LOCAL4: (&[u8], u8) = (&[169, 254, 0, 0], 16);
    const LOCAL_MULTICAST4: (&[u8], u8) = (&[224, 0, 0, 0], 24);
    const BROADCAST4: (&[u8], u8) = (&[255; 4], 32);
    const NONE4: (&[u8], u8) = (&[0; 4], 32);
    const NONE6: (&[u8], u8) = (&[0; 16], 128);
    const LINK_LOCAL6: (&[u8], u8) = (&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10);
    let reg = Reg::FIRST;
    let passes = || Expr::Verdict(Verdict::Return);
    let (v4, v6, to) = (Expr::ip_saddr(reg), Expr::ip6_saddr(reg), Expr::ip_daddr(reg));
    let always = |is_family: [Expr; 2], load: &Expr, (network, length): (&[u8], u8)| {
        [is_family.as_slice(), &within(load, Cmp::Equal, network, length), &[passes()]].concat()
    };
    // No router passes them on (RFC 3927 section 2.7).
    let on_link = |(network, length): (&[u8], u8)| {
        let from = within(&v4, Cmp::Equal, LINK_LOCAL4.0, LINK_LOCAL4.1);
        [is_ipv4().as_slice(), &from, &within(&to, Cmp::Equal, network, length), &[passes()]].concat()
    };
    // The name fills four words.
    let bridged = vec![
        Expr::Meta { key: Meta::IifName, into: reg },
        Expr::Meta { key: Meta::OifName, into: Reg::word(4) },
        Expr::Lookup { reg, set: BRIDGED.to_owned(), negate: false },
        passes(),
    ];
    let stray = vec![
        Expr::ReversePath { into: reg },
        Expr::Cmp { reg, how: Cmp::Equal, value: vec![0; 4] },
        Expr::Counter,
        Expr::Verdict(Verdict::Drop),
    ];
    vec![
        bridged,
        always(is_ipv4(), &v4, NONE4),
        on_link(LOCAL_MULTICAST4),
        on_link(BROADCAST4),
        always(is_ipv6(), &v6, NONE6),
        always(is_ipv6(), &v6, LINK_LOCAL6),
        stray,
    ]
}
