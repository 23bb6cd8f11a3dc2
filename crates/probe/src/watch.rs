//! Repeats probes, and reports when a path breaks and when it heals.
//!
//! ```text
//!   a thread per check: ask, judge, pause --change of state--> one thread: observe, explain, report
//! ```
//!
//! A path broke when the first probe began that was lost, and healed when the first one began that was not.

use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use verify::{Check, Finding, Observation};

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
    /// What differs and what was observed; else how long it was so.
    broken: Result<(String, Observation), Duration>,
}

/// Watches paths for as long as the process lives; `timeout`: how long an answer is waited for while a path is whole. At most
/// [`MOST_WATCHED`] are watched.
pub fn watch(runner: &dyn Runner, checks: &[Check], timeout: Duration, report: &mut dyn FnMut(&Change<'_>)) {
    let (sender, receiver) = mpsc::channel::<Turned>();
    std::thread::scope(|scope| {
        for (number, check) in checks.iter().enumerate().take(MOST_WATCHED) {
            let sender = sender.clone();
            scope.spawn(move || follow(runner, check, timeout, &|at, broken| sender.send(Turned { number, at, broken }).is_ok()));
        }
        drop(sender);
        for Turned { number, at, broken } in receiver {
            let Some(check) = checks.get(number) else { continue };
            let now = match broken {
                Ok((said, observation)) => {
                    let finding = Box::new(verify::explain(&runner.observe(), check, &observation));
                    Now::Broken { said, finding }
                }
                Err(after) => Now::Healed { after },
            };
            report(&Change { check, at, now });
        }
    });
}

/// Follows one path until nobody listens any more.
fn follow(
    runner: &dyn Runner,
    check: &Check,
    timeout: Duration,
    turned: &dyn Fn(SystemTime, Result<(String, Observation), Duration>) -> bool,
) {
    let mut broken: Option<Instant> = None;
    for number in 0_u32.. {
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
