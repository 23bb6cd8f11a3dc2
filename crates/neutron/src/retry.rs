//! Whether a call is repeated, and when. Pure.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::error::Failure;

/// The first pause; each one after it is twice as long.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause of our own choosing.
const LONGEST: Duration = Duration::from_secs(8);
/// The longest pause that a server may ask for: a caller has other things to do.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// How a call ended that may be repeated.
pub(crate) enum Outcome<'a> {
    /// An answer with an error status, and the pause that it asks for.
    Status(StatusCode, Option<Duration>),
    /// No answer.
    Failed(&'a Failure),
}

/// Whether a second time does harm where the first one may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Safety {
    /// It does not: GET, DELETE, a PUT of what is to be.
    Repeatable,
    /// It does: a POST makes another one, a PUT under `If-Match` would be refused.
    Once,
}

// === impl Safety ===

impl Safety {
    pub(crate) fn of(method: &Method, conditional: bool) -> Self {
        if *method == Method::POST || conditional { Safety::Once } else { Safety::Repeatable }
    }
}

/// The pause until the call is repeated; none where it is not. `attempt` is the number of times that it was tried; `chance`, from 0 to 1,
/// keeps callers apart that have failed together.
pub(crate) fn pause(outcome: &Outcome<'_>, safety: Safety, attempt: u32, chance: f64) -> Option<Duration> {
    let again = match outcome {
        // Neither 429 nor 503 has done anything: the one comes from a limiter, the other from a queue or a proxy without a server.
        Outcome::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _) | Outcome::Failed(Failure::NotSent(_)) => true,
        Outcome::Status(status, _) => status.is_server_error() && safety == Safety::Repeatable,
        Outcome::Failed(Failure::NoAnswer(_)) => safety == Safety::Repeatable,
    };
    if !again {
        return None;
    }
    let own = FIRST.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
    match outcome {
        Outcome::Status(_, Some(asked)) if *asked > LONGEST_ASKED => None,
        Outcome::Status(_, Some(asked)) => Some(own.max(*asked)),
        _ => Some(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Option<Duration> = |ms| Some(Duration::from_millis(ms));

    fn after(status: u16, safety: Safety, attempt: u32) -> Option<Duration> {
        pause(&Outcome::Status(StatusCode::from_u16(status).unwrap(), None), safety, attempt, 1.0)
    }

    #[test]
    fn what_may_have_been_done_is_not_done_twice() {
        let (lost, unsent) = (Failure::NoAnswer(String::new()), Failure::NotSent(String::new()));
        let of = |failure, safety| pause(&Outcome::Failed(failure), safety, 1, 1.0);
        assert_eq!((of(&lost, Safety::Once), of(&lost, Safety::Repeatable)), (None, MS(500)));
        assert_eq!((of(&unsent, Safety::Once), of(&unsent, Safety::Repeatable)), (MS(500), MS(500)));
        for status in [500, 502, 504] {
            assert_eq!((after(status, Safety::Once, 1), after(status, Safety::Repeatable, 1)), (None, MS(500)), "{status}");
        }
        for status in [429, 503] {
            assert_eq!(after(status, Safety::Once, 1), MS(500), "{status}");
        }
        for status in [400, 401, 403, 404, 409, 412, 413] {
            assert_eq!(after(status, Safety::Repeatable, 1), None, "{status}");
        }
        assert_eq!(Safety::of(&Method::PUT, true), Safety::Once);
    }

    #[test]
    fn pauses_grow_and_a_server_may_ask_for_longer_ones() {
        let grown: Vec<_> = (1..=7).map(|attempt| after(503, Safety::Once, attempt)).collect();
        assert_eq!(grown, [MS(500), MS(1000), MS(2000), MS(4000), MS(8000), MS(8000), MS(8000)]);
        let asked = |seconds| {
            let outcome = Outcome::Status(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(seconds)));
            pause(&outcome, Safety::Once, 1, 0.0)
        };
        assert_eq!((asked(0), asked(7), asked(31)), (MS(250), MS(7000), None));
    }
}
