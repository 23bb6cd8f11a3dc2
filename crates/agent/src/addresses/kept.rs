//! Single addresses that are kept for attachments which were there before this agent: what was brought over from another address manager.
//!
//! ```text
//!   pod gone, or attached anew     --+
//!   container known to nobody      --+--twice--> frozen --status.returning--> free in the ledger
//!   address in no namespace        --+
//! ```
//!
//! They have no lease; nobody but their attachment has them, and nobody gets them here. Its DEL gives them back at once, where it comes
//! here with its container and interface (`PoolStore::return_kept`). This is for all others: for a pod that went without one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cluster::Phase;
use cni::ContainerId;
use ipam::KeptFor;
use pool::{Block, Family, State};

use super::in_use::InUse;
use crate::Agent;
use crate::abandoned::Living;
use crate::log::Line;

/// An address, and the attachment for which it is kept.
type KeptAddress = (Block, KeptFor);

impl Agent {
    /// Promises never to use again what is kept for attachments that are gone, by two looks. How many addresses it were.
    pub(crate) fn return_kept(&self) -> usize {
        let Some(addresses) = &self.addresses else { return 0 };
        let gone = self.kept_for_nobody();
        let now: BTreeSet<_> = gone.iter().map(|(block, _)| (block.pool.clone(), block.run, block.epoch)).collect();
        let before = std::mem::replace(&mut *crate::lock(&addresses.unneeded), now);
        let twice = gone.into_iter().filter(|(block, _)| before.contains(&(block.pool.clone(), block.run, block.epoch)));
        let mut returned = 0;
        for (block, of) in twice {
            match addresses.store.freeze(&block.pool, &[block.run]) {
                Ok(frozen) if !frozen.is_empty() => {
                    returned += 1;
                    let why = "its pod is gone or was attached again, its container is unknown, and it is in no namespace";
                    Line::info("addresses").with("pool", block.pool).with("returned", block.run).with("of", of.pod).with("why", why).end();
                }
                // Somebody has a lease of it, and gives it back.
                Ok(_) => {}
                Err(e) => Line::warn("addresses").with("return", block.run).with("error", e).end(),
            }
        }
        returned
    }

    /// What is kept for attachments that are gone, as far as one look can tell: nothing, where not everything can be seen.
    fn kept_for_nobody(&self) -> Vec<KeptAddress> {
        let Some(addresses) = &self.addresses else { return Vec::new() };
        let mut kept: Vec<KeptAddress> = addresses.store.look(|all| {
            let blocks = all.every_pool().flat_map(|pool| Family::ALL.map(|family| all.blocks(pool, family)));
            let owned = blocks.flatten().filter(|(block, state)| *state != State::Frozen && block.run.count() == 1);
            owned.filter_map(|(block, _)| Some((block.clone(), KeptFor::parse(block.claim.as_deref()?)?))).collect()
        });
        if kept.is_empty() || self.cluster.synced().missing().is_some() {
            return Vec::new();
        }
        let (Some(records), Some(files)) = (self.all_records(), self.runtimes_files()) else { return Vec::new() };
        kept.retain(|(_, of)| !self.may_have(of, &records, &files));
        if kept.is_empty() {
            return kept;
        }
        let in_use = InUse::look();
        kept.retain(|(block, _)| !in_use.may_have(block.run.first()));
        kept
    }

    /// Whether anybody says that the attachment may be there: its pod lives and has no other sandbox, or its container is known.
    fn may_have(&self, of: &KeptFor, records: &[Living], files: &[String]) -> bool {
        let Some((namespace, name)) = of.pod.split_once('/') else { return true };
        let over = |phase| matches!(phase, Phase::Succeeded | Phase::Failed);
        let lives = self.cluster.pod(namespace, name).is_some_and(|pod| !over(pod.phase));
        let own = |record: &&Living| record.pod.namespace == namespace && record.pod.name == name;
        let anew = records.iter().filter(own).any(|record| record.is_made && record.sandbox.to_string() != of.container);
        if lives && !anew {
            return true;
        }
        let known = |container: &ContainerId| self.records.knows(container) || files.iter().any(|file| file.contains(&of.container));
        !of.container.is_empty() && ContainerId::parse(&of.container).map_or(true, |container| known(&container))
    }

    /// `None` if one cannot be read.
    fn all_records(&self) -> Option<Vec<Living>> {
        let sandboxes = self.records.sandboxes().ok()?;
        sandboxes
            .iter()
            .filter_map(|sandbox| self.records.read(sandbox).transpose())
            .map(|record| record.map(Living::from))
            .collect::<Result<_, _>>()
            .ok()
    }

    /// The names of what runtimes, and Multus, keep of attachments: each has its container's ID in it. `None` if they cannot be read.
    fn runtimes_files(&self) -> Option<Vec<String>> {
        let dir = self.settings.plugin_state_dir.as_deref().unwrap_or(Path::new("/var/lib/cni"));
        let mut names = Vec::new();
        for dir in [dir.join("results"), dir.join("multus"), dir.join("multus/results")] {
            names.extend(names_in(&dir).ok()?);
        }
        Some(names)
    }
}

fn names_in(dir: &PathBuf) -> std::io::Result<Vec<String>> {
    match std::fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}
