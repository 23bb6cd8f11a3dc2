//! A lease when its time has come: renewed, rebound, or ended and asked for again.
//!
//! ```text
//!   Bound --T1--> Renew --T2--> Rebind --end--> Expired: address off, link down --granted again--> Bound
//!                    `----- NAK -----'-------------^
//! ```

use std::cell::Cell;
use std::time::Duration;

use cni::{AddResult, AttachmentId, CniError};
use linux::link::Change;
use linux::{Batch, Errno, Inside, Netlink, Route, Scope, addr, route};

use crate::exchange::Patience;
use crate::family::{Ask, Grant};
use crate::lease::{FamilyLease, Lease};
use crate::link::{Link, internal, open};
use crate::times::Phase;
use crate::trouble::Trouble;
use crate::wanted::Wanted;
use crate::{log, random};

/// How long a renewal waits for its answer at the most: whoever renews another lease waits as well.
const WAIT: Duration = Duration::from_secs(3);
/// What is over is asked for again after this time, then less often.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Became {
    /// It is as it was, or could not be asked for.
    Same,
    /// Its file has to be written.
    Changed,
    /// Its namespace or its interface is gone.
    Gone,
}

/// Does what is due, and says what became of it, and whether its servers answered (`None`: they were not asked).
pub(crate) fn maintain(
    lease: &mut Lease,
    patience: Patience,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<(Became, Option<bool>), CniError> {
    let Some(netns) = lease.place.open()? else { return Ok((Became::Gone, None)) };
    netns.enter(|inside| Work { inside, patience, stop, answered: Cell::new(None) }.all(lease)).map_err(internal)?
}

struct Work<'a> {
    inside: &'a Inside,
    patience: Patience,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// Whether the servers answered: not, if one of two families was not answered.
    answered: Cell<Option<bool>>,
}

/// Whose lease it is.
#[derive(Clone, Copy)]
struct LeaseOwner<'a> {
    id: &'a AttachmentId,
    wanted: &'a Wanted,
}

// === impl Work ===

impl Work<'_> {
    fn all(&self, lease: &mut Lease) -> Result<(Became, Option<bool>), CniError> {
        let Some(mut link) = Link::numbered(self.inside, lease.link)? else { return Ok((Became::Gone, None)) };
        let now = linux::boot::uptime();
        // An interface that another address lives on stays up.
        let lives = (
            lease.v4.as_ref().is_some_and(|held| held.phase(now) < Phase::Expired),
            lease.v6.as_ref().is_some_and(|held| held.phase(now) < Phase::Expired),
        );
        let of = LeaseOwner { id: &lease.id, wanted: &lease.wanted };
        let v4 = lease.v4.as_mut().map(|held| self.one(of, held, &mut link, !lives.1)).transpose();
        let v6 = lease.v6.as_mut().map(|held| self.one(of, held, &mut link, !lives.0)).transpose();
        let became = if v4?.unwrap_or(false) | v6?.unwrap_or(false) { Became::Changed } else { Became::Same };
        Ok((became, self.answered.get()))
    }

    /// Whether something has changed.
    fn one<G: Grant>(&self, of: LeaseOwner<'_>, held: &mut FamilyLease<G>, link: &mut Link, alone: bool) -> Result<bool, CniError> {
        let phase = held.phase(linux::boot::uptime());
        let all = phase == Phase::Rebind;
        match phase {
            Phase::Bound => return Ok(false),
            // The next moment is at once: whoever waits for a server keeps no address on that has ended.
            Phase::Expired if !held.lost => return self.ended(of, held, link).map(|()| true),
            Phase::Expired => return self.again(of, held, link, alone),
            Phase::Renew | Phase::Rebind => {}
        }
        match self.heard(held.grant.extend(self.ask(of, link, &G::client_id(of.id)), all)) {
            Ok(grant) => {
                *held = FamilyLease::new(grant);
                log::lease(of.id, format_args!("lease {}: {}", if all { "rebound" } else { "renewed" }, held.shown()));
                Ok(true)
            }
            Err(refused @ Trouble::Refused { .. }) => {
                log::lease(of.id, refused);
                self.ended(of, held, link)?;
                self.again(of, held, link, alone)
            }
            Err(e) => {
                held.tried = phase;
                log::lease(of.id, e);
                Ok(false)
            }
        }
    }

    fn ask<'a>(&'a self, of: LeaseOwner<'a>, link: &'a Link, client_id: &'a [u8]) -> Ask<'a> {
        let wait = WAIT.min(self.patience.timeout);
        Ask {
            inside: self.inside,
            link,
            wanted: of.wanted,
            client_id,
            broadcast: self.patience.broadcast,
            wait,
            hurried: false,
            stop: self.stop,
        }
    }

    /// Notes whether an answer came.
    fn heard<T>(&self, answer: Result<T, Trouble>) -> Result<T, Trouble> {
        match &answer {
            Ok(_) | Err(Trouble::Refused { .. } | Trouble::Conflict { .. } | Trouble::Useless(_)) => {
                self.answered.set(self.answered.get().or(Some(true)));
            }
            Err(Trouble::Silence(_)) => self.answered.set(Some(false)),
            Err(_) => {}
        }
        answer
    }

    /// The address goes off the interface.
    fn ended<G: Grant>(&self, of: LeaseOwner<'_>, held: &mut FamilyLease<G>, link: &Link) -> Result<(), CniError> {
        log::lease(of.id, format_args!("the lease of {} has expired; removing the address from {}", held.grant.address(), link.name));
        self.strip(link, &result(of, held)?)?;
        linux::crash_point!("dhcp-stripped");
        held.lost = true;
        Ok(())
    }

    /// What has ended is asked for again. Until it is granted the interface is down, if it has no other address.
    fn again<G: Grant>(&self, of: LeaseOwner<'_>, held: &mut FamilyLease<G>, link: &mut Link, alone: bool) -> Result<bool, CniError> {
        link.set_up(self.inside, true)?;
        match self.heard(held.grant.again(self.ask(of, link, &G::client_id(of.id)), held.tries == 0)) {
            Ok(grant) => {
                *held = FamilyLease::new(grant);
                self.apply(link, &result(of, held)?)?;
                log::lease(of.id, format_args!("lease acquired again: {}", held.shown()));
            }
            Err(e) => {
                held.tries = held.tries.saturating_add(1);
                if alone {
                    if held.tries == 1 {
                        log::lease(of.id, format_args!("bringing interface {} DOWN until there is a lease", link.name));
                    }
                    link.set_up(self.inside, false)?;
                }
                log::lease(of.id, e);
            }
        }
        Ok(true)
    }

    fn strip(&self, link: &Link, result: &AddResult) -> Result<(), CniError> {
        let mut netlink = open(self.inside)?;
        for ip in &result.ips {
            match netlink.send_one(addr::delete(link.index, ip.address).called(format!("remove {} from {}", ip.address, link.name))) {
                Err(e) if e.errno() != Errno::EADDRNOTAVAIL => return Err(internal(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// What the interface plugin did with the first lease, for the one after it.
    fn apply(&self, link: &Link, result: &AddResult) -> Result<(), CniError> {
        let mut netlink = open(self.inside)?;
        for ip in &result.ips {
            let request = addr::add(link.index, ip.address, linux::AddrFlags::NODAD);
            tolerate(&mut netlink, request.called(format!("add {} to {}", ip.address, link.name)))?;
        }
        for wanted in &result.routes {
            let route = Route {
                gateway: wanted.gw,
                oif: Some(link.index),
                priority: wanted.priority.unwrap_or(0),
                scope: wanted.scope.map(Scope::from),
                ..Route::to(wanted.network())
            };
            tolerate(&mut netlink, route::add(&route).called(format!("add the route to {}", wanted.dst)))?;
        }
        let mut batch = Batch::new();
        batch.push(linux::link::set(link.index, &Change { up: Some(true), ..Change::default() }));
        netlink.send(batch).map(drop).map_err(internal)
    }
}

fn tolerate(netlink: &mut Netlink, request: linux::Request<'_>) -> Result<(), CniError> {
    match netlink.send_one(request) {
        Err(e) if e.errno() != Errno::EEXIST => Err(internal(e)),
        _ => Ok(()),
    }
}

/// What the interface has of one family's lease.
fn result<G: Grant>(of: LeaseOwner<'_>, held: &FamilyLease<G>) -> Result<AddResult, CniError> {
    let mut result = AddResult::default();
    held.grant.add_to(&mut result, of.wanted).map_err(internal)?;
    Ok(result)
}

/// When to look again.
pub(crate) fn next<G: Grant>(held: &FamilyLease<G>, now: Duration) -> Option<Duration> {
    if !held.lost {
        return held.grant.times().next(now, held.tried);
    }
    if held.tries == 0 {
        return Some(now);
    }
    let pause = AGAIN.0.saturating_mul(1 << held.tries.saturating_sub(1).min(10)).min(AGAIN.1);
    Some(now + random::about(pause, pause / 10))
}
