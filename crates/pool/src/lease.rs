//! Who holds an address, and since when.

use std::fmt;
use std::net::IpAddr;

use crate::{Family, Want};

/// An attachment: what holds addresses, and what alone can give them back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The network.
    pub network: String,
    /// The container ID.
    pub container: String,
    /// The interface's name.
    pub ifname: String,
}

/// The pod whose attachment it is, for people and for addresses that follow a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; empty where the runtime has not told it.
    pub uid: String,
}

/// A moment on one machine, by the clock that goes on while it sleeps and that nobody sets (`CLOCK_BOOTTIME`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Which start of the machine.
    pub boot: [u8; 16],
    /// Milliseconds since then.
    pub millis: u64,
}

/// What an attachment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub key: Key,
    /// Which lease it is of all that there ever were: an attachment that comes again has another one.
    pub generation: u64,
    /// The pod.
    pub pod: Option<Pod>,
    /// The claim that it was made for.
    pub claim: Option<String>,
    /// Since when.
    pub since: Moment,
    /// The addresses, in the order in which they were asked for.
    pub addresses: Vec<Leased>,
}

/// One address of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// The pool that it is of.
    pub pool: String,
    /// The address.
    pub address: IpAddr,
    /// The epoch of its block.
    pub epoch: u64,
}

/// Why nobody gets an address now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// An attachment has it.
    Held(Key),
    /// An attachment had it a moment ago.
    Cooling {
        /// Since when it has not.
        since: Moment,
        /// The lease that it was of.
        generation: u64,
        /// The pod that had it.
        pod: Option<Pod>,
    },
    /// Another machine answers for it.
    Quarantined {
        /// Since when that is known.
        since: Moment,
        /// For how many milliseconds it is believed.
        millis: u64,
        /// The other machine's link-layer address.
        by: String,
    },
}

/// In front of a pod's name where a claim's would stand.
pub(crate) const PIN: &str = "pod ";

// === impl Lease ===

impl Lease {
    /// Whether it is what these wants ask for.
    #[must_use]
    pub fn answers(&self, wants: &[Want]) -> bool {
        let answers = |leased: &Leased, want: &Want| {
            let same = want.address.is_none_or(|address| address.to_canonical() == leased.address);
            same && leased.pool == want.pool && Family::of(leased.address) == want.family
        };
        self.addresses.len() == wants.len() && self.addresses.iter().zip(wants).all(|(leased, want)| answers(leased, want))
    }
}

// === impl Key ===

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

// === impl Pod ===

impl Pod {
    /// Whether it is the same name in the same namespace: what follows a pod follows its name.
    #[must_use]
    pub fn is_named_as(&self, other: &Pod) -> bool {
        self.namespace == other.namespace && self.name == other.name
    }

    /// What [`Block::claim`](crate::Block::claim) says where the block is this pod's. No claim is named so: no name has a blank.
    #[must_use]
    pub fn pin(&self) -> String {
        format!("{PIN}{self}")
    }

    /// The pod, `namespace/name`, that [`Block::claim`](crate::Block::claim) says a block is for; `None`: it is for no pod by its name.
    #[must_use]
    pub fn pinned(owner: &str) -> Option<&str> {
        owner.strip_prefix(PIN)
    }

    /// Whether a block with this owner is this pod's.
    pub(crate) fn is_pinned(&self, owner: &str) -> bool {
        let named = Pod::pinned(owner).and_then(|pod| pod.split_once('/'));
        named.is_some_and(|(namespace, name)| namespace == self.namespace && name == self.name)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Moment ===

impl Moment {
    /// Milliseconds from then to now. Of a time before the machine's last start nobody knows how long it was: what has passed
    /// since that start is certain.
    #[must_use]
    pub fn elapsed(&self, now: &Moment) -> u64 {
        if self.boot == now.boot { now.millis.saturating_sub(self.millis) } else { now.millis }
    }
}

// === impl Unavailable ===

impl Unavailable {
    /// Milliseconds until it is free again, given the pool's cooldown; `None`: nobody knows, an attachment has it.
    #[must_use]
    pub fn frees_in(&self, cooldown: u64, now: &Moment) -> Option<u64> {
        match self {
            Unavailable::Held(_) => None,
            Unavailable::Cooling { since, .. } => Some(cooldown.saturating_sub(since.elapsed(now))),
            Unavailable::Quarantined { since, millis, .. } => Some(millis.saturating_sub(since.elapsed(now))),
        }
    }
}
