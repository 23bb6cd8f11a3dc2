//! What a pool is, and what of it this node may hand out.

use std::net::IpAddr;

use crate::lease::PIN;
use crate::{Family, Run};

/// A pool, as whoever grants its blocks has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Where an address is unique: pools of one network never hand out the same address, those of two networks may.
    pub network: String,
    /// Who says what it is.
    pub origin: Origin,
    /// What an IPv4 address of it comes with.
    pub v4: Terms,
    /// The same for IPv6.
    pub v6: Terms,
    /// Never handed out.
    pub exclude: Vec<Run>,
    /// Handed out to claims only.
    pub reserved: Vec<Run>,
    /// When an address that was given back is handed out again.
    pub reuse: Reuse,
    /// How much of it a node keeps.
    pub scaling: Scaling,
    /// Whether the network is asked, before an address is set, whether another machine has it.
    pub probe: bool,
}

/// Who says what a pool is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// This host: a file, or the configuration that asks for it. All of it is the host's own.
    #[default]
    File,
    /// A cluster, which grants this node some blocks of it and gets them back.
    Cluster,
    /// This node's CiliumNode, in which an address may be a pod's alone; no claim has one.
    CiliumNode,
}

/// What an address comes with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The prefix length that the interface gets; 0: the pool has no addresses of this family.
    pub prefix: u8,
    /// The network's gateway, which is never handed out.
    pub gateway: Option<IpAddr>,
}

/// When an address that was given back is handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Not before this many milliseconds: others may still send to whoever had it.
    pub cooldown: u64,
    /// Which one comes next.
    pub order: Order,
}

/// Which address comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// One that nobody had yet, then the one that was given back first.
    #[default]
    Fifo,
    /// The lowest one.
    Lowest,
    /// Any.
    Random,
}

/// How much of a pool a node keeps, under the names that Cilium has for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scaling {
    /// At least this many addresses.
    pub min_allocate: u64,
    /// This many that nobody has.
    pub pre_allocate: u64,
    /// At most this many addresses; 0: any number.
    pub max_allocate: u64,
    /// This many more may stay before some are given back.
    pub max_above_watermark: u64,
}

/// Addresses that this node may hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The pool.
    pub pool: String,
    /// The addresses.
    pub run: Run,
    /// Which life of these addresses it is: one that was given back never comes again with the same epoch or a lower one.
    pub epoch: u64,
    /// The only one that gets one of them: a claim's pods that do not migrate, those that do ([`migrating`](crate::migrating)), or a pod
    /// ([`Pod::pin`](crate::Pod::pin)).
    pub claim: Option<String>,
}

// === impl Spec ===

impl Spec {
    /// A pool that hands out each address as soon as it has been given back.
    #[must_use]
    pub fn new(name: impl Into<String>, network: impl Into<String>) -> Self {
        Spec {
            name: name.into(),
            network: network.into(),
            origin: Origin::File,
            v4: Terms::default(),
            v6: Terms::default(),
            exclude: Vec::new(),
            reserved: Vec::new(),
            reuse: Reuse { cooldown: 0, order: Order::Fifo },
            scaling: Scaling::default(),
            probe: false,
        }
    }

    /// What an address of this family comes with.
    #[must_use]
    pub fn terms(&self, family: Family) -> &Terms {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Whether it has addresses of this family at all, here or elsewhere.
    #[must_use]
    pub fn has(&self, family: Family) -> bool {
        self.terms(family).prefix > 0
    }

    /// The parts of a run that anybody may get: without exclusions, reservations and gateways.
    #[must_use]
    pub fn usable(&self, run: Run) -> Vec<Run> {
        self.reserved.iter().fold(self.allowed(run), without)
    }

    /// The parts of a run that a claim may get: reservations too.
    #[must_use]
    pub fn allowed(&self, run: Run) -> Vec<Run> {
        let gateways = [self.v4.gateway, self.v6.gateway].into_iter().flatten().map(Run::single);
        let others = gateways.chain(Run::mapped());
        self.exclude.iter().copied().chain(others).fold(vec![run], |left, excluded| without(left, &excluded))
    }
}

fn without(runs: Vec<Run>, other: &Run) -> Vec<Run> {
    runs.into_iter().flat_map(|run| run.without(other)).collect()
}

/// The first and the last address of a network, which hosts do not get unless it is allowed. A network of one or two addresses
/// (RFC 3021, RFC 6164) has none, nor has a run that is no network.
#[must_use]
pub fn edges(entry: &Run, allow_first: bool, allow_last: bool) -> Vec<Run> {
    let wide = entry.prefix().is_some() && entry.count() > 2;
    let first = (wide && !allow_first).then(|| Run::single(entry.first()));
    let last = (wide && !allow_last).then(|| Run::single(entry.last()));
    first.into_iter().chain(last).collect()
}

// === impl Block ===

impl Block {
    /// Whether it is a claim's: not a pod's, nor for anybody.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.claim.as_deref().is_some_and(|owner| !owner.starts_with(PIN))
    }

    /// Whether it is the same life of the same addresses, whoever may have one.
    #[must_use]
    pub fn is_life_of(&self, other: &Block) -> bool {
        (&self.pool, self.run, self.epoch) == (&other.pool, other.run, other.epoch)
    }
}

// === impl Scaling ===

impl Scaling {
    /// How many addresses a node wants, in whole blocks of `block` addresses, if this many are held, waited for, cooling or in
    /// quarantine. A function of what is so now and nothing else: whoever has lost everything gets the same answer.
    #[must_use]
    pub fn want(&self, busy: u64, block: u64) -> u64 {
        let block = block.max(1);
        let whole = |n: u64| n.div_ceil(block).saturating_mul(block);
        let most = if self.max_allocate == 0 { u64::MAX } else { self.max_allocate };
        whole(busy.saturating_add(self.pre_allocate)).max(whole(self.min_allocate)).min(most)
    }
}
