//! Adding elements, and the rules under them where they are not there yet.
//!
//! ```text
//! create the elements -------------------------------------> done   nearly always
//!   ENOENT: no table ------> create it, elements too ------> done   once per namespace
//!           no chain ------> create the network's ---------> done   once per network
//!           a map is gone -> put back what is missing -----> done
//!   EEXIST: an address ----> take the old owner's away,
//!           had an owner     create ours ------------------> done
//! any of them can be overtaken by another process: from the top again
//! ```
//!
//! Each arrow is one transaction, so nobody ever sees half a rule set, and of many who
//! create the same thing at once the kernel lets one succeed.

use std::collections::BTreeSet;

use ipnet::IpNet;
use linux::nft::{Family, Mode, ReadError, SetElement, Socket, Step, Table, TransactionError};

use crate::masquerade::{self, CHAIN, NETWORK_RULES, RULES, network_of, target};
use crate::{TABLE, all};

/// The table's comment. The number is that of the layout: it changes when a set or a rule
/// that is there already means something else from then on, not when one is added.
const MARK: &str = "netloom, layout 1";

/// How often to start again when others change the same thing. All change it for the same
/// end, so that each round is the last one for somebody.
const ROUNDS: u32 = 100;

/// Why elements were not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The kernel refused.
    #[error(transparent)]
    Commit(#[from] TransactionError),
    /// What is there could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The table is laid out in a way that this release does not know.
    #[error(
        "table inet {TABLE} was made by another program or release (its comment is {found:?}, not {MARK:?}): \
         remove what uses it, then `nft delete table inet {TABLE}`"
    )]
    OtherLayout {
        /// The table's comment; empty if it has none.
        found: String,
    },
}

/// Adds the elements in one transaction, and installs the rules where they are missing.
///
/// Elements that are there already, this owner's or another's with the same address, are
/// replaced: an address belongs to whom it was given last.
///
/// # Errors
/// [`AddError`]; nothing was added then.
pub fn install_and_add(socket: &mut Socket, elements: &[SetElement]) -> Result<(), AddError> {
    if elements.is_empty() {
        return Ok(());
    }
    let create = |e: &SetElement| Step::Element(Mode::Create, e.clone());
    let mut remedy = Vec::new();
    for round in 0.. {
        let overtaken = !remedy.is_empty();
        let steps = remedy.drain(..).chain(elements.iter().map(create));
        match socket.commit(&steps.collect()) {
            Ok(()) => break,
            Err(e) if round < ROUNDS && (e.is_missing() || e.is_present()) => {
                // Refused with the remedy in it: somebody else was faster. Look anew.
                if overtaken {
                    continue;
                }
                if e.is_missing() {
                    let refused = e.refusals().iter().filter(|r| r.is_missing()).filter_map(|r| elements.get(r.step));
                    remedy.extend(missing(socket, elements, refused)?);
                }
                remedy.extend(old_owners(socket, elements)?);
            }
            Err(e) => return Err(e.into()),
        }
    }
    // Whoever flushes chains, a firewall's reload say, may leave the maps.
    if wrong_chain(socket, elements)?.is_some() {
        repair(socket)?;
    }
    Ok(())
}

/// Puts back what is missing of table, maps, chains and rules; elements stay. Harmless
/// where nothing is missing, but not free: the kernel waits for packets on their way, some
/// 15 ms.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn repair(socket: &mut Socket) -> Result<(), AddError> {
    let there = all(socket)?;
    is_ours(socket)?;
    let networks = networks(there.iter().map(|(_, e)| e));
    Ok(socket.commit(&whole(Mode::Add, &networks).into_iter().collect())?)
}

/// A chain on the way of these elements that has not the number of rules it should have:
/// its name, and how many it has.
pub(crate) fn wrong_chain(socket: &mut Socket, elements: &[SetElement]) -> Result<Option<(String, usize)>, ReadError> {
    let targets: BTreeSet<&str> = elements.iter().filter_map(|e| target(&e.element)).collect();
    let networks = targets.into_iter().map(|chain| (chain, NETWORK_RULES));
    for (chain, rules) in std::iter::once((CHAIN, RULES)).chain(networks) {
        let found = socket.count_rules(Family::Inet, TABLE, chain)?;
        if found != rules {
            return Ok(Some((chain.to_owned(), found)));
        }
    }
    Ok(None)
}
/// What is missing, as one of the refused elements' table, map or chain is not there.
fn missing<'a>(socket: &mut Socket, elements: &[SetElement], refused: impl Iterator<Item = &'a SetElement>) -> Result<Vec<Step>, AddError> {
    if !is_ours(socket)? {
        return Ok(whole(Mode::Create, &networks(elements)));
    }
    // Maps that rules look into cannot be deleted: with the rules, only chains can be missing.
    if socket.count_rules(Family::Inet, TABLE, CHAIN)? == RULES {
        return Ok(networks(refused).iter().flat_map(|net| masquerade::network(Mode::Create, net)).collect());
    }
    let there = all(socket)?;
    Ok(whole(Mode::Add, &networks(there.iter().map(|(_, e)| e).chain(elements))))
}

/// Whether there is a table, and it is one that we know.
fn is_ours(socket: &mut Socket) -> Result<bool, AddError> {
    match socket.table(Family::Inet, TABLE)? {
        None => Ok(false),
        Some(table) if table.comment.as_deref() == Some(MARK) => Ok(true),
        Some(table) => Err(AddError::OtherLayout { found: table.comment.unwrap_or_default() }),
    }
}

/// The table with all that these networks need: from nothing, so that it fails where another
/// process is first; or over what is there, so that in the end there is one of each.
fn whole(mode: Mode, networks: &BTreeSet<IpNet>) -> Vec<Step> {
    let (family, name) = (Family::Inet, TABLE.to_owned());
    let mut steps = vec![Step::Table(mode, Table { family, name, comment: Some(MARK.to_owned()) })];
    steps.extend(masquerade::base(mode));
    steps.extend(networks.iter().flat_map(|net| masquerade::network(mode, net)));
    steps
}

/// The networks whose chains these elements lead to.
fn networks<'a>(elements: impl IntoIterator<Item = &'a SetElement>) -> BTreeSet<IpNet> {
    elements.into_iter().filter_map(|e| network_of(target(&e.element)?)).collect()
}

/// What takes away the elements that have these addresses now.
fn old_owners(socket: &mut Socket, elements: &[SetElement]) -> Result<Vec<Step>, AddError> {
    let found = socket.find(elements)?;
    let there = elements.iter().zip(found).filter(|(_, found)| found.is_some());
    Ok(there.map(|(wanted, _)| Step::DeleteElement(wanted.clone())).collect())
}
