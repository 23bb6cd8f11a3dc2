//! Open vSwitch of a lab's nodes. A network of `ovs` needs a bridge that is there, which on a real node its administrator has made. Each node of a lab
//! runs a switch of its own, with the userspace datapath, which every kernel has.
//!
//! ```text
//!   plans --bridges--> their names           namespace of node 2                             namespace of the wires
//!     `--refusal--> fewer plans                ovs-vswitchd: br1 - ovs-up1 <---- veth ----> w2-2 - bridge w2
//!                                                `- ovsdb-server: <lab>/switches/2/db.sock
//! ```
//!
//! A bridge has the same name on every node. Its uplink is an interface of the node like a parent, so a wire joins the bridges of one name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use attach::{Plan, Refusal};
use cni::{CniError, Code, IfName, NetworkList};
use linux::process::{self, Program};
use linux::{Inside, Netns, Sysctl};

use crate::labs::make_dir;
use crate::node::Failure;
use crate::state::Lab;
use crate::wire;

/// How long Open vSwitch may take to start, or to make a bridge.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// What its programs may print.
const MAX_OUTPUT: usize = 64 << 10;
/// What the names of uplinks begin with.
const UPLINK: &str = "ovs-up";
/// The executables that are needed.
const PROGRAMS: [&str; 4] = ["ovsdb-tool", SERVER, DAEMON, "ovs-vsctl"];

/// Those of them that stay.
const SERVER: &str = "ovsdb-server";
const DAEMON: &str = "ovs-vswitchd";
/// The socket of the server.
pub(crate) const SOCKET: &str = "db.sock";
/// The database's file.
const DATABASE: &str = "conf.db";

/// A node's switch.
struct Switch {
    dir: PathBuf,
}

/// The bridges that planned networks need, in the order of their names.
pub(crate) fn bridges(plans: &[Result<Plan, Vec<Refusal>>]) -> std::collections::BTreeSet<String> {
    let lists = plans.iter().flatten().flat_map(|plan| &plan.attachments).map(|planned| &planned.list);
    // The plugin refuses every other name.
    lists.flat_map(of).filter(|name| IfName::parse(name).is_ok()).map(str::to_owned).collect()
}

/// The bridges of Open vSwitch that a network names.
pub(crate) fn of(list: &NetworkList) -> impl Iterator<Item = &str> {
    let is_switched = |kind: &str| matches!(kind, "ovs" | "ovs-hybrid");
    // Another socket is another switch's.
    let is_own =
        |raw: &json::Object| raw.str("socket_file").is_none_or(|named| named.is_empty() || plugins::is_usual_switch(Path::new(named)));
    let switched = list.plugins.iter().filter(move |plugin| is_switched(plugin.kind.as_str()) && is_own(plugin.raw()));
    switched.filter_map(|plugin| plugin.raw().str("bridge"))
}

/// Why a network cannot have its bridge.
pub(crate) fn refusal(list: &NetworkList) -> Option<CniError> {
    if let Some(parent) = wire::parents(list).into_iter().find(|name| is_uplink(name)) {
        let why = "a lab's nodes keep this name for the uplink of a bridge of Open vSwitch; name another parent";
        return Some(CniError::invalid("master", format!("{parent:?}: {why}")));
    }
    let own = of(list).find(|name| is_taken(name));
    if let Some(name) = own {
        let why = "a lab's nodes cannot have a bridge of Open vSwitch of this name; choose another one";
        return Some(CniError::invalid("bridge", format!("{name:?}: {why}")));
    }
    of(list).next()?;
    let missing = PROGRAMS.into_iter().find(|program| find(program).is_none())?;
    let why = format!(
        "a lab's nodes run Open vSwitch for it, and this machine has no {missing}: install it (apt-get install openvswitch-switch)"
    );
    Some(CniError::invalid("bridge", why))
}

/// Whether a node has an interface of this name by itself, or `ovs-vsctl` takes it for an option.
fn is_taken(name: &str) -> bool {
    name.starts_with('-') || ["lo", "ovs-netdev", "ovs-system", agent::PROVIDED_BRIDGE].contains(&name) || is_uplink(name)
}

fn is_uplink(name: &str) -> bool {
    name.strip_prefix(UPLINK).is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The interface by which a bridge, by its place among the lab's, reaches those of its name on other nodes.
pub(crate) fn uplink(at: usize) -> String {
    format!("{UPLINK}{}", at + 1)
}

/// The bridge whose uplink an interface of a node is.
pub(crate) fn bridge_of<'a>(lab: &'a Lab, interface: &str) -> Option<&'a String> {
    lab.bridges.iter().enumerate().find(|(at, _)| uplink(*at) == interface).map(|(_, bridge)| bridge)
}

/// Gives a node its bridges from a place on; its uplinks are there and up.
pub(crate) fn serve(lab: &Lab, node: &str, netns: &Netns, from: usize) -> Result<(), CniError> {
    let bridges: Vec<(usize, &String)> = lab.bridges.iter().enumerate().skip(from).collect();
    if bridges.is_empty() {
        return Ok(());
    }
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("start Open vSwitch on node {node}: {e}"));
    let work = |inside: &Inside| -> Result<(), Failure> {
        let switch = Switch { dir: lab.switch_dir(node) };
        switch.start()?;
        for (at, bridge) in bridges {
            let uplink = uplink(at);
            quiet(inside, &uplink)?;
            switch.vsctl(&[
                "--may-exist",
                "add-br",
                bridge,
                "--",
                "set",
                "bridge",
                bridge,
                "datapath_type=netdev",
                "--",
                "--may-exist",
                "add-port",
                bridge,
                &uplink,
            ])?;
        }
        Ok(())
    };
    netns.enter(work).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

/// Takes from a node the bridges from a place on, and its switch with the first one. What could not be undone, for a person.
pub(crate) fn withdraw(lab: &Lab, node: &str, from: usize) -> Vec<String> {
    let switch = Switch { dir: lab.switch_dir(node) };
    if from == 0 {
        return switch.stop();
    }
    let bridges = lab.bridges.iter().skip(from);
    let removed = bridges.map(|bridge| switch.vsctl(&["--no-wait", "--if-exists", "del-br", bridge]));
    removed.filter_map(|done| done.err().map(|e| e.to_string())).collect()
}

/// Starts the databases that somebody has ended: a port is taken out of its switch by the switch's own.
pub(crate) fn revive(lab: &Lab) {
    // Where it cannot be, the pods' removal says what it lacks.
    all(lab).filter(|switch| switch.dir.join(DATABASE).exists()).for_each(|switch| drop(switch.start_database()));
}

/// Ends the switches of a lab, and these processes, which are theirs. What could not be ended, for a person.
pub(crate) fn stop_all(lab: &Lab, more: &[u32]) -> Vec<String> {
    let dir = lab.switches_dir();
    more.iter().filter_map(|pid| end(*pid, &dir)).chain(all(lab).flat_map(Switch::stop)).collect()
}

/// Whether a process that is in a lab's namespace belongs to a switch of that lab.
pub(crate) fn is_own(lab: &Lab, pid: u32) -> bool {
    names(pid, &lab.switches_dir())
}

/// Whether the switch of a node forwards.
pub(crate) fn forwards(lab: &Lab, node: &str) -> bool {
    Switch { dir: lab.switch_dir(node) }.process(DAEMON).is_some()
}

fn all(lab: &Lab) -> impl Iterator<Item = Switch> {
    let dirs = std::fs::read_dir(lab.switches_dir()).into_iter().flatten().flatten();
    dirs.map(|entry| Switch { dir: entry.path() })
}

/// The node's kernel sees the frames of an uplink as well, and takes no part in them (`ovs` does the same with its ports).
fn quiet(inside: &Inside, uplink: &str) -> Result<(), Failure> {
    for (key, value) in [(["net", "ipv4", "conf", uplink, "rp_filter"], "1"), (["net", "ipv6", "conf", uplink, "disable_ipv6"], "1")] {
        let sysctl = Sysctl::new(key)?;
        if sysctl.exists(inside) {
            sysctl.write(inside, value)?;
        }
    }
    Ok(())
}

fn end(pid: u32, dir: &Path) -> Option<String> {
    let ended = process::end(pid, || names(pid, dir), GRACE);
    ended.err().map(|errno| format!("end process {pid} of Open vSwitch: {errno}"))
}

/// Whether a process has a file of this directory among its arguments.
fn names(pid: u32, dir: &Path) -> bool {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let dir = dir.join("");
    let dir = dir.as_os_str().as_encoded_bytes();
    arguments.windows(dir.len()).any(|part| part == dir)
}

fn find(program: &str) -> Option<PathBuf> {
    process::places(program).find(|path| path.is_file())
}

// === impl Switch ===

impl Switch {
    /// One of its processes, which writes down its number itself: it is found also where who started it was killed.
    fn process(&self, program: &str) -> Option<u32> {
        let pid = std::fs::read_to_string(self.dir.join(format!("{program}.pid"))).ok()?.trim().parse().ok()?;
        names(pid, &self.dir).then_some(pid)
    }

    /// What could not be ended, for a person.
    fn stop(self) -> Vec<String> {
        // The one that needs the other goes first.
        let processes = [DAEMON, SERVER].into_iter().filter_map(|program| self.process(program));
        let errors: Vec<String> = processes.filter_map(|pid| end(pid, &self.dir)).collect();
        if errors.is_empty() {
            drop(std::fs::remove_dir_all(&self.dir));
        }
        errors
    }

    /// Starts what of it does not run.
    fn start(&self) -> Result<(), Failure> {
        self.start_database()?;
        if self.process(DAEMON).is_some() {
            return Ok(());
        }
        let [pidfile, control] = self.told(DAEMON);
        let (remote, log) = (format!("unix:{}", self.file(SOCKET)), format!("--log-file={}", self.file("ovs-vswitchd.log")));
        self.run(DAEMON, &[&remote, &pidfile, &control, &log, "--detach"])
    }

    fn start_database(&self) -> Result<(), Failure> {
        if self.process(SERVER).is_some() {
            return Ok(());
        }
        make_dir(&self.dir)?;
        let database = self.file(DATABASE);
        if !Path::new(&database).exists() {
            self.run("ovsdb-tool", &["create", &database])?;
        }
        let ([pidfile, control], remote) = (self.told(SERVER), format!("--remote=punix:{}", self.file(SOCKET)));
        self.run(SERVER, &[&database, &remote, &pidfile, &control, "--detach"])?;
        self.vsctl(&["--no-wait", "init"])
    }

    /// Where a daemon writes down its number, and takes commands.
    fn told(&self, program: &str) -> [String; 2] {
        [format!("--pidfile={}", self.file(&format!("{program}.pid"))), format!("--unixctl={}", self.file(&format!("{program}.ctl")))]
    }

    /// Changes the database, and waits until ovs-vswitchd has applied it.
    fn vsctl(&self, words: &[&str]) -> Result<(), Failure> {
        let (db, time) = (format!("--db=unix:{}", self.file(SOCKET)), format!("--timeout={}", PATIENCE.as_secs()));
        let all: Vec<&str> = [db.as_str(), time.as_str()].into_iter().chain(words.iter().copied()).collect();
        self.run("ovs-vsctl", &all)
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), Failure> {
        let path = find(program).ok_or_else(|| format!("{program} is not installed (apt-get install openvswitch-switch)"))?;
        // Open vSwitch makes its other files in these directories.
        let dirs =
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].map(|key| (OsString::from(key), self.dir.clone().into_os_string()));
        let path_variable = std::env::var_os("PATH").map(|path| (OsString::from("PATH"), path));
        let output = process::run(&Program {
            path: &path,
            args,
            env: dirs.into_iter().chain(path_variable).collect(),
            stdin: b"",
            deadline: Instant::now() + PATIENCE,
            max_output: MAX_OUTPUT,
            mounts: None,
            // A daemon has left its parent by then.
            bound: true,
            sole: false,
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program}: {} (its log is in {})", said.trim(), self.dir.display()).into())
    }
}
