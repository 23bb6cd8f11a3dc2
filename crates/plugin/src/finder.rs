//! From a plugin's type to the plugin: compiled in, or an executable on `CNI_PATH`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, Config, PluginType, Version};
use serde::Deserialize;

use crate::external::{self, Environment, Exec, Here};
use crate::process;
use crate::{Call, Conflict, Cx, Delegate, Plugin, PluginMessage, Restore, Stage};

/// The plugins that are compiled in.
pub type Builtins = &'static [&'static dyn Plugin];

/// Which one is taken where a type is both compiled in and on `CNI_PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// The one that is compiled in: no process is started for it.
    Builtin,
    /// The executable, unless it is this program under another name: who puts another program there means it.
    Path,
    /// As a runtime with `netloom-cni` under plugins' names has it: the executable, unless it is a link to that.
    Runtime,
}

/// A plugin that was found.
#[derive(Clone)]
pub enum ResolvedPlugin {
    /// Compiled in.
    Builtin(&'static dyn Plugin),
    /// An executable.
    External(PathBuf),
}

/// Finds plugins, and calls external ones.
#[derive(Clone)]
pub struct Finder {
    builtins: Builtins,
    path: Vec<PathBuf>,
    prefer: Prefer,
    env: Environment,
    exec: Arc<dyn Exec>,
    tell: fn(PluginMessage<'_>),
    /// Whether this program is a plugin under the names by which a runtime calls it.
    may_be_itself: bool,
    /// What was found on the path.
    seen: Option<Arc<Mutex<Seen>>>,
}

/// The file of each type that was looked for.
type Seen = BTreeMap<String, Option<(PathBuf, Metadata)>>;

/// Names under which this program is called by a runtime for a whole pod. As a plugin of a network it would start all over.
pub const ITSELF: &[&str] = &["netloom", "netloom-cni", "multus", "multus-shim"];

// === impl Finder ===

impl Finder {
    /// Searches `path` (the directories of `CNI_PATH`) and the built-in plugins; executables get `env` and, over it,
    /// the variables of the call. Nothing is ever looked for in a directory without a name, and a relative one is taken
    /// from where this process is now.
    pub fn new(builtins: Builtins, path: Vec<PathBuf>, prefer: Prefer, env: Environment) -> Self {
        let path = path.into_iter().filter(|dir| !dir.as_os_str().is_empty()).filter_map(|dir| std::path::absolute(dir).ok()).collect();
        Finder { builtins, path, prefer, env, exec: Arc::new(Here), tell: |_| {}, may_be_itself: true, seen: None }
    }

    /// Runs executables elsewhere.
    pub fn with_exec(self, exec: Arc<dyn Exec>) -> Self {
        Finder { exec, ..self }
    }

    /// Hears what plugins say that succeed; without it nobody does.
    pub fn telling(self, tell: fn(PluginMessage<'_>)) -> Self {
        Finder { tell, ..self }
    }

    /// Refuses this program as a plugin of a network, under whichever name it lies on the path: what an agent attaches pods with.
    pub fn without_itself(self) -> Self {
        Finder { may_be_itself: false, ..self }
    }

    /// Looks for each plugin once: for a finder that lives as long as one call, whose plugins are then the same from its beginning to its
    /// end.
    pub fn remembering(self) -> Self {
        Finder { seen: Some(Arc::default()), ..self }
    }

    /// Whether it looks for each plugin once.
    pub fn remembers(&self) -> bool {
        self.seen.is_some()
    }

    /// The directories that are searched.
    pub fn path(&self) -> &[PathBuf] {
        &self.path
    }

    /// Finds a plugin by its type.
    ///
    /// # Errors
    /// Code 7 that says where it was looked for.
    pub fn find(&self, kind: &PluginType) -> Result<ResolvedPlugin, CniError> {
        let builtin = self.builtin(kind).map(ResolvedPlugin::Builtin);
        if self.prefer == Prefer::Builtin
            && let Some(found) = builtin
        {
            return Ok(found);
        }
        match (self.on_path(kind), builtin) {
            (Some((_, file)), Some(builtin)) if is_this_program(&file) => Ok(builtin),
            (Some((path, _)), Some(builtin)) if self.prefer == Prefer::Runtime && is_ours(&path) => Ok(builtin),
            (Some((path, _)), None) if !self.may_be_itself && is_itself(kind, &path) => Err(itself(kind, &path)),
            (Some((path, _)), _) => Ok(ResolvedPlugin::External(path)),
            (None, Some(builtin)) => Ok(builtin),
            (None, None) => Err(self.not_found(kind)),
        }
    }

    /// The plugin of that type that is compiled in, whatever is on the path.
    pub fn builtin(&self, kind: &PluginType) -> Option<&'static dyn Plugin> {
        self.builtins.iter().find(|p| p.about().name == kind.as_str()).copied()
    }

    /// Whether an executable is `netloom-cni` under the name of a plugin: what it makes is made as by one that is compiled in.
    pub fn is_ours(&self, kind: &PluginType, path: &Path) -> bool {
        self.builtin(kind).is_some() && is_ours(path)
    }

    /// Whether no program of a built-in plugin's name is where a runtime looks for plugins: which one made something is not known then.
    pub fn is_missing(&self, kind: &PluginType) -> bool {
        self.prefer == Prefer::Runtime && self.on_path(kind).is_none()
    }

    /// Whether a plugin is named in `ipam.type` that gives no addresses. It would get the configuration of the plugin that asks, look for
    /// the plugin in `ipam.type`, which is itself, and so on without end.
    fn is_no_ipam(&self, kind: &PluginType, config: &Config) -> bool {
        let is_other = self.builtins.iter().map(|plugin| plugin.about()).any(|own| own.name == kind.as_str() && !own.gives_addresses());
        is_other && config.ipam().is_ok_and(|ipam| ipam.as_ref() == Some(kind))
    }

    /// The plugin that another one asks with a configuration.
    fn find_asked(&self, kind: &PluginType, config: &Config) -> Result<ResolvedPlugin, CniError> {
        if self.is_no_ipam(kind, config) {
            let ipams: Vec<&str> = self.builtins.iter().map(|p| p.about()).filter(|p| p.gives_addresses()).map(|p| p.name).collect();
            let msg = format!("{:?} is not an IPAM plugin; built in are {}", kind.as_str(), ipams.join(", "));
            return Err(CniError::invalid("ipam.type", msg));
        }
        self.find(kind)
    }

    /// The first regular file of that name; whether it can be executed shows when it is (as the reference library).
    fn on_path(&self, kind: &PluginType) -> Option<(PathBuf, Metadata)> {
        let file = |path: PathBuf| path.metadata().ok().filter(Metadata::is_file).map(|file| (path, file));
        let look = || self.path.iter().find_map(|dir| file(dir.join(kind.as_str())));
        let Some(seen) = &self.seen else { return look() };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(kind.as_str()) {
            Some(known) => known.clone(),
            None => seen.entry(kind.as_str().to_owned()).or_insert_with(look).clone(),
        }
    }

    fn not_found(&self, kind: &PluginType) -> CniError {
        let dirs: Vec<String> = self.path.iter().map(|p| p.display().to_string()).collect();
        let near = cni::nearest(kind.as_str(), self.builtins.iter().map(|p| p.about().name));
        let near = near.map(|near| format!(": did you mean {near:?}?")).unwrap_or_default();
        // As the reference library begins.
        let msg = format!("failed to find plugin {:?} in path [{}]{near}", kind.as_str(), dirs.join(" "));
        let next = "check the \"type\", or put the executable into a directory of CNI_PATH; `netloom plugins` lists the built-in plugins";
        CniError::new(Code::INVALID_CONFIG, msg).with_details(next)
    }

    /// The versions that a plugin supports, asked with VERSION where it is external.
    ///
    /// # Errors
    /// Not found, or its own error.
    pub fn versions(&self, kind: &PluginType, by: Instant) -> Result<Vec<String>, CniError> {
        let path = match self.find(kind)? {
            ResolvedPlugin::Builtin(plugin) => return Ok(plugin.about().versions.iter().map(ToString::to_string).collect()),
            ResolvedPlugin::External(path) => path,
        };
        let vars: Vars = vec![
            ("CNI_COMMAND", "VERSION".into()),
            ("CNI_CONTAINERID", "dummy".into()),
            ("CNI_NETNS", "dummy".into()),
            ("CNI_IFNAME", "dummy".into()),
            ("CNI_PATH", self.path_variable()),
        ];
        let stdin = format!("{{\"cniVersion\":\"{}\"}}", Version::LATEST);
        let out = self.exec.exec(&path, &self.environment(vars), stdin.as_bytes(), by)?;
        if !out.success {
            let e = external::failure(&path, &out);
            return if e.msg == "unknown CNI_COMMAND: VERSION" { Ok(vec![Version::V0_1_0.to_string()]) } else { Err(e) };
        }
        supported(&out.stdout).map_err(|e| e.within(format!("{}: VERSION", path.display())))
    }

    /// Calls an executable with ADD, CHECK or DEL.
    ///
    /// # Errors
    /// Its own CNI error, or why it could not be run.
    pub fn call_external(&self, path: &Path, verb: &'static str, call: &Call<'_>, by: Instant) -> Result<Vec<u8>, CniError> {
        self.prepare(path, verb, call)?.run(by)
    }

    /// Everything that an executable needs for a verb, ready to be run later.
    ///
    /// # Errors
    /// If the previous result cannot be expressed in the configuration's version.
    pub fn prepare(&self, path: &Path, verb: &'static str, call: &Call<'_>) -> Result<Prepared, CniError> {
        let netns = call.netns.map(|ns| ns.path().as_os_str().to_owned()).unwrap_or_default();
        let vars: Vars = vec![
            ("CNI_COMMAND", verb.into()),
            ("CNI_CONTAINERID", call.id.container.as_str().into()),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", call.id.ifname.as_str().into()),
            ("CNI_ARGS", call.args.to_string().into()),
            ("CNI_PATH", self.path_variable()),
        ];
        Ok(self.prepared(path, vars, call.config.print(call.prev)?))
    }

    /// Calls an executable with STATUS or GC.
    ///
    /// # Errors
    /// Its own CNI error, or why it could not be run.
    pub fn call_external_network(&self, path: &Path, verb: &'static str, config: &Config, by: Instant) -> Result<(), CniError> {
        self.prepare_network(path, verb, config)?.run(by).map(drop)
    }

    fn prepare_network(&self, path: &Path, verb: &'static str, config: &Config) -> Result<Prepared, CniError> {
        let vars: Vars = vec![("CNI_COMMAND", verb.into()), ("CNI_PATH", self.path_variable())];
        Ok(self.prepared(path, vars, config.print(None)?))
    }

    fn prepared(&self, path: &Path, vars: Vars, stdin: String) -> Prepared {
        let (exec, tell) = (self.exec.clone(), self.tell);
        Prepared { path: path.to_owned(), env: self.environment(vars), stdin: stdin.into_bytes(), exec, tell }
    }

    fn path_variable(&self) -> OsString {
        std::env::join_paths(&self.path).unwrap_or_default()
    }

    fn environment(&self, vars: Vars) -> Environment {
        let mut env: Environment = self.env.iter().filter(|(k, _)| !CALL.iter().any(|c| k == c)).cloned().collect();
        env.extend(vars.into_iter().map(|(k, v)| (k.into(), v)));
        env
    }
}

/// What VERSION answered. The verb came with 0.2.0, whose own answer need not list versions.
fn supported(answer: &[u8]) -> Result<Vec<String>, CniError> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Answer {
        cni_version: String,
        supported_versions: Vec<String>,
    }
    let missing = |key: &str| CniError::new(Code::DECODE, format!("the answer has no {key:?}: check that it is a CNI plugin"));
    let Answer { cni_version, supported_versions } = json::read(&json::parse(answer)?)?;
    match (cni_version.as_str(), supported_versions.is_empty()) {
        ("", _) => Err(missing("cniVersion")),
        ("0.2.0", true) => Ok(vec![Version::V0_1_0.to_string(), Version::V0_2_0.to_string()]),
        (_, true) => Err(missing("supportedVersions")),
        _ => Ok(supported_versions),
    }
}

/// The variables of a call, which are never inherited.
const CALL: [&str; 6] = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"];

type Vars = Vec<(&'static str, OsString)>;

/// An executable's call, ready to be run: it outlives the call that it was made from.
pub struct Prepared {
    path: PathBuf,
    env: Environment,
    stdin: Vec<u8>,
    exec: Arc<dyn Exec>,
    tell: fn(PluginMessage<'_>),
}

// === impl Prepared ===

impl Prepared {
    /// Runs it and returns what it printed.
    ///
    /// # Errors
    /// Its own CNI error, or why it could not be run.
    pub fn run(&self, by: Instant) -> Result<Vec<u8>, CniError> {
        linux::crash_point!("exec-unstarted");
        let mut env = self.env.clone();
        env.retain(|(name, _)| name != process::MILLIS);
        env.push((process::MILLIS.into(), process::millis(by).into()));
        let out = self.exec.exec(&self.path, &env, &self.stdin, by)?;
        linux::crash_point!("exec-ended");
        if !out.success {
            return Err(external::failure(&self.path, &out));
        }
        if !out.stderr.is_empty() {
            (self.tell)(PluginMessage::Stderr(&out.stderr));
        }
        Ok(out.stdout)
    }
}

/// The time that an undo has, whatever the call that failed had left.
const UNDO: Duration = Duration::from_secs(30);

impl Delegate for Finder {
    fn tell(&self, said: PluginMessage<'_>) {
        (self.tell)(said);
    }

    fn waits(&self, begins: bool) {
        self.exec.waits(begins);
    }

    fn is_waited_for(&self) -> bool {
        self.exec.is_waited_for()
    }

    fn needs_link(&self, kind: &PluginType) -> Result<bool, CniError> {
        Ok(match self.find(kind).map_err(|e| e.within("ipam.type"))? {
            ResolvedPlugin::Builtin(plugin) => plugin.about().needs_link,
            ResolvedPlugin::External(_) => true,
        })
    }

    fn add(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let path = match self.find_asked(kind, call.config)? {
            ResolvedPlugin::Builtin(plugin) => return plugin.add(call, cx),
            ResolvedPlugin::External(path) => path,
        };
        // Noted before it runs: an ADD that failed half-way, or was killed, still gets its DEL.
        let undo = self.prepare(&path, "DEL", call)?;
        cx.teardown.at(Stage::Leases, format!("DEL of {kind}"), move |_| undo.run(Instant::now() + UNDO).map(drop));
        let stdout = self.call_external(&path, "ADD", call, cx.deadline)?;
        let (result, _) = AddResult::parse(&stdout, call.config.version).map_err(|e| CniError::from(e).within(kind))?;
        Ok(result)
    }

    fn conflict(&self, kind: &PluginType, call: &Call<'_>, conflict: &Conflict, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        match self.find_asked(kind, call.config)? {
            ResolvedPlugin::Builtin(plugin) => plugin.conflict(call, conflict, cx),
            ResolvedPlugin::External(_) => Err(conflict.of_a_plugin(kind.as_str())),
        }
    }

    fn check(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.find_asked(kind, call.config)? {
            ResolvedPlugin::Builtin(plugin) => plugin.check(call, cx),
            ResolvedPlugin::External(path) => self.call_external(&path, "CHECK", call, cx.deadline).map(drop),
        }
    }

    fn del(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.find(kind)? {
            // Its ADD was refused, and has left nothing.
            _ if self.is_no_ipam(kind, call.config) => Ok(()),
            ResolvedPlugin::Builtin(plugin) => plugin.del(call, cx),
            ResolvedPlugin::External(path) => {
                let (del, by) = (self.prepare(&path, "DEL", call)?, cx.deadline);
                cx.teardown.at(Stage::Leases, format!("DEL of {kind}"), move |_| del.run(by).map(drop));
                Ok(())
            }
        }
    }

    fn status(&self, kind: &PluginType, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.find_asked(kind, config).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })? {
            ResolvedPlugin::Builtin(plugin) => plugin.status(config, cx),
            ResolvedPlugin::External(path) => self.call_external_network(&path, "STATUS", config, cx.deadline),
        }
    }

    fn gc(&self, kind: &PluginType, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.find(kind)? {
            _ if self.is_no_ipam(kind, config) => Ok(()),
            ResolvedPlugin::Builtin(plugin) => plugin.gc(config, valid, cx),
            ResolvedPlugin::External(path) => {
                let (gc, by) = (self.prepare_network(&path, "GC", &config.with_valid(valid))?, cx.deadline);
                cx.teardown.at(Stage::Leases, format!("GC of {kind}"), move |_| gc.run(by).map(drop));
                Ok(())
            }
        }
    }

    fn restore(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        match self.find(kind)? {
            _ if self.is_no_ipam(kind, call.config) => Ok(()),
            ResolvedPlugin::Builtin(plugin) => plugin.restore(call, cx, into),
            ResolvedPlugin::External(_) => Ok(()),
        }
    }
}

/// Whether a file is this very program: every plugin's name in a directory may be a link to it.
fn is_this_program(file: &Metadata) -> bool {
    static OWN: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let id = |file: &Metadata| (file.dev(), file.ino());
    let own = OWN.get_or_init(|| std::fs::metadata("/proc/self/exe").ok().as_ref().map(id));
    *own == Some(id(file))
}

/// Whether an executable of a name that no built-in plugin has is this program.
fn is_itself(kind: &PluginType, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().is_some_and(|name| ITSELF.iter().any(|own| name == *own));
    ITSELF.contains(&kind.as_str()) || is_ours(path) || path.canonicalize().is_ok_and(|path| name(&path))
}

fn itself(kind: &PluginType, path: &Path) -> CniError {
    let msg = format!("the plugin {:?} ({}) is Netloom itself, which cannot be a network's plugin", kind.as_str(), path.display());
    CniError::new(Code::INVALID_CONFIG, msg).with_details("select several networks in the pod's annotation instead")
}

/// Whether a plugin on the path is `netloom-cni` under that name.
fn is_ours(path: &Path) -> bool {
    let id = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let ours = path.with_file_name("netloom-cni");
    path.canonicalize().is_ok_and(|path| path.file_name() == ours.file_name()) || id(path).is_some_and(|file| Some(file) == id(&ours))
}

impl std::fmt::Debug for ResolvedPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResolvedPlugin::Builtin(plugin) => write!(f, "built-in {}", plugin.about().name),
            ResolvedPlugin::External(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_runs_itself_under_no_name() {
        let dir = std::env::temp_dir().join(format!("netloom-finder-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for name in ["netloom", "netloom-cni", "multus", "theirs"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("netloom-cni", dir.join("linked")).unwrap();
        std::fs::hard_link(dir.join("netloom-cni"), dir.join("same")).unwrap();
        let runtime = Finder::new(&[], vec![dir.clone()], Prefer::Path, Vec::new());
        let agent = runtime.clone().without_itself();
        for name in ["netloom", "netloom-cni", "multus", "linked", "same"] {
            let kind: PluginType = name.parse().unwrap();
            assert!(matches!(runtime.find(&kind), Ok(ResolvedPlugin::External(_))), "{name}");
            let e = agent.find(&kind).unwrap_err();
            assert!(e.code == Code::INVALID_CONFIG && e.msg.contains("is Netloom itself"), "{name}: {e}");
        }
        assert!(matches!(agent.find(&"theirs".parse().unwrap()), Ok(ResolvedPlugin::External(_))));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
