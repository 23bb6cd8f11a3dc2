//! Handing out addresses: one of each range set, all of them or none.
//!
//! ```text
//! requested addresses --assign--> which set each is for        (no file touched yet)
//!     lock; know what is held; refuse an owner that holds some; choose one address for each set
//!     make the files; note the last address of each set; keep what is known; unlock
//! ```
//!
//! All is chosen before the first file is made, so a refusal leaves no trace, not even in `last_reserved_ip`. When a
//! file cannot be made, those that were made go again.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::{CniError, Code, IpConfig, NetworkName};
use ipnet::IpNet;

use super::Store;
use super::failure::IoFailure;
use super::files::{self, LastReserved};
use super::free::capacity;
use super::known::{AddressIndex, Doubt, Holdings};
use super::lock::{self, LockError};
use super::owner::{Holder, Owner};
use crate::range::{Range, RangeSet};

/// So many sets are named by an error.
const SHOWN: usize = 4;

/// One address that has been handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The address with its subnet's prefix length.
    pub address: IpNet,
    /// Its range's gateway.
    pub gateway: Option<IpAddr>,
    /// Which range set it is of, counted from 0.
    pub set: usize,
}

/// Addresses that cannot be handed out; nothing has been taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// A requested address is in no range.
    #[error("failed to allocate all requested IPs: {address} is outside of the ranges of this network: choose one of {sets}")]
    OutOfRange {
        /// The address.
        address: IpAddr,
        /// All range sets.
        sets: String,
    },
    /// Two addresses were requested of one set.
    #[error(
        "requested addresses {first} and {address} are both in range set {set}, which assigns one address: request one of them, or \
            configure two sets"
    )]
    OnePerSet {
        /// The address that is too much.
        address: IpAddr,
        /// The one that was requested before.
        first: IpAddr,
        /// The set, counted from 0.
        set: usize,
    },
    /// A requested address is a gateway's.
    #[error("requested ip {address} is subnet's gateway: it is the gateway of {subnet}: choose another")]
    Gateway {
        /// The address.
        address: IpAddr,
        /// The subnet.
        subnet: IpNet,
    },
    /// A requested address has a holder.
    #[error("requested address {address} is taken: {holder} holds it ({path}): choose another, or delete that container; a CNI GC frees \
        it if its owner is gone", path = .path.display())]
    Taken {
        /// The address.
        address: IpAddr,
        /// Who holds it.
        holder: Box<Holder>,
        /// The file that says so.
        path: PathBuf,
    },
    /// The owner has an address of this set already (SPEC 4: a second ADD without a DEL).
    #[error("range set {set}: {owner} already holds {address} on network {network}, and a second ADD needs a DEL first")]
    Duplicate {
        /// What it holds.
        address: IpAddr,
        /// The owner.
        owner: Box<Owner>,
        /// The network.
        network: NetworkName,
        /// The set, counted from 0.
        set: usize,
    },
    /// No address is left.
    #[error("no IP addresses available in range set: {ranges} (set {set} of network {network}): {addresses} of {addresses} are taken, \
        see {dir}; free those of deleted containers with a CNI GC, or enlarge the range", dir = .dir.display())]
    Exhausted {
        /// The network.
        network: NetworkName,
        /// The set, counted from 0.
        set: usize,
        /// Its ranges.
        ranges: String,
        /// How many addresses it has, gateways not counted.
        addresses: u128,
        /// Where the holders are recorded.
        dir: PathBuf,
    },
    /// The lock was not to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file could not be written or read.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl From<AllocateError> for CniError {
    fn from(e: AllocateError) -> Self {
        let code = match e {
            AllocateError::Lock(e) => return e.into(),
            AllocateError::Io(e) => return e.into(),
            AllocateError::OutOfRange { .. } | AllocateError::OnePerSet { .. } | AllocateError::Gateway { .. } => Code::INVALID_CONFIG,
            AllocateError::Duplicate { .. } => Code::INVALID_ENVIRONMENT,
            // Both pass when somebody else's container goes.
            AllocateError::Taken { .. } | AllocateError::Exhausted { .. } => Code::TRY_AGAIN_LATER,
        };
        let is_request = matches!(e, AllocateError::OutOfRange { .. } | AllocateError::OnePerSet { .. } | AllocateError::Gateway { .. });
        CniError::new(code, e.to_string()).at(if is_request { "args.cni.ips" } else { "" })
    }
}

impl From<Allocated> for IpConfig {
    fn from(a: Allocated) -> Self {
        IpConfig { interface: None, address: a.address, gateway: a.gateway }
    }
}

/// The address that was requested of a set.
type Wanted<'a> = Option<(&'a Range, IpAddr)>;

/// Why addresses are not taken.
enum Stop {
    Refused(AllocateError),
    /// The files have to be read first.
    Doubt,
}

impl From<AllocateError> for Stop {
    fn from(e: AllocateError) -> Self {
        Stop::Refused(e)
    }
}

impl From<IoFailure> for Stop {
    fn from(e: IoFailure) -> Self {
        Stop::Refused(e.into())
    }
}

impl From<Doubt> for Stop {
    fn from(_: Doubt) -> Self {
        Stop::Doubt
    }
}

/// What a set gives.
struct Choice<'a> {
    range: &'a Range,
    ip: IpAddr,
    requested: bool,
    /// Of its set.
    last: LastReserved,
}

/// What is never handed out.
fn gateways(sets: &[RangeSet]) -> HashSet<IpAddr> {
    sets.iter().flat_map(RangeSet::ranges).map(Range::gateway).collect()
}

// === impl Store ===

impl Store {
    /// Hands out one address of each set to an owner: the requested one where there is one, otherwise the next in turn.
    /// One lock over the whole call; all addresses or none. No gateway of any range is ever handed out.
    ///
    /// # Errors
    /// [`AllocateError`]; no address is then taken.
    pub fn allocate(&self, owner: &Owner, sets: &[RangeSet], requested: &[IpAddr]) -> Result<Vec<Allocated>, AllocateError> {
        let requested = assign(sets, requested)?;
        files::create(&self.dir)?;
        linux::crash_point!("allocate-unlocked");
        let lock = lock::exclusive(&self.dir, self.deadline)?;
        linux::crash_point!("allocate-locked");

        // Only a search needs to know what is there; a requested address is free if its own file does not exist.
        let mut known = match requested.contains(&None) {
            true => Some(AddressIndex::get(&self.dir, true)?),
            false => AddressIndex::indexed(&self.dir, true),
        };
        loop {
            match self.take_all(owner, sets, &requested, &mut known) {
                Ok(choices) => {
                    known.into_iter().for_each(|known| known.keep(&lock));
                    return Ok(choices.iter().enumerate().map(|(set, choice)| choice.allocated(set)).collect());
                }
                Err(Stop::Refused(e)) => {
                    known.into_iter().for_each(|known| known.keep(&lock));
                    return Err(e);
                }
                Err(Stop::Doubt) => known = Some(AddressIndex::read(&self.dir, true, |_, _| ())?),
            }
        }
    }

    /// Whether files can be made where addresses are kept. That none is free is no failure of the store: who says so to a
    /// runtime has its node taken for broken, and all that runs there evicted.
    ///
    /// # Errors
    /// [`AllocateError::Io`]
    pub fn is_usable(&self) -> Result<(), AllocateError> {
        Ok(files::can_be_made(&self.dir)?)
    }

    /// Nothing has been taken after an error.
    fn take_all<'a>(
        &self,
        owner: &Owner,
        sets: &'a [RangeSet],
        requested: &[Wanted<'a>],
        known: &mut Option<AddressIndex<'_>>,
    ) -> Result<Vec<Choice<'a>>, Stop> {
        self.refuse_duplicate(owner, sets, requested, known)?;
        let gateways = gateways(sets);
        let mut choices = Vec::with_capacity(sets.len());
        for (index, (set, wanted)) in sets.iter().zip(requested).enumerate() {
            choices.push(match wanted {
                Some((range, ip)) => {
                    self.refuse_taken(*ip)?;
                    Choice { range, ip: *ip, requested: true, last: LastReserved::unread(&self.dir, index) }
                }
                None => self.choose(index, set, known, &gateways)?,
            });
        }

        let (content, mut made) = (owner.text(), Vec::new());
        let done = self.make(&content, sets, &mut choices, known, &gateways, &mut made);
        if done.is_err() {
            for ip in made {
                // Nobody is left to tell; DEL of the owner, which follows a failed ADD, frees the address.
                let gone = files::remove(&self.path(ip)).is_ok();
                known.iter_mut().for_each(|known| known.take_back(ip, &content, gone));
            }
        }
        done.map(|()| choices)
    }

    /// Makes the files, and notes in `made` whose there are, also if it fails.
    fn make<'a>(
        &self,
        content: &str,
        sets: &'a [RangeSet],
        choices: &mut [Choice<'a>],
        known: &mut Option<AddressIndex<'_>>,
        gateways: &HashSet<IpAddr>,
        made: &mut Vec<IpAddr>,
    ) -> Result<(), Stop> {
        for (index, (set, choice)) in sets.iter().zip(choices.iter_mut()).enumerate() {
            // Taken only now, by somebody who does not care for the lock; or the index is wrong.
            while !files::reserve(&self.dir, choice.ip, content)? {
                if choice.requested {
                    self.refuse_taken(choice.ip)?;
                } else {
                    known.as_mut().map_or(Ok(()), |known| known.taken_by_another(choice.ip))?;
                    *choice = self.choose(index, set, known, gateways)?;
                }
            }
            made.push(choice.ip);
            linux::crash_point!("allocate-reserved");
            known.iter_mut().for_each(|known| known.take(choice.ip, content));
        }
        for choice in choices.iter() {
            choice.last.note(choice.ip)?;
            linux::crash_point!("allocate-noted");
        }
        Ok(())
    }

    fn path(&self, ip: IpAddr) -> PathBuf {
        self.dir.join(ip.to_string())
    }

    fn choose<'a>(
        &self,
        index: usize,
        set: &'a RangeSet,
        known: &mut Option<AddressIndex<'_>>,
        gateways: &HashSet<IpAddr>,
    ) -> Result<Choice<'a>, Stop> {
        let last = LastReserved::read(&self.dir, index);
        let found = known.as_mut().map_or(Err(Doubt), |known| known.next_free(set, last.ip, gateways))?;
        let (range, ip) = found.ok_or_else(|| AllocateError::Exhausted {
            network: self.network.clone(),
            set: index,
            ranges: set.to_string(),
            addresses: capacity(set, gateways),
            dir: self.dir.clone(),
        })?;
        Ok(Choice { range, ip, requested: false, last })
    }

    fn refuse_taken(&self, ip: IpAddr) -> Result<(), AllocateError> {
        match files::holder(&self.dir, ip)? {
            Some(holder) => Err(AllocateError::Taken { address: ip, holder: Box::new(holder), path: self.path(ip) }),
            None => Ok(()),
        }
    }

    /// As in the reference plugin, a set of which an address was requested is not searched for another.
    fn refuse_duplicate(
        &self,
        owner: &Owner,
        sets: &[RangeSet],
        requested: &[Wanted<'_>],
        known: &mut Option<AddressIndex<'_>>,
    ) -> Result<(), AllocateError> {
        let Some(known) = known.as_mut().filter(|_| requested.contains(&None)) else { return Ok(()) };
        let Holdings { exact, by_id } = known.holdings(owner)?;
        if exact.is_empty() && by_id.is_empty() {
            return Ok(());
        }
        let searched = || sets.iter().enumerate().zip(requested).filter(|(_, wanted)| wanted.is_none()).map(|(set, _)| set);
        let of_set = |ip: IpAddr| Some((searched().find(|(_, set)| set.range_for(ip).is_some())?.0, ip));
        match exact.iter().chain(&by_id).filter_map(|(entry, _)| of_set(entry.ip)).min() {
            Some((set, address)) => {
                let (owner, network) = (Box::new(owner.clone()), self.network.clone());
                Err(AllocateError::Duplicate { address, owner, network, set })
            }
            None => Ok(()),
        }
    }
}

// === impl Choice ===

impl Choice<'_> {
    fn allocated(&self, set: usize) -> Allocated {
        let prefix = self.range.subnet().prefix_len();
        // The prefix length is that of a network of the same family: it fits.
        let address = IpNet::new(self.ip, prefix).unwrap_or(IpNet::from(self.ip));
        Allocated { address, gateway: Some(self.range.gateway()), set }
    }
}

/// Which requested address is for which set; equal requests count once.
/// Whether these addresses can be requested of these sets: each is in a range, none is a gateway, and none the second one of its set.
///
/// # Errors
/// [`AllocateError`] naming the first address that cannot be.
pub fn can_be_requested(sets: &[RangeSet], requested: &[IpAddr]) -> Result<(), AllocateError> {
    assign(sets, requested).map(drop)
}

fn assign<'a>(sets: &'a [RangeSet], requested: &[IpAddr]) -> Result<Vec<Wanted<'a>>, AllocateError> {
    let mut assigned: Vec<Wanted<'a>> = vec![None; sets.len()];
    for address in requested.iter().map(IpAddr::to_canonical) {
        if let Some(range) = sets.iter().flat_map(RangeSet::ranges).find(|r| r.gateway() == address) {
            return Err(AllocateError::Gateway { address, subnet: range.subnet() });
        }
        let fitting = sets.iter().enumerate().find_map(|(i, set)| Some((i, set.range_for(address)?)));
        let Some((set, range)) = fitting else {
            let more = match sets.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!("; and those of {more} other sets"),
            };
            let sets = sets.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ") + &more;
            return Err(AllocateError::OutOfRange { address, sets });
        };
        match assigned.get_mut(set) {
            Some(slot @ None) => *slot = Some((range, address)),
            Some(Some((_, first))) if *first != address => return Err(AllocateError::OnePerSet { address, first: *first, set }),
            _ => {}
        }
    }
    Ok(assigned)
}
