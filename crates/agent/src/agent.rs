//! The agent from its start to its end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use attach::{Attacher, Records, RoutedPods, Spool};
use chain::Chain;
use cluster::{Cluster, Connection, KuryrPorts};
use linux::file::{self, LockError};
use linux::{Inside, View};
use plugin::{Builtins, Finder, InHost, PluginMessage};
use plugins::BUILTINS;
use tokio::signal::unix::{SignalKind, signal};

use crate::addresses::{self, Addresses};
use crate::call::Request;
use crate::cilium_node::NotReadyReason;
use crate::cluster_addresses::ClusterAddresses;
use crate::default_network::DefaultNetwork;
use crate::del::Detached;
use crate::events::Events;
use crate::log::Line;
use crate::provided::Provided;
use crate::reconcile::Findings;
use crate::report::Reports;
use crate::retired::{self, Retired};
use crate::room::LargePodBudget;
use crate::serve::{self, Load, ServeError, Socket};
use crate::settings::VifSource;
use crate::shares::Shares;
use crate::spooled::Carrying;
use crate::statuses::Statuses;
use crate::{Settings, admin, firewall, health, install, log, provided, reconcile, shares};

/// How long a new agent waits for the one before it to end.
const PREDECESSOR: Duration = Duration::from_secs(60);
/// How long calls that are being served may go on after SIGTERM: less than Kubernetes gives a pod.
const LAST_CALLS: Duration = Duration::from_secs(25);

/// What is called when a call begins to wait for others, and when it goes on.
pub(crate) type OnWait = Arc<dyn Fn(bool) + Send + Sync>;

/// The agent of a node.
pub struct Agent {
    pub(crate) settings: Settings,
    pub(crate) since: SystemTime,
    pub(crate) cluster: Cluster,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) records: Records,
    /// Of those, the pods that the host has routes to.
    pub(crate) routed_pods: RoutedPods,
    /// The links, addresses and routes of the host.
    pub(crate) view: std::sync::Mutex<View>,
    pub(crate) spool: Spool,
    /// The kept DELs that are being carried out, by their files.
    pub(crate) carrying: Carrying,
    pub(crate) default: DefaultNetwork,
    pub(crate) statuses: Statuses,
    /// Addresses of the cluster, which definitions are held against.
    pub(crate) cluster_addresses: ClusterAddresses,
    /// The cluster's own network, where this agent provides it.
    pub(crate) provided: Option<Provided>,
    /// The addresses of pools, where this agent holds them.
    pub(crate) addresses: Option<Addresses>,
    pub(crate) retired: Retired,
    pub(crate) detached: Detached,
    pub(crate) reports: Reports,
    pub(crate) findings: Findings,
    pub(crate) load: Load,
    /// Who may be served.
    pub(crate) shares: Arc<Shares>,
    /// Called with `true` by the thread of a call that begins to wait for others, and with `false` when it goes on: its place is lent to
    /// other calls meanwhile. Set once the socket is there.
    pub(crate) waits_for_others: OnceLock<OnWait>,
    /// Memory of pods that are being attached.
    pub(crate) room: LargePodBudget,
    /// Warnings of calls that have been told.
    pub(crate) warned: std::sync::Mutex<BTreeSet<String>>,
    pub(crate) events: Events,
    /// The Neutron ports of this node's pods, where they are plugged and kept in objects of their own.
    pub(crate) kuryr_ports: Option<KuryrPorts>,
    /// What the node's CiliumNode lacks yet.
    pub(crate) waits: NotReadyReason,
}

/// The agent could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another agent serves this node.
    #[error("another agent runs on this node ({holder}), and has locked {}: stop it first", path.display())]
    Another {
        /// The lock.
        path: PathBuf,
        /// Which process.
        holder: String,
    },
    /// A file or thread of its own cannot be had.
    #[error("{step}: {reason}")]
    Own {
        /// What.
        step: &'static str,
        /// Why.
        reason: String,
    },
    /// Its socket cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// No client for the API server can be made.
    #[error(transparent)]
    Api(#[from] cluster::ConnectError),
}

// === impl Agent ===

impl Agent {
    /// An agent that knows nothing yet; its watches begin.
    ///
    /// # Errors
    /// [`RunError`] if another process has its addresses, or they cannot be read.
    pub(crate) fn start(settings: Settings, client: Connection) -> Result<Arc<Self>, RunError> {
        let runtimes = settings.plugin_state_dir.as_deref().unwrap_or(Path::new("/var/lib/cni"));
        let open = || Addresses::open(&settings.dirs(), &Records::new(settings.records()), runtimes, settings.ipam);
        let addresses = if settings.pools { Some(open()?) } else { None };
        let runtime = tokio::runtime::Handle::current();
        let cluster = Cluster::start(client, &settings.node_name);
        Ok(Arc::new(Agent {
            since: SystemTime::now(),
            records: Records::new(settings.records()),
            routed_pods: RoutedPods::default(),
            view: std::sync::Mutex::new(View::open(&Inside::here()).map_err(own("look at the host's network"))?),
            spool: Spool::new(settings.spool()),
            carrying: Carrying::default(),
            default: DefaultNetwork::default(),
            statuses: Statuses::start(cluster.clone(), runtime.clone()),
            cluster_addresses: ClusterAddresses::follow(&settings, &cluster),
            provided: settings.provide.as_ref().map(|provide| Provided::new(provide, &cluster, &settings.state_dir)),
            retired: Retired::default(),
            detached: Detached::default(),
            reports: Reports::default(),
            findings: Findings::default(),
            load: Load::default(),
            shares: Shares::new(settings.workers),
            waits_for_others: OnceLock::new(),
            room: LargePodBudget::default(),
            warned: std::sync::Mutex::default(),
            events: Events::start(cluster.clone(), &runtime),
            waits: NotReadyReason::default(),
            kuryr_ports: (settings.vifs.source == VifSource::KuryrPorts).then(|| cluster.follow_kuryr_ports()),
            addresses,
            cluster,
            runtime,
            settings,
        }))
    }

    /// Finds a call's plugins: what is external is executed by who called.
    pub(crate) fn finder(&self, request: &Request) -> Finder {
        finder(&request.settings, request.path.clone()).with_exec(Arc::clone(&request.exec))
    }

    /// Runs networks for a call.
    pub(crate) fn chain_of(&self, request: &Request) -> Chain {
        Chain::new(self.finder(request), None)
    }

    /// Finds plugins where no caller waits: executables are started in the host's mount namespace.
    pub(crate) fn finder_in_host(&self) -> Finder {
        finder(&self.settings, vec![self.settings.bin_dir.clone()]).with_exec(Arc::new(InHost))
    }

    /// Attaches and detaches where no caller waits.
    pub(crate) fn attacher_in_host(&self) -> Attacher {
        Attacher::new(Chain::new(self.finder_in_host(), None), self.records.clone())
    }
}

/// Attaches and detaches without an agent.
pub(crate) fn attacher_of(settings: &Settings) -> Attacher {
    let finder = finder(settings, vec![settings.bin_dir.clone()]).with_exec(Arc::new(InHost));
    Attacher::new(Chain::new(finder, None), Records::new(settings.records()))
}

fn finder(settings: &Settings, path: Vec<PathBuf>) -> Finder {
    let env = std::env::vars_os().filter(|(key, _)| key == "PATH").collect();
    Finder::new(BUILTINS as Builtins, path, settings.prefer, env).without_itself().telling(heard)
}

/// What a plugin says that succeeds goes into the log, in a line: what other programs write there is theirs alone to read.
fn heard(said: PluginMessage<'_>) {
    let (line, text) = match said {
        PluginMessage::Warning(text) => (Line::warn("plugin"), text.into()),
        PluginMessage::Stderr(bytes) => (Line::debug("plugin's standard error"), String::from_utf8_lossy(bytes)),
    };
    line.with("says", text.trim().chars().take(500).collect::<String>()).end();
}

/// Serves a node until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`] if it cannot start.
pub fn run(settings: Settings) -> Result<(), RunError> {
    let kubeconfig = settings.kubeconfig.clone();
    serve_with(settings, async move || Ok(cluster::client(kubeconfig.as_deref()).await?))
}

/// The same where another than a cluster's API server answers: `connect` is called inside the asynchronous runtime, which the
/// client of an embedded store needs.
///
/// # Errors
/// [`RunError`] if it cannot start.
pub fn run_on(settings: Settings, connect: impl FnOnce() -> Connection) -> Result<(), RunError> {
    serve_with(settings, async move || Ok(connect()))
}

/// What of the process's own cannot be had.
fn own<E: std::fmt::Display>(step: &'static str) -> impl Fn(E) -> RunError {
    move |e| RunError::Own { step, reason: e.to_string() }
}

fn serve_with(settings: Settings, connect: impl AsyncFnOnce() -> Result<Connection, RunError>) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(own("start the asynchronous runtime"))?;
    runtime.block_on(serve(settings, connect))
}

async fn serve(settings: Settings, connect: impl AsyncFnOnce() -> Result<Connection, RunError>) -> Result<(), RunError> {
    // Before any thread, so that no signal ends the process half-way.
    let mut terminate = signal(SignalKind::terminate()).map_err(own("wait for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(own("wait for SIGINT"))?;
    log::set(settings.log_level, settings.log_format);
    for warning in &settings.warnings {
        Line::warn("settings").with("what", warning).end();
    }
    // Callers, connections and listeners of many pods take more than the usual 1024.
    if let Err(errno) = linux::local::raise_limit() {
        Line::warn("start").with("what", "cannot raise the limit of open files").with("error", errno).end();
    }
    let only = tokio::select! {
        only = only_one(&settings) => Some(only?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(_only) = only else {
        Line::info("stop").with("what", "another agent still serves this node").end();
        // The thread that waits for it has nothing that anybody needs.
        std::process::exit(0)
    };
    sysctls();
    file::ask_while_waiting(shares::goes_on);
    let client = connect().await?;
    let agent = Agent::start(settings, client)?;
    let dirs = agent.settings.dirs();
    retired::finish(&agent, dirs.clone()).map_err(own("start a thread"))?;
    let socket = Arc::new(Socket::bind(&agent.settings.socket())?);
    let on_wait: OnWait = Arc::new(serve::stand_ins(&agent, &socket, &dirs));
    drop(agent.waits_for_others.set(Arc::clone(&on_wait)));
    let workers = serve::serve(&agent, Arc::clone(&socket), &dirs)?;
    addresses::announce(&agent)?;
    addresses::follow(&agent, move |waits| on_wait(waits));
    // What was kept while there was no agent is looked for after the first caller can come: who keeps a DEL then tries once
    // more to reach us.
    reconcile::start(&agent, dirs.clone()).map_err(own("start a thread"))?;
    firewall::watch(&agent, dirs.clone()).map_err(own("start a thread"))?;
    provided::start(&agent, dirs.clone()).map_err(own("start a thread"))?;
    admin::serve(&agent, Socket::bind(&agent.settings.admin_socket())?).map_err(own("start a thread"))?;
    let healthy = tokio::spawn(health::serve(Arc::clone(&agent)));
    install::start(&agent).map_err(own("start a thread"))?;
    let warns = Arc::clone(&agent);
    drop(tokio::spawn(async move { warns.warn_of_gaps().await }));
    begun(&agent);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Line::info("stop").with("calls", agent.load.busy()).end();
    agent.load.stop();
    socket.close();
    let served = Arc::clone(&agent);
    let last = tokio::task::spawn_blocking(move || {
        workers.into_iter().for_each(|worker| drop(worker.join()));
        // Who takes its time to say what it wants has a thread of its own; cut off, it could not tell whether its call had begun.
        while served.load.has_others() || served.shares.handed_over() > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    if tokio::time::timeout(LAST_CALLS, last).await.is_err() {
        Line::warn("stop").with("unfinished", agent.load.busy()).with("what", "calls are cut off; their runtimes retry").end();
    }
    healthy.abort();
    // Threads that still wait for something keep nothing that the disk does not have.
    std::process::exit(0)
}

fn begun(agent: &Agent) {
    let settings = &agent.settings;
    Line::info("start")
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("node", &settings.node_name)
        .with("socket", settings.socket().display())
        .with("default_network", &settings.default_network)
        .with("teardown", settings.teardown)
        .end();
}

/// In a container, which has the host's processes but not its mounts, the pods' sysctls are read-only.
fn sysctls() {
    let container = matches!(linux::process::host_mounts(), Ok(Some(_)));
    if let Err(errno) = if container { linux::make_sysctls_writable() } else { Ok(false) } {
        let next = "plugins that set sysctls fail; see the agent's capabilities and its AppArmor profile";
        Line::warn("start").with("what", "/proc/sys is read-only").with("error", errno).with("now", next).end();
    }
}

/// Two agents of one node would undo each other's work.
async fn only_one(settings: &Settings) -> Result<file::Lock, RunError> {
    let path = settings.socket().with_file_name("agent.lock");
    let fail = |reason: String| RunError::Own { step: "lock the node for this agent", reason };
    if let Some(dir) = path.parent() {
        file::make_own_dir(dir).map_err(|e| fail(format!("socketDir: create {}: {e}", dir.display())))?;
    }
    let named = |holder: Option<file::LockHolder>| holder.map_or("an unknown process".to_owned(), |holder| holder.to_string());
    match file::lock(&path, Some(Instant::now())) {
        Ok(lock) => return Ok(lock),
        Err(LockError::TimedOut { holder, .. }) => {
            let limit = format!("{} s", PREDECESSOR.as_secs());
            Line::info("start").with("waits", named(holder)).with("why", "it serves this node").with("at_most", limit).end();
        }
        Err(e) => return Err(fail(e.to_string())),
    }
    let lock = path.clone();
    let waited = tokio::task::spawn_blocking(move || file::lock(&lock, Some(Instant::now() + PREDECESSOR)));
    match waited.await.map_err(|e| fail(e.to_string()))? {
        Ok(lock) => Ok(lock),
        Err(LockError::TimedOut { holder, .. }) => Err(RunError::Another { path, holder: named(holder) }),
        Err(e) => Err(fail(e.to_string())),
    }
}
