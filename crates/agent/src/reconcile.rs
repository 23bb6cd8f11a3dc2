//! Records, kernel and API compared, at the start and every few minutes; namespaces that go are seen when they go.
//!
//! ```text
//!   record with a tombstone          a DEL that was cut off: finished
//!   record, its namespace is gone    nobody asked for a DEL, or nobody heard: detached
//!   no process in its namespace, and its pod is gone or has a newer sandbox, twice    detached
//!   record, its namespace is there   checked: what differs is told;  the pod's status is not the record's: written
//!   tombstone or lock, no record     a DEL was killed at its end: removed
//!   record that cannot be read       told
//!   an address of a pool is held, and nobody is there who could have it, twice    given back (`addresses::adopt`)
//!   what a living sandbox has of the firewall is missing    put back (`firewall`)
//!   a bridge that was made for a definition, and nobody uses    removed
//! ```
//!
//! Only what is known to be gone frees anything. A pod that the API server does not have is no reason by itself, nor is an
//! API server that does not answer: a sandbox ends with its namespace, or when its runtime has forgotten it (`abandoned`).

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use attach::{Lost, PodView, Record, RecordError};
use cluster::PodRef;
use cni::ContainerId;
use linux::Watch;
use plugin::{Dirs, Host};

use crate::abandoned::{Living, may_live};
use crate::log::Line;
use crate::{Agent, lock};

/// How long one sandbox may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where runtimes have namespaces; records tell of other places.
const NAMESPACES: [&str; 2] = ["/run/netns", "/var/run/netns"];
/// After a namespace has gone: others may go with it. Its host ports lead to an address that somebody else may have next.
const MOMENT: Duration = Duration::from_millis(20);
/// When one is looked at again whose path is gone, and which a process still uses: first, and in the end.
const IN_USE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];
/// How long the first comparison with the API waits for the caches.
const CACHES: Duration = Duration::from_secs(30);

/// What was found to differ from the records, by sandbox.
#[derive(Default)]
pub(crate) struct Findings {
    found: Mutex<BTreeMap<ContainerId, Vec<String>>>,
    /// What the round before took for abandoned.
    suspects: Mutex<BTreeSet<ContainerId>>,
}

/// What one round did.
#[derive(Debug, Default)]
struct Round {
    sandboxes: usize,
    detached: usize,
    statuses: usize,
    differing: usize,
    failed: usize,
}

/// Chains of networks without pods that may stay: the next pod of such a network needs no new one.
const FEW_CHAINS: usize = 32;

/// Why nothing of a sandbox was freed.
enum NotFreed {
    /// The path of its namespace is gone, but not the namespace.
    InUse(String),
    Failed(String),
}

// === impl Findings ===

impl Findings {
    /// What differs in a sandbox.
    pub(crate) fn of(&self, sandbox: &ContainerId) -> Vec<String> {
        lock(&self.found).get(sandbox).cloned().unwrap_or_default()
    }

    fn replace(&self, found: BTreeMap<ContainerId, Vec<String>>) {
        *lock(&self.found) = found;
    }
}

/// Compares for as long as the process lives, beginning with what was left behind.
pub(crate) fn start(agent: &Arc<Agent>, dirs: Dirs) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        let mut host = Host::here(dirs);
        agent.carry_out_all_kept(&mut host);
        agent.resume();
        let until = Instant::now() + CACHES;
        while agent.cluster.synced().missing().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        // What goes while all are looked at is told afterwards.
        let mut namespaces = agent.watched();
        loop {
            let round = || {
                agent.carry_out_all_kept(&mut host);
                agent.resume();
                // The other thread waits for those that are being changed.
                agent.put_back(None, "reconcile", &mut host);
                agent.compare(&mut host);
                if let Err(e) = agent.attacher_in_host().forget_idle_bridges(&mut host) {
                    Line::warn("reconcile").with("what", "bridges that nobody uses may be left").with("error", e).end();
                }
                agent.forget_idle_chains(&mut host);
            };
            if catch_unwind(AssertUnwindSafe(round)).is_err() {
                Line::error("reconcile").with("error", "this is a bug in the agent or in a plugin; please report it with the log").end();
                host = Host::here(host.dirs.clone());
            }
            agent.rest(&mut namespaces, &mut host);
            if namespaces.as_ref().is_none_or(|watched| watched.dirs != agent.namespace_dirs()) {
                namespaces = agent.watched();
            }
        }
    };
    std::thread::Builder::new().name("reconcile".to_owned()).spawn(work).map(drop)
}

/// Tells when namespaces come and go.
struct Watched {
    watch: Watch,
    dirs: BTreeSet<PathBuf>,
}

impl Agent {
    /// Where sandboxes have their namespaces. What a process has below `/proc` goes without a word.
    fn namespace_dirs(&self) -> BTreeSet<PathBuf> {
        let sandboxes = self.records.sandboxes().unwrap_or_default();
        let records = sandboxes.iter().filter_map(|sandbox| self.records.read(sandbox).ok().flatten());
        let of_records = records.filter_map(|record| Some(record.netns.parent()?.to_owned())).filter(|dir| !dir.starts_with("/proc"));
        NAMESPACES.map(PathBuf::from).into_iter().chain(of_records).collect()
    }

    /// `None` where the kernel has no such watch left.
    fn watched(&self) -> Option<Watched> {
        let dirs = self.namespace_dirs();
        let refused =
            |e| Line::warn("reconcile").with("error", e).with("now", "deleted namespaces are detected at the next comparison").end();
        let watch = Watch::on(&dirs.iter().cloned().collect::<Vec<_>>()).map_err(refused).ok()?;
        Some(Watched { watch, dirs })
    }

    /// Until the next comparison. A namespace that goes without a DEL, because the runtime has another configuration by now, is seen
    /// when it goes. One that a process still uses is looked at again soon.
    fn rest(&self, namespaces: &mut Option<Watched>, host: &mut Host) {
        let until = Instant::now() + self.settings.reconcile;
        let left = || until.saturating_duration_since(Instant::now());
        let mut again = None;
        while let Some(changed) = namespaces.as_mut().and_then(|w| w.watch.wait(Some(again.map_or(left(), |soon| left().min(soon)))).ok()) {
            let is_over = left().is_zero();
            let has_vanished = changed.iter().any(|path| path.symlink_metadata().is_err());
            if has_vanished {
                std::thread::sleep(MOMENT);
            }
            if has_vanished || changed.is_empty() && again.is_some() {
                let vanished = || self.detach_vanished(host);
                let in_use = catch_unwind(AssertUnwindSafe(vanished)).unwrap_or_else(|_| {
                    *host = Host::here(host.dirs.clone());
                    false
                });
                let [first, last] = IN_USE;
                let later = if has_vanished { first } else { again.map_or(first, |before| last.min(before * 2)) };
                again = in_use.then_some(later);
            }
            if is_over {
                return;
            }
        }
        *namespaces = None;
        std::thread::sleep(left());
    }

    /// Whether a namespace is left whose path is gone, and which a process still uses.
    fn detach_vanished(&self, host: &mut Host) -> bool {
        let sandboxes = self.records.sandboxes().unwrap_or_default();
        let mut in_use = false;
        for sandbox in sandboxes.into_iter().filter(|sandbox| !self.records.is_retired(sandbox)) {
            match self.one(&sandbox, host, &mut Round::default()) {
                Ok(_) => {}
                Err(NotFreed::InUse(_)) => in_use = true,
                Err(NotFreed::Failed(e)) => Line::warn("reconcile").with("container", &sandbox).with("error", e).end(),
            }
        }
        in_use
    }

    /// The chains of our table that networks without any pod have left.
    fn forget_idle_chains(&self, host: &mut Host) {
        let done = match host.has_nft() {
            Ok(true) => {
                host.nft().map_err(|e| e.to_string()).and_then(|nft| rules::forget_idle_chains(nft, FEW_CHAINS).map_err(|e| e.to_string()))
            }
            Ok(false) => Ok(0),
            Err(e) => Err(e.to_string()),
        };
        match done {
            Ok(0) => {}
            Ok(chains) => Line::debug("reconcile").with("idle_chains", chains).end(),
            Err(e) => Line::warn("reconcile").with("what", "chains that no pod uses may be left in the firewall").with("error", e).end(),
        }
    }

    /// What a DEL of the process before this one had retired is finished; so is what was detached in part and left.
    fn resume(&self) {
        let sandboxes = self.records.sandboxes().unwrap_or_default();
        for sandbox in sandboxes.into_iter().filter(|sandbox| self.records.is_retired(sandbox)) {
            self.retired.push(sandbox);
        }
    }

    fn compare(&self, host: &mut Host) {
        let begun = Instant::now();
        self.statuses.begin_comparison();
        let (mut round, mut found, mut living) = (Round::default(), BTreeMap::new(), Vec::<Living>::new());
        let sandboxes = match self.records.sandboxes() {
            Ok(sandboxes) => sandboxes,
            Err(e) => return Line::error("reconcile").with("error", e).end(),
        };
        for sandbox in sandboxes.into_iter().filter(|sandbox| !self.records.is_retired(sandbox)) {
            round.sandboxes += 1;
            let differs = match self.one(&sandbox, host, &mut round) {
                Ok(Some(record)) => {
                    let differs = self.differences(&record, host);
                    living.push(record.into());
                    differs
                }
                Ok(None) => Vec::new(),
                Err(NotFreed::InUse(e) | NotFreed::Failed(e)) => {
                    round.failed += 1;
                    Line::warn("reconcile").with("container", &sandbox).with("error", &e).end();
                    vec![e]
                }
            };
            if !differs.is_empty() {
                round.differing += 1;
                Line::warn("differs").with("container", &sandbox).with("what", differs.join("; ")).end();
                found.insert(sandbox, differs);
            }
        }
        self.detach_abandoned(&living, host, &mut round);
        self.collect_leases();
        self.return_kept();
        round.statuses = self.statuses_of(&living);
        self.findings.replace(found);
        Line::info("reconcile")
            .with("sandboxes", round.sandboxes)
            .with("detached", round.detached)
            .with("statuses", round.statuses)
            .with("differing", round.differing)
            .with("failed", round.failed)
            .took("took", begun.elapsed())
            .end();
    }

    /// The record of a sandbox that lives; one that does not is detached.
    fn one(&self, sandbox: &ContainerId, host: &mut Host, round: &mut Round) -> Result<Option<Record>, NotFreed> {
        let failed = |e: RecordError| NotFreed::Failed(e.to_string());
        let record = match self.records.read(sandbox) {
            // What remains is what a killed DEL has left, unless an ADD is about to begin.
            Ok(None) => return self.records.tidy(sandbox).map(|()| None).map_err(failed),
            Ok(Some(record)) if record.namespace().map_err(|e| NotFreed::Failed(e.to_string()))?.is_some() => return Ok(Some(record)),
            // A path that is gone, or that this process does not see, is no namespace that is gone.
            Ok(Some(record)) if may_live(&record) => {
                return Err(NotFreed::InUse(format!(
                    "its network namespace is not at {} any more, but may still be in use: nothing is freed",
                    record.netns.display()
                )));
            }
            Ok(Some(record)) => Some(record),
            Err(RecordError::Lost { .. }) => None,
            Err(e) => return Err(failed(e)),
        };
        let why = "its network namespace is gone, and there was no DEL";
        self.detach_unasked(sandbox, record.as_ref().map(|record| &record.pod), why, host).map_err(NotFreed::Failed)?;
        round.detached += 1;
        Ok(None)
    }

    fn detach_unasked(&self, sandbox: &ContainerId, pod: Option<&PodView>, why: &str, host: &mut Host) -> Result<(), String> {
        let by = Instant::now() + PATIENCE;
        self.attacher_in_host().del(sandbox, Lost::EveryAddress, host, by).map_err(|e| e.to_string())?;
        let pod = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default();
        Line::info("detached").with("container", sandbox).with("pod", pod).with("why", why).end();
        Ok(())
    }

    /// What this round and the one before take for abandoned.
    fn detach_abandoned(&self, living: &[Living], host: &mut Host, round: &mut Round) {
        let now = self.abandoned(living);
        let before = std::mem::replace(&mut *lock(&self.findings.suspects), now.clone());
        for sandbox in now.intersection(&before) {
            let pod = living.iter().find(|one| one.sandbox == *sandbox).map(|one| &one.pod);
            let why = "its network namespace is empty, its pod is gone or has a newer sandbox, and there was no DEL";
            match self.detach_unasked(sandbox, pod, why, host) {
                Ok(()) => round.detached += 1,
                Err(e) => {
                    round.failed += 1;
                    Line::warn("reconcile").with("container", sandbox).with("error", e).end();
                }
            }
        }
    }

    /// What the kernel has otherwise than the record. Executables are not started for this: there may be a hundred pods.
    fn differences(&self, record: &Record, host: &mut Host) -> Vec<String> {
        // An ADD is at work, or was killed: the runtime's DEL follows.
        let attacher = self.attacher_in_host();
        if !record.is_made() || !attacher.is_builtin(record) {
            return Vec::new();
        }
        let errors = attacher.check(record, host, Instant::now() + PATIENCE).err().unwrap_or_default();
        // Of what a DEL takes apart meanwhile, something is missing as it should be.
        if errors.is_empty() || !self.stands(record) {
            return Vec::new();
        }
        errors.into_iter().map(|e| e.to_string()).collect()
    }

    /// Whether a sandbox is attached as this record of it says: since it was read, it may have been deleted, and even made anew.
    fn stands(&self, record: &Record) -> bool {
        self.still_attached(&record.sandbox, record.made_at).is_some()
    }

    /// The record of a sandbox that is attached, and was made then.
    fn still_attached(&self, sandbox: &ContainerId, made_at: Option<u64>) -> Option<Record> {
        let record = self.records.read(sandbox).ok()??;
        (record.is_made() && record.made_at == made_at && !self.records.is_retired(sandbox)).then_some(record)
    }

    /// Writes the statuses that pods do not have, or have of an earlier sandbox. How many.
    fn statuses_of(&self, living: &[Living]) -> usize {
        if self.cluster.synced().missing().is_some() {
            return 0;
        }
        let mut newest: BTreeMap<(&str, &str), &Living> = BTreeMap::new();
        for record in living.iter().filter(|one| one.is_made) {
            let newest = newest.entry((&record.pod.namespace, &record.pod.name)).or_insert(record);
            if record.made_at > newest.made_at {
                *newest = record;
            }
        }
        let mut written = 0;
        for ((namespace, name), record) in newest {
            let Some(pod) = self.cluster.pod(namespace, name).filter(|pod| Some(&pod.uid) == record.pod.uid.as_ref()) else { continue };
            // Each is read again: together they may be larger than what an agent may have.
            let Some(text) = self.still_attached(&record.sandbox, record.made_at).map(|record| self.status_of(&record)) else { continue };
            let reference = PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: pod.uid.clone() };
            if !pod.has_status(&text) && self.statuses.follow(reference, text) {
                written += 1;
            }
        }
        written
    }
}
