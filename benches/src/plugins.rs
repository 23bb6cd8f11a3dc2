//! Each plugin by itself, as a whole process, with `host-local` where it gives addresses: ours and the reference's, turn by
//! turn. What a chained plugin changes is made before the clock runs. `dhcp` is measured with the bridge that it serves.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::lease::{self, Leasing};
use crate::namespace::Namespace;
use crate::network::{BRIDGE, PARENT, Verb, prepare};
use crate::options::{Options, in_guest};
use crate::rounds::SETTLE;
use crate::side::{Job, output_of, plugin_job};

/// Rounds before the first one that counts.
const WARM_UP: usize = 3;

/// Rounds for which containers are made at once.
const BATCH: usize = 20;

/// The whole reference set: what `/opt/cni/bin` holds.
const REFERENCE_SET: &[&str] = &[
    "bandwidth",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];

/// A plugin, and what it is given.
struct Subject {
    plugin: &'static str,
    /// The kind of link without which a kernel cannot run it, where not every kernel has that.
    module: Option<&'static str>,
    /// Run before it, and not timed.
    before: Option<&'static str>,
}

const fn subject(plugin: &'static str) -> Subject {
    Subject { plugin, module: None, before: None }
}

const fn chained(plugin: &'static str, before: &'static str) -> Subject {
    Subject { before: Some(before), ..subject(plugin) }
}

const fn with_module(plugin: &'static str) -> Subject {
    Subject { module: Some(plugin), ..subject(plugin) }
}

/// In the order in which they are told.
const SUBJECTS: &[Subject] = &[
    subject("bridge"),
    subject("ptp"),
    subject("macvlan"),
    with_module("ipvlan"),
    with_module("vlan"),
    subject("host-device"),
    with_module("dummy"),
    subject("tap"),
    subject("loopback"),
    // As a bridge's IPAM plugin.
    subject("dhcp"),
    chained("tuning", "bridge"),
    chained("bandwidth", "bridge"),
    // The reference's by iptables.
    chained("firewall", "bridge"),
    chained("sbr", "macvlan"),
    Subject { module: Some("vrf"), ..chained("vrf", "macvlan") },
];

/// One plugin's times.
#[derive(Debug)]
pub(crate) struct Times {
    plugin: &'static str,
    /// ADD and DEL, each of ours and the reference's.
    add: [Spread; 2],
    del: [Spread; 2],
    /// What ADD takes the kernel, by bare netlink, where that is nearly all of it.
    floor: Option<Spread>,
}

/// What does the work.
#[derive(Clone, Copy)]
enum Who<'a> {
    /// A directory of plugins.
    Plugins(&'a Path),
    /// The program that does the same by bare netlink.
    Floor(&'a Path),
}

/// The surroundings of one of those that are compared.
struct Party {
    /// It ends before the host goes, as fields are dropped in their order.
    _leasing: Option<Leasing>,
    host: Namespace,
    data: std::path::PathBuf,
}

/// What `/opt/cni/bin` takes of a disk, in bytes: ours, and the reference's.
#[derive(Debug)]
pub(crate) struct Sizes {
    ours: u64,
    reference: u64,
}

/// What `--plugin` may name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().map(|s| s.plugin)
}

/// Every plugin that this kernel and both sides have. In the guest those that need its modules.
pub(crate) fn run(options: &Options, ours: &Path, scratch: &Path, tell: &mut dyn FnMut(&str, usize)) -> Result<Vec<Times>> {
    let mut all = Vec::new();
    let wanted = |s: &&Subject| options.plugin.as_deref().map_or(s.module.is_some() == in_guest(), |name| name == s.plugin);
    for subject in SUBJECTS.iter().filter(wanted) {
        if !ours.join(subject.plugin).exists() || !options.peers.join(subject.plugin).exists() {
            eprintln!("bench: {} is passed over: one of the two does not have it", subject.plugin);
            continue;
        }
        if subject.plugin == "dhcp" && !lease::has_server() {
            eprintln!("bench: dhcp is passed over: there is no dnsmasq");
            continue;
        }
        all.push(times(subject, ours, options, scratch, tell).with_context(|| subject.plugin.to_owned())?);
    }
    Ok(all)
}

fn times(subject: &Subject, ours: &Path, options: &Options, scratch: &Path, tell: &mut dyn FnMut(&str, usize)) -> Result<Times> {
    let party = |(n, who): (usize, Who<'_>)| -> Result<Party> {
        let host = Namespace::make(&format!("{}-{n}", subject.plugin))?;
        prepare(&host)?;
        if subject.plugin == "bandwidth" {
            hold_ingress(&host)?;
        }
        let data = scratch.join(format!("{}-{n}", subject.plugin));
        let leasing = match who {
            Who::Plugins(dir) if subject.plugin == "dhcp" => Some(lease::start(&host, dir, &data)?),
            _ => None,
        };
        Ok(Party { _leasing: leasing, host, data })
    };
    let mut all = vec![Who::Plugins(ours), Who::Plugins(&options.peers)];
    if subject.plugin == "host-device" {
        all.push(Who::Floor(&options.floor));
    }
    let parties = all.iter().copied().enumerate().map(party).collect::<Result<Vec<_>>>()?;
    let mut taken = vec![(Vec::new(), Vec::new()); all.len()];
    for first in (0..WARM_UP + options.plugin_rounds).step_by(BATCH) {
        let batch = first..(first + BATCH).min(WARM_UP + options.plugin_rounds);
        let containers = batch.clone().map(|round| (0..all.len()).map(|n| container(subject, round, n)).collect::<Result<Vec<_>>>());
        let containers = containers.collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLE);
        for (round, containers) in batch.zip(&containers) {
            let mut order: Vec<_> = parties.iter().zip(&all).zip(containers).zip(&mut taken).collect();
            order.rotate_left(round % all.len());
            for (((party, who), container), (add, del)) in order {
                let (added, deleted) = party.round(*who, subject, container, round)?;
                if round >= WARM_UP {
                    add.push(added);
                    del.push(deleted);
                }
            }
        }
        drop(containers);
        thread::sleep(SETTLE);
        tell(subject.plugin, first);
    }
    let mut spreads = taken.into_iter().map(|(add, del)| (Spread::of(add), Spread::of(del)));
    let (Some(ours), Some(reference)) = (spreads.next(), spreads.next()) else { bail!("two are compared") };
    let floor = spreads.next().map(|(add, _)| add);
    Ok(Times { plugin: subject.plugin, add: [ours.0, reference.0], del: [ours.1, reference.1], floor })
}

/// The first ingress qdisc of a machine, and the last one that goes, cost milliseconds: the kernel rewrites its own code
/// (`ingress_needed_key`, net/core/dev.c). Whoever comes to a node where another container is limited does not pay it.
fn hold_ingress(host: &Namespace) -> Result<()> {
    let mut tc = std::process::Command::new("tc");
    tc.args(["qdisc", "add", "dev", PARENT, "ingress"]);
    let output = host.enter(|| output_of(tc, ""))?;
    if !output.status.success() {
        bail!("tc qdisc add dev {PARENT} ingress: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn container(subject: &Subject, round: usize, n: usize) -> Result<Namespace> {
    let container = Namespace::make(&format!("{round}-{n}"))?;
    if subject.plugin != "loopback" {
        container.ip(&["link", "set", "lo", "up"])?;
    }
    Ok(container)
}

// === impl Party ===

impl Party {
    /// ADD and DEL of one container, and what they took.
    fn round(&self, who: Who<'_>, subject: &Subject, container: &Namespace, round: usize) -> Result<(Duration, Duration)> {
        let device = format!("dev{round}");
        if subject.plugin == "host-device" {
            self.host.ip(&["link", "add", &device, "type", "veth", "peer", "name", &format!("far{round}")])?;
        }
        let plugins = match who {
            Who::Plugins(dir) => dir,
            Who::Floor(program) => return self.bare_move(program, &device, container),
        };
        let times = self.host.enter(|| {
            let mut config = self.config(subject.plugin, &device);
            let before = subject.before.map(|plugin| self.config(plugin, &device));
            if let (Some(before), Some(keys)) = (&before, config.as_object_mut()) {
                keys.insert("prevResult".to_owned(), Self::untimed(plugins, Verb::Add, before, container)?);
            }
            let added = Self::job(plugins, Verb::Add, &config, container).run(Verb::Add)?;
            let deleted = Self::job(plugins, Verb::Del, &config, container).run(Verb::Del)?;
            if let Some(before) = &before {
                Self::untimed(plugins, Verb::Del, before, container)?;
            }
            Ok((added, deleted))
        })?;
        if subject.plugin == "host-device" {
            self.host.ip(&["link", "del", &device])?;
        }
        Ok(times)
    }

    /// A device goes into a container by one message, and back by another.
    fn bare_move(&self, program: &Path, device: &str, container: &Namespace) -> Result<(Duration, Duration)> {
        let mover = |from: &Namespace, to: &Namespace, link: &str, name: &str| -> Result<Duration> {
            let args = vec!["move".to_owned(), to.path().display().to_string(), from.index(link)?.to_string(), name.to_owned()];
            let job = Job { program: program.to_owned(), args, env: Vec::new(), input: String::new() };
            from.enter(|| job.run(Verb::Add))
        };
        let times = (mover(&self.host, container, device, "eth0")?, mover(container, &self.host, "eth0", device)?);
        self.host.ip(&["link", "del", device])?;
        Ok(times)
    }

    fn job(plugins: &Path, verb: Verb, config: &Value, container: &Namespace) -> Job {
        let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
        plugin_job(plugins, plugin, verb, container, if plugin == "loopback" { "lo" } else { "eth0" }, config)
    }

    /// Runs a plugin for what it makes: its result.
    fn untimed(plugins: &Path, verb: Verb, config: &Value, container: &Namespace) -> Result<Value> {
        let job = Self::job(plugins, verb, config, container);
        let mut command = std::process::Command::new(&job.program);
        command.env_clear().envs(job.env.iter().cloned());
        let output = output_of(command, &job.input).with_context(|| format!("run {}", job.program.display()))?;
        if !output.status.success() {
            bail!("{} by {}: {}", verb.name(), job.program.display(), String::from_utf8_lossy(&output.stdout));
        }
        Ok(if verb == Verb::Add { serde_json::from_slice(&output.stdout).context("a result")? } else { Value::Null })
    }

    fn config(&self, plugin: &str, device: &str) -> Value {
        let ipam = json!({"type": "host-local", "dataDir": self.data, "ranges": [[{"subnet": "10.78.0.0/16"}]]});
        let keys = match plugin {
            "bridge" => json!({"bridge": BRIDGE, "isDefaultGateway": true, "ipam": ipam}),
            "macvlan" | "ipvlan" => json!({"master": PARENT, "ipam": ipam}),
            "vlan" => json!({"master": PARENT, "vlanId": 100, "ipam": ipam}),
            "host-device" => json!({"device": device, "ipam": ipam}),
            "tuning" => json!({"mtu": 1400, "promisc": true, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}),
            "bandwidth" => {
                json!({"ingressRate": 100_000_000, "ingressBurst": 8_000_000, "egressRate": 100_000_000, "egressBurst": 8_000_000})
            }
            "vrf" => json!({"vrfname": "red"}),
            "dhcp" => json!({"type": "bridge", "bridge": BRIDGE, "ipam": {"type": "dhcp", "daemonSocketPath": lease::socket(&self.data)}}),
            "loopback" | "sbr" | "firewall" => json!({}),
            _ => json!({"ipam": ipam}),
        };
        let mut config = json!({"cniVersion": "1.0.0", "name": "bench", "type": plugin});
        if let (Some(config), Some(keys)) = (config.as_object_mut(), keys.as_object()) {
            config.extend(keys.clone());
        }
        config
    }
}

// === impl Times ===

impl Times {
    pub(crate) fn json(&self) -> Value {
        let of = |spreads: &[Spread; 2]| spreads.iter().map(Spread::json).collect::<Vec<_>>();
        json!({"plugin": self.plugin, "add": of(&self.add), "del": of(&self.del), "floor": self.floor.as_ref().map(Spread::json)})
    }

    /// Where the kernel takes nearly all of the time, its own time is what ours is compared with.
    pub(crate) fn goal(&self) -> Goal {
        let [ours, reference] = self.add;
        match self.floor {
            Some(floor) => Goal::at_most(&format!("ADD of {}, by the floor's", self.plugin), 1.2, floor.ratio(ours)),
            None => Goal::at_least(&format!("ADD of {}: times faster than the reference", self.plugin), 5.0, ours.ratio(reference)),
        }
    }

    /// What a reader has to know of the kernel's share.
    pub(crate) fn note(&self) -> Option<String> {
        let floor = self.floor?;
        let (p50, ratio) = (ms(floor.p50), floor.ratio(self.add[0]));
        Some(format!("{}: by bare netlink, the device's move alone takes {p50} ms; netloom's whole ADD {ratio:.2}x that\n", self.plugin))
    }

    /// Name, and for ADD and DEL: ours, the reference's, how many times as long that is.
    pub(crate) fn row(&self) -> (&'static str, [[Spread; 2]; 2]) {
        (self.plugin, [self.add, self.del])
    }
}

// === impl Sizes ===

impl Sizes {
    /// The sizes of our executable and of the whole reference set.
    pub(crate) fn look(options: &Options) -> Result<Self> {
        let size = |path: &Path| fs::metadata(path).map(|m| m.len()).with_context(|| path.display().to_string());
        let reference = REFERENCE_SET.iter().map(|name| size(&options.peers.join(name))).sum::<Result<u64>>()?;
        Ok(Sizes { ours: size(&options.netloom_cni)?, reference })
    }

    pub(crate) fn line(&self) -> String {
        let Sizes { ours, reference } = self;
        format!("installed: netloom-cni {} KiB, the {} reference plugins {} KiB\n", ours / 1024, REFERENCE_SET.len(), reference / 1024)
    }

    pub(crate) fn goal(&self) -> Goal {
        Goal::at_most("installed size, MiB", 3.6, self.ours as f64 / f64::from(1 << 20))
    }
}
