//! Single addresses of a cell: kept for an owner, and delegated to the node where the owner's pod runs.
//!
//! ```text
//!   free --assign--> owned --delegate--> owned, a node's --(the node returns it, or is no more)--> owned --release--> free
//!                                            | join: its pod migrates                ^
//!                                            v                                       |
//!                                        two nodes' --(either returns it)--> the other one's
//! ```
//!
//! A life is for those pods of a claim that say that they migrate, or for those that do not, from its begin to its end: only the former
//! are two nodes'. Nodes keep to it, so that who does not migrate never has what another node has as well, whatever is read late.
//!
//! Each of these changes a [`Cell`] in a shard that was read, which is then written if nobody else has: who loses that race reads
//! again and decides again. An address's epoch is above that of the cell's life before, and the cell's is above those of its
//! addresses: a life never comes twice.

use std::net::IpAddr;

use api::{Cell, CellState, Hold, Owner, SharedIp};
use pool::{Run, number};

use crate::grid::CellPosition;

/// Why an address is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// A node has the whole block.
    #[error(
        "{address} lies in block {block}, which node {node} has for pool {pool}: reserve it in the IPPool, or wait until it is returned"
    )]
    Granted {
        /// The address.
        address: IpAddr,
        /// The block.
        block: Run,
        /// The node.
        node: String,
        /// The pool.
        pool: String,
    },
    /// Somebody else is its owner.
    #[error("{address} is reserved for {}: request another one", named(owner))]
    Owned {
        /// The address.
        address: IpAddr,
        /// By whom.
        owner: Box<Owner>,
    },
    /// Nobody is its owner.
    #[error("{address} is not reserved: assign it first")]
    Nobody {
        /// The address.
        address: IpAddr,
    },
    /// A node may still hand it out.
    #[error("{address} belongs to node {node} (epoch {epoch}), which must return it or be deleted")]
    Delegated {
        /// The address.
        address: IpAddr,
        /// The node.
        node: String,
        /// Of that life.
        epoch: u64,
    },
    /// The address is not of this cell.
    #[error("{address} is not in block {block}")]
    Elsewhere {
        /// The address.
        address: IpAddr,
        /// The block.
        block: Run,
    },
}

fn named(owner: &Owner) -> &str {
    [&owner.claim, &owner.pod, &owner.cilium_node].into_iter().find(|text| !text.is_empty()).map_or("nobody", |text| text)
}

/// Keeps an address for an owner. Nothing changes if it is theirs already. `above`: `IpLedgerShardSpec::first_epoch`.
///
/// # Errors
/// [`SharedError`]: then the cell is as it was.
pub fn assign(cell: &mut Cell, place: &CellPosition, address: IpAddr, pool: &str, owner: &Owner, above: u64) -> Result<(), SharedError> {
    let number = key(place, address)?;
    if matches!(cell.state, CellState::Granted | CellState::Returning) {
        return Err(SharedError::Granted { address, block: place.run(), node: cell.node.clone(), pool: cell.pool.clone() });
    }
    let ip = cell.ips.get(&number).cloned().unwrap_or_default();
    if is_same(&ip.owner, owner) && cell.state == CellState::Shared {
        return Ok(());
    }
    if ip.owner != Owner::default() {
        return Err(SharedError::Owned { address, owner: Box::new(ip.owner) });
    }
    if let Some(hold) = ip.holds().next() {
        return Err(delegated(address, hold));
    }
    cell.state = CellState::Shared;
    let hold = Hold { epoch: ip.last_epoch().max(cell.epoch).max(above), ..Hold::default() };
    cell.ips.insert(number, SharedIp { hold, pool: pool.to_owned(), owner: owner.clone(), second: None });
    Ok(())
}

/// Whether it is the same owner, whichever of its pods a life is for.
fn is_same(one: &Owner, other: &Owner) -> bool {
    Owner { migrates: other.migrates, ..one.clone() } == *other
}

/// Lets a node hand out an address to its owner, in a life of its own. Nothing changes if the node has it already.
///
/// # Errors
/// [`SharedError`]: then the cell is as it was.
pub fn delegate(cell: &mut Cell, place: &CellPosition, address: IpAddr, node: &str, node_uid: &str) -> Result<(), SharedError> {
    delegate_for(cell, place, address, (node, node_uid), false)
}

/// The same, where a life that begins is for those pods of a claim that migrate ([`Owner::migrates`]), or for the others.
///
/// # Errors
/// As [`delegate`].
pub fn delegate_for(
    cell: &mut Cell,
    place: &CellPosition,
    address: IpAddr,
    (node, node_uid): (&str, &str),
    migrates: bool,
) -> Result<(), SharedError> {
    let number = key(place, address)?;
    let above = cell.epoch;
    let ip = cell.ips.get_mut(&number).filter(|ip| ip.owner != Owner::default()).ok_or(SharedError::Nobody { address })?;
    if let Some(hold) = ip.holds_mut().find(|hold| hold.node_uid == node_uid && !hold.returning) {
        // Asked to return it, it may have promised to; then it comes again in another life.
        hold.ending = false;
        return Ok(());
    }
    if let Some(hold) = ip.holds().next() {
        return Err(delegated(address, hold));
    }
    ip.hold = next_life(ip, above, node, node_uid);
    ip.second = None;
    ip.owner.migrates = migrates;
    Ok(())
}

/// Lets a second node hand out an address to its owner, in a life of its own, while the one that has it keeps it: the owner's pod
/// migrates from the one to the other. Nothing changes if the second node has it already.
///
/// # Errors
/// [`SharedError::Delegated`] if two have it, or the one that has it is to return it, or has it for pods that do not migrate;
/// [`SharedError`]: then the cell is as it was.
pub fn join(cell: &mut Cell, place: &CellPosition, address: IpAddr, node: &str, node_uid: &str) -> Result<(), SharedError> {
    let number = key(place, address)?;
    let above = cell.epoch;
    let ip = cell.ips.get_mut(&number).filter(|ip| ip.is_held()).ok_or(SharedError::Nobody { address })?;
    if ip.holds().any(|hold| hold.node_uid == node_uid && !hold.returning && !hold.ending) {
        return Ok(());
    }
    // Who is to return it migrates no more.
    let may = ip.owner.migrates && ip.hold.node_uid != node_uid && !ip.hold.returning && !ip.hold.ending;
    if let Some(hold) = if may { ip.holds().nth(1) } else { Some(&ip.hold) } {
        return Err(delegated(address, hold));
    }
    ip.second = Some(next_life(ip, above, node, node_uid));
    Ok(())
}

fn next_life(ip: &SharedIp, above: u64, node: &str, node_uid: &str) -> Hold {
    let epoch = ip.last_epoch().max(above).saturating_add(1);
    Hold { epoch, node: node.to_owned(), node_uid: node_uid.to_owned(), ..Hold::default() }
}

fn delegated(address: IpAddr, hold: &Hold) -> SharedError {
    SharedError::Delegated { address, node: hold.node.clone(), epoch: hold.epoch }
}

/// An owner that was made anew under its name keeps what it had.
///
/// # Errors
/// [`SharedError::Elsewhere`]
pub(crate) fn rename(cell: &mut Cell, place: &CellPosition, address: IpAddr, owner: &Owner) -> Result<(), SharedError> {
    let number = key(place, address)?;
    if let Some(ip) = cell.ips.get_mut(&number).filter(|ip| ip.owner.claim == owner.claim) {
        ip.owner = Owner { migrates: ip.owner.migrates, ..owner.clone() };
    }
    Ok(())
}

/// Asks a node that has an address to return it, as soon as nobody has it there. Nothing changes where that node does not have it.
///
/// # Errors
/// [`SharedError::Elsewhere`]
pub fn recall(cell: &mut Cell, place: &CellPosition, address: IpAddr, node_uid: &str) -> Result<(), SharedError> {
    let number = key(place, address)?;
    let ip = cell.ips.get_mut(&number);
    for hold in ip.into_iter().flat_map(SharedIp::holds_mut).filter(|hold| hold.node_uid == node_uid && !hold.returning) {
        hold.ending = true;
    }
    Ok(())
}

/// Takes an address from the node that has it and has promised never to use it again in this life. [`crate::step`] does it when
/// the address has left the node's spec. Nothing changes where it is another life.
///
/// # Errors
/// [`SharedError::Elsewhere`]
pub fn take_back(cell: &mut Cell, place: &CellPosition, address: IpAddr, epoch: u64) -> Result<(), SharedError> {
    let number = key(place, address)?;
    if let Some(ip) = cell.ips.get_mut(&number) {
        leave(ip, epoch);
    }
    Ok(())
}

/// Keeps an address for nobody any more. The last one makes the cell free.
///
/// # Errors
/// [`SharedError::Delegated`]: a node has it still; [`SharedError::Elsewhere`].
pub fn release(cell: &mut Cell, place: &CellPosition, address: IpAddr) -> Result<(), SharedError> {
    let number = key(place, address)?;
    let Some(ip) = cell.ips.get_mut(&number) else { return Ok(()) };
    if let Some(hold) = ip.holds().next() {
        return Err(delegated(address, hold));
    }
    *ip = SharedIp { hold: Hold { epoch: ip.last_epoch(), ..Hold::default() }, ..SharedIp::default() };
    if cell.state == CellState::Shared && cell.ips.values().all(|ip| ip.owner == Owner::default()) {
        let epoch = cell.ips.values().map(SharedIp::last_epoch).fold(cell.epoch, u64::max);
        *cell = Cell { epoch, ..Cell::default() };
    }
    Ok(())
}

/// The node that has an address in that life has it no more; its owner keeps it, and so does another node that has it.
pub(crate) fn leave(ip: &mut SharedIp, epoch: u64) {
    let nobody = Hold { epoch, ..Hold::default() };
    match &mut ip.second {
        Some(second) if second.epoch == epoch => *second = nobody,
        _ if ip.hold.epoch == epoch => ip.hold = ip.second.take().unwrap_or(nobody),
        _ => {}
    }
}

/// The cell with an address that a node has and the ledger did not know; `None`: it does, or it knows a later life. Who has it
/// otherwise is the error. Two nodes have it where it is one claim's, whose pod migrates.
pub(crate) fn adopt(cell: &Cell, place: &CellPosition, run: Run, ip: &SharedIp) -> Result<Option<Cell>, String> {
    let Some(number) = offset_of(place, &run) else { return Err(cell.node.clone()) };
    let known = cell.ips.get(&number).cloned().unwrap_or_default();
    let new = &ip.hold;
    let same = known.holds().find(|hold| hold.epoch == new.epoch);
    if let Some(hold) = same {
        return if hold.node_uid == new.node_uid { Ok(None) } else { Err(hold.node.clone()) };
    }
    if cell.epoch >= new.epoch || known.last_epoch() >= new.epoch {
        return Ok(None);
    }
    if matches!(cell.state, CellState::Granted | CellState::Returning) {
        return Err(cell.node.clone());
    }
    let mut others = known.holds().filter(|hold| hold.node_uid != new.node_uid);
    let entry = match (others.next(), others.next()) {
        // Of one node's the later life counts, whichever pods it is for.
        (None, _) if known.owner.is_nobody() || is_same(&known.owner, &ip.owner) => ip.clone(),
        (Some(first), None) if known.owner == ip.owner && ip.owner.migrates => {
            SharedIp { hold: first.clone(), second: Some(new.clone()), ..ip.clone() }
        }
        (other, _) => return Err(other.map(|hold| hold.node.clone()).unwrap_or_default()),
    };
    let mut cell = Cell { state: CellState::Shared, ..cell.clone() };
    cell.ips.insert(number, entry);
    Ok(Some(cell))
}

/// The key in [`Cell::ips`] of a run of one address.
pub(crate) fn offset_of(place: &CellPosition, run: &Run) -> Option<String> {
    (run.count() == 1).then(|| place.offset(run.first())).flatten().map(|n| n.to_string())
}

/// The address behind a key of [`Cell::ips`].
pub(crate) fn address(place: &CellPosition, key: &str) -> Option<IpAddr> {
    let at = number(place.run().first()).checked_add(key.parse().ok()?)?;
    Some(place.run().family().address(at)).filter(|a| place.run().contains(*a))
}

fn key(place: &CellPosition, address: IpAddr) -> Result<String, SharedError> {
    let elsewhere = || SharedError::Elsewhere { address, block: place.run() };
    place.offset(address).map(|n| n.to_string()).ok_or_else(elsewhere)
}
