//! Nodes and claims that are no more. A watch that says so may be behind: the API server is asked for each of them, for a node twice,
//! before anything is free.
//!
//! ```text
//!   Node gone: asked, so it is --> its agent is listened for --silent for the grace time: asked again, Node and object--> over
//!                                    ^  each status that the agent writes                                          |
//!                                    |  the first answer after one that did not come                               |
//!                                    +-----------------------------------------------------------------------------+
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::Own;
use futures::StreamExt;
use kube::Client;
use ledger::Gone;
use tokio::time::Instant;

use crate::apply_write::{ReadResult, read};
use crate::log::Line;
use crate::store::{Kind, Store};

/// So many questions are on their way at once.
const TOGETHER: usize = 16;
/// The pause after one that nobody answers: the kind may not be served.
const AGAIN: Duration = Duration::from_secs(5);
/// The object by which an agent is heard.
const OBJECT: Kind = Kind::Own(Own::NodeIpPool);

/// What is known of nodes that were mentioned and not seen, by UID.
#[derive(Default)]
pub(crate) struct Missing {
    /// Since when each is known to be gone, and its agent silent.
    since: BTreeMap<String, Instant>,
    /// Those that have been so for the grace time.
    over: BTreeSet<String>,
    /// Nobody answers this operator, so it may not have heard who speaks: when it tries again.
    deaf: Option<Instant>,
}

/// What is known of claims that have addresses and were not seen. Whoever deletes one and takes its finalizer off leaves no other trace.
#[derive(Default)]
pub(crate) struct MissingClaims {
    /// UIDs of those that are gone. None comes again.
    gone: BTreeSet<String>,
    /// When those are asked for again of which nobody could say anything.
    again: Option<Instant>,
}

// === impl MissingClaims ===

impl MissingClaims {
    /// Asks for what has to be asked for; what is known now.
    pub(crate) async fn look(&mut self, client: &Client, seen: &Store, missing: &BTreeSet<(String, String)>) -> BTreeSet<String> {
        self.gone.retain(|uid| missing.iter().any(|(_, missing)| missing == uid));
        self.again = self.next().filter(|again| *again > Instant::now() && !missing.is_empty());
        if self.again.is_none() {
            let asked: Vec<_> = missing.iter().filter(|(_, uid)| !self.gone.contains(uid)).cloned().collect();
            let asked = futures::stream::iter(asked).map(|(name, uid)| async move {
                let gone = is_gone(client, seen, &name, &uid).await;
                (name, uid, gone)
            });
            for (name, uid, gone) in asked.buffer_unordered(TOGETHER).collect::<Vec<_>>().await {
                match gone {
                    Some(true) => {
                        Line::info("claim")
                            .with("gone", name)
                            .with("uid", &uid)
                            .with("now", "its addresses are free once no node has them")
                            .end();
                        self.gone.insert(uid);
                    }
                    Some(false) => {}
                    None => self.again = Some(Instant::now() + AGAIN),
                }
            }
        }
        self.gone.clone()
    }

    /// When they are to be asked for again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.again
    }
}

/// Whether a claim is no more; `None`: nobody knows.
async fn is_gone(client: &Client, seen: &Store, name: &str, uid: &str) -> Option<bool> {
    match read(client, Kind::Claim, name).await {
        ReadResult::Absent => Some(true),
        ReadResult::Is(claim) => {
            let other = claim.metadata.uid.as_deref() != Some(uid);
            // The one that has its name now has its addresses.
            seen.put(Kind::Claim, *claim);
            Some(other)
        }
        ReadResult::Unknown(_) => None,
    }
}

// === impl Missing ===

impl Missing {
    /// Asks for what has to be asked for; what is known now. Time is the machine's own, from this operator's start on: one that starts
    /// anew waits again.
    pub(crate) async fn look(
        &mut self,
        client: &Client,
        seen: &Store,
        missing: &BTreeSet<(String, String)>,
        grace: Duration,
    ) -> BTreeMap<String, Gone> {
        let uids: BTreeSet<&str> = missing.iter().map(|(_, uid)| uid.as_str()).collect();
        self.since.retain(|uid, _| uids.contains(uid.as_str()));
        self.over.retain(|uid| uids.contains(uid.as_str()));
        seen.lock().heard.retain(|uid, _| uids.contains(uid.as_str()));
        self.hear(seen);
        self.listen_again(client, seen, missing).await;
        for (name, uid) in missing {
            let due = self.since.get(uid).is_none_or(|since| since.elapsed() >= grace);
            if self.deaf.is_none() && due && !self.over.contains(uid) {
                self.ask(client, seen, name, uid, grace).await;
            }
        }
        let known = |(uid, _): (&String, &Instant)| {
            let gone = if self.over.contains(uid) { Gone::GraceOver } else { Gone::Confirmed };
            (uid.clone(), gone)
        };
        self.since.iter().map(known).collect()
    }

    /// When the next of them is to be asked for again.
    pub(crate) fn next(&self, grace: Duration) -> Option<Instant> {
        let open = self.since.iter().filter(|(uid, _)| !self.over.contains(*uid));
        self.deaf.or_else(|| open.filter_map(|(_, since)| since.checked_add(grace)).min())
    }

    /// Takes in which agents were heard: none of them has been silent since before that.
    fn hear(&mut self, seen: &Store) {
        let inner = seen.lock();
        for (uid, since) in &mut self.since {
            if let Some(at) = inner.heard.get(uid).filter(|at| **at > *since) {
                *since = *at;
                self.over.remove(uid);
            }
        }
    }

    /// Where nobody has answered, somebody is asked for anything: nobody was silent before the first answer.
    async fn listen_again(&mut self, client: &Client, seen: &Store, missing: &BTreeSet<(String, String)>) {
        if std::mem::take(&mut seen.lock().deaf) {
            self.deaf.get_or_insert_with(Instant::now);
        }
        // Nobody is listened for.
        let Some((name, _)) = missing.first() else {
            self.deaf = None;
            return;
        };
        if self.deaf.is_none_or(|at| at > Instant::now()) {
            return;
        }
        match read(client, OBJECT, name).await {
            ReadResult::Unknown(_) => self.is_deaf(),
            ReadResult::Is(_) | ReadResult::Absent => {
                let now = Instant::now();
                self.since.values_mut().for_each(|since| *since = now);
                self.deaf = None;
            }
        }
    }

    fn is_deaf(&mut self) {
        self.deaf = Some(Instant::now() + AGAIN);
    }

    async fn ask(&mut self, client: &Client, seen: &Store, name: &str, uid: &str, grace: Duration) {
        let gone = match read(client, Kind::Node, name).await {
            ReadResult::Absent => true,
            ReadResult::Is(node) if node.metadata.uid.as_deref() == Some(uid) => false,
            // It may be the same machine, which is asked first, however late the watch is that tells of it.
            ReadResult::Is(node) => {
                seen.put(Kind::Node, *node);
                true
            }
            // Nothing is free because nobody answers.
            ReadResult::Unknown(_) => return self.is_deaf(),
        };
        match (gone, self.since.contains_key(uid)) {
            (false, _) => drop(self.since.remove(uid)),
            (true, false) => {
                Line::info("node").with("gone", name).with("uid", uid).with("silence_s", grace.as_secs()).end();
                self.since.insert(uid.to_owned(), Instant::now());
            }
            (true, true) => self.listen(client, seen, name, uid, grace).await,
        }
    }

    /// Whether an agent has been silent for the grace time: its object as it is now says so, and no watch that may be behind.
    async fn listen(&mut self, client: &Client, seen: &Store, name: &str, uid: &str, grace: Duration) {
        match read(client, OBJECT, name).await {
            ReadResult::Is(object) => seen.put(OBJECT, *object),
            ReadResult::Absent => {}
            ReadResult::Unknown(_) => return self.is_deaf(),
        }
        self.hear(seen);
        if seen.lock().was_not_asked(name, uid) {
            // By an operator that was late.
            self.since.insert(uid.to_owned(), Instant::now());
        }
        if self.since.get(uid).is_some_and(|since| since.elapsed() >= grace) {
            Line::info("node").with("reclaim", name).with("uid", uid).end();
            self.over.insert(uid.to_owned());
        }
    }
}
