//! `netloom ipam check --repair`: what attachments that are gone held, given back.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ipam::PoolStore;

use super::check::{Finding, Kind};
use super::evidence::Evidence;
use crate::cli::{IpamCheckArgs, Store};
use crate::output::{counted, putln};

/// How long who has the journal is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Gives back what was found gone in two looks, and takes it off the list. Nothing is given back on missing information.
pub(super) fn give_back(of: &Store, args: &IpamCheckArgs, found: &mut Vec<Finding>, evidence: &Evidence) -> anyhow::Result<()> {
    let gone: Vec<&Finding> = found.iter().filter(|finding| finding.kind == Kind::Gone).collect();
    if gone.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(
        evidence.unseen.is_empty(),
        "nothing was freed, because not everything could be read (see above), and unread attachments may have addresses"
    );
    let addresses: usize = gone.iter().map(|finding| finding.addresses.len()).sum();
    if !args.yes && !confirmed(&format!("free {} of {}?", counted(addresses, "address"), counted(gone.len(), "attachment")))? {
        return Ok(());
    }
    let agent = "if an agent runs on this node, it frees leaked addresses by itself; otherwise try again";
    let store = PoolStore::open(&of.dir, Instant::now() + PATIENCE).map_err(|e| match e.is_locked() {
        true => anyhow::Error::from(e).context(agent),
        false => anyhow::Error::from(e).context("nothing was freed"),
    })?;
    for (key, generation) in gone.iter().filter_map(|finding| finding.lease.as_ref()) {
        // Of that lease alone: who came back meanwhile has another one.
        store.release(key, Some(*generation))?;
    }
    found.retain(|finding| finding.kind != Kind::Gone);
    putln!("freed {}, now cooling down", counted(addresses, "address"));
    Ok(())
}

/// Asks whoever sits there. Where nobody does, nothing is done.
pub(super) fn confirmed(question: &str) -> anyhow::Result<bool> {
    anyhow::ensure!(std::io::stdin().is_terminal(), "{question} Confirm with --yes, because standard input is not a terminal");
    anstream::eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
