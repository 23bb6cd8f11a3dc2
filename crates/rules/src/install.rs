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

use linux::nft::{Element, Family, Mode, ReadError, SetElement, Socket, Step, Table, TransactionError};

use crate::hostports::leads_to;
use crate::look::{elements_of, what};
use crate::part::{Subject, parts, targets};
use crate::{EGRESS, OwnerKey, TABLE, TUNNELLED, VXLAN};

/// The table's comment. The number is that of the layout: it changes when a set or a rule
/// that is there already means something else from then on, not when one is added.
const MARK: &str = "netloom, layout 1";

/// How often to start again when others change the same thing. All change it for the same
/// end, so that each round is the last one for somebody.
pub(crate) const ROUNDS: u32 = 100;

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
        "table {family} {TABLE} was made by another program or release (its comment is {found:?}, not {MARK:?}): \
         remove what uses it, then `nft delete table {family} {TABLE}`"
    )]
    OtherLayout {
        /// Whose table it is.
        family: Family,
        /// The table's comment; empty if it has none.
        found: String,
    },
    /// Another attachment has what is asked for, and keeps it.
    #[error("{what} is used by attachment {owner}: detach it first, or run CNI GC if its container is gone")]
    Held {
        /// What is requested: `host port 8080/tcp`.
        what: String,
        /// Whose it is.
        owner: String,
    },
}

/// Adds the elements in one transaction, and installs the rules where they are missing.
///
/// Elements that are there already, this owner's or another's with the same address, are
/// replaced: an address belongs to whom it was given last. A host port is refused while
/// another attachment has it, unless that one had the address that this one has now.
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
    if wrong(socket, elements)?.is_some() {
        repair(socket)?;
    }
    Ok(())
}

/// Puts back what is missing of table, maps, chains and rules, for the elements that are
/// there; they stay. Harmless where nothing is missing, but not free: the kernel waits for
/// packets on their way, some 15 ms.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn repair(socket: &mut Socket) -> Result<(), AddError> {
    let mut there = Vec::new();
    for part in crate::part::PARTS {
        is_ours(socket, part.family)?;
        there.extend(elements_of(socket, part)?);
    }
    let mut parts = parts(&there);
    // What belongs to the node is nobody's element: that of its subject which a flush leaves is the chain.
    for of_node in [&EGRESS, &TUNNELLED, &VXLAN] {
        if has_fixed(socket, of_node)? {
            parts.push(of_node);
        }
    }
    let mut steps = whole(Mode::Add, &parts, &targets(&there));
    steps.extend(without_former(socket, &parts)?);
    Ok(socket.commit(&steps.into_iter().collect())?)
}

/// Installs what host ports need, as [`install_and_add`] would with the first of them: for those who let packets for 127.0.0.0/8
/// cross an interface, and publish ports elsewhere. The chain `loopback` drops those that come from neighbours. Whether anything was
/// missing.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn guard_loopback(socket: &mut Socket) -> Result<bool, AddError> {
    let part = &crate::HOST_PORTS;
    if is_ours(socket, part.family)? && wrong_fixed(socket, part)?.is_none() {
        return Ok(false);
    }
    let there = elements_of(socket, part)?;
    socket.commit(&whole(Mode::Add, &[part], &targets(&there)).into_iter().collect())?;
    Ok(true)
}

/// Whether the kernel can have what a subject installs, and one of the chains that elements lead to. Where the subject is there
/// it can. `None`: it can; else what it says.
///
/// # Errors
/// [`AddError`], if it could not be asked, or an ADD would fail for another reason.
pub(crate) fn lacks(socket: &mut Socket, part: &Subject, target: &str) -> Result<Option<String>, AddError> {
    if is_ours(socket, part.family)? && wrong_fixed(socket, part)?.is_none() {
        return Ok(None);
    }
    Ok(tried(socket, part.family, whole(Mode::Add, &[part], &BTreeSet::from([target])))?)
}

/// What the kernel says against these steps. They are in a transaction that fails at its last step, so that nothing is there
/// afterwards.
pub(crate) fn tried(socket: &mut Socket, family: Family, mut steps: Vec<Step>) -> Result<Option<String>, TransactionError> {
    let last = steps.len();
    steps.push(Step::FlushChain { family, table: TABLE.to_owned(), name: "none".to_owned() });
    match socket.commit(&steps.into_iter().collect()) {
        Err(TransactionError::Refused { refusals }) => Ok(refusals.iter().find(|r| r.step != last).map(ToString::to_string)),
        other => other.map(|()| None),
    }
}

/// What is not as it was installed.
pub(crate) enum Drift {
    /// A chain that has not the number of rules it should have.
    Chain {
        family: Family,
        /// Its name.
        chain: String,
        /// How many it has.
        found: usize,
    },
    /// An element that comes with a chain.
    Missing(SetElement),
}

/// What is so on the way of these elements.
pub(crate) fn wrong(socket: &mut Socket, elements: &[SetElement]) -> Result<Option<Drift>, ReadError> {
    let targets = targets(elements);
    for part in parts(elements) {
        if let Some(wrong) = wrong_fixed(socket, part)? {
            return Ok(Some(wrong));
        }
        for (chain, length) in targets.iter().flat_map(|chain| part.lengths(chain)) {
            if let Some(wrong) = wrong_length(socket, part.family, &chain, length)? {
                return Ok(Some(wrong));
            }
        }
        let companion: Vec<SetElement> =
            targets.iter().filter_map(|chain| (part.companion)(chain)).map(|companion| companion.element).collect();
        let found = socket.find(&companion)?;
        if let Some((missing, _)) = companion.into_iter().zip(found).find(|(_, found)| found.is_none()) {
            return Ok(Some(Drift::Missing(missing)));
        }
    }
    Ok(None)
}

/// Whether any chain of a subject is there, with rules or without.
fn has_fixed(socket: &mut Socket, part: &Subject) -> Result<bool, ReadError> {
    for chain in part.chains {
        if socket.has_chain(part.family, TABLE, chain.name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Such a chain among those that are there whatever elements there are.
pub(crate) fn wrong_fixed(socket: &mut Socket, part: &Subject) -> Result<Option<Drift>, ReadError> {
    for chain in part.chains {
        if let Some(wrong) = wrong_length(socket, part.family, chain.name, (chain.rules)().len())? {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

fn wrong_length(socket: &mut Socket, family: Family, chain: &str, rules: usize) -> Result<Option<Drift>, ReadError> {
    let found = socket.count_rules(family, TABLE, chain)?;
    Ok((found != rules).then(|| Drift::Chain { family, chain: chain.to_owned(), found }))
}

/// What is missing, as one of the refused elements' table, map or chain is not there.
pub(crate) fn missing<'a>(
    socket: &mut Socket,
    elements: &'a [SetElement],
    refused: impl Iterator<Item = &'a SetElement>,
) -> Result<Vec<Step>, AddError> {
    let (mut there, mut nowhere) = (Vec::new(), Vec::new());
    for part in parts(elements) {
        if is_ours(socket, part.family)? { &mut there } else { &mut nowhere }.push(part);
    }
    let refused = targets(refused);
    let mut steps = whole(Mode::Create, &nowhere, &targets(elements));
    for part in there {
        // Maps that rules look into cannot be deleted: with the rules, only chains can be missing.
        if wrong_fixed(socket, part)?.is_none() {
            steps.extend(refused.iter().flat_map(|chain| part.target(Mode::Create, chain)));
        } else {
            let there = elements_of(socket, part)?;
            steps.extend(whole(Mode::Add, &[part], &targets(there.iter().chain(elements))));
            steps.extend(without_former(socket, &[part])?);
        }
    }
    Ok(steps)
}

/// Whether there is a table of that family, and it is one that we know.
pub(crate) fn is_ours(socket: &mut Socket, family: Family) -> Result<bool, AddError> {
    match socket.table(family, TABLE)? {
        None => Ok(false),
        Some(table) if table.comment.as_deref() == Some(MARK) => Ok(true),
        Some(table) => Err(AddError::OtherLayout { family, found: table.comment.unwrap_or_default() }),
    }
}

/// The tables with all that these subjects and the chains that elements lead to need: from
/// nothing, so that it fails where another process is first; or over what is there, so that
/// in the end there is one of each.
pub(crate) fn whole(mode: Mode, parts: &[&Subject], targets: &BTreeSet<&str>) -> Vec<Step> {
    let families: BTreeSet<Family> = parts.iter().map(|part| part.family).collect();
    let table = |family| Table { family, name: TABLE.to_owned(), comment: Some(MARK.to_owned()) };
    let mut steps: Vec<Step> = families.into_iter().map(|family| Step::Table(mode, table(family))).collect();
    for part in parts {
        steps.extend(part.fixed(mode));
        steps.extend(targets.iter().flat_map(|chain| part.target(mode, chain)));
    }
    steps
}

/// What takes away the chains that a release of before had for these subjects, to be done together with writing the rules that replace them.
pub(crate) fn without_former(socket: &mut Socket, parts: &[&Subject]) -> Result<Vec<Step>, ReadError> {
    let mut steps = Vec::new();
    for part in parts {
        let family = part.family;
        for name in part.former {
            if socket.has_chain(family, TABLE, name)? {
                let (table, name) = (TABLE.to_owned(), (*name).to_owned());
                steps.push(Step::FlushChain { family, table: table.clone(), name: name.clone() });
                steps.push(Step::DeleteChain { family, table, name });
            }
        }
    }
    Ok(steps)
}

/// What takes away the elements that have these keys now.
fn old_owners(socket: &mut Socket, elements: &[SetElement]) -> Result<Vec<Step>, AddError> {
    let mut steps = Vec::new();
    for (wanted, found) in elements.iter().zip(socket.find(elements)?) {
        let Some(found) = found else { continue };
        if let Some(owner) = holder(wanted, &found) {
            return Err(AddError::Held { what: what(wanted), owner });
        }
        steps.push(Step::DeleteElement(wanted.clone()));
    }
    Ok(steps)
}

/// The other attachment that keeps an element. One whose address is the new owner's by now cannot be there any more: who
/// gives out addresses gives none twice.
fn holder(wanted: &SetElement, found: &Element) -> Option<String> {
    let held = parts(std::slice::from_ref(wanted)).iter().any(|part| part.map(&wanted.set).is_some_and(|map| map.held));
    if !held || found.comment == wanted.element.comment {
        return None;
    }
    (leads_to(found) != leads_to(&wanted.element)).then(|| holder_of(found))
}

/// Whose an element is, in words.
pub(crate) fn holder_of(found: &Element) -> String {
    let owner = found.comment.as_deref().and_then(OwnerKey::parse);
    owner.map_or_else(|| "of an unknown owner".to_owned(), |key| key.to_string())
}
