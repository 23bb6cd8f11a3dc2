//! Who waits for addresses, or will ask for them in a moment; and of which pools how many that are, without a look at each.

use std::collections::BTreeMap;

use crate::{Family, Key};

/// Addresses that an attachment waits for, by pool and family.
pub(super) type Wants = Vec<(String, Family)>;

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitList {
    waiting: BTreeMap<Key, Wants>,
    foreseen: BTreeMap<Key, ReserveHint>,
    counts: BTreeMap<String, [Count; 2]>,
}

/// Attachments that will ask, and whether they hold something: then they will not.
#[derive(Debug, Clone)]
struct ReserveHint {
    wants: Wants,
    holds: bool,
}

/// Of one pool and family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    waiting: u64,
    coming: u64,
}

// === impl WaitList ===

impl WaitList {
    /// Whether that is new.
    pub(super) fn wait(&mut self, key: &Key, wants: Wants) -> bool {
        self.change(key, |all| all.waiting.insert(key.clone(), wants).is_none())
    }

    /// Whether it waited.
    pub(super) fn stop(&mut self, key: &Key) -> bool {
        self.change(key, |all| all.waiting.remove(key).is_some())
    }

    /// `holds`: whether it has something already.
    pub(super) fn reserve_hint(&mut self, key: &Key, wants: Wants, holds: bool) {
        self.change(key, |all| all.foreseen.insert(key.clone(), ReserveHint { wants, holds }));
    }

    /// Whether it was foreseen.
    pub(super) fn unforesee(&mut self, key: &Key) -> bool {
        self.change(key, |all| all.foreseen.remove(key).is_some())
    }

    /// An attachment has got something, or has it no more.
    pub(super) fn holds(&mut self, key: &Key, holds: bool) {
        if self.foreseen.contains_key(key) {
            self.change(key, |all| all.foreseen.get_mut(key).into_iter().for_each(|foreseen| foreseen.holds = holds));
        }
    }

    /// How many attachments wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// For how many addresses it is waited, or will be.
    pub(super) fn needed(&self, pool: &str, family: Family) -> u64 {
        let Count { waiting, coming } = self.count(pool, family);
        waiting + coming
    }

    /// For how many others wait.
    pub(super) fn beside(&self, key: &Key, pool: &str, family: Family) -> u64 {
        let own = self.waiting.get(key).into_iter().flatten().filter(|(name, of)| name == pool && *of == family);
        self.count(pool, family).waiting.saturating_sub(own.count() as u64)
    }

    fn count(&self, pool: &str, family: Family) -> Count {
        let [v4, v6] = self.counts.get(pool).copied().unwrap_or_default();
        if family == Family::V4 { v4 } else { v6 }
    }

    /// What an attachment counts for is what is known of it, before and afterwards.
    fn change<T>(&mut self, key: &Key, change: impl FnOnce(&mut Self) -> T) -> T {
        self.add(key, |count, one| *count = count.saturating_sub(one));
        let changed = change(self);
        self.add(key, |count, one| *count += one);
        changed
    }

    fn add(&mut self, key: &Key, add: impl Fn(&mut u64, u64)) {
        let waiting = self.waiting.get(key);
        let coming = self.foreseen.get(key).filter(|foreseen| waiting.is_none() && !foreseen.holds).map(|foreseen| &foreseen.wants);
        for (pool, family) in waiting.or(coming).into_iter().flatten() {
            let [v4, v6] = match self.counts.get_mut(pool) {
                Some(counts) => counts,
                None => self.counts.entry(pool.clone()).or_default(),
            };
            let count = if *family == Family::V4 { v4 } else { v6 };
            add(if waiting.is_some() { &mut count.waiting } else { &mut count.coming }, 1);
        }
        self.counts.retain(|_, counts| *counts != <[Count; 2]>::default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever comes and goes: as many as are counted one by one.
        #[test]
        fn counted_one_by_one(steps in proptest::collection::vec((0_u8..6, 0_usize..5, any::<bool>(), any::<bool>()), 0..60)) {
            let mut waits = WaitList::default();
            let key = |n: usize| Key { network: "n".to_owned(), container: n.to_string(), ifname: "eth0".to_owned() };
            let both: Wants = [("a", Family::V4), ("a", Family::V6), ("b", Family::V4)].map(|(pool, family)| (pool.to_owned(), family)).to_vec();
            for (step, n, holds, all) in steps {
                let (key, wants) = (key(n), both[usize::from(!all)..].to_vec());
                match step {
                    0 => drop(waits.wait(&key, wants)),
                    1 => drop(waits.stop(&key)),
                    2 => waits.reserve_hint(&key, wants, holds),
                    3 => drop(waits.unforesee(&key)),
                    _ => waits.holds(&key, holds),
                }
                for (pool, family) in &both {
                    let of = |wants: &Wants| wants.iter().filter(|want| want.0 == *pool && want.1 == *family).count() as u64;
                    let waiting: u64 = waits.waiting.values().map(of).sum();
                    let coming = waits.foreseen.iter().filter(|(key, foreseen)| !foreseen.holds && !waits.waiting.contains_key(*key));
                    prop_assert_eq!(waits.needed(pool, *family), waiting + coming.map(|(_, foreseen)| of(&foreseen.wants)).sum::<u64>());
                    prop_assert_eq!(waits.beside(&key, pool, *family), waiting - waits.waiting.get(&key).map_or(0, of));
                }
            }
        }
    }
}
