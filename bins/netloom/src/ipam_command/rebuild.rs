//! `netloom ipam check --rebuild`: a damaged journal, made anew from what runs on this host.
//!
//! ```text
//!   the pools' files --------------> pools and their blocks
//!   records, cached results -------> ranges of whereabouts, which are pools without files
//!   what is left of the journal ---> names of pools: one that is none of these stands in the way
//!   records, cached results -------> who holds which address; what it held rests where the attachment is gone
//!   namespaces --------------------> addresses that nothing explains: held until no namespace has them any more
//! ```
//!
//! Nothing is handed out while the journal is damaged, so nothing comes between the look and the new journal.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use ipam::{HostPools, PoolStoreError};
use pool::{Allocator, Block, Event, Family, Key, Lease, Leased, Origin, Pod, Run, State, Unavailable};

use super::evidence::{Attachment, Evidence, Namespace, Source};
use super::repair::{PATIENCE, confirmed};
use crate::cli::{IpamCheckArgs, Store};
use crate::output::{counted, putln};

/// The container of an address that a namespace has, and nothing explains.
const UNEXPLAINED: &str = "unexplained";

pub(super) fn run(of: &Store, args: &IpamCheckArgs) -> anyhow::Result<ExitCode> {
    let mut damaged = false;
    // An agent has begun to make it anew, and did not end.
    let mark = of.dir.join(ipam::RECOVERING);
    match HostPools::read(&of.dir) {
        Ok(_) if mark.try_exists()? => {
            crate::output::eputln!("the agent that is rebuilding the journal in {} has not finished", of.dir.display())
        }
        Ok(_) => {
            putln!("the journal in {} is not damaged: nothing to rebuild", of.dir.display());
            return Ok(ExitCode::SUCCESS);
        }
        Err(e @ (PoolStoreError::Open(_) | PoolStoreError::Foreign { .. })) => {
            damaged = true;
            crate::output::eputln!("{e}");
        }
        Err(e) => return Err(e.into()),
    }
    let evidence = Evidence::gather(args)?;
    anyhow::ensure!(
        evidence.unseen.is_empty(),
        "not everything could be read, and unread attachments may have addresses: {}",
        evidence.unseen.join("; ")
    );
    let mut seen = HostPools::nothing()?;
    for name in ipam::pool_names(&of.pools)? {
        seen.follow(&ipam::read_pool(&of.pools, &name)?)?;
    }
    follow_ranges(&mut seen, &evidence, &of.dir)?;
    let (held, unexplained) = fill(&mut seen, &evidence)?;
    let (attachments, addresses) = (counted(held, "attachment"), counted(unexplained, "address"));
    if damaged {
        nothing_is_missing(&seen, of, args)?;
    }
    tell_of_others(&seen, &evidence);
    let question = format!("rebuild the journal with {attachments}, and {addresses} of unknown attachments?");
    if !args.yes && !confirmed(&question)? {
        return Ok(ExitCode::FAILURE);
    }
    let kept = seen.begin_anew(&of.dir, Instant::now() + PATIENCE)?;
    match std::fs::remove_file(&mark) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(|| format!("remove {}", mark.display())),
        _ => {}
    }
    putln!("rebuilt the journal with {attachments}, and {addresses} of unknown attachments");
    putln!("the damaged journal is kept in {}", kept.display());
    Ok(ExitCode::SUCCESS)
}

/// Ranges of whereabouts are pools as the attachments' configurations say.
fn follow_ranges(seen: &mut HostPools, evidence: &Evidence, dir: &Path) -> anyhow::Result<()> {
    let agent = dir.join(ipam::AGENT);
    let has = |one: &&Attachment| one.namespace != Namespace::Gone && !one.addresses.is_empty();
    for one in evidence.attachments.values().filter(has) {
        for source in &one.sources {
            let ranges = match source {
                Source::Pool(_) => continue,
                Source::Ranges(Ok(ranges)) => ranges,
                Source::Ranges(Err(e)) => {
                    anyhow::bail!("cannot find out which ranges the addresses of attachment {} belong to: {e}", one.key)
                }
            };
            anyhow::ensure!(
                !agent.exists(),
                "the addresses of attachment {} may belong to the cluster's ranges, which only the agent knows: start the agent, which \
                    rebuilds the journal; if this node has no agent any more, remove {}",
                one.key,
                agent.display()
            );
            anyhow::ensure!(
                ranges.explain(&one.addresses).is_some(),
                "attachment {} has {}, which are outside the ranges of its configuration{}: check whether its configuration file changed",
                one.key,
                listed(&one.addresses),
                ranges.ranges.first().map(|range| format!(", from {}", range.run)).unwrap_or_default(),
            );
            for range in &ranges.ranges {
                seen.follow(&range.to_pool()?)?;
            }
        }
    }
    Ok(())
}

/// A pool that the damaged journal had, and of which nothing is known here, may have given its addresses to anybody.
fn nothing_is_missing(seen: &HostPools, of: &Store, args: &IpamCheckArgs) -> anyhow::Result<()> {
    for (name, origin) in HostPools::named_in(&of.dir)? {
        if seen.allocator.spec(&name).is_some() || args.without.contains(&name) {
            continue;
        }
        anyhow::ensure!(
            origin.is_none_or(|origin| origin == Origin::File),
            "the journal had the pool {name:?} of a cluster: start the node's agent, which rebuilds it; if no pod here uses the pool \
                any more, add `--without {name}`"
        );
        anyhow::bail!(
            "the journal had the pool {name:?}, but {} is missing: restore the file, so that attachments keep their addresses; if none \
                has one, add `--without {name}`",
            ipam::pool_path(&of.pools, &name).display()
        );
    }
    anyhow::ensure!(
        seen.allocator.pools().next().is_some() || !args.without.is_empty(),
        "no pool is known: {} has no file, no attachment names a pool, and the journal cannot be read: restore the pool files; if \
            nothing runs here any more, move {} away",
        of.pools.display(),
        of.dir.display()
    );
    Ok(())
}

/// Addresses that are of no pool here are other networks', mostly: whoever knows better can say no.
fn tell_of_others(seen: &HostPools, evidence: &Evidence) {
    let is_others = |address: &&IpAddr| {
        let is_local = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        !is_local && !seen.allocator.pools().any(|pool| in_pool(&seen.allocator, pool, **address).is_some())
    };
    let others: BTreeSet<IpAddr> =
        evidence.places.iter().filter(|place| !place.is_own).flat_map(|place| &place.addresses).filter(is_others).copied().collect();
    if !others.is_empty() {
        let all: Vec<IpAddr> = others.into_iter().collect();
        crate::output::eputln!("in no known pool, and therefore not reserved: {}", listed(&all));
    }
}

/// The first ones, and how many more.
fn listed(addresses: &[IpAddr]) -> String {
    let mut all: Vec<String> = addresses.iter().take(8).map(ToString::to_string).collect();
    if let Some(more) = addresses.len().checked_sub(8).filter(|more| *more > 0) {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

/// Who holds what, as far as anything tells: attachments, and addresses that none of them explains.
fn fill(seen: &mut HostPools, evidence: &Evidence) -> anyhow::Result<(usize, usize)> {
    let (mut generation, mut held, mut unexplained) = (1, 0, 0);
    let now = seen.now;
    for one in evidence.attachments.values() {
        let unknown = one.pools().find(|pool| seen.allocator.spec(pool).is_none());
        if let Some(pool) = unknown.filter(|_| one.namespace != Namespace::Gone) {
            anyhow::bail!(
                "attachment {} has addresses of pool {pool:?}, which has no file here: restore the file; the pools of a cluster's nodes \
                    are rebuilt by their agents",
                one.key
            );
        }
        if one.namespace != Namespace::Gone {
            keep_what_left(seen, one);
        }
        let leased: Vec<Leased> = one.addresses.iter().filter_map(|address| of_pool(&seen.allocator, one, *address)).collect();
        if leased.is_empty() {
            continue;
        }
        if one.namespace == Namespace::Gone {
            for Leased { pool, address, .. } in leased {
                let taken = Unavailable::Cooling { since: now, generation: 0, pod: one.pod.clone() };
                seen.allocator.apply(&Event::Cooling { pool, address, taken });
            }
            continue;
        }
        seen.allocator.apply(&lease(&one.key, one.pod.as_ref(), generation, seen, leased));
        generation += 1;
        held += 1;
    }
    for address in evidence.places.iter().flat_map(|place| &place.addresses) {
        for leased in free_here(&seen.allocator, *address) {
            let key = Key { network: leased.pool.clone(), container: UNEXPLAINED.to_owned(), ifname: address.to_string() };
            seen.allocator.apply(&lease(&key, None, generation, seen, vec![leased]));
            generation += 1;
            unexplained += 1;
        }
    }
    Ok((held, unexplained))
}

fn lease(key: &Key, pod: Option<&Pod>, generation: u64, seen: &HostPools, addresses: Vec<Leased>) -> Event {
    Event::Leased(Lease { key: key.clone(), generation, pod: pod.cloned(), claim: None, since: seen.now, addresses })
}

/// What an attachment has of the one pool that its configuration names, and has left it since: it is its own until its DEL, also if the pool
/// gets it again.
fn keep_what_left(seen: &mut HostPools, one: &Attachment) {
    let [Source::Pool(pool)] = one.sources.as_slice() else { return };
    for address in &one.addresses {
        if of_pool(&seen.allocator, one, *address).is_none() {
            let epoch = seen.allocator.last_epoch(pool) + 1;
            let block = Block { pool: pool.clone(), run: Run::single(*address), epoch, claim: None };
            seen.allocator.apply(&Event::Block(block, State::Withdrawn));
        }
    }
}

/// The pool of which an attachment has an address: the one that its configuration names, or any.
fn of_pool(all: &Allocator, one: &Attachment, address: IpAddr) -> Option<Leased> {
    let ranges = one.ranges().find_map(|ranges| ranges.explain(&one.addresses)).unwrap_or_default();
    let ranges = ranges.into_iter().filter(|(_, of)| *of == address).map(|(range, _)| range.pool.as_str());
    let named = one.pools().chain(ranges);
    named.chain(all.pools()).find_map(|pool| in_pool(all, pool, address))
}

/// The pools that would give away an address that somebody has: one of each network.
fn free_here(all: &Allocator, address: IpAddr) -> Vec<Leased> {
    let mut networks: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for pool in all.pools() {
        let Some(spec) = all.spec(pool) else { continue };
        let is_held = matches!(all.taken(&spec.network, address), Some(Unavailable::Held(_)));
        let is_given = !is_held && !spec.allowed(pool::Run::single(address)).is_empty();
        let Some(leased) = in_pool(all, pool, address).filter(|_| is_given && !networks.contains(&spec.network.as_str())) else { continue };
        networks.push(&spec.network);
        found.push(leased);
    }
    found
}

fn in_pool(all: &Allocator, pool: &str, address: IpAddr) -> Option<Leased> {
    let (block, _) = all.blocks(pool, Family::of(address)).find(|(block, _)| block.run.contains(address))?;
    Some(Leased { pool: pool.to_owned(), address, epoch: block.epoch })
}
