//! Whether the 10,000th host port costs what the first does: two hosts, one with one port published and one with 10,000, turn
//! by turn.
//!
//! ```text
//!   client ---- host: hostports4 with 1 or 10,000 elements ---- container
//!     send() of the first packet of a connection: through prerouting, the look-up, dnat, postrouting, into the socket
//!   and ADD, DEL of two ports more
//! ```
//!
//! Over veth pairs `send` returns when the packet is in the container's socket: nobody has to wake up, and so what is timed is
//! the packet's way and nothing else.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::backends::two_ports;
use crate::figures::Spread;
use crate::goals::Goal;
use crate::namespace::Namespace;
use crate::network::{PARENT, Verb, prepare};
use crate::options::Options;
use crate::rounds::SETTLE;
use crate::side::{output_of, plugin_job};

/// How many ports are published.
pub(crate) const PUBLISHED: [usize; 2] = [1, 10_000];

/// Ports of each container: 10,000 are published by the 250 that a large node has.
const EACH: usize = 40;

/// The first of those that only fill the maps.
const FIRST: usize = 10_000;

/// First packets in a round, each of a connection of its own.
const PACKETS: usize = 100;

/// Rounds before the first one that counts.
const WARM_UP: usize = 3;

/// What the client asks for, and where the container answers.
const ASKED: u16 = 53;

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Add,
    Del,
    Packet,
}

/// One step, with each number of ports.
#[derive(Debug)]
pub(crate) struct Growth {
    step: Step,
    spreads: [Spread; 2],
}

/// A host with its client and its container.
struct Host<'a> {
    plugins: &'a Path,
    host: Namespace,
    client: Namespace,
    container: Namespace,
}

/// What `--plugin` calls it.
pub(crate) const NAME: &str = "ports";

/// Both hosts, turn by turn; nothing, where something else is asked for.
pub(crate) fn run(options: &Options, plugins: &Path, tell: &mut dyn FnMut(&str, usize)) -> Result<Vec<Growth>> {
    if !options.wants(NAME) {
        return Ok(Vec::new());
    }
    let rounds = options.plugin_rounds;
    let hosts = [Host::make(plugins, "few", PUBLISHED[0])?, Host::make(plugins, "many", PUBLISHED[1])?];
    thread::sleep(SETTLE);
    let mut times = Step::ALL.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..WARM_UP + rounds {
        let mut order = [0, 1];
        order.rotate_left(round % 2);
        for n in order {
            let Some(host) = hosts.get(n) else { continue };
            let [add, del] = host.two_more(round)?;
            let packets = host.first_packets()?;
            if round >= WARM_UP {
                for (times, taken) in times.iter_mut().zip([vec![add], vec![del], packets]) {
                    times.get_mut(n).into_iter().for_each(|times| times.extend(&taken));
                }
            }
        }
        tell(NAME, round);
    }
    let growth = |(step, [few, many]): (Step, [Vec<Duration>; 2])| Growth { step, spreads: [Spread::of(few), Spread::of(many)] };
    Ok(Step::ALL.into_iter().zip(times).map(growth).collect())
}

// === impl Step ===

impl Step {
    const ALL: [Step; 3] = [Step::Add, Step::Del, Step::Packet];

    fn name(self) -> &'static str {
        match self {
            Step::Add => "ADD of two ports",
            Step::Del => "DEL of two ports",
            Step::Packet => "a connection's first packet",
        }
    }
}

// === impl Host ===

impl<'a> Host<'a> {
    fn make(plugins: &'a Path, name: &str, published: usize) -> Result<Self> {
        let [host, client, container] = [name.to_owned(), format!("{name}-client"), format!("{name}-pod")].map(|n| Namespace::make(&n));
        let made = Host { plugins, host: host?, client: client?, container: container? };
        prepare(&made.host)?;
        made.wire()?;
        // The one that is asked for is among them.
        made.publish(0, "udp", ASKED..ASKED + 1, 5353)?;
        let end = FIRST + published - 1;
        for (n, from) in (FIRST..end).step_by(EACH).enumerate() {
            made.publish(n + 1, "tcp", u16::try_from(from)?..u16::try_from((from + EACH).min(end))?, 80)?;
        }
        made.ask()?;
        made.count(published)?;
        Ok(made)
    }

    /// As many elements as ports: counted by `nft`.
    fn count(&self, published: usize) -> Result<()> {
        let mut nft = Command::new("nft");
        nft.args(["-j", "list", "map", "inet", "netloom", "hostports4"]);
        let output = self.host.enter(|| output_of(nft, ""))?;
        let found = String::from_utf8_lossy(&output.stdout).matches("\"comment\"").count();
        ensure!(found == published, "{found} host ports are published, not {published}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// `10.77.0.0/24` leads to the client, `10.78.0.0/16` to the container.
    fn wire(&self) -> Result<()> {
        for (end, inner, namespace, net, length) in
            [("pod0", "eth0", &self.container, "10.78.0", "16"), ("way0", "eth0", &self.client, "10.77.0", "24")]
        {
            self.host.ip(&["link", "add", end, "up", "type", "veth", "peer", "name", inner, "netns", namespace.name()])?;
            self.host.ip(&["address", "add", &format!("{net}.1/{length}"), "dev", end])?;
            namespace.ip(&["address", "add", &format!("{net}.2/{length}"), "dev", inner])?;
            namespace.ip(&["link", "set", inner, "up"])?;
            namespace.ip(&["route", "add", "default", "via", &format!("{net}.1")])?;
        }
        self.host.ip(&["address", "add", "fd00:78::1/64", "dev", PARENT, "nodad"])?;
        self.host.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let the host forward"))
    }

    /// One ADD that is not timed, of a container that has no more than a number and an address.
    fn publish(&self, n: usize, protocol: &str, ports: std::ops::Range<u16>, to: u16) -> Result<()> {
        let ports: Vec<Value> = ports.map(|p| json!({"hostPort": p, "containerPort": to, "protocol": protocol})).collect();
        let mut config = two_ports("nftables", n);
        if let Some(keys) = config.as_object_mut() {
            keys.insert("runtimeConfig".to_owned(), json!({"portMappings": ports}));
        }
        let job =
            plugin_job(self.plugins, "portmap", Verb::Add, &self.container, "eth0", &config).with("CNI_CONTAINERID", &format!("pod{n}"));
        self.host.enter(|| job.run(Verb::Add)).map(drop)
    }

    /// ADD and DEL of two ports, TCP, with an address of each family.
    fn two_more(&self, round: usize) -> Result<[Duration; 2]> {
        let config = two_ports("nftables", 1000 + round % 1000);
        let run = |verb| plugin_job(self.plugins, "portmap", verb, &self.container, "eth0", &config).run(verb);
        self.host.enter(|| Ok([run(Verb::Add)?, run(Verb::Del)?]))
    }

    /// The host's port is asked once, and answers: what is timed later really goes through it.
    fn ask(&self) -> Result<()> {
        let server = self.container.enter(|| UdpSocket::bind("10.78.0.2:5353").context("serve in the container"))?;
        let client = self.client.enter(asking)?;
        server.set_read_timeout(Some(Duration::from_secs(10)))?;
        client.set_read_timeout(Some(Duration::from_secs(10)))?;
        client.send(b"?")?;
        let mut buffer = [0; 8];
        let (_, from) = server.recv_from(&mut buffer).context("the host port leads nowhere")?;
        ensure!(from.ip().to_string() == "10.77.0.2", "the container was asked by {from}");
        server.send_to(b"!", from)?;
        client.recv(&mut buffer).context("no answer comes through the host port")?;
        Ok(())
    }

    /// What `send` takes for the first packet of each of many connections.
    fn first_packets(&self) -> Result<Vec<Duration>> {
        let server = self.container.enter(|| UdpSocket::bind("10.78.0.2:5353").context("serve in the container"))?;
        server.set_nonblocking(true)?;
        let clients = self.client.enter(|| (0..PACKETS).map(|_| asking()).collect::<Result<Vec<_>>>())?;
        let send = |client: &UdpSocket| -> Result<Duration> {
            let start = Instant::now();
            client.send(b"?")?;
            let time = start.elapsed();
            match server.recv(&mut [0; 8]) {
                Ok(1) => Ok(time),
                other => bail!("a packet is not in the container's socket when it is sent: {other:?}"),
            }
        };
        clients.iter().map(send).collect()
    }
}

/// A socket that the kernel has given a port of its own.
fn asking() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("10.77.0.2:0")?;
    socket.connect(SocketAddr::from(([10, 77, 0, 1], ASKED)))?;
    Ok(socket)
}

// === impl Growth ===

impl Growth {
    fn ratio(&self) -> f64 {
        let [few, many] = self.spreads;
        few.ratio(many)
    }

    pub(crate) fn goal(&self) -> Option<Goal> {
        let what = format!("{}: growth, {} to {} ports", self.step.name(), PUBLISHED[0], PUBLISHED[1]);
        (self.step != Step::Del).then(|| Goal::at_most(&what, 1.2, self.ratio()))
    }

    pub(crate) fn json(&self) -> Value {
        json!({"step": self.step.name(), "published": PUBLISHED, "times": self.spreads.iter().map(Spread::json).collect::<Vec<_>>()})
    }

    /// Its name, its medians, and how many times as long it takes with the most.
    pub(crate) fn row(&self) -> (&'static str, [Duration; 2], f64) {
        (self.step.name(), self.spreads.map(|s| s.p50), self.ratio())
    }
}
