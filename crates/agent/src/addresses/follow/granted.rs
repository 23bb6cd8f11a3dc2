//! What was granted, into the store, and what is too much or wanted back, out of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{NodeIpPoolSpec, Returning};
use cluster::NodeIpPool;
use ipam::{Intake, PoolStore, PoolStoreError};
use pool::{Block, Origin, Refused, Run, State};

use super::{AGAIN, Follow, IDLE};
use crate::addresses::beside::is_others;
use crate::log::Line;
use crate::settings::Ipam;

/// Where a store that was lost is not whole, and attachments hold what stands in the way of what was granted.
const HELD: Duration = Duration::from_secs(5);

/// An object that was to be taken in, and has not been as a whole.
pub(super) struct Tried {
    object: Arc<NodeIpPool>,
    /// Not again before.
    next: Instant,
    /// Nothing of it may be used.
    failed: bool,
}

// === impl Follow ===

impl Follow {
    /// What was granted, into the store. How long until the next look; or, where it could not be taken in, until it is tried again.
    pub(super) async fn take_in(&mut self, object: &Arc<NodeIpPool>, now: Instant) -> Result<Duration, Duration> {
        let same = |known: &NodeIpPool| known.spec == object.spec && known.uid == object.uid;
        if self.applied.as_ref().is_some_and(|applied| same(applied)) {
            return Ok(IDLE);
        }
        // A try may be a change, and changes wake this: the pause holds whatever happens meanwhile.
        if let Some(tried) = self.tried.as_ref().filter(|tried| tried.next > now && same(&tried.object)) {
            let left = tried.next - now;
            return if tried.failed { Err(left) } else { Ok(left) };
        }
        let (store, taken, ipam) = (Arc::clone(&self.store), Arc::clone(object), self.ipam);
        let done = tokio::task::spawn_blocking(move || store.take_in(Origin::Cluster, |intake| take_in(intake, &taken, ipam))).await;
        let Ok(done) = done else { return Ok(IDLE) };
        let tried = |pause, failed| Some(Tried { object: Arc::clone(object), next: now + pause, failed });
        match done {
            Ok((stale, said, held)) => {
                said.into_iter().for_each(|text| self.tell("granted", text));
                // When those who hold something have given it back there is more to be done.
                (self.stale, self.applied) = (stale, (!held).then(|| Arc::clone(object)));
                let pause = if held && self.store.is_recovering() { HELD } else { IDLE };
                self.tried = tried(pause, false).filter(|_| pause == HELD);
                Ok(pause)
            }
            Err(e) => {
                self.tell("error", e.to_string());
                self.tried = tried(AGAIN, true);
                Err(AGAIN)
            }
        }
    }

    /// What was stopped when nothing could be written.
    pub(super) async fn freeze_again(&mut self) -> Duration {
        let store = Arc::clone(&self.store);
        match tokio::task::spawn_blocking(move || store.freeze_again()).await {
            Ok(Ok(())) | Err(_) => IDLE,
            Ok(Err(e)) => {
                self.tell("error", e.to_string());
                AGAIN
            }
        }
    }

    /// Stops single addresses that the operator wants back and nobody has any more; how long until the next look.
    pub(super) async fn return_recalled(&mut self, spec: &NodeIpPoolSpec) -> Duration {
        let recalled = ipam::recalled(spec);
        let free = self.store.look(|all| {
            let free = |block: &Block| all.blocks(&block.pool, block.run.family()).any(|(b, s)| b.is_life_of(block) && s != State::Frozen);
            recalled.into_iter().filter(free).collect::<Vec<_>>()
        });
        let mut next = IDLE;
        for block in free {
            let (store, of) = (Arc::clone(&self.store), block.clone());
            match tokio::task::spawn_blocking(move || store.freeze(&of.pool, &[of.run])).await {
                Ok(Ok(frozen)) if !frozen.is_empty() => {
                    Line::info("addresses").with("pool", block.pool).with("returned", block.run).end();
                }
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(e)) => {
                    self.tell("error", e.to_string());
                    next = next.min(AGAIN);
                }
            }
        }
        next
    }

    /// Stops blocks that have been too many for long enough; how long until the next of them is.
    pub(super) async fn shrink(&mut self, spec: &NodeIpPoolSpec, now: Instant) -> Duration {
        let surplus = self.store.look(|all| ipam::surplus(all, spec, &self.stocks));
        let mut next = IDLE;
        let before = std::mem::take(&mut self.too_many);
        for one in surplus {
            let place = (one.pool.clone(), one.family);
            let since = before.get(&place).copied().unwrap_or(now);
            self.too_many.insert(place, since);
            let left = left(since, one.delay, now);
            if !left.is_zero() {
                next = next.min(left);
                continue;
            }
            let (store, pool) = (Arc::clone(&self.store), one.pool.clone());
            let stopped = tokio::task::spawn_blocking(move || freeze(&store, &one)).await;
            match stopped {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(blocks)) => Line::info("addresses").with("pool", pool).with("given_back", blocks).end(),
                Ok(Err(e)) => {
                    self.tell("error", e.to_string());
                    next = next.min(AGAIN);
                }
            }
        }
        next
    }
}

/// How long it is until so many seconds have passed. So many that no time could be given to their end never pass.
fn left(since: Instant, seconds: u64, now: Instant) -> Duration {
    since.checked_add(Duration::from_secs(seconds)).map_or(Duration::MAX, |end| end.saturating_duration_since(now))
}

/// Makes the store as the object says. What was granted and is given back already, what there is to say, and whether something is not
/// taken in while attachments hold what stands in its way.
fn take_in(intake: &Intake<'_>, object: &NodeIpPool, ipam: Ipam) -> Result<(Vec<Returning>, Vec<String>, bool), PoolStoreError> {
    let store = intake.store();
    let mut grants = ipam::node_grants(&object.spec, &object.status.returning);
    let (mut stale, mut said, mut held) = (Vec::new(), std::mem::take(&mut grants.unread), false);
    for granted in &grants.pools {
        let refused = match intake.grant(granted) {
            Err(e @ PoolStoreError::OfBoth { .. }) => {
                held = true;
                said.push(e.to_string());
                continue;
            }
            refused => refused?,
        };
        for refused in refused {
            match refused {
                // Of a later life of it, that is: the cluster's store was put back to what it was before.
                Refused::Returned { run, .. } if in_use(store, &granted.spec.name, run) => {
                    held = true;
                    said.push(format!(
                        "{refused}; it is not returned while attachments have addresses of it, and no other node must get it: detach \
                            them. Was the cluster's store restored from a backup?"
                    ));
                    continue;
                }
                Refused::Returned { run, .. } => {
                    stale.extend(granted.blocks.iter().find(|(b, _)| b.run == run).map(|(b, _)| ipam::returning(b)));
                }
                Refused::OtherNetwork { .. } => held = true,
                _ => {}
            }
            said.push(refused.to_string());
        }
    }
    let named: BTreeSet<&str> = grants.pools.iter().map(|granted| granted.spec.name.as_str()).collect();
    for pool in store.cluster_pools().into_iter().filter(|pool| !named.contains(pool.as_str()) && !is_others(ipam, pool)) {
        store.end(&pool)?;
        let granted = grants.ending.get(&pool).map(Vec::as_slice).unwrap_or_default();
        let own: Vec<(Block, State)> = store.blocks(&pool);
        for (block, state) in own {
            // Who has it has no lease: it goes when they do.
            if state != State::Frozen && block.claim.as_deref().is_some_and(|claim| ipam::KeptFor::parse(claim).is_some()) {
                continue;
            }
            let frozen = state == State::Frozen || !store.freeze(&pool, &[block.run])?.is_empty();
            if frozen && !granted.iter().any(|b| b.run == block.run && b.epoch == block.epoch) {
                store.forget(&block)?;
            }
        }
    }
    linux::crash_point!("pool-granted");
    Ok((stale, said, held))
}

/// Whether attachments have addresses of a pool's run, in whatever life of it, or had them a moment ago.
fn in_use(store: &PoolStore, pool: &str, run: Run) -> bool {
    store.look(|all| all.network(pool).is_some_and(|network| all.all_taken(network).any(|(ip, _)| run.contains(ip))))
}

/// Stops as many blocks as are too many, the highest first: addresses are taken from the lowest. How many it were.
fn freeze(store: &PoolStore, surplus: &ipam::Surplus) -> Result<usize, PoolStoreError> {
    let (mut left, mut stopped) = (surplus.addresses, 0);
    let mut blocks = store.blocks(&surplus.pool);
    blocks.retain(|(b, state)| b.run.family() == surplus.family && *state != State::Frozen && b.claim.is_none());
    for (block, _) in blocks.iter().rev() {
        if block.run.count() <= left && !store.freeze(&surplus.pool, &[block.run])?.is_empty() {
            left -= block.run.count();
            stopped += 1;
        }
    }
    Ok(stopped)
}

#[cfg(test)]
mod tests {
    use api::NodeIpPoolStatus;
    use pool::Family;

    use super::*;

    fn took(store: &PoolStore, object: &NodeIpPool) -> Result<(Vec<Returning>, Vec<String>, bool), PoolStoreError> {
        store.take_in(Origin::Cluster, |intake| take_in(intake, object, Ipam::Pool))
    }

    #[test]
    fn a_delay_that_never_ends() {
        let now = Instant::now();
        assert_eq!(left(now, 5, now + Duration::from_secs(2)), Duration::from_secs(3));
        assert_eq!(left(now, 1, now + Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(left(now, u64::MAX, now), Duration::MAX);
    }

    /// This node's object, which grants 10.0.0.0/30 of the pool `a` in this epoch.
    fn object(epoch: u64) -> NodeIpPool {
        let spec = serde_json::json!({
            "nodeUID": "u",
            "pools": {"a": {"network": "a", "ipv4": {"prefixLength": 24, "blockPrefix": 30}, "reuse": {"cooldownSeconds": 0}}},
            "blocks": [{"cidr": "10.0.0.0/30", "pool": "a", "epoch": epoch}],
        });
        NodeIpPool {
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            generation: 1,
            spec: serde_json::from_value(spec).unwrap(),
            status: NodeIpPoolStatus::default(),
        }
    }

    /// An attachment with an address of it.
    fn attach(store: &PoolStore) -> pool::Key {
        let key = pool::Key { network: "net".to_owned(), container: "c".to_owned(), ifname: "eth0".to_owned() };
        let want = pool::Want { pool: "a".to_owned(), family: Family::V4, address: None };
        store.reserve(&pool::Ask { key: key.clone(), pod: None, claim: None, wants: vec![want] }).unwrap();
        key
    }

    /// Who looks again after each change would look for ever.
    #[test]
    fn what_cannot_be_stopped_and_what_is_stopped_are_no_change() {
        let dir = std::env::temp_dir().join(format!("nl-follow-rests-{}", std::process::id()));
        let store = PoolStore::open(&dir, Instant::now() + Duration::from_secs(60)).unwrap();
        took(&store, &object(1)).unwrap();
        let run = "10.0.0.0/30".parse().unwrap();
        let key = attach(&store);
        let before = store.version();
        assert_eq!((store.freeze("a", &[run]).unwrap(), store.version()), (vec![], before), "somebody has an address of it");
        store.release(&key, None).unwrap();
        store.settle();
        assert_eq!(store.freeze("a", &[run]).unwrap(), [run]);
        let (before, written) = (store.version(), std::fs::read(dir.join("0000000000000000.log")).unwrap());
        assert_eq!((store.freeze("a", &[run]).unwrap(), store.version()), (vec![run], before), "it is stopped already");
        assert_eq!(std::fs::read(dir.join("0000000000000000.log")).unwrap(), written);
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_epoch_of_before_while_pods_have_addresses_of_a_later_one() {
        let dir = std::env::temp_dir().join(format!("nl-follow-{}", std::process::id()));
        let store = PoolStore::open(&dir, Instant::now() + Duration::from_secs(60)).unwrap();
        took(&store, &object(1)).unwrap();
        let run = "10.0.0.0/30".parse().unwrap();
        assert_eq!(store.freeze("a", &[run]).unwrap(), [run]);
        store.forget(&store.frozen()[0]).unwrap();
        assert_eq!(took(&store, &object(2)).unwrap(), (Vec::new(), Vec::new(), false));
        let key = attach(&store);
        let (stale, said, held) = took(&store, &object(1)).unwrap();
        assert!(stale.is_empty() && held && said[0].contains("restored from a backup"), "{stale:?} {said:?}");
        store.release(&key, None).unwrap();
        store.settle();
        let (stale, _, held) = took(&store, &object(1)).unwrap();
        assert_eq!((stale.len(), held), (1, false), "{stale:?}");
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
