//! When a lease is to be renewed, and when it ends. All moments are told as time since the machine's start
//! ([`linux::boot::uptime`]), which nobody sets, and which goes on while nobody runs.

use std::time::Duration;

/// A lease that ends sooner than this is not believed: its client would do nothing but renew.
const SHORTEST: Duration = Duration::from_secs(4);

/// The times of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// When it was asked for.
    pub(crate) begun: Duration,
    /// From then on its server is asked for more (T1).
    pub(crate) renew: Duration,
    /// From then on every server is (T2).
    pub(crate) rebind: Duration,
    /// When it ends; `None`: never.
    pub(crate) end: Option<Duration>,
}

/// What is to be done with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nothing.
    Bound,
    /// Ask its server.
    Renew,
    /// Ask every server.
    Rebind,
    /// The address is nobody's any more.
    Expired,
}

// === impl Times ===

impl Times {
    /// What a server said: how long the lease is (`None`: for ever), and T1 and T2 where it says so and they are in order.
    pub(crate) fn new(begun: Duration, length: Option<Duration>, t1: Option<Duration>, t2: Option<Duration>) -> Self {
        let Some(length) = length.map(|l| l.max(SHORTEST)) else {
            return Times { begun, renew: Duration::MAX, rebind: Duration::MAX, end: None };
        };
        // RFC 2131 4.4.5, RFC 8415 21.4.
        let rebind = t2.filter(|t| *t < length && !t.is_zero()).unwrap_or(length * 7 / 8);
        let renew = t1.filter(|t| *t <= rebind && !t.is_zero()).unwrap_or_else(|| (length / 2).min(rebind));
        Times { begun, renew: begun + renew, rebind: begun + rebind, end: Some(begun + length) }
    }

    pub(crate) fn phase(&self, now: Duration) -> Phase {
        match self.end {
            Some(end) if now >= end => Phase::Expired,
            _ if now >= self.rebind => Phase::Rebind,
            _ if now >= self.renew => Phase::Renew,
            _ => Phase::Bound,
        }
    }

    /// When something is to be done for it, where the last attempt was in this phase ([`Phase::Bound`]: there was none): when the
    /// next phase begins, or when half of the time until then is over, but not sooner than in a minute (RFC 2131 4.4.5), or in a
    /// tenth of a short lease.
    pub(crate) fn next(&self, now: Duration, tried: Phase) -> Option<Duration> {
        let end = self.end?;
        let phase = self.phase(now);
        if phase > tried {
            return Some(now);
        }
        let until = match phase {
            Phase::Bound => return Some(self.renew),
            Phase::Renew => self.rebind,
            Phase::Rebind | Phase::Expired => end,
        };
        let least = ((end - self.begun) / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
        Some((now + (until.saturating_sub(now) / 2).max(least)).min(until.max(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn phases() {
        let times = Times::new(s(100), Some(s(1000)), None, None);
        assert_eq!((times.renew, times.rebind, times.end), (s(600), s(975), Some(s(1100))));
        for (now, phase, next) in [
            (s(100), Phase::Bound, Some(s(600))),
            (s(600), Phase::Renew, Some(s(600) + s(375) / 2)),
            (s(940), Phase::Renew, Some(s(975))),
            (s(980), Phase::Rebind, Some(s(1040))),
            (s(1100), Phase::Expired, Some(s(1100))),
        ] {
            assert_eq!((times.phase(now), times.next(now, phase)), (phase, next), "{now:?}");
        }
        // An attempt that began before T2 and ended after it is followed by the next at once.
        assert_eq!(times.next(s(976), Phase::Renew), Some(s(976)));
        let short = Times::new(s(0), Some(s(30)), Some(s(2)), Some(s(5)));
        assert_eq!(short.next(s(8), Phase::Rebind), Some(s(19)));
        let forever = Times::new(s(1), None, Some(s(5)), None);
        assert_eq!((forever.phase(s(1 << 30)), forever.next(s(5), Phase::Bound)), (Phase::Bound, None));
    }

    #[test]
    fn nonsense_is_not_believed() {
        let times = Times::new(s(0), Some(s(0)), Some(s(9)), Some(s(3)));
        assert_eq!(times.end, Some(SHORTEST));
        assert!(s(0) < times.renew && times.renew <= times.rebind && times.rebind <= SHORTEST);
        let times = Times::new(s(0), Some(s(100)), Some(s(0)), Some(s(100)));
        assert_eq!((times.renew, times.rebind), (s(50), s(100) * 7 / 8));
        // A T2 at once, as the fuzzer found it: the client would have asked all servers without a pause.
        let times = Times::new(s(0), Some(s(100)), None, Some(s(0)));
        assert_eq!((times.renew, times.rebind), (s(50), s(100) * 7 / 8));
    }
}
