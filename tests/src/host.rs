//! A machine of a test's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;

use crate::{Cni, guest, seen_within};

/// Where a process of the holder's namespaces is entered; a container's is `/run/netns/NAME` among its files.
///
/// The holder owns a network and a mount namespace in which everything that a plugin keeps state in is an empty file
/// system: `/run`, `/var/lib` and `/etc/cni`. It lives until the pipe to its standard input closes, which the kernel
/// does when the test ends, also by SIGKILL: links, rules, files and the containers go with it, and nothing is ever
/// left to sweep.
pub struct Host {
    holder: Child,
}

/// What `ip -j -d link` says of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkView(pub Value);

/// What the holder runs: `cat` ends with its standard input. A machine that never had a CNI program has no `/etc/cni`: it gets an empty
/// one, or all hosts would write into one and the same.
const HOLDER: &str = "set -e
for dir in /run /var/lib /etc/cni; do mkdir -p $dir; mount -t tmpfs -o mode=755 netloom-tests $dir; done
mkdir -p /run/netns /run/lock
ip link set lo up
echo ready
exec cat >/dev/null";

/// What a namespace has from the machine's own, which another program may have set: IPv4's sysctls are inherited
/// (`net.core.devconf_inherit_init_net`). What a test compares, it makes.
const INHERITED: [&str; 6] = [
    "ipv4/ip_forward",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/default/rp_filter",
    "ipv4/conf/lo/rp_filter",
    "ipv6/conf/all/forwarding",
    "ipv6/conf/default/forwarding",
];

/// Takes the namespace that this thread is in to the kernel's defaults. A kernel may be without IPv6.
fn inherit_nothing() {
    for sysctl in INHERITED {
        let path = Path::new("/proc/sys/net").join(sysctl);
        let written = std::fs::write(&path, "0");
        assert!(written.is_ok() || !path.exists(), "{sysctl}: {written:?}");
    }
}

// === impl Host ===

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// A machine with nothing but a loopback interface.
    ///
    /// # Panics
    /// If namespaces cannot be made: the tests need root.
    pub fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", HOLDER]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut host = Host { holder: command.spawn().expect("unshare (util-linux) starts") };
        let mut said = [0; 6];
        let read = host.holder.stdout.as_mut().unwrap().read_exact(&mut said);
        assert!(read.is_ok() && &said == b"ready\n", "no namespaces can be made here: run the tests as root");
        host.within("", inherit_nothing);
        host
    }

    /// A process in its namespaces, by the ID that it has here.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// The way from here to a path as this machine sees it.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Writes a file below this machine's `/run` or `/var/lib`, and the directories it is in.
    pub fn write(&self, inside: &str, text: &str) {
        let path = self.path(inside);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The names in one of this machine's directories, in order; none if it is missing.
    pub fn list(&self, inside: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(inside)).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Makes a container's namespace, `/run/netns/NAME`, as `ip netns add`.
    pub fn container(&self, name: &str) {
        self.run("", &["ip", "netns", "add", name]);
        self.within(name, inherit_nothing);
    }

    /// A program to be run in a container, or on the machine itself where that is `""`.
    pub fn command(&self, container: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.holder.id().to_string()).arg("--mount");
        match container {
            "" => command.arg("--net"),
            name => {
                let mut arg = std::ffi::OsString::from("--net=");
                arg.push(self.path("/run/netns").join(name));
                command.arg(arg)
            }
        };
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// A program to be run on the machine itself, where it and each process that it starts may have so many MiB of
    /// memory of their own (`RLIMIT_DATA`, setrlimit(2)): one that asks for more is refused it, and ends. It has three
    /// minutes, after which it is killed: exit code 137.
    pub fn limited(&self, mib: u64, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("", "prlimit");
        command.arg(format!("--data={}", mib << 20)).args(["--", "timeout", "-s", "KILL", "180"]).arg(program);
        command
    }

    /// Runs a program in a container (`""`: on the machine itself), and returns what it did.
    pub fn try_run(&self, container: &str, argv: &[&str]) -> Output {
        let (program, args) = argv.split_first().expect("a program");
        let output = self.inside(container, || Command::new(program).args(args).stdin(Stdio::null()).output());
        output.unwrap_or_else(|e| panic!("{argv:?} in {container:?}: {e}"))
    }

    /// Whether a program succeeds.
    pub fn run_ok(&self, container: &str, argv: &[&str]) -> bool {
        self.try_run(container, argv).status.success()
    }

    /// As [`Host::try_run`], and returns what the program printed.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, container: &str, argv: &[&str]) -> String {
        let output = self.try_run(container, argv);
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{argv:?} in {container:?}: {}\n{stdout}{stderr}", output.status);
        stdout.into_owned()
    }

    /// Runs a line of `ip`, `bridge` or `nft` whose words have no spaces.
    pub fn sh(&self, container: &str, line: &str) -> String {
        self.run(container, &line.split_whitespace().collect::<Vec<_>>())
    }

    /// The JSON that such a line prints; the list is empty where the program prints nothing.
    pub fn json(&self, container: &str, line: &str) -> Value {
        let text = self.sh(container, line);
        if text.trim().is_empty() { Value::Array(Vec::new()) } else { serde_json::from_str(&text).unwrap() }
    }

    /// A link, `None` if there is none of that name.
    pub fn link(&self, container: &str, name: &str) -> Option<LinkView> {
        let links = self.json(container, "ip -j -d link");
        let found = links.as_array().unwrap().iter().find(|l| l["ifname"] == name);
        found.cloned().map(LinkView)
    }

    /// Every link, without what the kernel tells of its carrier: it does that up to a second later (`net/core/link_watch.c`).
    pub fn links_but_carriers(&self, container: &str) -> Value {
        let mut links = self.json(container, "ip -j -d link");
        for link in links.as_array_mut().unwrap() {
            link.as_object_mut().unwrap().remove("operstate");
            link["flags"].as_array_mut().unwrap().retain(|flag| flag != "LOWER_UP" && flag != "NO-CARRIER");
        }
        links
    }

    /// Every address of a link, as `10.1.0.2/16`, without those that the kernel makes.
    pub fn addresses(&self, container: &str, name: &str) -> Vec<String> {
        let shown = self.json(container, &format!("ip -j addr show dev {name}"));
        let infos = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        let infos = infos.iter().filter(|i| i["scope"] != "link");
        infos.map(|i| format!("{}/{}", i["local"].as_str().unwrap(), i["prefixlen"])).collect()
    }

    /// Whether an address answers an echo request within a minute: where it does, it mostly does at once. Where it must not,
    /// ask [`Host::silent`].
    pub fn pings(&self, from: &str, address: &str) -> bool {
        self.pings_within(Duration::from_secs(60), from, address)
    }

    /// Whether an address answers no echo request for three seconds ([`guest::patience`]).
    pub fn silent(&self, from: &str, address: &str) -> bool {
        !self.pings_within(guest::patience(Duration::from_secs(3)), from, address)
    }

    fn pings_within(&self, patience: Duration, from: &str, address: &str) -> bool {
        let end = Instant::now() + patience;
        // It ends early where an error comes back: that a neighbour does not answer yet, for one.
        let ping = || {
            let left = end.saturating_duration_since(Instant::now()).as_secs() + 1;
            self.run_ok(from, &["ping", "-c1", &format!("-w{left}"), "-n", address])
        };
        seen_within(patience, ping, |answered| *answered).is_ok()
    }

    /// A plugin call with the plugins of a directory.
    pub fn cni(&self, dir: &Path) -> Cni<'_> {
        Cni::new(self, dir)
    }

    /// Runs `f` on a thread of its own that is in a container's network namespace (`""`: the machine's): what it opens
    /// belongs there, wherever it is used then.
    ///
    /// # Panics
    /// If it cannot get there, or `f` panics.
    pub fn within<T: Send>(&self, container: &str, f: impl FnOnce() -> T + Send) -> T {
        self.try_within(container, f).unwrap_or_else(|e| panic!("{container:?} cannot be entered: {e}"))
    }

    /// As [`Host::within`], and among the machine's files: what `f` starts is where [`Host::command`] is. A thread that goes there
    /// costs less than `nsenter`, which in an emulated machine is half of what a small program does.
    pub(crate) fn inside<T: Send>(&self, container: &str, f: impl FnOnce() -> T + Send) -> T {
        let mount = File::open(Path::new("/proc").join(self.holder.id().to_string()).join("ns/mnt")).unwrap();
        self.within(container, || {
            // Which directory is the root is the process's, until a thread has one of its own.
            unshare(CloneFlags::CLONE_FS).unwrap();
            setns(mount, CloneFlags::CLONE_NEWNS).unwrap();
            f()
        })
    }

    /// As [`Host::within`], where it may be that there is no such container, or only a file in its place.
    ///
    /// # Errors
    /// That of setns(2), or of opening it.
    pub fn try_within<T: Send>(&self, container: &str, f: impl FnOnce() -> T + Send) -> std::io::Result<T> {
        let proc = Path::new("/proc").join(self.holder.id().to_string());
        let path = if container.is_empty() { proc.join("ns/net") } else { self.path("/run/netns").join(container) };
        let netns = File::open(path)?;
        let inside = || {
            setns(netns, CloneFlags::CLONE_NEWNET)?;
            Ok(f())
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// As [`crate::until`], of something on this machine.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        crate::until(what, holds);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

// === impl LinkView ===

impl LinkView {
    /// Whether a flag is set, as `UP` or `PROMISC`.
    pub fn has(&self, flag: &str) -> bool {
        self.0["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == flag))
    }

    /// Its number in its namespace.
    pub fn index(&self) -> u64 {
        self.0["ifindex"].as_u64().unwrap()
    }

    /// The largest packet, in bytes.
    pub fn mtu(&self) -> u64 {
        self.0["mtu"].as_u64().unwrap()
    }

    /// The hardware address.
    pub fn mac(&self) -> &str {
        self.0["address"].as_str().unwrap()
    }
}
