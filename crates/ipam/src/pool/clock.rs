//! What time it is, as leases and cooldowns are counted.

use std::fmt;

use linux::boot::{self, BootIdError};
use pool::Moment;

/// Tells the moment.
pub struct Clock(Box<dyn Fn() -> Moment + Send + Sync>);

// === impl Clock ===

impl Clock {
    /// One that says what it is told to.
    pub fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Clock(Box::new(now))
    }

    /// The moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        (self.0)()
    }

    /// This machine's.
    ///
    /// # Errors
    /// [`BootIdError`]
    pub fn of_the_machine() -> Result<Self, BootIdError> {
        let boot = boot::boot_id()?.to_bytes();
        Ok(Clock::new(move || Moment { boot, millis: u64::try_from(boot::uptime().as_millis()).unwrap_or(u64::MAX) }))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", (self.0)())
    }
}
