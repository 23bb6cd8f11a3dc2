//! Chains to which no element leads any more. A network's first address brings its chain (`masquerade.rs`), and conditions bring theirs
//! (`conditions.rs`); whoever may write definitions may have another one in each. So they go when there are many.
//!
//! The kernel refuses to delete a chain to which an element leads (EBUSY), and an ADD that finds none makes it in the transaction of its
//! elements: of the two that meet, one always sees the other.

use std::collections::BTreeSet;

use linux::Errno;
use linux::nft::{Socket, Step, TransactionError};

use crate::TABLE;
use crate::install::AddError;
use crate::look::elements_of;
use crate::part::{PARTS, Subject, targets};

/// How many chains go in one transaction.
const TOGETHER: usize = 256;

/// Takes away the chains that elements lead to, where none does and more than `few` of a subject are so; how many. A bridge's own go with its last container
/// ([`forget_idle_bridges`](crate::forget_idle_bridges)).
///
/// # Errors
/// [`AddError`]; repeat the whole call then, it is harmless.
pub fn forget_idle_chains(socket: &mut Socket, few: usize) -> Result<usize, AddError> {
    let mut gone = 0;
    for part in PARTS {
        let idle = idle(socket, part)?;
        if idle.len() <= few {
            continue;
        }
        for chains in idle.chunks(TOGETHER) {
            let done = socket.commit(&chains.iter().map(|name| delete(part, name)).collect());
            gone += match done {
                Ok(()) => chains.len(),
                // One of them has got an element meanwhile.
                Err(e) if is_overtaken(&e) => one_by_one(socket, part, chains)?,
                Err(e) => return Err(e.into()),
            };
        }
    }
    Ok(gone)
}

fn idle(socket: &mut Socket, part: &Subject) -> Result<Vec<String>, AddError> {
    let is_own = |name: &String| (part.target)(name).is_some() && (part.companion)(name).is_none();
    let mut chains: Vec<String> = socket.plain_chains(part.family, TABLE)?.into_iter().filter(is_own).collect();
    if !chains.is_empty() {
        let elements = elements_of(socket, part)?;
        let used: BTreeSet<&str> = targets(&elements);
        chains.retain(|name| !used.contains(name.as_str()));
    }
    Ok(chains)
}

fn one_by_one(socket: &mut Socket, part: &Subject, chains: &[String]) -> Result<usize, AddError> {
    let mut gone = 0;
    for name in chains {
        match socket.commit(&[delete(part, name)].into_iter().collect()) {
            Ok(()) => gone += 1,
            Err(e) if is_overtaken(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(gone)
}

/// Its rules go with it.
fn delete(part: &Subject, name: &str) -> Step {
    Step::DeleteChain { family: part.family, table: TABLE.to_owned(), name: name.to_owned() }
}

fn is_overtaken(e: &TransactionError) -> bool {
    e.is_missing() || e.refusals().iter().any(|refusal| refusal.errno == Errno::EBUSY)
}
