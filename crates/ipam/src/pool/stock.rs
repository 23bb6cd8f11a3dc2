//! How many addresses of a pool a node keeps for pods to come: as many as came lately.
//!
//! ```text
//!   pods wait, and nothing that was asked for is on its way          --> sixteen for each of them: who calls at once calls again
//!   a pod takes one, and less than a quarter of the stock is left --> it is filled up; soon after the last time, to four times as much
//!   no pod comes for a while                                      --> half as much, in the end nothing
//!   pods of other nodes wait, and nothing is left for them        --> nothing, until the next pod comes
//! ```
//!
//! Only pools whose terms have `scaling.maxStock` are stocked, and only where a pod has used them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::{Demand, GrantedFamily, GrantedPool, NodeIpPoolSpec};
use pool::{Allocator, Family};

use super::node::{block_size, families, has, is_own};

/// Of a pool that the node uses for the first time, and of one that was empty; for each pod that waits then.
const FIRST: u64 = 16;
/// A stock that has to be filled again this soon was too small.
const SOON: Duration = Duration::from_secs(2);
/// After a third of the terms' `releaseDelaySeconds` without a pod the stock is halved; after this time at the least, and after this
/// time at the most.
const IDLE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The stocks of a node, by pool and family.
#[derive(Debug, Default)]
pub struct Stocks(BTreeMap<(String, Family), Stock>);

#[derive(Debug)]
struct Stock {
    /// So many addresses are kept for pods to come.
    size: u64,
    /// So many the pods need that are there, in whole blocks.
    need: u64,
    /// So many were asked for, some of which may be on their way.
    wants: u64,
    filled: Instant,
    used: Instant,
    /// After this time without a pod there is half as much.
    idle: Duration,
}

// === impl Stocks ===

impl Stocks {
    /// Looks at what pods have taken since the last look. `told`: what the API server was told last. How long until the next look if nothing
    /// happens; `None`: for as long as that.
    pub fn look(&mut self, all: &Allocator, spec: &NodeIpPoolSpec, told: &[Demand], now: Instant) -> Option<Duration> {
        let is_stocked = |name: &str, pool: &GrantedPool| pool.scaling.max_stock > 0 && !pool.ending && !is_own(all, name);
        self.0.retain(|(name, _), _| spec.pools.get(name).is_some_and(|pool| is_stocked(name, pool)));
        for (name, pool) in spec.pools.iter().filter(|(name, pool)| is_stocked(name, pool)) {
            for (family, raw) in families(pool) {
                let told = told.iter().find(|demand| demand.pool == *name).map_or(0, |demand| demand.needed(family == Family::V4));
                self.look_at(all, name, family, (pool, raw), (told, now));
            }
        }
        self.0.values().filter(|stock| stock.size > 0).map(|stock| (stock.used + stock.idle).saturating_duration_since(now)).min()
    }

    fn look_at(
        &mut self,
        all: &Allocator,
        name: &str,
        family: Family,
        (pool, raw): (&GrantedPool, &GrantedFamily),
        (told, now): (u64, Instant),
    ) {
        let block = block_size(family, raw);
        let need = all.need(name, family, block);
        let place = (name.to_owned(), family);
        if need == 0 && !self.0.contains_key(&place) {
            return;
        }
        let idle = Duration::from_secs(pool.scaling.release_delay_seconds / 3).clamp(IDLE.0, IDLE.1);
        let stock = self.0.entry(place).or_insert(Stock { size: 0, need: 0, wants: 0, filled: now, used: now, idle });
        stock.idle = idle;
        let came = need > stock.need;
        stock.need = need;
        if came {
            stock.used = now;
        }
        while stock.size > 0 && now.duration_since(stock.used) >= idle {
            stock.size /= 2;
            stock.used += idle;
        }
        if raw.keep.is_some() {
            stock.size = 0;
        }
        let has = u64::try_from(has(all, name, family)).unwrap_or(u64::MAX);
        let whole = |n: u64| n.div_ceil(block).saturating_mul(block);
        let full = |size: u64| whole(need.saturating_add(size));
        let waiting = need.saturating_sub(has).div_ceil(block);
        if waiting > 0 && told <= has && raw.keep.is_none() {
            stock.size = FIRST.saturating_mul(waiting).max(stock.size).min(pool.scaling.max_stock);
            stock.filled = now;
            stock.wants = full(stock.size);
            return;
        }
        let supply = has.max(stock.wants).min(full(stock.size));
        stock.wants = if came && supply < whole(need.saturating_add(stock.size.div_ceil(4))).max(need + 1) {
            let most = pool.scaling.max_stock;
            let soon = now.duration_since(stock.filled) < SOON;
            stock.size = if soon { stock.size.saturating_mul(4) } else { stock.size }.max(FIRST).min(most);
            stock.filled = now;
            full(stock.size)
        } else {
            supply.max(need)
        };
    }

    /// What a node needs of a pool and family with its stock; 0: there is none.
    pub(super) fn wants(&self, pool: &str, family: Family) -> u64 {
        self.0.get(&(pool.to_owned(), family)).map_or(0, |stock| stock.wants)
    }
}

#[cfg(test)]
mod tests {
    use pool::{Ask, Block, Event, Key, Moment, Origin, Spec, State, Terms, Want};

    use super::*;

    /// A node whose pool `a` has single addresses of 10.0.0.0/16, and what it is granted as soon as it asks.
    struct Node {
        all: Allocator,
        stocks: Stocks,
        spec: NodeIpPoolSpec,
        start: Instant,
        told: Vec<Demand>,
        granted: u8,
        pods: u32,
    }

    impl Node {
        fn new(max_stock: u64) -> Self {
            let scaling = json(&format!(r#"{{"preAllocate":0,"maxStock":{max_stock}}}"#));
            let pool = GrantedPool { scaling, ipv4: Some(json(r#"{"prefixLength":16,"blockPrefix":32}"#)), ..GrantedPool::default() };
            let spec = NodeIpPoolSpec { pools: BTreeMap::from([("a".to_owned(), pool)]), ..NodeIpPoolSpec::default() };
            let mut all = Allocator::new(7);
            let mut terms = Spec::new("a", "a");
            terms.v4 = Terms { prefix: 16, gateway: None };
            (terms.origin, terms.scaling.pre_allocate) = (Origin::Cluster, 0);
            all.apply(&Event::Pool(terms));
            Node { all, stocks: Stocks::default(), spec, start: Instant::now(), told: Vec::new(), granted: 0, pods: 0 }
        }

        /// What it wants a while after the start.
        fn wants(&mut self, millis: u64) -> u64 {
            self.stocks.look(&self.all, &self.spec, &self.told, self.start + Duration::from_millis(millis));
            self.stocks.wants("a", Family::V4)
        }

        fn grant(&mut self, up_to: u64) {
            while u64::from(self.granted) < up_to {
                self.granted += 1;
                let run = format!("10.0.0.{}", self.granted).parse().unwrap();
                let block = Block { pool: "a".to_owned(), run, epoch: 1, claim: None };
                self.all.apply(&Event::Block(block, State::Active));
            }
        }

        fn ask(&mut self) -> Ask {
            self.pods += 1;
            let key = Key { network: "n".to_owned(), container: self.pods.to_string(), ifname: "eth0".to_owned() };
            let want = Want { pool: "a".to_owned(), family: Family::V4, address: None };
            Ask { key, pod: None, claim: None, wants: vec![want] }
        }

        fn pod(&mut self) {
            let ask = self.ask();
            self.all.reserve(&ask, &Moment::default()).unwrap();
        }

        fn waits(&mut self) {
            let ask = self.ask();
            self.all.wait(&ask);
        }
    }

    fn json<T: serde::de::DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn as_many_as_came_lately() {
        let mut node = Node::new(64);
        assert_eq!(node.wants(0), 0, "no pod has used it");
        node.grant(1);
        node.pod();
        assert_eq!(node.wants(0), 1 + 16);
        node.grant(17);
        (0..12).for_each(|_| node.pod());
        assert_eq!(node.wants(5000), 17, "a quarter of it is left");
        node.pod();
        assert_eq!(node.wants(5000), 14 + 16, "less than a quarter, and not soon");
        assert_eq!(node.wants(5001), 30, "on its way");
        node.grant(30);
        (0..13).for_each(|_| node.pod());
        assert_eq!(node.wants(5500), 27 + 64, "soon");
        node.grant(91);
        (0..49).for_each(|_| node.pod());
        assert_eq!(node.wants(6000), 76 + 64, "no more than the terms say");
        node.grant(140);
        assert_eq!((node.wants(66_000), node.wants(66_500), node.wants(126_500)), (76 + 32, 76 + 32, 76 + 16));
        assert_eq!((node.wants(600_000), node.wants(600_001)), (76, 76), "nobody came for long");
        let left = node.stocks.look(&node.all, &node.spec, &[], node.start + Duration::from_secs(601));
        assert_eq!(left, None);
    }

    #[test]
    fn who_waits_at_once_is_the_measure_of_the_first_stock() {
        let mut node = Node::new(64);
        node.waits();
        assert_eq!(node.wants(0), 1 + 16);
        node.waits();
        assert_eq!(node.wants(1), 2 + 32, "nothing was told yet");
        node.told = vec![Demand { pool: "a".to_owned(), v4: 34, ..Demand::default() }];
        (0..2).for_each(|_| node.waits());
        assert_eq!(node.wants(2), 34, "more is on its way than they need");
        node.grant(34);
        assert_eq!(node.wants(3), 34);
        let mut many = Node::new(64);
        (0..9).for_each(|_| many.waits());
        assert_eq!(many.wants(0), 9 + 64, "no more than the terms say");
    }

    #[test]
    fn nothing_is_kept_where_others_wait_or_nothing_is_to_be_kept() {
        let mut node = Node::new(64);
        node.grant(1);
        node.pod();
        assert_eq!(node.wants(0), 17);
        node.spec.pools.get_mut("a").unwrap().ipv4.as_mut().unwrap().keep = Some(1);
        assert_eq!(node.wants(10), 1);
        node.spec.pools.get_mut("a").unwrap().ipv4.as_mut().unwrap().keep = None;
        assert_eq!(node.wants(20), 1, "until the next pod");
        node.grant(2);
        node.pod();
        assert_eq!(node.wants(30), 2 + 16);
        node.spec.pools.get_mut("a").unwrap().scaling.max_stock = 0;
        assert_eq!(node.wants(40), 0);
        let mut never = Node::new(0);
        never.grant(1);
        never.pod();
        assert_eq!(never.wants(0), 0);
    }
}
