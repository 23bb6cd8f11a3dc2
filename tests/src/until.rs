//! How a test waits for a fact: it looks until it sees it, so that it takes as long as the fact takes, on every machine.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::guest;

/// No fact takes longer, on the slowest machine: who waits so long in vain has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds, for two minutes at most ([`guest::patience`]): machines are busy.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_seen(what, holds, |holds| *holds);
}

/// As [`until`], of what `look` sees: hands over what it saw when that held.
///
/// # Panics
/// If it does not, with what was there instead.
#[track_caller]
pub fn until_seen<T: Debug>(what: &str, look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    let patience = guest::patience(PATIENCE);
    seen_within(patience, look, holds).unwrap_or_else(|seen| panic!("not within {patience:?}: {what}; but {seen:#?}"))
}

/// Looks until something holds, for so long at most.
///
/// # Errors
/// What was seen last, where it does not: the caller says what that means.
pub fn seen_within<T>(patience: Duration, mut look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> Result<T, T> {
    let begun = Instant::now();
    // What is soon there is soon seen; what takes long is not kept from it by somebody who looks.
    let mut pause = Duration::from_millis(1);
    loop {
        let is_over = begun.elapsed() >= patience;
        let seen = look();
        if holds(&seen) {
            return Ok(seen);
        }
        // Once more after the end of the time: who stood still until then has looked before.
        if is_over {
            return Err(seen);
        }
        // Sleeps: between two looks. A fact wakes nobody who looks for it through another program.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_first_look_that_holds() {
        let mut looks = 0;
        let seen = until_seen(
            "three looks",
            || {
                looks += 1;
                looks
            },
            |looks| *looks == 3,
        );
        assert_eq!((seen, looks), (3, 3));
    }

    #[test]
    fn what_was_seen_last_is_handed_over() {
        let mut looks = 0;
        let look = || {
            looks += 1;
            looks
        };
        let seen = seen_within(Duration::from_millis(5), look, |_| false);
        assert_eq!(seen, Err(looks));
    }
}
