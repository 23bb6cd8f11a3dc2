//! Runs a plan's probes, judges them, and explains those that did not come out as expected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use verify::{CASES, Case, Check, Fault, Finding, Observation, Planned, Snapshot};

/// Carries checks out, on several threads at a time.
pub trait Runner: Sync {
    /// Asks as a check says, and waits at most this long for an answer.
    fn ask(&self, check: &Check, timeout: Duration) -> Observation;

    /// What is there now.
    fn observe(&self) -> Snapshot;
}

/// How a plan is run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Probes at a time.
    pub concurrency: usize,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// What happens while a plan is run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A probe has come out.
    Probe {
        /// How many have.
        done: usize,
        /// How many there are.
        all: usize,
    },
    /// The last probe of a case has, and the cases before it are reported.
    Case(&'a CaseResult),
}

/// What came of a case.
#[derive(Debug)]
pub struct CaseResult {
    /// Which one.
    pub case: &'static Case,
    /// Its probes that came out as expected.
    pub passed: usize,
    /// From the first of its probes to the last.
    pub took: Duration,
    /// Those that did not.
    pub failures: Vec<Failure>,
    /// Why it was not tried, or a part of it, or why nobody could see what came of it; and in which family, `None` for both.
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

/// What was there at one moment. It explains every probe that had ended before: cases that fail together are explained by one look, whatever a
/// look takes.
struct Look {
    began: Instant,
    snapshot: Snapshot,
}

/// One observation on its way to the one who waits for it.
struct Done {
    /// Which check.
    number: usize,
    observation: Observation,
    began: Instant,
    ended: Instant,
}

/// Runs the probes on threads, and reports each case when its last probe is done, in the order of the cases.
pub fn run(runner: &dyn Runner, planned: Vec<Planned>, how: Run, report: &mut dyn FnMut(Event<'_>)) -> Vec<CaseResult> {
    let mut checks: Vec<Check> = Vec::new();
    let mut skipped = Vec::new();
    for planned in planned {
        match planned {
            Planned::Check(check) => checks.push(check),
            Planned::Skipped { case, is_ipv4, why } => skipped.push((case, is_ipv4, why)),
        }
    }
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel::<Done>();
    std::thread::scope(|scope| {
        for _ in 0..how.concurrency.clamp(1, checks.len().max(1)) {
            let (sender, next, checks) = (sender.clone(), &next, &checks);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = checks.get(number) else { break };
                    let began = Instant::now();
                    let observation = asked(runner, check, how.timeout);
                    if sender.send(Done { number, observation, began, ended: Instant::now() }).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut observed: Vec<Option<Done>> = checks.iter().map(|_| None).collect();
        let of_case =
            CASES.iter().filter(|case| checks.iter().any(|check| check.case == *case) || skipped.iter().any(|(of, ..)| of == case));
        let mut results = Vec::new();
        let mut last: Option<Look> = None;
        let (mut done, all) = (0, checks.len());
        for case in of_case {
            let own: Vec<usize> = (0..checks.len()).filter(|number| checks.get(*number).is_some_and(|check| check.case == case)).collect();
            while own.iter().any(|number| observed.get(*number).is_some_and(Option::is_none)) {
                let Ok(next) = receiver.recv() else { break };
                if let Some(place) = observed.get_mut(next.number) {
                    *place = Some(next);
                }
                done += 1;
                report(Event::Probe { done, all });
            }
            let of_it = own.iter().filter_map(|number| Some((checks.get(*number)?, observed.get(*number)?.as_ref()?))).collect::<Vec<_>>();
            let reasons = skipped.iter().filter(|(of, ..)| *of == case).map(|(_, is_ipv4, why)| (*is_ipv4, why.clone())).collect();
            let result = judged(runner, case, &of_it, (reasons, how.timeout), &mut last);
            report(Event::Case(&result));
            results.push(result);
        }
        results
    })
}

/// Asks; where silence is expected, it counts only if those who must not answer do answer themselves.
fn asked(runner: &dyn Runner, check: &Check, timeout: Duration) -> Observation {
    for proof in check.proofs() {
        if let Some(said) = verify::judge(&proof, &runner.ask(&proof, timeout)) {
            return Observation::Broken(format!("{} does not answer itself, so its silence means nothing: {said}", proof.from));
        }
    }
    runner.ask(check, timeout)
}

/// What came of a case's probes; those that failed are explained by what was there after them. `last`: the last look.
fn judged(
    runner: &dyn Runner,
    case: &'static Case,
    observed: &[(&Check, &Done)],
    (skipped, timeout): (Vec<(Option<bool>, String)>, Duration),
    last: &mut Option<Look>,
) -> CaseResult {
    let failed =
        |(check, done): &(&Check, &Done)| Some((verify::judge(check, &done.observation)?, (*check).clone(), done.observation.clone()));
    let failed: Vec<(String, Check, Observation)> = observed.iter().filter_map(failed).collect();
    let silent: Vec<&Check> = observed
        .iter()
        .filter(|(check, done)| check.is_of_isolation() && verify::judge(check, &done.observation).is_none())
        .map(|(check, _)| *check)
        .collect();
    let began = observed.iter().map(|(_, done)| done.began).min();
    let ended = observed.iter().map(|(_, done)| done.ended).max();
    let took = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.saturating_duration_since(began));
    if failed.is_empty() && silent.is_empty() {
        return CaseResult { case, passed: observed.len(), took, failures: Vec::new(), skipped };
    }
    let is_shared = last.as_ref().zip(ended).is_some_and(|(look, ended)| ended <= look.began);
    if !is_shared {
        *last = None;
    }
    let look = last.get_or_insert_with(|| Look::now(runner));
    let counted = counted(runner, (&mut *look, is_shared), &failed, timeout);
    let snapshot = counted.as_ref().unwrap_or(&look.snapshot);
    let explain = |(said, check, observation): (String, Check, Observation)| {
        let finding = verify::explain(snapshot, &check, &observation);
        Failure { check, said, finding }
    };
    let mut failures: Vec<Failure> = failed.into_iter().map(explain).collect();
    let (mut skipped, mut unknown) = (skipped, 0);
    for check in silent {
        // What was silent must have been silent because it is kept apart.
        let Some(finding) = verify::explain_silence(snapshot, check) else { continue };
        if finding.fault == Fault::NotObserved {
            // Neither is known: that it is kept apart, and that it is not.
            unknown += 1;
            let why = (Some(check.address.is_ipv4()), format!("no answer, and why is not known: {}: {}", finding.at(), finding.evidence));
            if !skipped.contains(&why) {
                skipped.push(why);
            }
            continue;
        }
        let said = format!("no answer from {}, but not because the network keeps pods apart", check.address);
        failures.push(Failure { check: check.clone(), said, finding });
    }
    CaseResult { case, passed: observed.len() - failures.len() - unknown, took, failures, skipped }
}

/// What rules have counted while a probe was repeated, which says whether they have met it; `None`: no failure is of rules.
fn counted(
    runner: &dyn Runner,
    (look, is_shared): (&mut Look, bool),
    failed: &[(String, Check, Observation)],
    timeout: Duration,
) -> Option<Snapshot> {
    let is_of_rules =
        |(_, check, observation): &&(String, Check, Observation)| verify::explain(&look.snapshot, check, observation).fault.is_of_rules();
    let (_, check, _) = failed.iter().find(is_of_rules)?;
    // Other probes were counted since an earlier look.
    if is_shared {
        *look = Look::now(runner);
    }
    runner.ask(check, timeout);
    Some(runner.observe().counted_since(&look.snapshot))
}

// === impl Look ===

impl Look {
    fn now(runner: &dyn Runner) -> Self {
        Look { began: Instant::now(), snapshot: runner.observe() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use verify::case::{Quality, Target};
    use verify::{Expected, PORT, Place, Protocol, Unobserved};

    use super::*;

    /// Nobody answers, and neither is anything observed. It counts how often that was tried.
    #[derive(Default)]
    struct Unseen(AtomicUsize);

    impl Runner for Unseen {
        fn ask(&self, _: &Check, _: Duration) -> Observation {
            Observation::Silent
        }

        fn observe(&self) -> Snapshot {
            self.0.fetch_add(1, Ordering::Relaxed);
            let unobserved = |place: &str| Unobserved { place: place.parse().unwrap(), why: "it does not answer".to_owned() };
            Snapshot { unobserved: vec![unobserved("pod/d/a"), unobserved("pod/d/b")], ..Snapshot::default() }
        }
    }

    fn isolated() -> Check {
        let case = CASES.iter().find(|case| case.to == Target::Network(Quality::Isolation)).unwrap();
        let place = |name: &str| -> Place { name.parse().unwrap() };
        Check {
            case,
            network: Some("n".to_owned()),
            from: place("pod/d/a"),
            answerers: vec![place("pod/d/b")],
            address: IpAddr::from([10, 0, 0, 2]),
            protocol: Protocol::Tcp,
            port: PORT,
            size: None,
            expected: Expected::Silence,
        }
    }

    fn silent() -> Done {
        Done { number: 0, observation: Observation::Silent, began: Instant::now(), ended: Instant::now() }
    }

    /// Where nobody can see why it was silent, an isolation neither held nor failed.
    #[test]
    fn an_isolation_that_nobody_can_see_is_skipped() {
        let (check, done) = (isolated(), silent());
        let how = (Vec::new(), Duration::from_secs(1));
        let result = judged(&Unseen::default(), check.case, &[(&check, &done), (&check, &done)], how, &mut None);
        assert_eq!((result.passed, result.failures.len(), result.skipped.len()), (0, 0, 1), "{result:?}");
        assert!(result.skipped[0].1.contains("it does not answer"), "{result:?}");
    }

    /// Says nothing until so many are asked at a time, and counts how many were at most.
    struct Crowd {
        waits: std::sync::Barrier,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Runner for Crowd {
        fn ask(&self, _: &Check, timeout: Duration) -> Observation {
            assert_eq!(timeout, Duration::from_secs(7));
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.waits.wait();
            self.now.fetch_sub(1, Ordering::SeqCst);
            Observation::Silent
        }

        fn observe(&self) -> Snapshot {
            Snapshot::default()
        }
    }

    /// Each probe waits for the others of its crowd: with fewer at a time none would end. All of them are reported.
    #[test]
    fn as_many_probes_at_a_time_as_are_wanted() {
        for concurrency in [1, 4] {
            let crowd = Crowd { waits: std::sync::Barrier::new(concurrency), now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
            let check = Check { expected: Expected::NobodyServes, ..isolated() };
            let planned = (0..12).map(|_| Planned::Check(check.clone())).collect();
            let mut seen = Vec::new();
            let how = Run { concurrency, timeout: Duration::from_secs(7) };
            let results = run(&crowd, planned, how, &mut |event| match event {
                Event::Probe { done, all } => seen.push((done, all)),
                Event::Case(result) => assert_eq!((result.passed, seen.len()), (12, 12)),
            });
            assert_eq!((results.len(), crowd.most.into_inner()), (1, concurrency));
            assert_eq!(seen, (1..=12).map(|done| (done, 12)).collect::<Vec<_>>());
        }
    }

    /// Cases that came out before a look are explained by it; what came out since is looked at again.
    #[test]
    fn one_look_explains_all_that_came_before_it() {
        let (check, runner, mut last) = (isolated(), Unseen::default(), None);
        let mut judge = |done: &Done| {
            judged(&runner, check.case, &[(&check, done)], (Vec::new(), Duration::from_secs(1)), &mut last);
            runner.0.load(Ordering::Relaxed)
        };
        let (one, other) = (silent(), silent());
        assert_eq!((judge(&one), judge(&other)), (1, 1));
        let later = silent();
        assert_eq!((judge(&later), judge(&other)), (2, 2));
    }
}
