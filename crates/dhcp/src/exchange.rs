//! From an attachment to a lease: attempts, each of which enters the namespace, asks, and leaves it.
//!
//! ```text
//!   attempt --nothing--> pause (outside, nothing open) --> attempt ...    until the time is over or nobody waits
//! ```

use std::time::{Duration, Instant};

use cni::{AttachmentId, CniError, Code};
use linux::{EnterError, Errno, Inside, Netns};

use crate::family::{Ask, Grant};
use crate::lease::{FamilyLease, Lease, LeaseNetns};
use crate::link::{Link, internal};
use crate::trouble::Trouble;
use crate::wanted::Wanted;
use crate::{random, v4, v6};

/// How patient the client is: the daemon's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// How long one message waits for its answer at the most.
    pub(crate) timeout: Duration,
    /// The longest pause between two attempts.
    pub(crate) resend_max: Duration,
    /// When there are no more.
    pub(crate) resend_timeout: Duration,
    /// Servers are to answer to all.
    pub(crate) broadcast: bool,
}

/// The first attempts come quickly after each other, for who starts together with his server.
const QUICK: (u32, Duration) = (4, Duration::from_secs(2));
/// Then they do as RFC 2131 4.1 says: 4 s, 8 s, ..., each about a second more or less.
const SLOW: Duration = Duration::from_secs(4);
const SPREAD: Duration = Duration::from_secs(1);
/// So often may an address be taken that was offered.
const CONFLICTS: u32 = 4;
/// How often it is asked, in a pause, whether somebody still waits.
const SLICE: Duration = Duration::from_millis(100);

/// Whose lease is asked for.
pub(crate) struct LeaseRequest<'a> {
    pub(crate) id: &'a AttachmentId,
    pub(crate) netns: &'a Netns,
    pub(crate) wanted: &'a Wanted,
    pub(crate) patience: Patience,
    /// When the caller's time is over.
    pub(crate) by: Instant,
    /// Whether nobody waits any more.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
    /// The lease from before, whose addresses are asked for again.
    pub(crate) old: Option<&'a Lease>,
}

/// What one attempt may use.
struct Attempt<'a> {
    asked: &'a LeaseRequest<'a>,
    xid: u32,
    secs: u16,
    wait: Duration,
}

/// Asks until it is granted.
pub(crate) fn acquire(asked: &LeaseRequest<'_>) -> Result<Lease, CniError> {
    let begun = Instant::now();
    let by = asked.by.min(begun + asked.patience.resend_timeout);
    let xid = random::number();
    let stop = || (asked.stop)() || Instant::now() >= by;
    let asked = &LeaseRequest { stop: &stop, ..*asked };
    let mut lease: Option<Lease> = None;
    let (mut slow, mut conflicts) = (SLOW, 0);
    for number in 0_u32.. {
        let mut pause = QUICK.1;
        if number >= QUICK.0 {
            pause = slow;
            slow = (slow * 2).min(asked.patience.resend_max);
        }
        let pause = random::about(pause, SPREAD);
        let secs = u16::try_from(begun.elapsed().as_secs()).unwrap_or(u16::MAX);
        let attempt = Attempt { asked, xid, secs, wait: pause.min(asked.patience.timeout) };
        let started = Instant::now();
        let trouble = match attempt.make(&mut lease) {
            Ok(()) => return lease.ok_or_else(|| internal("a lease without anything")),
            Err(Failed::Hopeless(e)) => return Err(give_up(asked, lease.as_ref(), e)),
            Err(Failed::Again(trouble)) => trouble,
        };
        if let Trouble::Conflict { .. } = &trouble {
            conflicts += 1;
        }
        if matches!(trouble, Trouble::Stopped) && Instant::now() < by {
            return Err(give_up(asked, lease.as_ref(), CniError::new(Code::TRY_AGAIN_LATER, trouble.to_string())));
        }
        let pause = if matches!(trouble, Trouble::Conflict { .. }) { Duration::ZERO } else { pause.saturating_sub(started.elapsed()) };
        let over = conflicts >= CONFLICTS || Instant::now() + pause >= by;
        if over || !rest(Instant::now() + pause, asked.stop) {
            return Err(give_up(asked, lease.as_ref(), no_more_tries(asked, begun, &trouble)));
        }
    }
    Err(internal("error calling DHCP.Allocate: no more tries"))
}

/// Waits, unless nobody waits for it.
fn rest(until: Instant, stop: &(dyn Fn() -> bool + Sync)) -> bool {
    loop {
        if stop() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLICE));
    }
}

fn no_more_tries(asked: &LeaseRequest<'_>, begun: Instant, trouble: &Trouble) -> CniError {
    let why = match trouble {
        Trouble::Stopped => "no DHCP server answered".to_owned(),
        other => other.to_string(),
    };
    let hint = "check that a DHCP server answers on this network and has free addresses";
    let msg =
        format!("error calling DHCP.Allocate: no more tries: {why}, on {} within {} s; {hint}", asked.id.ifname, begun.elapsed().as_secs());
    CniError::new(Code::TRY_AGAIN_LATER, msg)
}

/// What was granted already is given back.
fn give_up(asked: &LeaseRequest<'_>, lease: Option<&Lease>, e: CniError) -> CniError {
    if let Some(lease) = lease {
        let _ = asked.netns.enter(|inside| release_inside(inside, lease));
    }
    e
}

/// Why an attempt led to nothing.
enum Failed {
    /// The next may lead further.
    Again(Trouble),
    /// None will.
    Hopeless(CniError),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        match &trouble {
            Trouble::Useless(_) => Failed::Hopeless(internal(trouble)),
            // The link went down, or is on its way up.
            Trouble::Kernel { errno, .. } if !matches!(errno, Errno::ENETDOWN | Errno::ENOBUFS) => Failed::Hopeless(internal(trouble)),
            _ => Failed::Again(trouble),
        }
    }
}

// === impl Attempt ===

impl Attempt<'_> {
    /// Asks for what the lease does not have yet.
    fn make(&self, lease: &mut Option<Lease>) -> Result<(), Failed> {
        let hopeless = |e: EnterError| Failed::Hopeless(internal(e));
        let link = self.asked.netns.enter(|inside| self.up(inside)).map_err(hopeless)?.map_err(Failed::Hopeless)?;
        link.passes_on(&Inside::here(), self.asked.stop).map_err(Failed::Hopeless)?;
        self.asked.netns.enter(|inside| self.inside(inside, &link, lease)).map_err(hopeless)?
    }

    /// The interface, which is up from now on.
    fn up(&self, inside: &Inside) -> Result<Link, CniError> {
        let mut link = Link::named(inside, self.asked.id.ifname.as_str())?;
        if self.asked.wanted.v6() && !link.up {
            link.ready_for_ipv6(inside)?;
        }
        link.set_up(inside, true)?;
        Ok(link)
    }

    fn inside(&self, inside: &Inside, link: &Link, kept: &mut Option<Lease>) -> Result<(), Failed> {
        let asked = self.asked;
        let lease = match kept {
            Some(lease) => lease,
            None => {
                let place = LeaseNetns::of(asked.netns).map_err(Failed::Hopeless)?;
                let (index, mac, wanted) = (link.index, link.mac, asked.wanted.clone());
                kept.insert(Lease { id: asked.id.clone(), place, link: index, mac, wanted, v4: None, v6: None })
            }
        };
        if asked.wanted.v4() && lease.v4.is_none() {
            let id = v4::client::Grant::client_id(asked.id);
            let client = v4::client::Client::open(self.ask(inside, link, &id))?;
            let old = asked.old.and_then(|old| old.v4.as_ref()).map(|held| held.grant.ack.yiaddr());
            lease.v4 = Some(FamilyLease::new(client.acquire(self.xid, self.secs, old, 1)?));
        }
        if asked.wanted.v6() && lease.v6.is_none() {
            let id = v6::client::Grant::client_id(asked.id);
            let client = v6::client::Client::open(self.ask(inside, link, &id))?;
            let old = asked.old.and_then(|old| old.v6.as_ref()).map(|held| held.grant.granted());
            lease.v6 = Some(FamilyLease::new(client.acquire(old)?));
        }
        Ok(())
    }

    fn ask<'a>(&'a self, inside: &'a Inside, link: &'a Link, client_id: &'a [u8]) -> Ask<'a> {
        let LeaseRequest { wanted, patience, stop, .. } = self.asked;
        Ask { inside, link, wanted, client_id, broadcast: patience.broadcast, wait: self.wait, hurried: true, stop: *stop }
    }
}

/// Gives back what a lease has, if its namespace and its interface are there. Returns whether anything was sent.
pub(crate) fn release(lease: &Lease) -> Result<bool, CniError> {
    match lease.place.open()? {
        Some(netns) => netns.enter(|inside| release_inside(inside, lease)).map_err(internal)?,
        None => Ok(false),
    }
}

fn release_inside(inside: &Inside, lease: &Lease) -> Result<bool, CniError> {
    let Some(link) = Link::numbered(inside, lease.link)? else { return Ok(false) };
    let mut sent = false;
    if let Some(held) = &lease.v4 {
        sent |= release_one(inside, &link, lease, held)?;
    }
    if let Some(held) = &lease.v6 {
        sent |= release_one(inside, &link, lease, held)?;
    }
    Ok(sent)
}

fn release_one<G: Grant>(inside: &Inside, link: &Link, lease: &Lease, held: &FamilyLease<G>) -> Result<bool, CniError> {
    if held.lost {
        return Ok(false);
    }
    let (client_id, wanted) = (G::client_id(&lease.id), &lease.wanted);
    let ask = Ask { inside, link, wanted, client_id: &client_id, broadcast: false, wait: Duration::ZERO, hurried: true, stop: &|| false };
    held.grant.release(ask).map(|()| true).map_err(internal)
}
