//! Attachments of one pod, which come one after the other: what all of them will ask for counts as needed from the beginning, so that
//! their blocks come together.

use std::sync::Arc;

use ledger::Source;
use pool::{Allocator, Family, Key, Origin};

use super::store::PoolStore;

/// Attachments that are to come. Those that have not come when this is dropped will not.
pub struct ReserveHint {
    store: Arc<PoolStore>,
    keys: Vec<Key>,
}

// === impl PoolStore ===

impl PoolStore {
    /// Counts as needed what these attachments will take of a cluster's pools, whichever addresses come.
    pub fn reserve_hint(self: &Arc<Self>, coming: Vec<(Key, Source)>) -> ReserveHint {
        let (mut keys, mut short) = (Vec::new(), false);
        let mut state = self.state();
        for (key, source) in coming {
            let all = &mut state.allocator;
            let wants = wants(all, &source);
            all.reserve_hint(key.clone(), wants.clone());
            short |= wants.iter().any(|(pool, family)| all.usage(pool, *family).is_short());
            keys.push(key);
        }
        // Where there is enough nobody has to know.
        if short {
            self.tell(state);
        }
        ReserveHint { store: Arc::clone(self), keys }
    }
}

impl Drop for ReserveHint {
    fn drop(&mut self) {
        let mut state = self.store.state();
        let mut missing = false;
        for key in &self.keys {
            missing |= state.allocator.lease(key).is_none();
            state.allocator.unforesee(key);
        }
        if missing {
            self.store.tell(state);
        }
    }
}

fn wants(all: &Allocator, source: &Source) -> Vec<(String, Family)> {
    let specs = source.pools.iter().filter_map(|pool| all.spec(pool)).filter(|spec| spec.origin == Origin::Cluster);
    let family = |family: &Family| source.families.is_empty() || source.families.contains(family);
    specs.flat_map(|spec| Family::ALL.into_iter().filter(|f| spec.has(*f) && family(f)).map(|f| (spec.name.clone(), f))).collect()
}
