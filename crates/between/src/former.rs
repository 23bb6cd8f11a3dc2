//! What this node's pods still have addresses of, although another node may have it by now.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::Plan;
use crate::members::{overlap, parts};

// === impl Plan ===

impl Plan {
    /// The other nodes' ranges that share addresses with one of these ranges.
    #[must_use]
    pub fn shared_with(&self, former: &[IpNet]) -> BTreeSet<IpNet> {
        let is_shared = |range: &&IpNet| former.iter().any(|former| overlap(former, range));
        self.routes.keys().chain(&self.closed).filter(is_shared).copied().collect()
    }

    /// Leaves these ranges to pods of this node: no route leads out of one, and none is closed. A route of a larger range stays, because the
    /// own route to the pods is more specific. What is closed of a larger range stays closed but for the part that is left.
    pub fn leave(&mut self, former: &[IpNet]) {
        for range in self.shared_with(former) {
            if former.iter().any(|former| former.contains(&range)) {
                self.routes.remove(&range);
            }
            if self.closed.remove(&range) {
                let left: Vec<IpNet> = former.iter().filter(|former| overlap(former, &range)).copied().collect();
                self.closed.extend(parts(range, left, usize::MAX).0);
            }
        }
    }
}
