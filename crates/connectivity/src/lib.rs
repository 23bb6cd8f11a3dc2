//! Verifies a cluster's networks, with the rights of who asks for it and no other.
//!
//! ```text
//!   kubeconfig --> nodes --objects--> a namespace: probes' pods on each node, Services     (stage: created, waited for, removed)
//!                                       | exec: netloom probe work, one in each pod        (worker)
//!                   site <--look--------'
//!   verify::plan(site) --checks--> probe::run --ask--> the worker where the check is from
//!                                             --observe--> exec in the nodes' agents: netloom agent observe --> Snapshot
//! ```
//!
//! Nothing listens for it on a node but the probes, which answer with their name and the address that they see. What was created goes when the
//! verification ends, is interrupted or fails; what a killed one left, the next one removes: it is all in one namespace with a label.

mod balancer;
mod collect;
mod definitions;
mod error;
mod objects;
mod observe;
mod perf;
mod site;
mod stage;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{Connection, Container};
use futures::future::{join_all, try_join_all};
use probe::{Asking, CaseResult, Change, Event, Measuring, Outcome, ProbeTask, Run, Runner, Transport};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use verify::case::Target;
use verify::{Case, Check, Expected, Observation, PORT, Place, Planned, Protocol, Site, Snapshot};

pub use collect::{Collect, Piece, collect};
pub use error::ConnectivityError;
use objects::{CONTAINER, Probe, Role};
use observe::Observer;
pub use perf::{Perf, perf};
use site::Workers;
use stage::Stage;
use worker::Worker;

/// How long Services may take until they answer; what does not by then is what the cases say.
const SETTLED: Duration = Duration::from_secs(30);
/// How long a probe that runs may take until it answers itself.
const ANSWERING: Duration = Duration::from_secs(30);
/// The same of a cloud's load balancer, which leads to a node when it has found that healthy.
const HEALTHY: Duration = Duration::from_secs(240);
/// One try of these.
const TRY: Duration = Duration::from_secs(1);
/// How much longer a Service is asked, until the backend that is meant answers.
const TURNS: u32 = 5;

/// Called with what is being done, a line at a time.
type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// How a cluster is verified.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubeconfig; none: the service account of this pod.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace that is created.
    pub namespace: String,
    /// The image of the probes; none: that of the agents.
    pub image: Option<String>,
    /// The nodes that take part; empty: the first ones.
    pub nodes: Vec<String>,
    /// How many do, where none is named.
    pub node_count: usize,
    /// What the probes' pods are attached to besides the default network, as their annotation names it.
    pub networks: Vec<String>,
    /// Whether a pod with a limit of its bandwidth takes part.
    pub bandwidth: bool,
    /// Whether pods take bytes as fast as they come, and there are no Services: for [`perf`].
    pub measure: bool,
    /// Addresses of a host outside on which `netloom probe serve --name outside/internet` runs.
    pub internet: Vec<IpAddr>,
    /// The address of the metadata service.
    pub metadata: Option<IpAddr>,
    /// The command that runs `netloom` on a client outside.
    pub public: Option<String>,
    /// What leads to Services from outside.
    pub load_balancer: Option<Balancer>,
    /// The namespace of the agents' pods.
    pub agents: String,
    /// The command that runs `netloom` on a node, where agents are no pods; `{node}` is its name.
    pub node_command: Option<String>,
    /// Whether everything is left as it is at the end.
    pub keep: bool,
    /// Whether it lasts as long as a person likes, and not as long as its questions take.
    pub is_open_ended: bool,
    /// Whether the nodes are observed at the end.
    pub record: bool,
}

/// What leads to Services from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balancer {
    /// The cluster's own controller gives each Service of type LoadBalancer an address.
    Cloud,
    /// These addresses lead to nodes, and the verification writes them into the Services, one of each family.
    Range {
        /// As the user wrote it.
        text: String,
        /// The addresses of each range.
        addresses: Vec<Vec<IpAddr>>,
    },
}

/// What comes of it on the way.
pub struct Reports<'a> {
    /// Called with what is being done, a line at a time.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// Called with each probe and each case that is done.
    pub event: &'a mut dyn FnMut(Event<'_>),
    /// Set when somebody has pressed Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}

/// What comes of paths that are watched.
pub struct Watching<'a> {
    /// Called with what is being done, a line at a time.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// Called with the number of paths, when they are.
    pub begins: &'a dyn Fn(usize),
    /// Called with each change.
    pub change: &'a mut dyn FnMut(&Change<'_>),
    /// Set when somebody has pressed Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}

/// What came of a verification.
#[derive(Debug)]
pub struct Verified {
    /// The API server's address.
    pub server: String,
    /// Each case.
    pub results: Vec<CaseResult>,
    /// What the nodes had at the end, if that was wanted.
    pub recorded: Option<Snapshot>,
}

// === impl Options ===

impl Options {
    /// The seconds after which probes end that nobody has removed.
    fn ends_after(&self) -> Option<u64> {
        (!self.keep && !self.is_open_ended).then_some(objects::ENDS_AFTER)
    }
}

/// Verifies a cluster by the cases that are wanted, and removes what it has created, also when it fails, or at Ctrl-C, SIGTERM or SIGHUP. A second
/// Ctrl-C or SIGTERM leaves at once; the next verification then removes what is left.
///
/// # Errors
/// [`ConnectivityError`]
pub fn verify(
    options: &Options,
    wanted: &dyn Fn(&Case) -> bool,
    how: Run,
    reports: &mut Reports<'_>,
) -> Result<Verified, ConnectivityError> {
    let interrupted = Arc::clone(&reports.interrupted);
    let (progress, event) = (reports.progress, &mut *reports.event);
    let (server, (results, recorded)) = on_stage(options, progress, (&interrupted, how.timeout), |asked, mut planned| {
        planned.retain(|planned| wanted(planned.case()));
        let probes = planned.iter().filter(|planned| matches!(planned, Planned::Check(_))).count();
        progress(&format!("asking {probes} questions"));
        let mut report = |next: Event<'_>| {
            if !interrupted.load(Ordering::Relaxed) {
                event(next);
            }
        };
        let results = probe::run(asked, planned, how, &mut report);
        Ok((results, options.record.then(|| asked.observe())))
    })?;
    // What is observed of a verification that was interrupted is not whole.
    if interrupted.load(Ordering::Relaxed) { Err(ConnectivityError::Interrupted) } else { Ok(Verified { server, results, recorded }) }
}

/// Watches the paths of a cluster until somebody presses Ctrl-C, and removes what it has created. `timeout`: how long an answer is waited for
/// while a path is whole.
///
/// # Errors
/// [`ConnectivityError`]
pub fn watch(
    options: &Options,
    wanted: &dyn Fn(&Case) -> bool,
    timeout: Duration,
    watching: &mut Watching<'_>,
) -> Result<(), ConnectivityError> {
    let interrupted = Arc::clone(&watching.interrupted);
    let (progress, begins, change) = (watching.progress, watching.begins, &mut *watching.change);
    let watched = on_stage(options, progress, (&interrupted, timeout), |asked, planned| {
        let checks = probe::watched(planned, wanted).map_err(ConnectivityError::Paths)?;
        begins(checks.len());
        let watched = probe::watch(asked, &checks, timeout, &|| interrupted.load(Ordering::Relaxed), change);
        watched.map_err(|lost| {
            let why = format!("{}; nothing is known of its paths any more: see why its pod has ended, and watch again", lost.why);
            ConnectivityError::Probe { place: lost.place.to_string(), why }
        })
    });
    watched.map(drop)
}

/// Does something with the probes of a cluster: they are created before, and removed after it. Returns the API server's address as well.
fn on_stage<T>(
    options: &Options,
    progress: Progress<'_>,
    (interrupted, timeout): (&Arc<AtomicBool>, Duration),
    work: impl FnOnce(&ClusterRun<'_>, Vec<Planned>) -> Result<T, ConnectivityError>,
) -> Result<(String, T), ConnectivityError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| ConnectivityError::Api { what: "start threads".to_owned(), why: e.to_string(), status: 0 })?;
    // From here on no signal ends this process before it has cleaned up.
    let signals = runtime.block_on(async { Signals::new() });
    let signals = signals.map_err(|e| ConnectivityError::Api { what: "wait for Ctrl-C".to_owned(), why: e.to_string(), status: 0 })?;
    runtime.spawn(signals.raise(Arc::clone(interrupted)));
    let found = runtime.block_on(unless(interrupted, async {
        let connection = cluster::client(options.kubeconfig.as_deref()).await?;
        let nodes = stage::nodes(&connection.client(), options).await?;
        let image = stage::image(&connection.client(), options).await?;
        Ok((connection, nodes, image))
    }));
    let (connection, nodes, image) = found?;
    let stage = Stage::new(connection.client(), options, progress, nodes, image);
    let done = staged(&runtime, &connection, &stage, options, (progress, interrupted, timeout), work);
    let is_interrupted = interrupted.load(Ordering::Relaxed);
    if done.is_err() && !is_interrupted {
        runtime.block_on(stage.look_for_loss());
    }
    if stage.is_created() {
        let ended = if is_interrupted || !options.keep {
            progress(&format!("removing namespace {}", options.namespace));
            runtime.block_on(stage.remove())
        } else {
            runtime.block_on(stage.keep())
        };
        if let Err(e) = ended {
            progress(&format!("{e}; the next run removes it, or: kubectl delete namespace {}", options.namespace));
        }
    }
    // Nobody waits for an exec that hangs.
    runtime.shutdown_background();
    if stage.is_lost() {
        return Err(ConnectivityError::NamespaceLost(options.namespace.clone()));
    }
    Ok((connection.server().to_owned(), done?))
}

/// What ends a verification: Ctrl-C, SIGTERM, and the end of the terminal (SIGHUP), unless it was started to outlive that (`nohup`).
struct Signals {
    interrupt: Signal,
    end: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, end: signal(SignalKind::terminate())?, hangup })
    }

    /// Waits for them; the second one ends the process. A hangup never does: the kernel and the shell both send one when a terminal goes.
    async fn raise(mut self, interrupted: Arc<AtomicBool>) {
        let mut is_second = false;
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let is_hangup = tokio::select! {
                _ = self.interrupt.recv() => false,
                _ = self.end.recv() => false,
                _ = hangup => true,
            };
            interrupted.store(true, Ordering::Relaxed);
            if is_second && !is_hangup {
                // As the shell says of who is ended by SIGINT.
                std::process::exit(130);
            }
            is_second |= !is_hangup;
        }
    }
}

/// Whether the one who started this process had it ignore SIGHUP, the first of the signals in the mask.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// What comes of something, unless somebody has pressed Ctrl-C before.
async fn unless<T>(interrupted: &AtomicBool, done: impl Future<Output = Result<T, ConnectivityError>>) -> Result<T, ConnectivityError> {
    tokio::select! {
        done = done => done,
        () = until(interrupted) => Err(ConnectivityError::Interrupted),
    }
}

/// Everything from the first object to the last question.
fn staged<T>(
    runtime: &tokio::runtime::Runtime,
    connection: &Connection,
    stage: &Stage<'_>,
    options: &Options,
    (progress, interrupted, timeout): (Progress<'_>, &Arc<AtomicBool>, Duration),
    work: impl FnOnce(&ClusterRun<'_>, Vec<Planned>) -> Result<T, ConnectivityError>,
) -> Result<T, ConnectivityError> {
    runtime.block_on(unless(interrupted, stage.clear()))?;
    // This is not interrupted: whether the namespace is there would not be known.
    runtime.block_on(stage.claim())?;
    let _alive = runtime.block_on(async { stage.stay_alive(interrupted) });
    let (workers, site) = runtime.block_on(unless(interrupted, prepare(connection, stage, options, progress)))?;
    let planned = verify::plan(&site);
    let observer = Observer::new(connection, options, stage.nodes.iter().map(|node| node.name.clone()).collect(), timeout);
    let asked = ClusterRun { handle: runtime.handle().clone(), workers, observer, site, interrupted: Arc::clone(interrupted) };
    work(&asked, planned)
}

/// Until somebody has pressed Ctrl-C.
async fn until(interrupted: &AtomicBool) {
    while !interrupted.load(Ordering::Relaxed) {
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn prepare(
    connection: &Connection,
    stage: &Stage<'_>,
    options: &Options,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(Workers, Site), ConnectivityError> {
    let public = options.public.as_deref().map(Worker::by_command).transpose()?;
    stage.create().await?;
    let (pods, services) = futures::future::try_join(stage.running(), stage.served()).await?;
    let started = stage.probes.iter().map(|probe| async move {
        let (namespace, pod, name) = (options.namespace.clone(), probe.name.clone(), CONTAINER.to_owned());
        Ok::<_, ConnectivityError>((stage.place(probe), Worker::in_pod(connection, &Container { namespace, pod, name }).await?))
    });
    let mut workers: Workers = try_join_all(started).await?.into_iter().collect();
    workers.extend(public.map(|worker| (site::public(), worker)));
    let mut site = site::of(stage, &workers, options, &pods, &services).await?;
    settle(stage, &workers, &site, say).await?;
    seen_from(stage, &workers, &mut site).await;
    Ok((workers, site))
}

/// Waits until each probe answers itself, and each node's Services answer, as far as they do in time.
async fn settle(stage: &Stage<'_>, workers: &Workers, site: &Site, say: &(dyn Fn(&str) + Sync)) -> Result<(), ConnectivityError> {
    let own = stage.probes.iter().map(|probe| async move {
        let place = stage.place(probe);
        let Some(worker) = workers.get(&place) else { return Ok(()) };
        let loopback = IpAddr::from([127, 0, 0, 1]);
        if answers(worker, loopback, PORT, ANSWERING).await {
            return Ok(());
        }
        let why = format!(
            "nothing answers on its port {PORT}: look for another program that listens there, and at the log of pod {}",
            probe.name
        );
        Err(ConnectivityError::Probe { place: place.to_string(), why })
    });
    try_join_all(own).await?;
    if site.services.is_empty() {
        return Ok(());
    }
    say("waiting until the Services answer");
    let host = |probe: &Probe| Some((workers.get(&stage.place(probe))?, stage.nodes.get(probe.node)?.addresses.as_slice()));
    let hosts: Vec<Asker<'_>> = stage.probes.iter().filter(|probe| probe.role == Role::Host).filter_map(host).collect();
    let addresses = site.services.iter().flat_map(|service| service.cluster_ips.iter().copied());
    let asked = addresses.flat_map(|address| hosts.iter().map(move |(worker, _)| answers(worker, address, PORT, SETTLED)));
    let unanswered = join_all(asked).await.into_iter().filter(|answers| !answers).count();
    if unanswered > 0 {
        say(&format!("{unanswered} Services do not answer their nodes after {} s", SETTLED.as_secs()));
    }
    balanced(stage, &hosts, workers, site, say).await;
    Ok(())
}

/// Waits until the load balancer leads to each Service, from the nodes and from outside, as far as it does in time.
async fn balanced(stage: &Stage<'_>, hosts: &[Asker<'_>], workers: &Workers, site: &Site, say: &(dyn Fn(&str) + Sync)) {
    let within = if stage.options.load_balancer == Some(Balancer::Cloud) { HEALTHY } else { SETTLED };
    let addresses: Vec<IpAddr> = site.services.iter().flat_map(|service| service.balancer_ips.iter().copied()).collect();
    if addresses.is_empty() {
        return;
    }
    say("waiting until the load balancer leads to the Services");
    let public = site::public();
    // kube-proxy takes what nodes ask of a load balancer: whether that has found them healthy, only who is outside sees.
    let outside = site.outside.iter().find(|outside| outside.place == public);
    let client = outside.and_then(|outside| Some((workers.get(&public)?, outside.addresses.as_slice())));
    let askers: Vec<Asker<'_>> = hosts.iter().copied().chain(client).collect();
    let asked = of_a_family(&askers, &addresses).into_iter().map(|(worker, address)| answers(worker, address, PORT, within));
    let asked = join_all(asked).await;
    let unanswered = asked.iter().filter(|answers| !**answers).count();
    if unanswered > 0 {
        say(&format!(
            "the load balancer did not answer {unanswered} of {} requests within {} s: look at the health checks of its nodes",
            asked.len(),
            within.as_secs()
        ));
    }
}

/// Who asks which address: nobody asks one of a family that it has no address of, as that would be waited for to the end.
fn of_a_family<T: Copy>(askers: &[(T, &[IpAddr])], addresses: &[IpAddr]) -> Vec<(T, IpAddr)> {
    let has = |own: &[IpAddr], address: &IpAddr| own.iter().any(|own| own.is_ipv4() == address.is_ipv4());
    let of = |address: &IpAddr| askers.iter().filter(|(_, own)| has(own, address)).map(|(asker, _)| (*asker, *address)).collect::<Vec<_>>();
    addresses.iter().flat_map(of).collect()
}

/// As whom the client outside is seen by the probes in the nodes' own networks: a router on its way may rewrite its address. Where none of
/// them is reached from outside, it is expected to be seen as itself.
async fn seen_from(stage: &Stage<'_>, workers: &Workers, site: &mut Site) {
    let place = site::public();
    let (Some(worker), Some(public)) = (workers.get(&place), site.outside.iter_mut().find(|outside| outside.place == place)) else {
        return;
    };
    let patience = u64::try_from(TRY.as_millis()).unwrap_or(u64::MAX);
    let asked = stage.nodes.iter().flat_map(|node| &node.addresses).map(|address| {
        let asking = Asking { to: (*address, PORT).into(), transport: Transport::Tcp, size: None, patience, wanted: None };
        worker.order(ProbeTask::Ask(asking), TRY)
    });
    for outcome in join_all(asked).await {
        if let Outcome::Answered { seen, .. } = outcome
            && !public.seen_as.contains(&seen)
        {
            public.seen_as.push(seen);
        }
    }
}

/// Whether somebody answers in time.
async fn answers(worker: &Worker, address: IpAddr, port: u16, within: Duration) -> bool {
    let end = Instant::now() + within;
    loop {
        let patience = u64::try_from(TRY.as_millis()).unwrap_or(u64::MAX);
        let asking = Asking { to: (address, port).into(), transport: Transport::Tcp, size: None, patience, wanted: None };
        match worker.order(ProbeTask::Ask(asking), TRY).await {
            Outcome::Answered { .. } => return true,
            _ if Instant::now() >= end => return false,
            // Sleeps: nothing tells when a Service answers.
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// A probe that asks, and the addresses that it has.
type Asker<'a> = (&'a Worker, &'a [IpAddr]);

/// What asks in the cluster and observes it.
struct ClusterRun<'a> {
    handle: Handle,
    workers: Workers,
    observer: Observer<'a>,
    site: Site,
    interrupted: Arc<AtomicBool>,
}

impl Runner for ClusterRun<'_> {
    fn ask(&self, check: &Check, timeout: Duration) -> Observation {
        if self.interrupted.load(Ordering::Relaxed) {
            return Observation::Broken("interrupted".to_owned());
        }
        let Some(worker) = self.workers.get(&check.from) else { return Observation::Broken(format!("{} has no probe", check.from)) };
        let (wish, most) = wish(check, timeout);
        let outcome = self.handle.block_on(async {
            tokio::select! {
                outcome = worker.order(wish, most) => outcome,
                () = until(&self.interrupted) => Outcome::Failed("interrupted".to_owned()),
            }
        });
        observation(check, outcome)
    }

    fn observe(&self) -> Snapshot {
        if self.interrupted.load(Ordering::Relaxed) {
            return Snapshot::default();
        }
        let seen = self.handle.block_on(async {
            tokio::select! {
                seen = self.observer.observe() => Some(seen),
                () = until(&self.interrupted) => None,
            }
        });
        let Some(mut seen) = seen else { return Snapshot::default() };
        seen.leave_open(&self.site);
        Snapshot { site: Some(self.site.clone()), ..seen }
    }
}

/// What the probe is to do, and how long that takes at most.
fn wish(check: &Check, timeout: Duration) -> (ProbeTask, Duration) {
    let patience = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let to = (check.address, check.port).into();
    if check.case.to == Target::Metadata {
        return (ProbeTask::Get { to, path: "/".to_owned(), patience }, timeout);
    }
    if let Expected::Rate { least, most } = check.expected {
        let connect = patience;
        let patience = u64::try_from(probe::MEASURED.as_millis()).unwrap_or(u64::MAX);
        return (ProbeTask::Measure(Measuring { to, least, most, connect, patience }), probe::MEASURED + timeout);
    }
    let transport = match check.protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    };
    // A Service's backends take turns.
    let is_one = matches!(check.case.to, Target::Service(_)) && matches!(check.expected, Expected::Answer(_));
    let wanted = check.answerers.first().filter(|_| is_one && check.answerers.len() == 1).map(Place::to_string);
    let size = check.size.and_then(|size| usize::try_from(size).ok());
    (ProbeTask::Ask(Asking { to, transport, size, patience, wanted }), timeout * TURNS)
}

fn observation(check: &Check, outcome: Outcome) -> Observation {
    match outcome {
        Outcome::Answered { by, seen, took } => Observation::Answered { by, seen, took: Duration::from_micros(took) },
        // A metadata service does not say whom it sees.
        Outcome::Body(_) => {
            let by = check.answerers.first().map(Place::to_string).unwrap_or_default();
            Observation::Answered { by, seen: check.address, took: Duration::ZERO }
        }
        Outcome::Rate(bits) => Observation::Rate(bits),
        Outcome::Refused => Observation::Refused,
        Outcome::Silent => Observation::Silent,
        Outcome::TooLong => Observation::TooLong,
        Outcome::Unreachable(why) => Observation::Unreachable(why),
        Outcome::Failed(why) => Observation::Broken(why),
        Outcome::Here(_) | Outcome::Speed(_) => Observation::Broken("the probe has answered another question".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with addresses of one family does not ask a load balancer at an address of the other one.
    #[test]
    fn who_has_no_address_of_a_family_does_not_ask_in_it() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (both, v4) = ([ip("10.0.0.1"), ip("fd00::1")], [ip("10.0.0.2")]);
        let askers: [(&str, &[IpAddr]); 3] = [("both", &both), ("v4", &v4), ("none", &[])];
        let (one, other) = (ip("192.0.2.1"), ip("2001:db8::1"));
        assert_eq!(of_a_family(&askers, &[one, other]), [("both", one), ("v4", one), ("both", other)]);
    }

    /// When a terminal goes, the kernel sends a hangup, and the shell another one: what was created is removed all the same.
    #[tokio::test]
    async fn a_second_hangup_does_not_end_the_process() {
        let of = |kind| signal(kind).unwrap();
        let hangup = Some(of(SignalKind::hangup()));
        let signals = Signals { interrupt: of(SignalKind::interrupt()), end: of(SignalKind::terminate()), hangup };
        let interrupted = Arc::new(AtomicBool::new(false));
        let raises = tokio::spawn(signals.raise(Arc::clone(&interrupted)));
        for _ in 0..2 {
            interrupted.store(false, Ordering::Relaxed);
            let id = std::process::id().to_string();
            assert!(tokio::process::Command::new("kill").args(["-HUP", &id]).status().await.unwrap().success());
            until(&interrupted).await;
        }
        raises.abort();
    }
}
