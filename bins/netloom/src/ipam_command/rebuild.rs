//! `netloom ipam check --rebuild`: a damaged journal, made anew from what runs on this host.
//!
//! ```text
//!   the pools' files --------------> pools and their blocks
//!   records, cached results -------> who holds which address; what it held rests where the attachment is gone
//!   namespaces --------------------> addresses that nothing explains: held until no namespace has them any more
//! ```
//!
//! Nothing is handed out while the journal is damaged, so nothing comes between the look and the new journal.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use ipam::{PoolStoreError, Seen};
use pool::{Allocator, Event, Family, Key, Lease, Leased, Pod, Taken};

use super::evidence::{Attachment, Evidence, Namespace};
use super::repair::{PATIENCE, confirmed};
use crate::cli::{IpamCheckArgs, Store};
use crate::output::putln;

/// The container of an address that a namespace has, and nothing explains.
const UNEXPLAINED: &str = "unexplained";

pub(super) fn run(of: &Store, args: &IpamCheckArgs) -> anyhow::Result<ExitCode> {
    // An agent has begun to make it anew, and did not end.
    let mark = of.dir.join(ipam::RECOVERING);
    match Seen::read(&of.dir) {
        Ok(_) if mark.try_exists()? => anstream::eprintln!("the agent that made the journal in {} anew has not ended", of.dir.display()),
        Ok(_) => {
            putln!("the journal in {} is in order: nothing is to be made anew", of.dir.display());
            return Ok(ExitCode::SUCCESS);
        }
        Err(e @ (PoolStoreError::Open(_) | PoolStoreError::Foreign { .. })) => anstream::eprintln!("{e}"),
        Err(e) => return Err(e.into()),
    }
    let evidence = Evidence::gather(args)?;
    anyhow::ensure!(
        evidence.unseen.is_empty(),
        "not everything could be looked at, and who has an address might be there: {}",
        evidence.unseen.join("; ")
    );
    let mut seen = Seen::nothing()?;
    for name in ipam::pool_names(&of.pools)? {
        seen.follow(&ipam::read_pool(&of.pools, &name)?)?;
    }
    let (held, unexplained) = fill(&mut seen, &evidence)?;
    let question =
        format!("make the journal anew: {held} attachments hold addresses, and {unexplained} addresses are held by nobody known?");
    if !args.yes && !confirmed(&question)? {
        return Ok(ExitCode::FAILURE);
    }
    let kept = seen.begin_anew(&of.dir, Instant::now() + PATIENCE)?;
    match std::fs::remove_file(&mark) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(|| format!("remove {}", mark.display())),
        _ => {}
    }
    putln!("made the journal anew: {held} attachments hold addresses, and {unexplained} addresses are held by nobody known");
    putln!("what was damaged is kept in {}", kept.display());
    Ok(ExitCode::SUCCESS)
}

/// Who holds what, as far as anything tells: attachments, and addresses that none of them explains.
fn fill(seen: &mut Seen, evidence: &Evidence) -> anyhow::Result<(usize, usize)> {
    let (mut generation, mut held, mut unexplained) = (1, 0, 0);
    let now = seen.now;
    for one in evidence.attachments.values() {
        let unknown = one.pools.iter().find(|pool| seen.allocator.spec(pool).is_none());
        if let Some(pool) = unknown.filter(|_| one.namespace != Namespace::Gone) {
            anyhow::bail!(
                "attachment {} has addresses of pool {pool:?}, which has no file here: put it back; the pools of a cluster's nodes are \
                 made anew by their agents",
                one.key
            );
        }
        let leased: Vec<Leased> = one.addresses.iter().filter_map(|address| of_pool(&seen.allocator, one, *address)).collect();
        if leased.is_empty() {
            continue;
        }
        if one.namespace == Namespace::Gone {
            for Leased { pool, address, .. } in leased {
                let taken = Taken::Cooling { since: now, generation: 0, pod: one.pod.clone() };
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

fn lease(key: &Key, pod: Option<&Pod>, generation: u64, seen: &Seen, addresses: Vec<Leased>) -> Event {
    Event::Leased(Lease { key: key.clone(), generation, pod: pod.cloned(), claim: None, since: seen.now, addresses })
}

/// The pool of which an attachment has an address: the one that its configuration names, or any.
fn of_pool(all: &Allocator, one: &Attachment, address: IpAddr) -> Option<Leased> {
    let named = one.pools.iter().map(String::as_str);
    named.chain(all.pools()).find_map(|pool| in_pool(all, pool, address))
}

/// The pools that would give away an address that somebody has: one of each network.
fn free_here(all: &Allocator, address: IpAddr) -> Vec<Leased> {
    let mut networks: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for pool in all.pools() {
        let Some(spec) = all.spec(pool) else { continue };
        let is_held = matches!(all.taken(&spec.network, address), Some(Taken::Held(_)));
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
