//! `netloom ipam check --repair`: what attachments that are gone held, given back.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ipam::PoolStore;

use super::check::{Finding, Kind};
use super::evidence::Evidence;
use crate::cli::{IpamCheckArgs, Store};
use crate::output::putln;

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
        "nothing is given back, as not everything could be looked at (see above): who has an address might be there"
    );
    let addresses: usize = gone.iter().map(|finding| finding.addresses.len()).sum();
    if !args.yes && !confirmed(&format!("give back {addresses} addresses of {} attachments?", gone.len()))? {
        return Ok(());
    }
    let agent = "if an agent runs on this node, it gives back by itself what is gone; otherwise try again";
    let store = PoolStore::open(&of.dir, Instant::now() + PATIENCE).map_err(|e| match e.is_locked() {
        true => anyhow::Error::from(e).context(agent),
        false => anyhow::Error::from(e).context("nothing is given back"),
    })?;
    for (key, generation) in gone.iter().filter_map(|finding| finding.lease.as_ref()) {
        // Of that lease alone: who came back meanwhile has another one.
        store.release(key, Some(*generation))?;
    }
    found.retain(|finding| finding.kind != Kind::Gone);
    putln!("gave back {addresses} addresses; they cool down now");
    Ok(())
}

/// Asks whoever sits there. Where nobody does, nothing is done.
pub(super) fn confirmed(question: &str) -> anyhow::Result<bool> {
    anyhow::ensure!(std::io::stdin().is_terminal(), "{question} Say --yes where nobody can be asked");
    anstream::eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
