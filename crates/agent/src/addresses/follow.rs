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
use std::time::{Duration, Instant};

use api::{AgentIdentity, Demand, NodeIpPoolSpec, NodeIpPoolStatus, Returning};
use cluster::{Cluster, NodeIpPool, OwnObject};
use ipam::{PoolStore, PoolStoreError, Stocks, StoreLocation};
use pool::{Family, Origin};
use tokio::sync::Notify;

use super::Addresses;
use super::beside::own_part;
use super::choice::Selectors;
use super::identity_conflict::{ConflictDecision, Contest};
use super::listen::ArpNdListener;
use super::pace::Pace;
use crate::Agent;
use crate::log::Line;
use crate::settings::Ipam;

mod granted;
mod node_gone;
mod status;

use granted::Tried;
pub(crate) use node_gone::NODE_GONE;

/// Until the first answer of the API server is there.
const FIRST: Duration = Duration::from_millis(50);
/// How long nothing need be looked at.
const IDLE: Duration = Duration::from_secs(60);
/// After the store could not be written.
const AGAIN: Duration = Duration::from_secs(1);
/// After an object that is another machine's.
const OTHERS: Duration = Duration::from_secs(5);

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

    /// Once for each thing that is to be said.
    fn tell(&mut self, what: &'static str, text: String) {
        if self.told.len() < 256 && self.told.insert(text.clone()) {
            Line::warn("addresses").with("what", what).with("why", text).end();
        }
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
}

fn shown(agent: &AgentIdentity) -> String {
    let all = [("instance", &agent.instance), ("store", &agent.store_id), ("machine", &agent.machine_id), ("boot", &agent.boot_id)];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| format!("{key} {value}"));
    known.collect::<Vec<_>>().join(", ")
}
