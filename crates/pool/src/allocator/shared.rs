//! Pools that have the same addresses of one network: what one of them has given back is free in the other one.

use super::{Allocator, Pool, Want};
use crate::{Moment, Refused};

// === impl Allocator ===

impl Allocator {
    /// A pool was short, or an address taken: whether it is worth to ask again, now that the pools beside it have been looked
    /// at. An address that another pool had is behind this one's cursor, and in nobody's line here.
    pub(super) fn look_beside(&mut self, refused: &Refused, want: &Want, now: &Moment) -> bool {
        if !matches!(refused, Refused::Short { .. } | Refused::Taken { .. }) {
            return false;
        }
        // Who knows a part of it may be short of what there is of it.
        let Some(pool) = self.pools.get(&want.pool).filter(|pool| !pool.in_short) else { return false };
        let network = pool.spec.network.clone();
        let beside = |(name, pool): &(&String, &mut Pool)| pool.spec.network == network && **name != want.pool;
        let Some(space) = self.spaces.get_mut(&network) else { return false };
        let mut any = false;
        for (_, pool) in self.pools.iter_mut().filter(beside) {
            let (half, spec) = pool.half_mut(want.family);
            half.settle(space, spec, now);
            any = true;
        }
        any
    }

    /// What is behind the cursors of a want's pool was needed: it comes next.
    pub(super) fn rewind(&mut self, want: &Want) {
        let Some(pool) = self.pools.get_mut(&want.pool).filter(|_| want.address.is_none()) else { return };
        if let Some(space) = self.spaces.get(&pool.spec.network) {
            pool.half_mut(want.family).0.rewind(space);
        }
    }
}
