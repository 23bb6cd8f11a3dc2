//! Machines outside that speak with an address of this node's, heard as long as a pool says `conflictDetection: passive`.
//!
//! ```text
//!   NodeIPPool.spec, pools' files --ArpNdListener::follow--> names of pools --> a thread, one for all of them, while there are any
//!
//!   linux::packet::Ear --who speaks with which address--> this node's? --> its own pod's hardware address? --> PoolStore::heard
//!                      (so many in a moment at the most)                    asked only then, and remembered
//! ```
//!
//! Which pools these are is no term of theirs in the journal: an earlier release reads it, and nothing that is handed out depends on it.
//! After a restart nobody listens for a cluster's pool before the API server has answered.
//!
//! Whoever can send can forge. What that costs is bounded: packets that are looked at, what is remembered of them, what is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{PipeReader, PipeWriter};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use api::{ConflictDetection, NodeIpPoolSpec};
use chain::Cache;
use cni::{AddResult, AttachmentId, ContainerId, IfName, Mac, NetworkName};
use ipam::PoolStore;
use linux::packet::{AddressClaim, ArpNdSocket, EtherAddr, Observed};
use linux::{Inside, Netlink};
use pool::{Key, Origin};

use super::pace::Pace;
use crate::log::Line;
use crate::{Agent, lock};

/// So many packets are looked at in [`WINDOW`]. What else comes waits in the kernel, or is lost there: a machine speaks again.
const PACKETS: u32 = 64;
const WINDOW: Duration = Duration::from_millis(100);
/// So many are remembered of those that speak.
const REMEMBERED: usize = 4096;
/// For so long it is not looked at again: an address of another node's or of nobody's, one whose holder has said it, one that was told.
const NOT_OURS: Duration = Duration::from_secs(30);
const OWN: Duration = Duration::from_secs(300);
const TOLD: Duration = Duration::from_secs(60);
/// The attachment is being made: nobody knows its hardware address yet.
const UNKNOWN: Duration = Duration::from_secs(2);
/// After a failure to listen.
const PAUSE: Duration = Duration::from_secs(10);

/// Which pools are listened for.
type Pools = Arc<Mutex<BTreeSet<String>>>;

/// Begins to listen when a pool says so, and ends with the last one.
pub(super) struct ArpNdListener {
    agent: Weak<Agent>,
    pools: Pools,
    of_cluster: BTreeSet<String>,
    /// Files of pools as they were read last: when they were written, and whether they say so.
    files: BTreeMap<String, (Written, bool)>,
    /// Dropped, it ends the thread.
    listening: Option<PipeWriter>,
}

/// Another file, or another time, is another one.
type Written = (u64, i64, i64, u64);

/// The thread.
struct Listener {
    agent: Weak<Agent>,
    pools: Pools,
    /// Until when nobody looks again.
    seen: HashMap<AddressClaim, Instant>,
    /// How often all records are read, or something is written.
    pace: Pace,
    begun: Instant,
    packets: u32,
}

// === impl ArpNdListener ===

impl ArpNdListener {
    pub(super) fn new(agent: &Arc<Agent>) -> Self {
        ArpNdListener {
            agent: Arc::downgrade(agent),
            pools: Pools::default(),
            of_cluster: BTreeSet::new(),
            files: BTreeMap::new(),
            listening: None,
        }
    }

    /// These are the terms of the cluster's pools now.
    pub(super) fn see(&mut self, spec: &NodeIpPoolSpec) {
        let pools = spec.pools.iter().filter(|(_, pool)| pool.conflict_detection == ConflictDetection::Passive && !pool.ending);
        self.of_cluster = pools.map(|(name, _)| name.clone()).collect();
    }

    /// Listens for the pools that say so now.
    pub(super) fn follow(&mut self, store: &PoolStore) {
        let Some(agent) = self.agent.upgrade() else { return };
        self.read_files(&agent.settings.dirs().pools, store);
        let of_files = self.files.iter().filter(|(_, (_, passive))| *passive).map(|(name, _)| name.clone());
        let wanted: BTreeSet<String> = self.of_cluster.iter().cloned().chain(of_files).collect();
        if *lock(&self.pools) != wanted {
            let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
            Line::info("addresses").with("listens_for", names.join(",")).end();
            lock(&self.pools).clone_from(&wanted);
        }
        match (wanted.is_empty(), &self.listening) {
            (true, _) => self.listening = None,
            (false, None) => self.listening = begin(&self.agent, &self.pools),
            (false, Some(_)) => {}
        }
    }

    /// The host's own pools that have been used, as far as their files are others than before.
    fn read_files(&mut self, dir: &Path, store: &PoolStore) {
        let own = |all: &pool::Allocator| all.pools().filter(|pool| all.origin(pool) == Some(Origin::File)).map(str::to_owned).collect();
        let names: BTreeSet<String> = store.look(own);
        self.files.retain(|name, _| names.contains(name));
        for name in names {
            let Ok(about) = std::fs::metadata(ipam::pool_path(dir, &name)) else {
                self.files.remove(&name);
                continue;
            };
            let written = (about.ino(), about.mtime(), about.mtime_nsec(), about.len());
            if self.files.get(&name).is_none_or(|(before, _)| *before != written) {
                // What is wrong with it the next ADD is told.
                let passive = ipam::read_pool(dir, &name).is_ok_and(|pool| pool.passive);
                self.files.insert(name, (written, passive));
            }
        }
    }
}

/// Starts the thread, in this one's namespace; tried again where it cannot be had.
fn begin(agent: &Weak<Agent>, pools: &Pools) -> Option<PipeWriter> {
    let failed =
        |e: std::io::Error| Line::error("addresses").with("what", "conflicts with other machines are not detected").with("error", e).end();
    let (until, writer) = std::io::pipe().map_err(failed).ok()?;
    let now = Instant::now();
    let (agent, pools) = (Weak::clone(agent), Arc::clone(pools));
    let listener = Listener { agent, pools, seen: HashMap::new(), pace: Pace::new(now), begun: now, packets: 0 };
    let started = std::thread::Builder::new().name("listen".to_owned()).spawn(move || listener.run(&until));
    started.map_err(failed).ok()?;
    Some(writer)
}

// === impl Listener ===

impl Listener {
    /// Until nobody wants to know any more.
    fn run(mut self, until: &PipeReader) {
        while let Err(e) = self.listen(until) {
            Line::error("addresses").with("what", "conflicts with other machines are not detected").with("error", e).end();
            std::thread::sleep(PAUSE);
        }
    }

    fn listen(&mut self, until: &PipeReader) -> Result<(), linux::Errno> {
        let ear = ArpNdSocket::open(&Inside::here())?;
        loop {
            match ear.next(until)? {
                Observed::Claim(speech) => self.hear(speech),
                Observed::Nothing => {}
                Observed::Stopped => return Ok(()),
            }
            self.rest();
        }
    }

    /// What is behind so many packets waits for the next moment.
    fn rest(&mut self) {
        let passed = self.begun.elapsed();
        if passed >= WINDOW {
            (self.begun, self.packets) = (Instant::now(), 0);
        }
        self.packets += 1;
        if self.packets >= PACKETS {
            std::thread::sleep(WINDOW.saturating_sub(passed));
        }
    }

    fn hear(&mut self, speech: AddressClaim) {
        let now = Instant::now();
        if self.seen.get(&speech).is_some_and(|until| *until > now) {
            return;
        }
        let Some(time) = self.judge(speech, now) else { return };
        // Who fills it up makes work for himself: each of the others is looked at once more.
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        self.seen.insert(speech, now + time);
    }

    /// For how long that is all that there is to say of it; `None`: it could not be looked at.
    fn judge(&mut self, AddressClaim { address, by }: AddressClaim, now: Instant) -> Option<Duration> {
        let agent = self.agent.upgrade()?;
        let store = &agent.addresses.as_ref()?.store;
        let spoken = store.spoken(&lock(&self.pools), address);
        if spoken.is_empty() {
            return Some(NOT_OURS);
        }
        for holder in spoken.iter().filter_map(|one| one.holder.as_ref()) {
            let known = agent.stations_of(holder);
            match known {
                Some(stations) if stations.contains(&by) => return Some(OWN),
                Some(_) => {}
                None => return Some(UNKNOWN),
            }
        }
        self.pace.turn(false, now).ok()?;
        // What another attachment of this node says, or the host itself, is no machine outside.
        if agent.is_here(by, address) {
            return Some(OWN);
        }
        let station = Mac::from_bytes(&by)?.to_string();
        for one in &spoken {
            if let Err(e) = store.heard(one, &station) {
                Line::error("addresses").with("conflict", address).with("by", &station).with("error", e).end();
                return None;
            }
        }
        agent.tell_conflicts();
        Some(TOLD)
    }
}

// === impl Agent ===

impl Agent {
    /// The hardware addresses of a sandbox that an attachment is of; `None`: nobody knows them, or not yet. A kernel answers for an
    /// address on each of its interfaces.
    fn stations_of(&self, key: &Key) -> Option<Vec<EtherAddr>> {
        let container = ContainerId::parse(&key.container).ok()?;
        let results: Vec<AddResult> = match self.records.read(&container).ok()? {
            Some(record) => {
                let of = |step: &attach::Step| step.list.name.as_str() == key.network && step.ifname.as_str() == key.ifname;
                record.steps.iter().find(|step| of(step))?.result()?;
                record.steps.iter().filter_map(|step| step.result().cloned()).collect()
            }
            // A runtime has called the plugin itself, and keeps what that has said.
            None => {
                let (network, ifname) = (NetworkName::parse(&key.network).ok()?, IfName::parse(&key.ifname).ok()?);
                let id = AttachmentId { network, container, ifname };
                let runtimes = self.settings.plugin_state_dir.as_deref().unwrap_or(Path::new("/var/lib/cni"));
                let cached = |dir: &Path| Cache::new(dir).read(&id).ok().flatten()?.result;
                vec![cached(runtimes).or_else(|| cached(&runtimes.join("multus")))?]
            }
        };
        Some(results.iter().flat_map(stations).collect()).filter(|stations: &Vec<EtherAddr>| !stations.is_empty())
    }

    /// Whether a hardware address is this host's or one of its pods'. Who cannot say believes so.
    fn is_here(&self, station: EtherAddr, address: IpAddr) -> bool {
        let links = Netlink::open(&Inside::here()).map_err(|e| e.to_string()).and_then(|mut n| n.links().map_err(|e| e.to_string()));
        let links = links.inspect_err(|e| Line::warn("addresses").with("conflict", address).with("unknown", e).end());
        let Ok(links) = links else { return true };
        if links.iter().filter_map(|link| link.mac.as_ref()).any(|mac| mac.as_bytes() == station) {
            return true;
        }
        let sandboxes = self.records.sandboxes().unwrap_or_default();
        let records = sandboxes.iter().filter_map(|sandbox| self.records.read(sandbox).ok().flatten());
        records.flat_map(|record| record.steps).filter_map(|step| step.result().map(stations)).flatten().any(|own| own == station)
    }
}

/// What a result says of the hardware addresses of its interfaces.
fn stations(result: &AddResult) -> Vec<EtherAddr> {
    let read = |text: &String| text.parse::<Mac>().ok()?.as_bytes().try_into().ok();
    result.interfaces.iter().map(|interface| &interface.mac).filter_map(read).collect()
}
