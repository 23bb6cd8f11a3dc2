//! Proves that a lab's networks work: probes between its namespaces, and what was observed where one fails.
//!
//! ```text
//!   records --site--> verify::plan --checks--> workers: enter the namespace, ask ---.
//!   every namespace: a probe server's sockets, all answered by one thread            +--> one case after the other, told
//!   a case that fails: every namespace is observed --verify::explain--> Finding ----'
//! ```
//!
//! No process is started and nothing is written: sockets are opened in the namespaces, and closed at the end.

mod namespaces;
mod site;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use probe::{Answer, AskError, Question, Transport};
use verify::{CASES, Case, Check, Finding, Observation, Planned, Protocol};

use crate::state::Lab;
use namespaces::Namespaces;

/// How a lab is verified.
pub struct Verification<'a> {
    /// Whether a case is wanted.
    pub wanted: &'a dyn Fn(&Case) -> bool,
    /// Probes at a time.
    pub concurrency: usize,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// What came of a case.
#[derive(Debug)]
pub struct CaseResult {
    /// Which one.
    pub case: &'static Case,
    /// Its probes that came out as expected: how many, and how long the slowest took.
    pub passed: usize,
    /// From the first of its probes to the last.
    pub took: Duration,
    /// Those that did not.
    pub failures: Vec<Failure>,
    /// The families in which it was not tried, `None` for both, and why.
    pub skipped: Vec<(Option<bool>, String)>,
}

/// A probe that did not come out as expected.
#[derive(Debug)]
pub struct Failure {
    /// The probe.
    pub check: Check,
    /// What differs.
    pub said: String,
    /// The hop, and why.
    pub finding: Finding,
}

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
    /// No pod of the lab is attached.
    #[error("no pod of lab \"{0}\" is attached: see why with `netloom lab status --name {0}`")]
    NoPods(String),
}

/// One observation on its way to who waits for it.
struct Done {
    /// Which check.
    number: usize,
    observation: Observation,
    began: Instant,
}

/// Verifies a lab. Each case is told when its last probe is done.
///
/// # Errors
/// [`VerifyError`]: nothing was tried then.
pub fn verify(lab: &Lab, verification: &Verification<'_>, tell: &mut dyn FnMut(&CaseResult)) -> Result<Vec<CaseResult>, VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let site = site::of(lab, &namespaces)?;
    let mut planned = ::verify::plan(&site);
    planned.retain(|planned| (verification.wanted)(planned.case()));
    let listeners = namespaces.listen(&site)?;
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| probe::serve(&listeners, &end));
        let results = run(&namespaces, planned, verification, tell);
        end.store(true, Ordering::Relaxed);
        Ok(results)
    })
}

/// Runs the probes on threads, and tells the cases in order.
fn run(
    namespaces: &Namespaces,
    planned: Vec<Planned>,
    verification: &Verification<'_>,
    tell: &mut dyn FnMut(&CaseResult),
) -> Vec<CaseResult> {
    let mut checks: Vec<Check> = Vec::new();
    let mut skipped = Vec::new();
    for planned in planned {
        match planned {
            Planned::Check(check) => checks.push(check),
            Planned::Skipped { case, is_ipv4, why } => skipped.push((case, is_ipv4, why)),
        }
    }
    let (next, timeout) = (AtomicUsize::new(0), verification.timeout);
    let (sender, receiver) = mpsc::channel::<Done>();
    std::thread::scope(|scope| {
        for _ in 0..verification.concurrency.clamp(1, checks.len().max(1)) {
            let (sender, next, checks) = (sender.clone(), &next, &checks);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = checks.get(number) else { break };
                    let began = Instant::now();
                    let observation = ask(namespaces, check, timeout);
                    if sender.send(Done { number, observation, began }).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut observed: Vec<Option<(Observation, Instant, Instant)>> = checks.iter().map(|_| None).collect();
        let of_case =
            CASES.iter().filter(|case| checks.iter().any(|check| check.case == *case) || skipped.iter().any(|(of, ..)| of == case));
        let mut results = Vec::new();
        for case in of_case {
            let own: Vec<usize> = (0..checks.len()).filter(|number| checks.get(*number).is_some_and(|check| check.case == case)).collect();
            while own.iter().any(|number| observed.get(*number).is_some_and(Option::is_none)) {
                let Ok(done) = receiver.recv() else { break };
                if let Some(place) = observed.get_mut(done.number) {
                    *place = Some((done.observation, done.began, Instant::now()));
                }
            }
            let of_it = own.iter().filter_map(|number| Some((checks.get(*number)?, observed.get(*number)?.as_ref()?))).collect::<Vec<_>>();
            let reasons = skipped.iter().filter(|(of, ..)| *of == case).map(|(_, is_ipv4, why)| (*is_ipv4, why.clone())).collect();
            let result = judged(namespaces, case, &of_it, reasons);
            tell(&result);
            results.push(result);
        }
        results
    })
}

/// What came of a case's probes; those that failed are explained by what is there now.
fn judged(
    namespaces: &Namespaces,
    case: &'static Case,
    observed: &[(&Check, &(Observation, Instant, Instant))],
    skipped: Vec<(Option<bool>, String)>,
) -> CaseResult {
    let failed = |(check, (observation, ..)): &(&Check, &(Observation, Instant, Instant))| {
        Some((::verify::judge(check, observation)?, (*check).clone(), observation.clone()))
    };
    let failed: Vec<(String, Check, Observation)> = observed.iter().filter_map(failed).collect();
    let began = observed.iter().map(|(_, (_, began, _))| *began).min();
    let ended = observed.iter().map(|(_, (.., ended))| *ended).max();
    let took = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.saturating_duration_since(began));
    let passed = observed.len() - failed.len();
    let snapshot = if failed.is_empty() { ::verify::Snapshot::default() } else { namespaces.observe() };
    let explain = |(said, check, observation): (String, Check, Observation)| {
        let finding = ::verify::explain(&snapshot, &check, &observation);
        Failure { check, said, finding }
    };
    CaseResult { case, passed, took, failures: failed.into_iter().map(explain).collect(), skipped }
}

fn ask(namespaces: &Namespaces, check: &Check, patience: Duration) -> Observation {
    let Some(netns) = namespaces.netns(&check.from) else { return Observation::Broken(format!("{} is gone", check.from)) };
    let transport = transport(check.protocol);
    let size = check.size.and_then(|size| usize::try_from(size).ok());
    let question = Question { to: (check.address, check.port).into(), transport, size, patience };
    match netns.enter(|inside| probe::ask(inside, &question)) {
        Err(e) => Observation::Broken(e.to_string()),
        Ok(Ok(Answer { name, seen, took })) => Observation::Answered { by: name, seen, took },
        Ok(Err(AskError::Refused)) => Observation::Refused,
        Ok(Err(AskError::Silent(_))) => Observation::Silent,
        Ok(Err(AskError::TooLong)) => Observation::TooLong,
        Ok(Err(AskError::Unreachable(why))) => Observation::Unreachable(why),
        Ok(Err(e)) => Observation::Broken(e.to_string()),
    }
}

fn transport(protocol: Protocol) -> Transport {
    match protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
    }
}
