//! This node's object and the store, brought together: what was granted is taken in, what is needed and what is given back is
//! told.
//!
//! ```text
//!   spec.reclaimAfterSeconds, or no object and no Node --> closed: no ADD gets an address, and each is told why
//!     something is in use here --> status.aliveAt, again and again: the operator waits
//!   an object without it, or no object and a Node      --> open
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::{AgentIdentity, Demand, MOST_BLOCKS, NodeIpPoolSpec, NodeIpPoolStatus, Returning};
use cluster::{Cluster, NodeIpPool, OwnObject};
use ipam::{Intake, PoolStore, PoolStoreError, Stocks, StoreLocation};
use pool::{Block, Family, Origin, Refused, Run, State};
use tokio::sync::Notify;

use super::Addresses;
use super::beside::{is_others, own_part};
use super::choice::Selectors;
use super::conflicts::problems;
use super::identity_conflict::{ConflictDecision, Contest};
use super::listen::ArpNdListener;
use super::pace::Pace;
use crate::Agent;
use crate::log::{Line, stamp};
use crate::settings::Ipam;

/// Until the first answer of the API server is there.
const FIRST: Duration = Duration::from_millis(50);
/// How long nothing need be looked at.
const IDLE: Duration = Duration::from_secs(60);
/// After the store could not be written.
const AGAIN: Duration = Duration::from_secs(1);
/// That more is needed is told when it has been so for this time: pods come together, and their networks one after the other.
const GATHER: Duration = Duration::from_millis(10);
/// How long the operator may take to answer a request for a stock, before the agent writes how many pods wait for it.
const ANSWER: Duration = Duration::from_secs(1);
/// That less is needed than before, or that what was granted is taken in, is told when it has been so for this time: it is nobody's hurry.
const LESS: Duration = Duration::from_secs(10);
/// Where a store that was lost is not whole, and attachments hold what stands in the way of what was granted.
const HELD: Duration = Duration::from_secs(5);
/// After an object that is another machine's.
const OTHERS: Duration = Duration::from_secs(5);
/// How often this agent says that it lives while its Node is gone, within a quarter of the time after which it counts as silent.
const ALIVE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Words of the reason why nothing is assigned while the Node is gone.
pub(crate) const NODE_GONE: &str = "was deleted while its agent runs";

/// Follows the object of this node.
pub(super) struct Follow {
    cluster: Cluster,
    pools: OwnObject<NodeIpPool>,
    store: Arc<PoolStore>,
    changed: Arc<Notify>,
    selectors: Arc<Selectors>,
    /// The object whose terms they have.
    noted: Option<Arc<NodeIpPool>>,
    identity: AgentIdentity,
    contest: Contest,
    /// Which pools come by the object.
    ipam: Ipam,
    /// It is known that nothing comes by it.
    nothing: bool,
    /// Where the journal is, until that is noted.
    place: Option<StoreLocation>,
    pace: Pace,
    /// The Node that this machine is, once that is known.
    own: Option<String>,
    /// Of which Node the object is, if it is another one, and until when nobody is asked again.
    strange: Option<(String, Instant)>,
    /// The agent that has served this node before.
    rival: AgentIdentity,
    /// Why nothing is assigned, while this machine's Node is gone.
    gone: Option<String>,
    /// When it was said last that this agent lives.
    alive: Option<Instant>,
    tried: Option<Tried>,
    /// What was granted when it was taken in last.
    applied: Option<Arc<NodeIpPool>>,
    /// Blocks that were granted and had been given back in that life.
    stale: Vec<Returning>,
    /// What is kept for pods to come.
    stocks: Stocks,
    /// Since when there is too much of a pool.
    too_many: BTreeMap<(String, Family), Instant>,
    /// Since when less is needed than was told.
    less: Option<Instant>,
    /// Since when something else is to be told.
    more: Option<Instant>,
    /// Since when more is needed than there is.
    lacking: Option<Instant>,
    /// The version of the object over which this was written last.
    written: Option<(String, NodeIpPoolStatus)>,
    told: BTreeSet<String>,
    ears: ArpNdListener,
}

/// An object that was to be taken in, and has not been as a whole.
struct Tried {
    object: Arc<NodeIpPool>,
    /// Not again before.
    next: Instant,
    /// Nothing of it may be used.
    failed: bool,
}

// === impl Follow ===

impl Follow {
    pub(super) fn new(agent: &Arc<Agent>, addresses: &Addresses) -> Self {
        let now = Instant::now();
        Follow {
            cluster: agent.cluster.clone(),
            pools: agent.cluster.follow_node_ip_pool(),
            store: Arc::clone(&addresses.store),
            changed: Arc::clone(&addresses.changed),
            selectors: Arc::clone(&addresses.selectors),
            noted: None,
            identity: addresses.identity.clone(),
            contest: Contest::new(addresses.identity.clone(), addresses.copied, addresses.place.is_certain, now),
            ipam: agent.settings.ipam,
            nothing: false,
            place: Some(addresses.place.clone()),
            pace: Pace::new(now),
            own: None,
            strange: None,
            rival: AgentIdentity::default(),
            gone: None,
            alive: None,
            tried: None,
            applied: None,
            stale: Vec::new(),
            stocks: Stocks::default(),
            too_many: BTreeMap::new(),
            less: None,
            more: None,
            lacking: None,
            written: None,
            told: BTreeSet::new(),
            ears: ArpNdListener::new(agent),
        }
    }

    /// For as long as the process lives.
    pub(super) async fn run(mut self) {
        let changed = Arc::clone(&self.changed);
        loop {
            let next = self.step().await;
            self.ears.follow(&self.store);
            tokio::select! {
                () = self.pools.changed() => {}
                () = changed.notified() => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// One look at everything; how long until the next one if nothing happens.
    async fn step(&mut self) -> Duration {
        let object = self.pools.now();
        // A CiliumNode may be all that there is.
        let nothing = self.pools.is_unserved() || (self.ipam == Ipam::Crd && object.is_none() && self.pools.listed().complete);
        self.expect(nothing).await;
        self.note_terms(object.as_ref());
        let Some(object) = object.map(|object| own_part(self.ipam, object)) else {
            let listed = self.pools.listed();
            if listed.complete {
                self.look_for_node().await;
            }
            return if listed.complete || listed.failing.is_some() { IDLE / 2 } else { FIRST };
        };
        let now = Instant::now();
        if let Some((_, until)) = self.strange.as_ref().filter(|(uid, until)| *uid == object.spec.node_uid && *until > now) {
            return *until - now;
        }
        if !self.is_own(&object.spec).await {
            self.strange = Some((object.spec.node_uid.clone(), now + OTHERS));
            return OTHERS;
        }
        let seen = self.status_seen(&object);
        if seen.agent.instance != self.identity.instance {
            self.rival.clone_from(&seen.agent);
        }
        let mut next = match self.contest.look(&seen.agent, now) {
            ConflictDecision::Serve => {
                if let Some(Err(e)) = self.place.take().map(|place| place.take(self.store.dir())) {
                    Line::warn("addresses").with("what", "the journal's location cannot be recorded").with("error", e).end();
                }
                self.node_is_gone(object.spec.reclaim_after_seconds.is_some(), Some(&object.uid));
                match self.take_in(&object, now).await {
                    Ok(next) => next,
                    Err(later) => return later.min(self.say_alive(&object, &seen, now).await),
                }
            }
            ConflictDecision::Wait(time) => {
                let who = shown(&self.rival);
                let why = match who.is_empty() {
                    true => "waiting 10 s for another agent that serves a node of this name to object".to_owned(),
                    false => format!("another agent has served this node: {who}; waiting 10 s for it to object"),
                };
                self.tell("wait", why.clone());
                self.store.close(Some(why));
                let status = NodeIpPoolStatus { agent: self.identity.clone(), ..seen.clone() };
                return time.min(self.write(&object, &seen, status, now).await);
            }
            ConflictDecision::Stop(other) => {
                let why = format!(
                    "another agent serves a node of the same name: {}; give one of the two hosts another node name and restart its agent",
                    shown(&other)
                );
                self.tell("stop", why.clone());
                self.store.close(Some(why));
                return IDLE;
            }
        };
        next = next.min(self.store.settle().unwrap_or(IDLE));
        next = next.min(self.freeze_again().await);
        next = next.min(self.return_recalled(&object.spec).await);
        let stocks = &mut self.stocks;
        next = next.min(self.store.look(|all| stocks.look(all, &object.spec, &seen.demand, now)).unwrap_or(IDLE));
        next = next.min(self.shrink(&object.spec, now).await);
        let status = self.status(&object, &seen, now);
        self.time_refill(&status.demand, now);
        next = next.min(self.write(&object, &seen, status, now).await);
        next.min(self.next_alive(&object.spec, now))
    }

    /// Closes the store while this machine's Node is gone, and opens it when it is there again: `uid` is its object's.
    fn node_is_gone(&mut self, gone: bool, uid: Option<&str>) {
        let node = self.cluster.node();
        let why = format!(
            "Node {node} {NODE_GONE}: restart the kubelet of this machine to register the Node again; running pods keep their addresses"
        );
        let before = std::mem::replace(&mut self.gone, gone.then(|| why.clone()));
        // Before the log and the Event: who reads them finds the store closed.
        self.store.close(self.gone.clone());
        match (before, gone) {
            (None, true) => {
                Line::warn("addresses").with("what", "no address is assigned").with("why", &why).end();
                let Some(uid) = uid.map(str::to_owned) else { return };
                let cluster = self.cluster.clone();
                // Nothing waits for it, least of all the word that this agent lives.
                drop(tokio::spawn(async move {
                    if let Err(e) = cluster.warn_of_node_ip_pool(&uid, "NodeGone", &why).await {
                        Line::warn("event").with("reason", "NodeGone").with("error", e).end();
                    }
                }));
            }
            (Some(_), false) => Line::info("addresses").with("node", node).with("now", "addresses are assigned again").end(),
            _ => {}
        }
    }

    /// Without an object the Node itself is looked for: who has granted something may have it back by now. Where nobody answers, all stays
    /// as it is.
    async fn look_for_node(&mut self) {
        let closed = self.store.closed();
        // It may be closed for another reason, which holds.
        if closed.is_some() && closed != self.gone {
            return;
        }
        let is_granted = |pool: &str| self.store.look(|all| all.origin(pool) == Some(Origin::Cluster));
        if self.applied.is_none() && !self.store.cluster_pools().iter().any(|pool| is_granted(pool)) {
            return;
        }
        match self.cluster.fetch_own_node().await {
            Ok(node) => self.node_is_gone(node.is_none(), None),
            Err(e) => self.tell("node", e.to_string()),
        }
    }

    /// When this agent says that it lives: now, where it is time, while its Node is gone and anything is in use here.
    fn alive_at(&self, spec: &NodeIpPoolSpec, seen: &NodeIpPoolStatus, now: Instant) -> String {
        let Some(every) = alive_every(spec) else { return String::new() };
        let is_due = self.alive.is_none_or(|at| now.duration_since(at) >= every);
        let is_used = || self.store.is_recovering() || self.store.look(ipam::node_in_use);
        if is_due && is_used() { stamp(SystemTime::now()) } else { seen.alive_at.clone() }
    }

    /// How long until it is to be said again.
    fn next_alive(&self, spec: &NodeIpPoolSpec, now: Instant) -> Duration {
        let Some(every) = alive_every(spec) else { return IDLE };
        let left = self.alive.map_or(Duration::ZERO, |at| (at + every).saturating_duration_since(now));
        if left.is_zero() { every } else { left }
    }

    /// Says that it lives, and nothing else, where what was granted could not be taken in.
    async fn say_alive(&mut self, object: &Arc<NodeIpPool>, seen: &NodeIpPoolStatus, now: Instant) -> Duration {
        let status = NodeIpPoolStatus { alive_at: self.alive_at(&object.spec, seen, now), ..seen.clone() };
        self.write(object, seen, status, now).await.min(self.next_alive(&object.spec, now))
    }

    /// Whether pools may come that are not here yet; of a CiliumNode one always may, and to who has stopped none comes.
    async fn expect(&mut self, nothing: bool) {
        self.store.expect(!self.contest.has_stopped() && (self.ipam == Ipam::Crd || !nothing));
        if self.ipam == Ipam::Crd && nothing && !self.nothing {
            let store = Arc::clone(&self.store);
            // A store that was lost waits no more for what an operator grants.
            let taken = move || store.take_in(Origin::Cluster, |_| Ok::<(), PoolStoreError>(()));
            drop(tokio::task::spawn_blocking(taken).await);
        }
        self.nothing = nothing;
    }

    /// Which pods the pools are for, and which of them are listened for, before anything of them is taken in.
    fn note_terms(&mut self, object: Option<&Arc<NodeIpPool>>) {
        if object.is_some_and(|object| self.noted.as_ref().is_some_and(|noted| Arc::ptr_eq(object, noted))) {
            return;
        }
        self.noted = object.cloned();
        let is_other = match object {
            Some(object) => {
                let own = own_part(self.ipam, Arc::clone(object));
                self.ears.see(&own.spec);
                self.selectors.see(&own.spec, &self.cluster)
            }
            // A node that is new hears of its pools and of whom they are for at once; until then nobody knows which one is meant.
            None => self.nothing && self.selectors.see_none(),
        };
        if is_other {
            self.store.look_again();
        }
    }

    /// Whether an object is of the Node that this machine is: asked once for each UID. One that was made anew under its name may be
    /// another machine. Who cannot be asked, or has not told, is believed.
    async fn is_own(&mut self, spec: &NodeIpPoolSpec) -> bool {
        if self.own.as_ref() == Some(&spec.node_uid) {
            return true;
        }
        match self.cluster.fetch_own_node().await {
            Ok(Some(node)) if node.uid != spec.node_uid => {
                self.tell(
                    "wait",
                    format!("the addresses were granted to the Node with UID {}, but this Node's UID is {}", spec.node_uid, node.uid),
                );
                return false;
            }
            Ok(Some(node)) if !node.boot_id.is_empty() && node.boot_id != self.identity.boot_id => {
                let (uid, boot) = (&spec.node_uid, &node.boot_id);
                self.tell("wait", format!("the Node with UID {uid} is another machine, with boot ID {boot}: rename one of the two"));
                return false;
            }
            // It is gone, or this agent may not read it.
            Ok(_) => {}
            Err(e) if e.code() == Some(403) => self.tell("node", e.to_string()),
            Err(e) => {
                self.tell("node", e.to_string());
                return false;
            }
        }
        self.own = Some(spec.node_uid.clone());
        true
    }

    /// The status that is there, also where the watch has not brought yet what was written.
    fn status_seen(&self, object: &NodeIpPool) -> NodeIpPoolStatus {
        match &self.written {
            Some((over, status)) if *over == object.resource_version => status.clone(),
            _ => object.status.clone(),
        }
    }

    /// Once for each thing that is to be said.
    fn tell(&mut self, what: &'static str, text: String) {
        if self.told.len() < 256 && self.told.insert(text.clone()) {
            Line::warn("addresses").with("what", what).with("why", text).end();
        }
    }

    /// What was granted, into the store. How long until the next look; or, where it could not be taken in, until it is tried again.
    async fn take_in(&mut self, object: &Arc<NodeIpPool>, now: Instant) -> Result<Duration, Duration> {
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
    async fn freeze_again(&mut self) -> Duration {
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
    async fn return_recalled(&mut self, spec: &NodeIpPoolSpec) -> Duration {
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
    async fn shrink(&mut self, spec: &NodeIpPoolSpec, now: Instant) -> Duration {
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

    /// Counts how long it took until what is needed was there.
    fn time_refill(&mut self, demand: &[Demand], now: Instant) {
        match (self.store.look(|all| ipam::lacks(all, demand)), self.lacking) {
            (true, None) => self.lacking = Some(now),
            (false, Some(since)) => {
                self.store.meters().refilled.add(now.duration_since(since));
                self.lacking = None;
            }
            _ => {}
        }
    }

    fn status(&self, object: &NodeIpPool, seen: &NodeIpPoolStatus, now: Instant) -> NodeIpPoolStatus {
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
    async fn write(&mut self, object: &Arc<NodeIpPool>, seen: &NodeIpPoolStatus, status: NodeIpPoolStatus, now: Instant) -> Duration {
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

/// How long it is until so many seconds have passed. So many that no time could be given to their end never pass.
fn left(since: Instant, seconds: u64, now: Instant) -> Duration {
    since.checked_add(Duration::from_secs(seconds)).map_or(Duration::MAX, |end| end.saturating_duration_since(now))
}

/// How often an agent says that it lives; `None`: its Node is there.
fn alive_every(spec: &NodeIpPoolSpec) -> Option<Duration> {
    let (least, most) = ALIVE;
    spec.reclaim_after_seconds.map(|seconds| (Duration::from_secs(seconds) / 4).clamp(least, most))
}

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

fn shown(agent: &AgentIdentity) -> String {
    let all = [("instance", &agent.instance), ("store", &agent.store_id), ("machine", &agent.machine_id), ("boot", &agent.boot_id)];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| format!("{key} {value}"));
    known.collect::<Vec<_>>().join(", ")
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
