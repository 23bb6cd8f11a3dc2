//! Spoof guards, for the `macspoofchk` of `bridge`: a container sends with its own hardware address, or not at all.
//!
//! ```text
//! table bridge netloom {
//! set macs    { type ifname . ether_addr;                                 an element a hardware address
//!     elements = { "veth77383ca0a07" . 0a:58:0a:58:00:05 comment "lab/pod-1/eth0" } }
//! set guarded { type ifname; counter;                                     an element a port of a bridge
//!     elements = { "veth77383ca0a07" counter packets 3 bytes 126 comment "lab/pod-1/eth0" } }
//! chain prerouting {                                                      for what is not ordinary: guards.rs
//!     iifname . ether saddr != @macs iifname @guarded drop } }
//! ```
//!
//! A frame costs a look-up in a hash, whatever the number of containers. What is dropped is counted in the element of `guarded`, as that
//! is looked up only for what is not in `macs`.
//!
//! **Frames to 01:80:c2:00:00:0X** (spanning tree, LLDP) are for the bridge itself, and pass no chain before it has learnt from
//! them where their sender is. A guarded port's bridge has to have `no_linklocal_learn`, which is the plugin's business, or a
//! container could draw another's frames to itself.
//!
//! A port is known by its name, which the host gives: the container sees the other end of the pair.
//!
//! Linux 5.7 counts; the family `bridge` is `CONFIG_NF_TABLES_BRIDGE`.

use std::collections::{HashMap, HashSet};

use cni::{AttachmentId, IfName, Mac};
use linux::nft::{
    Chain, Count, Element, Expr, Family, Meta, Mode, ReadError, Reg, SetElement, Socket, Step, Table, TransactionError, Verdict,
};

use crate::guards::BASE;
use crate::install::tried;
use crate::part::Rules;
use crate::{GUARDS, Meaning, OwnerKey, TABLE, all};

pub(crate) const MACS: &str = "macs";
pub(crate) const GUARDED: &str = "guarded";
/// `IFNAMSIZ`
pub(crate) const NAME: usize = 16;

/// The elements that let this port of a bridge send with this hardware address and no other. Pure: add them with
/// [`install_and_add`](crate::install_and_add).
#[must_use]
pub fn spoof_guard(owner: &AttachmentId, port: &IfName, mac: &Mac) -> Vec<SetElement> {
    vec![own_mac(owner, port, mac), guarded(owner, port)]
}

/// The element by which a port is guarded; which hardware addresses it may send with is told by others.
#[must_use]
pub fn guarded(owner: &AttachmentId, port: &IfName) -> SetElement {
    element(owner, GUARDED, name(port))
}

fn own_mac(owner: &AttachmentId, port: &IfName, mac: &Mac) -> SetElement {
    let mut key = name(port);
    key.extend(mac.as_bytes());
    key.resize(key.len().next_multiple_of(4), 0);
    element(owner, MACS, key)
}

pub(crate) fn element(owner: &AttachmentId, set: &str, key: Vec<u8>) -> SetElement {
    let comment = Some(OwnerKey::of(owner).as_str().to_owned());
    let element = Element { key, key_end: None, data: None, comment, note: None };
    SetElement { family: Family::Bridge, table: TABLE.to_owned(), set: set.to_owned(), element }
}

pub(crate) fn name(port: &IfName) -> Vec<u8> {
    let mut bytes = port.as_str().as_bytes().to_vec();
    bytes.resize(NAME, 0);
    bytes
}

/// The port that an element guards, or lets send; `None` for one of another subject.
#[must_use]
pub fn guarded_port(element: &SetElement) -> Option<String> {
    let of_guard = element.family == Family::Bridge && [MACS, GUARDED].contains(&element.set.as_str());
    if of_guard { port_of(&element.element.key) } else { None }
}

/// The hardware address that an element lets a port send with; `None` for any other element.
#[must_use]
pub fn guarded_mac(element: &SetElement) -> Option<Mac> {
    guarded_port(element).and_then(|_| mac_of(element.element.key.get(NAME..)?))
}

/// The name of an interface that begins a key.
pub(crate) fn port_of(key: &[u8]) -> Option<String> {
    let name = key.first_chunk::<NAME>()?.split(|b| *b == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The hardware address that begins the rest of a key.
pub(crate) fn mac_of(rest: &[u8]) -> Option<Mac> {
    Mac::from_bytes(rest.first_chunk::<6>()?)
}

/// What all attachments have of guards: one meaning a hardware address, and one for a port that has none.
pub(crate) fn meanings(socket: &mut Socket) -> Result<Vec<(OwnerKey, Meaning)>, ReadError> {
    let counts = socket.counts(Family::Bridge, TABLE, GUARDED)?;
    let dropped: HashMap<Vec<u8>, Count> = counts.into_iter().map(|(element, count)| (element.key, count)).collect();
    let elements = all(socket, &GUARDS)?;
    let of_mac = elements.iter().filter(|(_, e)| e.set == MACS);
    let with_mac: HashSet<&[u8]> = of_mac.filter_map(|(_, e)| e.element.key.get(..NAME)).collect();
    let meaning = |(owner, e): &(OwnerKey, SetElement)| {
        let (port, rest) = e.element.key.split_first_chunk::<NAME>()?;
        // Where a port is not guarded, its address is let through as any other is.
        let dropped = *dropped.get(port.as_slice())?;
        let told = e.set == MACS || e.set == GUARDED && !with_mac.contains(port.as_slice());
        told.then(|| (owner.clone(), Meaning::SpoofGuard { port: port_of(port).unwrap_or_default(), mac: mac_of(rest), dropped }))
    };
    Ok(elements.iter().filter_map(meaning).collect())
}

/// Whether the kernel takes rules for frames. `None`: it does; else what it says.
///
/// # Errors
/// [`TransactionError`], if it refuses for another reason.
pub fn lacks_bridge_family(socket: &mut Socket) -> Result<Option<String>, TransactionError> {
    let (family, table) = (Family::Bridge, "netloom-probe".to_owned());
    let chain = Chain { family, table: table.clone(), name: "probe".to_owned(), base: Some(BASE) };
    let table = Table { family, name: table, comment: None };
    tried(socket, family, vec![Step::Table(Mode::Add, table), Step::Chain(Mode::Add, chain)])
}

// --- rules ---

pub(crate) fn rules() -> Rules {
    let reg = Reg::FIRST;
    let by_name = Expr::Meta { key: Meta::IifName, into: reg };
    let look_up = |set: &str, negate: bool| Expr::Lookup { reg, set: set.to_owned(), negate };
    // The name fills four words.
    vec![vec![
        by_name.clone(),
        Expr::ether_saddr(Reg::word(4)),
        look_up(MACS, true),
        by_name,
        look_up(GUARDED, false),
        Expr::Verdict(Verdict::Drop),
    ]]
}
