//! Which addresses a node gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{CellState, Hold, Owner, SharedIp};
use pool::{Family, Run, number};

use super::owner;
use crate::demand::Cursor;
use crate::grid::CellPosition;
use crate::index::{Index, Net};
use crate::{Pool, runs, shared, size_budget};

/// So many addresses a node gets in one step: what one of them says it needs costs the others little.
const AT_ONCE: u64 = 256;

/// A node that has too few addresses of a family.
#[derive(Debug)]
pub(super) struct Lacks<'a> {
    /// Its name and UID.
    pub(super) node: (&'a str, &'a str),
    /// The version of its object that says so.
    pub(super) seen_in: u64,
    pub(super) family: Family,
    pub(super) has: u64,
    pub(super) lacks: u64,
}

/// The addresses of a pool that nobody has, in order; each is looked at once in a step.
struct Free {
    cursor: Cursor,
    of: Vec<Run>,
    /// Those of one cell, each with the bytes that its shard has of its last life.
    here: Vec<(IpAddr, usize)>,
    /// The shard of that cell, by the number of its first address, and how many bytes more go into it.
    shard: (Option<u128>, usize),
}

// === impl Index ===

impl Index<'_> {
    /// Enters addresses in the ledger: where there is not enough for all, a node that has nothing comes first, then the one that lacks
    /// most; each gets one at a time. How many nodes lack how many afterwards.
    pub(super) fn give(&mut self, pool: &Pool, mut lacking: Vec<Lacks<'_>>) -> BTreeMap<Family, (u64, u64)> {
        let mut short = BTreeMap::new();
        if !self.world.pools.get(&pool.spec.name).is_some_and(|seen| seen.finalizer && !seen.deleting) || lacking.is_empty() {
            return short;
        }
        lacking.iter_mut().for_each(|need| need.lacks = need.lacks.min(AT_ONCE));
        for family in Family::ALL.into_iter().filter(|family| self.is_open(pool, *family)).collect::<Vec<_>>() {
            let of = pool.all_usable().into_iter().filter(|run| run.family() == family).collect();
            let of = runs::pieces(of, &self.withheld(&pool.spec.network).gateways);
            let mut free = Free { cursor: Cursor::over(of.clone(), pool, family), of, here: Vec::new(), shard: (None, 0) };
            let mut needs: Vec<&mut Lacks<'_>> = lacking.iter_mut().filter(|need| need.family == family).collect();
            self.serve_addresses(pool, &mut free, &mut needs);
            let left: Vec<u64> = needs.iter().map(|need| need.lacks).filter(|lacks| *lacks > 0).collect();
            if !left.is_empty() {
                short.insert(family, (left.len() as u64, left.iter().sum()));
            }
        }
        short
    }

    fn serve_addresses(&mut self, pool: &Pool, free: &mut Free, needs: &mut [&mut Lacks<'_>]) {
        while needs.iter().any(|need| need.lacks > 0) {
            needs.sort_by_key(|need| (need.has > 0, std::cmp::Reverse(need.lacks), need.node));
            for need in needs.iter_mut().filter(|need| need.lacks > 0) {
                let (mut given, size) = (false, size_budget::kept(&entry(pool, need.node)));
                while !given {
                    let Some(address) = self.next_free(pool, free, size) else { return };
                    given = self.give_one(pool, address, need.node, need.seen_in) == Ok(true);
                }
                (need.has, need.lacks) = (need.has + 1, need.lacks - 1);
            }
        }
    }

    /// Makes an address a node's, given as name and UID; versions of its object up to `seen_in` say nothing of this life of it.
    /// `false`: not yet, as something else has to be there first. It is another one's: whose.
    pub(super) fn give_one(&mut self, pool: &Pool, address: IpAddr, (node, uid): (&str, &str), seen_in: u64) -> Result<bool, String> {
        let network = pool.spec.network.as_str();
        let place = CellPosition::of(address, pool.block(Family::of(address)));
        let first_epoch = self.world.first_epoch;
        if self.is_barred(network, &place) || !self.is_rooted(pool, Family::of(address)) {
            return Ok(false);
        }
        let Some(net) = self.nets.get_mut(&(network.to_owned(), Family::of(address))) else { return Ok(false) };
        let mut cell = net.cell(&place).cloned().unwrap_or_default();
        let known = place.offset(address).and_then(|number| cell.ips.get(&number.to_string())).cloned().unwrap_or_default();
        if known.owner.cilium_node == node {
            return Ok(known.hold.node_uid == uid);
        }
        // What a node's spec mentions is somebody's, whatever the ledger says.
        let mentioned = match cell.state {
            CellState::Free => self.touched.contains(&(network, place.run())),
            _ => [place.run(), Run::single(address)].iter().any(|run| self.mentions.contains_key(&(network, *run))),
        };
        if mentioned {
            return Ok(false);
        }
        let above = net.next_epoch(&place, first_epoch).saturating_sub(1);
        let given = shared::assign(&mut cell, &place, address, &pool.spec.name, &owner(node), above)
            .and_then(|()| shared::delegate(&mut cell, &place, address, node, uid));
        if given.is_err() {
            return Err(holder(&cell.node, &known));
        }
        let freed_in = net.shards.get(&place.base().numbers().0).and_then(|draft| draft.spec()).map_or(0, |spec| spec.seen_in);
        if let Some(ip) = place.offset(address).and_then(|number| cell.ips.get_mut(&number.to_string())) {
            ip.hold.seen_in = seen_in.max(freed_in);
        }
        if let Some(slot) = net.cell_mut(network, &place, first_epoch) {
            *slot = cell;
        }
        Ok(true)
    }

    /// The next address that nobody has, in a shard into which so many bytes more go.
    fn next_free(&self, pool: &Pool, free: &mut Free, size: usize) -> Option<IpAddr> {
        loop {
            while let Some((address, before)) = free.here.pop() {
                if let Some(left) = (free.shard.1 + before).checked_sub(size) {
                    free.shard.1 = left;
                    return Some(address);
                }
            }
            let place = free.cursor.next()?;
            let family = place.run().family();
            let net = self.nets.get(&(pool.spec.network.clone(), family))?;
            let draft = net.shards.get(&place.base().numbers().0);
            if draft.is_some_and(|draft| draft.is_full() && !draft.has_shared()) {
                free.cursor.skip_shard(&place);
                continue;
            }
            if free.shard.0 != Some(place.base().numbers().0) {
                free.shard = (Some(place.base().numbers().0), size_budget::left_in(draft.and_then(|draft| draft.spec())));
            }
            let cell = net.cell(&place);
            let ips = || cell.iter().flat_map(|cell| cell.ips.values());
            let granted = cell.is_some_and(|cell| matches!(cell.state, CellState::Granted | CellState::Returning));
            // Where no more goes in, one that had a life before may have another one.
            if granted || (free.shard.1 < size && !ips().any(is_free)) {
                continue;
            }
            let first = number(place.run().first());
            let before = |n: u128| match cell.and_then(|cell| cell.ips.get(&(n - first).to_string())) {
                None => Some(0),
                Some(ip) => is_free(ip).then(|| size_budget::kept(ip)),
            };
            let all = runs::within(&free.of, &place.run()).into_iter().map(|run| run.numbers());
            let open = all.flat_map(|(first, last)| first..=last).filter_map(|n| Some((family.address(n), before(n)?)));
            // The lowest one comes last, and is taken first.
            free.here = open.filter(|(address, _)| !self.is_in_cilium(&pool.spec.network, &Run::single(*address))).collect();
            free.here.reverse();
        }
    }

    /// Whether the object is there that says how large cells are: what objects have is entered then.
    fn is_rooted(&self, pool: &Pool, family: Family) -> bool {
        self.nets.get(&(pool.spec.network.clone(), family)).is_some_and(|net| net.root.is_some())
    }

    /// Whether anything is given.
    fn is_open(&self, pool: &Pool, family: Family) -> bool {
        self.nets.get(&(pool.spec.network.clone(), family)).is_some_and(Net::is_open)
    }
}

/// An address as the ledger has it when it is a node's, given as name and UID.
fn entry(pool: &Pool, (node, uid): (&str, &str)) -> SharedIp {
    let hold = Hold { node: node.to_owned(), node_uid: uid.to_owned(), ..Hold::default() };
    SharedIp { hold, second: None, pool: pool.spec.name.clone(), owner: owner(node) }
}

/// Whether an address of which the ledger has something is nobody's.
fn is_free(ip: &SharedIp) -> bool {
    ip.owner == Owner::default() && ip.hold.node_uid.is_empty()
}

/// Who has an address, or the block around it.
fn holder(node: &str, ip: &SharedIp) -> String {
    [&ip.owner.cilium_node, &ip.hold.node, &ip.owner.claim, &ip.owner.pod]
        .into_iter()
        .find(|text| !text.is_empty())
        .map_or(node, |v| v)
        .to_owned()
}
