//! Proves that a lab's networks work: probes between its namespaces, and what was observed where one fails.
//!
//! ```text
//!   records --site--> verify::plan --checks--> workers: enter the namespace, ask ---.
//!   every namespace: a probe server's sockets, all answered by one thread            +--> probe::run: one case after the other
//!   a case that fails: every namespace is observed --verify::explain--> Finding ----'
//! ```
//!
//! No process is started and nothing is written: sockets are opened in the namespaces, and closed at the end.

mod namespaces;
mod neighbours;
mod perf;
mod site;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::verify::{Case, Check, Expected, Observation, Planned, Protocol, Snapshot};
use linux::Inside;
use probe::{Answer, AskError, CaseResult, Change, Event, Question, Run, Runner, Transport};

use crate::state::Lab;
use namespaces::Namespaces;
pub use perf::perf;

/// A lab cannot be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A namespace of the lab is gone, or cannot be entered.
    #[error("{place}: {why}; recreate the lab with `netloom lab down` and `netloom lab up`")]
    Namespace {
        /// Whose it is.
        place: String,
        /// Why.
        why: String,
    },
    /// A probe's port is another program's.
    #[error(transparent)]
    Listen(#[from] probe::ListenError),
    /// There is no path to be watched, or there are too many.
    #[error("{0} paths match, and 1 to {most} can be watched: choose cases with --test", most = probe::MOST_WATCHED)]
    Paths(usize),
    /// No pod of the lab is attached.
    #[error("no pod of lab \"{0}\" is attached: see why with `netloom lab status --name {0}`")]
    NoPods(String),
}

/// Verifies a lab by the cases that are wanted. Each is reported when its last probe is done. `bandwidth`: whether limits of pods' bandwidth are
/// tried.
///
/// # Errors
/// [`VerifyError`]: nothing was tried then.
pub fn verify(
    lab: &Lab,
    wanted: &dyn Fn(&Case) -> bool,
    (how, bandwidth): (Run, bool),
    report: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<CaseResult>, VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let mut site = site::of(lab, &namespaces)?;
    if !bandwidth {
        site.limited.clear();
    }
    let mut planned = ::verify::plan(&site);
    planned.retain(|planned| wanted(planned.case()));
    let measured = planned.iter().filter_map(|planned| match planned {
        Planned::Check(Check { expected: Expected::Rate { .. }, answerers, .. }) => answerers.first(),
        _ => None,
    });
    let (listeners, sinks) = (namespaces.listen(&site)?, namespaces.sink(measured)?);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| probe::serve(&listeners, &end));
        for sink in &sinks {
            scope.spawn(|| sink.swallow(&end));
        }
        let results = probe::run(&namespaces, planned, how, report);
        end.store(true, Ordering::Relaxed);
        Ok(results)
    })
}

/// Watches the paths of a lab for as long as the process lives: those of the cases that are wanted, but for those of which silence or a refusal
/// is expected. `begins` gets their number.
///
/// # Errors
/// [`VerifyError`]: nothing was tried then, or nothing can be tried any more.
pub fn watch(
    lab: &Lab,
    wanted: &dyn Fn(&Case) -> bool,
    timeout: Duration,
    begins: &dyn Fn(usize),
    report: &mut dyn FnMut(&Change<'_>),
) -> Result<(), VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let site = site::of(lab, &namespaces)?;
    let checks = probe::watched(::verify::plan(&site), wanted).map_err(VerifyError::Paths)?;
    let listeners = namespaces.listen(&site)?;
    begins(checks.len());
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| probe::serve(&listeners, &end));
        let watched = probe::watch(&namespaces, &checks, timeout, &|| false, report);
        end.store(true, Ordering::Relaxed);
        watched.map_err(|lost| VerifyError::Namespace { place: lost.place.to_string(), why: lost.why })
    })
}

/// What a lab has now, with the site: what `netloom verify --from` reads.
///
/// # Errors
/// [`VerifyError`]
pub fn snapshot(lab: &Lab) -> Result<Snapshot, VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let site = site::of(lab, &namespaces)?;
    Ok(Snapshot { taken: daemon::log::now(), site: Some(site), ..namespaces.snapshot() })
}

impl Namespaces {
    fn ask_once(&self, check: &Check, timeout: Duration) -> Observation {
        let Some(netns) = self.netns(&check.from) else { return Observation::Broken(format!("{} is gone", check.from)) };
        if let Expected::Rate { least, most } = check.expected {
            let to = (check.address, check.port).into();
            let measure = |inside: &Inside| probe::sustained(inside, to, (least, most), (timeout, probe::MEASURED));
            return match netns.enter(measure) {
                Err(e) => Observation::Broken(e.to_string()),
                Ok(measured) => measured.map_or_else(failed, Observation::Rate),
            };
        }
        let transport = transport(check.protocol);
        let size = check.size.and_then(|size| usize::try_from(size).ok());
        let question = Question { to: (check.address, check.port).into(), transport, size, patience: timeout };
        match netns.enter(|inside| probe::ask(inside, &question)) {
            Err(e) => Observation::Broken(e.to_string()),
            Ok(Ok(Answer { name, seen, took })) => Observation::Answered { by: name, seen, took },
            Ok(Err(e)) => failed(e),
        }
    }
}

impl Runner for Namespaces {
    /// A probe that is lost while the kernel refuses neighbours is repeated: another one may have taken the room.
    fn ask(&self, check: &Check, timeout: Duration) -> Observation {
        let refused = || self.tables.refused(check.address.is_ipv4());
        neighbours::ask_while_refused(check, (timeout, neighbours::PAUSE), refused, |timeout| self.ask_once(check, timeout))
    }

    fn observe(&self) -> Snapshot {
        self.snapshot()
    }
}

fn failed(error: AskError) -> Observation {
    match error {
        AskError::Refused => Observation::Refused,
        AskError::Silent(_) => Observation::Silent,
        AskError::TooLong => Observation::TooLong,
        AskError::Unreachable(why) => Observation::Unreachable(why),
        e => Observation::Broken(e.to_string()),
    }
}

fn transport(protocol: Protocol) -> Transport {
    match protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    }
}
