//! The operator's life: follow, decide, write, again.
//!
//! ```text
//!   work --something has changed--> settle --decide--> due, round --> write: carried out, taken in --> decide ... until nothing is due
//!                                     +--> audit: what cannot be          +--> tell: Events
//! ```

mod audit;
mod tell;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::{ConnectError, Connection};
use kube::Client;
use ledger::{Step, Violation, Write, step};
use pool::Family;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::audit::Suspected;
use crate::apply_write::let_go;
use crate::confirm::confirm;
use crate::definitions::Definitions;
use crate::gone::{Missing, MissingClaims};
use crate::lease::Leadership;
use crate::log::Line;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::store::{CLAIM_KINDS, KINDS, Kind, Store};
use crate::stored::Stored;
use crate::{Options, follow, health, log, ports, tombstones};

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);
/// So many writes are on their way at once.
const TOGETHER: usize = 16;
/// Writes are carried out for no longer until the next decision: what is more urgent by then comes first.
const ROUND: Duration = Duration::from_millis(250);
/// A pool's status is not written more often.
const STATUS: Duration = Duration::from_secs(1);
/// After so many rounds of writes an audit comes in between.
const ROUNDS: usize = 64;
/// So many rounds in which nothing came of any write are enough.
const FRUITLESS: usize = 8;
/// The shortest and the longest pause after a write that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Why there is no operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No connection could be prepared.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Something of the process's own cannot be had.
    #[error("cannot {step}: {reason}")]
    Own {
        /// What.
        step: &'static str,
        /// Why.
        reason: String,
    },
}

/// An operator at work. It ends when this is dropped, at whichever write it is.
pub struct Running {
    tasks: JoinSet<()>,
    metrics: Arc<Metrics>,
}

/// What one operator works with.
struct Operator {
    client: Client,
    options: Options,
    seen: Arc<Store>,
    metrics: Arc<Metrics>,
    lead: Arc<Leadership>,
    missing: Missing,
    missing_claims: MissingClaims,
    /// What the server would not take. Its writes are answered several at once.
    refused: Mutex<Refused>,
    /// Whether it keeps all that is written.
    stored: Stored,
    status_written: BTreeMap<String, Instant>,
    /// Since when CiliumNodes have too many addresses of a family.
    excess: BTreeMap<(String, Family), Instant>,
    paused: Option<Duration>,
    next_write: Instant,
    /// When what outlives a ledger is to be told again, where that has failed.
    mark_again: Option<Instant>,
    audited: Option<Instant>,
    /// How long the last decision took.
    took: Duration,
    suspected: Suspected,
    /// What the last step found.
    noticed: Vec<Violation>,
}

/// Works until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`] if it cannot start.
pub fn run(options: Options) -> Result<(), RunError> {
    let own = |step: &'static str| move |e: std::io::Error| RunError::Own { step, reason: e.to_string() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(own("start the asynchronous runtime"))?;
    log::set(options.log_level, log::Format::Text);
    runtime.block_on(async move {
        let mut terminate = signal(SignalKind::terminate()).map_err(own("wait for SIGTERM"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(own("wait for SIGINT"))?;
        let connection = cluster::client(options.kubeconfig.as_deref()).await?;
        let (version, server) = (env!("CARGO_PKG_VERSION"), connection.server().to_owned());
        Line::info("start").with("version", version).with("identity", &options.identity).with("server", server).end();
        let metrics = Arc::new(Metrics::default());
        let lead = Arc::new(Leadership::new(!options.lease, Arc::clone(&metrics)));
        let (client, namespace, identity) = (connection.client(), options.namespace.clone(), options.identity.clone());
        let leased = options.lease;
        let mut running = begin(connection, options, metrics, Arc::clone(&lead));
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            // Whoever starts it again starts all of it.
            ended = running.tasks.join_next() => {
                let reason = ended.and_then(Result::err).map_or_else(|| "it has ended".to_owned(), |e| e.to_string());
                return Err(RunError::Own { step: "go on without a part of the operator", reason });
            }
        }
        Line::info("stop").end();
        drop(running);
        if leased {
            lead.release(client, &namespace, &identity).await;
        }
        Ok(())
    })
}

/// Starts an operator inside a tokio runtime.
#[must_use]
pub fn start(connection: impl Into<Connection>, options: Options) -> Running {
    log::set(options.log_level, log::Format::Text);
    let metrics = Arc::new(Metrics::default());
    let lead = Arc::new(Leadership::new(!options.lease, Arc::clone(&metrics)));
    begin(connection.into(), options, metrics, lead)
}

fn begin(connection: Connection, options: Options, metrics: Arc<Metrics>, lead: Arc<Leadership>) -> Running {
    let (client, seen) = (connection.client(), Arc::new(Store::default()));
    let mut tasks = JoinSet::new();
    let cilium = options.cilium_nodes.is_some().then_some(Kind::CiliumNode);
    seen.lock().world.cilium.pool = options.cilium_nodes.clone().unwrap_or_default();
    for kind in KINDS.into_iter().chain(CLAIM_KINDS).chain(cilium) {
        tasks.spawn(follow::follow(client.clone(), kind, Arc::clone(&seen), Arc::clone(&metrics)));
    }
    let (of_definitions, leading) = (Arc::clone(&seen), Arc::clone(&lead));
    let definitions = Definitions { client: client.clone(), seen: of_definitions, lead: leading, metrics: Arc::clone(&metrics) };
    tasks.spawn(definitions.keep());
    if let Some(address) = options.health_address {
        tasks.spawn(health::serve(address, Arc::clone(&seen), Arc::clone(&metrics)));
    }
    if options.lease {
        let (lead, client) = (Arc::clone(&lead), client.clone());
        let (namespace, identity) = (options.namespace.clone(), options.identity.clone());
        tasks.spawn(async move { lead.hold(client, &namespace, &identity).await });
    }
    if let Some(openstack) = options.openstack.clone() {
        metrics.add(ports::begin(&mut tasks, &client, openstack, &lead, &options.identity));
    }
    let operator = Operator {
        client,
        options,
        seen,
        metrics: Arc::clone(&metrics),
        lead,
        missing: Missing::default(),
        missing_claims: MissingClaims::default(),
        refused: Mutex::default(),
        stored: Stored::default(),
        status_written: BTreeMap::new(),
        excess: BTreeMap::new(),
        paused: None,
        next_write: Instant::now(),
        mark_again: None,
        audited: None,
        took: Duration::ZERO,
        suspected: Suspected::default(),
        noticed: Vec::new(),
    };
    tasks.spawn(operator.work());
    Running { tasks, metrics }
}

// === impl Running ===

impl Running {
    /// What `/metrics` shows.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// Whether nothing of it has ended.
    #[must_use]
    pub fn alive(&self) -> bool {
        !self.tasks.is_empty()
    }
}

// === impl Operator ===

impl Operator {
    async fn work(mut self) {
        loop {
            let wake = self.next_look();
            tokio::select! {
                // In a large cluster a decision takes longer, and no more than a third of the time.
                () = self.seen.changed() => sleep(GATHER.max(self.took * 2)).await,
                () = self.lead.changed() => {}
                () = sleep_until(wake) => {}
            }
            if !self.lead.leads() || !self.seen.unlisted().is_empty() {
                self.refused().forget();
                continue;
            }
            self.settle().await;
        }
    }

    /// When something is to be done without a change: a node's grace is over, a status was too early, an audit is due.
    fn next_look(&self) -> Instant {
        let now = Instant::now();
        let audit = self.next_audit().unwrap_or(now + GATHER);
        let status = self.status_written.values().map(|at| *at + STATUS).min();
        // The pause itself is over by now.
        let pause = self.paused.map(|_| now);
        let (settled, missing, claims) = (self.next_settled(), self.missing.next(self.options.grace), self.missing_claims.next());
        let all = [Some(audit), status, pause, settled, missing, claims, self.refused().next(), self.mark_again];
        all.into_iter().flatten().min().unwrap_or(audit).max(now + GATHER)
    }

    /// When the next CiliumNode has had too many addresses for long.
    fn next_settled(&self) -> Option<Instant> {
        let inner = self.seen.lock();
        let open = self.excess.iter().filter(|(of, _)| !inner.world.cilium.settled.contains(of));
        open.filter_map(|(_, since)| since.checked_add(self.options.release_delay)).min()
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides and writes until nothing is to be written, or something fails; and audits, whether or not there is an end to it.
    async fn settle(&mut self) {
        self.tell_of_two().await;
        if !self.write_all().await {
            return;
        }
        let idle = self.seen.lock().idle();
        // One that is marked would be missed.
        if idle.is_empty() || tombstones::write(&self.client, &self.options.namespace, &self.seen).await {
            for (name, version) in idle {
                let_go(&self.client, &name, &version).await;
            }
        }
        if self.next_audit().is_none_or(|at| at <= Instant::now()) {
            self.audit().await;
        }
    }

    /// Whether the server is there, and it is still this one's turn.
    async fn write_all(&mut self) -> bool {
        let mut fruitless = 0;
        for _ in 0..ROUNDS {
            if self.mark_again.is_none_or(|at| at <= Instant::now()) {
                let marked = tombstones::write(&self.client, &self.options.namespace, &self.seen).await;
                let pause = if self.seen.lock().marks.are_refused() { PAUSES.1 } else { PAUSES.0 };
                self.mark_again = (!marked).then(|| Instant::now() + pause);
            }
            let begun = Instant::now();
            let decided = self.decide();
            self.took = begun.elapsed();
            self.metrics.step(&decided);
            self.suspect(&decided.violations);
            let mut gone = self.missing.look(&self.client, &self.seen, &decided.missing, self.options.grace).await;
            let gone_claims = self.missing_claims.look(&self.client, &self.seen, &decided.missing_claims).await;
            let known = {
                let mut inner = self.seen.lock();
                let same_claims = std::mem::replace(&mut inner.world.claims.gone, gone_claims.clone()) == gone_claims;
                inner.end_by_hand(&mut gone);
                // Where it has failed it is tried again after a while, and not at once.
                let to_mark = inner.mark(&decided, &gone) && self.mark_again.is_none();
                inner.withhold(&decided, &mut gone);
                std::mem::replace(&mut inner.world.gone, gone.clone()) == gone && same_claims && !to_mark
            };
            let writes = self.due(decided.writes);
            if writes.is_empty() && known {
                self.paused = None;
                return true;
            }
            if writes.iter().any(|write| matches!(write, Write::Shard { .. })) && !self.stored.all(&self.client).await {
                self.pause(true).await;
                return false;
            }
            let writes = self.round(writes);
            // What was read for some of them may be another thing than what they follow from: they are decided anew.
            let (writes, read) = confirm(&self.client, &self.options.namespace, &self.seen, writes).await;
            let came = self.carry_out(writes).await;
            if !(came.all_answered && read) {
                // A server that answers now and then is there.
                self.pause(!came.some_answered).await;
                return came.some_answered;
            }
            if !self.lead.leads() {
                return false;
            }
            fruitless = if came.fruitless { fruitless + 1 } else { 0 };
            if fruitless >= FRUITLESS {
                // Whatever it is: deciding the same once more does not help.
                self.pause(true).await;
                return true;
            }
        }
        // There is more to be done, and soon.
        self.paused = Some(PAUSES.0);
        true
    }

    /// Waits, longer from one time to the next.
    async fn pause(&mut self, longer: bool) {
        let pause = self.paused.filter(|_| longer).map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
        self.paused = Some(pause);
        sleep(pause).await;
    }

    fn decide(&mut self) -> Step {
        let mut inner = self.seen.lock();
        let settled = self.excess.iter().filter(|(_, since)| since.elapsed() >= self.options.release_delay);
        inner.world.cilium.settled = settled.map(|(of, _)| of.clone()).collect();
        // Seconds since 1970: larger than any epoch of a ledger that was lost, unless blocks change hands every second.
        inner.world.first_epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        inner.world.grace = self.stored.keeps_grace().then(|| self.options.grace.as_secs().max(1));
        inner.world.by_hand = inner.pools.values().flat_map(|pool| pool.reclaim.iter().chain(&pool.silent).cloned()).collect();
        let decided = step(&inner.world);
        drop(inner);
        self.excess.retain(|of, _| decided.excess.contains(of));
        for of in &decided.excess {
            self.excess.entry(of.clone()).or_insert_with(Instant::now);
        }
        decided
    }

    /// Without the statuses that were written a moment ago, and without what was refused a moment ago.
    fn due(&mut self, writes: Vec<Write>) -> Vec<Write> {
        self.status_written.retain(|_, at| at.elapsed() < STATUS);
        let early = |write: &Write| matches!(write, Write::PoolStatus { pool, .. } if self.status_written.contains_key(pool));
        let writes = writes.into_iter().filter(|write| !early(write)).collect();
        self.refused().due(writes)
    }

    /// The first of them, as many as may be carried out until the next decision, which takes no more than a third of the time.
    fn round(&self, mut writes: Vec<Write>) -> Vec<Write> {
        let millis = ROUND.max(self.took * 2).as_millis();
        let most = u128::from(self.options.writes_per_second) * millis / 1000;
        writes.truncate(usize::try_from(most).unwrap_or(usize::MAX).max(TOGETHER));
        writes
    }
}
