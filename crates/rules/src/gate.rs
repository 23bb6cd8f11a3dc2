//! The gate in the host's own filter: what our table has marked is accepted in iptables' FORWARD, whatever its policy says.
//!
//! ```text
//! -A FORWARD -j NETLOOM-FORWARD                                    first, when it is put there
//! -A NETLOOM-FORWARD -j CNI-ADMIN                                  where that chain has rules
//! -A NETLOOM-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
//! ```
//!
//! **CNI-ADMIN** is where an administrator overrules the reference plugin. Rules that are there have the first word here too: what
//! they drop must not pass because another plugin stands in that one's place.
//!
//! Made once a family, and never removed: no attachment has a rule of its own here. Whether it is there is asked over netlink
//! (`table ip filter` is that of `iptables-nft`), without a process. Where the kernel has iptables' own tables (legacy), only
//! `iptables-save` can tell: a process for each look.
//!
//! It is made also where no program has used iptables yet: one that comes later, Docker say, sets the policy to drop and
//! leaves our chain alone. Where iptables is not installed there is nobody to come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linux::nft::{self, ReadError, Socket};
use linux::{Family, Inside, xtables};

use crate::FORWARD_MARK;
use crate::iptables::{Changes, Iptables, IptablesError, Rule, Saved};

/// iptables' table.
const FILTER: &str = "filter";
/// Its chain for what passes through.
const FORWARD: &str = "FORWARD";
/// Ours.
const GATE: &str = "NETLOOM-FORWARD";
/// An administrator's.
const ADMIN: &str = "CNI-ADMIN";

/// Why the gate is not known to be open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// nftables could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// iptables could not be asked, or refused.
    #[error(transparent)]
    Iptables(#[from] IptablesError),
}

/// What a family's filter does with packets that our table has marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It accepts them, if the administrator's rules do not say otherwise.
    Open,
    /// It knows nothing of the mark, or the administrator's rules are not asked.
    Closed,
    /// No program has used iptables here since the machine was started: there is nothing to be accepted in.
    NoFilter,
}

/// Opens the gate of a family where it is not open; each program must have ended by `deadline`. The packets are those of the
/// calling thread's network namespace, as are the socket's.
///
/// # Errors
/// [`GateError`]; nothing was changed then.
pub fn open_gate(socket: &mut Socket, family: Family, deadline: Instant) -> Result<(), GateError> {
    // What is not installed on the host mostly stays so, and is not looked for at each ADD; who has a table is asked again.
    static NOT_INSTALLED: AtomicBool = AtomicBool::new(false);
    let found = gate(socket, family, deadline)?;
    if found == Gate::Open || (found == Gate::NoFilter && NOT_INSTALLED.load(Ordering::Relaxed)) {
        return Ok(());
    }
    match Iptables::new(family, deadline).change(FILTER, opened) {
        Ok(_) => Ok(()),
        Err(e) if found == Gate::NoFilter && e.is_unusable() => {
            NOT_INSTALLED.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

/// Whether the gate of a family is open.
///
/// # Errors
/// [`GateError`]
pub fn gate(socket: &mut Socket, family: Family, deadline: Instant) -> Result<Gate, GateError> {
    if is_legacy(family) {
        let saved = Iptables::new(family, deadline).saved(FILTER)?;
        return Ok(if opened(&saved).is_empty() { Gate::Open } else { Gate::Closed });
    }
    let family = if family == Family::V4 { nft::Family::Ip } else { nft::Family::Ip6 };
    let leads = socket.jumps(family, FILTER, FORWARD)?.iter().any(|chain| chain == GATE);
    let mut is_asked = || -> Result<bool, ReadError> {
        Ok(socket.count_rules(family, FILTER, ADMIN)? == 0 || socket.jumps(family, FILTER, GATE)?.iter().any(|chain| chain == ADMIN))
    };
    if leads && is_asked()? && socket.count_rules(family, FILTER, GATE)? > 0 {
        return Ok(Gate::Open);
    }
    Ok(if socket.has_table(family, FILTER)? { Gate::Closed } else { Gate::NoFilter })
}

/// Whether the kernel has iptables' own filter in the namespace that this thread is in.
#[must_use]
pub fn is_legacy(family: Family) -> bool {
    xtables::legacy_tables(&Inside::here(), family).is_ok_and(|names| names.iter().any(|name| name == FILTER))
}

/// Whether iptables' own filter (legacy) drops what the machine forwards, and has no rule in that chain which names this link. The
/// packets are those of the calling thread's network namespace.
///
/// # Errors
/// [`IptablesError`], where `iptables-save` cannot be run.
pub fn legacy_drops_forwarded(family: Family, link: &str, deadline: Instant) -> Result<bool, IptablesError> {
    if !is_legacy(family) {
        return Ok(false);
    }
    let saved = Iptables::new(family, deadline).saved(FILTER)?;
    let names_link = |rule: &Rule| rule.words().iter().any(|word| word == link);
    Ok(saved.policy(FORWARD) == Some("DROP") && !saved.rules(FORWARD).any(names_link))
}

/// What is to be changed so that the gate is open: nothing where it is.
fn opened(saved: &Saved) -> Changes {
    let mark = format!("{FORWARD_MARK:#x}/{FORWARD_MARK:#x}");
    let (accept, enter) = (Rule::new(["-m", "mark", "--mark", &mark, "-j", "ACCEPT"]), Rule::new(["-j", GATE]));
    let ask = Rule::new(["-j", ADMIN]);
    let mut changes = Changes::of(FILTER);
    if !saved.has_chain(GATE) {
        changes.new_chain(GATE);
    }
    if !saved.has(GATE, &accept) {
        changes.append(GATE, &accept);
    }
    if saved.rules(ADMIN).next().is_some() && !saved.has(GATE, &ask) {
        changes.insert(GATE, &ask);
    }
    if !saved.has(FORWARD, &enter) {
        changes.insert(FORWARD, &enter);
    }
    changes
}
