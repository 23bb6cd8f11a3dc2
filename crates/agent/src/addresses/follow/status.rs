//! What the object's status says of this node, and when a change of it is worth a write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Demand, MOST_BLOCKS, NodeIpPoolSpec, NodeIpPoolStatus, Returning};
use cluster::NodeIpPool;

use super::node_gone::alive_every;
use super::{AGAIN, FIRST, Follow, IDLE};
use crate::addresses::beside::is_others;
use crate::addresses::conflicts::problems;
use crate::settings::Ipam;

/// That more is needed is told when it has been so for this time: pods come together, and their networks one after the other.
const GATHER: Duration = Duration::from_millis(10);
/// How long the operator may take to answer a request for a stock, before the agent writes how many pods wait for it.
const ANSWER: Duration = Duration::from_secs(1);
/// That less is needed than before, or that what was granted is taken in, is told when it has been so for this time: it is nobody's hurry.
const LESS: Duration = Duration::from_secs(10);

/// How a status differs from another.
#[derive(Debug, PartialEq, Eq)]
enum Differs {
    No,
    /// Only in that less is needed, or that more was granted and is taken in.
    Less,
    /// Only in that more pods wait for a stock that was asked for, and not answered yet.
    Asked,
    Yes,
}

// === impl Follow ===

impl Follow {
    /// The status that is there, also where the watch has not brought yet what was written.
    pub(super) fn status_seen(&self, object: &NodeIpPool) -> NodeIpPoolStatus {
        match &self.written {
            Some((over, status)) if *over == object.resource_version => status.clone(),
            _ => object.status.clone(),
        }
    }

    /// What it is to say now.
    pub(super) fn status(&self, object: &NodeIpPool, seen: &NodeIpPoolStatus, now: Instant) -> NodeIpPoolStatus {
        let mut returning: Vec<Returning> = self.store.frozen().iter().map(ipam::returning).chain(self.stale.iter().cloned()).collect();
        returning.retain(|block| !is_others(self.ipam, &block.pool));
        returning.sort();
        returning.dedup();
        // No more can be told; the others when these have gone.
        returning.truncate(usize::try_from(MOST_BLOCKS).unwrap_or(usize::MAX));
        let mut holding = self.store.look(|all| ipam::node_holding(all, &object.spec));
        holding.retain(|block| !is_others(self.ipam, &block.pool));
        let problems = problems(&self.store);
        let alive_at = self.alive_at(&object.spec, seen, now);
        self.store.look(|all| NodeIpPoolStatus {
            observed_generation: object.generation,
            agent: self.identity.clone(),
            cilium_node: self.ipam == Ipam::Crd,
            demand: ipam::node_demand(all, &object.spec, &self.stocks),
            returning,
            holding,
            problems,
            alive_at,
        })
    }

    /// Writes a status that says something else than what is there; how long until it may be written, where that is not now.
    pub(super) async fn write(
        &mut self,
        object: &Arc<NodeIpPool>,
        seen: &NodeIpPoolStatus,
        status: NodeIpPoolStatus,
        now: Instant,
    ) -> Duration {
        let lacks = |demand: &Demand| self.store.look(|all| ipam::lacks(all, std::slice::from_ref(demand)));
        let differs = differs(&object.spec, seen, &status, lacks);
        match differs {
            Differs::No => {
                (self.less, self.more) = (None, None);
                return IDLE;
            }
            Differs::Less => {
                self.more = None;
                let until = *self.less.get_or_insert(now) + LESS;
                if until > now {
                    return until - now;
                }
            }
            Differs::Yes | Differs::Asked => {
                let pause = if differs == Differs::Yes { GATHER } else { ANSWER };
                let until = *self.more.get_or_insert(now) + pause;
                if until > now {
                    return until - now;
                }
            }
        }
        // A stock that runs low is filled up before pods wait.
        let is_urgent = status.demand.iter().any(|demand| demand.waiting || demand.stock_v4.max(demand.stock_v6) > 0);
        if let Err(later) = self.pace.turn(is_urgent, now) {
            return later;
        }
        match self.cluster.write_node_ip_pool_status(object, &status).await {
            Ok(()) => {
                self.contest.wrote(now);
                self.pace.succeeded();
                (self.less, self.more) = (None, None);
                if status.alive_at != seen.alive_at {
                    self.alive = Some(now);
                }
                self.written = Some((object.resource_version.clone(), status));
                IDLE
            }
            // Somebody was faster: the watch brings what it is now.
            Err(e) if e.code() == Some(409) => FIRST,
            Err(e) => {
                self.pace.failed(now, alive_every(&object.spec));
                self.tell("status", e.to_string());
                AGAIN
            }
        }
    }
}

/// What is in use is told along with the rest, and is no reason to write; but who is asked for blocks is asked because of it. `lacks`:
/// whether the node has less of a pool than it needs, as it need not tell at once what it has already.
fn differs(spec: &NodeIpPoolSpec, seen: &NodeIpPoolStatus, own: &NodeIpPoolStatus, lacks: impl Fn(&Demand) -> bool) -> Differs {
    let agent = |status: &NodeIpPoolStatus| (status.agent.clone(), status.cilium_node);
    let others =
        agent(seen) != agent(own) || seen.returning != own.returning || seen.holding != own.holding || seen.problems != own.problems;
    let others = others || seen.alive_at != own.alive_at;
    let waiting = |status: &NodeIpPoolStatus, pool: &str| status.demand.iter().any(|d| d.waiting && d.pool == pool);
    let waits = own.demand.iter().any(|d| d.waiting && !waiting(seen, &d.pool));
    // As long as it is said to wait nobody asks it for anything.
    let waited = seen.demand.iter().any(|d| d.waiting && !waiting(own, &d.pool));
    let used = |status: &NodeIpPoolStatus, pool: &str| ipam::blocks_in_use(spec, status.demand.iter().find(|d| d.pool == pool));
    let asked = own.demand.iter().any(|d| used(own, &d.pool) != used(seen, &d.pool));
    // What was granted since is on the disk: people see it by this, and nobody waits for it.
    let late = seen.observed_generation < own.observed_generation;
    // Nobody asks a node for blocks that tells of something in each of them.
    let emptied = |d: &Demand| seen.demand.iter().any(|told| told.pool == d.pool && ipam::has_emptied(spec, told, d));
    let emptied = own.demand.iter().any(emptied);
    let needs = |status: &NodeIpPoolStatus| -> BTreeMap<String, (u64, u64)> {
        status.demand.iter().map(|Demand { pool, v4, v6, .. }| (pool.clone(), (*v4, *v6))).collect()
    };
    // Where little is left the stock is not granted: who waits has to be told of among what is.
    let bare = |d: &Demand| (d.v4 - d.stock_v4.min(d.v4), d.v6 - d.stock_v6.min(d.v6));
    let before = |pool: &str| seen.demand.iter().find(|d| d.pool == pool);
    let told = |pool: &str| before(pool).map(|d| (d.v4, d.v6)).unwrap_or_default();
    let exceeds = |(v4, v6): (u64, u64), (told4, told6): (u64, u64)| v4 > told4 || v6 > told6;
    let short = own.demand.iter().filter(|d| d.waiting && exceeds(bare(d), before(&d.pool).map(bare).unwrap_or_default()));
    // An answer is a new spec.
    let (stocked, short): (Vec<_>, Vec<_>) = short.partition(|d| !late && !exceeds(bare(d), told(&d.pool)));
    let more = !short.is_empty() || own.demand.iter().any(|d| exceeds((d.v4, d.v6), told(&d.pool)) && lacks(d));
    let (seen, own) = (needs(seen), needs(own));
    match () {
        () if others || more || waits || asked => Differs::Yes,
        () if !stocked.is_empty() => Differs::Asked,
        () if seen != own || waited || late || emptied => Differs::Less,
        () => Differs::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_a_write() {
        let worth = |spec: &NodeIpPoolSpec, seen: &NodeIpPoolStatus, own: &NodeIpPoolStatus| differs(spec, seen, own, |_| true);
        let demand = |v4, v6| NodeIpPoolStatus {
            demand: vec![Demand { pool: "a".to_owned(), v4, v6, in_use_v4: v4 / 2, ..Demand::default() }],
            ..NodeIpPoolStatus::default()
        };
        let calm = NodeIpPoolSpec::default();
        let mut busier = demand(64, 0);
        busier.demand[0].in_use_v4 = 40;
        assert_eq!(worth(&calm, &demand(64, 0), &busier), Differs::No);
        let granted = NodeIpPoolStatus { observed_generation: 2, ..demand(64, 0) };
        assert_eq!((worth(&calm, &demand(64, 0), &granted), worth(&calm, &granted, &granted)), (Differs::Less, Differs::No));
        assert_eq!(worth(&calm, &demand(64, 0), &demand(128, 0)), Differs::Yes);
        assert_eq!(differs(&calm, &demand(64, 0), &demand(128, 0), |_| false), Differs::Less, "it has as much");
        assert_eq!(worth(&calm, &demand(64, 64), &demand(0, 128)), Differs::Yes);
        assert_eq!(worth(&calm, &demand(64, 64), &demand(64, 0)), Differs::Less);
        assert_eq!(worth(&calm, &demand(64, 64), &NodeIpPoolStatus::default()), Differs::Less);
        assert_eq!(worth(&calm, &NodeIpPoolStatus::default(), &demand(0, 0)), Differs::Less);
        let mut waits = demand(64, 0);
        waits.demand[0].waiting = true;
        assert_eq!((worth(&calm, &demand(64, 0), &waits), worth(&calm, &waits, &demand(64, 0))), (Differs::Yes, Differs::Less));
        // The second pod waits for a stock that the first one has asked for; the answer brought no stock.
        let stocked = |generation, stock_v4| NodeIpPoolStatus {
            observed_generation: generation,
            demand: vec![Demand { pool: "a".to_owned(), v4: 17, stock_v4, waiting: true, ..Demand::default() }],
            ..NodeIpPoolStatus::default()
        };
        assert_eq!(
            (worth(&calm, &stocked(1, 16), &stocked(1, 15)), worth(&calm, &stocked(1, 16), &stocked(2, 15))),
            (Differs::Asked, Differs::Yes)
        );
        let mut above = stocked(1, 0);
        above.demand[0].v4 = 18;
        assert_eq!(worth(&calm, &stocked(1, 16), &above), Differs::Yes, "more than was asked for");
        let mut back = demand(64, 0);
        back.returning.push(Returning { cidr: "10.0.0.0/26".to_owned(), pool: "a".to_owned(), epoch: 1 });
        assert_eq!(worth(&calm, &demand(64, 0), &back), Differs::Yes);
        // It is asked for one of its blocks, as it told that there is something in one of them alone.
        let family = api::GrantedFamily { block_prefix: 27, keep: Some(1), ..api::GrantedFamily::default() };
        let pool = api::GrantedPool { ipv4: Some(family), ..api::GrantedPool::default() };
        let asked = NodeIpPoolSpec { pools: [("a".to_owned(), pool)].into(), ..NodeIpPoolSpec::default() };
        let (mut one, mut two) = (demand(64, 0), demand(64, 0));
        (one.demand[0].blocks_v4, two.demand[0].blocks_v4) = (1, 2);
        assert_eq!((worth(&asked, &one, &two), worth(&asked, &two, &one)), (Differs::Yes, Differs::Yes));
        busier.demand[0].blocks_v4 = 1;
        assert_eq!(worth(&asked, &one, &busier), Differs::No);
        // Who told that there is something in all of them is not asked, and tells when that is no more so.
        let block = |cidr: &str| api::GrantedBlock { cidr: cidr.to_owned(), pool: "a".to_owned(), ..api::GrantedBlock::default() };
        let mut has = NodeIpPoolSpec { blocks: vec![block("10.0.0.0/27"), block("10.0.0.32/27")], ..NodeIpPoolSpec::default() };
        assert_eq!((worth(&has, &one, &two), worth(&has, &two, &one)), (Differs::No, Differs::Less));
        has.blocks.push(block("10.0.0.64/27"));
        assert_eq!(worth(&has, &two, &one), Differs::No);
    }
}
