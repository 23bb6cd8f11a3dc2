//! Numbers that nobody guesses: the standard library's hash keys are drawn from the kernel for each thread, and differ each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A transaction's number.
pub(crate) fn number() -> u32 {
    let bits = RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or_default()
}

/// A time that differs from the given one by at most a part of it: of many clients not all ask at once.
pub(crate) fn about(time: Duration, spread: Duration) -> Duration {
    let random = f64::from(number()) / f64::from(u32::MAX);
    (time + spread.mul_f64(2.0 * random)).saturating_sub(spread)
}
