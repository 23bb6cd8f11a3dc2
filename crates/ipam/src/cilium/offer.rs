//! The addresses that an object offers, whatever way they are written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{CiliumAddress, CiliumIpamSpec, CiliumIpamStatus, Release};
use ledger::pieces;
use pool::{Allocator, Family, Pod, Run};

use super::{POOL, ROUTER, is_promised, own_addresses, run_of};

/// What a node may hand out, in order; nothing is in it twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// The addresses.
    pub entries: Vec<Offered>,
    /// The first and the last address of networks, which nobody gets.
    pub edges: Vec<Run>,
    /// What of the object was passed over.
    pub skipped: Vec<Skipped>,
}

/// Addresses of one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offered {
    /// Which.
    pub run: Run,
    /// The owner of all of them, as blocks name it.
    pub pin: Option<String>,
    /// What they hang on.
    pub resource: String,
}

/// A key that is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// The key.
    pub key: String,
    /// Why.
    pub reason: String,
}

// === impl Offer ===

impl Offer {
    /// Reads the pool of an object. `FD00::1` and `::ffff:192.0.2.1` are what they mean. Where keys have addresses in common, the one
    /// with fewer addresses has them: an owner, or a resource, of one address out of a network.
    #[must_use]
    pub fn read(pool: &BTreeMap<String, CiliumAddress>) -> Self {
        let (mut skipped, mut edges) = (Vec::new(), Vec::new());
        let mut read: Vec<(Run, &String, &CiliumAddress)> = Vec::with_capacity(pool.len());
        for (key, address) in pool {
            match key.parse::<Run>() {
                Ok(run) => {
                    // Who writes addresses one by one means each of them.
                    if key.contains('/') {
                        edges.extend(pool::edges(&run, false, false));
                    }
                    read.push((run, key, address));
                }
                Err(e) => skipped.push(Skipped { key: key.clone(), reason: e.to_string() }),
            }
        }
        // One that is written by itself is meant, whatever network it is at the edge of.
        edges.retain(|edge| !read.iter().any(|(run, ..)| run == edge));
        // Of equal ones an owner's, so that nobody else gets it.
        read.sort_by_key(|(run, key, address)| (run.count(), *run, address.owner.is_empty(), *key));
        let mut taken: BTreeMap<(Family, u128), Run> = BTreeMap::new();
        let mut entries = Vec::with_capacity(read.len());
        for (run, key, address) in read {
            let (first, last) = run.numbers();
            // One that begins before this one may reach into it; all that begin in it are in its way.
            let before = taken.range(..(run.family(), first)).next_back().map(|(_, r)| *r);
            let within = taken.range((run.family(), first)..=(run.family(), last)).map(|(_, r)| *r);
            let others: Vec<Run> = before.into_iter().chain(within).collect();
            let left = pieces(vec![run], &others);
            if left.is_empty() {
                skipped.push(Skipped { key: key.clone(), reason: "its addresses are assigned already, under other keys".to_owned() });
            }
            for run in left {
                taken.insert((run.family(), run.numbers().0), run);
                entries.push(Offered { run, pin: pin(&address.owner), resource: address.resource.clone() });
            }
        }
        entries.sort();
        Offer { entries, edges, skipped }
    }

    /// How many addresses of a family anybody may get: without those that are an owner's or are being taken back.
    #[must_use]
    pub fn usable(&self, family: Family, release: &BTreeMap<String, Release>) -> u128 {
        self.open(family, release).fold(0, |sum, run| sum.saturating_add(run.count()))
    }

    /// An address for the node itself, which comes before all pods: the one that the status says that it has, else the first that
    /// nobody has, as far as the status knows too: a node may have lost what it knew.
    #[must_use]
    pub fn pick(&self, family: Family, status: &CiliumIpamStatus, now: &Allocator) -> Option<IpAddr> {
        let release = &status.release_ips;
        let told = |router: bool| {
            let used = status.used.iter().flatten().filter(move |(_, used)| (used.owner == ROUTER) == router);
            used.filter_map(|(key, _)| run_of(key)).map(|run| run.first()).collect::<BTreeSet<IpAddr>>()
        };
        let (rather, others) = (told(true), told(false));
        let free = |address: &IpAddr| now.taken(POOL, *address).is_none() && !others.contains(address);
        let open = |address: &IpAddr| self.open(family, release).any(|run| run.contains(*address));
        let rather = rather.iter().copied().find(|a| Family::of(*a) == family && free(a) && open(a));
        rather.or_else(|| {
            let numbers = self.open(family, release).flat_map(|run| run.numbers().0..=run.numbers().1);
            numbers.map(|number| family.address(number)).find(free)
        })
    }

    /// What anybody may get.
    fn open<'a>(&'a self, family: Family, release: &BTreeMap<String, Release>) -> impl Iterator<Item = Run> + use<'a> {
        let leaving = leaving(release, |r| is_promised(r) || *r == Release::MarkedForRelease);
        let open = self.entries.iter().filter(move |e| e.run.family() == family && e.pin.is_none());
        open.flat_map(move |e| without(e.run, &leaving)).flat_map(|run| without(run, &self.edges))
    }

    /// What an address hangs on, where the object still has it.
    pub(super) fn resource(&self, address: IpAddr) -> Option<&str> {
        let at = self.entries.partition_point(|e| e.run <= Run::single(address));
        // The last one that begins at the address or before it.
        let near = at.saturating_sub(1)..=at;
        near.filter_map(|i| self.entries.get(i)).find(|e| e.run.contains(address)).map(|e| e.resource.as_str())
    }

    /// Whether these are the addresses of one key.
    pub(super) fn has(&self, run: &Run) -> bool {
        self.entries.binary_search_by_key(run, |e| e.run).is_ok()
    }
}

/// How many addresses a node waits for, of both families together: what the operator means to give it, else one for the router and one
/// for the probe.
#[must_use]
pub fn required(spec: &CiliumIpamSpec, health: bool) -> u128 {
    let wanted = [spec.min_allocate, spec.pre_allocate].into_iter().find(|n| *n > 0);
    wanted.map_or(own_addresses(health), u128::from)
}

/// The addresses that are as far as that.
pub(super) fn leaving(release: &BTreeMap<String, Release>, far: impl Fn(&Release) -> bool) -> Vec<Run> {
    release.iter().filter(|(_, r)| far(r)).filter_map(|(key, _)| run_of(key)).collect()
}

/// What is left of a run without others, of which most have nothing of it.
pub(super) fn without(run: Run, others: &[Run]) -> Vec<Run> {
    pieces(vec![run], &others.iter().filter_map(|other| other.common(&run)).collect::<Vec<_>>())
}

/// The owner as blocks name it.
fn pin(owner: &str) -> Option<String> {
    let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
    let pod = Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
    (!owner.is_empty()).then(|| pod.pin())
}
