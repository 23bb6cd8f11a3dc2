//! A plugin as an executable: environment and standard input become a [`Call`], its answer is printed (SPEC 2 and 4).
//!
//! ```text
//!   CNI_COMMAND ... --Env--> check --> Config (stdin) --> verb --> stdout: result or error object; exit code 0 or 1
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, ConfigError, ContainerId, IfName, NetworkName, Version};
use json::Object;
use linux::file::LockWait;
use linux::{Netns, NetnsError};

use crate::external::internal;
use crate::finder::{Builtins, Finder, Prefer};
use crate::{Call, Cx, Dirs, Environment, Host, Plugin, PluginMessage, Teardown, collect_beside};

/// The time that one call has. The specification knows no limit, and no runtime waits longer than this.
const PATIENCE: Duration = Duration::from_secs(180);

/// Says on standard error every ten seconds which lock is waited for, and who has it: for [`linux::file::ask_while_waiting`].
pub fn tell_of_lock(wait: &LockWait) -> bool {
    let seconds = wait.waited.as_secs();
    if seconds > 0 && seconds.is_multiple_of(10) {
        let holder = wait.holder().map_or("a process that is not visible from here".to_owned(), |holder| holder.to_string());
        // Who has closed it does not want to hear.
        let _ = writeln!(std::io::stderr(), "has waited {seconds} s for {}, which is locked by {holder}", wait.path.display());
    }
    true
}

/// Passes on to standard error what plugins say that succeed: for [`Finder::telling`].
pub fn tell(said: PluginMessage<'_>) {
    let mut stderr = std::io::stderr().lock();
    // Who has closed it does not want to hear.
    let _ = match said {
        PluginMessage::Stderr(bytes) => stderr.write_all(bytes),
        PluginMessage::Warning(text) => writeln!(stderr, "warning: {text}"),
    };
}

/// The variable that tells an executable of ours how much of that time it has, in milliseconds: it then says itself what it waits
/// for, and undoes what it did, before it is killed. Other executables do not know it.
pub(crate) const MILLIS: &str = "NETLOOM_MILLIS";

/// The value of [`MILLIS`] for who is killed at a moment: a quarter of the time, at the most two seconds, is for its last words.
pub(crate) fn millis(by: Instant) -> String {
    let left = by.saturating_duration_since(Instant::now());
    (left - (left / 4).min(Duration::from_secs(2))).as_millis().to_string()
}

/// The variables of a call, as they came.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// `CNI_COMMAND`
    pub command: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_NETNS`
    pub netns: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_ARGS`
    pub args: String,
    /// `CNI_PATH`
    pub path: OsString,
    /// `CNI_NETNS_OVERRIDE`: the container may share the host's namespace.
    pub netns_override: bool,
    /// How long the call may take: [`None`] where nobody says.
    pub patience: Option<Duration>,
    /// Everything, for executables that are started on the way.
    pub all: Environment,
    /// Who says what others have attached on a network.
    pub others: Option<AttachedByOthers>,
}

/// Says what others than the runtime have attached on a network, of which nothing is freed.
pub type AttachedByOthers = fn(&NetworkName) -> Result<Vec<AttachmentId>, CniError>;

/// The whole of an executable that is one plugin: reads, calls, prints.
///
/// Delegates are looked for on `CNI_PATH` first and among `builtins` where it has none.
pub fn main(plugin: &dyn Plugin, builtins: Builtins) -> ExitCode {
    ExitCode::from(main_beside(plugin, builtins, None))
}

/// The same beside others, whose attachments its GC does not know; returns the exit code.
pub fn main_beside(plugin: &dyn Plugin, builtins: Builtins, others: Option<AttachedByOthers>) -> u8 {
    let env = Env { others, ..Env::of_this_process() };
    if env.command.is_empty() {
        eprint!("{}", about(plugin));
        return 0;
    }
    run(plugin, builtins, &env, &mut std::io::stdin(), &mut stdout())
}

/// Standard output. The standard library's own writes what follows the last newline by a second call, and the runtime wakes up twice.
pub fn stdout() -> Box<dyn Write> {
    match std::io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => Box::new(File::from(stdout)),
        Err(_) => Box::new(std::io::stdout()),
    }
}

/// [`main`] with its surroundings given: returns the exit code.
pub fn run(plugin: &dyn Plugin, builtins: Builtins, env: &Env, stdin: &mut dyn Read, stdout: &mut dyn Write) -> u8 {
    if env.command == "VERSION" {
        return answer(stdout, version(plugin) + "\n", 0);
    }
    match input(stdin) {
        Ok(bytes) => run_named(plugin, builtins, env, Config::named(&bytes), stdout),
        Err(e) => answer(stdout, e.print(Version::LATEST), 1),
    }
}

/// [`run`] of any verb but VERSION, for who has begun to read the configuration, with what [`Config::named`] made of it.
pub fn run_named(plugin: &dyn Plugin, builtins: Builtins, env: &Env, named: Result<Object, ConfigError>, stdout: &mut dyn Write) -> u8 {
    // The answer is in the configuration's version as soon as that is known.
    let mut version = Version::LATEST;
    match verb(plugin, builtins, env, named, &mut version, stdout) {
        Ok(()) => 0,
        Err(e) => answer(stdout, e.print(version), 1),
    }
}

/// Everything on standard input, and one byte more than a configuration may have if there is more.
///
/// # Errors
/// Code 5.
pub fn input(stdin: &mut dyn Read) -> Result<Vec<u8>, CniError> {
    let mut bytes = Vec::new();
    let read = stdin.take(json::MAX_INPUT as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| CniError::new(Code::IO, format!("read the configuration from standard input: {e}")))?;
    Ok(bytes)
}

/// Prints, and returns the exit code: 1 where nobody reads what is printed.
pub fn answer(stdout: &mut dyn Write, text: impl AsRef<[u8]>, code: u8) -> u8 {
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(_) => 1,
    }
}

fn verb(
    plugin: &dyn Plugin,
    builtins: Builtins,
    env: &Env,
    named: Result<Object, ConfigError>,
    version: &mut Version,
    stdout: &mut dyn Write,
) -> Result<(), CniError> {
    let (config, prev) = checked(plugin, env, named, version)?;
    let path = std::env::split_paths(&env.path).collect();
    let finder = Finder::new(builtins, path, Prefer::Path, env.all.clone()).telling(tell).remembering();
    let (mut host, mut teardown) = (Host::here(Dirs::default()), Teardown::new());
    let deadline = Instant::now() + env.patience.unwrap_or(PATIENCE).min(PATIENCE);
    if env.command == "GC" {
        return gc(plugin, env, &config, &finder, &mut host, deadline);
    }
    let mut cx = Cx::new(&mut host, &mut teardown, &finder, deadline);
    match env.command.as_str() {
        "STATUS" => plugin.status(&config, &mut cx),
        _ => attachment(plugin, env, &config, prev.as_ref(), &mut cx, stdout),
    }
}

fn gc(plugin: &dyn Plugin, env: &Env, config: &Config, finder: &Finder, host: &mut Host, deadline: Instant) -> Result<(), CniError> {
    let named = AttachmentId::valid_of(config.raw(), &config.network)?;
    let others = || env.others.map_or(Ok(Vec::new()), |others| others(&config.network));
    let (looked_up, mut teardown) = collect_beside(others()?, others, |known, teardown| {
        plugin.gc(config, &[named.as_slice(), known].concat(), &mut Cx::new(host, teardown, finder, deadline))
    })?;
    finish(looked_up, &mut teardown, host)
}

/// What every plugin checks before anything else, for a call that is carried out elsewhere as well. `named` is what [`Config::named`] made of
/// the configuration. `version` is set as soon as it is known: the answer is printed in it, also if it is an error.
///
/// # Errors
/// Code 4 for a variable, 6 and 7 for the configuration, 1 for its version.
pub fn checked(
    plugin: &dyn Plugin,
    env: &Env,
    named: Result<Object, ConfigError>,
    version: &mut Version,
) -> Result<(Config, Option<AddResult>), CniError> {
    // In the reference library's order: variables, the network's name, the verb, the version.
    env.complete()?;
    let named = named?;
    env.known_verb()?;
    let (config, prev) = Config::parse_named(named)?;
    *version = config.version;
    supported(plugin, env, &config)?;
    Ok((config, prev))
}

/// ADD, CHECK and DEL.
fn attachment(
    plugin: &dyn Plugin,
    env: &Env,
    config: &Config,
    prev: Option<&AddResult>,
    cx: &mut Cx<'_>,
    stdout: &mut dyn Write,
) -> Result<(), CniError> {
    let id = env.attachment(&config.network)?;
    if env.command != "DEL" {
        plugin.refuse(config)?;
    }
    // Read by few plugins: those say what is wrong with it.
    let args = CniArgs::read(&env.args);
    let netns = env.open_netns(plugin.about().needs_netns())?;
    let call = Call { id: &id, netns: netns.as_ref(), config, args: &args, prev };
    match env.command.as_str() {
        "CHECK" => plugin.check(&call, cx),
        "DEL" => {
            let looked_up = plugin.del(&call, cx);
            finish(looked_up, cx.teardown, cx.host)
        }
        _ => {
            let added = plugin.add(&call, cx).and_then(|result| {
                let text = result.print(config.version)?;
                linux::crash_point!("result-unprinted");
                // A caller that is gone cannot keep what it does not hear of.
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| internal(format!("print the result: {e}")))?;
                linux::crash_point!("result-printed");
                Ok(())
            });
            added.map_err(|e| undo(cx, e))
        }
    }
}

/// Rolls a failed ADD back; what could not be undone is told in the details.
fn undo(cx: &mut Cx<'_>, e: CniError) -> CniError {
    linux::crash_point!("undo-begun");
    match cx.teardown.commit(cx.host) {
        Ok(()) => e,
        Err(left) => {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            let more = format!("and its changes could not be undone: {}", left.join("; "));
            let details = if e.details.is_empty() { more } else { format!("{}; {more}", e.details) };
            e.with_details(details)
        }
    }
}

/// Commits: what could be looked up goes even if something could not. Further errors go into the details of the first.
fn finish(looked_up: Result<(), CniError>, teardown: &mut Teardown, host: &mut Host) -> Result<(), CniError> {
    let left = teardown.commit(host).err().unwrap_or_default();
    CniError::first_of(looked_up.err().into_iter().chain(left)).map_or(Ok(()), Err)
}

fn supported(plugin: &dyn Plugin, env: &Env, config: &Config) -> Result<(), CniError> {
    allowed(&env.command, config.version)?;
    let about = plugin.about();
    if !about.versions.contains(&config.version) {
        let list: Vec<&str> = about.versions.iter().map(|v| v.as_str()).collect();
        let e = CniError::new(Code::INCOMPATIBLE_VERSION, "incompatible CNI versions");
        return Err(e.with_details(format!(
            "config is {:?}, plugin {} supports [{}]",
            config.version.as_str(),
            about.name,
            list.join(" ")
        )));
    }
    Ok(())
}

/// Whether the configuration's version has the verb.
///
/// # Errors
/// Code 1 with the version that has it.
pub fn allowed(verb: &str, version: Version) -> Result<(), CniError> {
    let since = match verb {
        "CHECK" if !version.has_check() => Version::V0_4_0,
        "GC" | "STATUS" if !version.has_gc_and_status() => Version::V1_1_0,
        _ => return Ok(()),
    };
    let msg = format!("config version does not allow {verb}: cniVersion is {version}, it needs {since}");
    Err(CniError::new(Code::INCOMPATIBLE_VERSION, msg))
}

/// Code 4 for a verb that is none.
pub fn unknown_verb(verb: &str) -> CniError {
    let msg = format!("unknown CNI_COMMAND: {verb}: known are ADD, DEL, CHECK, GC, STATUS and VERSION");
    CniError::new(Code::INVALID_ENVIRONMENT, msg)
}

fn version(plugin: &dyn Plugin) -> String {
    let mut o = Object::new();
    o.set("cniVersion", Version::LATEST.as_str());
    o.set("supportedVersions", plugin.about().versions.iter().map(|v| v.as_str()).collect::<Vec<_>>());
    json::compact(&o)
}

/// What an executable says when it is run by hand.
pub fn about(plugin: &dyn Plugin) -> String {
    let about = plugin.about();
    let versions: Vec<&str> = about.versions.iter().map(|v| v.as_str()).collect();
    let mut text = format!("CNI {} plugin: {}\nCNI protocol versions supported: {}\n", about.name, about.summary, versions.join(", "));
    let width = about.keys.iter().map(|k| k.name.len()).max().unwrap_or(0);
    for key in about.keys {
        text += &format!("  {:width$}  {} ({}, default {})\n", key.name, key.summary, key.kind, key.default);
    }
    text
}

// === impl Env ===

impl Env {
    /// The variables of this process.
    pub fn of_this_process() -> Self {
        let text = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        Env {
            command: text("CNI_COMMAND"),
            container_id: text("CNI_CONTAINERID"),
            netns: text("CNI_NETNS"),
            ifname: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
            path: std::env::var_os("CNI_PATH").unwrap_or_default(),
            netns_override: matches!(text("CNI_NETNS_OVERRIDE").to_ascii_uppercase().as_str(), "1" | "TRUE"),
            patience: text(MILLIS).parse().ok().map(Duration::from_millis),
            all: std::env::vars_os().collect(),
            others: None,
        }
    }

    fn known_verb(&self) -> Result<(), CniError> {
        match self.command.as_str() {
            "ADD" | "DEL" | "CHECK" | "GC" | "STATUS" => Ok(()),
            other => Err(unknown_verb(other)),
        }
    }

    /// All variables that the verb requires: a bad one is told first, then all that are missing at once (code 4).
    fn complete(&self) -> Result<(), CniError> {
        let attachment = matches!(self.command.as_str(), "ADD" | "CHECK" | "DEL");
        if attachment && !self.container_id.is_empty() {
            self.container()?;
        }
        if attachment && !self.ifname.is_empty() {
            self.ifname()?;
        }
        let needed = [
            (attachment, "CNI_CONTAINERID", self.container_id.is_empty()),
            (attachment && self.command != "DEL", "CNI_NETNS", self.netns.is_empty()),
            (attachment, "CNI_IFNAME", self.ifname.is_empty()),
            (attachment || matches!(self.command.as_str(), "GC" | "STATUS"), "CNI_PATH", self.path.is_empty()),
        ];
        let missing: Vec<&str> = needed.iter().filter(|(needed, _, missing)| *needed && *missing).map(|(_, name, _)| *name).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("required env variables [{}] missing", missing.join(",")))),
        }
    }

    /// The attachment that ADD, CHECK and DEL are about.
    ///
    /// # Errors
    /// Code 3 without a container ID, 4 for a bad one or a bad interface name.
    pub fn attachment(&self, network: &NetworkName) -> Result<AttachmentId, CniError> {
        Ok(AttachmentId { network: network.clone(), container: self.container()?, ifname: self.ifname()? })
    }

    fn container(&self) -> Result<ContainerId, CniError> {
        ContainerId::parse(&self.container_id).map_err(|e| CniError::from(e).within("CNI_CONTAINERID"))
    }

    fn ifname(&self) -> Result<IfName, CniError> {
        IfName::parse(&self.ifname).map_err(|e| CniError::from(e).within("CNI_IFNAME"))
    }

    /// The container's namespace: where it is needed it must be there for ADD and CHECK. The host's own it must never be, which
    /// is checked before anything is done.
    ///
    /// # Errors
    /// Code 8.
    pub fn open_netns(&self, is_needed: bool) -> Result<Option<Arc<Netns>>, CniError> {
        let spare = self.command == "DEL" || !is_needed;
        if self.netns.is_empty() {
            return Ok(None);
        }
        let path: PathBuf = Path::new(&self.netns).to_owned();
        let bad = |why: String| CniError::new(Code::INVALID_NETNS, why);
        let netns = match Netns::open(&path) {
            Ok(Some(netns)) => netns,
            // What is left of a namespace that was unmounted, but not removed.
            Err(NetnsError::NotANamespace { .. }) if spare => return Ok(None),
            Ok(None) if spare => return Ok(None),
            Err(_) if !is_needed => return Ok(None),
            Ok(None) => {
                return Err(bad(format!(
                    "failed to open netns {:?}: there is no such file; check that the container is running",
                    self.netns
                )));
            }
            Err(e) => return Err(bad(e.to_string())),
        };
        if !self.netns_override && netns.is_here().map_err(internal)? {
            let hint = "set CNI_NETNS to the container's, or set CNI_NETNS_OVERRIDE=1 if they are meant to be the same";
            return Err(bad(format!("plugin's netns and netns from CNI_NETNS ({}) should not be the same: {hint}", self.netns)));
        }
        Ok(Some(Arc::new(netns)))
    }
}
