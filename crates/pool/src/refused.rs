//! Why nothing was granted, for a person.

use std::fmt;
use std::net::IpAddr;

use crate::lease::PIN;
use crate::{Family, Lease, Origin, Run, Unavailable, migrating_of};

/// Why nothing was granted, or no block stopped or taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such pool here.
    UnknownPool {
        /// Its name.
        pool: String,
    },
    /// No address of this family is free now, or none that nobody waits for: it may be worth waiting.
    Short {
        /// The pool.
        pool: String,
        /// The family.
        family: Family,
        /// Who says what the pool is, and could make it larger.
        origin: Origin,
        /// Attachments have so many of them.
        held: u64,
        /// So many had been given back a moment ago.
        cooling: u64,
        /// So many are free, and stay for attachments that wait for longer.
        kept: u64,
        /// Attachments wait for so many.
        waiting: u64,
        /// Milliseconds until the first of those that rest is free, where one rests.
        frees_in: Option<u64>,
    },
    /// The host's own pool has no address of this family that anybody may get, and waiting brings none.
    Nothing {
        /// The pool.
        pool: String,
        /// The family.
        family: Family,
        /// It has some of the family, and all of them are excluded or reserved.
        excluded: bool,
    },
    /// The address is in no block of this node.
    NotOfThisNode {
        /// The pool that it was asked of.
        pool: String,
        /// The address.
        address: IpAddr,
    },
    /// The pool hands it out to nobody.
    Excluded {
        /// The pool.
        pool: String,
        /// The address.
        address: IpAddr,
    },
    /// The pool hands it out to claims only.
    Reserved {
        /// The pool.
        pool: String,
        /// The address.
        address: IpAddr,
    },
    /// It is a claim's or a pod's, and another one asks or none.
    Claimed {
        /// The address.
        address: IpAddr,
        /// The claim, or [`Pod::pin`](crate::Pod::pin).
        claim: String,
    },
    /// None of the pool's addresses here is this claim's.
    Unclaimed {
        /// The pool.
        pool: String,
        /// The family.
        family: Family,
        /// The claim, `namespace/name`.
        claim: String,
    },
    /// It is not free.
    Taken {
        /// The address.
        address: IpAddr,
        /// Why.
        taken: Box<Unavailable>,
        /// Milliseconds until it is free, where that is known.
        frees_in: Option<u64>,
    },
    /// The same address was asked for twice at once.
    Twice {
        /// The address.
        address: IpAddr,
    },
    /// The attachment holds something else than it asks for now.
    HoldsOther(Box<Lease>),
    /// The block was given back in that epoch.
    Returned {
        /// The block.
        run: Run,
        /// The epoch.
        epoch: u64,
    },
    /// The block has addresses of another one.
    Overlaps {
        /// The block.
        run: Run,
        /// The other one's pool.
        pool: String,
        /// The other one.
        other: Run,
    },
    /// The pool is to be another network's, and attachments have addresses of it in the one that it was.
    OtherNetwork {
        /// The pool.
        pool: String,
        /// The network in which they have them.
        is: String,
        /// The one that it is to be.
        wanted: String,
    },
    /// Somebody has an address of the block.
    InUse {
        /// The address.
        address: IpAddr,
        /// Who.
        taken: Box<Unavailable>,
    },
    /// There is no such block.
    NoBlock {
        /// The pool.
        pool: String,
        /// The block.
        run: Run,
    },
}

// === impl Refused ===

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPool { pool } => write!(f, "there is no pool {pool:?} on this node"),
            Self::Short { pool, family, origin, held, cooling, kept, waiting, frees_in } => {
                match kept {
                    0 => write!(f, "pool {pool:?} has no free {family} address on this node: {held} held")?,
                    _ => write!(
                        f,
                        "pool {pool:?} has no {family} address left on this node: {kept} free but reserved for attachments that have \
                            waited longer, {held} held"
                    )?,
                }
                write!(f, ", {cooling} cooling down")?;
                if *waiting > 0 {
                    write!(f, ", {waiting} requested by waiting attachments")?;
                }
                if let Some(millis) = frees_in {
                    write!(f, "; the next one is free in {} s", millis.div_ceil(1000))?;
                }
                match held {
                    0 => f.write_str("; or ")?,
                    _ => f.write_str("; free those of deleted containers with a CNI GC, or ")?,
                }
                match origin {
                    Origin::File => f.write_str("add addresses to the pool"),
                    Origin::Cluster => write!(
                        f,
                        "check that the operator runs, and with `kubectl get ippools.netloom.io {pool}` whether the pool is Exhausted and needs \
                            more addresses"
                    ),
                    Origin::CiliumNode => f.write_str(
                        "the operator that fills this node's CiliumNode has to add addresses: see `kubectl get ciliumnodes \
                            -o yaml`",
                    ),
                }
            }
            Self::Nothing { pool, family, excluded: false } => {
                write!(f, "pool {pool:?} has no {family} addresses: add some, or remove the family from ipam.families")
            }
            Self::Nothing { pool, family, excluded: true } => write!(
                f,
                "pool {pool:?} has no usable {family} address: all of them are excluded, reserved, its gateway, or the first or last of a network; add others, or exclude fewer"
            ),
            Self::NotOfThisNode { pool, address } => write!(f, "{address} is in no block of pool {pool:?} that this node has"),
            Self::Excluded { pool, address } => write!(f, "{address} is excluded from pool {pool:?}, or is its gateway"),
            Self::Reserved { pool, address } => write!(f, "{address} is reserved for claims in pool {pool:?}"),
            Self::Claimed { address, claim } => match claim.strip_prefix(PIN) {
                Some(pod) => write!(f, "{address} belongs to pod {pod}"),
                None if migrating_of(claim).is_some() => write!(f, "{address} belongs to {claim}"),
                None => write!(f, "{address} belongs to claim {claim}"),
            },
            Self::Unclaimed { pool, family, claim } => {
                let (name, whom) = migrating_of(claim).map_or((claim.as_str(), ""), |name| (name, " for pods that migrate"));
                write!(
                    f,
                    "claim {name} has no {family} address of pool {pool:?}{whom} on this node (yet): see the conditions of IPAMClaim \
                        {name}; another node may still have it"
                )
            }
            Self::Taken { address, taken, frees_in } => {
                write!(f, "{address} is not free: {taken}")?;
                frees_in.map_or(Ok(()), |millis| write!(f, "; free in {} s", millis.div_ceil(1000)))
            }
            Self::Twice { address } => write!(f, "{address} is requested twice"),
            Self::HoldsOther(lease) => {
                write!(f, "attachment {} has other addresses than it requests: ", lease.key)?;
                let mut between = "";
                for leased in &lease.addresses {
                    write!(f, "{between}{} of pool {:?}", leased.address, leased.pool)?;
                    between = ", ";
                }
                f.write_str("; detach it first")
            }
            Self::Returned { run, epoch } => {
                write!(f, "block {run} was returned in epoch {epoch}, and can come back only with a later one")
            }
            Self::Overlaps { run, pool, other } => write!(f, "block {run} has addresses of block {other} of pool {pool:?}"),
            Self::OtherNetwork { pool, is, wanted } => write!(
                f,
                "pool {pool:?} is now in network {wanted:?}, but attachments on this node have addresses of it in network {is:?}: \
                    detach them first, or keep it in network {is:?} and give the new pool another name"
            ),
            Self::InUse { address, taken } => write!(f, "{address} is in use: {taken}"),
            Self::NoBlock { pool, run } => write!(f, "pool {pool:?} has no block {run} on this node"),
        }
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Held(key) => write!(f, "attachment {key} has it"),
            Unavailable::Cooling { pod: Some(pod), .. } => write!(f, "pod {pod} has just released it"),
            Unavailable::Cooling { pod: None, .. } => f.write_str("it has just been released"),
            Unavailable::Quarantined { by, .. } => write!(f, "another machine uses it, {by}"),
        }
    }
}
