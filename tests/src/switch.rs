//! Open vSwitch on a machine of a test's own: the real ovsdb-server and ovs-vswitchd, in the machine's namespaces, with the userspace
//! datapath, which needs no kernel module.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Host, Running};

/// A switch. Its files are outside of what a machine's traces have; they and the processes go with it.
pub struct Switch<'h> {
    host: &'h Host,
    dir: PathBuf,
    database: Option<Running>,
    daemon: Option<Running>,
}

// === impl Switch ===

impl<'h> Switch<'h> {
    /// Starts one, without a bridge.
    ///
    /// # Panics
    /// If Open vSwitch is not installed, or does not start.
    pub fn start(host: &'h Host) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("netloom-ovs-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let mut switch = Switch { host, dir, database: None, daemon: None };
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        host.run("", &["ovsdb-tool", "create", &switch.file("conf.db"), schema]);
        switch.start_database();
        switch.vsctl("--no-wait init");
        switch.start_daemon();
        switch
    }

    /// The same with bridges of the userspace datapath.
    pub fn with_bridges(host: &'h Host, bridges: &[&str]) -> Self {
        let switch = Switch::start(host);
        bridges.iter().for_each(|bridge| drop(switch.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"))));
        switch
    }

    /// The path of the database's socket.
    pub fn socket(&self) -> String {
        self.file("db.sock")
    }

    /// What `ovs-vsctl` with these words prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn vsctl(&self, words: &str) -> String {
        let database = format!("--db=unix:{}", self.socket());
        let words: Vec<&str> = words.split_whitespace().collect();
        self.host.run("", &[&["ovs-vsctl", "--timeout=60", &database], &words[..]].concat())
    }

    /// The ports of a bridge but its own.
    pub fn ports(&self, bridge: &str) -> Vec<String> {
        self.vsctl(&format!("list-ports {bridge}")).lines().map(str::to_owned).collect()
    }

    /// Starts ovsdb-server, and waits until it listens.
    pub fn start_database(&mut self) {
        let remote = format!("--remote=punix:{}", self.socket());
        let control = format!("--unixctl={}", self.file("db.ctl"));
        self.database = Some(self.process("ovsdb-server", &[&self.file("conf.db"), &remote, &control]));
        self.host.until("ovsdb-server listens", || Path::new(&self.socket()).exists());
    }

    /// Ends ovsdb-server, as a crash does.
    pub fn stop_database(&mut self) {
        self.database = None;
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts ovs-vswitchd.
    pub fn start_daemon(&mut self) {
        let (database, control) = (format!("unix:{}", self.socket()), format!("--unixctl={}", self.file("vs.ctl")));
        self.daemon = Some(self.process("ovs-vswitchd", &[&database, &control]));
    }

    /// Ends ovs-vswitchd, as a crash does.
    pub fn stop_daemon(&mut self) {
        self.daemon = None;
    }

    fn process(&self, program: &str, args: &[&str]) -> Running {
        let mut command = self.host.command("", program);
        Running::start(command.args(args).env("OVS_RUNDIR", &self.dir).env("OVS_LOGDIR", &self.dir))
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        (self.daemon, self.database) = (None, None);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
