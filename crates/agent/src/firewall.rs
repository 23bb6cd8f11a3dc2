//! What pods have of the firewall stays there: whatever somebody else takes away is put back at once.
//!
//! ```text
//!   start, each round of `reconcile`                --+
//!   the kernel tells that our table lost something, --+--> Attacher::restore --> put back
//!     and it was not us                               |
//!   others removed rules that ours may stand in:    --+
//!     when they are done                              |
//!   a sandbox was being changed meanwhile: again    --+
//! ```
//!
//! Our own DELs take elements away all the time: they wake nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attach::Restored;
use chain::Restoring;
use cni::ContainerId;
use linux::nft::{Deleted, Removal, Removed, Watch};
use plugin::{Dirs, Host};
use plugins::BUILTINS;

use crate::Agent;
use crate::log::Line;

/// When those are looked at again that were being changed.
const AGAIN: Duration = Duration::from_millis(200);
/// How long others have to come to the end of a reload.
const SETTLED: Duration = Duration::from_secs(2);
/// After a failure to listen, and at least between two times that something was put back: somebody may take it away for ever.
const PAUSE: Duration = Duration::from_secs(10);
const BREATH: Duration = Duration::from_millis(20);

/// Listens for as long as the process lives, beginning with what is missing already.
pub(crate) fn watch(agent: &Arc<Agent>, dirs: Dirs) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        let mut host = Host::here(dirs);
        loop {
            let listen = || agent.listen(&mut host);
            match catch_unwind(AssertUnwindSafe(listen)) {
                Ok(e) => {
                    Line::error("firewall").with("what", "a flush of the firewall is detected only periodically").with("error", e).end()
                }
                Err(_) => {
                    Line::error("firewall").with("error", "this is a bug in the agent or in a plugin; please report it with the log").end();
                    host = Host::here(host.dirs.clone());
                }
            }
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::Builder::new().name("firewall".to_owned()).spawn(work).map(drop)
}

impl Agent {
    /// Returns when it cannot listen any more, and why.
    fn listen(&self, host: &mut Host) -> String {
        let mut watch = match Watch::open(host.inside(), matters) {
            Ok(watch) => watch,
            Err(e) => return e.to_string(),
        };
        // After the socket is there: nothing is missed between.
        self.cluster_rules_are_lost();
        let mut busy = self.put_back(None, "start", host);
        let mut again = Instant::now() + AGAIN;
        let mut later: Option<(Instant, String)> = None;
        loop {
            let due = (!busy.is_empty()).then_some(again).into_iter().chain(later.as_ref().map(|(at, _)| *at)).min();
            let removal = match watch.next(due.map(|at| at.saturating_duration_since(Instant::now()))) {
                Ok(removal) => removal,
                Err(e) => return e.to_string(),
            };
            match removal {
                Some(removal) if is_own(&removal) => {}
                Some(removal) if removal.removed == Removed::Others => {
                    later.get_or_insert_with(|| (Instant::now() + SETTLED, told(&removal)));
                }
                Some(removal) => {
                    // A reload is many transactions; what has come by now is one.
                    while let Ok(Some(more)) = watch.next(Some(Duration::ZERO)) {
                        if more.removed == Removed::Others {
                            later.get_or_insert_with(|| (Instant::now() + SETTLED, told(&more)));
                        }
                    }
                    // Ranges are elements as well.
                    self.cluster_rules_are_lost();
                    busy = self.put_back(None, &told(&removal), host);
                    again = Instant::now() + AGAIN;
                    std::thread::sleep(BREATH);
                }
                None => {
                    match later.take_if(|(at, _)| *at <= Instant::now()) {
                        Some((_, why)) => busy = self.put_back(None, &why, host),
                        None if busy.is_empty() => {}
                        None => busy = self.put_back(Some(&busy), "a sandbox was being changed", host),
                    }
                    again = Instant::now() + AGAIN;
                }
            }
        }
    }

    /// What the cluster's network has in our table belongs to no sandbox.
    fn cluster_rules_are_lost(&self) {
        if let Some(provided) = &self.provided {
            provided.rules_are_lost();
        }
    }

    /// Puts back what is missing, of all sandboxes or of these; returns those that were being changed.
    pub(crate) fn put_back(&self, only: Option<&[ContainerId]>, why: &str, host: &mut Host) -> Vec<ContainerId> {
        let begun = Instant::now();
        let restored = match self.attacher_in_host().restore(only, Restoring::PutBack, host, begun) {
            Ok(restored) => restored,
            Err(e) => {
                Line::error("firewall").with("error", e).end();
                return Vec::new();
            }
        };
        report(&restored, why, begun);
        restored.busy
    }
}

fn report(restored: &Restored, why: &str, begun: Instant) {
    for (pod, one) in &restored.attachments {
        let pod = format!("{}/{}", pod.namespace, pod.name);
        for e in &one.errors {
            Line::error("firewall").with("pod", &pod).with("attachment", &one.id).with("error", e).end();
        }
        if !one.taken.is_empty() {
            let what = "another attachment uses this one's entries: detach one of them";
            Line::warn("firewall").with("pod", &pod).with("attachment", &one.id).with("what", what).with("elements", one.taken.len()).end();
        }
    }
    for (sandbox, e) in &restored.unread {
        Line::warn("firewall").with("container", sandbox).with("error", e).end();
    }
    let rules: usize = restored.attachments.iter().map(|(_, one)| one.rules.len()).sum();
    if restored.elements() + rules > 0 || restored.rules {
        Line::warn("firewall")
            .with("what", "restored missing entries")
            .with("why", why)
            .with("attachments", restored.attachments.len())
            .with("elements", restored.elements())
            .with("rules", if restored.rules { "shared".to_owned() } else { rules.to_string() })
            .took("took", begun.elapsed())
            .end();
    } else {
        Line::debug("firewall").with("what", "nothing is missing").with("why", why).took("took", begun.elapsed()).end();
    }
}

fn told(removal: &Removal) -> String {
    match removal.removed {
        Removed::Unknown => "too many changes to list".to_owned(),
        Removed::Elements => format!("{} (thread {}) removed elements", removal.name, removal.thread),
        Removed::Others => format!("{} (thread {}) removed rules of its own", removal.name, removal.thread),
        Removed::Rules => format!("{} (thread {}) removed rules", removal.name, removal.thread),
    }
}

/// What is ours; and, of others, where rules of ours may stand: in the chains of iptables, or in firewalld, which reloads all of
/// its own at once.
fn matters(deleted: &Deleted<'_>) -> Option<Removed> {
    let chain = deleted.chain.unwrap_or_default();
    match deleted.table {
        rules::TABLE if deleted.element => Some(Removed::Elements),
        rules::TABLE => Some(Removed::Rules),
        "firewalld" if deleted.chain.is_none() && !deleted.element => Some(Removed::Others),
        "filter" | "nat" if chain == "FORWARD" || chain.starts_with("CNI-") || chain.starts_with("NETLOOM-") => Some(Removed::Others),
        _ => None,
    }
}

/// Whether it was a thread of this process; or `netloom-cni`, under whatever name, in a DEL.
fn is_own(removal: &Removal) -> bool {
    let comm = || std::fs::read_to_string(format!("/proc/self/task/{}/comm", removal.thread));
    if removal.thread > 0 && comm().is_ok_and(|name| name.trim_end() == removal.name) {
        return true;
    }
    let is_plugin = || removal.name == "netloom-cni" || BUILTINS.iter().any(|plugin| plugin.about().name == removal.name);
    removal.removed == Removed::Elements && is_plugin()
}
