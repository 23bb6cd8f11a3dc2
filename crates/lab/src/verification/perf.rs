//! How fast a lab's networks are: each pair of pods of the sample, one after the other, so that none disturbs another one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probe::{AskError, Measured, Pair, Speed};

use super::{Lab, Namespaces, VerifyError, site};

/// Measures the pairs of pods on networks that are wanted, and reports each when it is done. `time`: how long bytes are sent for throughput;
/// `patience`: how long an answer is waited for.
///
/// # Errors
/// [`VerifyError`]: nothing was measured then.
pub fn perf(
    lab: &Lab,
    wanted: &dyn Fn(&str) -> bool,
    (time, patience): (Duration, Duration),
    report: &mut dyn FnMut(&Measured),
) -> Result<Vec<Measured>, VerifyError> {
    let namespaces = Namespaces::open(lab)?;
    let site = site::of(lab, &namespaces)?;
    let pairs = probe::pairs(&site, wanted);
    let (listeners, sinks) = (namespaces.listen(&site)?, namespaces.sink(pairs.iter().map(|pair| &pair.to))?);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = &end;
        scope.spawn(|| probe::serve(&listeners, end));
        for sink in &sinks {
            scope.spawn(move || sink.swallow(end));
        }
        let mut all = Vec::new();
        for pair in pairs {
            let speed = speed(&namespaces, &pair, (time, patience));
            let measured = pair.measured(speed);
            report(&measured);
            all.push(measured);
        }
        end.store(true, Ordering::Relaxed);
        Ok(all)
    })
}

fn speed(namespaces: &Namespaces, pair: &Pair, times: (Duration, Duration)) -> Result<Speed, AskError> {
    let netns = namespaces.netns(&pair.from).ok_or_else(|| AskError::Failed(format!("{} is gone", pair.from)))?;
    netns.enter(|inside| probe::speed(inside, pair.address, times)).map_err(|e| AskError::Failed(e.to_string()))?
}
