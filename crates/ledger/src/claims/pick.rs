//! Which address a claim gets.

use std::net::IpAddr;

use api::{CellState, IpLedgerShardSpec, Owner, SharedIp};
use pool::{Family, Run, number};

use super::{ClaimSeen, KeptAddress, Why, claim_address, owner};
use crate::demand::Cursor;
use crate::grid::CellPosition;
use crate::index::Index;
use crate::{Pool, SharedError, runs, shared, size_budget};

/// The most addresses that a claim has (S60).
const MOST: usize = 2;

// === impl Index ===

impl Index<'_> {
    /// Gives a claim what it has not yet of its addresses.
    pub(super) fn assign(&mut self, name: &str, claim: &ClaimSeen, own: &[KeptAddress]) -> Result<(), Why> {
        let wants = self.wants(name, claim)?;
        let requests = requests(claim, &wants)?;
        // One that was told before is the claim's, also where the ledger was lost.
        let told: Vec<IpAddr> = claim.status.ips.iter().filter_map(|text| claim_address(text)).collect();
        let owner = owner(name, claim);
        for (pool, family) in wants {
            if own.iter().any(|kept| kept.ip.pool == pool.spec.name && kept.family == family) {
                continue;
            }
            let of_family = |all: &[IpAddr]| all.iter().copied().find(|ip| Family::of(*ip) == family);
            match of_family(&requests) {
                Some(address) => self.assign_one(&pool, address, &owner)?,
                None => {
                    let again = of_family(&told).is_some_and(|address| self.assign_one(&pool, address, &owner).is_ok());
                    if !again {
                        self.assign_any(&pool, family, &owner)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A pool and a family for each address that a claim is to have.
    fn wants(&self, name: &str, claim: &ClaimSeen) -> Result<Vec<(Pool, Family)>, Why> {
        let source = self.world.claims.source(name, &claim.spec.network)?;
        let mut wants = Vec::new();
        for pool_name in &source.pools {
            let pool = match self.pools.get(pool_name.as_str()) {
                Some(Ok(pool)) => pool,
                Some(Err((_, why))) => return Err(("PoolInvalid", format!("IPPool {pool_name}: {why}"))),
                None => return Err(("PoolUnknown", format!("there is no IPPool {pool_name:?}"))),
            };
            if self.world.pools.get(pool_name).is_some_and(|seen| seen.deleting) {
                return Err(("PoolUnknown", format!("IPPool {pool_name:?} is being deleted")));
            }
            let all = crate::adopt::families(pool).filter(|f| source.families.is_empty() || source.families.contains(f));
            wants.extend(all.map(|family| (pool.clone(), family)));
        }
        match wants.len() {
            0 => Err(("PoolUnknown", format!("the pools of network {:?} have no addresses of its families", claim.spec.network))),
            n if n > MOST => Err(("TooManyAddresses", format!("its network assigns {n} addresses, but a claim has at most {MOST}"))),
            _ => Ok(wants),
        }
    }

    fn assign_one(&mut self, pool: &Pool, address: IpAddr, owner: &Owner) -> Result<(), Why> {
        let single = Run::single(address);
        let pool_name = &pool.spec.name;
        if runs::within(&pool.runs, &single).is_empty() {
            return Err(("RequestOutsidePool", format!("{address} is in no entry of IPPool {pool_name}: request one that is")));
        }
        let is_gateway = self.withheld(&pool.spec.network).gateways.contains(&single);
        if is_gateway || pool.spec.allowed(single).is_empty() {
            return Err((
                "RequestExcluded",
                format!(
                    "{address} is excluded from IPPool {pool_name}, or is its gateway: request another \
                one"
                ),
            ));
        }
        let place = CellPosition::of(address, pool.block(single.family()));
        self.keep(pool, &place, address, owner)
    }

    /// Reserved addresses first, which are for claims; then those of cells that have claims' already.
    fn assign_any(&mut self, pool: &Pool, family: Family, owner: &Owner) -> Result<(), Why> {
        let reserved: Vec<Run> = pool.runs.iter().flat_map(|run| runs::within(&pool.spec.reserved, run)).collect();
        let reserved: Vec<Run> = reserved.into_iter().flat_map(|run| pool.spec.allowed(run)).collect();
        if self.assign_of(pool, family, reserved, owner) {
            return Ok(());
        }
        let Some(net) = self.nets.get(&(pool.spec.network.clone(), family)) else { return Err(pending()) };
        if !net.is_open() {
            return Err(pending());
        }
        let specs = net.shards.values().filter_map(|draft| draft.spec());
        let shared: Vec<Run> = specs
            .flat_map(crate::index::cells)
            .filter(|(_, cell)| cell.state == CellState::Shared)
            .flat_map(|(place, _)| pool.usable(&place.run()))
            .collect();
        if self.assign_of(pool, family, shared, owner) || self.assign_of(pool, family, pool.all_usable(), owner) {
            return Ok(());
        }
        let text =
            format!("IPPool {} has no free {family} address for a claim: reserve some (spec.reserved), or add entries", pool.spec.name);
        Err(("Exhausted", text))
    }

    fn assign_of(&mut self, pool: &Pool, family: Family, of: Vec<Run>, owner: &Owner) -> bool {
        let of = runs::pieces(of, &self.withheld(&pool.spec.network).gateways);
        let mut cursor = Cursor::over(of.clone(), pool, family);
        let mut shard = (None, false);
        while let Some(place) = cursor.next() {
            let Some(net) = self.nets.get(&(pool.spec.network.clone(), family)) else { return false };
            let base = place.base().numbers().0;
            if shard.0 != Some(base) {
                shard = (Some(base), net.shards.get(&base).is_some_and(|draft| is_too_full(draft.spec(), owner)));
            }
            let cell = net.cell(&place);
            if shard.1 && !cell.iter().flat_map(|cell| cell.ips.values()).any(|ip| ip.owner == Owner::default()) {
                continue;
            }
            if cell.is_some_and(|cell| matches!(cell.state, CellState::Granted | CellState::Returning)) {
                let all = |draft: &crate::index::Draft<'_>| draft.is_full() && !draft.has_shared();
                if net.shards.get(&place.base().numbers().0).is_some_and(all) {
                    cursor.skip_shard(&place);
                }
                continue;
            }
            let taken = |n: u128| {
                let offset = (n - number(place.run().first())).to_string();
                // Where no more goes in, one that had a life before may have another one.
                let known = cell.and_then(|cell| cell.ips.get(&offset));
                known.map_or(shard.1, |ip| ip.owner != Owner::default() || ip.is_held())
                    || self.is_in_cilium(&pool.spec.network, &Run::single(family.address(n)))
            };
            let here = runs::within(&of, &place.run());
            let free = here.iter().map(Run::numbers).flat_map(|(first, last)| first..=last).find(|n| !taken(*n));
            if free.is_some_and(|n| self.keep(pool, &place, family.address(n), owner).is_ok()) {
                return true;
            }
        }
        false
    }

    /// Enters an address as an owner's.
    fn keep(&mut self, pool: &Pool, place: &CellPosition, address: IpAddr, owner: &Owner) -> Result<(), Why> {
        let network = pool.spec.network.as_str();
        let first_epoch = self.world.first_epoch;
        if self.is_barred(network, place) {
            return Err(pending());
        }
        let in_cilium = self.is_in_cilium(network, &Run::single(address));
        let Some(net) = self.nets.get_mut(&(network.to_owned(), place.run().family())) else { return Err(pending()) };
        if !net.is_open() {
            return Err(pending());
        }
        let mut cell = net.cell(place).cloned().unwrap_or_default();
        // What a node's spec mentions is somebody's, whatever the ledger says.
        let mentioned = match cell.state {
            CellState::Free => self.touched.contains(&(network, place.run())),
            _ => [place.run(), Run::single(address)].iter().any(|run| self.mentions.contains_key(&(network, *run))),
        };
        let above = net.next_epoch(place, first_epoch).saturating_sub(1);
        let known = place.offset(address).and_then(|number| cell.ips.get(&number.to_string())).map_or(0, size_budget::kept);
        let left = size_budget::left_in(net.shards.get(&place.base().numbers().0).and_then(|draft| draft.spec()));
        shared::assign(&mut cell, place, address, &pool.spec.name, owner, above).map_err(|e| (word(&e), e.to_string()))?;
        if mentioned {
            return Err(pending());
        }
        if in_cilium {
            return Err(("RequestTaken", format!("{address} is in a CiliumNode: request another one")));
        }
        if left + known < size_budget::kept(&entry(pool, owner)) {
            let text = format!("the ledger has no room for {address} beside its neighbours: request another one");
            return Err(("ShardFull", text));
        }
        if let Some(slot) = net.cell_mut(network, place, first_epoch) {
            *slot = cell;
        }
        Ok(())
    }
}

/// An address as the ledger has it when it is an owner's.
fn entry(pool: &Pool, owner: &Owner) -> SharedIp {
    SharedIp { pool: pool.spec.name.clone(), owner: owner.clone(), ..SharedIp::default() }
}

/// Whether no address that had no life before goes into a shard any more.
fn is_too_full(spec: Option<&IpLedgerShardSpec>, owner: &Owner) -> bool {
    size_budget::left_in(spec) < size_budget::kept(&SharedIp { owner: owner.clone(), ..SharedIp::default() })
}

fn word(e: &SharedError) -> &'static str {
    match e {
        SharedError::Granted { .. } => "RequestGranted",
        _ => "RequestTaken",
    }
}

fn pending() -> Why {
    ("Pending", "its pool is new, or the address was just released: retrying".to_owned())
}

/// The addresses that a claim asks for.
fn requests(claim: &ClaimSeen, wants: &[(Pool, Family)]) -> Result<Vec<IpAddr>, Why> {
    let mut found: Vec<IpAddr> = Vec::new();
    for (i, text) in claim.spec.ip_requests.iter().enumerate() {
        let wrong = |why: &str| ("RequestInvalid", format!("spec.ipRequests[{i}]: {text:?} {why}"));
        let address = claim_address(text).ok_or_else(|| wrong("is not an address with a prefix length, such as 192.0.2.7/24"))?;
        let family = Family::of(address);
        let Some((pool, _)) = wants.iter().find(|(_, f)| *f == family) else {
            return Err(wrong(&format!("is an {family} address, and its network has none")));
        };
        let prefix = text.split_once('/').and_then(|(_, prefix)| prefix.parse::<u8>().ok());
        let given = pool.spec.terms(family).prefix;
        if prefix.is_some_and(|prefix| prefix != given && prefix != family.bits()) {
            return Err(wrong(&format!("has another prefix length than that of IPPool {}, which is {given}", pool.spec.name)));
        }
        found.push(address);
    }
    Ok(found)
}
