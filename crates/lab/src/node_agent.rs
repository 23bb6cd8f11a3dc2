//! The agent of a lab's node: the same as in a cluster, inside this process, for as long as `up` runs.
//!
//! ```text
//!   manifests --> store <--> agent of the node <-- Call (ADD) -- attach_pod
//!                   |             `--> record in the node's `sandboxes`, attachments in the kernel
//!                   `--> network-status and Events of the pods
//! ```
//!
//! What it keeps on disk is what `down` and `status` read; nothing of it goes on when `up` has ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::settings::{EventsTold, Install, NetworkSource, Teardown};
use agent::{Embedded, Provide, Settings};
use attach::{Admission, Allow, Policy, Protection, Rule};
use cni::{CniError, Code, ContainerId};
use daemon::log::Level;
use ipnet::IpNet;
use objects::Store;
use plugin::{Dirs, Environment, Exec, ExecError, Here, Host, Output};
use serde_json::Value;
use wire::Call;

use crate::labs::make_dir;
use crate::manifest::SYSTEM_NAMESPACE;
use crate::state::{Lab, Pod};
use crate::up::DefaultNetwork;

/// How long an agent may take to know the manifests. They are in this process: only a machine that is very slow makes it wait.
const SLOW: Duration = Duration::from_secs(60);
/// How long it may take to know the others' WireGuard keys, and at its end to have told everything.
const MOMENT: Duration = Duration::from_secs(5);

/// The agent of one node.
pub(crate) struct NodeAgent {
    agent: Embedded,
    path: String,
}

/// External plugins get this process's environment, as they do from a runtime.
struct WithEnvironment(Environment);

// === impl NodeAgent ===

impl NodeAgent {
    /// Starts the agent of a node.
    pub(crate) fn start(lab: &Lab, node: &str, store: &Store, default: &DefaultNetwork, conf_dirs: &[PathBuf]) -> Result<Self, CniError> {
        let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("start the agent of node {node}: {e}"));
        make_dir(&lab.node_dir(node)).map_err(|e| failed(&e))?;
        let path = std::env::join_paths(&lab.cni_path).map_err(|e| failed(&e))?;
        let settings = settings(lab, node, default, conf_dirs).map_err(|e| failed(&e))?;
        let agent = Embedded::start(settings, || store.client().into()).map_err(|e| failed(&e))?;
        agent.synced(SLOW);
        Ok(NodeAgent { agent, path: path.to_string_lossy().into_owned() })
    }

    /// Makes the node's part of the cluster's network, from inside the node. What is wrong with it.
    pub(crate) fn provide(&self, dirs: Dirs) -> BTreeSet<String> {
        self.agent.provide(dirs, SLOW)
    }

    /// Waits until it knows a WireGuard key of each node.
    pub(crate) fn knows_keys(&self) {
        self.agent.knows_keys(MOMENT);
    }

    /// Keeps what [`NodeAgent::provide`] made, from inside the node, for as long as the process lives.
    pub(crate) fn keep(&self, dirs: Dirs) -> std::io::Result<()> {
        self.agent.keep(dirs)
    }

    /// Attaches a pod, as its runtime asks for it.
    pub(crate) fn add(&self, lab: &Lab, pod: &Pod, id: &ContainerId, host: &mut Host) -> Result<(), CniError> {
        let mut config = serde_json::json!({"cniVersion": cni::Version::LATEST.as_str(), "name": "netloom", "type": "netloom"});
        if let (Some(sent), Value::Object(keys)) = (pod.runtime_config(), &mut config) {
            keys.insert("runtimeConfig".to_owned(), sent);
        }
        let call = Call {
            protocol: wire::PROTOCOL,
            program: "netloom".to_owned(),
            verb: "ADD".to_owned(),
            container_id: id.to_string(),
            netns: lab.pod_netns(pod).to_string_lossy().into_owned(),
            ifname: "eth0".to_owned(),
            args: pod.args(id).to_string(),
            path: self.path.clone(),
            netns_override: false,
            config: config.to_string().into_bytes(),
            ..Call::default()
        };
        let answer = self.agent.call(&call, host, Arc::new(WithEnvironment(std::env::vars_os().collect())));
        match answer.exit {
            0 => Ok(()),
            _ => Err(CniError::parse(&answer.stdout).unwrap_or_else(|| CniError::new(Code::INTERNAL, "the node's agent has failed"))),
        }
    }

    /// Waits until it has told everything that it has to tell.
    pub(crate) fn told(&self) {
        self.agent.told(MOMENT);
    }

    /// Waits until it knows pods, and gives them addresses of these ranges.
    pub(crate) fn synced(&self, pods: &[(&str, &str)], ranges: Option<&[IpNet]>) {
        let until = Instant::now() + SLOW;
        let is_synced = || {
            pods.iter().all(|(namespace, name)| self.agent.knows(namespace, name))
                && ranges.is_none_or(|ranges| self.agent.has_ranges(ranges))
        };
        while !is_synced() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Who runs a lab wrote its definitions, and the paths that they name are below the lab's own directory: all are allowed.
pub(crate) fn admission() -> Admission {
    let rule = Rule::of_all("lab", Allow { paths: Some(vec!["/".into()]), ..Allow::default() });
    // Its author is the lab's own.
    let rule = Rule { protect: Some(Protection::Off), ..rule };
    Admission { policy: Policy { rules: vec![rule] }, ..Admission::default() }
}

fn settings(lab: &Lab, node: &str, default: &DefaultNetwork, conf_dirs: &[PathBuf]) -> Result<Settings, agent::settings::SettingsError> {
    let dir = lab.node_dir(node);
    let (last, first) = conf_dirs.split_last().map_or((PathBuf::new(), &[][..]), |(last, first)| (last.clone(), first));
    let mut settings = Settings::parse(b"")?;
    settings.node_name = node.to_owned();
    settings.default_network = match default {
        DefaultNetwork::None => NetworkSource::Nowhere,
        DefaultNetwork::Cluster(_) => NetworkSource::Provided,
        DefaultNetwork::Given(list) => NetworkSource::Inline(Arc::new((**list).clone())),
    };
    settings.provide = match default {
        DefaultNetwork::Cluster(mode) => Some(Provide::new(*mode)),
        DefaultNetwork::None | DefaultNetwork::Given(_) => None,
    };
    // What is not there by now does not come any more.
    settings.add_wait = Duration::ZERO;
    settings.multus_namespace = SYSTEM_NAMESPACE.to_owned();
    settings.more_conf_dirs = first.to_vec();
    settings.kubelet = false;
    settings.pools = false;
    settings.conf_dir = last;
    settings.bin_dir = lab.cni_path.first().cloned().unwrap_or_default();
    settings.teardown = Teardown::Wait;
    settings.install = Install::Never;
    // What fails is told at the pod.
    settings.log_level = Level::Error;
    // What was attached, `netloom lab show` has.
    settings.events = EventsTold::Warnings;
    settings.plugin_state_dir = Some(dir.clone());
    settings.admission = admission();
    settings.state_dir = dir;
    Ok(settings)
}

// === impl WithEnvironment ===

impl Exec for WithEnvironment {
    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError> {
        let own = self.0.iter().filter(|(key, _)| !is_given(key, env)).cloned();
        let all: Environment = own.chain(env.iter().cloned()).collect();
        Here.exec(path, &all, stdin, by)
    }
}

fn is_given(key: &OsString, env: &Environment) -> bool {
    key.as_encoded_bytes().starts_with(b"CNI_") || env.iter().any(|(given, _)| given == key)
}

/// The warnings of the agents' Events: pod (`namespace/name`) and what was said of it.
pub(crate) fn warnings(store: &Store) -> Vec<(String, String)> {
    let text = |event: &Value, pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let one = |event: &Value| {
        let pod = format!("{}/{}", text(event, "/involvedObject/namespace"), text(event, "/involvedObject/name"));
        (pod, text(event, "/message"))
    };
    let events = store.objects("v1", "Event").unwrap_or_default();
    events.iter().filter(|event| text(event, "/type") == "Warning").map(one).collect()
}
