//! One call of a runtime: checked, carried out, told of.
//!
//! ```text
//!   wire::Call --Request::read--> Request (checked) --verb--> Served --> wire::Answer
//!                                                               |   `--> one line of the log, the pod's report
//!                                                               `-- an ADD's status has still to be written
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Pod;
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, ContainerId, IfName, Version};
use plugin::process::{self, Env};
use plugin::{Exec, Host};
use wire::{Answer, Call};

use crate::events::Answering;
use crate::log::Line;
use crate::report::{Report, Timings};
use crate::statuses::StatusWrite;
use crate::{Agent, Settings, lock};

/// The time that a call has besides what it waits for: no runtime waits longer for a plugin.
const PATIENCE: Duration = Duration::from_secs(180);

/// Different warnings of calls that are told. A node's runtime has one configuration, or a few.
const MOST_WARNINGS: usize = 256;

/// A call, checked: only this reaches what changes anything.
pub(crate) struct Request {
    /// `CNI_COMMAND`
    pub(crate) verb: Verb,
    /// The runtime's configuration.
    pub(crate) config: Config,
    /// The agent's settings, with what the runtime's configuration adds.
    pub(crate) settings: Settings,
    /// `CNI_ARGS`
    pub(crate) args: CniArgs,
    /// `CNI_NETNS`; empty where it was not given.
    pub(crate) netns: PathBuf,
    /// `CNI_PATH`, then the agent's own directory of plugins.
    pub(crate) path: Vec<PathBuf>,
    /// Whoever executes external plugins.
    pub(crate) exec: Arc<dyn Exec>,
    /// When it must have ended.
    pub(crate) by: Instant,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Attach.
    Add(Sandbox),
    /// Detach.
    Del(Sandbox),
    /// Look whether it is still as it was.
    Check(Sandbox),
    /// Could ADD be served now?
    Status,
    /// Whatever is not among these goes.
    Gc(Vec<AttachmentId>),
}

/// Whose call it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    /// `CNI_CONTAINERID`
    pub(crate) container: ContainerId,
    /// `CNI_IFNAME`
    pub(crate) ifname: IfName,
    /// The pod, where `CNI_ARGS` names one.
    pub(crate) pod: Option<PodName>,
}

/// What became of a call.
pub(crate) enum Served {
    /// It is answered.
    Answered(Answer),
    /// A pod is attached. The ADD is answered when the API server has its status, or has had its time.
    Publishing(Box<Publishing>),
}

/// An ADD of which only the status is not written yet: nothing more is to be done on the node.
pub(crate) struct Publishing {
    told: Told,
    result: String,
    status: StatusWrite,
    laps: Timings,
    _answering: Answering,
}

/// The call that a line of the log, and a report, are about.
struct Told {
    verb: String,
    container: String,
    /// Of a call that was understood: its verb, and its pod.
    of: Option<(&'static str, PodName)>,
}

/// A pod as its runtime names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodName {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID, which older runtimes do not tell.
    pub(crate) uid: Option<String>,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl PodName ===

impl PodName {
    /// The pod of `CNI_ARGS`, if it names one.
    pub(crate) fn of(args: &CniArgs) -> Option<Self> {
        let text = |key: &str| args.get(key).filter(|value| !value.is_empty()).map(str::to_owned);
        let (namespace, name) = (text("K8S_POD_NAMESPACE")?, text("K8S_POD_NAME")?);
        Some(PodName { namespace, name, uid: text("K8S_POD_UID") })
    }

    /// Whether this is the pod that the API server has under the name. A static pod has another UID there than at the kubelet.
    pub(crate) fn is(&self, pod: &Pod) -> bool {
        pod.is_static || self.uid.as_ref().is_none_or(|uid| *uid == pod.uid)
    }
}

// === impl Verb ===

impl Verb {
    /// As `CNI_COMMAND` has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Verb::Add(_) => "ADD",
            Verb::Del(_) => "DEL",
            Verb::Check(_) => "CHECK",
            Verb::Status => "STATUS",
            Verb::Gc(_) => "GC",
        }
    }

    fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Verb::Add(sandbox) | Verb::Del(sandbox) | Verb::Check(sandbox) => Some(sandbox),
            Verb::Status | Verb::Gc(_) => None,
        }
    }
}

// === impl Request ===

impl Request {
    /// Checks a call. `version` becomes that of the configuration as soon as it is known: errors are told in it.
    pub(crate) fn read(call: &Call, settings: &Settings, exec: Arc<dyn Exec>, version: &mut Version) -> Result<Self, CniError> {
        let named = Config::named(&call.config)?;
        let (config, _) = Config::parse_named(named)?;
        *version = config.version;
        let settings = settings.with_call(config.raw())?;
        let args = CniArgs::read(&call.args);
        // Nobody else reads them.
        if call.verb == "ADD" {
            args.well_formed()?;
        }
        let verb = verb(call, &config, &args)?;
        let own = settings.bin_dir.clone();
        let path = std::env::split_paths(&call.path).filter(|dir| *dir != own).collect::<Vec<_>>();
        // An empty one would be the directory that this process happens to stand in.
        let path = [own].into_iter().chain(path).filter(|dir| !dir.as_os_str().is_empty()).collect();
        let netns = PathBuf::from(&call.netns);
        Ok(Request { verb, config, settings, args, netns, path, exec, by: Instant::now() + PATIENCE })
    }
}

fn verb(call: &Call, config: &Config, args: &CniArgs) -> Result<Verb, CniError> {
    process::allowed(&call.verb, config.version)?;
    Ok(match call.verb.as_str() {
        "ADD" => Verb::Add(sandbox(call, config, args)?),
        "DEL" => Verb::Del(sandbox(call, config, args)?),
        "CHECK" => Verb::Check(sandbox(call, config, args)?),
        "STATUS" => Verb::Status,
        "GC" => Verb::Gc(AttachmentId::valid_of(config.raw(), &config.network)?),
        other => return Err(process::unknown_verb(other)),
    })
}

fn sandbox(call: &Call, config: &Config, args: &CniArgs) -> Result<Sandbox, CniError> {
    let env = Env { container_id: call.container_id.clone(), ifname: call.ifname.clone(), ..Env::default() };
    let AttachmentId { container, ifname, .. } = env.attachment(&config.network)?;
    Ok(Sandbox { container, ifname, pod: PodName::of(args) })
}

// === impl Agent ===

impl Agent {
    /// Serves one call, and waits until it can be answered.
    pub(crate) fn answer(&self, call: &Call, host: &mut Host, exec: Arc<dyn Exec>) -> Answer {
        match self.serve(call, host, exec) {
            Served::Answered(answer) => answer,
            Served::Publishing(publishing) => self.runtime.block_on(publishing.answer(self)),
        }
    }

    /// Serves one call, whatever becomes of it: a plugin that panics is an error, and what it made is undone.
    pub(crate) fn serve(&self, call: &Call, host: &mut Host, exec: Arc<dyn Exec>) -> Served {
        let answering = self.events.answering();
        if let Some(answer) = self.addresses_for(call, host) {
            return Served::Answered(answer);
        }
        let mut laps = Timings::start();
        let mut version = Version::LATEST;
        let request = Request::read(call, &self.settings, exec, &mut version);
        let done = match &request {
            Ok(request) => {
                self.warn_once(&request.settings.warnings);
                let caught = catch_unwind(AssertUnwindSafe(|| self.carry_out(request, host, &mut laps)));
                caught.unwrap_or_else(|panic| Err(self.after_panic(request, &*panic, host)))
            }
            Err(e) => Err(e.clone()),
        };
        // In the version of the runtime's configuration; a result that has no form in it was undone by then.
        let done = done.and_then(|added| added.map(|(result, status)| Ok((result.print(version)?, status))).transpose());
        let told = Told::of(call, request.as_ref().ok());
        match done {
            Ok(Some((result, status))) => Served::Publishing(Box::new(Publishing { told, result, status, laps, _answering: answering })),
            Ok(None) => {
                self.tell(told, None, &laps);
                Served::Answered(Answer::default())
            }
            Err(e) => {
                self.tell(told, Some(&e), &laps);
                Served::Answered(Answer { exit: 1, stdout: e.print(version).into_bytes(), ..Answer::default() })
            }
        }
    }

    /// What the runtime's configuration says in vain it says with every call.
    fn warn_once(&self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let mut warned = lock(&self.warned);
        for warning in warnings {
            if warned.len() < MOST_WARNINGS && warned.insert(warning.clone()) {
                Line::warn("settings").with("what", warning).end();
            }
        }
    }

    fn carry_out(&self, request: &Request, host: &mut Host, laps: &mut Timings) -> Result<Option<(AddResult, StatusWrite)>, CniError> {
        match &request.verb {
            Verb::Add(sandbox) => self.add(request, sandbox, host, laps).map(Some),
            Verb::Del(sandbox) => self.del(request, sandbox, host, laps).map(|()| None),
            Verb::Check(sandbox) => self.check(request, sandbox, host).map(|()| None),
            Verb::Status => self.status(request, host).map(|()| None),
            Verb::Gc(valid) => self.gc(request, valid, host).map(|()| None),
        }
    }

    /// A defect of ours or of a plugin: an ADD is undone from its record, and the sockets, whose state nobody knows, are
    /// opened anew.
    fn after_panic(&self, request: &Request, panic: &(dyn std::any::Any + Send), host: &mut Host) -> CniError {
        *host = Host::here(host.dirs.clone());
        let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
        let msg = format!("this is a bug in the agent ({}); please report it with the log", said.unwrap_or_default());
        let error = CniError::new(Code::INTERNAL, msg);
        let Verb::Add(sandbox) = &request.verb else { return error };
        let undone = catch_unwind(AssertUnwindSafe(|| self.detach(request, &sandbox.container, host)));
        match undone {
            Ok(Ok(_)) => error,
            Ok(Err(e)) => error.with_details(format!("its changes could not be undone: {e}")),
            Err(_) => error.with_details("its changes could not be undone"),
        }
    }

    /// The line of the log, and what `explain` knows afterwards.
    fn tell(&self, told: Told, error: Option<&CniError>, laps: &Timings) {
        let Told { verb, container, of } = told;
        let mut line = if error.is_some() { Line::warn("call") } else { Line::info("call") };
        line = line.with("verb", &verb);
        if let Some((_, pod)) = &of {
            line = line.with("pod", pod);
        }
        line = line.with("container", &container).took("took", laps.total());
        for (name, took) in laps.all() {
            line = line.took(name, *took);
        }
        if let Some(e) = error {
            line = line.with("code", e.code).with("error", &e.msg).with("details", &e.details);
        }
        line.end();
        if let Some((verb, pod)) = of {
            self.reports.keep(Report::new(verb, pod, &container, laps, error));
        }
    }
}

// === impl Told ===

impl Told {
    fn of(call: &Call, request: Option<&Request>) -> Self {
        let of = request.and_then(|request| Some((request.verb.name(), request.verb.sandbox()?.pod.clone()?)));
        Told { verb: call.verb.clone(), container: call.container_id.clone(), of }
    }
}

// === impl Publishing ===

impl Publishing {
    /// What is answered, when the status is written or has had its time.
    pub(crate) async fn answer(self: Box<Self>, agent: &Agent) -> Answer {
        let Publishing { told, result, status, mut laps, _answering } = *self;
        status.end().await;
        laps.lap("status");
        agent.tell(told, None, &laps);
        Answer { exit: 0, stdout: result.into_bytes(), ..Answer::default() }
    }
}
