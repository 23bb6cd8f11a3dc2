//! A node's namespace, pods' namespaces, and the agent between them and an API.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use linux::Netns;
use netloom_agent::{Embedded, Settings};
use plugin::{Dirs, Here, Host};
use serde_json::{Value, json};
use wire::Call;

use crate::api::{Api, definition, network};

pub(crate) struct World {
    dir: PathBuf,
    name: String,
    settings: Settings,
    agent: Option<Embedded>,
}

/// One sandbox of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) pod: &'a str,
    pub(crate) uid: &'a str,
}

impl World {
    /// A node with the networks `a`, `b` and `c` besides its default one, and an agent that knows them.
    pub(crate) fn new(api: &impl Api, more: Value) -> Self {
        let pools = more["ipam"] == "crd";
        World::with(api, more, pools)
    }

    /// The same; `pools`: the agent holds the addresses of pools.
    pub(crate) fn with(api: &impl Api, more: Value, pools: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("nlalone-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, subnet) in [("a", "10.91.0.0/16"), ("b", "10.92.0.0/16"), ("c", "10.93.0.0/16")] {
            api.put(&definition(name, subnet));
        }
        let mut settings = json!({
            "nodeName": "n1", "install": "never", "teardown": "wait", "logLevel": "error", "events": "warnings",
            "stateDir": dir, "pluginStateDir": dir, "delegates": [network("pods", "10.90.0.0/16")],
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut settings = Settings::parse(settings.to_string().as_bytes()).unwrap();
        settings.pools = pools;
        let mut world = World { dir, name, settings, agent: None };
        world.restart_agent(api);
        Netns::create(&world.netns("node")).unwrap();
        world
    }

    /// The agent ends, and the next one starts, over the same files.
    pub(crate) fn restart(&mut self, api: &impl Api) {
        self.restart_after(api, |_| {});
    }

    /// The same; something becomes of the journal of pools in between.
    pub(crate) fn restart_after(&mut self, api: &impl Api, meanwhile: impl FnOnce(&Path)) {
        drop(self.agent.take());
        meanwhile(&Dirs::below(&self.dir).journal);
        self.agent = Some(Embedded::start(self.settings.clone(), api.connect()).unwrap());
    }

    /// The same, and the next one is in the node's namespace with all that it does.
    pub(crate) fn restart_inside(&mut self, api: &impl Api) {
        drop(self.agent.take());
        let (settings, node) = (self.settings.clone(), Netns::open(&self.netns("node")).unwrap().unwrap());
        let connect = api.connect();
        self.agent = Some(node.enter(move |_| Embedded::start(settings, connect).unwrap()).unwrap());
    }

    /// The same, and the next one knows what the API has.
    pub(crate) fn restart_agent(&mut self, api: &impl Api) {
        self.restart(api);
        assert!(self.agent().synced(Duration::from_secs(60)), "the agent knows what the API has");
    }

    pub(crate) fn agent(&self) -> &Embedded {
        self.agent.as_ref().unwrap()
    }

    /// Where a runtime keeps the result of an attachment.
    pub(crate) fn cached(&self, name: &str) -> PathBuf {
        let results = self.dir.join("results");
        std::fs::create_dir_all(&results).unwrap();
        results.join(name)
    }

    /// Where Multus keeps it.
    pub(crate) fn multus(&self, name: &str) -> PathBuf {
        let results = self.dir.join("multus/results");
        std::fs::create_dir_all(&results).unwrap();
        results.join(name)
    }

    /// Where the journal of pools is.
    pub(crate) fn journal(&self) -> PathBuf {
        Dirs::below(&self.dir).journal
    }

    /// The name of a namespace, for `ip`.
    pub(crate) fn name_of(&self, netns: &str) -> String {
        self.netns(netns).file_name().unwrap().to_string_lossy().into_owned()
    }

    pub(crate) fn netns(&self, of: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("{}-{of}", self.name))
    }

    /// Writes a pool of the host's own, to the file that is returned.
    pub(crate) fn pool_file(&self, name: &str, object: &Value) -> PathBuf {
        let pools = Dirs::below(&self.dir).pools;
        std::fs::create_dir_all(&pools).unwrap();
        let file = pools.join(format!("{name}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        file
    }

    /// A namespace of which nobody knows anything, with this address.
    pub(crate) fn stray(&self, name: &str, address: &str) {
        self.sandbox(name);
        let netns = self.netns(name).file_name().unwrap().to_string_lossy().into_owned();
        assert!(Command::new("ip").args(["-n", &netns, "addr", "add", address, "dev", "lo"]).status().unwrap().success());
    }

    /// The namespace of a pod, as a runtime makes it.
    pub(crate) fn sandbox(&self, pod: &str) {
        Netns::create(&self.netns(pod)).unwrap();
    }

    /// The result, or code and message of the error.
    pub(crate) fn call(&self, verb: &str, of: Of<'_>) -> Result<Value, (u64, String)> {
        let uid = if of.uid.is_empty() { String::new() } else { format!(";K8S_POD_UID={}", of.uid) };
        let call = Call {
            protocol: wire::PROTOCOL,
            program: "netloom".into(),
            verb: verb.into(),
            container_id: format!("c-{}", of.pod),
            netns: self.netns(of.pod).display().to_string(),
            ifname: "eth0".into(),
            args: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}{uid}", of.pod),
            path: String::new(),
            netns_override: false,
            config: br#"{"cniVersion":"1.1.0","name":"cluster","type":"netloom"}"#.to_vec(),
            ..Call::default()
        };
        let node = Netns::open(&self.netns("node")).unwrap().unwrap();
        let answer = node.enter(|_| self.agent().call(&call, &mut Host::here(Dirs::below(&self.dir)), Arc::new(Here))).unwrap();
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        match answer.exit {
            0 => Ok(said),
            _ => Err((said["code"].as_u64().unwrap_or_default(), said["msg"].as_str().unwrap_or_default().to_owned())),
        }
    }

    pub(crate) fn ok(&self, verb: &str, pod: &str) -> Value {
        self.call(verb, Of { pod, uid: "" }).unwrap_or_else(|e| panic!("{verb} {pod}: {e:?}"))
    }

    /// The interfaces of a pod besides `lo`, as `ip` has them.
    pub(crate) fn links(&self, pod: &str) -> Vec<String> {
        let netns = self.netns(pod).file_name().unwrap().to_string_lossy().into_owned();
        let out = Command::new("ip").args(["-n", &netns, "-j", "link"]).output().unwrap();
        let links: Value = serde_json::from_slice(&out.stdout).unwrap();
        let mut names: Vec<String> = links.as_array().unwrap().iter().map(|l| l["ifname"].as_str().unwrap().to_owned()).collect();
        names.retain(|name| name != "lo");
        names.sort();
        names
    }

    /// The addresses that are held.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let mut held = Vec::new();
        for network in ["pods", "a", "b", "c"] {
            let files = std::fs::read_dir(Dirs::below(&self.dir).addresses.join(network)).into_iter().flatten().flatten();
            held.extend(files.map(|f| f.file_name().to_string_lossy().into_owned()).filter(|name| name.starts_with("10.")));
        }
        held
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.agent.take());
        for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{}-", self.name)) {
                let _ = Netns::remove(&entry.path());
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The networks of a pod's status, with their interfaces.
pub(crate) fn status(api: &impl Api, pod: &str) -> Vec<(String, String)> {
    let Some(pod) = api.pod(pod) else { return Vec::new() };
    let Some(text) = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str() else { return Vec::new() };
    let status: Value = serde_json::from_str(text).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    status.as_array().unwrap().iter().map(|one| (text(one, "name"), text(one, "interface"))).collect()
}

/// Waits until it is so.
pub(crate) fn until<T: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> T, is: impl Fn(&T) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = look();
        if is(&seen) {
            return;
        }
        assert!(Instant::now() < end, "not in time: {what}: {seen:?}");
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(10));
    }
}
