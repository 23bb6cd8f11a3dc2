//! The verbs over one network.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, ContainerId, IfName, NetworkList, NetworkName, PluginEntry};
use json::Object;
use linux::{Netns, NetnsError};
use plugin::{Call, Cx, Delegate, Finder, Host, PlannedChange, ResolvedPlugin, Stage, Teardown, collect_beside};

use crate::{Cache, CacheError, Cached};

/// What a runtime says of one attachment.
#[derive(Debug, Clone, PartialEq)]
pub struct Runtime {
    /// The container.
    pub container: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
    /// The container's namespace; on DEL it may be `None`, or gone.
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS`
    pub args: CniArgs,
    /// What plugins get as `runtimeConfig`, each only what its capabilities ask for.
    pub capability_args: Object,
}

/// The namespace of a container that is to be attached: it must be there, and must not be the host's own, that is, the
/// calling thread's.
///
/// # Errors
/// Code 8 with the path and what is wrong with it.
pub fn open_netns(path: &Path) -> Result<Netns, CniError> {
    let bad = |why: String| CniError::new(Code::INVALID_NETNS, why);
    let missing = || bad(format!("failed to open netns {:?}: there is no such file; check that the container is running", path.display()));
    let netns = Netns::open(path).map_err(|e| bad(e.to_string()))?.ok_or_else(missing)?;
    match netns.is_here().map_err(|e| bad(e.to_string()))? {
        true => Err(bad(format!("{:?} is the host's own network namespace: set it to the container's", path.display()))),
        false => Ok(netns),
    }
}

/// Runs networks: finds their plugins and keeps their results.
pub struct Chain {
    pub(crate) finder: Finder,
    cache: Option<Cache>,
}

/// An ADD that failed and was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct AddError {
    /// The error of the plugin that failed, or of what was found wrong before.
    pub error: CniError,
    /// What could not be undone; DEL tries it again.
    pub left: Vec<CniError>,
}

impl From<CniError> for AddError {
    fn from(error: CniError) -> Self {
        AddError { error, left: Vec::new() }
    }
}

impl From<AddError> for CniError {
    /// What could not be undone goes into the details.
    fn from(e: AddError) -> Self {
        e.error.and("could not be undone: ", e.left)
    }
}

/// Looks at what a plugin is about to do, and at its result; it is the one of that number in the list.
pub type CheckResult<'a> = dyn FnMut(usize, PlannedChange<'_>, &mut Host) -> Result<(), CniError> + 'a;

/// A list whose plugins are all there, with their configurations derived.
pub struct Verified {
    network: NetworkName,
    steps: Vec<Step>,
    capability_args: Object,
}

/// One plugin of a list, found, with the configuration derived for this call.
pub(crate) struct Step {
    pub(crate) found: ResolvedPlugin,
    pub(crate) config: Config,
}

// === impl Runtime ===

impl Runtime {
    /// As it was at the ADD.
    pub(crate) fn of(cached: Cached) -> Self {
        Runtime {
            container: cached.id.container,
            ifname: cached.id.ifname,
            netns: (!cached.netns.is_empty()).then(|| cached.netns.into()),
            args: cached.args,
            capability_args: cached.capability_args,
        }
    }

    pub(crate) fn id(&self, list: &NetworkList) -> AttachmentId {
        AttachmentId { network: list.name.clone(), container: self.container.clone(), ifname: self.ifname.clone() }
    }

    /// The namespace for a verb that needs it.
    fn netns(&self) -> Result<Arc<Netns>, CniError> {
        let none = || CniError::new(Code::INVALID_NETNS, "no network namespace was given");
        open_netns(self.netns.as_deref().ok_or_else(none)?).map(Arc::new)
    }

    /// The namespace for DEL, which works without.
    pub(crate) fn netns_if_there(&self) -> Result<Option<Arc<Netns>>, CniError> {
        let Some(path) = &self.netns else { return Ok(None) };
        match Netns::open(path) {
            Ok(netns) => Ok(netns.map(Arc::new)),
            Err(NetnsError::NotANamespace { .. }) => Ok(None),
            Err(e) => Err(CniError::new(Code::INVALID_NETNS, e.to_string())),
        }
    }
}

// === impl Chain ===

impl Chain {
    /// Plugins as `finder` finds them, results in `cache`; without one, the caller keeps results itself and hands
    /// them to [`Chain::check`] and [`Chain::collect_del`].
    pub fn new(finder: Finder, cache: Option<Cache>) -> Self {
        Chain { finder, cache }
    }

    /// Whether every plugin of the list is built in: then DEL needs no previous result.
    pub fn is_builtin(&self, list: &NetworkList) -> bool {
        list.plugins.iter().all(|p| matches!(self.finder.find(&p.kind), Ok(ResolvedPlugin::Builtin(_))))
    }

    /// Attaches: the plugins in order, each given the result of the one before. What a failed ADD made is undone
    /// before this returns: every plugin of the list gets its DEL, in reverse.
    ///
    /// # Errors
    /// [`AddError`] with the error of the plugin that failed, its code unchanged, and what could not be undone.
    pub fn add(&self, list: &NetworkList, runtime: &Runtime, host: &mut Host, by: Instant) -> Result<AddResult, AddError> {
        self.add_checked(list, runtime, host, by, &mut |_, _, _| Ok(()))
    }

    /// The same; `check` looks at what each plugin is about to do, and at its result before the next plugin runs, and ends the ADD with its error.
    ///
    /// # Errors
    /// [`AddError`], as of [`Chain::add`].
    pub fn add_checked(
        &self,
        list: &NetworkList,
        runtime: &Runtime,
        host: &mut Host,
        by: Instant,
        check: &mut CheckResult<'_>,
    ) -> Result<AddResult, AddError> {
        self.add_in(list, runtime, (None, None), host, by, check)
    }

    /// The same with what the caller has already: the namespace, as [`open_netns`] opens it, for several networks of one sandbox; and what
    /// [`Chain::verify`] has found of this list.
    ///
    /// # Errors
    /// [`AddError`], as of [`Chain::add`].
    pub fn add_in(
        &self,
        list: &NetworkList,
        runtime: &Runtime,
        (netns, verified): (Option<&Arc<Netns>>, Option<Verified>),
        host: &mut Host,
        by: Instant,
        check: &mut CheckResult<'_>,
    ) -> Result<AddResult, AddError> {
        // Who does not remember what it has found looks again: since then the call may have waited for another one.
        let is_this = |v: &Verified| self.finder.remembers() && v.network == list.name && v.capability_args == runtime.capability_args;
        let steps = match verified.filter(is_this) {
            Some(verified) => verified.steps,
            None => self.steps(list, &runtime.capability_args)?,
        };
        refuse(&steps, "add")?;
        let netns = netns.map_or_else(|| runtime.netns(), |netns| Ok(netns.clone()))?;
        let id = runtime.id(list);
        self.prepare_cache(&id)?;
        linux::crash_point!("chain-begun");
        let mut made = Vec::with_capacity(steps.len());
        let mut prev = None;
        let added = steps.iter().enumerate().try_for_each(|(at, step)| {
            let mut teardown = Teardown::new();
            let call = Call { id: &id, netns: Some(&netns), config: &step.config, args: &runtime.args, prev: prev.as_ref() };
            let result = {
                let mut review = |foreseen: PlannedChange<'_>, host: &mut Host| check(at, foreseen, host);
                let mut cx = Cx { review: Some(&mut review), ..Cx::new(host, &mut teardown, &self.finder, by) };
                self.add_one(step, &call, &mut cx)
            };
            made.push(teardown);
            let result = prev.insert(result.map_err(|e| failed(step, "add", e))?);
            linux::crash_point!("chain-plugin-added");
            check(at, PlannedChange::Result(result), host)
        });
        let added = added.and_then(|()| {
            let result = prev.clone().unwrap_or_default();
            if let Some(cache) = &self.cache {
                linux::crash_point!("chain-uncached");
                cache.write(&id, list, runtime, &result, &self.made_by(list))?;
                linux::crash_point!("chain-cached");
            }
            Ok(result)
        });
        added.map_err(|error: CniError| {
            let undo = Undo { steps: &steps, id: &id, netns: Some(&netns), runtime, prev: prev.as_ref(), by };
            AddError { error, left: self.roll_back(&undo, made, host) }
        })
    }

    /// A second ADD without a DEL between is refused before any plugin runs: undoing it would undo the first.
    fn prepare_cache(&self, id: &AttachmentId) -> Result<(), CniError> {
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.prepare()?;
        let refuse = |why: String| Err(CniError::new(Code::INVALID_ENVIRONMENT, why));
        if cache.is_anothers(id) {
            return refuse(format!(
                "{} has the cached result of another attachment: choose another network or container name",
                cache.path(id).display()
            ));
        }
        match cache.read(id)?.is_some_and(|c| c.result.is_some()) {
            true => {
                refuse(format!("{} of container {} is attached to network {} already: DEL it first", id.ifname, id.container, id.network))
            }
            false => Ok(()),
        }
    }

    /// In reverse: what a built-in plugin had made goes, and no more than that; an external one gets its DEL, also if it
    /// was not reached (SPEC 2, "ADD").
    fn roll_back(&self, undo: &Undo<'_>, made: Vec<Teardown>, host: &mut Host) -> Vec<CniError> {
        linux::crash_point!("roll-back-begun");
        let mut errors = Vec::new();
        let mut made: Vec<Option<Teardown>> = made.into_iter().map(Some).collect();
        made.resize_with(undo.steps.len(), || None);
        for (step, teardown) in undo.steps.iter().zip(made).rev() {
            if let Some(mut teardown) = teardown {
                errors.extend(teardown.commit(host).err().unwrap_or_default());
                linux::crash_point!("roll-back-undone");
            }
            if let ResolvedPlugin::External(path) = &step.found {
                let call = undo.call(step);
                let by = undo.by.max(Instant::now() + UNDO);
                // One that does not know this version has made nothing.
                let left = self.finder.call_external(path, "DEL", &call, by).err().filter(|e| e.code != Code::INCOMPATIBLE_VERSION);
                errors.extend(left.map(|e| failed(step, "delete", e)));
            }
        }
        errors
    }

    fn add_one(&self, step: &Step, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        match &step.found {
            ResolvedPlugin::Builtin(plugin) => plugin.add(call, cx),
            ResolvedPlugin::External(path) => {
                let stdout = self.finder.call_external(path, "ADD", call, cx.deadline)?;
                Ok(AddResult::parse(&stdout, call.config.version)?.0)
            }
        }
    }

    /// Detaches. Works without the namespace, and without a cached result as well as it can; tries everything.
    ///
    /// # Errors
    /// The first failure, with the others in its details; the cached result is then kept, and DEL can be repeated.
    pub fn del(&self, list: &NetworkList, runtime: &Runtime, host: &mut Host, by: Instant) -> Result<(), CniError> {
        let mut teardown = Teardown::new();
        let mut errors = self.collect_del(list, runtime, None, host, &mut teardown, by);
        linux::crash_point!("chain-del-collected");
        errors.extend(teardown.commit(host).err().unwrap_or_default());
        CniError::first_of(errors).map_or(Ok(()), Err)
    }

    /// The part of [`Chain::del`] before the commit, for a caller that commits several attachments at once: fills
    /// `teardown`, the cached result's removal included. A result that the caller kept itself takes the place of the
    /// cached one.
    pub fn collect_del(
        &self,
        list: &NetworkList,
        runtime: &Runtime,
        result: Option<&AddResult>,
        host: &mut Host,
        teardown: &mut Teardown,
        by: Instant,
    ) -> Vec<CniError> {
        let id = runtime.id(list);
        let mut errors = Vec::new();
        // Without it DEL does what it can; that the file cannot be read is told when it cannot be removed.
        let cached = self.cached(&id).unwrap_or_default().filter(|_| result.is_none());
        let prev = result.or(cached.as_ref()).filter(|_| list.version.has_check());
        let netns = match runtime.netns_if_there() {
            Ok(netns) => netns,
            Err(e) => return vec![e],
        };
        // A plugin that cannot be found holds up no other one.
        let mut steps = Vec::with_capacity(list.plugins.len());
        for plugin in &list.plugins {
            match self.step(list, plugin, &runtime.capability_args) {
                Ok(step) => steps.push(step),
                Err(e) => errors.push(e.within(format!("plugin type={:?} failed (delete)", plugin.kind.as_str()))),
            }
        }
        let undo = Undo { steps: &steps, id: &id, netns: netns.as_ref(), runtime, prev, by };
        self.del_steps(&undo, host, teardown, &mut errors);
        if let Some(cache) = self.cache.as_ref().filter(|_| errors.is_empty()) {
            let (cache, id) = (cache.clone(), id.clone());
            teardown.at(Stage::Files, "remove the cached result", move |_| Ok(cache.remove(&id)?));
        }
        errors
    }

    /// Every plugin in reverse. Built-in ones collect; before an external one runs, what was collected commits.
    fn del_steps(&self, undo: &Undo<'_>, host: &mut Host, teardown: &mut Teardown, errors: &mut Vec<CniError>) {
        for step in undo.steps.iter().rev() {
            let call = undo.call(step);
            let done = match &step.found {
                ResolvedPlugin::Builtin(plugin) => plugin.del(&call, &mut Cx::new(host, teardown, &self.finder, undo.by)),
                ResolvedPlugin::External(path) => {
                    errors.extend(teardown.commit(host).err().unwrap_or_default());
                    linux::crash_point!("chain-del-committed");
                    self.finder.call_external(path, "DEL", &call, undo.by).map(drop)
                }
            };
            errors.extend(done.err().map(|e| failed(step, "delete", e)));
        }
    }

    /// Whether the attachment is still as its ADD left it (SPEC 3, CHECK).
    ///
    /// # Errors
    /// The first plugin that finds a difference; code 1 for a version without CHECK.
    pub fn check(
        &self,
        list: &NetworkList,
        runtime: &Runtime,
        result: Option<&AddResult>,
        host: &mut Host,
        by: Instant,
    ) -> Result<(), CniError> {
        if !list.version.has_check() {
            let msg = format!("configuration version {:?} does not support the CHECK command", list.version.as_str());
            return Err(CniError::new(Code::INCOMPATIBLE_VERSION, msg));
        }
        if list.disable_check {
            return Ok(());
        }
        let steps = self.steps(list, &runtime.capability_args)?;
        refuse(&steps, "check")?;
        let netns = runtime.netns()?;
        let id = runtime.id(list);
        let cached = if result.is_none() { self.cached(&id)? } else { None };
        let prev = result.or(cached.as_ref());
        let mut teardown = Teardown::new();
        for step in &steps {
            let call = Call { id: &id, netns: Some(&netns), config: &step.config, args: &runtime.args, prev };
            let done = match &step.found {
                ResolvedPlugin::Builtin(plugin) => plugin.check(&call, &mut Cx::new(host, &mut teardown, &self.finder, by)),
                ResolvedPlugin::External(path) => self.finder.call_external(path, "CHECK", &call, by).map(drop),
            };
            done.map_err(|e| failed(step, "check", e))?;
        }
        Ok(())
    }

    /// Whether ADD could be served now; versions before 1.1.0 cannot be asked.
    ///
    /// # Errors
    /// The first plugin's error, unchanged.
    pub fn status(&self, list: &NetworkList, host: &mut Host, by: Instant) -> Result<(), CniError> {
        if !list.version.has_gc_and_status() {
            return Ok(());
        }
        let mut teardown = Teardown::new();
        let steps = self.steps(list, &Object::new()).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        for step in steps {
            let kind = step.kind()?;
            self.finder.status(kind, &step.config, &mut Cx::new(host, &mut teardown, &self.finder, by))?;
        }
        Ok(())
    }

    /// Deletes every cached attachment of the network that is not in `valid`, then lets each plugin free what else
    /// belongs to none of them. Goes on after failures. Who does not know what is valid beyond the cache gives `None`:
    /// then the cached attachments go, and no plugin is asked, because what other runtimes hold must stay.
    ///
    /// # Errors
    /// The first failure, with the others in its details.
    pub fn gc(&self, list: &NetworkList, valid: Option<&[AttachmentId]>, host: &mut Host, by: Instant) -> Result<(), CniError> {
        self.gc_beside(list, valid, &|| Ok(Vec::new()), host, by)
    }

    /// The same beside other programs, of whose attachments `valid` has those that they have had so far: `others` is asked again before anything
    /// of the plugins goes.
    ///
    /// # Errors
    /// As of [`Chain::gc`], and those of [`collect_beside`].
    pub fn gc_beside(
        &self,
        list: &NetworkList,
        valid: Option<&[AttachmentId]>,
        others: &dyn Fn() -> Result<Vec<AttachmentId>, CniError>,
        host: &mut Host,
        by: Instant,
    ) -> Result<(), CniError> {
        if list.disable_gc {
            return Ok(());
        }
        let (cached, unreadable) = self.cache.as_ref().map(|cache| cache.of_network(&list.name)).unwrap_or_default();
        let mut errors: Vec<CniError> = unreadable.into_iter().map(CniError::from).collect();
        for cached in cached.into_iter().filter(|c| !valid.is_some_and(|valid| valid.contains(&c.id))) {
            let id = cached.id.clone();
            errors.extend(self.del(list, &Runtime::of(cached), host, by).err().map(|e| e.within(format!("DEL of {id}"))));
            linux::crash_point!("chain-gc-deleted");
        }
        if let Some(valid) = valid.filter(|_| list.version.has_gc_and_status()) {
            let all = || others().map(|more| [valid, more.as_slice()].concat());
            let collected = collect_beside(valid.to_vec(), all, |valid, teardown| self.collect_gc(list, valid, host, teardown, by));
            match collected {
                Ok((failed, mut teardown)) => errors.extend(failed.into_iter().chain(teardown.commit(host).err().unwrap_or_default())),
                Err(e) => errors.push(e),
            }
        }
        CniError::first_of(errors).map_or(Ok(()), Err)
    }

    fn collect_gc(
        &self,
        list: &NetworkList,
        valid: &[AttachmentId],
        host: &mut Host,
        teardown: &mut Teardown,
        by: Instant,
    ) -> Vec<CniError> {
        let mut errors = Vec::new();
        for plugin in &list.plugins {
            let mut cx = Cx::new(host, teardown, &self.finder, by);
            let done = self.step(list, plugin, &Object::new()).and_then(|step| self.finder.gc(&plugin.kind, &step.config, valid, &mut cx));
            errors.extend(done.err().map(|e| e.within(format!("plugin type={:?} failed (gc)", plugin.kind.as_str()))));
            teardown.next_attachment();
        }
        errors
    }

    /// The versions that each plugin of the list supports, in order.
    ///
    /// # Errors
    /// The first plugin that cannot be found or does not answer.
    pub fn versions(&self, list: &NetworkList, by: Instant) -> Result<Vec<(String, Vec<String>)>, CniError> {
        let one = |p: &PluginEntry| Ok((p.kind.to_string(), self.finder.versions(&p.kind, by)?));
        list.plugins.iter().map(one).collect()
    }

    /// Whether every plugin of the list, IPAM plugins included, can be found, and every configuration derived: what
    /// can be known before the first change.
    ///
    /// # Errors
    /// What is wrong with the first that cannot.
    pub fn verify(&self, list: &NetworkList, capability_args: &Object) -> Result<Verified, CniError> {
        let steps = self.steps(list, capability_args)?;
        for step in &steps {
            if let Some(ipam) = step.config.ipam()? {
                self.finder.find(&ipam).map_err(|e| e.within("ipam.type"))?;
            }
        }
        Ok(Verified { network: list.name.clone(), steps, capability_args: capability_args.clone() })
    }

    fn cached(&self, id: &AttachmentId) -> Result<Option<AddResult>, CacheError> {
        let cached = self.cache.as_ref().map(|cache| cache.read(id)).transpose()?;
        Ok(cached.flatten().and_then(|c| c.result))
    }

    /// Everything that can be known to be wrong is known before the first plugin runs.
    fn steps(&self, list: &NetworkList, capability_args: &Object) -> Result<Vec<Step>, CniError> {
        list.plugins.iter().map(|p| self.step(list, p, capability_args)).collect()
    }

    pub(crate) fn step(&self, list: &NetworkList, plugin: &PluginEntry, capability_args: &Object) -> Result<Step, CniError> {
        let found = self.finder.find(&plugin.kind)?;
        Ok(Step { found, config: list.derive(plugin, capability_args)? })
    }
}

/// What DEL, or the roll-back of ADD, is about.
struct Undo<'a> {
    steps: &'a [Step],
    id: &'a AttachmentId,
    netns: Option<&'a Arc<Netns>>,
    runtime: &'a Runtime,
    prev: Option<&'a AddResult>,
    by: Instant,
}

impl Undo<'_> {
    fn call<'a>(&'a self, step: &'a Step) -> Call<'a> {
        Call { id: self.id, netns: self.netns, config: &step.config, args: &self.runtime.args, prev: self.prev }
    }
}

/// The time that a roll-back has, whatever the ADD that failed had left.
pub const UNDO: Duration = Duration::from_secs(30);

impl Step {
    fn kind(&self) -> Result<&cni::PluginType, CniError> {
        self.config.kind.as_ref().ok_or_else(|| CniError::from(cni::NameError::NoPluginType))
    }
}

/// What built-in plugins know to be wrong before the container is looked at.
fn refuse(steps: &[Step], verb: &str) -> Result<(), CniError> {
    steps.iter().try_for_each(|step| match &step.found {
        ResolvedPlugin::Builtin(plugin) => plugin.refuse(&step.config).map_err(|e| failed(step, verb, e)),
        ResolvedPlugin::External(_) => Ok(()),
    })
}

/// Says which plugin of the list it was, in the reference library's words.
pub(crate) fn failed(step: &Step, verb: &str, e: CniError) -> CniError {
    let kind = step.config.kind.as_ref().map(cni::PluginType::as_str).unwrap_or_default();
    e.within(format!("plugin type={kind:?} failed ({verb})"))
}
