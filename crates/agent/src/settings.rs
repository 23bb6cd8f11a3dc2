//! Everything that the agent is configured by, checked.
//!
//! ```text
//!   the agent's own file (YAML or JSON) --Settings::read--> Settings
//!   the runtime's configuration, with each call --Settings::with_call--> Settings of that call
//! ```
//!
//! Multus's keys mean what they mean to Multus, and as there what the agent's own file says goes over what the runtime's
//! configuration says. A key of Multus that does nothing here is answered with a warning that says what does it instead.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attach::Admission;
use cni::{NetworkList, Version};
use daemon::log::{Format, Level};
use ipnet::IpNet;
use json::{Object, Value};
use linux::file::{self, Links};
use npwg::StatusIps;
use plugin::{Dirs, Prefer};

use crate::provided::Provide;

mod crd;
mod error;
mod keys;
mod networks;
mod values;
mod vifs;

pub use crd::{Crd, Ipam};
pub use error::SettingsError;
pub use keys::{KEYS, Key, Origin, REPLACED, table};
pub(crate) use values::AGENT_WAIT;
pub use vifs::{VifSource, Vifs};

/// The bytes of the agent's own file at the most.
const MAX_FILE: usize = 1 << 20;

/// What the agent does, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The node, as the API server calls it; empty if the file does not say.
    pub node_name: String,
    /// The network that every pod gets first.
    pub default_network: NetworkSource,
    /// The cluster's network, where this agent provides it: then that is the default network.
    pub provide: Option<Provide>,
    /// Networks that every pod gets besides, less those of system namespaces.
    pub every_pod: Vec<NetworkSource>,
    /// What pods and definitions may do.
    pub admission: Admission,
    /// From which Services get their addresses, besides the cluster's own objects.
    pub service_ranges: Vec<IpNet>,
    /// The namespace of definitions that the settings name, and of a pod's default network without one.
    pub multus_namespace: String,
    /// Where networks without a definition are, and those of definitions without a configuration.
    pub conf_dir: PathBuf,
    /// Looked through before `conf_dir`, for who embeds the agent: no key sets it.
    pub more_conf_dirs: Vec<PathBuf>,
    /// Whether there is a kubelet, which gives pods their devices; without one a pod gets the device that it names.
    pub kubelet: bool,
    /// Whether the agent holds the addresses of pools for its life, and gets them from the cluster: no key sets it.
    pub pools: bool,
    /// Where executable plugins are, before the runtime's own directories.
    pub bin_dir: PathBuf,
    /// Calls wait for this file before they use the default network.
    pub readiness_file: Option<PathBuf>,
    /// A directory beside the default network's file, whose plugins are the last network of every pod.
    pub auxiliary_chain: Option<String>,
    /// How addresses look in the status.
    pub status_ips: StatusIps,
    /// Of what pods get Events.
    pub events: EventsTold,
    /// How long an ADD waits until its status is written; it is delivered later where that takes longer.
    pub status_wait: Duration,
    /// How long an ADD waits for the default network.
    pub add_wait: Duration,
    /// How long the runtime's calls wait for an agent that is not there.
    pub agent_wait: Duration,
    /// Who says which addresses this node has.
    pub ipam: Ipam,
    /// What holds where that is the node's `CiliumNode`.
    pub crd: Crd,
    /// How the Neutron ports of pods are plugged.
    pub vifs: Vifs,
    /// When a DEL answers.
    pub teardown: Teardown,
    /// Which plugin runs that is compiled in and in `bin_dir` too.
    pub prefer: Prefer,
    /// How long until records, links and the API are compared again.
    pub reconcile: Duration,
    /// Calls that are served at once.
    pub workers: usize,
    /// When the runtime's configuration is written.
    pub install: Install,
    /// Where the runtime's configuration is written.
    pub cni_config_dir: PathBuf,
    /// The version of the runtime's configuration.
    pub cni_version: Version,
    /// How the API server is reached; as in a pod if not given.
    pub kubeconfig: Option<PathBuf>,
    /// Where `/healthz` and `/readyz` are; nowhere if not given.
    pub health_address: Option<SocketAddr>,
    /// What is logged.
    pub log_level: Level,
    /// How it is logged.
    pub log_format: Format,
    /// The directory of the sockets.
    pub socket_dir: PathBuf,
    /// The directory of what must outlive the agent.
    pub state_dir: PathBuf,
    /// Plugins' state is below this directory; where all CNI programs have it if not given.
    pub plugin_state_dir: Option<PathBuf>,
    /// What was given and does nothing, a sentence each.
    pub warnings: Vec<String>,
    /// The agent's own file, which goes over what a call says.
    own: Arc<Object>,
}

/// Where a network comes from that the settings name.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkSource {
    /// There is none: pods have what they select. For who embeds the agent: no key says so, as a node needs one.
    Nowhere,
    /// It is the cluster's own, which this agent provides.
    Provided,
    /// It stands in the settings themselves.
    Inline(Arc<NetworkList>),
    /// A file.
    File(PathBuf),
    /// A file of a directory: the first one by its name, or that of this name.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The file in it.
        file: Option<String>,
    },
    /// A definition in Multus's namespace, else a network of that name in the directory of networks.
    Named(String),
}

/// Of what pods get Events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventsTold {
    /// Of each attachment that was made, as with Multus, and of what went wrong.
    #[default]
    All,
    /// Of what went wrong.
    Warnings,
}

/// When a DEL answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Teardown {
    /// When the pod's links are down and out of the way; they are removed and their addresses freed afterwards.
    #[default]
    Deferred,
    /// When everything is gone.
    Wait,
}

/// When the runtime's configuration is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Install {
    /// When the default network is there (S47): until then the runtime says that the node has no network.
    #[default]
    Ready,
    /// At once (S49): calls wait.
    Early,
    /// Not by the agent.
    Never,
}

// === impl Settings ===

impl Settings {
    /// Reads the agent's own file.
    ///
    /// # Errors
    /// [`SettingsError`] with the file, the key and what is right.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let of_file = |reason: String| SettingsError::File { path: path.to_owned(), reason };
        let bytes = file::read(path, MAX_FILE, Links::Followed).map_err(|e| of_file(e.to_string()))?;
        Self::parse(&bytes).map_err(|e| of_file(e.to_string()))
    }

    /// Reads the content of the agent's own file: JSON as Go reads it, or YAML. An empty one sets nothing.
    ///
    /// # Errors
    /// [`SettingsError`] with the key and what is right.
    pub fn parse(bytes: &[u8]) -> Result<Self, SettingsError> {
        let own = values::document(bytes)?;
        let mut warnings = Vec::new();
        keys::strict(&own, &mut warnings)?;
        Self::from_keys(&own, Arc::new(own.clone()), warnings)
    }

    /// The settings of one call, whose configuration the runtime has given. What cannot differ from call to call, and what
    /// is unknown, is told in the warnings, which are those of this call alone.
    ///
    /// # Errors
    /// [`SettingsError`] with the key.
    pub fn with_call(&self, call: &Object) -> Result<Self, SettingsError> {
        let mut warnings = Vec::new();
        let mut merged = keys::of_call(call, &self.own, &mut warnings);
        if merged.is_empty() {
            return Ok(Settings { warnings, ..self.clone() });
        }
        for (key, value) in self.own.iter() {
            merged.set(key, value.clone());
        }
        let Settings {
            default_network, every_pod, admission, multus_namespace, conf_dir, bin_dir, readiness_file, auxiliary_chain, ..
        } = Self::from_keys(&merged, Arc::clone(&self.own), Vec::new())?;
        // Nothing else differs from call to call: the agent may have been told it by other means than its file.
        Ok(Settings {
            default_network,
            every_pod,
            admission,
            multus_namespace,
            conf_dir,
            bin_dir,
            readiness_file,
            auxiliary_chain,
            warnings,
            ..self.clone()
        })
    }

    /// The socket on which calls arrive.
    pub fn socket(&self) -> PathBuf {
        self.socket_dir.join("agent.sock")
    }

    /// The socket on which a person's questions arrive.
    pub fn admin_socket(&self) -> PathBuf {
        self.socket_dir.join("admin.sock")
    }

    /// Where the records of sandboxes are.
    pub fn records(&self) -> PathBuf {
        self.state_dir.join("sandboxes")
    }

    /// Where calls wait that came while the agent was down.
    pub fn spool(&self) -> PathBuf {
        self.state_dir.join("spool")
    }

    /// Where plugins keep their state.
    pub fn dirs(&self) -> Dirs {
        self.plugin_state_dir.as_deref().map_or_else(Dirs::default, Dirs::below)
    }

    fn from_keys(keys: &Object, own: Arc<Object>, warnings: Vec<String>) -> Result<Self, SettingsError> {
        let duration = |key: &str, default: u64| values::duration(keys, key, Duration::from_secs(default));
        let path = |key: &str, default: &str| values::path(keys, key).map(|p| p.unwrap_or_else(|| default.into()));
        // The agent's name for the directory goes over Multus's.
        let socket_dir = values::path(keys, "socketDir")?.map_or_else(|| path("daemonSocketDir", "/run/netloom"), Ok)?;
        let cni_config_dir = path("cniConfigDir", "/etc/cni/net.d")?;
        Ok(Settings {
            node_name: values::text(keys, "nodeName")?.unwrap_or_default(),
            default_network: networks::default_network(keys, &cni_config_dir)?,
            provide: networks::provide(keys)?,
            every_pod: networks::every_pod(keys)?,
            admission: values::admission(keys)?,
            service_ranges: values::ranges(keys, "serviceCIDRs")?,
            multus_namespace: values::text(keys, "multusNamespace")?.unwrap_or_else(|| "kube-system".to_owned()),
            conf_dir: path("confDir", "/etc/cni/multus/net.d")?,
            more_conf_dirs: Vec::new(),
            kubelet: true,
            pools: true,
            bin_dir: path("binDir", "/opt/cni/bin")?,
            readiness_file: values::path(keys, "readinessindicatorfile")?,
            auxiliary_chain: networks::auxiliary_chain(keys)?,
            status_ips: values::word(keys, "statusIPs", &[("bare", StatusIps::Bare), ("cidr", StatusIps::Cidr)])?,
            events: values::word(keys, "events", &[("all", EventsTold::All), ("warnings", EventsTold::Warnings)])?,
            status_wait: duration("statusWait", 2)?,
            add_wait: duration("addWait", 30)?,
            agent_wait: values::agent_wait(keys)?,
            ipam: values::ipam(keys)?,
            crd: Crd::read(keys)?,
            vifs: Vifs::read(keys)?,
            teardown: values::word(keys, "teardown", &[("deferred", Teardown::Deferred), ("wait", Teardown::Wait)])?,
            prefer: values::prefer(keys)?,
            reconcile: duration("reconcileEvery", 180)?,
            workers: values::count(keys, "workers", 16, 1024)?,
            install: values::word(keys, "install", &[("ready", Install::Ready), ("early", Install::Early), ("never", Install::Never)])?,
            cni_config_dir,
            cni_version: values::version(keys, "cniVersion")?,
            kubeconfig: values::path(keys, "kubeconfig")?,
            health_address: values::address(keys, "healthAddress")?,
            log_level: values::word(keys, "logLevel", values::LEVELS)?,
            log_format: values::word(keys, "logFormat", &[("text", Format::Text), ("json", Format::Json)])?,
            socket_dir,
            state_dir: path("stateDir", "/var/lib/netloom")?,
            plugin_state_dir: values::path(keys, "pluginStateDir")?,
            warnings,
            own,
        })
    }
}

// === impl NetworkSource ===

impl fmt::Display for NetworkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkSource::Nowhere => f.write_str("none"),
            NetworkSource::Provided => write!(f, "{} (provided by this agent)", crate::provided::NAME),
            NetworkSource::Inline(list) => write!(f, "{} (in the configuration)", list.name),
            NetworkSource::File(path) => path.display().fmt(f),
            NetworkSource::Directory { path, file: Some(file) } => path.join(file).display().fmt(f),
            NetworkSource::Directory { path, file: None } => write!(f, "the first file of {}", path.display()),
            NetworkSource::Named(name) => f.write_str(name),
        }
    }
}

// === impl Teardown ===

impl fmt::Display for Teardown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Teardown::Deferred => "deferred",
            Teardown::Wait => "wait",
        })
    }
}

/// What a value is called in messages.
fn kind(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
        Value::Bool(_) | Value::Number(_) => json::compact(value),
        other => other.kind().to_owned(),
    }
}

#[cfg(test)]
mod tests;
