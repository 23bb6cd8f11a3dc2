//! Repeats probes, and reports when a path breaks and when it heals.
//!
//! ```text
//!   a thread per check: ask, judge, pause --change of state--> one thread: observe, explain, report
//! ```
//!
//! A path broke when the first probe began that was lost, and healed when the first one began that was not.

use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use verify::{Case, Check, Expected, Finding, Observation, Planned, Snapshot};

use crate::run::Runner;

/// From one probe of a path to the next: what a time is exact to.
const PACE: Duration = Duration::from_millis(100);
/// How long an answer is waited for while a path is broken.
const BRIEF: Duration = Duration::from_millis(100);
/// Of the probes of a broken path, each of this number waits as long as one of a whole path: the answer may be slow.
const PATIENT: u32 = 10;

/// The most paths that are watched: each has a thread.
pub const MOST_WATCHED: usize = 500;

/// A path has another state.
#[derive(Debug)]
pub struct Change<'a> {
    /// Its probe.
    pub check: &'a Check,
    /// When it changed.
    pub at: SystemTime,
    /// To what.
    pub now: Now,
}

/// The state that a path has now.
#[derive(Debug)]
pub enum Now {
    /// It is broken.
    Broken {
        /// What differs from what was expected.
        said: String,
        /// The hop, and why.
        finding: Box<Finding>,
    },
    /// It is whole again.
    Healed {
        /// How long it was broken.
        after: Duration,
    },
}

/// A probe that came out in another way than the one before.
struct Turned {
    number: usize,
    at: SystemTime,
    broken: State,
}

/// What differs and what was observed; else how long it was so.
type State = Result<(String, Observation), Duration>;

/// The paths of a plan that can be watched: those of the cases that are wanted, but for those of which silence or a refusal is expected.
///
/// # Errors
/// Their number, if there is none or there are more than [`MOST_WATCHED`].
pub fn watched(planned: Vec<Planned>, wanted: &dyn Fn(&Case) -> bool) -> Result<Vec<Check>, usize> {
    let check = |planned| match planned {
        Planned::Check(check) if wanted(check.case) && matches!(check.expected, Expected::Answer(_)) => Some(check),
        _ => None,
    };
    let checks: Vec<Check> = planned.into_iter().filter_map(check).collect();
    if checks.is_empty() || checks.len() > MOST_WATCHED { Err(checks.len()) } else { Ok(checks) }
}

/// Watches paths until it has ended; `timeout`: how long an answer is waited for while a path is whole. At most [`MOST_WATCHED`] are watched.
pub fn watch(
    runner: &dyn Runner,
    checks: &[Check],
    timeout: Duration,
    has_ended: &(dyn Fn() -> bool + Sync),
    report: &mut dyn FnMut(&Change<'_>),
) {
    let (sender, receiver) = mpsc::channel::<Turned>();
    std::thread::scope(|scope| {
        for (number, check) in checks.iter().enumerate().take(MOST_WATCHED) {
            let sender = sender.clone();
            let turned = move |at, broken| !has_ended() && sender.send(Turned { number, at, broken }).is_ok();
            scope.spawn(move || follow(runner, check, timeout, (has_ended, &turned)));
        }
        drop(sender);
        while let Ok(first) = receiver.recv() {
            // Paths that broke together are explained by one look.
            let together: Vec<Turned> = std::iter::once(first).chain(receiver.try_iter()).collect();
            let is_any_broken = together.iter().any(|turned| turned.broken.is_ok());
            let snapshot = if is_any_broken { runner.observe() } else { Snapshot::default() };
            for Turned { number, at, broken } in together {
                let Some(check) = checks.get(number) else { continue };
                let now = match broken {
                    Ok((said, observation)) => {
                        let finding = Box::new(verify::explain(&snapshot, check, &observation));
                        Now::Broken { said, finding }
                    }
                    Err(after) => Now::Healed { after },
                };
                report(&Change { check, at, now });
            }
        }
    });
}

/// Follows one path until nobody listens any more.
fn follow(
    runner: &dyn Runner,
    check: &Check,
    timeout: Duration,
    (has_ended, turned): (&dyn Fn() -> bool, &dyn Fn(SystemTime, State) -> bool),
) {
    let mut broken: Option<Instant> = None;
    for number in 0_u32.. {
        if has_ended() {
            break;
        }
        let (began, at) = (Instant::now(), SystemTime::now());
        let is_brief = broken.is_some() && !number.is_multiple_of(PATIENT);
        let observation = runner.ask(check, if is_brief { BRIEF.min(timeout) } else { timeout });
        let goes_on = match (verify::judge(check, &observation), broken) {
            (Some(said), None) => {
                broken = Some(began);
                turned(at, Ok((said, observation)))
            }
            (None, Some(since)) => {
                broken = None;
                turned(at, Err(began.saturating_duration_since(since)))
            }
            _ => true,
        };
        if !goes_on {
            break;
        }
        // Sleeps: the pace of the probes.
        std::thread::sleep(PACE.saturating_sub(began.elapsed()));
    }
}
