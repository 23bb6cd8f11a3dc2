//! What a person asks the agent: `netloom status`, `pods`, `nodes`, `explain`.
//!
//! ```text
//!   netloom --Ask--> /run/netloom/admin.sock --> answers in JSON; how they look is the command line's business
//! ```
//!
//! A socket of its own: who wants to know why everything hangs must not wait behind what hangs.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use attach::{PlanRequest, Record, Step};
use cni::{CniError, Code, IfName};
use json::{Object, Value};
use linux::{Netns, offload};
use plugin::Host;
use plugins::BUILTINS;
use wire::{AdminReply, Ask};

use crate::Agent;
use crate::add::all;
use crate::call::PodName;
use crate::foreign_pods::ForeignPod;
use crate::log::{Line, stamp};
use crate::pods::view;
use crate::report::Report;
use crate::serve::Socket;

/// How long the API server may take to answer before it counts as one that hangs.
const ANSWER: Duration = Duration::from_secs(3);
/// How long a question and its answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Questions that are answered at the same time. Who connects and asks nothing keeps nobody else waiting.
const MOST: usize = 256;
/// What a thread that answers one may have as its stack.
const STACK: usize = 512 << 10;

/// Answers for as long as the process lives.
pub(crate) fn serve(agent: &Arc<Agent>, socket: Socket) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        // Each that is being answered has one.
        let places = Arc::new(());
        loop {
            let Some(stream) = socket.next() else { continue };
            if Arc::strong_count(&places) > MOST {
                Line::warn("refused").with("why", "too many connections").end();
                continue;
            }
            let (agent, place) = (Arc::clone(&agent), Arc::clone(&places));
            let answer = move || {
                one(&agent, stream);
                drop(place);
            };
            if let Err(e) = std::thread::Builder::new().name("answer".to_owned()).stack_size(STACK).spawn(answer) {
                Line::warn("refused").with("why", e).end();
            }
        }
    };
    std::thread::Builder::new().name("admin".to_owned()).spawn(work).map(drop)
}

fn one(agent: &Agent, mut stream: UnixStream) {
    let limits = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    if limits.is_err() {
        return;
    }
    let told = match wire::receive::<Ask>(&mut stream) {
        Ok(Some(ask)) => agent.tell_person(&ask),
        Ok(None) => return,
        Err(e) => AdminReply::Refused(e.to_string()),
    };
    if let Err(e) = wire::send(&mut stream, &told) {
        Line::debug("admin").with("error", e).end();
    }
}

impl Agent {
    fn tell_person(&self, ask: &Ask) -> AdminReply {
        let text = |key: &str| ask.args.str(key).unwrap_or_default().to_owned();
        let told = match ask.what.as_str() {
            "status" => Ok(self.status_value()),
            "pods" => self.pods_value(),
            "nodes" => self.nodes_value(),
            "rotate-keys" => self.rotate_keys(),
            "explain" => self.explain(&text("namespace"), &text("name")),
            other => Err(CniError::new(
                Code::INVALID_CONFIG,
                format!("this agent does not support the question {other:?}: it is version {}", env!("CARGO_PKG_VERSION")),
            )),
        };
        told.map_or_else(|e| AdminReply::Refused(e.to_string()), AdminReply::Value)
    }

    fn status_value(&self) -> Value {
        let mut o = Object::new();
        let settings = &self.settings;
        o.set("version", env!("CARGO_PKG_VERSION"));
        o.set("node", settings.node_name.as_str());
        o.set("since", stamp(self.since));
        o.set("pid", u64::from(std::process::id()));
        let unready = self.unready();
        o.set("ready", unready.is_none());
        if let Some(why) = unready {
            o.set("why", why);
        }
        o.set("defaultNetwork", settings.default_network.to_string());
        if let Ok(given) = self.default_network_now(settings, Instant::now()) {
            o.set("defaultNetworkName", given.list.name.as_str());
        }
        if let Some(provided) = &self.provided {
            o.set("network", provided.value());
        }
        let before = self.preferred_by_runtime();
        if !before.is_empty() {
            o.set("preferredByRuntime", before.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
        }
        let synced = self.cluster.synced();
        // A watch hears nothing of a server that hangs.
        let hangs = self.ask(self.cluster.answers(), Instant::now() + ANSWER).err();
        o.set("api", hangs.filter(|_| !synced.is_away()).map_or_else(|| synced.to_string(), |e| e.msg));
        let gaps = self.cluster_addresses.gaps();
        if !gaps.is_empty() {
            o.set("unprotected", gaps);
        }
        let sandboxes = self.records.sandboxes().unwrap_or_default();
        o.set("sandboxes", sandboxes.len() as u64);
        o.set("calls", self.load.busy() as u64);
        o.set("callsWaiting", self.shares.in_line() as u64);
        if let Some(time) = self.shares.longest_in_line() {
            o.set("longestWaiting", time.as_secs());
        }
        o.set("workers", settings.workers as u64);
        o.set("retired", self.retired.left() as u64);
        o.set("statusesWaiting", self.statuses.waiting());
        o.set("differing", sandboxes.iter().filter(|sandbox| !self.findings.of(sandbox).is_empty()).count() as u64);
        o.into()
    }

    fn pods_value(&self) -> Result<Value, CniError> {
        let mut pods: Vec<Value> = Vec::new();
        let mut seen = Vec::new();
        for sandbox in self.records.sandboxes()? {
            match self.records.read(&sandbox) {
                Ok(Some(record)) => {
                    seen.push((record.pod.namespace.clone(), record.pod.name.clone()));
                    pods.push(self.pod_value(&record).into());
                }
                Ok(None) => {}
                Err(e) => {
                    let mut o = Object::new();
                    o.set("container", sandbox.as_str());
                    o.set("state", "Unreadable");
                    o.set("reasons", vec![e.to_string()]);
                    pods.push(o.into());
                }
            }
        }
        let failed = self.reports.failed().into_iter().filter(|r| self.may_be_there(&r.pod));
        let unattached = failed.filter(|r| !seen.contains(&(r.pod.namespace.clone(), r.pod.name.clone())));
        pods.extend(unattached.map(|report| failed_value(&report).into()));
        Ok(Value::Array(pods))
    }

    /// Whether the API server has this pod, under its UID, or has not told yet.
    fn may_be_there(&self, wanted: &PodName) -> bool {
        match self.cluster.pod(&wanted.namespace, &wanted.name) {
            Some(pod) => wanted.is(&pod),
            None => self.cluster.synced().missing().is_some(),
        }
    }

    fn pod_value(&self, record: &Record) -> Object {
        let mut o = Object::new();
        o.set("namespace", record.pod.namespace.as_str());
        o.set("name", record.pod.name.as_str());
        o.set("uid", record.pod.uid.as_deref().unwrap_or_default());
        self.set_state(&mut o, record);
        let text = self.status_of(record);
        o.set("networks", json::parse(text.as_bytes()).unwrap_or(Value::Null));
        o
    }

    /// What a sandbox is, and since when.
    fn set_state(&self, o: &mut Object, record: &Record) {
        o.set("container", record.sandbox.as_str());
        let differs = self.findings.of(&record.sandbox);
        let state = match (self.records.is_retired(&record.sandbox), record.is_made(), differs.is_empty()) {
            (true, ..) => "Removing",
            (_, false, _) => "Attaching",
            (.., false) => "Changed",
            _ => "Attached",
        };
        o.set("state", state);
        if !differs.is_empty() {
            o.set("reasons", differs);
        }
        if let Some(at) = record.made_at {
            o.set("at", stamp(SystemTime::UNIX_EPOCH + Duration::from_secs(at)));
        }
    }

    /// Everything that is known of one pod: what it asked for, what came of it, and where the time went.
    fn explain(&self, namespace: &str, name: &str) -> Result<Value, CniError> {
        let mut o = Object::new();
        o.set("namespace", namespace);
        o.set("name", name);
        let sandboxes = self.records.sandboxes()?;
        let records = sandboxes.iter().filter_map(|sandbox| self.records.read(sandbox).ok().flatten());
        let mut own: Vec<Record> = records.filter(|record| record.pod.namespace == namespace && record.pod.name == name).collect();
        own.sort_by_key(|record| record.made_at);
        let report = self.reports.of(namespace, name);
        let pod = self.cluster.pod(namespace, name);
        if own.is_empty() && report.is_none() && pod.is_none() {
            let msg = format!("no pod {namespace}/{name} on node {}: not in the API, and no record of it", self.settings.node_name);
            return Err(CniError::new(Code::UNKNOWN_CONTAINER, msg));
        }
        if let Some(pod) = &pod {
            o.set("uid", pod.uid.as_str());
            o.set("phase", format!("{:?}", pod.phase));
            o.set("hostNetwork", pod.host_network);
        }
        let annotations = own.last().map(|r| r.pod.clone()).or_else(|| pod.as_deref().map(view)).unwrap_or_default();
        for (key, value) in [("networks", &annotations.networks), ("defaultNetwork", &annotations.default_network)] {
            if let Some(value) = value {
                o.set(key, value.as_str());
            }
        }
        let sandboxes: Vec<Value> = own.iter().map(|record| self.sandbox_value(record).into()).collect();
        o.set("sandboxes", sandboxes);
        if let Some(report) = &report {
            o.set("lastCall", report_value(report));
        }
        let others = if own.is_empty() { self.strangers_of(namespace, name) } else { Vec::new() };
        if !others.is_empty() {
            o.set("others", others.iter().map(|other| stranger_value(other).into()).collect::<Vec<Value>>());
        }
        if own.is_empty()
            && let Some(pod) = pod.as_deref().filter(|pod| !pod.host_network)
        {
            o.set("plan", self.would(pod));
        }
        Ok(o.into())
    }

    fn sandbox_value(&self, record: &Record) -> Object {
        let mut o = Object::new();
        self.set_state(&mut o, record);
        o.set("netns", record.netns.to_string_lossy().into_owned());
        let statuses = attach::network_status(record, self.settings.status_ips);
        let netns = Netns::open(&record.netns).ok().flatten();
        let attachments = record.steps.iter().map(|step| {
            let mut o = self.step_value(step, statuses.iter().find(|s| s.interface.as_deref() == Some(step.ifname.as_str())));
            if netns.as_ref().is_some_and(|netns| sends_checksums(netns, step)) {
                o.set("txChecksumOffload", "off");
            }
            o
        });
        o.set("attachments", attachments.map(Value::from).collect::<Vec<_>>());
        o
    }

    fn step_value(&self, step: &Step, status: Option<&npwg::NetworkStatus>) -> Object {
        let mut o = Object::new();
        o.set("interface", step.ifname.as_str());
        o.set("definition", step.name.as_str());
        o.set("network", step.list.name.as_str());
        o.set("default", step.default);
        o.set("cniVersion", step.list.version.as_str());
        let finder = self.finder_in_host();
        let plugin = |p: &cni::PluginEntry| match finder.find(&p.kind) {
            Ok(plugin::ResolvedPlugin::Builtin(_)) => format!("{} (built in)", p.kind),
            Ok(plugin::ResolvedPlugin::External(path)) => path.display().to_string(),
            Err(_) => format!("{} (not found)", p.kind),
        };
        o.set("plugins", step.list.plugins.iter().map(plugin).collect::<Vec<_>>());
        o.set("state", if step.result().is_some() { "Attached" } else { "Intended" });
        if let Some(status) = status {
            o.set("ips", status.ips.clone());
            if let Some(mac) = &status.mac {
                o.set("mac", mac.as_str());
            }
        }
        if !step.capability_args.is_empty() {
            o.set("runtimeConfig", step.capability_args.clone());
        }
        if let Some(took) = step.took {
            o.set("tookMicros", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
        o
    }

    /// What an ADD would do now, or why it would not.
    fn would(&self, pod: &cluster::Pod) -> Object {
        let mut o = Object::new();
        let view = view(pod);
        let planned = IfName::parse("eth0").map_err(CniError::from).and_then(|ifname| {
            let mut known = self.known(&self.settings, &view, Instant::now() + PATIENCE / 4)?;
            let ports = self.ports_of(None, pod, &view, &mut known, &mut Host::here(self.settings.dirs()))?;
            let asked =
                PlanRequest { admission: &self.settings.admission, bound: &ports.bound, ..PlanRequest::new(&view, &ifname, BUILTINS) };
            let plan = attach::plan(&asked, &known).map_err(all)?;
            // As an ADD would: the first one is its error.
            let missing = self.attacher_in_host().verify(&plan).err().and_then(|errors| errors.into_iter().next());
            missing.map_or(Ok(plan), |e| Err(e.into()))
        });
        match planned {
            Err(e) => o.set("refused", e.to_string()),
            Ok(plan) => {
                let one = |p: &attach::Planned| {
                    let mut o = Object::new();
                    o.set("interface", p.ifname.as_str());
                    o.set("definition", p.name());
                    o.set("network", p.list.name.as_str());
                    Value::from(o)
                };
                o.set("attachments", plan.attachments.iter().map(one).collect::<Vec<_>>());
            }
        }
        o
    }
}

/// Whether the kernel computes the checksums of what an interface sends into Open vSwitch: with a userspace datapath it must.
fn sends_checksums(netns: &Netns, step: &Step) -> bool {
    let is_switched = step.list.plugins.iter().any(|plugin| ["ovs", "ovs-hybrid"].contains(&plugin.kind.as_str()));
    is_switched && matches!(netns.enter(|inside| offload::tx_checksum(inside, &step.ifname)), Ok(Ok(false)))
}

/// A pod that has no record, because its ADD failed.
fn failed_value(report: &Report) -> Object {
    let mut o = Object::new();
    o.set("namespace", report.pod.namespace.as_str());
    o.set("name", report.pod.name.as_str());
    o.set("uid", report.pod.uid.as_deref().unwrap_or_default());
    o.set("container", report.container.as_str());
    o.set("state", "Failed");
    o.set("at", stamp(report.at));
    o.set("reasons", report.error.iter().map(ToString::to_string).collect::<Vec<_>>());
    o.set("networks", Value::Array(Vec::new()));
    o
}

/// An attachment that another program has made.
fn stranger_value(ForeignPod { by, cached }: &ForeignPod) -> Object {
    let mut o = Object::new();
    o.set("by", *by);
    o.set("container", cached.id.container.as_str());
    o.set("network", cached.id.network.as_str());
    o.set("interface", cached.id.ifname.as_str());
    let ips = cached.result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.to_string());
    o.set("ips", ips.collect::<Vec<_>>());
    o
}

fn report_value(report: &Report) -> Object {
    let mut o = Object::new();
    let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    o.set("verb", report.verb);
    o.set("container", report.container.as_str());
    o.set("at", stamp(report.at));
    o.set("tookMicros", micros(report.took));
    let mut laps = Object::new();
    for (name, took) in &report.laps {
        laps.set(name, micros(*took));
    }
    o.set("laps", laps);
    if let Some(e) = &report.error {
        o.set("code", u64::from(e.code.0));
        o.set("error", e.msg.as_str());
        if !e.details.is_empty() {
            o.set("details", e.details.as_str());
        }
    }
    if let Some(add) = &report.failed_add {
        o.set("failedAdd", report_value(add));
    }
    o
}
