//! One port of Open vSwitch and its external IDs, by the database's own protocol and by a process of `ovs-vsctl`: `netloom-benches ovs`.
//!
//! ```text
//!   a real ovsdb-server and ovs-vswitchd with the userspace datapath, in a namespace; a round, turn by turn:
//!     ours, ovs-vsctl               until ovs-vswitchd has applied the port
//!     ours, ovs-vsctl --no-wait     until the database has it
//!   then 100 ports from 16 callers, turn by turn, until each is applied
//!   then the whole plug, veth pair included: our plugin, the code of kuryr-cni's daemon
//! ```
//!
//! Ours is the call as the plugin makes it, with a connection of its own each time; the veth pair is there before in either case, but in the
//! last one.

mod plug;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ovsdb::{NewPort, Switch, Vlans};
use serde_json::json;

use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::namespace::{self, Namespace};
use crate::options::{Options, Scratch};
use crate::{machine, progress, write};

const BRIDGE: &str = "br0";
const PORT: &str = "port0";
/// How many ports come at once, from how many callers, how often.
const CROWD: usize = 100;
const CALLERS: usize = 16;
const CROWDS: usize = 3;
/// What both sides tell of the port.
const PORT_IDS: [(&str, &str); 2] = [("owner", "netloom"), ("netloom-container", "0123456789abcdef")];
const INTERFACE_IDS: [(&str, &str); 2] = [("attached-mac", "02:00:00:00:00:01"), ("iface-status", "active")];
/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both processes end when this is dropped.
struct Daemons {
    children: Vec<Child>,
    socket: PathBuf,
}

/// Who adds the port, and whether it waits for ovs-vswitchd.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_ours: bool,
    waits: bool,
}

const WAYS: [Way; 4] = [
    Way { is_ours: true, waits: true },
    Way { is_ours: false, waits: true },
    Way { is_ours: true, waits: false },
    Way { is_ours: false, waits: false },
];

/// Measures, and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    let scratch = Scratch::make(&options.data_dir, "ovs")?;
    let host = Namespace::make("ovs")?;
    for n in 0..CROWD {
        host.ip(&["link", "add", &format!("port{n}"), "up", "type", "veth", "peer", "name", &format!("far{n}")])?;
    }
    let daemons = host.enter(|| Daemons::start(scratch.path()))?;
    daemons.vsctl(true, &["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
    let mut times: [Vec<Duration>; WAYS.len()] = Default::default();
    for round in 0..options.rounds {
        progress("Open vSwitch", round, options.rounds);
        for (way, times) in WAYS.iter().zip(&mut times) {
            let begun = Instant::now();
            daemons.add(*way, PORT)?;
            times.push(begun.elapsed());
            daemons.vsctl(true, &["del-port", BRIDGE, PORT])?;
        }
    }
    let mut crowds: [Vec<Duration>; 2] = Default::default();
    for _ in 0..CROWDS {
        for (way, times) in WAYS.iter().zip(&mut crowds) {
            times.push(daemons.crowd(*way)?);
        }
    }
    let mut plug = plug::Plug::start(&host, &options.netloom_cni, &options.kuryr, scratch.path(), BRIDGE)?;
    let mut plugs: [Vec<Duration>; 2] = Default::default();
    for round in 0..options.rounds {
        progress("the whole plug", round, options.rounds);
        plugs[0].push(plug.ours(&host)?);
        plugs[1].push(plug.kuryr()?);
    }
    let spreads = times.map(Spread::of);
    let (crowds, plugs) = (crowds.map(Spread::of), plugs.map(Spread::of));
    println!("\none port of Open vSwitch with its external IDs, {} rounds, ms", options.rounds);
    println!("{:<28}{:>9}{:>9}{:>15}{:>9}{:>9}", "", "ours p50", "p99", "ovs-vsctl p50", "p99", "ratio");
    for (what, [ours, theirs]) in
        ["applied by ovs-vswitchd", "in the database"].iter().zip([[spreads[0], spreads[1]], [spreads[2], spreads[3]]])
    {
        let [a, b, c, d] = [ours.p50, ours.p99, theirs.p50, theirs.p99].map(ms);
        println!("{what:<28}{a:>9}{b:>9}{c:>15}{d:>9}{:>9.1}", ours.ratio(theirs));
    }
    let [ours, theirs] = crowds.map(|spread| ms(spread.p50));
    println!(
        "{CROWD} ports from {CALLERS} callers, median of {CROWDS}: ours {ours}, ovs-vsctl {theirs}, ratio {:.1}",
        crowds[0].ratio(crowds[1])
    );
    let [a, b, c, d] = [plugs[0].p50, plugs[0].p99, plugs[1].p50, plugs[1].p99].map(ms);
    println!("the whole plug, ms: ours {a} (p99 {b}), Kuryr's {c} (p99 {d}), ratio {:.1}\n", plugs[0].ratio(plugs[1]));
    let goals = [
        Goal::at_least("a port, applied: times faster than ovs-vsctl", 3.0, spreads[0].ratio(spreads[1])),
        Goal::at_least("a port, in the database: times faster", 15.0, spreads[2].ratio(spreads[3])),
        Goal::at_most("100 ports from 16 callers in s", 0.5, crowds[0].p50.as_secs_f64()),
        Goal::at_least("the whole plug: times faster than Kuryr's", 5.0, plugs[0].ratio(plugs[1])),
    ];
    goals.iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        let names = ["ours_applied", "vsctl_applied", "ours_stored", "vsctl_stored"];
        let mut figures: serde_json::Map<_, _> =
            names.iter().zip(&spreads).map(|(name, spread)| ((*name).to_owned(), spread.json())).collect();
        let others = ["ours_crowd", "vsctl_crowd", "ours_plug", "kuryr_plug"];
        figures.extend(others.iter().zip(crowds.iter().chain(&plugs)).map(|(name, spread)| ((*name).to_owned(), spread.json())));
        write(file, &json!({"machine": machine.json(), "rounds": options.rounds, "figures": figures}))?;
    }
    Ok(())
}

// === impl Daemons ===

impl Daemons {
    fn start(dir: &Path) -> Result<Self> {
        let file = |name: &str| dir.join(name).display().to_string();
        let made = Command::new("ovsdb-tool").args(["create", &file("db"), "/usr/share/openvswitch/vswitch.ovsschema"]).status();
        ensure!(made.context("run ovsdb-tool: `scripts/setup.sh bench` installs Open vSwitch")?.success(), "ovsdb-tool failed");
        let mut daemons = Daemons { children: Vec::new(), socket: dir.join("db.sock") };
        daemons.spawn(
            "ovsdb-server",
            &[&file("db"), &format!("--remote=punix:{}", file("db.sock")), &format!("--unixctl={}", file("db.ctl"))],
        )?;
        let end = Instant::now() + PATIENCE;
        while !daemons.socket.exists() {
            ensure!(Instant::now() < end, "ovsdb-server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        daemons.vsctl(false, &["init"])?;
        daemons.spawn("ovs-vswitchd", &[&format!("unix:{}", file("db.sock")), &format!("--unixctl={}", file("vs.ctl"))])?;
        Ok(daemons)
    }

    fn spawn(&mut self, program: &str, args: &[&str]) -> Result<()> {
        let mut command = Command::new(program);
        let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(command.spawn().with_context(|| format!("{command:?}"))?);
        Ok(())
    }

    /// How long it takes until all ports are there, from several callers; they are gone afterwards.
    fn crowd(&self, way: Way) -> Result<Duration> {
        let begun = Instant::now();
        thread::scope(|scope| {
            let call = |first: usize| (first..CROWD).step_by(CALLERS).try_for_each(|n| self.add(way, &format!("port{n}")));
            let callers: Vec<_> = (0..CALLERS).map(|first| scope.spawn(move || call(first))).collect();
            callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?)
        })?;
        let took = begun.elapsed();
        (0..CROWD).try_for_each(|n| self.vsctl(false, &["del-port", BRIDGE, &format!("port{n}")]))?;
        self.settle()?;
        Ok(took)
    }

    /// Until ovs-vswitchd is done with the ports that were taken away. It says that it is before it has closed their sockets, each of which costs a
    /// grace period of the kernel, and the next port waits for that: 0.6 s after a hundred.
    fn settle(&self) -> Result<()> {
        self.add_ourselves(true, PORT)?;
        self.vsctl(true, &["del-port", BRIDGE, PORT])
    }

    fn add(&self, way: Way, port: &str) -> Result<()> {
        if way.is_ours { self.add_ourselves(way.waits, port) } else { self.add_by_vsctl(way.waits, port) }
    }

    fn add_ourselves(&self, waits: bool, name: &str) -> Result<()> {
        let mut switch = Switch::connect(&self.socket, Instant::now() + PATIENCE)?;
        let port =
            NewPort { name, vlans: Some(&Vlans::Access(100)), port_ids: &PORT_IDS, interface_ids: &INTERFACE_IDS, ..NewPort::default() };
        let added = switch.add_port(BRIDGE, &port)?.context("there is no bridge")?;
        if waits { Ok(switch.applied(added)?) } else { Ok(()) }
    }

    fn add_by_vsctl(&self, waits: bool, port: &str) -> Result<()> {
        let ids = |ids: [(&str, &str); 2]| ids.map(|(key, value)| format!("external_ids:{key}=\"{value}\""));
        let (of_port, of_interface) = (ids(PORT_IDS), ids(INTERFACE_IDS));
        let mut args = vec!["add-port", BRIDGE, port, "tag=100", "vlan_mode=access", "--", "set", "port", port];
        args.extend(of_port.iter().map(String::as_str));
        args.extend(["--", "set", "interface", port]);
        args.extend(of_interface.iter().map(String::as_str));
        self.vsctl(waits, &args)
    }

    fn vsctl(&self, waits: bool, args: &[&str]) -> Result<()> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.socket.display())).args((!waits).then_some("--no-wait")).args(args);
        let output = command.output().context("run ovs-vsctl")?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
