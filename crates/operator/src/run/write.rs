//! Writes that were decided, carried out; and what comes of them.

use std::time::Duration;

use cluster::Own;
use futures::StreamExt;
use ledger::Write;
use tokio::time::{Instant, sleep_until};

use super::{Operator, TOGETHER};
use crate::apply_write::{Outcome, ReadResult, apply_write, kind, read, request};
use crate::log::Line;
use crate::store::Kind;

/// What came of several writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    pub(super) all_answered: bool,
    pub(super) some_answered: bool,
    /// There were some, and none was carried out.
    pub(super) fruitless: bool,
}

/// What came of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    /// The object is another one, or the server refuses this write.
    Other,
    /// Nobody knows.
    Missing,
}

// === impl Operator ===

impl Operator {
    /// Carries out what was decided, no faster than it may.
    pub(super) async fn carry_out(&mut self, writes: Vec<Write>) -> Came {
        let pace = Duration::from_secs(1) / self.options.writes_per_second.max(1);
        // After a pause a second's worth may go at once.
        self.next_write = self.next_write.max(Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now));
        let none = Came { all_answered: true, some_answered: false, fruitless: !writes.is_empty() };
        let mut planned = Vec::new();
        for write in writes {
            let Some(request) = request(&write, &self.seen.lock()) else { continue };
            if let Write::PoolStatus { pool, .. } = &write {
                self.status_written.insert(pool.clone(), Instant::now());
            }
            self.next_write += pace;
            planned.push((self.next_write, write, request));
        }
        let this = &*self;
        let outcomes = futures::stream::iter(planned).map(|(at, write, request)| async move {
            sleep_until(at).await;
            let begun = this.seen.lock().times.now();
            let outcome = this.stored.kept(&write, apply_write(&this.client, &write, request).await);
            this.take_in(write, outcome, begun).await
        });
        let add = |came: Came, one: Answer| Came {
            all_answered: came.all_answered && one != Answer::Missing,
            some_answered: came.some_answered || one != Answer::Missing,
            fruitless: came.fruitless && one != Answer::Done,
        };
        outcomes.buffer_unordered(TOGETHER).fold(none, |came, one| async move { add(came, one) }).await
    }

    /// Remembers what came of a write.
    async fn take_in(&self, write: Write, outcome: Outcome, begun: u64) -> Answer {
        let (own, name) = (kind(&write), write.object().1);
        let result = match &outcome {
            Outcome::Done(_) => "done",
            Outcome::Conflict => "conflict",
            Outcome::Refused(_) | Outcome::Failed(_) => "failed",
        };
        self.metrics.wrote(write.verb(), own.name(), result);
        let done = matches!(outcome, Outcome::Done(_));
        let before = self.seen.lock().version(own, name).map(str::to_owned);
        match outcome {
            Outcome::Done(Some(object)) => {
                crashed(&write);
                let last = self.seen.lock().world.pools.get(name).and_then(|seen| seen.status.clone());
                self.seen.put(own, *object);
                if own == Kind::Own(Own::IpLedgerShard) {
                    self.seen.lock().times.read(name, begun);
                }
                self.told(&write, last.as_ref()).await;
            }
            Outcome::Done(None) => {
                crashed(&write);
                self.seen.absent(own, name, before.as_deref());
            }
            Outcome::Conflict => match read(&self.client, own, name).await {
                ReadResult::Is(object) => self.seen.put(own, *object),
                ReadResult::Absent => self.seen.absent(own, name, before.as_deref()),
                ReadResult::Unknown(error) => {
                    failed(&write, &error);
                    return Answer::Missing;
                }
            },
            Outcome::Refused(error) => {
                failed(&write, &error);
                self.refused().put(&write);
                return Answer::Other;
            }
            Outcome::Failed(error) => {
                failed(&write, &error);
                return Answer::Missing;
            }
        }
        self.refused().clear(&write);
        if done { Answer::Done } else { Answer::Other }
    }
}

fn failed(write: &Write, error: &str) {
    let (kind, name) = write.object();
    let next = "retrying";
    Line::warn("write").with("verb", write.verb()).with("kind", kind).with("name", name).with("error", error).with("now", next).end();
}

/// Where tests kill the operator: between two writes that belong together.
fn crashed(write: &Write) {
    match kind(write) {
        Kind::Own(Own::IpLedgerShard) => {
            linux::crash_point!("operator-ledger");
        }
        Kind::Own(Own::NodeIpPool) => {
            linux::crash_point!("operator-spec");
        }
        Kind::Own(Own::IpPool) => {
            linux::crash_point!("operator-pool");
        }
        Kind::Claim => {
            linux::crash_point!("operator-claim");
        }
        Kind::CiliumNode => {
            linux::crash_point!("operator-cilium");
        }
        Kind::Node | Kind::Definition | Kind::Pod | Kind::StatefulSet => {}
    }
}
