//! Where a pod is attached: a directory of plugins and state, and a namespace.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chain::Chain;
use cni::{CniArgs, CniError, ContainerId, NetworkList};
use linux::Netns;
use netloom_attach::{
    AddError, Attacher, Devices, ImplicitNetwork, Lost, Networks, Plan, PlanRequest, PodView, Record, Records, Sandbox, plan,
};
use npwg::{Definition, DefinitionRef};
use plugin::{Dirs, Finder, Host, Prefer};

/// A directory of plugins and state, a namespace, and the definitions of the tests.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    netns: PathBuf,
    definitions: Vec<Definition>,
}

/// Notes what it is given and what it finds in its file, then does what the test wants of it.
const SCRIPT: &str = "#!/bin/sh\ndir=$(dirname \"$0\")\nas=$dir/$CNI_IFNAME.$CNI_COMMAND\ncat >\"$as\"\n\
    file=$(sed -n 's/.*\"CNIDeviceInfoFile\":\"\\([^\"]*\\)\".*/\\1/p' \"$as\")\n\
    [ ! -e \"$file\" ] || cat \"$file\" >\"$as.found\"\n";
pub(crate) const RESULT: &str = "[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\"}'\n";

impl Networks for World {
    fn default_network(&self) -> Option<&ImplicitNetwork> {
        None
    }

    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition> {
        self.definitions.iter().find(|d| d.reference() == *reference)
    }

    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError> {
        Err(CniError::invalid("name", name))
    }
}

impl World {
    pub(crate) fn new(script: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("nlat-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        let plugin = dir.join("scripted");
        std::fs::write(&plugin, format!("{SCRIPT}{script}")).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        let netns = Path::new("/run/netns").join(&name);
        Netns::create(&netns).unwrap();
        let definition = |name: &str, config: &str, resource: Option<&str>| Definition {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            config: Some(config.to_owned()),
            resource_name: resource.map(str::to_owned),
            is_neutron: false,
        };
        let able = r#"{"cniVersion":"1.0.0","plugins":[
            {"type":"scripted","capabilities":{"CNIDeviceInfoFile":true,"deviceID":true},"deviceID":"the definition's"}]}"#;
        let definitions = vec![
            definition("nic", able, Some("example.com/nic")),
            definition("socket", able, None),
            definition("asked", r#"{"cniVersion":"1.0.0","type":"scripted","capabilities":{"ips":true,"mac":true}}"#, None),
            definition("plain", r#"{"cniVersion":"1.0.0","type":"scripted"}"#, Some("example.com/nic")),
        ];
        World { dir, netns, definitions }
    }

    pub(crate) fn attacher(&self) -> Attacher {
        let finder = Finder::new(&[], vec![self.dir.clone()], Prefer::Path, std::env::vars_os().collect());
        Attacher::new(Chain::new(finder, None), Records::new(self.dir.join("sandboxes")))
    }

    fn host(&self) -> Host {
        Host::here(Dirs::below(&self.dir))
    }

    pub(crate) fn plan(&self, networks: &str, devices: &[(&str, &str)]) -> Plan {
        let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some(networks.into()), ..PodView::default() };
        let devices = Devices::new(devices.iter().copied());
        plan(&PlanRequest { devices: Some(&devices), ..PlanRequest::new(&pod, &"eth0".parse().unwrap(), plugins::BUILTINS) }, self).unwrap()
    }

    pub(crate) fn add(&self, plan: &Plan) -> Result<Record, AddError> {
        let sandbox = Sandbox { id: id(), netns: self.netns.clone(), opened: None, args: CniArgs::default(), pod: PodView::default() };
        self.attacher().add(&sandbox, plan, &mut self.host(), soon())
    }

    pub(crate) fn del(&self) -> Result<(), String> {
        self.attacher().del(&id(), Lost::EveryAddress, &mut self.host(), soon()).map_err(|e| e.to_string())
    }

    pub(crate) fn device_plugin_says(&self, text: &str) -> PathBuf {
        let path = self.dir.join("devices/dp/example.com-nic-0000:18:02.5-device.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The attachments' files that are there now.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.join("devices/cni")).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What the plugin noted under a name, as `net1.ADD`.
    pub(crate) fn noted(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap()
    }

    pub(crate) fn given(&self, name: &str) -> json::Object {
        json::parse(self.noted(name).as_bytes()).unwrap().as_object().unwrap().clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = Netns::remove(&self.netns);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn id() -> ContainerId {
    "pod".parse().unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
