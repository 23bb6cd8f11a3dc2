//! Looking at what is installed: for CHECK, for a DEL that knows no addresses, for GC.

use std::net::{Ipv4Addr, Ipv6Addr};

use cni::AttachmentId;
use linux::nft::{Element, Family, ReadError, SetElement, Socket};

use crate::install::wrong_chain;
use crate::masquerade::{MAPS, target};
use crate::{OwnerKey, TABLE};

/// What CHECK finds wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It could not look.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An element is not there.
    #[error(
        "{address} is missing in map inet {TABLE} {map}: did another program flush the ruleset, or attach the container? Attach it again"
    )]
    Missing {
        /// The attachment's address.
        address: String,
        /// The map, by name.
        map: String,
    },
    /// An element is another attachment's.
    #[error("{address} in map inet {TABLE} {map} belongs to {owner}: two attachments have the same address")]
    Another {
        /// The attachment's address.
        address: String,
        /// The map, by name.
        map: String,
        /// The other's comment; empty if it has none.
        owner: String,
    },
    /// An element leads to the chain of another network.
    #[error("{address} in map inet {TABLE} {map} leads to {found}, not to {wanted}: did its network change? Attach the container again")]
    OtherNetwork {
        /// The attachment's address.
        address: String,
        /// The map, by name.
        map: String,
        /// The chain it leads to; empty for none.
        found: String,
        /// The chain of the attachment's network.
        wanted: String,
    },
    /// Rules are missing, or there are others.
    #[error(
        "chain inet {TABLE} {chain} has {found} rules, which is not what was installed: did another program change it? \
         The next ADD puts them back"
    )]
    Rules {
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
    match wrong_chain(socket, elements)? {
        None => Ok(()),
        Some((chain, found)) => Err(CheckError::Rules { chain, found }),
    }
}

fn compare(wanted: &SetElement, found: Option<Element>) -> Result<(), CheckError> {
    let (address, map) = (address(&wanted.element), wanted.set.clone());
    let Some(found) = found else { return Err(CheckError::Missing { address, map }) };
    if found.comment != wanted.element.comment {
        let owner = found.comment.unwrap_or_default();
        return Err(CheckError::Another { address, map, owner });
    }
    if found.data != wanted.element.data {
        let chain = |e| target(e).unwrap_or_default().to_owned();
        let (found, wanted) = (chain(&found), chain(&wanted.element));
        return Err(CheckError::OtherNetwork { address, map, found, wanted });
    }
    Ok(())
}

/// An attachment's elements, found by their comments: for a DEL without a previous result.
/// Reads all elements of this host.
///
/// # Errors
/// [`ReadError`]
pub fn owned_by(socket: &mut Socket, owner: &AttachmentId) -> Result<Vec<SetElement>, ReadError> {
    let owner = OwnerKey::of(owner);
    let mut found = all(socket)?;
    found.retain(|(key, _)| *key == owner);
    Ok(found.into_iter().map(|(_, element)| element).collect())
}

/// Every attachment's elements. What has no attachment's comment was added by hand and is
/// left out. Nothing installed is nothing found.
///
/// # Errors
/// [`ReadError`]
pub fn all(socket: &mut Socket) -> Result<Vec<(OwnerKey, SetElement)>, ReadError> {
    let mut found = Vec::new();
    for (map, _) in MAPS {
        for element in socket.elements(Family::Inet, TABLE, map)? {
            let Some(owner) = element.comment.as_deref().and_then(OwnerKey::parse) else { continue };
            let (table, set) = (TABLE.to_owned(), map.to_owned());
            found.push((owner, SetElement { family: Family::Inet, table, set, element }));
        }
    }
    Ok(found)
}

/// The attachment's address, the key, in words.
fn address(element: &Element) -> String {
    let v4 = || <[u8; 4]>::try_from(element.key.as_slice()).map(|b| Ipv4Addr::from(b).to_string());
    let v6 = || <[u8; 16]>::try_from(element.key.as_slice()).map(|b| Ipv6Addr::from(b).to_string());
    v4().or_else(|_| v6()).unwrap_or_else(|_| "an address".to_owned())
}
