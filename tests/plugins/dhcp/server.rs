//! A real DHCP server, and the daemon, in a machine of a test's own.
//!
//! ```text
//!   container server: dnsmasq on eth0 (10.9.0.1/24) --veth-- bridge br0 of the machine --veth-- what the tests attach
//! ```

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netloom_tests::{Cni, Host, Traces, ips, plugin_dir, seen_within};
use serde_json::{Value, json};

/// A machine with a bridge and a network that a server answers on.
pub(crate) struct World {
    pub(crate) host: Host,
    servers: Vec<(String, Child)>,
    daemon: Option<Child>,
    /// Its flags.
    flags: Vec<&'static str>,
    /// What is told, outside of the machine: a log is no trace.
    logs: PathBuf,
}

/// Kills a child that `nsenter` has replaced itself by.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for World {
    fn drop(&mut self) {
        self.daemon.take().into_iter().for_each(end);
        self.servers.drain(..).for_each(|(_, child)| end(child));
        let _ = std::fs::remove_dir_all(&self.logs);
    }
}

impl World {
    /// A bridge, and nobody on it.
    pub(crate) fn empty() -> Self {
        let host = Host::new();
        // Else the machine itself takes addresses and routes from the servers' advertisements, whenever they come.
        host.sh("", "sysctl -qw net.ipv6.conf.default.accept_ra=0");
        for line in ["ip link add br0 address 02:00:00:00:09:00 type bridge", "ip link set br0 up"] {
            host.sh("", line);
        }
        let logs = std::env::temp_dir().join(format!("nllx-dhcp-{}", host.pid()));
        std::fs::create_dir_all(&logs).unwrap();
        World { host, servers: Vec::new(), daemon: None, flags: Vec::new(), logs }
    }

    /// With a server that grants 10.9.0.10 to 10.9.0.200 for an hour, and the daemon.
    pub(crate) fn new() -> Self {
        let mut world = World::empty();
        world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
        world.start();
        world
    }

    /// A container on the bridge with 10.9.0.1 (or 10.9.0.2, ...).
    pub(crate) fn station(&self, name: &str) {
        if self.host.list("/run/netns").contains(&name.to_owned()) {
            return;
        }
        let number = self.host.list("/run/netns").iter().filter(|n| n.starts_with("server")).count() + 1;
        self.station_at(name, Some(number));
    }

    /// The same with addresses that end in this number, or without any.
    pub(crate) fn station_at(&self, name: &str, number: Option<usize>) {
        self.host.container(name);
        for line in [format!("ip link add {name} type veth peer name eth0 netns {name}"), format!("ip link set {name} master br0 up")] {
            self.host.sh("", &line);
        }
        for line in ["ip link set lo up", "sysctl -qw net.ipv6.conf.eth0.accept_dad=0", "ip link set eth0 up"] {
            self.host.sh(name, line);
        }
        if let Some(number) = number {
            self.host.sh(name, &format!("ip addr add 10.9.0.{number}/24 dev eth0"));
            self.host.sh(name, &format!("ip addr add fd00:9::{number}/64 dev eth0 nodad"));
        }
    }

    /// Starts dnsmasq in a station of this name, with more arguments.
    pub(crate) fn serve(&mut self, name: &str, args: &[&str]) {
        self.station(name);
        let mut command = self.host.command(name, "dnsmasq");
        command.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--no-ping", "--log-dhcp", "--user=root", "--interface=eth0"]);
        command.args([format!("--dhcp-leasefile=/run/{name}.leases"), format!("--pid-file=/run/{name}.pid")]).args(args);
        self.spawn(name, command);
        self.host.until("dnsmasq listens", || self.log(name).contains("DHCP, IP range") || self.log(name).contains("DHCPv6, IP range"));
    }

    pub(crate) fn spawn(&mut self, name: &str, mut command: Command) {
        let log = std::fs::File::create(self.logs.join(name)).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.servers.push((name.to_owned(), child));
    }

    /// Ends a server, or anything else that was started under that name.
    pub(crate) fn stop(&mut self, name: &str) {
        let (gone, kept) = self.servers.drain(..).partition(|(n, _)| n == name);
        self.servers = kept;
        let gone: Vec<(String, Child)> = gone;
        gone.into_iter().for_each(|(_, child)| end(child));
    }

    /// What a server, or the daemon (`dhcp`), has told.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.logs.join(name)).unwrap_or_default()
    }

    /// How often a server's log says something.
    pub(crate) fn told(&self, name: &str, what: &str) -> usize {
        self.log(name).matches(what).count()
    }

    /// In how many exchanges dnsmasq has said it: a client that gets no answer in time asks again under the same number.
    pub(crate) fn exchanges(&self, name: &str, what: &str) -> usize {
        let log = self.log(name);
        let numbers = log.lines().filter(|line| line.contains(what)).filter_map(|line| line.split_whitespace().nth(1));
        numbers.collect::<BTreeSet<&str>>().len()
    }

    /// Waits until it has said it so often, for two minutes at most.
    pub(crate) fn until_told(&self, name: &str, what: &str, times: usize) {
        let told = seen_within(Duration::from_secs(120), || self.told(name, what), |told| *told >= times);
        assert!(told.is_ok(), "{name} has not told {what:?} {times} times:\n{}", self.log(name));
    }

    /// The daemon's flags from its next start on.
    pub(crate) fn flags(&mut self, flags: &[&'static str]) {
        self.flags = flags.to_vec();
    }

    /// Starts the daemon, and waits until it listens.
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.logs.join("dhcp")).unwrap();
        let mut command = self.host.command("", plugin_dir().join("dhcp"));
        command.arg("daemon").args(&self.flags).stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        self.host.until("the daemon listens", || UnixStream::connect(self.host.path("/run/cni/dhcp.sock")).is_ok());
    }

    /// Ends the daemon with SIGTERM, and says how it ended.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().unwrap();
        self.host.run("", &["kill", &self.daemon_pid(&daemon)]);
        daemon.wait().unwrap().code()
    }

    /// Ends what was started under that name with SIGTERM.
    pub(crate) fn terminate_spawned(&mut self, name: &str) {
        let at = self.servers.iter().position(|(n, _)| n == name).unwrap();
        let (_, mut child) = self.servers.remove(at);
        self.host.run("", &["kill", &child.id().to_string()]);
        child.wait().unwrap();
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.daemon.take().into_iter().for_each(end);
    }

    fn daemon_pid(&self, daemon: &Child) -> String {
        daemon.id().to_string()
    }

    pub(crate) fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    pub(crate) fn cni(&self, container: &str) -> Cni<'_> {
        self.host.cni(plugin_dir()).at(container, "eth0")
    }

    /// A container with an attachment: the result.
    pub(crate) fn attach(&self, container: &str) -> Value {
        self.host.container(container);
        self.cni(container).add(&bridge(json!({})))
    }

    /// What is there when one attachment has come and gone.
    pub(crate) fn used(&self) -> Traces {
        let result = self.attach("first");
        self.cni("first").del(&bridge(json!({})), &result);
        self.host.run("", &["ip", "netns", "del", "first"]);
        // A DEL waits for nobody who reads what it has sent.
        let kept = || self.host.run("", &["cat", "/run/server.leases"]);
        self.host.until("the server has the address again", || !kept().contains(&ips(&result)[0]));
        self.host.traces()
    }

    /// The plugin alone, for an interface that is there.
    pub(crate) fn only(&self, network: &str) -> Value {
        let mut config = bridge(json!({}));
        config["name"] = json!(network);
        config["type"] = json!("dhcp");
        config
    }

    /// Everybody is ended, and nothing else is there than before.
    pub(crate) fn expect(&self, before: &Traces, what: &str) {
        let leases = self.host.list("/run/cni/dhcp.leases");
        assert_eq!(leases, [".lock"], "{what}: leases are left");
        self.host.expect_traces(before, what);
    }
}

/// A network of type bridge with more keys below `ipam`.
pub(crate) fn bridge(ipam: Value) -> Value {
    let mut own = json!({"type": "dhcp"});
    own.as_object_mut().unwrap().extend(ipam.as_object().unwrap().clone());
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": own})
}

/// A program without which a test proves nothing.
///
/// # Panics
/// If it is missing: with the package that brings it.
pub(crate) fn needs(program: &str, package: &str) {
    let found = ["/usr/sbin", "/usr/bin", "/sbin"].iter().any(|dir| Path::new(dir).join(program).exists());
    assert!(found, "{program} is not installed: it is in the package {package}, which `scripts/setup.sh test` installs");
}
