//! What becomes of cells that somebody has: taken into the ledger again, given back, left by a node that is no more.

use std::collections::btree_map::Entry as Slot;

use api::{Cell, CellState, Hold, Holding, NodeIpPoolSpec, Reclaim, SharedIp};
use pool::{Family, Run};

use crate::audit::held_elsewhere;
use crate::grid::CellPosition;
use crate::index::{Index, Net, held};
use crate::shared::{self, offset_of};
use crate::{BLOCK_PREFIXES, Gone, NodePoolSeen, Violation};

/// A block or an address in the spec of a node.
struct Claimed<'a> {
    node: &'a str,
    node_uid: &'a str,
    network: &'a str,
    pool: &'a str,
    text: &'a str,
    epoch: u64,
    owner: Option<&'a api::Owner>,
    /// It stands in the node's status alone: nobody loses anything by that.
    told: bool,
}

/// What is to be done with a cell.
enum CellFate {
    Free,
    /// Addresses of a shared cell, by their numbers, are in these lives no node's any more.
    Taken(Vec<(String, u64)>),
}

// === impl Index ===

impl Index<'_> {
    /// Takes into the ledger what nodes have and it does not know: somebody has deleted a shard, or put an old one in its place.
    pub(crate) fn adopt(&mut self) {
        let world = self.world;
        let (mut whole, mut single) = (Vec::new(), Vec::new());
        for claimed in world.node_pools.iter().flat_map(|(node, seen)| claimed(node, &seen.spec)) {
            if claimed.owner.is_none() { whole.push(claimed) } else { single.push(claimed) }
        }
        // Of two nodes that have an address the one that has had it for longer is the first.
        single.sort_by_key(|claimed| claimed.epoch);
        whole.iter().chain(&single).for_each(|claimed| self.adopt_one(claimed));
        // What two say is the one's in whose spec it stands. Then as above; of two lives of a block the later one counts, and comes first.
        let is_own = |node: &String, uid: &str| match world.nodes.get(node) {
            Some(node) => node.uid == uid,
            // Its agent may live without it.
            None => world.gone.get(uid).is_none_or(|gone| *gone < Gone::GraceOver),
        };
        let own = world.node_pools.iter().filter(|(node, seen)| is_own(node, &seen.spec.node_uid));
        let told = own.flat_map(|(node, seen)| held(seen).map(move |held| (node, &seen.spec.node_uid, held)));
        let (mut whole, mut single): (Vec<_>, Vec<_>) = told.partition(|(_, _, held)| held.owner.is_nobody());
        whole.sort_by_key(|(_, _, held)| std::cmp::Reverse(held.epoch));
        single.sort_by_key(|(_, _, held)| held.epoch);
        whole.into_iter().chain(single).for_each(|(node, uid, held)| self.adopt_held(node, uid, held));
    }

    /// What a node has, and neither the ledger nor its spec knows: both were lost.
    fn adopt_held(&mut self, node: &str, node_uid: &str, held: &Holding) {
        let Ok(run) = held.cidr.parse::<Run>() else { return };
        self.violations.extend(held_elsewhere(&self.nets, node, held));
        let mut owner = held.owner.clone();
        if let Some(claim) = self.world.claims.claims.get(&owner.claim) {
            owner.claim_uid.clone_from(&claim.uid);
        }
        // Where cells are single addresses, one of them is a block as well.
        let is_block = owner.is_nobody();
        let text = if is_block { held.cidr.clone() } else { run.first().to_string() };
        let (network, pool, epoch) = (&held.network, &held.pool, held.epoch);
        let owner = (!is_block).then_some(&owner);
        self.adopt_one(&Claimed { node, node_uid, network, pool, text: &text, epoch, owner, told: true });
    }

    fn adopt_one(&mut self, it: &Claimed<'_>) {
        let unknown = || Violation::Unknown { node: it.node.into(), network: it.network.into(), block: it.text.into() };
        let Ok(run) = it.text.parse::<Run>() else { return };
        let allowed = |prefix: &u8| BLOCK_PREFIXES.iter().zip(Family::ALL).any(|(all, f)| f == run.family() && all.contains(prefix));
        let prefix = run.prefix().filter(allowed);
        let net = match (self.nets.entry((it.network.to_owned(), run.family())), prefix) {
            (Slot::Occupied(net), _) => net.into_mut(),
            // A network that has neither pool nor ledger is nobody's yet: what a node says makes none.
            (Slot::Vacant(_), _) if it.told => return,
            (Slot::Vacant(none), Some(prefix)) if it.owner.is_none() => none.insert(Net::of(prefix)),
            (Slot::Vacant(_), _) => return self.violations.push(unknown()),
        };
        let place = CellPosition::of(run.first(), net.prefix);
        if it.owner.is_none() && place.run() != run {
            if !it.told {
                self.violations.push(unknown());
            }
            return;
        }
        // What every step finds again has to cost little.
        let as_it_is = |known: &Cell| known.epoch == it.epoch && known.node_uid == it.node_uid;
        if it.owner.is_none() && net.cell(&place).is_some_and(as_it_is) {
            return;
        }
        let known = net.cell(&place).cloned().unwrap_or_default();
        let two = |other: &str| Violation::TwoHolders {
            network: it.network.into(),
            block: it.text.into(),
            nodes: [other.to_owned(), it.node.to_owned()],
        };
        match it.owner {
            // Who was before it, and what was granted since, is another matter: see `take_over`.
            _ if it.told && (known.epoch >= it.epoch || !matches!(known.state, CellState::Free | CellState::Shared)) => {}
            None if it.told && known.state == CellState::Shared => {}
            None if known.epoch > it.epoch => {}
            None if known.epoch == it.epoch && known.state == CellState::Free => {}
            // Of two lives the later one counts, whoever has it: the cell was free between them.
            None if known.state == CellState::Free || (known.epoch < it.epoch && known.state != CellState::Shared) => {
                let cell = Cell { state: CellState::Granted, epoch: it.epoch, ..granted(it) };
                set(net, it.network, &place, self.world.first_epoch, cell);
            }
            None => self.violations.push(two(&known.node)),
            Some(owner) => match shared::adopt(&known, &place, run, &adopted(it, owner)) {
                Ok(Some(cell)) => set(net, it.network, &place, self.world.first_epoch, cell),
                Ok(None) => {}
                Err(_) if it.told => {}
                Err(other) => self.violations.push(two(&other)),
            },
        }
    }

    /// Marks what nodes give back: `status.returning` of the life that the ledger has.
    pub(crate) fn take_returns(&mut self) {
        let world = self.world;
        for seen in world.node_pools.values() {
            let uid = &seen.spec.node_uid;
            for returned in &seen.status.returning {
                let Ok(run) = returned.cidr.parse::<Run>() else { continue };
                let blocks = seen.spec.blocks.iter().map(|b| (b.network.as_str(), b.cidr.as_str(), b.epoch, b.pool.as_str()));
                let ips = seen.spec.ips.iter().map(|i| (i.network.as_str(), i.ip.as_str(), i.epoch, i.pool.as_str()));
                // Its network stands in the spec, from which it goes only afterwards.
                let found = blocks.chain(ips).find(|(_, text, epoch, pool)| {
                    *epoch == returned.epoch && *pool == returned.pool && text.parse::<Run>().is_ok_and(|r| r == run)
                });
                if let Some((network, ..)) = found {
                    self.mark(network, &run, uid, returned.epoch);
                }
            }
        }
    }

    fn mark(&mut self, network: &str, run: &Run, uid: &str, epoch: u64) {
        let Some(net) = self.nets.get_mut(&(network.to_owned(), run.family())) else { return };
        let place = CellPosition::of(run.first(), net.prefix);
        let Some(known) = net.cell(&place).cloned() else { return };
        let mine = known.node_uid == uid && known.epoch == epoch && known.state == CellState::Granted;
        if mine && place.run() == *run {
            let cell = Cell { state: CellState::Returning, ..known };
            return set(net, network, &place, 0, cell);
        }
        let Some(number) = offset_of(&place, run).filter(|_| known.state == CellState::Shared) else { return };
        let mut cell = known;
        let holds = cell.ips.get_mut(&number).into_iter().flat_map(SharedIp::holds_mut);
        for hold in holds.filter(|hold| hold.node_uid == uid && hold.epoch == epoch) {
            hold.returning = true;
        }
        if net.cell(&place) != Some(&cell) {
            set(net, network, &place, 0, cell);
        }
    }

    /// Gives a node what the one before it of its name had, where it says that it holds it: the same machine, whose Node was
    /// deleted and made anew, and whose pods live on. Another machine of that name knows no such life of a block.
    pub(crate) fn take_over(&mut self) {
        let seen: Vec<_> = self.seen_cells().collect();
        for (network, place, cell) in seen {
            let heir = |node: &str, uid: &str, pool: &str, run: Run, epoch: u64| {
                let heir = self.heir(node, uid).filter(|heir| holds(heir, pool, &run, epoch));
                heir.map(|heir| heir.spec.node_uid.clone())
            };
            let mut new = cell.clone();
            if let Some(uid) = heir(&cell.node, &cell.node_uid, &cell.pool, place.run(), cell.epoch)
                && cell.state == CellState::Granted
            {
                new.node_uid = uid;
            }
            let in_specs = |ip: &SharedIp| cell.state == CellState::Shared && ip.owner.cilium_node.is_empty();
            for (number, ip) in new.ips.iter_mut().filter(|(_, ip)| in_specs(ip)) {
                let Some(address) = shared::address(&place, number) else { continue };
                let pool = ip.pool.clone();
                for hold in ip.holds_mut().filter(|hold| !hold.returning) {
                    if let Some(uid) = heir(&hold.node, &hold.node_uid, &pool, Run::single(address), hold.epoch) {
                        hold.node_uid = uid;
                    }
                }
            }
            let Some(net) = self.nets.get_mut(&(network.to_owned(), place.run().family())) else { continue };
            // What was decided here before, from the same reading, comes first.
            if new != *cell && net.cell(&place) == Some(cell) {
                set(net, network, &place, 0, new);
            }
        }
    }

    /// The object of the Node that has the name of another one, which is no more.
    fn heir(&self, node: &str, uid: &str) -> Option<&NodePoolSeen> {
        let now = self.world.nodes.get(node).filter(|now| !uid.is_empty() && now.uid != uid)?;
        self.world.node_pools.get(node).filter(|seen| seen.spec.node_uid == now.uid)
    }

    /// Frees what was given back and has left its node's spec, and what nodes had that are no more.
    pub(crate) fn free(&mut self) {
        let seen: Vec<_> = self.seen_cells().collect();
        for (network, place, cell) in seen {
            let fate = match cell.state {
                CellState::Free => None,
                CellState::Granted => self.left(&cell.node, &cell.node_uid, &cell.pool).then_some(CellFate::Free),
                CellState::Returning => {
                    let out = !self.mentions_it(network, place.run(), &cell.node_uid, cell.epoch);
                    (out || self.left(&cell.node, &cell.node_uid, &cell.pool)).then_some(CellFate::Free)
                }
                CellState::Shared => self.taken(network, &place, cell),
            };
            let Some(fate) = fate else { continue };
            let Some(net) = self.nets.get_mut(&(network.to_owned(), place.run().family())) else { continue };
            // What was decided here before, from the same reading, comes first.
            if net.cell(&place) != Some(cell) {
                continue;
            }
            match fate {
                CellFate::Free => set(net, network, &place, 0, Cell { epoch: cell.epoch, ..Cell::default() }),
                CellFate::Taken(lives) => {
                    let mut cell = cell.clone();
                    for (number, epoch) in &lives {
                        if let Some(ip) = cell.ips.get_mut(number) {
                            shared::leave(ip, *epoch);
                        }
                        // No claim gives it to another node: nobody can want it any more. No node has it, so it is never refused.
                        let over = cell.ips.get(number).is_some_and(|ip| is_attachments(&ip.owner));
                        if let Some(address) = shared::address(&place, number).filter(|_| over) {
                            drop(shared::release(&mut cell, &place, address));
                        }
                    }
                    set(net, network, &place, 0, cell);
                }
            }
        }
    }

    /// Whether a node's spec has it in that life.
    pub(crate) fn mentions_it(&self, network: &str, run: Run, uid: &str, epoch: u64) -> bool {
        self.mentions.get(&(network, run)).is_some_and(|all| all.iter().any(|m| m.node_uid == uid && m.epoch == epoch))
    }

    /// Whether nobody can use any more what a node had: it is no more, for long enough, and neither is its object; and where there is
    /// a Node of its name again, which may be the same machine, its agent has told what it holds, which was taken over before.
    fn left(&self, node: &str, uid: &str, pool: &str) -> bool {
        let world = self.world;
        let told = !world.nodes.contains_key(node) || self.heir(node, uid).is_some_and(|heir| heir.status.is_told());
        self.is_long_gone(uid, pool)
            && told
            && !world.nodes.values().any(|node| node.uid == uid)
            && !world.node_pools.values().any(|seen| seen.spec.node_uid == uid)
    }

    /// Whether a node is no more for as long as a pool's addresses wait for it.
    pub(crate) fn is_long_gone(&self, uid: &str, pool: &str) -> bool {
        let manual = matches!(self.pools.get(pool), Some(Ok(pool)) if pool.reclaim == Reclaim::Manual);
        // A pool that is wrong now may have been one that waits for a person.
        let manual = manual || matches!(self.pools.get(pool), Some(Err(_)));
        let enough = if manual { Gone::ByHand } else { Gone::GraceOver };
        !uid.is_empty() && self.world.gone.get(uid).is_some_and(|gone| *gone >= enough)
    }

    fn taken(&self, network: &str, place: &CellPosition, cell: &Cell) -> Option<CellFate> {
        // What is in a CiliumNode its own rules free.
        let in_specs = cell.ips.iter().filter(|(_, ip)| ip.owner.cilium_node.is_empty());
        let mut lives = Vec::new();
        for (number, ip) in in_specs {
            let Some(address) = shared::address(place, number) else { continue };
            let run = Run::single(address);
            let is_over = |hold: &Hold| {
                let out = hold.returning && !self.mentions_it(network, run, &hold.node_uid, hold.epoch);
                out || self.left(&hold.node, &hold.node_uid, &ip.pool)
            };
            let over = ip.holds().filter(|hold| is_over(hold));
            // Nobody has it, and nobody is to come.
            let nobodys = (!ip.is_held() && is_attachments(&ip.owner)).then_some(&ip.hold);
            lives.extend(over.chain(nobodys).map(|hold| (number.clone(), hold.epoch)));
        }
        (!lives.is_empty()).then_some(CellFate::Taken(lives))
    }
}

/// Whether an address is kept for one attachment, and for nothing that outlives it.
fn is_attachments(owner: &api::Owner) -> bool {
    owner.claim.is_empty() && owner.attachment.is_some()
}

fn set(net: &mut Net<'_>, network: &str, place: &CellPosition, first_epoch: u64, cell: Cell) {
    if let Some(slot) = net.cell_mut(network, place, first_epoch) {
        *slot = cell;
    }
}

/// Whether a node says that it holds something of a block.
fn holds(node: &NodePoolSeen, pool: &str, run: &Run, epoch: u64) -> bool {
    let same = |held: &Holding| held.epoch == epoch && held.pool == pool && held.cidr.parse::<Run>().is_ok_and(|r| r == *run);
    node.status.holding.iter().any(same)
}

fn claimed<'a>(node: &'a str, spec: &'a NodeIpPoolSpec) -> impl Iterator<Item = Claimed<'a>> {
    let node_uid = spec.node_uid.as_str();
    let blocks = spec.blocks.iter().map(move |b| Claimed {
        node,
        node_uid,
        network: &b.network,
        pool: &b.pool,
        text: &b.cidr,
        epoch: b.epoch,
        owner: None,
        told: false,
    });
    let ips = spec.ips.iter().map(move |i| Claimed {
        node,
        node_uid,
        network: &i.network,
        pool: &i.pool,
        text: &i.ip,
        epoch: i.epoch,
        owner: Some(&i.owner),
        told: false,
    });
    blocks.chain(ips)
}

fn granted(it: &Claimed<'_>) -> Cell {
    Cell { node: it.node.to_owned(), node_uid: it.node_uid.to_owned(), pool: it.pool.to_owned(), ..Cell::default() }
}

fn adopted(it: &Claimed<'_>, owner: &api::Owner) -> SharedIp {
    let hold = Hold { epoch: it.epoch, node: it.node.to_owned(), node_uid: it.node_uid.to_owned(), ..Hold::default() };
    SharedIp { hold, second: None, pool: it.pool.to_owned(), owner: owner.clone() }
}

/// The families in which a pool has addresses.
pub(crate) fn families(pool: &crate::Pool) -> impl Iterator<Item = Family> {
    Family::ALL.into_iter().filter(|family| pool.has(*family))
}
