//! Memory for the pods that are being attached: each has its networks in the plan and in the record until its ADD ends, also while that
//! waits for an address and has lent its place to others ([`crate::shares`]). A namespace has half of it at the most.

use std::collections::HashMap;
use std::sync::Mutex;

use cni::{CniError, Code};

use crate::lock;

/// How many bytes large pods may take at a time, all together.
const LARGE: usize = 16 << 20;
/// How many of these those of one namespace: somebody else's large pod finds room while they wait.
const OF_ONE: usize = LARGE / 2;
/// Up to how many bytes a pod finds room in any case: thirty networks of the usual size, or one of 30 KiB.
const SMALL: usize = 128 << 10;

/// What large pods take, by namespace.
#[derive(Default)]
pub(crate) struct LargePodBudget(Mutex<HashMap<String, usize>>);

/// The part that one pod has, until this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare<'r> {
    of: &'r Mutex<HashMap<String, usize>>,
    namespace: String,
    bytes: usize,
}

// === impl LargePodBudget ===

impl LargePodBudget {
    /// Reserves this many bytes for a pod of a namespace, until what it returns is dropped.
    ///
    /// # Errors
    /// Code 11 if others have it.
    pub(crate) fn take(&self, namespace: &str, bytes: usize) -> Result<BudgetShare<'_>, CniError> {
        let bytes = if bytes <= SMALL { 0 } else { bytes };
        let mut taken = lock(&self.0);
        let (all, own) = (taken.values().sum::<usize>(), taken.get(namespace).copied().unwrap_or_default());
        let refused = |by: &str, taken: usize, limit: usize| {
            let msg = format!(
                "the pod's networks take {} KiB of memory while it is attached, but other pods {by}with large networks take {} of {} KiB: the \
                 runtime retries; select fewer networks, or make their definitions smaller: up to {} KiB never wait",
                bytes >> 10,
                taken >> 10,
                limit >> 10,
                SMALL >> 10
            );
            CniError::new(Code::TRY_AGAIN_LATER, msg)
        };
        let fits = |taken: usize, limit: usize| taken.checked_add(bytes).is_some_and(|all| all <= limit);
        if !fits(own, OF_ONE) {
            return Err(refused("of its namespace ", own, OF_ONE));
        }
        if !fits(all, LARGE) {
            return Err(refused("", all, LARGE));
        }
        if bytes > 0 {
            *taken.entry(namespace.to_owned()).or_default() += bytes;
        }
        Ok(BudgetShare { of: &self.0, namespace: namespace.to_owned(), bytes })
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        let mut taken = lock(self.of);
        if let Some(own) = taken.get_mut(&self.namespace).filter(|_| self.bytes > 0) {
            *own -= self.bytes;
            if *own == 0 {
                taken.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pods_have_a_limit_together_and_small_ones_none() {
        let room = LargePodBudget::default();
        let held: Vec<BudgetShare> =
            ["a", "b"].iter().flat_map(|of| [room.take(of, OF_ONE / 2).unwrap(), room.take(of, OF_ONE / 2).unwrap()]).collect();
        let refused = room.take("c", SMALL + 1).unwrap_err();
        assert_eq!(refused.code, Code::TRY_AGAIN_LATER);
        assert!(refused.msg.contains("take 16384 of 16384 KiB") && refused.msg.ends_with("up to 128 KiB never wait"), "{refused}");
        let small: Vec<BudgetShare> = (0..1000).map(|_| room.take("a", SMALL).unwrap()).collect();
        drop(held);
        assert!(room.take("a", OF_ONE).is_ok() && room.take("a", OF_ONE).is_ok() && room.take("a", OF_ONE + 1).is_err());
        drop(small);
        assert!(lock(&room.0).is_empty());
    }

    #[test]
    fn a_namespace_leaves_half_to_others() {
        let room = LargePodBudget::default();
        let _held = room.take("a", OF_ONE).unwrap();
        let refused = room.take("a", SMALL + 1).unwrap_err();
        assert!(refused.msg.contains("other pods of its namespace with large networks take 8192 of 8192 KiB"), "{refused}");
        assert!(room.take("b", OF_ONE).is_ok());
    }
}
