//! `netloom`: all networks of a pod in one call, from a configuration that names them.
//!
//! ```text
//!   delegates: [default network, network, ...] --> plan --> Attacher: record, then chain after chain --> the first one's result
//! ```
//!
//! What was made is in the sandbox's record, from which DEL works alone, whatever the configuration says by then. There is
//! one record for a container and network, so one interface that the runtime knows: a call for another is about nothing.

use std::path::{Path, PathBuf};
use std::time::Instant;

use attach::{AGENT_RECORDS, Attacher, Lost, Others, Plan, PodView, Record, RecordError, Records, Sandbox};
use chain::Chain;
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, ContainerId, IfName, NetworkList, NetworkName, Version};
use json::{Object, Value};
use plugin::{About, Builtins, Call, Cx, Dirs, Draft, Finder, Host, Key, Plugin, Prefer, Stage, process};
use plugins::BUILTINS;

/// The plugin `netloom`.
pub(crate) struct Pod {
    finder: Finder,
    /// Whether nobody has looked if the container's namespace is the host's own, which a pod never shares.
    unchecked: bool,
}

/// Below which directory runtimes keep what they have attached.
const RUNTIMES: &str = "/var/lib/cni";

/// Where the records of sandboxes are, in a directory for each network.
const RECORDS: &str = attach::PLUGIN_RECORDS;

pub(crate) static ABOUT: About = About {
    name: "netloom",
    summary: "attaches the container to several networks in one call, in order",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::new(
            "delegates",
            "list",
            "none, required",
            "the networks, each a configuration or a configuration list; the first is the default network",
        ),
        Key::new("cniDir", "path", RECORDS, "the directory for records of its attachments"),
        Key::new("runtimeConfig", "object", "none", "from the runtime, for the first network only"),
    ],
    needs_link: false,
};

/// The checked configuration.
struct Conf {
    networks: Vec<NetworkList>,
    runtime_config: Object,
}

/// The records of every network of this plugin, and which of them are this network's.
struct SavedPod {
    all: PathBuf,
    own: PathBuf,
}

// === impl Conf ===

impl Conf {
    fn read(config: &Config) -> Result<Self, CniError> {
        let raw = config.raw();
        for key in ["clusterNetwork", "defaultNetworks", "kubeconfig"] {
            if let Some(value) = raw.get(key) {
                let why = "networks of a cluster are not looked up here; list them in \"delegates\"";
                return Err(CniError::unsupported(key, json::compact(value), why));
            }
        }
        let delegates = raw.get("delegates").and_then(Value::as_array).unwrap_or_default();
        if delegates.is_empty() {
            return Err(CniError::invalid("delegates", "list at least one network, the default network first"));
        }
        let network = |(at, value)| network(value, config.version).map_err(|e: CniError| e.within(format!("delegates[{at}]")));
        let networks = delegates.iter().enumerate().map(network).collect::<Result<Vec<_>, _>>()?;
        if let Some((at, list)) = networks.iter().enumerate().find(|(at, list)| networks.iter().take(*at).any(|l| l.name == list.name)) {
            return Err(CniError::invalid(&format!("delegates[{at}].name"), format!("{} is used by another network as well", list.name)));
        }
        let runtime_config = match raw.get("runtimeConfig") {
            None => Object::new(),
            Some(Value::Object(object)) => object.clone(),
            Some(other) => return Err(CniError::invalid("runtimeConfig", format!("expected an object, found {}", other.kind()))),
        };
        if let Some(first) = networks.first()
            && let Some((key, _)) = runtime_config.iter().find(|(key, _)| !first.has_capability(key))
        {
            let why = format!("no plugin of {} has this capability; declare it in the plugin's \"capabilities\"", first.name);
            return Err(CniError::invalid(&format!("runtimeConfig.{key}"), why));
        }
        Ok(Conf { networks, runtime_config })
    }

    fn plan(self, first: &IfName, taken: &[IfName]) -> Result<Plan, CniError> {
        let plan = Plan::of_every_pod(self.networks, first, taken, self.runtime_config);
        plan.map_err(|refusals| CniError::first_of(refusals.into_iter().map(|r| r.error)).unwrap_or_else(nothing))
    }
}

/// One delegate. Without a version of its own it has the configuration's.
fn network(value: &Value, version: Version) -> Result<NetworkList, CniError> {
    let Value::Object(object) = value else {
        return Err(CniError::new(Code::INVALID_CONFIG, format!("expected an object, found {}", value.kind())));
    };
    let mut object = object.clone();
    if object.get("cniVersion").is_none() && object.get("cniVersions").is_none() {
        object.set("cniVersion", version.as_str());
    }
    let list = NetworkList::of(object)?;
    match list.plugins.iter().find(|p| p.kind.as_str() == ABOUT.name) {
        Some(_) => Err(CniError::invalid("type", "\"netloom\" cannot be a network of \"netloom\"; name its networks here")),
        None if list.plugins.is_empty() => Err(CniError::new(Code::INVALID_CONFIG, "it has neither \"type\" nor \"plugins\"")),
        None => Ok(list),
    }
}

// === impl SavedPod ===

impl SavedPod {
    fn of(config: &Config, host: &Host) -> Result<Self, CniError> {
        let named = match config.raw().get("cniDir") {
            None => "",
            Some(Value::String(dir)) => dir.as_str(),
            Some(other) => return Err(CniError::invalid("cniDir", format!("expected a path, found {}", other.kind()))),
        };
        let all = host.dirs.configured(named, Path::new(RECORDS));
        Ok(SavedPod { own: all.join(config.network.as_str()), all })
    }

    fn own(&self) -> Records {
        Records::new(self.own.clone())
    }

    /// The records of the other networks.
    fn others(&self) -> Result<Vec<Records>, CniError> {
        let fail = |e: std::io::Error| CniError::new(Code::IO, format!("list {}: {e}", self.all.display()));
        let entries = match linux::file::entries(&self.all) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let paths = entries.into_iter().filter(|entry| entry.regular != Some(true)).map(|entry| self.all.join(entry.name));
        Ok(paths.filter(|path| *path != self.own && path.is_dir()).map(Records::new).collect())
    }

    /// The interfaces that a container has through other networks of this plugin.
    fn taken(&self, container: &ContainerId) -> Result<Vec<IfName>, CniError> {
        let mut taken = Vec::new();
        for records in self.others()? {
            taken.extend(records.read(container)?.into_iter().flat_map(|record| record.steps).map(|step| step.ifname));
        }
        Ok(taken)
    }

    /// The sandboxes of this network that are not valid, all attachments that must stay, and what could not be read.
    fn sort(&self, valid: &[AttachmentId]) -> (Vec<ContainerId>, Vec<AttachmentId>, Vec<CniError>) {
        let (mut gone, mut kept, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let others = self.others().unwrap_or_else(|e| {
            errors.push(e);
            Vec::new()
        });
        for (records, is_own) in [(self.own(), true)].into_iter().chain(others.into_iter().map(|r| (r, false))) {
            for sandbox in records.sandboxes().unwrap_or_else(|e| {
                errors.push(e.into());
                Vec::new()
            }) {
                let is_valid = |record: &Record| valid.iter().any(|v| v.container == sandbox && first(record) == Some(&v.ifname));
                match records.read(&sandbox) {
                    Ok(Some(record)) if !is_own || is_valid(&record) => kept.extend(attachments(record)),
                    Err(e) if !is_own || valid.iter().any(|v| v.container == sandbox) => errors.push(e.into()),
                    _ if is_own => gone.push(sandbox),
                    _ => {}
                }
            }
        }
        (gone, kept, errors)
    }
}

/// The interface that the runtime knows.
fn first(record: &Record) -> Option<&IfName> {
    record.steps.first().map(|step| &step.ifname)
}

fn attachments(record: Record) -> impl Iterator<Item = AttachmentId> {
    let id = move |step: attach::Step| AttachmentId { network: step.list.name, container: record.sandbox.clone(), ifname: step.ifname };
    record.steps.into_iter().map(id)
}

// === impl Pod ===

impl Pod {
    /// As this process was called.
    pub(crate) fn here() -> Self {
        let path = std::env::split_paths(&std::env::var_os("CNI_PATH").unwrap_or_default()).collect();
        let unchecked = std::env::var_os("CNI_NETNS_OVERRIDE").is_some();
        let finder = Finder::new(BUILTINS as Builtins, path, Prefer::Path, std::env::vars_os().collect()).telling(process::tell);
        Pod { finder: finder.remembering(), unchecked }
    }

    /// Whether a sandbox was attached in this way, by this process's own hands: then nobody else knows of it.
    pub(crate) fn has(container: &ContainerId, config: &Config) -> bool {
        let host = Host::here(Dirs::default());
        let kept = SavedPod::of(config, &host).map(|kept| kept.own().read(container));
        !matches!(kept, Ok(Ok(None)) | Err(_))
    }

    fn chain(&self) -> Chain {
        Chain::new(self.finder.clone(), None)
    }

    fn attacher(&self, records: Records) -> Attacher {
        Attacher::new(self.chain(), records)
    }
}

impl Plugin for Pod {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let (conf, kept) = (Conf::read(call.config)?, SavedPod::of(call.config, cx.host)?);
        let plan = conf.plan(&call.id.ifname, &kept.taken(&call.id.container)?)?;
        let (container, args) = (call.id.container.clone(), call.args.clone());
        args.well_formed()?;
        let netns = call.netns()?;
        let opened = (!self.unchecked).then(|| netns.clone());
        let sandbox = Sandbox { id: container.clone(), netns: netns.path().to_owned(), opened, pod: pod(&args), args };
        let attacher = self.attacher(kept.own());
        let record = attacher.add(&sandbox, &plan, cx.host, cx.deadline)?;
        let deadline = cx.deadline;
        cx.teardown.at(Stage::Links, "detach the pod", move |host| Ok(attacher.del(&container, Lost::Planned(&plan), host, deadline)?));
        record.steps.first().and_then(|step| step.result().cloned()).ok_or_else(nothing)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let attacher = self.attacher(SavedPod::of(call.config, cx.host)?.own());
        let (container, ifname, netns) = (&call.id.container, &call.id.ifname, call.netns()?);
        let record = attacher.records().read(container)?.filter(|r| first(r) == Some(ifname) && r.netns_id == netns.id());
        let unknown =
            || CniError::new(Code::UNKNOWN_CONTAINER, format!("container {container} is not attached as {ifname}, in this namespace"));
        let bad = attacher.check(&record.ok_or_else(unknown)?, cx.host, cx.deadline).err().unwrap_or_default();
        CniError::first_of(bad.into_iter().map(CniError::from)).map_or(Ok(()), Err)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let kept = SavedPod::of(call.config, cx.host)?;
        let (attacher, container, deadline) = (self.attacher(kept.own()), call.id.container.clone(), cx.deadline);
        let plan = match attacher.records().read(&container) {
            // Another interface: an ADD of it was refused.
            Ok(Some(record)) if first(&record).is_some_and(|first| *first != call.id.ifname) => return Ok(()),
            // Then it is the configuration that says what may be left.
            Err(RecordError::Lost { .. }) => Conf::read(call.config)?.plan(&call.id.ifname, &kept.taken(&container)?)?,
            // What is wrong with a record is for the DEL to say.
            _ => Plan::default(),
        };
        cx.teardown.at(Stage::Links, "detach the pod", move |host| Ok(attacher.del(&container, Lost::Planned(&plan), host, deadline)?));
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        let conf = Conf::read(config).map_err(unavailable)?;
        SavedPod::of(config, cx.host)?.own().are_writable().map_err(|e| unavailable(e.into()))?;
        let chain = self.chain();
        conf.networks.iter().try_for_each(|list| chain.status(list, cx.host, cx.deadline).map_err(|e| e.within(&list.name)))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let (conf, keeping) = (Conf::read(config)?, SavedPod::of(config, cx.host)?);
        let deadline: Instant = cx.deadline;
        let (gone, mut kept, mut errors) = keeping.sort(valid);
        // Networks of other programs may have the same names.
        let others = held_by_others(&keeping.all);
        kept.extend(others.attachments);
        errors.extend(others.unreadable);
        for sandbox in gone {
            let attacher = self.attacher(keeping.own());
            cx.teardown.at(Stage::Links, format!("detach {sandbox}"), move |host| {
                Ok(attacher.del(&sandbox, Lost::Planned(&Plan::default()), host, deadline)?)
            });
            cx.teardown.next_attachment();
        }
        // What a record says that cannot be read must stay: then no network is asked to free what is nobody's.
        for list in conf.networks.into_iter().filter(|_| errors.is_empty()) {
            let chain = self.chain();
            let kept: Vec<AttachmentId> = kept.iter().filter(|id| plugins::look_alike(&id.network, &list.name)).cloned().collect();
            let all = keeping.all.clone();
            cx.teardown.at(Stage::Files, format!("delete what {} left behind", list.name), move |host| {
                let again = || held_by_others(&all).on(|network| plugins::look_alike(network, &list.name));
                chain.gc_beside(&list, Some(&kept), &again, host, deadline)
            });
            cx.teardown.next_attachment();
        }
        CniError::first_of(errors).map_or(Ok(()), Err)
    }
}

/// What other programs have attached, and networks of ours with records elsewhere than these.
fn held_by_others(records: &Path) -> Others {
    let mut others = Others::default();
    others.add_records(Path::new(AGENT_RECORDS));
    if records != Path::new(RECORDS) {
        others.add_records_below(Path::new(RECORDS));
    }
    others.add_cached(Path::new(RUNTIMES));
    others
}

/// What the agent, and `netloom` without one, have attached on a network of this name, or of one whose links look like its: a runtime that calls
/// a plugin by itself does not know of them. What runtimes themselves have attached on a network of this very name, the caller knows.
///
/// # Errors
/// If it cannot be read: then nobody knows what may be freed.
pub(crate) fn attached_by_others(network: &NetworkName) -> Result<Vec<AttachmentId>, CniError> {
    let mut others = Others::default();
    others.add_records(Path::new(AGENT_RECORDS));
    others.add_records_below(Path::new(RECORDS));
    let mut cached = Others::default();
    cached.add_cached(Path::new(RUNTIMES));
    others.attachments.extend(cached.attachments.into_iter().filter(|id| id.network != *network));
    others.on(|other| plugins::look_alike(other, network))
}

/// What Kubernetes' runtimes tell of a pod.
fn pod(args: &CniArgs) -> PodView {
    let text = |key: &str| args.get(key).map(str::to_owned);
    PodView {
        namespace: text("K8S_POD_NAMESPACE").unwrap_or_default(),
        name: text("K8S_POD_NAME").unwrap_or_default(),
        uid: text("K8S_POD_UID"),
        ..PodView::default()
    }
}

fn nothing() -> CniError {
    CniError::new(Code::INTERNAL, "nothing was attached, and no plugin gave a reason")
}
