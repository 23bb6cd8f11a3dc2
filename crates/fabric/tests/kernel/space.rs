//! A namespace for a test. It is mounted nowhere, and goes with the test, however that ends.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::{Inside, Monitor, Netlink, Netns, Notice};
use serde_json::Value;

/// What a namespace may have from the machine's own (`net.core.devconf_inherit_init_net`).
const INHERITED: [&str; 5] = [
    "ipv4/ip_forward",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/default/rp_filter",
    "ipv6/conf/all/forwarding",
    "ipv6/conf/default/forwarding",
];

pub(crate) struct Space {
    netns: Netns,
}

impl Space {
    /// Nothing but `lo`, which is up.
    pub(crate) fn new() -> Self {
        let space = Space { netns: Netns::unnamed().unwrap() };
        space.netns.enter(|_| INHERITED.iter().for_each(|sysctl| write_sysctl(sysctl, "0"))).unwrap();
        space.sh("ip link set lo up");
        space
    }

    /// Runs a test's work inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce(&Inside, &mut Netlink) -> T + Send) -> T {
        self.netns.enter(|inside| work(inside, &mut Netlink::open(inside).unwrap())).unwrap()
    }

    pub(crate) fn monitor(&self) -> Monitor {
        self.netns.enter(|inside| Monitor::open(inside).unwrap()).unwrap()
    }

    /// Its name to `ip link set ... netns`.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }

    /// Runs a line whose words have no spaces.
    pub(crate) fn try_sh(&self, line: &str) -> Output {
        self.netns.enter(|_| command(line).output()).unwrap().unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// As [`Space::try_sh`]; it must succeed.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> String {
        let output = self.try_sh(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The list that a line prints as JSON; an empty one where it prints nothing.
    pub(crate) fn json(&self, line: &str) -> Vec<Value> {
        let text = self.sh(line);
        if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap_or_else(|e| panic!("{line}: {e}\n{text}")) }
    }

    /// Starts a program that goes on.
    pub(crate) fn spawn(&self, line: &str) -> Child {
        self.netns.enter(|_| command(line).stdout(Stdio::piped()).spawn()).unwrap().unwrap()
    }

    /// Starts a program that was prepared.
    pub(crate) fn output_of(&self, mut command: Command) -> Output {
        self.netns.enter(move |_| command.output()).unwrap().unwrap()
    }

    /// A sysctl below /proc/sys/net.
    pub(crate) fn sysctl(&self, name: &str) -> String {
        self.netns.enter(|_| fs::read_to_string(Path::new("/proc/sys/net").join(name)).unwrap().trim().to_owned()).unwrap()
    }

    pub(crate) fn set_sysctl(&self, name: &str, value: &str) {
        self.netns.enter(|_| write_sysctl(name, value)).unwrap();
    }

    /// The index of a link.
    pub(crate) fn index(&self, name: &str) -> u32 {
        u32::try_from(self.json(&format!("ip -j link show dev {name}"))[0]["ifindex"].as_u64().unwrap()).unwrap()
    }

    /// Whether an address answers an echo request within a minute.
    pub(crate) fn pings(&self, address: &str) -> bool {
        self.try_sh(&format!("ping -c1 -w60 -n {address}")).status.success()
    }
}

/// Everything that was reported until now.
pub(crate) fn drain(monitor: &mut Monitor) -> Vec<Notice> {
    std::iter::from_fn(|| monitor.next(Some(Duration::ZERO)).unwrap()).collect()
}

/// Looks until something holds, for two minutes at most.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "not within two minutes: {what}");
        // Sleeps: between two looks. What another program does wakes nobody.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null());
    command
}

fn write_sysctl(name: &str, value: &str) {
    let path = Path::new("/proc/sys/net").join(name);
    let written = fs::write(&path, value);
    assert!(written.is_ok() || !path.exists(), "{name}: {written:?}");
}
