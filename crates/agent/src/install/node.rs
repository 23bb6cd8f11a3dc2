//! From the agent's settings to what is installed: for the commands, and for the agent itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attach::{Lost, RecordError, Spool, Spooled};
use cni::{CniError, Code, NetworkList, Version};
use linux::Watch;
use plugin::Host;

use super::entry::{before_ours, is_before};
use super::keeper::{Keeper, Looked};
use super::{Awaited, InstallError, Options, PROGRAM, Places, Report, Step, install_into, uninstall_from, wait};
use crate::abandoned::may_live;
use crate::agent::attacher_of;
use crate::default_network::DefaultNetwork;
use crate::log::Line;
use crate::settings::{AGENT_WAIT, Install, NetworkSource};
use crate::{Agent, Settings};

/// How long nobody looks at a configuration that stands: what no watch can tell, a file system mounted over a directory or a
/// definition that has changed, is seen then.
const REST: Duration = Duration::from_secs(30);
/// As long as it does not stand.
const SOON: Duration = Duration::from_secs(1);
/// How long the default network's definition may take.
const PATIENCE: Duration = Duration::from_secs(5);

// === impl Places ===

impl From<&Settings> for Places {
    fn from(settings: &Settings) -> Self {
        let config_dir = settings.cni_config_dir.clone();
        Places {
            dedicated: directory_of(&settings.default_network) != Some(&config_dir),
            config_dir,
            bin_dir: settings.bin_dir.clone(),
            socket: settings.socket(),
            records: settings.records(),
            // Which is also what holds if nobody has chosen one.
            version: Some(settings.cni_version).filter(|version| *version != Version::V1_0_0),
            ready_file: settings.readiness_file.clone(),
            agent_wait: Some(settings.agent_wait).filter(|wait| *wait != AGENT_WAIT),
            spool: Some(settings.spool()).filter(|dir| dir != Path::new(attach::SPOOL)),
        }
    }
}

/// How long the detaching of one sandbox may take.
const DETACHING: Duration = Duration::from_secs(60);

/// Where the default network's file is, if it is one.
fn directory_of(source: &NetworkSource) -> Option<&Path> {
    match source {
        NetworkSource::File(path) => path.parent(),
        NetworkSource::Directory { path, .. } => Some(path),
        NetworkSource::Nowhere | NetworkSource::Provided | NetworkSource::Inline(_) | NetworkSource::Named(_) => None,
    }
}

fn watched(settings: &Settings) -> Vec<PathBuf> {
    directory_of(&settings.default_network).map(Path::to_owned).into_iter().chain([settings.conf_dir.clone()]).collect()
}

/// The `netloom-cni` that came with the running executable.
///
/// # Errors
/// If nobody knows where that is.
pub fn program_beside() -> std::io::Result<PathBuf> {
    std::env::current_exe().map(|own| own.with_file_name(PROGRAM))
}

/// `netloom agent install`: what [`install_into`] does, where the settings say. Where the default network is a definition,
/// or the settings say `install: never`, the runtime's configuration is left to the agent, or to nobody.
///
/// # Errors
/// [`InstallError`]
pub fn install(settings: &Settings, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report, InstallError> {
    let networks = DefaultNetwork::default();
    let asks_nobody = !matches!(settings.default_network, NetworkSource::Named(_) | NetworkSource::Provided);
    let options = Options {
        configuration: options.configuration && settings.install != Install::Never && asks_nobody,
        early: options.early || settings.install == Install::Early,
        ..options.clone()
    };
    let look = || on_disk(settings, &networks);
    let awaited = Awaited { look: &look, watched: watched(settings) };
    install_into(&Places::from(settings), &options, &awaited, progress)
}

fn on_disk(settings: &Settings, networks: &DefaultNetwork) -> Result<NetworkList, CniError> {
    match &settings.default_network {
        NetworkSource::Inline(list) => Ok(list.as_ref().clone()),
        NetworkSource::File(path) => networks.file(path),
        NetworkSource::Directory { path, file } => networks.first_of(path, file.as_deref()),
        NetworkSource::Nowhere => Err(CniError::new(Code::INVALID_CONFIG, "there is no default network to install a configuration for")),
        NetworkSource::Provided => Err(CniError::new(Code::TRY_AGAIN_LATER, "the agent provides the default network, once it runs")),
        NetworkSource::Named(name) => chain::load(&settings.conf_dir, name).map_err(CniError::from),
    }
}

/// `netloom agent uninstall`: what [`uninstall_from`] does, where the settings say. Sandboxes that nobody would detach later are detached
/// first.
///
/// # Errors
/// [`InstallError`]
pub fn uninstall(settings: &Settings, force: bool) -> Result<Report, InstallError> {
    uninstall_from(&Places::from(settings), force, &mut || detach_gone(settings))
}

/// Detaches the sandboxes that nobody would detach once this is uninstalled: the DEL came, and was stored or not finished; or none will
/// come, as the namespace is gone. Tells what was done. Who may not change links and rules, as a container that only installs, sees
/// neither namespaces nor all addresses, and leaves it to an agent.
fn detach_gone(settings: &Settings) -> Vec<Step> {
    if !is_net_admin() {
        return Vec::new();
    }
    let (attacher, mut host) = (attacher_of(settings), Host::here(settings.dirs()));
    let (spool, mut stored, mut steps) = (Spool::new(settings.spool()), BTreeMap::new(), Vec::new());
    for file in spool.files().unwrap_or_default() {
        match spool.read(&file) {
            Ok(None) => {}
            Ok(Some(kept)) => drop(stored.insert(kept.call.container_id.clone(), kept)),
            Err(e) => steps.push(Step::Note(e.to_string())),
        }
    }
    for sandbox in attacher.records().sandboxes().unwrap_or_default() {
        let kept = stored.remove(sandbox.as_str());
        let record = attacher.records().read(&sandbox);
        let why = match &record {
            _ if kept.is_some() => "was deleted while the agent was down",
            _ if attacher.records().is_retired(&sandbox) => "was deleted, but not all of it was detached",
            Ok(Some(record)) if record.namespace().is_ok_and(|netns| netns.is_none()) && !may_live(record) => "was deleted without a DEL",
            Err(RecordError::Lost { .. }) => "was lost in a power failure",
            Ok(_) | Err(_) => continue,
        };
        let pod = match &record {
            Ok(Some(record)) => format!("{}/{}", record.pod.namespace, record.pod.name),
            Ok(None) | Err(_) => format!("sandbox {sandbox}"),
        };
        let mut done = attacher.del(&sandbox, Lost::EveryAddress, &mut host, Instant::now() + DETACHING).map_err(|e| e.to_string());
        if let (Ok(()), Some(kept)) = (&done, kept) {
            done = spool.done(&kept).map_err(|e| e.to_string());
        }
        steps.push(Step::Note(match done {
            Ok(()) => format!("{pod} {why}: its host ports, rules and addresses are free now"),
            Err(e) => format!("{pod} {why}, and cannot be detached: {e}"),
        }));
    }
    let of_nobody = |kept: &Spooled| format!("the stored DEL {} is of no pod that this agent has attached", kept.path().display());
    steps.extend(stored.values().map(|kept| Step::Note(of_nobody(kept))));
    steps
}

/// Whether this process has `CAP_NET_ADMIN` (capabilities(7)).
fn is_net_admin() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & NET_ADMIN != 0)
}

/// Keeps the runtime's configuration for as long as the process lives, and wakes the calls that wait for the default network
/// when something changes on the disk. The process's end changes nothing.
pub(crate) fn start(agent: &Arc<Agent>) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        let settings = &agent.settings;
        let mut keeper =
            (settings.install != Install::Never).then(|| Keeper::new(Places::from(settings), settings.install == Install::Early));
        let (mut paths, mut watch, mut told, mut before) = (Vec::new(), None, String::new(), Vec::new());
        loop {
            let stands = keeper.as_mut().is_none_or(|keeper| look(&agent, keeper, &mut told));
            tell_what_is_before(&agent, &mut before);
            let own = watched(settings).into_iter().chain(keeper.iter().flat_map(Keeper::watched));
            let all = own.chain(agent.default.depends()).collect::<Vec<_>>();
            if all != paths {
                (watch, paths) = (watching(&all), all);
                // What has changed since the look nobody would tell.
                agent.default.wake();
                continue;
            }
            wait(&mut watch, if stands { REST } else { SOON });
            agent.default.wake();
        }
    };
    std::thread::Builder::new().name("install".to_owned()).spawn(work).map(drop)
}

fn watching(paths: &[PathBuf]) -> Option<Watch> {
    match Watch::on(paths) {
        Ok(watch) => Some(watch),
        Err(e) => {
            Line::warn("install").with("error", e).with("now", format!("checking every {} s instead", REST.as_secs())).end();
            None
        }
    }
}

/// Files that the runtime takes instead of ours: told once, as long as they stay the same.
fn tell_what_is_before(agent: &Agent, told: &mut Vec<PathBuf>) {
    let before = agent.preferred_by_runtime();
    for path in before.iter().filter(|path| !told.contains(path)) {
        Line::warn("install").with("what", is_before(path)).with("next", "remove it if it is not needed").end();
    }
    *told = before;
}

impl Agent {
    /// The configurations that the runtime takes instead of ours, which is there.
    pub(crate) fn preferred_by_runtime(&self) -> Vec<PathBuf> {
        let places = Places::from(&self.settings);
        if places.entry().symlink_metadata().is_ok() { before_ours(&places.config_dir) } else { Vec::new() }
    }
}

/// Whether the runtime's configuration is as it should be; what is new about it is told once.
fn look(agent: &Agent, keeper: &mut Keeper, told: &mut String) -> bool {
    let default = || agent.network(&agent.settings, &agent.settings.default_network, Instant::now() + PATIENCE).map(|given| given.list);
    let entry = Places::from(&agent.settings).entry();
    let looked = keeper.look(default);
    let (stands, line, text) = match looked {
        Ok(Looked::Waits(reason)) => (false, Line::info("install").with("waits", &reason), reason),
        Ok(Looked::Stands { changed, but }) => {
            if changed {
                Line::info("install").with("written", entry.display()).end();
            }
            let reason = but.clone().unwrap_or_default();
            (
                but.is_none(),
                Line::warn("install").with("default_network", &reason).with("now", "the runtime's configuration is not changed"),
                reason,
            )
        }
        Err(e) => (false, Line::error("install").with("error", &e), e.to_string()),
    };
    if *told != text {
        if !text.is_empty() {
            line.end();
        }
        *told = text;
    }
    stands
}
