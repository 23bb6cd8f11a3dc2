//! Neutron's agent of a node with Open vSwitch: neutron-openvswitch-agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::rabbit::Rabbit;

/// An agent, as it is configured. It gives each port of `br-int` whose `iface-id` Neutron knows its VLAN, flows and security groups, and
/// reports the port as ACTIVE. It makes the flows of `br-int`, and `br-tun` with a tunnel to each other agent.
#[derive(Debug, Clone)]
pub struct SwitchAgent<'a> {
    /// The name of its host: that in `binding:host_id`.
    pub host: &'a str,
    /// Where the bus is ([`super::Neutron::bus`]), as it sees it.
    pub bus: &'a str,
    /// The socket of ovsdb-server.
    pub database: &'a str,
    /// The directory in which ovs-vswitchd has its sockets, one for each bridge (`OVS_RUNDIR`).
    pub sockets: &'a Path,
    /// The end of its tunnels: an address of the interface of a bridge that leads to the other hosts.
    pub tunnel_address: &'a str,
    /// The bridge of the physical network [`super::PHYSICAL`].
    pub physical_bridge: &'a str,
    /// An empty directory of its own.
    pub dir: PathBuf,
}

// === impl SwitchAgent ===

impl SwitchAgent<'_> {
    /// Writes its files; the program with its arguments, to be put behind what enters the host's namespaces (`nsenter ... --`).
    ///
    /// # Errors
    /// If the package is missing, or a file cannot be written.
    pub fn command(&self, mut enter: Command) -> Result<Command> {
        const PROGRAM: &str = "/usr/bin/neutron-openvswitch-agent";
        if !Path::new(PROGRAM).exists() {
            bail!("neutron-openvswitch-agent is missing: run scripts/setup.sh neutron");
        }
        let dir = self.dir.display();
        let file = self.dir.join("agent.ini");
        let mut text = String::new();
        let mut section = |name: &str, keys: &[(&str, &str)]| {
            text.push_str(&format!("[{name}]\n"));
            keys.iter().for_each(|(key, value)| text.push_str(&format!("{key} = {value}\n")));
        };
        let (bus, state, lock) = (Rabbit::url(self.bus), format!("{dir}/state"), format!("{dir}/lock"));
        section("DEFAULT", &[("host", self.host), ("transport_url", &bus), ("state_path", &state)]);
        section("oslo_concurrency", &[("lock_path", &lock)]);
        section(
            "ovs",
            &[
                ("integration_bridge", "br-int"),
                ("tunnel_bridge", "br-tun"),
                ("datapath_type", "netdev"),
                ("local_ip", self.tunnel_address),
                ("bridge_mappings", &format!("{}:{}", super::PHYSICAL, self.physical_bridge)),
                ("ovsdb_connection", &format!("unix:{}", self.database)),
                ("of_listen_address", "127.0.0.1"),
            ],
        );
        // `env` runs what it is given: the agent is root already, and `sudo` would lose OVS_RUNDIR.
        section("agent", &[("tunnel_types", "vxlan"), ("root_helper", "env"), ("report_interval", "15")]);
        section("securitygroup", &[("enable_security_group", "true"), ("firewall_driver", "openvswitch")]);
        std::fs::create_dir_all(&self.dir).with_context(|| format!("{dir}"))?;
        std::fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
        enter.arg(PROGRAM).arg("--config-file").arg(file).arg("--log-file").arg(self.log());
        enter.env("OVS_RUNDIR", self.sockets);
        Ok(enter)
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }
}
