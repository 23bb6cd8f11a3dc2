//! `ipam: crd`: what this node may hand out stands in its `CiliumNode`, which somebody else fills.
//!
//! ```text
//!   watch --> object --> ipam::cilium --> PoolStore, pool "default"     at once; no ADD asks the API server for anything
//!                                         router's address --> bridge    looked after, who probes is answered
//!   PoolStore --> status: used, release-ips      at most once per `ciliumNodeUpdateRate`, whole, by compare-and-swap
//! ```
//!
//! An object that is gone, or an API server that is away, changes nothing: the journal has what was there before. The status says
//! what the journal has, so it never says less than that pods have.

mod addresses;
mod hello;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{CiliumNode, FILLED_BY};
use cluster::{ApiError, Cluster, OwnObject};
use ipam::PoolStore;
use ipam::cilium::{HEALTH, Local, Offer, POOL, Skipped, own_ask, own_key};
use pool::{Allocator, Family, Origin};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Agent;
use crate::lock;
use crate::log::Line;
use crate::settings::Crd;
use hello::Hello;

/// After a failure, and between two lines that say what is waited for.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two writes that pods wait for.
const URGENT: Duration = Duration::from_millis(50);
/// So often a write is tried whose object has changed meanwhile, before the watch is waited for.
const TRIES: u32 = 3;

/// What this node waits for before it can hand out addresses; nothing in other modes.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotReadyReason(Arc<Mutex<Option<String>>>);

/// The mode, while it runs.
struct Mode {
    crd: Crd,
    cluster: Cluster,
    store: Arc<PoolStore>,
    /// Told when the store has changed.
    changed: Arc<Notify>,
    waits: NotReadyReason,
    /// How often it is seen to that the node's own addresses are there.
    every: Duration,
    /// Who answers probes.
    hello: Hello,
}

/// What came of a look at the object.
struct Followed {
    /// What is missing before anything is handed out.
    missing: Option<Missing>,
    skipped: Vec<Skipped>,
    /// Keys that the store does not take in.
    refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Missing {
    required: u128,
    available: u128,
}

/// What has been told, so that it is told once; what is waited for is told again and again, as Cilium does: who looks at the end of the log sees it.
#[derive(Default)]
struct ReportedState {
    skipped: BTreeSet<Skipped>,
    refused: BTreeSet<String>,
    missing: Option<Missing>,
    /// When it was told last what is waited for.
    waits: Option<Instant>,
    ready: bool,
}

/// Follows this node's object for as long as the agent lives. `changed`: told when the store has.
pub(crate) fn follow(agent: &Agent, changed: Arc<Notify>) {
    let Some(addresses) = &agent.addresses else { return };
    // What comes yet is waited for.
    addresses.store.expect(true);
    if addresses.store.look(|all| ipam::cilium::routers(all).is_empty()) {
        agent.waits.set(Some(format!("waiting for the CiliumNode of {}", agent.cluster.node())));
    }
    let mode = Mode {
        crd: agent.settings.crd.clone(),
        cluster: agent.cluster.clone(),
        store: Arc::clone(&addresses.store),
        changed,
        waits: agent.waits.clone(),
        every: agent.settings.reconcile,
        hello: Hello::default(),
    };
    agent.runtime.spawn(mode.run());
}

// === impl NotReadyReason ===

impl NotReadyReason {
    /// Why nothing is handed out yet, if so.
    pub(crate) fn why(&self) -> Option<String> {
        lock(&self.0).clone()
    }

    fn set(&self, why: Option<String>) {
        *lock(&self.0) = why;
    }
}

// === impl Mode ===

impl Mode {
    async fn run(mut self) {
        let begun = !self.store.look(|all| ipam::cilium::routers(all).is_empty());
        let mut place_at = self.define(begun).await;
        let mut nodes = self.cluster.follow_cilium_node();
        let node = self.cluster.node().to_owned();
        Line::info("ipam").with("what", "Subscribed to CiliumNode custom resource").with("name", &node).end();
        let mut told = ReportedState::default();
        // The object as it was seen last: it holds when it is gone.
        let mut last: Option<Arc<CiliumNode>> = None;
        let (mut follow_at, mut write_at) = (None, Instant::now());
        let mut urgent_at = write_at;
        loop {
            let seen = nodes.now().filter(|seen| last.as_ref() != Some(seen));
            if let Some(object) = seen.or_else(|| last.clone().filter(|_| follow_at.is_some_and(|at| at <= Instant::now()))) {
                if last.is_none() {
                    Line::info("ipam").with("what", "Successfully synchronized CiliumNode custom resource").with("name", &node).end();
                }
                follow_at = if self.follow(&object, &mut told).await { None } else { Some(Instant::now() + AGAIN) };
                last = Some(object);
            }
            if last.is_none() && told.is_to_say_again() {
                Line::info("ipam").with("what", "Waiting for CiliumNode custom resource to become available...").with("name", &node).end();
                Line::info("ipam").with("what", waiting_for_initial(&node)).end();
            }
            let due = self.due(last.as_deref(), write_at, urgent_at);
            if let Some(object) = last.as_ref().filter(|_| due <= Instant::now()) {
                urgent_at = Instant::now() + URGENT;
                match self.tell(Arc::clone(object), &mut told).await {
                    Ok(None) => {}
                    Ok(Some(now)) => {
                        last = Some(now);
                        write_at = Instant::now() + self.crd.update_rate;
                    }
                    Err(e) => {
                        Line::warn("ipam")
                            .with("what", "Unable to update CiliumNode custom resource")
                            .with("name", &node)
                            .with("error", e)
                            .end();
                        write_at = Instant::now() + self.crd.update_rate.max(AGAIN / 5);
                        // Pods that wait do not wait for the setting's rate.
                        urgent_at = Instant::now() + AGAIN / 5;
                    }
                }
            }
            let due = self.due(last.as_deref(), write_at, urgent_at);
            if (begun || told.ready) && follow_at.is_none() && place_at <= Instant::now() {
                // Somebody may have taken them away, with the bridge say.
                let placed = self.place(true).await;
                place_at = Instant::now() + if placed { self.every } else { AGAIN };
            }
            let say_at = told.waits.filter(|_| last.is_none()).map(|at| at + AGAIN);
            self.wait(&mut nodes, [follow_at, say_at, ((begun || told.ready) && follow_at.is_none()).then_some(place_at)], due).await;
        }
    }

    /// When the status may be written: at the setting's rate, or sooner where pods wait for that.
    fn due(&self, object: Option<&CiliumNode>, regular: Instant, urgent: Instant) -> Instant {
        if object.is_some_and(|object| self.is_waited_for(object)) { regular.min(urgent) } else { regular }
    }

    /// Whether pods wait for what our operator adds as soon as it is told: any other one is told no more often than the setting says.
    fn is_waited_for(&self, object: &CiliumNode) -> bool {
        object.spec.ipam.filled_by == FILLED_BY && self.store.look(waiting) > 0
    }

    /// Until there may be something to do.
    async fn wait(&self, nodes: &mut OwnObject<CiliumNode>, looks: [Option<Instant>; 3], write_at: Instant) {
        let now = Instant::now();
        let due = looks.into_iter().flatten().chain(Some(write_at).filter(|at| *at > now)).min();
        tokio::select! {
            () = nodes.changed() => {}
            () = self.changed.notified() => {}
            () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => {}
        }
    }

    /// Sees to it that the kind is there. What a node that has `begun` has itself by its journal is there meanwhile, whether the API
    /// server is or not. When that is to be looked at next.
    async fn define(&mut self, begun: bool) -> Instant {
        let cluster = self.cluster.clone();
        let mut defining = std::pin::pin!(define(&cluster));
        let mut again = false;
        loop {
            again |= begun && self.place(again).await;
            let place_at = Instant::now() + if again { self.every } else { AGAIN };
            tokio::select! {
                () = &mut defining => return place_at,
                () = tokio::time::sleep_until(place_at) => {}
            }
        }
    }

    /// Makes the store, and the bridge, as the object says. Whether all that is done: what is not is to be tried again.
    async fn follow(&mut self, object: &Arc<CiliumNode>, told: &mut ReportedState) -> bool {
        let (store, crd, seen) = (Arc::clone(&self.store), self.crd.clone(), Arc::clone(object));
        let followed = match tokio::task::spawn_blocking(move || followed(&store, &crd, &seen)).await {
            Ok(Ok(followed)) => followed,
            Ok(Err(e)) => {
                if told.refused.insert(e.to_string()) {
                    Line::error("ipam").with("what", "the CiliumNode's contents cannot be stored").with("error", e).end();
                }
                return false;
            }
            Err(_) => return false,
        };
        self.say(&followed, told);
        if followed.missing.is_some() {
            return false;
        }
        // Whatever is in the way of what was refused goes without a word.
        self.place(false).await && followed.refused.is_empty()
    }

    /// Puts the node's own addresses where packets find them. Whether they are there; `again`: they were before.
    async fn place(&mut self, again: bool) -> bool {
        let (store, crd) = (Arc::clone(&self.store), self.crd.clone());
        let placed = match tokio::task::spawn_blocking(move || addresses::place(&store, &crd)).await {
            Ok(Ok(placed)) => placed,
            Ok(Err(e)) => {
                Line::error("ipam").with("what", "the node's own addresses are missing").with("error", e).end();
                return false;
            }
            Err(_) => return false,
        };
        if again && placed.added > 0 {
            let what = "missing addresses of the node were restored";
            Line::warn("ipam").with("what", what).with("addresses", placed.added).end();
        }
        self.hello.serve(placed.probed);
        true
    }

    fn say(&self, followed: &Followed, told: &mut ReportedState) {
        for skipped in followed.skipped.iter().filter(|skipped| !told.skipped.contains(skipped)) {
            let line = Line::warn("ipam").with("what", "Unable to parse IP in CiliumNode custom resource");
            line.with("key", &skipped.key).with("why", &skipped.reason).end();
        }
        told.skipped = followed.skipped.iter().cloned().collect();
        for refused in followed.refused.iter().filter(|refused| !told.refused.contains(*refused)) {
            Line::warn("ipam").with("what", "addresses of the CiliumNode are not used").with("why", refused).end();
        }
        told.refused = followed.refused.iter().cloned().collect();
        let node = self.cluster.node();
        match &followed.missing {
            Some(missing) if told.missing.as_ref() != Some(missing) || told.is_to_say_again() => {
                told.waits = Some(Instant::now());
                let Missing { required, available } = missing;
                Line::info("ipam").with("what", waiting_for_initial(node)).end();
                Line::info("ipam")
                    .with("what", "Waiting for IPs to become available in CRD-backed allocation pool")
                    .with("name", node)
                    .with("required", required)
                    .with("available", available)
                    .with(
                        "helpMessage",
                        "Check if the operator that fills spec.ipam.pool is running and does not have any warnings or error messages.",
                    )
                    .end();
                self.waits.set(Some(format!(
                    "waiting for addresses in the CiliumNode of {node}: {available} of {required} are in spec.ipam.pool"
                )));
            }
            Some(_) => {}
            None => {
                if !told.ready {
                    Line::info("ipam")
                        .with("what", "All required IPs are available in CRD-backed allocation pool")
                        .with("name", node)
                        .end();
                }
                told.ready = true;
                self.waits.set(None);
            }
        }
        told.missing.clone_from(&followed.missing);
    }

    /// Writes what is to be said, if anything is: the object as it is then.
    async fn tell(&mut self, mut object: Arc<CiliumNode>, told: &mut ReportedState) -> Result<Option<Arc<CiliumNode>>, String> {
        for _ in 0..TRIES {
            let (store, before, ready) = (Arc::clone(&self.store), Arc::clone(&object), told.ready);
            let next = move || if ready { next_status(&store, &before) } else { Ok(first_status(&store, &before)) };
            let next = tokio::task::spawn_blocking(next).await.map_err(|e| e.to_string())??;
            let Some(next) = next else { return Ok(None) };
            match self.cluster.write_cilium_status(&next).await {
                Ok(now) => return Ok(Some(Arc::new(now))),
                // The watch will tell: what was there last holds.
                Err(e) if e.code() == Some(404) => return Err(e.to_string()),
                Err(e) if e.code() != Some(409) => return Err(e.to_string()),
                Err(_) => {}
            }
            let Some(fresh) = self.cluster.fetch_cilium_node().await.map_err(|e| e.to_string())? else {
                return Err("it was deleted; its last contents stay in use".to_owned());
            };
            object = Arc::new(fresh);
            self.follow(&object, told).await;
        }
        Err(format!("it was changed by others {TRIES} times during the update"))
    }
}

// === impl ReportedState ===

impl ReportedState {
    /// Whether it is time to say again what is waited for. It is said then.
    fn is_to_say_again(&mut self) -> bool {
        let now = Instant::now();
        let due = self.waits.is_none_or(|at| now >= at + AGAIN);
        if due {
            self.waits = Some(now);
        }
        due
    }
}

/// What Cilium documents for a node that has no address yet.
fn waiting_for_initial(node: &str) -> String {
    format!("Waiting for initial IP to become available in '{node}' custom resource")
}

/// How many pods wait for an address of the CiliumNode's.
fn waiting(all: &Allocator) -> u64 {
    let of = |family| Some(all.usage(POOL, family)).filter(|usage| usage.is_short()).map_or(0, |usage| usage.waiting);
    Family::ALL.into_iter().map(of).max().unwrap_or_default()
}

/// Makes the API server serve the kind; what is not permitted may have been done by somebody else.
async fn define(cluster: &Cluster) {
    let mut said = String::new();
    loop {
        match cluster.define_cilium_nodes().await {
            Ok(made) => {
                if made {
                    Line::info("ipam").with("what", "registered ciliumnodes.cilium.io").end();
                }
                return;
            }
            Err(e @ ApiError::Forbidden { .. }) => {
                Line::warn("ipam").with("what", "cannot check whether ciliumnodes.cilium.io is registered").with("error", e).end();
                return;
            }
            Err(e) => {
                let now = e.to_string();
                if now != said {
                    Line::warn("ipam").with("what", "cannot register ciliumnodes.cilium.io yet").with("error", &now).end();
                    said = now;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The store as the object says, and what is to be said of it.
fn followed(store: &PoolStore, crd: &Crd, object: &CiliumNode) -> Result<Followed, ipam::PoolStoreError> {
    let spec = &object.spec.ipam;
    let offer = spec.pool.as_ref().map(Offer::read).unwrap_or_default();
    let release = &object.status.ipam.release_ips;
    // A node that has begun goes on, whatever is taken from it.
    if store.look(|all| ipam::cilium::routers(all).is_empty()) {
        let required = ipam::cilium::required(spec, crd.health);
        let available = Family::ALL.into_iter().fold(0_u128, |sum, family| sum.saturating_add(offer.usable(family, release)));
        if available < required {
            return Ok(Followed { missing: Some(Missing { required, available }), skipped: offer.skipped, refused: Vec::new() });
        }
    }
    let local = Local { prefixes: crd.prefixes, cooldown: 0, health: crd.health };
    let granted = store.look(|all| ipam::cilium::granted(&offer, &object.status.ipam, all, &local));
    let refused = store.take_in(Origin::CiliumNode, |intake| intake.grant(&granted))?.iter().map(ToString::to_string).collect();
    if crd.health {
        for family in Family::ALL {
            let wanted = store.look(|all| ipam::cilium::router(all, family).is_some() && all.lease(&own_key(HEALTH, family)).is_none());
            // Where there is none to be had pods come first: it is tried again when the object changes.
            let _ = wanted.then(|| store.reserve(&own_ask(HEALTH, family)));
        }
    }
    Ok(Followed { missing: None, skipped: offer.skipped, refused })
}

/// The object with the word that this node has nothing, before it can have something: a ledger that was lost waits for who does not tell.
/// `None`: it is said, or may not be so.
fn first_status(store: &PoolStore, object: &CiliumNode) -> Option<CiliumNode> {
    let of_host = |all: &Allocator, pool: &str| all.spec(pool).is_some_and(|spec| spec.origin == Origin::File);
    let nothing =
        |all: &Allocator| all.leases().flat_map(|lease| &lease.addresses).all(|leased| leased.pool != POOL || of_host(all, &leased.pool));
    let told = object.status.ipam.used.is_some() || store.is_recovering() || !store.look(nothing);
    (!told).then(|| {
        let mut next = object.clone();
        next.status.ipam.used = Some(BTreeMap::new());
        next
    })
}

/// The object with the status that it should have; `None`: it has it.
fn next_status(store: &PoolStore, object: &CiliumNode) -> Result<Option<CiliumNode>, String> {
    let offer = object.spec.ipam.pool.as_ref().map(Offer::read).unwrap_or_default();
    let before = &object.status.ipam;
    let routers = store.look(ipam::cilium::routers);
    let mut failed = None;
    let freeze = |run| match store.freeze(POOL, &[run]) {
        Ok(frozen) => frozen.contains(&run),
        Err(e) => {
            failed = Some(e.to_string());
            false
        }
    };
    let release_ips = ipam::cilium::answers(&offer, &routers, &before.release_ips, freeze);
    // What may be frozen and may not be is nothing to be told.
    if let Some(e) = failed {
        return Err(e);
    }
    let known = before.used.clone().unwrap_or_default();
    let used = Some(store.look(|all| ipam::cilium::used(&offer, &known, all)));
    let waiting = if object.spec.ipam.filled_by == FILLED_BY { store.look(waiting) } else { 0 };
    if used == before.used && release_ips == before.release_ips && waiting == before.waiting {
        return Ok(None);
    }
    let mut next = object.clone();
    next.status.ipam.waiting = waiting;
    next.status.ipam.used = used;
    next.status.ipam.release_ips = release_ips;
    Ok(Some(next))
}
