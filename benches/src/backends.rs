//! Host ports and masquerading: Netloom's elements against the reference plugins' rules, which they make by `iptables` or by
//! `nft` as their `backend` says. Three hosts, turn by turn.
//!
//! `portmap` publishes two ports of a container with an address of each family. It asks nothing of the container, so the result
//! that it follows is written down here. Masquerading is not a plugin: what is timed is `bridge` with `ipMasq`, whole, over
//! IPv4 alone: with an IPv6 address the reference's bridge waits for the kernel to look for duplicates.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::goals::Goal;
use crate::namespace::Namespace;
use crate::network::{BRIDGE, PARENT, Verb, prepare};
use crate::options::Options;
use crate::rounds::SETTLE;
use crate::side::{Job, plugin_job};

/// Rounds before the first one that counts: tables, chains and the bridge are made.
const WARM_UP: usize = 3;

/// Rounds for which containers are made at once.
const BATCH: usize = 20;

/// `iptables` takes hundreds of milliseconds: its turn comes in one round of so many.
const SELDOM: usize = 4;

/// Who is compared, by the backend that is named to it.
const PARTIES: [&str; 3] = ["nftables", "iptables", "nftables"];

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The chained plugin, two ports.
    PortMap,
    /// `bridge` with `ipMasq`.
    Masquerade,
}

/// One subject's times.
#[derive(Debug)]
pub(crate) struct Times {
    subject: Subject,
    /// ADD and DEL of Netloom, the reference with iptables, the reference with nftables.
    add: [Spread; 3],
    del: [Spread; 3],
}

/// One of those that are compared.
struct Party<'a> {
    host: Namespace,
    plugins: &'a Path,
    backend: &'static str,
    data: PathBuf,
}

/// Both subjects, or the one that is asked for.
pub(crate) fn run(options: &Options, ours: &Path, scratch: &Path, tell: &mut dyn FnMut(&str, usize)) -> Result<Vec<Times>> {
    Subject::ALL.into_iter().filter(|s| options.wants(s.name())).map(|subject| times(subject, options, ours, scratch, tell)).collect()
}

fn times(subject: Subject, options: &Options, ours: &Path, scratch: &Path, tell: &mut dyn FnMut(&str, usize)) -> Result<Times> {
    let party = |(n, backend)| Party::new(subject, n, backend, if n == 0 { ours } else { &options.peers }, scratch);
    let parties = PARTIES.into_iter().enumerate().map(party).collect::<Result<Vec<_>>>()?;
    let mut taken = vec![(Vec::new(), Vec::new()); parties.len()];
    let end = WARM_UP + options.plugin_rounds;
    for first in (0..end).step_by(BATCH) {
        let rounds = first..(first + BATCH).min(end);
        let of_round = |round: usize| (0..parties.len()).map(|n| Namespace::make(&format!("{round}-{n}"))).collect::<Result<Vec<_>>>();
        let containers = rounds.clone().map(of_round).collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLE);
        for (round, containers) in rounds.zip(&containers) {
            let mut order: Vec<_> = parties.iter().zip(containers).zip(&mut taken).collect();
            order.rotate_left(round % parties.len());
            for ((party, container), (add, del)) in order {
                let counts = round >= WARM_UP;
                if counts && party.backend == "iptables" && !round.is_multiple_of(SELDOM) {
                    continue;
                }
                let (added, deleted) = party.round(subject, container, round)?;
                if counts {
                    add.push(added);
                    del.push(deleted);
                }
            }
        }
        drop(containers);
        thread::sleep(SETTLE);
        tell(subject.name(), first);
    }
    let spreads: Vec<(Spread, Spread)> = taken.into_iter().map(|(add, del)| (Spread::of(add), Spread::of(del))).collect();
    let [ours, iptables, nftables] = spreads.as_slice() else { bail!("three are compared") };
    Ok(Times { subject, add: [ours.0, iptables.0, nftables.0], del: [ours.1, iptables.1, nftables.1] })
}

// === impl Subject ===

impl Subject {
    pub(crate) const ALL: [Subject; 2] = [Subject::PortMap, Subject::Masquerade];

    /// What `--plugin` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::PortMap => "portmap",
            Subject::Masquerade => "masquerade",
        }
    }

    /// How many times faster an ADD is to be than the reference's iptables, and than its nftables.
    fn bounds(self) -> [f64; 2] {
        match self {
            Subject::PortMap => [30.0, 10.0],
            Subject::Masquerade => [5.0, 5.0],
        }
    }
}

// === impl Party ===

impl<'a> Party<'a> {
    fn new(subject: Subject, n: usize, backend: &'static str, plugins: &'a Path, scratch: &Path) -> Result<Self> {
        let name = format!("{}-{n}", subject.name());
        let host = Namespace::make(&name)?;
        prepare(&host)?;
        if subject == Subject::PortMap {
            host.ip(&["address", "add", "10.78.0.1/16", "dev", PARENT])?;
            host.ip(&["address", "add", "fd00:78::1/64", "dev", PARENT, "nodad"])?;
        }
        Ok(Party { host, plugins, backend, data: scratch.join(name) })
    }

    /// ADD and DEL of one container, and what they took.
    fn round(&self, subject: Subject, container: &Namespace, round: usize) -> Result<(Duration, Duration)> {
        let (plugin, config) = match subject {
            Subject::PortMap => ("portmap", two_ports(self.backend, round)),
            Subject::Masquerade => ("bridge", self.masqueraded()),
        };
        let job = |verb| -> Job { plugin_job(self.plugins, plugin, verb, container, "eth0", &config) };
        self.host.enter(|| Ok((job(Verb::Add).run(Verb::Add)?, job(Verb::Del).run(Verb::Del)?)))
    }

    fn masqueraded(&self) -> Value {
        let ipam = json!({"type": "host-local", "dataDir": self.data, "ranges": [[{"subnet": "10.78.0.0/16"}]]});
        json!({
            "cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": BRIDGE, "isDefaultGateway": true,
            "ipMasq": true, "ipMasqBackend": self.backend, "ipam": ipam,
        })
    }
}

/// A call of `portmap` for two ports, and the result that it follows.
pub(crate) fn two_ports(backend: &str, round: usize) -> Value {
    let [.., high, low] = (round + 2).to_be_bytes();
    let ips = json!([
        {"address": format!("10.78.{high}.{low}/16"), "gateway": "10.78.0.1", "interface": 0},
        {"address": format!("fd00:78::{:x}/64", round + 2), "gateway": "fd00:78::1", "interface": 0},
    ]);
    let ports = json!([
        {"hostPort": 80, "containerPort": 8080, "protocol": "tcp"},
        {"hostPort": 443, "containerPort": 8443, "protocol": "tcp"},
    ]);
    json!({
        "cniVersion": "1.0.0", "name": "bench", "type": "portmap", "backend": backend, "runtimeConfig": {"portMappings": ports},
        "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/any"}], "ips": ips},
    })
}

// === impl Times ===

impl Times {
    pub(crate) fn json(&self) -> Value {
        let of = |spreads: &[Spread; 3]| spreads.iter().map(Spread::json).collect::<Vec<_>>();
        json!({"subject": self.subject.name(), "add": of(&self.add), "del": of(&self.del)})
    }

    pub(crate) fn goals(&self) -> [Goal; 2] {
        let [ours, iptables, nftables] = self.add;
        let [by_iptables, by_nftables] = self.subject.bounds();
        let goal = |backend, bound, theirs| {
            let what = format!("ADD, {}: times faster than with {backend}", self.subject.name());
            Goal::at_least(&what, bound, ours.ratio(theirs))
        };
        [goal("iptables", by_iptables, iptables), goal("nftables", by_nftables, nftables)]
    }

    /// A name for each verb's row, and its times.
    pub(crate) fn rows(&self) -> [(String, [Spread; 3]); 2] {
        [(format!("{}, ADD", self.subject.name()), self.add), (format!("{}, DEL", self.subject.name()), self.del)]
    }
}
