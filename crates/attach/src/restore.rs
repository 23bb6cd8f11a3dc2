//! What sandboxes have of the firewall, put back where somebody has flushed it.
//!
//! ```text
//!   record of a sandbox that lives --its lock--> what its attachments have --of many at once--> put back
//!   who is being changed: later, by itself
//! ```
//!
//! Under the lock a sandbox neither comes nor goes: a DEL that waits for it finds what was put back. Many locks are held at
//! once, but whoever holds one waits for no other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chain::{Firewall, Outcome, PutBack, Restoring, Skipped, put_back};
use cni::{CniError, ContainerId};
use plugin::Host;
use rules::OwnerKey;

use crate::execute::runtime;
use crate::records::SandboxLock;
use crate::{Attacher, PodView, Record, RecordError, Sandbox};

/// How many elements are put back at once, under the locks of those whose they are.
const AT_ONCE: usize = 1_000;
/// Of how many sandboxes: each lock is an open file.
const SANDBOXES: usize = 200;
/// How long others than the kernel, firewalld say, may take to say what attachments have: together, of all that fail.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of [`Attacher::restore`].
#[derive(Debug, Default)]
pub struct Restored {
    /// The attachments of which something was missing, and of which pod each is, without its annotations.
    pub attachments: Vec<(PodView, PutBack)>,
    /// Whether rules over elements that were in place were missing.
    pub rules: bool,
    /// Sandboxes whose records could not be read, and why.
    pub unread: Vec<(ContainerId, CniError)>,
    /// Sandboxes that were being changed: to be tried again. Who changes them may have been there before the firewall was flushed.
    pub busy: Vec<ContainerId>,
    /// Every attachment of which a record tells, also of those that are being changed.
    pub owners: HashSet<OwnerKey>,
    /// Attachments that were not wholly looked at.
    pub skipped: Vec<Skipped>,
}

/// Sandboxes whose turn comes together.
#[derive(Default)]
struct Batch {
    locks: Vec<SandboxLock>,
    pods: Vec<PodView>,
    attachments: Vec<Firewall>,
    elements: usize,
}

// === impl Attacher ===

impl Attacher {
    /// Puts back what is missing of the firewall for every sandbox that is attached, or for `only` these; what is there is not
    /// touched. One that is being changed is waited for until `by`, after those before it.
    ///
    /// # Errors
    /// [`RecordError`] if the records cannot be listed; nothing was done then.
    pub fn restore(&self, only: Option<&[ContainerId]>, mode: Restoring, host: &mut Host, by: Instant) -> Result<Restored, RecordError> {
        let sandboxes = match only {
            Some(only) => only.to_vec(),
            None => self.records.named(&[".json"])?,
        };
        let (mut restored, mut batch, mut patience) = (Restored::default(), Batch::default(), PATIENCE);
        for sandbox in sandboxes {
            let lock = match mode {
                Restoring::Look => None,
                Restoring::PutBack => match self.lock_to_restore(&sandbox, &mut batch, &mut restored, host, by) {
                    Ok(lock) => Some(lock),
                    Err(RecordError::Busy { .. }) => {
                        self.owners_of(&sandbox, &mut restored);
                        restored.busy.push(sandbox);
                        continue;
                    }
                    Err(e) => {
                        restored.unread.push((sandbox, e.into()));
                        continue;
                    }
                },
            };
            match self.attached(&sandbox) {
                Ok(Some(record)) => {
                    let all = self.firewall(&record, host, &mut patience);
                    restored.owners.extend(all.iter().map(|one| OwnerKey::of(&one.id)));
                    restored.skipped.extend(all.iter().filter_map(Firewall::skipped));
                    batch.locks.extend(lock);
                    batch.elements += all.iter().map(|one| one.restore.wanted().len()).sum::<usize>();
                    // A pod may have 64 attachments, and its annotations 256 KiB.
                    let pod = PodView { networks: None, default_network: None, ..record.pod };
                    batch.pods.extend(all.iter().map(|_| pod.clone()));
                    batch.attachments.extend(all);
                }
                Ok(None) => {}
                Err(e) => restored.unread.push((sandbox, e)),
            }
            if batch.elements >= AT_ONCE || batch.locks.len() >= SANDBOXES {
                std::mem::take(&mut batch).put_back(mode, host, &mut restored);
            }
        }
        batch.put_back(mode, host, &mut restored);
        Ok(restored)
    }

    /// The lock of a sandbox; before it is waited for, those that are held are given back.
    fn lock_to_restore(
        &self,
        sandbox: &ContainerId,
        batch: &mut Batch,
        restored: &mut Restored,
        host: &mut Host,
        by: Instant,
    ) -> Result<SandboxLock, RecordError> {
        match self.records.lock(sandbox, Instant::now()) {
            Err(RecordError::Busy { .. }) if by > Instant::now() => {
                std::mem::take(batch).put_back(Restoring::PutBack, host, restored);
                self.records.lock(sandbox, by)
            }
            other => other,
        }
    }

    /// The record of a sandbox that is attached: one that is retired, was never wholly made, or is of another boot has nothing.
    fn attached(&self, sandbox: &ContainerId) -> Result<Option<Record>, CniError> {
        let Some(record) = self.records.read(sandbox)? else { return Ok(None) };
        let lives = record.is_made() && self.records.tombstone_of(sandbox).is_none() && record.namespace()?.is_some();
        Ok(lives.then_some(record))
    }

    fn owners_of(&self, sandbox: &ContainerId, restored: &mut Restored) {
        let Ok(Some(record)) = self.records.read(sandbox) else { return };
        restored.owners.extend(record.steps.iter().map(|step| OwnerKey::of(&step.id(sandbox))));
    }

    fn firewall(&self, record: &Record, host: &mut Host, patience: &mut Duration) -> Vec<Firewall> {
        let sandbox = Sandbox::of(record);
        let mut one = |step: &crate::Step| {
            let runtime = runtime(&sandbox, step, Some(record.netns.clone()));
            let begun = Instant::now();
            let one = self.chain.collect_restore(&step.list, &runtime, step.result()?, &step.made_by, host, begun + *patience);
            if !one.errors.is_empty() {
                *patience = patience.saturating_sub(begun.elapsed());
            }
            Some(one)
        };
        record.steps.iter().filter_map(&mut one).collect()
    }
}

// === impl Batch ===

impl Batch {
    fn put_back(self, mode: Restoring, host: &mut Host, restored: &mut Restored) {
        if self.attachments.is_empty() {
            return;
        }
        linux::crash_point!("restore-locked");
        let Outcome { attachments, rules } = put_back(self.attachments, mode, |_| true, host);
        restored.rules |= rules;
        let done = self.pods.into_iter().zip(attachments);
        restored.attachments.extend(done.filter(|(_, one)| !one.is_nothing()));
        drop(self.locks);
    }
}

// === impl Restored ===

impl Restored {
    /// Both.
    pub fn join(&mut self, other: Restored) {
        self.attachments.extend(other.attachments);
        self.rules |= other.rules;
        self.unread.extend(other.unread);
        self.busy.extend(other.busy);
        self.owners.extend(other.owners);
        self.skipped.extend(other.skipped);
    }

    /// How many elements were missing.
    pub fn elements(&self) -> usize {
        self.attachments.iter().map(|(_, one)| one.elements.len()).sum()
    }
}
