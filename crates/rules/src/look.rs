//! Looking at what is installed: for CHECK, for a DEL that knows no addresses, for GC.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use cni::{AttachmentId, ContainerId, NetworkName};
use linux::nft::{Data, Element, Family, Field, ReadError, SetElement, Socket};

use crate::ingress::bridge_of;
use crate::install::{Drift, wrong};
use crate::part::{Map, PARTS, Subject};
use crate::{Meaning, OwnerKey, Protocol, TABLE, is_ordinary, spoof, strict_port};

/// What CHECK finds wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It could not look.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An element is not there.
    #[error(
        "the firewall entry for {what} is missing: another program may have flushed the ruleset or attached the container; attach it again"
    )]
    Missing {
        /// The attachment's address or host port.
        what: String,
    },
    /// An element is another attachment's.
    #[error("the firewall entry for {what} belongs to attachment {owner}: two attachments have the same address or host port")]
    Another {
        /// The attachment's address or host port.
        what: String,
        /// The other's comment; empty if it has none.
        owner: String,
    },
    /// An element leads to the chain of another network, or to another address.
    #[error(
        "the firewall entry for {what} leads to {found}, not to {wanted}: its network or its address may have changed; attach the container again"
    )]
    OtherNetwork {
        /// The attachment's address or host port.
        what: String,
        /// The chain or the address that it leads to; empty for none.
        found: String,
        /// The chain of the attachment's network, or its address.
        wanted: String,
    },
    /// Rules are missing, or there are others.
    #[error(
        "chain {family} {TABLE} {chain} has {found} rules, which is not what was installed: another program may have changed it; the next \
         ADD restores them"
    )]
    Rules {
        /// Whose table it is in.
        family: Family,
        /// The chain, by name.
        chain: String,
        /// How many there are.
        found: usize,
    },
}

/// Whether these elements are in place, their owner's, and under rules.
///
/// # Errors
/// [`CheckError`] with the first thing wrong.
pub fn check(socket: &mut Socket, elements: &[SetElement]) -> Result<(), CheckError> {
    if elements.is_empty() {
        return Ok(());
    }
    for (wanted, found) in elements.iter().zip(socket.find(elements)?) {
        compare(wanted, found)?;
    }
    match wrong(socket, elements)? {
        None => Ok(()),
        Some(Drift::Chain { family, chain, found }) => Err(CheckError::Rules { family, chain, found }),
        Some(Drift::Missing(element)) => Err(CheckError::Missing { what: what(&element) }),
    }
}

fn compare(wanted: &SetElement, found: Option<Element>) -> Result<(), CheckError> {
    let Some(found) = found else { return Err(CheckError::Missing { what: what(wanted) }) };
    if found.comment != wanted.element.comment {
        let owner = found.comment.unwrap_or_default();
        return Err(CheckError::Another { what: what(wanted), owner });
    }
    if found.data != wanted.element.data {
        let (what, set) = (what(wanted), &wanted.set);
        return Err(CheckError::OtherNetwork { what, found: data_of(set, &found), wanted: data_of(set, &wanted.element) });
    }
    Ok(())
}

/// An attachment's elements of one subject, found by their comments: for a DEL without a
/// previous result. Reads all elements of the subject.
///
/// # Errors
/// [`ReadError`]
pub fn owned_by(socket: &mut Socket, part: &Subject, owner: &AttachmentId) -> Result<Vec<SetElement>, ReadError> {
    let owner = OwnerKey::of(owner);
    let mut found = all(socket, part)?;
    found.retain(|(key, _)| *key == owner);
    Ok(found.into_iter().map(|(_, element)| element).collect())
}

/// Every attachment's elements of one subject. What has no attachment's comment was added by
/// hand and is left out. Nothing installed is nothing found.
///
/// # Errors
/// [`ReadError`]
pub fn all(socket: &mut Socket, part: &Subject) -> Result<Vec<(OwnerKey, SetElement)>, ReadError> {
    let owned = |element: SetElement| Some((OwnerKey::parse(element.element.comment.as_deref()?)?, element));
    Ok(elements_of(socket, part)?.into_iter().filter_map(owned).collect())
}

/// Every element of one container, of whatever network and subject: for a DEL that knows no more of it than its ID.
///
/// # Errors
/// [`ReadError`]
pub fn of_container(socket: &mut Socket, container: &ContainerId) -> Result<Vec<SetElement>, ReadError> {
    let mut found = Vec::new();
    for part in PARTS {
        let of = all(socket, part)?.into_iter().filter(|(owner, _)| owner.is_of_container(container));
        found.extend(of.map(|(_, element)| element));
    }
    Ok(found)
}

/// The elements of one subject whose attachments are of this network, and are not valid any more: for GC.
///
/// # Errors
/// [`ReadError`]
pub fn stale(socket: &mut Socket, part: &Subject, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<SetElement>, ReadError> {
    let keep: HashSet<OwnerKey> = valid.iter().map(OwnerKey::of).collect();
    let gone = all(socket, part)?.into_iter().filter(|(owner, _)| owner.is_of(network) && !keep.contains(owner));
    Ok(gone.map(|(_, element)| element).collect())
}

/// All elements of one subject that attachments may have.
pub(crate) fn elements_of(socket: &mut Socket, part: &Subject) -> Result<Vec<SetElement>, ReadError> {
    let mut found = Vec::new();
    for map in part.maps.iter().filter(|map| map.is_of_attachments()) {
        let (family, table, set) = (part.family, TABLE, map.name);
        let elements = socket.elements(family, table, set)?;
        found.extend(elements.into_iter().map(|element| SetElement { family, table: table.to_owned(), set: set.to_owned(), element }));
    }
    Ok(found)
}

fn map_of(name: &str) -> Option<&'static Map> {
    PARTS.into_iter().find_map(|part| part.map(name))
}

/// What an element is about, in the words of who configures it: `host port 8080/tcp`.
pub(crate) fn what(element: &SetElement) -> String {
    if let Some(bridge) = bridge_of(element) {
        return format!("the ingress policies of {bridge}");
    }
    match Meaning::of(element) {
        Some(Meaning::HostPort(port)) => port.to_string(),
        Some(Meaning::Rewrite { address, .. }) => format!("connections of {address} to host ports"),
        Some(Meaning::Masquerade { address, .. }) => format!("masquerading of {address}"),
        Some(Meaning::Forwarded { address } | Meaning::Delegated { address, .. }) => format!("forwarding of {address}"),
        Some(Meaning::Policed { address, .. }) => format!("the ingress policy of {address}"),
        Some(Meaning::SpoofGuard { port, .. }) => format!("the spoof guard of {port}"),
        Some(Meaning::StrictSource { port, .. }) => format!("the source check of {port}"),
        Some(Meaning::ReversePath { link }) => format!("the reverse path check of {link}"),
        None if is_ordinary(element) => format!("the frames that the guard of a port lets pass at once, {}", key_of(element)),
        None if strict_port(element).is_some() => format!("the source check of {}", key_of(element)),
        None if element.family == Family::Bridge => format!("the spoof guard of {}", key_of(element)),
        None => format!("{} ({})", key_of(element), element.set),
    }
}

/// An element's key in the words of `nft`.
fn key_of(element: &SetElement) -> String {
    map_of(&element.set).map(|map| words(map.key, &element.element.key)).unwrap_or_default()
}

/// What an element leads to, in the words of `nft`.
fn data_of(map: &str, element: &Element) -> String {
    match (&element.data, map_of(map)) {
        (Some(Data::Jump(chain)), _) => chain.clone(),
        (Some(Data::Value(value)), Some(map)) => words(map.fields(), value),
        _ => String::new(),
    }
}

/// Fields one after the other, each padded to four bytes, as `nft` writes them.
fn words(fields: &[Field], mut bytes: &[u8]) -> String {
    let word = |field: &Field| {
        let text = match field {
            Field::Ipv6Addr => Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_string(),
            Field::Ipv4Addr => Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string(),
            Field::InetProto => Protocol::named(*bytes.first()?).map_or("?", Protocol::name).to_owned(),
            Field::InetService => u16::from_be_bytes(*bytes.first_chunk::<2>()?).to_string(),
            Field::IfName => spoof::port_of(bytes)?,
            Field::IfIndex => u32::from_ne_bytes(*bytes.first_chunk::<4>()?).to_string(),
            Field::EtherAddr => spoof::mac_of(bytes)?.to_string(),
            _ => return None,
        };
        bytes = bytes.get(field.size() as usize..).unwrap_or_default();
        Some(text)
    };
    fields.iter().map_while(word).collect::<Vec<_>>().join(" . ")
}
