//! Addresses of an IPPool in the nodes' CiliumNodes.
//!
//! ```text
//!   too few  --> the ledger: an address of a shared cell is the node's --> spec.ipam.pool
//!   too many --> marked-for-release --agent--> ready-for-release --> released
//!                  --> the ledger: returning --> out of spec.ipam.pool --> nowhere in the object any more --> the ledger: free
//! ```
//!
//! A pool gets what was *read* in the ledger, so the ledger has at least what the objects have, wherever an operator dies. Such an
//! object has no epochs. In their place the ledger has versions of it: what an earlier version says is of an earlier life of the
//! address. It never comes into a pool while the object says anything of its release, and it is not free before a version that is
//! later than the one in which it was found released does not mention it.

mod fill;
mod give;
mod release;
mod seen;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{Owner, Release};
use pool::{Family, Run};

use crate::claims::KeptAddress;
use crate::index::Index;
use crate::{Gone, Pool, Violation, runs, shared};
use release::{Changes, Decision, LedgerAddresses, decide};
pub use seen::{Cilium, CiliumNodeSeen, Pooled};
pub use tell::added_addresses;
pub(crate) use tell::writes;

/// What was decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decided {
    /// What is to be written of releases, by node.
    changes: BTreeMap<String, Changes>,
    /// Who has too many addresses.
    pub(crate) excess: BTreeSet<(String, Family)>,
    /// So many nodes lack so many addresses, which the pool has not.
    pub(crate) short: BTreeMap<Family, (u64, u64)>,
}

/// A node whose object is ours to fill.
struct Filled<'a> {
    name: &'a str,
    uid: &'a str,
    seen: &'a CiliumNodeSeen,
    /// Whether the pool is for it.
    meant: bool,
}

// === impl Index ===

impl<'a> Index<'a> {
    /// Decides about all of them.
    pub(crate) fn cilium(&mut self) -> Decided {
        let world = self.world;
        let mut decided = Decided::default();
        if !world.cilium.complete {
            return decided;
        }
        let kept = self.kept(|owner| &owner.cilium_node);
        for (name, all) in &kept {
            all.iter().for_each(|kept| self.follow(name, kept));
        }
        let filled = self.filled(&kept.keys().map(String::as_str).collect());
        let of_pool = self.pools.get(world.cilium.pool.as_str()).and_then(|pool| pool.as_ref().ok()).cloned();
        if let Some(pool) = &of_pool {
            filled.iter().for_each(|node| self.adopt_addresses(pool, node));
        }
        let mut lacking = Vec::new();
        let kept = self.kept(|owner| &owner.cilium_node);
        for node in &filled {
            let own = kept.get(node.name).map(Vec::as_slice).unwrap_or_default();
            let mut changes = Changes::new();
            for family in Family::ALL {
                let held = held(own, node, family, of_pool.as_ref());
                let settled = world.cilium.settled.contains(&(node.name.to_owned(), family));
                let Decision { more, excess, changes: of_family } = decide(node.seen, family, &held, settled);
                changes.extend(of_family);
                if excess > 0 {
                    decided.excess.insert((node.name.to_owned(), family));
                }
                if more > 0 && node.meant && of_pool.as_ref().is_some_and(|pool| pool.has(family)) {
                    let seen_in = number(node.seen).unwrap_or_default();
                    lacking.push(give::Lacks { node: (node.name, node.uid), seen_in, family, has: held.len() as u64, lacks: more });
                }
            }
            if !changes.is_empty() {
                decided.changes.insert(node.name.to_owned(), changes);
            }
        }
        if let Some(pool) = &of_pool {
            decided.short = self.give(pool, lacking);
        }
        decided
    }

    /// The objects that the pool fills: those of the nodes that it is for, and those that have something of the ledger.
    fn filled(&self, known: &BTreeSet<&str>) -> Vec<Filled<'a>> {
        let world = self.world;
        let all = world.cilium.nodes.iter().filter_map(|(name, seen)| {
            let node = world.nodes.get(name).filter(|_| !seen.unreadable);
            let node = node.filter(|node| seen.node_uid.is_empty() || seen.node_uid == node.uid)?;
            let meant = self.is_meant(&node.labels);
            (meant || known.contains(name.as_str())).then_some(Filled { name, uid: &node.uid, seen, meant })
        });
        all.collect()
    }

    /// Whether the pool is for a node with these labels.
    fn is_meant(&self, labels: &BTreeMap<String, String>) -> bool {
        let world = self.world;
        let pool = world.pools.get(&world.cilium.pool).filter(|pool| !pool.deleting);
        pool.and_then(|pool| pool.spec.as_ref().ok()).is_some_and(|spec| spec.node_selector.as_ref().is_none_or(|s| s.takes(labels)))
    }

    /// What becomes of an address that the ledger has as a CiliumNode's.
    fn follow(&mut self, name: &str, kept: &KeptAddress) {
        let world = self.world;
        let (ip, address) = (&kept.ip, kept.address);
        let node = world.nodes.get(name);
        let seen = world.cilium.nodes.get(name);
        if seen.is_some_and(|seen| seen.unreadable) {
            return;
        }
        let own = seen.filter(|seen| node.is_some_and(|node| seen.node_uid.is_empty() || seen.node_uid == node.uid));
        match (node, own) {
            (Some(node), Some(seen)) if node.uid == ip.hold.node_uid => self.take_back(seen, kept),
            // The same machine, whose Node was made anew: another one would know nothing of the address.
            (Some(node), Some(seen)) if seen.mentions(address) && !ip.hold.returning => {
                let uid = node.uid.clone();
                self.change_ip(kept, |ip| ip.hold.node_uid = uid);
            }
            _ => {
                let told = node.is_none() || own.is_some_and(|seen| seen.told);
                if self.is_over(&ip.hold.node_uid, &ip.pool, told) && !seen.is_some_and(|seen| seen.mentions(address)) {
                    self.free_address(kept, seen.and_then(number).unwrap_or_default());
                }
            }
        }
    }

    /// How far an address is on its way back, as a version of the object says that is of this life of the address.
    fn take_back(&mut self, seen: &CiliumNodeSeen, kept: &KeptAddress) {
        let (ip, address) = (&kept.ip, kept.address);
        let Some(version) = number(seen).filter(|version| *version > ip.hold.seen_in) else { return };
        let is_released = seen.release.get(&address).is_some_and(|(_, said)| *said == Release::Released);
        match (ip.hold.returning, is_released) {
            (false, true) => self.change_ip(kept, |ip| (ip.hold.returning, ip.hold.seen_in) = (true, version)),
            (true, _) if !seen.mentions(address) => self.free_address(kept, version),
            // Somebody has taken the word back: the node may use it again.
            (true, false) if seen.pool.contains_key(&address) => {
                self.change_ip(kept, |ip| (ip.hold.returning, ip.hold.seen_in) = (false, version));
            }
            _ => {}
        }
    }

    fn change_ip(&mut self, kept: &KeptAddress, change: impl FnOnce(&mut api::SharedIp)) {
        self.change(kept, |cell, place, address| {
            let ip = place.offset(address).and_then(|number| cell.ips.get_mut(&number.to_string()));
            ip.map_or(Ok(()), |ip| {
                change(ip);
                Ok(())
            })
        });
    }

    /// Frees an address, as a version of its object says; what that one and those before it say is of this life.
    fn free_address(&mut self, kept: &KeptAddress, version: u64) {
        self.change(kept, |cell, place, address| {
            shared::take_back(cell, place, address, kept.ip.hold.epoch)?;
            shared::release(cell, place, address)
        });
        let net = self.nets.get_mut(&(kept.network.clone(), kept.family));
        let draft = net.and_then(|net| net.shards.get_mut(&kept.place.base().numbers().0));
        if let Some(spec) = draft.and_then(|draft| draft.new.as_mut()) {
            spec.seen_in = spec.seen_in.max(version);
        }
    }

    /// Whether nobody can use any more what a node had that is no more. `told`: whoever has its name now has said what it uses, or
    /// nobody has.
    fn is_over(&self, uid: &str, pool: &str, told: bool) -> bool {
        let world = self.world;
        let by_hand = world.gone.get(uid).is_some_and(|gone| *gone == Gone::ByHand);
        self.is_long_gone(uid, pool)
            && (told || by_hand)
            && !world.nodes.values().any(|node| node.uid == uid)
            && !world.cilium.nodes.values().any(|seen| seen.node_uid == uid)
    }

    /// Takes into the ledger what an object has of the pool and the ledger does not know: it was lost, or somebody else has filled the
    /// object before.
    fn adopt_addresses(&mut self, pool: &Pool, node: &Filled<'_>) {
        let all: BTreeSet<IpAddr> = node.seen.pool.keys().chain(&node.seen.used).copied().collect();
        for address in all.into_iter().filter(|a| !runs::within(&pool.runs, &Run::single(*a)).is_empty()) {
            // This very version speaks of the life that begins.
            let before = number(node.seen).unwrap_or_default().saturating_sub(1);
            if let Err(holder) = self.give_one(pool, address, (node.name, node.uid), before) {
                let (network, block) = (pool.spec.network.clone(), address.to_string());
                self.violations.push(Violation::TwoHolders { network, block, nodes: [holder, node.name.to_owned()] });
            }
        }
    }
}

/// What the ledger has as a node's, but for what is on its way back.
fn held(own: &[KeptAddress], node: &Filled<'_>, family: Family, pool: Option<&Pool>) -> LedgerAddresses {
    let own = own.iter().filter(|kept| kept.family == family && kept.ip.hold.node_uid == node.uid && !kept.ip.hold.returning);
    let is_stale = |kept: &KeptAddress| {
        let usable = |pool: &Pool| kept.ip.pool == pool.spec.name && !pool.usable(&Run::single(kept.address)).is_empty();
        !node.meant || !pool.is_some_and(usable)
    };
    own.map(|kept| (kept.address, is_stale(kept))).collect()
}

/// Who has an address in a CiliumNode.
fn owner(node: &str) -> Owner {
    Owner { cilium_node: node.to_owned(), ..Owner::default() }
}

/// The version of an object. They are numbers that grow, over all objects of a kind (KEP-5504); of what is no number nothing is known.
fn number(seen: &CiliumNodeSeen) -> Option<u64> {
    seen.version.parse().ok()
}
