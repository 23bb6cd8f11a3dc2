//! Open vSwitch on a machine of a test's own: the real ovsdb-server and ovs-vswitchd, in the machine's namespaces, with the userspace
//! datapath, which needs no kernel module.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Host, Running, until};

/// Where the database also listens, as a machine sees it: the usual place.
const USUAL: &str = "/run/openvswitch/db.sock";

/// A switch. Its files are outside of what a machine's traces have; they and the processes go with it.
pub struct Switch {
    /// A process in the machine's namespaces.
    machine: u32,
    usual: PathBuf,
    dir: PathBuf,
    /// Where Open vSwitch with DPDK is unpacked, for one that is started so.
    dpdk: Option<PathBuf>,
    database: Option<Running>,
    daemon: Option<Running>,
    agent: Option<Running>,
}

// === impl Switch ===

impl Switch {
    /// Starts one with these bridges.
    ///
    /// # Panics
    /// If Open vSwitch is not installed, or does not start.
    pub fn start(host: &Host, bridges: &[&str]) -> Self {
        Switch::started(host, bridges, None)
    }

    /// Starts one with DPDK, on ordinary memory and without devices: its ports of the type vhost-user work. One of its threads never rests.
    ///
    /// # Panics
    /// As [`Switch::start`]; `scripts/setup.sh neutron` fetches it.
    pub fn with_dpdk(host: &Host, bridges: &[&str]) -> Self {
        let cache = || Path::new(&std::env::var("HOME").unwrap()).join(".cache/netloom-dpdk");
        let dir = std::env::var_os("NETLOOM_DPDK").map_or_else(cache, PathBuf::from);
        assert!(dir.exists(), "{} is missing: run scripts/setup.sh neutron", dir.display());
        Switch::started(host, bridges, Some(dir))
    }

    /// Starts one on a machine that has a process of this ID, and its files at what `path` says, with these bridges.
    ///
    /// # Panics
    /// As [`Switch::start`].
    pub fn on(machine: u32, path: &dyn Fn(&str) -> PathBuf, bridges: &[&str]) -> Self {
        Switch::started_on(machine, path(USUAL), bridges, None)
    }

    fn started(host: &Host, bridges: &[&str], dpdk: Option<PathBuf>) -> Self {
        Switch::started_on(host.pid(), host.path(USUAL), bridges, dpdk)
    }

    fn started_on(machine: u32, usual: PathBuf, bridges: &[&str], dpdk: Option<PathBuf>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("netloom-ovs-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir_all(usual.parent().unwrap()).unwrap();
        let mut switch = Switch { machine, usual, dir, dpdk, database: None, daemon: None, agent: None };
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        run(Command::new("ovsdb-tool").args(["create", &switch.file("conf.db"), schema]));
        switch.start_database();
        switch.vsctl("--no-wait init");
        if switch.dpdk.is_some() {
            let extra = "--legacy-mem --no-huge -m 256 --no-pci";
            let db = format!("--db=unix:{}", switch.socket());
            let args = ["--no-wait", &db, "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"];
            run(Command::new("ovs-vsctl").args(args).arg(format!("other_config:dpdk-extra=\"{extra}\"")));
        }
        switch.start_daemon();
        bridges.iter().for_each(|bridge| drop(switch.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"))));
        switch
    }

    /// The path of the database's socket, from everywhere.
    pub fn socket(&self) -> String {
        self.file("db.sock")
    }

    /// The directory of its sockets: where `ovs-ofctl` looks for a bridge, with `OVS_RUNDIR`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `ovs-vsctl` with these words prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn vsctl(&self, words: &str) -> String {
        run(Command::new("ovs-vsctl")
            .args(["--timeout=60", "--retry", &format!("--db=unix:{}", self.socket())])
            .args(words.split_whitespace()))
    }

    /// The ports of a bridge but its own.
    pub fn ports(&self, bridge: &str) -> Vec<String> {
        self.vsctl(&format!("list-ports {bridge}")).lines().map(str::to_owned).collect()
    }

    /// Starts ovsdb-server, and waits until it listens.
    pub fn start_database(&mut self) {
        let remotes = [format!("--remote=punix:{}", self.socket()), format!("--remote=punix:{USUAL}")];
        let control = format!("--unixctl={}", self.file("db.ctl"));
        self.database = Some(self.process("ovsdb-server", &[&self.file("conf.db"), &remotes[0], &remotes[1], &control]));
        let sockets = [Path::new(&self.socket()).to_owned(), self.usual.clone()];
        until("ovsdb-server listens", || sockets.iter().all(|socket| socket.exists()));
    }

    /// Ends ovsdb-server, as a crash does.
    pub fn stop_database(&mut self) {
        self.database = None;
        let _ = (std::fs::remove_file(self.socket()), std::fs::remove_file(&self.usual));
    }

    /// Starts ovs-vswitchd.
    pub fn start_daemon(&mut self) {
        let (database, control) = (format!("unix:{}", self.socket()), format!("--unixctl={}", self.file("vs.ctl")));
        let program = match &self.dpdk {
            None => "ovs-vswitchd".to_owned(),
            Some(dir) => dir.join("usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").display().to_string(),
        };
        self.daemon = Some(self.process(&program, &[&database, &control]));
    }

    /// Ends ovs-vswitchd, as a crash does.
    pub fn stop_daemon(&mut self) {
        self.daemon = None;
    }

    /// Plays Neutron's agent from now on: a port that carries nothing gets a VLAN.
    pub fn start_agent(&mut self) {
        let vsctl = format!("ovs-vsctl --no-wait --timeout=10 --db=unix:{}", self.socket());
        let wire = format!("{vsctl} set port $port tag=1 -- clear port $port vlan_mode -- clear port $port trunks");
        let dead = format!("{vsctl} --bare --columns=name find port tag=4095");
        // Sleeps: nothing in a shell waits for a row, so it looks again and again.
        let script = format!("while :; do for port in $({dead}); do {wire}; done; sleep 0.1; done");
        // So that none is left of a test that was killed.
        self.agent = Some(Running::start(Command::new("setpriv").args(["--pdeathsig", "KILL", "--", "sh", "-c", &script])));
    }

    /// Ends what plays Neutron's agent.
    pub fn stop_agent(&mut self) {
        self.agent = None;
    }

    fn process(&self, program: &str, args: &[&str]) -> Running {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.machine.to_string(), "--mount", "--net", "--", program]).args(args);
        if let Some(dir) = &self.dpdk {
            command.env("LD_LIBRARY_PATH", dir.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)));
        }
        Running::start(command.env("OVS_RUNDIR", &self.dir).env("OVS_LOGDIR", &self.dir))
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        (self.agent, self.daemon, self.database) = (None, None, None);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
