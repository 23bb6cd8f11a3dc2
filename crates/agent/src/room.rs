//! Memory for the pods that are being attached: each has its networks in the plan and in the record until its ADD ends, also while that
//! waits for an address and has lent its place to others ([`crate::shares`]).

use std::sync::atomic::{AtomicUsize, Ordering};

use cni::{CniError, Code};

/// How many bytes large pods may take at a time, all together.
const LARGE: usize = 16 << 20;
/// Up to how many bytes a pod finds room in any case: thirty networks of the usual size, or one of 30 KiB.
const SMALL: usize = 128 << 10;

/// What large pods take.
#[derive(Default)]
pub(crate) struct LargePodBudget(AtomicUsize);

/// The part that one pod has, until this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare<'r> {
    of: &'r AtomicUsize,
    bytes: usize,
}

// === impl LargePodBudget ===

impl LargePodBudget {
    /// Reserves this many bytes for a pod, until what it returns is dropped.
    ///
    /// # Errors
    /// Code 11 if others have it.
    pub(crate) fn take(&self, bytes: usize) -> Result<BudgetShare<'_>, CniError> {
        let bytes = if bytes <= SMALL { 0 } else { bytes };
        let more = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= LARGE);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(BudgetShare { of: &self.0, bytes }),
            Err(taken) => {
                let msg = format!(
                    "the pod's networks take {} KiB of memory while it is attached, but other pods with large networks take {} of {} KiB: the \
                     runtime retries; select fewer networks, or make their definitions smaller: up to {} KiB never wait",
                    bytes >> 10,
                    taken >> 10,
                    LARGE >> 10,
                    SMALL >> 10
                );
                Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
            }
        }
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pods_have_a_limit_together_and_small_ones_none() {
        let room = LargePodBudget::default();
        let held: Vec<BudgetShare> = (0..4).map(|_| room.take(LARGE / 4).unwrap()).collect();
        let refused = room.take(SMALL + 1).unwrap_err();
        assert_eq!(refused.code, Code::TRY_AGAIN_LATER);
        assert!(refused.msg.contains("take 16384 of 16384 KiB") && refused.msg.ends_with("up to 128 KiB never wait"), "{refused}");
        let small: Vec<BudgetShare> = (0..1000).map(|_| room.take(SMALL).unwrap()).collect();
        drop(held);
        assert!(room.take(LARGE).is_ok() && room.take(LARGE).is_ok() && room.take(LARGE + 1).is_err());
        drop(small);
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }
}
