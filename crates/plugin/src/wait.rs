//! A call that waits for somebody else, in a process that serves others as well.

use std::cell::Cell;

use crate::Delegate;

/// A wait of a call. From its first turn until it is dropped, the process serves others in its place.
pub struct LongWait<'a> {
    of: &'a dyn Delegate,
    has_begun: Cell<bool>,
}

// === impl LongWait ===

impl<'a> LongWait<'a> {
    /// Of a call that waits for nothing yet.
    pub fn new(of: &'a dyn Delegate) -> Self {
        LongWait { of, has_begun: Cell::new(false) }
    }

    /// Whether anybody waits for the call any longer: to be asked about once in a second, by the thread of the call.
    pub fn goes_on(&self) -> bool {
        if !self.has_begun.replace(true) {
            self.of.waits(true);
        }
        self.of.is_waited_for()
    }
}

impl Drop for LongWait<'_> {
    fn drop(&mut self) {
        if self.has_begun.get() {
            self.of.waits(false);
        }
    }
}
