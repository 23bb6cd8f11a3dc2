//! The whole plug of a port, veth pair, addresses and routes included: by our plugin, a process each time, and by the code of kuryr-cni's daemon,
//! in a process that is there already.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use testbed::openstack::Kuryr;

use crate::namespace::Namespace;
use crate::network::Verb;
use crate::side::{installed, plugin_job};

/// The port, as Kuryr writes it.
const VIF: &str = include_str!("../../../crates/osvif/tests/captured/VIFOpenVSwitch.json");

/// Both sides, on one host with one switch.
pub(super) struct Plug {
    plugins: PathBuf,
    config: Value,
    container: Namespace,
    kuryr: Kuryr,
    vif: String,
}

// === impl Plug ===

impl Plug {
    /// `dir` has the socket of the database; `libraries` is where Kuryr is installed.
    pub(super) fn start(host: &Namespace, executable: &Path, libraries: &Path, dir: &Path, bridge: &str) -> Result<Self> {
        let plugins = installed("ovs", executable, dir)?;
        let ipam = json!({"type": "static", "addresses": [{"address": "192.0.2.146/24", "gateway": "192.0.2.1"}],
            "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.254"}, {"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]});
        let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "ovs", "bridge": bridge, "mtu": 1450, "mac": "fa:16:3e:53:39:69",
            "iface_id": "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c", "socket_file": dir.join("db.sock"), "ipam": ipam});
        let kuryr = host.enter(|| Kuryr::start(Command::new("env"), libraries, dir))?;
        Ok(Plug { plugins, config, container: Namespace::make("ovs-pod")?, kuryr, vif: VIF.replace("br-int", bridge) })
    }

    /// How long our plug takes; the port is gone afterwards.
    pub(super) fn ours(&self, host: &Namespace) -> Result<Duration> {
        let run = |verb| host.enter(|| plugin_job(&self.plugins, "ovs", verb, &self.container, "eth0", &self.config).run(verb));
        let took = run(Verb::Add)?;
        run(Verb::Del)?;
        Ok(took)
    }

    /// The same of Kuryr's.
    pub(super) fn kuryr(&mut self) -> Result<Duration> {
        let netns = self.container.path();
        let took = self.kuryr.plug(&netns, "eth0", &self.vif, true)?;
        self.kuryr.unplug(&netns, "eth0", &self.vif)?;
        // The pair goes with the pod there.
        self.container.ip(&["link", "delete", "eth0"])?;
        Ok(took)
    }
}
