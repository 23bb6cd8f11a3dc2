//! How fast a cluster's networks are: each pair of the probes' pods, one after the other, so that none disturbs another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probe::{AskError, Measured, Outcome, Pair, ProbeTask, Speed, Timing};

use crate::{ClusterRun, ConnectivityError, Options, on_stage, until};

/// How a cluster is measured, and what comes of it on the way.
pub struct Perf<'a> {
    /// Which networks.
    pub wanted: &'a dyn Fn(&str) -> bool,
    /// How long bytes are sent for throughput.
    pub time: Duration,
    /// How long an answer is waited for.
    pub patience: Duration,
    /// Called with what is being done, a line at a time.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// Called with each pair that was measured.
    pub measured: &'a mut dyn FnMut(&Measured),
    /// Set when somebody has pressed Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}

/// Measures the pairs of a cluster's probes, and removes what it has created, as [`crate::verify`] does. `options.measure` must be set.
///
/// # Errors
/// [`ConnectivityError`]
pub fn perf(options: &Options, perf: &mut Perf<'_>) -> Result<Vec<Measured>, ConnectivityError> {
    let interrupted = Arc::clone(&perf.interrupted);
    let (progress, report, wanted) = (perf.progress, &mut *perf.measured, perf.wanted);
    let times = (perf.time, perf.patience);
    let (_, all) = on_stage(options, progress, (&interrupted, perf.patience), |asked, _| {
        let pairs = probe::pairs(&asked.site, wanted);
        progress(&format!("measuring {} pairs of pods, one after the other", pairs.len()));
        let mut all = Vec::new();
        for pair in pairs {
            let speed = asked.speed(&pair, times);
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let measured = pair.measured(speed);
            report(&measured);
            all.push(measured);
        }
        Ok(all)
    })?;
    if interrupted.load(Ordering::Relaxed) { Err(ConnectivityError::Interrupted) } else { Ok(all) }
}

// === impl ClusterRun ===

impl ClusterRun<'_> {
    fn speed(&self, pair: &Pair, (time, patience): (Duration, Duration)) -> Result<Speed, AskError> {
        let worker = self.workers.get(&pair.from).ok_or_else(|| AskError::Failed(format!("{} has no probe", pair.from)))?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let timing = Timing { to: pair.address, time: millis(time), patience: millis(patience) };
        let most = timing.most();
        let outcome = self.handle.block_on(async {
            tokio::select! {
                outcome = worker.order(ProbeTask::Time(timing), most) => outcome,
                () = until(&self.interrupted) => Outcome::Failed("interrupted".to_owned()),
            }
        });
        match outcome {
            Outcome::Speed(speed) => Ok(speed),
            Outcome::Refused => Err(AskError::Refused),
            Outcome::Silent => Err(AskError::Silent(patience)),
            Outcome::TooLong => Err(AskError::TooLong),
            Outcome::Unreachable(why) => Err(AskError::Unreachable(why)),
            Outcome::Failed(why) => Err(AskError::Failed(why)),
            Outcome::Answered { .. } | Outcome::Rate(_) | Outcome::Here(_) | Outcome::Body(_) => {
                Err(AskError::Failed("the probe has answered another question".to_owned()))
            }
        }
    }
}
