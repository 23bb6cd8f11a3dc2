//! Putting back what somebody has taken away: a `nft flush ruleset`, a firewall's reload.
//!
//! ```text
//! elements that attachments have --find--> those that are missing --create, rules too where missing--> there again
//!                                          those at whose place another's are: left, and told
//! ```
//!
//! What is in place is not touched: no packet meets a gap on account of it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use linux::nft::{Element, Mode, ReadError, SetElement, Socket, Step};

use crate::install::{AddError, ROUNDS, missing, repair, wrong};

/// How many elements go in one transaction: what a send takes with room to spare.
const PER_TRANSACTION: usize = 1_000;

/// What came of a [`restore`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// What was missing, and is there again.
    pub put_back: Vec<SetElement>,
    /// What is missing, as another's is at its place, which stays.
    pub taken: Vec<SetElement>,
    /// Whether rules over elements that were there had to be put back, too.
    pub rules: bool,
}

/// What is there of elements that attachments have, and nothing is changed.
///
/// # Errors
/// [`ReadError`]
pub fn missing_of(socket: &mut Socket, elements: &[SetElement]) -> Result<Restored, ReadError> {
    let (put_back, taken) = wanting(socket, elements)?;
    let rules = wrong(socket, &without(elements, &[&put_back, &taken]))?.is_some();
    Ok(Restored { put_back, taken, rules })
}

/// Puts back those of these elements that are missing, and rules where they are missing, a thousand elements a transaction.
/// Another's element is never replaced: an address that was given anew is its new owner's.
///
/// # Errors
/// [`AddError`]; what was put back before is. Repeat the whole call then, it is harmless.
pub fn restore(socket: &mut Socket, elements: &[SetElement]) -> Result<Restored, AddError> {
    let (missing, taken) = wanting(socket, elements)?;
    let mut restored = Restored { taken, ..Restored::default() };
    for chunk in missing.chunks(PER_TRANSACTION) {
        let done = restore_chunk(socket, chunk)?;
        linux::crash_point!("restore-chunk");
        restored.put_back.extend(done.put_back);
        restored.taken.extend(done.taken);
    }
    // Whoever flushes chains may leave the maps. What was put back just now came with its rules.
    if wrong(socket, &without(elements, &[&restored.taken]))?.is_some() {
        repair(socket)?;
        restored.rules = true;
    }
    Ok(restored)
}

fn restore_chunk(socket: &mut Socket, elements: &[SetElement]) -> Result<Restored, AddError> {
    let (mut round, mut remedy) = (0, Vec::new());
    loop {
        let (wanted, taken) = absent(socket, elements)?;
        if wanted.is_empty() {
            return Ok(Restored { taken, ..Restored::default() });
        }
        let overtaken = !remedy.is_empty();
        let steps = remedy.drain(..).chain(wanted.iter().map(|e| Step::Element(Mode::Create, e.clone())));
        match socket.commit(&steps.collect()) {
            Ok(()) => return Ok(Restored { put_back: wanted, taken, rules: false }),
            // Somebody else was faster: look anew.
            Err(e) if round < ROUNDS && (e.is_present() || overtaken && e.is_missing()) => {}
            Err(e) if round < ROUNDS && e.is_missing() => {
                let refused = e.refusals().iter().filter(|r| r.is_missing()).filter_map(|r| wanted.get(r.step));
                remedy = missing(socket, &wanted, refused)?;
            }
            Err(e) => return Err(e.into()),
        }
        round += 1;
    }
}

/// Those that are not there, one a place: of two attachments with one address the first has it. What is asked for twice is asked
/// for once. And those that cannot be, as their place is another's.
fn wanting(socket: &mut Socket, elements: &[SetElement]) -> Result<(Vec<SetElement>, Vec<SetElement>), ReadError> {
    let (missing, mut taken) = absent(socket, elements)?;
    let mut first = Vec::with_capacity(missing.len());
    let mut places = HashMap::new();
    for element in missing {
        match places.entry((element.family, element.table.clone(), element.set.clone(), element.element.key.clone())) {
            Entry::Vacant(place) => {
                place.insert(element.clone());
                first.push(element);
            }
            Entry::Occupied(place) if *place.get() == element => {}
            Entry::Occupied(_) => taken.push(element),
        }
    }
    Ok((first, taken))
}

/// Those of the elements that are in none of these lists.
fn without(elements: &[SetElement], lists: &[&[SetElement]]) -> Vec<SetElement> {
    let others: HashSet<&SetElement> = lists.iter().copied().flatten().collect();
    elements.iter().filter(|e| !others.contains(e)).cloned().collect()
}

/// Those that are not there; and those at whose place another's are.
fn absent(socket: &mut Socket, elements: &[SetElement]) -> Result<(Vec<SetElement>, Vec<SetElement>), ReadError> {
    let (mut wanted, mut taken) = (Vec::new(), Vec::new());
    for (element, found) in elements.iter().zip(socket.find(elements)?) {
        match found {
            None => wanted.push(element.clone()),
            Some(found) if is(element, &found) => {}
            Some(_) => taken.push(element.clone()),
        }
    }
    Ok((wanted, taken))
}

/// Whether what is there is the attachment's own.
fn is(wanted: &SetElement, found: &Element) -> bool {
    found.comment == wanted.element.comment && found.data == wanted.element.data
}
