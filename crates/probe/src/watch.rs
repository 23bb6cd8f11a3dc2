//! Repeats probes, and reports when a path breaks and when it heals.
//!
//! ```text
//!   a thread per check: ask, judge, pause --change of state--> one thread: observe, explain, report
//! ```
//!
//! A path broke when the first probe began that was lost, and healed when the first one began that was not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use verify::{Case, Check, Expected, Finding, Observation, Place, Planned, Snapshot};

use crate::run::Runner;

/// From one probe of a path to the next: what a time is exact to.
const PACE: Duration = Duration::from_millis(100);
/// How long an answer is waited for while a path is broken.
const BRIEF: Duration = Duration::from_millis(100);
/// Of the probes of a broken path, each of this number waits as long as one of a whole path: the answer may be slow.
const PATIENT: u32 = 10;
/// A probe that could not ask so often in a row does not work any more.
const LOST: u32 = 3;

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

/// A probe cannot ask any more, so nothing is known of its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostProbe {
    /// Where it is, or was.
    pub place: Place,
    /// Why.
    pub why: String,
}

/// A probe that came out in another way than the one before.
struct Turned {
    number: usize,
    at: SystemTime,
    now: State,
}

/// How a probe came out.
enum State {
    /// What differs, and what was observed.
    Broken(String, Observation),
    /// After so long.
    Healed(Duration),
    /// It could not ask, and why.
    Lost(String),
}

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
///
/// # Errors
/// [`LostProbe`], if one cannot ask any more: that is no state of a path.
pub fn watch(
    runner: &dyn Runner,
    checks: &[Check],
    timeout: Duration,
    has_ended: &(dyn Fn() -> bool + Sync),
    report: &mut dyn FnMut(&Change<'_>),
) -> Result<(), LostProbe> {
    let (sender, receiver) = mpsc::channel::<Turned>();
    let is_lost = AtomicBool::new(false);
    let has_ended = &|| is_lost.load(Ordering::Relaxed) || has_ended();
    std::thread::scope(|scope| {
        for (number, check) in checks.iter().enumerate().take(MOST_WATCHED) {
            let sender = sender.clone();
            let turned = move |at, now| !has_ended() && sender.send(Turned { number, at, now }).is_ok();
            scope.spawn(move || follow(runner, check, timeout, (has_ended, &turned)));
        }
        drop(sender);
        while let Ok(first) = receiver.recv() {
            // Paths that broke together are explained by one look.
            let together: Vec<Turned> = std::iter::once(first).chain(receiver.try_iter()).collect();
            let is_any_broken = together.iter().any(|turned| matches!(turned.now, State::Broken(..)));
            let snapshot = if is_any_broken { runner.observe() } else { Snapshot::default() };
            // What was observed while it was ended is not whole, and explains nothing.
            if is_any_broken && has_ended() {
                continue;
            }
            for Turned { number, at, now } in together {
                let Some(check) = checks.get(number) else { continue };
                let now = match now {
                    State::Broken(said, observation) => {
                        let finding = Box::new(verify::explain(&snapshot, check, &observation));
                        Now::Broken { said, finding }
                    }
                    State::Healed(after) => Now::Healed { after },
                    State::Lost(why) => {
                        is_lost.store(true, Ordering::Relaxed);
                        return Err(LostProbe { place: check.from.clone(), why });
                    }
                };
                report(&Change { check, at, now });
            }
        }
        Ok(())
    })
}

/// Follows one path until nobody listens any more.
fn follow(
    runner: &dyn Runner,
    check: &Check,
    timeout: Duration,
    (has_ended, turned): (&dyn Fn() -> bool, &dyn Fn(SystemTime, State) -> bool),
) {
    let mut broken: Option<Instant> = None;
    let mut lost = 0;
    for number in 0_u32.. {
        if has_ended() {
            break;
        }
        let (began, at) = (Instant::now(), SystemTime::now());
        let is_brief = broken.is_some() && !number.is_multiple_of(PATIENT);
        let observation = runner.ask(check, if is_brief { BRIEF.min(timeout) } else { timeout });
        let goes_on = if let Observation::Broken(why) = observation {
            // The path is as it was: nothing was sent.
            lost += 1;
            lost < LOST || {
                turned(at, State::Lost(why));
                false
            }
        } else {
            lost = 0;
            match (verify::judge(check, &observation), broken) {
                (Some(said), None) => {
                    broken = Some(began);
                    turned(at, State::Broken(said, observation))
                }
                (None, Some(since)) => {
                    broken = None;
                    turned(at, State::Healed(began.saturating_duration_since(since)))
                }
                _ => true,
            }
        };
        if !goes_on {
            break;
        }
        // Sleeps: the pace of the probes.
        std::thread::sleep(PACE.saturating_sub(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each question comes out so; who observes has ended.
    struct Same(Observation, AtomicBool);

    impl Runner for Same {
        fn ask(&self, _: &Check, _: Duration) -> Observation {
            self.0.clone()
        }

        fn observe(&self) -> Snapshot {
            self.1.store(true, Ordering::Relaxed);
            Snapshot::default()
        }
    }

    fn checks() -> Vec<Check> {
        let attachment = |last| verify::Attachment {
            network: "default".to_owned(),
            is_default: true,
            addresses: vec![std::net::IpAddr::from([10, 0, 0, last])],
            mtu: None,
            reach: verify::Reach::Everywhere,
            zone: None,
        };
        let pod = |last| verify::SitePod {
            name: format!("d/{last}"),
            node: "n".to_owned(),
            attachments: vec![attachment(last)],
            ports: Vec::new(),
        };
        let node = verify::SiteNode {
            name: "n".to_owned(),
            addresses: vec![std::net::IpAddr::from([10, 1, 0, 1])],
            sources: Vec::new(),
            tunnels: Vec::new(),
        };
        let site = verify::Site { nodes: vec![node], pods: vec![pod(1), pod(2)], ..verify::Site::default() };
        watched(verify::plan(&site), &|_| true).unwrap()
    }

    fn watched_by(runner: &Same) -> (Result<(), LostProbe>, usize) {
        let mut reports = 0;
        let has_ended = || runner.1.load(Ordering::Relaxed);
        let watched = watch(runner, &checks(), Duration::from_secs(1), &has_ended, &mut |_| reports += 1);
        (watched, reports)
    }

    /// A probe that has ended is no broken path, and nothing is known of its paths any more.
    #[test]
    fn a_lost_probe_ends_it_with_its_name() {
        let (watched, reports) = watched_by(&Same(Observation::Broken("gone".to_owned()), AtomicBool::new(false)));
        let lost = watched.unwrap_err();
        // Whichever was asked first.
        assert!(checks().iter().any(|check| check.from == lost.place), "{lost:?}");
        assert_eq!((lost.why.as_str(), reports), ("gone", 0));
    }

    /// What was observed while somebody ended it is not whole.
    #[test]
    fn a_look_that_was_ended_explains_nothing() {
        assert_eq!(watched_by(&Same(Observation::Silent, AtomicBool::new(false))), (Ok(()), 0));
    }
}
