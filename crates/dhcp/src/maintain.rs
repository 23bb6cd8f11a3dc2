//! A lease when its time has come: renewed, rebound, or ended and asked for again.
//!
//! ```text
//!   Bound --T1--> Renew --T2--> Rebind --end--> Expired: address off, link down --granted again--> Bound
//!                    `----- NAK -----'-------------^
//! ```

use std::time::Duration;

use cni::{AddResult, CniError};
use linux::link::Change;
use linux::{Batch, Errno, Inside, Netlink, Route, Scope, addr, route};

use crate::exchange::Patience;
use crate::lease::{Held, Lease, client_id};
use crate::link::{Link, internal, open};
use crate::times::Phase;
use crate::v4::client::{Client, Grant, Trouble, Who};
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

/// Does what is due, and says what became of it, and when to look again (`None`: never).
pub(crate) fn maintain(
    lease: &mut Lease,
    patience: Patience,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<(Became, Option<Duration>), CniError> {
    let Some(netns) = lease.place.open()? else { return Ok((Became::Gone, None)) };
    netns.enter(|inside| Work { inside, patience, stop }.all(lease)).map_err(internal)?
}

struct Work<'a> {
    inside: &'a Inside,
    patience: Patience,
    stop: &'a (dyn Fn() -> bool + Sync),
}

// === impl Work ===

impl Work<'_> {
    fn all(&self, lease: &mut Lease) -> Result<(Became, Option<Duration>), CniError> {
        let Some(mut link) = Link::numbered(self.inside, lease.link)? else { return Ok((Became::Gone, None)) };
        let mut became = Became::Same;
        if let Some(mut held) = lease.v4.take() {
            let done = self.v4(lease, &mut held, &mut link);
            lease.v4 = Some(held);
            if done? {
                became = Became::Changed;
            }
        }
        let now = linux::boot::uptime();
        let next = lease.v4.as_ref().and_then(|held| next(held, now));
        Ok((became, next))
    }

    /// Whether something has changed.
    fn v4(&self, lease: &Lease, held: &mut Held<Grant>, link: &mut Link) -> Result<bool, CniError> {
        let id = client_id(&lease.id);
        let who = Who { wanted: &lease.wanted, client_id: &id, broadcast: self.patience.broadcast, stop: self.stop };
        let wait = WAIT.min(self.patience.timeout);
        let phase = held.times().phase(linux::boot::uptime());
        if held.lost || phase == Phase::Expired {
            return self.again(lease, held, link, who);
        }
        if phase == Phase::Bound {
            return Ok(false);
        }
        let all = phase == Phase::Rebind;
        match Client::open(self.inside, link, who).and_then(|client| client.extend(&held.grant, all, wait)) {
            Ok(grant) => {
                *held = Held::new(grant);
                log::lease(&lease.id, format_args!("lease {}, {}", if all { "rebound" } else { "renewed" }, until(held)));
                Ok(true)
            }
            Err(refused @ Trouble::Refused { .. }) => {
                log::lease(&lease.id, refused);
                self.again(lease, held, link, who)
            }
            Err(e) => {
                log::lease(&lease.id, e);
                Ok(false)
            }
        }
    }

    /// The address goes off the interface, and is asked for again. Until it is granted the interface is down.
    fn again(&self, lease: &Lease, held: &mut Held<Grant>, link: &mut Link, who: Who<'_>) -> Result<bool, CniError> {
        let old = lease_of(lease, held)?;
        if !held.lost {
            log::lease(&lease.id, format_args!("the lease of {} has ended, bringing interface {} DOWN", held.address(), link.name));
            let mut netlink = open(self.inside)?;
            for ip in &old.ips {
                match netlink.send_one(addr::delete(link.index, ip.address).called(format!("remove {} from {}", ip.address, link.name))) {
                    Err(e) if e.errno() != Errno::EADDRNOTAVAIL => return Err(internal(e)),
                    _ => {}
                }
            }
            held.lost = true;
        }
        link.set_up(self.inside, true)?;
        let wait = WAIT.min(self.patience.timeout);
        let asked = Client::open(self.inside, link, who).and_then(|client| match held.tries {
            0 => match client.reboot(held.address(), wait) {
                Err(Trouble::Refused { .. } | Trouble::Silence(_)) => client.acquire(random::number(), 0, Some(held.address()), wait),
                other => other,
            },
            _ => client.acquire(random::number(), 0, Some(held.address()), wait),
        });
        match asked {
            Ok(grant) => {
                *held = Held::new(grant);
                self.apply(link, &lease_of(lease, held)?)?;
                log::lease(&lease.id, format_args!("lease acquired again, {}", until(held)));
            }
            Err(e) => {
                held.tries = held.tries.saturating_add(1);
                link.set_up(self.inside, false)?;
                log::lease(&lease.id, e);
            }
        }
        Ok(true)
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
                ..Route::to(wanted.dst)
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
fn lease_of(lease: &Lease, held: &Held<Grant>) -> Result<AddResult, CniError> {
    Lease { v4: Some(held.clone()), ..lease.clone() }.result()
}

/// When to look again.
pub(crate) fn next(held: &Held<Grant>, now: Duration) -> Option<Duration> {
    if !held.lost {
        return held.times().next(now);
    }
    let pause = AGAIN.0.saturating_mul(1 << held.tries.saturating_sub(1).min(10)).min(AGAIN.1);
    Some(now + random::about(pause, pause / 10))
}

/// For the log.
pub(crate) fn until(held: &Held<Grant>) -> String {
    match held.times().end {
        None => format!("{} for ever", held.address()),
        Some(end) => format!("{}, expires in {} s", held.address(), end.saturating_sub(linux::boot::uptime()).as_secs()),
    }
}
