//! RabbitMQ: the message bus between Neutron and its agents.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::control::free_port;
use crate::{Den, Process};

/// Until it listens. It is 6 to 10 seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// A bus on 127.0.0.1. Its processes end with it, the daemon of Erlang's names (epmd) included, which is its own.
#[derive(Debug)]
pub(super) struct Rabbit {
    // Dropped in this order.
    _server: Process,
    _den: Den,
    port: u16,
}

// === impl Rabbit ===

impl Rabbit {
    /// Starts one with all its files in `dir`, and waits until it listens.
    pub(super) fn start(dir: PathBuf) -> Result<Self> {
        const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
        if !Path::new(PROGRAM).exists() {
            bail!("rabbitmq-server is missing: run scripts/setup.sh neutron");
        }
        std::fs::create_dir_all(dir.join("log")).with_context(|| format!("{}", dir.display()))?;
        let (port, den) = (free_port(0)?, Den::new(None, "")?);
        let file = |name: &str| dir.join(name).display().to_string();
        let write = |name: &str, text: String| std::fs::write(dir.join(name), text).with_context(|| format!("{name} cannot be written"));
        write("rabbitmq.conf", format!("listeners.tcp.local = 127.0.0.1:{port}\n"))?;
        write("enabled_plugins", "[].\n".to_owned())?;
        let mut command = den.command(PROGRAM);
        // The cookie of Erlang is in the home directory; the name is that of a node on this epmd.
        command.env("HOME", &dir).env("RABBITMQ_NODENAME", "netloom@localhost").env("ERL_EPMD_PORT", free_port(1)?.to_string());
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1").env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_DIST_PORT", free_port(2)?.to_string());
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}");
        for (variable, name) in [
            ("RABBITMQ_MNESIA_BASE", "mnesia"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_PID_FILE", "pid"),
        ] {
            command.env(variable, file(name));
        }
        let mut server = Process::spawn(command, "rabbitmq-server", &dir.join("output.log"))?;
        server.until("it listens", PATIENCE, Duration::from_millis(100), || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Rabbit { _server: server, _den: den, port })
    }

    /// `127.0.0.1:PORT`.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What Neutron and its agents are configured with, where the bus is at this address.
    pub(super) fn url(address: &str) -> String {
        format!("rabbit://guest:guest@{address}/")
    }
}
